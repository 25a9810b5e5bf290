"""Entering and leaving: a block ends where it began, and a refusal says what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from netinit.backends.machine import HERE
from netinit.base.errors import NamespaceError
from netinit.kernel import capabilities, namespaces
from netinit.kernel.isolated_namespace import NamespaceSwitch
from netinit.options import Options

OWN = Path("/proc/thread-self/ns/net")


def count_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def fail_inside(seen):
    with NamespaceSwitch():
        seen.append(OWN.stat().st_ino)
        raise ZeroDivisionError


@pytest.mark.parametrize("path", ["/dev/null", "/proc/self/ns/uts"])
def test_what_is_no_network_namespace_cannot_be_entered_and_nothing_stays_open(path):
    before, here = count_descriptors(), OWN.stat().st_ino
    other = os.open(path, os.O_RDONLY)
    with pytest.raises(NamespaceError, match="the network namespace cannot be entered: "), NamespaceSwitch(other):
        pass
    os.close(other)
    assert count_descriptors() == before
    assert OWN.stat().st_ino == here


FOR_A_PERSON = """
  for a pod: name it with --pid (a process of it) or --netns
  to try it on this machine: netinit demo, or unshare -n sh -c 'ip link set lo up; netinit …'
  to see the rules and change nothing: netinit render …
  for the whole machine: --host-network"""
FOR_A_POD = """
  this pod has hostNetwork: true: its rules would capture the traffic of the whole node and stay when the pod is deleted;\
 leave the init container out
  for another pod of the node: name it with --pid or --netns
  where the pod is a virtual machine with a kernel of its own: --host-network"""


@pytest.mark.parametrize(("situation", "ways"), [(capabilities.PERSON, FOR_A_PERSON), (capabilities.KUBERNETES, FOR_A_POD)])
def test_in_the_machines_namespace_it_is_said_what_else_may_be_meant(monkeypatch, situation, ways):
    monkeypatch.setattr(namespaces, "is_machine", lambda: True)
    monkeypatch.setattr(capabilities, "find_situation", lambda: situation)
    with pytest.raises(NamespaceError) as refusal:
        namespaces.refuse_host()
    what = "this is the machine's own network namespace, whose rules are for all of its programs; nothing was changed."
    assert str(refusal.value) == what + ways


def test_what_only_reads_warns_in_the_machines_namespace(monkeypatch):
    warning = "this is the machine's own network namespace, not a pod's: apply and remove change it only with --host-network"
    for machine, warned in ((True, warning), (False, "")):
        monkeypatch.setattr(namespaces, "is_machine", lambda machine=machine: machine)
        assert HERE.inside(Options(), lambda options, text: (options, text)) == (Options(), warned)


@pytest.mark.netns
def test_a_visit_ends_where_it_began_also_after_an_error():
    here = OWN.stat().st_ino
    seen = []
    with pytest.raises(ZeroDivisionError):
        fail_inside(seen)
    assert seen[0] != here == OWN.stat().st_ino
