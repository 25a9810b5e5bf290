"""The recording on the first page: it plays what the commands print, for those who want motion, and loads nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import recording
from netinit.cli import start

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SVG = "{http://www.w3.org/2000/svg}"


def read_text(name):
    """All that the picture shows, without the breaks of its lines."""
    return "".join("".join(text.itertext()) for text in ET.fromstring((PICTURES / name).read_text("utf-8")).iter(f"{SVG}text"))


@pytest.mark.parametrize("name", recording.PICTURES)
def test_the_explanation_that_it_shows_is_the_one_that_the_command_prints(name, capsys):
    words = recording.COMMANDS[1].replace("'", "").split()
    assert start.run(words, {}) == 0
    printed = "".join(capsys.readouterr().out.splitlines())
    assert read_text(name).endswith(f"$ {recording.COMMANDS[1]}{printed}"), "`make recording` renews it"


@pytest.mark.parametrize("name", ["demo.svg", "demo-phone.svg", "path.svg", "path-phone.svg"])
def test_a_picture_of_the_first_page_loads_nothing_and_has_a_text_for_those_who_do_not_see_it(name):
    text = (PICTURES / name).read_text("utf-8")
    root = ET.fromstring(text)
    assert root.get("aria-label") or root.findtext(f"{SVG}title")
    assert not re.search(r"<(?:script|image|use|foreignObject)|href=|@import|url\((?!#)", text)


@pytest.mark.parametrize("name", recording.PICTURES)
def test_who_wants_no_motion_sees_the_end(name):
    text = (PICTURES / name).read_text("utf-8")
    still, moving = text.split("@media (prefers-reduced-motion: no-preference)")
    assert "animation" not in still
    assert moving.count("infinite") == 2
    rows = len(ET.fromstring(text).findall(f".//{SVG}g/{SVG}text"))
    assert int(re.search(r"\.cover \{ transform: translateY\((\d+)px\)", still)[1]) >= recording.HEIGHT * rows, "nothing is covered"


def test_lines_break_behind_a_word_and_keep_their_colours_and_letters():
    parts = recording.read_parts("\x1b[32m✔\x1b[0m all is well")
    assert parts == [("✔", "good"), (" all is well", "")]
    assert recording.wrap(parts, 7) == [(("✔", "good"), (" all ", "")), (("is well", ""),)]
    assert recording.wrap([("  --a-long-flag x", "")], 8) == [(("  --a-lo", ""),), (("ng-flag ", ""),), (("x", ""),)]
    assert recording.wrap([], 5) == [()]
    with pytest.raises(KeyError):
        recording.read_parts("\x1b[35mx\x1b[0m")


def test_what_a_command_prints_is_text_in_the_picture():
    picture = ET.fromstring(recording.render({"x": "<b>&\n"}, 20, 3))
    assert ["".join(text.itertext()) for text in picture.iter(f"{SVG}text")] == ["$ x", "<b>&"]
