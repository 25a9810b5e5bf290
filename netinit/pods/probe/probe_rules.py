"""Write a node's rules and sets for the kubelet's probes of ambient pods, as the mesh's agent does; see `netinit.live.host_probes`.

The agent finds and deletes its rules by their text, so these have its matches in its order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from struct import pack

from netinit.backends import base_of
from netinit.backends.legacy_edits import make_edit
from netinit.backends.lock import XtablesLock
from netinit.base.errors import ApplyError, BusyError
from netinit.base.net import Family, number_of
from netinit.base.records import Record
from netinit.base.snapshot import INET
from netinit.kernel import detect, netlink, nf_tables
from netinit.kernel.address_sets import AddressSets
from netinit.kernel.netlink import NFTA_RULE_CHAIN, NFTA_RULE_EXPRESSIONS, NFTA_RULE_HANDLE, NFTA_RULE_TABLE, attribute
from netinit.kernel.nf_tables import ERESTART, NLM_F_APPEND, TRIES, Message, name, rule_place
from netinit.kernel.snapshot.legacy_tables import read_table
from netinit.live.host_probes import AMBIENT_NAT, POSTROUTING_CHAIN, PROBE_SETS
from netinit.options import IPTABLES_LEGACY, IPTABLES_NFT, NFTABLES
from netinit.rules import numbers
from netinit.rules.expressions import compat
from netinit.rules.foreign_targets import SourceNat
from netinit.rules.iptables.sets import SET_INFO, SET_REVISION
from netinit.rules.matches import Match
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.packet import Protocol
from netinit.rules.model import NAT
from netinit.rules.rule_builder import REGISTER, RuleBuilder, settle
from netinit.rules.structs import OWNER, OWNER_SOCKET, pad
from netinit.rules.targets import Jump
from netinit.rules.xtables import building
from netinit.rules.xtables.editing import TableEdit

Rules = dict[str, list[tuple[int, bytes]]]  # by chain
POSTROUTING, NATIVE_CHAIN = "POSTROUTING", "postrouting"
JUMP = Jump(chain=POSTROUTING_CHAIN)
LOCK_PATIENCE = 5_000_000_000  # nanoseconds for programs that hold the lock of legacy tables
NFTA_SET_ELEM_TABLE, NFTA_SET_ELEM_SET, NFTA_SET_ELEM_ELEMENTS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_USERDATA = 1, 2, 3, 1, 6
NFTNL_UDATA_SET_ELEM_COMMENT = 0  # libnftnl/udata.h


class ProbeRule(Record):
    """What one family's rule says: the pods' addresses with comments, by which the agent deletes them, and the exempt source."""

    family: Family
    addresses: Mapping[str, str]
    source: str

    @property
    def set_name(self) -> str:
        """The set with the addresses."""
        return PROBE_SETS[self.family]

    @property
    def target(self) -> SourceNat:
        """The rule's target."""
        return SourceNat(text=f"SNAT --to-source {self.source}", address=self.source)

    def find_matches(self, set_number: int) -> tuple[Match, ...]:
        """Return the matches of iptables, with the kernel's number of the set."""
        asked = pad("set", SET_REVISION, pack(SET_INFO, set_number, 1, 0))
        of_any_socket = pad("owner", 1, pack(OWNER, 0, 0, 0, 0, OWNER_SOCKET, 0))
        return (
            UnknownMatch(text="-m owner --socket-exists", kept=of_any_socket), Protocol(name="tcp"),
            UnknownMatch(text=f"-m set --match-set {self.set_name} dst", kept=asked),
        )  # fmt: skip


def write_probe_rules(backend: str, rules: Sequence[ProbeRule], sender: int | None) -> None:
    """Write the sets and the rules in place of those that are there; `sender`: the kubelet's uid, which rules of nft name.

    Raises ApplyError; BackendUnavailableError.
    """
    try:
        if backend == NFTABLES:
            _write_native(rules, sender or 0)
            return
        matches = {one.family: one.find_matches(number) for one, number in zip(rules, _fill_sets(rules), strict=True)}
        if backend == IPTABLES_LEGACY:
            _write_legacy(rules, matches)
        else:
            _write_nft(rules, matches)
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise ApplyError(f"{backend}: the node's rules for probes cannot be written: {said}") from None


