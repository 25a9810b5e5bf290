"""Every text of a finding is used, and gets every value that it names."""

from __future__ import annotations

import ast
import json
import string
from pathlib import Path

import pytest

import netinit
from netinit.base.data import read_data
from netinit.base.finding_texts import format_finding

PACKAGE = Path(netinit.__file__).parent
USERS = {  # the files that use a data file, and the values that all its texts get
    "installation-findings.json": ("installation/*.py", "kubectl/preflight.py"),
    "option-findings.json": ("questions/lint/*.py",),
    "pod-findings.json": ("inject/deciding/*.py",),
}
FOR_ALL = {"pod-findings.json": {"name"}}


def places(texts):
    return {name for text in texts for _, name, _, _ in string.Formatter().parse(text) if name}


@pytest.mark.parametrize("name", USERS)
def test_texts_are_used_and_get_their_values(name):
    known = json.loads(read_data(name))
    trees = [ast.parse(path.read_text()) for pattern in USERS[name] for path in PACKAGE.glob(pattern)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    assert set(known) <= {node.value for node in nodes if isinstance(node, ast.Constant)}
    calls = [node for node in nodes if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"finding", "_finding", "make_finding"}]
    assert calls
    for call in calls:
        key, given = call.args[0], {one.arg for one in call.keywords} | FOR_ALL.get(name, set())
        if isinstance(key, ast.Constant):
            assert places(known[key.value]) <= given, key.value
            assert given <= places(known[key.value]) | {"severity", "path"} | FOR_ALL.get(name, set()), key.value


def test_a_value_that_looks_like_a_place_is_text():
    assert format_finding("pod-findings.json", "unknown-annotation", {"name": "{remedy}", "remedy": "{0}"})[2].endswith(
        "annotation {remedy} has no effect: nothing reads it; {0}"
    )
