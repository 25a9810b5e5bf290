"""`make mutants`: what is drawn, which tests try it, and the table of what was found."""

from __future__ import annotations

import ast
import signal
import subprocess
import sys
from collections import Counter

import pytest

import mutants
from mutants import Learned, Source, add_probes, draw, report

SOURCE = '''
def add(a, b):
    """The sum."""
    return a + b


class Box:
    limit: int = 3

    @property
    def is_full(self):
        if self.limit > 4:
            return True
        return False

    def short(self): return 1
'''


@pytest.fixture
def sources(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "PACKAGE", tmp_path)
    for name, times in (("large/a.py", 40), ("large/b.py", 40), ("small/c.py", 1)):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(SOURCE * times)
    return [Source(path) for path in sorted(tmp_path.glob("*/*.py"))]


def test_a_room_has_a_line_and_every_survivor_its_difference():
    found = {
        "netinit/rules/a.py:3 #1 f": {"room": "rules", "outcome": "killed", "test": "t", "diff": "-a\n+b"},
        "netinit/rules/a.py:4 #2 f": {"room": "rules", "outcome": "survived", "test": "", "diff": "-c\n+d"},
        "netinit/kube/a.py:5 #3 g": {"room": "kube", "outcome": "untested", "test": "", "diff": "-e\n+f"},
    }
    assert [" ".join(line.split()) for line in report(found).splitlines()] == [
        "tried killed %", "kube 1 0 0.0", "rules 2 1 50.0", "all 3 1 33.3", "",
        "netinit/rules/a.py:4 #2 f", "-c", "+d", "netinit/kube/a.py:5 #3 g (no test runs it)", "-e", "+f",
    ]  # fmt: skip


def test_a_change_whose_tests_do_not_end_by_the_clock_is_undecided_for_the_machine_may_be_busy(tmp_path, monkeypatch):
    """An endless loop is stopped by its processor time, which counts as noticed."""
    known = Learned.read("t\tm.py:f\nt\t=passed\t1\n")
    change = mutants.Change(file="m.py", number=1, function="f", line=1, text="", diff="-a\n+b")
    monkeypatch.setattr(mutants, "WORK", tmp_path)
    (tmp_path / "tried").mkdir()

    def take_long(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", take_long)
    assert mutants.attempt(change, known, again=False) == ("undecided", "(time)")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: subprocess.CompletedProcess(command, -signal.SIGXCPU, "", ""))
    assert mutants.attempt(change, known, again=False)[0] == "killed"
    found = {str(change): {"room": "rules", "outcome": "undecided", "test": "", "diff": change.diff}}
    assert report(found).splitlines()[1:] == [f"rules{1:14}{0:8}{0:7.1f}", f"all{1:16}{0:8}{0:7.1f}", "", f"{change}  (its tests did not end by the clock)", "-a", "+b"]


def test_a_sample_is_the_same_for_one_seed_and_has_some_of_each_room(sources):
    drawn = list(draw(sources, 100, "1"))
    assert drawn == list(draw(sources, 100, "1")) != list(draw(sources, 100, "2"))
    assert Counter(source.room for source, _ in drawn) == {"large": 99, "small": mutants.LEAST}
    assert {source.file for source, _ in drawn} == {"large/a.py", "large/b.py", "small/c.py"}


def test_a_change_is_one_of_a_function_and_says_where_it_is(sources):
    source = sources[-1]
    changes = [source.make(number) for number in range(len(source.changes[1]))]
    assert {change.function for change in changes} >= {"add", "Box.short"}
    assert all(change.text != source.text and ast.parse(change.text) for change in changes)
    sub = next(change for change in changes if "a - b" in change.text)
    assert (str(sub).split()[0], sub.diff.splitlines()[1:]) == ("netinit/small/c.py:4", ["-    return a + b", "+    return a - b"])


