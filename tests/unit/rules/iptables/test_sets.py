"""Lists of networks as address sets: which lists, what is written, what is a difference. No kernel here."""

from __future__ import annotations

import pytest

from core import plan
from ipset_input import render_steps
from netinit.base.net import IPV4, IPV6, Network
from netinit.options import Options
from netinit.options.kinds import Flag
from netinit.rules.infer_options.address_sets import as_listed, find_threshold
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.set_changes import compare_sets, find_preparation, find_return, number_sets, surplus
from netinit.rules.iptables.sets import (
    DESTROY,
    FILL,
    SWAP,
    SetStep,
    format_element,
    is_unread,
    resolve,
    unread,
    use_sets,
)
from netinit.rules.iptables.write import WrittenRule, write_plan
from netinit.rules.matches import EXTENSION
from netinit.rules.matches.context import Mark, UnknownMatch
from netinit.rules.matches.packet import Destination, InInterface
from netinit.rules.model import Chain, Rule, Table
from netinit.rules.targets import Return

FOUR = tuple(Network.parse(f"10.0.{i}.0/24") for i in range(6))
SIX = tuple(Network.parse(f"fd00:{i}::/32") for i in range(1, 4))


def rewritten(threshold, **fields):
    made = plan(Options(ipv6="on", **fields))
    return (made, *use_sets(made, "netinit-nft", threshold))


def rules_of(made, family):
    return write_plan(made, family)["nat"]["ISTIO_OUTPUT"].texts


def test_a_list_longer_than_the_threshold_is_one_rule_and_a_shorter_one_stays_as_it_was():
    old, new, wanted = rewritten(3, exclude_outbound_cidrs=FOUR + SIX, outbound_cidrs="*")

    assert [made.name for made in wanted] == ["netinit-nft-exclude-4"]
    assert wanted[0].elements == {network.text for network in FOUR}
    assert rules_of(new, IPV4)[-2:] == ["-m set --match-set netinit-nft-exclude-4 dst -j RETURN", "-j ISTIO_REDIRECT"]
    assert rules_of(new, IPV6) == rules_of(old, IPV6)


@pytest.mark.parametrize("layout", ["current", "classic"])
def test_the_captured_networks_have_a_set_of_their_own(layout):
    _, new, wanted = rewritten(2, exclude_outbound_cidrs=FOUR, outbound_cidrs=SIX + FOUR[:3], layout=layout)
    assert sorted(made.name for made in wanted) == [
        f"netinit-nft-{use}" for use in ("capture-4", "capture-6", "exclude-4")
    ]
    assert "-m set --match-set netinit-nft-capture-4 dst -j ISTIO_REDIRECT" in rules_of(new, IPV4)


@pytest.mark.parametrize("layout", ["current", "classic"])
def test_what_becomes_a_set_hangs_on_the_option_and_not_on_what_it_is_called(layout, monkeypatch):
    fields = {"exclude_outbound_cidrs": FOUR, "outbound_cidrs": SIX + FOUR[:3], "layout": layout}
    usual = rewritten(2, **fields)[2]
    monkeypatch.setattr(Flag, "label", property(lambda flag: f"--renamed-{flag.field}"))
    renamed = rewritten(2, **fields)[2]

    assert [(made.name, made.elements) for made in renamed] == [(made.name, made.elements) for made in usual] != []
    assert {made.rule.origin.label for made in renamed} == {"--renamed-exclude_outbound_cidrs", "--renamed-outbound_cidrs"}


def test_nothing_is_rewritten_where_no_list_is_long():
    old, new, wanted = rewritten(6, exclude_outbound_cidrs=FOUR, outbound_cidrs="*")
    assert new is old
    assert wanted == ()


