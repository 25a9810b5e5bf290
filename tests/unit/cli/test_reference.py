"""The generated parts of the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

import reference
from netinit.cli import commands
from netinit.options import FLAGS

ROOT = Path(__file__).parents[3]
PAGES = reference.find_pages(ROOT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_generated_parts_of_a_page_are_what_the_program_says_now(page, monkeypatch):
    monkeypatch.chdir(ROOT)  # commands name files of the checkout
    text = page.read_text("utf-8")
    assert reference.renew(text) == text, f"{page.name} is stale; at the top of the checkout run: python tests/reference.py"


def test_every_kind_of_part_is_in_the_documentation():
    found = {part["what"] for page in PAGES for part in reference.PART.finditer(page.read_text("utf-8"))}
    assert {"options", "commands", "command apply", "output", "findings", "functions", "flags of kuma"} <= found


def test_the_lists_have_every_option_once_with_its_names():
    items = [line for line in reference.render_options().splitlines() if line.startswith("- ")]
    assert len(items) == len(FLAGS)
    for flag in FLAGS:
        (item,) = [item for item in items if f"`{flag.label}`" in item.split(": ")[0]]
        assert all(f"`{name}`" in item for name in reference.list_names(flag)), item


def test_names_are_left_out_where_they_follow_from_the_flag():
    flags = {flag.long: reference.list_names(flag) for flag in FLAGS}
    assert flags["log-rules"] == ()
    assert flags["istio-inbound-ports"] == ("ISTIO_INBOUND_PORTS", "inbound_ports")
    assert flags["host-probe-address"] == ("NETINIT_HOST_PROBE_ADDRESS", "host_probe_addresses")


def test_every_command_has_a_page_with_its_own_options_alone():
    assert {page.stem for page in (ROOT / "docs" / "commands").glob("*.md")} == set(commands.COMMANDS)
    text = reference.render_command("verify")
    assert "`--live`" in text
    assert "--istio-inbound-ports" not in text
    assert "[all options of the rules](../options.md)" in text


def test_a_page_of_a_group_has_an_item_for_each_of_its_commands_and_shared_options_once():
    text = reference.render_command("kubectl")
    assert "- `verify`: Compare a pod's live rules" in text
    assert text.count("`--agent-namespace`") == 1


def test_only_what_stands_between_the_comments_is_renewed():
    text = "before\n```sh\nnetinit version\n```\n<!-- output -->\nold\n<!-- end -->\nafter\n"
    made = reference.renew(text)
    printed = reference.print_output("netinit version")
    assert made == f"before\n```sh\nnetinit version\n```\n<!-- output -->\n\n```text\n{printed}```\n\n<!-- end -->\nafter\n"
    assert reference.renew(made) == made
    assert reference.PART.sub("", made) == "before\n```sh\nnetinit version\n```\n\nafter\n"


def test_an_output_may_be_the_beginning_alone():
    block = "```sh\nnetinit draw -b '*' --ipv6 off  # a drawing\n```\n"
    made = reference.renew(f"{block}<!-- output, 2 lines -->\n<!-- end -->\n")
    lines = made.removeprefix(block).splitlines()
    assert lines[2] == "```text"
    assert lines[5:] == ["```", "", "<!-- end -->"]


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("<!-- output -->\n<!-- end -->\n", "no shell block"),
        ("```sh\nls\n```\n<!-- output -->\n<!-- end -->\n", "'ls' is not a command of netinit"),
        ("```sh\nnetinit lint -b 80 -d 8080 --strict\n```\n<!-- output -->\n<!-- end -->\n", "ends with 1"),
    ],
)
def test_an_output_that_cannot_be_made_is_an_error(page, problem):
    with pytest.raises(ValueError, match=problem):
        reference.renew(page)


def test_a_stale_page_is_renewed(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "CONTRIBUTING.md").write_text("nothing generated\n")
    (tmp_path / "README.md").write_text("```sh\nnetinit version\n```\n<!-- output -->\nold\n<!-- end -->\n")
    (tmp_path / reference.VALUES).parent.mkdir(parents=True)
    assert reference.main(tmp_path) == [tmp_path / "README.md", *made(tmp_path)]
    assert "old" not in (tmp_path / "README.md").read_text()
    assert not reference.main(tmp_path)


def made(root):
    return [root / name for name in (reference.SCHEMA, reference.COMPLETION, reference.VALUES)]


def test_what_completion_reads_is_what_the_commands_have_now():
    text = (ROOT / reference.COMPLETION).read_text("utf-8")
    assert reference.render_completion() == text, "at the top of the checkout run: python tests/reference.py"
    rows = [line.split("\t") for line in text.splitlines()]
    assert {len(row) for row in rows} == {4}
    assert {row[0] for row in rows} >= {*commands.COMMANDS, "node status", "webhook serve", "kubectl check"}


def test_a_stale_schema_is_renewed(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("README.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("nothing generated\n")
    schema = tmp_path / reference.SCHEMA
    (tmp_path / reference.VALUES).parent.mkdir(parents=True)
    schema.write_text("{}")
    assert reference.main(tmp_path) == made(tmp_path)
    assert not reference.main(tmp_path)
