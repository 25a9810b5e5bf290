"""The input of `explain`, `draw` and others: the connection in question, and the rules that apply to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from netinit.base.errors import OptionError, ParseError
from netinit.base.net import FAMILIES, IPV4, IPV6, Family, family_of, parse_address
from netinit.base.sanitize import MAX_RULE_LENGTH, quote, shorten
from netinit.cli.flags import Decorator, add_options, add_value, given_flags, read_value, write_command
from netinit.cli.inject.inputs import read_manifests, read_text
from netinit.cli.values import OneOf, takes
from netinit.kernel.detect import read_name_servers
from netinit.options import Interception, Options, SettledOptions, offline
from netinit.options.kinds import ANY_MARK, PORT, quote_value, read_gid, read_interface, read_uid
from netinit.questions.pod_rules import PodRules
from netinit.rules.layouts import plan
from netinit.rules.model import EMPTY_PLAN
from netinit.rules.packet_inputs import Packet, Surroundings
from netinit.simulate.endpoints import EXAMPLE_POD, make_inbound, make_outbound, parse_endpoint, stand_in
from netinit.simulate.ruleset import load_plan

if TYPE_CHECKING:
    from netinit.inject.deciding.podfile import PodFacts

DIRECTIONS = ("outbound", "inbound")
APPLICATION = 1000
POD, FILE = "--pod", "FILE"
PLAN = "plan"  # the place of rules that are not live
MAX_NAMED = 5  # pods in a message


@dataclass(frozen=True, slots=True)
class RuleSource:
    """The rules that a command line asks for.

    `name`: of the pod or namespace; `notes`: where they come from; `warnings`: what is doubtful about them; `facts`: of the
    manifest, if there is one.
    """

    name: str
    rules: PodRules
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    facts: PodFacts | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A connection as written on the command line; its texts are validated when the packet is built."""

    direction: str | None
    to: str
    source: str
    to_port: str
    udp: bool
    uid: str
    gid: str
    interface: str = ""
    mark: int = 0

    @property
    def names_an_end(self) -> bool:
        """Whether it names where the connection goes or comes from."""
        return bool(self.to or self.source)


def question_options(uid: str, gid: str, *more: Decorator) -> Decorator:
    """Add the options that name a connection, with the help of --uid and --gid; the function gets `question`."""
    return add_value(
        "question", Question, click.argument("direction", type=OneOf(DIRECTIONS), required=False),
        click.option("--to", default="", **takes("ADDRESS[:PORT]"), help="Where the connection goes."),
        click.option("--from", "source", default="", **takes("ADDRESS"), help="Where it comes from (inbound, unless --uid is given)."),
        click.option("--to-port", default="", **takes("PORT"), help="The port, where --to has none."),
        click.option("--udp", is_flag=True, help="UDP instead of TCP."),
        click.option("--uid", default="", **takes("USER"), help=uid),
        click.option("--gid", default="", **takes("GROUP"), help=gid), *more,
    )  # fmt: skip


ask_about_a_connection = question_options(
    f"Who connects: a user (default: those of --pod, else {APPLICATION}).",
    "The group that connects (default: the number of --uid).",
    click.option("--interface", default="", **takes("NAME"), help="Inbound: the interface (default: that of the default route)."),
    click.option("--mark", default=0, **takes(ANY_MARK), help="The firewall mark of the socket."),
)


def pod_options(text: str) -> Decorator:
    """Add --pod, with `text` as its help, and --select."""
    return add_options(
        click.option("--pod", multiple=True, **takes("FILE|FOLDER|PATTERN|-"), help=f"{text} Repeatable."),
        click.option("--select", default="", **takes("NAME"), help="Which pod of --pod: NAME, NAMESPACE/NAME or KIND/NAME."),
    )


def name_manifests(pod: Sequence[str], files: Sequence[str]) -> str:
    """What messages call manifests that stand after --pod and as arguments."""
    return " or ".join([POD] * bool(pod) + [FILE] * bool(files)) or POD


@dataclass(frozen=True, slots=True)
class RuleChoice:
    """Which rules a command line asks for: those of pods in manifests, live ones, or else those planned from the options."""

    pod: tuple[str, ...] = ()
    select: str = ""
    pod_ip: tuple[str, ...] = ()
    live: bool = False
    label: str = POD  # how the command line names the manifests: --pod, FILE or both