@pytest.mark.parametrize(
    ("network", "texts"),
    [
        ("10.1.2.3/32", ("10.1.2.3",)),
        ("fd00::1/128", ("fd00::1",)),
        ("10.0.0.0/8", ("10.0.0.0/8",)),
        ("0.0.0.0/0", ("0.0.0.0/1", "128.0.0.0/1")),
        ("::/0", ("::/1", "8000::/1")),
    ],
)
def test_elements_are_spelled_as_ipset_lists_them(network, texts):
    assert format_element(Network.parse(network)) == texts


def test_a_set_that_is_not_there_is_filled_in_its_place_and_another_beside_it_and_swapped():
    (wanted,) = rewritten(5, exclude_outbound_cidrs=FOUR)[2:][0]
    name = wanted.name
    assert find_preparation((wanted,), {name: wanted.elements}) == ()

    fresh = render_steps(find_preparation((wanted,), {})).splitlines()
    assert fresh[0] == f"create {name} hash:net family inet hashsize 64 maxelem 65536"
    assert set(fresh[1:]) == {f"add {name} {network}" for network in FOUR}

    changed = render_steps(find_preparation((wanted,), {name: frozenset({"10.9.0.0/16"}), f"{name}-new": frozenset()})).splitlines()
    assert changed[:2] == [f"destroy {name}-new", f"create {name}-new hash:net family inet hashsize 64 maxelem 65536"]
    assert changed[-1] == f"swap {name} {name}-new"


def test_the_way_back_swaps_what_is_still_there_and_fills_what_is_not():
    old, new, other = frozenset({"10.0.0.0/8"}), frozenset({"10.0.0.0/9"}), frozenset({"fd00::/8"})
    assert render_steps(find_return({"a": old, "b": old}, {"a": new, "a-new": old, "b": old, "b-new": new, "c": new})) == "swap a a-new\n"

    filled = render_steps(find_return({"x-4": old, "y-6": other}, {"y-6": new, "y-6-new": new})).splitlines()
    assert filled == [
        "create x-4 hash:net family inet hashsize 64 maxelem 65536",
        "add x-4 10.0.0.0/8",
        "destroy y-6-new",
        "create y-6-new hash:net family inet6 hashsize 64 maxelem 65536",
        "add y-6-new fd00::/8",
        "swap y-6 y-6-new",
    ]
    assert find_return({"a": unread("it was made with other options")}, {"a": new}) == (), "what is not known is not made"


def test_what_a_packet_meets_is_not_known_of_a_set_that_cannot_be_read():
    asking = parse_rule("-m set --match-set a dst -j RETURN", IPV4)
    assert resolve(asking, {"a": unread("it was made with other options")}) == asking


def test_every_element_that_is_wrong_is_a_difference_of_its_own():
    (wanted,) = rewritten(5, exclude_outbound_cidrs=FOUR)[2:][0]
    live = {wanted.name: wanted.elements - {"10.0.3.0/24"} | {"10.9.9.9"}, "netinit-nft-capture-6": frozenset({"::1"})}
    why = "  (these networks are not captured; --istio-service-exclude-cidr)"
    assert [difference.describe() for difference in compare_sets((wanted,), live)] == [
        f"missing: ipset {wanted.name}: 10.0.3.0/24{why}",
        f"extra: ipset {wanted.name}: 10.9.9.9{why}",
        "extra: ipset netinit-nft-capture-6: the whole set",
    ]
    assert surplus((wanted,), live) == ("netinit-nft-capture-6",)
    assert [d.describe() for d in compare_sets((wanted,), {})] == [f"missing: ipset {wanted.name}: the whole set{why}"]


def test_a_listed_rule_is_given_the_networks_of_its_set():
    listed = parse_rule("-m set --match-set mine dst -j RETURN", IPV4)
    (match,) = resolve(listed, {"other": frozenset(), "mine": frozenset({"10.0.0.0/8", "192.0.2.1"})}).matches
    assert [network.text for network in match.networks] == ["10.0.0.0/8", "192.0.2.1/32"]
    assert match.describe() == "it goes to one of the 2 networks in the set mine"
    assert resolve(listed, {}) == listed
    single = resolve(parse_rule("-m set --match-set mine dst -j RETURN", IPV6), {"mine": frozenset({"fd00::1", "fd00::/8"})}).matches[0]
    assert [network.text for network in single.networks] == ["fd00::/8", "fd00::1/128"]


