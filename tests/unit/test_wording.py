"""The words that readers know: each private wording that a reader stumbled over, with the one to write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("netinit", "docs", "examples", "charts")
FILES = [path for place in PLACES for path in sorted((ROOT / place).rglob("*")) if path.suffix in (".py", ".md", ".json", ".yaml", ".tsv", ".txt", ".html")]
FILES += [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "action.yml", "mkdocs.yml")]
INSTEAD = {
    r"capture it: netinit apply": "add the init container",
    r"nothing here, for the proxy takes": "not capturable: the proxy handles TCP only",
    r"all but TCP": "non-TCP traffic",
    r"\(a part of it\)": "(subset)",
    r"\bby [ug]id any but": "uid other than",
    r"\bany but \d": "other than",
    r"itself by (endpoint|loopback)": "its own pod IP; itself over loopback",
    r"nobody may send this": "dropped: no valid sender",
    r"nat would redirect it": "not redirected by nat, so rejected",
    r"every other (in|out)bound connection goes": "all outbound TCP is captured; no exclusion matches",
    r"\}? is taken\"": "OK: pods on this node will use",
    r"when the pod is made|(is|are) made again": "created, recreated",
    r"options that a CNI plugin makes of": "assuming what a CNI plugin derives from",
    r"the system refuses:": "cannot read or write FILE:",
    r": is missing; give (it|one)\b": "missing argument: NAME",
    r"reads no network namespace; leave": "lint ignores it; remove it",
    r"leave it out": "remove it",
    r"sends the traffic of a service mesh pod to its proxy": "redirects a pod's traffic to its sidecar",
    r"takes? the place of Istio's": "a drop-in replacement for istio-init",
    r"What templates may use": "Template functions and fields",
    r"^## Look$|^  - (Find out|Inside):$": "Inspect, Troubleshoot, Internals",
    r"made of its annotations": "derived from its annotations",
    r"(?i)\b(writ\w*|creat\w*|made|make)\b[\w ]* anew\b": "rewrite, recreate",
    r"\bthat nobody can \w+:": "that cannot be sent",
    r"\): with (everything|nothing)\b": "fully trusted, not trusted",
}


@pytest.mark.parametrize("wording", INSTEAD)
def test_what_readers_see_has_their_words(wording):
    found = [
        f"{path.relative_to(ROOT)}:{number}: write {INSTEAD[wording]!r}: {line.strip()[:100]}"
        for path in FILES
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(wording, line)
    ]  # fmt: skip
    assert not found, "\n".join(found)
