"""Follow real packets of a pod through the rules with the kernel's trace; leaves the pod unchanged."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import pack
from typing import TypeVar

from netinit.backends.named_pod import NamedPod
from netinit.base.net import Family, Network
from netinit.base.snapshot import FAMILY_NAMES, Snapshot
from netinit.kernel import namespaces, trace_messages
from netinit.kernel.netlink import INET, LOOPBACK_INDEX
from netinit.kernel.run import Signals
from netinit.kernel.trace_messages import ENDS, TABLE
from netinit.options import FIRST_WITH, LEGACY_TABLES, NF_TABLES, TABLES_OF_OUR_OWN, Options
from netinit.rules.matches.context import BARE_SYN, Limit
from netinit.rules.matches.packet import Destination, Port, Source
from netinit.rules.model import NFT_PREFIXES
from netinit.rules.nft import model_name, model_table
from netinit.rules.numbers import META_IIF, META_NFTRACE, META_SKGID, META_SKUID
from netinit.rules.packet_inputs import Packet
from netinit.rules.rule_builder import REGISTER, RuleBuilder
from netinit.rules.targets import Drop, Reject
from netinit.simulate.hooks import TABLES_OF_THE_KERNEL
from netinit.simulate.ruleset import Ruleset
from netinit.simulate.trace import DELIVERED, DROPPED, FORWARDED, SENT, VANISHED, Trace, TraceStep
from netinit.simulate.trace_alignment import rules_of, trace_observed

Result = TypeVar("Result")
Rulesets = Mapping[str, Mapping[Family, Ruleset]]

SLICE = 0.1  # seconds until a signal is handled
QUIET = 0.5  # seconds without an event after which a packet counts as lost
MAX_PACKETS = 64  # followed at the same time: more than the default rate of the trace
MAX_HITS = 10_000  # events of one packet
_BESIDE = 120.0  # seconds that the child may take in addition to waiting
_INPUT = next(name for name, hook in ENDS.items() if hook == 1)
_OWN, _IPTABLES, _LEGACY = FIRST_WITH[TABLES_OF_OUR_OWN], FIRST_WITH[NF_TABLES], FIRST_WITH[LEGACY_TABLES]  # sources of rules
_OUTCOMES = {0: "drop", 1: "accept", 3: "queue", -1: "goes on", -3: "jump", -4: "goto", -5: "return"}


def inside(options: Options, work: Callable[[Options, Signals], Result], seconds: float, holding: tuple[int, ...] = ()) -> Result:
    """Run `work` in the namespace that the options name, with options for that namespace and the signals to handle.

    From outside, a child runs it as the pod's root. Raises the errors of `OpenPod`; NamespaceError for the machine's own
    namespace, unless the options allow it.
    """
    signals = Signals()
    if not (options.pid or options.netns):
        if not options.host_network:
            namespaces.refuse_host()
        signals.listen()
        try:
            return work(options, signals)
        finally:
            signals.stop()
    with NamedPod(options, refuses=not options.host_network) as pod:
        here = pod.options.replace(pid=0, netns="")
        try:
            return pod.modify_inside(lambda own: work(here, own), signals, holding=holding, seconds=seconds + _BESIDE)
        finally:
            signals.stop()


def open_tracer(wanted: Packet, *, rate: int, older: bool) -> trace_messages.Tracer:
    """Return a tracer of at most `rate` packets a second that open a connection as `wanted` does, whose None matches anything.

    `older`: see `trace_messages.Tracer`.
    """
    rule = RuleBuilder(INET, [])
    rule.limit_family(wanted.family)
    for kind, number in ((Source, wanted.source), (Destination, wanted.destination)):
        if number is not None:
            kind(networks=(Network((wanted.family.version, number, wanted.family.bits)),)).express(rule)
    Port(protocol=wanted.protocol, ports=(wanted.destination_port or 0,)).express(rule)
    if wanted.in_interface:  # packets from this host to itself are traced on output
        rule.load("meta", META_IIF)
        rule.compare(pack("=I", LOOPBACK_INDEX), negated=True)
    if wanted.protocol == "tcp":
        BARE_SYN.express(rule)
    for key, number in ((META_SKUID, wanted.uid), (META_SKGID, wanted.gid)):
        if number is not None:
            rule.load("meta", key)
            rule.compare(pack("=I", number))
    Limit(rate=rate, burst=rate).express(rule)
    rule.put(b"\1")
    rule.add(b"meta", (2, META_NFTRACE), (3, REGISTER))
    rule.add(b"log", (1, pack(">H", trace_messages.GROUP)), (4, pack(">H", 1)))  # NFTA_LOG_GROUP, _QTHRESHOLD
    return trace_messages.Tracer(rule.block(), wanted.family, inbound=bool(wanted.in_interface), older=older)


@dataclass(slots=True)
class _TracedPacket:
    start: trace_messages.PacketStart
    steps: list[TraceStep] = field(default_factory=list)
    older: list[TraceStep] = field(default_factory=list)
    split_rule: TraceStep | None = None  # a rule that continues in a chain of its own, whose last rule decides whether it matches
    hook: str = ""
    fate: str = ""
    last: trace_messages.Headers | None = None
    device: int = 0
    last_event: float = 0.0


def number_rules(snapshot: Snapshot) -> dict[tuple[int, str, str], dict[int, int]]:
    """Return the numbers of nf_tables rules by handle, by family, table and chain; without the trace's own."""
    found: dict[tuple[int, str, str], dict[int, int]] = {}
    for one in snapshot.rules:
        if (one.family, one.table) != (INET, TABLE):
            numbers = found.setdefault((one.family, one.table, one.chain), {})
            numbers[one.handle] = len(numbers) + 1
    return found


