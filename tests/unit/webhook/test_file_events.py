"""What wakes the server when files change, and that nothing else does."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from netinit.webhook.controller import WatchedFiles
from webhook_server import Server, make_pod


def mount(folder, version):
    """Files as a kubelet mounts a ConfigMap: a link to the folder of the present version, which is replaced."""
    (folder / f"..{version}").mkdir(parents=True)
    (folder / f"..{version}" / "values").write_text(version)
    (folder / "..new").symlink_to(f"..{version}")
    (folder / "..new").rename(folder / "..data")
    if not (folder / "values").is_symlink():
        (folder / "values").symlink_to("..data/values")


CHANGES = {
    "written": lambda folder: (folder / "..1" / "values").write_text("2"),
    "replaced as by a kubelet": lambda folder: mount(folder, "2"),
    "deleted": lambda folder: (folder / "..1" / "values").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_ends_the_wait_and_is_told_once(tmp_path, change):
    mount(tmp_path, "1")
    events = WatchedFiles([tmp_path / "values"])
    assert events.watch()
    CHANGES[change](tmp_path)

    async def wait():
        await asyncio.wait_for(events.wait(600), 60)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(events.wait(600), 0.2)

    asyncio.run(wait())
    events.close()


def test_what_cannot_be_watched_is_said(tmp_path):
    events = WatchedFiles([tmp_path / "missing" / "values"])
    assert not events.watch()
    events.close()


def test_an_idle_server_is_not_awake_and_takes_a_changed_value_at_once(tmp_path):
    def wake_ups(pid):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return sum(int((task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for task in tasks)

    with Server(tmp_path) as server:
        time.sleep(2)  # the two looks at what it has just read
        before = wake_ups(server.process.pid)
        time.sleep(5)
        assert wake_ups(server.process.pid) - before <= 10, "not twice a second for each file"
        (tmp_path / "config" / ".values").write_text('{"release": "second"}')
        (tmp_path / "config" / ".values").rename(tmp_path / "config" / "values")
        server.until(lambda: "generation 2" in server.monitor("/readyz?verbose")[1], "it is taken")
        assert server.review(make_pod())["allowed"]
