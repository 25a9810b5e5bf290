"""What other meshes have changed in interception and injection since the release that netinit follows; writes docs/upstream.md.

upstream.yaml has the folders that are watched, and a verdict for each commit in them. NETINIT_ISTIO, NETINIT_KUMA, NETINIT_LINKERD and
NETINIT_CONSUL name git directories or clones; each that is there is compared with the table. Run by `make upstream`: it fails, and
prints entries to fill in, where a commit has no verdict.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
TABLE, PAGE = Path(__file__).with_name("upstream.yaml"), ROOT / "docs" / "upstream.md"
FOLLOWED, NOT_APPLICABLE, OPEN = VERDICTS = ("followed", "not applicable", "open")
LEFT_OUT = tuple(f":(exclude,glob)**/{name}" for name in ("*_test.go", "testdata/**", "test/**", "integration/**", "go.mod", "go.sum"))
LENGTH = 12  # digits of a commit, as the table has them
HEAD = """\
# What other meshes have changed

Each commit in the other meshes' code for interception and injection since the release whose rules and flags netinit has.
Tests and the versions of libraries are left out. `make upstream` compares this page with their repositories, and fails where a commit has no verdict.

- **followed**: netinit does the same, or does not have the bug
- **not applicable**: nothing in netinit corresponds to it
- **open**: netinit does not do it yet
"""
Project = Mapping[str, Any]


def list_commits(repository: str, project: Project) -> list[dict[str, str]]:
    """The commits of a project's watched folders since its release, the newest first."""
    command = ["git", "-C", repository, "log", "--no-merges", "--date=short", f"--abbrev={LENGTH}", "--format=%h%x09%ad%x09%s", f"{project['since']}..HEAD"]
    found = subprocess.run([*command, "--", *project["folders"], *LEFT_OUT], check=True, capture_output=True, text=True).stdout
    return [dict(zip(("commit", "date", "title"), line.split("\t", 2), strict=True)) for line in found.splitlines()]


def find_differences(project: Project, commits: list[dict[str, str]]) -> list[str]:
    """What the table lacks or has too much, a line each."""
    judged = {one["commit"]: one for one in project["commits"]}
    there = {one["commit"]: one for one in commits}
    found = [f"{project['name']}: no verdict for {one['commit']}, {one['date']}: {one['title']}" for key, one in there.items() if key not in judged]
    for key, one in judged.items():
        said = {name: str(one[name]) for name in ("commit", "date", "title")}
        if key not in there:
            found.append(f"{project['name']}: {key} is no commit of the watched folders since {project['since']}")
        elif said != there[key]:
            found.append(f"{project['name']}: {key} is of {there[key]['date']}: {there[key]['title']}")
    return found


def find_faults(project: Project) -> list[str]:
    """Entries of the table without a verdict or a reason, a line each."""
    return [
        f"{project['name']}: {one['commit']}: give one of {', '.join(VERDICTS)}, and a reason"
        for one in project["commits"]
        if one.get("verdict") not in VERDICTS or not one.get("reason")
    ]


def write_page(projects: list[Project]) -> str:
    """The page."""
    lines = [HEAD]
    for one in projects:
        counted = Counter(each["verdict"] for each in one["commits"])
        sums = ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS if counted[verdict]) or "none"
        newest = f" up to {one['until']}" if one.get("until") else ""
        lines += [f"## {one['name']}", "", f"Since {one['since']}{newest}, in {', '.join(f'`{folder}`' for folder in one['folders'])}: {sums}.", ""]
        if one["commits"]:
            lines += ["| date | commit | change | verdict |", "| --- | --- | --- | --- |"]
            lines += [f"| {each['date']} | {each['commit']} | {_escape(each['title'])} | {each['verdict']}: {each['reason']} |" for each in one["commits"]]
            lines += [""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _escape(title: str) -> str:
    """Somebody else's text, without what would be markup or end the cell."""
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|" else sign for sign in title if sign.isprintable())


def read_table() -> list[Project]:
    """The projects."""
    found: list[Project] = yaml.safe_load(TABLE.read_text("utf-8"))
    return found


def main() -> int:
    """Compare what can be compared, and write the page."""
    projects = read_table()
    found = [fault for one in projects for fault in find_faults(one)]
    for one in projects:
        repository = os.environ.get(one["variable"])
        if not repository:
            print(f"{one['name']}: not compared: {one['variable']} names no git directory")
            continue
        commits = list_commits(repository, one)
        found += find_differences(one, commits)
        known = {each["commit"] for each in one["commits"]}
        if fresh := [{**each, "verdict": "", "reason": ""} for each in commits if each["commit"] not in known]:
            print(yaml.safe_dump(fresh, sort_keys=False, width=1000, allow_unicode=True), end="")
    if found:
        print("\n".join(found), file=sys.stderr)
        return 1
    PAGE.write_text(write_page(projects), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
