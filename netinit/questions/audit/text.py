"""The text of an audit: what to act on first, and once for all pods that it is about; what is by design in a line each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from netinit.base.sanitize import Lines, lines
from netinit.base.tables import count
from netinit.questions.audit import kinds
from netinit.questions.findings import STDIN
from netinit.questions.several_pods import list_some, name_pods

Row = dict[str, Any]
Collected = tuple[Row, list[str], list[str]]  # a row, the names of all pods that have it, and where it is in their files
CAUSES = {  # an intent -> the cause in a sentence
    kinds.FOREIGN_RULES: "because of foreign rules", kinds.NOT_KNOWN: "that cannot be evaluated",
    kinds.CONFIGURATION: "because of the configuration", kinds.DESIGN: "by design",
}  # fmt: skip
SIGNS = {"foreign": "✘", "unknown": "?", "configuration": "!", "design": "·", "covered": "✔"}
UNANSWERED_SIGN = "!"
UNANSWERED = tuple([kind.name for kind in kinds.UNANSWERED_BY.values()])
RESULTS = {"proved": "✔", "refuted": "✘", "unknown": "?"}
ALL = "--all says why"
_ORDER = {kind.name: (kind.intent == kinds.COVERED, number) for number, kind in enumerate(kinds.KINDS)}


def summarise(found: Mapping[str, Any]) -> str:
    """The first line of a pod's report: how many kinds of traffic bypass the proxy, by cause."""
    rows = [row for row in found["traffic"] if row["by"] in CAUSES]
    counts = [f"{number} {CAUSES[word]}" for word in CAUSES if (number := sum(row["by"] == word for row in rows))]
    kinds_of = "1 kind of traffic bypasses" if len(rows) == 1 else f"{len(rows)} kinds of traffic bypass"
    return f"{kinds_of} the proxy: {', '.join(counts)}" if rows else "all traffic goes through the proxy"


def render_text(pods: Sequence[Mapping[str, Any]], *, everything: bool = False) -> Lines:
    """Format the bypasses and assertions of pods. What is by design has a line each, unless `everything`."""
    if len(pods) == 1:
        return lines(_describe_one(pods[0], everything=everything))
    return lines(_describe_several(pods, everything=everything))


def _describe_one(pod: Mapping[str, Any], *, everything: bool) -> Iterator[str]:
    yield f"{pod['name']}: {summarise(pod)}"
    for row in pod["traffic"]:
        if not _is_brief(row, everything=everything):
            yield from _describe_row(row, places=_places(pod, row))
    yield from _describe_briefly([row for row in pod["traffic"] if _is_brief(row, everything=everything)])
    yield from [line for ruling in pod["assertions"] for line in _describe_ruling(ruling)]


def _describe_several(pods: Sequence[Mapping[str, Any]], *, everything: bool) -> Iterator[str]:
    """Say each thing once, with the pods that it is about, the most dangerous first; a summary comes before all."""
    yield from summarise_all(pods)
    rulings, rows = collect_rulings(pods), collect_rows(pods)
    for ruling, names, _ in rulings:
        if ruling["result"] != "proved":
            yield from _describe_ruling(ruling, names)
    for row, names, places in rows:
        if not _is_brief(row, everything=everything):
            yield from _describe_row(row, names, places)
    brief: dict[tuple[str, str], dict[str, None]] = {}
    for row, names, _ in rows:
        if _is_brief(row, everything=everything):
            brief.setdefault((heading(row), row["kind"]), {}).update(dict.fromkeys(names))
    yield from [f"· {title} (design, {kind}): in {count(len(names), 'pod')}" for (title, kind), names in brief.items()]
    yield from [f"    {ALL}"] if brief else []
    for ruling, names, _ in rulings:
        if ruling["result"] == "proved":
            yield from _describe_ruling(ruling, names)


def collect_rows(pods: Sequence[Mapping[str, Any]]) -> list[Collected]:
    """The traffic of all pods, each row once, the most dangerous first."""
    return sorted(_collect((pod, row) for pod in pods for row in pod["traffic"]), key=lambda one: _ORDER[one[0]["kind"]])


def collect_rulings(pods: Sequence[Mapping[str, Any]]) -> list[Collected]:
    """The rulings on the assertions of all pods, each once."""
    return _collect((pod, ruling) for pod in pods for ruling in pod["assertions"])


def _collect(found: Iterator[tuple[Mapping[str, Any], Row]]) -> list[Collected]:
    """Each row once, with the names of all pods that have it, and where it is in their files."""
    known: dict[str, Collected] = {}
    for pod, row in found:
        _, names, places = known.setdefault(repr(_as_shown(row)), (row, [], []))
        names.append(pod["name"])
        places += _places(pod, row)
    return list(known.values())


