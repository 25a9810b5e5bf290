"""Which rules of a listing are ours: all of ours, and none of anybody else's, however alike they look."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from core import (
    FAMILIES,
    IPV4,
    IPV6,
    Options,
    holds_foreign_rules,
    keep_foreign_rules,
    owned_rules,
    plan,
    target_of,
    write_plan,
    write_rule,
)
from listings import listing_of, make_listing
from netinit.options.interception import LAYOUTS, SIDECAR
from netinit.rules.iptables.ownership import holds_ours
from netinit.rules.iptables.parse import normalise
from netinit.rules.iptables.write import ListedTable
from netinit.rules.layouts import classic, outbound, tproxy
from netinit.rules.marking_targets import SetMark
from netinit.rules.matches.context import Mark
from netinit.rules.matches.packet import Protocol
from netinit.rules.model import BUILTIN_CHAINS, OPEN_CHAINS, OWNED_CHAINS, Rule
from netinit.rules.rule_patterns import SAMPLES, layout_patterns, make_patterns, read_values
from netinit.rules.targets import Drop, Jump, Reject
from strategies import made_options

TPROXY_MARK, LOOPBACK = SAMPLES["tproxy_mark"], SAMPLES["loopback_cidr"]
(EXCLUDED_NAME,), (VIRTUAL_NAME,), (UID,), (GID,) = (
    SAMPLES[field] for field in ("exclude_interfaces", "virtual_interfaces", "proxy_uids", "proxy_gids")
)

EXCLUDED = """\
nat PREROUTING -i eth1 -j RETURN
nat OUTPUT -o eth1 -j RETURN
nat OUTPUT -j ISTIO_OUTPUT
nat ISTIO_OUTPUT"""
VIRTUAL = """\
nat PREROUTING -i tap0 -j ISTIO_REDIRECT
nat PREROUTING -i tap0 -j RETURN
nat ISTIO_REDIRECT"""
MARKED = """\
mangle PREROUTING -p tcp -j ISTIO_INBOUND
mangle PREROUTING -p tcp -m mark --mark 0x539 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
mangle OUTPUT -o lo -p tcp -m mark --mark 0x539 -j RETURN
mangle OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 1337 -j MARK --set-xmark 0x53a/0xffffffff
mangle OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m owner --gid-owner 1337 -j MARK --set-xmark 0x53a/0xffffffff
mangle OUTPUT -p tcp -m connmark --mark 0x539 -j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xffffffff
mangle ISTIO_DIVERT -j MARK --set-xmark 0x539/0xffffffff
mangle ISTIO_INBOUND"""
REFUSAL = """\
filter INPUT -m state --state ESTABLISHED -j ACCEPT
filter INPUT -d ::1/128 -i lo -j ACCEPT
filter INPUT -j REJECT --reject-with icmp6-port-unreachable"""


def ours(text, options=None, *, beside="", family=IPV4):
    """Our rules in the built-in chains, by table and chain with their numbers; `beside` is the other family's listing."""
    written = write_plan(plan(options), family) if options else {}
    other = IPV6 if family is IPV4 else IPV4
    owned = owned_rules(family, {family: make_listing(text), other: make_listing(beside)}, written, layout_patterns)
    return {f"{table} {chain}": [index + 1 for index in indexes] for (table, chain), indexes in owned.items()}


@settings(max_examples=100)
@given(made_options())
def test_all_that_any_options_program_is_ours_whoever_asks(options):
    made = plan(options)
    texts = {family: listing_of(made, family) for family in FAMILIES}
    for family in FAMILIES:
        told = ours(texts[family], beside=texts[IPV6 if family is IPV4 else IPV4], family=family)
        lines = [line.split(" ", 2) for line in texts[family].splitlines()]
        for table, chain, *_ in lines:
            if not chain.startswith("ISTIO_") and (options.virtual_interfaces == () or options.outbound_cidrs == "*"):
                count = sum(line[:2] == [table, chain] for line in lines)
                assert told.get(f"{table} {chain}") == list(range(1, count + 1)), (table, chain, texts[family])


