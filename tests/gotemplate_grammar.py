"""Templates and data made at random, for the comparison with Go and for fuzzing.

Everything is drawn through `choose(n)`, a number below n, so that hypothesis, a seeded generator and bytes of a fuzzer
can drive it alike.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from netinit.golang.template.values import (
    Enum,
    Function,
    FunctionError,
    Int32,
    Int64,
    StringMap,
    Struct,
    TypedList,
    TypedMap,
    Uint8,
    Uint32,
    Uint64,
)

MODES = ("REDIRECT", "TPROXY")


def thing(name, count=0, tags=(), marks=None, *, any_value=None, inner=None, mode=0, pointer=False):
    """A struct like the oracle's Thing."""
    fields = {
        "Name": name,
        "Count": count,
        "Tags": TypedList(tags, go_type="[]string"),
        "Marks": StringMap(marks or {}),
        "Any": any_value,
        "Next": inner if inner is not None else _nil_thing(),
        "Mode": Enum(mode, MODES[mode], "main.Mode"),
    }

    def fail():
        raise FunctionError("it failed")

    following = fields["Next"]
    methods = {
        "Hello": Function(lambda: "hello " + name),
        "Join": Function(lambda a, b: name + a + b, "string", "string"),
        "Sum": Function(lambda *n: sum(n), variadic="int"),
        "Half": Function(lambda f: f / 2, "float64"),
        "Fail": Function(fail),
    }
    if pointer:
        methods["GetNext"] = Function(lambda: following)
    return Struct("*main.Thing" if pointer else "main.Thing", fields, methods)


_THING_FIELDS = ("Name", "Count", "Tags", "Marks", "Any", "Next", "Mode")


def _nil_thing():
    holder = {}

    def on_nil(name):
        def method(*_args):
            raise FunctionError(f"value method main.Thing.{name} called using nil *Thing pointer")

        return method

    methods = {
        "Hello": Function(on_nil("Hello")),
        "Join": Function(on_nil("Join"), "string", "string"),
        "Sum": Function(on_nil("Sum"), variadic="int"),
        "Half": Function(on_nil("Half"), "float64"),
        "Fail": Function(on_nil("Fail")),
        "GetNext": Function(lambda: holder["none"]),
    }
    none = Struct("*main.Thing", dict.fromkeys(_THING_FIELDS), methods, nil=True)
    holder["none"] = none
    return none


def rich_data():
    """Data with a value of every kind."""
    inner = thing("inner", pointer=True)
    return {
        "s": "text",
        "empty": "",
        "accent": "h\u00e9llo \u4e16",
        "html": '<a href="x">&\'=',
        "n": 42,
        "zero": 0,
        "neg": -7,
        "i32": Int32(5),
        "i64": Int64(-9),
        "u8": Uint8(200),
        "u32": Uint32(7),
        "u64": Uint64(9),
        "f": 2.5,
        "big": 1000000.0,
        "whole": 15020.0,
        "tiny": 1e-7,
        "yes": True,
        "no": False,
        "nil": None,
        "raw": b"bytes",
        "m": {"a": 1, "b": "two", "c": None, "d": {"e": [1, "x", None]}, "z": 1.5},
        "em": {},
        "l": [1, "two", 3.5, None, True, [1, 2], {"k": "v"}],
        "el": [],
        "sm": StringMap({"x": "y", "app": "web"}),
        "im": TypedMap({"one": 1}, go_type="map[string]int", zero=0),
        "nm": TypedMap({1: "one", 10: "ten", 2: "two"}, go_type="map[int]string", zero=""),
        "sl": TypedList(["b", "a"], go_type="[]string"),
        "il": TypedList([3, 1, 2], go_type="[]int"),
        "t": thing("top", 2, ("p", "q"), {"k": "v"}, any_value={"deep": [1]}, inner=inner),
        "pt": thing("point", 1, ("r",), {"l": "w"}, any_value={"a": 5}, inner=inner, mode=1, pointer=True),
        "np": _nil_thing(),
        "mode": Enum(1, "TPROXY", "main.Mode"),
    }


_PLAIN = {
    bool: "bool",
    int: "int",
    float: "float64",
    str: "string",
    Int32: "int32",
    Int64: "int64",
    Uint8: "uint8",
    Uint32: "uint32",
    Uint64: "uint64",
}


