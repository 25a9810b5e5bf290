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

import built
import chosen
import places
import run
import summaries
import systems
import table
from netinit.pods.doctor.feature_checks import FEATURES

ROOT = Path(__file__).parents[2]
NFT = chosen.CHOSEN["iptables-nft"]


def answer(*, outcome="", features=None, failure=None, ends=(), ended=True):
    """An answer whose contract test on iptables-nft ended so."""
    tests = [{"test": NFT["contract"], "outcome": outcome, "reason": "why | so"}] if outcome else []
    checked = {"works": not failure, "failure": failure, "features": features or {}}
    facts = dict.fromkeys(("kernel", "iptables", "nft", "ipset", "python"), "1")
    return {"facts": facts, "tests": tests, "doctor": {"feature_checks": {"iptables-nft": checked}}, "apply": list(ends), "ended": ended}


def told(name="6.1", **more):
    """A place that answered so."""
    return {"name": name, "without": more.pop("without", ()), "answer": answer(**more)}


def page_of(*told_places):
    """The page of these places alone."""
    names = [one["name"] for one in told_places]
    results = {}
    for one in told_places:
        results = summaries.keep(results, one["name"], summaries.summarize(one), names)
    return table.render(results, run.ARM64)


@pytest.mark.parametrize(
    ("outcome", "said"),
    [("passed", "; passed: contract\n"), ("failed", "; **failed**: contract\n"), ("skipped", "; skipped: contract\n"), ("", "could be tried\n")],
)
def test_a_cell_says_how_the_features_test_ended(outcome, said):
    (line,) = re.findall(r"^- 6.1 \(iptables-nft\).*\n", page_of(told(outcome=outcome)), re.MULTILINE)
    assert line.endswith(said)


def test_the_doctors_cell_names_what_the_kernel_lacks():
    works = {"nat": {"works": True}, "mark": {"works": True}, "owner": {"works": False}}
    assert summaries.examined(answer(features={"IPv4": works, "IPv6": works}), "iptables-nft") == "4 of 6; not owner"
    assert summaries.examined(answer(features={"IPv4": {name: {"works": False} for name in works}}), "iptables-nft") == "0 of 3"
    assert summaries.examined(answer(features={"IPv4": {"nat": None}}), "iptables-nft") == "1 of 1"
    assert summaries.examined(answer(failure="no nf_tables"), "iptables-nft") == "no: no nf_tables"
    assert summaries.examined(answer(), "libiptc") == "not tried"
    late = answer(failure="stopped")
    late["doctor"]["feature_checks"]["iptables-nft"]["works"] = None
    assert summaries.examined(late, "iptables-nft") == "not known: the checks did not end in time"


def test_apply_that_failed_stands_on_the_page_with_its_last_line_and_one_that_succeeded_does_not():
    said = "2026\tinfo\tfirst\n2026\terror\tthis kernel has no owner match\n"
    ends = [
        {"backend": "iptables-nft", "options": "REDIRECT", "code": 1, "said": said},
        {"backend": "iptables-nft", "options": "TPROXY and DNS", "code": 1, "said": said},
        {"backend": "nftables", "options": "REDIRECT", "code": 0, "said": ""},
        {"backend": "libiptc", "options": "REDIRECT", "code": None, "said": ""},
    ]
    found = summaries.summarize(told(ends=ends))
    assert found["lacking"] == {"1: this kernel has no owner match": ["iptables-nft"], "None: it printed nothing": ["libiptc"]}
    assert "\n- 6.1 (iptables-nft): 1: this kernel has no owner match\n" in page_of(told(ends=ends))


def test_an_error_that_names_a_missing_module_is_short_on_the_page_and_another_is_not():
    ends = [refusal("load xt_owner on the node"), refusal("it failed") | {"backend": "libiptc"}]
    found = summaries.summarize(told(ends=ends, without=["xt_owner"]))
    assert found["lacking"] == {f"1: {summaries.NAMED}": ["iptables-nft"], "1: it failed": ["libiptc"]}


def test_options_are_named_where_a_backend_could_program_others():
    ends = [refusal("load nft_tproxy") | {"options": "TPROXY and DNS"}, refusal("", code=0), refusal("load nft_tproxy") | {"backend": "libiptc"}]
    assert summaries.summarize(told(ends=ends))["lacking"] == {"1: load nft_tproxy": ["iptables-nft with TPROXY and DNS", "libiptc"]}


def test_places_with_equal_answers_share_a_row_and_a_skipped_test_gives_its_reason():
    page = page_of(told("6.1", outcome="skipped"), told("6.2", outcome="skipped"))
    assert "\n- 6.1, 6.2 (iptables-nft" in page
    assert page.count("\nSkipped: why \\| so\n") == 1
    assert "| 6.1, 6.2 | 1 | 1 | 1 | 1 | 1 |" in page


