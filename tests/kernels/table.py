"""docs/kernels.md, from results.json beside this file. Pure: records in, text out; summaries.py says what a record is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chosen import ASSUMPTIONS, FEATURES
from systems import LEGACY_TABLES, SYSTEMS, System, name_rig

Record = Mapping[str, Any]
Results = Mapping[str, Record]
MOST, FEW = 160, 40  # characters of a message in a cell; of the reason for skipping a test
COMPARED = {"messages": "what is sent to the kernel", "executable": "what the kernel holds after the executable's `apply`"}
HEAD = """# Kernels

`netinit doctor` checks your kernel. `make kernels` (root) wrote this page.

## What works where

- `34 of 34`: how many of the features that `netinit doctor` tried work, in both families
- `contract`: a first run among foreign rules, a second that changes nothing, `verify`, reconciling to TPROXY with DNS, and the removal, which restores
  the state before
- `connections`: 32 real ones in both families, DNS included; `TPROXY`: 14 more
- `address sets`: connections to networks in long lists and outside of them
- `user namespaces`: the same commands from the node, in a pod with `hostUsers: false`

Each entry is a Debian release's files on this machine's kernel, or a kernel booted with them; `without` means that its module is removed,
`with the modules of` that those are which [that system](#nodes-of-other-systems) leaves out. What is not named was not tried, or the
[backend](backends.md) does not have it.
"""
LACKS = """
## What is missing is named

The exit code and error of `netinit apply` where it could not program. Without address sets nothing fails: each network gets a rule.
"""
ARM64_HEAD = """
## arm64

`make arm64` (root) boots Debian's kernel and root for arm64 in QEMU, whose processor is emulated, and runs the demo, `apply`, `verify`, a second
`apply` and the removal there, with real connections. The CNI plugin and the launcher of the images are compiled for it as the images compile them; the
executable of the releases and of the init container's image is linked by that image's commands.
That sizes and places in structs, calls and constants are those of the headers of Linux, for each architecture with a compiler here, is a test of
`make test`.

"""
SIMULATOR = """
## What the simulator takes for granted

`explain`, `audit`, `diff` and `verify` predict what the kernel does with a packet. An experiment or many random connections hold each assumption to a
kernel; `make kernels PLACES='--simulator …'` asks for these alone. The kernels that are not named were not asked.

"""
NODES = """
## Nodes of other systems

What a system's kernel leaves out of the modules that rules need, as its configuration says, and whether `make kernels` boots a kernel of Debian
without those modules.

"""
AFTER_NODES = """
On a node that is not here, `netinit doctor` in a pod says what works.
"""



def shorten(text: str, most: int = MOST) -> str:
    """A message that fits into a cell: one line, without what would end the cell or become markup."""
    line = " ".join(str(text).split())
    line = line if len(line) <= most else f"{line[:most]}…"
    return line.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def mark(outcome: str) -> str:
    """How a test ended, so that a failure is seen."""
    return outcome.replace("failed", "**failed**")


def write_backends(record: Record) -> Iterable[tuple[str, str]]:
    """The backends of a place with equal answers, and these in words; features without a test there are left out."""
    equal: dict[str, list[str]] = {}
    for backend, found in record.get("backends", {}).items():
        ended: dict[str, list[str]] = {}
        for feature in FEATURES:
            if feature in found:
                ended.setdefault(mark(found[feature]), []).append(feature)
        words = "; ".join((shorten(found["doctor"]), *(f"{end}: {', '.join(features)}" for end, features in ended.items())))
        equal.setdefault(words, []).append(backend)
    for words, backends in equal.items():
        yield ", ".join(backends), words


def write_failures(record: Record) -> Iterable[tuple[str, str]]:
    """The backends that could not program and ended with the same message, and this."""
    for said, backends in record.get("lacking", {}).items():
        yield ", ".join(backends), shorten(said)


def merge(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """One row for the places whose other cells are equal, in the order of the first."""
    places: dict[tuple[str, ...], list[str]] = {}
    for place, *cells in rows:
        places.setdefault(tuple(cells), []).append(place)
    return [(", ".join(names), *cells) for cells, names in places.items()]


def write_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table of Markdown."""
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def render_simulator(results: Results) -> str:
    """The page's part about the simulator."""
    asked = {name: record["simulator"] for name, record in results.items() if "simulator" in record}
    rows = []
    for name in ASSUMPTIONS:
        ended: dict[str, list[str]] = {}
        for found in asked.values():
            one = found.get(name) or {"outcome": "not tried", "kernel": next(iter(found.values()))["kernel"]}
            kernels = ended.setdefault(one["outcome"], [])
            kernels += [one["kernel"]] * (one["kernel"] not in kernels)
        cells = [", ".join(ended.pop("passed", [])) or "none", "; ".join(f"**{end}**: {', '.join(kernels)}" for end, kernels in ended.items())]
        rows.append((name, *cells))
    counted: dict[int, list[str]] = {}
    for place, found in asked.items():
        for one in found.values():
            if "connections" in one:
                counted.setdefault(one["connections"], []).append(f"{one['kernel']} ({place})")
    counts = "".join(f"- {count} random connections: {', '.join(kernels)}\n" for count, kernels in counted.items())
    return f"{SIMULATOR}{write_table(('assumption', 'held on', 'not held on'), rows)}\n{counts}"


def render_arm64(record: Record) -> str:
    """The page's part about an emulated machine; empty where there was none."""
    if "tried" not in record:
        return ""
    rows = [
        *((name, _write_ends(ends)) for name, ends in record["tried"].items()),
        *((f"{what}, for each golden and backend, beside amd64 ({record[key]['beside']})", _write_equal(record[key])) for key, what in COMPARED.items() if key in record),
    ]
    kernel, iptables, nft, ipset, python = record["versions"]
    versions = f"{kernel}, iptables {iptables}, nftables {nft}, ipset {ipset}, Python {python}:"
    return f"{ARM64_HEAD}{versions}\n\n{write_table(('tried', 'tests'), rows)}"


def _write_equal(compared: Mapping[str, Any]) -> str:
    return f"{compared['of']} of {compared['of']} equal" if not compared["differ"] else f"**{compared['differ']} of {compared['of']} differ**"


def _write_ends(ends: Iterable[tuple[str, str, int]]) -> str:
    return ", ".join(f"{count} {mark(end)}" + (f" ({shorten(reason)})" if reason else "") for end, reason, count in ends) or "not tried"


def render_systems(results: Results) -> str:
    """The page's part about systems of nodes."""
    rows = [(one.name, one.kernel, _write_lacking(one), one.tried or _write_rig(one, results)) for one in SYSTEMS]
    return f"{NODES}{write_table(('system', 'kernel', 'leaves out', 'tried'), rows)}{AFTER_NODES}"


def _write_lacking(system: System) -> str:
    if system.lacks is None:
        return "not known"
    return "the tables of iptables-legacy" if system.lacks == LEGACY_TABLES else ", ".join(f"`{name}`" for name in system.lacks) or "nothing"


def _write_rig(system: System, results: Results) -> str:
    return f'"{name_rig(system)}" above' if name_rig(system) in results else "not yet"


def render(results: Results, arm64: str) -> str:
    """The page; `arm64`: the name of the emulated machine's record."""
    places = {name: record for name, record in results.items() if name != arm64}
    works = "".join(
        f"- {place} ({backends}): {words}\n" for place, backends, words in merge((name, *row) for name, record in places.items() for row in write_backends(record))
    )
    reasons = dict.fromkeys(shorten(reason, FEW) for record in places.values() for reason in record.get("skipped", ()))
    skips = "".join(f"\nSkipped: {reason}\n" for reason in reasons)
    lacking = "".join(
        f"- {place} ({backends}): {said}\n" for place, backends, said in merge((name, *row) for name, record in places.items() for row in write_failures(record))
    )
    rows = merge((name, *record["versions"]) for name, record in places.items() if "versions" in record)
    versions = write_table(("system", "kernel", "iptables", "nft", "ipset", "Python"), rows)
    return f"{HEAD}\n{works}{skips}{LACKS}\n{lacking}\n## Versions\n\n{versions}{render_arm64(results.get(arm64, {}))}{render_simulator(results)}{render_systems(results)}"
