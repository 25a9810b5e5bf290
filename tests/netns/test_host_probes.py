"""The node's rules for the kubelet's probes of ambient pods: what is said of them is what connections do, and repairs help.

`pod.client` is the node here. The rules are those that Istio's agent for ambient pods programs there.
"""

from __future__ import annotations

import pytest

from lab_probes import Probe
from laboratory import start_servers
from netinit.base.errors import ApplyError
from netinit.base.net import IPV4, IPV6
from netinit.options import Options
from netinit.options.interception import HOST_PROBES
from netinit.pods.probe.host_probe_rules import check_host_probes, repair_host_probes
from programming import apply_in, needs

POD = {IPV4: "10.77.0.2", IPV6: "fd77::2"}
UIDS = dict.fromkeys(POD.values(), "0c3d9e8e-7f1c-4f0b-9a57-3f1b6c6d9d11")
NFT, LEGACY, NATIVE = "iptables-nft", "iptables-legacy", "nftables"
backends = pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE])
TABLES = {NFT: ("iptables-nft", "ip6tables-nft"), LEGACY: ("iptables-legacy", "ip6tables-legacy")}
CHAIN = "ISTIO_POSTRT"


def program_as_istio_does(node, backend):
    needs(backend)
    if backend == NATIVE:
        lines = ["add table inet istio-ambient-nat"]
        for version in ("v4", "v6"):
            lines += [f"add set inet istio-ambient-nat istio-inpod-probes-{version} {{ type ip{version}_addr; }}"]
        lines += ["add chain inet istio-ambient-nat postrouting { type nat hook postrouting priority srcnat; }"]
        for (version, kind), source, address in zip((("v4", "ip"), ("v6", "ip6")), HOST_PROBES, POD.values(), strict=True):
            name = f"istio-inpod-probes-{version}"
            lines += [f'add element inet istio-ambient-nat {name} {{ {address} comment "{UIDS[address]}" }}']
            lines += [f"add rule inet istio-ambient-nat postrouting meta l4proto tcp skuid 0 {kind} daddr @{name} counter snat {kind} to {source}"]
        node.run(["nft", "-f", "-"], stdin="\n".join(lines) + "\n", check=True)
        return
    for tables, source, address, version, family in zip(TABLES[backend], HOST_PROBES, POD.values(), ("v4", "v6"), ("inet", "inet6"), strict=True):
        name = f"istio-inpod-probes-{version}"
        node.run(["ipset", "create", name, "hash:ip", "family", family, "comment"], check=True)
        node.run(["ipset", "add", name, address, "comment", UIDS[address]], check=True)
        node.run([tables, "-w", "-t", "nat", "-N", CHAIN], check=True)
        node.run([tables, "-w", "-t", "nat", "-I", "POSTROUTING", "1", "-j", CHAIN], check=True)
        rule = ["-m", "owner", "--socket-exists", "-p", "tcp", "-m", "set", "--match-set", name, "dst", "-j", "SNAT", "--to-source", source]
        node.run([tables, "-w", "-t", "nat", "-A", CHAIN, *rule], check=True)


def states(node):
    with node.entered():
        return {one.address: (one.state, one.detail) for one in check_host_probes(tuple(POD.values()))}


def probe(pod):
    """Whether a probe of each family reaches the application, rather than the mesh."""
    answers = pod.client.probe([Probe(address, 80, uid=0, gid=0) for address in POD.values()])
    return {address: (one.server, one.port) == ("app", 80) for address, one in zip(POD.values(), answers, strict=True)}


def check_truth(pod, wanted=(True, True)):
    """What is judged is what happens."""
    judged = {address: state == "exempt" for address, (state, _) in states(pod.client).items()}
    assert judged == probe(pod) == dict(zip(POD.values(), wanted, strict=True)), states(pod.client)


@pytest.fixture
def ambient(pod):
    start_servers(pod, app=(80,), proxy=(15001, 15006, 15008))
    apply_in(pod, Options.from_argv(["--layout", "ambient", "--ipv6", "on", "--backend", NFT]))
    return pod