def test_of_two_lists_for_one_use_the_first_is_a_set_and_the_second_stays_as_it_is():
    made = plan(Options(ipv6="on", exclude_outbound_cidrs=FOUR, outbound_cidrs="*"))

    def twice(chain):
        long = [rule for rule in chain.rules if rule.origin and rule.origin.option == "exclude_outbound_cidrs"]
        other = [rule.replace(matches=(Destination(networks=FOUR[:3]),)) for rule in long[:1]]
        return chain.replace(rules=(*chain.rules, *other))

    tables = tuple([table.replace(chains=tuple([twice(chain) for chain in table.chains])) for table in made.tables])
    new, wanted = use_sets(made.replace(tables=tables), "netinit-nft", 2)
    assert [len(one.elements) for one in wanted] == [len(FOUR)]
    assert rules_of(new, IPV4)[-3:] == [f"-d {network.text} -j RETURN" for network in FOUR[:3]]


@pytest.mark.parametrize("changes", [{"origin": None}, {"paired": True}])
def test_a_rule_of_no_option_or_one_that_goes_in_step_with_another_stays_as_it_is(changes):
    made = plan(Options(exclude_outbound_cidrs=FOUR, outbound_cidrs="*"))

    def change(chain):
        return chain.replace(rules=tuple([rule.replace(**changes) for rule in chain.rules]))

    tables = tuple([table.replace(chains=tuple([change(chain) for chain in table.chains])) for table in made.tables])
    assert use_sets(made.replace(tables=tables), "netinit-nft", 2)[1] == ()


HELD = {"a": frozenset({"10.0.0.0/24", "10.0.1.0/24"}), "b": frozenset({"10.0.2.0/24"}), "all": frozenset({"0.0.0.0/1", "128.0.0.0/1"})}


def listed(*texts):
    return as_listed({("nat", "A"): [resolve(parse_rule(text, IPV4), HELD) for text in texts]})[("nat", "A")]


@pytest.mark.parametrize(
    ("others", "order"),
    [
        ((), [0, 1]), (("-d 10.0.1.0/24 -j ACCEPT", "-d 10.0.0.0/24 -j ACCEPT"), [1, 0]), (("-d 10.0.1.0/24 -j ACCEPT", "-d 10.0.0.0/24 -j RETURN"), [0, 1]),
        (("-d 10.0.1.0/24 -j ACCEPT", "-d 10.0.0.0/24 -p tcp -j ACCEPT"), [0, 1]), (("-d 10.0.1.0/24 -j ACCEPT", "! -d 10.0.0.0/24 -j ACCEPT"), [0, 1]),
        (("-d 10.0.1.0/24 -j ACCEPT", "-s 10.0.0.0/24 -j ACCEPT"), [0, 1]),
    ],
)  # fmt: skip
def test_the_networks_of_a_set_stand_in_the_order_of_rules_for_each_of_them_if_there_are_any(others, order):
    first, *rest = listed("-m set --match-set a dst -p tcp -j RETURN", *others)
    protocol = parse_rule("-p tcp", IPV4).matches
    assert {*first.matches} == {*protocol, Destination(networks=tuple(FOUR[at] for at in order))}
    assert rest == [parse_rule(text, IPV4) for text in others]
    assert all(type(match) is not type(resolve(parse_rule("-m set --match-set a dst", IPV4), HELD).matches[0]) for match in first.matches)


def test_a_rule_without_a_match_is_about_the_whole_family():
    first, _ = listed("-m set --match-set all dst -j RETURN", "-j RETURN")
    assert first.matches == (Destination(networks=(Network.parse("0.0.0.0/0"),)),)


