"""The addresses of the documentation: those of this version, below the site's own."""

from __future__ import annotations

import re
from pathlib import Path

import netinit
from netinit.base.documentation import SITE, address_of

ROOT = Path(__file__).parents[3]
PATH = re.compile(r"\bdocs/[a-z/-]+\.md\b")
OF_PEOPLE = ("*.json", "*.yaml", "*.html", "*.tsv", "*.txt")


def test_an_address_has_the_version_the_page_and_the_anchor():
    assert address_of("findings", "ni106") == f"{SITE}/{netinit.__version__}/findings.html#ni106"


def test_the_site_is_that_of_the_built_documentation():
    (site,) = re.findall(r"^site_url: (\S+)", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert site == f"{SITE}/"


def test_each_code_has_its_place_on_the_page():
    from netinit.questions.finding_codes import all_kinds

    page = (ROOT / "docs" / "findings.md").read_text()
    assert [code for code in all_kinds() if f"\n### {code}\n" not in page] == []


def test_nothing_that_a_package_prints_names_a_page_of_a_checkout():
    files = [*(ROOT / "netinit" / "data").rglob("*"), *(ROOT / "netinit" / "cli").rglob("*.py"), *(ROOT / "netinit" / "kubectl").rglob("*.py")]
    assert [file.name for file in files if file.is_file() and PATH.search(file.read_text("utf-8"))] == []
