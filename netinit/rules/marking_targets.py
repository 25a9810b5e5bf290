"""Targets that mark, track or log packets; see iptables-extensions(8). The rules of a plain sidecar have none of them."""

from __future__ import annotations

from _struct import pack

from netinit.base.net import FULL_MASK, Family
from netinit.base.sanitize import quote_words
from netinit.rules import numbers, structs
from netinit.rules.structs import WARNING
from netinit.rules.targets import GO_ON, Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.packet_interfaces import Traversal, Verdict
    from netinit.rules.rule_builder import RuleBuilder


DIRECTIONS = {"orig": "original", "reply": "reply"}  # of a connection, as iptables and nft write them, in nf_tables' order


class SetMark(Target):
    """Clears the bits in `mask` of the packet's or connection's mark, then xors `value` (sections MARK, CONNMARK)."""

    value: int
    mask: int = FULL_MASK
    connection: bool = False

    @property
    def whole_mark(self) -> int:  # type: ignore[override] # computed here
        return -1 if self.connection or self.mask != FULL_MASK else self.value

    def xt(self, family: Family) -> str:
        return f"{'CONNMARK' if self.connection else 'MARK'} --set-xmark {self.value:#x}/{self.mask:#x}"

    def nft(self, family: Family) -> str:
        whose = "ct" if self.connection else "meta"
        if self.mask == FULL_MASK:
            return f"{whose} mark set {self.value:#010x}"
        kept = FULL_MASK & ~self.mask
        if kept & self.value:
            return f"{whose} mark set {whose} mark & {kept:#010x} ^ {self.value:#010x}"
        return f"{whose} mark set {whose} mark & {kept | self.value:#010x} | {self.value:#010x}"

    def express(self, writer: RuleBuilder, family: Family) -> None:
        if self.mask == FULL_MASK:
            writer.put(pack("=I", self.value))
        else:
            writer.load_mark(connection=self.connection)
            writer.mask(pack("=I", FULL_MASK & ~self.mask), pack("=I", self.value))
        writer.store_mark(connection=self.connection)

    def struct(self, family: Family) -> structs.Struct:
        if self.connection:
            return structs.pad_connmark(structs.CONNMARK_SET, self.value, self.mask)
        return structs.pad("MARK", 2, pack(structs.SET_MARK, self.value, self.mask))

    def act(self, packet: Traversal) -> Verdict:
        return packet.set_mark(self.value, self.mask, connection=self.connection)

    def describe(self) -> str:
        if self.mask == FULL_MASK and not self.connection:
            return f"mark it {self.value}"
        whose = "its connection's" if self.connection else "its"
        return f"change {whose} mark ({self.value:#x} under the mask {self.mask:#x})"

    @property
    def tracks(self) -> bool:  # type: ignore[override] # computed here
        return self.connection


class _CopyMark(Target):
    """Base of targets that copy a mark: the bits of the packet's in `nfmask`, those of the connection's in `ctmask`."""

    tracks = True
    verb = ""
    xt_text = "CONNMARK --{0.verb}-mark --nfmask {0.nfmask:#x} --ctmask {0.ctmask:#x}"
    nfmask: int = FULL_MASK
    ctmask: int = FULL_MASK

    @property
    def _is_whole(self) -> bool:
        return (self.nfmask, self.ctmask) == (FULL_MASK, FULL_MASK)

    def nft(self, family: Family) -> str:
        return (self.nft_text if self._is_whole else self.xt_text).format(self)

    def express(self, writer: RuleBuilder, family: Family) -> None:
        if not self._is_whole:
            raise ValueError(f"{self.xt(family)}: nf_tables copies whole marks")
        writer.load_mark(connection=self.verb == "restore")
        writer.store_mark(connection=self.verb == "save")

    def struct(self, family: Family) -> structs.Struct:
        mode = structs.CONNMARK_SAVE if self.verb == "save" else structs.CONNMARK_RESTORE
        return structs.pad_connmark(mode, 0, self.ctmask, self.nfmask)

    def describe(self) -> str:
        masks = "" if self._is_whole else f", bits {self.nfmask:#x} of the packet's and {self.ctmask:#x} of the connection's"
        return self.words + masks


