"""The programs that the images compile, for another architecture: with its compiler of Debian, and with musl as the images' are."""

from __future__ import annotations

import shutil
from pathlib import Path

from debian import CACHE, Suite, run

SOURCES = {"netinit-cni": "node/plugin.c", "netinit": "bin/launcher.c"}
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-nostdinc", "-nostdlib")
COMPILERS = {"arm64": "aarch64-linux-gnu-gcc"}


def build_programs(package: Path, target: Path, architecture: str) -> None:
    """Compiles the C sources of the package into the target folder."""
    compiler = COMPILERS[architecture]
    folder = CACHE / f"musl-{architecture}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        Suite("bookworm", architecture).unpack(["musl-dev"], folder)
        (folder / "ready").touch()
    (library,) = (folder / "usr" / "lib").glob("*-linux-musl")
    own, helpers = (Path(run([compiler, f"-print-{what}"]).strip()) for what in ("file-name=include", "libgcc-file-name"))
    target.mkdir(parents=True)
    for name, source in SOURCES.items():
        run([compiler, *FLAGS, "-isystem", folder / "usr" / "include" / library.name, "-isystem", own, "-o", target / name,
             library / "crt1.o", library / "crti.o", package / source, library / "libc.a", helpers, library / "crtn.o"])  # fmt: skip