@pytest.mark.parametrize(
    ("exclude", "capture", "live", "given", "found"),
    [
        (FOUR, (), ["exclude-4"], 3, 3), (FOUR, (), ["exclude-4"], 5, 5), (FOUR, (), ["exclude-4"], 6, 5), (FOUR, (), [], 6, 6), (FOUR, (), [], 5, 0), (FOUR, (), [], 9, 9),
        (FOUR, SIX, ["exclude-4"], 3, 3), (FOUR, SIX, ["exclude-4"], 2, 5), (FOUR, SIX, ["exclude-4", "capture-6"], 2, 2), (FOUR, SIX, ["exclude-4", "capture-6"], 3, 2),
        (FOUR + SIX, (), ["exclude-6"], 2, 2), (FOUR[:1], (), ["exclude-4"], 1, 1), ((), (), [], 7, 7), ((), (), ["exclude-4"], 7, 7),
        (FOUR, (), ["exclude-4"], 1, 1), (FOUR, (), ["exclude-4"], 0, 5), (FOUR[:1], (), ["exclude-4"], 0, 1), ((), (), [], 0, 0), ((), (), [], 1, 1),
    ],
)  # fmt: skip
def test_the_threshold_is_the_one_that_is_given_if_just_those_lists_are_sets_with_it(exclude, capture, live, given, found):
    lists = {"exclude_outbound_cidrs": exclude, "outbound_cidrs": capture}
    assert find_threshold(lists, "x", {f"x-{name}": frozenset() for name in live}, given) == found


@pytest.mark.parametrize(("numbers", "kept"), [({"a": 7}, bytes((7, 0, 1, 0))), ({"b": 7}, None), ({"a": -1}, None), ({"b": 9, "a": 0}, bytes((0, 0, 1, 0))), ({}, None)])
def test_a_lookup_has_the_number_that_the_kernel_gave_the_set(numbers, kept):
    matches = parse_rule("-p tcp -m set --match-set a dst -j RETURN", IPV4)
    found = number_sets(WrittenRule(rule=matches, matches=matches.matches, comment="", text=""), numbers)
    structs = [one.kept for one in found.matches if one.xt().startswith("-m set")]
    assert [(one[0], one[1], one[2].rstrip(b"\0") == kept.rstrip(b"\0")) if one else None for one in structs] == [("set", 4, True) if kept else None]
    assert [one.xt() for one in found.matches] == [one.xt() for one in matches.matches]


# --- steps, contents and lookups --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "count", "is_ipv6", "hash_size", "most"),
    [("x-4", 0, False, 64, 65536), ("x-6", 64, True, 64, 65536), ("x-6-new", 65, True, 65, 65536), ("x-4-new", 65536, False, 65536, 65536), ("x-4", 65537, False, 65537, 65537), ("6", 1, False, 64, 65536)],
)
def test_a_set_is_made_for_its_family_and_as_large_as_its_elements(name, count, is_ipv6, hash_size, most):
    step = SetStep(kind=FILL, name=name, elements=frozenset(map(str, range(count))))
    assert (step.is_ipv6, step.hash_size, step.most_elements, step.other) == (is_ipv6, hash_size, most, "")


def test_a_set_as_planned_is_filled_again_only_if_it_is_forced():
    (wanted,) = rewritten(5, exclude_outbound_cidrs=FOUR)[2:][0]
    name, live = wanted.name, {wanted.name: wanted.elements}
    assert find_preparation((wanted,), live) == ()
    forced = (SetStep(kind=FILL, name=f"{name}-new", elements=wanted.elements), SetStep(kind=SWAP, name=name, other=f"{name}-new"))
    assert find_preparation((wanted,), live, force=True) == forced
    assert find_preparation((wanted,), {name: frozenset()}) == forced
    assert find_preparation((wanted,), {}) == (SetStep(kind=FILL, name=name, elements=wanted.elements),)
    left = {name: frozenset(), f"{name}-new": wanted.elements}
    assert find_preparation((wanted,), left) == (SetStep(kind=DESTROY, name=f"{name}-new"), *forced), "what a killed run left is not believed"


