"""A node in a network and mount namespace of its own (make mesh-test), with Istio's own parts of ISTIO_ASSETS."""

from __future__ import annotations

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