# --- jumps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", ["-j ISTIO_OUTPUT", "-g ISTIO_OUTPUT", "-p tcp -j ISTIO_OUTPUT", "-p udp -m udp --dport 9 -j ISTIO_DROP"]
)
def test_a_jump_into_our_chains_is_ours_even_where_the_chain_is_gone(rule):
    assert ours(f"nat OUTPUT -j ACCEPT\nnat OUTPUT {rule}\nnat OUTPUT -j THEIRS\nnat THEIRS") == {"nat OUTPUT": [2]}


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("-p tcp -j REDIRECT --to-ports 15001", "REDIRECT"),
        ("-j RETURN", "RETURN"),
        ("-p tcp -g THEIRS", "THEIRS"),
        ("-p tcp", ""),
        ("", ""),
        ('-m comment --comment "then -j DROP" -j ACCEPT', "ACCEPT"),
        ("-m comment --comment -j -j ACCEPT", "ACCEPT"),
        ("-m conntrack --ctstate NEW -j LOG --log-prefix x", "LOG"),
    ],
)
def test_the_target_of_a_rule(text, target):
    assert target_of(normalise(text, IPV4)) == target


# --- excluded interfaces ----------------------------------------------------------------------------------------------


def test_an_excluded_interface_is_ours_where_both_chains_say_so():
    assert ours(EXCLUDED) == {"nat PREROUTING": [1], "nat OUTPUT": [1, 2]}


@pytest.mark.parametrize("missing", ["nat PREROUTING -i eth1 -j RETURN", "nat OUTPUT -o eth1 -j RETURN"])
def test_a_return_for_an_interface_that_only_one_chain_has_is_somebody_else_s(missing):
    told = ours(EXCLUDED.replace(missing + "\n", ""))
    assert told == {"nat OUTPUT": [1] if "OUTPUT" in missing else [2]}


def test_a_return_that_does_not_stand_right_before_our_jump_is_somebody_else_s():
    text = EXCLUDED.replace("nat OUTPUT -j ISTIO", "nat OUTPUT -p tcp -m tcp --dport 9 -j ACCEPT\nnat OUTPUT -j ISTIO")
    assert ours(text) == {"nat OUTPUT": [3]}


def test_several_excluded_interfaces_stand_one_behind_the_other():
    text = "nat PREROUTING -i eth1 -j RETURN\nnat PREROUTING -i eth2 -j RETURN\nnat OUTPUT -o eth1 -j RETURN\nnat OUTPUT -o eth2 -j RETURN\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert ours(text) == {"nat PREROUTING": [1, 2], "nat OUTPUT": [1, 2, 3]}


def test_of_equal_returns_for_an_excluded_interface_the_last_is_ours():
    text = EXCLUDED.replace("nat PREROUTING -i eth1", "nat PREROUTING -i eth1 -j RETURN\nnat PREROUTING -i eth1")
    assert ours(text) == {"nat PREROUTING": [2], "nat OUTPUT": [1, 2]}


def test_a_return_with_more_conditions_is_somebody_else_s():
    assert ours(EXCLUDED.replace("-o eth1 -j", "-o eth1 -p tcp -j")) == {"nat OUTPUT": [2]}
    assert ours(EXCLUDED.replace("-o eth1 -j", "! -o eth1 -j")) == {"nat OUTPUT": [2]}
    assert ours(EXCLUDED.replace("eth1 -j RETURN", "eth1 -j ACCEPT")) == {"nat OUTPUT": [2]}


def test_mangle_has_its_excluded_interfaces_before_whatever_jump_comes_first():
    text = "mangle PREROUTING -i eth1 -j RETURN\nmangle PREROUTING -m conntrack --ctstate INVALID -j ISTIO_DROP\nmangle OUTPUT -o eth1 -j RETURN\nmangle ISTIO_DROP -j DROP"
    assert ours(text) == {"mangle PREROUTING": [1, 2], "mangle OUTPUT": [1]}
    alone = text.replace("mangle OUTPUT -o eth1 -j RETURN\n", "")
    assert ours(alone) == {"mangle PREROUTING": [2]}


