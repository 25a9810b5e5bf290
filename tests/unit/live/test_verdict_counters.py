"""Which rules decide, whose counters tell how much, and what comes between two looks at them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import IPV4, IPV6, Options, load_plan, plan
from netinit.live.verdict_counters import (
    CONNECTIONS,
    NOTHING_CAPTURES,
    PACKETS,
    Place,
    RateCounter,
    _before,
    count_rules,
    find_fates,
)
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.simulate.listed_rules import load_listing

SOURCE = "iptables-nft"
NOBODY = frozenset()
HEAD = "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:POSTROUTING ACCEPT [0:0]\n"
HEADS = {
    "nat": HEAD, "filter": "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
    "mangle": "*mangle\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n",
}  # fmt: skip


def live(*rules, chains=(), table="nat"):
    """Rules with counters, each `N CHAIN rule`, as a reading of one backend and family has them."""
    text = HEADS[table] + "".join(f":{chain} - [0:0]\n" for chain in chains)
    for line in rules:
        count, chain, rule = line.split(" ", 2)
        text += f"[{count}:0] -A {chain} {rule}\n"
    return {SOURCE: {IPV4: load_listing(parse_listing(text + "COMMIT\n", counted=True), IPV4)}}


def counted(rulesets):
    """(verdict, direction, port, count) of every fate."""
    counters = count_rules(rulesets, NOBODY)
    return [(fate.verdict, fate.direction, fate.port, fate.count(counters)) for fate in find_fates(rulesets, NOBODY)]


def read(moment, rulesets):
    return moment, count_rules(rulesets, NOBODY), find_fates(rulesets, NOBODY)


def test_the_usual_options_have_a_row_for_each_purpose_and_none_twice():
    made = Options.from_argv(["--ipv6=off", "-b", "*", "-i", "*", "-d", "15020,15021", "-x", "10.0.0.0/8,11.0.0.0/8"], {})
    fates = find_fates({"plan": {IPV4: load_plan(plan(made), IPV4)}}, NOBODY)
    assert len(set(fates)) == len(fates)
    by_option = {fate.option: fate for fate in fates if fate.verdict == "direct"}
    assert len(by_option["--istio-service-exclude-cidr"].places) == 2
    assert len(by_option["--istio-local-exclude-ports"].places) == 2
    assert [(fate.direction, fate.port) for fate in fates if fate.verdict == "captured"] == [
        ("in", 15006), ("out", 15006), ("out", 15006), ("out", 15001)]  # fmt: skip
    assert not any(fate.foreign for fate in fates)
    for words in ([], ["-m", "TPROXY", "--drop-invalid"]):
        for fate in find_fates({"plan": {IPV4: load_plan(plan(Options.from_argv(["--ipv6=off", "-b", "*", "-i", "*", *words], {})), IPV4)}}, NOBODY):
            assert fate.unit == (CONNECTIONS if fate.places[0].table == "nat" else PACKETS), fate


def test_what_a_chain_lets_fall_through_is_not_counted_as_captured():
    rules = live("9 OUTPUT -j A", "2 A -d 10.0.0.0/8 -j RETURN", "7 A -j B", "5 B -p tcp -j REDIRECT --to-ports 15001", chains="AB")
    assert counted(rules) == [("captured", "out", 15001, 5), ("direct", "out", 0, 2), ("direct", "out", 0, 2)]
    rest = find_fates(rules, NOBODY)[-1]
    assert (rest.because, rest.unit, rest.foreign) == (NOTHING_CAPTURES, CONNECTIONS, False)


def test_one_redirecting_rule_is_counted_apart_by_the_jumps_that_lead_to_it():
    rules = live(
        "4 PREROUTING -p tcp -j IN", "4 IN -p tcp -j R", "3 OUTPUT -j OUT", "2 OUT -p tcp -m owner --uid-owner 7 -j R",
        "6 R -p tcp -j REDIRECT --to-ports 15006", chains=("IN", "OUT", "R"),
    )  # fmt: skip
    assert counted(rules) == [("captured", "in", 15006, 4), ("captured", "out", 15006, 2), ("direct", "in", 0, 0), ("direct", "out", 0, 1)]


def test_a_jump_that_takes_more_than_the_rule_behind_it_counts_nothing_for_it():
    rules = live("9 OUTPUT -j A", "3 A -p tcp -m tcp --dport 80 -j R", "5 A -j R", "7 R -p tcp -j REDIRECT --to-ports 15001", chains="AR")
    captured = [row for row in counted(rules) if row[0] == "captured"]
    assert sorted(row[3] for row in captured) == [3, 4]


@pytest.mark.parametrize(
    ("rules", "verdicts"),
    [
        (("1 OUTPUT -p tcp -j REDIRECT --to-ports 1", "2 OUTPUT -p tcp -j ACCEPT"), ["captured"]),  # nothing captures behind it
        (("2 OUTPUT -p tcp -j ACCEPT", "1 OUTPUT -p tcp -j REDIRECT --to-ports 1"), ["captured", "direct"]),
        (("2 OUTPUT -p tcp -j RETURN", "1 OUTPUT -p tcp -j REDIRECT --to-ports 1"), ["captured", "direct"]),
        (("2 OUTPUT -p tcp -j DNAT --to-destination 1.2.3.4",), ["direct"]),
        (("2 OUTPUT -p tcp -j NETMAP --to 1.2.3.0/24",), ["direct"]),
        (("2 OUTPUT -p tcp -j SYNPROXY",), ["unknown"]), (("2 OUTPUT -p tcp -j NFQUEUE --queue-num 0",), ["unknown"]),
        (("2 OUTPUT -p tcp -j LOG",), []),
        (("3 OUTPUT -j A", "2 A -j RETURN", "1 OUTPUT -p tcp -j REDIRECT --to-ports 1"), ["captured"]),  # it comes to the next rule
        (("3 OUTPUT -g A", "2 A -j RETURN", "1 A -p tcp -j REDIRECT --to-ports 1", "1 OUTPUT -p tcp -j REDIRECT --to-ports 1"), ["captured", "captured", "direct"]),
        (("2 OUTPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT", "1 OUTPUT -p tcp -j REDIRECT --to-ports 1"), ["captured"]),
        (("3 OUTPUT -j A", "3 A -j B", "3 B -j A", "1 B -p tcp -j REDIRECT --to-ports 1"), ["captured", "direct"]),  # a circle ends
    ],
)  # fmt: skip
def test_a_rule_decides_where_it_ends_the_way_to_one_that_captures(rules, verdicts):
    found = [row[0] for row in counted(live(*rules, chains=[name for name in "AB" if any(f" {name} " in rule for rule in rules)]))]
    assert [verdict for verdict in found if verdict != "direct" or "direct" in verdicts] == verdicts


def beside(rulesets, others):
    """The tables of two readings as those of one."""
    (one,), (other,) = rulesets[SOURCE].values(), others[SOURCE].values()
    return {SOURCE: {IPV4: replace(one, tables=one.tables | other.tables)}}


@pytest.mark.parametrize(
    ("entry", "refusal", "rest"),
    [
        ("OUTPUT -j A", "OUTPUT -p udp -m udp --dport 53 -j DROP", 1),  # nat counts each of these datagrams, for none begins a connection
        ("OUTPUT -p tcp -j A", "OUTPUT -p udp -m udp --dport 53 -j DROP", 4),
        ("OUTPUT -j A", "OUTPUT -p tcp -m tcp --dport 53 -j DROP", 4),
        ("OUTPUT -j A", "OUTPUT -p udp -m udp --dport 53 -m conntrack --ctstate NEW -j DROP", 4),
        ("OUTPUT -j A", "INPUT -p udp -m udp --dport 53 -j DROP", 4),  # at another hook
    ],
)
def test_what_filter_refuses_of_udp_is_not_counted_as_direct_too(entry, refusal, rest):
    nat = live(f"9 {entry}", "5 A -p tcp -j REDIRECT --to-ports 15001", chains="A")
    assert [row[3] for row in counted(beside(nat, live(f"3 {refusal}", table="filter")))] == [5, rest, 3]


TPROXY = "-p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x539/0xffffffff"


@pytest.mark.parametrize(
    ("rules", "leaves"),
    [
        ((f"5 A ! -d 127.0.0.1/32 {TPROXY}",), False),
        ((f"5 A ! -d 127.0.0.0/8 {TPROXY}",), False),
        (("6 A -p tcp -j B", f"5 B ! -d 127.0.0.1/32 {TPROXY}"), False),
        ((f"5 A ! -d 10.0.0.0/8 {TPROXY}",), True),
        ((f"5 A -d 127.0.0.1/32 {TPROXY}",), True),
        ((f"5 A ! -s 127.0.0.1/32 {TPROXY}",), True),
        ((f"5 A ! -d 127.0.0.1/32 -i eth0 {TPROXY}",), True),
        ((f"5 A {TPROXY}",), True),
        (("6 A -i eth0 -p tcp -j B", f"5 B ! -d 127.0.0.1/32 {TPROXY}"), True),
    ],
)
def test_a_chain_whose_last_rule_leaves_out_loopback_alone_lets_nothing_from_outside_by(rules, leaves):
    made = live("9 PREROUTING -p tcp -j A", *rules, chains="AB", table="mangle")
    found = [(one.verdict, one.direction, one.unit, one.because, one.count(count_rules(made, NOBODY))) for one in find_fates(made, NOBODY)[1:]]
    assert found == [("direct", "in", PACKETS, f"{NOTHING_CAPTURES}, or it comes back over lo", 4)] * leaves
    sent = live("9 OUTPUT -p tcp -j A", "5 A ! -d 127.0.0.1/32 -p tcp -j REDIRECT --to-ports 15001", chains="A")
    assert counted(sent)[1:] == [("direct", "out", 0, 4)], "what the application sends there is counted where it begins"


def test_rules_for_connections_that_were_decided_before_are_no_fates():
    known = ("-m socket", "-m conntrack --ctstate RELATED,ESTABLISHED")
    made = live("9 PREROUTING -p tcp -j A", *[f"2 A -p tcp {one} -j ACCEPT" for one in known], f"5 A {TPROXY}", chains="A", table="mangle")
    assert counted(made) == [("captured", "in", 15006, 5), ("direct", "in", 0, 0)]
    new = live("9 PREROUTING -p tcp -j A", "2 A -p tcp -m conntrack --ctstate NEW,RELATED -j ACCEPT", f"5 A {TPROXY}", chains="A", table="mangle")
    assert counted(new) == [("captured", "in", 15006, 5), ("direct", "in", 0, 2), ("direct", "in", 0, 2)]


def test_a_rule_that_is_reached_from_both_directions_and_counts_for_both_is_one_fate():
    rules = ("9 OUTPUT -p tcp -j A", "7 PREROUTING -p tcp -j A", "16 A -p tcp -m tcp --dport 80 -j REDIRECT --to-ports 15006")
    assert counted(live(*rules, chains="A")) == [("captured", "in+out", 15006, 16)]
    drops = live("9 OUTPUT -p tcp -m tcp --dport 80 -j A", "7 INPUT -j A", "16 A -p tcp -m tcp --dport 80 -j DROP", chains="A", table="filter")
    assert counted(drops) == [("dropped", "in", 0, 7), ("dropped", "out", 0, 9)], "the jump at OUTPUT takes what the rule takes, and no more"


def test_a_drop_counts_packets():
    (fate,) = find_fates(live("8 OUTPUT -p tcp -j DROP", "1 INPUT -j ACCEPT", table="filter"), NOBODY)
    assert (fate.verdict, fate.unit, fate.foreign, fate.count({fate.places[0]: ("", 8)})) == ("dropped", PACKETS, True, 8)
    assert "rule 1" in fate.because


def test_a_rule_that_is_reached_in_several_ways_has_all_their_reasons_and_no_option_of_one():
    rules = live(
        "4 OUTPUT -m owner --uid-owner 7 -j A", "3 OUTPUT -m owner --gid-owner 9 -j A", "5 A -p tcp -j REDIRECT --to-ports 15001", chains="A",
    )  # fmt: skip
    (fate,) = find_fates(rules, NOBODY)
    assert (fate.because, fate.option, fate.foreign, fate.count(count_rules(rules, NOBODY))) == (
        "`-m owner --uid-owner 7 -j A` (nat OUTPUT, rule 1); `-m owner --gid-owner 9 -j A` (nat OUTPUT, rule 2)", "", True, 5
    )  # fmt: skip


def test_a_rule_without_a_counter_makes_its_row_not_counted():
    (fate,) = find_fates(live("8 OUTPUT -p tcp -j DROP", table="filter"), NOBODY)
    assert fate.count({fate.places[0]: ("", None)}) is None
    counters = {fate.places[0]: ("x", None)}
    (row,) = RateCounter(0.0, counters).evaluate(1.0, counters, (fate,)).rows
    assert (row.added, row.since_start, row.per_second) == (None, None, None)
    (row,) = RateCounter(0.0, {fate.places[0]: ("x", 0)}).evaluate(1.0, counters, (fate,)).rows
    assert (row.fate, row.added, row.since_start, row.per_second) == (fate, None, None, None), "nor since it lost its counter"


def test_two_readings_of_one_moment_have_no_rate():
    (look,) = looks(read(1.0, drops(5)), read(1.0, drops(9)))
    assert [(row.added, row.since_start, row.per_second) for row in look.rows] == [(4, 4, None)]


def test_backends_whose_families_share_their_rules_count_them_once():
    (rulesets,) = live("8 OUTPUT -p tcp -j DROP", table="filter").values()
    both = {"nftables": {IPV4: rulesets[IPV4], IPV6: rulesets[IPV4]}}
    shared = frozenset(("nftables",))
    (fate,) = find_fates({"nftables": {IPV4: rulesets[IPV4]}}, shared)
    assert fate.places == (Place("nftables", "", "filter", "OUTPUT", 1),)
    assert [(one, one.places) for one in find_fates(both, shared)] == [(fate, fate.places)]


def looks(*readings):
    meter = RateCounter(*readings[0][:2])
    return [meter.evaluate(*reading) for reading in readings[1:]]


def drops(count, *before):
    return live(*before, f"{count} OUTPUT -p tcp -j DROP", table="filter")


def test_a_rate_is_what_came_in_between_by_the_time_in_between():
    one, two = looks(read(10.0, drops(5)), read(12.0, drops(9)), read(12.5, drops(9)))
    assert [(row.added, row.since_start, row.per_second) for row in (*one.rows, *two.rows)] == [(4, 4, 2.0), (0, 4, 0.0)]
    assert (one.elapsed, one.seconds, two.elapsed, two.seconds) == (2.0, 2.0, 2.5, 0.5)
    assert not one.replaced
    assert not two.replaced


def test_a_counter_that_goes_back_began_anew_with_nothing():
    one, two = looks(read(0.0, drops(5)), read(1.0, drops(8)), read(2.0, drops(2)))
    assert (one.replaced, two.replaced) == (False, True)
    assert (two.rows[0].added, two.rows[0].since_start) == (2, 5)


def test_a_rule_that_only_moved_goes_on_counting_and_the_new_one_before_it_begins():
    (sight,) = looks(read(0.0, drops(5)), read(1.0, drops(6, "3 OUTPUT -p udp -j DROP")))
    assert sight.replaced
    assert sorted((row.added, "udp" in row.fate.because) for row in sight.rows) == [(1, False), (3, True)]


def test_a_rule_in_the_place_of_another_begins_with_nothing():
    (look,) = looks(read(0.0, drops(5)), read(1.0, live("3 OUTPUT -p udp -j DROP", table="filter")))
    assert (look.replaced, [row.added for row in look.rows]) == (True, [3])


@pytest.mark.parametrize(
    ("before", "after", "replaced", "counts"),
    [
        ([("a", 5), ("b", 7)], [("a", 6), ("b", 7)], False, [5, 7]), ([("a", 5), ("b", None)], [("a", 6), ("b", None)], False, [5, None]),
        ([("a", None)], [("a", 3)], True, [0]), ([("a", 3)], [("a", None)], True, [None]), ([("a", 0)], [("a", None)], False, [0]), ([("a", 3)], [("a", 2)], True, [0]),
        ([("a", 5), ("b", 7)], [("b", 8), ("a", 5)], False, [7, 5]), ([("a", 5), ("a", 7)], [("a", 6), ("a", 9)], False, [5, 7]),
        ([("a", 5)], [("c", 3), ("d", None)], True, [0, None]), ([("a", 5), ("b", 1)], [("c", 0), ("d", None)], True, [0, None]), ([], [("c", None)], True, [None]),
        ([("a", 5), ("b", 1)], [("a", 5), ("d", None)], False, [5, None]),
    ],
)  # fmt: skip
def test_a_rule_is_known_by_its_text_and_began_anew_where_it_counts_less_or_was_not_counted(before, after, replaced, counts):
    place = Place(SOURCE, "IPv4", "filter", "OUTPUT", 0)
    last, now = ({replace(place, number=at): row for at, row in enumerate(rows, 1)} for rows in (before, after))
    assert _before(last, now) == ({replace(place, number=at): (text, count) for at, ((text, _), count) in enumerate(zip(after, counts, strict=True), 1)}, replaced)
    other = {replace(one, chain="INPUT"): row for one, row in last.items()}
    assert [count for _, count in _before(other, now)[0].values()] == [None if count is None else 0 for _, count in after], "of another chain"


def test_rules_that_are_gone_are_said_to_be_and_count_on_when_they_are_back():
    gone, back = looks(read(0.0, drops(5)), read(1.0, live(table="filter")), read(2.0, drops(4)))
    assert (gone.replaced, gone.rows) == (True, ())
    assert (back.replaced, back.rows[0].since_start) == (True, 4)


def test_what_is_reckoned_from_several_counters_never_shows_less_than_nothing():
    def rest(jump, captured):
        return live(f"{jump} OUTPUT -j A", f"{captured} A -p tcp -j REDIRECT --to-ports 15001", chains="A")

    one, two = looks(read(0.0, rest(5, 5)), read(1.0, rest(5, 6)), read(2.0, rest(7, 7)))
    assert [(row.added, row.since_start) for row in one.rows] == [(1, 1), (0, 0)]
    assert [(row.added, row.since_start) for row in two.rows] == [(1, 2), (1, 0)]


def test_a_jump_does_not_count_for_a_rule_that_an_earlier_one_of_its_chain_keeps_packets_from():
    """An excluded port's packets take the jump as well, and leave the chain before its refusal."""
    rules = live(
        "20 INPUT -p tcp -j IN", "3 INPUT -p udp -j OTHER", "20 IN -p tcp -m tcp --dport 15021 -j RETURN", "0 IN -j DROP", "3 OTHER -j IN",
        chains=("IN", "OTHER"), table="filter",
    )  # fmt: skip
    assert [count for verdict, _, _, count in counted(rules) if verdict == "dropped"] == [0]


@pytest.mark.parametrize(
    ("matches", "table", "too"),
    [
        ("-i lo -p tcp", "mangle", True), ("-i lo -m mark ! --mark 0x53a", "mangle", True), ("! -i lo -p tcp", "mangle", False), ("-i eth0 -p tcp", "mangle", False),
        ("-s 127.0.0.6/32 -i lo -p tcp", "mangle", False), ("-i lo -p tcp", "nat", False),
    ],
)  # fmt: skip
def test_a_row_says_whether_it_counts_what_nat_has_redirected_to_the_pod_itself(matches, table, too):
    """mangle at PREROUTING sees it, nat is not asked again, and nothing redirects what the proxy passes on from 127.0.0.6."""
    target = TPROXY if table == "mangle" else "-p tcp -j REDIRECT --to-ports 15006"
    made = live("9 PREROUTING -p tcp -j A", f"4 A {matches} -j RETURN", f"5 A {target}", chains="A", table=table)
    (row,) = [one for one in find_fates(made, NOBODY) if "RETURN" in one.because]
    assert (row.verdict, row.direction, "comes back over lo" in row.because) == ("direct", "in", too)
