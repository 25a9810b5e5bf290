"""The table of `make mutants`."""

from __future__ import annotations

import json

from mutants import report


def test_a_file_has_a_line_and_every_survivor_a_name(tmp_path):
    (tmp_path / "rules").mkdir()
    codes = {"a.x_f__mutmut_1": 1, "a.x_f__mutmut_2": 0, "a.x_f__mutmut_3": 33, "a.x_f__mutmut_4": None, "a.x_f__mutmut_5": -24}
    (tmp_path / "rules" / "a.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    (tmp_path / "rules" / "b.py.meta").write_text(json.dumps({"exit_code_by_key": {"b.x_f__mutmut_1": None}}))
    assert [" ".join(line.split()) for line in report(tmp_path).splitlines()] == [
        "tried killed %", "rules/a 4 2 50.0", "", "a.x_f__mutmut_2", "a.x_f__mutmut_3 (no test runs it)", "", "mutmut show NAME prints what was changed",
    ]  # fmt: skip
