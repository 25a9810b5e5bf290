"""Entering and leaving: a block ends where it began, and a refusal says what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netinit.base.errors import NamespaceError
from netinit.kernel import namespaces

OWN = Path("/proc/thread-self/ns/net")


def count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def fail_inside(seen):
    with namespaces.NamespaceSwitch():
        seen.append(OWN.stat().st_ino)
        raise ZeroDivisionError


@pytest.mark.parametrize("path", ["/dev/null", "/proc/self/ns/uts"])
def test_what_is_no_network_namespace_cannot_be_entered_and_nothing_stays_open(path):
    before, here = count_descriptors(), OWN.stat().st_ino
    other = os.open(path, os.O_RDONLY)
    with pytest.raises(NamespaceError, match="the network namespace cannot be entered: "), namespaces.NamespaceSwitch(other):
        pass
    os.close(other)
    assert count_descriptors() == before
    assert OWN.stat().st_ino == here


@pytest.mark.netns
def test_a_visit_ends_where_it_began_also_after_an_error():
    here = OWN.stat().st_ino
    seen = []
    with pytest.raises(ZeroDivisionError):
        fail_inside(seen)
    assert seen[0] != here == OWN.stat().st_ino
