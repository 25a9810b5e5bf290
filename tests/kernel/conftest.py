"""A pod with those who answer in it and beyond, for each dialect of the rules."""

from __future__ import annotations

import pytest
from attempts import DIALECTS, make_pod

from programming import needs


@pytest.fixture(params=DIALECTS, scope="module")
def dialect(request):
    needs(request.param)
    return request.param


@pytest.fixture
def pod(dialect):
    with make_pod() as made:
        yield made
