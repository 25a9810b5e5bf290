"""What the agent is asked: values with a grammar of their own."""

from __future__ import annotations

import re

import pytest

from netinit.base.errors import OptionError
from netinit.node.settings import SECOND, AgentSettings, InstallSettings, split_taint


@pytest.mark.parametrize(
    ("text", "parts"),
    [("k", ("k", "", "")), ("a.io/k=v", ("a.io/k", "v", "")), ("k=v:NoExecute", ("k", "v", "NoExecute")), ("k:NoSchedule", ("k", "", "NoSchedule")), ("k=:NoSchedule", ("k", "", "NoSchedule"))],
)  # fmt: skip
def test_a_taint_is_written_as_kubectl_does(text, parts):
    assert split_taint(text) == parts
    assert AgentSettings(node="n", taint=text).taint == text


@pytest.mark.parametrize("text", ["=v", ":NoSchedule", "k:", "k:Never", "k=v:NoSchedule:x"])
def test_what_is_no_taint_is_told(text):
    said = f"--startupTaint: '{text}' is not KEY, KEY=VALUE or KEY=VALUE:EFFECT with the effects NoSchedule, PreferNoSchedule, NoExecute"
    with pytest.raises(OptionError, match=f"^{re.escape(said)}$"):
        AgentSettings.from_argv(["--nodeName", "n", "--startupTaint", text])


@pytest.mark.parametrize("backend", ["auto", "nftables", "iptables-nft"])
def test_native_nftables_contradicts_every_other_backend(backend):
    words = ["--nodeName", "n", "--native-nftables", "--backend", backend]
    if backend != "iptables-nft":
        assert AgentSettings.from_argv(words).base.wanted_backend == "nftables"
        return
    with pytest.raises(OptionError, match="--native-nftables: contradicts --backend"):
        AgentSettings.from_argv(words)


def test_an_agent_that_is_only_named_has_these_limits_and_places():
    made = AgentSettings.from_argv(["--nodeName", "n"])
    assert (made.timeout, made.sweep_interval, made.jobs, made.most_requests) == (30 * SECOND, 300 * SECOND, 0, 512)
    assert (made.monitoring_port, made.address, made.instance, made.taint, made.kubeconfig, made.context) == (15014, "", "", "", "", "")
    assert (made.install, made.watch, made.watch_connections, made.sweep, made.log_as_json) == (True, True, False, True, False)
    assert (made.repair, made.repair_label, made.host_probes) == ("report", "cni.istio.io/uninitialized=true", "report")
    assert (made.backend, made.native_nftables, made.dual_stack, made.ipv6, made.log_level) == ("auto", False, False, "auto", "info")
    places = (made.socket, made.netns_folder, made.records_folder, made.cgroup_folder, made.plugin, made.bin_folder, made.conf_folder)
    assert places == (
        "/run/netinit/cni.sock", "/run/netns", "/var/lib/cni/results", "/host/sys/fs/cgroup", "/usr/lib/netinit/netinit-cni",
        "/host/opt/cni/bin", "/host/etc/cni/net.d",
    )  # fmt: skip
    assert (made.namespace, made.daemon_set, made.exclude_namespaces) == ("", "netinit-node", ("kube-system",))
    assert (made.outside_namespaces, made.conf_name, made.standalone) == ("start", "", False)


@pytest.mark.parametrize(("variable", "text", "field", "value"), [
    ("NODE_NAME", "a", "node", "a"), ("KUBERNETES_NODE_NAME", "a", "node", "a"), ("POD_NAMESPACE", "a", "namespace", "a"),
    ("DAEMONSET_NAME", "a", "daemon_set", "a"), ("EXCLUDE_NAMESPACES", "a,b", "exclude_namespaces", ("a", "b")),
    ("NATIVE_NFTABLES", "true", "native_nftables", True), ("ISTIO_DUAL_STACK", "true", "dual_stack", True),
])  # fmt: skip
def test_the_variables_of_istio_s_agent_are_read(variable, text, field, value):
    assert getattr(AgentSettings.from_argv([], {"NODE_NAME": "n", variable: text} if variable != "KUBERNETES_NODE_NAME" else {variable: text}), field) == value


def test_the_options_of_every_pod_are_those_of_the_node():
    base = AgentSettings.from_argv(["--nodeName", "n", "--backend", "nftables", "--dual-stack"]).base
    assert (base.backend, base.native_nftables, base.dual_stack, base.ipv6, base.reconcile) == ("nftables", False, True, "auto", True)
    base = AgentSettings.from_argv(["--nodeName", "n", "--native-nftables", "--ipv6", "on"]).base
    assert (base.backend, base.native_nftables, base.dual_stack, base.ipv6) == ("auto", True, False, "on")


@pytest.mark.parametrize(("words", "problem"), [
    ([], "--nodeName: no node is named; set NODE_NAME from spec.nodeName (fieldRef)"),
    (["--nodeName", "n", "--native-nftables", "--backend", "iptables-nft"], "--native-nftables: contradicts --backend; give one of the two"),
    (["--nodeName", "n", "--dual-stack", "--ipv6", "on"], "--dual-stack: counts only with --ipv6 auto; give one of the two"),
    (["--nodeName", "n", "--repairLabel", "x"], "--repairLabel: must be KEY=VALUE"),
    *[(["--nodeName", "n", "--repairUnknown", "--repair", repair], f"--repairUnknown: does nothing with --repair {repair}; give label, delete or program there") for repair in ("none", "report")],
    (["--nodeName", "n", "--standalone"], "--standalone: needs --cniConfName, the network's file"),
])  # fmt: skip
def test_what_contradicts_itself_is_an_error_that_names_the_flag(words, problem):
    with pytest.raises(OptionError) as caught:
        AgentSettings.from_argv(words)
    assert str(caught.value) == problem


def test_a_network_of_its_own_needs_a_file():
    with pytest.raises(OptionError, match="--standalone: needs --cniConfName"):
        InstallSettings.from_argv(["--standalone"])
    assert InstallSettings.from_argv(["--standalone", "--cniConfName", "x.conflist"]).conf_name == "x.conflist"