def test_the_other_family_confirms_an_excluded_interface():
    half = "nat PREROUTING -i eth1 -j RETURN\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert ours(half) == {"nat OUTPUT": [1]}
    assert ours(half, beside=EXCLUDED) == {"nat PREROUTING": [1], "nat OUTPUT": [1]}


def test_interfaces_are_spared_in_no_other_table_or_chain():
    more = "\nnat POSTROUTING -o eth1 -j RETURN\nnat INPUT -i eth1 -j RETURN\nraw PREROUTING -i eth1 -j RETURN\nraw ISTIO_INBOUND"
    assert ours(EXCLUDED + more) == ours(EXCLUDED)


# --- virtual interfaces -----------------------------------------------------------------------------------------------


def test_a_virtual_interface_is_ours_where_a_redirection_names_it():
    assert ours(VIRTUAL) == {"nat PREROUTING": [1, 2]}
    assert ours(VIRTUAL.replace("-i tap0 -j ISTIO", "-d 10.0.0.0/8 -i tap0 -j ISTIO")) == {"nat PREROUTING": [1, 2]}
    assert ours(VIRTUAL.replace("-i tap0 -j RETURN", "-i tap1 -j RETURN")) == {"nat PREROUTING": [1]}
    assert ours(VIRTUAL.replace("-i tap0 -j ISTIO", "! -i tap0 -j ISTIO")) == {"nat PREROUTING": [1]}


def test_each_family_confirms_for_both():
    nothing = (
        "nat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT\nmangle PREROUTING -p tcp -j ISTIO_INBOUND\nmangle ISTIO_INBOUND"
    )
    for text in (VIRTUAL, EXCLUDED, MARKED):
        assert ours(text, beside=nothing) == ours(text)
    half = "nat PREROUTING -i tap0 -j RETURN\nnat ISTIO_REDIRECT"
    assert ours(half) == {}
    assert ours(half, beside=VIRTUAL) == {"nat PREROUTING": [1]}
    marked = "mangle OUTPUT -o lo -p tcp -m mark --mark 0x539 -j RETURN\nmangle ISTIO_INBOUND"
    assert ours(marked) == {}
    assert ours(marked, beside=MARKED) == {"mangle OUTPUT": [1]}


def test_of_equal_returns_for_a_virtual_interface_the_first_is_ours():
    assert ours(VIRTUAL.replace("\nnat ISTIO", "\nnat PREROUTING -i tap0 -j RETURN\nnat ISTIO")) == {
        "nat PREROUTING": [1, 2]
    }


def test_a_virtual_interface_is_spared_in_nat_prerouting_alone():
    more = "\nnat OUTPUT -o tap0 -j RETURN\nmangle PREROUTING -i tap0 -j RETURN\nmangle ISTIO_INBOUND"
    assert ours(VIRTUAL + more) == {"nat PREROUTING": [1, 2]}


# --- marks ------------------------------------------------------------------------------------------------------------


def test_the_rules_for_marks_are_ours_where_our_chains_set_that_mark():
    assert ours(MARKED) == {"mangle PREROUTING": [1, 2], "mangle OUTPUT": [1, 2, 3, 4]}
    # The mark of the proxy's own connections is always the same one and needs no confirmation.
    assert ours(MARKED.replace("-j MARK --set-xmark 0x539", "-j MARK --set-xmark 0x7")) == {
        "mangle PREROUTING": [1],
        "mangle OUTPUT": [2, 3],
    }


@pytest.mark.parametrize(
    "where",
    ["mangle ISTIO_TPROXY ! -d 127.0.0.1/32 -p tcp -j TPROXY --on-port 1 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff",
     "mangle ISTIO_INBOUND -p tcp -m mark --mark 0x539 -j RETURN"],
)  # fmt: skip
def test_any_of_our_chains_confirms_a_mark(where):
    text = MARKED.replace("mangle ISTIO_DIVERT -j MARK --set-xmark 0x539/0xffffffff", where)
    assert ours(text) == ours(MARKED)


def test_a_mark_in_a_chain_of_others_confirms_nothing():
    text = MARKED.replace("mangle ISTIO_DIVERT -j", "mangle THEIRS -j")
    assert ours(text) == {"mangle PREROUTING": [1], "mangle OUTPUT": [2, 3]}


