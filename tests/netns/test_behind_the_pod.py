"""What others put behind the pod, or beside it, works with the default rules as it works with Istio's own.

The same questions are asked under both kinds of rules, each a real connection: see `behind_the_pod`.
"""

from __future__ import annotations

import json

from behind_the_pod import (
    ANSWER_SECONDS,
    BY_NAME,
    DNS,
    INNER,
    NEIGHBOURS,
    POD,
    PUBLISHED,
    SERVER,
    Question,
    open_lab,
    questions,
)
from bypass_world import BACKENDS, EXACT, EXPECTING, RULES, World, is_connected, wait_for
from lab_probes import Arrival, Probe
from netinit.lab import APP_ID
from programming import needs, run_tool
from segments import PEER, SYN
from sweeps import combine, together

SERVERS = f"{SERVER[4]},{SERVER[6]}"
DNS_OPTIONS = {
    "REDIRECT": ("--redirect-dns", "--dns-servers", SERVERS),
    "TPROXY": ("--redirect-dns", "--capture-all-dns"),
    "ambient": ("--redirect-dns",),
}
WITH_DNS = tuple(DNS_OPTIONS)
# Captured where Istio's classic rules in TPROXY mode leave IPv6 alone: as over IPv4, and in each other layout.
REDIRECTED_TOO = ("classic TPROXY", "IPv6")


def options_of(mode: str, device: str, *, named: bool) -> tuple[str, ...]:
    return (*DNS_OPTIONS.get(mode, ()), *(("-k", device) if named else ()))


def reached(arrival: Arrival) -> tuple[str | None, int | None] | str:
    return (arrival.server, arrival.port) if arrival.outcome == "answered" else arrival.outcome


@together(("neighbour", "mode", "backend", "named"), combine(NEIGHBOURS, RULES, BACKENDS, (False, True)))
def test_what_works_with_istios_rules_works_with_the_default(require_netns, neighbour, mode, backend, named):
    needs(backend)
    found = []
    for rules in ((EXACT,), ()):
        with open_lab(neighbour, mode, backend, *options_of(mode, neighbour.device, named=named), *rules) as lab:
            asked = [one for version in lab.pod.versions for one in questions(version, layout=lab.options.layout)]
            found.append(lab.ask(asked))
    istio, default = found
    assert sum(arrival.outcome == "answered" for arrival in istio.values()) > len(istio) / 3, "the laboratory works"
    lost = {
        what: f"{reached(arrival)} with Istio's rules, {reached(default[what])}"
        for what, arrival in istio.items()
        if arrival.outcome == "answered" and reached(default[what]) != reached(arrival)
        and not (mode == REDIRECTED_TOO[0] and REDIRECTED_TOO[1] in what and default[what].server == "proxy")
    }  # fmt: skip
    assert not lost
    if neighbour.name != "own resolver":
        queries = {what: reached(arrival) for what, arrival in default.items() if what.startswith("the neighbour resolves a name (")}
        assert set(queries.values()) <= {("outside", DNS), ("inner", DNS)}, queries


@together(("mode", "backend"), combine(WITH_DNS, BACKENDS))
def test_dns_from_behind_the_pod_goes_to_the_proxys_resolver_only_by_the_option(require_netns, mode, backend):
    needs(backend)
    neighbour = BY_NAME["Docker, iptables-nft"]
    for rules in ((EXACT,), ()):
        options = (*options_of(mode, neighbour.device, named=True), "--redirect-forwarded-dns", *rules)
        with open_lab(neighbour, mode, backend, *options) as lab:
            asked = [
                Question(f"{kind} IPv{version}", "inner", Probe(SERVER[version], DNS, udp=kind == "UDP", timeout=ANSWER_SECONDS))
                for version in lab.pod.versions for kind in ("UDP", "TCP")
            ]  # fmt: skip
            assert {what: reached(one) for what, one in lab.ask(asked).items()} == {one.what: ("proxy", 15053) for one in asked}
            for setting in ("all", neighbour.device):
                ours = lab.pod.run(["cat", f"/proc/sys/net/ipv4/conf/{setting}/route_localnet"]).stdout.strip()
                assert ours == ("1" if setting == neighbour.device else "0"), "Docker set its own, and nobody another"


@together(("mode", "backend"), combine(WITH_DNS, BACKENDS))
def test_explain_says_what_becomes_of_a_forwarded_query_and_of_its_answer(require_netns, mode, backend):
    needs(backend)
    neighbour = BY_NAME["KubeVirt"]
    for rules, lost in (((EXACT,), True), ((), False)):
        with open_lab(neighbour, mode, backend, *options_of(mode, neighbour.device, named=False), *rules) as lab:
            for version in lab.pod.versions:
                server = SERVER[version] if version == 4 else f"[{SERVER[version]}]"
                query = ("inbound", "--udp", "--from", INNER[version], "--to", f"{server}:{DNS}", "--interface", neighbour.device)
                told = explain(lab, *query)
                assert told["verdict"] == "direct"
                assert ("but its answer does not come back: it is looked up in conntrack zone 1" in told["sentence"]) is lost
                what = f"the neighbour resolves a name (IPv{version})"
                asked = [one for one in questions(version, layout=lab.options.layout) if one.what == what]
                assert (lab.ask(asked)[what].outcome != "answered") is lost
                own = explain(lab, "--uid", str(APP_ID), "--to", POD[4], "--to-port", str(PUBLISHED))
                assert own["verdict"] == "direct"
                assert f"{INNER[4]}:{PUBLISHED} instead" in own["sentence"]


def explain(lab, *question: str) -> dict:
    done = run_tool(lab.pod, "explain", "--live", "--json", *question)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@together(("mode", "backend", "rules"), combine(RULES, BACKENDS, ((), (EXACT,))))
def test_both_ends_may_open_a_connection_that_is_not_captured(require_netns, mode, backend, rules):
    """The pod's SYN and that of the other end cross each other (RFC 9293, 3.5)."""
    needs(backend)
    excluded = () if mode == "ambient" else ("-x", ",".join(f"{PEER[version]}/{32 if version == 4 else 128}" for version in (4, 6)))
    with World(mode, backend, *excluded, *rules) as world:
        for version in (4, 6):
            for by_proxy in (False, True) if excluded else (True,):
                assert open_at_once(world, version, by_proxy=by_proxy), f"IPv{version}, {'the proxy' if by_proxy else 'the application'}"


def open_at_once(world: World, version: int, *, by_proxy: bool) -> bool:
    """Whether the pod's socket is connected after a SYN of the peer's has crossed its own."""
    world.pod.client.run(["ip", f"-{version}", "route", "replace", "blackhole", PEER[version]], check=True)  # no kernel answers for it
    own, port = world.port(), world.port()
    with world.proxy_socket(version, port=own) if by_proxy else world.app_socket(version) as made:
        if by_proxy:
            made.connect_ex((PEER[version], port))
        else:
            world.as_app(made.bind, (POD[version], own))
            world.as_app(made.connect_ex, (PEER[version], port))
        assert world.peer.receive(port, SYN, EXPECTING), "the pod's SYN leaves"
        world.peer.send_segment(PEER[version], POD[version], (port, own), SYN, seq=5000)
        world.peer.shake_hands(PEER[version], POD[version], (port, own), 5000, EXPECTING)
        return wait_for(lambda: is_connected(made))
