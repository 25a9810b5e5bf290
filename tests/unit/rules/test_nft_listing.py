"""nft's JSON, parsed and compared with a plan."""

from __future__ import annotations

import json

import pytest

from goldens import BEHAVIOURS, options_of
from netinit.base.errors import ParseError
from netinit.options import Options
from netinit.rules.layouts import plan
from netinit.rules.nft import HOOKS, WrittenNftChain, write_plan
from netinit.rules.nft.listing import compare_listing, parse_listing
from nft_json import as_json

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
        {"match": {"op": "==", "left": {"&": [{"meta": {"key": "priority"}}, 255]}, "right": 1}},
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


PRIORITY = {"dstnat": -100, "mangle": -150, "raw": -300, "filter": 0}


@pytest.mark.parametrize("place", HOOKS, ids=" ".join)
def test_a_hook_is_spelled_as_the_writer_spells_it(place):
    """A chain's JSON has the priority as a number, where its text has the name that is usual for the hook."""
    words = HOOKS[place].replace(";", "").split()  # type nat hook output priority -100 policy accept
    chain = {"family": "inet", "table": TABLE, "name": "x", "type": words[1], "hook": words[3], "policy": words[7]}
    chain["prio"] = PRIORITY.get(words[5]) if words[5] in PRIORITY else int(words[5])
    text = json.dumps({"nftables": [{"table": {"family": "inet", "name": TABLE}}, {"chain": chain}]})
    listed = parse_listing(text)[TABLE].chains["x"]
    assert (listed.hook, listed.rules) == (HOOKS[place], ())


def test_hooks_of_other_priorities_and_policies_are_others():
    chain = {"family": "inet", "table": TABLE, "name": "x", "type": "nat", "hook": "output", "prio": 7, "policy": "drop"}
    text = json.dumps({"nftables": [{"table": {"family": "inet", "name": TABLE}}, {"chain": chain}]})
    assert parse_listing(text)[TABLE].chains["x"].hook == "type nat hook output priority 7; policy drop;"


@pytest.mark.parametrize(
    ("left", "elements", "text"),
    [
        ({"meta": {"key": "iifname"}}, ["tap1", "eth0"], 'iifname { "eth0", "tap1" }'),
        ({"meta": {"key": "iifname"}}, ["b", "ab", "ba"], 'iifname { "b", "ba", "ab" }'),
        ({"meta": {"key": "oifname"}}, ["b", "ab", "ba"], 'oifname { "b", "ba", "ab" }'),  # as numbers of the byte order
        ({"payload": {"protocol": "tcp", "field": "dport"}}, [443, 80, {"range": [90, 99]}, 8080], "tcp dport { 80, 90-99, 443, 8080 }"),
        ({"payload": {"protocol": "ip", "field": "saddr"}}, ["10.0.0.2", {"prefix": {"addr": "9.0.0.0", "len": 8}}, {"range": ["10.0.0.0", "10.0.0.1"]}],
         "ip saddr { 9.0.0.0/8, 10.0.0.0-10.0.0.1, 10.0.0.2 }"),
        ({"payload": {"protocol": "ip", "field": "saddr"}}, ["10.0.0.2"], "ip saddr 10.0.0.2"),
        ({"meta": {"key": "mark"}}, [2, 1], "meta mark { 0x00000001, 0x00000002 }"),
        ({"meta": {"key": "l4proto"}}, ["udp", "tcp"], "meta l4proto { tcp, udp }"),
    ],
)  # fmt: skip
def test_elements_of_a_set_stand_in_the_order_in_which_nft_lists_them(left, elements, text):
    assert spelled({"match": {"op": "==", "left": left, "right": {"set": elements}}}) == text


