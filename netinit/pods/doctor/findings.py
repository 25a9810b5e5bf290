"""Problems that are visible without tests: privileges, locks, leftovers, settings, users, name servers."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netinit import backends
from netinit.base.data import read_data
from netinit.base.errors import NetinitError
from netinit.base.net import parse_address
from netinit.kernel import detect, read_text
from netinit.kernel.capabilities import KUBERNETES, PERSON, advise, find_situation
from netinit.kernel.files import UnsuitableFileError, open_lock_file
from netinit.kernel.namespaces import OWN, XTABLES_LOCK
from netinit.kernel.processes import describe_holders
from netinit.kernel.snapshot.reader import read_host, read_programs
from netinit.live.host import is_loopback_down
from netinit.live.unfollowed import describe_node_program
from netinit.options import TPROXY, Options, RunOptions, SettledOptions
from netinit.pods.backend_choice import Survey
from netinit.pods.live import infer_run
from netinit.pods.verify import verify
from netinit.questions.findings import CODES
from netinit.questions.listening import examine_pod, severity_of

ERROR, WARNING, NOTE = "error", "warning", "note"
IN_A_CLUSTER = (
    "Pod Security baseline and restricted forbid it (label the namespace pod-security.kubernetes.io/enforce=privileged, or"
    " use the CNI plugin), OpenShift needs an SCC that allows it"
)
STRICT = 1  # of rp_filter: the reverse path must use the same interface
MAX_SERVERS = 3  # MAXNS of resolv.h
WHOLE_RANGE = "4294967295"  # a user namespace that maps every id is the initial one
Read = Callable[[str], str]
_TEXTS = json.loads(read_data("doctor-findings.json"))  # kind -> severity, subject, message, and remedy if there is one


@dataclass(frozen=True, slots=True)
class Symptom:
    """A problem: an ERROR keeps pods from working, a WARNING may."""

    severity: str
    subject: str
    message: str
    remedy: str = ""


def symptom(kind: str, *, severity: str = "", **values: object) -> Symptom:
    """Return the symptom of this kind; `values` fill its message and remedy. `severity`: instead of the usual one."""
    usual, subject, *texts = _TEXTS[kind]
    return Symptom(severity or usual, subject, *[text.format(**values) for text in texts])


def remedy_for_privileges() -> str:
    """Return how to give this process the privileges that rules need."""
    advice = advise("NET_ADMIN", "NET_RAW")
    return f"{advice}; {IN_A_CLUSTER}" if find_situation() == KUBERNETES else advice


def find_privileges(*, lacking: bool) -> Iterator[Symptom]:
    """Yield missing privileges. `lacking`: no backend works, which NET_RAW (for legacy iptables) may explain."""
    if not detect.has_capability(detect.CAP_NET_ADMIN):
        who = "root, but without NET_ADMIN" if os.geteuid() == 0 else f"uid {os.geteuid()} without NET_ADMIN"
        yield symptom("no-admin", who=who, remedy=remedy_for_privileges())
    if not detect.has_capability(detect.CAP_NET_RAW):
        names = " and ".join([name for name, line in backends.BACKENDS.items() if line.wants_net_raw])
        yield symptom("no-raw", severity=WARNING if lacking else NOTE, names=names, remedy=remedy_for_privileges())
    if not detect.has_capability(detect.CAP_SETUID):
        yield symptom("no-setuid", remedy=advise("SETUID") if find_situation() == PERSON else "add SETUID and SETGID")
    if WHOLE_RANGE not in read_text("/proc/self/uid_map"):
        yield symptom("user-namespace")


def find_locks() -> Iterator[Symptom]:
    """Yield holders of locks that programming needs; tries each, since /proc/locks hides other containers."""
    named = os.environ.get("XTABLES_LOCKFILE", "")
    for path, what in ((named or XTABLES_LOCK, "legacy iptables"), (OWN, "this network namespace")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path == OWN else open_lock_file(path, make=False)
        except OSError as error:
            if (named and path == named) or isinstance(error, UnsuitableFileError):
                yield symptom("bad-lock", label="XTABLES_LOCKFILE: " if named else "", path=path, reason=error.strerror)
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield symptom("held-lock", what=what, path=path, holders=describe_holders(descriptor))
        finally:
            os.close(descriptor)


def find_leftovers(survey: Survey, chosen: str) -> Iterator[Symptom]:
    """Yield existing rules of Istio or netinit, above all outside the chosen backend."""
    holders = survey.holders()
    names = [observed.backend.name for observed in holders]
    if len(names) > 1:
        yield symptom("two-holders", names=" and ".join(names))
    elif names and chosen and names != [chosen] and names[0] not in backends.readers(chosen):
        yield symptom("other-holder", name=names[0], chosen=chosen)
    elif names:
        yield symptom("holder", name=names[0])
    for failure in survey.failures:
        yield symptom("unread-rules", failure=failure, remedy=remedy_for_privileges())


def find_escapes(options: Options) -> Iterator[Symptom]:
    """Yield what keeps existing rules from being in force, and who does not listen, as `netinit verify` without options does."""
    try:
        shown = infer_run(options)
        report = verify(shown[0], snapshot=shown[-1], make_plan=shown[2].make_plan) if shown else None
    except (NetinitError, OSError) as error:
        yield symptom("unknown-force", error=error)
        return
    if shown is None or report is None:
        yield symptom("capture-nothing")
        return
    if found := report.differences:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield symptom("not-in-force", first=found[0].describe(), more=more)
    for recipient in examine_pod(shown[-1], report.plan, report.backend):
        yield symptom("listener", severity=severity_of(recipient), text=recipient.text, code=CODES[recipient.kind])


def find_settings(options: SettledOptions, read: Read = read_text) -> Iterator[Symptom]:
    """Yield kernel settings that lose captured connections."""

    def is_on(name: str) -> bool:
        return (read(f"/proc/sys/net/{name}").strip() or "0") != "0"

    transparent = options.inbound_mode == TPROXY
    everywhere = is_on("ipv6/conf/all/disable_ipv6")
    if options.captures_ipv6 and is_on("ipv6/conf/lo/disable_ipv6") and not everywhere:
        what = "TPROXY cannot be programmed" if transparent else "captured outbound IPv6 connections are lost"
        yield symptom("no-loopback-ipv6", what=what)
    if not transparent:
        return
    for name in sorted(name for _, name in socket.if_nameindex() if name != "lo"):
        values = {
            setting: {one: int(read(f"/proc/sys/net/ipv4/conf/{one}/{setting}").strip() or 0) for one in ("all", name)}
            for setting in ("src_valid_mark", "accept_local", "rp_filter")
        }  # the higher of the two values
        marked = [one for one, value in values["src_valid_mark"].items() if value]
        accepted = any(values["accept_local"].values()) and max(values["rp_filter"].values()) != STRICT
        if marked and not accepted:
            yield symptom("valid-mark", where=marked[0], name=name)
    if is_on("ipv4/tcp_fwmark_accept"):
        yield symptom("accepted-mark")


def find_down_loopback() -> Iterator[Symptom]:
    """Yield an error if the loopback device is down."""
    try:
        snapshot = read_host()
    except OSError as error:
        yield symptom("unknown-force", error=error)
        return
    if is_loopback_down(snapshot):
        yield symptom("down-loopback")


def find_full_tracking(read: Read = read_text) -> Iterator[Symptom]:
    """Yield an error if the connection tracking table is full."""
    count, most = (read(f"/proc/sys/net/netfilter/nf_conntrack_{name}").strip() for name in ("count", "max"))
    if count.isdigit() and most.isdigit() and 0 < int(most) <= int(count):
        yield symptom("full-tracking", count=count, most=most)


def find_bpf_programs() -> Iterator[Symptom]:
    """Yield BPF programs that may redirect traffic before any rule sees it; the node's own as notes."""
    try:
        programs = read_programs(read_host().links, [])
    except OSError:  # what cannot be read, `netinit verify` reports
        return
    for one in programs:
        yield symptom("node-program", program=describe_node_program(one)) if one.is_of_node else symptom("program", program=one)


