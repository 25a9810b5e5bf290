"""What decides about packets of a live pod and is not simulated, as sentences name it."""

from __future__ import annotations

import pytest

from netinit.base.snapshot import IFF_LOOPBACK, IFF_UP, Device, Snapshot
from netinit.pods.live import _find_unread
from netinit.simulate.trace import list_unread

LOOPBACK = Device(index=1, name="lo", flags=IFF_LOOPBACK | IFF_UP)


@pytest.mark.parametrize(("links", "named"), [
    ((LOOPBACK.replace(flags=IFF_LOOPBACK),), "a loopback device that is down"),
    ((LOOPBACK, LOOPBACK.replace(index=2)), "a device called lo that is not the loopback"),
])  # fmt: skip
def test_a_loopback_device_that_is_none_is_named_in_a_sentence(links, named):
    found = _find_unread(Snapshot(links=links))
    assert found == (named,)
    assert list_unread(found).endswith(f"({named})")


def test_a_loopback_device_as_usual_needs_no_mention():
    assert _find_unread(Snapshot(links=(LOOPBACK,))) == ()
