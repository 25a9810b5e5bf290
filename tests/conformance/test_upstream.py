"""docs/upstream.md is what upstream.yaml says, and with a mesh's repository at hand each of its commits has a verdict."""

from __future__ import annotations

import os
import subprocess

import pytest

import upstream

PROJECTS = upstream.read_table()


def commit(**more):
    return {"commit": "1", "date": "2026-01-01", "title": "one", "verdict": upstream.OPEN, "reason": "not yet"} | more


@pytest.fixture
def repository(tmp_path):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        return subprocess.run(["git", "-C", tmp_path, *identity, *words], check=True, capture_output=True, text=True).stdout

    git("init", "--quiet")
    for path in ("rules/first.go", "rules/second.go", "rules/second_test.go", "elsewhere.go"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(path)
        git("add", ".")
        git("commit", "--quiet", "-m", path)
        if path == "rules/first.go":
            git("tag", "v1")
    return str(tmp_path)


def test_the_page_is_written_from_the_table_and_every_commit_has_a_verdict_and_a_reason():
    assert [fault for one in PROJECTS for fault in upstream.find_faults(one)] == []
    assert upstream.PAGE.read_text("utf-8") == upstream.write_page(PROJECTS)


def test_a_commit_of_a_watched_folder_without_a_verdict_is_named_and_others_are_not(repository):
    project = {"name": "A", "since": "v1", "folders": ["rules"], "commits": []}
    commits = upstream.list_commits(repository, project)
    (lacking,) = upstream.find_differences(project, commits)
    assert lacking.startswith("A: no verdict for ")
    assert lacking.endswith(": rules/second.go")
    assert upstream.find_differences(project | {"commits": [commit(**commits[0])]}, commits) == []


def test_a_verdict_of_no_commit_and_one_with_another_title_are_named():
    there = [{name: commit()[name] for name in ("commit", "date", "title")}]
    project = {"name": "A", "since": "v1"}
    assert upstream.find_differences(project | {"commits": [commit(), commit(commit="2")]}, there) == ["A: 2 is no commit of the watched folders since v1"]
    assert upstream.find_differences(project | {"commits": [commit(title="two")]}, there) == ["A: 1 is of 2026-01-01: one"]


@pytest.mark.parametrize("wrong", [{"verdict": ""}, {"verdict": "done"}, {"reason": ""}])
def test_an_entry_without_a_verdict_or_a_reason_is_named(wrong):
    assert upstream.find_faults({"name": "A", "commits": [commit(), commit(**wrong)]}) == ["A: 1: give one of followed, not applicable, open, and a reason"]


def test_a_title_is_no_markup_and_ends_no_cell():
    page = upstream.write_page([{"name": "A", "since": "v1", "folders": ["rules"], "commits": [commit(title="a | <b> [c](d) `e`")]}])
    assert r"| a \| \<b\> \[c\](d) \`e\` | open: not yet |" in page


@pytest.mark.parametrize("project", PROJECTS, ids=lambda one: one["name"])
def test_every_commit_since_the_release_that_is_followed_has_a_verdict(project):
    repository = os.environ.get(project["variable"])
    if not repository:
        pytest.skip(f"{project['variable']} names no git directory of {project['name']}")
    assert upstream.find_differences(project, upstream.list_commits(repository, project)) == []