@pytest.mark.parametrize(
    "rule",
    [
        "-o lo -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xffffffff",  # without a destination
        "-d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xffffffff",
        "! -d 127.0.0.1/32 -o eth0 -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xffffffff",
        "! -d 127.0.0.1/32 -o lo -p udp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xffffffff",
        "! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xff",
        "! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53b/0xffffffff",
        "! -d 127.0.0.1/32 -o lo -p tcp -j MARK --set-xmark 0x53a/0xffffffff",
        "-p tcp -m connmark --mark 0x539 -j CONNMARK --restore-mark --nfmask 0xff --ctmask 0xff",
        "-p tcp -m mark --mark 0x538 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff",
        "-o eth0 -p tcp -m mark --mark 0x539 -j RETURN",
    ],
)
def test_a_rule_that_only_looks_like_one_for_marks_is_somebody_else_s(rule):
    assert ours(f"mangle OUTPUT {rule}\n{MARKED}") == {"mangle PREROUTING": [1, 2], "mangle OUTPUT": [2, 3, 4, 5]}


def test_the_forms_for_marks_are_ours_in_mangle_s_two_chains_alone():
    rule = "! -d 127.0.0.1/32 -o lo -p tcp -m owner --uid-owner 5 -j MARK --set-xmark 0x53a/0xffffffff"
    assert ours(f"mangle POSTROUTING {rule}\nmangle INPUT {rule}\nmangle ISTIO_INBOUND") == {}
    assert ours(f"mangle PREROUTING {rule}\nmangle ISTIO_INBOUND") == {}
    assert ours(f"raw OUTPUT {rule}\nraw ISTIO_INBOUND") == {}


# --- what the plan wants ----------------------------------------------------------------------------------------------


def test_without_a_chain_of_ours_no_rule_is_taken_for_ours_because_the_plan_wants_it():
    options = Options(exclude_interfaces=("eth1",), ipv6="on")
    assert ours("nat PREROUTING -i eth1 -j RETURN\nnat OUTPUT -o eth1 -j RETURN", options) == {}


def test_of_equal_rules_the_last_is_what_the_plan_appends():
    options = Options(exclude_interfaces=("eth1",), ipv6="on")
    text = "nat PREROUTING -i eth1 -j RETURN\nnat PREROUTING -p tcp -j ACCEPT\nnat PREROUTING -i eth1 -j RETURN\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert ours(text, options) == {"nat PREROUTING": [3], "nat OUTPUT": [1]}
    assert ours(text) == {"nat OUTPUT": [1]}


def test_of_equal_rules_the_first_is_what_the_plan_inserts():
    options = Options(virtual_interfaces=("tap0",), ipv6="on")
    text = "nat PREROUTING -i tap0 -j RETURN\nnat PREROUTING -p tcp -j ACCEPT\nnat PREROUTING -i tap0 -j RETURN\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert ours(text, options) == {"nat PREROUTING": [1], "nat OUTPUT": [1]}


def test_what_the_plan_wants_twice_is_found_twice_and_what_is_known_is_not_claimed_again():
    options = Options(virtual_interfaces=("tap0",), exclude_interfaces=("tap0",), ipv6="on")
    text = "nat PREROUTING -i tap0 -j RETURN\nnat PREROUTING -i tap0 -j RETURN\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert ours(text, options) == {"nat PREROUTING": [1, 2], "nat OUTPUT": [1]}
    known = EXCLUDED.replace("nat PREROUTING -i eth1", "nat PREROUTING -i eth1 -j RETURN\nnat PREROUTING -i eth1")
    assert ours(known, Options(exclude_interfaces=("eth1",), ipv6="on")) == {
        "nat PREROUTING": [2],
        "nat OUTPUT": [1, 2],
    }


# --- the refusal of IPv6 ----------------------------------------------------------------------------------------------


