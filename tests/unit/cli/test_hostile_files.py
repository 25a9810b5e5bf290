"""Files that a command is given and that attack it: without an end, nested without an end, and of things without a number."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sweeps import choose, together

READERS = (
    ("audit", "--assert", "{}"), ("audit", "--pod", "{}"), ("explain", "--pod", "{}", "--to", "192.0.2.1:80"), ("draw", "--pod", "{}"),
    ("diff", "--pod", "{}", "--pod", "{}"), ("apply", "--dry-run", "--config", "{}"), ("convert", "--from", "kuma", "--file", "{}"),
    ("inject", "-f", "{}"), ("inject", "-f", "/dev/null", "--valuesFile", "{}"), ("check-inject", "-f", "{}"),
    ("webhook", "lint", "-f", "{}"), ("webhook", "manifests", "-f", "{}"),
)  # fmt: skip
MEMORY = 2 << 30


def start(words, file, stdin=subprocess.DEVNULL):
    """The command with a file, in little memory."""
    asked = [sys.executable, "-m", "netinit", *[word.format(file) for word in words]]
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))  # noqa: E731
    return subprocess.run(asked, stdin=stdin, capture_output=True, text=True, check=False, preexec_fn=bound, timeout=120)


@together("words", choose(READERS[::3], READERS), ids=" ".join)
def test_a_file_without_an_end_is_refused_by_its_name(words):
    done = start(words, "/dev/zero")
    assert done.returncode in {1, 2}, done
    assert "/dev/zero" in done.stderr
    assert "longer than" in done.stderr


def test_so_is_a_stdin_without_an_end():
    with Path("/dev/zero").open("rb") as zeros:
        done = start(("audit", "--pod", "{}"), "-", zeros)
    assert (done.returncode, "longer than 128 MiB" in done.stdout + done.stderr) == (1, True), done


@pytest.mark.parametrize("words", READERS, ids=" ".join)
@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 100_000], ids=["lists", "objects", "blocks"])
def test_an_abyss_is_refused_by_its_name(words, text, tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    Path("abyss.yaml").write_text(f"apiVersion: v1\nkind: Pod\nspec: {text}" if text[0] != "-" else f"apiVersion: v1\nkind: Pod\nspec:\n{text}")
    done = run(["netinit", *[word.format("abyss.yaml") for word in words]])
    assert done.code in {1, 2}, done
    assert "abyss.yaml" in done.out + done.err
    assert "nested deeper than 200 levels" in done.out + done.err


def test_more_assertions_than_a_run_can_prove_are_refused(tmp_path):
    file = tmp_path / "many.yaml"
    file.write_text("- outbound tcp is captured\n" * 501)
    done = start(("audit", "--assert", "{}"), file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "501 assertions are more than 500" in done.stderr
