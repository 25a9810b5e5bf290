"""Go's text/template in Python.

    template = Template.parse("hello", "Hello {{ .Name | upper }}", functions={"upper": str.upper})
    template.render({"Name": "mesh"})

Lexer, parser and evaluator follow the documentation of text/template and are compared with Go itself by the tests:
results and error messages. Text becomes tokens (`lexer`), a syntax tree (`parser`, `nodes`) and closures
(`compiler`, `expressions`, `calls`) which rendering only calls. `values` says how Python values stand for Go's.
Go's own functions are in `builtins`; every other one is given by the caller, `netinit.golang.sprig.FUNCTIONS` for example.

Complex numbers, channels and ranges over functions are refused with an error; everything else of the language is there.
"""

from __future__ import annotations

from netinit.base.errors import TemplateError
from netinit.golang.template.limits import Limits
from netinit.golang.template.template import Rendering, Template
from netinit.golang.template.values import NO_VALUE, Function, FunctionError, StringMap, Struct, TypedList, TypedMap

__all__ = [
    "NO_VALUE",
    "Function",
    "FunctionError",
    "Limits",
    "Rendering",
    "StringMap",
    "Struct",
    "Template",
    "TemplateError",
    "TypedList",
    "TypedMap",
]
