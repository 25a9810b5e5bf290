"""`netinit help`: a finding's code is explained without a checkout and a network."""

from __future__ import annotations

import pytest

from netinit.questions.finding_codes import all_kinds


@pytest.mark.parametrize("code", all_kinds())
def test_every_code_is_explained(run, code):
    done = run(f"netinit help {code.lower()}")
    assert done.code == 0
    assert done.out.startswith(f"{code} (")
    assert all_kinds()[code].meaning in done.out


def test_all_codes_are_listed(run):
    done = run("netinit help codes")
    assert all(f"  {code}  " in done.out for code in all_kinds())


@pytest.mark.parametrize(("topic", "hint"), [("NI1066", "did you mean NI106"), ("explian", "did you mean explain"), ("qqq", "`netinit help codes` lists them")])
def test_what_is_neither_is_an_error_with_the_nearest(run, topic, hint):
    done = run(f"netinit help {topic}")
    assert (done.code, done.out) == (2, "")
    assert f"help: '{topic}' is neither a command nor a finding's code; " in done.err
    assert hint in done.err


def test_a_command_has_its_help(run):
    assert run("netinit help kubectl explain").out == run("netinit kubectl explain --help").out
