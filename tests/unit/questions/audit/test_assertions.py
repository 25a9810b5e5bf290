"""Assertions: what they mean, what is wrong with them, and that each is proved or refuted by a packet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import netinit
from audits import SIDECAR, subject_of
from netinit.base.errors import OptionError
from netinit.questions.audit.assertions import parse_assertion, rule_on
from sweeps import together

SCHEMA = json.loads((Path(netinit.__file__).parent / "data" / "assertions.schema.json").read_text())


def ruling(text, more="", **subject):
    (found,) = rule_on(subject_of(f"{SIDECAR} {more}", **subject), [parse_assertion(text)])
    return found


@pytest.mark.parametrize(
    ("text", "more", "holds"),
    [
        ("outbound tcp to 10.0.0.0/8 not by proxy not to pod is captured", "", True),
        ("outbound tcp to 10.0.0.0/8 not by uid 1337 not by gid 1337 is captured", "", True),
        ("outbound tcp to 10.0.0.0/8 not by uid 1337 is captured", "", False),
        ("outbound tcp to 10.0.0.0/8 not by proxy is captured", "-x 10.2.0.0/16", False),
        ("outbound tcp to 10.0.0.0/8 by proxy is direct", "", True),
        ("inbound tcp on port 15021 to pod is direct", "", True),
        ("inbound tcp port 1-15007 to pod is captured", "", True),
        ("inbound tcp port 15021,15090 is captured", "", False),
        ("inbound udp to pod is not captured", "", True),
        ("udp is captured", "", False),
        ("outbound udp port 53 not by proxy not to pod is captured", "--redirect-dns --capture-all-dns", True),
        ("outbound ipv6 tcp not to pod not by proxy is captured", "", True),
        ("outbound ipv6 tcp not to pod not by proxy is captured", "--ipv6=off", False),
        ("outbound tcp through net1 is direct", "-c net1", True),
        ("outbound tcp through net2 not by proxy is captured", "-c net1", True),
        ("inbound tcp not to pod is dropped or captured or direct", "", True),
        ("inbound tcp in state INVALID to pod is dropped", "--drop-invalid", True),
        ("inbound tcp in state INVALID to pod is dropped", "", False),
        ("outbound tcp with mark 1337 not to pod is captured", "-m TPROXY", False),
        ("outbound tcp with mark 0 not to pod not by proxy is captured", "-m TPROXY", True),
        ("outbound traffic to pod is direct or captured", "--istio-exact", True),
        ("outbound traffic to pod is direct or captured or dropped", "", True),
    ],
)
def test_a_sentence_is_proved_or_refuted(text, more, holds):
    found = ruling(text, more)
    assert found.holds is holds, found.counterexample and found.counterexample.sentence
    assert (found.counterexample is not None) is (holds is not True)


@pytest.mark.parametrize(
    ("text", "more", "holds"),
    [
        ("outbound tcp through eth0 not to pod not by proxy is captured", "", True), ("outbound tcp through eth0 is direct", "-c eth0", True),
        ("outbound tcp through lo is captured", "", False),
    ],
)  # fmt: skip
def test_where_routes_are_known_what_leaves_through_a_device_is_what_they_send_there(text, more, holds):
    found = ruling(text, more, routes_known=True)
    assert found.holds is holds, found.counterexample and found.counterexample.sentence
    assert found.packets
    none = ruling("outbound tcp through net9 is captured", more, routes_known=True)
    assert (none.holds, none.packets) == (True, 0)


def test_a_counterexample_shows_its_way_and_the_option_to_change():
    found = ruling("outbound tcp to 10.0.0.0/8 not by proxy is captured", "-x 10.2.0.0/16")
    assert found.counterexample.sentence.startswith("direct: goes out to 10.2.0.1")
    assert ("remove 10.2.0.0/16 from --istio-service-exclude-cidr", "captured") in found.cures
    assert all(verdict == "captured" for _, verdict in found.cures)
    assert found.why_not_proved.startswith("TCP from 192.0.2.10 to 10.2.0.1:8080, sent by uid 1000, gid 1000: direct: goes out")
    assert "; remove 10.2.0.0/16 from --istio-service-exclude-cidr makes it captured" in found.why_not_proved


def test_an_assertion_about_no_packet_says_so():
    assert ruling("outbound tcp to 10.0.0.0/8 not to 10.0.0.0/8 is captured").packets == 0


@together(
    ("text", "wrong"),
    [
        ("", "at the end: expected one of to, from"),
        ("outbound tcp", "at the end: expected one of to"),
        ("outbound tpc is captured", "word 2, 'tpc': expected one of to"),
        ("outbound tcp to nowhere is captured", "word 4, 'nowhere': expected an address, a network or pod"),
        ("tcp port 70000 is captured", "word 3, '70000': expected a number up to 65535"),
        ("tcp port 9-1 is captured", "word 3, '9-1': expected the smaller number first"),
        ("tcp port 80, is captured", "word 5, 'is': expected a number up to 65535"),
        ("tcp is caught", "word 3, 'caught': expected one of captured"),
        ("tcp is captured and more", "word 4, 'and': expected the end"),
        ("tcp by root is captured", "word 3, 'root': expected one of uid, gid, proxy"),
        ("tcp with mark x is captured", "word 4, 'x': expected a mark"),
        ("tcp with mark 1/0x100000000 is captured", "word 4, '1/0x100000000': expected a mark of 32 bits"),
        ("tcp in state BUSY is captured", "word 4, 'BUSY': expected one of NEW"),
        ("tcp through a/b is captured", "word 3, 'a/b': expected the name of an interface"),
        ("tcp from port 1 is captured", "word 3, 'port': expected an address"),
        ("tcp is captured or", "at the end: expected one of captured"),
        ("tcp not not to pod is captured", "word 3, 'not': expected one of to"),
        ("tcp not is captured", "word 3, 'is': expected one of to"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_word(text, wrong):
    with pytest.raises(OptionError) as error:
        parse_assertion(text, line=7)
    assert f"--assert: line 7, {wrong}" in str(error.value)


def test_an_assertion_has_the_name_and_the_line_that_it_is_given_and_else_none():
    found = [parse_assertion("tcp  is\ncaptured", **given) for given in ({}, {"name": "x"}, {"line": 7})]
    assert [(one.text, one.name, one.line) for one in found] == [("tcp is captured", "", 0), ("tcp is captured", "x", 0), ("tcp is captured", "", 7)]
    with pytest.raises(OptionError, match=r"^--assert: word 3, 'caught'"):
        parse_assertion("tcp is caught")


def test_the_schema_accepts_what_the_grammar_does():
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    validator = jsonschema.Draft202012Validator(SCHEMA)
    good = ["outbound tcp to 10.0.0.0/8 not by proxy is captured", "udp is not captured", {"assert": "tcp is direct or dropped", "name": "x"}]
    assert validator.is_valid(good)
    assert validator.is_valid({"assertions": good})
    for bad in (["outbound tpc is captured"], [{"assert": "tcp is caught"}], {"assertion": good}, [{"name": "x"}]):
        assert not validator.is_valid(bad), bad
