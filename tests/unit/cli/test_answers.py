"""Every object that a command prints has a version and a schema."""

from __future__ import annotations

import json

import pytest

from schemas import DATA, check_schema

LINES = {
    "explain": "netinit explain --json -i * --to 10.1.2.3:80",
    "audit": "netinit audit --json -i * -b *",
    "diff": ["netinit", "diff", "--json", "apply -b 80", "apply -b 81"],
    "findings": "netinit lint --json -b 80",
    "convert": "netinit convert --from istio --format json -- -p 15001",
    "node-status": "netinit node status --json --cniConfFolder /nowhere/net.d --cniBinFolder /nowhere/bin --socket /nowhere/cni.sock",
    "doctor": "netinit doctor --json",
    "installation": "netinit webhook lint --json -f /dev/null",
}
ELSEWHERE = {"assertions", "cluster-doctor", "compare", "config", "plan", "verify", "trace", "watch", "check-inject", "kubectl", "kubectl-check", "why"}  # files, or tested where they are made


@pytest.mark.parametrize("name", LINES)
def test_an_answer_in_json_has_the_version_that_its_schema_names(run, name):
    done = run(LINES[name])
    tree = json.loads(done.out)
    check_schema(tree, name)
    assert next(iter(tree)) == "version"
    assert tree["version"] == json.loads((DATA / f"{name}.schema.json").read_text())["properties"]["version"]["const"]


def test_no_schema_is_without_a_test():
    assert {path.name.removesuffix(".schema.json") for path in DATA.glob("*.schema.json")} == {*LINES, *ELSEWHERE}


def test_every_answer_s_schema_wants_a_version():
    for path in DATA.glob("*.schema.json"):
        tree = json.loads(path.read_text())
        if path.name.removesuffix(".schema.json") not in {"assertions", "config", "plan"}:
            assert "version" in tree["required"], path.name