def test_the_three_rules_that_refuse_ipv6_are_ours_together():
    before = "filter INPUT -p tcp -m tcp --dport 9 -j ACCEPT\n"
    assert ours(before + REFUSAL, family=IPV6) == {"filter INPUT": [2, 3, 4]}
    for line in REFUSAL.splitlines():
        assert ours("\n".join(other for other in REFUSAL.splitlines() if other != line), family=IPV6) == {}
    first, second, third = REFUSAL.splitlines()
    assert ours(f"{first}\n{third}\n{second}") == {}
    assert ours(f"{first}\n{second}\nfilter INPUT -j ACCEPT\n{third}") == {}
    assert ours(REFUSAL.replace("INPUT", "FORWARD"), family=IPV6) == {}
    assert ours(REFUSAL.replace("filter", "mangle"), family=IPV6) == {}


@pytest.mark.parametrize("options", [Options(), Options(layout="classic", ipv6="off")])
def test_a_chain_of_ours_beside_them_confirms_none_of_the_three_alone(options):
    refusing_quic = "\nfilter OUTPUT -j ISTIO_OUTPUT\nfilter ISTIO_OUTPUT"
    assert ours(REFUSAL + refusing_quic, options, family=IPV6) == {"filter INPUT": [1, 2, 3], "filter OUTPUT": [1]}
    for line in REFUSAL.splitlines():
        assert ours(line + refusing_quic, options, family=IPV6) == {"filter OUTPUT": [1]}


def test_of_two_such_runs_the_first_is_ours():
    assert ours(f"{REFUSAL}\n{REFUSAL}", family=IPV6) == {"filter INPUT": [1, 2, 3]}


# --- comments ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "comment",
    ['"a -m comment --comment b"', "plain", '"two words"', '"a \\"quoted\\" -j DROP"', '"ends with a backslash \\\\"'],
)
def test_comments_change_nothing_about_whose_a_rule_is(comment):
    text = EXCLUDED.replace("-o eth1 -j", f"-o eth1 -m comment --comment {comment} -j")
    assert ours(text) == ours(EXCLUDED)
    marked = MARKED.replace("-o lo -p tcp -m mark", f"-o lo -p tcp -m comment --comment {comment} -m mark")
    assert ours(marked) == {"mangle PREROUTING": [1, 2], "mangle OUTPUT": [1, 2, 3, 4]}


# --- what others have -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "policies", "others"),
    [
        ("nat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT", {}, False),
        ("nat OUTPUT", {}, False),
        ("nat OUTPUT -j ACCEPT", {}, True),
        ("nat OUTPUT -j ISTIO_OUTPUT\nnat OUTPUT -j ACCEPT\nnat ISTIO_OUTPUT", {}, True),
        ("nat THEIRS", {}, False),
        ("nat THEIRS -j ACCEPT", {}, True),
        ("nat ISTIO_OUTPUT -j ACCEPT", {}, False),
        ("filter INPUT", {"filter FORWARD": "DROP"}, True),
    ],
)
def test_tables_hold_something_of_others(text, policies, others):
    listing = make_listing(text, policies)
    assert holds_foreign_rules(listing, owned_rules(IPV4, {IPV4: listing}, {}, layout_patterns)) is others


def spared(now, before, owned, owned_before):
    place = ("nat", "PREROUTING")
    left = keep_foreign_rules(
        {place: owned}, make_listing(now), make_listing(before), {place: owned_before} if owned_before else {}
    )
    return left.get(place, [])


def test_putting_back_leaves_as_many_equal_rules_of_others_as_there_were():
    rule = "nat PREROUTING -i tap0 -j RETURN"
    once, twice = rule, f"{rule}\n{rule}"
    assert spared(once, once, [0], []) == []  # it was somebody else's before
    assert spared(twice, once, [0], []) == [0]  # one is ours, one stays
    assert spared(twice, once, [0, 1], []) == [1]
    assert spared(once, once, [0], [0]) == [0]  # it was ours before
    assert spared(once, "nat PREROUTING -j ACCEPT", [0], []) == [0]
    assert spared(once, "mangle PREROUTING", [0], []) == [0]  # the table was not there
    assert keep_foreign_rules(
        {("nat", "THEIRS"): [0]}, make_listing("nat THEIRS -j DROP"), make_listing("nat OUTPUT"), {}
    ) == {("nat", "THEIRS"): [0]}


