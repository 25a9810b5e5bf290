"""From what is listed to what is wanted: the exact input for iptables-restore, step by step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from core import (
    IPV4,
    IPV6,
    Options,
    family_rules,
    owned_rules,
    plan,
    render_restore,
    target_from_listing,
    target_from_plan,
    write_plan,
    write_transition,
)
from listings import listing_of, make_listing
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.transition import text_is_complete
from netinit.rules.iptables.write import DecodedRule, ListedTable
from netinit.rules.rule_patterns import layout_patterns
from strategies import made_options

REDIRECT = plan(Options(inbound_ports="*", ipv6="on"))
TPROXY = plan(Options(inbound_ports="*", inbound_mode="TPROXY", ipv6="on"))


def owned_of(listing, made=None):
    return owned_rules(IPV4, {IPV4: listing}, write_plan(made, IPV4) if made else {}, layout_patterns)


def unchanged_tables(listing, made):
    rules = family_rules(listing, owned_of(listing, made), write_plan(made, IPV4))
    return [table for table in rules.tables if rules.is_planned(table)]


def transition(text, made=None, **more):
    """The lines that bring a listing to the plan; to nothing of ours without one."""
    listing = make_listing(text)
    target = target_from_plan(write_plan(made, IPV4)) if made else {}
    return write_transition(target, listing, owned_of(listing, made), **more).splitlines()


@settings(max_examples=60)
@given(made_options())
def test_from_nothing_it_is_the_rendered_plan(options):
    made = plan(options)
    rendered = [line for line in render_restore(made, [IPV4]).splitlines() if not line.startswith("#")]
    assert sorted(transition("", made)) == sorted(rendered)
    rules = [line for line in rendered if line.startswith(("-A", "-I"))]
    assert [line for line in transition("", made) if line.startswith(("-A", "-I"))] == rules


def test_to_nothing_it_deletes_our_rules_and_chains_and_names_no_others():
    text = "nat OUTPUT -p tcp -j THEIRS\nnat OUTPUT -p udp -j ISTIO_OUTPUT\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT -j RETURN\nnat ISTIO_REDIRECT\nnat THEIRS"
    assert transition(text) == [
        "*nat", ":ISTIO_OUTPUT - [0:0]", ":ISTIO_REDIRECT - [0:0]", "-D OUTPUT -p udp -j ISTIO_OUTPUT", "-D OUTPUT -j ISTIO_OUTPUT",
        "-X ISTIO_OUTPUT", "-X ISTIO_REDIRECT", "COMMIT",
    ]  # fmt: skip


def test_nothing_of_ours_makes_no_line():
    assert transition("nat OUTPUT -j THEIRS\nnat THEIRS\nfilter INPUT") == []


def test_from_other_rules_of_ours_chains_are_flushed_jumps_replaced_and_chains_deleted_that_are_not_wanted():
    text = "nat OUTPUT -p tcp -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT -j RETURN\nnat ISTIO_DROP -j DROP"
    lines = transition(text, plan(Options(ipv6="on")))
    assert lines[:7] == [
        "*nat", ":ISTIO_INBOUND - [0:0]", ":ISTIO_REDIRECT - [0:0]", ":ISTIO_IN_REDIRECT - [0:0]", ":ISTIO_OUTPUT - [0:0]", ":ISTIO_DROP - [0:0]",
        "-D OUTPUT -p tcp -j ISTIO_OUTPUT",
    ]  # fmt: skip
    assert lines.count("-A OUTPUT -j ISTIO_OUTPUT") == 1
    assert lines[-2:] == ["-X ISTIO_DROP", "COMMIT"]


def test_inserted_rules_stand_at_the_top_by_number_and_the_others_behind_what_is_there():
    made = plan(
        Options(virtual_interfaces=("tap0", "tap1"), exclude_interfaces=("eth1",), outbound_cidrs="*", ipv6="on")
    )
    lines = [line for line in transition("nat PREROUTING -j THEIRS\nnat THEIRS", made) if " PREROUTING " in line]
    assert lines == [
        "-I PREROUTING 1 -i tap1 -j ISTIO_REDIRECT",
        "-I PREROUTING 2 -i tap0 -j ISTIO_REDIRECT",
        "-I PREROUTING 3 -i tap1 -j RETURN",
        "-I PREROUTING 4 -i tap0 -j RETURN",
        "-A PREROUTING -i eth1 -j RETURN",
    ]


def test_where_an_equal_rule_of_others_stands_first_ours_is_deleted_by_number_from_the_end():
    rule = "-i eth1 -j RETURN"
    text = f"nat PREROUTING {rule}\nnat PREROUTING {rule}\nnat PREROUTING -p tcp -j ISTIO_INBOUND\nnat OUTPUT -o eth1 -j RETURN\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT\nnat ISTIO_INBOUND"
    assert [line for line in transition(text) if line.startswith("-D")] == [
        "-D PREROUTING 2",
        "-D PREROUTING -p tcp -j ISTIO_INBOUND",
        "-D OUTPUT -o eth1 -j RETURN",
        "-D OUTPUT -j ISTIO_OUTPUT",
    ]


def test_several_deletions_by_number_go_from_the_end():
    listing = make_listing(
        "nat PREROUTING -i a -j RETURN\nnat PREROUTING -i b -j RETURN\nnat PREROUTING -i a -j RETURN\nnat PREROUTING -i b -j RETURN"
    )
    assert write_transition({}, listing, {("nat", "PREROUTING"): [2, 3]}).splitlines() == [
        "*nat",
        "-D PREROUTING 4",
        "-D PREROUTING 3",
        "COMMIT",
    ]


def test_equal_rules_of_ours_are_deleted_by_their_text():
    listing = make_listing("nat PREROUTING -i a -j RETURN\nnat PREROUTING -i a -j RETURN")
    assert (
        write_transition({}, listing, {("nat", "PREROUTING"): [0, 1]}).splitlines()[1:3]
        == ["-D PREROUTING -i a -j RETURN"] * 2
    )


def test_tables_that_are_right_are_skipped():
    text = listing_of(TPROXY, IPV4)
    listing = make_listing(text)
    assert unchanged_tables(listing, TPROXY) == ["mangle", "nat", "filter"]
    assert transition(text, TPROXY, skip=["mangle", "nat", "filter"]) == []
    assert transition(text, TPROXY, skip=["mangle"])[0] == "*nat"
    changed = make_listing(text.replace("--to-ports 15001", "--to-ports 15009"))
    assert unchanged_tables(changed, TPROXY) == ["mangle", "filter"]


def tables(lines):
    return [line for line in lines if line.startswith("*")]


def test_a_table_that_stops_capturing_comes_last():
    text = listing_of(TPROXY, IPV4)
    assert tables(transition(text, REDIRECT)) == ["*nat", "*filter", "*mangle"]
    drop_only = plan(Options(inbound_ports="*", drop_invalid=True, ipv6="on"))  # mangle stays, its TPROXY does not
    assert tables(transition(text, drop_only)) == ["*nat", "*filter", "*mangle"]
    assert tables(transition(text, TPROXY)) == ["*mangle", "*nat", "*filter"]
    assert tables(transition(listing_of(REDIRECT, IPV4), TPROXY)) == ["*filter", "*mangle", "*nat", "*filter"]
    assert tables(transition("mangle OUTPUT -j THEIRS\nmangle THEIRS", REDIRECT)) == ["*nat", "*filter"]


def test_what_refuses_what_nat_has_not_redirected_goes_before_nat_changes_and_comes_after():
    other = plan(Options(inbound_ports="80", ipv6="on", reject_quic=True, outbound_cidrs="*"))
    jump = next(text for text in write_plan(other, IPV4)["filter"]["INPUT"].texts)
    text = listing_of(other, IPV4).replace(f"filter INPUT {jump}", f"filter INPUT -p tcp -j ACCEPT\nfilter INPUT {jump}")
    lines = transition(text, REDIRECT)
    assert tables(lines) == ["*filter", "*nat", "*filter"]
    first = lines[: lines.index("COMMIT")]
    assert all(line.startswith("-D ") for line in first[1:]), first
    assert f"-D INPUT {jump}" in first
    assert not any("udp" in line for line in first), "QUIC is refused all the time"
    assert not set(first[1:]) & set(lines[len(first) :]), "each rule is deleted once"


# --- the way back -----------------------------------------------------------------------------------------------------


def test_the_way_back_puts_each_of_our_rules_at_its_place_among_those_of_others():
    text = "nat OUTPUT -p udp -j ISTIO_OUTPUT\nnat OUTPUT -j THEIRS\nnat OUTPUT -j ISTIO_OUTPUT\nnat ISTIO_OUTPUT -j RETURN\nnat ISTIO_OUTPUT -j ACCEPT\nnat THEIRS\nfilter INPUT -j THEIRS\nfilter THEIRS"
    listing = make_listing(text)
    target, lost = target_from_listing(family_rules(listing, owned_of(listing)))
    assert lost == ()
    assert target == {
        "nat": {
            "OUTPUT": [(1, "-p udp -j ISTIO_OUTPUT"), (3, "-j ISTIO_OUTPUT")],
            "ISTIO_OUTPUT": [(0, "-j RETURN"), (0, "-j ACCEPT")],
        }
    }
    assert write_transition(target, {}, {}).splitlines() == [
        "*nat", ":ISTIO_OUTPUT - [0:0]", "-I OUTPUT 1 -p udp -j ISTIO_OUTPUT", "-I OUTPUT 3 -j ISTIO_OUTPUT",
        "-A ISTIO_OUTPUT -j RETURN", "-A ISTIO_OUTPUT -j ACCEPT", "COMMIT",
    ]  # fmt: skip


# --- a run that was killed --------------------------------------------------------------------------------------------


def interrupted(text, made=TPROXY):
    listing = make_listing(text)
    return family_rules(listing, owned_of(listing, made), write_plan(made, IPV4)).is_interrupted()


def test_the_first_tables_whole_and_nothing_else_is_what_a_killed_first_run_leaves():
    text = listing_of(TPROXY, IPV4)
    mangle = "\n".join(line for line in text.splitlines() if line.startswith("mangle"))
    nat = "\n".join(line for line in text.splitlines() if line.startswith("nat"))
    assert interrupted("")
    assert interrupted(mangle)
    assert interrupted(f"{mangle}\nnat OUTPUT -j THEIRS\nnat THEIRS")  # foreign rules mean nothing
    assert interrupted(text)
    assert not interrupted(nat)  # the second without the first
    assert "/32" in mangle
    assert interrupted(mangle.replace("/32", ""))  # spelled as another version does
    assert not interrupted(mangle.replace("0x539", "0x7"))
    assert not interrupted(mangle, REDIRECT)
    assert not interrupted(f"{mangle}\nraw OUTPUT -j ISTIO_OUTPUT_DNS\nraw ISTIO_OUTPUT_DNS")


def test_a_table_that_another_version_lists_in_its_own_words_is_unchanged():
    made = plan(Options(outbound_cidrs="*"))
    listing = make_listing(listing_of(made, IPV4).replace("-d 127.0.0.1/32 ", "-d 127.0.0.1 "))
    assert "-d 127.0.0.1 -j RETURN" in listing["nat"].rules["ISTIO_OUTPUT"]
    assert unchanged_tables(listing, made) == ["nat", "filter"]


@pytest.mark.parametrize("family", [IPV4, IPV6])
def test_the_plan_s_target_has_the_positions_of_inserted_rules_alone(family):
    made = plan(Options(virtual_interfaces=("tap0",), exclude_interfaces=("eth1",), ipv6="on"))
    target = target_from_plan(write_plan(made, family))
    assert target["nat"]["PREROUTING"] == [(1, "-i tap0 -j RETURN"), (0, "-i eth1 -j RETURN")]


def test_the_way_back_names_each_rule_that_is_no_line_and_keeps_the_places_of_the_others():
    texts = [
        '-m comment --comment "a\x01" -j ISTIO_OUTPUT',  # written without its comment
        '-m string --string "\x01" -j ISTIO_OUTPUT',
        "-j THEIRS",
        '-m string --string "\x02" -j ISTIO_OUTPUT',
        '-m comment --comment "fine" -p tcp -j ISTIO_OUTPUT',
    ]
    own = ["-p tcp -j RETURN", '-m string --string "\x03" -j DROP']
    listing = {"nat": ListedTable(policies={"OUTPUT": "ACCEPT", "ISTIO_OUTPUT": "-"}, rules={"OUTPUT": texts, "ISTIO_OUTPUT": own})}
    target, lost = target_from_listing(family_rules(listing, {("nat", "OUTPUT"): [0, 1, 3, 4]}))
    assert target == {"nat": {"OUTPUT": [(1, "-j ISTIO_OUTPUT"), (3, texts[4])], "ISTIO_OUTPUT": [(0, own[0])]}}
    assert lost == ("nat OUTPUT rule 2", "nat OUTPUT rule 4", "nat ISTIO_OUTPUT rule 2")


# --- deletions by number, and rules of the kernel ---------------------------------------------------------------------

BETWEEN = "nat OUTPUT -p tcp -j THEIRS\nnat OUTPUT -p udp -j ISTIO_OUTPUT\nnat OUTPUT -j THEIRS\nnat OUTPUT -j ISTIO_OUTPUT\nnat PREROUTING -p tcp -j ISTIO_INBOUND\nnat ISTIO_OUTPUT\nnat ISTIO_INBOUND\nnat THEIRS"


def test_where_the_kernel_may_hold_other_rules_than_listed_ours_are_deleted_by_their_numbers_from_the_end():
    assert transition(BETWEEN, by_number=True) == [
        "*nat", ":ISTIO_OUTPUT - [0:0]", ":ISTIO_INBOUND - [0:0]", "-D PREROUTING 1", "-D OUTPUT 4", "-D OUTPUT 2", "-X ISTIO_OUTPUT", "-X ISTIO_INBOUND", "COMMIT",
    ]  # fmt: skip
    assert transition(BETWEEN)[3:6] == ["-D PREROUTING -p tcp -j ISTIO_INBOUND", "-D OUTPUT -p udp -j ISTIO_OUTPUT", "-D OUTPUT -j ISTIO_OUTPUT"]


def test_what_rejects_is_deleted_by_number_first_and_the_others_by_what_their_numbers_are_then():
    rules = ["-j ISTIO_QUIC", "-p tcp -j ISTIO_INBOUND", "-j THEIRS", "-p udp -j ISTIO_QUIC", "-p tcp -j ISTIO_OUTPUT", "-j ISTIO_PRERT"]
    chains = ["THEIRS", "ISTIO_QUIC", "ISTIO_INBOUND", "ISTIO_OUTPUT", "ISTIO_PRERT"]
    listing = make_listing("\n".join([*[f"filter INPUT {rule}" for rule in rules], *[f"filter {chain}" for chain in chains], "filter OUTPUT -j ISTIO_OUTPUT", "filter FORWARD -j THEIRS"]))
    target = {"nat": {"OUTPUT": [(0, "-j ISTIO_OUTPUT")], "ISTIO_OUTPUT": []}, "filter": {"INPUT": [(0, "-j ISTIO_QUIC")], "ISTIO_QUIC": []}}
    owned = {("filter", "INPUT"): [0, 1, 3, 4, 5], ("filter", "OUTPUT"): [0]}
    nat = ["*nat", ":ISTIO_OUTPUT - [0:0]", "-A OUTPUT -j ISTIO_OUTPUT", "COMMIT"]
    declared = ["*filter", ":ISTIO_QUIC - [0:0]", *[f":{chain} - [0:0]" for chain in chains[2:]]]
    ending = ["-A INPUT -j ISTIO_QUIC", *[f"-X {chain}" for chain in chains[2:]], "COMMIT"]
    assert write_transition(target, listing, owned, by_number=True).splitlines() == [
        "*filter", "-D INPUT 6", "-D INPUT 5", "-D INPUT 2", "-D OUTPUT 1", "COMMIT", *nat, *declared, "-D INPUT 3", "-D INPUT 1", *ending,
    ]  # fmt: skip
    assert write_transition(target, listing, owned).splitlines() == [
        "*filter", *[f"-D INPUT {rules[at]}" for at in (1, 4, 5)], "-D OUTPUT -j ISTIO_OUTPUT", "COMMIT", *nat, *declared, *[f"-D INPUT {rules[at]}" for at in (0, 3)], *ending,
    ]  # fmt: skip
    assert owned == {("filter", "INPUT"): [0, 1, 3, 4, 5], ("filter", "OUTPUT"): [0]}, "what was given stays as it is"
    assert listing["filter"].rules["INPUT"] == rules


def test_a_table_of_which_nothing_rejects_has_no_commit_before_the_others():
    listing = make_listing("filter INPUT -j ISTIO_QUIC\nfilter ISTIO_QUIC")
    target = {"nat": {"OUTPUT": [(0, "-j ISTIO_OUTPUT")], "ISTIO_OUTPUT": []}, "filter": {"ISTIO_QUIC": []}}
    lines = write_transition(target, listing, {("filter", "INPUT"): [0]}).splitlines()
    assert tables(lines) == ["*nat", "*filter"]
    assert lines[4:] == ["*filter", ":ISTIO_QUIC - [0:0]", "-D INPUT -j ISTIO_QUIC", "COMMIT"]


def decoded(text, meaning=None):
    """A rule of the kernel with its text, which may not show all of it."""
    return DecodedRule(text, parse_rule(meaning or text, IPV4))


@pytest.mark.parametrize(
    ("text", "is_complete"),
    [
        ("-p tcp -j RETURN", True), ('-m comment --comment "open', True), (decoded("-p tcp -j RETURN"), True), (decoded("-d 10.0.0.1 -j RETURN", "-d 10.0.0.1/32 -j RETURN"), True),
        (decoded("-p tcp -j RETURN", "-p udp -j RETURN"), False), (decoded("-p tcp -j RETURN", "-p tcp -j ACCEPT"), False), (decoded('-m comment --comment "open', "-p tcp"), False),
    ],
)  # fmt: skip
def test_a_text_is_complete_if_it_is_read_as_what_the_kernel_has(text, is_complete):
    assert text_is_complete(text) is is_complete


def test_a_rule_of_which_the_text_is_not_complete_is_deleted_by_number_and_cannot_come_back():
    short = decoded("-j ISTIO_OUTPUT", "-p udp -j ISTIO_OUTPUT")
    listing = {"nat": ListedTable(policies={"OUTPUT": "ACCEPT", "ISTIO_OUTPUT": "-"}, rules={"OUTPUT": [decoded("-j THEIRS"), short, decoded("-p tcp -j ISTIO_OUTPUT")], "ISTIO_OUTPUT": [short]})}
    owned = {("nat", "OUTPUT"): [1, 2]}
    assert write_transition({}, listing, owned).splitlines()[2:4] == ["-D OUTPUT 2", "-D OUTPUT -p tcp -j ISTIO_OUTPUT"]
    target, lost = target_from_listing(family_rules(listing, owned))
    assert target == {"nat": {"OUTPUT": [(2, "-p tcp -j ISTIO_OUTPUT")], "ISTIO_OUTPUT": []}}
    assert lost == ("nat OUTPUT rule 2", "nat ISTIO_OUTPUT rule 1")


def test_a_table_without_rules_of_ours_is_no_target():
    listing = make_listing("nat OUTPUT -j THEIRS\nnat THEIRS\nfilter ISTIO_DROP")
    assert target_from_listing(family_rules(listing, {})) == ({"filter": {"ISTIO_DROP": []}}, ())