LIVE = RuleChoice(live=True)
rule_source_options = add_value(
    "choice", RuleChoice,
    pod_options("Use the rules of this pod's init container; --pid compares."),
    click.option("--pod-ip", multiple=True, **takes("ADDRESS"), help="The pod's address (default: that of --pod, or an example)."),
    click.option("--live", is_flag=True, help="Use the live rules of this namespace; implied by --pid and --netns."),
)  # fmt: skip


def find_rule_source(options: Options, choice: RuleChoice) -> RuleSource:
    """The rules; live ones are compared with a manifest or given options. Raises OptionError, ParseError, NetinitError."""
    facts = read_manifest(choice.pod, choice.select, choice.label) if choice.pod or choice.select else None
    if choice.live or options.pid or options.netns:
        if choice.pod_ip:
            raise OptionError("--pod-ip: live rules are asked with the addresses of their own namespace; leave it out")
        return _find_live(options, facts)
    return find_planned(options, facts, choice.pod_ip)


def find_rule_sources(options: Options, choice: RuleChoice) -> list[RuleSource]:
    """The rules for every pod of a manifest."""
    if choice.pod and not (choice.live or options.pid or options.netns):
        return [find_planned(options, facts, choice.pod_ip) for facts in read_pods(choice.pod, choice.select, choice.label)]
    return [find_rule_source(options, choice)]


def name_namespace(options: Options) -> str:
    """The namespace that the options name, for messages."""
    return f"pid {options.pid}" if options.pid else options.netns or "this namespace"


def find_planned(options: Options | None = None, facts: PodFacts | None = None, pod_ip: tuple[str, ...] = ()) -> RuleSource:
    """The rules that a pod, or the options (None: defaults), would have; of the options, a pod takes the name servers it needs."""
    options = options or Options()
    facts = facts and complete_servers(facts, options)
    addresses = tuple(read_value(address, parse_address, "--pod-ip") for address in pod_ip) or (facts.addresses if facts else ())
    given, read_servers = (facts.options, tuple) if facts else (options, read_name_servers)
    notes, warnings = _add_pod_notes(facts)
    settled = given.settle(offline(addresses, read_servers))
    rules, more = _plan(settled, facts, addresses)
    second = settled if addresses else given.settle(offline(tuple(EXAMPLE_POD.values()), read_servers))
    if second.ipv6 != settled.ipv6:
        rules = replace(rules, ipv4_first=replace(_plan(second, facts, ())[0], families=(IPV6,)))
    return RuleSource(facts.name if facts else "the options", rules, notes, warnings + settled.warnings + more, facts)


def _plan(options: SettledOptions, facts: PodFacts | None, addresses: tuple[str, ...]) -> tuple[PodRules, tuple[str, ...]]:
    """The rules of options, none for a pod that is not intercepted, and the warnings of their plan."""
    made = plan(options) if not facts or facts.intercepted else EMPTY_PLAN
    rulesets = {PLAN: {family: load_plan(made, family) for family in FAMILIES}}
    around = {family: stand_in(family, addresses) for family in FAMILIES}
    rules = PodRules(rulesets, around, {} if made is EMPTY_PLAN else {PLAN: options})
    return _with_facts(rules, facts), made.warnings


def _with_facts(rules: PodRules, facts: PodFacts | None) -> PodRules:
    """The rules with what a manifest knows of their pod."""
    if not facts:
        return rules
    return replace(rules, origins=facts.origins, has_tunnel=facts.has_tunnel is True, shared_owners=facts.shared_owners)


def _find_live(options: Options, facts: PodFacts | None) -> RuleSource:
    from netinit.pods.live import read_live
    from netinit.rules.infer_options import find_other_values

    facts = facts and complete_servers(facts, options)
    known, by_whom = (facts.options, "the manifest") if facts else find_known(options)
    target = known.replace(pid=options.pid, netns=options.netns) if known else options
    found = read_live(target, given=known is not None)
    notes, warnings = _add_pod_notes(facts)
    warnings += found.warnings
    for source, inferred in found.inferred.items():
        warnings += tuple(f"{source}: not shown by the rules: {text}" for text in inferred.unread)
        if inferred.options is None:
            continue
        notes += (f"{source}: rules of {format_options(inferred.options.given)}",)
        notes += _describe_tunnel_listener(inferred.options, found.listening)
        wanted = found.rules.wanted if known else inferred.recorded
        others = find_other_values(wanted, inferred.options) if wanted and wanted is not inferred.options else ()
        if others:
            texts = [(flag.label, *[quote_value(flag.kind.write(value)) for value in (live, wanted)]) for flag, wanted, live in others]
            words = [f"{label} is {is_live} and not {is_wanted}" for label, is_live, is_wanted in texts]
            by = by_whom if known else "the options recorded in the nft table's comment"
            warnings += (f"{source}: the rules are not those that {by} would make: {'; '.join(words)}",)
    return RuleSource(name_namespace(options), _with_facts(found.rules, facts), notes, warnings, facts)