def find_collisions(options: RunOptions, uids: tuple[int, ...], gids: tuple[int, ...]) -> Iterator[Symptom]:
    """Yield users and groups of the application that are the proxy's, so that their traffic bypasses it."""
    if options.traits.proxy_mark:  # identifies the proxy by its mark
        return
    for kind, number, taken in (
        *(("user", uid, options.proxy_uids) for uid in uids),
        *(("group", gid, options.proxy_gids) for gid in gids),
    ):
        if number in taken:
            root = f" (the {options.layout} layout excludes root)" if not number and 0 in options.traits.excluded_uids else ""
            yield symptom("proxys-id", whom=kind, number=number, root=root, field="runAsUser" if kind == "user" else "runAsGroup")


def find_name_servers(options: SettledOptions, text: str) -> Iterator[Symptom]:
    """Yield pitfalls of a resolv.conf if DNS is captured. `options` are settled."""
    if not options.redirect_dns:
        return
    lines = [line.split() for line in text.splitlines()]
    words = [line[1] for line in lines if len(line) > 1 and line[0] == "nameserver"]
    servers = list(dict.fromkeys([*detect.name_servers(text)])) if not options.capture_all_dns else []
    if not options.capture_all_dns and not (servers or options.dns_servers):
        yield symptom("no-server")
    for word in words:
        address, zone, _ = word.partition("%")
        try:
            address = parse_address(address)
        except ValueError:
            yield symptom("no-address", word=word)
            continue
        if address.startswith("127.") or address == "::1":
            yield symptom("loopback-server", address=address)
        if zone:
            yield symptom("zone", word=word, address=address)
        if ":" in address and not options.captures_ipv6:
            yield symptom("ipv6-server", address=address)
    if len(words) > MAX_SERVERS:
        yield symptom("many-servers", count=len(words), most=MAX_SERVERS)