# --- the patterns are the layouts' -----------------------------------------------------------------------------------------


@pytest.fixture
def patch_layout(monkeypatch):
    """Change a layout for one test; the patterns that are computed once, which `ours` asks, stay those of the layouts as they are."""
    layout_patterns()
    return monkeypatch.setattr


def ours_by(rule_patterns, text):
    family = IPV6 if "::" in text else IPV4
    owned = owned_rules(family, {family: make_listing(text)}, {}, rule_patterns)
    return {f"{table} {chain}": [index + 1 for index in indexes] for (table, chain), indexes in owned.items()}


def test_a_layout_that_marks_otherwise_is_known_by_its_new_mark(patch_layout):
    new = MARKED.replace("0x53a", "0x777")
    assert 3 not in ours_by(make_patterns, new)["mangle OUTPUT"]
    patch_layout(tproxy, "LOOP_MARK", 0x777)
    assert ours_by(make_patterns, new) == ours(MARKED)
    assert 2 not in ours_by(make_patterns, MARKED)["mangle OUTPUT"], "what the old layout made is foreign to the new one"


def test_a_rule_that_a_layout_adds_to_a_built_in_chain_is_ours_from_then_on(patch_layout):
    added = "mangle OUTPUT -p udp -m mark --mark 0x539 -j DROP"
    assert ours_by(make_patterns, f"{MARKED}\n{added}") == ours(MARKED)
    usual = tproxy.mark_connections

    def mark_and_drop(builder, options):
        usual(builder, options)
        marked = Mark(value=options.tproxy_mark)
        builder.append("mangle", "OUTPUT", Protocol(name="udp"), marked, to=Drop(), why="a test", origin="inbound_mode")

    patch_layout(tproxy, "mark_connections", mark_and_drop)
    assert ours_by(make_patterns, f"{MARKED}\n{added}")["mangle OUTPUT"] == [*ours(MARKED)["mangle OUTPUT"], 5]
    assert ours_by(make_patterns, f"{MARKED}\n{added.replace('0x539', '0x540')}") == ours(MARKED), "another mark is confirmed by nothing"


def test_a_mark_is_confirmed_where_a_layout_writes_it(patch_layout):
    alone = MARKED.replace("mangle ISTIO_DIVERT -j MARK --set-xmark 0x539/0xffffffff\n", "")
    elsewhere = f"{alone}\nnat ISTIO_OUTPUT -m connmark --mark 0x539 -j DROP"
    assert ours_by(make_patterns, elsewhere) == ours(alone) != ours(MARKED)
    usual = outbound.enter

    def drop_marked(builder, options):
        usual(builder, options)
        builder.append("nat", "ISTIO_OUTPUT", Mark(value=TPROXY_MARK, connection=True), to=Drop(), why="a test")

    patch_layout(outbound, "enter", drop_marked)
    assert ours_by(make_patterns, elsewhere)["mangle PREROUTING"] == [1, 2]
    assert ours_by(make_patterns, elsewhere.replace("-j DROP", "-j RETURN"))["mangle PREROUTING"] == [1], "another target"
    assert ours_by(make_patterns, elsewhere.replace("nat ISTIO_OUTPUT -m", "nat ISTIO_INBOUND -m"))["mangle PREROUTING"] == [1]


def test_an_excluded_interface_is_ours_before_the_jump_that_the_layout_makes(patch_layout):
    other = EXCLUDED.replace("ISTIO_OUTPUT", "ISTIO_QUIC")
    assert ours_by(make_patterns, other) == {"nat OUTPUT": [2]}
    patch_layout(outbound, "enter", lambda builder, _: builder.append("nat", "OUTPUT", to=Jump(chain="ISTIO_QUIC"), why="a test"))
    assert ours_by(make_patterns, other) == {"nat PREROUTING": [1], "nat OUTPUT": [1, 2]}
    assert ours_by(make_patterns, EXCLUDED) == {"nat OUTPUT": [2]}


