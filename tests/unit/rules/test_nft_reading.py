"""nft's JSON read into matches and targets, statement by statement; what is not known stays what it is."""

from __future__ import annotations

import json

import pytest

from core import FAMILIES, IPV4, IPV6, Network, Options, plan
from netinit.base.errors import ParseError
from netinit.rules.foreign_targets import Observe, UnknownTarget
from netinit.rules.matches.context import (
    BARE_SYN,
    ConnectionDirection,
    ConnectionState,
    Limit,
    Mark,
    Socket,
    UnknownMatch,
)
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Owner, Port, Protocol, Source
from netinit.rules.nft.reading import read_tables
from netinit.rules.targets import (
    Accept,
    Drop,
    Jump,
    LogTarget,
    Redirect,
    Reject,
    RestoreMark,
    Return,
    SaveMark,
    SetMark,
    Tproxy,
    TrackZone,
)
from nft_json import as_json

COUNTER = {"counter": {"packets": 3, "bytes": 180}}
MARK, CONNECTION_MARK = {"meta": {"key": "mark"}}, {"ct": {"key": "mark"}}


def listing(chains: dict[str, list[list]], table: str = "istio-proxy-nat", **hooks: dict) -> str:
    """What nft prints of a table: its chains with the statements of their rules, and where chains are hooked in."""
    where = {"family": "inet", "table": table}
    items: list[dict] = [{"table": {"family": "inet", "name": table}}]
    items += [{"chain": {**where, "name": name, **hooks.get(name.replace("-", "_"), {})}} for name in chains]
    items += [{"rule": {**where, "chain": name, "expr": expr}} for name, rules in chains.items() for expr in rules]
    return json.dumps({"nftables": items})


def read(*expr: dict, chain: str = "istio-output"):
    """A rule of these statements."""
    (rule,) = read_tables([listing({chain: [list(expr)]})])["nat"]["ISTIO_OUTPUT"].rules
    return rule


def compared(left: dict, right, op: str = "==") -> dict:
    return {"match": {"op": op, "left": left, "right": right}}


def meta(key: str) -> dict:
    return {"meta": {"key": key}}


def field(protocol: str, name: str) -> dict:
    return {"payload": {"protocol": protocol, "field": name}}


def networks(*texts: str) -> tuple[Network, ...]:
    return tuple([Network.parse(text) for text in texts])


MATCHES = [
    (compared(meta("l4proto"), "tcp"), Protocol(name="tcp")),
    (compared(meta("l4proto"), "tcp", "!="), Protocol(name="tcp", negated=True)),
    (compared(meta("iifname"), "eth0"), InInterface(names=("eth0",))),
    (compared(meta("iifname"), "eth*"), InInterface(names=("eth+",))),
    (compared(meta("iifname"), {"set": ["a", "b*"]}), InInterface(names=("a", "b+"))),
    (compared(meta("oifname"), "lo", "!="), OutInterface(names=("lo",), negated=True)),
    (compared(meta("skuid"), 5), Owner(kind="uid", number=5)),
    (compared(meta("skgid"), 5, "!="), Owner(kind="gid", number=5, negated=True)),
    (compared(meta("skuid"), {"range": [5, 9]}), Owner(kind="uid", number=5, last=9)),
    (compared(MARK, 1337), Mark(value=1337)),
    (compared(MARK, 1337, "!="), Mark(value=1337, negated=True)),
    (compared(CONNECTION_MARK, 7), Mark(value=7, connection=True)),
    (compared({"&": [MARK, 15]}, 1), Mark(value=1, mask=15)),
    (compared({"&": [MARK, 0]}, 0), Mark(value=0, mask=0)),
    (compared({"&": [CONNECTION_MARK, 15]}, 1, "!="), Mark(value=1, mask=15, connection=True, negated=True)),
    (compared({"ct": {"key": "state"}}, "invalid", "in"), ConnectionState(states=("INVALID",))),
    (compared({"ct": {"key": "state"}}, ["established", "related"], "in"), ConnectionState(states=("RELATED", "ESTABLISHED"))),
    (compared({"ct": {"key": "state"}}, {"set": ["new", "untracked"]}, "!="), ConnectionState(states=("NEW", "UNTRACKED"), negated=True)),
    (compared(field("tcp", "dport"), 80), Port(protocol="tcp", ports=(80,))),
    (compared(field("udp", "sport"), 53, "!="), Port(protocol="udp", ports=(53,), source=True, negated=True)),
    (compared(field("tcp", "dport"), {"set": [80, {"range": [90, 99]}]}), Port(protocol="tcp", ports=(80, (90, 99)))),
    (compared(field("ip", "saddr"), "10.0.0.1"), Source(networks=networks("10.0.0.1/32"))),
    (compared(field("ip6", "daddr"), {"prefix": {"addr": "fd00::", "len": 8}}), Destination(networks=networks("fd00::/8"))),
    (compared(field("ip", "daddr"), {"set": ["1.2.3.4", {"prefix": {"addr": "10.0.0.0", "len": 8}}]}, "!="),
     Destination(networks=networks("1.2.3.4/32", "10.0.0.0/8"), negated=True)),
    (compared(field("ip", "daddr"), {"range": ["10.0.0.1", "10.0.0.8"]}),
     Destination(networks=networks("10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/30", "10.0.0.8/32"))),
    (compared(field("ip", "daddr"), {"range": ["0.0.0.0", "255.255.255.255"]}), Destination(networks=networks("0.0.0.0/0"))),
    (compared(field("ip", "daddr"), {"range": ["0.0.0.0", "0.0.0.2"]}), Destination(networks=networks("0.0.0.0/31", "0.0.0.2/32"))),
    ({"limit": {"rate": 2, "burst": 5, "per": "second"}}, Limit(rate=2, burst=5)),
]  # fmt: skip


