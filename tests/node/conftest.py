"""A node in a network and mount namespace of its own (make node-test): containerd, the reference plugins, and an API."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from node_agent import Api

pytest.importorskip("grpc", reason="grpcio is not installed: run `make node-test`")
from runtime import Runtime, find_obstacle

PLACE = Path("/var/lib/cni/containerd")  # in the test's own file system; pytest's folder hides it from users that a pod maps its own to


def pytest_collection_modifyitems(items):
    reason = find_obstacle()
    for item in items:
        if reason and item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def runtime(tmp_path_factory):
    if reason := find_obstacle():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("containerd")
    folder.chmod(0o711)
    PLACE.mkdir(exist_ok=True)
    subprocess.run(["mount", "--bind", folder, PLACE], check=True)
    with Runtime(PLACE) as made:
        yield made


@pytest.fixture
def api():
    with Api() as made:
        yield made
