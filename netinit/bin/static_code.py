"""Writes the code of modules as C data, which needs no reading at a start, as CPython does for its own (Tools/scripts/deepfreeze.py).

The objects are those of Python 3.11 (Include/cpython/code.h): another version's build fails at the names of their members. They are
never freed: their reference counts begin high. Strings are not interned: Python compares them by their content where it must.
"""
# ruff: noqa: INP001 - a part of a program, no package

from __future__ import annotations

import opcode
import re
from pathlib import Path
from types import CodeType, EllipsisType
from typing import Any

PREAMBLE = """\
/* written by executable.py */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <internal/pycore_code.h>
#include <internal/pycore_global_objects.h>
#include <internal/pycore_long.h>
#include <internal/pycore_runtime.h>

#define KEPT {.ob_refcnt = 999999999, .ob_type =
#define SIZED(type, size) {KEPT &type}, size}
#define READY(kind_, ascii_) {.kind = kind_, .compact = 1, .ascii = ascii_, .ready = 1}
#define COLD __attribute__((section(".data.cold"))) /* seldom used: not between what every start writes to */
#define TEXT(size) static struct { PyASCIIObject head; char data[size + 1]; }
#define WIDE(type, size) static struct { PyCompactUnicodeObject head; type data[size + 1]; }
#define BYTES(size) static struct { PyObject_VAR_HEAD Py_hash_t hash; char data[size + 1]; }
#define TUPLE(size) static struct { PyGC_Head head; struct { PyObject_VAR_HEAD PyObject *items[size]; } object; }
#define NUMBER(size) static struct { PyObject_VAR_HEAD digit digits[size]; }
#define O(name) (PyObject *)&name
"""
INTERNED = re.compile(r"(?m)^ +STRUCT_FOR_ID\((\w+)\)")  # in pycore_global_strings.h: strings that the interpreter holds
SMALL = range(-5, 257)  # integers that the interpreter holds
LOCAL, CELL, FREE = 0x20, 0x40, 0x80  # kinds of a function's variables: pycore_code.h
PLAIN = frozenset(bytes(range(ord(" "), ord("~") + 1))) - frozenset(b'"?\\')  # characters of a C string; ? begins trigraphs
DIGIT = 30  # bits of an integer's digit
UNCHANGED = {None: "_Py_NoneStruct", True: "_Py_TrueStruct", False: "_Py_FalseStruct", ...: "_Py_EllipsisObject"}


