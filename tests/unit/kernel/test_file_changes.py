"""What ends the wait for a change of files, and that nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from netinit.kernel.file_changes import FileChanges
from netinit.serving.server_process import wait_readable


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
    events = FileChanges()
    assert events.watch([tmp_path / "values"])
    CHANGES[change](tmp_path)

    async def wait():
        await asyncio.wait_for(wait_readable(events), 60)
        events.drain()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait_readable(events), 0.2)

    asyncio.run(wait())
    events.close()


def test_what_cannot_be_watched_is_said(tmp_path):
    events = FileChanges()
    assert not events.watch([tmp_path / "missing" / "values"])
    events.close()
