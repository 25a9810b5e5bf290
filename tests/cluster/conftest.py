"""The control plane, one for all tests of this folder."""

from __future__ import annotations

import pytest

from control_plane import ControlPlane, find_obstacle


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    if reason := find_obstacle():
        pytest.skip(reason)
    with ControlPlane(tmp_path_factory.mktemp("plane")) as made:
        yield made


@pytest.fixture
def clean(plane):
    """The control plane without any webhook, before and after."""
    plane.delete_webhooks()
    yield plane
    plane.delete_webhooks()