@pytest.mark.parametrize(
    "expr",
    [
        {"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": 'a" counter accept comment "'}},
        {"match": {"op": "==", "left": {"meta": {"key": "oifname"}}, "right": "a\nb"}},
        {"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["new", "snat"]}},
        {"match": {"op": "in", "left": {"tcp": {"key": "flags"}}, "right": ["new"]}},
        {"match": {"op": "in", "left": {"meta": {"key": "mark"}}, "right": [1]}},
        {"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr", "base": "nh"}}, "right": "1.2.3.4"}},
        {"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": {"elem": 1}}},
        {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"<<": [{"meta": {"key": "mark"}}, 1]}}},
        {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"|": [{"ct": {"key": "mark"}}, 1]}}},
        {"mangle": {"key": {"payload": {"protocol": "ip", "field": "ttl", "base": 1}}, "value": 1}},
        {"mangle": {"key": {"meta": {"key": "mark"}}, "value": {"map": 1}}},
        {"reject": None},
        {"reject": {"type": "icmp"}},
        {"reject": {"type": "icmp", "expr": "x", "more": 1}},
        {"redirect": {"port": {"range": [1, 2]}}},
        {"tproxy": {"family": "ip", "port": "x"}},
        {"limit": {"rate": 2, "burst": 5, "per": "second", "inv": True}},
        {"limit": {"rate": 2, "per": "second"}},
        {"log": None},
        {"log": {"group": 5}},
        {"log": {"prefix": "x", "level": "info"}},
        {"log": {"prefix": 'a" accept comment "'}},
        {"log": {"prefix": "a\nb"}},
    ],
)  # fmt: skip
def test_what_is_nearly_like_a_plan_s_is_kept_as_it_is(expr):
    assert spelled(expr) == json.dumps(expr)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        ({"match": {"op": "==", "left": {"ct": {"key": "mark"}}, "right": 1}}, "ct mark 0x00000001"),
        ({"match": {"op": "==", "left": {"meta": {"key": "iifname"}}, "right": "eth0"}}, 'iifname "eth0"'),
        ({"match": {"op": "==", "left": {"meta": {"key": "skuid"}}, "right": 1337}}, "meta skuid 1337"),
        ({"match": {"op": "==", "left": {"meta": {"key": "skuid"}}, "right": {"range": [1, 5]}}}, "meta skuid 1-5"),
        ({"match": {"op": "in", "left": {"ct": {"key": "state"}}, "right": ["untracked", "new", "invalid"]}}, "ct state invalid,new,untracked"),
        ({"mangle": {"key": {"ct": {"key": "mark"}}, "value": {"meta": {"key": "mark"}}}}, "ct mark set meta mark"),
        ({"mangle": {"key": {"meta": {"key": "mark"}}, "value": 1337}}, "meta mark set 0x00000539"),
        ({"goto": {"target": "x"}}, "goto x"),
        ({"accept": None}, "accept"),
        ({"drop": None}, "drop"),
        ({"return": None}, "return"),
        ({"tproxy": {"family": "ip", "port": 1}}, "tproxy ip to :1"),
        ({"reject": {"type": "icmp", "expr": "port-unreachable"}}, "reject with icmp type port-unreachable"),
        ({"limit": {"rate": 2, "burst": 5, "per": "second"}}, "limit rate 2/second burst 5 packets"),
        ({"log": {"prefix": "in: "}}, 'log prefix "in: "'),
        ({"log": {"prefix": "in: ", "group": 5}}, 'log prefix "in: " group 5'),
    ],
)  # fmt: skip
def test_each_statement_has_the_writer_s_spelling(expr, text):
    assert spelled(expr) == text


def compare(planned, *items):
    """The differences, as lines, of chains (their hook and the texts of their rules) and JSON items of one table."""
    some = next(rule.rule for chain in write_plan(plan(Options()))[TABLE].values() for rule in chain.rules)
    rule = next(iter(write_plan(plan(Options()))[TABLE].values())).rules[0]
    assert rule.rule == some
    wanted = {
        name: WrittenNftChain(hook=hook, rules=tuple(rule.replace(text=text, rule=some.replace(comment="", origin=None)) for text in texts))
        for name, (hook, texts) in planned.items()
    }
    text = json.dumps({"nftables": [{"table": {"family": "inet", "name": TABLE}}, *items]})
    return [one.describe() for one in compare_listing({TABLE: wanted}, parse_listing(text))]


def chain_item(name, **more):
    return {"chain": {"family": "inet", "table": TABLE, "name": name, **more}}


def rule_item(name, *expr):
    return {"rule": {"family": "inet", "table": TABLE, "chain": name, "expr": [*expr]}}


OUTPUT_HOOK = "type nat hook output priority -100; policy accept;"
OUTPUT_JSON = {"type": "nat", "hook": "output", "prio": -100, "policy": "accept"}


def test_whole_tables_are_missing_or_too_much():
    wanted = write_plan(plan(Options.from_argv(["-b", "80", "--istio-exact"])))
    assert [one.describe() for one in compare_listing(wanted, {})] == [f"missing: nft {TABLE}: the whole table"]
    there = parse_listing(json.dumps({"nftables": [{"table": {"family": "inet", "name": TABLE}}]}))
    assert [one.describe() for one in compare_listing({}, there)] == [f"extra: nft {TABLE}: the whole table"]


