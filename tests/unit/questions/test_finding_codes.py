"""Codes of findings: each is declared once, beside its check, and known wherever codes are read or explained."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

import netinit
from netinit.base.findings import GROUPS, FindingKind
from netinit.questions import finding_codes
from netinit.questions.audit.kinds import BYPASSES, DESIGN
from netinit.questions.finding_codes import all_kinds, grouped
from package_trees import parse

PACKAGE = Path(netinit.__file__).parent
RETIRED = "No longer reported"


@functools.cache
def declarations():
    """The code and the name of each declaration in the source of the package, with the file."""
    calls = [(node, path) for path in PACKAGE.rglob("*.py") for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    return [(node.args[0].value, node.args[1].value, path) for node, path in calls if getattr(node.func, "id", "") == "FindingKind"]


def test_every_declared_kind_is_found_wherever_its_check_stands():
    found = {(code, name) for code, name, _ in declarations()}
    assert len(found) > 80
    assert {(kind.code, kind.name) for kind in all_kinds().values()} == found


def test_no_code_and_no_name_is_given_twice():
    for one in zip(*[(code, name) for code, name, _ in declarations()], strict=True):
        assert [text for text, count in Counter(one).items() if count > 1] == []


def test_two_kinds_with_one_code_are_refused_by_name(monkeypatch):
    kinds = [FindingKind("NI001", "one", "First."), FindingKind("NI001", "other", "Second.")]
    monkeypatch.setattr(finding_codes, "_declared", lambda: iter(kinds))
    with pytest.raises(ValueError, match="NI001 is the code of one and of other"):
        all_kinds.__wrapped__()


def test_each_code_is_in_the_group_of_its_number():
    assert [(title, kinds[0].code) for title, kinds in grouped().items()] == [(title, f"NI{first:03}") for title, first in GROUPS.items()]
    assert sorted(kind.code for kinds in grouped().values() for kind in kinds) == [*all_kinds()]


def test_every_bypass_that_is_not_by_design_is_a_finding():
    assert [kind.name for kind in BYPASSES if kind.intent != DESIGN and not kind.finding] == []


def test_every_kind_that_is_not_retired_is_reported_somewhere():
    texts = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path.read_text("utf-8") for path in PACKAGE.rglob("*.py")}
    unused = []
    for module, text in texts.items():
        for name, code in re.findall(r'^([A-Z][A-Z0-9_]*) = FindingKind\(\s*"(NI\d+)"', text, re.MULTILINE):
            users = "\n".join([text, *[other for other in texts.values() if f"{module} import" in other]])
            unused += [code] if len(re.findall(rf"\b{name}\b", users)) < 2 else []
    assert sorted(unused) == [kind.code for kind in all_kinds().values() if kind.meaning.startswith(RETIRED)]


def test_no_sentence_of_the_data_files_waits_for_values():
    waiting = re.compile(r"\{[a-z_]+\}")
    assert [path.name for path in (PACKAGE / "data").glob("*.json") if ".schema" not in path.name and waiting.search(path.read_text("utf-8"))] == []
