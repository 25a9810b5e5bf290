"""Which pods are programmed, in Istio's order, and the options that annotations and the proxy come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.errors import CniError
from netinit.base.net import Network
from netinit.node.decision import NodePod, decide, is_own_pod, matches_uid, read_pod
from netinit.node.protocol import CniCode
from netinit.options import Options
from node_agent import make_pod

BASE = Options(reconcile=True, backend="nftables")
TRAFFIC = "traffic.sidecar.istio.io/"


def decision(tree, addresses=()):
    return decide(read_pod(tree), BASE, addresses)


def options(addresses=(), **more):
    made = decision(make_pod("web", **more), addresses).options
    assert made is not None
    return made


def annotated(**texts):
    return options(annotations={TRAFFIC + name: text for name, text in texts.items()})


def with_container(tree, name, place="containers"):
    tree["spec"].setdefault(place, []).append({"name": name})
    return tree


# Each pod is left alone for the reason of its line, and for all below too: the order shows in what is said.
ORDER = [
    (lambda tree: with_container(tree, "istio-init", "initContainers"), "it has the container istio-init, which programs the rules itself"),
    (lambda tree: tree["spec"]["containers"][1]["env"].append({"name": "DISABLE_ENVOY", "value": "true"}), "DISABLE_ENVOY is true"),
    (lambda tree: tree["spec"]["containers"][1].update(args=["proxy", "router"]), "its proxy is a router, not a sidecar"),
    (lambda tree: tree["metadata"]["labels"].update({"sidecar.istio.io/inject": "false"}), "sidecar.istio.io/inject is false"),
    (lambda tree: tree["metadata"]["annotations"].pop("sidecar.istio.io/status"), "it has no annotation sidecar.istio.io/status: it was not injected"),
]


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_reason_of_istios_order_is_given(first):
    tree = make_pod("web")
    for change, _ in ORDER[first:]:
        change(tree)
    found = decision(tree)
    assert found.options is None
    assert found.reason == ORDER[first][1]


@pytest.mark.parametrize(("arguments", "programmed"), [([], True), (["proxy"], True), (["proxy", "sidecar"], True), (["other", "router"], True), (["proxy", "router"], False)])
def test_only_a_proxy_that_is_named_as_another_kind_is_left_alone(arguments, programmed):
    tree = make_pod("web")
    tree["spec"]["containers"][1]["args"] = arguments
    assert (decision(tree).options is not None) is programmed


def test_a_pod_without_a_proxy_is_left_alone_and_one_with_a_native_sidecar_is_not():
    tree = make_pod("web")
    proxy = tree["spec"]["containers"].pop()
    assert decision(tree).reason == "it has no container istio-proxy"
    tree["spec"]["initContainers"] = [proxy]
    assert decision(tree).options is not None


def test_the_label_counts_before_the_annotation():
    key = "sidecar.istio.io/inject"
    assert decision(make_pod("web", annotations={key: "false"})).options is None
    assert decision(make_pod("web", annotations={key: "false"}, labels={key: "true"})).options is not None
    assert decision(make_pod("web", annotations={key: "true"}, labels={key: "false"})).options is None


def test_what_nobody_says_is_the_sidecars_usual_interception():
    made = options()
    assert (made.inbound_mode, made.inbound_ports, made.outbound_cidrs) == ("REDIRECT", "*", "*")
    assert (made.exclude_inbound_ports, made.exclude_outbound_ports) == ((15020, 15021, 15090), (15020,))
    assert (made.proxy_uids, made.proxy_gids, made.backend, made.reconcile) == ((1337,), (1337,), "nftables", True)
    assert (made.redirect_dns, made.drop_invalid, made.dual_stack) == (False, False, False)


@pytest.mark.parametrize(("uid", "gid", "wanted"), [(None, None, (1337, 1337)), (0, 0, (1337, 1337)), (2000, 3000, (2000, 3000)), (2000, None, (2000, 1337))])
def test_the_proxys_ids_count_unless_they_are_roots(uid, gid, wanted):
    made = options(security={key: value for key, value in (("runAsUser", uid), ("runAsGroup", gid)) if value is not None})
    assert (*made.proxy_uids, *made.proxy_gids) == wanted


def test_annotations_become_options():
    made = annotated(
        includeOutboundIPRanges="10.0.0.0/8,fd00::/8", excludeOutboundIPRanges="10.1.0.0/16", includeInboundPorts="80,8080",
        excludeInboundPorts="22,15021", includeOutboundPorts="3306", excludeOutboundPorts="53", excludeInterfaces="eth1", kubevirtInterfaces="net1",
    )  # fmt: skip
    assert made.outbound_cidrs == (Network.parse("10.0.0.0/8"), Network.parse("fd00::/8"))
    assert made.exclude_outbound_cidrs == (Network.parse("10.1.0.0/16"),)
    assert (made.inbound_ports, made.exclude_inbound_ports) == ((80, 8080), (22, 15021, 15020, 15090))
    assert (made.outbound_ports, made.exclude_outbound_ports) == ((3306,), (53,))
    assert (made.exclude_interfaces, made.virtual_interfaces) == (("eth1",), ("net1",))


def test_the_newer_annotation_for_virtual_interfaces_counts_before_the_older():
    key = "istio.io/reroute-virtual-interfaces"
    assert options(annotations={key: "net2", TRAFFIC + "kubevirtInterfaces": "net1"}).virtual_interfaces == ("net2",)


def test_an_empty_list_of_ports_is_none_and_the_proxys_own_are_excluded_nevertheless():
    made = annotated(includeInboundPorts="", excludeInboundPorts="")
    assert (made.inbound_ports, made.exclude_inbound_ports) == ((), (15020, 15021, 15090))


def test_the_proxys_variables_count_and_all_dns_is_captured():
    made = options(env=[{"name": name, "value": "true"} for name in ("ISTIO_META_DNS_CAPTURE", "ISTIO_DUAL_STACK", "INVALID_DROP")])
    assert (made.redirect_dns, made.capture_all_dns, made.dual_stack, made.drop_invalid) == (True, True, True, True)


def test_ipv6_follows_the_first_address_and_with_dual_stack_any():
    dual = [{"name": "ISTIO_DUAL_STACK", "value": "true"}]
    assert options(("10.0.0.1", "fd00::1")).ipv6 == "inet", "as Istio's nft rules"
    assert options(("fd00::1", "10.0.0.1")).ipv6 == "on"
    assert options(("10.0.0.1", "fd00::1"), env=dual).ipv6 == "on"
    assert options().ipv6 == "auto"


def test_ipv6_is_asked_for_by_annotation_by_the_proxy_or_by_the_node_in_this_order():
    both, refused = ("10.0.0.1", "fd00::1"), [{"name": "NETINIT_IPV6", "value": "reject"}]
    assert options(both, env=refused).ipv6 == "reject"
    assert options(both, env=refused, annotations={"netinit.io/ipv6": "off"}).ipv6 == "off"
    with pytest.raises(CniError, match=r"netinit\.io/ipv6"):
        options(both, annotations={"netinit.io/ipv6": "refuse"})
    for base, ipv6 in ((BASE.replace(dual_stack=True), "on"), (BASE.replace(ipv6="reject"), "reject"), (BASE.replace(backend="iptables-nft"), "off")):
        assert decide(read_pod(make_pod("web")), base, both).options.ipv6 == ipv6
    never = make_pod("web", env=[{"name": "ISTIO_DUAL_STACK", "value": "false"}])
    assert decide(read_pod(never), BASE.replace(dual_stack=True), both).options.ipv6 == "inet", "what the proxy says goes before"


@pytest.mark.parametrize(
    ("name", "text"),
    [("includeOutboundIPRanges", "10.0.0.0"), ("excludeInboundPorts", "x"), ("includeInboundPorts", "70000"), ("excludeInterfaces", "a b")],
)
def test_a_bad_annotation_is_an_error_that_names_it(name, text):
    with pytest.raises(CniError, match=name) as caught:
        annotated(**{name: text})
    assert caught.value.code == CniCode.BAD_POD


def test_a_bad_mode_is_an_error():
    with pytest.raises(CniError, match="interceptionMode"):
        options(annotations={"sidecar.istio.io/interceptionMode": "MAGIC"})


@pytest.mark.parametrize(
    ("namespace", "name", "own"),
    [
        ("mesh", "netinit-node-ab3de", True), ("other", "netinit-node-ab3de", False), ("mesh", "netinit-node-ab3d", False),
        ("mesh", "netinit-node", False), ("mesh", "netinit-node-extra-ab3de", False), ("mesh", "xnetinit-node-ab3de", False),
        ("mesh", "netinit-node-AB3DE", False), ("mesh", "netinit-node-12345", True),
    ],
)  # fmt: skip
def test_the_agents_own_pod_is_known_by_namespace_and_the_name_of_its_daemonset(namespace, name, own):
    assert is_own_pod(namespace, name, "mesh", "netinit-node") is own


NOISE = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 70000) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "spec", "containers", "env", "args", "value"]), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"metadata": NOISE, "spec": NOISE, "status": NOISE}), st.sampled_from(["metadata", "spec", "status", ""]))
def test_a_pod_of_any_shape_is_read(tree, whole):
    if whole:
        tree = {**make_pod("web"), whole: tree[whole]}
    decision(tree)


def test_a_static_pod_is_known_by_the_uid_that_its_kubelet_gave_it():
    """The API's copy of it has another one; without this the pod would wait for ever."""
    tree = make_pod("web", uid="of-the-api", annotations={"kubernetes.io/config.mirror": "of-the-kubelet"})
    pod = read_pod(tree)
    assert [matches_uid(pod, uid) for uid in ("of-the-api", "of-the-kubelet", "", "other")] == [True, True, True, False]
    assert [matches_uid(read_pod(make_pod("web", uid="a")), uid) for uid in ("a", "", "b")] == [True, True, False]