def _as_shown(row: Row) -> Row:
    """The row without its place in a file and the exact number of its packets, which only JSON has."""
    return {key: value for key, value in row.items() if key not in {"line", "column", "packets", "sets"}}


def _places(pod: Mapping[str, Any], row: Row) -> list[str]:
    """Where a row's cause is in the pod's file, if that is known."""
    file, line = pod.get("file"), row.get("line")
    return [f"{STDIN if file == '-' else file}:{line}:{row['column']}"] if file and line else []


def summarise_all(pods: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """How many pods have traffic that bypasses the proxy, by cause; a line each."""
    yield f"{count(len(pods), 'pod')}:"
    for word, cause in CAUSES.items():
        if (number := sum(any(row["by"] == word for row in pod["traffic"]) for pod in pods)) and word != kinds.DESIGN:
            yield f"  {SIGNS[word]} in {number}, traffic bypasses the proxy {cause}"
    refuted = sum(any(one["result"] != "proved" for one in pod["assertions"]) for pod in pods)
    yield from [f"  ✘ in {refuted}, an assertion is not proved"] if refuted else []
    rest = sum(all(row["by"] in {kinds.DESIGN, kinds.COVERED} for row in pod["traffic"]) for pod in pods)
    yield from [f"  ✔ in {rest}, nothing bypasses it but by design"] if rest else []


def merge_equal(pods: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join pods with equal results to one, which has the names of all."""
    return [{**pod, "name": name_pods(names)} for pod, names in group_equal(pods)]


def group_equal(pods: Sequence[Mapping[str, Any]]) -> list[tuple[dict[str, Any], list[str]]]:
    """The first of pods with equal results, with the names of all of them, which its warnings leave out."""
    known: dict[str, tuple[Mapping[str, Any], list[str]]] = {}
    for pod in pods:
        key = repr([[_as_shown(row) for row in pod["traffic"]], pod["assertions"], pod["options"], _without_name(pod)])
        known.setdefault(key, (pod, []))[1].append(pod["name"])
    return [
        ({**pod, "warnings": _without_name(pod) if len(names) > 1 else pod["warnings"]}, names) for pod, names in known.values()
    ]


def _without_name(pod: Mapping[str, Any]) -> list[str]:
    return [text.removeprefix(f"{pod['name']}: ") for text in pod["warnings"]]


def _is_brief(row: Row, *, everything: bool) -> bool:
    return bool(row["by"] == kinds.DESIGN and not everything)


def _describe_briefly(rows: Sequence[Row]) -> list[str]:
    """A line for each kind of traffic, and how to see more."""
    found = dict.fromkeys([f"· {heading(row)} ({row['by']}, {row['kind']})" for row in rows])
    return [*found, f"    {ALL}"] if found else []


def heading(row: dict[str, Any]) -> str:
    """The cause, the kind and, if captured, the proxy's port."""
    return f"{row['title']} {row['port']}" if row["port"] else str(row["title"])


def _describe_row(row: Row, names: Sequence[str] = (), places: Sequence[str] = ()) -> Iterator[str]:
    by = "" if row["by"] == "covered" else f" ({row['by']}, {row['kind']})"
    yield f"{UNANSWERED_SIGN if row['kind'] in UNANSWERED else SIGNS[row['by']]} {heading(row)}{by}"
    yield from [f"    in {name_pods(names)}"] if names else []
    yield from [f"    {who}" for who in row["who"]]
    yield from [f"    because: {reason}" for reason in row["because"]]
    if row["closes"]:
        yield f"    to close it: {row['closes']}"
        yield f"    example: {row['example']}"
        if places:
            yield f"    at: {list_some(places)}"


def _describe_ruling(ruling: Row, names: Sequence[str] = ()) -> Iterator[str]:
    name = f"{ruling['name']}: " if ruling["name"] else ""
    yield f"{RESULTS[ruling['result']]} {ruling['result']}: {name}{ruling['assertion']}"
    yield from [f"    in {name_pods(names)}"] if names else []
    if ruling["result"] == "proved" and ruling["about"] == "0":
        yield "    no packet is concerned: this pod has none of these"
    yield from [f"    unless {condition}" for condition in ruling["unless"]]
    shown = ruling["counterexample"]
    if shown:
        yield f"    counterexample: {shown['packet']}"
        yield f"    {shown['sentence']}"
        yield from [f"      {step}" for step in shown["path"]]
    yield from [f"    what would change it: {cure['change']}: {cure['verdict']}" for cure in ruling["cures"]]