def find_known(options: Options) -> tuple[Options | None, str]:
    """The options that live rules should have, those given or those of the agent's record, and which; None without either."""
    return (options, "the options given") if names_rules(options) else (_find_attached(options), "the agent's record")


def _find_attached(options: Options) -> Options | None:
    """The options with which the node's agent programmed the namespace that the options name; None if it has no record of it."""
    path = options.netns or (f"/proc/{options.pid}/ns/net" if options.pid else "")
    if not path:
        return None
    try:
        from netinit.node.pod_records import Attachments
        from netinit.node.settings import ATTACHMENTS, SOCKET
    except ModuleNotFoundError:  # the init container's image has no agent's modules
        return None
    folder = Path(SOCKET).parent / ATTACHMENTS
    try:
        status = Path(path).stat() if any(folder.iterdir()) else None
    except OSError:  # most machines have no agent; what names no namespace is reported where it is entered
        return None
    if status is None:
        return None
    identity = status.st_dev, status.st_ino
    return next((one.options for one in Attachments(folder) if (one.device, one.inode) == identity), None)


def _describe_tunnel_listener(options: Interception, listening: frozenset[tuple[int, int]] | None) -> tuple[str, ...]:
    """A note on who listens on the HBONE port if the rules exempt it."""
    port = options.sidecar_tunnel
    if not (port and options.inbound_ports):
        return ()
    users = sorted(user for number, user in listening or () if number == port)
    if listening is None:
        who = "the kernel does not report who listens there"
    else:
        who = f"user {', '.join(map(str, users))} listens there" if users else "no process listens there now"
    return (f"port {port} is left to the proxy's tunnel (HBONE): {who}",)