def encode(value):
    """The value in the form that the oracle reads."""
    if value is None:
        return {"t": "nil", "v": None}
    if isinstance(value, Enum):
        return {"t": "mode", "v": int(value)}
    if type(value) in _PLAIN:
        return {"t": _PLAIN[type(value)], "v": value}
    if isinstance(value, bytes):
        return {"t": "bytes", "v": base64.b64encode(value).decode()}
    if isinstance(value, TypedMap | TypedList):
        plain = {str(k): v for k, v in value.items()} if isinstance(value, TypedMap) else list(value)
        return {"t": value.go_type, "v": plain}
    if isinstance(value, Struct):
        if value.nil:
            return {"t": "nil thing", "v": None}
        kind = "*thing" if value.go_type.startswith("*") else "thing"
        return {"t": kind, "v": {name: encode(item) for name, item in value.fields.items()}}
    if isinstance(value, dict):
        return {"t": "map", "v": {key: encode(item) for key, item in value.items()}}
    return {"t": "list", "v": [encode(item) for item in value]}


def _fail(message):
    raise FunctionError(message)


FUNCTIONS = {
    "upper": Function(str.upper, "string"),
    "add": Function(lambda a, b: a + b, "int", "int"),
    "half": Function(lambda f: f / 2, "float64"),
    "join": Function(lambda sep, *words: sep.join(words), "string", variadic="string"),
    "same": Function(lambda v: v, "interface {}"),
    "lookup": Function(lambda m, key: (m or {}).get(key), "map[string]interface {}", "string"),
    "fail": Function(_fail, "string"),
    "truth": Function(lambda b: b, "bool"),
    "size": Function(lambda items: len(items or ()), "[]interface {}"),
}
"""The oracle's functions."""

_KEYS = tuple(rich_data())
_FIELDS = (
    "a",
    "b",
    "c",
    "d",
    "e",
    "k",
    "x",
    "Name",
    "Count",
    "Tags",
    "Marks",
    "Any",
    "Next",
    "Mode",
    "Hello",
    "GetNext",
)
_LITERALS = (
    "0", "1", "2", "-1", "1.5", "1e3", "0x1F", "0b11", "017", "1_000", "'a'", "'\\n'", "true", "false", "nil", '"a"',
    '"b\\tc"', '""', "`raw`", '"%d"', '"x"', '"Name"', "3.0",
)  # fmt: skip
_ONE = (
    "len",
    "not",
    "upper",
    "half",
    "same",
    "truth",
    "print",
    "printf",
    "println",
    "html",
    "js",
    "urlquery",
    "fail",
    "size",
)
_TWO = ("eq", "ne", "lt", "le", "gt", "ge", "index", "add", "join", "lookup", "and", "or", "print", "println")
_MANY = ("and", "or", "eq", "index", "print", "printf", "join", "println", "call")
_VERBS = (
    "%v", "%d", "%s", "%q", "%t", "%5d", "%-5d|", "%05d", "%.2f", "%8.3f", "%g", "%T", "%+v", "%c", "%%", "%5s", "%-6s|", "%.1s",
    "%+d", "%08.2f", "%+q", "%6.2v", "%+.1f", "%.3g", "%-+5d", "%07d|", "%-07.1f|", "%s %v",
)  # fmt: skip
_TEXTS = ("x", " ", "\n", "text\n", " \n ", "a b", "-", "{", "}", "%", "")


