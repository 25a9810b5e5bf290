"""The page on differences from Istio has a row for each rule that netinit adds, and each row has its rules and its tests."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

import bypass_cooperation
import bypass_inbound
import bypass_outbound
import bypass_sockets
from core import FAMILIES, Options, plan, write_plan

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "differences.md").read_text()
TABLE = PAGE.partition("<!-- additional rules -->\n")[2].partition("<!-- end of additional rules -->")[0]
ROWS = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in TABLE.splitlines()[2:]]
EVERYTHING = ("-b", "*", "-i", "*", "-d", "15020")
DNS = ("--redirect-dns", "--capture-all-dns")
PLANS = (
    [*EVERYTHING, *DNS],
    [*EVERYTHING, *DNS, "-m", "TPROXY"],
    [*EVERYTHING, "-k", "net1", "--redirect-forwarded-dns", *DNS],
    [*EVERYTHING, "--layout", "classic"],
    [*EVERYTHING, "--layout", "classic", "-m", "TPROXY"],
    [*EVERYTHING, "--redirect-outbound-udp", "514:10514"],
    ["--layout", "ambient", "--redirect-dns", "-k", "net1"],
)  # fmt: skip


def patterns_of(cell: str) -> list[str]:
    """The rules that a cell names: `…` stands for anything, all else for itself."""
    return [re.sub(r"([\[*?])", r"[\1]", code).replace("…", "*") for code in re.findall(r"`([^`]+)`", cell)]


def rules_of(words: list[str]) -> set[str]:
    made = plan(Options.from_argv([*words, "--ipv6", "on"]))
    return {
        f"{table} {chain} {rule.text}"
        for family in FAMILIES for table, chains in write_plan(made, family).items() for chain, written in chains.items() for rule in written.rules
    }  # fmt: skip


def added_rules() -> set[str]:
    return {rule for words in PLANS for rule in rules_of(words) - rules_of([*words, "--istio-exact"])}


def test_each_additional_rule_is_in_the_table():
    known = [pattern for row in ROWS for pattern in patterns_of(row[0])]
    assert [rule for rule in added_rules() if not any(fnmatchcase(rule, pattern) for pattern in known)] == []


def test_each_row_of_the_table_is_of_rules_that_are_added():
    added = added_rules()
    assert len(ROWS) > 15
    assert [row[0] for row in ROWS for pattern in patterns_of(row[0]) if not any(fnmatchcase(rule, pattern) for rule in added)] == []


def test_each_cell_of_the_table_names_a_test_or_an_attempt_that_there_is():
    tests = {name for path in (ROOT / "tests" / "netns").glob("test_*.py") for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}
    modules = (bypass_cooperation, bypass_inbound, bypass_outbound, bypass_sockets)
    attempts = {one.what for module in modules for one in module.ATTEMPTS}
    for row in ROWS:
        assert len(row) == 3, row
        for cell in row[1:]:
            named, quoted = set(re.findall(r"`(test_\w+)`", cell)), set(re.findall(r'"([^"]+)"', cell))
            assert named <= tests, named - tests
            assert quoted <= attempts, quoted - attempts
            assert named or quoted or cell.startswith("nothing: "), f"no test: {cell}"
