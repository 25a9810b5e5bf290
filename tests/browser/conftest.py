"""The browser of a test module, and where the documentation was built."""

from __future__ import annotations

import pytest

import chromium


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = chromium.Chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
