"""The rules do what the policy says: hundreds of real connections, against the second oracle.

The options are applied to a pod as the init container does it; every connection is really made by a process with that
uid and gid, and whoever answers is compared with the policy's word.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from connections import CARD, NEIGHBOUR, OUTSIDE, made_connections, made_policies
from lab_probes import Probe
from laboratory import Listener, Pod
from netinit.pods.planning import settle
from policy import DIRECT, REFUSED, Connection, expected_fate, holds_address
from programming import apply_in, needs
from randomness import some
from strategies import PORTS

pytestmark = [pytest.mark.netns, pytest.mark.timeout(300)]

BATCHES, BATCH = some(16), 25
SILENCE, PATIENCE = 0.3, 3.0  # seconds after which nobody answers, and where an answer was to come
NOBODY = "by nobody"
PROXY = (15001, 15002, 15006, 15007, 15053)
APPLICATION = tuple(port for port in PORTS if port not in PROXY)
BACKENDS = ("iptables-nft", "nftables")


@pytest.fixture(params=BACKENDS)
def backend(request):
    needs(request.param)
    return request.param


@contextmanager
def furnished_pod():
    """A pod of its own for each batch: nothing is remembered of the connections before."""
    outside = [host for hosts in OUTSIDE.values() for host in hosts[:-1]]
    with Pod(interfaces=(NEIGHBOUR,), outside=outside) as made:
        # The proxy answers as the first of its users, transparently; the application as somebody else.
        made.serve("proxy", _listeners(PROXY, (15053,), transparent=True), uid=1337, gid=1337)
        made.serve("application", _listeners(APPLICATION, (53, 443)), uid=1000, gid=1000)
        made.client.serve("outside", _listeners(PORTS, (53, 443)))
        yield made


def _listeners(tcp, udp, transparent=False):
    ports = [(port, "tcp") for port in tcp] + [(port, "udp") for port in udp]
    return [
        Listener(port, family, kind=kind, transparent=transparent and kind == "tcp")
        for port, kind in ports
        for family in (4, 6)
    ]


def make_connections(pod, connections, timeout):
    """Who answered each, inside or outside and on which port, or what came instead."""
    found = {}
    for start in ("", CARD, NEIGHBOUR):
        namespace = {"": pod, CARD: pod.client, NEIGHBOUR: pod.neighbours[NEIGHBOUR]}[start]
        chosen = [number for number, one in enumerate(connections) if one.interface == start]
        arrivals = namespace.probe([probe_of(connections[number], timeout) for number in chosen])
        for number, arrival in zip(chosen, arrivals, strict=True):
            where = "outside" if arrival.server == "outside" else "inside"
            found[number] = f"{where} on {arrival.port}" if arrival.outcome == "answered" else NOBODY
    return [found[number] for number in range(len(connections))]


def probe_of(one: Connection, timeout: float):
    more = {} if one.interface else {"uid": one.uid, "gid": one.gid}
    source = one.source if one.device == "lo" else None
    return Probe(one.destination, one.port, udp=one.protocol == "udp", source=source, timeout=timeout, **more)


def expected_answer(options, one: Connection) -> str:
    fate = expected_fate(options, one)
    if fate == REFUSED or is_cut_off(options, one) or (fate == DIRECT and one.passes and loses_answers(options, one)):
        return NOBODY
    if fate != DIRECT and is_taken_twice(options, one):
        return NOBODY
    if fate != DIRECT:
        return f"inside on {fate.rpartition(' ')[2]}"
    goes_out = one.passes or (not one.interface and one.device != "lo")
    return f"{'outside' if goes_out else 'inside'} on {one.port}"


def is_cut_off(options, one: Connection) -> bool:
    """The classic layout with IPv6 off refuses neighbour discovery too, so that nothing but ::1 is reached."""
    return options.layout == "classic" and options.ipv6 == "off" and one.version == 6 and one.destination != "::1"


def loses_answers(options, one: Connection) -> bool:
    """TPROXY of all ports takes the answers to what passes through the pod for inbound traffic (as Istio has it), but for those of clients that it spares."""
    everything = options.inbound_mode == "TPROXY" and options.inbound_ports == "*" and one.protocol == "tcp"
    everything = everything and not holds_address(options.exclude_inbound_cidrs, one.destination)
    return everything and not (one.version == 6 and (options.layout == "classic" or options.ipv6 == "off"))


def is_taken_twice(options, one: Connection) -> bool:
    """The classic layout's TPROXY takes what REDIRECT has taken for a VM, packet for packet (as Istio has it); netinit lint says so."""
    tproxy = options.layout == "classic" and options.inbound_mode == "TPROXY" and bool(options.inbound_ports)
    if not tproxy or one.interface not in options.virtual_interfaces or one.version != 4:
        return False
    redirected = expected_fate(options.replace(inbound_ports=()), one) != DIRECT
    return redirected and expected_fate(options.replace(virtual_interfaces=()), one) != DIRECT


def test_every_connection_is_answered_by_whom_the_policy_says(backend, require_netns, capsys):
    counted = Counter()

    @settings(
        max_examples=BATCHES, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(made_policies(), st.integers(0, 2**32))
    def hold(options, seed):
        given = options.replace(backend=backend)
        options = settle(given)  # a run reads the name servers that nobody names
        connections = [one for one in made_connections(BATCH, seed) if "::6" not in (one.source, one.destination)]
        wanted = [expected_answer(options, one) for one in connections]
        counted.update(wanted)
        with furnished_pod() as pod:
            apply_in(pod, given)
            found = make_connections(pod, connections, SILENCE)
            late = [number for number, seen in enumerate(found) if seen == NOBODY != wanted[number]]  # a busy machine
            again = make_connections(pod, [connections[number] for number in late], PATIENCE) if late else []
            found = [dict(zip(late, again, strict=True)).get(number, seen) for number, seen in enumerate(found)]
        wrong = [
            f"{one}\n  policy: {said}\n  kernel: {seen}"
            for one, said, seen in zip(connections, wanted, found, strict=True)
            if said != seen
        ]
        assert not wrong, "\n".join([backend, " ".join(given.to_argv()), str(given.to_environ()), *wrong])

    hold()
    for answer in ("inside on 15001", "inside on 15006", "inside on 15053", "outside on 443"):
        assert counted[answer], f"no connection was to end {answer}: {counted}"
    with capsys.disabled():
        print(f"\n{backend}: {counted.total()} connections as the policy says")
