"""Rules of the kernel in iptables' words: names that could be read as more, what is not understood, and what may be written back."""

from __future__ import annotations

import struct

import pytest

from core import family_rules, owned_rules
from netinit.base.net import IPV4, IPV6
from netinit.base.snapshot import INET, NftChain, NftRule, Snapshot
from netinit.rules.foreign_targets import Several, UnknownTarget
from netinit.rules.iptables.keys import target_of
from netinit.rules.iptables.parse import normalise, parse_rule
from netinit.rules.iptables.transition import target_from_listing, text_is_complete, write_transition
from netinit.rules.iptables.write import ListedTable
from netinit.rules.live_listing import list_snapshot, name_sets, write_live
from netinit.rules.marking_targets import LogTarget
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.packet import InInterface, OutInterface, Protocol
from netinit.rules.model import Rule
from netinit.rules.rule_builder import expression
from netinit.rules.targets import Accept, Jump, Return
from rule_encodings import encode_rule


def live(*matches, target=None, comment="", sets=None):
    rule = Rule(matches=matches, target=target or Return(), comment=comment, origin=None, families=(IPV4,))
    return write_live(name_sets(rule, sets or {}), IPV4)


@pytest.mark.parametrize("name", ["lo -j RETURN", 'x"', "x\n", "x\\", "x\udcff", "x\u2028", "", "-j"])
def test_a_name_of_an_interface_or_a_chain_is_read_as_nothing_but_a_name(name):
    for text in (live(OutInterface(names=(name,))), live(target=Jump(chain=name))):
        assert text not in ("-o lo -j RETURN", "-j RETURN", "")
        assert target_of(normalise(text, IPV4)) not in ("ISTIO_OUTPUT", "ACCEPT")
        if name:
            assert normalise(str(text), IPV4) == normalise(text, IPV4), "iptables reads the quotes as we do"
    assert target_of(normalise(live(InInterface(names=(name,))), IPV4)) == "RETURN"


def test_what_others_write_into_a_rule_is_no_jump_of_it():
    hostile = 'x" -j ISTIO_OUTPUT "'
    assert target_of(normalise(live(target=LogTarget(prefix=hostile)), IPV4)) == "LOG"
    assert target_of(normalise(live(comment=hostile, target=Accept()), IPV4)) == "ACCEPT"
    assert target_of(normalise(live(UnknownMatch(text="in the set x -j ISTIO_OUTPUT"), target=Accept()), IPV4)) == "ACCEPT"
    assert target_of(normalise(live(target=UnknownTarget(text="a verdict in the map m -j ISTIO_OUTPUT")), IPV4)) != "ISTIO_OUTPUT"
    assert target_of(normalise(live(target=Jump(chain="y -j ISTIO_OUTPUT")), IPV4)) != "ISTIO_OUTPUT"


def test_what_is_not_understood_equals_no_rule_of_a_plan_and_is_never_written():
    """The module socket with flags that nobody knows is listed like the one that TPROXY needs."""
    planned = "-p tcp -m socket -j ISTIO_DIVERT"
    known = live(Protocol(name="tcp"), *parse_rule("-m socket", IPV4).matches, target=Jump(chain="ISTIO_DIVERT"))
    flags = live(Protocol(name="tcp"), UnknownMatch(text="-m socket", kept=("socket", 3, b"\x80")), target=Jump(chain="ISTIO_DIVERT"))
    assert (str(known), text_is_complete(known)) == (planned, True)
    assert (str(flags), text_is_complete(flags)) == ("-p tcp -m socket [...] -j ISTIO_DIVERT", False)
    assert normalise(flags, IPV4) != normalise(planned, IPV4)
    assert not text_is_complete(live(target=Several(targets=(Accept(), Return()))))
    assert not text_is_complete(live(Protocol(name="0"))), "iptables reads protocol 0 as every protocol"
    assert text_is_complete("-j RETURN")