def _add_pod_notes(facts: PodFacts | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Notes and warnings about the manifest's pod, if there is one."""
    if not facts:
        return (), ()
    by_design = [f"{facts.name}: {finding}" for finding in facts.findings if finding.is_note]
    problems = [f"{facts.name}: {finding}" for finding in facts.findings if not finding.is_note]
    return (f"{facts.name}: {'; '.join(facts.notes)}", *by_design), tuple(problems)


def list_conditions(facts: PodFacts | None) -> tuple[str, ...]:
    """What would make a proof about a manifest's pod void, each as a clause that follows `unless`."""
    changers = facts.rule_changers if facts else ()
    found = [f"container {quote(one.container)} changes the rules: {one.right}" for one in changers[:MAX_NAMED]]
    if len(changers) > MAX_NAMED:
        found.append(f"one of {len(changers) - MAX_NAMED} more containers changes the rules")
    return tuple(found)


def read_pods(pod: Sequence[str], select: str, label: str = POD) -> tuple[PodFacts, ...]:
    """Every pod in these files, directories and patterns. Raises OptionError, ParseError."""
    from netinit.inject.deciding import podfile

    if not pod:
        raise OptionError("--select: names a pod of --pod; give --pod FILE")
    rules = {flag.field for flag in Interception.flags} - {"dns_servers"}  # manifests do not contain name servers
    if ignored := [name for field, name in given_flags().items() if field in rules]:
        raise OptionError(*[f"{name}: the pod of {label} has its own options; give one of the two" for name in ignored])
    return podfile.read_pods(read_manifests(pod, label, recursive=True), select, label)


def read_manifest(pod: Sequence[str], select: str, label: str = POD) -> PodFacts:
    """The single pod of manifests."""
    found = read_pods(pod, select, label)
    if len(found) > 1:
        names = ", ".join([facts.name for facts in found[:MAX_NAMED]]) + (" and more" if len(found) > MAX_NAMED else "")
        raise OptionError(f"{label}: {len(found)} pods are in {quote_value(', '.join(pod))}: choose one with --select ({names})")
    return found[0]


def complete_servers(facts: PodFacts, options: Options) -> PodFacts:
    """Add the name servers that a pod needs, from the command line or its dnsConfig; note if some are missing."""
    if not facts.options.wants_servers:
        return facts
    if options.dns_servers:
        return replace(facts, options=facts.options.replace(dns_servers=options.dns_servers))
    if facts.name_servers:
        named = replace(facts, options=facts.options.replace(dns_servers=facts.name_servers))
        note = "the cluster's name servers, which its pods ask first, are not in the manifest: name all with --dns-servers"
        return named if facts.only_these else replace(named, notes=(*facts.notes, note))
    note = "its name servers are not in the manifest: name them with --dns-servers, DNS counts as not captured without"
    return replace(facts, notes=(*facts.notes, note))


def names_rules(options: Options) -> bool:
    """Whether a flag or variable set any rule option to a value other than its default."""
    plain = Options.from_argv(())
    return any(getattr(options, flag.field) != getattr(plain, flag.field) for flag in Interception.flags)


def format_options(options: Options) -> str:
    """Options, as given and not as settled here, as a command line of apply, truncated."""
    rules = Options(**{flag.field: getattr(options, flag.field) for flag in Interception.flags})
    return shorten(write_command(rules), MAX_RULE_LENGTH)


def make_packet(question: Question, surroundings: Mapping[Family, Surroundings]) -> Packet:
    """The first packet of the connection in question. Raises OptionError for missing or invalid values."""
    inbound = question.direction == "inbound" or (not question.direction and bool(question.source) and not question.uid)
    _refuse_options_of_other_direction(question, inbound=inbound)
    host, port = parse_endpoint(question.to, "--to") if question.to else ("", 0)
    source = read_value(question.source, parse_address, "--from") if question.source else ""
    named = read_value(question.to_port, PORT.read, "--to-port") if question.to_port else 0
    if port and named and port != named:
        raise OptionError(
            f"--to-port: {quote_value(question.to_port)} contradicts --to {quote_value(question.to)}; give one port"
        )
    port = port or named
    if not host and not inbound:
        raise OptionError("--to: the destination is missing; give --to ADDRESS:PORT, or --from for an inbound connection")
    if not port:
        start, _, end = host.rpartition(":")
        unclear = f"; is {end} the port? write [{start}]:{end}" if start else ""
        raise OptionError(f"--to-port: the port is missing; give --to ADDRESS:PORT or --to-port PORT{unclear}")
    family = family_of(host or source) if host or source else IPV4
    if host and source and family_of(source) is not family:
        raise OptionError(f"--from: {quote_value(source)} is not of the address family of {quote_value(host)}")
    around = surroundings.get(family)
    if around is None:
        raise OptionError(f"--to: {family.name} is off in this namespace")
    protocol = "udp" if question.udp else "tcp"
    if inbound:
        interface = read_value(question.interface, read_interface, "--interface") if question.interface else ""
        packet = make_inbound(around, source, host, port, protocol=protocol, interface=interface)
        if packet.destination is None:
            raise OptionError(f"--to: the pod has no {family.name} address on {packet.in_interface}; give --to or --pod-ip")
        return packet.replace(mark=question.mark)
    uid = read_value(question.uid, read_uid, "--uid") if question.uid else APPLICATION
    gid = read_value(question.gid, read_gid, "--gid") if question.gid else uid
    return make_outbound(around, host, port, protocol=protocol, uid=uid, gid=gid, source=source, mark=question.mark)


def _refuse_options_of_other_direction(question: Question, *, inbound: bool) -> None:
    owner = [name for name, value in (("--uid", question.uid), ("--gid", question.gid)) if value]
    if inbound and owner:
        raise OptionError(f"{owner[0]}: a connection that comes in has no sender in the pod; leave it out, or give outbound")
    if not inbound and question.interface:
        raise OptionError("--interface: is where a connection comes in; leave it out, or give inbound")


def make_packets(question: Question, rule_source: RuleSource) -> list[tuple[tuple[str, ...], Packet]]:
    """The packets in question with their containers: one for each user of --pod unless --uid or --gid is given."""
    packet = make_packet(question, rule_source.rules.surroundings)
    if packet.in_interface or question.uid or question.gid or not (rule_source.facts and rule_source.facts.users):
        return [((), packet)]
    senders: dict[tuple[int, int], list[str]] = {}
    for user in rule_source.facts.users:
        uid = APPLICATION if user.uid is None else user.uid
        senders.setdefault((uid, uid if user.gid is None else user.gid), []).append(user.container)
    return [(tuple(names), packet.replace(uid=uid, gid=gid)) for (uid, gid), names in senders.items()]


def is_file(text: str) -> bool:
    """Whether the text names an existing file; overlong texts, such as options, do not."""
    try:
        return Path(text).is_file()
    except OSError:
        return False


def read_file(name: str, label: str) -> str:
    """Text of a file, or of stdin for `-`. Raises OptionError, which names the `label`."""
    try:
        return read_text(name).replace("\r\n", "\n")
    except ParseError as error:
        raise OptionError(f"{label}: {error}") from None