def test_all_sets_are_filled_before_the_first_is_swapped():
    first, second = rewritten(2, exclude_outbound_cidrs=FOUR + SIX, outbound_cidrs="*")[2]
    steps = find_preparation((first, second), {first.name: frozenset(), second.name: frozenset()})
    assert [(step.kind, step.name) for step in steps] == [(FILL, f"{first.name}-new"), (FILL, f"{second.name}-new"), (SWAP, first.name), (SWAP, second.name)]


def test_the_way_back_leaves_alone_what_is_as_it_was():
    old, new = frozenset({"10.0.0.0/8"}), frozenset({"10.0.0.0/9"})
    assert find_return({"a": old}, {"a": old, "b": new}) == find_return({}, {"b": new}) == ()
    assert find_return({"a": old}, {"a": unread("why"), "a-new": old}) == (SetStep(kind=SWAP, name="a", other="a-new"),)
    assert find_return({"a": old}, {}) == (SetStep(kind=FILL, name="a", elements=old),)


def test_a_set_that_could_not_be_read_says_why_and_is_known_by_that():
    assert unread("it was made with other options") == frozenset({"unknown elements: it was made with other options"})
    assert [is_unread(one) for one in (unread("x"), unread("x") | {"10.0.0.0/8"}, frozenset({"10.0.0.0/8"}), frozenset())] == [True, True, False, False]


@pytest.mark.parametrize(
    ("elements", "networks"),
    [
        (("10.0.0.1", "fd00::1"), ["10.0.0.1/32", "fd00::1/128"]), (("0.0.0.0/1", "128.0.0.0/1"), ["0.0.0.0/0"]), (("0.0.0.0/1",), ["0.0.0.0/1"]), (("8000::/1", "::/1", "fd00::1"), ["::/0", "fd00::1/128"]),
        (("0.0.0.0/1", "128.0.0.0/1", "10.0.0.0/8"), ["0.0.0.0/0", "10.0.0.0/8"]), ((), []),
    ],
)  # fmt: skip
def test_a_lookup_is_about_the_networks_that_the_set_was_given(elements, networks):
    (match,) = resolve(parse_rule("-m set --match-set a dst", IPV4), {"a": frozenset(elements)}).matches
    assert [network.text for network in match.networks] == networks
    assert (match.name, match.place, match.each()) == ("a", EXTENSION, (UnknownMatch(text="-m set --match-set a dst"),))


@pytest.mark.parametrize("text", ["-m set --match-set b dst", "-m set --match-set a src", "-m set ! --match-set a dst", "-m set --match-set a dst,dst", "-d 10.0.0.1"])
def test_a_lookup_in_another_set_or_of_another_side_stays_as_it_is(text):
    rule = parse_rule(f"-p tcp {text} -j RETURN", IPV4)
    assert resolve(rule, {"a": frozenset({"10.0.0.0/8"})}) == rule
    assert number_sets(WrittenRule(rule=rule, matches=rule.matches, comment="", text=""), {"a": 1}).matches == rule.matches


def test_a_lookup_among_others_is_replaced_in_its_place():
    rule = parse_rule("-p tcp -m set --match-set b dst -m mark --mark 1 -m set --match-set a dst -j RETURN", IPV4)
    found = resolve(rule, {"a": frozenset({"10.0.0.0/8"}), "c": frozenset()})
    assert [type(match).__name__ for match in found.matches] == ["Protocol", "UnknownMatch", "Mark", "SetDestination"]
    assert found.matches[:3] == rule.matches[:3]
    assert (found.target, found.families) == (rule.target, rule.families)


def test_a_rule_without_a_lookup_is_the_same_one_with_numbers():
    rule = parse_rule("-p tcp -j RETURN", IPV4)
    written = WrittenRule(rule=rule, matches=rule.matches, comment="", text="")
    assert number_sets(written, {"a": 1}) is written


