"""Rules of the kernel in iptables' words: names that could be read as more, what is not understood, and what may be written back."""

from __future__ import annotations

import struct

import pytest

from core import family_rules, owned_rules
from netinit.base.net import IPV4, IPV6, Network
from netinit.base.netlink_attributes import write_attribute
from netinit.base.snapshot import INET, SET_MAP, LegacyTable, NftChain, NftElement, NftRule, NftSet, Snapshot
from netinit.rules.foreign_targets import Several, UnknownTarget
from netinit.rules.iptables.keys import target_of
from netinit.rules.iptables.parse import normalise, parse_rule
from netinit.rules.iptables.transition import target_from_listing, text_is_complete, write_transition
from netinit.rules.iptables.write import ListedTable
from netinit.rules.live_listing import list_snapshot, name_sets, write_live
from netinit.rules.marking_targets import LogTarget
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import Destination, InInterface, OutInterface, Port, Protocol, Source
from netinit.rules.model import Rule
from netinit.rules.numbers import NF_ACCEPT, NF_DROP
from netinit.rules.rule_builder import RuleBuilder, be32, expression
from netinit.rules.structs import ACCEPTING, DROPPING, RETURNING
from netinit.rules.targets import Accept, Drop, Jump, Reject, Return
from netinit.rules.xtables.building import ENTRY_FORMS, EntryChain, TableEntry, extension, make_entry
from rule_encodings import encode_rule, join_table

NETWORKS = (Network.parse("10.0.0.0/8"), Network.parse("192.0.2.1/32"))


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


# ---- the whole listing of a snapshot, and what is shown of matches and targets ----------------------------------------------


def legacy_entry(version, verdict):
    form = ENTRY_FORMS[version]
    return TableEntry(data=make_entry(form, bytes(form.packet), b"", extension("", 0, struct.pack("=ii", verdict, 0))))


def legacy_table(version, name, verdict):
    chains = [EntryChain(name="OUTPUT", hook=3, entries=(legacy_entry(version, DROPPING), legacy_entry(version, verdict))), EntryChain(name="THEIRS", hook=-1, entries=(legacy_entry(version, RETURNING),))]
    return join_table(LegacyTable(version=version, name=name, valid_hooks=8, hook_entries=(0,) * 5, entries=b""), chains)


def test_legacy_tables_are_those_of_their_family_with_the_policies_of_their_built_in_chains():
    snapshot = Snapshot(legacy=(legacy_table(4, "nat", ACCEPTING), legacy_table(6, "mangle", DROPPING)))
    for family, name, policy in ((IPV4, "nat", "ACCEPT"), (IPV6, "mangle", "DROP")):
        listing = list_snapshot(snapshot, family, legacy=True)
        assert listing == {name: ListedTable(policies={"OUTPUT": policy, "THEIRS": "-"}, rules={"OUTPUT": ["-j DROP"], "THEIRS": []})}
        assert list_snapshot(snapshot, family, legacy=False) == {}


def test_tables_of_nf_tables_are_no_legacy_ones_and_their_rules_are_of_the_family_that_is_asked():
    rules = [Rule(matches=(), target=Reject(), families=(family,)) for family in (IPV4, IPV6)]
    chains = [NftChain(family=family.number, table="filter", name="OUTPUT", kind="filter", hook=3, priority=0) for family in (IPV4, IPV6)]
    encoded = [NftRule(family=chain.family, table="filter", chain="OUTPUT", handle=4, expressions=encode_rule(rule, chain.family, [])) for chain, rule in zip(chains, rules, strict=True)]
    snapshot = Snapshot(chains=tuple(chains), rules=tuple(encoded))
    for family, message in ((IPV4, "icmp-port-unreachable"), (IPV6, "icmp6-port-unreachable")):
        assert list_snapshot(snapshot, family, legacy=False)["filter"].rules["OUTPUT"] == [f"-j REJECT --reject-with {message}"]
        assert list_snapshot(snapshot, family, legacy=True) == {}