@pytest.mark.parametrize("late", [{"name": "6.1", "failure": "the machine\nhangs"}, told(outcome="failed", ended=False)])
def test_a_place_that_gave_no_whole_answer_keeps_what_is_on_record(late):
    before = summaries.keep({}, "6.1", summaries.summarize(told(outcome="passed")), ["6.1"])
    assert summaries.summarize(late) == {}
    assert summaries.keep(before, "6.1", summaries.summarize(late), ["6.1"]) == before
    assert summaries.complaints(late)


def test_a_run_replaces_what_it_asked_and_nothing_else():
    order = ("6.1", "6.2")
    whole = {"name": "6.1", "answer": held("passed", connections=9)}
    before = summaries.keep({}, "6.2", summaries.summarize(told("6.2", outcome="passed")), order)
    before = summaries.keep(before, "6.1", summaries.summarize(whole), order)
    assert list(before) == ["6.1", "6.2"]
    failed = summaries.keep(before, "6.1", summaries.summarize(told(outcome="failed")), order)
    assert failed["6.1"]["backends"]["iptables-nft"]["contract"] == "failed"
    assert (failed["6.1"]["simulator"], failed["6.2"]) == (before["6.1"]["simulator"], before["6.2"])
    alone = {"name": "6.1", "answer": {"facts": {"kernel": "6.1.9"}, "tests": held("failed")["tests"], "ended": True}}
    again = summaries.keep(before, "6.1", summaries.summarize(alone), order)
    assert again["6.1"] == before["6.1"] | {"simulator": {RANDOMLY: {"outcome": "failed", "kernel": "6.1.9"}}}


def test_one_assumption_asked_anew_leaves_the_others_on_record():
    first, other = [name for name in chosen.ASSUMPTIONS if name != RANDOMLY][:2]
    before = {"6.1": {"simulator": {RANDOMLY: {"outcome": "passed", "kernel": "6.1.1", "connections": 570}, first: {"outcome": "passed", "kernel": "6.1.1"}}}}
    found = {"simulator": {first: {"outcome": "failed", "kernel": "6.1.9"}, other: {"outcome": "passed", "kernel": "6.1.9"}}}
    kept = summaries.keep(before, "6.1", found, ["6.1"])["6.1"]["simulator"]
    assert kept == {**before["6.1"]["simulator"], **found["simulator"]}


def test_a_part_of_what_is_asked_of_arm64_leaves_the_others_on_record():
    here, (first, *others) = recorded(), chosen.ARM64
    assert chosen.ARM64[list(chosen.ARM64)[-1]] == [chosen.EXECUTABLE]
    before = {run.ARM64: {"tried": {first: [["passed", "", 3]], "of old": [["passed", "", 1]]}, "simulator": {RANDOMLY: {"outcome": "passed", "kernel": "1"}}}}
    kept = summaries.keep(before, run.ARM64, summaries.summarize_arm64(recorded(), here), [run.ARM64])[run.ARM64]
    ran = {others[-1], GOLDENS_ROW}
    assert kept["tried"] == {first: [["passed", "", 3]], **{name: [("passed", "", 1)] if name in ran else [] for name in others}}
    assert kept["simulator"] == before[run.ARM64]["simulator"]


def test_a_part_that_is_not_asked_of_arm64_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(run, "ask", lambda *_: pytest.fail("it asked"))
    assert run.main(["--arm64", "golden"]) == 1
    assert "'golden' is no part of what is asked of arm64; these are: arm64, goldens" in capsys.readouterr().out


def test_a_place_that_is_not_asked_any_more_leaves_the_results():
    before = {"5.10": {"versions": ["1"] * 5}, "6.1": {"versions": ["2"] * 5}}
    assert summaries.keep(before, "6.1", {}, ["6.1"]) == {"6.1": before["6.1"]}


def test_stopping_a_run_after_a_place_keeps_that_place_and_its_complaints(monkeypatch, tmp_path, capsys):
    def ask(name, parts, work):
        if name == "6.12 of Debian 13":
            raise KeyboardInterrupt
        return told(name, outcome="failed") if parts == "all" else {"name": name, "answer": held("passed", connections=9)}

    results, page = tmp_path / "results.json", tmp_path / "kernels.md"
    before = json.loads(run.RESULTS.read_text("utf-8"))
    results.write_text(json.dumps(before))
    monkeypatch.setattr(run, "RESULTS", results)
    monkeypatch.setattr(run, "PAGE", page)
    monkeypatch.setattr(run, "ask", ask)
    monkeypatch.setattr(run, "find_obstacle", lambda programs: None)
    with pytest.raises(KeyboardInterrupt):
        run.main(["6.1 of Debian 12", "6.12 of Debian 13", "newest of sid"])
    assert capsys.readouterr().out == f"6.1 of Debian 12: {NFT['contract']}: why | so\n"
    after = json.loads(results.read_text("utf-8"))
    assert [name for name in before if after.pop(name) != before[name]] == ["6.1 of Debian 12"]
    assert after == {}
    assert "- 6.1 of Debian 12 (iptables-nft): no: nothing could be tried; **failed**: contract\n" in page.read_text("utf-8")