class Maker:
    """A writer of templates; `wild` makes them wrong more often."""

    def __init__(self, choose: Callable[[int], int], *, wild: bool = False) -> None:
        self.choose = choose
        self.wild = wild
        self.variables = ["$"]
        self.loops = 0
        self.blocks = 0
        self.defined = []

    def pick(self, options):
        return options[self.choose(len(options))]

    def chance(self, of):
        return self.choose(of) == 0

    def template(self):
        return self.nodes(3)

    def nodes(self, depth):
        return "".join(self.node(depth) for _ in range(self.choose(4) + (depth == 3)))

    def node(self, depth):
        kind = self.choose(12 if depth else 5)
        if kind < 2:
            return self.pick(_TEXTS)
        if kind < 5:
            return self.action(self.pipe(2, declare=True))
        return getattr(self, self.pick(("if_", "range_", "with_", "define_", "template_", "comment_", "loop_word")))(
            depth
        )

    def action(self, inside):
        left = self.pick(("{{", "{{", "{{", "{{- ", "{{ "))
        right = self.pick(("}}", "}}", "}}", " -}}", " }}"))
        return f"{left}{inside}{right}"

    def scope(self, depth):
        mark = len(self.variables)
        text = self.nodes(depth - 1)
        del self.variables[mark:]
        return text

    def branch(self, word, head, depth):
        mark = len(self.variables)
        text = self.action(f"{word} {head()}") + self.scope(depth)
        while word != "range" and self.chance(4):
            text += self.action(f"else {word} {self.pipe(1)}") + self.scope(depth)
        if self.chance(2):
            loops, self.loops = self.loops, self.loops - (word == "range")
            text += self.action("else") + self.scope(depth)
            self.loops = loops
        del self.variables[mark:]
        return text

    def if_(self, depth):
        return self.branch("if", lambda: self.pipe(2, declare=True), depth) + self.action("end")

    def with_(self, depth):
        return self.branch("with", lambda: self.pipe(2, declare=True), depth) + self.action("end")

    def range_(self, depth):
        def head():
            form = self.choose(5)
            source = f".{self.pick(_KEYS)}" if self.choose(3) else self.pipe(1)
            if form < 2:
                return source
            names = [self.variable_name() for _ in range(1 + (form > 3))]
            operator = ":="
            if self.chance(5) and all(name in self.variables for name in names):
                operator = "="
            self.variables += names
            return f"{', '.join(names)} {operator} {source}"

        self.loops += 1
        text = self.branch("range", head, depth)
        self.loops -= 1
        return text + self.action("end")

    def loop_word(self, depth):
        if self.loops or (self.wild and self.chance(8)):
            word = self.action(self.pick(("break", "continue")))
            return f"{self.action(f'if {self.pipe(1)}')}{word}{self.action('end')}" if self.chance(2) else word
        return self.if_(depth)

    def define_(self, depth):
        if self.blocks or depth < 3:
            return self.template_(depth)
        self.blocks += 1
        variables, self.variables = self.variables, ["$"]
        loops, self.loops = self.loops, 0
        name = f"d{len(self.defined)}"
        text = self.action(f'define "{name}"') + self.nodes(1) + self.action("end")
        self.defined.append(name)
        self.variables, self.loops = variables, loops
        self.blocks -= 1
        return text

    def template_(self, _depth):
        names = self.defined or ["missing"]
        if not self.defined and not self.wild:
            return "-"
        name = self.pick(names)
        return self.action(f'template "{name}"' + (f" {self.pipe(1)}" if self.choose(3) else ""))

    def comment_(self, _depth):
        return self.pick(("{{/* a comment */}}", "{{- /* x\ny */ -}}", " {{/**/}} "))

    def variable_name(self):
        return self.pick(("$a", "$b", "$c"))

    def pipe(self, depth, *, declare=False):
        text = self.command(depth)
        while self.chance(4):
            text += f" | {self.stage(depth)}"
        if declare and self.chance(5):
            name = self.variable_name()
            operator = "=" if name in self.variables and self.chance(2) else ":="
            self.variables.append(name)
            text = f"{name} {operator} {text}"
        return text

    def stage(self, depth):
        """A command that takes a piped value."""
        if self.wild and self.chance(10):
            return self.operand(depth)
        kind = self.choose(4)
        if kind < 2:
            return self.pick(_ONE)
        if kind == 2:
            return f"{self.pick(_TWO)} {self.operand(depth)}"
        return f'printf "{self.pick(_VERBS)}"'

    def command(self, depth):
        kind = self.choose(9)
        if depth <= 0 or kind < 4:
            return self.operand(depth)
        if kind == 4:
            return f"{self.pick(_ONE)} {self.operand(depth - 1)}"
        if kind == 5:
            return f"{self.pick(_TWO)} {self.operand(depth - 1)} {self.operand(depth - 1)}"
        if kind == 6:
            values = " ".join(self.operand(depth - 1) for _ in range(self.choose(4)))
            return f'printf "{self.pick(_VERBS)}{self.pick(("", " "))}{self.pick(_VERBS)}" {values}'
        if kind == 7:
            return f"{self.pick(_MANY)} " + " ".join(self.operand(depth - 1) for _ in range(self.choose(4)))
        method = self.pick(("Join", "Sum", "Half", "Hello", "Fail", "GetNext", "Name", "Nope"))
        values = " ".join(self.operand(depth - 1) for _ in range(self.choose(3)))
        return f".{self.pick(('t', 'pt', 'np', 'm', 'sm'))}.{method} {values}"

    def operand(self, depth):
        kind = self.choose(10)
        if kind < 4:
            return self.chain("." + self.pick(_KEYS))
        if kind == 4:
            return "."
        if kind == 5:
            name = self.pick(self.variables)
            return self.chain(name) if self.chance(2) else name
        if kind < 8 or depth <= 0:
            return self.pick(_LITERALS)
        inner = f"({self.pipe(depth - 1)})"
        return self.chain(inner) if self.chance(3) else inner

    def chain(self, start):
        while self.chance(3):
            start += f".{self.pick(_FIELDS)}"
        return start