def test_a_rule_that_is_several_of_iptables_is_written_as_one_that_equals_none_of_them():
    elements = struct.pack(">H", 80), struct.pack(">H", 81)
    verdicts = [write_attribute(1, be32(code)) for code in (NF_DROP, NF_ACCEPT)]
    held = NftSet(
        family=2, table="nat", name="m", flags=SET_MAP, key_length=2, elements=tuple([NftElement(key=key, key_end=b"", verdict=verdict) for key, verdict in zip(elements, verdicts, strict=True)])
    )
    builder = RuleBuilder(2, [])
    builder.limit_protocol("tcp")
    builder.load("payload", 2, 2, 2)
    builder.add(b"lookup", (1, b"m\0"), (2, 1), (3, 0))
    rule = NftRule(family=2, table="nat", chain="OUTPUT", handle=4, expressions=builder.block())
    chain = NftChain(family=2, table="nat", name="OUTPUT", kind="nat", hook=3, priority=-100)
    (listed,) = list_snapshot(Snapshot(chains=(chain,), rules=(rule,), sets=(held,)), IPV4, legacy=False)["nat"].rules["OUTPUT"]
    assert str(listed) == "[-p tcp -m tcp --dport 80 -j DROP; -p tcp -m tcp --dport 81 -j ACCEPT]"
    assert listed.rule == Rule(matches=(UnknownMatch(text=str(listed)),), target=Several(targets=(Drop(), Accept())), families=(IPV4,))


@pytest.mark.parametrize(
    ("matches", "text"),
    [
        ((Protocol(name="tcp"), Destination(networks=NETWORKS)), "-p tcp -d 10.0.0.0/8 | -d 192.0.2.1/32 -j RETURN"), ((Port(protocol="tcp", ports=(80, 81)), Port(protocol="tcp", ports=(90,), source=True)), "-p tcp -m tcp --dport 80 | -m tcp --dport 81 -m tcp --sport 90 -j RETURN"),
        ((InInterface(names=("lo", "a b")), Destination(networks=NETWORKS)), '-i lo | -i "a b" -d 10.0.0.0/8 | -d 192.0.2.1/32 -j RETURN'), ((Destination(networks=NETWORKS[:1]),), "-d 10.0.0.0/8 -j RETURN"),
        ((Destination(networks=NETWORKS), Source(networks=(Network.parse("0.0.0.0/0"),))), "-d 10.0.0.0/8 | -d 192.0.2.1/32 -j RETURN"),
        ((Destination(networks=NETWORKS, negated=True), InInterface(names=("lo", "a b"))), '! -d 10.0.0.0/8 ! -d 192.0.2.1/32 -i lo | -i "a b" -j RETURN'),
    ],
)  # fmt: skip
def test_lists_of_nf_tables_are_alternatives_and_a_protocol_stands_there_once(matches, text):
    assert str(live(*matches)) == text
    assert str(live(*matches, comment="why")) == (text if " | " in text else text.replace(" -j", ' -m comment --comment "why" -j'))


def test_alternatives_end_with_the_target_of_their_family():
    for family, networks, answer in ((IPV4, ("10.0.0.0/8", "192.0.2.1/32"), "icmp-port-unreachable"), (IPV6, ("fd00::/8", "::1/128"), "icmp6-port-unreachable")):
        text = write_live(Rule(matches=(Destination(networks=tuple(map(Network.parse, networks))),), target=Reject(), families=(family,)), family)
        assert text == f"-d {networks[0]} | -d {networks[1]} -j REJECT --reject-with {answer}"


def test_a_number_of_a_set_has_sixteen_bits():
    kept = ("set", 4, struct.pack("=HBB", 65535, 1, 0))
    assert str(live(UnknownMatch(text="-m set", kept=kept), sets={65535: "theirs"})) == "-m set --match-set theirs dst -j RETURN"


def test_a_rule_without_a_target_ends_behind_its_alternatives():
    assert str(live(Destination(networks=NETWORKS), target=Several(targets=()))) == "-d 10.0.0.0/8 | -d 192.0.2.1/32"


IN_A_SET = struct.pack("=HBB", 7, 1, 0)


