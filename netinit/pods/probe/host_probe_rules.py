"""Check and repair a node's own rules for the kubelet's probes of ambient pods, in this process's namespace, the node's.

Both ask `_find_sender` who sends probes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from netinit.base.errors import ApplyError, BackendUnavailableError
from netinit.base.net import FAMILIES, IPV4, IPV6, Family
from netinit.base.sanitize import escape, shorten
from netinit.base.snapshot import Snapshot
from netinit.kernel import kubelet, run
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.live.host_probes import (
    AMBIENT_NAT,
    POSTROUTING_CHAIN,
    PROBE_SETS,
    ProbeFinding,
    count_jumps,
    find_holder,
    judge_probes,
    list_senders,
)
from netinit.options import BACKENDS, NFTABLES
from netinit.options.interception import EXEMPT, HOST_PROBES
from netinit.rules.iptables.sets import Contents, unread

IPSET = "ipset"
_SOURCES = dict(zip(FAMILIES, HOST_PROBES, strict=True))  # by which a pod's rules recognize probes
_ELEMENT = re.compile(r"add \S+ ([0-9a-f.:]+)(?: .*)?")
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")


def check_host_probes(addresses: tuple[str, ...]) -> tuple[ProbeFinding, ...]:
    """Judge whether probes of these pods' addresses are exempt. Raises BackendUnavailableError."""
    snapshot = _read()
    return _judge(snapshot, addresses, _find_sender(snapshot))


def repair_host_probes(uids: Mapping[str, str]) -> tuple[str, tuple[ProbeFinding, ...]]:
    """Program the mesh agent's rules and sets again; return the backend and what is still wrong. `uids`: pods by address.

    Raises ApplyError, also if nothing shows how the mesh's agent programs the node, or for which user;
    BackendUnavailableError.
    """
    snapshot = _read()
    holder, sender = find_holder(snapshot), _find_sender(snapshot)
    if not holder:
        raise ApplyError("neither a set nor a chain of the mesh's agent is left on the node: restart its pod, which programs them")
    wrong = [one for one in _judge(snapshot, tuple(uids), sender) if one.state != EXEMPT]
    if wrong and all(one.is_routing for one in wrong):
        return holder, tuple(wrong)
    families = [one for one in FAMILIES if one is IPV4 or _has_set(snapshot, one)]
    if holder == NFTABLES:
        _run("nft", ("-f", "-"), _render_nft(families, uids, sender))
    else:
        _run(IPSET, ("restore", "-exist"), _render_sets(families, uids))
        for family in families:
            program = f"{family.program}-{BACKENDS[holder].variant}-restore"
            _run(program, ("--noflush", "--wait", "5"), _render_chain(snapshot, family, holder))
    left = _judge(_read(), tuple(uids), sender)
    return holder, tuple([one for one in left if one.state != EXEMPT])


def _judge(snapshot: Snapshot, addresses: tuple[str, ...], sender: int | None) -> tuple[ProbeFinding, ...]:
    names = set(dict(snapshot.address_sets).values()) & set(PROBE_SETS.values())
    contents: Contents = {name: _parse_set(name) for name in names}
    return judge_probes(snapshot, contents, addresses, _SOURCES, sender)


def _read() -> Snapshot:
    try:
        return read_snapshot()
    except OSError as error:
        raise BackendUnavailableError(f"the node's rules cannot be read: {error.strerror or error}") from None


def _find_sender(snapshot: Snapshot) -> int | None:
    """Return the user of the sockets that send probes; None if it is not known.

    It is that of the kubelet's process; where none is visible, as in a container, that of the rules which the mesh's
    agent wrote for it; without those, that of the socket which listens on the kubelet's port.
    """
    for find in (kubelet.list_process_users, lambda: list_senders(snapshot, _SOURCES), kubelet.list_listening_users):
        try:
            found = find()
        except OSError:  # sockets cannot be listed; the user stays unknown, which is told where it matters
            continue
        if len(found) == 1:
            return next(iter(found))
    return None


def _parse_set(name: str) -> frozenset[str]:
    lines = [line for line in _run(IPSET, ("save", name)).splitlines() if line.startswith("add ")]
    found = [match[1] for line in lines if (match := _ELEMENT.fullmatch(line))]
    return frozenset(found) if len(found) == len(lines) else unread("it does not have addresses only")


def _has_set(snapshot: Snapshot, family: Family) -> bool:
    name = PROBE_SETS[family]
    return name in dict(snapshot.address_sets).values() or any((one.table, one.name) == (AMBIENT_NAT, name) for one in snapshot.sets)


def _list_elements(family: Family, uids: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return addresses with comments: the pod's uid, by which the mesh's agent deletes the element."""
    return [
        (address, f' comment "{uid}"' if _UID.fullmatch(uid) else "")
        for address, uid in uids.items()
        if (":" in address) == (family is IPV6)
    ]


def _render_sets(families: list[Family], uids: Mapping[str, str]) -> str:
    lines = []
    for family in families:
        name = PROBE_SETS[family]
        lines.append(f"create {name} hash:ip family {'inet' if family is IPV4 else 'inet6'} comment")
        lines += [f"add {name} {address}{comment}" for address, comment in _list_elements(family, uids)]
    return "\n".join(lines) + "\n"


def _render_chain(snapshot: Snapshot, family: Family, holder: str) -> str:
    jump = f"POSTROUTING -j {POSTROUTING_CHAIN}"
    probe = f"-p tcp -m owner --socket-exists -m set --match-set {PROBE_SETS[family]} dst"
    return "\n".join([
        "*nat", f":{POSTROUTING_CHAIN} - [0:0]", *[f"-D {jump}"] * count_jumps(snapshot, family, holder), f"-I {jump}",
        f"-A {POSTROUTING_CHAIN} {probe} -j SNAT --to-source {_SOURCES[family]}", "COMMIT", "",
    ])  # fmt: skip


def _render_nft(families: list[Family], uids: Mapping[str, str], sender: int | None) -> str:
    if sender is None:
        raise ApplyError(
            "the user of the kubelet is not known, whose probes nft rules must name: no rule of the mesh's agent with it is left, "
            f"and neither its process nor its port {kubelet.PORT} is visible: restart the pod of the mesh's agent, which programs them"
        )
    chain = f"inet {AMBIENT_NAT} postrouting"
    lines = [f"add chain {chain} {{ type nat hook postrouting priority srcnat; policy accept; }}", f"flush chain {chain}"]
    for family in families:
        name, kind = PROBE_SETS[family], "ip" if family is IPV4 else "ip6"
        elements = _list_elements(family, uids)
        lines += [f"add element inet {AMBIENT_NAT} {name} {{ {address}{comment} }}" for address, comment in elements]
        probe = f"meta l4proto tcp meta skuid {sender} {kind} daddr @{name}"
        lines.append(f"add rule {chain} {probe} counter snat {kind} to {_SOURCES[family]}")
    return "\n".join(lines) + "\n"


def _run(program: str, arguments: tuple[str, ...], script: str = "") -> str:
    path = run.find(program)
    if not path:
        raise ApplyError(f"{program} is not installed: add it to the image")
    result = run.finish(run.start(path, arguments, stdin=script))
    if result.status:
        raise ApplyError(f"{program}: {escape(shorten(result.errors, 300)) or f'it ended with status {result.status}'}")
    return result.output
