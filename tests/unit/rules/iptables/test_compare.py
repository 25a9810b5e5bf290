"""Planned rules against listed ones: what is missing, too much or moved, and at which number."""

from __future__ import annotations

import pytest

from core import (
    IPV4,
    IPV6,
    Options,
    family_rules,
    owned_rules,
    plan,
    write_plan,
)
from listings import listing_of, make_listing
from netinit.kernel.answers import decode, encode
from netinit.rules.iptables.compare import align
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.write import DecodedRule
from netinit.rules.rule_patterns import layout_patterns

OPTIONS = Options(
    inbound_ports="*", exclude_inbound_ports=(15090,), exclude_interfaces=("eth1",), proxy_uids=(5,), ipv6="on"
)
MADE = plan(OPTIONS)
LIVE = listing_of(MADE, IPV4)
FOREIGN = "nat OUTPUT -p tcp -m tcp --dport 9 -j THEIRS\nnat THEIRS -j RETURN\n"


def differences(text, made=MADE, family=IPV4):
    listing = make_listing(text)
    written = write_plan(made, family)
    owned = owned_rules(family, {family: listing}, written, layout_patterns)
    return [one.describe() for one in family_rules(listing, owned, written, family).find_differences()]


def swapped(text, one, other):
    return text.replace(one, "\0").replace(other, one).replace("\0", other)


def test_what_is_as_planned_has_no_differences():
    assert differences(LIVE) == []
    assert differences(listing_of(MADE, IPV6), family=IPV6) == []
    assert differences("", plan(Options(layout="classic", ipv6="on")).replace(tables=())) == []


def test_rules_of_others_are_no_differences_but_count_in_the_numbers():
    assert differences(FOREIGN + LIVE) == []
    changed = FOREIGN + LIVE.replace("nat OUTPUT -j ISTIO_OUTPUT", "nat OUTPUT -p udp -j ISTIO_OUTPUT")
    assert differences(changed)[:2] == [
        "missing: IPv4 nat OUTPUT rule 2: -j ISTIO_OUTPUT  (outbound traffic is checked; always)",
        "extra: IPv4 nat OUTPUT rule 3: -p udp -j ISTIO_OUTPUT",
    ]


def test_a_rule_that_stands_hundreds_of_times_is_there_once_as_wanted():
    captured = "nat ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n"
    assert LIVE.count(captured) == 1
    told = differences(LIVE.replace(captured, captured * 300))
    assert [one.partition(":")[0] for one in told] == ["extra"] * 299


def test_a_missing_rule_is_named_with_its_planned_number_and_its_purpose():
    lost = "-p tcp -m tcp --dport 15090 -j RETURN"
    assert differences(LIVE.replace(f"nat ISTIO_INBOUND {lost}\n", "")) == [
        f"missing: IPv4 nat ISTIO_INBOUND rule 2: {lost}  (these inbound ports are not captured; --istio-local-exclude-ports)"
    ]


def test_a_rule_that_is_too_much_is_named_with_its_live_number():
    assert differences(
        LIVE.replace("nat ISTIO_REDIRECT", "nat ISTIO_REDIRECT -p udp -j RETURN\nnat ISTIO_REDIRECT", 1)
    ) == ["extra: IPv4 nat ISTIO_REDIRECT rule 1: -p udp -j RETURN"]


def test_a_jump_that_is_too_much_in_a_built_in_chain_is_named_with_its_number_among_all_rules():
    assert differences(FOREIGN + LIVE + "\nnat POSTROUTING -j ACCEPT\nnat POSTROUTING -p udp -j ISTIO_OUTPUT") == [
        "extra: IPv4 nat POSTROUTING rule 2: -p udp -j ISTIO_OUTPUT"
    ]
    assert differences(FOREIGN + LIVE + "\nnat OUTPUT -p udp -j ISTIO_OUTPUT") == [
        "extra: IPv4 nat OUTPUT rule 4: -p udp -j ISTIO_OUTPUT"
    ]


def test_a_moved_rule_is_one_difference_with_its_live_number():
    text = swapped(
        LIVE,
        "nat ISTIO_INBOUND -p tcp -m tcp --dport 15008 -j RETURN",
        "nat ISTIO_INBOUND -p tcp -m tcp --dport 15090 -j RETURN",
    )
    why = "(these inbound ports are not captured; --istio-local-exclude-ports)"
    assert differences(text) == [f"moved: IPv4 nat ISTIO_INBOUND rule 1: -p tcp -m tcp --dport 15090 -j RETURN  {why}"]