@pytest.mark.parametrize(
    "kept",
    [("set", 0, IN_A_SET), ("sets", 4, IN_A_SET), ("set", 4, IN_A_SET[:3]), ("set", 4, b""), ("set", 4, struct.pack("=HBB", 7, 0, 0)), ("set", 4, struct.pack("=HBB", 7, 7, 0)), ("set", 4, IN_A_SET + b"\0\1"), ("set", 4, IN_A_SET + b"X")],
)  # fmt: skip
def test_a_match_that_is_no_plain_lookup_in_a_set_of_addresses_gets_no_name(kept):
    assert str(live(UnknownMatch(text="-m set", kept=kept), sets={7: "theirs"})) == "-m set [...] -j RETURN"


@pytest.mark.parametrize(
    ("revision", "dimensions", "flags", "negation", "sides"),
    [(1, 1, 0, "", "dst"), (4, 6, 0, "", "dst,dst,dst,dst,dst,dst"), (4, 6, 126, "", "src,src,src,src,src,src"), (4, 3, 2 + 8, "", "src,dst,src"), (1, 2, 1 + 4, "! ", "dst,src")],
)  # fmt: skip
def test_a_lookup_names_the_side_of_each_dimension(revision, dimensions, flags, negation, sides):
    match = UnknownMatch(text="-m set", kept=("set", revision, struct.pack("=HBB", 7, dimensions, flags)))
    assert str(live(match, sets={7: "theirs"})) == f"-m set {negation}--match-set theirs {sides} -j RETURN"
    assert str(live(match.replace(kept=None), sets={7: "theirs"})) == "[-m set] -j RETURN"


@pytest.mark.parametrize(
    ("match", "text"),
    [
        (UnknownMatch(text="meta 3 == 01 X"), "[meta 3 == 01 X]"), (UnknownMatch(text="-m owner", kept=("owner", 1, b"")), "-m owner [...]"), (UnknownMatch(text="-m set --match-set a dst"), "-m set --match-set a dst"),
        (UnknownMatch(text="say \"it's\\n\"\n\x7f"), "[say ?it?s?n???]"), (UnknownMatch(text='-m "x', kept=("x", 1, b"")), "-m ?x [...]"), (InSet(text="tcp dport in 's'", alternatives=()), "[tcp dport in ?s?]"),
        (UnknownMatch(text="-m set --match-set a dst", kept=("set", 1, b"")), "-m set --match-set a dst [...]"), (InInterface(names=("a-b_c.d:e@f/g+",)), "-i a-b_c.d:e@f/g+"), (InInterface(names=("a'b",)), '-i "a\\\'b"'),
        (InInterface(names=("ä",)), '-i "ä"'), (InInterface(names=("-x",)), '-i "-x"'), (InInterface(names=("x-",)), "-i x-"),
    ],
)  # fmt: skip
def test_a_match_is_shown_so_that_its_text_ends_where_it_ends(match, text):
    assert str(live(match)) == f"{text} -j RETURN"


@pytest.mark.parametrize(
    ("target", "text"),
    [
        (UnknownTarget(text="TEE"), "-j TEE [...]"), (UnknownTarget(text="MY_TARGET-2"), "-j MY_TARGET-2 [...]"), (UnknownTarget(text="a verdict"), "-j [a verdict]"), (UnknownTarget(text="it's"), "-j [it?s]"),
        (Jump(chain="a b"), '-j "a b"'), (Jump(chain="a b", goto=True), '-g "a b"'), (Jump(chain="x", goto=True), "-g x"),
        (Several(targets=(UnknownTarget(text="TEE"), Jump(chain="a b"))), '-j TEE [...] "a b"'), (Several(targets=(Several(targets=(UnknownTarget(text="a b"),)),)), "-j [a b]"), (Accept(), "-j ACCEPT"),
    ],
)  # fmt: skip
def test_a_target_is_shown_so_that_its_text_ends_where_it_ends(target, text):
    assert str(live(target=target)) == text


def test_names_of_sets_are_looked_up_only_where_there_are_any():
    rule = Rule(matches=(UnknownMatch(text="-m set", kept=("set", 4, IN_A_SET)), Protocol(name="tcp")), target=Accept())
    assert name_sets(rule, {}) is rule
    assert name_sets(rule, {7: "a"}) == rule.replace(matches=(UnknownMatch(text="-m set --match-set a dst"), Protocol(name="tcp")))