def test_a_virtual_interface_is_ours_where_the_layout_s_own_jump_names_it(patch_layout):
    other = VIRTUAL.replace("ISTIO_REDIRECT", "ISTIO_QUIC")
    assert ours_by(make_patterns, other) == {"nat PREROUTING": [1]}
    patch_layout(outbound, "ISTIO_REDIRECT", "ISTIO_QUIC")
    assert ours_by(make_patterns, other) == {"nat PREROUTING": [1, 2]}


def test_a_refusal_that_the_classic_layout_words_otherwise_is_known_by_its_new_words(patch_layout):
    new = REFUSAL.replace("icmp6-port-unreachable", "icmp6-adm-prohibited")
    assert (ours_by(make_patterns, REFUSAL), ours_by(make_patterns, new)) == ({"filter INPUT": [1, 2, 3]}, {})
    patch_layout(classic, "Reject", lambda: Reject(message="icmp6-adm-prohibited"))
    assert (ours_by(make_patterns, REFUSAL), ours_by(make_patterns, new)) == ({}, {"filter INPUT": [1, 2, 3]})


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("-i eth1 -j RETURN", (("an excluded interface", "eth1"),)),
        ("-i eth1 -m comment --comment x -j RETURN", (("an excluded interface", "eth1"),)),
        ("-i eth1 -p tcp -j RETURN", None),
        ("-o eth1 -j RETURN", None),
        ("-i eth1 -j RETURN --more", None),
        ("-i eth1 -j RETURNED", None),
        ("! -i eth1 -j RETURN", None),
    ],
)
def test_a_form_reads_the_values_of_its_own_texts_alone(text, values):
    pattern = normalise(f"-i {EXCLUDED_NAME} -j RETURN", IPV4)
    assert read_values(pattern, normalise(text, IPV4)) == values


def test_a_mark_is_read_and_its_mask_compared():
    pattern = normalise(f"-m mark --mark {TPROXY_MARK:#x}/0xff -j RETURN", IPV4)
    assert read_values(pattern, normalise("-m mark --mark 1/255 -j RETURN", IPV4)) == (("the mark", 1),)
    assert read_values(pattern, normalise("-m mark --mark 1 -j RETURN", IPV4)) is None


def test_nothing_is_rendered_where_the_plan_explains_every_rule():
    def never():
        raise AssertionError("the patterns of the layouts were asked for")

    options = Options(ipv6="on", inbound_mode="TPROXY", inbound_ports="*", outbound_cidrs="*", exclude_interfaces=("eth1",))
    made = plan(options.replace(exclude_interfaces=()))
    listing = make_listing(listing_of(made, IPV4))
    assert owned_rules(IPV4, {IPV4: listing}, write_plan(made, IPV4), never)["mangle", "OUTPUT"] == [0, 1, 2, 3]


def write(key):
    """The rule of a pattern as it is listed, with {} for its placeholders."""
    rule = Rule(matches=key[:-1], target=key[-1], comment="", origin=None)
    (text,) = write_rule(rule, IPV6 if "::1/128" in repr(key) else IPV4)
    for value in (hex(TPROXY_MARK), str(UID), str(GID), EXCLUDED_NAME, VIRTUAL_NAME, str(LOOPBACK)):
        text = text.replace(value, "{}")
    return text


def test_all_forms_of_today_s_layouts():
    """To be looked at where a layout changes: each of these is ours wherever it stands."""
    loop = "-o lo -p tcp -m owner --{}-owner {{}} -j MARK --set-xmark 0x53a/0xffffffff"
    masks = "--nfmask 0xffffffff --ctmask 0xffffffff"
    assert {f"{one.table} {one.chain} {write(one.key)}" for one in make_patterns().rules} == {
        "nat PREROUTING -i {} -j RETURN",
        "nat OUTPUT -o {} -j RETURN",
        "mangle PREROUTING -i {} -j RETURN",
        "mangle OUTPUT -o {} -j RETURN",
        f"mangle PREROUTING -p tcp -m mark --mark {{}} -j CONNMARK --save-mark {masks}",
        f"mangle OUTPUT -p tcp -m connmark --mark {{}} -j CONNMARK --restore-mark {masks}",
        "mangle OUTPUT -o lo -p tcp -m mark --mark {} -j RETURN",
        *[f"mangle OUTPUT ! -d {network} {loop.format(kind)}" for network in ("{}", "::1/128") for kind in ("uid", "gid")],
    }
    placeholders = {placeholder for one in make_patterns().rules for placeholder in one.placeholders}
    assert placeholders == {"an excluded interface", "an interface of a VM", "the mark", "another value"}
    assert [(table, chain, len(run)) for table, chain, run in make_patterns().runs] == [("filter", "INPUT", 3)]
    assert {(one.table, one.chain) for one in make_patterns().rules if one.inserted} == {("nat", "PREROUTING")}
    assert {table for table, _, _ in make_patterns().runs} == {"filter"}, "owned_rules asks for patterns in no other table without our chains"