def test_a_missing_chain_is_named_and_each_of_its_rules():
    lines = [line for line in LIVE.splitlines() if not line.startswith("nat ISTIO_IN_REDIRECT")]
    assert differences("\n".join(lines)) == [
        "missing: IPv4 nat ISTIO_IN_REDIRECT: the chain itself",
        "missing: IPv4 nat ISTIO_IN_REDIRECT rule 1: -p tcp -j REDIRECT --to-ports 15006  (inbound connections go to the proxy; --inbound-capture-port)",
    ]


def test_a_missing_jump_from_a_built_in_chain_is_a_rule_not_a_chain():
    lines = [line for line in LIVE.splitlines() if not line.startswith("nat PREROUTING")]
    found = differences("\n".join(lines))
    assert found[0].startswith("missing: IPv4 nat PREROUTING rule 1: -i eth1 -j RETURN")
    assert found[1].startswith("missing: IPv4 nat PREROUTING rule 2: -p tcp -j ISTIO_INBOUND")


def test_a_chain_and_a_table_that_no_plan_wants_are_too_much():
    text = f"{LIVE}\nmangle PREROUTING -p tcp -j ISTIO_TPROXY\nmangle ISTIO_TPROXY -j DROP\nmangle PREROUTING -j THEIRS\nmangle THEIRS"
    assert differences(text) == [
        "extra: IPv4 mangle PREROUTING rule 1: -p tcp -j ISTIO_TPROXY",
        "extra: IPv4 mangle ISTIO_TPROXY: the chain itself",
        "extra: IPv4 mangle ISTIO_TPROXY rule 1: -j DROP",
    ]


def test_nothing_programmed_is_everything_missing():
    found = differences("")
    planned = sum(len(chain.rules) for chains in write_plan(MADE, IPV4).values() for chain in chains.values())
    chains = sum(name.startswith("ISTIO") for chains in write_plan(MADE, IPV4).values() for name in chains)
    assert len(found) == planned + chains
    assert all(one.startswith(("missing: IPv4 nat ", "missing: IPv4 filter ")) for one in found)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("-p tcp -m tcp --dport 15090 -j RETURN", "-p tcp -m tcp --dport 15090 -m comment --comment why -j RETURN"),
        ("-m owner --uid-owner 5 -j RETURN", '-m owner --uid-owner 5 -m comment --comment "it is: -j DROP" -j RETURN'),
        ("-d 127.0.0.1/32 -j RETURN", "-d 127.0.0.1 -j RETURN"),
    ],
)
def test_another_spelling_is_no_difference(ours, theirs):
    assert f" {ours}" in LIVE
    assert differences(LIVE.replace(f" {ours}", f" {theirs}")) == []


def test_a_table_is_the_same_only_with_the_same_chains_and_rules_in_order():
    listing, written = make_listing(LIVE), write_plan(MADE, IPV4)
    owned = owned_rules(IPV4, {IPV4: listing}, written, layout_patterns)
    assert family_rules(listing, owned, written).is_planned("nat")
    assert family_rules(listing, owned, written).is_planned("mangle")  # neither planned nor there
    assert not family_rules(listing, owned).is_planned("nat")
    assert not family_rules({}, {}, written).is_planned("nat")


def test_differences_of_every_table_are_told_and_comments_apart_from_rules():
    text = (
        LIVE.replace("nat ISTIO_REDIRECT", "nat ISTIO_REDIRECT -p udp -m comment --comment why -j RETURN\nnat ISTIO_REDIRECT", 1)
        + '\nfilter INPUT -p tcp -j ISTIO_DROP\nfilter ISTIO_DROP -m comment --comment "a b" -j DROP'
    )
    assert differences(text) == [
        'extra: IPv4 nat ISTIO_REDIRECT rule 1: `-p udp -j RETURN` with comment "why"',
        "extra: IPv4 filter INPUT rule 5: -p tcp -j ISTIO_DROP",
        'extra: IPv4 filter ISTIO_DROP rule 2: `-j DROP` with comment "a b"',
    ]


# --- others beside ours -----------------------------------------------------------------------------------------------


def shadows(text):
    listing = make_listing(text)
    return [
        (one.kind, one.chain, one.number, one.rule)
        for one in family_rules(listing, owned_rules(IPV4, {IPV4: listing}, {}, layout_patterns)).find_shadows()
    ]


