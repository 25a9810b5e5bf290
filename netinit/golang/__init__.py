"""Go's text templates, and YAML and JSON as Go reads and writes them: a library without knowledge of Istio or pods.

    from netinit.golang.sprig import FUNCTIONS
    from netinit.golang.template import Template

    Template("greeting", "Hello {{ .name | quote }}", FUNCTIONS).render({"name": "mesh"})

- `template`: the language. `Template` makes tokens (`lexer`) and syntax trees (`parser`, `nodes`); the first
  rendering compiles them into closures (`compiler`, `expressions`, `access`). Steps, output, depth and the size of
  values are limited (`limits`). Results and error messages are Go's.
- `sprig`: the functions that charts call.
- `goyaml`: `load` reads YAML like kubectl; `dump` writes trees that every reader reads alike; `values.to_yaml` writes
  Go values like sigs.k8s.io/yaml.
- `gojson`: JSON, byte for byte like Go's encoding/json.

All share one data model: plain dicts, lists, strings, numbers and None, and a few classes of `template.values` where
Go's types matter. Text is Go's bytes: invalid UTF-8 is kept as surrogate escapes.
"""