def test_a_change_that_python_takes_for_what_it_was_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr(mutants, "PACKAGE", tmp_path)
    path = tmp_path / "room" / "a.py"
    path.parent.mkdir()
    path.write_text('def f(one):\n    return int.from_bytes(one, "big"), one.decode("utf-8"), one.get(1, "big"), one.strip().lower()\n')
    source = Source(path)
    (tmp_path / "room" / "c.py").write_text("def f(self):\n    self.is_read = False\n    found: bool = False\n    return found\n")
    texts = "\n".join([Source(tmp_path / "room" / "c.py").make(number).text for number in range(len(Source(tmp_path / "room" / "c.py").changes[1]))])
    assert ("is_read = True" in texts, "found: bool = True" in texts, "None" in texts) == (True, True, False)
    (tmp_path / "room" / "b.py").write_text('class P:\n    def f(self, one=1) -> int:\n        """Its meaning."""\n\n    def g(self, one=2): ...\n')
    assert not Source(tmp_path / "room" / "b.py").changes[1]
    made = "\n".join(source.make(number).text for number in range(len(source.changes[1])))
    assert "from_bytes(one, )" not in made
    assert '"UTF-8"' not in made
    for other in ('from_bytes("big")', 'from_bytes(one, "BIG")', '"XXutf-8XX"', "get(1, )"):
        assert other in made


def test_a_probe_is_the_first_thing_that_a_function_does():
    seen = []
    namespace = {"_netinit_hit": seen.append}
    exec(add_probes(SOURCE, "room/a.py"), namespace)
    assert namespace["add"](1, 2) == 3
    assert namespace["add"].__doc__ == "The sum."
    assert namespace["Box"]().is_full is False
    assert seen == ["room/a.py:add", "room/a.py:Box.is_full"]


def test_a_change_is_tried_by_the_tests_of_its_function_the_most_specific_first_and_then_by_those_of_its_file():
    known = Learned.read(
        "wide\tm.py:f\nwide\tm.py:g\nwide\tn.py:h\nclose\tm.py:f\nother\tm.py:g\nfar\tn.py:h\nbad\tm.py:f\n"
        "wide\t=passed\t1.0\nclose\t=passed\t2.5\nother\t=passed\t1\nfar\t=passed\t1\nbad\t=passed\t1\nbad\t=failed\t1\n"
    )
    assert known.find_tests("m.py", "f") == (["close", "wide", "other"], [], [])
    assert known.find_tests("n.py", "h") == (["far", "wide"], [], [])
    assert known.find_tests("k.py", "f") == ([], [], [])


def test_one_row_of_each_test_is_tried_before_the_second_of_any():
    rows = [f"t.py::{name}\tm.py:f\nt.py::{name}\t=passed\t0\n" for name in ("a[1]", "a[2]", "b[1]", "c")]
    assert Learned.read("".join(rows)).find_tests("m.py", "f")[0] == ["t.py::a[1]", "t.py::b[1]", "t.py::c", "t.py::a[2]"]


def test_tests_in_the_file_that_has_the_module_s_name_are_tried_first():
    rows = [("unit/test_wide.py::a", "n.py:f"), ("unit/room/test_m.py::b[1]", "n.py:f\tn.py:g\tn.py:h"), ("unit/room/test_m.py::b[2]", "n.py:f")]
    lines = [f"{test}\t{function}\n" for test, functions in rows for function in ("room/m.py:f", *functions.split("\t"))]
    lines += [f"{test}\t=passed\t0\n" for test, _ in rows]
    found = Learned.read("".join(lines)).find_tests("room/m.py", "f")[0]
    assert found == ["unit/room/test_m.py::b[2]", "unit/room/test_m.py::b[1]", "unit/test_wide.py::a"]


def test_a_slow_test_leaves_the_time_to_others():
    limit = mutants.BUDGETS[1]
    lines = [f"t{at}\tm.py:f\nt{at}\t=passed\t{seconds}\n" for at, seconds in enumerate((1, limit, 2))]
    assert [test for part in Learned.read("".join(lines)).find_tests("m.py", "f") for test in part] == ["t0", "t2"]


