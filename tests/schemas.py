"""Answers in JSON held against the schemas that are published with them."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

import netinit

DATA = Path(netinit.__file__).parent / "data"


@functools.cache
def _validator(name):
    """What judges trees by a schema, itself judged once: that takes longer than most trees."""
    judge = pytest.importorskip("jsonschema").Draft202012Validator
    schema = json.loads((DATA / f"{name}.schema.json").read_text())
    judge.check_schema(schema)
    return judge(schema)


def check_schema(tree, name):
    """Fails where a tree is not as the schema of this name says."""
    _validator(name).validate(tree)