# ---- iptables ---------------------------------------------------------------------------------------------------------


def _fill_sets(rules: Sequence[ProbeRule]) -> Iterator[int]:
    """Add the addresses to the sets, which are created if missing; yield the kernel's numbers of the sets."""
    there = {one.name for one in detect.loaded_sets()}
    with AddressSets() as link:
        for one in rules:
            if one.set_name not in there:
                link.create_for_addresses(one.set_name, one.family.number)
            link.put(one.set_name, one.addresses, one.family.number)
    found = {one.name: one.number for one in detect.loaded_sets()}
    for one in rules:
        if found.get(one.set_name, -1) < 0:
            raise ValueError(f"the kernel does not report the number of the set {one.set_name}, which rules have")
        yield found[one.set_name]


def _write_nft(rules: Sequence[ProbeRule], matches: Mapping[Family, Sequence[Match]]) -> None:
    for _ in range(TRIES):
        generation, held = netlink.read_unchanged(lambda: {one.family: _read_nat(one.family) for one in rules})
        messages = []
        for one in rules:
            encoded = compat.encode_rule(matches[one.family], one.target, one.family)
            body = attribute(NFTA_RULE_EXPRESSIONS, encoded) + compat.write_protocol(matches[one.family])
            messages += [(one.family.number, message) for message in _list_changes(one.family, held[one.family], body)]
        with nf_tables.NfTables() as link:
            refused = link.commit(messages, generation=generation)
        if not refused or refused[0].number != ERESTART:
            nf_tables.raise_first(refused)
            return
    raise BusyError(f"{IPTABLES_NFT}: other programs change nf_tables all the time: try again")


def _read_nat(family: Family) -> Rules:
    """Read a family's nat table: the handle and expressions of each rule by chain."""
    chains = [one for one in netlink.list_nft_chains() if (one.family, one.table) == (family.number, NAT)]
    found: Rules = {one.name: [] for one in chains}
    for body in netlink.list_nft_rules(family.number) if found else ():
        rule = netlink.read_attributes(body, netlink.NETFILTER_SIZE)
        if netlink.read_name(rule[NFTA_RULE_TABLE]) == NAT:
            held = netlink.big(rule[NFTA_RULE_HANDLE]), rule.get(NFTA_RULE_EXPRESSIONS, b"")
            found.setdefault(netlink.read_name(rule[NFTA_RULE_CHAIN]), []).append(held)
    return found


def _list_changes(family: Family, held: Rules, rule: bytes) -> Iterator[Message]:
    """Yield the messages for one family: the agent's chain has the rule alone, and one jump to it is the first of POSTROUTING."""
    jump = compat.encode_rule((), JUMP, family)
    named = attribute(netlink.NFTA_TABLE_NAME, name(NAT))
    yield nf_tables.NFT_MSG_NEWTABLE, netlink.NLM_F_CREATE, named
    if POSTROUTING_CHAIN in held:
        yield nf_tables.NFT_MSG_DELRULE, 0, rule_place(NAT, POSTROUTING_CHAIN)
    else:
        yield nf_tables.create_chain(NAT, POSTROUTING_CHAIN, None)
    for handle, expressions in held.get(POSTROUTING, ()):
        if settle(expressions) == jump:
            body = attribute(NFTA_RULE_HANDLE, handle.to_bytes(8, "big"))
            yield nf_tables.NFT_MSG_DELRULE, 0, rule_place(NAT, POSTROUTING) + body
    if POSTROUTING not in held:
        hook, kind, priority = base_of(NAT, POSTROUTING)
        yield nf_tables.create_chain(NAT, POSTROUTING, (kind, hook, priority))
    first = rule_place(NAT, POSTROUTING) + attribute(NFTA_RULE_EXPRESSIONS, jump)
    yield nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE, first  # without NLM_F_APPEND: before all others
    yield nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE | NLM_F_APPEND, rule_place(NAT, POSTROUTING_CHAIN) + rule


