"""What the answers of the kernels say, as the tables of docs/kernels.md. Pure: answers in, text out.

An answer is what inside.py writes: {"facts", "apply", "doctor", "tests", "ended"}; a place is {"name", "without", "answer"} or,
where none came, {"name", "without", "failure"}; `without` names the kernel's modules that were taken away there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from chosen import ARM64, ASSUMPTIONS, BACKENDS, CHOSEN, FEATURES

Place = Mapping[str, Any]
MOST, FEW = 160, 40  # characters of a message in a cell; of the reason for skipping a test
FEW_GOLDENS = 5  # that a complaint names
NAMED = "the error names a missing module"
HEAD = """# Kernels

`netinit doctor` checks your kernel. `make kernels` (root) wrote this page.

## What works where

- `30 of 30`: the features that `netinit doctor` found working, in both families
- `contract`: a first run among foreign rules, a second that changes nothing, `verify`, reconciling to TPROXY with DNS, and the removal, which restores
  the state before
- `connections`: 32 real ones in both families, DNS included; `TPROXY`: 14 more
- `address sets`: connections to networks in long lists and outside of them
- `user namespaces`: the same commands from the node, in a pod with `hostUsers: false`

Each entry is a Debian release's files on this machine's kernel, or a kernel booted with them; `without` means that its module is removed. What
is not named was not tried, or the [backend](backends.md) does not have it.
"""
LACKS = """
## What is missing is named

The exit code and error of `netinit apply` where it could not program. Without address sets nothing fails: each network gets a rule.
"""
ARM64_PART = "## arm64"
ARM64_HEAD = f"""{ARM64_PART}

`make arm64` (root) boots Debian's kernel and root for arm64 in QEMU, whose processor is emulated, and runs the demo, `apply`, `verify`, a second
`apply` and the removal there, with real connections. The CNI plugin and the launcher of the images are compiled for it as the images compile them.
That sizes and places in structs, calls and constants are those of the headers of Linux, for each architecture with a compiler here, is a test of
`make test`.

"""
SIMULATOR = "## What the simulator takes for granted"
HELD = f"""{SIMULATOR}

`explain`, `audit`, `diff` and `verify` predict what the kernel does with a packet. An experiment or many random connections hold each assumption to a
kernel; `make kernels PLACES='--simulator …'` asks for these alone. The kernels that are not named were not asked.

"""
# Systems of nodes whose kernels are not Debian's: what their makers say of the kernel, and the rig, or why there is none.
NODES = """
## Nodes of other systems

| system | kernel | tried |
| --- | --- | --- |
| AKS (Ubuntu, Azure Linux) | Azure's own builds | no: none of Debian's suites has them |
| GKE Sandbox (gVisor) | gVisor's own network stack, which has no nf_tables and no policy rules | Debian's runsc (20221219): `doctor` says that pods will not work, `apply` fails with code 1 and changes nothing; GKE's is newer |
| OpenShift (RHCOS) | RHEL's 5.14 with backports; SELinux | no: none of Debian's suites has them |
| Flatcar | long-term kernels; no Python | no: there are only images of whole disks |
| Bottlerocket | Amazon's 6.1 and 6.12; SELinux, no shell | no: there are only images of whole disks |
| Talos | long-term kernels; no shell, a root that cannot be written | no: there are only images of whole disks |

On a node that is not here, `netinit doctor` in a pod says what works.
"""
SETS = "ip_set"


def verdict(answer: Mapping[str, Any], backend: str, feature: str) -> str:
    """A cell: how the feature's test ended."""
    wanted = CHOSEN[backend].get(feature)
    outcomes = [one["outcome"] for one in answer["tests"] if one["test"] == wanted]
    return outcomes[0].replace("failed", "**failed**") if outcomes else "–"


def examined(answer: Mapping[str, Any], backend: str) -> str:
    """What the doctor found of a backend: how many features work, and the names of those that do not if most do."""
    checked = answer.get("doctor", {}).get("feature_checks", {}).get(backend)
    if checked is None:
        return "not tried"
    found = [(name, cause) for features in checked["features"].values() for name, cause in features.items()]
    if checked.get("works", False) is None:
        return "not known: the checks did not end in time"
    if not found:
        return f"no: {shorten(checked['failure'] or 'nothing could be tried')}"
    lacking = list(dict.fromkeys(name for name, cause in found if not works(cause)))
    count = f"{sum(works(cause) for _, cause in found)} of {len(found)}"
    return f"{count}; not {', '.join(lacking)}" if lacking and 2 * sum(works(cause) for _, cause in found) > len(found) else count


def works(checked: object) -> bool:
    """What the doctor says of one feature: {"works", "cause"}; null is what it said of a working one before."""
    return bool(checked["works"]) if isinstance(checked, dict) else checked is None