@pytest.mark.parametrize(("statement", "match"), MATCHES)
def test_a_condition_is_read_as_the_match_that_it_is(statement, match):
    assert read(statement, COUNTER).rule.matches == (match,)


@pytest.mark.parametrize(
    "statement",
    [
        compared(meta("l4proto"), {"set": ["tcp", "udp"]}),
        compared(meta("l4proto"), 6),
        compared(meta("skuid"), "somebody"),
        compared(meta("skuid"), {"set": [1, 2]}),
        compared(meta("skuid"), {"range": [1, "b"]}),
        compared(meta("skuid"), {"range": ["a", 2]}),
        compared(MARK, {"set": [1, 2]}),
        compared(MARK, "one"),
        compared(MARK, 5, "<="),
        compared({"&": [MARK, 15]}, "one"),
        compared({"&": [meta("priority"), 15]}, 1),
        compared({"ct": {"key": "state"}}, ["new", "strange"], "in"),
        compared({"ct": {"key": "direction"}}, "original", "!="),
        compared({"ct": {"key": "state", "dir": "original"}}, "new", "in"),
        compared(meta("length"), 5),
        compared({"meta": {"key": "mark", "more": 1}}, 5),
        compared({"socket": {"key": "mark"}}, 5),
        compared({"socket": {"key": "transparent"}}, 1, "<="),
        compared(field("tcp", "flags"), 2),
        compared(field("sctp", "dport"), 80),
        compared(field("udp", "saddr"), 80),
        compared(field("tcp", "dport"), "http"),
        compared(field("ip", "daddr"), "no.address"),
        compared(field("ip", "daddr"), {"names": []}),
        compared(field("ip", "ttl"), 5),
        compared({"payload": {"protocol": "tcp", "field": "dport", "more": 1}}, 80),
        compared({"payload": {"base": "th", "offset": 16, "len": 16}}, 80),
        compared(meta("nfproto"), "arp"),
        compared(meta("nfproto"), "ipv4", "!="),
    ],
)
def test_a_condition_that_is_not_known_is_kept_as_it_is(statement):
    assert read(statement, COUNTER).rule.matches == (UnknownMatch(text=json.dumps(statement)),)


TARGETS = [
    ([], Observe(text="")),
    ([{"accept": None}], Accept()),
    ([{"drop": None}], Drop()),
    ([{"return": None}], Return()),
    ([{"jump": {"target": "istio-redirect"}}], Jump(chain="ISTIO_REDIRECT")),
    ([{"goto": {"target": "istio-redirect"}}], Jump(chain="ISTIO_REDIRECT", goto=True)),
    ([{"redirect": {"port": 15001}}], Redirect(port=15001)),
    ([{"log": {"prefix": "in: "}}], LogTarget(prefix="in: ")),
    ([{"log": {"prefix": "in: ", "group": 5}}], LogTarget(prefix="in: ", group=5)),
    ([{"reject": {"type": "icmp", "expr": "port-unreachable"}}], Reject()),
    ([{"mangle": {"key": MARK, "value": CONNECTION_MARK}}], RestoreMark()),
    ([{"mangle": {"key": CONNECTION_MARK, "value": MARK}}], SaveMark()),
    ([{"mangle": {"key": MARK, "value": 5}}], SetMark(value=5)),
    ([{"mangle": {"key": CONNECTION_MARK, "value": 5}}], SetMark(value=5, connection=True)),
    ([{"mangle": {"key": MARK, "value": 0}}], SetMark(value=0)),
    ([{"mangle": {"key": MARK, "value": 0xFFFFFFFF}}], SetMark(value=0xFFFFFFFF)),
    ([{"mangle": {"key": MARK, "value": {"|": [{"&": [MARK, 0xFFFFFFFC]}, 1]}}}], SetMark(value=1, mask=3)),
    ([{"mangle": {"key": {"ct": {"key": "zone"}}, "value": 2}}], TrackZone(zone=2)),
    ([{"tproxy": {"family": "ip", "port": 1}}, {"mangle": {"key": MARK, "value": 5}}, {"accept": None}], Tproxy(port=1, mark=5)),
    ([{"tproxy": {"port": 1}}, {"mangle": {"key": MARK, "value": 5}}, {"accept": None}], Tproxy(port=1, mark=5)),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "target"), TARGETS)
