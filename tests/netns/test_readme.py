"""What the README tells people to type works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from netinit.lab import Pod

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE_PID = "4711"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def commands(block):
    return [line.split("  #")[0].rstrip() for line in block.splitlines() if line.startswith("netinit ")]


@pytest.mark.parametrize("block", [block for block in blocks("sh") if commands(block)], ids=lambda block: commands(block)[0])
def test_the_commands_of_a_block_work_one_after_the_other_in_a_pod(block):
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    with Pod() as pod:
        for command in commands(block):
            done = pod.run(["sh", "-c", command.replace(EXAMPLE_PID, str(pod.pid))], env={"PATH": path})
            assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


@pytest.mark.parametrize("block", blocks("python"))
def test_the_python_examples_run(block):
    done = subprocess.run([sys.executable, "-c", block], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "ISTIO_INBOUND" in done.stdout


def test_every_make_target_that_is_named_exists():
    named = set(re.findall(r"`?make ([a-z]+)\b", "\n".join(re.findall(r"`[^`]*make[^`]*`", README) + blocks("sh"))))
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named
    assert named <= there
