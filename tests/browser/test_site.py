"""The documentation in Chromium, opened as files: no server, and no request to one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import chromium

pytestmark = chromium.NEEDS
HOME = Path(chromium.SITE or ".").absolute().as_uri()
PICTURES = {1280: ["path.svg", "demo.svg"], 420: ["path-phone.svg", "demo-phone.svg"]}
SEARCHES = {
    "excludeOutboundPorts": "annotations.html",
    "CrashLoopBackOff": "troubleshooting.html",
    "NI106": "findings.html",
}


@pytest.fixture(scope="module", autouse=True)
def no_request_leaves_the_folder(browser):
    yield
    assert not [address for address in browser.requests if address.partition(":")[0] not in ("file", "data", "blob", "about")]
    assert browser.errors == []


def is_wider_than_the_screen(browser):
    return browser.ask("document.documentElement.scrollWidth > innerWidth")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", PICTURES)
def test_the_first_page_shows_the_pictures_of_its_width(browser, width, dark):
    browser.open(f"{HOME}/index.html", width=width, dark=dark)
    browser.wait("[...document.images].every((image) => image.complete)")
    shown = browser.ask("[...document.images].map((image) => [image.currentSrc.split('/').pop(), image.naturalWidth > 0])")
    assert shown == [[name, True] for name in PICTURES[width]]
    assert not is_wider_than_the_screen(browser)


@pytest.mark.parametrize("width", PICTURES)
def test_what_a_command_prints_is_wrapped_and_not_cut(browser, width):
    browser.open(f"{HOME}/commands/explain.html", width=width)
    cut = "[...document.querySelectorAll('.language-text code')].map((code) => code.scrollWidth > code.clientWidth)"
    found = browser.ask(cut)
    assert found
    assert not any(found)
    assert not is_wider_than_the_screen(browser)


def test_a_page_leads_to_the_one_before_and_the_one_behind(browser):
    browser.open(f"{HOME}/commands/why.html")
    links = browser.ask("[...document.querySelectorAll('.md-footer__link')].map((link) => link.href.split('/').pop())")
    assert links == ["explain.html", "audit.html"]


@pytest.mark.parametrize("words", SEARCHES)
def test_the_search_finds_pages_in_a_folder(browser, words):
    browser.open(f"{HOME}/commands/draw.html")
    field = "document.querySelector('.md-search__input')"
    browser.ask(f"{field}.focus()")
    browser.type(words)
    browser.ask(f"{field}.dispatchEvent(new KeyboardEvent('keyup', {{bubbles: true}}))")
    found = "[...document.querySelectorAll('.md-search-result__item > a')].map((link) => link.href.split('/').pop().split('?')[0])"
    browser.wait(f"{found}.includes({json.dumps(SEARCHES[words])})")
