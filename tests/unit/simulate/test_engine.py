"""The kernel's way through rules, kind by kind; what a listing leaves open is never assumed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core import plan
from hosts import Host
from netinit.base.net import FULL_MASK, IPV4, IPV6, Network, number_of
from netinit.options import Options
from netinit.questions.explain import Explanation
from netinit.rules.foreign_targets import WriteDestination
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.write import ListedTable, write_plan
from netinit.rules.model import Rule
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate import one_packet
from netinit.simulate.condition import Condition
from netinit.simulate.endpoints import format_endpoint, make_outbound
from netinit.simulate.engine import list_met, simulate
from netinit.simulate.hooks import priority_at
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import (
    HookedChain,
    LoadedChain,
    LoadedRule,
    RuleHit,
    join_backends,
    load_plan,
    resolve_sets,
    with_plan,
)
from netinit.simulate.stand_ins import make_inbound
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces, view
from netinit.simulate.symbolic.regions import everything, in_states, nothing, unite, valued
from netinit.simulate.symbolic.space import CtState
from netinit.simulate.trace import (
    DELIVERED,
    DIRECT,
    DROPPED,
    FORWARDED,
    REFUSED,
    SENT,
    UNKNOWN,
    TraceStep,
    cause_of,
    list_unread,
)
from sweeps import together

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
POD6 = Surroundings(family=IPV6, addresses=(("eth0", number_of("fd00::2")),))
CHAINS = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}


def rules(text, family=IPV4, policies=(), marks=()):
    """A ruleset out of lines such as `nat OUTPUT -p tcp -j X`; chains exist where a line names them."""
    tables = {}
    for line in text.strip().splitlines():
        table, chain, rule = (*line.strip().split(" ", 2), "")[:3]
        tables.setdefault(table, {}).setdefault(chain, []).append(rule)
    listing = ""
    for table, chains in tables.items():
        listing += f"*{table}\n"
        for chain in dict.fromkeys((*CHAINS[table], *chains)):
            policy = dict(policies).get(f"{table} {chain}", "ACCEPT") if chain in CHAINS[table] else "-"
            listing += f":{chain} {policy} [0:0]\n"
        listing += "".join(f"-A {chain} {rule}\n" for chain, found in chains.items() for rule in found if rule)
        listing += "COMMIT\n"
    return replace(load_listing(parse_listing(listing), family), local_marks=frozenset([(mark, FULL_MASK) for mark in marks]))


def outbound(text, to="1.2.3.4", port=80, around=POD, uid=1000, policies=(), marks=(), **more):
    ruleset = rules(text, around.family, policies, marks)
    return simulate(make_outbound(around, to, port, uid=uid, gid=more.pop("gid", uid), **more), ruleset, around)


def inbound(text, to="", port=80, source="9.9.9.9", around=POD, policies=(), marks=(), **more):
    ruleset = rules(text, around.family, policies, marks)
    return simulate(make_inbound(around, source, to, port, **more), ruleset, around)


def hooks(trace):
    return list(dict.fromkeys(f"{step.hook} {step.table}" for step in trace.steps if step.rule))


def end(trace):
    return format_endpoint(trace.last.family, trace.last.destination, trace.last.destination_port)


# --- chains -----------------------------------------------------------------------------------------------------------


def test_return_in_a_called_chain_goes_on_behind_the_jump():
    trace = outbound(
        "nat OUTPUT -j A\nnat OUTPUT -p tcp -j REDIRECT --to-ports 2\nnat A -j RETURN\nnat A -p tcp -j REDIRECT --to-ports 1"
    )
    assert trace.redirect_port == 2


def test_return_in_a_built_in_chain_leaves_it_to_the_policy():
    trace = outbound("filter OUTPUT -j RETURN\nfilter OUTPUT -j ACCEPT", policies=(("filter OUTPUT", "DROP"),))
    assert (trace.fate, trace.reason) == (DROPPED, "the policy of filter OUTPUT is DROP")


def test_accept_in_a_called_chain_ends_the_table_but_not_the_other_tables():
    trace = outbound(
        "mangle OUTPUT -j A\nmangle OUTPUT -j DROP\nmangle A -j ACCEPT\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1"
    )
    assert trace.redirect_port == 1


def test_a_chain_that_ends_goes_back_to_its_caller():
    trace = outbound("nat OUTPUT -j A\nnat OUTPUT -p tcp -j REDIRECT --to-ports 2\nnat A -p udp -j RETURN")
    assert trace.redirect_port == 2


def test_goto_does_not_come_back_to_the_chain_that_went():
    text = "nat OUTPUT -j A\nnat OUTPUT -p tcp -j REDIRECT --to-ports 3\nnat A -g B\nnat A -p tcp -j REDIRECT --to-ports 1\nnat B -p udp -j RETURN"
    assert outbound(text).redirect_port == 3


def test_a_goto_out_of_a_built_in_chain_ends_at_its_policy():
    trace = outbound(
        "filter OUTPUT -g A\nfilter OUTPUT -j ACCEPT\nfilter A -j RETURN", policies=(("filter OUTPUT", "DROP"),)
    )
    assert trace.fate == DROPPED


def test_a_rule_without_a_target_counts_and_goes_on():
    trace = outbound("nat OUTPUT -p tcp\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1")
    assert [step.rule.number for step in trace.hits] == [1, 2]


# --- what is not known ------------------------------------------------------------------------------------------------


def test_an_unknown_match_makes_the_verdict_unknown_and_says_why():
    trace = outbound("nat OUTPUT -m set --match-set banned dst -j RETURN\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1")
    assert trace.fate == UNKNOWN
    assert "rule 1 of nat OUTPUT" in trace.reason
    assert "-m set --match-set banned dst" in trace.reason


def test_the_reason_names_all_that_is_not_known_and_nothing_else():
    trace = outbound("mangle OUTPUT -p tcp -m addrtype --dst-type BROADCAST -m set --match-set banned dst -j DROP")
    assert trace.reason.partition("`: ")[2] == (
        "it cannot be known here whether its destination address is of the type BROADCAST"
        " and `-m set --match-set banned dst` (not known to netinit) holds"
    )


def test_an_unknown_match_beside_one_that_does_not_hold_changes_nothing():
    trace = outbound(
        "nat OUTPUT -p udp -m set --match-set banned dst -j RETURN\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1"
    )
    assert trace.redirect_port == 1


def test_a_no_behind_an_unknown_match_is_a_no():
    trace = outbound(
        "nat OUTPUT -m set --match-set banned dst -m owner --uid-owner 7 -j RETURN\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1"
    )
    assert (trace.fate, trace.redirect_port) == (DELIVERED, 1)


@pytest.mark.parametrize(("rule", "is_known"), [("-p tcp -j ACCEPT", True), ("-m set --match-set banned dst -j MARK --set-xmark 0x1/0xffffffff", False)])
def test_a_mark_is_not_known_behind_a_rule_that_may_have_set_it(rule, is_known):
    trace = inbound(f"mangle PREROUTING {rule}\nmangle INPUT -m set --match-set banned dst -j MARK --set-xmark 0x2/0xffffffff")
    assert (trace.is_mark_known, trace.routed is not None) == (is_known, True), "when it is routed"


def test_an_unknown_match_before_a_target_without_effect_changes_nothing():
    trace = outbound(
        'nat OUTPUT -m limit --limit 5/min -j LOG --log-prefix "a b"\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1'
    )
    assert trace.redirect_port == 1


def test_a_program_behind_a_queue_decides_where_the_kernel_asks_it():
    """Asked of the kernel: nat is skipped while nothing enables connection tracking."""
    trace = outbound("mangle OUTPUT -p tcp -j NFQUEUE --queue-num 0")
    assert (trace.fate, "the program behind the queue decides" in trace.reason) == (UNKNOWN, True)
    tracked = "nat OUTPUT -p tcp -j NFQUEUE --queue-num 0\nnat OUTPUT -p udp -j REDIRECT --to-ports 9"
    assert outbound(tracked).fate == UNKNOWN
    assert outbound("nat OUTPUT -p tcp -j NFQUEUE --queue-num 0").fate == SENT


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("--ctorigdst 1.2.3.4", True), ("! --ctorigdst 1.2.3.4", False), ("--ctorigdst 1.2.3.0/24", True), ("--ctorigdst 127.0.0.1", False),
        ("--ctorigdstport 80", True), ("--ctorigdstport 81:99", False), ("--ctorigsrc 10.0.0.2", True), ("! --ctorigsrc 10.0.0.0/8", False),
        ("--ctorigsrcport 1:2", False), ("--ctorigdstport 80 --ctorigdst 5.6.7.8", False),
    ],
)  # fmt: skip
def test_the_ends_of_a_connection_s_first_packet_are_those_before_nat(rule, holds):
    to_proxy = "nat OUTPUT -p tcp -j REDIRECT --to-ports 1"
    assert (outbound(f"{to_proxy}\nfilter INPUT -m conntrack {rule} -j DROP").fate == DROPPED) is holds
    if "! " in rule or holds:
        untracked = outbound(f"raw OUTPUT -p tcp -j CT --notrack\nfilter OUTPUT -m conntrack {rule} -j DROP")
        assert untracked.fate == SENT, "without a connection it does not hold, even if negated"


@pytest.mark.parametrize(
    ("rules_there", "ends"),
    [
        ("-m statistic --mode random --probability 0.5 -j DNAT --to-destination 5.5.5.5:1\nnat OUTPUT -j DNAT --to-destination 6.6.6.6", ["5.5.5.5:1", "6.6.6.6:80"]),
        ("-m statistic --mode nth --every 2 --packet 0 -j DNAT --to-destination 5.5.5.5", ["1.2.3.4:80", "5.5.5.5:80"]),
    ],
    ids=["random", "nth"],
)  # fmt: skip
def test_a_connection_that_chance_sends_somewhere_has_each_end_and_never_one(rules_there, ends):
    trace = outbound(f"nat OUTPUT {rules_there}")
    found = [format_endpoint(one.last.family, one.last.destination, one.last.destination_port) for one in trace.direct]
    assert (trace.verdict, Explanation(trace).verdict, sorted(found)) == (UNKNOWN, DIRECT, ends)


@pytest.mark.parametrize("target", ["RETURN", "DNAT --to-destination 5.5.5.5"])
def test_the_way_of_what_chance_sends_somewhere_is_told_to_the_first_rule_that_leaves_it_to_chance(target):
    chance = "-m statistic --mode random --probability 0.5"
    trace = outbound(f"nat OUTPUT -p udp -j RETURN\nnat OUTPUT {chance} -j {target}\nnat OUTPUT {chance} -j DNAT --to-destination 6.6.6.6\nnat OUTPUT -p tcp -j ACCEPT")
    assert trace.reason.startswith("rule 2 of nat OUTPUT, ")
    assert trace.steps[-1] is trace.decider
    assert trace.decider.rule.number == 2


def doubts(count, table="mangle", target="MARK --set-xmark {0}/{0}"):
    """So many rules of which nobody knows whether they match, and one that reads their marks."""
    uncertain = [f"{table} OUTPUT -m set --match-set s{at} dst -j {target.format(1 << at)}" for at in range(count)]
    return "\n".join([*uncertain, "filter OUTPUT -m mark --mark 0xff/0xff -j ACCEPT"])


@pytest.mark.parametrize(("count", "fate"), [(4, SENT), (5, SENT), (6, UNKNOWN)])
def test_all_ways_of_a_packet_are_followed_where_five_rules_are_uncertain_and_not_all_where_six_are(count, fate):
    trace = outbound(doubts(count))
    assert (trace.fate, trace.direct, trace.dropped_by) == (fate, (), "")
    captures = outbound(f"{doubts(count)}\n{REDIRECTS}\nfilter INPUT -m set --match-set x src -j DROP")
    assert (captures.fate, captures.dropped_by != "") == (UNKNOWN, count < 5), "captured or dropped, if these are all"


def test_the_rules_that_a_packet_may_meet_are_those_of_all_its_ways():
    ruleset = rules("nat OUTPUT -p udp -j RETURN\nnat OUTPUT -m set --match-set x dst -j A\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1\nnat A -p tcp -j ACCEPT")
    met = list_met(make_outbound(POD, "1.2.3.4", 80, uid=1, gid=1), ruleset, POD)
    assert {(step.chain, step.rule.number, step.holds) for step in met} == {("OUTPUT", 2, None), ("OUTPUT", 3, True), ("A", 1, True)}


@pytest.mark.parametrize(("changes", "flags"), [
    ({}, ("SYN",)), ({"state": "ESTABLISHED"}, ("ACK",)), ({"state": "RELATED"}, None), ({"state": "INVALID"}, None), ({"protocol": "udp"}, None),
    ({"protocol": "udp", "state": "ESTABLISHED"}, None), ({"flags": ("RST",)}, ("RST",)), ({"flags": ()}, ()),
])  # fmt: skip
def test_a_tcp_packet_without_flags_is_one_that_its_connection_expects(changes, flags):
    packet = make_outbound(POD, "1.2.3.4", 80, uid=1, gid=1).replace(**changes)
    assert simulate(packet, rules("filter OUTPUT"), POD).last.flags == flags


def test_a_connection_that_chance_may_capture_is_unknown():
    trace = outbound("nat OUTPUT -m statistic --mode random --probability 0.5 -j RETURN\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1")
    assert (trace.fate, trace.direct, Explanation(trace).verdict) == (UNKNOWN, (), UNKNOWN)


@pytest.mark.parametrize(("to", "end"), [("10.5.1.9", "10.6.1.9:80"), ("10.7.1.9", "10.7.1.9:80")])
def test_a_network_is_mapped_to_another_address_by_address(to, end):
    last = outbound("nat OUTPUT -d 10.5.0.0/16 -j NETMAP --to 10.6.0.0/16", to=to).last
    assert format_endpoint(last.family, last.destination, last.destination_port) == end


def test_the_rule_that_maps_a_network_is_named_as_the_cause():
    trace = outbound("nat OUTPUT -d 10.5.0.0/16 -j NETMAP --to 10.6.0.0/16", to="10.5.1.9")
    assert trace.cause.chain == "OUTPUT"
    assert Explanation(trace).sentence.startswith("direct: a rule that is not netinit's sends it to 10.6.1.9:80 instead, because of a rule")


def test_behind_routing_the_source_s_network_is_mapped():
    assert outbound("nat POSTROUTING -j NETMAP --to 10.6.0.0/16").last.source == number_of("10.6.0.2")


@pytest.mark.parametrize("target", ["REDIRECT --to-ports 1-9", "SYNPROXY"])
def test_an_unknown_target_makes_the_verdict_unknown(target):
    assert outbound(f"nat OUTPUT -p tcp -j {target}").fate == UNKNOWN


def test_a_jump_to_a_chain_that_is_not_listed_is_unknown():
    trace = outbound("mangle OUTPUT -j ELSEWHERE")
    assert (trace.fate, trace.reason) == (UNKNOWN, "rule 1 of mangle OUTPUT, `-j ELSEWHERE`: nothing is known of ELSEWHERE")


@pytest.mark.parametrize("text", ["mangle OUTPUT -j A\nmangle A -j A", "mangle OUTPUT -j A\nmangle A -j B\nmangle B -j A"])
def test_chains_that_call_each_other_in_a_circle_are_unknown(text):
    trace = outbound(text)
    assert (trace.fate, trace.reason.partition("`: ")[2]) == (UNKNOWN, "the chain A calls itself")


def test_a_chain_may_be_called_twice_one_after_the_other():
    assert outbound("mangle OUTPUT -j A\nmangle OUTPUT -j A\nmangle A -p udp -j DROP").fate == SENT


@pytest.mark.parametrize("text", ["mangle PREROUTING -p tcp", "mangle PREROUTING -m conntrack --ctstate INVALID", "nat PREROUTING -p udp -j REDIRECT --to-ports 1"])
def test_what_comes_in_for_nobody_knows_whom_is_unknown_whether_it_is_tracked_or_not(text):
    packet = make_inbound(POD, "9.9.9.9", "", 80).replace(destination=None)
    trace = simulate(packet, rules(text), POD)
    assert (trace.fate, trace.reason) == (UNKNOWN, "its destination is not known")


@pytest.mark.parametrize("direction", ["inbound", "outbound"])
@pytest.mark.parametrize(
    "around",
    [POD, POD.replace(forwards=True), Surroundings(family=IPV4), POD.replace(local_marks=frozenset([(1, FULL_MASK)])), POD.replace(routes=((Network.parse("8.0.0.0/8"), "eth1"),))],
    ids=["a pod", "a host that forwards", "no address is known", "a mark that is routed here", "routes"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", "nat PREROUTING -p tcp -j DNAT --to-destination 10.7.7.7", "nat PREROUTING -p tcp -j NETMAP --to 10.0.0.0/24", "mangle PREROUTING -m set --match-set x src -j DROP\nnat OUTPUT -p tcp -j REDIRECT --to-ports 9"])
def test_the_parts_of_all_packets_are_each_packet_once(direction, around, text):
    ruleset = rules(text or "filter INPUT")
    (space,) = [one for one in make_spaces([{IPV4: ruleset}], {IPV4: around}, free=False) if one.direction == direction]
    regions = [part.region for part in divide(space, ruleset).parts]
    assert unite([nothing(space), *regions]) == everything(space)
    assert sum(region.size for region in regions) == everything(space).size


@pytest.mark.parametrize(
    ("target", "captured", "transparent", "translated", "found"),
    [
        ("REDIRECT --to-ports 9", True, False, False, 1), ("TPROXY --on-port 9 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xffffffff", True, True, False, 1), ("REDIRECT --to-ports 9", True, True, False, None),
        ("TPROXY --on-port 9 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xffffffff", True, False, False, None), ("ACCEPT", True, False, False, None), ("DNAT --to-destination 10.7.7.7", False, False, True, 1),
        ("REDIRECT --to-ports 9", False, False, True, 1), ("ACCEPT", False, False, True, None), ("ACCEPT", False, False, False, 1), ("RETURN", False, False, False, 1), ("DROP", False, False, False, None),
    ],
)  # fmt: skip
def test_the_rule_behind_an_end_is_the_last_that_can_lead_to_it(target, captured, transparent, translated, found):
    table = "mangle" if target.startswith("TPROXY") else "nat"
    chain = rules(f"{table} PREROUTING -p tcp -m tcp --dport 80 -j {target}").tables[table]["PREROUTING"]
    hits = [RuleHit("PREROUTING", table, "PREROUTING", chain.rules)]
    cause = cause_of(hits, captured=captured, transparent=transparent, translated=translated)
    assert cause == (hits[0] if found else None)
    assert cause_of((), captured=captured, transparent=transparent, translated=translated) is None


@pytest.mark.parametrize(("redirect", "leads"), [("-p tcp", True), ("-p tcp ! -d 127.0.0.1", True), ("-p tcp -m tcp --dport 80", False)])
def test_behind_a_redirect_of_all_that_comes_there_is_the_jump_of_its_own_table_to_its_chain(redirect, leads):
    ruleset = rules(f"nat OUTPUT -j A\nnat OUTPUT -j B\nnat OUTPUT -j RETURN\nnat A {redirect} -j REDIRECT --to-ports 1\nfilter OUTPUT -j A")
    found = [(table, "OUTPUT", loaded) for table in ("nat", "filter") for loaded in ruleset.tables[table]["OUTPUT"].rules]
    hits = [RuleHit("OUTPUT", table, chain, (loaded,)) for table, chain, loaded in (*found, ("nat", "A", ruleset.tables["nat"]["A"].rules[0]))]
    captured = {"captured": True, "transparent": False, "translated": False}
    assert cause_of(hits, **captured) is hits[0 if leads else -1]
    assert cause_of([*hits[1:], hits[0]], **captured) is hits[-1], "the jump comes before"


@pytest.mark.parametrize(("hook", "table", "chain", "excludes"), [
    ("OUTPUT", "nat", "OUTPUT", True), ("PREROUTING", "mangle", "X", True), ("OUTPUT", "filter", "OUTPUT", False), ("INPUT", "mangle", "INPUT", False), ("INPUT", "nat", "INPUT", False),
    ("INPUT", "filter", "ISTIO_REFUSE_IN", True), ("OUTPUT", "filter", "ISTIO_REFUSE_OUT", True), ("POSTROUTING", "nat", "POSTROUTING", False),
])  # fmt: skip
@pytest.mark.parametrize("target", ["RETURN", "ACCEPT", "LOG"])
def test_a_rule_excludes_where_packets_are_captured_or_refused(hook, table, chain, excludes, target):
    (rule,) = rules(f"mangle OUTPUT -j {target}").tables["mangle"]["OUTPUT"].rules
    hit = RuleHit(hook, table, chain, (rule,))
    expected = hit if excludes and target != "LOG" else None
    assert cause_of([hit], captured=False, transparent=False, translated=False) is expected


def test_what_is_redirected_is_for_this_host_though_nobody_knows_for_whom_it_came():
    packet = make_inbound(POD, "9.9.9.9", "", 80, interface="eth7").replace(destination=None)
    trace = simulate(packet, rules("nat PREROUTING -p tcp -j REDIRECT --to-ports 80"), POD)
    assert (trace.fate, trace.redirect_port) == (DELIVERED, 80)


@pytest.mark.parametrize(("text", "target"), [("mangle OUTPUT -p tcp -j DROP", True), ("filter OUTPUT", False)])
def test_the_rule_that_ended_its_way_is_on_the_trace(text, target):
    trace = outbound(text, policies=[("filter OUTPUT", "DROP")])
    assert (trace.fate, trace.decider is not None) == (DROPPED, target)
    assert not target or trace.decider is trace.hits[-1]


def test_a_redirect_on_a_card_whose_address_nobody_named_is_for_this_host():
    trace = inbound("nat PREROUTING -p tcp -j REDIRECT --to-ports 1", to="10.0.0.2", interface="eth7")
    assert (trace.fate, trace.last.destination, trace.redirect_port) == (DELIVERED, None, 1)


@pytest.mark.parametrize(
    ("to", "port", "fate"), [("10.0.0.2", 80, DELIVERED), ("10.0.0.2", 9, REFUSED), ("10.0.0.3", 9, DELIVERED)], ids=["port", "same", "address"]
)
def test_a_connection_that_nat_translates_into_what_it_is_has_no_status_of_it(to, port, fate):
    around = POD.replace(addresses=(("eth0", number_of("10.0.0.2")), ("eth0", number_of("10.0.0.3"))))
    text = "nat PREROUTING -p tcp -j REDIRECT --to-ports 9\nfilter INPUT -p tcp -m conntrack ! --ctstate DNAT -j REJECT"
    assert inbound(text, to, port, around=around).fate == fate


@pytest.mark.parametrize(("port", "fate"), [(80, DELIVERED), (9, UNKNOWN)])
def test_whether_nat_has_changed_a_destination_is_unknown_where_the_address_is(port, fate):
    text = "nat PREROUTING -p tcp -j REDIRECT --to-ports 9\nfilter INPUT -p tcp -m conntrack ! --ctstate DNAT -j REJECT"
    assert inbound(text, "10.0.0.2", port, around=POD.replace(addresses=())).fate == fate


@pytest.mark.parametrize(("first", "second", "mark"), [("0x5/0xffffffff", "0x2/0x4", 3), ("0x5/0xffffffff", "0x4/0x1", 0), ("0x0/0x0", "0x6/0x0", 6)])
def test_marks_are_cleared_under_the_mask_and_xored(first, second, mark):
    packet = outbound(f"mangle OUTPUT -j MARK --set-xmark {first}\nmangle OUTPUT -j MARK --set-xmark {second}").last
    assert packet.mark == mark
    tracked = outbound(f"mangle OUTPUT -j CONNMARK --set-xmark {first}\nmangle OUTPUT -j CONNMARK --set-xmark {second}\nmangle OUTPUT -m conntrack --ctstate NEW").last
    assert (tracked.connection_mark, tracked.mark) == (mark, 0)


def test_the_owner_of_a_socket_that_nobody_named_is_unknown():
    packet = make_outbound(POD, "1.2.3.4", 80, uid=None, gid=None)
    assert simulate(packet, rules("mangle OUTPUT -m owner --uid-owner 1337 -j DROP"), POD).fate == UNKNOWN
    assert simulate(packet, rules("mangle OUTPUT -m owner --uid-owner 1337 -j RETURN"), POD).fate == SENT, "it is the same either way"


def test_masquerading_leaves_the_source_unknown_but_not_the_verdict():
    trace = outbound("nat POSTROUTING -j MASQUERADE")
    assert (trace.fate, trace.last.source) == (SENT, None)


# --- redirection and NAT ----------------------------------------------------------------------------------------------


def test_an_outbound_redirect_ends_at_the_loopback_address():
    trace = outbound("nat OUTPUT -p tcp -j REDIRECT --to-ports 15001")
    assert (trace.fate, end(trace), trace.last.in_interface) == (DELIVERED, "127.0.0.1:15001", "lo")
    assert outbound("nat OUTPUT -p tcp -j REDIRECT --to-ports 1", "2001:db8::1", around=POD6).last.destination == 1


def test_an_inbound_redirect_ends_at_the_interface_s_own_address():
    assert end(inbound("nat PREROUTING -p tcp -j REDIRECT --to-ports 15006")) == "10.0.0.2:15006"


def test_a_packet_to_oneself_passes_output_then_prerouting_and_nat_once():
    text = "raw OUTPUT -j ACCEPT\nraw PREROUTING -j ACCEPT\nmangle INPUT -j ACCEPT\nnat OUTPUT -j ACCEPT\nnat PREROUTING -p tcp -j REDIRECT --to-ports 1"
    trace = outbound(text, "10.0.0.2")
    assert (trace.fate, trace.redirect_port) == (DELIVERED, 0)
    assert hooks(trace) == ["OUTPUT raw", "OUTPUT nat", "PREROUTING raw", "INPUT mangle"]


def test_the_output_rules_see_the_first_interface_and_postrouting_the_last():
    text = "nat OUTPUT -p tcp -j REDIRECT --to-ports 1\nfilter OUTPUT -o lo -j DROP\nmangle POSTROUTING -o lo"
    trace = outbound(text)
    assert trace.fate == DELIVERED
    assert [(step.hook, step.table) for step in trace.hits] == [("OUTPUT", "nat"), ("POSTROUTING", "mangle")]


def test_nat_is_asked_once_a_connection_and_translates_its_answers_back():
    host = Host(rules("nat PREROUTING -p tcp -j REDIRECT --to-ports 15006"), POD)
    first = host.process(make_inbound(POD, "9.9.9.9", "", 80))
    answer = host.process(
        Packet(family=IPV4, protocol="tcp", source=first.last.destination, source_port=15006, destination=first.last.source,
               destination_port=first.last.source_port, has_socket=True, uid=1337, gid=1337)
    )  # fmt: skip
    assert format_endpoint(IPV4, answer.last.source, answer.last.source_port) == "10.0.0.2:80"
    again = host.process(make_inbound(POD, "9.9.9.9", "", 80))
    assert (again.last.state, again.hits, end(again)) == ("ESTABLISHED", (), "10.0.0.2:15006")


def test_an_answer_has_its_own_source_until_it_leaves():
    text = "nat PREROUTING -p tcp -j REDIRECT --to-ports 15006\nfilter OUTPUT -p tcp --sport 15006\nmangle POSTROUTING -p tcp --sport 80"
    host = Host(rules(text), POD)
    first = host.process(make_inbound(POD, "9.9.9.9", "", 80)).last
    answer = Packet(family=IPV4, protocol="tcp", source=first.destination, source_port=15006, destination=first.source,
                    destination_port=first.source_port, has_socket=True, uid=1337, gid=1337)  # fmt: skip
    trace = host.process(answer)
    assert [step.table for step in trace.hits] == ["filter"], "POSTROUTING's mangle stands before the translation"
    assert trace.last.source_port == 80


def test_a_packet_that_is_sent_again_before_an_answer_is_new_and_nat_is_not_asked_again():
    host = Host(rules("mangle PREROUTING -m conntrack --ctstate NEW\nnat PREROUTING -p tcp -j REDIRECT --to-ports 15006"), POD)
    first, again = (host.process(make_inbound(POD, "9.9.9.9", "", 80)) for _ in range(2))
    assert (first.last.state, again.last.state) == ("NEW", "NEW")
    assert [step.table for step in first.hits] == ["mangle", "nat"]
    assert [step.table for step in again.hits] == ["mangle"]
    assert end(again) == end(first) == "10.0.0.2:15006"


def test_a_connection_that_began_before_the_rules_is_not_translated():
    packet = make_inbound(POD, "9.9.9.9", "", 80).replace(state="ESTABLISHED")
    assert simulate(packet, rules("nat PREROUTING -p tcp -j REDIRECT --to-ports 15006"), POD).redirect_port == 0


def test_packets_that_belong_to_no_connection_pass_nat_by():
    packet = make_inbound(POD, "9.9.9.9", "", 80).replace(state="INVALID")
    text = "mangle PREROUTING -m conntrack --ctstate INVALID\nnat PREROUTING -p tcp -j REDIRECT --to-ports 1"
    trace = simulate(packet, rules(text), POD)
    assert (trace.redirect_port, [step.table for step in trace.hits]) == (0, ["mangle"])
    assert inbound("raw PREROUTING -j CT --notrack\nnat PREROUTING -p tcp -j REDIRECT --to-ports 1").redirect_port == 0


def test_nat_is_not_asked_for_a_packet_that_another_connection_caused():
    packet = make_inbound(POD, "9.9.9.9", "", 0, protocol="icmp").replace(state="RELATED")
    trace = simulate(packet, rules("nat PREROUTING -j DNAT --to-destination 10.0.0.2"), POD)
    assert (trace.last.state, trace.hits, trace.translated) == ("RELATED", (), False)


def test_nat_is_not_asked_later_either_for_what_began_as_related():
    host = Host(rules("nat PREROUTING -p tcp -j REDIRECT --to-ports 1"), POD)
    packet = make_inbound(POD, "9.9.9.9", "", 80)
    assert host.process(packet.replace(state="RELATED")).hits == ()
    assert host.process(packet).hits == ()


def test_the_socket_that_tproxy_chose_gets_the_packet_whatever_redirect_says_later():
    text = "mangle PREROUTING -p tcp -j TPROXY --on-port 15006 --tproxy-mark 1337\nnat PREROUTING -p tcp -j REDIRECT --to-ports 1"
    trace = inbound(text, marks=[1337])
    assert (trace.redirect_port, trace.transparent, end(trace)) == (15006, True, "10.0.0.2:1")


def test_a_foreign_dnat_takes_the_connection_elsewhere():
    trace = outbound(
        "nat OUTPUT -p tcp -j DNAT --to-destination 5.6.7.8:90\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1"
    )
    assert (trace.fate, end(trace), trace.translated, trace.verdict) == (SENT, "5.6.7.8:90", True, "direct")
    trace = outbound("nat OUTPUT -p tcp -j DNAT --to-destination [2001:db8::5]:90", "2001:db8::1", around=POD6)
    assert (trace.fate, end(trace), trace.translated) == (SENT, "[2001:db8::5]:90", True)


def test_zones_keep_two_queries_with_the_same_addresses_apart():
    text = (
        "raw OUTPUT -p udp -m owner --uid-owner 1337 -j CT --zone 1\nraw OUTPUT -p udp -m udp --dport 53 -j CT --zone 2"
    )
    host = Host(
        rules(
            text + "\nnat OUTPUT -m owner --uid-owner 1337 -j RETURN\nnat OUTPUT -p udp -j REDIRECT --to-ports 15053"
        ),
        POD,
    )
    queries = [make_outbound(POD, "8.8.8.8", 53, protocol="udp", uid=uid, gid=uid) for uid in (1000, 1337)]
    application, proxy = (host.process(query) for query in queries)
    assert (application.zone, application.redirect_port) == (2, 15053)
    assert (proxy.last.state, proxy.redirect_port) == ("NEW", 0)


def test_the_first_zone_counts():
    assert outbound("raw OUTPUT -j CT --zone 1\nraw OUTPUT -j CT --zone 2").zone == 1
    assert outbound("raw OUTPUT -j CT --zone 0\nraw OUTPUT -j CT --zone 2").zone == 0
    assert outbound("raw OUTPUT -j CT --helper ftp\nraw OUTPUT -j CT --zone 2").zone == 0
    assert outbound("raw OUTPUT -j CT --helper ftp\nraw OUTPUT -j CT --notrack\nnat OUTPUT -j ACCEPT").last.state == "NEW"


def test_a_packet_that_is_tracked_already_changes_neither_its_zone_nor_its_state():
    tracked = "\nfilter INPUT -m conntrack --ctstate NEW"
    assert outbound("raw OUTPUT -j CT --zone 1\nraw PREROUTING -j CT --zone 2" + tracked, "10.0.0.2").zone == 1
    assert outbound("raw PREROUTING -j CT --zone 2" + tracked, "10.0.0.2").zone == 0
    looped = outbound("raw PREROUTING -j CT --notrack" + tracked, "10.0.0.2")
    assert (looped.last.state, len(looped.hits)) == ("NEW", 2)
    assert outbound("raw OUTPUT -j CT --zone 1\nraw OUTPUT -j CT --notrack" + tracked, "10.0.0.2").last.state == "NEW"
    assert outbound("raw OUTPUT -j CT --notrack\nraw OUTPUT -j CT --zone 1" + tracked, "10.0.0.2").last.state == "UNTRACKED"


@pytest.mark.parametrize(
    ("flags", "state"), [(("SYN",), "NEW"), (("ACK",), "NEW"), (("SYN", "ACK"), "INVALID"), (("RST", "ACK"), "INVALID")]
)
def test_only_some_packets_begin_a_connection(flags, state):
    packet = make_inbound(POD, "9.9.9.9", "", 80).replace(flags=flags)
    assert simulate(packet, rules("mangle INPUT -m conntrack --ctstate NEW"), POD).last.state == state


def test_a_nat_table_is_asked_only_where_something_makes_the_kernel_track_connections():
    assert outbound("nat OUTPUT -p tcp -j ACCEPT").hits == ()
    assert len(outbound("nat OUTPUT -p tcp -j ACCEPT\nmangle INPUT -m state --state NEW -j ACCEPT").hits) == 1


# --- marks, TPROXY, routing -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "told"), [(133, " (table 133)"), (0, "")])
def test_the_path_names_the_policy_rule_s_table_where_it_is_known(table, told):
    ruleset = replace(rules("mangle PREROUTING -p tcp -j MARK --set-mark 7", marks=[7]), routing_table=table)
    trace = simulate(make_inbound(POD, "9.9.9.9", "4.4.4.4", 80), ruleset, POD)
    assert (trace.fate, trace.policy_routed) == (DELIVERED, True)
    assert f"its mark 7 is routed to this host by a policy rule{told}" in [step.outcome for step in trace.steps]


def test_restoring_a_mark_without_a_connection_leaves_the_packet_s_own():
    text = "mangle OUTPUT -j MARK --set-mark 5\nmangle OUTPUT -j CONNMARK --restore-mark"
    assert outbound(f"raw OUTPUT -j CT --notrack\n{text}").last.mark == 5
    assert outbound(text).last.mark == 0


def test_tproxy_keeps_both_addresses_and_ends_the_table():
    text = "mangle PREROUTING -p tcp -j TPROXY --on-port 15006 --tproxy-mark 1337\nmangle PREROUTING -j DROP"
    trace = inbound(text, marks=[1337])
    assert (trace.redirect_port, trace.transparent, end(trace), trace.last.mark) == (15006, True, "10.0.0.2:80", 1337)


def test_a_marked_packet_for_another_host_is_delivered_here_by_the_policy_route():
    text = "mangle PREROUTING -p tcp -j TPROXY --on-port 15006 --tproxy-mark 1337"
    trace = inbound(text, to="4.4.4.4", marks=[1337])
    assert (trace.fate, trace.policy_routed) == (DELIVERED, True)
    assert (inbound(text, to="4.4.4.4").fate, inbound(text, to="4.4.4.4").reason) == (
        DROPPED,
        "it is for another host, and this one does not forward",
    )


def test_a_mark_set_in_mangle_output_changes_the_route():
    trace = outbound("mangle OUTPUT -p tcp -j MARK --set-mark 7", marks=[7])
    assert (trace.fate, trace.last.in_interface, trace.policy_routed) == (DELIVERED, "lo", True)


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ("--set-mark 6", 6),
        ("--set-mark 4/6", 5),
        ("--or-mark 2", 3),
        ("--and-mark 2", 0),
        ("--xor-mark 3", 2),
        ("--set-xmark 3/0", 2),
    ],
)
def test_marks_are_changed_bit_by_bit(change, mark):
    assert outbound(f"mangle OUTPUT -j MARK {change}", mark=1).last.mark == mark


def test_a_mark_is_saved_to_the_connection_and_restored_from_it():
    text = "mangle OUTPUT -m mark --mark 5 -j CONNMARK --save-mark\nmangle POSTROUTING -m connmark --mark 5 -j MARK --set-mark 0\nfilter OUTPUT -j ACCEPT"
    trace = outbound(text + "\nmangle POSTROUTING -j CONNMARK --restore-mark", mark=5)
    assert (trace.last.mark, trace.last.connection_mark) == (5, 5)


def test_a_packet_for_another_host_is_forwarded_where_the_host_forwards():
    around = POD.replace(forwards=True)
    trace = inbound(
        "mangle FORWARD -i eth1 -o eth0\nmangle POSTROUTING -o eth0", to="4.4.4.4", around=around, interface="eth1"
    )
    assert (trace.fate, [step.hook for step in trace.hits]) == (FORWARDED, ["FORWARD", "POSTROUTING"])
    ruleset = rules("filter FORWARD -p tcp -j DROP\nmangle POSTROUTING -p udp -j DROP\nmangle INPUT -p sctp -j DROP")
    for host, ends in ((around, {(DROPPED, "filter FORWARD"), (DROPPED, "mangle POSTROUTING"), (DROPPED, "mangle INPUT"), (FORWARDED, ""), (DELIVERED, "")}),
                       (POD, {(DROPPED, "mangle INPUT"), (DROPPED, ""), (DELIVERED, "")})):  # fmt: skip
        (space,) = [one for one in make_spaces([{IPV4: ruleset}], {IPV4: host}, free=False) if one.direction == "inbound"]
        found = {(part.fate, f"{part.path[-1].table} {part.path[-1].chain}" if part.path else "") for part in divide(space, ruleset).parts}
        assert found == ends


# --- matches ----------------------------------------------------------------------------------------------------------

HOLDING = [
    "-p tcp", "! -p udp", "-p tcp --dport 80", "-p tcp ! --dport 81", "-p tcp --dport 79:81", "-p tcp -m multiport --dports 1,80",
    "-p tcp -m multiport ! --dports 1,2", "-p tcp -m multiport --ports 1,80", "-p tcp -m multiport --ports 40000", "-p tcp -m multiport ! --ports 1,2",
    "-m iprange --dst-range 1.2.3.4-1.2.3.4", "-m iprange --dst-range 0.0.0.0-1.2.3.5", "-m iprange ! --dst-range 1.2.3.5-1.2.3.9", "-p tcp --sport 40000", "-d 1.2.3.4", "-d 1.2.0.0/16", "! -d 1.2.3.5", "-s 10.0.0.0/24",
    "-o eth0", "-o eth+", "! -o lo", "-m owner --uid-owner 1000", "-m owner ! --uid-owner 1", "-m owner --uid-owner 999-1001",
    "-m owner --gid-owner 1000 --uid-owner 1000", "-m mark --mark 0", "-m mark ! --mark 1", "-m mark --mark 0/0xff",
    "-m conntrack --ctstate NEW", "-m conntrack ! --ctstate INVALID,ESTABLISHED", "-m state --state NEW,RELATED",
    "-m addrtype ! --dst-type LOCAL", "-m addrtype --src-type LOCAL", "-m connmark --mark 0", "-p tcp --syn", "! -i eth0",
]  # fmt: skip
FAILING = [
    "-p tcp -m multiport --ports 1,2", "-p udp -m multiport --ports 80", "-p tcp -m multiport ! --ports 80,1",
    "-m iprange --src-range 1.2.3.4-1.2.3.4", "-m iprange ! --dst-range 1.2.3.3-1.2.3.5", "-p udp", "! -p tcp", "-p tcp --dport 81", "-p tcp ! --dport 80", "-p udp --dport 80", "-p tcp --dport 81:", "-d 1.2.3.5", "! -d 1.0.0.0/8",
    "-s 1.1.1.1", "-o lo", "! -o eth+", "-i eth0", "-m owner --uid-owner 1", "-m owner ! --gid-owner 1000", "-m owner --uid-owner 1000 --gid-owner 1",
    "-m mark --mark 1", "-m mark ! --mark 0/1", "-m conntrack --ctstate ESTABLISHED", "-m conntrack ! --ctstate NEW",
    "-m addrtype --dst-type LOCAL", "-m connmark ! --mark 0", "-p tcp ! --syn", "-m socket",
]  # fmt: skip


@together(
    ("match", "holds"), [(match, True) for match in HOLDING] + [(match, False) for match in FAILING]
)
def test_every_kind_of_match_in_the_outbound_direction(match, holds):
    packet = make_outbound(POD, "1.2.3.4", 80, uid=1000, gid=1000).replace(flags=("SYN",))
    trace = simulate(packet, rules(f"mangle OUTPUT {match} -j DROP"), POD)
    assert (trace.fate == DROPPED) is holds, trace.reason


@pytest.mark.parametrize(
    ("match", "holds"),
    [("-i eth0", True), ("-i eth1", False), ("! -i lo", True), ("-s 9.0.0.0/8", True), ("-p tcp --dport 80", True), ("-p udp", False),
     ("-m conntrack --ctstate NEW", True), ("-d 10.0.0.2", True), ("-m addrtype --dst-type LOCAL", True), ("-m mark --mark 1", False)],
)  # fmt: skip
def test_every_kind_of_match_in_the_inbound_direction(match, holds):
    assert (inbound(f"mangle PREROUTING {match} -j DROP").fate == DROPPED) is holds


def test_a_packet_without_a_socket_has_no_owner_which_a_negated_match_takes_for_a_yes():
    packet = make_outbound(POD, "1.2.3.4", 80, uid=None, gid=None).replace(has_socket=False)
    assert simulate(packet, rules("mangle OUTPUT -m owner ! --uid-owner 5 -j DROP"), POD).fate == DROPPED
    assert simulate(packet, rules("mangle OUTPUT -m owner --uid-owner 5 -j DROP"), POD).fate == SENT


def test_a_mark_stays_with_the_connection_for_its_next_packets():
    text = "mangle PREROUTING -m conntrack --ctstate NEW -j CONNMARK --set-mark 7\nmangle OUTPUT -j CONNMARK --restore-mark"
    host = Host(rules(text), POD)
    first = host.process(make_inbound(POD, "9.9.9.9", "", 80))
    answer = host.process(
        Packet(family=IPV4, protocol="tcp", source=first.last.destination, source_port=80, destination=first.last.source,
               destination_port=first.last.source_port, has_socket=True, uid=1, gid=1)
    )  # fmt: skip
    assert (first.last.connection_mark, answer.last.connection_mark, answer.last.mark) == (7, 7, 7)


def test_a_connection_has_the_mark_that_its_packet_is_said_to_have():
    packet = make_inbound(POD, "9.9.9.9", "", 80).replace(connection_mark=7)
    text = "mangle PREROUTING -m conntrack --ctstate NEW\nmangle PREROUTING -j CONNMARK --restore-mark"
    assert simulate(packet, rules(text), POD).last.mark == 7


@pytest.mark.parametrize(
    ("target", "ended"),
    [("1.1.1.1", "1.1.1.1:80"), (":90", "1.2.3.4:90"), ("1.1.1.1:90", "1.1.1.1:90")],
)
def test_a_dnat_changes_what_it_names(target, ended):
    assert end(outbound(f"nat OUTPUT -p tcp -j DNAT --to-destination {target}")) == ended


@pytest.mark.parametrize("target", ["DNAT --to-destination 1.1.1.1", "REDIRECT --to-ports 1", "MASQUERADE", "CT --zone 1"])
def test_a_target_in_a_table_where_the_kernel_has_it_not_is_unknown(target):
    trace = outbound(f"mangle OUTPUT -p tcp -j {target}\nfilter OUTPUT -m conntrack --ctstate NEW")
    assert (trace.fate, trace.redirect_port) == (UNKNOWN, 0)
    assert trace.reason.endswith("netinit does not know the target")


def test_a_refusal_is_told_from_a_drop():
    assert inbound("filter INPUT -p tcp -j REJECT").reason == "rule 1 of filter INPUT, `-p tcp -j REJECT`"
    assert inbound("filter INPUT -p tcp -j REJECT --reject-with tcp-reset").fate == REFUSED
    assert inbound("filter INPUT -j DROP").reason == "rule 1 of filter INPUT, `-j DROP`"


# --- the path in words ------------------------------------------------------------------------------------------------


def path(trace):
    return [" ".join(word for word in (step.hook, step.table, step.chain) if word) + ": " + step.outcome for step in trace.steps]


def test_the_path_of_a_captured_connection():
    trace = outbound("nat OUTPUT -p udp -j ACCEPT\nnat OUTPUT -j A\nnat A -p udp -j RETURN\nnat OUTPUT -p tcp -j REDIRECT --to-ports 1")
    assert (trace.reason, trace.last.has_socket, trace.last.uid, trace.last.gid) == ("", False, None, None)
    assert path(trace) == [
        ": it leaves through eth0: by the routing table",
        "OUTPUT connection tracking: its connection is NEW",
        "OUTPUT nat OUTPUT: does not hold",
        "OUTPUT nat OUTPUT: go through chain A",
        "OUTPUT nat A: does not hold",
        "OUTPUT nat A: the chain ends: back to its caller",
        "OUTPUT nat OUTPUT: redirect it to port 1",
        "OUTPUT: it leaves through lo: the destination is this host's own",
        "POSTROUTING: it comes in again through lo",
        "PREROUTING nat: NAT is skipped: its destination was decided before",
        "INPUT nat: NAT is skipped: its source was decided before",
    ]


def test_the_path_of_a_packet_of_no_connection():
    packet = make_inbound(POD, "9.9.9.9", "", 80).replace(flags=("SYN", "ACK"))
    trace = simulate(packet, rules("mangle PREROUTING -m conntrack --ctstate NEW\nnat PREROUTING -p udp -j ACCEPT"), POD)
    nowhere = "nat: NAT is skipped: the packet belongs to no tracked connection"
    assert path(trace) == [
        "PREROUTING connection tracking: its connection is not known: INVALID",
        "PREROUTING mangle PREROUTING: does not hold",
        "PREROUTING mangle PREROUTING: the policy is ACCEPT",
        f"PREROUTING {nowhere}",
        f"INPUT {nowhere}",
    ]


def test_the_path_is_silent_about_nat_where_there_is_none():
    assert path(outbound("filter OUTPUT -m conntrack --ctstate NEW", "10.0.0.2")) == [
        ": it leaves through lo: the destination is this host's own",
        "OUTPUT connection tracking: its connection is NEW",
        "OUTPUT filter OUTPUT: count it and go on",
        "OUTPUT filter OUTPUT: the policy is ACCEPT",
        "POSTROUTING: it comes in again through lo",
    ]


def test_the_path_ends_where_nobody_knows():
    trace = outbound("mangle OUTPUT -m set --match-set banned dst -j DROP")
    assert path(trace)[-1] == "OUTPUT mangle OUTPUT: whether it holds cannot be known"
    trace = outbound("filter OUTPUT -p udp -j DROP", policies=(("filter OUTPUT", "QUEUE"),))
    assert (trace.fate, trace.reason) == (UNKNOWN, "the policy of filter OUTPUT is QUEUE, which netinit does not know")
    assert path(trace)[-1] == "OUTPUT filter OUTPUT: the policy is QUEUE"


def test_the_path_names_the_zone_the_new_mark_and_the_way_out():
    text = "raw OUTPUT -j CT --zone 3\nmangle OUTPUT -j MARK --set-mark 7\nmangle PREROUTING -m conntrack --ctstate NEW"
    told = path(outbound(text, marks=[7]))
    assert "OUTPUT connection tracking: its connection is NEW (zone 3)" in told
    assert "OUTPUT: its mark is 7 now: it is routed again after this hook" in told
    assert "OUTPUT: it leaves through lo: its mark 7 is routed to this host by a policy rule" in told
    forwarded = inbound("mangle FORWARD -p tcp", to="4.4.4.4", around=POD.replace(forwards=True))
    assert "PREROUTING: it is forwarded through eth0" in path(forwarded)


def beside(to="1.2.3.4", port=80, **places):
    """What happens to a connection of this host under the rules of several places; a policy is given as (rules, policies)."""
    texts = {name: text if isinstance(text, tuple) else (text, ()) for name, text in places.items()}
    ruleset = join_backends({name: {IPV4: rules(text, policies=policies)} for name, (text, policies) in texts.items()}, IPV4)
    return simulate(make_outbound(POD, to, port, uid=1000, gid=1000), ruleset, POD)


REDIRECTS = "nat OUTPUT -p tcp -j REDIRECT --to-ports 15001"


def test_a_policy_alone_in_another_place_drops_what_is_redirected():
    trace = beside(nft=REDIRECTS, legacy=("filter OUTPUT", [("filter OUTPUT", "DROP")]))
    assert (trace.fate, trace.reason) == (DROPPED, "the policy of legacy's filter OUTPUT is DROP")


def test_rules_of_another_place_see_the_packet_as_those_before_left_it():
    trace = beside(nft=REDIRECTS, legacy="filter OUTPUT -p tcp -m tcp --dport 15001 -j DROP")
    assert trace.fate == DROPPED
    assert trace.reason.startswith("rule 1 of legacy's filter OUTPUT")
    assert beside(nft=REDIRECTS, legacy="filter OUTPUT -p tcp -m tcp --dport 80 -j DROP").redirect_port == 15001


def test_no_order_is_tried_where_one_place_alone_changes_packets(monkeypatch):
    monkeypatch.setattr(one_packet, "permutations", None)
    assert beside(nft=REDIRECTS).redirect_port == 15001


def test_two_places_that_redirect_to_different_ports_are_disputed():
    trace = beside(nft=REDIRECTS, legacy="nat OUTPUT -p tcp -j REDIRECT --to-ports 9")
    assert (trace.fate, trace.disputed) == (UNKNOWN, ("nft", "legacy"))
    assert trace.reason == "nft and legacy both have rules for this connection, and the kernel does not show which it runs first"


def test_two_places_that_agree_or_of_which_one_lets_go_on_are_not_disputed():
    assert beside(nft=REDIRECTS, legacy=REDIRECTS).redirect_port == 15001
    assert beside(nft=REDIRECTS, legacy="nat OUTPUT -p tcp -j ACCEPT").redirect_port == 15001  # NAT asks the next


@pytest.mark.parametrize("first", ["nft", "legacy"])
@pytest.mark.parametrize("before", ["", "mangle OUTPUT -m set --match-set y dst -j MARK --set-xmark 0x1/0xffffffff\n"])
def test_places_are_disputed_where_a_rule_of_which_nothing_is_known_makes_them_differ(first, before):
    other = "legacy" if first == "nft" else "nft"
    maybe = f"{before}nat OUTPUT -p tcp -m set --match-set x dst -j REDIRECT --to-ports 15001"
    for redirect, disputed in (("REDIRECT --to-ports 9", {"nft", "legacy"}), ("REDIRECT --to-ports 15001", set())):
        trace = beside(**{first: maybe, other: f"nat OUTPUT -p tcp -j {redirect}"})
        assert (trace.fate == UNKNOWN, {*trace.disputed}) == (bool(disputed), disputed)


@pytest.mark.parametrize(("count", "first", "fate"), [(4, "mangle OUTPUT -j MARK --set-xmark 1/1", SENT), (5, "mangle OUTPUT -j MARK --set-xmark 1/1", UNKNOWN), (5, "mangle OUTPUT -p udp -j DROP", SENT)])
def test_five_places_of_which_one_changes_packets_are_too_many_to_order(count, first, fate):
    trace = beside(**{f"b{at}": "mangle OUTPUT -p udp -j DROP" if at else first for at in range(count)})
    assert (trace.fate, trace.reason) == (fate, "more than 4 chains of one priority change packets at OUTPUT" if fate == UNKNOWN else "")


def foreign(*texts, priority=-90):
    """Tables of others with a chain each of OUTPUT at one priority."""
    chains = [rules(f"mangle OUTPUT {text}").tables["mangle"] for text in texts]
    return tuple([HookedChain(f"ip t{at}", one["OUTPUT"], one, "mangle", "OUTPUT", priority) for at, one in enumerate(chains)])


@pytest.mark.parametrize(("texts", "disputed"), [
    (("-j MARK --set-xmark 0x1/0xff", "-j MARK --set-xmark 0x2/0xff"), True), (("-j MARK --set-xmark 0x1/0x1", "-j MARK --set-xmark 0x2/0x2"), False),
    (("-j MARK --set-xmark 0x1/0xff", "-m mark --mark 0x1/0xff -j DROP"), True), (("-m mark --mark 0x1/0xff -j DROP", "-j LOG"), False),
])  # fmt: skip
def test_tables_of_others_of_one_priority_are_disputed_where_their_order_decides(texts, disputed):
    ruleset = replace(rules("filter OUTPUT -m mark --mark 0x1/0xff -j ACCEPT"), foreign=foreign(*texts))
    trace = simulate(make_outbound(POD, "1.2.3.4", 80, uid=7, gid=7), ruleset, POD)
    assert (trace.fate, trace.disputed, trace.decider) == (UNKNOWN if disputed else SENT, ("ip t0", "ip t1") if disputed else (), None)
    (space,) = [one for one in make_spaces([{IPV4: ruleset}], {IPV4: POD}, free=False) if one.direction == "outbound"]
    asked = in_states(space, (CtState.NEW,)) & valued(space, "protocol", "tcp")
    reasons = {one.reason for one in divide(space, ruleset, asked).parts if one.fate == UNKNOWN}
    assert reasons == ({"ip t0 and ip t1 both have rules for this connection, and the kernel does not show which it runs first"} if disputed else set())


@pytest.mark.parametrize(("text", "told"), [
    ("mangle OUTPUT -j MARK --set-xmark 0x7/0xff", True), ("mangle OUTPUT -j MARK --set-xmark 0x0/0xff", False), ("raw OUTPUT -j MARK --set-xmark 0x7/0xff", False),
    ("filter OUTPUT -j MARK --set-xmark 0x7/0xff", False), ("mangle POSTROUTING -j MARK --set-xmark 0x7/0xff", False), ("mangle OUTPUT -j MARK --set-xmark 0x7/0xff\nmangle OUTPUT -j DROP", False),
])  # fmt: skip
def test_a_packet_is_routed_again_where_mangle_changes_its_mark_in_output(text, told):
    assert ("its mark is 7 now: it is routed again after this hook" in [step.outcome for step in outbound(text).steps]) is told


@pytest.mark.parametrize(("changes", "translated", "is_answer"), [
    ({}, False, False), ({"state": "ESTABLISHED", "destination_translated": True, "is_answer": True}, True, True), ({"state": "ESTABLISHED"}, None, None),
    ({"destination_translated": True, "is_answer": True}, False, False),
])  # fmt: skip
def test_of_a_connection_that_began_before_nothing_more_is_known_than_was_said(changes, translated, is_answer):
    packet = make_outbound(POD, "1.2.3.4", 80, uid=1, gid=1).replace(**changes)
    last = simulate(packet, rules("filter OUTPUT -m conntrack --ctstate NEW -j ACCEPT"), POD).last
    assert (last.destination_translated, last.is_answer) == (translated, is_answer)
    assert last.state == (changes.get("state") or "NEW")


def test_a_drop_wins_in_any_order_and_a_mark_may_not():
    drops = "filter OUTPUT -p tcp -j DROP"
    assert beside(nft=drops, legacy="filter OUTPUT -p tcp -j ACCEPT").fate == DROPPED
    assert beside(nft=drops, legacy="filter OUTPUT -p tcp -j REJECT").verdict == DROPPED  # whether its sender is told or not
    marks = "mangle OUTPUT -p tcp -j MARK --set-xmark 0x1/0xffffffff"
    assert beside(nft=marks, legacy="mangle OUTPUT -m mark --mark 0x1 -j DROP").fate == UNKNOWN


def test_places_without_a_rule_or_a_policy_leave_the_others_alone():
    alone = rules(REDIRECTS)
    assert join_backends({"legacy": {IPV4: rules("filter OUTPUT")}, "nft": {IPV4: alone}}, IPV4) is alone


def test_address_sets_are_known_in_the_rules_of_every_place():
    places = {"nft": rules(f"nat OUTPUT -m set --match-set near dst -j RETURN\n{REDIRECTS}"), "legacy": rules("filter OUTPUT -m set --match-set far dst -j DROP")}
    joined = join_backends({name: {IPV4: one} for name, one in places.items()}, IPV4)
    known = resolve_sets(joined, {"near": frozenset({"10.9.0.0/16"}), "far": frozenset({"192.0.2.1"})})
    traces = [simulate(make_outbound(POD, to, 80, uid=1000, gid=1000), known, POD) for to in ("10.9.9.9", "192.0.2.1", "192.0.2.2")]
    assert [(one.fate, one.redirect_port) for one in traces] == [(SENT, 0), (DELIVERED, 15001), (DELIVERED, 15001)]
    assert simulate(make_outbound(POD, "10.9.9.9", 80, uid=1000, gid=1000), joined, POD).fate == UNKNOWN


def test_ours_is_replaced_in_every_place_by_a_plan_and_theirs_stays():
    ours = rules("nat OUTPUT -p tcp -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 9")
    theirs = rules("nat OUTPUT -p tcp -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 8\nfilter OUTPUT -p udp -j DROP")
    made = with_plan(join_backends({"nft": {IPV4: ours}, "legacy": {IPV4: theirs}}, IPV4), plan(Options.from_argv(["-i", "*", "-b", "*"], {})))
    assert simulate(make_outbound(POD, "1.2.3.4", 80, uid=1000, gid=1000), made, POD).redirect_port == 15001
    assert simulate(make_outbound(POD, "1.2.3.4", 53, uid=1000, gid=1000, protocol="udp"), made, POD).fate == DROPPED


def test_foreign_rules_keep_their_places_before_and_behind_ours_and_foreign_chains_stay():
    listing = (
        "*nat\n:PREROUTING ACCEPT [0:0]\n:OUTPUT DROP [0:0]\n:THEIRS - [0:0]\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -p udp -j THEIRS\n-A OUTPUT -p tcp -j ISTIO_OUTPUT\n"
        "-A OUTPUT -p sctp -j THEIRS\n-A THEIRS -j RETURN\n-A ISTIO_OUTPUT -p tcp -j REDIRECT --to-ports 9\nCOMMIT\n"
        "*filter\n:INPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n-A INPUT -j ISTIO_OUTPUT\n-A INPUT -p udp -j DROP\nCOMMIT\n"
    )
    wanted = plan(Options.from_argv(["-i", "*", "-b", "*", "--ipv6", "off"], {}))
    made, planned = with_plan(load_listing(parse_listing(listing), IPV4), wanted), load_plan(wanted, IPV4)
    chains = {(table, name): chain for table, found in made.tables.items() for name, chain in found.items()}
    ours = {(table, name): chain for table, found in planned.tables.items() for name, chain in found.items()}
    assert {*chains} == {*ours, ("nat", "THEIRS")}
    assert {place: chain for place, chain in chains.items() if chain.policy == ""} == {("nat", "THEIRS"): chains["nat", "THEIRS"]} | {place: chain for place, chain in ours.items() if not chain.policy}
    for place, policy, foreign in ((("nat", "OUTPUT"), "DROP", ["-p udp -j THEIRS", "-p sctp -j THEIRS"]), (("filter", "INPUT"), "ACCEPT", ["-p udp -j DROP"])):
        own, inserted = [one.text for one in ours[place].rules], write_plan(wanted, IPV4)[place[0]][place[1]].inserted
        texts = [*own[:inserted], *foreign, *own[inserted:]]
        assert ([(one.number, one.text) for one in chains[place].rules], chains[place].policy) == ([*enumerate(texts, 1)], policy)


def test_the_marks_that_policy_rules_route_here_are_those_of_the_plan_where_it_has_some():
    before, transparent = rules("nat OUTPUT -p tcp -j RETURN", marks=(5,)), ["-i", "*", "-b", "*", "-m", "TPROXY"]
    assert with_plan(before, plan(Options.from_argv(transparent, {}))).local_marks == {(1337, FULL_MASK)}
    assert with_plan(before, plan(Options.from_argv(transparent[:4], {}))).local_marks == before.local_marks


@pytest.mark.parametrize(
    ("flags", "picks_up", "state"),
    [(("SYN",), False, "NEW"), (("SYN",), True, "NEW"), (("ACK",), False, "INVALID"), (("ACK",), True, "NEW"), (("SYN", "ACK"), True, "INVALID")],
)
def test_a_connection_begins_with_a_syn_and_may_be_picked_up_at_an_ack(flags, picks_up, state):
    around = POD.replace(picks_up=picks_up)
    packet = make_inbound(around, "9.9.9.9", "", 80).replace(flags=flags)
    assert simulate(packet, rules("mangle PREROUTING -m conntrack --ctstate NEW"), around).last.state == state


@pytest.mark.parametrize(("hook", "stage", "priority"), [
    ("PREROUTING", "raw", -300), ("OUTPUT", "connection tracking", -200), ("INPUT", "mangle", -150), ("PREROUTING", "nat", -100), ("OUTPUT", "nat", -100),
    ("FORWARD", "filter", 0), ("INPUT", "security", 50), ("INPUT", "nat", 100), ("POSTROUTING", "nat", 100),
])  # fmt: skip
def test_the_priority_of_each_stage_is_the_kernel_s(hook, stage, priority):
    """linux/netfilter_ipv4.h: NAT of sources comes after filters, NAT of destinations before them."""
    assert priority_at(hook, stage) == priority


@pytest.mark.parametrize(
    ("priority", "when", "fate"),
    [
        (-201, "-m conntrack --ctstate NEW", SENT), (-201, "-m conntrack ! --ctstate NEW", DROPPED), (-200, "-m conntrack --ctstate NEW", UNKNOWN),
        (-200, "-m conntrack ! --ctstate NEW", UNKNOWN), (-200, "-p tcp", DROPPED), (-200, "-p udp", SENT),
        (-199, "-m conntrack --ctstate NEW", DROPPED), (-199, "-m conntrack ! --ctstate NEW", SENT),
    ],
)  # fmt: skip
def test_a_foreign_chain_with_the_priority_of_connection_tracking_runs_before_or_after_it(priority, when, fate):
    tables = rules(f"raw OUTPUT {when} -j DROP").tables["raw"]
    foreign = HookedChain("ip theirs", tables["OUTPUT"], tables, "filter", "OUTPUT", priority)
    ruleset = replace(rules("filter OUTPUT -j ACCEPT"), foreign=(foreign,))
    trace = simulate(make_outbound(POD, "1.2.3.4", 80, uid=7, gid=7), ruleset, POD)
    assert trace.fate == fate
    if fate == UNKNOWN:
        assert trace.reason == "the kernel does not show whether ip theirs comes first at OUTPUT"


@pytest.mark.parametrize(
    ("hook", "priority", "to"), [("OUTPUT", -300, "5.6.7.8:81"), ("OUTPUT", -150, ""), ("INPUT", -300, ""), ("POSTROUTING", -300, "")]
)  # fmt: skip
def test_a_destination_that_a_foreign_rule_writes_is_known_before_connection_tracking_alone(hook, priority, to):
    address, port = WriteDestination(text="", address="5.6.7.8"), WriteDestination(text="", port=81)
    writes = [LoadedRule(at, "", Rule(target=target)) for at, target in enumerate((address, port), 1)]
    chain = LoadedChain(hook, tuple(writes), "ACCEPT")
    ruleset = replace(rules("nat OUTPUT -p udp -j REDIRECT --to-ports 1"), foreign=(HookedChain("ip theirs", chain, {hook: chain}, "filter", hook, priority),))
    around = POD.replace(addresses=(*POD.addresses, ("lo", number_of("5.6.7.9"))))
    trace = simulate(make_outbound(around, "5.6.7.9", 80, uid=7, gid=7), ruleset, around)
    assert (trace.fate, end(trace) if to else "") == (SENT if to else UNKNOWN, to)


CAPTURES = "nat OUTPUT -p tcp -j ISTIO_REDIRECT\nnat ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001\n"
DOUBTFUL = "-m recent --name bad --rcheck"


@pytest.mark.parametrize(
    ("text", "dropped_by"),
    [
        (f"filter INPUT {DOUBTFUL} -j DROP", f"rule 1 of filter INPUT, `{DOUBTFUL} -j DROP`"),
        (f"mangle OUTPUT {DOUBTFUL} -j REJECT", f"rule 1 of mangle OUTPUT, `{DOUBTFUL} -j REJECT`"),
        (f"filter INPUT {DOUBTFUL} -j DROP\nmangle OUTPUT {DOUBTFUL} -j LOG", f"rule 1 of filter INPUT, `{DOUBTFUL} -j DROP`"),
        (f"nat OUTPUT {DOUBTFUL} -j ACCEPT", ""), (f"nat OUTPUT {DOUBTFUL} -j DNAT --to-destination 5.6.7.8", ""),
        (f"nat OUTPUT {DOUBTFUL} -j ACCEPT\nfilter INPUT {DOUBTFUL} -j DROP", ""),
    ],
)  # fmt: skip
def test_what_is_captured_or_dropped_whatever_is_unknown_never_goes_past_the_proxy(text, dropped_by):
    trace = outbound(f"{text}\n{CAPTURES}")
    assert (trace.verdict, trace.dropped_by) == (UNKNOWN, dropped_by)
    sentence = Explanation(trace).sentence
    if dropped_by:
        assert sentence.startswith(f"captured, or dropped because of {dropped_by}; never past the proxy: it cannot be known here whether ")
    else:
        assert sentence.startswith("unknown: ")


@pytest.mark.parametrize(("rule", "is_safe"), [(f"filter OUTPUT {DOUBTFUL} -j DROP", True), (f"nat OUTPUT {DOUBTFUL} -j ACCEPT", False)])
def test_all_packets_are_captured_or_dropped_where_one_is(rule, is_safe):
    text = f"{CAPTURES}{rule}" if is_safe else f"{rule}\n{CAPTURES}"
    ruleset = rules(text)
    (space,) = [one for one in make_spaces([{IPV4: ruleset}], {IPV4: POD}, free=False) if one.direction == "outbound"]
    fresh = in_states(space, ("NEW",)) & valued(space, "protocol", "tcp")
    unknown = [one for one in divide(space, ruleset, fresh).parts if one.verdict == UNKNOWN]
    assert unknown
    assert {one.at_worst_dropped for one in unknown} == {is_safe}


# --- what the path says beside rules ------------------------------------------------------------------------------------


def test_what_cannot_be_read_is_on_the_path_where_the_kernel_may_ask_it_first():
    ruleset = replace(rules("nat OUTPUT -p tcp -j REDIRECT --to-ports 15001"), unread=("iptables: the table x", "nft: y"))
    steps = simulate(make_outbound(POD, "1.2.3.4", 80, uid=1, gid=1), ruleset, POD).steps
    told = [(step.hook, step.outcome) for step in steps if "not read" in step.outcome]
    words = "{}, which is foreign and not read, applies to it too"
    assert told == [(hook, words.format(one)) for hook in ("OUTPUT", "PREROUTING") for one in ruleset.unread]


@pytest.mark.parametrize(("tables", "named"), [(["a"], "a"), (["a", "b", "c"], "a, b, c"), (["a", "b", "c", "d"], "a, b, c and more")])
def test_why_nothing_is_known_names_the_first_of_what_is_not_read(tables, named):
    assert list_unread(tables) == f"foreign rules that netinit cannot read apply to it, and may drop it or send it elsewhere ({named})"


@pytest.mark.parametrize("rule", ["mangle OUTPUT -m limit --limit 1/sec -j MARK --set-xmark 7/0xffffffff", "filter OUTPUT -m limit --limit 1/sec -j LOG"])
def test_a_rule_that_may_match_and_decides_nothing_is_passed(rule):
    trace = outbound(rule)
    assert [(step.outcome, step.holds) for step in trace.steps if step.rule] == [("may match, and passes it on", None)]
    assert (trace.fate, trace.redirect_port, trace.reason, trace.decider) == (SENT, 0, "", None)


def test_an_unknown_end_is_no_capture_and_its_path_ends_at_the_rule():
    trace = outbound("nat OUTPUT -m limit --limit 1/sec -j REDIRECT --to-ports 15001\nnat OUTPUT -p tcp -j RETURN")
    assert (trace.fate, trace.verdict, trace.redirect_port, trace.dropped_by) == (UNKNOWN, "unknown", 0, "")
    assert trace.steps[-1] is trace.decider
    assert trace.decider.outcome == "whether it holds cannot be known"


def test_a_forwarded_packet_was_routed_with_the_device_through_which_it_leaves():
    around = POD.replace(forwards=True, routes=((Network.parse("8.0.0.0/8"), "eth1"),))
    trace = inbound("filter FORWARD -p tcp -j ACCEPT", to="8.8.8.8", around=around)
    assert (trace.fate, trace.routed.out_interface, trace.routed.destination) == (FORWARDED, "eth1", number_of("8.8.8.8"))
    assert inbound("filter INPUT -p tcp -j ACCEPT", around=around).routed.out_interface == ""


def test_the_source_of_a_connection_is_that_of_its_way_whatever_marks_are_routed_here():
    around = POD.replace(local_marks=frozenset({(1, FULL_MASK)}))
    assert make_outbound(around, "1.2.3.4", 80, uid=1, gid=1).source == number_of("10.0.0.2")


def test_rules_are_named_with_their_table_and_its_backend():
    redirect, back = rules("nat OUTPUT -p tcp -j REDIRECT --to-ports 15001\nnat OUTPUT -p udp -j RETURN").tables["nat"]["OUTPUT"].rules
    quoted = "`-p tcp -j REDIRECT --to-ports 15001`"
    assert str(RuleHit("OUTPUT", "nat", "OUTPUT", (redirect,))) == f"rule 1 of nat OUTPUT, {quoted}"
    assert str(RuleHit("OUTPUT", "nat", "OUTPUT", (back,), "iptables-nft")) == "rule 2 of iptables-nft's nat OUTPUT, `-p udp -j RETURN`"
    assert str(RuleHit("OUTPUT", "nat", "OUTPUT", (redirect, back))) == f"rules 1 to 2 of nat OUTPUT, the first of which is {quoted}"


def test_a_step_without_a_rule_has_no_match():
    with pytest.raises(ValueError, match=r"^it leaves: no rule did this$"):
        _ = TraceStep("OUTPUT", "it leaves").matched
    assert TraceStep("OUTPUT", "x", "nat", "c", number=4).place == ("OUTPUT", "nat", "c", 4)


def test_a_foreign_chain_at_the_priority_of_tracking_or_nat_is_met_once_before_and_once_after():
    chains = rules("raw OUTPUT -p tcp -j DROP").tables["raw"]
    foreign = tuple([HookedChain(f"ip at{at}", chains["OUTPUT"], chains, "filter", "OUTPUT", at) for at in (-200, -100, -50)])
    stages = replace(rules("nat OUTPUT -p tcp -j REDIRECT --to-ports 15001"), foreign=foreign).stages["OUTPUT"]
    assert [(stage.name, [(one.table, one.turn) for chains in stage.rounds for one in chains]) for stage in stages] == [
        ("", [("ip at-200", "early")]), ("connection tracking", []), ("", [("ip at-200", "late")]),
        ("", [("ip at-100", "early")]), ("nat", [("nat", "")]), ("", [("ip at-100", "late")]), ("", [("ip at-50", "")]),
    ]  # fmt: skip


def test_a_chain_without_a_policy_has_no_hook():
    listed = ListedTable(policies={"OUTPUT": "DROP", "X": "-"}, rules={"OUTPUT": [], "X": [], "Y": ["-j RETURN"]})
    chains = load_listing({"nat": listed}, IPV4).tables["nat"]
    assert {name: chain.policy for name, chain in chains.items()} == {"OUTPUT": "DROP", "X": "", "Y": ""}


@pytest.mark.parametrize(
    ("mask", "flags", "certain", "possible"),
    [
        (("FIN", "SYN", "RST", "ACK"), ("SYN",), True, True), (("SYN", "FIN"), ("SYN", "FIN"), False, False), (("SYN", "ACK"), ("SYN", "ACK"), False, False),
        (("FIN", "RST"), (), True, True), (("FIN", "RST"), ("FIN",), False, False), (("SYN", "RST"), ("SYN",), True, True), (("SYN", "RST"), ("RST",), False, False),
        (("PSH",), ("PSH",), False, False), (("PSH",), (), True, True),
    ],
)  # fmt: skip
def test_packets_that_open_connections_are_bare_syns_and_have_no_other_flags(mask, flags, certain, possible):
    (space,) = [one for one in make_spaces([{IPV4: rules("filter OUTPUT -p tcp -j DROP")}], {IPV4: POD}, free=False) if one.direction == "outbound"]
    found = view(space, Condition()).with_flags(mask, flags)
    opening = in_states(space, (CtState.NEW,))
    assert (not opening - found.certain, bool(opening & found.possible)) == (certain, possible)
