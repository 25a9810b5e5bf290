"""The node's rules for the kubelet's probes of ambient pods: what is said of them is what connections do, and repairs help.

`pod.client` is the node here. The rules are those that Istio's agent for ambient pods programs there.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess

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


OWNER = {None: ["--socket-exists"], **{uid: ["--uid-owner", str(uid)] for uid in (0, 1000)}}


def program_as_istio_does(node, backend, uid=0, owner=None):
    """`uid`: the kubelet's, which rules of nft name; `owner`: one that rules of iptables name, by default any."""
    needs(backend)
    if backend == NATIVE:
        lines = ["add table inet istio-ambient-nat"]
        for version in ("v4", "v6"):
            lines += [f"add set inet istio-ambient-nat istio-inpod-probes-{version} {{ type ip{version}_addr; }}"]
        lines += ["add chain inet istio-ambient-nat postrouting { type nat hook postrouting priority srcnat; }"]
        for (version, kind), source, address in zip((("v4", "ip"), ("v6", "ip6")), HOST_PROBES, POD.values(), strict=True):
            name = f"istio-inpod-probes-{version}"
            lines += [f'add element inet istio-ambient-nat {name} {{ {address} comment "{UIDS[address]}" }}']
            lines += [f"add rule inet istio-ambient-nat postrouting meta l4proto tcp skuid {uid} {kind} daddr @{name} counter snat {kind} to {source}"]
        node.run(["nft", "-f", "-"], stdin="\n".join(lines) + "\n", check=True)
        return
    for tables, source, address, version, family in zip(TABLES[backend], HOST_PROBES, POD.values(), ("v4", "v6"), ("inet", "inet6"), strict=True):
        name = f"istio-inpod-probes-{version}"
        node.run(["ipset", "create", name, "hash:ip", "family", family, "comment"], check=True)
        node.run(["ipset", "add", name, address, "comment", UIDS[address]], check=True)
        node.run([tables, "-w", "-t", "nat", "-N", CHAIN], check=True)
        node.run([tables, "-w", "-t", "nat", "-I", "POSTROUTING", "1", "-j", CHAIN], check=True)
        rule = ["-m", "owner", *OWNER[owner], "-p", "tcp", "-m", "set", "--match-set", name, "dst", "-j", "SNAT", "--to-source", source]
        node.run([tables, "-w", "-t", "nat", "-A", CHAIN, *rule], check=True)


def list_rules(node, backend):
    """The rules as programs list them, and whether those of iptables can be deleted by their text, as the mesh's agent does it."""
    if backend == NATIVE:
        return re.sub(r"counter packets \d+ bytes \d+", "counter", node.run(["nft", "-s", "list", "table", "inet", "istio-ambient-nat"], check=True).stdout)
    listed = {}
    for tables in TABLES[backend]:
        listed[tables] = node.run([tables, "-w", "-t", "nat", "-S", CHAIN], check=True).stdout.splitlines()
        *_, rule = listed[tables]
        for action in ("-D", "-A"):
            node.run([tables, "-w", "-t", "nat", action, *rule.split()[1:]], check=True)
    return listed


def states(node):
    with node.entered():
        return {one.address: (one.state, one.detail) for one in check_host_probes(tuple(POD.values()))}


def probe(pod, uid=0):
    """Whether a probe of each family reaches the application, rather than the mesh."""
    answers = pod.client.probe([Probe(address, 80, uid=uid, gid=uid) for address in POD.values()])
    return {address: (one.server, one.port) == ("app", 80) for address, one in zip(POD.values(), answers, strict=True)}


def check_truth(pod, wanted=(True, True), uid=0):
    """What is judged is what happens."""
    judged = {address: state == "exempt" for address, (state, _) in states(pod.client).items()}
    assert judged == probe(pod, uid) == dict(zip(POD.values(), wanted, strict=True)), states(pod.client)