@pytest.mark.parametrize(("words", "said"), [(["5.10"], "'5.10' is no place; "), (["--simulator", "6.1 without xt_owner"], "is no place with --simulator; ")])
def test_a_name_that_is_no_place_is_refused_and_nothing_is_asked(monkeypatch, capsys, words, said):
    monkeypatch.setattr(run, "find_obstacle", lambda programs: None)
    monkeypatch.setattr(run, "ask", lambda *_: pytest.fail("it asked"))
    assert run.main(words) == 1
    assert said in capsys.readouterr().out


def refusal(said, code=1):
    return {"backend": "iptables-nft", "options": "REDIRECT", "code": code, "said": said}


def test_rules_that_give_way_to_a_kernel_do_not_fail_where_doctor_names_what_it_lacks():
    missing = {"IPv4": {"nat": {"works": True}, "mark": {"works": True}, "socket": {"works": False}}}
    assert summaries.complaints(told(without=["nft_socket"], features=missing, ends=[refusal("", code=0)])) == []


def test_without_address_sets_nothing_has_to_fail():
    assert summaries.complaints(told(without=["ip_set"], ends=[refusal("", code=0)])) == []


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
        ({"name": "6.1", "without": ["xt_owner"], "answer": answer(ends=[refusal("", code=0)])}, "6.1: nothing failed, and doctor misses nothing, without xt_owner"),
    ],
)
def test_what_is_wrong_is_a_complaint(place, words):
    assert summaries.complaints(place) == [words]


def test_a_place_where_all_is_well_and_one_whose_error_names_what_is_missing_have_no_complaint():
    assert summaries.complaints({"name": "6.1", "without": [], "answer": answer(outcome="passed")}) == []
    assert summaries.complaints({"name": "6.1", "without": ["xt_owner"], "answer": answer(ends=[refusal("load xt_owner")])}) == []


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


GOLDENS_ROW = next(name for name, tests in chosen.ARM64.items() if tests == [chosen.GOLDENS])
RANDOMLY = next(name for name, test in chosen.ASSUMPTIONS.items() if test == chosen.RANDOM)


def held(*ends, connections=0):
    """An answer whose test of random connections ended so, once for each backend."""
    tests = [{"test": f"{chosen.RANDOM}[{number}]", "outcome": end, "reason": "", "connections": connections} for number, end in enumerate(ends)]
    return answer() | {"facts": dict.fromkeys(("kernel", "iptables", "nft", "ipset", "python"), "6.1"), "tests": tests}


@pytest.mark.parametrize(("ends", "held_to"), [(("passed", "passed"), "passed"), (("passed", "skipped"), "skipped"), (("failed", "passed"), "failed")])
def test_an_assumption_is_held_where_each_of_its_tests_passed(ends, held_to):
    place = {"name": "a", "answer": held(*ends, connections=250)}
    assert summaries.summarize(place)["simulator"] == {RANDOMLY: {"outcome": held_to, "kernel": "6.1", "connections": 500}}
    page = page_of(place)
    (row,) = re.findall(rf"^\| {re.escape(RANDOMLY)} \|.*$", page, re.MULTILINE)
    assert row.endswith("| 6.1 |  |" if held_to == "passed" else f"| none | **{held_to}**: 6.1 |")
    assert "\n- 500 random connections: 6.1 (a)\n" in page
    assert page.count("| none | **not tried**: 6.1 |") == len(chosen.ASSUMPTIONS) - 1


def test_the_page_says_what_the_results_say():
    assert (ROOT / "docs" / "kernels.md").read_text("utf-8") == table.render(json.loads(run.RESULTS.read_text("utf-8")), run.ARM64)


def test_the_results_are_of_places_that_are_asked_in_their_order():
    named = list(json.loads(run.RESULTS.read_text("utf-8")))
    assert named == [name for name in (*run.PLACES, run.ARM64) if name in named]


def test_every_row_has_as_many_cells_as_its_head():
    page = page_of(told("6.1", outcome="skipped"), told("6.2", failure="a | b"))
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


def recorded(**sums):
    """The answer of a machine whose tests recorded these sums for goldens with a backend."""
    tests = [{"test": f"{test}[nftables]", "outcome": "passed", "reason": "", "sums": json.dumps(sums.get(key, {"a": "1"}))} for key, test in summaries.ALIKE.items()]
    return answer() | {"facts": dict.fromkeys(("kernel", "iptables", "nft", "ipset", "python"), "1"), "tests": tests}


