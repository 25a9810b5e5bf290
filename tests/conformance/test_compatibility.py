"""docs/compatibility.md: each release since 1.0 has a row with every column, and with NETINIT_ISTIO it is what the sources say."""

from __future__ import annotations

import os
import re

import pytest

import compatibility
from istio_cases import Istio

COLUMNS = 7
FOLDER = os.environ.get("NETINIT_ISTIO")
needs_istio = pytest.mark.skipif(not FOLDER, reason="NETINIT_ISTIO names no git directory of Istio")
SAMPLE = (1, 8, 12, 30)  # a release of each kind of source, and the newest


def rows():
    lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in compatibility.PAGE.read_text("utf-8").splitlines()]
    return {cells[0].strip(): [cell.strip() for cell in cells] for cells in lines if cells and re.fullmatch(r" 1\.\d+\.\d+ ", cells[0])}


def test_every_minor_release_has_a_row_whose_cases_add_up():
    found = rows()
    assert [int(tag.split(".")[1]) for tag in found] == list(range(len(found)))
    assert len(found) > 30
    for tag, cells in found.items():
        assert len(cells) == COLUMNS, tag
        assert all(cells), tag
        counted = [int(number) for number in re.findall(r"(\d+) (?:equal|proved equal|differ)", cells[3])]
        assert sum(counted) == int(cells[2]) > 0, tag


@needs_istio
@pytest.mark.netns
@pytest.mark.parametrize("minor", SAMPLE)
def test_a_row_is_what_the_sources_of_the_release_say(require_netns, minor):
    istio = Istio(FOLDER)
    (row,) = compatibility.write_rows([compatibility.read_release(istio, minor)])[2:]
    cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
    assert cells == rows()[istio.releases[minor]]