def test_where_not_all_fit_the_most_specific_are_chosen_and_then_the_quickest_in_the_module_s_file_before_others():
    limit = int(mutants.BUDGETS[1])
    slow = [(f"test_x.py::one{at:03}", 2, 1) for at in range(limit)]
    rows = [(f"test_x.py::rows[{at:03}]", 0.125, 2) for at in range(400)]
    named = [(f"room/test_m.py::slow{at}", 5, 3) for at in range(mutants.FIRST + 2)]
    lines = [f"{test}\troom/m.py:f\n" + "".join(f"{test}\tn.py:{number}\n" for number in range(more)) + f"{test}\t=passed\t{seconds}\n"
             for test, seconds, more in (*slow, *rows, *named)]  # fmt: skip
    chosen = [test for part in Learned.read("".join(lines)).find_tests("room/m.py", "f") for test in part]
    assert Counter(test.partition("::")[2].rstrip("0123456789]") for test in chosen) == {"slow": len(named), "rows[": 400, "one": (limit - 5 * len(named) - 50) // 2}


def test_a_test_that_is_gone_does_not_notice_a_change(tmp_path, monkeypatch):
    """What is learned is out of date then; a change that keeps the tests from being collected is noticed."""
    known = Learned.read("t\tm.py:f\ngone\tm.py:f\nt\t=passed\t1\ngone\t=passed\t1\n")
    change = mutants.Change(file="m.py", number=1, function="f", line=1, text="", diff="-a\n+b")
    monkeypatch.setattr(mutants, "WORK", tmp_path)
    (tmp_path / "tried").mkdir()
    broken = {"gone"}

    def run(command, **_):
        is_changed = any("tried" in part for part in command)
        return subprocess.CompletedProcess(command, pytest.ExitCode.USAGE_ERROR if is_changed or broken.intersection(command) else 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit, match="files or tests are not those of"):
        mutants.attempt(change, known, again=False)
    broken.clear()
    assert mutants.attempt(change, known, again=False) == ("killed", "(cannot be collected)")


def test_a_row_that_a_change_names_otherwise_does_not_notice_it(tmp_path, monkeypatch):
    known = Learned.read("".join(f"t.py::{name}\tm.py:f\nt.py::{name}\t=passed\t1\n" for name in ("a[1]", "b")))
    change = mutants.Change(file="m.py", number=1, function="f", line=1, text="", diff="-a\n+b")
    monkeypatch.setattr(mutants, "WORK", tmp_path)
    (tmp_path / "tried").mkdir()
    failing = set()

    def run(command, **_):
        if not any("tried" in part for part in command):
            return subprocess.CompletedProcess(command, 0, "", "")
        if "t.py::a[1]" in command:
            return subprocess.CompletedProcess(command, pytest.ExitCode.USAGE_ERROR, "", f"ERROR: not found: {mutants.ROOT}/t.py::a[1]\n(no match)\n")
        return subprocess.CompletedProcess(command, len(failing), "FAILED tests/t.py::b - why\n" if failing else "", "")

    monkeypatch.setattr(subprocess, "run", run)
    assert mutants.attempt(change, known, again=False) == ("survived", "")
    failing.add("t.py::b")
    assert mutants.attempt(change, known, again=False) == ("killed", "tests/t.py::b")


def test_slow_tests_come_later_and_are_left_out_at_last_but_one_is_always_tried():
    quick, more = mutants.BUDGETS
    number = mutants.FIRST + round(more) + 5
    lines = [f"t{at:04}\tm.py:f\nt{at:04}\t=passed\t1.0\n" for at in range(number)]
    parts = Learned.read("".join(lines)).find_tests("m.py", "f")
    assert list(map(len, parts)) == [mutants.FIRST, round(quick) - mutants.FIRST, round(more) - round(quick)]
    assert Learned.read(f"t\tm.py:f\nt\t=passed\t{more * 2}\n").find_tests("m.py", "f") == (["t"], [], [])


def test_who_is_left_behind_by_its_parent_is_collected_when_it_ends(tmp_path, monkeypatch, require_netns):
    """A test may wait for the end of a grandchild, as long as /proc has it."""
    monkeypatch.setattr(mutants, "WORK", tmp_path)
    script = """
import os, subprocess, time
number = int(subprocess.run(["sh", "-c", "sleep 0.1 & echo $!"], stdout=subprocess.PIPE).stdout)
while os.path.exists(f"/proc/{number}"):
    time.sleep(0.02)
raise SystemExit(7)
"""
    assert subprocess.run(mutants.enclose({}, [sys.executable, "-c", script]), check=False, timeout=60).returncode == 7