@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - set(SIDECAR)))
def test_other_layouts_need_no_patterns(layout):
    made = plan(Options(layout=layout, redirect_dns=True, virtual_interfaces=("eth1",), ipv6="on"))
    rules = [rule for table in made.tables for chain in table.chains if chain.name in BUILTIN_CHAINS for rule in (*chain.inserted, *chain.rules)]
    assert {rule.target.calls for rule in rules} <= OWNED_CHAINS


def test_all_signs_of_today_s_layouts():
    assert {f"{one.table} {one.chain} {one.part.__name__}.{one.field} -j {one.target}: {one.placeholder}" for one in make_patterns().value_places} == {
        "nat PREROUTING InInterface.names -j ISTIO_REDIRECT: an interface of a VM",
        "mangle ISTIO_DIVERT SetMark.value -j MARK: the mark",
        "mangle ISTIO_INBOUND Mark.value -j RETURN: the mark",
        "mangle ISTIO_TPROXY Tproxy.mark -j TPROXY: the mark",
        "filter ISTIO_INBOUND InInterface.names -j DROP: an interface of a VM",
        "filter ISTIO_INBOUND InInterface.names -j REJECT: an interface of a VM",
        "filter ISTIO_INBOUND InInterface.names -j RETURN: an interface of a VM",
        "filter FORWARD InInterface.names -j ISTIO_DROP: an interface of a VM",
        "filter FORWARD InInterface.names -j ISTIO_INBOUND: an interface of a VM",
        "filter ISTIO_OUTPUT OutInterface.names -j RETURN: an excluded interface",
    }
    assert make_patterns().anchors == {
        ("nat", "OUTPUT"): {"ISTIO_OUTPUT"},
        ("mangle", "PREROUTING"): {"ISTIO_DROP", "ISTIO_INBOUND"},
    }


def test_our_chains_are_those_that_the_layouts_make():
    everything = {"ipv6": "on", "inbound_ports": "*", "redirect_dns": True, "capture_all_dns": True}
    more = {"drop_invalid": True, "reject_quic": True, "log_rules": True, "outbound_cidrs": "*"}
    made = [plan(Options(inbound_mode="TPROXY", **everything, **more)), plan(Options(layout="ambient", ipv6="reject"))]
    chains = {chain.name for one in made for table in one.tables for chain in table.chains if not chain.builtin}
    assert chains | OPEN_CHAINS.keys() == OWNED_CHAINS


def test_a_mark_keeps_its_mask_where_it_has_one(monkeypatch):
    usual = tproxy.mark_connections

    def set_mark(builder, options):
        usual(builder, options)
        builder.append("mangle", "OUTPUT", to=SetMark(value=options.tproxy_mark), why="a test", origin="inbound_mode")

    monkeypatch.setattr(tproxy, "mark_connections", set_mark)
    assert normalise(f"-j MARK --set-xmark {TPROXY_MARK:#x}/0xffffffff", IPV4) in [one.key for one in make_patterns().rules]


@pytest.mark.parametrize(("chains", "has"), [(("OUTPUT", "ISTIO_OUTPUT"), True), (("ISTIO_DROP",), True), (("OUTPUT", "THEIRS"), False), ((), False)])
def test_a_table_with_a_chain_of_ours_holds_ours(chains, has):
    assert holds_ours(ListedTable(policies=dict.fromkeys(chains, "-"), rules={chain: [] for chain in chains})) is has