class StaticCode:
    """Code objects as C data; every constant of one value is written once."""

    def __init__(self, headers: Path) -> None:
        self._interned = set(INTERNED.findall((headers / "internal" / "pycore_global_strings.h").read_text("utf-8")))
        self._lines: list[str] = []
        self._known: dict[tuple[type, object], str] = {}  # type and value -> C expression
        self._modules: list[str] = []

    def add(self, code: CodeType) -> int:
        """Write a module's code; return its number."""
        self._modules.append(self._write_code(code))
        return len(self._modules) - 1

    def render(self) -> str:
        """The C file: all objects, and `static_modules` by number."""
        table = ",\n".join(f"    {one}" for one in self._modules)
        return "\n".join([PREAMBLE, *self._lines, f"PyObject *const static_modules[] = {{\n{table}\n}};\n"])

    def _once(self, kind: type, key: object, line: str, member: str = "") -> str:
        """The expression of an object; it is written, with a name for the first `@` of its declaration, if it is new."""
        known = self._known.get((kind, key))
        if known is None:
            name = f"o{len(self._known)}"
            known = self._known[kind, key] = f"O({name}{member})"
            self._lines.append(line.replace("@", name, 1))
        return known

    def _write(self, value: Any, *, cold: bool = False) -> str:
        """The expression of a constant."""
        if isinstance(value, (bool, EllipsisType)) or value is None:
            return f"O({UNCHANGED[value]})"
        if isinstance(value, CodeType):
            return self._write_code(value)
        if isinstance(value, str):
            return self._write_text(value, cold=cold)
        if isinstance(value, bytes):
            return self._write_bytes(value, cold=cold)
        if isinstance(value, int):
            return self._write_number(value)
        if isinstance(value, float):
            line = f"static PyFloatObject @ = {{KEPT &PyFloat_Type}}, {value.hex()}}};"
            return self._once(float, value.hex(), line)
        if isinstance(value, (tuple, frozenset)):  # a set that is a constant is one that `in` asks: a tuple does as well
            return self._write_tuple(value if isinstance(value, tuple) else tuple(sorted(value, key=repr)))
        raise TypeError(f"a constant of the type {type(value).__name__} cannot be written: {value!r}")

    def _write_tuple(self, items: tuple[Any, ...]) -> str:
        if not items:
            return "O(_Py_SINGLETON(tuple_empty))"
        inner = ", ".join([self._write(item) for item in items])
        line = f"TUPLE({len(items)}) @ = {{.object = {{SIZED(PyTuple_Type, {len(items)}), {{{inner}}}}}}};"
        return self._once(tuple, inner, line, ".object")

    def _write_text(self, text: str, *, cold: bool) -> str:
        if text in self._interned:
            return f"O(_Py_ID({text}))"
        if not text:
            return "O(_Py_STR(empty))"
        if len(text) == 1 and text < "\x80":
            return f"O(_Py_SINGLETON(strings).ascii[{ord(text)}])"
        size, where = len(text), " COLD" if cold else ""
        if text.isascii():
            line = f"TEXT({size}) @{where} = {{{{KEPT &PyUnicode_Type}}, {size}, -1, READY(1, 1)}}, {quote(text.encode())}}};"
        else:
            widest = max(map(ord, text))
            kind = 1 if widest < 1 << 8 else 2 if widest < 1 << 16 else 4
            data = ", ".join(str(ord(one)) for one in text)
            line = f"WIDE(Py_UCS{kind}, {size}) @ = {{{{{{KEPT &PyUnicode_Type}}, {size}, -1, READY({kind}, 0)}}}}, {{{data}}}}};"
        return self._once(str, text, line)

    def _write_bytes(self, data: bytes, *, cold: bool) -> str:
        if not data:
            return "O(_Py_SINGLETON(bytes_empty))"
        line = f"BYTES({len(data)}) @{' COLD' if cold else ''} = {{SIZED(PyBytes_Type, {len(data)}), -1, {quote(data)}}};"
        return self._once(bytes, data, line)

    def _write_number(self, number: int) -> str:
        if number in SMALL:
            return f"O(_PyLong_SMALL_INTS[{number - SMALL.start}])"
        left, digits = abs(number), []
        while left:
            digits.append(f"{left % (1 << DIGIT)}")
            left >>= DIGIT
        size = len(digits) if number > 0 else -len(digits)
        line = f"NUMBER({len(digits)}) @ = {{SIZED(PyLong_Type, {size}), {{{', '.join(digits)}}}}};"
        return self._once(int, number, line)

    def _write_code(self, code: CodeType) -> str:
        names, kinds = list_variables(code)
        fields = {
            "co_consts": self._write(code.co_consts),
            "co_names": self._write(code.co_names),
            "co_exceptiontable": self._write(code.co_exceptiontable, cold=True),
            "co_flags": code.co_flags,
            "co_warmup": "QUICKENING_INITIAL_WARMUP_VALUE",
            "co_argcount": code.co_argcount,
            "co_posonlyargcount": code.co_posonlyargcount,
            "co_kwonlyargcount": code.co_kwonlyargcount,
            "co_stacksize": code.co_stacksize,
            "co_firstlineno": code.co_firstlineno,
            "co_nlocalsplus": len(names),
            "co_nlocals": code.co_nlocals,
            "co_nplaincellvars": sum(not kind & LOCAL for kind in kinds if kind & CELL),
            "co_ncellvars": len(code.co_cellvars),
            "co_nfreevars": len(code.co_freevars),
            "co_localsplusnames": self._write(names),
            "co_localspluskinds": self._write(kinds),
            "co_filename": self._write(code.co_filename, cold=True),
            "co_name": self._write(code.co_name),
            "co_qualname": self._write(code.co_qualname),
            "co_linetable": self._write(code.co_linetable, cold=True),
            "_co_firsttraceable": code.co_code[::2].index(opcode.opmap["RESUME"]),
            "co_code_adaptive": quote(code.co_code),
        }
        size = len(code.co_code)
        held = ", ".join(f".{name} = {value}" for name, value in fields.items())
        line = f"static struct _PyCode_DEF({size}) @ = {{.ob_base = SIZED(PyCode_Type, {size // 2}), {held}}};"
        return self._once(CodeType, len(self._known), line)


def list_variables(code: CodeType) -> tuple[tuple[str, ...], bytes]:
    """A function's variables in the order of their places, and the kinds of each."""
    own = [*code.co_varnames, *[name for name in code.co_cellvars if name not in code.co_varnames]]
    kinds = [LOCAL * (name in code.co_varnames) | CELL * (name in code.co_cellvars) for name in own]
    return (*own, *code.co_freevars), bytes([*kinds, *[FREE] * len(code.co_freevars)])


def quote(data: bytes) -> str:
    """A C string of bytes."""
    return '"' + "".join(chr(one) if one in PLAIN else f"\\{one:03o}" for one in data) + '"'
