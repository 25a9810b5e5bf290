// Renders templates with Go itself, for comparison: one case a line of standard input, one answer a line of output.
//
// A case is {"text": …, "left": …, "right": …, "data": value}, an answer {"out": …} or {"error": …}. A value is
// {"t": type, "v": content}; the types are those of decode below, and the struct and the enumeration are those of
// the Python side's cases.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/template"
)

type value struct {
	T string          `json:"t"`
	V json.RawMessage `json:"v"`
}

type request struct {
	Text  string `json:"text"`
	Left  string `json:"left"`
	Right string `json:"right"`
	Data  value  `json:"data"`
}

type answer struct {
	Out   []byte `json:"out,omitempty"`
	Error string `json:"error,omitempty"`
}

// Mode is an enumeration as protobuf makes them.
type Mode int32

func (m Mode) String() string { return [...]string{"REDIRECT", "TPROXY"}[m] }

// Thing is a struct with fields of several kinds, and methods on the value and on the pointer.
type Thing struct {
	Name  string
	Count int
	Tags  []string
	Marks map[string]string
	Any   any
	Next  *Thing
	Mode  Mode
}

func (t Thing) Hello() string                 { return "hello " + t.Name }
func (t Thing) Join(a string, b string) string { return t.Name + a + b }
func (t Thing) Sum(n ...int) int {
	total := 0
	for _, one := range n {
		total += one
	}
	return total
}
func (t Thing) Half(f float64) float64 { return f / 2 }
func (t Thing) Fail() (string, error)  { return "", errors.New("it failed") }
func (t *Thing) GetNext() *Thing {
	if t == nil {
		return nil
	}
	return t.Next
}

func decode(v value) any {
	var into any
	switch v.T {
	case "nil":
		return nil
	case "bool":
		into = new(bool)
	case "int":
		into = new(int)
	case "int32":
		into = new(int32)
	case "int64":
		into = new(int64)
	case "uint8":
		into = new(uint8)
	case "uint32":
		into = new(uint32)
	case "uint64":
		into = new(uint64)
	case "float64":
		into = new(float64)
	case "bytes":
		into = new([]byte)
	case "string":
		into = new(string)
	case "map":
		return decodeMap(v.V)
	case "list":
		return decodeList(v.V)
	case "map[string]string":
		into = new(map[string]string)
	case "map[string]int":
		into = new(map[string]int)
	case "map[int]string":
		into = new(map[int]string)
	case "[]string":
		into = new([]string)
	case "[]int":
		into = new([]int)
	case "mode":
		into = new(Mode)
	case "thing", "*thing", "nil thing":
		return decodeThing(v)
	default:
		panic("unknown type " + v.T)
	}
	must(json.Unmarshal(v.V, into))
	return deref(into)
}

func deref(pointer any) any {
	switch p := pointer.(type) {
	case *bool:
		return *p
	case *int:
		return *p
	case *int32:
		return *p
	case *int64:
		return *p
	case *uint8:
		return *p
	case *uint32:
		return *p
	case *uint64:
		return *p
	case *float64:
		return *p
	case *[]byte:
		return *p
	case *string:
		return *p
	case *map[string]string:
		return *p
	case *map[string]int:
		return *p
	case *map[int]string:
		return *p
	case *[]string:
		return *p
	case *[]int:
		return *p
	case *Mode:
		return *p
	}
	panic(fmt.Sprintf("no type for %T", pointer))
}

func decodeMap(raw json.RawMessage) map[string]any {
	var entries map[string]value
	must(json.Unmarshal(raw, &entries))
	found := map[string]any{}
	for key, entry := range entries {
		found[key] = decode(entry)
	}
	return found
}

func decodeList(raw json.RawMessage) []any {
	var items []value
	must(json.Unmarshal(raw, &items))
	found := []any{}
	for _, item := range items {
		found = append(found, decode(item))
	}
	return found
}

func decodeThing(v value) any {
	if v.T == "nil thing" {
		var none *Thing
		return none
	}
	fields := decodeMap(v.V)
	thing := Thing{
		Name:  fields["Name"].(string),
		Count: fields["Count"].(int),
		Tags:  fields["Tags"].([]string),
		Marks: fields["Marks"].(map[string]string),
		Any:   fields["Any"],
		Next:  fields["Next"].(*Thing),
		Mode:  fields["Mode"].(Mode),
	}
	if v.T == "*thing" {
		return &thing
	}
	return thing
}

var functions = template.FuncMap{
	"upper":  strings.ToUpper,
	"add":    func(a, b int) int { return a + b },
	"half":   func(f float64) float64 { return f / 2 },
	"join":   func(sep string, words ...string) string { return strings.Join(words, sep) },
	"same":   func(v any) any { return v },
	"lookup": func(m map[string]any, key string) any { return m[key] },
	"fail":   func(message string) (string, error) { return "", errors.New(message) },
	"truth":  func(b bool) bool { return b },
	"size":   func(l []any) int { return len(l) },
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func render(line []byte) (result answer) {
	var asked request
	must(json.Unmarshal(line, &asked))
	parsed, err := template.New("t").Delims(asked.Left, asked.Right).Funcs(functions).Parse(asked.Text)
	if err != nil {
		return answer{Error: err.Error()}
	}
	var out strings.Builder
	if err := parsed.Execute(&out, decode(asked.Data)); err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Out: []byte(out.String())}
}

func main() {
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	out := bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		text, err := json.Marshal(render(line))
		must(err)
		_, err = out.Write(append(text, '\n'))
		must(err)
		must(out.Flush())
	}
}
