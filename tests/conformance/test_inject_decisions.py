"""Istio's own decision tables and its webhook truth table, row by row."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from inject_data import DATA, needs_data
from netinit.golang import goyaml
from netinit.inject.deciding.decision import decide
from netinit.inject.deciding.usual_webhooks import current_webhooks, firing
from netinit.inject.deciding.webhooks import Selector, parse_webhooks
from sweeps import together

pytestmark = [needs_data, pytest.mark.usefixtures("templates_parsed_once")]


def rows(name):
    path = DATA / name
    return json.loads(path.read_text()) if path.exists() else []


def selector(text):
    key, equals, value = text.partition("=")
    if equals:
        return Selector.parse({"matchLabels": {key: value}})
    return Selector.parse({"matchExpressions": [{"key": key, "operator": "Exists"}]})


DECISIONS = [
    pytest.param(row, dialect != "current", id=f"{dialect}-{number:02}-{row['name']}")
    for dialect in ("1.0", "1.1", "current")
    for number, row in enumerate(rows(f"decision-{dialect}.json"))
]


@together(("row", "classic"), DECISIONS)
def test_the_decision_is_that_of_istio(row, classic):
    pod = {
        "metadata": {"labels": row["labels"], "annotations": row["annotations"]},
        "spec": {"hostNetwork": row["hostNetwork"]},
    }
    config = SimpleNamespace(
        classic=classic,
        policy=row["policy"],
        never_inject_selectors=tuple(map(selector, row["neverInjectSelector"])),
        always_inject_selectors=tuple(map(selector, row["alwaysInjectSelector"])),
    )
    decision = decide(pod, row["namespace"], config)
    assert decision.inject == row["want"], f"{decision.step}: {decision.reason}"


CONFIGURATIONS = {
    "default": current_webhooks(),
    "default+enableNamespacesByDefault": current_webhooks(by_default=True),
    "rev=canary": current_webhooks("canary"),
}


def published():
    path = DATA / "webhook-selectors.yaml"
    if not path.exists():
        return {}
    return {tree["config"]: parse_webhooks(tree) for tree in goyaml.load_all(path.read_text())}


@together("number", range(len(rows("webhook-matrix.json"))))
def test_the_webhooks_that_fire_are_those_of_istio(number):
    row = rows("webhook-matrix.json")[number]
    for source in (CONFIGURATIONS, published()):
        fired = firing(source[row["config"]], row["namespace_labels"], row["pod_labels"])
        assert [webhook.short_name for webhook in fired] == row["webhooks"], row


def test_our_webhooks_are_those_that_istio_installs():
    for name, ours in CONFIGURATIONS.items():
        theirs = published()[name]
        assert [webhook.name for webhook in ours] == [webhook.name for webhook in theirs]
        for mine, other in zip(ours, theirs, strict=True):
            for kind in ("namespace_selector", "object_selector"):
                assert set(getattr(mine, kind).requirements) == set(getattr(other, kind).requirements), (
                    name,
                    mine.name,
                )
