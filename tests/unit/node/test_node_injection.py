"""The loop closed: a pod that is injected for a plugin asks for no privilege, and the agent captures what istio-init would."""

from __future__ import annotations

import pytest

from netinit.inject import inject_pod
from netinit.inject.adding.config import load_config
from netinit.inject.deciding.init_container import options_of
from netinit.node.decision import decide, read_pod
from netinit.options import Interception, Options
from podsecurity import offences

POD = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
RESTRICTED = {
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [{"name": "app", "image": "app:1", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}],
    },
}  # fmt: skip
TRAFFIC = "traffic.sidecar.istio.io/"


def injected(pod, key="istio_cni"):
    values = {"istio_cni": {"enabled": True}} if key == "istio_cni" else {"pilot": {"cni": {"enabled": key == "pilot"}}}
    return inject_pod(pod, load_config(values=values))


@pytest.mark.parametrize("key", ["istio_cni", "pilot"])
def test_with_the_plugin_on_a_pod_gets_a_validation_and_no_capability(key):
    pod = injected(RESTRICTED, key)
    names = [one["name"] for one in pod["spec"]["initContainers"]]
    assert names[0] == "istio-validation"
    assert "istio-init" not in names
    assert offences(pod, "restricted") == set()


@pytest.mark.parametrize(
    "annotations",
    [{}, {TRAFFIC + "includeInboundPorts": "80", TRAFFIC + "excludeInboundPorts": "22"}, {TRAFFIC + "includeOutboundIPRanges": "10.0.0.0/8"},
     {TRAFFIC + "excludeOutboundPorts": "3306", TRAFFIC + "includeOutboundPorts": "53"}, {"sidecar.istio.io/interceptionMode": "TPROXY"},
     {"netinit.io/inbound-tunnel-port": "4190", "netinit.io/exclude-cloud-metadata": "true", "netinit.io/exclude-inbound-cidrs": "10.9.0.0/16"}],
    ids=str,
)  # fmt: skip
def test_the_agent_programs_what_the_init_container_would(annotations):
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": annotations}}
    agents = decide(read_pod(injected(pod)), Options()).options
    init = options_of(injected(pod, "neither")["spec"]["initContainers"][0])
    fields = [flag.field for flag in Interception.flags]
    assert {name: getattr(agents, name) for name in fields} == {name: getattr(init, name) for name in fields}


def test_without_the_plugin_the_agent_leaves_such_a_pod_alone():
    assert "istio-init" in decide(read_pod(injected(POD, "neither")), Options()).reason