def test_a_statement_is_read_as_the_target_that_it_is(statements, target):
    assert read(COUNTER, *statements).rule.target == target


@pytest.mark.parametrize(
    "statements",
    [
        [{"redirect": None}],
        [{"redirect": {"port": "http"}}],
        [{"redirect": {"port": 1, "flags": "random"}}],
        [{"log": None}],
        [{"log": {"prefix": "x", "level": "info"}}],
        [{"log": {"group": 5}}],
        [{"reject": None}],
        [{"reject": {"type": "icmp", "expr": "host-unreachable"}}],
        [{"mangle": {"key": meta("priority"), "value": 1}}],
        [{"mangle": {"key": MARK, "value": "x"}}],
        [{"mangle": {"key": MARK, "value": -1}}],
        [{"mangle": {"key": MARK, "value": 0x100000000}}],
        [{"mangle": {"key": {"ct": {"key": "zone"}}, "value": "x"}}],
        [{"queue": {"num": 1}}],
        [{"accept": None}, {"drop": None}],
        [{"tproxy": {"port": 1}}, {"mangle": {"key": MARK, "value": 5}}],
        [{"tproxy": {"port": "x"}}, {"mangle": {"key": MARK, "value": 5}}, {"accept": None}],
        [{"tproxy": {"addr": "::1", "port": 1}}, {"mangle": {"key": MARK, "value": 5}}, {"accept": None}],
        [{"tproxy": {"port": 1}}, {"mangle": {"key": CONNECTION_MARK, "value": 5}}, {"accept": None}],
        [{"tproxy": {"port": 1}}, {"mangle": {"key": MARK, "value": CONNECTION_MARK}}, {"accept": None}],
    ],
)
def test_statements_that_are_not_known_are_kept_as_they_are(statements):
    kept = " ".join([json.dumps(statement) for statement in statements])
    assert read(COUNTER, *statements).rule.target == UnknownTarget(text=kept)


def test_a_limit_of_another_time_is_no_match_and_nothing_is_known_of_the_rule():
    limit = {"limit": {"rate": 2, "burst": 5, "per": "minute"}}
    found = read(limit, COUNTER, {"accept": None}).rule
    assert (found.matches, found.target) == ((), UnknownTarget(text=f'{json.dumps(limit)} {{"accept": null}}'))


def test_a_port_implies_its_protocol_and_no_other():
    tcp, udp, port = compared(meta("l4proto"), "tcp"), compared(meta("l4proto"), "udp"), compared(field("tcp", "dport"), 80)
    assert read(tcp, port).rule.matches == (Port(protocol="tcp", ports=(80,)),)
    assert read(udp, port).rule.matches == (Protocol(name="udp"), Port(protocol="tcp", ports=(80,)))
    assert read(compared(meta("l4proto"), "tcp", "!="), port).rule.matches[0] == Protocol(name="tcp", negated=True)


def test_a_rule_is_of_the_families_that_its_conditions_leave():
    four, six = compared(meta("nfproto"), "ipv4"), compared(meta("nfproto"), "ipv6")
    assert read(COUNTER).rule.families == FAMILIES
    assert (read(four).rule.families, read(four).rule.matches) == ((IPV4,), ())
    assert read(six).rule.families == (IPV6,)
    assert read(four, six).rule.families == ()
    assert read(compared(field("ip6", "daddr"), "::1")).rule.families == (IPV6,)
    assert read(compared(field("ip", "daddr"), "127.0.0.1", "!=")).rule.families == (IPV4,)


