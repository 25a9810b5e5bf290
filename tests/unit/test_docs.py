"""README and docs/ as texts: links lead somewhere, blocks parse, nothing is left out of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from netinit.cli import reference

ROOT = Path(__file__).parents[2]
PAGES = reference.find_pages(ROOT)
RIDDLES = (
    r"\btells\b", r"\btold\b", r"stands? for every", r"decides? alike", r"comes? out to the letter", r"\boffends?\b",
    r"\bspare[sd]?\b", r"\bapart\b",
)  # fmt: skip
LINK = re.compile(r"\]\((?!https?://)([^)\s#]*)(?:#([^)\s]+))?\)")


def written(page):
    """What people wrote on the page, without code."""
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", reference.remove_parts(page.read_text("utf-8")), flags=re.DOTALL | re.MULTILINE)


def anchors(page):
    """The anchors of a page's headings, as GitHub and mkdocs make them of plain ones."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings_that_exist(page):
    broken = []
    for target, anchor in LINK.findall(page.read_text("utf-8")):
        path = (page.parent / target).resolve() if target else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            broken.append(f"{target}{'#' if anchor else ''}{anchor}")
    assert not broken, f"{page.name}: {', '.join(broken)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_nobody_has_to_guess_what_a_sentence_means(page):
    found = [match[0] for riddle in RIDDLES for match in re.finditer(riddle, written(page), re.IGNORECASE)]
    assert not found, f"{page.name}: {', '.join(found)}"


def test_the_readme_is_read_in_three_minutes():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 150


def test_the_readme_and_the_overview_lead_to_every_page():
    text = (ROOT / "README.md").read_text("utf-8") + (ROOT / "mkdocs.yml").read_text("utf-8")
    missing = [page.name for page in PAGES if page.name not in text and page.parent.name == "docs"]
    assert not missing, f"neither README.md nor the navigation in mkdocs.yml names {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_yaml_blocks_parse(page):
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        assert yaml.safe_load(block), block


def test_every_make_target_that_is_named_exists():
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    code = re.findall(r"`[^`\n]*`", text) + re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    named = set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join(code)))
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "docs"} <= named
    assert named <= there
