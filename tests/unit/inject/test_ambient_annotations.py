"""Exclusions of sidecars on pods of an ambient mesh, where nobody reads them."""

from __future__ import annotations

import pytest

from netinit.inject.deciding.warnings import pod_findings

PORTS, TUNNEL = "traffic.sidecar.istio.io/excludeOutboundPorts", "netinit.io/inbound-tunnel-port"
AMBIENT = {"istio.io/dataplane-mode": "ambient"}


def found(annotations, labels=None, containers=("app",)):
    pod = {
        "metadata": {"name": "web", "annotations": annotations, "labels": labels or {}},
        "spec": {"containers": [{"name": name, "image": name} for name in containers]},
    }
    return [one for one in pod_findings(pod) if one.kind.name == "sidecar-annotation"]


@pytest.mark.parametrize(("more", "labels"), [({"ambient.istio.io/redirection": "enabled"}, None), ({}, AMBIENT)])
def test_each_annotation_of_sidecars_rules_is_named_with_its_option(more, labels):
    one, other = found({PORTS: "5432", TUNNEL: "0", "istio.io/reroute-virtual-interfaces": "eth1", "example.org/x": "y", **more}, labels)
    assert {one.path[1], other.path[1]} == {PORTS, TUNNEL}
    told = next(str(each) for each in (one, other) if each.path[1] == PORTS)
    assert "the pod is in an ambient mesh, whose rules do not have --istio-local-outbound-ports-exclude" in told


def test_interfaces_that_are_rerouted_count_in_both():
    assert found({"istio.io/reroute-virtual-interfaces": "eth1", "ambient.istio.io/redirection": "enabled"}) == []


@pytest.mark.parametrize(
    ("annotations", "labels", "containers"),
    [
        ({PORTS: "5432"}, {}, ("app",)),
        ({PORTS: "5432"}, {"istio.io/dataplane-mode": "none"}, ("app",)),
        ({PORTS: "5432"}, AMBIENT, ("app", "istio-proxy")),
        ({PORTS: "5432", "sidecar.istio.io/status": "{}"}, AMBIENT, ("app",)),
    ],
)
def test_pods_with_a_sidecar_or_outside_of_ambient_are_left_alone(annotations, labels, containers):
    assert found(annotations, labels, containers) == []