def shorten(text: str, most: int = MOST) -> str:
    """A message that fits into a cell: one line, without what would end the cell or become markup."""
    line = " ".join(str(text).removeprefix("Skipped: ").split())
    line = line if len(line) <= most else f"{line[:most]}…"
    return line.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def last_words(said: str) -> str:
    """The last error that was logged, without time and level; the doctor's lines stand below it and are none."""
    lines = [line.split("\t")[-1].strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("doctor: ")]
    return (errors or lines or ["it printed nothing"])[-1]


def rows_of(place: Place) -> Iterable[tuple[str, ...]]:
    """A row for the backends of a place with equal answers."""
    if "failure" in place:
        yield (place["name"], "none", f"no answer: {shorten(place['failure'])}", *["–"] * len(FEATURES))
        return
    equal: dict[tuple[str, ...], list[str]] = {}
    for backend in BACKENDS:
        cells = [verdict(place["answer"], backend, feature) for feature in FEATURES]
        equal.setdefault((examined(place["answer"], backend), *cells), []).append(backend)
    for cells, backends in equal.items():
        yield (place["name"], ", ".join(backends), *cells)


def skips_of(place: Place) -> Iterable[str]:
    """Why tests were skipped there."""
    for one in place.get("answer", {}).get("tests", ()):
        if one["outcome"] == "skipped":
            yield shorten(one["reason"], FEW)


def failures_of(place: Place) -> Iterable[tuple[str, ...]]:
    """A row for the backends that could not program and ended with the same message; where modules are missing, it must name one."""
    without = place.get("without", ())
    ends: dict[str, list[str]] = {}
    for one in place.get("answer", {}).get("apply", ()):
        if one["code"] != 0:
            said = last_words(one["said"])
            message = NAMED if any(module in said for module in without) else shorten(said)
            backends = ends.setdefault(f"{one['code']}: {message}", [])
            backends += [one["backend"]] * (one["backend"] not in backends)
    for said, backends in ends.items():
        yield (place["name"], ", ".join(backends), said)


def versions_of(place: Place) -> Iterable[tuple[str, ...]]:
    if "answer" in place:
        facts = place["answer"]["facts"]
        iptables, nft, ipset = (re.sub(r"^\w+ v?|,? .*", "", facts[name]) for name in ("iptables", "nft", "ipset"))
        yield (place["name"], facts["kernel"], iptables, nft, ipset, facts["python"])