def test_a_chain_at_another_hook_is_missing_there_and_too_much_here():
    nat = f"nft {TABLE}"
    assert compare({"output": (OUTPUT_HOOK, [])}, chain_item("output", **OUTPUT_JSON)) == []
    assert compare({"output": (OUTPUT_HOOK, [])}, chain_item("output")) == [
        f"missing: {nat} output: {OUTPUT_HOOK}", f"extra: {nat} output: no hook",
    ]  # fmt: skip
    assert compare({"x": ("", [])}, chain_item("x", **OUTPUT_JSON)) == [
        f"missing: {nat} x: no hook", f"extra: {nat} x: {OUTPUT_HOOK}",
    ]  # fmt: skip


def test_a_chain_that_no_plan_wants_is_too_much_and_each_of_its_rules():
    assert compare({}, chain_item("x"), rule_item("x", {"accept": None}), rule_item("x", {"drop": None})) == [
        f"extra: nft {TABLE} x: the chain itself",
        f"extra: nft {TABLE} x rule 1: accept",
        f"extra: nft {TABLE} x rule 2: drop",
    ]


def test_rules_are_numbered_as_they_stand_and_each_twin_counts_once():
    items = [chain_item("x"), rule_item("x", {"drop": None}), rule_item("x", {"accept": None}), rule_item("x", {"return": None})]
    where = f"nft {TABLE} x rule"
    assert compare({"x": ("", ["drop", "accept", "return"])}, *items) == []
    assert compare({"x": ("", ["accept", "drop", "return"])}, *items) in (
        [f"moved: {where} 1: drop"], [f"moved: {where} 2: accept"],
    )  # fmt: skip
    assert compare({"x": ("", ["drop", "counter", "return"])}, *items) == [f"missing: {where} 2: counter", f"extra: {where} 2: accept"]
    assert compare({"x": ("", ["drop", "accept", "return", "return"])}, *items) == [f"missing: {where} 4: return"]
    assert compare({"x": ("", ["drop", "accept"])}, *items) == [f"extra: {where} 3: return"]
    assert compare({"x": ("", ["counter", "drop", "accept", "return", "limit rate 1/second"])}, *items) == [
        f"missing: {where} 1: counter", f"missing: {where} 5: limit rate 1/second",
    ]  # fmt: skip
    assert compare({"x": ("", ["accept"])}, *items) == [f"extra: {where} 1: drop", f"extra: {where} 3: return"]


def test_a_list_is_shown_whole_up_to_ten_elements():
    for length in (10, 11):
        ports = [{"match": {"op": "==", "left": {"payload": {"protocol": "tcp", "field": "dport"}}, "right": {"set": [*range(1, length + 1)]}}}]
        (found,) = compare({"x": ("", [])}, chain_item("x"), rule_item("x", *ports, {"drop": None}))
        whole = ", ".join(map(str, range(1, 11)))
        assert found == f"extra: nft {TABLE} x rule 1: tcp dport {{ {whole}{' and 1 more' if length > 10 else ''} }} drop"


def test_an_error_shows_the_beginning_of_what_is_no_listing():
    with pytest.raises(ParseError) as refusal:
        parse_listing("x" * 199 + "yz")
    assert str(refusal.value).endswith("x" * 199 + "y'")


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_what_nft_lists_of_a_golden_differs_in_nothing_with_comments_or_without(behaviour):
    made = plan(options_of(behaviour))
    for comments in (False, True):
        assert list(compare_listing(write_plan(made, comments=comments), parse_listing(as_json(made)))) == []


@pytest.mark.parametrize(("layout", "differs"), [("ambient", False), ("current", True)])
def test_the_family_may_be_missing_in_tables_of_an_ambient_mesh_alone(layout, differs):
    made = plan(Options(layout=layout, ipv6="off"))
    listed = json.loads(as_json(made))
    rules = [item["rule"] for item in listed["nftables"] if "rule" in item]
    for rule in rules:
        rule["expr"] = [one for one in rule["expr"] if "nfproto" not in json.dumps(one)]
    assert bool(list(compare_listing(write_plan(made), parse_listing(json.dumps(listed))))) is differs


def test_conditions_in_another_order_make_no_difference_but_another_condition_does():
    made = plan(Options.from_argv(["-b", "*", "-i", "*"], {}))
    listed = json.loads(as_json(made))
    turned = [item["rule"] for item in listed["nftables"] if "rule" in item and sum("match" in one for one in item["rule"]["expr"]) > 1]
    assert turned
    for rule in turned:
        matches = [one for one in rule["expr"] if "match" in one]
        rule["expr"] = [*reversed(matches), *[one for one in rule["expr"] if "match" not in one]]
    assert list(compare_listing(write_plan(made), parse_listing(json.dumps(listed)))) == []
    turned[0]["expr"].pop(0)
    assert [one.kind for one in compare_listing(write_plan(made), parse_listing(json.dumps(listed)))] == ["missing", "extra"]
