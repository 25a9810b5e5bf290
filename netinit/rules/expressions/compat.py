"""Encode a plan as iptables-nft does, with structs of extensions. Foreign rules stand between, so compare rule by rule.

Rules are written in one form, that of iptables 1.8.7, and read in that of every version.
"""

from __future__ import annotations

from _struct import pack

from netinit.base.net import IPV4
from netinit.base.netlink_attributes import NLA_F_NESTED, write_attribute
from netinit.base.records import Record
from netinit.rules.iptables.write import encode_each, split_modules
from netinit.rules.matches import EXTENSION, IN_INTERFACE, SOURCE
from netinit.rules.matches.packet import InterfaceMatch, Protocol
from netinit.rules.numbers import META_IIFNAME, META_OIFNAME, NETWORK_HEADER, PROTOCOL
from netinit.rules.rule_builder import RuleBuilder
from netinit.rules.structs import TCP_FLAGS, pad_comment, protocol_number

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from netinit.base.net import Family
    from netinit.rules.iptables.write import Written
    from netinit.rules.matches import Match
    from netinit.rules.targets import Target


NFTA_RULE_COMPAT, NFTA_RULE_COMPAT_PROTO, NFTA_RULE_COMPAT_FLAGS, NFT_RULE_COMPAT_F_INV = 5, 1, 2, 2
_protocols: dict[tuple[str, bool], bytes] = {("", False): b""}  # what is written for each, which rules share


class CompatForm(Record):
    """Which matches a version of iptables-nft writes as native expressions, and their order."""

    addresses_first: bool = False  # before the interfaces and the protocol
    reads_protocol: bool = False  # of IPv4 in its header
    always: bool = True  # verdicts, limits
    has_own_ports: bool = True  # and flags of TCP
    has_own_mark: bool = True
    has_own_group_log: bool = True


FORM = CompatForm(has_own_ports=False, has_own_mark=False, has_own_group_log=False)  # every version lists and deletes it
FORMS = {
    (1, 8, 7): FORM, (1, 8, 9): CompatForm(),
    (1, 8, 10): CompatForm(addresses_first=True, reads_protocol=True),
}  # by the first version seen with it: 1.8.7, 1.8.9 to 1.8.11 and 1.8.13 were compared  # fmt: skip


def encode_plan(written: Written, family: Family, form: CompatForm = FORM) -> dict[tuple[str, str], tuple[bytes, ...]]:
    """Return the expressions of a family's rules by table and chain, without empty chains."""
    return encode_each(written, lambda one: encode_rule(one.matches, one.rule.target, family, one.comment, form))


def encode_rule(matches: Sequence[Match], target: Target, family: Family, comment: str = "", form: CompatForm = FORM) -> bytes:
    """Return the expressions of one iptables rule. Raises ValueError if iptables has no match or target for it."""
    writer = _CompatWriter(family, form)
    first = SOURCE if form.addresses_first else IN_INTERFACE
    for match in sorted([one for one in matches if one.place < EXTENSION], key=lambda one: (one.place - first) % EXTENSION):
        writer.write(match)
    for module in split_modules(matches):
        if all(one.compat and getattr(form, one.compat) for one in module):
            for one in sorted(module, key=_order):
                one.express(writer)
        else:
            writer.add_struct(b"match", module[0].struct(*module[1:]))
    if comment:
        writer.add_struct(b"match", pad_comment(comment))
    writer.count()
    if target.compat and getattr(form, target.compat):
        target.express(writer, family)
    elif target.xt(family):
        writer.add_struct(b"target", target.struct(family))
    return writer.block()


class _CompatWriter(RuleBuilder):
    def __init__(self, family: Family, form: CompatForm) -> None:
        super().__init__(family.number, [], splits_ranges=False)  # iptables has no sets
        self._form = form

    def write(self, condition: Match) -> None:
        """Write a built-in match of iptables."""
        if isinstance(condition, InterfaceMatch):
            self.load("meta", META_IIFNAME if condition.inbound else META_OIFNAME)
            name = condition.names[0].encode("utf-8", "surrogateescape")
            value = name.removesuffix(b"+") if name.endswith(b"+") else name + b"\0"
            self.compare(value, condition.negated)
        elif isinstance(condition, Protocol) and self._form.reads_protocol and self.family == IPV4.number:
            self.load("payload", NETWORK_HEADER, *PROTOCOL[IPV4])
            self.compare(bytes((protocol_number(condition.name),)), condition.negated)
            self._protocol = "" if condition.negated else condition.name
        else:
            condition.express(self)


def protocol_of(matches: Iterable[Match]) -> tuple[str, bool]:
    """Return the protocol that a rule's matches ask for or imply, empty without, and whether it is negated."""
    implied = ""
    for match in matches:
        if isinstance(match, Protocol):
            return match.name, match.negated
        implied = implied or match.protocol
    return implied, False


def write_protocol(matches: Iterable[Match]) -> bytes:
    """Return the attribute that tells the kernel's side of extensions the protocol of a rule; empty if it has none."""
    asked = protocol_of(matches)
    found = _protocols.get(asked)
    if found is None:
        named, negated = asked
        flags = NFT_RULE_COMPAT_F_INV if negated else 0
        value = write_attribute(NFTA_RULE_COMPAT_PROTO, pack(">I", protocol_number(named)))
        value += write_attribute(NFTA_RULE_COMPAT_FLAGS, pack(">I", flags))
        found = _protocols[asked] = write_attribute(NFTA_RULE_COMPAT | NLA_F_NESTED, value)
    return found


def _order(match: Match) -> tuple[bool, int]:
    """The order within module tcp: flags, source port, destination port."""
    at = match.header_fields[0] if match.header_fields else 0
    return at != TCP_FLAGS, at