@pytest.fixture
def ambient(pod):
    start_servers(pod, app=(80,), proxy=(15001, 15006, 15008))
    apply_in(pod, Options.from_argv(["--layout", "ambient", "--ipv6", "on", "--backend", NFT]))
    return pod


@contextlib.contextmanager
def kubelet(node, uid, name="kubelet", command="/usr/bin/kubelet", *, through=()):
    """A process that looks like the kubelet, until the block ends."""
    script = f"echo {name} > /proc/$$/comm; echo ready; read -r _"
    with node.popen([*through, "sh", "-c", script, command], uid=uid, gid=uid, stdin=subprocess.PIPE) as process:
        assert process.stdout.readline() == "ready\n"
        yield
        process.stdin.close()


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
    with kubelet(node, 0):
        check_repair(ambient, backend, change)


def check_repair(ambient, backend, change):
    node = ambient.client
    assert probe(ambient) == dict.fromkeys(POD.values(), False), "without the node's rules the mesh captures probes"
    program_as_istio_does(node, backend)
    listed = list_rules(node, backend)
    check_truth(ambient)
    change(node, backend)
    check_truth(ambient, (False, False))
    assert all(CHANGES[change] in detail for _, detail in states(node).values()), states(node)
    with node.entered():
        assert repair_host_probes(UIDS) == (backend, ())
    check_truth(ambient)
    assert list_rules(node, backend) == listed
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


@pytest.mark.parametrize(("backend", "owner"), [(NATIVE, None), (NFT, None), (LEGACY, None), (NFT, 1000), (LEGACY, 1000)])
def test_a_kubelet_that_is_not_root_is_known_by_the_rules_that_the_mesh_s_agent_wrote_for_it(ambient, backend, owner):
    program_as_istio_does(ambient.client, backend, 1000, owner)
    check_truth(ambient, uid=1000)
    drop_elements(ambient.client, backend)
    check_truth(ambient, (False, False), uid=1000)
    with ambient.client.entered():
        assert repair_host_probes(UIDS) == (backend, ())
    check_truth(ambient, uid=1000)


KUBELETS = [
    ("kubelet", "/usr/bin/kubelet --config=x"), ("kubelite", "/snap/microk8s/1/kubelite --kubelet-args-file=x"), ("k3s", "/usr/local/bin/k3s server"),
    ("k3s-agent", "/usr/local/bin/k3s agent"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "command"), KUBELETS)
def test_nothing_left_of_the_rules_is_repaired_for_the_user_of_the_kubelet_s_process(ambient, name, command):
    node = ambient.client
    program_as_istio_does(node, NATIVE, 1000)
    drop_rules(node, NATIVE)
    with kubelet(node, 1000, name, command), node.entered():
        assert repair_host_probes(UIDS) == (NATIVE, ())
    assert "skuid 1000" in node.run(["nft", "list", "ruleset"], check=True).stdout
    check_truth(ambient, uid=1000)


def test_a_rule_for_a_user_as_whom_the_kubelet_does_not_run_is_broken_and_repaired(ambient):
    node = ambient.client
    program_as_istio_does(node, NATIVE, 0)
    with kubelet(node, 1000):
        check_truth(ambient, (False, False), uid=1000)
        with node.entered():
            assert repair_host_probes(UIDS) == (NATIVE, ())
        check_truth(ambient, uid=1000)


def test_without_a_trace_of_the_kubelet_s_user_no_rule_is_written_that_names_one(ambient):
    """A process in a container, or a program of k3s that runs no kubelet, may have the name too."""
    node = ambient.client
    program_as_istio_does(node, NATIVE, 1000)
    drop_rules(node, NATIVE)
    before = node.run(["nft", "list", "ruleset"], check=True).stdout
    in_container = ["unshare", "--map-root-user", "--pid", "--fork", "--mount-proc"]
    with kubelet(node, 1000, through=in_container), kubelet(node, 0, "k3s", "k3s kubectl get pods"), node.entered(), pytest.raises(ApplyError, match="kubelet is not known"):
        repair_host_probes(UIDS)
    assert node.run(["nft", "list", "ruleset"], check=True).stdout == before