def _write_legacy(rules: Sequence[ProbeRule], matches: Mapping[Family, Sequence[Match]]) -> None:
    undo: list[tuple[Family, TableEdit]] = []
    with XtablesLock(IPTABLES_LEGACY, LOCK_PATIENCE, own_files=True):
        try:
            for one in rules:
                jump = building.encode_rule((), JUMP, one.family)
                chains = {chain.name: chain.entries[:-1] for chain in building.split_table(read_table(one.family, NAT))}
                jumps = [(index, entry) for index, entry in enumerate(chains[POSTROUTING]) if entry == jump]
                rule = building.encode_rule(matches[one.family], one.target, one.family)
                edit = TableEdit(
                    table=NAT, chains={POSTROUTING_CHAIN: (rule,)}, deleted={POSTROUTING: jumps}, added={POSTROUTING: [(1, jump)]},
                    removed=(),
                )  # fmt: skip
                make_edit(one.family, edit, undo)
        except (OSError, ValueError):
            for family, edit in reversed(undo):
                make_edit(family, edit, [])
            raise


# ---- nft --------------------------------------------------------------------------------------------------------------


def _write_native(rules: Sequence[ProbeRule], sender: int) -> None:
    kind, _, body = nf_tables.create_chain(AMBIENT_NAT, NATIVE_CHAIN, ("nat", *_hook_of_postrouting()))
    place = rule_place(AMBIENT_NAT, NATIVE_CHAIN)
    messages = [(kind, netlink.NLM_F_CREATE, body), (nf_tables.NFT_MSG_DELRULE, 0, place)]
    for one in rules:
        elements = b"".join([_write_element(address, comment, one.family) for address, comment in one.addresses.items()])
        if elements:
            head = attribute(NFTA_SET_ELEM_TABLE, name(AMBIENT_NAT)) + attribute(NFTA_SET_ELEM_SET, name(one.set_name))
            filled = head + attribute(NFTA_SET_ELEM_ELEMENTS, elements)
            messages.append((nf_tables.NFT_MSG_NEWSETELEM, netlink.NLM_F_CREATE, filled))
        written = place + attribute(NFTA_RULE_EXPRESSIONS, _write_native_rule(one, sender))
        messages.append((nf_tables.NFT_MSG_NEWRULE, netlink.NLM_F_CREATE | NLM_F_APPEND, written))
    with nf_tables.NfTables() as link:
        nf_tables.raise_first(link.commit([(INET, message) for message in messages]))


def _hook_of_postrouting() -> tuple[int, int]:
    hook, _, priority = base_of(NAT, POSTROUTING)
    return hook, priority


def _write_native_rule(rule: ProbeRule, sender: int) -> bytes:
    writer = RuleBuilder(INET, [])
    writer.limit_protocol("tcp")
    writer.load("meta", numbers.META_SKUID)
    writer.compare(pack("=I", sender))
    writer.limit_family(rule.family)
    writer.load("payload", numbers.NETWORK_HEADER, *numbers.ADDRESSES[rule.family][1])
    writer.add(b"lookup", (1, name(rule.set_name)), (2, REGISTER), (5, 0))
    writer.count()
    rule.target.express(writer, rule.family)
    return writer.block()


def _write_element(address: str, comment: str, family: Family) -> bytes:
    key = number_of(address).to_bytes(family.bits // 8, "big")
    body = attribute(NFTA_SET_ELEM_KEY, attribute(1, key))
    if comment:
        text = name(comment)
        body += attribute(NFTA_SET_ELEM_USERDATA, bytes((NFTNL_UDATA_SET_ELEM_COMMENT, len(text))) + text)
    return attribute(1, body)
