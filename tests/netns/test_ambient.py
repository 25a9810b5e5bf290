"""Real connections through ambient's rules: the application's, the kubelet's, and those of the node's proxy in the pod."""

from __future__ import annotations

import socket
from contextlib import closing

from lab_probes import Probe
from laboratory import start_servers
from netinit.kernel import netlink
from netinit.lab import APP_ID
from netinit.options import Options
from netinit.options.interception import NODE_PROXY_MARK
from programming import apply_in, arrivals, differences_in, needs, remove_in, run_tool, state
from sweeps import in_turn

OUTSIDE = {4: "203.0.113.7", 6: "2001:db8::7"}
POD = {4: "10.77.0.2", 6: "fd77::2"}
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
LOOP = {4: "127.0.0.1", 6: "::1"}
APP = {"uid": APP_ID, "gid": APP_ID}
ZTUNNEL = {"mark": NODE_PROXY_MARK}
INBOUND, OUTBOUND, RESOLVER = ("proxy", 15006), ("proxy", 15001), ("proxy", 15053)
TRANSPARENT = {4: (socket.SOL_IP, 19), 6: (socket.IPPROTO_IPV6, 75)}  # IP_TRANSPARENT, IPV6_TRANSPARENT
FAMILIES = (4, 6)
backends = in_turn("backend", ("iptables-nft", "iptables-legacy", "nftables", "libiptc"))


def program(pod, backend, *arguments):
    needs(backend)
    options = Options.from_argv(["--layout", "ambient", "--ipv6", "on", "--backend", backend, *arguments])
    apply_in(pod, options)
    assert differences_in(pod, options) == []


@backends
def test_the_application_s_connections_are_captured_and_the_node_s_proxy_s_are_not(pod, backend):
    start_servers(pod, app=(80, 8080), proxy=(15001, 15006, 15008))
    program(pod, backend, "--redirect-dns")
    for family in FAMILIES:
        to = OUTSIDE[family]
        out = [Probe(to, 80, **APP), Probe(to, 80, uid=0, gid=0), Probe(to, 80, **ZTUNNEL)]
        assert arrivals(pod, *out) == [OUTBOUND, OUTBOUND, ("outside", 80)], "a mark, not a user, tells the proxy"
        assert arrivals(pod, Probe(to, 53, **APP), Probe(to, 53, udp=True, **APP), Probe(to, 53, udp=True, **ZTUNNEL)) == [
            RESOLVER, RESOLVER, ("outside", 53),
        ]  # fmt: skip
        assert arrivals(pod, Probe(POD[family], 80, **APP), Probe(LOOP[family], 80, **APP)) == [("app", 80)] * 2
        inbound = pod.client.probe([Probe(POD[family], 80), Probe(POD[family], 15008)])
        assert [(one.server, one.port) for one in inbound] == [INBOUND, ("proxy", 15008)]
        assert inbound[0].original_destination == (f"{POD[family]}:80" if family == 4 else f"[{POD[family]}]:80")


@backends
def test_the_kubelet_s_probes_and_a_gateway_s_callers_reach_the_application(pod, backend):
    start_servers(pod, app=(80,))
    inbound = [Probe(POD[family], 80) for family in FAMILIES]
    for exempt in FAMILIES:
        program(pod, backend, "--host-probe-address", CLIENT[exempt])
        assert arrivals(pod.client, *inbound) == [("app", 80) if family == exempt else INBOUND for family in FAMILIES]
        remove_in(pod)

    program(pod, backend)
    assert arrivals(pod.client, *inbound) == [INBOUND] * 2
    remove_in(pod)

    program(pod, backend, "--ingress")
    assert arrivals(pod.client, *inbound) == [("app", 80)] * 2
    assert arrivals(pod, *[Probe(OUTSIDE[family], 80, **APP) for family in FAMILIES]) == [OUTBOUND] * 2


@backends
def test_the_application_sees_the_client_s_address_and_its_answers_go_back_to_the_node_s_proxy(pod, backend):
    start_servers(pod, app=(80,))
    program(pod, backend)
    for family in FAMILIES:
        with pod.entered(), closing(socket.socket(socket.AF_INET if family == 4 else socket.AF_INET6)) as ztunnel:
            ztunnel.setsockopt(*TRANSPARENT[family], 1)
            ztunnel.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, NODE_PROXY_MARK)
            ztunnel.bind((CLIENT[family], 0))  # an address that is not the pod's
            ztunnel.connect((POD[family], 80))
            answer = ztunnel.recv(4096).decode()
        assert f'"peer": "{CLIENT[family] if family == 4 else f"[{CLIENT[family]}]"}:' in answer


def test_the_policy_rule_and_route_stand_where_istio_puts_them_and_go_with_the_rules(pod):
    before = state(pod)
    program(pod, "iptables-nft")
    with pod.entered():
        for number in (socket.AF_INET, socket.AF_INET6):
            (rule,) = netlink.list_mark_rules(number)
            assert (rule.mark, rule.mask, rule.table, rule.priority) == (0x111, 0xFFF, 100, 32764)
            assert [route.table for route in netlink.list_local_routes(number) if route.table == 100] == [100]
    pod.run(["ip", "-6", "rule", "del", "fwmark", "0x111/0xfff"], check=True)
    (difference,) = differences_in(pod, Options(layout="ambient", ipv6="on"))
    assert difference.startswith("missing: IPv6 routing: -6 rule fwmark 0x111/0xfff lookup 100")

    remove_in(pod)
    assert state(pod) == before


@backends
def test_a_pod_goes_from_a_sidecar_s_rules_to_ambient_s_and_back(pod, backend):
    program(pod, backend)
    sidecar = Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on", "--backend", backend, "--reconcile"])
    apply_in(pod, sidecar)
    assert differences_in(pod, sidecar) == []
    listed = pod.run(["nft", "list", "ruleset"]).stdout + pod.run(["ip", "rule"]).stdout
    assert [word for word in ("ISTIO_PRERT", "istio-ambient", "0x111") if word in listed] == []
    ambient = Options(layout="ambient", ipv6="on", backend=backend, reconcile=True)
    apply_in(pod, ambient)
    assert differences_in(pod, ambient) == []
    assert "::6" not in pod.run(["ip", "-6", "address", "show", "dev", "lo"]).stdout


@backends
def test_live_connections_are_explained_by_the_rules_that_another_agent_may_have_made(pod, backend):
    program(pod, backend)
    to = ("explain", "--live", "--to", f"{OUTSIDE[4]}:80")
    assert run_tool(pod, *to).stdout.startswith("captured: goes to the proxy on 15001")
    marked = run_tool(pod, *to, "--mark", str(NODE_PROXY_MARK))
    assert marked.stdout.startswith("direct: goes out to 203.0.113.7:80"), marked.stdout
    inbound = run_tool(pod, "explain", "inbound", "--live", "--from", CLIENT[4], "--to-port", "8080")
    assert "inbound connections go to the node's proxy" in inbound.stdout
    assert "--ingress: direct" in inbound.stdout
    answer = run_tool(pod, "explain", "inbound", "--live", "--from", CLIENT[4], "--to-port", "8080", "--mark", str(NODE_PROXY_MARK))
    assert answer.stdout.startswith("direct"), answer.stdout