def test_a_jump_to_ours_with_an_unknown_match_is_deleted_by_its_number_and_named_where_it_cannot_come_back():
    unknown = live(UnknownMatch(text="payload 0 0 == 07"), target=Jump(chain="ISTIO_OUTPUT"))
    plain = live(target=Jump(chain="ISTIO_OUTPUT"))
    table = ListedTable(policies={"OUTPUT": "ACCEPT", "ISTIO_OUTPUT": "-"}, rules={"OUTPUT": [unknown, plain], "ISTIO_OUTPUT": []})
    owned = owned_rules(IPV4, {IPV4: {"nat": table}}, {}, lambda: pytest.fail("both are known by their jump"))
    assert owned == {("nat", "OUTPUT"): [0, 1]}
    script = write_transition({}, {"nat": table}, owned)
    assert script.split("\n")[2:4] == ["-D OUTPUT 1", "-D OUTPUT -j ISTIO_OUTPUT"]
    assert target_from_listing(family_rules({"nat": table}, owned))[1] == ("nat OUTPUT rule 1",)


@pytest.mark.parametrize(
    ("dimensions", "flags", "words"),
    [(1, 0, "--match-set theirs dst"), (1, 2, "--match-set theirs src"), (1, 1, "! --match-set theirs dst"), (2, 4, "--match-set theirs dst,src")],
)
def test_address_sets_have_their_names(dimensions, flags, words):
    match = UnknownMatch(text="-m set", kept=("set", 4, struct.pack("=HBB", 7, dimensions, flags) + bytes(40)))
    assert str(live(match, sets={7: "theirs"})) == f"-m set {words} -j RETURN"
    assert text_is_complete(live(match, sets={7: "theirs"}))
    for unknown in (live(match, sets={8: "other"}), live(match.replace(kept=("set", 4, struct.pack("=HBBI", 7, 1, 0, 9))), sets={7: "theirs"})):
        assert str(unknown) == "-m set [...] -j RETURN", "another set, or one that asks more"
    assert '"a b -j DROP"' in live(match, sets={7: "a b -j DROP"})


def test_a_snapshot_lists_the_tables_of_iptables_and_leaves_out_the_other_family():
    chains = (
        NftChain(family=2, table="nat", name="OUTPUT", kind="nat", hook=3, priority=-100, policy=0),
        NftChain(family=2, table="nat", name="EVIL", kind="nat", hook=3, priority=-150),
        NftChain(family=2, table="theirs", name="OUTPUT", kind="nat", hook=3),
    )
    rules = (NftRule(family=2, table="nat", chain="EVIL", handle=4, expressions=b"\x01"), NftRule(family=2, table="theirs", chain="OUTPUT", handle=1, expressions=b""))
    listing = list_snapshot(Snapshot(chains=chains, rules=rules), IPV4, legacy=False)
    assert listing == {"nat": ListedTable(policies={"OUTPUT": "DROP", "EVIL": "-"}, rules={"OUTPUT": [], "EVIL": listing["nat"].rules["EVIL"]})}
    assert listing["nat"].rules["EVIL"][0].startswith("[malformed] -j [malformed")
    assert list_snapshot(Snapshot(chains=chains, rules=rules), IPV6, legacy=False) == {}


def test_a_rule_that_serves_the_other_family_alone_is_listed_and_not_as_one_of_iptables():
    data = encode_rule(Rule(matches=(), target=Accept(), origin=None, families=(IPV6,)), INET, [])
    rule = NftRule(family=2, table="nat", chain="OUTPUT", handle=4, expressions=data)
    chain = NftChain(family=2, table="nat", name="OUTPUT", kind="nat", hook=3, priority=-100)
    (listed,) = list_snapshot(Snapshot(chains=(chain,), rules=(rule,)), IPV4, legacy=False)["nat"].rules["OUTPUT"]
    assert (str(listed), text_is_complete(listed)) == ("[never]", False)
    assert (listed.rule.matches, listed.rule.target, listed.rule.families) == ((UnknownMatch(text="[never]"),), Several(targets=()), (IPV4,))


def test_a_snapshot_s_address_sets_have_their_names_in_its_rules():
    match = expression(b"match", (1, b"set\0"), (2, 4), (3, struct.pack("=HBB", 7, 1, 0) + bytes(40)))
    data = match + encode_rule(Rule(matches=(), target=Accept(), origin=None, families=(IPV4,)), 2, [])
    chain = NftChain(family=2, table="nat", name="OUTPUT", kind="nat", hook=3, priority=-100)
    snapshot = Snapshot(chains=(chain,), rules=(NftRule(family=2, table="nat", chain="OUTPUT", handle=4, expressions=data),), address_sets=((7, "theirs"),))
    assert list_snapshot(snapshot, IPV4, legacy=False)["nat"].rules["OUTPUT"] == ["-m set --match-set theirs dst -j ACCEPT"]
