"""The tests' own help: an ordinary user reads what lies below a closed folder, and nothing else there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from readable import NOBODY, make_prefix


def read(prefix, *paths):
    return [
        subprocess.run([*prefix, *NOBODY, "cat", path], capture_output=True, text=True, check=False).stdout for path in paths
    ]


@pytest.mark.netns
@pytest.mark.mounts
def test_an_ordinary_user_reads_the_folder_below_a_closed_one_and_nothing_beside_it(tmp_path):
    closed = tmp_path / "closed"
    wanted, other = closed / "below" / "it's here", closed / "other"
    for folder in (wanted, other):
        folder.mkdir(parents=True)
        (folder / "file").write_text("found")
    tmp_path.chmod(0o700)
    closed.chmod(0o700)

    files = (wanted / "file", other / "file")
    assert read((), *files) == ["", ""]
    assert read(make_prefix([wanted]), *files) == ["found", ""]
    assert [file.read_text() for file in files] == ["found", "found"], "outside everything is as before"


def test_nothing_is_done_where_everybody_reads_already():
    assert make_prefix([Path("/usr")]) == ()
