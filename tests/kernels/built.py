"""The programs of the images and releases for the machines that are asked: what is compiled, and the static executable, which is linked.

What is compiled has musl, as the images' has, and a compiler of this computer. The executable is linked by the commands of the Dockerfile's stage,
in a root of Debian with that stage's packages.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from debian import CACHE, NATIVE, Suite, make_builder, make_root, run

SOURCES = {"netinit-cni": "node/plugin.c", "netinit": "bin/launcher.c"}
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-s", "-nostdinc", "-nostdlib")
SYSTEMS = {"arm64": "aarch64-linux-gnu"}  # how the names of compilers begin
SUITE = "bookworm"  # of the images
DOCKERFILE = Path(__file__).parents[2] / "Dockerfile"
PACKAGES = ("click", "yaml")  # which the executable holds beside netinit
LINK = """
    mount --bind "$1/build" "$2/build"
    mount --bind "$1/served" "$2/served"
    exec chroot "$2" env -i PATH=/usr/sbin:/usr/bin PYTHON="$3" sh -euc "$4"
"""


def build_programs(package: Path, target: Path, architecture: str) -> None:
    """Compiles the C sources of the package into the target folder."""
    compiler = f"{SYSTEMS[architecture]}-gcc"
    folder = CACHE / f"musl-{architecture}"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        Suite(SUITE, architecture).unpack(["musl-dev"], folder)
        (folder / "ready").touch()
    (library,) = (folder / "usr" / "lib").glob("*-linux-musl")
    own, helpers = (Path(run([compiler, f"-print-{what}"]).strip()) for what in ("file-name=include", "libgcc-file-name"))
    target.mkdir(parents=True)
    for name, source in SOURCES.items():
        run([compiler, *FLAGS, "-isystem", folder / "usr" / "include" / library.name, "-isystem", own, "-o", target / name,
             library / "crt1.o", library / "crti.o", package / source, library / "libc.a", helpers, library / "crtn.o"])  # fmt: skip


class Recipe(NamedTuple):
    """How a Dockerfile links the executable: the program of Python, the packages with what is linked, the shell's commands."""

    python: str
    packages: tuple[str, ...]
    commands: str


def read_recipe(dockerfile: str) -> Recipe:
    """The recipe in the text of a Dockerfile. Raises RuntimeError if a part is not found."""
    stage = re.search(r"^FROM \S+ AS executable\n(?:.*\n)*?(?=FROM )", dockerfile, re.MULTILINE)
    parts = (
        re.search(r"^ARG PYTHON=(\S+)$", dockerfile, re.MULTILINE),
        re.search(r'^ENV PARTS="(.*)"$', stage[0] if stage else "", re.MULTILINE),
        re.search(r"^WORKDIR /build/executable\n(?:#.*\n)*RUN ((?:.*\\\n)*.*)\n", stage[0] if stage else "", re.MULTILINE),
    )
    python, packages, commands = (part[1] if part else "" for part in parts)
    if not all((python, packages, commands)):
        raise RuntimeError("the Dockerfile's stage `executable` does not say how it is linked")
    return Recipe(python, tuple(packages.replace("${PYTHON}", python).split()), commands)


def link_executable(package: Path, target: Path, architecture: str) -> None:
    """Writes the static executable of the package's modules to the target."""
    recipe = read_recipe(DOCKERFILE.read_text("utf-8"))
    tools, root = "", make_root(SUITE)
    if architecture != NATIVE:
        system = SYSTEMS[architecture]
        root = make_builder(SUITE, architecture, system, (f"{recipe.python}-minimal", *(f"{name}:{architecture}" for name in recipe.packages)))
        tools = "".join(f'{name}() {{ {system}-{name} "$@"; }}\n' for name in ("gcc", "nm", "strip"))
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as named:
        work = Path(named)
        shutil.copytree(package, work / "build" / package.name)
        for name in PACKAGES:
            found = importlib.util.find_spec(name)
            shutil.copytree(Path(found.origin).parent, work / "served" / "usr" / "lib" / "netinit" / name)  # type: ignore[union-attr, arg-type]
        (work / "build" / "executable").mkdir()
        for name in ("build", "served"):
            (root / name).mkdir(exist_ok=True)
        commands = f"{tools}cd /build/executable\n{recipe.commands}\nstrip -o netinit linked"
        run(["unshare", "--mount", "sh", "-euc", LINK, "sh", work, root, recipe.python, commands])
        shutil.copy(work / "build" / "executable" / "netinit", target)