class Follower:
    """Follows packets of one connection and returns each at the end of its path."""

    def __init__(self, tracer: trace_messages.Tracer, wanted: Packet, rulesets: Rulesets, snapshot: Snapshot) -> None:
        self._tracer, self._wanted = tracer, wanted
        self._rulesets = {source: found[wanted.family] for source, found in rulesets.items() if wanted.family in found}
        self._handles = number_rules(snapshot)
        hooked = [one for one in snapshot.chains if 0 <= one.hook < len(trace_messages.HOOKS)]
        self._hooks = {(one.family, one.table, one.name): trace_messages.HOOKS[one.hook] for one in hooked}
        self._packets: dict[tuple[int, int, int], _TracedPacket] = {}
        self._names: dict[int, tuple[int, int, int]] = {}  # packet number of the kernel -> the packet that has it now

    def read(self, seconds: float) -> list[Trace]:
        """Read events for up to `seconds`; return packets that ended 0.1 s ago, or are silent for 0.5 s (lost)."""
        for event in self._tracer.read(seconds):
            if isinstance(event, trace_messages.PacketStart):
                if len(self._packets) < MAX_PACKETS:
                    self._packets[event.headers.key] = _TracedPacket(event, last_event=time.monotonic())
            elif isinstance(event, trace_messages.LegacyRuleEvent):
                if found := self._packets.get(event.headers.key):
                    self._add_legacy_step(found, event)
            else:
                if event.headers and event.headers.key in self._packets:
                    self._names[event.packet] = event.headers.key
                if found := self._packets.get(self._names.get(event.packet, (0, 0, 0))):
                    self._handle_event(found, event)
        now = time.monotonic()
        done = [key for key, one in self._packets.items() if now - one.last_event > (SLICE if one.fate else QUIET)]
        ended = [self._finish(self._packets.pop(key)) for key in done]
        if not self._packets:
            self._names.clear()
            self._tracer.lost = False
        return ended

    def _handle_event(self, found: _TracedPacket, event: trace_messages.RuleEvent) -> None:
        found.last_event = time.monotonic()
        found.last = event.headers or found.last
        found.hook = self._hooks.get((event.family, event.table, event.chain), found.hook)
        if (event.family, event.table) == (INET, TABLE):
            if event.chain in ENDS:
                found.device = event.out_device or found.device
                if event.chain == _INPUT:
                    found.fate = DELIVERED
                elif found.device != LOOPBACK_INDEX and event.policy:
                    found.fate = FORWARDED if self._wanted.in_interface else SENT
            return
        if event.code == trace_messages.NF_DROP and (event.handle or event.policy):
            found.fate = DROPPED
        if event.handle and len(found.steps) < MAX_HITS:
            self._add_step(found, event)
        elif event.policy and event.code == trace_messages.NF_DROP:
            found.steps.append(TraceStep(found.hook, "the policy drops it", *self._name(event)))

    def _add_step(self, found: _TracedPacket, event: trace_messages.RuleEvent) -> None:
        source = self._source(event)
        table, chain = self._name(event)
        number = self._handles.get((event.family, event.table, event.chain), {}).get(event.handle, 0)
        ruleset = self._rulesets.get(source)
        split_rule, found.split_rule = found.split_rule, None
        if ruleset is None:
            found.steps.append(TraceStep(found.hook, _OUTCOMES.get(event.code, "takes it"), table, chain, number=number))
            return
        if chain not in ruleset.tables.get(table, {}):  # the second half of a rule that nft splits into two
            if split_rule and event.code in (trace_messages.NFT_JUMP, trace_messages.NFT_GOTO):
                found.steps.append(split_rule)
            return
        loaded = rules_of(ruleset, table, chain).get(number)
        outcome = "" if loaded else "it was not there when the rules were read"
        one = TraceStep(found.hook, outcome, table, chain, loaded, source=source, number=number)
        leads = event.code in (trace_messages.NFT_JUMP, trace_messages.NFT_GOTO) and source == _OWN
        if leads and model_name(event.target) not in ruleset.tables.get(table, {}):
            found.split_rule = one
        else:
            found.steps.append(one)

    def _source(self, event: trace_messages.RuleEvent) -> str:
        if event.family == INET:
            return _OWN if event.table.startswith(NFT_PREFIXES) else ""
        return _IPTABLES if event.table in TABLES_OF_THE_KERNEL else ""

    def _name(self, event: trace_messages.RuleEvent) -> tuple[str, str]:
        """Return table and chain by the model's names, foreign ones by nft's."""
        if self._source(event) == _OWN:
            return model_table(event.table), model_name(event.chain)
        if self._source(event):
            return event.table, event.chain
        return f"nft table {FAMILY_NAMES.get(event.family, event.family)} {event.table}", event.chain

    def _add_legacy_step(self, found: _TracedPacket, event: trace_messages.LegacyRuleEvent) -> None:
        found.last_event = time.monotonic()
        ruleset = self._rulesets.get(_LEGACY)
        loaded = rules_of(ruleset, event.table, event.chain).get(event.number) if ruleset else None
        if loaded and len(found.older) < MAX_HITS:
            found.older.append(TraceStep(event.hook, "", event.table, event.chain, loaded, source=_LEGACY))

    def _finish(self, found: _TracedPacket) -> Trace:
        steps = [*found.steps, *found.older]
        fate = found.fate
        last = steps[-1].rule if steps else None
        if not fate and last and isinstance(last.rule.target, Drop | Reject):
            fate = DROPPED  # old iptables reports the rule but no verdict
        first, headers = self._make_packet(found.start), found.last or found.start.headers
        end = first.replace(
            destination=headers.destination, destination_port=headers.destination_port, out_interface=_name_device(found.device)
        )
        return trace_observed(first, end, fate or VANISHED, tuple(steps), whole=not self._tracer.lost)

    def _make_packet(self, start: trace_messages.PacketStart) -> Packet:
        headers = start.headers
        inbound = bool(self._wanted.in_interface)
        return Packet(
            family=self._wanted.family, protocol=self._wanted.protocol, source=headers.source, destination=headers.destination,
            source_port=headers.source_port, destination_port=headers.destination_port, mark=start.mark,
            in_interface=_name_device(start.device) if inbound else "", has_socket=not inbound and start.uid is not None,
            uid=None if inbound else start.uid, gid=None if inbound else start.gid,
            flags=("SYN",) if self._wanted.protocol == "tcp" else None,
        )  # fmt: skip


def _name_device(number: int) -> str:
    try:
        return socket.if_indextoname(number) if number else ""
    except OSError:  # already deleted
        return ""
