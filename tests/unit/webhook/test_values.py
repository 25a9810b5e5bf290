"""Values beside the chart's schema, without Helm: the same judgement as a validator of JSON Schema, in words of ours."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.errors import ConfigError
from netinit.cli.webhook.manifests import CHART, objects
from netinit.golang import goyaml
from netinit.inject.adding.values import merge_values
from netinit.installation.chart import KEYWORDS, find_problems
from sweeps import together

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = goyaml.load((CHART / "values.yaml").read_text())
WORDS = st.sampled_from(["", "a", "A_b", "a-b", "Fail", "5s", "1h30m", "/x", "50%", "default:debug", "current", "SYS_ADMIN", "k=v:NoSchedule", "true"])
LEAVES = st.none() | st.booleans() | st.integers(-2, 70) | WORDS
TREES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(WORDS, LEAVES, max_size=3)


def places(schema, path=()):
    """The path of every value that the schema knows."""
    yield path
    for key, one in schema.get("properties", {}).items():
        yield from places(one, (*path, key))


def words(schema):
    """Every keyword of the schema."""
    yield from schema
    nested = [*schema.get("properties", {}).values(), *schema.get("anyOf", ()), schema.get("items", {}), schema.get("additionalProperties", {})]
    for one in nested:
        if isinstance(one, dict) and one:
            yield from words(one)


def changed(path, value):
    for key in reversed(path):
        value = {key: value}
    return merge_values(VALUES, value) if isinstance(value, dict) else value


def test_every_word_of_the_schema_is_understood():
    assert set(words(SCHEMA)) <= KEYWORDS


def test_the_charts_own_values_are_what_it_asks_for():
    assert list(find_problems(VALUES, SCHEMA)) == []


@given(st.sampled_from([*places(SCHEMA)]), TREES)
def test_the_judgement_is_that_of_json_schema(path, value):
    jsonschema = pytest.importorskip("jsonschema")
    tree = changed(path, value)
    wrong = list(find_problems(tree, SCHEMA))
    assert bool(wrong) is not jsonschema.Draft7Validator(SCHEMA).is_valid(tree), wrong


@together(
    ("word", "said"),
    [
        ("replicas=two", '"replicas": "two" must be a whole number'),
        ("replicas=0", '"replicas": 0 must be from 1 to 50'),
        ("image=5", '"image": 5 must be a mapping'),
        ("image.repository=", '"image.repository": it must not be empty'),
        ("tags={a,a}", '"tags": ["a", "a"] has one of them twice'),
        ("tags=prod", '"tags": "prod" must be a list: KEY={a,b}'),
        ("tags={default}", "tags: they are further names of the revision"),
        ("webhook.flavour=new", '"webhook.flavour": "new" is not one of current, classic, kubesphere'),
        ("webhook.timeoutSeconds=5.5", '"webhook.timeoutSeconds": "5.5" must be a whole number'),
        ("webhook.excludedNamespaces={a b}", '"webhook.excludedNamespaces.0": "a b" does not match'),
        ("certificate.secret=", '"certificate.secret": "" does not match'),
        ("certificate.mode=certManager", "certificate.issuer: cert-manager needs one"),
        ("logLevel=loud", '"logLevel": "loud" does not match'),
        ("disruptionBudget.minAvailable=half", '"disruptionBudget.minAvailable": "half" is not of an allowed type'),
        ("autoscaling.enabled=true,autoscaling.minReplicas=9", "autoscaling.minReplicas: it is more than autoscaling.maxReplicas"),
        ("node.startupTaint=a:Never", '"node.startupTaint": "a:Never" does not match'),
        ("node.tolerations={all}", '"node.tolerations.0": "all" must be a mapping'),
    ],
)
def test_what_would_break_the_installation_is_told_before(word, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        objects("mesh", "netinit", (), (word,))


def test_what_gave_a_value_that_is_wrong_is_named(tmp_path):
    (tmp_path / "own.yaml").write_text("replicas: 0\nlogLevel: loud\n")
    with pytest.raises(ConfigError) as caught:
        objects("mesh", "netinit", (str(tmp_path / "own.yaml"),), ("image.repository=",))
    lines = str(caught.value).splitlines()
    assert [line.partition(': "')[0] for line in lines] == [str(tmp_path / "own.yaml")] * 2 + ["--set"]