def test_the_port_on_which_the_kubelet_listens_names_its_user_to_a_container(ambient):
    node = ambient.client
    program_as_istio_does(node, NATIVE, 1000)
    drop_rules(node, NATIVE)
    node.listen(10250, uid=1000, gid=1000)
    with node.entered():
        assert repair_host_probes(UIDS) == (NATIVE, ())
    check_truth(ambient, uid=1000)


def move_behind_branch(pod):
    """Route as AWS's CNI plugin does for a pod with security groups of its own, with a device of nobody as the VPC."""
    node = pod.client
    links = {one: json.loads(one.run(["ip", "-j", "link", "show", "eth0"], check=True).stdout)[0]["address"] for one in (pod, node)}
    lines = ["link add vpc type veth peer name nobody", "link set nobody up", "link set vpc up", "addr add 192.0.2.1/24 dev vpc", "addr add 2001:db8:1::1/64 dev vpc nodad"]
    for option, address, network, own in (("-4", POD[IPV4], "10.77.0.0/24", "10.77.0.1"), ("-6", POD[IPV6], "fd77::/64", "fd77::1")):
        lines += [
            f"{option} neigh replace {address} lladdr {links[pod]} dev eth0", f"{option} route add {address} dev eth0 table 101",
            f"{option} route add default dev vpc table 101", f"{option} route add default dev vpc", f"{option} route del {network} dev eth0",
            f"{option} rule add iif eth0 lookup 101 pref 10", f"{option} rule add iif vpc lookup 101 pref 10", f"{option} rule add lookup local pref 20",
            f"{option} rule del pref 0",
        ]  # fmt: skip
        pod.run(["ip", option, "neigh", "replace", own, "lladdr", links[node], "dev", "eth0"], check=True)
    for line in lines:
        node.run(["ip", *line.split()], check=True)


@backends
def test_pods_with_security_groups_of_aws_need_two_policy_rules_which_are_named_and_left_to_the_mesh_s_agent(ambient, backend):
    node = ambient.client
    program_as_istio_does(node, backend)
    check_truth(ambient)
    move_behind_branch(ambient)
    for wanted, what in (("to {} lookup 101 priority 512", "do not leave through its device eth0"), ("iif eth0 lookup local priority 9", "not delivered to the node")):
        check_truth(ambient, (False, False))
        found = states(node)
        rules = {address: wanted.format(address) for address in found}
        assert all(what in detail and f"`{rules[address]}`" in detail for address, (_, detail) in found.items()), found
        before = node.run(["ip", "rule"], check=True).stdout
        with node.entered():
            named, left = repair_host_probes(UIDS)
        assert (named, {one.detail for one in left}) == (backend, {detail for _, detail in found.values()})
        assert node.run(["ip", "rule"], check=True).stdout == before
        for address, text in rules.items():
            node.run(["ip", "-6" if ":" in address else "-4", "rule", "add", *text.split()], check=True)
    check_truth(ambient)
    drop_elements(node, backend)
    check_truth(ambient, (False, False))
    with node.entered():
        assert repair_host_probes(UIDS) == (backend, ())
    check_truth(ambient)


def test_a_set_of_ranges_is_not_filled_with_addresses_alone(ambient):
    node = ambient.client
    program_as_istio_does(node, NATIVE)
    made = "add set inet istio-ambient-nat istio-inpod-probes-v4 { type ipv4_addr; flags interval; }\n"
    node.run(["nft", "-f", "-"], stdin=f"flush ruleset\nadd table inet istio-ambient-nat\n{made}", check=True)
    with kubelet(node, 0), node.entered(), pytest.raises(ApplyError, match="sets of ranges, which netinit does not fill: istio-inpod-probes-v4"):
        repair_host_probes(UIDS)
