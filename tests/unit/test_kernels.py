"""The page about kernels: what answers become cells, and that nothing which failed looks like a success."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import chosen
import places
import table

ROOT = Path(__file__).parents[2]
NFT = chosen.CHOSEN["iptables-nft"]


def answer(*, outcome="", features=None, failure=None, ends=(), ended=True):
    """An answer whose contract test on iptables-nft ended so."""
    tests = [{"test": NFT["contract"], "outcome": outcome, "reason": "why | so"}] if outcome else []
    checked = {"works": not failure, "failure": failure, "features": features or {}}
    facts = dict.fromkeys(("kernel", "iptables", "nft", "ipset", "python"), "1")
    return {"facts": facts, "tests": tests, "doctor": {"feature_checks": {"iptables-nft": checked}}, "apply": list(ends), "ended": ended}


@pytest.mark.parametrize(
    ("outcome", "cell"),
    [("passed", "passed"), ("failed", "**failed**"), ("skipped", "skipped"), ("", "–")],
)
def test_a_cell_says_how_the_features_test_ended(outcome, cell):
    assert table.verdict(answer(outcome=outcome), "iptables-nft", "contract") == cell
    assert table.verdict(answer(outcome=outcome), "libiptc", "address sets") == "–"


def test_the_doctors_cell_names_what_the_kernel_lacks():
    works = {"nat": {"works": True}, "mark": {"works": True}, "owner": {"works": False}}
    assert table.examined(answer(features={"IPv4": works, "IPv6": works}), "iptables-nft") == "4 of 6; not owner"
    assert table.examined(answer(features={"IPv4": {name: {"works": False} for name in works}}), "iptables-nft") == "0 of 3"
    assert table.examined(answer(features={"IPv4": {"nat": None}}), "iptables-nft") == "1 of 1"
    assert table.examined(answer(failure="no nf_tables"), "iptables-nft") == "no: no nf_tables"
    assert table.examined(answer(), "libiptc") == "not tried"
    late = answer(failure="stopped")
    late["doctor"]["feature_checks"]["iptables-nft"]["works"] = None
    assert table.examined(late, "iptables-nft") == "not known: the checks did not end in time"


def test_apply_that_failed_stands_on_the_page_with_its_last_line_and_one_that_succeeded_does_not():
    said = "2026\tinfo\tfirst\n2026\terror\tthis kernel has no owner match\n"
    ends = [
        {"backend": "iptables-nft", "options": "REDIRECT", "code": 1, "said": said},
        {"backend": "iptables-nft", "options": "TPROXY and DNS", "code": 1, "said": said},
        {"backend": "nftables", "options": "REDIRECT", "code": 0, "said": ""},
        {"backend": "libiptc", "options": "REDIRECT", "code": None, "said": ""},
    ]
    assert list(table.failures_of({"name": "6.1", "answer": answer(ends=ends)})) == [
        ("6.1", "iptables-nft", "1: this kernel has no owner match"),
        ("6.1", "libiptc", "None: it printed nothing"),
    ]


def test_an_error_that_names_a_missing_module_is_short_on_the_page_and_another_is_not():
    ends = [refusal("load xt_owner on the node"), refusal("it failed") | {"backend": "libiptc"}]
    rows = list(table.failures_of({"name": "6.1", "without": ["xt_owner"], "answer": answer(ends=ends)}))
    assert rows == [("6.1", "iptables-nft", f"1: {table.NAMED}"), ("6.1", "libiptc", "1: it failed")]


def test_places_with_equal_answers_share_a_row_and_a_skipped_test_gives_its_reason():
    page = table.render([{"name": name, "answer": answer(outcome="skipped")} for name in ("6.1", "6.2")])
    assert "\n- 6.1, 6.2 (iptables-nft" in page
    assert page.count("\nSkipped: why \\| so\n") == 1
    assert "| 6.1, 6.2 | 1 | 1 | 1 | 1 | 1 |" in page


def test_a_place_that_gave_no_answer_is_a_row_that_says_so():
    page = table.render([{"name": "6.1", "failure": "the machine\nhangs"}, {"name": "6.2", "answer": answer(outcome="failed")}])
    assert "\n- 6.1 (none): no answer: the machine hangs\n" in page
    assert "\n- 6.2 (iptables-nft" in page


def refusal(said, code=1):
    return {"backend": "iptables-nft", "options": "REDIRECT", "code": code, "said": said}


def test_without_address_sets_nothing_has_to_fail():
    assert table.complaints({"name": "6.1", "without": ["ip_set"], "answer": answer(ends=[refusal("", code=0)])}) == []


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({"name": "6.1", "failure": "the machine hangs"}, "6.1: the machine hangs"),
        ({"name": "6.1", "answer": answer(outcome="failed")}, f"6.1: {NFT['contract']}: why | so"),
        ({"name": "6.1", "answer": answer(ended=False) | {"said": "panic"}}, "6.1: it did not come to its end: panic"),
        (
            {"name": "6.1", "without": ["xt_owner"], "answer": answer(ends=[refusal("it failed; load xt_REDIRECT")])},
            "6.1: iptables-nft, REDIRECT: the error names none of xt_owner: it failed; load xt_REDIRECT",
        ),
        ({"name": "6.1", "without": ["xt_owner"], "answer": answer(ends=[refusal("", code=0)])}, "6.1: nothing failed without xt_owner"),
    ],
)
def test_what_is_wrong_is_a_complaint(place, words):
    assert table.complaints(place) == [words]


def test_a_place_where_all_is_well_and_one_whose_error_names_what_is_missing_have_no_complaint():
    assert table.complaints({"name": "6.1", "without": [], "answer": answer(outcome="passed")}) == []
    assert table.complaints({"name": "6.1", "without": ["xt_owner"], "answer": answer(ends=[refusal("load xt_owner")])}) == []


def test_what_a_machine_told_is_one_answer_and_a_line_cut_short_ends_it(tmp_path):
    told = tmp_path / "answer"
    lines = ['{"facts": {"kernel": "6.1"}}', '{"test": {"test": "a"}}', '{"test": {"test": "b"}}', '{"spent": {}, "ended": true}']
    told.write_text("\n".join(lines))
    assert places.read_answer(told, "") == {"facts": {"kernel": "6.1"}, "tests": [{"test": "a"}, {"test": "b"}], "spent": {}, "ended": True}
    told.write_text("\n".join(lines)[:-10])
    cut = places.read_answer(told, "the console's end")
    assert (cut["tests"], cut["ended"], cut["said"]) == ([{"test": "a"}, {"test": "b"}], False, "the console's end")
    told.write_text("")
    with pytest.raises(RuntimeError, match="no answer: panic"):
        places.read_answer(told, "panic")


def held(*ends, connections=0):
    """An answer whose test of random connections ended so, once for each backend."""
    tests = [{"test": f"{chosen.RANDOM}[{number}]", "outcome": end, "reason": "", "connections": connections} for number, end in enumerate(ends)]
    return answer() | {"facts": {"kernel": "6.1"}, "tests": tests}


@pytest.mark.parametrize(("ends", "held_to"), [(("passed", "passed"), "passed"), (("passed", "skipped"), "skipped"), (("failed", "passed"), "failed")])
def test_an_assumption_is_held_where_each_of_its_tests_passed(ends, held_to):
    (name,) = [name for name, test in chosen.ASSUMPTIONS.items() if test == chosen.RANDOM]
    found = table.summarize_simulator(held(*ends, connections=250))
    assert found == {"kernel": "6.1", "held": {name: held_to}, "connections": 500}
    (row,) = re.findall(rf"^\| {re.escape(name)} \|.*$", table.render_simulator({"a": found}), re.MULTILINE)
    assert row.endswith("| 6.1 |  |" if held_to == "passed" else f"| none | **{held_to}**: 6.1 |")


def test_of_a_kernel_that_did_not_come_to_its_end_nothing_is_said():
    assert table.summarize_simulator(held("passed") | {"ended": False}) == {}


def test_only_the_simulators_part_of_the_page_is_written_anew():
    page = table.render([{"name": "6.1", "answer": answer()}])
    once = table.replace_simulator(page, {})
    assert once.startswith(page)
    assert table.replace_simulator(once, {"a": table.summarize_simulator(held("passed"))}).startswith(page)
    assert table.replace_simulator(once, {}) == once


def test_the_page_says_of_the_simulator_what_the_data_say():
    page = (ROOT / "docs" / "kernels.md").read_text("utf-8")
    assert page == table.replace_simulator(page, json.loads((ROOT / "tests" / "kernels" / "simulator.json").read_text("utf-8")))


def test_every_row_has_as_many_cells_as_its_head():
    page = table.render([{"name": "6.1", "answer": answer(outcome="skipped")}, {"name": "6.2", "failure": "a | b"}])
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_messages_become_one_short_line_that_is_no_markup():
    assert table.shorten("a\n b | <c> *d*") == "a b \\| &lt;c> \\*d\\*"
    assert len(table.shorten("x" * 900)) == table.MOST + 1


def test_every_chosen_test_is_found_among_the_files_that_are_copied(tmp_path):
    if subprocess.run(["git", "-C", ROOT, "rev-parse"], capture_output=True, check=False).returncode:
        pytest.skip("git knows nothing of these files")
    places.copy_project(tmp_path)
    names = list(dict.fromkeys([*chosen.tests("all"), *chosen.tests("arm64"), *chosen.tests("goldens")]))
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "--rootdir", tmp_path, *names]
    environ = {**os.environ, "NETINIT_SWEEPS": "all", "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:]


def sent(sums, outcome="passed"):
    """The answer of a machine that sent these messages for goldens with a backend."""
    tests = [{"test": f"{chosen.GOLDENS}::test_a[nftables]", "outcome": outcome, "reason": "", "sums": json.dumps(sums)}]
    return answer() | {"facts": dict.fromkeys(("kernel", "iptables", "nft", "ipset", "python"), "1"), "tests": tests}


@pytest.mark.parametrize(
    ("sums", "said", "differing"),
    [
        ({"a": "1", "b": "2"}, "2 of 2 equal", []),
        ({"a": "1", "b": "3"}, "**1 of 2 differ**", ["b"]),
        ({"a": "1"}, "**1 of 2 differ**", ["b"]),
        ({}, "**2 of 2 differ**", ["a", "b"]),
    ],
)
def test_a_message_that_two_machines_do_not_send_alike_is_a_complaint_and_stands_on_the_page(sums, said, differing):
    here = sent({"a": "1", "b": "2"})
    found = table.complain_of_messages(sent(sums), here)
    assert [line.rpartition(": ")[2] for line in found] == [", ".join(differing)] * bool(differing)
    assert f"| {said} |" in table.render_arm64(sent(sums), here)


def test_that_nothing_was_compared_is_a_complaint():
    assert table.complain_of_messages(sent({}), sent({})) == ["no messages were compared"]


def test_the_row_of_a_group_of_tests_says_how_they_ended():
    (name, (test,)) = next((name, tests) for name, tests in chosen.ARM64.items() if len(tests) == 1)
    tests = [{"test": f"{test}::test_{end}[{number}]", "outcome": end, "reason": "a | b"} for end in ("passed", "failed", "skipped") for number in (1, 2)]
    page = table.render_arm64(sent({}) | {"tests": tests}, sent({"a": "1"}))
    assert f"| {name} | 2 passed, 2 **failed**, 2 skipped (a \\| b) |" in page
    assert table.render_arm64(answer(), answer()).count("| not tried |") == len(chosen.ARM64)


def test_the_part_about_arm64_is_kept_where_other_parts_are_written_anew():
    page = table.replace_simulator(table.render([{"name": "6.1", "answer": answer()}]), {})
    with_it = table.replace_arm64(page, table.render_arm64(answer(), answer()))
    assert table.part_of_arm64(page) == ""
    assert table.part_of_arm64(with_it).startswith(table.ARM64_HEAD)
    assert table.replace_arm64(page, table.part_of_arm64(with_it)) == with_it
    assert table.replace_arm64(with_it, table.part_of_arm64(with_it)) == with_it
    assert table.replace_simulator(with_it, {}) == with_it
    assert table.replace_arm64(with_it, "") == page


def test_every_feature_of_the_page_is_asked_and_no_other():
    assert {feature for features in chosen.CHOSEN.values() for feature in features} == set(chosen.FEATURES)
    assert set(NFT) == set(chosen.FEATURES)


@pytest.mark.skipif(shutil.which("cpio") is None, reason="cpio is not installed: apt-get install cpio")
def test_a_machines_file_system_lacks_what_is_left_out_and_nothing_else(tmp_path):
    for name in ("usr/share/doc/a", "usr/bin/a", "usr/lib/b.a"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_text("x")
    (tmp_path / "tree" / "sbin").symlink_to("usr/sbin")
    archive = places.archive_of(tmp_path / "tree", tmp_path / "a.cpio", ("usr/share", "*.a"))
    listed = subprocess.run(["cpio", "--quiet", "--list"], input=archive.read_bytes(), capture_output=True, check=True).stdout
    assert listed.decode().split() == ["sbin", "usr", "usr/bin", "usr/lib", "usr/bin/a"]
