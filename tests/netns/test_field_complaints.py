"""What users of istio-init complain about in its tracker, each told once on a real kernel, with what netinit answers.

Three more are told elsewhere: rules in the node's own namespace (test_machine.py), pods marked for the mesh that bypass it
(test_kubelet.py, `kubectl netinit check`), and an ambient mesh's rules that were lost (test_node_sweep.py); the module that a
kernel lacks is in test_doctor.py.
"""

from __future__ import annotations

import fcntl
import json

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID
from programming import SIDECAR, WITHOUT_PROGRAMS, arrivals, needs, run_tool

NFT, LEGACY = "iptables-nft", "iptables-legacy"
BPF = "4,48 0 0 9,21 0 1 6,6 0 0 1,6 0 0 0"  # a BPF program of somebody's own: TCP matches
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: shop, annotations: {{{annotations}}}}}
spec:
  initContainers: [{{name: istio-init, image: i, args: [istio-iptables, {args}], securityContext: {{capabilities: {{add: [NET_ADMIN]}}}}}}]
  containers: [{{name: app, image: a}}, {{name: istio-proxy, image: p}}]
status: {{podIPs: [{addresses}]}}
"""


@pytest.fixture
def pod(require_netns):
    with Pod() as made:
        start_servers(made)
        yield made


def apply(pod, *words, **more):
    return run_tool(pod, "apply", *SIDECAR, "--ipv6", "off", *words, **more)


def is_captured(pod, port=80):
    return arrivals(pod, Probe("203.0.113.7", port, uid=APP_ID, gid=APP_ID))[0] == ("proxy", 15001)


def write(tmp_path, annotations="", args='"-i", "*", "-b", "*", "-d", "15090,15021,15020"', addresses="{ip: 10.1.0.4}"):
    path = tmp_path / "pod.yaml"
    path.write_text(POD.format(annotations=annotations, args=args, addresses=addresses))
    return str(path)


def test_a_second_run_of_the_init_container_does_not_crash_loop(pod):
    assert apply(pod).returncode == 0
    again = apply(pod)
    assert (again.returncode, "nothing to do" in again.stderr) == (0, True), again.stderr
    assert is_captured(pod)


def test_a_foreign_rule_with_a_bpf_program_does_not_make_the_run_fail_and_is_named(pod):
    pod.run([NFT, "-w", "-t", "nat", "-A", "OUTPUT", "-m", "bpf", "--bytecode", BPF, "-j", "ACCEPT"], check=True)
    assert apply(pod).returncode == 0
    said = run_tool(pod, "explain", "--live", "--to", "203.0.113.7:80")
    assert (said.returncode, "never past the proxy: rule 1 of nat OUTPUT" in said.stdout, "bpf" in said.stdout) == (0, True, True), said.stdout


def test_legacy_tables_that_are_merely_loaded_do_not_make_the_rules_legacy(pod):
    needs(LEGACY)
    pod.run([LEGACY, "-w", "-t", "nat", "-S"], check=True)
    assert f"programmed by {NFT}" in apply(pod).stderr


def test_an_empty_chain_of_the_kubelets_in_a_legacy_table_does_not_make_the_rules_legacy(pod):
    needs(LEGACY)
    pod.run([LEGACY, "-w", "-t", "mangle", "-N", "KUBE-IPTABLES-HINT"], check=True)
    assert f"programmed by {NFT}" in apply(pod).stderr
    assert is_captured(pod)


def test_a_node_without_ipv6_gets_ipv4_rules_and_no_error(require_netns):
    with Pod(ipv6=False) as made:
        start_servers(made)
        done = run_tool(made, "apply", *SIDECAR)
        assert done.returncode == 0, done.stderr
        assert is_captured(made)


def test_ipv6_of_a_dual_stack_pod_that_stays_uncaptured_is_said_and_fails_a_gate(pod, tmp_path):
    file = write(tmp_path, addresses="{ip: 10.1.0.4}, {ip: 'fd00::4'}")
    assert "NI203" in run_tool(pod, "lint", "--pod", file).stdout
    assert run_tool(pod, "audit", "--pod", file, "--fail-on", "bypass:ipv6").returncode == 4


def test_a_lock_of_somebody_else_is_waited_for_and_the_way_on_is_named(pod, tmp_path):
    lock = tmp_path / "xtables.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = apply(pod, "--backend", LEGACY, "--lock-timeout", "1s", env={"XTABLES_LOCKFILE": str(lock)})
    assert (done.returncode, "--lock-timeout" in done.stderr) == (1, True), done.stderr
    assert apply(pod, "--backend", LEGACY, env={"XTABLES_LOCKFILE": str(lock)}).returncode == 0


def test_an_annotation_may_have_ranges_of_ports(pod):
    assert apply(pod, "-o", "8000-8100").returncode == 0
    assert (is_captured(pod, 8050), is_captured(pod, 80)) == (False, True)


def test_exclusions_on_the_deployment_instead_of_its_pods_are_named_with_the_right_place(pod, tmp_path):
    key = "traffic.sidecar.istio.io/excludeOutboundPorts"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "app", "image": "a"}]}}
    tree = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "annotations": {key: "5432"}}, "spec": {"template": template}}
    (tmp_path / "web.json").write_text(json.dumps(tree))
    for words in (("lint",), ("explain", "--to", "10.2.3.4:5432"), ("audit",)):
        done = run_tool(pod, *words, "--pod", str(tmp_path / "web.json"))
        assert f'annotation "{key}" of the Deployment has no effect' in done.stdout + done.stderr, words
        assert "move it to spec.template.metadata.annotations" in done.stdout + done.stderr, words


def test_ports_to_capture_beside_all_networks_are_said_to_change_nothing_with_the_option_to_leave_out(pod):
    said = run_tool(pod, "lint", "-i", "*", "-q", "8443", "-b", "*", "-d", "15090,15021,15020").stdout
    assert "--istio-outbound-ports: 8443: no packet is treated differently without it with --istio-service-cidr" in said
    assert "leave --istio-service-cidr out to capture only these" in said
    assert apply(pod, "-i", "", "-q", "8443").returncode == 0
    assert (is_captured(pod, 8443), is_captured(pod, 80)) == (True, False), "as the finding says"


def test_native_tables_are_programmed_verified_and_removed_without_nft_or_iptables(pod):
    for words, said in ((("apply", *SIDECAR, "--ipv6", "off", "--backend", "nftables"), "programmed by nftables"), (("verify",), "as planned"), (("remove",), "")):
        done = run_tool(pod, *words, prefix=WITHOUT_PROGRAMS)
        assert (done.returncode, said in done.stdout + done.stderr) == (0, True), (words, done)
    assert "ISTIO" not in pod.run(["nft", "list", "ruleset"], check=True).stdout