@pytest.mark.parametrize(("phase", "metadata", "ended"), [
    ("Running", {}, False), ("Pending", {}, False), ("Succeeded", {}, True), ("Failed", {}, True), ("Running", {"deletionTimestamp": "2026-03-04T05:06:07Z"}, True),
])  # fmt: skip
def test_a_pod_that_is_done_or_being_deleted_has_ended(phase, metadata, ended):
    tree = make_pod("web")
    tree["metadata"].update(metadata)
    tree["status"] = {**tree.get("status", {}), "phase": phase}
    assert read_pod(tree).ended is ended


def test_of_a_pod_is_kept_what_is_decided_by():
    tree = {
        "metadata": {
            "namespace": "shop", "name": "web-1", "uid": "u", "resourceVersion": "17",
            "annotations": {"sidecar.istio.io/status": "{}", "cni.istio.io/x": "1", "netinit.io/ipv6": "off", "kubernetes.io/config.mirror": "static", "other": "y", "odd": 1},
            "labels": {"sidecar.istio.io/inject": "true", "cni.istio.io/uninitialized": "true", "app": "web"},
        },
        "spec": {
            "hostNetwork": True, "initContainers": [{"name": "first"}],
            "containers": [
                {"name": "app", "env": [{"name": "DISABLE_ENVOY", "value": "true"}]},
                {
                    "name": "istio-proxy", "args": ["proxy", "router"], "securityContext": {"runAsUser": 5, "runAsGroup": 0},
                    "env": [{"name": "DISABLE_ENVOY", "value": "no"}, {"name": "INVALID_DROP", "value": "true"}, {"name": "OTHER", "value": "x"}, {"name": "ISTIO_DUAL_STACK"}],
                },
            ],
        },
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {}, {"ip": ""}, {"ip": "fd00::1"}, "odd"]},
    }  # fmt: skip
    assert read_pod(tree) == NodePod(
        namespace="shop", name="web-1", uid="u", static_uid="static", version="17",
        annotations={"sidecar.istio.io/status": "{}", "cni.istio.io/x": "1", "netinit.io/ipv6": "off"}, labels={"sidecar.istio.io/inject": "true", "cni.istio.io/uninitialized": "true"},
        containers=("app", "istio-proxy", "first"), proxy=True, other_kind="router", environment={"DISABLE_ENVOY": "no", "INVALID_DROP": "true", "ISTIO_DUAL_STACK": ""},
        uid_of_proxy=5, gid_of_proxy=0, host_network=True, addresses=("10.0.0.1", "fd00::1"),
    )  # fmt: skip
    assert read_pod(tree).label == "shop/web-1"
    for odd in ({}, {"metadata": None, "spec": [], "status": "x"}):
        assert read_pod(odd) == NodePod(namespace="", name="", uid="", annotations={}, labels={}, containers=(), environment={})


