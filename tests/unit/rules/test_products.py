"""The rules of Docker, kube-proxy, firewalld, Calico, Cilium and tailscale, as each version of iptables and nft makes them.

They are recorded (tests/recorded.py). Read, written and read again they are the same; a match of an extension that is not understood
stays in its place, byte for byte.
"""

from __future__ import annotations

from collections import Counter

import pytest

from netinit.base.net import IPV4, bounds_of, join_ranges, merge_networks, split_range
from netinit.base.netlink_attributes import split_attributes
from netinit.rules.expressions import compat
from netinit.rules.expressions.encoded_sets import in_snapshot
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.foreign_targets import ForeignTarget, Several, UnknownTarget
from netinit.rules.iptables.parse import normalise_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import InSet
from netinit.rules.matches.packet import Destination, Port, Protocol, Source
from netinit.rules.rule_builder import settle
from netinit.rules.targets import Accept
from netinit.rules.xtables import building
from netinit.rules.xtables.decoded_tables import decode_table
from recorded import FORMS, RECORDINGS, read_products
from rule_encodings import encode_rule, form_of, join_table

ALL_PORTS = b"\0\0\xff\xff\0\0\xff\xff" + bytes(8)  # struct xt_tcp of a match that always holds
NFT = [name for name in RECORDINGS if name.startswith("nft-")]
IPTABLES_NFT = [name for name in RECORDINGS if name.startswith("iptables-nft-")]
LEGACY = [name for name in RECORDINGS if name.startswith("iptables-legacy-")]


def version_of(recording):
    return tuple(int(part) for part in recording.rpartition("-")[2].split("."))


def with_protocol(matches):
    """The matches as a rule of iptables has them: a port's protocol besides."""
    implied = [one.protocol for one in matches if one.protocol]
    given = any(isinstance(one, Protocol) for one in matches)
    return (*matches, Protocol(name=implied[0])) if implied and not given else matches


def elements(expressions):
    """The expressions of a rule in any order, without comments and a module tcp that asks nothing."""
    bodies = [body for _, body in split_attributes(settle(expressions))]
    return sorted(body for body in bodies if b"comment\0" not in body and ALL_PORTS not in body)


def joined(rule):
    """The rule with networks and ports that touch each other as one: nft refuses sets in which they overlap."""
    matches = []
    for one in rule.matches:
        if isinstance(one, Source | Destination):
            family = one.networks[0].family
            intervals = merge_networks(one.networks, family)
            parts = tuple(part for low, high in intervals for part in split_range(low, high, family))
            matches.append(one.replace(networks=parts))
        elif isinstance(one, Port):
            matches.append(one.replace(ports=tuple(join_ranges(sorted({bounds_of(port) for port in one.ports})))))
        else:
            matches.append(one)
    return rule.replace(matches=tuple(matches), comment="")


def as_written_in(rule):
    """Whether a match or target is not understood well enough to be written: nothing writes foreign rules."""
    targets = rule.target.targets if isinstance(rule.target, Several) else (rule.target,)
    return any(isinstance(one, UnknownMatch | InSet | ForeignTarget) and one.text for one in (*rule.matches, *targets))


def writable(rule):
    """The rule, with another target if nothing writes its own."""
    return rule.replace(target=Accept()) if isinstance(rule.target, ForeignTarget) and rule.target.text else rule


def unknown_in(rules):
    """What is not understood, a text each."""
    targets = [one for rule in rules for one in (rule.target.targets if isinstance(rule.target, Several) else (rule.target,))]
    matches = [one for rule in rules for one in rule.matches]
    return {one.text for one in (*matches, *targets) if isinstance(one, UnknownMatch | UnknownTarget)}


@pytest.mark.parametrize("recording", NFT)
def test_rules_of_nft_are_the_same_once_they_were_written_and_read_again(recording):
    count = 0
    for product, snapshot in read_products(recording).items():
        around = References.of(snapshot)
        for held in snapshot.rules:
            decoded = decode_rule(held, around)
            for rule in decoded.rules:
                if as_written_in(rule):
                    continue
                sets = []
                written = encode_rule(rule, held.family, sets)
                again = References(sets={**around.sets, **{(held.family, held.table, one.name): in_snapshot(one, held.family, held.table) for one in sets}}, devices=around.devices)
                read = decode_rule(held.replace(expressions=written, userdata=b""), again).rules
                assert [joined(one) for one in read] == [joined(rule)], f"{product} {held.table} {held.chain}"
                count += 1
    assert count > 120