def drop_elements(node, backend):
    for address, version in zip(POD.values(), ("v4", "v6"), strict=True):
        name = f"istio-inpod-probes-{version}"
        element = ["nft", "delete", "element", "inet", "istio-ambient-nat", name, f"{{ {address} }}"]
        node.run(element if backend == NATIVE else ["ipset", "del", name, address], check=True)


def drop_rules(node, backend):
    if backend == NATIVE:
        node.run(["nft", "flush", "chain", "inet", "istio-ambient-nat", "postrouting"], check=True)
    for tables in TABLES.get(backend, ()):
        node.run([tables, "-w", "-t", "nat", "-F", CHAIN], check=True)


def drop_everything_but_sets(node, backend):
    if backend == NATIVE:
        node.run(["nft", "-f", "-"], stdin="flush chain inet istio-ambient-nat postrouting\ndelete chain inet istio-ambient-nat postrouting\n", check=True)
    for tables in TABLES.get(backend, ()):
        node.run([tables, "-w", "-t", "nat", "-F"], check=True)
        node.run([tables, "-w", "-t", "nat", "-X", CHAIN], check=True)


def masquerade_before(node, backend):
    """As a CNI that inserts its own rule at the top."""
    if backend == NATIVE:
        text = "add table ip cni\nadd chain ip cni post { type nat hook postrouting priority 90; }\nadd rule ip cni post ip daddr 10.77.0.0/16 masquerade\n"
        text += text.replace("ip cni", "ip6 cni").replace("ip daddr 10.77.0.0/16", "ip6 daddr fd77::/16")
        node.run(["nft", "-f", "-"], stdin=text, check=True)
    for tables, network in zip(TABLES.get(backend, ()), ("10.77.0.0/16", "fd77::/16"), strict=False):
        node.run([tables, "-w", "-t", "nat", "-I", "POSTROUTING", "1", "-d", network, "-j", "MASQUERADE"], check=True)


CHANGES = {drop_elements: "is missing in the set", drop_rules: "no rule gives probes a source", drop_everything_but_sets: "no rule gives probes a source"}


@backends
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_missing_is_named_and_repaired_as_the_mesh_s_agent_would_have_it(ambient, backend, change):
    node = ambient.client
    assert probe(ambient) == dict.fromkeys(POD.values(), False), "without the node's rules the mesh captures probes"
    program_as_istio_does(node, backend)
    check_truth(ambient)
    change(node, backend)
    check_truth(ambient, (False, False))
    assert all(CHANGES[change] in detail for _, detail in states(node).values()), states(node)
    with node.entered():
        assert repair_host_probes(UIDS) == (backend, ())
    check_truth(ambient)
    if backend != NATIVE:
        assert [line for line in node.run(["ipset", "save"], check=True).stdout.splitlines() if UIDS[POD[IPV4]] in line], "the mesh's agent finds it by its uid"
        for tables in TABLES[backend]:
            listed = node.run([tables, "-w", "-t", "nat", "-S"], check=True).stdout.splitlines()
            assert len([line for line in listed if CHAIN in line]) == 3, listed
    with node.entered():
        assert repair_host_probes(UIDS) == (backend, ()), "a second repair changes nothing"
    check_truth(ambient)


@backends
def test_another_rule_before_them_is_named(ambient, backend):
    program_as_istio_does(ambient.client, backend)
    masquerade_before(ambient.client, backend)
    check_truth(ambient, (False, False))
    assert all("gives probes another source" in detail for _, detail in states(ambient.client).values())


def test_without_any_trace_of_the_mesh_s_agent_nothing_is_programmed(ambient):
    assert {state for state, _ in states(ambient.client).values()} == {"broken", "unknown"}
    assert "the mesh may have IPv6 off" in states(ambient.client)[POD[IPV6]][1]
    before = ambient.client.run(["nft", "list", "ruleset"], check=True).stdout
    with ambient.client.entered(), pytest.raises(ApplyError, match="restart its pod"):
        repair_host_probes(UIDS)
    assert ambient.client.run(["nft", "list", "ruleset"], check=True).stdout == before
