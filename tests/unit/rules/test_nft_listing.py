"""nft's JSON, taken apart and compared with a plan."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ParseError
from netinit.options import Options
from netinit.rules.layouts import plan
from netinit.rules.nft.listing import compare_listing, parse_listing
from netinit.rules.nft.writer import write_plan

TABLE = "istio-proxy-nat"
TCP = {"match": {"op": "==", "left": {"meta": {"key": "l4proto"}}, "right": "tcp"}}
COUNTER = {"counter": {"packets": 3, "bytes": 180}}


def listing_of(*rules: list, chain: str = "istio-redirect", more: tuple = ()) -> str:
    items: list[dict] = [
        {"metainfo": {"version": "1.0.6", "json_schema_version": 1}},
        {"table": {"family": "inet", "name": TABLE, "handle": 1}},
        {"chain": {"family": "inet", "table": TABLE, "name": chain, "handle": 1}},
    ]
    items += [{"rule": {"family": "inet", "table": TABLE, "chain": chain, "handle": 2, "expr": expr}} for expr in rules]
    return json.dumps({"nftables": [*items, *more]})


def spelled(*expr: dict) -> str:
    return parse_listing(listing_of(list(expr)))[TABLE].chains["istio-redirect"].rules[0]


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ({"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "lo"}}, 'oifname "lo"'),
        ({"match": {"op": "!=", "left": {"meta": {"key": "mark"}}, "right": 1338}}, "meta mark != 0x0000053a"),
        ({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["related", "established"]}}, "ct state established,related"),
        ({"match": {"op": "==", "left": {"ct": {"key": "state"}}, "right": "invalid"}}, "ct state invalid"),
        ({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": {"prefix": {"addr": "10.0.0.0", "len": 8}}}}, "ip daddr 10.0.0.0/8"),
        ({"match": {"op": "==", "left": {"payload": {"protocol": "ip6", "field": "daddr"}}, "right": {"set": ["fd00::1", {"range": ["::5", "::7"]}]}}}, "ip6 daddr { ::5-::7, fd00::1 }"),
        ({"match": {"op": "!=", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [15008, 53]}}}, "tcp dport != { 53, 15008 }"),
        ({"match": {"op": "<=", "left": {"socket": {"key": "transparent"}}, "right": 1}}, "socket transparent <= 1"),
        ({"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"ct": {"key": "mark"}}}}, "meta mark set ct mark"),
        ({"mangle": {"key": {"ct": {"key": "zone"}}, "value": 2}}, "ct zone set 2"),
        ({"tproxy": {"family": "ip6", "port": 15006}}, "tproxy ip6 to :15006"),
        ({"redirect": {"port": 15001}}, "redirect to :15001"),
        ({"jump": {"target": "istio-output"}}, "jump istio-output"),
        ({"reject": {"type": "icmpv6", "expr": "port-unreachable"}}, "reject with icmpv6 type port-unreachable"),
        (COUNTER, "counter"),
    ],
)
def test_what_plans_hold_is_spelled_as_the_writer_spells_it(expr, text):
    assert spelled(expr) == text


@pytest.mark.parametrize(
    "expr",
    [
        {"limit": {"rate": 10, "per": "second"}},
        {"match": {"op": ">", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": 80}},
        {"match": {"op": "==", "left": {"&": [{"meta": {"key": "mark"}}, 255]}, "right": 1}},
        {"match": {"op": "==", "left": {"ct": {"key": "mark", "dir": "original"}}, "right": 1}},
        {"redirect": {"port": 15001, "flags": "random"}},
        {"redirect": None},
        {"tproxy": {"family": "ip", "port": 15006, "addr": "127.0.0.1"}},
        {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": {"set": [{"elem": {"val": "1.2.3.4", "timeout": 9}}]}}},
    ],
)
def test_what_no_plan_holds_is_kept_as_it_is_and_never_taken_for_something_planned(expr):
    assert spelled(expr) == json.dumps(expr)


def test_tables_of_others_are_not_looked_at():
    other = {"table": {"family": "inet", "name": "firewalld", "handle": 9}}
    same_name = {"table": {"family": "ip", "name": TABLE, "handle": 8}}
    rule = {"rule": {"family": "ip", "table": TABLE, "chain": "x", "handle": 1, "expr": [{"drop": None}]}}
    listing = parse_listing(listing_of([TCP, COUNTER, {"redirect": {"port": 1}}], more=(other, same_name, rule)))
    assert list(listing) == [TABLE]
    assert listing[TABLE].chains["istio-redirect"].rules == ("meta l4proto tcp counter redirect to :1",)


@pytest.mark.parametrize("text", ["", "not json", "[]", '{"nftables": 3}', '{"nftables": [{"rule": {"family": "inet"}}]}'])
def test_what_is_no_listing_is_an_error_that_shows_it(text):
    with pytest.raises(ParseError, match="nft's JSON listing is not understood"):
        parse_listing(text)


def test_differences_are_told_in_order_with_purpose_and_option():
    wanted = write_plan(plan(Options.from_argv(["-b", ""]).replace(ipv6="off")))
    redirect, other = [TCP, COUNTER, {"redirect": {"port": 15001}}], [TCP, COUNTER, {"drop": None}]
    listing = parse_listing(listing_of(other, redirect, more=({"set": {"family": "inet", "table": TABLE, "name": "mine"}},)))
    found = [d for d in compare_listing(wanted, listing) if d.chain in ("istio-redirect", "istio-inbound", "")]
    assert [d.describe() for d in found] == [
        f"missing: nft {TABLE} istio-inbound: the chain itself",
        f"missing: nft {TABLE} istio-inbound rule 1: tcp dport 15008 counter return  (tunnelled connections reach the proxy as they are; --inbound-tunnel-port)",
        f"extra: nft {TABLE} istio-redirect rule 1: meta l4proto tcp counter drop",
        f"extra: nft {TABLE}: set mine",
    ]


def test_a_rule_at_another_place_has_moved():
    wanted = write_plan(plan(Options.from_argv(["-m", "TPROXY", "-b", "80"])))
    chain = {"chain": {"family": "inet", "table": "istio-proxy-mangle", "name": "istio-divert", "handle": 1}}
    table = {"table": {"family": "inet", "name": "istio-proxy-mangle", "handle": 1}}
    mark = [COUNTER, {"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1337}}]
    rules = [{"rule": {"family": "inet", "table": "istio-proxy-mangle", "chain": "istio-divert", "handle": n, "expr": expr}} for n, expr in enumerate(([COUNTER, {"accept": None}], mark))]
    found = compare_listing(wanted, parse_listing(json.dumps({"nftables": [table, chain, *rules]})))
    assert [d.kind for d in found if d.chain == "istio-divert"] == ["moved"], [d.describe() for d in found]


def test_of_long_lists_only_what_differs_is_shown():
    networks = [f"10.{number}.0.0/17" for number in range(200)]
    wanted = write_plan(plan(Options.from_argv(["-x", ",".join(networks)]).replace(ipv6="off")))
    live = {"set": [{"prefix": {"addr": text.partition("/")[0], "len": 17}} for text in [*networks[1:], "172.16.0.0/17"]]}
    rule = [{"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "daddr"}}, "right": live}}, COUNTER, {"return": None}]
    found = [d for d in compare_listing(wanted, parse_listing(listing_of(rule, chain="istio-output"))) if " more " in d.rule]
    assert [(d.kind, d.rule) for d in found] == [
        ("missing", "ip daddr { 10.0.0.0/17 and 199 more } counter return"),
        ("extra", "ip daddr { 172.16.0.0/17 and 199 more } counter return"),
    ]