class SaveMark(_CopyMark):
    """Copies the packet's mark to its connection (section CONNMARK)."""

    verb, nft_text, words = "save", "ct mark set meta mark", "copy its mark to the connection"

    def act(self, packet: Traversal) -> Verdict:
        return packet.save_mark(self.nfmask, self.ctmask)


class RestoreMark(_CopyMark):
    """Copies the connection's mark to the packet (section CONNMARK)."""

    verb, nft_text, words = "restore", "meta mark set ct mark", "copy the connection's mark to it"

    def act(self, packet: Traversal) -> Verdict:
        return packet.restore_mark(self.nfmask, self.ctmask)


class TrackZone(Target):
    """Tracks the packet's connection in a separate conntrack zone (section CT); `side`: in one direction, "orig" or "reply"."""

    tracks = True
    zone: int
    side: str = ""

    def xt(self, family: Family) -> str:
        return f"CT --zone-{self.side} {self.zone}" if self.side else f"CT --zone {self.zone}"

    def nft(self, family: Family) -> str:
        return f"ct {DIRECTIONS[self.side]} zone set {self.zone}" if self.side else f"ct zone set {self.zone}"

    def express(self, writer: RuleBuilder, family: Family) -> None:
        writer.put(pack("=H", self.zone))
        side = ((numbers.CT_SIDE, bytes((list(DIRECTIONS).index(self.side),))),) if self.side else ()
        writer.add(b"ct", (4, 1), (2, numbers.CT_ZONE), *side)

    def struct(self, family: Family) -> structs.Struct:
        return structs.pad("CT", 2, pack(structs.CT, structs.ZONE_SIDES.get(self.side, 0), self.zone, 0, 0))

    def describe(self) -> str:
        return f"track {f'its {DIRECTIONS[self.side]} direction' if self.side else 'it'} in zone {self.zone}"

    def act(self, packet: Traversal) -> Verdict:
        return packet.track(self.zone, self.side)


class LogTarget(Target):
    """Logs the packet to the kernel log or an NFLOG group (sections LOG, NFLOG)."""

    only_observes = True
    prefix: str
    group: int = 0  # 0: the kernel log

    @property
    def compat(self) -> str:  # type: ignore[override] # computed here
        return "has_own_group_log" if self.group else ""

    def xt(self, family: Family) -> str:
        if self.group:
            return f"NFLOG --nflog-prefix {quote_words(self.prefix)} --nflog-group {self.group}"
        return f"LOG --log-prefix {quote_words(self.prefix)}"

    def nft(self, family: Family) -> str:
        return f'log prefix "{self.prefix}"{f" group {self.group}" if self.group else ""}'

    def express(self, writer: RuleBuilder, family: Family) -> None:
        prefix = self.prefix.encode("utf-8", "surrogateescape") + b"\0"
        writer.add(b"log", (2, prefix), (1, pack(">H", self.group)) if self.group else (5, WARNING))

    def struct(self, family: Family) -> structs.Struct:
        prefix = self.prefix.encode("utf-8", "surrogateescape")
        if self.group:
            return structs.pad("NFLOG", 0, pack(structs.NFLOG, 0, self.group, 0, 0, 0, prefix))
        return structs.pad("LOG", 0, pack(structs.LOG, WARNING, 0, prefix))

    def act(self, packet: Traversal) -> Verdict:
        return GO_ON

    def describe(self) -> str:
        where = f"group {self.group}" if self.group else "the kernel's log"
        return f"report it to {where} as {self.prefix.strip(': ')!r} and go on"

    def label(self) -> str:
        return "NFLOG" if self.group else "LOG"
