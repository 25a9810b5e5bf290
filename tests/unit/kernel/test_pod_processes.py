"""The pods of a node, by what /proc shows of their processes."""

from __future__ import annotations

from netinit.kernel import pod_processes


def test_pods_are_named_by_the_oldest_process_of_each_foreign_namespace(monkeypatch):
    spaces = {"self": (4, 1), "1": (4, 2), 30: (4, 7), 4: (4, 7), 5: (4, 1), 6: (4, 2), 7: None, 8: (5, 7)}
    monkeypatch.setattr(pod_processes, "list_processes", lambda: [30, 4, 5, 6, 7, 8])
    monkeypatch.setattr(pod_processes, "namespace_of", spaces.__getitem__)
    monkeypatch.setattr(pod_processes, "read_text", lambda path: f"{path}\x1b\n")
    assert pod_processes.find_pods() == ((4, r"/proc/4/comm\x1b"), (8, r"/proc/8/comm\x1b"))
