"""docs/compatibility.md is what compatibility.json says, and with NETINIT_ISTIO that is what the sources of the releases say."""

from __future__ import annotations

import json
import os

import pytest

import compatibility
from compatibility_page import DATA, NFT, PAGE, write_page
from istio_cases import Istio

FOLDER = os.environ.get("NETINIT_ISTIO")
needs_istio = pytest.mark.skipif(not FOLDER, reason="NETINIT_ISTIO names no git directory of Istio")
SAMPLE = (0, 1, 8, 12, 31)  # a release of each kind of source, the first, which refuses IPv6, and the newest
MOST_WORDS = 1800


def test_the_page_is_written_from_the_data_and_can_be_read():
    assert PAGE.read_text("utf-8") == write_page(json.loads(DATA.read_text("utf-8")))
    assert len(PAGE.read_text("utf-8").split()) <= MOST_WORDS


def test_every_minor_release_is_there_with_cases():
    releases = json.loads(DATA.read_text("utf-8"))["releases"]
    assert [one["minor"] for one in releases] == list(range(len(releases)))
    assert len(releases) > 30
    for one in releases:
        assert any(each["backend"] == NFT for each in one["compared"]), one["tag"]


@needs_istio
@pytest.mark.netns
@pytest.mark.parametrize("minor", SAMPLE)
def test_the_data_of_a_release_are_what_its_sources_say(require_netns, minor):
    assert compatibility.read_release(Istio(FOLDER), minor) == json.loads(DATA.read_text("utf-8"))["releases"][minor]