def summarize_simulator(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer says of the simulator's assumptions: how the tests of each ended, and how many random connections there were."""
    held = {}
    for name, test in ASSUMPTIONS.items():
        ends = {one["outcome"] for one in answer["tests"] if one["test"].partition("[")[0] == test}
        worst = next((end for end in ("failed", "skipped", "passed") if end in ends), "")
        if worst:
            held[name] = worst
    connections = sum(one.get("connections", 0) for one in answer["tests"])
    return {"kernel": answer["facts"]["kernel"], "held": held, "connections": connections} if answer.get("ended") else {}


def render_simulator(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page's part about the simulator, and about systems that were not tried; `found`: what was summarized, by place."""
    rows = []
    for name in ASSUMPTIONS:
        ended: dict[str, list[str]] = {}
        for one in found.values():
            kernels = ended.setdefault(one["held"].get(name, "not tried"), [])
            kernels += [one["kernel"]] * (one["kernel"] not in kernels)
        cells = [", ".join(ended.pop("passed", [])) or "none", "; ".join(f"**{end}**: {', '.join(kernels)}" for end, kernels in ended.items())]
        rows.append((name, *cells))
    counts = "".join(f"- {one['kernel']} ({place}): {one['connections']} random connections\n" for place, one in found.items())
    return f"{HELD}{write_table(('assumption', 'held on', 'not held on'), rows)}\n{counts}{NODES}"


def replace_simulator(page: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """The page with this part written anew, which is its last."""
    return f"{page.partition(SIMULATOR)[0].rstrip()}\n\n{render_simulator(found)}"


def sums_of(answer: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    """What was sent to the kernel, as a sum, for each test and golden."""
    return {(one["test"], golden): found for one in answer["tests"] for golden, found in json.loads(one.get("sums", "{}")).items()}


def find_differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each test and golden for which two machines sent different bytes, or only one sent some."""
    found, wanted = sums_of(one), sums_of(other)
    return [key for key in sorted(found.keys() | wanted) if found.get(key) != wanted.get(key)]


def complain_of_messages(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """A line for each test with goldens for which two machines sent different bytes, or that says that nothing was compared."""
    goldens: dict[str, list[str]] = {}
    for test, golden in find_differing(one, other):
        goldens.setdefault(test, []).append(golden)
    lines = [f"{test}: other messages than here for {len(named)} goldens: {', '.join(named[:FEW_GOLDENS])}" for test, named in goldens.items()]
    return lines if sums_of(other) else ["no messages were compared"]


def _ends_of(answer: Mapping[str, Any], wanted: Iterable[str]) -> str:
    """How these tests ended, of which some are whole files, or have parameters that are not named."""
    ends: dict[str, int] = {}
    for one in answer["tests"]:
        if any(one["test"] == test or one["test"].startswith((f"{test}::", f"{test}[")) for test in wanted):
            reason = f" ({shorten(one['reason'])})" if one["outcome"] == "skipped" else ""
            end = one["outcome"].replace("failed", "**failed**") + reason
            ends[end] = ends.get(end, 0) + 1
    return ", ".join(f"{count} {end}" for end, count in ends.items()) or "not tried"


def render_arm64(answer: Mapping[str, Any], here: Mapping[str, Any]) -> str:
    """The page's part about an emulated machine; `here`: the answer of a machine that must send the same messages."""
    facts = answer["facts"]
    rows = [(name, _ends_of(answer, wanted)) for name, wanted in ARM64.items()]
    wrong, count = find_differing(answer, here), len(sums_of(here))
    same = f"{count} of {count} equal" if not wrong else f"**{len(wrong)} of {count} differ**"
    rows.append((f"what is sent to the kernel for each golden and backend, beside amd64 ({here['facts']['kernel']})", same))
    versions = re.sub(r"v(?=\d)|,? [(p].*?(?=$|\n)", "", "\n".join(facts[name] for name in ("iptables", "nft", "ipset"))).replace("\n", ", ")
    return f"{ARM64_HEAD}{facts['kernel']}, {versions}, Python {facts['python']}:\n\n{write_table(('tried', 'tests'), rows)}"


def part_of_arm64(page: str) -> str:
    """The page's part about arm64; empty without one."""
    return ARM64_PART + page.partition(ARM64_PART)[2].partition(SIMULATOR)[0] if ARM64_PART in page else ""


def replace_arm64(page: str, part: str) -> str:
    """The page with this part written anew, which stands before that of the simulator."""
    before, simulator, after = page.partition(SIMULATOR)
    before = before.partition(ARM64_PART)[0].rstrip()
    return "\n\n".join(filter(None, (before, part.rstrip(), simulator + after))).rstrip() + "\n"


def merge(rows: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """One row for the places whose other cells are equal, in the order of the first."""
    places: dict[tuple[str, ...], list[str]] = {}
    for place, *cells in rows:
        places.setdefault(tuple(cells), []).append(place)
    return [(", ".join(names), *cells) for cells, names in places.items()]


def complaints(place: Place) -> list[str]:
    """What is wrong with the place, a line each: tests that failed, an end too early, missing modules that no error names."""
    if "failure" in place:
        return [f"{place['name']}: {place['failure']}"]
    answer, name, without = place["answer"], place["name"], place.get("without", ())
    found = [f"{name}: {one['test']}: {one['reason']}" for one in answer["tests"] if one["outcome"] == "failed"]
    if not answer.get("ended"):
        found.append(f"{name}: it did not come to its end: {answer.get('said', '')}")
    failed = [one for one in answer.get("apply", ()) if one["code"] != 0]
    for one in failed if without else ():
        said = last_words(one["said"])
        if not any(module in said for module in without):
            found.append(f"{name}: {one['backend']}, {one['options']}: the error names none of {', '.join(without)}: {said}")
    if without and not failed and SETS not in without:
        found.append(f"{name}: nothing failed without {', '.join(without)}")
    return found


def write_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = list(head)
    lines = [names, ["---"] * len(names), *map(list, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _summarize(place: str, backends: str, doctor: str, *cells: str) -> str:
    """An item for places and backends with equal answers; features without a test there are left out."""
    ended: dict[str, list[str]] = {}
    for feature, cell in zip(FEATURES, cells, strict=True):
        if cell != "–":
            ended.setdefault(cell, []).append(feature)
    return "; ".join((f"- {place} ({backends}): {doctor}", *(f"{cell}: {', '.join(features)}" for cell, features in ended.items())))


def render(places: Iterable[Place]) -> str:
    """The page."""
    kept = list(places)
    works = "".join(f"{_summarize(*row)}\n" for row in merge(row for place in kept for row in rows_of(place)))
    skips = "".join(f"\nSkipped: {reason}\n" for reason in dict.fromkeys(reason for place in kept for reason in skips_of(place)))
    lacking = "".join(f"- {place} ({backends}): {said}\n" for place, backends, said in merge(row for place in kept for row in failures_of(place)))
    versions = write_table(("place", "kernel", "iptables", "nft", "ipset", "Python"), merge(row for place in kept for row in versions_of(place)))
    return f"{HEAD}\n{works}{skips}{LACKS}\n{lacking}\n## Versions\n\n{versions}"
