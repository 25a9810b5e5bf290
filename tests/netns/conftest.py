"""Everything in this folder runs in network namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = f"{Path(__file__).parent}/"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if str(item.path).startswith(HERE):
            item.add_marker("netns")


@pytest.fixture
def judged_by_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether rules are in force among foreign ones, apply() does not ask: it takes as long as all else that it does.

    For tests of something else, most of which ask verify() once. test_apply_checks.py and test_situations.py are about what apply() finds.
    """
    monkeypatch.setattr("netinit.pods.apply._judge", lambda *_: ((), ()))
