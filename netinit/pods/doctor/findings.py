"""Problems that are visible without tests: privileges, locks, leftovers, settings, users, name servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from netinit import backends
from netinit.base.errors import NetinitError
from netinit.base.net import IPV4, IPV6, parse_address
from netinit.base.system import fcntl
from netinit.kernel import detect, read_text
from netinit.kernel.capabilities import KUBERNETES, PERSON, advise, find_situation
from netinit.kernel.files import UnsuitableFileError, open_lock_file
from netinit.kernel.namespaces import OWN, XTABLES_LOCK
from netinit.kernel.processes import describe_holders
from netinit.kernel.snapshot.reader import read_host, read_programs
from netinit.live.host import find_loopback_fault
from netinit.live.reverse_path import check_marked
from netinit.live.unfollowed import describe_node_program
from netinit.options import TPROXY, Options, RunOptions, SettledOptions
from netinit.pods.backend_choice import Survey
from netinit.pods.live import infer_run
from netinit.pods.verify import verify
from netinit.questions.listening import examine_pod, severity_of
from netinit.questions.why.names import MAX_SERVERS

ERROR, WARNING, NOTE = "error", "warning", "note"
IN_A_CLUSTER = (
    "Pod Security baseline and restricted forbid it (label the namespace pod-security.kubernetes.io/enforce=privileged, or"
    " use the CNI plugin), OpenShift needs an SCC that allows it"
)
WHOLE_RANGE = "4294967295"  # a user namespace that maps every id is the initial one
_LOOPBACK_IPV6 = "ipv6/conf/lo/disable_ipv6"
Read = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Symptom:
    """A problem: an ERROR keeps pods from working, a WARNING may."""

    severity: str
    subject: str
    message: str
    remedy: str = ""


def remedy_for_privileges() -> str:
    """Return how to give this process the privileges that rules need."""
    advice = advise("NET_ADMIN", "NET_RAW")
    return f"{advice}; {IN_A_CLUSTER}" if find_situation() == KUBERNETES else advice


def find_privileges(*, lacking: bool) -> Iterator[Symptom]:
    """Yield missing privileges. `lacking`: no backend works, which NET_RAW (for legacy iptables) may explain."""
    if not detect.has_capability(detect.CAP_NET_ADMIN):
        who = "root, but without NET_ADMIN" if os.geteuid() == 0 else f"uid {os.geteuid()} without NET_ADMIN"
        yield Symptom(ERROR, "privileges", f"this is {who}: no rule can be programmed", remedy_for_privileges())
    if not detect.has_capability(detect.CAP_NET_RAW):
        names = " and ".join([name for name, line in backends.BACKENDS.items() if line.wants_net_raw])
        yield Symptom(
            WARNING if lacking else NOTE, "privileges",
            f"NET_RAW is missing: {names} cannot work",
            remedy_for_privileges(),
        )  # fmt: skip
    if not detect.has_capability(detect.CAP_SETUID):
        yield Symptom(
            NOTE, "privileges",
            "SETUID is missing: validation can only connect as this user",
            advise("SETUID") if find_situation() == PERSON else "add SETUID and SETGID",
        )  # fmt: skip
    if WHOLE_RANGE not in read_text("/proc/self/uid_map"):
        yield Symptom(
            NOTE, "privileges",
            "this is a user namespace (hostUsers: false): uids in rules are those inside it",
            "run the init container in the pod's own user namespace, as any container of the pod",
        )  # fmt: skip


def find_locks() -> Iterator[Symptom]:
    """Yield holders of locks that programming needs; tries each, since /proc/locks hides other containers."""
    named = os.environ.get("XTABLES_LOCKFILE", "")
    for path, what in ((named or XTABLES_LOCK, "legacy iptables"), (OWN, "this network namespace")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path == OWN else open_lock_file(path, make=False)
        except OSError as error:
            if (named and path == named) or isinstance(error, UnsuitableFileError):
                yield Symptom(
                    ERROR, "locks",
                    f"{'XTABLES_LOCKFILE: ' if named else ''}{path} cannot be opened: {error.strerror}",
                    "name a regular file in a writable folder with XTABLES_LOCKFILE",
                )  # fmt: skip
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            yield Symptom(
                WARNING, "locks",
                f"the lock of {what} ({path}) is held by {describe_holders(descriptor)}",
                "wait until it finishes, or raise --lock-timeout; end it if it hangs",
            )  # fmt: skip
        finally:
            os.close(descriptor)


def find_leftovers(survey: Survey, chosen: str) -> Iterator[Symptom]:
    """Yield existing rules of Istio or netinit, above all outside the chosen backend."""
    holders = survey.holders()
    names = [observed.backend.name for observed in holders]
    if len(names) > 1:
        yield Symptom(
            ERROR, "leftovers",
            f"rules of Istio or netinit are in {' and '.join(names)}: connections are captured twice",
            "netinit apply --reconcile keeps one, netinit remove deletes all",
        )  # fmt: skip
    elif names and chosen and names != [chosen] and names[0] not in backends.readers(chosen):
        yield Symptom(
            ERROR, "leftovers",
            f"rules of an earlier run are in {names[0]}, but {chosen} would be taken",
            "netinit apply --reconcile moves them, netinit remove deletes them",
        )  # fmt: skip
    elif names:
        yield Symptom(NOTE, "leftovers", f"rules of an earlier run are in {names[0]}; netinit verify compares them")
    for failure in survey.failures:
        yield Symptom(WARNING, "leftovers", f"there may be rules that could not be read: {failure}", remedy_for_privileges())


def find_escapes(options: Options) -> Iterator[Symptom]:
    """Yield what keeps existing rules from being in force, and who does not listen, as `netinit verify` without options does."""
    try:
        shown = infer_run(options)
        report = verify(shown[0], snapshot=shown[-1], make_plan=shown[2].make_plan) if shown else None
    except (NetinitError, OSError) as error:
        yield Symptom(WARNING, "rules", f"whether the rules here are in force is not known: {error}")
        return
    if shown is None or report is None:
        yield Symptom(WARNING, "rules", "the rules here capture nothing", "netinit verify with their options says why")
        return
    if found := report.differences:
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        yield Symptom(
            WARNING, "rules",
            f"the rules here do not capture what they should: {found[0].describe()}{more}",
            "netinit verify shows all",
        )  # fmt: skip
    for recipient in examine_pod(shown[-1], report.plan, report.backend):
        remedy = f"netinit help {recipient.kind.code} says what to do" if recipient.kind else ""
        yield Symptom(severity_of(recipient), "listeners", recipient.text, remedy)


def find_settings(options: SettledOptions, read: Read = read_text) -> Iterator[Symptom]:
    """Yield kernel settings that lose captured connections."""

    def is_on(name: str) -> bool:
        return (read(f"/proc/sys/net/{name}").strip() or "0") != "0"

    transparent = options.inbound_mode == TPROXY
    everywhere = is_on("ipv6/conf/all/disable_ipv6")
    if options.captures_ipv6 and is_on(_LOOPBACK_IPV6) and not everywhere:
        what = "TPROXY cannot be programmed" if transparent else "captured outbound IPv6 connections are lost"
        yield Symptom(
            ERROR, "settings",
            f"net.ipv6.conf.lo.disable_ipv6=1 while IPv6 is captured: {what}",
            "set net.ipv6.conf.lo.disable_ipv6=0 (pod's securityContext.sysctls, or the CNI), or --ipv6 off",
        )  # fmt: skip
    if not transparent:
        return
    if is_on("ipv4/tcp_fwmark_accept"):
        yield Symptom(
            ERROR, "settings",
            "net.ipv4.tcp_fwmark_accept=1: with TPROXY the proxy's answers go back to the pod itself",
            "set net.ipv4.tcp_fwmark_accept=0",
        )  # fmt: skip


def find_lost_packets(options: SettledOptions) -> Iterator[Symptom]:
    """Yield why this host loses what is captured: its loopback device, or TPROXY's mark where sources are checked."""
    try:
        snapshot = read_host()
    except OSError as error:
        yield Symptom(WARNING, "rules", f"whether the rules here are in force is not known: {error}")
        return
    is_disabled = read_text(f"/proc/sys/net/{_LOOPBACK_IPV6}").strip() == "1"  # find_settings says so
    fault, remedy = find_loopback_fault(snapshot, (IPV4, *([IPV6] if options.captures_ipv6 and not is_disabled else [])))
    if fault:
        yield Symptom(
            ERROR, "settings", f"the loopback device {fault}: whatever is redirected to the proxy inside of the pod is dropped",
            f"{remedy}; for pods the container runtime does so, usually by the CNI plugin loopback in its folder of plugins",
        )  # fmt: skip
    for link in snapshot.links if options.inbound_mode == TPROXY else ():
        checked = check_marked(snapshot, link)
        if checked.drops is not False:
            severity, lost = (ERROR, "are lost") if checked.drops else (WARNING, "may be lost")
            message = f"IPv4 connections that come in through {link.name} {lost} with TPROXY: {checked.reason}"
            yield Symptom(severity, "settings", message, f"set {checked.remedy} (wg-quick sets it to 1)" if checked.remedy else "")


