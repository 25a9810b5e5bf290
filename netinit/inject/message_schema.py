"""The fields of Istio's mesh configuration messages, in the order of the .proto file."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from netinit.inject.data_files import read_lines

_LINE = "---"
_INITIAL = "(?:^|_)([a-z])"
_CAPITAL = "([A-Z])"


class MessageField(NamedTuple):
    """A field of a message: its type as in the data file, its oneof, and its names."""

    kind: str
    oneof: str
    proto_name: str
    go_name: str


@functools.cache
def _tables() -> tuple[Mapping[str, str], Mapping[str, str]]:
    messages: dict[str, str] = {}
    enums: dict[str, str] = {}
    target = messages
    for line in read_lines("mesh-messages.txt"):
        if line == _LINE:
            target = enums
        else:
            name, _, rest = line.partition(":")
            target[name] = rest
    return messages, enums


@functools.cache
def fields_of(message: str) -> Mapping[str, MessageField] | None:
    """Return a message's fields by JSON name; None if the name is not a message."""
    line = _tables()[0].get(message)
    return None if line is None else dict(_fields(line))


def _fields(line: str) -> Iterator[tuple[str, MessageField]]:
    for entry in line.split():
        names, _, rest = entry.partition(":")
        kind, _, oneof = rest.partition("/")
        name, _, spelled = names.partition("=")
        proto_name = spelled or re.sub(_CAPITAL, lambda found: f"_{found[1].lower()}", name)
        yield name, MessageField(kind, oneof, proto_name, go_name(proto_name))


def go_name(proto_name: str) -> str:
    """Return the Go name of a field: mesh_mTLS is MeshMTLS."""
    return re.sub(_INITIAL, lambda found: found[1].upper(), proto_name)


def go_type(name: str) -> str:
    """The Go type of a message or an enumeration."""
    return name if "." in name else f"v1alpha1.{name}"


@functools.cache
def enum_names(enum: str) -> Mapping[int, str]:
    """Return an enumeration's names by number; 0 is the default."""
    pairs = (entry.rpartition("=") for entry in _tables()[1][enum].split())
    return {int(number): name for name, _, number in pairs}
