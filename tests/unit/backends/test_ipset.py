"""Address sets through ipset(8): what its failures become, and how often a set that is in use is tried."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netinit.backends import ipset, set_contents
from netinit.backends.ipset import NftVariantWithSets
from netinit.backends.set_contents import SetInUseError
from netinit.base.errors import ApplyError, LateError
from netinit.kernel import run

IN_USE = "ipset v7.17: Set cannot be destroyed:\n it is in use by a kernel component"


@pytest.fixture
def program(monkeypatch):
    """Answers of ipset, one after the other, and what it was asked."""
    made = SimpleNamespace(answers=[], asked=[], pauses=[])

    def start(path, arguments, *, stdin=""):
        made.asked.append((path, tuple(arguments), stdin))

    def finish(_):
        status, output, errors = made.answers.pop(0)
        return SimpleNamespace(status=status, output=output, errors=errors)

    monkeypatch.setattr(set_contents.run, "find", lambda name: f"/sbin/{name}")
    monkeypatch.setattr(set_contents.run, "start", start)
    monkeypatch.setattr(set_contents.run, "finish", finish)
    monkeypatch.setattr(ipset.time, "sleep", made.pauses.append)
    return made


def test_sets_without_the_program_are_an_error_that_names_its_package(monkeypatch):
    monkeypatch.setattr(set_contents.run, "find", lambda _: "")
    with pytest.raises(ApplyError) as caught:
        set_contents.run_ipset(("save",))
    assert str(caught.value) == "address sets of an earlier run are here, but ipset is not installed: add the package ipset to the image"


@pytest.mark.parametrize(
    ("status", "errors", "kind", "text"),
    [
        (1, IN_USE, SetInUseError, "ipset v7.17: Set cannot be destroyed: it is in use by a kernel component"),
        (1, "Error in line 3:\n  Syntax error", ApplyError, "Error in line 3: Syntax error"),
        (-9, f"did not end within 30 s and {run.KILLED_LATE}", LateError, "did not end within 30 s and was killed; is it stopped, or broken?"),
        (139, "", ApplyError, "ipset ended with status 139"),
    ],
)
def test_what_ipset_says_is_the_error_on_one_line(program, status, errors, kind, text):
    program.answers = [(status, "", errors)]
    with pytest.raises(ApplyError) as caught:
        set_contents.run_ipset(("restore",), "create x hash:net\n")
    assert (type(caught.value), str(caught.value)) == (kind, text)
    assert program.asked == [("/sbin/ipset", ("restore",), "create x hash:net\n")]


def test_a_set_that_is_in_use_is_tried_again_and_then_an_error(program):
    backend = NftVariantWithSets(threshold=1)
    program.answers = [(1, "", IN_USE), (1, "", IN_USE), (0, "", ""), (0, "", "")]
    backend._destroy(("netinit-a", "netinit-b"))
    assert [words for _, words, _ in program.asked] == [("destroy", "netinit-a")] * 3 + [("destroy", "netinit-b")]
    assert program.pauses == [0.005] * 2
    program.answers, program.pauses[:] = [(1, "", IN_USE)] * (ipset.TRIES + 1), []
    with pytest.raises(ApplyError) as caught:
        backend._destroy(("netinit-a",))
    assert str(caught.value) == (
        "ipset v7.17: Set cannot be destroyed: it is in use by a kernel component; a foreign rule references the set netinit-a: remove it first"
    )
    assert (program.answers, len(program.pauses)) == ([], ipset.TRIES)