def find_full_tracking(read: Read = read_text) -> Iterator[Symptom]:
    """Yield an error if the connection tracking table is full."""
    count, most = (read(f"/proc/sys/net/netfilter/nf_conntrack_{name}").strip() for name in ("count", "max"))
    if count.isdigit() and most.isdigit() and 0 < int(most) <= int(count):
        yield Symptom(
            ERROR, "settings",
            f"connection tracking is full ({count}, nf_conntrack_max={most}): new connections are dropped",
            "raise net.netfilter.nf_conntrack_max on the node",
        )  # fmt: skip


def find_bpf_programs() -> Iterator[Symptom]:
    """Yield BPF programs that may redirect traffic before any rule sees it; the node's own as notes."""
    try:
        programs = read_programs(read_host().links, [])
    except OSError:  # what cannot be read, `netinit verify` reports
        return
    for one in programs:
        if one.is_of_node:
            yield Symptom(NOTE, "BPF", describe_node_program(one))
        else:
            yield Symptom(WARNING, "BPF", f"{one}: it may redirect or rewrite traffic of the pod before any rule sees it", "detach it")


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
            yield Symptom(
                ERROR, "users",
                f"the application runs as {kind} {number}, which is the proxy's{root}: none of its traffic is captured",
                f"give the application another {'runAsUser' if kind == 'user' else 'runAsGroup'}",
            )  # fmt: skip


