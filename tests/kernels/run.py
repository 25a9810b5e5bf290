"""`make kernels`: asks kernels and roots, keeps what they answered in results.json beside this file and writes docs/kernels.md from it.

    python tests/kernels/run.py [--simulator] [NAME...]
    python tests/kernels/run.py --arm64 PART [whole]

A NAME (see PLACES) chooses what is asked anew. What is not asked, and a place that gives no answer or does not come to its end, keeps what
is on record. With --simulator only the simulator's assumptions are asked, ARM64 too where it is named. With --arm64, an emulated machine of this
architecture is asked, and a root on this computer's kernel for what it must do alike for each golden: everything (PART is `arm64`) or that alone
(`goldens`). Where the processor is emulated, a kernel takes some three minutes of this computer's, and only those that nobody else wants.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from chosen import WHOLE
from debian import NATIVE, Kernel, make_root
from places import ROOT, compile_project, copy_project, in_machine, in_root
from summaries import Record, complain_of_goldens, complaints, keep, summarize, summarize_arm64
from systems import SYSTEMS, name_rig
from table import render

PAGE = ROOT / "docs" / "kernels.md"
RESULTS = Path(__file__).with_name("results.json")
LIMIT = 1800  # seconds of the processor for one place
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "busybox": "busybox-static", "cpio": "cpio",
    "depmod": "kmod", "unxz": "xz-utils", "zstd": "zstd", "unshare": "util-linux", "apt-get": "apt",
}  # fmt: skip
PROGRAMS_OF_ARM64 = {"qemu-system-aarch64": "qemu-system-arm", "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu"}
ROOTS = {"Debian 12": "bookworm", "Debian 13": "trixie", "Debian sid": "sid"}
NF_TABLES = ("nf_tables", "nft_compat")


class Booted(NamedTuple):
    """A kernel to boot."""

    suite: str
    flavour: str
    root: str  # the suite whose programs are used
    without: tuple[str, ...] = ()  # modules that are taken away
    architecture: str = NATIVE


KERNELS = {
    "6.1 of Debian 12": Booted("bookworm", "amd64", "bookworm"),
    "6.12 of Debian 12's backports": Booted("bookworm-backports", "amd64", "bookworm"),
    "6.12 of Debian 13": Booted("trixie", "amd64", "trixie"),
    "newest of sid": Booted("sid", "amd64", "sid"),
    "6.1, cloud": Booted("bookworm", "cloud-amd64", "bookworm"),
    "6.1 without address sets": Booted("bookworm", "amd64", "bookworm", ("ip_set", "xt_set")),
    "6.1 without xt_owner": Booted("bookworm", "amd64", "bookworm", ("xt_owner",)),
    "6.1 without nf_tables": Booted("bookworm", "amd64", "bookworm", NF_TABLES),
    "6.1 without REDIRECT": Booted("bookworm", "amd64", "bookworm", ("xt_REDIRECT", "nft_redir")),
    **{name_rig(one): Booted("trixie", "amd64", "trixie", one.lacks) for one in SYSTEMS if one.lacks},
}
PLACES = (*ROOTS, *KERNELS)
ARM64, ARM64_KERNEL = "6.1 of Debian 12, arm64", Booted("bookworm", "arm64", "bookworm", architecture="arm64")
PARTS = ("arm64", "goldens")  # everything, or what this computer must do alike
SIMULATED = (*ROOTS, *(name for name, kernel in KERNELS.items() if not kernel.without), ARM64)  # whom --simulator asks


def find_obstacle(programs: Mapping[str, str]) -> str | None:
    """What is in the way, in one line with the remedy; `programs`: those that are wanted, with their packages."""
    if os.geteuid() != 0:
        return "make kernels wants root: it makes roots of Debian and namespaces"
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    return f"make kernels wants more programs; as root: apt-get install {' '.join(missing)}" if missing else None


def ask_root(suite: str, parts: str, work: Path) -> object:
    project = work / "project"
    if not project.exists():
        copy_project(project)
    return in_root(make_root(suite), project, parts=parts, limit=LIMIT)


def ask_kernel(asked: Booted, parts: str, work: Path) -> object:
    kernel, programs = Kernel(asked.suite, asked.flavour, asked.architecture), make_root(asked.root, asked.architecture)
    project = work / "project"
    if not project.exists():
        copy_project(project)
    compile_project(project, make_root(asked.root), parts)
    return in_machine(kernel, programs, project, without=asked.without, parts="errors" if asked.without else parts, limit=LIMIT)


def ask(name: str, parts: str, work: Path) -> dict[str, Any]:
    """The place as summaries.py reads it; a failure is told."""
    kernel = KERNELS.get(name, ARM64_KERNEL)
    asked: Callable[[], object] = partial(ask_root, ROOTS[name], parts, work) if name in ROOTS else partial(ask_kernel, kernel, parts, work)
    began = time.monotonic()
    place: dict[str, Any] = {"name": name, "without": () if name in ROOTS else kernel.without}
    try:
        place["answer"] = asked()
    except RuntimeError as error:
        place["failure"] = str(error)
    print(f"{name}: {'no answer' if 'failure' in place else 'asked'}, {time.monotonic() - began:.0f} s", flush=True)
    return place


def record(name: str, found: Record) -> None:
    """Add what a place was found to be to the results, and write the page."""
    if found:
        results = keep(json.loads(RESULTS.read_text("utf-8")), name, found, (*PLACES, ARM64))
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
        PAGE.write_text(render(results, ARM64), "utf-8")


def tell(wrong: list[str]) -> int:
    """Print what is wrong, a line each; return how many there are."""
    for line in wrong:
        print(line, flush=True)
    return len(wrong)


def ask_arm64(part: str) -> int:
    """Ask the emulated machine, and the page's root of the same suite for what both must do alike; `part`: of PARTS, with or without WHOLE."""
    if part.removesuffix(WHOLE) not in PARTS:
        print(f"{part!r} is no part of what is asked of arm64; these are: {', '.join(PARTS)}")
        return 1
    if obstacle := find_obstacle({**PROGRAMS, **PROGRAMS_OF_ARM64}):
        print(obstacle.replace("make kernels", "make arm64"))
        return 1
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as work:
        here = ask("Debian 12", f"goldens{WHOLE * part.endswith(WHOLE)}", Path(work))
        there = ask(ARM64, part, Path(work))
    wrong = [*complaints(here), *complaints(there)]
    if "answer" in here and there.get("answer", {}).get("ended"):
        record(ARM64, summarize(there) | summarize_arm64(there["answer"], here["answer"]))
        wrong += complain_of_goldens(there["answer"], here["answer"])
    tell([*wrong, f"{PAGE.relative_to(ROOT)}: {len(wrong)} complaints"])
    return int(bool(wrong))


def main(words: list[str]) -> int:
    if words[:1] == ["--arm64"]:
        return ask_arm64(" ".join(words[1:]))
    parts, names = ("simulator", words[1:]) if words[:1] == ["--simulator"] else ("all", words)
    if obstacle := find_obstacle({**PROGRAMS, **(PROGRAMS_OF_ARM64 if ARM64 in names else {})}):
        print(obstacle)
        return 1
    named = PLACES if parts == "all" else SIMULATED
    if unknown := [name for name in names if name not in named]:
        print(f"{unknown[0]!r} is no place{' with --simulator' * (unknown[0] in PLACES)}; these are: {', '.join(named)}")
        return 1
    names, wrong = names or [name for name in named if name != ARM64], 0
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as work:
        for name in names:  # each is recorded, and complained of, at once: who stops a long run keeps what it found
            place = ask(name, parts, Path(work))
            record(name, summarize(place))
            wrong += tell(complaints(place))
    print(f"{PAGE.relative_to(ROOT)}: {len(names)} places asked, {wrong} complaints")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
