"""`make mutants`: what is tried, in a fork each, and the table of what was found."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from subprocess import run

from mutants import choose, find_tests, keep, report

TESTS = Path(__file__).parent.parent


def test_a_file_has_a_line_and_every_survivor_a_name(tmp_path):
    (tmp_path / "rules").mkdir()
    codes = {"a.x_f__mutmut_1": 1, "a.x_f__mutmut_2": 0, "a.x_f__mutmut_3": 33, "a.x_f__mutmut_4": None, "a.x_f__mutmut_5": -24}
    (tmp_path / "rules" / "a.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    (tmp_path / "rules" / "b.py.meta").write_text(json.dumps({"exit_code_by_key": {"b.x_f__mutmut_1": None}}))
    assert [" ".join(line.split()) for line in report(tmp_path).splitlines()] == [
        "tried killed %", "rules/a 4 2 50.0", "", "a.x_f__mutmut_2", "a.x_f__mutmut_3 (no test runs it)", "", "mutmut show NAME prints what was changed",
    ]  # fmt: skip


def test_a_sample_is_the_same_each_time_and_of_each_file(tmp_path):
    for file, number in (("a", 9), ("b", 2)):
        names = {f"n.{file}.x_f__mutmut_{place}": 1 for place in range(number)}
        (tmp_path / f"{file}.py.meta").write_text(json.dumps({"exit_code_by_key": names}))
    drawn = list(choose(tmp_path, ["n.*"], 3))
    assert drawn == list(choose(tmp_path, ["n.*"], 3))
    assert [sum(name.startswith(f"n.{file}") for name in drawn) for file in "ab"] == [3, 2]
    assert len(set(drawn)) == 5
    assert len(list(choose(tmp_path, ["n.a.*", "n.a.x*"], 0))) == 9
    assert list(choose(tmp_path, ["other*"], 3)) == []


def test_what_was_found_takes_the_place_of_what_was_found_before(tmp_path):
    file = tmp_path / "a.py.meta"
    file.write_text(json.dumps({"exit_code_by_key": {"x": 0, "y": 0}, "more": 5}))
    keep(tmp_path, {"x": 1})
    assert json.loads(file.read_text()) == {"exit_code_by_key": {"x": 1, "y": None}, "more": 5}


CHANGED = """
import os

def test_quick(): assert os.environ["MUTANT_UNDER_TEST"] != "m.x_f__mutmut_1"
def test_slow():
    if os.environ["MUTANT_UNDER_TEST"] == "m.x_f__mutmut_2": os.kill(os.getpid(), 24)
def test_other(): assert os.environ["MUTANT_UNDER_TEST"] != "m.x_f__mutmut_3"
"""
TRIED = """
import json, sys
sys.path.insert(0, sys.argv[1])
import pytest
from mutants import Forks
tests = {"m.x_f": ["test_it.py::test_slow", "test_it.py::test_quick", "test_it.py::test_gone"], "m.x_h": ["test_it.py::test_other"]}
seconds = {"test_it.py::test_quick": 0.1, "test_it.py::test_slow": 0.2, "test_it.py::test_other": 0.1, "test_it.py::test_gone": 1}
names = [*[f"m.x_f__mutmut_{number}" for number in range(1, 5)], "m.x_g__mutmut_1", "m.x_h__mutmut_1"]
plugin = Forks(names, {"tests_by_mangled_function_name": tests, "duration_by_test": seconds})
code = pytest.main(["-s", "-q", "-p", "no:cacheprovider", "--rootdir", ".", "test_it.py"], plugins=[plugin])
print("\\n" + json.dumps(plugin.codes))
"""


def test_each_change_is_tried_by_its_own_tests_and_the_first_that_fails_or_dies_notices_it(tmp_path):
    (tmp_path / "test_it.py").write_text(CHANGED)
    done = run([sys.executable, "-c", TRIED, str(TESTS)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "m.x_f__mutmut_1": 1, "m.x_f__mutmut_2": -24, "m.x_f__mutmut_3": 0, "m.x_f__mutmut_4": 0, "m.x_g__mutmut_1": 33, "m.x_h__mutmut_1": 0,
    }, done.stdout + done.stderr  # fmt: skip


def test_what_survives_is_tried_by_all_tests_of_its_module():
    tests = {"a.b.x_f": ["2", "1"], "a.b.xǁCǁg": ["2", "3"], "a.b.c.x_f": ["4"], "a.x_f": ["5"]}
    assert find_tests("a.b.x_f__mutmut_7", tests) == find_tests("a.b.xǁCǁg__mutmut_1", tests) == ["1", "2", "3"]