@pytest.mark.parametrize("value", [True, "5", 5.0, None])
def test_an_id_of_another_type_is_none(value):
    pod = read_pod(make_pod("web", security={"runAsUser": value, "runAsGroup": value}, spec={"hostNetwork": "true"}))
    assert (pod.uid_of_proxy, pod.gid_of_proxy, pod.host_network) == (None, None, False)


def test_each_bad_annotation_is_a_line_with_its_value_and_what_is_wrong():
    with pytest.raises(CniError) as caught:
        annotated(excludeInboundPorts="x" * 500, includeInboundPorts="70000", includeOutboundPorts="80")
    lines = str(caught.value).split("\n")
    assert caught.value.code == CniCode.BAD_POD
    assert sorted(line.split(": ")[0] for line in lines) == [f"annotation {TRAFFIC}excludeInboundPorts", f"annotation {TRAFFIC}includeInboundPorts"]
    assert any(f"{TRAFFIC}includeInboundPorts: '70000': " in line and line.rpartition("': ")[2] for line in lines)
    assert max(map(len, lines)) < 500, "a long value is shortened"


def test_options_that_contradict_each_other_are_an_error_of_the_pod():
    with pytest.raises(CniError) as caught:
        options(env=[{"name": "NETINIT_IPV6", "value": "sometimes"}])
    assert caught.value.code == CniCode.BAD_POD
    assert "sometimes" in str(caught.value)


