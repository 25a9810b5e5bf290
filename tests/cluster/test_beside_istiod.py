"""Our webhook in the place of istiod's, at the same revision, while istiod runs on: a real istiod of ISTIO_ASSETS."""

from __future__ import annotations

import time

import pytest

import istiod
from control_plane import ADDRESSES, ControlPlane, Replica, find_obstacle
from test_installation import CONFIGURATIONS, bare, fresh, injected, reaches

OBSTACLE = find_obstacle() or istiod.find_obstacle()


class BesideIstiod(istiod.WithIstiod, ControlPlane):
    """The control plane with istiod beside it, and nothing of a node."""

    def bring_up(self):
        super().bring_up()
        self.namespace(istiod.ROOT)
        self.install_istiod({})


@pytest.mark.skipif(OBSTACLE is not None, reason=OBSTACLE or "")
def test_istiod_leaves_the_bundle_of_our_webhook_at_its_own_revision_alone(tmp_path):
    with BesideIstiod(tmp_path) as plane:
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
