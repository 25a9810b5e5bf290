package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"

	"sigs.k8s.io/yaml"
)

func main() {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var text string
		if json.Unmarshal(line, &text) != nil {
			panic(string(line))
		}
		out, err := yaml.YAMLToJSON([]byte(text))
		answer := map[string]string{}
		if err != nil {
			answer["error"] = err.Error()
		} else {
			answer["json"] = string(out)
		}
		told, _ := json.Marshal(answer)
		fmt.Println(string(told))
	}
}
