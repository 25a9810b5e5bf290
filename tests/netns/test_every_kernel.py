"""What is tried on every kernel: each backend's rules through a short life, and some dozen real connections.

Few, for `make kernels` runs them on emulated processors, where each takes some twenty times as long.
"""

from __future__ import annotations

from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from programming import (
    REDIRECT,
    TPROXY,
    add_foreign_rules,
    apply_in,
    arrivals,
    check_same,
    differences_in,
    forget_priority,
    needs,
    remove_in,
    state,
    variant_of,
)
from sweeps import in_turn

BACKENDS = ("iptables-nft", "iptables-legacy", "nftables", "libiptc")
backends = in_turn("backend", BACKENDS, 2)
OUTSIDE = {4: ("198.51.100.7", "203.0.113.7"), 6: ("2001:db8::7", "2001:db8::8")}
POD = {4: "10.77.0.2", 6: "fd77::2"}
LOOP = {4: "127.0.0.1", 6: "::1"}
PASS = {4: "127.0.0.6", 6: "::6"}
APP = {"uid": APP_ID, "gid": APP_ID}
PROXY = {"uid": PROXY_ID, "gid": PROXY_ID}
INBOUND, OUTBOUND, RESOLVER = ("proxy", 15006), ("proxy", 15001), ("proxy", 15053)


def options_of(backend: str, words: tuple[str, ...]) -> Options:
    needs(backend)
    return Options.from_argv([*words, "--backend", backend])


def wrong(pod: Pod, options: Options) -> list[str]:
    """What verify finds, but for foreign rules before ours or beside them, which were there first: what it cannot read on this kernel, too."""
    return [line for line in differences_in(pod, options) if "it is not read" in line or not line.startswith(("shadowing: ", "escaping: "))]


def unordered(text: str) -> list[str]:
    """A state without the order of its tables, which comes from their history and means nothing, nor that of policy rules."""
    return sorted(forget_priority(text).splitlines())


@in_turn("backend", BACKENDS[::-1])  # test_backend_contract.py tries all
def test_a_first_run_a_second_another_choice_and_the_removal_keep_the_contract(require_netns, backend):
    """Both families, among foreign rules: apply, apply again, verify, reconcile to TPROXY with DNS, remove."""
    plain, more = (options_of(backend, words) for words in (REDIRECT, TPROXY))
    with Pod() as pod:
        add_foreign_rules(pod, "iptables-nft" if backend == "nftables" else variant_of(backend))
        before = state(pod)

        assert apply_in(pod, more).changed
        wanted = unordered(state(pod))
        assert wrong(pod, more) == []
        assert remove_in(pod, more).changed
        check_same(state(pod), before, "removed, and not as before")

        assert apply_in(pod, plain).changed
        programmed = state(pod)
        assert programmed != before
        assert not apply_in(pod, plain).changed, "the second run found something to do"
        check_same(state(pod), programmed, "the second run changed something")
        assert wrong(pod, plain) == []
        assert wrong(pod, more) != []

        assert apply_in(pod, more.replace(reconcile=True)).changed
        assert unordered(state(pod)) == wanted, "reconciled, and not as after a fresh start"
        assert remove_in(pod).changed
        check_same(state(pod), before, "removed after reconciling, and not as before")
        assert not remove_in(pod).changed


@backends
def test_connections_of_both_families_arrive_where_they_should(pod, backend):
    """Captured in and out; the proxy's own, excluded ports, the pod's to itself left alone; DNS to the resolver."""
    start_servers(pod, app=(80, 15090))
    listed = f"{OUTSIDE[4][1]},{OUTSIDE[6][1]}"
    apply_in(pod, options_of(backend, (*REDIRECT, "-o", "443", "--redirect-dns", "--dns-servers", listed)))
    for family in (4, 6):
        here, (there, resolver) = POD[family], OUTSIDE[family]

        found = arrivals(pod.client, Probe(here, 80), Probe(here, 9), Probe(here, 15090))
        assert found == [INBOUND, INBOUND, ("app", 15090)], f"IPv{family} inbound"

        probes = {
            "the app's": (Probe(there, 80, **APP), OUTBOUND),
            "to a port where nobody listens": (Probe(there, 9, **APP), OUTBOUND),
            "the proxy's": (Probe(there, 80, **PROXY), ("outside", 80)),
            "by the proxy's group": (Probe(there, 80, uid=APP_ID, gid=PROXY_ID), ("outside", 80)),
            "to an excluded port": (Probe(there, 443, **APP), ("outside", 443)),
            "DNS to the listed server": (Probe(resolver, 53, udp=True, **APP), RESOLVER),
            "DNS over TCP": (Probe(resolver, 53, **APP), RESOLVER),
            "DNS to another server": (Probe(there, 53, udp=True, **APP), ("outside", 53)),
            "the resolver's own DNS": (Probe(resolver, 53, udp=True, **PROXY), ("outside", 53)),
            "to itself": (Probe(here, 80, **APP), ("app", 80)),
            "over the loopback": (Probe(LOOP[family], 80, **APP), ("app", 80)),
            "the proxy's to its own service": (Probe(here, 80, **PROXY), INBOUND),
            "passed on to the app": (Probe(here, 80, source=PASS[family], **PROXY), ("app", 80)),
        }
        found = arrivals(pod, *(probe for probe, _ in probes.values()))
        assert dict(zip(probes, found, strict=True)) == {name: wanted for name, (_, wanted) in probes.items()}, f"IPv{family} outbound"


@backends
def test_tproxy_captures_both_families_and_keeps_both_addresses(pod, backend):
    start_servers(pod, transparent=(15006,))
    apply_in(pod, options_of(backend, (*TPROXY, "-d", "8080")))
    for family in (4, 6):
        here, (there, source) = POD[family], OUTSIDE[family]
        captured, excluded = pod.client.probe([Probe(here, 80, source=source), Probe(here, 8080, source=source)])
        assert (captured.server, captured.port) == INBOUND
        assert captured.local == (f"[{here}]:80" if family == 6 else f"{here}:80")
        assert captured.peer == captured.source, "the proxy does not see the caller's address"
        assert (excluded.server, excluded.port) == ("app", 8080)
        assert arrivals(
            pod,
            Probe(there, 80, **APP),
            Probe(there, 80, **PROXY),
            Probe(here, 80, **APP),
            Probe(here, 80, source=PASS[family], **PROXY),
            Probe(LOOP[family], 80, **PROXY),
        ) == [OUTBOUND, ("outside", 80), ("app", 80), ("app", 80), ("app", 80)]