def test_a_rule_of_others_before_ours_that_may_decide_is_a_shadow():
    jump = "nat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert shadows(f"nat OUTPUT -p tcp -j ACCEPT\n{jump}") == [("shadowing", "OUTPUT", 1, "-p tcp -j ACCEPT")]
    assert shadows(f"nat OUTPUT -p tcp -j THEIRS\n{jump}\nnat THEIRS") == [
        ("shadowing", "OUTPUT", 1, "-p tcp -j THEIRS")
    ]
    assert shadows(f"{jump}\nnat OUTPUT -p tcp -j ACCEPT") == []


def test_a_shadow_in_the_kernel_can_be_the_answer_of_a_child():
    listing = make_listing("nat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT")
    listing["nat"].rules["OUTPUT"].insert(0, DecodedRule("-p tcp -j ACCEPT", parse_rule("-p tcp -j ACCEPT", IPV4)))
    found = tuple(family_rules(listing, owned_rules(IPV4, {IPV4: listing}, {}, layout_patterns)).find_shadows())
    assert [one.rule for one in found] == ["-p tcp -j ACCEPT"]
    assert decode(encode(found)) == found


def test_a_shadow_says_all_that_is_known_of_it():
    listing = make_listing('nat OUTPUT -p tcp -m comment --comment "so" -j ACCEPT\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT')
    (found,) = family_rules(listing, owned_rules(IPV4, {IPV4: listing}, {}, layout_patterns)).find_shadows()
    assert found.describe() == (
        'shadowing: IPv4 nat OUTPUT rule 1: `-p tcp -j ACCEPT` with comment "so"'
        "  (precedes netinit's rules and may decide first; a foreign rule)"
    )


@pytest.mark.parametrize(
    "rule",
    [
        "-p tcp",
        "-j LOG --log-prefix x",
        "-j MARK --set-xmark 0x1/0xffffffff",
        "-j CT --notrack",
        "-j TCPMSS --clamp-mss-to-pmtu",
    ],
)
def test_a_rule_that_ends_no_packet_s_way_is_no_shadow(rule):
    assert shadows(f"mangle OUTPUT {rule}\nmangle OUTPUT -j ISTIO_OUTPUT\nmangle ISTIO_OUTPUT") == []


def test_a_rule_between_two_of_ours_is_a_shadow_with_its_number():
    text = "nat OUTPUT -p udp -j ISTIO_OUTPUT\nnat OUTPUT -j RETURN\nnat OUTPUT -p tcp -j ISTIO_OUTPUT\nnat OUTPUT -j DROP\nnat ISTIO_OUTPUT"
    assert shadows(text) == [("shadowing", "OUTPUT", 2, "-j RETURN")]


def test_jumps_from_chains_of_others_into_ours_are_found():
    listing = make_listing(
        "nat OUTPUT -j ISTIO_OUTPUT\nnat THEIRS -p tcp -j ISTIO_OUTPUT\nnat THEIRS -j ACCEPT\nnat ISTIO_INBOUND -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    )
    assert list(family_rules(listing, {}).find_foreign_jumps()) == [("nat", "THEIRS", "-p tcp -j ISTIO_OUTPUT")]


@pytest.mark.parametrize("rule", ["-s 10.0.0.0/8 -j ACCEPT", "-d 127.0.0.11/32 -j DOCKER", "-d 127.0.0.11/32 -p tcp -j DOCKER_OUTPUT", "-j RETURN", "-g THEIRS", "-p tcp -j LOG2"])
def test_a_rule_that_may_decide_is_a_shadow_whatever_it_asks(rule):
    jump = "nat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT"
    assert shadows(f"nat OUTPUT {rule}\n{jump}") == [("shadowing", "OUTPUT", 1, rule)]
    assert shadows(f"nat OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT\n{jump}") == [], "Docker's resolver, which Istio leaves alone"


@pytest.mark.parametrize(
    ("planned", "live", "missing", "extra"),
    [
        ("", "", [], []), ("abc", "abc", [], []), ("abc", "", [(0, None), (1, None), (2, None)], []), ("", "ab", [], [0, 1]), ("abc", "ac", [(1, None)], []), ("ac", "abc", [], [1]),
        ("abc", "bca", [(0, 2)], []), ("abc", "xbc", [(0, None)], [0]), ("abb", "bxab", [(2, 0)], [1]), ("aab", "baa", [(2, 0)], []), ("ab", "xayb", [], [0, 2]),
        ("xb", "y" + "b" * 300, [(0, None)], [0, *range(2, 301)]),
    ],
)  # fmt: skip
def test_two_sequences_are_aligned_with_as_few_differences_as_there_are(planned, live, missing, extra):
    assert align(planned, live) == (missing, extra)
