"""The page about kernels: what answers become cells, and that nothing which failed looks like a success."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import chosen
import table

ROOT = Path(__file__).parents[2]
NFT = chosen.CHOSEN["iptables-nft"]


def answer(*, outcomes=(), features=None, failure=None, ends=()):
    """An answer whose contract tests on iptables-nft ended so."""
    tests = [{"test": name, "outcome": outcome, "reason": "why | so"} for name, outcome in zip(NFT["contract"], outcomes, strict=False)]
    checked = {"works": not failure, "failure": failure, "features": features or {}}
    facts = dict.fromkeys(("kernel", "iptables", "nft", "ipset", "python"), "1")
    return {"facts": facts, "tests": tests, "doctor": {"feature_checks": {"iptables-nft": checked}}, "apply": list(ends)}


@pytest.mark.parametrize(
    ("outcomes", "cell"),
    [
        (("passed", "passed"), "2 of 2"),
        (("passed", "failed"), "**1 of 2**"),
        (("passed", "skipped"), "1 of 1"),
        (("skipped", "skipped"), "skipped: why \\| so"),
        (("failed",), "**0 of 1**"),
        ((), "–"),
    ],
)
def test_a_cell_counts_what_passed_of_what_ran(outcomes, cell):
    assert table.verdict(answer(outcomes=outcomes), "iptables-nft", "contract") == cell


def test_the_doctors_cell_names_what_the_kernel_lacks():
    features = {"IPv4": {"nat": {"works": True}, "owner": {"works": False}}, "IPv6": {"nat": {"works": True}, "owner": {"works": False}}}
    assert table.examined(answer(features=features), "iptables-nft") == "2 of 4; not owner"
    assert table.examined(answer(features={"IPv4": {"nat": None}}), "iptables-nft") == "1 of 1"
    assert table.examined(answer(failure="no nf_tables"), "iptables-nft") == "no: no nf_tables"
    assert table.examined(answer(), "libiptc") == "not tried"


def test_apply_that_failed_stands_on_the_page_with_its_last_line_and_one_that_succeeded_does_not():
    said = "2026\tinfo\tfirst\n2026\terror\tthis kernel has no owner match\n"
    ends = [
        {"backend": "iptables-nft", "options": "REDIRECT", "code": 1, "said": said},
        {"backend": "iptables-nft", "options": "TPROXY and DNS", "code": 1, "said": said},
        {"backend": "nftables", "options": "REDIRECT", "code": 0, "said": ""},
        {"backend": "libiptc", "options": "REDIRECT", "code": None, "said": ""},
    ]
    assert list(table.failures_of({"name": "6.1", "answer": answer(ends=ends)})) == [
        ("6.1", "iptables-nft", "REDIRECT, TPROXY and DNS", "1: this kernel has no owner match"),
        ("6.1", "libiptc", "REDIRECT", "None: it printed nothing"),
    ]


def test_a_place_that_gave_no_answer_is_a_row_that_says_so():
    page = table.render([{"name": "6.1", "failure": "the machine\nhangs"}, {"name": "6.2", "answer": answer(outcomes=["failed"])}])
    assert "| 6.1 | none | no answer: the machine hangs |" in page
    assert "| 6.2 | iptables-nft |" in page
    assert table.failed_tests([{"name": "6.2", "answer": answer(outcomes=["failed"])}]) == [("6.2", NFT["contract"][0], "why | so")]


def test_every_row_has_as_many_cells_as_its_head():
    page = table.render([{"name": "6.1", "answer": answer(outcomes=["skipped"])}, {"name": "6.2", "failure": "a | b"}])
    for block in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in block.splitlines()}) == 1, block


def test_messages_become_one_short_line_that_is_no_markup():
    assert table.shorten("a\n b | <c> *d*") == "a b \\| &lt;c> \\*d\\*"
    assert len(table.shorten("x" * 900)) == table.MOST + 1


def test_every_chosen_test_exists():
    for name in chosen.tests("all"):
        path, _, rest = name.partition("::")
        assert f"def {rest.partition('[')[0]}(" in (ROOT / path).read_text(), name


def test_with_an_emulated_processor_every_feature_of_every_variant_is_still_asked():
    short = set(chosen.tests("short"))
    assert short < set(chosen.tests("all"))
    for backend, features in chosen.CHOSEN.items():
        for feature, names in features.items():
            assert short & set(names), f"{backend}: {feature}"