def test_a_rule_has_its_number_its_text_its_counter_and_its_comment():
    rules = [[{"accept": None}], [COUNTER, {"drop": None}]]
    first, second = read_tables([listing({"istio-output": rules})])["nat"]["ISTIO_OUTPUT"].rules
    assert (first.number, first.text, first.packets) == (1, "accept", None)
    assert (second.number, second.text, second.packets) == (2, "counter drop", 3)
    text = listing({"istio-output": [[{"accept": None}]]}).replace('"expr"', '"comment": "why", "expr"')
    assert read_tables([text])["nat"]["ISTIO_OUTPUT"].rules[0].rule.comment == "why"
    assert first.rule.comment == ""


HOOK = {"type": "nat", "hook": "output", "prio": -100, "policy": "accept"}


def test_a_chain_is_reached_by_the_families_that_are_sent_to_it():
    four = compared(meta("nfproto"), "ipv4")
    chains = {
        "output": [[four, {"jump": {"target": "istio-output"}}]],
        "istio-output": [[COUNTER, {"jump": {"target": "istio-redirect"}}]],
        "istio-redirect": [[COUNTER, {"redirect": {"port": 1}}]],
        "istio-inbound": [[COUNTER, {"return": None}]],
    }
    found = read_tables([listing(chains, output=HOOK)])["nat"]
    assert [(name, chain.policy, chain.rules[0].rule.families) for name, chain in found.items()] == [
        ("OUTPUT", "ACCEPT", (IPV4,)), ("ISTIO_OUTPUT", "", (IPV4,)), ("ISTIO_REDIRECT", "", (IPV4,)), ("ISTIO_INBOUND", "", (IPV4,)),
    ]  # fmt: skip


def test_the_chain_that_stands_for_a_socket_is_a_match_of_the_rule_that_leads_to_it():
    made = plan(Options.from_argv(["--layout", "classic", "-b", "80", "-m", "TPROXY"], {}))
    found = read_tables([as_json(made)])["mangle"]
    assert not [name for name in found if name.endswith("SOCKET")]
    rules = [one.rule for chain in found.values() for one in chain.rules if Socket() in one.rule.matches]
    assert [rule.target for rule in rules] == [Jump(chain="ISTIO_DIVERT")]
    assert [rule.matches for rule in rules] == [(Port(protocol="tcp", ports=(80,)), BARE_SYN.replace(negated=True), ConnectionDirection(direction="REPLY"), Socket())]


@pytest.mark.parametrize("changed", [{"hook": "input"}, {"prio": 0}, {"type": "filter"}])
def test_a_chain_that_is_hooked_in_elsewhere_is_an_error(changed):
    text = listing({"output": []}, output={**HOOK, **changed})
    with pytest.raises(ParseError, match=r"^table istio-proxy-nat: the chain 'output' is hooked in otherwise than netinit does it"):
        read_tables([text])
    assert read_tables([listing({"output": []}, output={**HOOK, "policy": "drop"})])["nat"]["OUTPUT"].policy == "DROP"


def test_a_chain_of_ours_that_is_not_hooked_in_and_one_that_should_not_be_are_errors():
    for text in (listing({"output": []}), listing({"istio-output": []}, istio_output=HOOK)):
        with pytest.raises(ParseError, match="is hooked in otherwise"):
            read_tables([text])


def test_tables_of_a_sidecar_and_of_an_ambient_mesh_together_are_an_error():
    texts = [listing({"istio-output": []}), listing({"istio-output": []}, table="istio-ambient-nat")]
    with pytest.raises(ParseError, match=r"^table istio-ambient-nat: rules of a sidecar and of an ambient mesh are here; netinit remove takes both away$"):
        read_tables(texts)


def test_tables_stand_in_the_order_of_programming():
    texts = [listing({"istio-output": []}, table=f"istio-proxy-{name}") for name in ("filter", "nat", "raw", "mangle")]
    assert list(read_tables(texts)) == ["mangle", "nat", "raw", "filter"]


def test_a_counter_without_packets_counts_nothing_and_one_without_a_number_is_an_error():
    def count(counter):
        chains = read_tables([listing({"istio-output": [[{"counter": counter}, {"return": None}]]})])["nat"]
        return [rule.packets for rule in chains["ISTIO_OUTPUT"].rules]

    assert (count({"packets": 7, "bytes": 0}), count({}), count(None)) == ([7], [None], [None])
    for packets in ("7", -1, [7]):
        with pytest.raises(ParseError, match="a counter whose packets are no number"):
            count({"packets": packets})


@pytest.mark.parametrize("expr", [[{}], [{"match": 5}], [{"jump": {}}], [{"match": {"op": "=="}}], [{"mangle": {}}]])
def test_a_statement_of_another_form_is_an_error_that_names_the_table(expr):
    with pytest.raises(ParseError, match=r"^nft's JSON listing of table istio-proxy-nat is not understood: "):
        read_tables([listing({"istio-output": [expr]})])
