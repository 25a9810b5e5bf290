"""What the answers of the kernels say, as the tables of docs/kernels.md. Pure: answers in, text out.

An answer is what inside.py writes: {"facts", "doctor", "apply", "tests"}; a place is {"name", "answer"} or, where none
came, {"name", "failure"}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chosen import BACKENDS, CHOSEN, FEATURES

Place = Mapping[str, Any]
MOST = 400  # characters of a message in a cell
HEAD = """# Kernels

`make kernels` (root) writes this page: it boots Debian's kernels in virtual machines, enters Debian's roots on the kernel of
the machine it runs on, and asks there what works. [Backends](backends.md) says what each backend needs.

## What works where

A cell counts the tests that passed of those that ran. A dash: no test of this feature ran there, or time ran out before.
`doctor` counts the features that `netinit doctor` tried in the kernel and found working, in both families. Kernels run with KVM
where it works; else the processor is emulated, its clock counts instructions, and fewer tests run.
"""
LACKS = """
## What is missing is named

How `netinit apply` ended with each backend where it could not program, with the error.
"""


def verdict(answer: Mapping[str, Any], backend: str, feature: str) -> str:
    """A cell: `2 of 2`, the reason for which all were skipped, or what failed."""
    wanted = set(CHOSEN[backend].get(feature, ()))
    ran = [one for one in answer["tests"] if one["test"] in wanted]
    counted = [one for one in ran if one["outcome"] != "skipped"]
    if not ran:
        return "–"
    if not counted:
        return f"skipped: {shorten(ran[0]['reason'])}"
    passed = sum(one["outcome"] == "passed" for one in counted)
    return f"{passed} of {len(counted)}" if passed == len(counted) else f"**{passed} of {len(counted)}**"


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


def shorten(text: str) -> str:
    """A message that fits into a cell: one line, without what would end the cell or become markup."""
    line = " ".join(str(text).removeprefix("Skipped: ").split())
    line = line if len(line) <= MOST else f"{line[:MOST]}…"
    return line.replace("|", "\\|").replace("`", "'").replace("<", "&lt;").replace("*", "\\*").replace("[", "\\[")


def last_words(said: str) -> str:
    """The last error that was logged, without time and level; the doctor's lines stand below it and are none."""
    lines = [line.split("\t")[-1].strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("doctor: ")]
    return (errors or lines or ["it printed nothing"])[-1]


def rows_of(place: Place) -> Iterable[tuple[str, ...]]:
    if "failure" in place:
        yield (place["name"], "none", f"no answer: {shorten(place['failure'])}", *["–"] * len(FEATURES))
        return
    for backend in BACKENDS:
        cells = [verdict(place["answer"], backend, feature) for feature in FEATURES]
        yield (place["name"], backend, examined(place["answer"], backend), *cells)


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


def failed_tests(places: Iterable[Place]) -> list[tuple[str, str, str]]:
    """(place, test, reason) of each test that failed, for the person who runs `make kernels`."""
    return [
        (place["name"], one["test"], one["reason"])
        for place in places if "answer" in place
        for one in place["answer"]["tests"] if one["outcome"] == "failed"
    ]  # fmt: skip


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
