"""Go's text templates, and YAML and JSON as Go reads and writes them: a library of its own.

It knows nothing of Istio, pods or packets, imports nothing of netinit but `netinit.base` (errors, and the
trees that documents become), and is pure: text and values in, text and values out.

    from netinit.golang.sprig import FUNCTIONS
    from netinit.golang.template import Template

    Template.parse("greeting", "Hello {{ .name | quote }}", FUNCTIONS).render({"name": "mesh"})

Parts:

- `template`: the language. `Template.parse` cuts the text into tokens (`lexer`), makes trees of them (`parser`, `nodes`)
  and, at the first rendering, closures (`compiler`, `expressions`, `calls`); a rendering only calls these. It is bounded
  (`limits`): steps, output, depth and the size of every value. What comes out, errors included, is what Go would say.
- `sprig`: the functions that charts call, by name.
- `goyaml`: `load` types scalars as kubectl does; `dump` writes trees so that no reader errs; `values.to_yaml` writes Go
  values as sigs.k8s.io/yaml does. One layout (`writer`), one list of words (`scalars`) and one way of quoting (`text`).
- `gojson`: JSON to the letter of encoding/json, from Go values and from plain trees.

Theory of operation: one data model serves them all. A template's data, a document that was read and a value to be written
are plain dicts, lists, strings, numbers and None; where Go's types matter (a map of strings, an int64, a struct with
methods) a few classes of `template.values` stand for them. So everything that is read can be rendered, and everything that
a template sees can be written. Text is Go's bytes: what is no UTF-8 passes through as surrogate escapes.
"""
