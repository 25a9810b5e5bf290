"""What the answers of the kernels come to, as results.json keeps it. Pure: answers in, records and complaints out.

An answer is what inside.py writes: {"facts", "apply", "doctor", "tests", "ended"}; a place is {"name", "without", "answer"} or,
where none came, {"name", "without", "failure"}; `without` names the kernel's modules that were taken away there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from chosen import ARM64, ASSUMPTIONS, BACKENDS, CHOSEN, EXECUTABLE, FEATURES, GOLDENS

Answer = Mapping[str, Any]
Place = Mapping[str, Any]
Record = Mapping[str, Any]
MOST = 400  # characters of a message that are kept
FEW_GOLDENS = 5  # that a complaint names
NAMED = "the error names a missing module"
SETS = "ip_set"
ALIKE = {"messages": GOLDENS, "executable": EXECUTABLE}  # what machines must do alike for each golden, and the test that records it


def keep(results: Mapping[str, Record], name: str, found: Record, order: Iterable[str]) -> dict[str, Record]:
    """The results with what a place was found to be now; what it was not asked this time, and other places, stay as they were."""
    before = results.get(name, {})
    simulator = {**before.get("simulator", {}), **found.get("simulator", {})}
    tried = {one: ends or before.get("tried", {}).get(one, []) for one, ends in found.get("tried", {}).items()}
    kept = {**results, name: {**before, **found, **({"simulator": simulator} if simulator else {}), **({"tried": tried} if tried else {})}}
    return {one: kept[one] for one in order if one in kept}


def summarize(place: Place) -> dict[str, Any]:
    """What is kept of a place: nothing of one without an answer, or whose answer did not come to its end."""
    answer = place.get("answer", {})
    if not answer.get("ended"):
        return {}
    found: dict[str, Any] = {"versions": _versions(answer["facts"])} if "doctor" in answer else {}
    if "doctor" in answer:
        found["backends"] = {backend: summarize_backend(answer, backend) for backend in BACKENDS}
        found["skipped"] = list(dict.fromkeys(_line(one["reason"]) for one in answer["tests"] if one["outcome"] == "skipped"))
    if "apply" in answer:
        found["lacking"] = summarize_failures(answer, place.get("without", ()))
    if simulator := {name: one for name, test in ASSUMPTIONS.items() if (one := summarize_assumption(answer, test))}:
        found["simulator"] = simulator
    return found


def summarize_assumption(answer: Answer, test: str) -> dict[str, Any]:
    """How a test with parameters ended, the worst of its ends, on which kernel, and with how many random connections; empty if it was not run."""
    ran = [one for one in answer["tests"] if one["test"].partition("[")[0] == test]
    ends = {one["outcome"] for one in ran}
    connections = sum(one.get("connections", 0) for one in ran)
    return {
        "outcome": next(end for end in ("failed", "skipped", "passed") if end in ends), "kernel": answer["facts"]["kernel"],
        **({"connections": connections} if connections else {}),
    } if ran else {}  # fmt: skip


def summarize_backend(answer: Answer, backend: str) -> dict[str, str]:
    """What the doctor found of a backend, and how the test of each feature ended there."""
    ends = {one["test"]: one["outcome"] for one in answer["tests"]}
    return {"doctor": examined(answer, backend), **{name: ends[test] for name in FEATURES if (test := CHOSEN[backend].get(name)) in ends}}


def examined(answer: Answer, backend: str) -> str:
    """What the doctor found of a backend: how many features work, and the names of those that do not if most do."""
    checked = answer.get("doctor", {}).get("feature_checks", {}).get(backend)
    if checked is None:
        return "not tried"
    found = [(name, cause) for features in checked["features"].values() for name, cause in features.items()]
    if checked.get("works", False) is None:
        return "not known: the checks did not end in time"
    if not found:
        return f"no: {_line(checked['failure'] or 'nothing could be tried')}"
    lacking = list(dict.fromkeys(name for name, cause in found if not works(cause)))
    count = f"{sum(works(cause) for _, cause in found)} of {len(found)}"
    return f"{count}; not {', '.join(lacking)}" if lacking and 2 * sum(works(cause) for _, cause in found) > len(found) else count


def works(checked: object) -> bool:
    """What the doctor says of one feature: {"works", "cause"}; null is what it said of a working one before."""
    return bool(checked["works"]) if isinstance(checked, dict) else checked is None


def summarize_failures(answer: Answer, without: Iterable[str]) -> dict[str, list[str]]:
    """How apply ended where it could not program, and with which backends, and options where others worked; missing modules must be named."""
    ends: dict[str, dict[str, list[str]]] = {}
    for one in answer["apply"]:
        if one["code"] != 0:
            said = last_words(one["said"])
            message = NAMED if any(module in said for module in without) else _line(said)
            ends.setdefault(f"{one['code']}: {message}", {}).setdefault(one["backend"], []).append(one["options"])
    working = {one["backend"] for one in answer["apply"] if one["code"] == 0}
    return {
        said: [f"{backend} with {', '.join(options)}" if backend in working else backend for backend, options in backends.items()]
        for said, backends in ends.items()
    }


def last_words(said: str) -> str:
    """The last error that was logged, without time and level; the doctor's lines stand below it and are none."""
    lines = [line.split("\t")[-1].strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith("doctor: ")]
    return (errors or lines or ["it printed nothing"])[-1]


