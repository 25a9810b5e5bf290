"""Go's text/template in Python.

    template = Template("hello", "Hello {{ .Name | upper }}", functions={"upper": lambda text: text.upper()})
    template.render({"Name": "mesh"})

Results and error messages are those of Go's text/template, with which the tests compare them. `values` describes the
data model. The functions of the language are in `builtins`; the caller adds others, such as
`netinit.golang.sprig.FUNCTIONS`. Complex numbers, channels and ranges over functions are errors.
"""

from __future__ import annotations

from netinit.base.errors import TemplateError
from netinit.golang.template.limits import Limits, Rendering
from netinit.golang.template.template import Template
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
