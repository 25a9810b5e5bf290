"""Changes made as CONTRIBUTING says, in a copy of the checkout: what is written by hand, what is generated, and which tests are red then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
OMITTED = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "site", "dist", "build", "*.egg-info")
KEPT = (".ci", ".github")
Edits = Mapping[str, Sequence[tuple[str, str]]]  # by file: (text before which, text that is put there); no text for a new file
LONGEST = 900  # seconds for the tests of one recipe on a busy machine


class Copy:
    """A copy of the checkout, in which a recipe is followed."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "checkout"
        shutil.copytree(ROOT, self.root, ignore=OMITTED)
        for path in ROOT.glob(".*"):
            if path.is_file() and path.name != ".git":
                shutil.copy(path, self.root)
            elif path.name in KEPT:
                shutil.copytree(path, self.root / path.name)
        self._before = self._read()
        self._written: frozenset[str] = frozenset()

    def _read(self) -> dict[str, bytes]:
        """Every file but what running Python leaves."""
        found = [path for path in self.root.rglob("*") if path.is_file() and path.suffix != ".pyc"]
        return {str(path.relative_to(self.root)): path.read_bytes() for path in found}

    def write(self, edits: Edits) -> None:
        """Makes the changes by hand. AssertionError where a file does not have the text once."""
        for name, changes in edits.items():
            path = self.root / name
            text = path.read_text("utf-8") if path.exists() else ""
            for before, new in changes:
                assert not before or text.count(before) == 1, (name, before)
                text = text.replace(before, f"{new}{before}") if before else text + new
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        self._written |= edits.keys()

    @property
    def generated(self) -> frozenset[str]:
        """The files that have changed, but for those that were changed by hand."""
        now = self._read()
        return frozenset(name for name in now.keys() | self._before.keys() if now.get(name) != self._before.get(name)) - self._written

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs Python in the copy, with its package."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "NETINIT_"))}
        environ |= {"PYTHONPATH": f"{self.root}", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.root, env=environ, capture_output=True, text=True, timeout=LONGEST, check=False
        )

    def make(self, *arguments: str) -> None:
        """Runs one of a recipe's programs. AssertionError if it fails."""
        done = self.run(*arguments)
        assert done.returncode == 0, (arguments, done.stdout[-4000:], done.stderr[-4000:])

    def red(self, *tests: str) -> list[str]:
        """The tests of these files and folders that fail."""
        done = self.run("-m", "pytest", "-q", "-p", "no:xdist", *tests)
        assert done.returncode in (0, 1), (done.stdout[-4000:], done.stderr[-4000:])
        failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        assert bool(failed) == bool(done.returncode), done.stdout[-4000:]
        return failed
