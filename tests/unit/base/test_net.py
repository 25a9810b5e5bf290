"""Networks and ports as intervals."""

from __future__ import annotations

import pytest

from core import Network
from netinit.base.net import covers


@pytest.mark.parametrize(("wide", "narrow", "does"), [
    ("10.0.0.0/8", "10.1.0.0/16", True),
    ("10.0.0.0/8", "10.0.0.0/8", True),
    ("10.1.0.0/16", "10.0.0.0/8", False),
    ("10.0.0.0/8", "11.0.0.0/8", False),
    ("0.0.0.0/0", "fd00::1/128", False),
    ("::/0", "10.0.0.0/8", False),
])  # fmt: skip
def test_a_network_covers_those_of_its_family_that_lie_in_it(wide, narrow, does):
    assert covers(Network.parse(wide), Network.parse(narrow)) is does
