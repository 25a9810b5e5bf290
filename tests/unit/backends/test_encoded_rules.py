"""Rules of a snapshot by family, and what is said of tables that cannot be read."""

from __future__ import annotations

import errno
from struct import pack

import pytest

from core import plan, write_plan
from netinit import backends
from netinit.backends import encoded_rules, nft_tables
from netinit.backends.nftables import NftState
from netinit.base.errors import BackendUnavailableError, ParseError
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.snapshot import INET, IP, IP6, LegacyTable, NftChain, NftRule, Snapshot, Unknown
from netinit.options import Options
from netinit.rules.model import EMPTY_PLAN
from netinit.rules.structs import ACCEPTING, DROPPING, RETURNING
from netinit.rules.xtables import building
from netinit.rules.xtables.building import EntryChain
from rule_encodings import join_table


def chain(family, table="nat", name="OUTPUT", policy=1):
    return NftChain(family=family, table=table, name=name, policy=policy)


def rule(family, expressions, table="nat", name="OUTPUT"):
    return NftRule(family=family, table=table, chain=name, handle=1, expressions=expressions)


def test_each_family_has_the_chains_rules_and_policies_of_its_own_tables():
    chains = (chain(IP), chain(IP6, policy=0), chain(IP, table="other"), chain(INET))
    rules = (rule(IP, b"4"), rule(IP6, b"6"), rule(IP, b"x", table="other"), rule(INET, b"inet"), rule(IP, b"y", name="gone"))
    four, six = encoded_rules.nft_of_snapshot(Snapshot(chains=chains, rules=rules), FAMILIES)
    assert (four.family, four.rules, four.accepts) == (IPV4, {("nat", "OUTPUT"): [b"4"]}, True)
    assert (six.family, six.rules, six.accepts) == (IPV6, {("nat", "OUTPUT"): [b"6"]}, False)
    assert four.by_place() == {("nat", "OUTPUT"): [(1, b"4")]}


def test_chains_of_other_tables_and_families_are_no_rules_of_iptables():
    others = Snapshot(chains=(chain(IP, table="other"), chain(INET)), rules=(rule(INET, b""),))
    assert encoded_rules.nft_of_snapshot(others, FAMILIES) == ()
    assert encoded_rules.nft_of_snapshot(Snapshot(chains=(chain(IP6),)), (IPV4,)) == ()
    (four, six) = encoded_rules.nft_of_snapshot(Snapshot(chains=(chain(IP6),)), FAMILIES)
    assert (four.rules, six.rules) == ({}, {("nat", "OUTPUT"): []})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kind", [encoded_rules.EncodedNft, encoded_rules.EncodedLegacy])
def test_rules_are_as_planned_where_they_are_those_of_the_plan_with_its_comments(kind, family):
    made, other = (plan(Options.from_argv(["-b", port, "--ipv6", "on"])) for port in ("80", "81"))
    written = write_plan(made, family, comments=True)
    handles = {"handles": dict} if kind is encoded_rules.EncodedNft else {}
    rules = next(kind(family=family, rules={}, accepts=True, snapshot=Snapshot, **handles).encode(written))
    held = kind(family=family, rules=rules, accepts=True, snapshot=Snapshot, **handles)
    assert held.is_as_planned(written)
    assert not held.is_as_planned(write_plan(made, family))
    assert not held.is_as_planned(write_plan(other, family, comments=True))
    assert not held.replace(accepts=False).is_as_planned(written)


@pytest.mark.parametrize(("place", "told"), [("rules of ip", True), ("rules of ip6", True), ("rules of inet", False), ("table ip nat", False)])
def test_what_is_unread_of_these_families_is_an_error(place, told):
    snapshot = Snapshot(unknown=(Unknown(place=place, reason="too long"), Unknown(place="rules of ip", reason="no")) if told else (Unknown(place=place, reason="x"),))
    if not told:
        assert encoded_rules.nft_of_snapshot(snapshot, FAMILIES) == ()
        return
    with pytest.raises(ParseError, match=f"^{place}: too long; rules of ip: no$"):
        encoded_rules.nft_of_snapshot(snapshot, FAMILIES)


