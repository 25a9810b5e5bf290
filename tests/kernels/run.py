"""`make kernels`: asks every kernel and every root, keeps the answers in the cache and writes docs/kernels.md.

    python tests/kernels/run.py [NAME...]

A NAME (see PLACES) chooses what is asked anew; the others keep the answers that they gave before. Where the processor is emulated,
a kernel takes some three minutes of this computer's, and only those that nobody else wants.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from debian import CACHE, Kernel, make_root
from places import ROOT, compile_project, copy_project, in_machine, in_root
from table import complaints, render

PAGE = ROOT / "docs" / "kernels.md"
LIMIT = 1800  # seconds of the processor for one place
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "busybox": "busybox-static", "cpio": "cpio",
    "depmod": "kmod", "unxz": "xz-utils", "zstd": "zstd", "unshare": "util-linux", "apt-get": "apt",
}  # fmt: skip
ROOTS = {"Debian 12": "bookworm", "Debian 13": "trixie", "Debian sid": "sid"}
NF_TABLES = ("nf_tables", "nft_compat")
KERNELS = {  # suite, flavour, the root whose programs are used, modules that are taken away
    "6.1 of Debian 12": ("bookworm", "amd64", "bookworm", ()),
    "6.12 of Debian 12's backports": ("bookworm-backports", "amd64", "bookworm", ()),
    "6.12 of Debian 13": ("trixie", "amd64", "trixie", ()),
    "newest of sid": ("sid", "amd64", "sid", ()),
    "6.1, cloud": ("bookworm", "cloud-amd64", "bookworm", ()),
    "6.1 without address sets": ("bookworm", "amd64", "bookworm", ("ip_set", "xt_set")),
    "6.1 without xt_owner": ("bookworm", "amd64", "bookworm", ("xt_owner",)),
    "6.1 without nf_tables": ("bookworm", "amd64", "bookworm", NF_TABLES),
    "6.1 without REDIRECT": ("bookworm", "amd64", "bookworm", ("xt_REDIRECT", "nft_redir")),
}
PLACES = (*ROOTS, *KERNELS)


def find_obstacle() -> str | None:
    """What is in the way, in one line with the remedy."""
    if os.geteuid() != 0:
        return "make kernels wants root: it makes roots of Debian and namespaces"
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    return f"make kernels wants more programs; as root: apt-get install {' '.join(missing)}" if missing else None


def ask_root(suite: str, work: Path) -> object:
    project = work / "project"
    if not project.exists():
        copy_project(project)
    return in_root(make_root(suite), project, limit=LIMIT)


def ask_kernel(suite: str, flavour: str, root: str, without: tuple[str, ...], work: Path) -> object:
    kernel, programs = Kernel(suite, flavour), make_root(root)
    project = work / "project"
    if not project.exists():
        copy_project(project)
    compile_project(project, programs)
    return in_machine(kernel, programs, project, without=without, parts="errors" if without else "all", limit=LIMIT)


def ask(name: str, work: Path) -> dict[str, object]:
    """The place as table.py reads it; a failure is told and stands in the table."""
    asked: Callable[[], object] = partial(ask_root, ROOTS[name], work) if name in ROOTS else partial(ask_kernel, *KERNELS[name], work)
    began = time.monotonic()
    place: dict[str, object] = {"name": name, "without": KERNELS[name][-1] if name in KERNELS else ()}
    try:
        place["answer"] = asked()
    except RuntimeError as error:
        place["failure"] = str(error)
    print(f"{name}: {'no answer' if 'failure' in place else 'asked'}, {time.monotonic() - began:.0f} s", flush=True)
    return place


def main(names: list[str]) -> int:
    if obstacle := find_obstacle():
        print(obstacle)
        return 1
    if unknown := [name for name in names if name not in PLACES]:
        print(f"{unknown[0]!r} is no place; these are: {', '.join(PLACES)}")
        return 1
    answers = CACHE / "answers"
    answers.mkdir(parents=True, exist_ok=True)
    kept = {name: answers / f"{name}.json" for name in PLACES}
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as work:
        for name in names or PLACES:
            kept[name].write_text(json.dumps(ask(name, Path(work))))
            places = [json.loads(path.read_text()) if path.exists() else {"name": one, "failure": "not asked yet"} for one, path in kept.items()]
            PAGE.write_text(render(places))  # at once: who stops a long run keeps what it found
    wrong = [line for place in places if place["name"] in (names or PLACES) for line in complaints(place)]
    print("\n".join([*wrong, f"{PAGE.relative_to(ROOT)}: {len(names or PLACES)} places asked, {len(wrong)} complaints"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
