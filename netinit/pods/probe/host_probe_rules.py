"""Check and repair a node's own rules for the kubelet's probes of ambient pods, in this process's namespace, the node's.

Both ask `_find_sender` who sends probes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from netinit.base.errors import ApplyError, BackendUnavailableError
from netinit.base.net import FAMILIES, IPV4, IPV6, Family
from netinit.base.snapshot import Snapshot
from netinit.kernel import kubelet
from netinit.kernel.snapshot.reader import read_snapshot
from netinit.live.host_probes import (
    AMBIENT_NAT,
    PROBE_SETS,
    ProbeFinding,
    find_holder,
    judge_probes,
    list_senders,
)
from netinit.options import NFTABLES
from netinit.options.interception import EXEMPT, HOST_PROBES
from netinit.pods.probe.probe_rules import ProbeRule, write_probe_rules
from netinit.rules.rule_builder import SET_INTERVAL

_SOURCES = dict(zip(FAMILIES, HOST_PROBES, strict=True))  # by which a pod's rules recognize probes
_UID = re.compile(r"[0-9A-Za-z-]{1,64}")


def check_host_probes(addresses: tuple[str, ...]) -> tuple[ProbeFinding, ...]:
    """Judge whether probes of these pods' addresses are exempt. Raises BackendUnavailableError."""
    snapshot = _read()
    return judge_probes(snapshot, addresses, _SOURCES, _find_sender(snapshot))


def repair_host_probes(uids: Mapping[str, str]) -> tuple[str, tuple[ProbeFinding, ...]]:
    """Program the mesh agent's rules and sets again; return the backend and what is still wrong. `uids`: pods by address.

    Raises ApplyError, also if nothing shows how the mesh's agent programs the node, or for which user;
    BackendUnavailableError.
    """
    snapshot = _read()
    holder, sender = find_holder(snapshot), _find_sender(snapshot)
    if not holder:
        raise ApplyError("neither a set nor a chain of the mesh's agent is left on the node: restart its pod, which programs them")
    wrong = [one for one in judge_probes(snapshot, tuple(uids), _SOURCES, sender) if one.state != EXEMPT]
    if wrong and all(one.is_routing for one in wrong):
        return holder, tuple(wrong)
    if holder == NFTABLES and sender is None:
        raise ApplyError(
            "the user of the kubelet is not known, whose probes nft rules must name: no rule of the mesh's agent with it is left, "
            f"and neither its process nor its port {kubelet.PORT} is visible: restart the pod of the mesh's agent, which programs them"
        )
    sets = [one for one in snapshot.sets if one.table == AMBIENT_NAT and one.name in PROBE_SETS.values()]
    of_ranges = [one.name for one in sets if one.flags & SET_INTERVAL]
    if of_ranges:
        raise ApplyError(f"the mesh's agent made sets of ranges, which netinit does not fill: {', '.join(of_ranges)}: restart its pod")
    write_probe_rules(holder, _list_rules(snapshot, uids), sender)
    left = judge_probes(_read(), tuple(uids), _SOURCES, sender)
    return holder, tuple([one for one in left if one.state != EXEMPT])


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


def _has_set(snapshot: Snapshot, family: Family) -> bool:
    name = PROBE_SETS[family]
    return name in dict(snapshot.address_sets).values() or any((one.table, one.name) == (AMBIENT_NAT, name) for one in snapshot.sets)


def _list_rules(snapshot: Snapshot, uids: Mapping[str, str]) -> list[ProbeRule]:
    """Return the rules, with each pod's uid as the comment of its address, by which the mesh's agent deletes it."""
    return [
        ProbeRule(
            family=family, source=_SOURCES[family],
            addresses={
                address: uid if _UID.fullmatch(uid) else "" for address, uid in uids.items() if (":" in address) == (family is IPV6)
            },
        )
        for family in FAMILIES
        if family is IPV4 or _has_set(snapshot, family)
    ]  # fmt: skip
