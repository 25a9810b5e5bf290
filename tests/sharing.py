"""Which tests share a worker of pytest-xdist, and in which order they start: the long ones first, so that none is left over alone.

Files are long, too: they start before the tests that go one by one, with which all workers end at the same time.

The files of most folders stay together, since their tests are short and share what their modules make; where each test makes a
pod of its own, each goes to whoever is free.
"""

from __future__ import annotations

from typing import Any

from xdist.scheduler import LoadScopeScheduling

APART = ("tests/netns/", "tests/kernel/", "tests/conformance/test_ambient.py", "tests/property/test_s")
TOGETHER = (  # beginnings of names: what begins with one of a line is one unit
    ("tests/netns/test_bypass_attempts.py",),  # all share a pod of each mode and backend
    # These share a pod, which each test would make anew between tests of other files.
    ("tests/netns/test_many_networks.py",), ("tests/netns/test_cgroup_programs.py",), ("tests/netns/test_verify.py",), ("tests/netns/test_helm_test.py",),
    ("tests/kernel/test_nft_equivalence.py",),
    # An agent takes two processes; a worker that starts one has compiled the plugin, and has a process that forks agents.
    ("tests/netns/test_node.py", "tests/netns/test_node_clock.py"),
    ("tests/netns/test_node_sweep.py",),
    ("tests/netns/test_node_watch.py", "tests/netns/test_node_run.py", "tests/netns/test_node_outside.py"),
    ("tests/unit/test_architecture.py", "tests/unit/test_reach.py", "tests/unit/test_cost_of_changes.py", "tests/unit/questions/test_finding_codes.py"),  # they parse the package
    ("tests/netns/test_peers_options.py::test_what_becomes_of_new_connections",),  # the machine has one log
)  # fmt: skip
# What takes longest, by the beginnings of the tests' names.
FIRST = (
    "tests/netns/test_kills.py", "tests/netns/test_bypass_attempts.py", "tests/property/test_gotemplate_go.py", "tests/property/test_symbolic.py", "tests/netns/test_node", "tests/unit/questions/test_lint.py",
    "tests/netns/test_libiptc.py", "tests/netns/test_backend_contract.py", "tests/kernel/", "tests/netns/test_nftables_contract.py",
    "tests/property/", "tests/unit/webhook/", "tests/unit/inject/", "tests/netns/test_live.py",
)  # fmt: skip


def unit(nodeid: str) -> str:
    """What goes to one worker as a whole: the test, its file, or the first of a line of `TOGETHER`."""
    whole = next((beginnings[0] for beginnings in TOGETHER if nodeid.startswith(beginnings)), None)
    return whole or (nodeid if nodeid.startswith(APART) else nodeid.partition("::")[0])


def rank(nodeid: str) -> int:
    """The place of a test in the order: the number of the first beginning that its name has, else files before single tests."""
    return next((number for number, beginning in enumerate(FIRST) if nodeid.startswith(beginning)), len(FIRST) + (unit(nodeid) == nodeid))


class Scheduler(LoadScopeScheduling):
    """pytest-xdist's own for files, with those tests apart that share nothing."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """What is complete is forgotten: the scheduler counts all that a worker ever got, several times for each test."""
        super().mark_test_complete(node, item_index, duration)
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(self.assigned_work[node][scope].values()):
            del self.assigned_work[node][scope]
