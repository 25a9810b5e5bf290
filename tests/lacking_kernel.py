"""A kernel that lacks features of netfilter, played to every program inside of a mount namespace by lacking_kernel.c."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")
# The loader reads /etc/ld.so.preload; an own copy of /etc has one, so that the machine's is never touched.
_PLAY = """
set -e
mount --make-rprivate /
mount -t tmpfs none "$1"
cp -a /etc "$1/etc"
cp "$2" "$1/lacking.so"
echo "$1/lacking.so" > "$1/etc/ld.so.preload"
mount --bind "$1/etc" /etc
mount -t tmpfs none /run
echo "$3" > /run/lacking
shift 3
exec "$@"
"""


def build(folder: Path) -> Path:
    """Compile the library; skips without a compiler."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed: apt-get install gcc libc6-dev")
    library = folder / "lacking.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE], check=True)
    return library


def lacking(library: Path, *names: str) -> list[str]:
    """What starts a program on a kernel without extensions, tables or expressions of these names."""
    place = library.parent / "place"
    place.mkdir(exist_ok=True)
    return ["unshare", "--mount", "sh", "-c", _PLAY, "play", str(place), str(library), f",{','.join(names)},"]
