"""The plugin's reader of JSON beside Python's: what each makes of the same bytes. For tests and the fuzzer."""

from __future__ import annotations

import functools
import json
import subprocess

from node_agent import SANITIZERS, build_plugin

KEYS = ("cniVersion", "socket", "pod_namespace", "daemon_set")
LONGEST = 253


@functools.cache
def build_reader():
    return build_plugin(*SANITIZERS, source="tests/fuzz/plugin_reader.c")


def read_all(cases):
    """For each case None, or the four texts (None where there is none) and the bytes of prevResult."""
    data = b"".join(len(case).to_bytes(4, "little") + case for case in cases)
    done = subprocess.run([build_reader()], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = []
    for case, line in zip(cases, done.stdout.decode().splitlines(), strict=True):
        if line == "-":
            found.append(None)
            continue
        *texts, start, length = line.split()
        read = tuple(None if text == "-" else bytes.fromhex(text[1:]) for text in texts)
        found.append((read, case[int(start) : int(start) + int(length)]))
    return found


def _refuse(word):
    raise ValueError(word)


def expected(case):
    """The same by Python's reader. Bytes that are no UTF-8 are taken as they are by the plugin, so here one for one."""
    try:
        tree = json.loads(case.decode("latin-1"), parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(tree, dict):
        return None
    return tuple(text(tree.get(key)) for key in KEYS), tree.get("prevResult")


def text(value):
    """A string as the plugin keeps it: none where it is too long, or has a NUL, which no name has."""
    if not isinstance(value, str):
        return None
    data = b"".join(_spell(character) for character in value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return data if len(data) <= LONGEST and b"\0" not in data else None


def _spell(character):
    return character.encode("utf-8")


def differences(cases):
    """The cases that the two read differently. What is nested deeper than the plugin reads is no difference."""
    wrong = []
    for case, ours in zip(cases, read_all(cases), strict=True):
        theirs = expected(case)
        if ours is None or theirs is None:
            deep = case.count(b"[") + case.count(b"{") >= 99
            if (ours is None) != (theirs is None) and not (ours is None and deep):
                wrong.append((case, ours, theirs))
            continue
        previous = json.loads(ours[1].decode("latin-1")) if ours[1] else None
        plain = case.isascii()  # else a byte of the case is two in Python's text
        if previous != theirs[1] or (plain and ours[0] != theirs[0]):
            wrong.append((case, ours, theirs))
    return wrong
