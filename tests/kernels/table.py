"""What the answers of the kernels say, as the tables of docs/kernels.md. Pure: answers in, text out.

An answer is what inside.py writes: {"facts", "apply", "doctor", "tests", "ended"}; a place is {"name", "without", "answer"} or,
where none came, {"name", "without", "failure"}; `without` names the kernel's modules that were taken away there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chosen import BACKENDS, CHOSEN, FEATURES

Place = Mapping[str, Any]
MOST, FEW = 200, 40  # characters of a message in a cell; where the whole one stands elsewhere on the page
HEAD = """# Kernels

`make kernels` (root) writes this page: it boots Debian's kernels in virtual machines, enters Debian's root file systems on the kernel of
the machine it runs on, and tests there what works. [Backends](backends.md) says what each backend needs.

## What works where

Each feature is one test, the same everywhere:

- `contract`: among foreign rules, in both families: a first run, a second that changes nothing, `verify`, reconciling to
  TPROXY with DNS, and the removal, which restores the state before.
- `connections`: 32 real connections in both families: captured in and out, from the proxy's user and group, to excluded ports,
  from the pod to itself, over the loopback device, DNS over UDP and TCP to listed servers and others.
- `TPROXY`: 14 more, where the proxy sees both addresses.
- `address sets`: real connections to networks in long lists and outside of them, with ipset or nft's own sets.
- `user namespaces`: apply, verify, a second run and remove from the node, in a pod with `hostUsers: false`.

A dash: the backend does not have the feature, or time ran out. `doctor` counts the features that `netinit doctor` found working, in
both families. Kernels run with KVM where it works, else on an emulated processor whose clock counts instructions.
"""
LACKS = """
## What is missing is named

How `netinit apply` failed where it could not program. On a kernel from which modules were removed, the error must name one of them, or
`make kernels` fails. Without address sets nothing fails: each network gets a rule.
"""
SETS = "ip_set"


def verdict(answer: Mapping[str, Any], backend: str, feature: str) -> str:
    """A cell: how the feature's test ended, with the reason where it was skipped."""
    wanted = CHOSEN[backend].get(feature)
    for one in answer["tests"]:
        if one["test"] == wanted:
            return {"passed": "passed", "failed": "**failed**"}.get(one["outcome"]) or f"skipped: {shorten(one['reason'], FEW)}"
    return "–"


def examined(answer: Mapping[str, Any], backend: str) -> str:
    """What the doctor found of a backend: how many features work, and the names of those that do not."""
    checked = answer.get("doctor", {}).get("feature_checks", {}).get(backend)
    if checked is None:
        return "not tried"
    found = [(name, cause) for features in checked["features"].values() for name, cause in features.items()]
    if not found:
        return f"no: {shorten(checked['failure'] or 'nothing could be tried')}"
    lacking = list(dict.fromkeys(name for name, cause in found if not works(cause)))
    count = f"{sum(works(cause) for _, cause in found)} of {len(found)}"
    return f"{count}; not {', '.join(lacking)}" if lacking else count


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
    """A row for the backends of a place that answered alike."""
    if "failure" in place:
        yield (place["name"], "none", f"no answer: {shorten(place['failure'])}", *["–"] * len(FEATURES))
        return
    alike: dict[tuple[str, ...], list[str]] = {}
    for backend in BACKENDS:
        cells = [verdict(place["answer"], backend, feature) for feature in FEATURES]
        alike.setdefault((examined(place["answer"], backend), *cells), []).append(backend)
    for cells, backends in alike.items():
        yield (place["name"], ", ".join(backends), *cells)


def failures_of(place: Place) -> Iterable[tuple[str, ...]]:
    """A row for each backend that could not program; one for all options where they ended alike."""
    ends: dict[tuple[str, str], list[str]] = {}
    for one in place.get("answer", {}).get("apply", ()):
        if one["code"] != 0:
            ends.setdefault((one["backend"], f"{one['code']}: {shorten(last_words(one['said']))}"), []).append(one["options"])
    for (backend, said), options in ends.items():
        yield (place["name"], backend, ", ".join(options), said)


def versions_of(place: Place) -> Iterable[tuple[str, ...]]:
    if "answer" in place:
        facts = place["answer"]["facts"]
        yield (place["name"], *(facts[name] for name in ("kernel", "iptables", "nft", "ipset", "python")))


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


def render(places: Iterable[Place]) -> str:
    """The page."""
    kept = list(places)
    works = write_table(("place", "backend", "doctor", *FEATURES), [row for place in kept for row in rows_of(place)])
    lacking = write_table(("place", "backend", "options", "exit code, error"), [row for place in kept for row in failures_of(place)])
    versions = write_table(("place", "kernel", "iptables", "nft", "ipset", "Python"), [row for place in kept for row in versions_of(place)])
    return f"{HEAD}\n{works}{LACKS}\n{lacking}\n## Versions\n\n{versions}"