def test_a_pod_is_no_agent_where_no_daemon_set_is_named():
    assert not is_own_pod("mesh", "-ab3de", "mesh", "")
    assert is_own_pod("mesh", "a-ab3de", "mesh", "a")
    for name in ("a-ab3d\u0663", "a-ab-de", "a-ABCDE", "a-ab3de1"):
        assert not is_own_pod("mesh", name, "mesh", "a")


@pytest.mark.parametrize(("statuses", "code"), [
    ([{"name": "other", "state": {"terminated": {"exitCode": 126}}}], None), ([{"name": "istio-validation", "state": {"running": {}}}], None),
    ([{"name": "istio-validation", "state": {"terminated": {"exitCode": 0}}, "lastState": {"terminated": {"exitCode": 126}}}], 0),
    ([{"name": "istio-validation", "state": {"terminated": {"exitCode": True}}, "lastState": {"terminated": {"exitCode": 126}}}], 126),
    (["odd", {"name": "istio-validation", "lastState": {"terminated": {"exitCode": 126}}}], 126),
])  # fmt: skip
def test_the_exit_code_is_that_of_the_validation_s_current_run_or_its_last(statuses, code):
    assert read_pod(make_pod("web", status={"initContainerStatuses": statuses})).exit_code == code


def test_what_validation_ended_with_is_remembered():
    state = {"name": "istio-validation", "state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 126}}}
    assert read_pod(make_pod("web", status={"initContainerStatuses": [state]})).exit_code == 126
    assert read_pod(make_pod("web")).exit_code is None
