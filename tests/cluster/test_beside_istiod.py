"""Our webhook in the place of istiod's, at the same revision, while istiod runs on: a real istiod of ISTIO_ASSETS."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="grpcio is not installed: run `make node`")
from control_plane import ADDRESSES, ControlPlane, Replica, find_obstacle
from helm import HELM
from mesh import FILES, ROOT, Mesh
from test_installation import CONFIGURATIONS, bare, fresh, injected, reaches

ISTIO = os.environ.get("ISTIO_ASSETS")
WRITTEN = ("CustomResourceDefinition", "ConfigMap", "Service", "MutatingWebhookConfiguration")


class WithIstiod(ControlPlane):
    """The control plane with istiod beside it, and nothing of a node."""

    render, start_istiod, injects, has_signed = Mesh.render, Mesh.start_istiod, Mesh.injects, Mesh.has_signed

    def bring_up(self):
        super().bring_up()
        self.istio = Path(ISTIO)
        self.namespace(ROOT)
        trees = [tree for chart in ("base", "istio-control/istio-discovery") for tree in self.render(self.istio / "manifests/charts" / chart)]
        for tree in trees:
            if tree["kind"] in WRITTEN:
                self.apply(tree)
        (deployment,) = [tree for tree in trees if tree["kind"] == "Deployment"]
        self.start_istiod(deployment["spec"]["template"]["spec"]["containers"][0])


@pytest.mark.skipif(find_obstacle() is not None, reason=find_obstacle() or "")
@pytest.mark.skipif(not ISTIO or not all((Path(ISTIO) / name).exists() for name in FILES) or not HELM, reason="ISTIO_ASSETS names no folder with istiod and its charts, or helm is not installed")
def test_istiod_leaves_the_bundle_of_our_webhook_at_its_own_revision_alone(tmp_path):
    with WithIstiod(tmp_path) as plane:
        namespace = fresh(plane, **{"istio-injection": "enabled"})
        plane.ask("DELETE", f"{CONFIGURATIONS}/istio-sidecar-injector")
        _, trees = plane.install()
        with Replica(plane, ADDRESSES[0], trees=trees, folder=tmp_path) as replica:
            replica.wait()
            plane.endpoints(ADDRESSES[0])
            reaches(plane, namespace)
            end = time.monotonic() + 10
            while time.monotonic() < end:  # istiod writes within a second of each change
                assert injected(plane.pod(namespace, bare()))
            (own,) = plane.ask("GET", CONFIGURATIONS)["items"]
            assert "pilot-discovery" not in {one["manager"] for one in own["metadata"]["managedFields"]}
