"""A node in a network and mount namespace of its own (make mesh-test), with Istio's own parts of ISTIO_ASSETS."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """containerd and a network of pods."""
    import runtime  # needs packages of the tests on nodes

    network = runtime.bridge(runtime.V4)
    network["plugins"][0]["ipam"]["routes"] = [{"dst": "0.0.0.0/0"}]
    with runtime.Runtime(tmp_path_factory.mktemp("containerd")) as made:
        made.network(network)
        yield made


@pytest.fixture(scope="session")
def plane(node, tmp_path_factory):
    """The cluster with istiod."""
    from mesh import MESH, Mesh
    from pods import GUARDED

    images = Path(os.environ["NETINIT_NODE_IMAGES"])
    node.ctr("-n", "k8s.io", "images", "import", images / "netinit.tar")
    with Mesh(tmp_path_factory.mktemp("mesh"), node) as made:
        made.create(f"/api/v1/namespaces/{MESH}/serviceaccounts", {"metadata": {"name": "a"}})
        made.until(lambda: all(made.ask("GET", f"/api/v1/namespaces/{one}/serviceaccounts/default") for one in (MESH, "plain")), "the accounts are there")
        made.until(lambda: made.ask("GET", f"/api/v1/namespaces/{MESH}/configmaps/istio-ca-root-cert"), "istiod has written its root certificate")
        account = f"cluster.local/ns/{MESH}/sa/a"
        made.apply({  # b's guarded ports serve a's account alone
            "apiVersion": "security.istio.io/v1", "kind": "AuthorizationPolicy", "metadata": {"name": "guard", "namespace": MESH},
            "spec": {"action": "DENY", "rules": [{
                "from": [{"source": {"notPrincipals": [account]}}], "to": [{"operation": {"ports": [str(GUARDED)]}}],
            }]},
        })  # fmt: skip
        yield made


@pytest.fixture(scope="session")
def others(plane):
    """Who is there beside a pair: a pod of the mesh, one outside of it, and servers outside of the cluster."""
    from answers import EXTERNAL
    from mesh import MESH
    from pod import Member, serve_pages
    from pods import HTTP, OUTSIDE, OUTSIDE_DIRECT, describe_pod, here, make_service, open_pods

    with contextlib.ExitStack() as stack:
        outside = stack.enter_context(here())
        for address in (OUTSIDE_DIRECT, OUTSIDE):
            outside.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        stack.enter_context(serve_pages(outside, "outside", families=[4]))
        service = make_service(plane, "plain", "plain")
        guest, plain = stack.enter_context(open_pods(plane, describe_pod("guest"), describe_pod("plain", "plain")))
        plane.apply({
            "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry", "metadata": {"name": "only", "namespace": MESH},
            "spec": {"hosts": [EXTERNAL], "resolution": "STATIC", "endpoints": [{"address": plain.address}],
                     "ports": [{"number": 80, "name": "http", "protocol": "HTTP", "targetPort": HTTP}]},
        })  # fmt: skip
        yield {"guest": guest, "plain": plain, "plain_service": service, "node": Member(outside)}
