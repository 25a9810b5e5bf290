"""What wakes the server when files change, and that nothing else does."""

from __future__ import annotations

import time
from pathlib import Path

from webhook_server import Server, make_pod


def test_an_idle_server_is_not_awake_and_takes_a_changed_value_at_once(tmp_path):
    def wake_ups(pid):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for task in tasks)

    with Server(tmp_path) as server:
        def wakes_in(seconds):
            before = wake_ups(server.process.pid)
            time.sleep(seconds)
            return wake_ups(server.process.pid) - before

        server.until(lambda: wakes_in(1) <= 2, "it has looked twice at what it has just read")
        assert wakes_in(5) <= 10, "not twice a second for each file"
        (tmp_path / "config" / ".values").write_text('{"release": "second"}')
        (tmp_path / "config" / ".values").rename(tmp_path / "config" / "values")
        server.until(lambda: "generation 2" in server.monitor("/readyz?verbose")[1], "it is taken")
        assert server.review(make_pod())["allowed"]
