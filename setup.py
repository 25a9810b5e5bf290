"""What pyproject.toml cannot say: every build starts from nothing, and the same sources make the same bytes.

setuptools copies modules into build/ of the checkout and packs whatever lies there, including modules that were removed or renamed
since the last build. This build has a folder of its own for each run, and leaves none. Whose umask, user and clock it was shows in
neither archive; times are SOURCE_DATE_EPOCH if it is set, as they are in a wheel.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build import build
from setuptools.command.sdist import sdist


def plain_mode(mode: int) -> int:
    """The permissions of a packed file: only whether its owner may execute it is kept."""
    return 0o755 if mode & 0o100 else 0o644


def set_plain_modes(folder: str) -> None:
    """Gives all files of a folder the permissions of packed ones."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            path.chmod(plain_mode(path.stat().st_mode))


class FreshBuild(build):
    """Builds in a temporary folder, which is removed when the process ends."""

    def initialize_options(self) -> None:
        """Sets the folder that those of libraries, scripts and the wheel lie in."""
        super().initialize_options()
        self.folder = tempfile.TemporaryDirectory(prefix="netinit-build-")
        self.build_base = self.folder.name

    def run(self) -> None:
        """Builds, and gives the files their permissions."""
        super().run()
        set_plain_modes(self.folder.name)


class SameBytes(sdist):
    """Packs the archive of sources in the order of names, of no user, with one time for all."""

    def make_archive(self, base_name: str, format: str, *others: Any, base_dir: str | None = None, **more: Any) -> str:  # noqa: A002 - setuptools'
        """Returns the path of an archive of the folder of sources, which setuptools has gathered."""
        if format != "gztar" or not base_dir:
            return super().make_archive(base_name, format, *others, base_dir=base_dir, **more)
        epoch = os.environ.get("SOURCE_DATE_EPOCH")

        def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
            member.mode = 0o755 if member.isdir() else plain_mode(member.mode)
            member.mtime = int(epoch) if epoch else int(member.mtime)
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            return member

        path = Path(f"{base_name}.tar.gz")
        path.parent.mkdir(parents=True, exist_ok=True)
        seconds = int(epoch) if epoch else None
        with (
            path.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):  # fmt: skip
            archive.add(base_dir, filter=plain)  # sorts each folder's names
        return str(path)


COMMANDS = {"build": FreshBuild, "sdist": SameBytes}
with contextlib.suppress(ImportError):  # setuptools before 70.1 has it in another distribution; no release is built with that
    from setuptools.command.bdist_wheel import bdist_wheel

    class PlainWheel(bdist_wheel):
        """Gives the licence, which is copied from the checkout, its permissions."""

        def egg2dist(self, egginfo_path: str, distinfo_path: str) -> None:
            """Makes the folder of metadata."""
            super().egg2dist(egginfo_path, distinfo_path)
            set_plain_modes(distinfo_path)

    COMMANDS["bdist_wheel"] = PlainWheel

os.umask(0o022)  # of this build alone: files that it makes would have the caller's
setup(cmdclass=COMMANDS)