@pytest.mark.parametrize(("unknown", "shown"), [((), ""), ((Unknown(place="rules of inet", reason="too long"),), "(not read: rules of inet: too long)\n")])
def test_tables_that_cannot_be_read_are_shown_as_one_line_that_says_so(unknown, shown, monkeypatch):
    def read(found, **_):
        found.extend(unknown)
        return {}

    monkeypatch.setattr("netinit.kernel.snapshot.nf_tables_dump.read", read)
    assert nft_tables.render_live(("netinit_nat",)) == shown


def test_tables_that_are_too_long_to_read_are_shown_as_that_and_other_errors_are_raised(monkeypatch):
    def fail(*_, **__):
        raise OSError(code, "x")

    monkeypatch.setattr("netinit.kernel.snapshot.nf_tables_dump.read", fail)
    code = errno.EFBIG
    assert nft_tables.render_live(("netinit_nat",)) == "(not read: they are too long)\n"
    code = errno.EIO
    with pytest.raises(BackendUnavailableError, match="the kernel does not list its rules: Input/output error"):
        nft_tables.render_live(("netinit_nat",))


@pytest.mark.parametrize(
    ("known", "names", "own"),
    [(True, ("netinit-nft-1",), True), (True, ("netinit-legacy-1", "netinit-nftables"), False), (True, (), False), (False, ("netinit-nft-1",), False)],
)
def test_address_sets_count_by_their_owner_and_only_where_the_kernel_has_any(known, names, own, monkeypatch):
    monkeypatch.setattr(backends.detect, "has_address_sets", lambda: known)
    monkeypatch.setattr(backends.detect, "_dump_sets", lambda _: names)
    monkeypatch.setattr(backends.detect, "_read_set", lambda name: backends.detect.AddressSetHeader(name=name, size=1))
    assert backends._has_sets("nft") is own


@pytest.mark.parametrize(("tables", "found"), [((), {}), (("istio-proxy-nat",), {"nft istio-proxy-nat": ("rule",)})])
def test_rules_of_our_own_tables_are_listed_where_there_are_such_tables(tables, found, monkeypatch):
    monkeypatch.setattr(nft_tables, "list_rules", lambda names: {f"nft {name}": ("rule",) for name in names or ("another",)})
    state = NftState(tables=tables, chains=(), comments=False, ours=bool(tables), foreign=False)
    assert (state.removed(EMPTY_PLAN), state.compare(EMPTY_PLAN).resumable()) == (found, not tables)


def test_tables_after_one_with_a_policy_that_drops_are_read_too():
    drops = [EntryChain(name="INPUT", hook=1, entries=(entry(4, DROPPING),))]
    ours = [EntryChain(name="OUTPUT", hook=3, entries=(entry(4, ACCEPTING),)), EntryChain(name="ISTIO_OUTPUT", hook=-1, entries=(entry(4, RETURNING),))]
    empty = LegacyTable(version=4, name="filter", valid_hooks=2, hook_entries=(0,) * 5, entries=b"")
    tables = (join_table(empty, drops), join_table(empty.replace(name="nat", valid_hooks=8), ours))
    (found,) = encoded_rules.legacy_of_snapshot(Snapshot(legacy=tables), (IPV4,))
    assert (found.accepts, list(found.rules)) == (False, [("filter", "INPUT"), ("nat", "OUTPUT"), ("nat", "ISTIO_OUTPUT")])


def entry(version, verdict):
    form = building.ENTRY_FORMS[version]
    return building.TableEntry(data=building.make_entry(form, bytes(form.packet), b"", building.extension("", 0, pack("=ii", verdict, 0))))
