"""README and docs/ as texts: links lead somewhere, blocks parse, nothing is left out of the site."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

import reference
from netinit.cli import commands, group
from netinit.kubectl.why import command as why
from netinit.questions.finding_codes import grouped
from sweeps import together

ROOT = Path(__file__).parents[2]
PAGES = reference.find_pages(ROOT)
RIDDLES = (
    r"\btells?\b", r"\btold\b", r"\bspell(s|ed|ing)?\b", r"\b(some|no)body\b", r"\bwhoever\b", r"the same, (and|but)", r"\balike\b",
    r"\bbecomes? of\b", r"stands? for every", r"comes? out to the letter", r"\boffends?\b", r"\bspare[sd]?\b", r"\bapart\b",
)  # fmt: skip
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?\)")


def written(page):
    """What people wrote on the page, without code."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", reference.PART.sub("", page.read_text("utf-8")), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """The anchors of a page's headings, as GitHub and mkdocs make them of plain ones."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@together("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_exist(page):
    broken = []
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(f"{target}{'#' if anchor else ''}{anchor}")
    assert not broken, f"{page.name}: {', '.join(broken)}"


@together("page", PAGES, ids=lambda page: page.name)
def test_nobody_has_to_guess_what_a_sentence_means(page):
    found = [match[0] for riddle in RIDDLES for match in re.finditer(riddle, written(page), re.IGNORECASE)]
    assert not found, f"{page.name}: {', '.join(found)}"


def test_the_readme_is_read_in_three_minutes():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120


def find_linked(page):
    """The pages that a page links to."""
    return {path for target, _ in LINK.findall(page.read_text("utf-8")) if (path := (page.parent / target).resolve()) in PAGES}


def test_links_lead_from_the_overview_to_every_page_in_two_steps():
    reached = {index := ROOT / "docs" / "index.md"} | find_linked(index)
    reached |= {page for step in reached for page in find_linked(step)}
    missing = {page.name for page in PAGES if page.parent.name in {"docs", "commands"}} - {page.name for page in reached}
    assert not missing, f"no link leads from index.md to {', '.join(sorted(missing))}"


@pytest.mark.parametrize("name", ["README.md", "docs/quickstart.md", "docs/install.md"])
def test_the_first_command_of_a_newcomer_is_an_installation(name):
    first = re.search(r"^```sh\n(.*?)^```", (ROOT / name).read_text("utf-8"), re.DOTALL | re.MULTILINE)[1]
    assert first == "pipx install netinit\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_for_users_begins_with_a_build(page):
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    assert page.name == "CONTRIBUTING.md" or not [block for block in blocks if block.startswith("make ")]


def test_the_navigation_has_every_page():
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    pages = [str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")]
    missing = [page for page in pages if f" {page}\n" not in navigation]
    assert not missing, f"the navigation in mkdocs.yml does not name {', '.join(missing)}"


def test_the_architecture_names_every_room_and_none_that_is_not_there():
    rooms = {path.name for path in (ROOT / "netinit").iterdir() if (path / "__init__.py").exists()}
    items = re.findall(r"^- `([a-z]+)/`", (ROOT / "docs" / "architecture.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(items) == sorted(rooms)


@together("page", PAGES, ids=lambda page: page.name)
def test_yaml_blocks_parse(page):
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        assert yaml.safe_load(block), block


@together("page", PAGES, ids=lambda page: page.name)
def test_commands_in_a_sentence_have_the_flags_that_it_says(page):
    """Blocks are run (tests/netns/test_docs.py); what stands in a sentence is often a part of a command alone."""
    wrong = []
    for words in [code.split() for code in re.findall(r"`netinit ([a-z][^`\n]*)`", reference.PART.sub("", page.read_text("utf-8")))]:
        name = commands.ALIASES.get(words[0], words[0])
        command = group.root.get_command(click.Context(group.root), name)
        if isinstance(command, click.Group) and len(words) > 1:
            command = command.get_command(click.Context(command), words[1])
        known = {option for param in command.params for option in param.opts} | {"--help"} if command else set()
        wrong += [" ".join(words)] if not {word for word in words if word.startswith("-")} - {"-"} <= known or not command else []
    assert not wrong, f"{page.name}: netinit has no {'; '.join(wrong)}"


def test_every_make_target_that_is_named_exists():
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    code = re.findall(r"`[^`\n]*`", text) + re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join(code)))
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "docs"} <= named
    assert named <= there


@together("page", PAGES, ids=lambda page: page.name)
def test_no_page_is_a_few_lines_alone(page):
    lines = [line for line in page.read_text("utf-8").splitlines() if line.strip() and not line.startswith(("#", "<!--"))]
    assert len(lines) > 5, page.name


# --- troubleshooting ---

SYMPTOMS = (ROOT / "docs" / "troubleshooting.md").read_text("utf-8")
SEARCHED = ("CrashLoopBackOff", "connection refused", "connection reset", "timeout", "ndots", "NXDOMAIN", "headless", "503", "never ends", "Probes fail", "metrics")


def test_each_cause_that_why_can_name_stands_in_the_tables_of_symptoms():
    rows = [line for line in SYMPTOMS.splitlines() if line.startswith("| ")]
    causes = [kind.code for group in ("Listeners", "Causes") for kind in grouped()[group]]
    missing = [code for code in causes if code != "NI309" and not any(re.search(rf"\b{code}\b", row) for row in rows)]
    assert not missing, ", ".join(missing)


def test_each_command_of_the_tables_of_symptoms_is_one():
    commands = re.findall(r"`kubectl netinit why ([^`]*)`", SYMPTOMS)
    assert len(commands) > 20
    for words in commands:
        with why.make_context("why", words.split()) as context:
            assert context.params["named"], words


def test_what_people_search_for_stands_in_a_heading_and_leads_to_the_tables():
    headings = " ".join(re.findall("^##? (.*)$", SYMPTOMS, re.MULTILINE)).lower()
    missing = [word for word in SEARCHED if word.lower() not in headings]
    assert not missing, ", ".join(missing)
    assert "excludeOutboundPorts" in SYMPTOMS


@pytest.mark.parametrize("name", ["troubleshooting.md", "kubernetes.md"])
def test_commands_for_operators_need_no_checkout(name):
    text = (ROOT / "docs" / name).read_text("utf-8")
    commands = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE) + re.findall(r"`([^`\n]*)`", text)
    assert not [line for line in commands if re.search(r"(?<!/)\bexamples/", line)]