@pytest.mark.parametrize("key", summaries.ALIKE)
@pytest.mark.parametrize(
    ("sums", "said", "differing"),
    [
        ({"a": "1", "b": "2"}, "2 of 2 equal", []),
        ({"a": "1", "b": "3"}, "**1 of 2 differ**", ["b"]),
        ({"a": "1"}, "**1 of 2 differ**", ["b"]),
        ({}, "**2 of 2 differ**", ["a", "b"]),
    ],
)
def test_what_two_machines_do_not_do_alike_for_a_golden_is_a_complaint_and_stands_on_the_page(key, sums, said, differing):
    there, here = recorded(**{key: sums}), recorded(**{key: {"a": "1", "b": "2"}})
    found = summaries.complain_of_goldens(there, here)
    assert [(summaries.ALIKE[key] in line, line.rpartition(": ")[2]) for line in found] == [(True, ", ".join(differing))] * bool(differing)
    page = table.render_arm64(summaries.summarize_arm64(there, here))
    assert re.search(rf"^\| {re.escape(table.COMPARED[key])}, .* \| {re.escape(said)} \|$", page, re.MULTILINE)
    assert page.count(" equal |") == len(summaries.ALIKE) - bool(differing)


@pytest.mark.parametrize("key", summaries.ALIKE)
def test_that_nothing_was_compared_is_a_complaint(key):
    nothing = recorded(**{key: {}})
    assert summaries.complain_of_goldens(nothing, nothing) == [f"{summaries.ALIKE[key]}: nothing was compared"]


def test_the_row_of_a_group_of_tests_says_how_they_ended():
    (name, (test,)) = next((name, tests) for name, tests in chosen.ARM64.items() if len(tests) == 1)
    tests = [{"test": f"{test}::test_{end}[{number}]", "outcome": end, "reason": "a | b"} for end in ("passed", "failed", "skipped") for number in (1, 2)]
    page = table.render_arm64(summaries.summarize_arm64(recorded() | {"tests": tests}, recorded()))
    assert f"| {name} | 2 passed, 2 **failed**, 2 skipped (a \\| b) |" in page
    assert table.render_arm64(summaries.summarize_arm64(answer(), answer())).count("| not tried |") == len(chosen.ARM64)
    assert table.render_arm64({}) == ""


def test_every_module_that_doctor_names_for_a_feature_has_the_options_that_build_it():
    named = {module for feature in FEATURES for module in feature.modules.replace(";", " ").split()}
    assert named <= systems.BUILT_BY.keys()
    assert {module for one in systems.SYSTEMS for module in one.lacks or ()} <= systems.BUILT_BY.keys()


def test_a_configuration_lacks_the_modules_of_which_no_option_is_built():
    options = {options[-1] for options in systems.BUILT_BY.values()}
    whole = "".join(f"CONFIG_{option}=m\n" for option in options)
    assert systems.find_lacking(whole) == []
    for said in ("# CONFIG_NFT_SOCKET is not set\n", "", "CONFIG_NFT_SOCKET=n\n"):
        assert systems.find_lacking(whole.replace("CONFIG_NFT_SOCKET=m\n", said)) == ["nft_socket"]
    assert systems.find_lacking(whole.replace("=m", "=y")) == []


def test_each_system_has_its_rig_or_its_reason():
    for one in systems.SYSTEMS:
        assert bool(one.tried) != (systems.name_rig(one) in run.KERNELS), one.name


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


def test_the_executable_is_linked_by_the_commands_of_its_image():
    recipe = built.read_recipe(built.DOCKERFILE.read_text("utf-8"))
    assert recipe.python.startswith("python3.")
    assert {"libc6-dev", f"lib{recipe.python}-dev", f"lib{recipe.python}-stdlib", "zlib1g-dev"} <= {*recipe.packages}
    for part in ("netinit/bin/executable.py", "netinit/bin/executable.c", "-static", "-T order.ld", "_dl_open", *built.PACKAGES):
        assert part in recipe.commands
    assert "WORKDIR" not in recipe.commands, "what follows is of the image's other files"


@pytest.mark.parametrize("part", ["ARG PYTHON=", "AS executable", "ENV PARTS=", "WORKDIR /build/executable\n"])
def test_a_dockerfile_that_does_not_say_how_the_executable_is_linked_is_refused(part):
    text = built.DOCKERFILE.read_text("utf-8")
    assert part in text
    with pytest.raises(RuntimeError, match="stage `executable` does not say how it is linked"):
        built.read_recipe(text.replace(part, "X"))
