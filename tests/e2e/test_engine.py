"""The engine of these tests leaves nothing: when it is closed, when its run is told to end, and after it was killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import ROOT
from leftovers import find_cgroups, find_mounts, sweep

pytestmark = pytest.mark.netns
TESTS = ROOT / "tests"
PATIENCE = 40.0  # seconds

# A run of pytest with an engine of its own and a container that would work for longer than it has.
RUN = """
import os
import subprocess

import pytest

from containers import Image
from engine import Engine
from leftovers import heed_signals
from laboratory import Pod

heed_signals()  # as conftest.py does it


@pytest.fixture
def small():
    made = Engine()
    try:
        archive = made.folder / "files.tar"
        made.do(["tar", "--create", "--file", str(archive), "--directory", os.environ["NETINIT_FILES"], "."])
        made.podman("import", "--quiet", "--change", 'ENTRYPOINT ["/usr/bin/python3.11"]', str(archive), "small")
        yield made
    finally:
        made.close()


def test_a_container_works(small):
    code = "import time; print('works', flush=True); time.sleep(100)"
    with Pod() as pod:
        command = Image(small, "small").command(pod.pid, ["-c", code])
        process = subprocess.Popen(command, env=small.environment, stdout=subprocess.PIPE, text=True)
        print(process.stdout.readline().strip(), small.name, small.folder, flush=True)
        if os.environ["NETINIT_ENDING"] != "close":
            process.wait()
    process.stdout.close()
    process.returncode = 0  # the engine ends it
"""


@pytest.mark.parametrize("ending", ["close", "SIGTERM", "SIGKILL"])
def test_nothing_is_left(python_files: Path, tmp_path: Path, ending: str):
    story = tmp_path / "test_story.py"
    story.write_text(RUN)
    own = {"NETINIT_FILES": str(python_files), "NETINIT_ENDING": ending, "PYTHONPATH": f"{TESTS / 'e2e'}:{TESTS}:{ROOT}"}
    options = ["--capture=no", f"--config-file={ROOT / 'pyproject.toml'}", f"--rootdir={ROOT}"]
    output = tmp_path / "output"  # no pipe, whose end what is left would keep open
    with output.open("w") as writing:
        command = [sys.executable, "-m", "pytest", *options, str(story)]
        run = subprocess.Popen(command, env=os.environ | own, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing)
    try:
        deadline = time.monotonic() + PATIENCE
        while not (told := re.search(r"^works (\S+) (\S+)\n", output.read_text(), re.MULTILINE)):
            assert run.poll() is None, output.read_text()
            assert time.monotonic() < deadline, output.read_text()
            time.sleep(0.05)
        name, folder = told[1], Path(told[2])
        assert folder.name.startswith(f"netinit-image-{run.pid}-")
        if ending != "close":
            assert find_cgroups(f"{name}-")
            assert find_mounts(folder)
            run.send_signal(getattr(signal, ending))
        run.wait(PATIENCE)
    finally:
        run.kill()
        run.wait()
    if ending == "SIGKILL":
        assert folder.exists()
        sweep()  # as the next run does at its start
    left = [*find_mounts(folder), *find_cgroups(f"{name}-"), *([folder] if folder.exists() else []), *processes_of(folder)]
    assert not left, f"{left}\n{output.read_text()}"


def processes_of(folder: Path) -> list[str]:
    """runc's and podman's processes that name the folder, or whose root lies in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, root = (process / "cmdline").read_bytes().decode(), str((process / "root").readlink())
        except OSError:
            continue
        if str(folder) in words or root.startswith(str(folder)):
            found.append(f"{process.name}: {words}")
    return found