@pytest.mark.parametrize("recording", IPTABLES_NFT)
def test_rules_of_iptables_nft_are_written_as_the_version_wrote_them(recording):
    count, other = 0, Counter()
    form = form_of(version_of(recording))
    for product, snapshot in read_products(recording).items():
        around = References.of(snapshot)
        for held in snapshot.rules:
            decoded = decode_rule(held, around)
            rule = writable(*decoded.rules)
            written = compat.encode_rule(with_protocol(rule.matches), rule.target, IPV4, rule.comment, form)
            (again,) = decode_rule(held.replace(expressions=written), around).rules
            assert normalise_rule(again) == normalise_rule(rule), f"{product} {held.table} {held.chain}"
            assert [getattr(one, "kept", b"") for one in again.matches] == [getattr(one, "kept", b"") for one in rule.matches]
            count += 1
            # Comments stand anywhere in the kernel's, but byte for byte they are the same expressions
            other[product] += rule in decoded.rules and elements(written) != elements(held.expressions)
    assert count > 150
    # One match of a user and a group is written as two, and multiport of one port as that port
    assert {product: number for product, number in other.items() if number} == {FORMS: 1, "calico": 1}


@pytest.mark.parametrize("recording", LEGACY)
def test_tables_of_iptables_legacy_are_the_same_once_they_were_written_and_read_again(recording):
    count = 0
    for product, snapshot in read_products(recording).items():
        for table in snapshot.legacy:
            chains = building.split_table(table)
            joined = join_table(table, chains)
            assert building.split_table(joined) == chains
            assert join_table(table, building.split_table(joined)) == joined
            rules = {chain.name: [rule for one in chain.rules for rule in one.rules] for chain in decode_table(table)}
            assert {chain.name: [rule for one in chain.rules for rule in one.rules] for chain in decode_table(joined)} == rules
            rules = {name: [writable(one) for one in each] for name, each in rules.items()}
            written = []
            for chain in chains:
                entries = [building.encode_rule(with_protocol(one.matches), one.target, IPV4, one.comment) for one in rules[chain.name]]
                written.append(chain.replace(entries=(*entries, chain.entries[-1])))
                count += len(entries)
            again = decode_table(join_table(table, written))
            assert {chain.name: [normalise_rule(rule) for one in chain.rules for rule in one.rules] for chain in again} == {
                name: [normalise_rule(one) for one in each] for name, each in rules.items()
            }, f"{product} {table.name}"
    assert count > 150


# What stays unknown, by what a packet would have to be looked at for: what only the kernel knows then, and lists of others
UNKNOWN = {
    "rules": {
        "calico": {"-m addrtype", "-m icmp", "-m rpfilter", "-m set"}, "cilium": {"-m set", "-m socket"},
        "kube-proxy": {"-m recent", "-m statistic"}, FORMS: {"-m ttl --ttl-eq 1"},
    },
    "nft": {
        "calico": {"fib 1 5 == 00000000"}, "cilium": {"socket 0 == 01"},
        "firewalld": {"fib 1 45 == 00", "fib 1 45 == 00000000", "limit", "payload 2 0 == 86, 87"},
        "kube-proxy": {
            "dynset", "numgen mod 2 == 0",
            "payload 1 12 in the set affinity-ABCDEFGH-ns1/svc1/tcp/p80__10.180.1.1/80, to which packets add elements",
        },
        FORMS: {"payload 2 0 == 80"},
    },
}  # fmt: skip


@pytest.mark.parametrize("recording", RECORDINGS)
def test_only_what_cannot_be_known_beforehand_is_unknown(recording):
    allowed = UNKNOWN["nft" if recording in NFT else "rules"]
    for product, snapshot in read_products(recording).items():
        around = References.of(snapshot)
        rules = [one for held in snapshot.rules for one in decode_rule(held, around).rules]
        rules += [rule for table in snapshot.legacy for chain in decode_table(table) for one in chain.rules for rule in one.rules]
        assert rules
        assert unknown_in(rules) <= allowed.get(product, set()), f"{recording} {product}"