def test_a_list_is_a_set_from_one_network_above_the_threshold_and_negated_never():
    assert [len(rewritten(threshold, exclude_outbound_cidrs=FOUR)[2]) for threshold in (0, 5, 6, 7)] == [1, 1, 0, 0]
    made = plan(Options(exclude_outbound_cidrs=FOUR, outbound_cidrs="*"))

    def negate(rule):
        return rule.replace(matches=tuple([one.replace(negated=True) if isinstance(one, Destination) else one for one in rule.matches]))

    tables = tuple([table.replace(chains=tuple([chain.replace(rules=tuple(map(negate, chain.rules))) for chain in table.chains])) for table in made.tables])
    new = made.replace(tables=tables)
    assert use_sets(new, "x", 2) == (new, ())


def test_a_set_has_the_rule_that_asks_for_it_and_its_networks_in_their_order():
    old, new, (wanted,) = rewritten(2, exclude_outbound_cidrs=FOUR, outbound_cidrs="*")
    assert (wanted.networks, wanted.rule.comment) == (FOUR, "these networks are not captured")
    assert wanted.rule.origin.option == "exclude_outbound_cidrs"
    asking = [rule for _, _, rule in new.walk() if rule not in [one for _, _, one in old.walk()]]
    assert [[match.networks for match in rule.matches if isinstance(match, Destination)] for rule in asking] == [[FOUR]] * len(asking) != []


def test_a_list_that_stands_in_two_places_is_one_set_for_both():
    equal = tuple(Network.parse(network.text) for network in FOUR)  # the same list, read a second time

    def copy(chain):
        long = [rule for rule in chain.rules if any(getattr(match, "networks", ()) == FOUR for match in rule.matches)]
        return chain.replace(rules=(*chain.rules, *[rule.replace(matches=(Destination(networks=equal),)) for rule in long]))

    made = plan(Options(exclude_outbound_cidrs=FOUR, outbound_cidrs="*"))
    twice = made.replace(tables=tuple([table.replace(chains=tuple(map(copy, table.chains))) for table in made.tables]))
    new, wanted = use_sets(twice, "x", 2)
    assert len(wanted) == 1
    assert not [text for text in rules_of(new, IPV4) if FOUR[0].text in text]


def test_one_network_is_a_list_too():
    _, new, wanted = rewritten(0, exclude_outbound_cidrs=FOUR[:1] + SIX[:1], outbound_cidrs="*")
    assert [(one.name, one.elements) for one in wanted] == [("netinit-nft-exclude-4", frozenset({FOUR[0].text})), ("netinit-nft-exclude-6", frozenset({SIX[0].text}))]
    assert "-m set --match-set netinit-nft-exclude-6 dst -j RETURN" in rules_of(new, IPV6)


def test_what_else_a_rule_asks_stays_in_its_place_whether_its_list_is_a_set_or_not():
    origin = next(rule.origin for _, _, rule in plan(Options(exclude_outbound_cidrs=FOUR, outbound_cidrs="*")).walk() if rule.origin and rule.origin.option == "exclude_outbound_cidrs")
    rules = [Rule(matches=(InInterface(names=("a",)), Destination(networks=networks), Mark(value=1)), target=Return(), origin=origin) for networks in (FOUR, FOUR[:3], FOUR[3:4])]
    made = plan(Options()).replace(tables=(Table(name="nat", chains=(Chain(name="X", rules=tuple(rules)),)),))
    new, wanted = use_sets(made, "x", 2)
    found = [rule.matches for _, _, rule in new.walk()]
    assert [(one[0], one[2]) for one in found] == [(InInterface(names=("a",)), Mark(value=1))] * 3
    assert [type(one[1]).__name__ for one in found] == ["SetDestination", "Destination", "Destination"]
    assert [one[1].networks for one in found] == [FOUR, FOUR[:3], FOUR[3:4]]
    assert [one.rule for one in wanted] == rules[:1]
