"""The plugin's reader of its configuration beside Python's reader of JSON, for tests and the fuzzer."""

from __future__ import annotations

import functools
import json
import subprocess

from node_agent import SANITIZERS, build_plugin

KEYS = ("cniVersion", "prevResult")


@functools.cache
def build_reader():
    return build_plugin(*SANITIZERS, source="tests/fuzz/plugin_reader.c")


def read_all(cases):
    """For each case None where the plugin refuses it, else the texts of the two members, empty where one is absent."""
    data = b"".join(len(case).to_bytes(4, "little") + case for case in cases)
    done = subprocess.run([build_reader()], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    found = []
    for case, line in zip(cases, done.stdout.decode().splitlines(), strict=True):
        numbers = [int(one) for one in line.split()] if line != "-" else []
        found.append(tuple(case[start : start + length] for start, length in zip(numbers[::2], numbers[1::2], strict=True)) if numbers else None)
    return found


def _refuse(word):
    raise ValueError(word)


def _members(pairs):
    """An object as the list of its members, so that a name that stands twice is seen."""
    return pairs


def differences(cases):
    """The configurations that are JSON of an object, and that the plugin reads differently from Python's reader.

    What is no such JSON is the agent's to refuse; here it must only do no harm, which the sanitizers see.
    """
    wrong = []
    for case, ours in zip(cases, read_all(cases), strict=True):
        try:
            members = json.loads(case.decode("latin-1"), parse_constant=_refuse, object_pairs_hook=_members)
            raw = case.decode("latin-1")
        except (ValueError, RecursionError):
            continue
        if not raw.lstrip(" \t\r\n").startswith("{"):
            theirs = None
        else:
            plain = [(name, value) for name, value in members if name in KEYS and _is_plain(name, raw)]
            twice = len({name for name, _ in plain}) < len(plain)
            theirs = None if twice else tuple(dict(plain).get(key, b"") for key in KEYS)
        if ours is None or theirs is None:
            if ours is not None or theirs is not None:
                wrong.append((case, ours, theirs))
            continue
        read = tuple(json.loads(text.decode("latin-1"), object_pairs_hook=_members) if text else b"" for text in ours)
        if read != theirs:
            wrong.append((case, ours, theirs))
    return wrong


def _is_plain(name, raw):
    """Whether a name can stand in the text without escapes, as the plugin knows it; generators write the others with one."""
    return f'"{name}"' in raw
