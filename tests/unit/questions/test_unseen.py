"""Differences that nobody can see, or whose packets nobody can send, are told apart and do not count."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

import netinit

SCHEMA = Path(netinit.__file__).parent / "data" / "diff.schema.json"
DNS = "-b * -i * --redirect-dns --dns-servers 10.96.0.10 --ipv6 off --istio-exact"


@pytest.fixture
def dump(run, tmp_path):
    """Make a file of rules: those of DNS, with each text replaced in the lines where another one is."""
    done = run(f"netinit render --format restore {DNS}")
    assert done.code == 0, done.err
    text = done.out

    def make(*changes):
        found = text.splitlines()
        for where, old, new in changes:
            assert any(where in line and old in line for line in found), (where, old, text)
            found = [line.replace(old, new) if where in line else line for line in found]
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.rules"
        path.write_text("\n".join(found) + "\n")
        return str(path)

    return make


def test_zones_with_other_numbers_are_no_difference(run, dump):
    done = run(["netinit", "diff", dump(), dump(("-j CT", "--zone 1", "--zone 7"))])
    assert done.code == 0, done.out
    assert "no packet is treated differently" in done.out
    assert "that cannot be observed: only their conntrack zone differs, and their answers arrive all the same" in done.out


def test_a_zone_in_which_answers_are_not_found_is_a_difference(run, dump):
    done = run(["netinit", "diff", dump(), dump(("--sport 15053 ", "--zone 2", "--zone 7"))])
    assert done.code == 3
    assert "zone" in done.out


@pytest.mark.parametrize("where", ["-p udp -m udp --dport 0", "-p tcp -m tcp --dport 0", "-m owner --uid-owner 4294967295", "-m owner --gid-owner 4294967295"])
def test_packets_that_nobody_can_send_are_no_difference(run, dump, tmp_path, where):
    text = Path(dump()).read_text()
    other = tmp_path / "other"
    other.write_text(f"{text}*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT {where} -j DROP\nCOMMIT\n")
    done = run(["netinit", "diff", dump(), str(other)])
    assert done.code == 0, done.out
    assert "that cannot be sent: to port 0, or by uid or gid 4294967295" in done.out
    found = json.loads(run(["netinit", "diff", "--json", dump(), str(other)]).out)
    jsonschema.validate(found, json.loads(SCHEMA.read_text()))
    (pair,) = found["compared"]
    assert (pair["result"], pair["differences"]) == ("equal", [])
    assert pair["unseen"]


def test_a_user_that_can_send_beside_one_that_cannot_is_a_difference(run, dump, tmp_path):
    other = tmp_path / "other"
    text = f"{Path(dump()).read_text()}*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -m owner --uid-owner 4294967294-4294967295 -j DROP\nCOMMIT\n"
    other.write_text(text)
    assert run(["netinit", "diff", dump(), str(other)]).code == 3


def test_an_answer_of_a_user_that_only_the_second_rules_name_is_asked_too(run, dump):
    """The answers of uid 4242, which is not the proxy's, are found in the second rules alone."""
    first = "-A ISTIO_OUTPUT_DNS -p udp -m udp --sport 15053 -m owner --uid-owner"
    other = dump((f"{first} 1337", first, f"{first} 4242 -j CT --zone 2\n{first}"))
    for before, after in ((dump(), other), (other, dump())):
        done = run(["netinit", "diff", before, after])
        assert (done.code, "sent by uid 4242" in done.out) == (3, True), done.out