def find_name_servers(options: SettledOptions, text: str) -> Iterator[Symptom]:
    """Yield pitfalls of a resolv.conf if DNS is captured. `options` are settled."""
    if not options.redirect_dns:
        return
    lines = [line.split() for line in text.splitlines()]
    words = [line[1] for line in lines if len(line) > 1 and line[0] == "nameserver"]
    servers = list(dict.fromkeys([*detect.name_servers(text)])) if not options.capture_all_dns else []
    if not options.capture_all_dns and not (servers or options.dns_servers):
        yield Symptom(
            ERROR, "resolv.conf",
            "--redirect-dns, but /etc/resolv.conf names no server: no DNS query is captured",
            "name them with --dns-servers, or use --capture-all-dns",
        )  # fmt: skip
    for word in words:
        address, zone, _ = word.partition("%")
        try:
            address = parse_address(address)
        except ValueError:
            yield Symptom(WARNING, "resolv.conf", f"nameserver {word} is not an address and is ignored", "correct it")
            continue
        if address.startswith("127.") or address == "::1":
            yield Symptom(
                WARNING, "resolv.conf",
                f"nameserver {address} is a loopback address: in a pod nothing answers there, not even the proxy's own queries",
                "set the pod's dnsConfig, or kubelet's --resolv-conf (with systemd-resolved /run/systemd/resolve/resolv.conf)",
            )  # fmt: skip
        if zone:
            yield Symptom(
                WARNING, "resolv.conf",
                f"nameserver {word}: the zone is dropped, {address} is captured on every interface",
            )  # fmt: skip
        if ":" in address and not options.captures_ipv6:
            yield Symptom(
                ERROR, "resolv.conf",
                f"nameserver {address} is IPv6, which is not captured: queries to it bypass the proxy",
                "use --dual-stack or --ipv6 on, or only IPv4 servers",
            )  # fmt: skip
    if len(words) > MAX_SERVERS:
        yield Symptom(NOTE, "resolv.conf", f"{len(words)} name servers, of which resolvers ask the first {MAX_SERVERS}")