def _line(text: str) -> str:
    """A message as one line of bounded length."""
    return " ".join(str(text).removeprefix("Skipped: ").split())[:MOST]


def _versions(facts: Mapping[str, str]) -> list[str]:
    """Of kernel, iptables, nft, ipset and Python."""
    return [facts["kernel"], *(re.sub(r"^\w+ v?|,? .*", "", facts[name]) for name in ("iptables", "nft", "ipset")), facts["python"]]


def summarize_arm64(answer: Answer, here: Answer) -> dict[str, Any]:
    """What is kept of an emulated machine; `here`: the answer of a machine that must do the same for each golden."""
    return {
        "versions": _versions(answer["facts"]), "tried": {name: _ends_of(answer, wanted) for name, wanted in ARM64.items()},
        **{name: {"beside": here["facts"]["kernel"], "differ": len(find_differing(answer, here, test)), "of": len(sums_of(here, test))} for name, test in ALIKE.items()},
    }  # fmt: skip


def _ends_of(answer: Answer, wanted: Iterable[str]) -> list[tuple[str, str, int]]:
    """How these tests ended, why, and how many of them; some are whole files, or have parameters that are not named."""
    ends: dict[tuple[str, str], int] = {}
    for one in answer["tests"]:
        if any(one["test"] == test or one["test"].startswith((f"{test}::", f"{test}[")) for test in wanted):
            end = one["outcome"], _line(one["reason"]) if one["outcome"] == "skipped" else ""
            ends[end] = ends.get(end, 0) + 1
    return [(*end, count) for end, count in ends.items()]


def sums_of(answer: Answer, test: str) -> dict[tuple[str, str], str]:
    """What a test with parameters recorded for each golden, as a sum: what was sent to the kernel, or what it held."""
    ran = [one for one in answer["tests"] if one["test"].partition("[")[0] == test]
    return {(one["test"], golden): found for one in ran for golden, found in json.loads(one.get("sums", "{}")).items()}


def find_differing(one: Answer, other: Answer, test: str) -> list[tuple[str, str]]:
    """Each test and golden for which two machines recorded different sums, or only one recorded some."""
    found, wanted = sums_of(one, test), sums_of(other, test)
    return [key for key in sorted(found.keys() | wanted) if found.get(key) != wanted.get(key)]


def complain_of_goldens(one: Answer, other: Answer) -> list[str]:
    """A line for each test with goldens for which two machines differ, or of which nothing was compared."""
    lines = []
    for wanted in ALIKE.values():
        goldens: dict[str, list[str]] = {}
        for test, golden in find_differing(one, other, wanted):
            goldens.setdefault(test, []).append(golden)
        lines += [f"{test}: not as here for {len(named)} goldens: {', '.join(named[:FEW_GOLDENS])}" for test, named in goldens.items()]
        lines += [] if sums_of(other, wanted) else [f"{wanted}: nothing was compared"]
    return lines


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
    lacking = any("not " in examined(answer, backend) for backend in BACKENDS if backend in answer.get("doctor", {}).get("feature_checks", {}))
    if without and not failed and not lacking and SETS not in without:
        found.append(f"{name}: nothing failed, and doctor misses nothing, without {', '.join(without)}")
    return found
