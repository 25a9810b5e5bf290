"""`netinit convert --verify`: the proof beside the options."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

import netinit
import peers
from netinit.cli.convert_proof import compare
from netinit.options.peers.convert import convert, part
from sweeps import together

DATA = Path(netinit.__file__).parent / "data"
RULES = "tests/migrations/rules/linkerd-group.txt"
ROOT = Path(__file__).parents[3]
LINKERD = (
    "-p", "4143", "-o", "4140", "-u", "2102", "-g", "2103",
    "--inbound-ports-to-ignore", "4190,4191,4567-4568", "--outbound-ports-to-ignore", "443,4567-4568",
)  # fmt: skip


def ask(rules, *more):
    """The command line; `rules` is a path, or what stands for one."""
    return ["netinit", "convert", "--from", "linkerd", *more, "--verify", str(rules), "--", *LINKERD]


@together("case", peers.load_rules(), ids=lambda case: case.name)
def test_every_difference_of_a_peer_s_rules_is_one_that_is_known(case):
    line = part(case.peer, case.args.replace("'", "").split())
    found = convert(case.peer, line)
    proof = compare(found, line, str(case.path), ())
    told = [who for one in proof["differences"] for who in one["who"]]
    assert [who for who in told if not any(re.search(pattern, who) for pattern in case.differing)] == []
    assert {pattern for who in told for pattern in case.differing if re.search(pattern, who)} == set(case.differing)


def test_the_differences_are_below_the_notes_and_the_options_alone_on_stdout(run):
    done = run(ask(ROOT / RULES))
    assert done.code == 3
    assert done.out.splitlines() == ["netinit apply -p 4140 -z 4143 -u 2102 -g 2103 -b '*' -d 4190,4191,4567-4568 -c lo -i '*' -o 443,4567-4568 --ipv6 on"]
    assert re.search(r"^≠ the rules of Linkerd and the converted options: \d+ kinds? of packets", done.err, re.MULTILINE)
    assert "  TCP inbound on port 15008\n    before: captured, to port 4143" in done.err
    assert "--full" not in done.err


def test_nothing_differs_where_both_do_the_same(run):
    (case,) = [case for case in peers.load_rules() if case.name == "linkerd-listed"]
    done = run(["netinit", "convert", "--from", "linkerd", "--verify", str(case.path), "--", *case.args.split()])
    assert "= the rules of Linkerd and the converted options: no packet is treated differently: proved for all packets" in done.err
    assert "left out of the comparison is what netinit stops beyond other meshes" in done.err
    assert done.code == 0


def test_a_program_is_not_started_where_no_pod_can_be_made_for_it(run, tmp_path, monkeypatch):
    program = tmp_path / "linkerd2-proxy-init"
    program.write_text(f"#!/bin/sh\n: >{tmp_path}/started\n")
    program.chmod(0o755)
    monkeypatch.setattr("netinit.lab.pod.find_obstacle", lambda: "that needs root")
    done = run(ask(program))
    assert done.code == 1
    assert "cannot create a pod to run the program in: that needs root; or give a file of its rules" in done.err
    assert not (tmp_path / "started").exists()


def test_the_object_has_the_proof(run):
    done = run(ask(ROOT / RULES, "--format", "json"))
    found = json.loads(done.out)
    jsonschema.validate(found, json.loads((DATA / "convert.schema.json").read_text()))
    jsonschema.validate({"version": 1, "compared": [found["proof"]]}, json.loads((DATA / "diff.schema.json").read_text()))
    assert found["proof"]["result"] == "different"


@pytest.mark.parametrize(
    ("named", "problem"),
    [("not-there", "--verify: 'not-there' is not a file"), (__file__, "or name the peer's program, which is executable")],
)
def test_what_is_neither_rules_nor_a_program_is_an_error(run, named, problem):
    done = run(ask(named))
    assert (done.code, done.out) == (2, "")
    assert problem in done.err
