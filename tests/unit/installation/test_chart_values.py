"""Values of the chart and how they are checked: the whole message for each keyword of the schema, and --set."""

from __future__ import annotations

import pytest

from netinit.base.errors import ConfigError
from netinit.installation.chart import find_problems, set_value

SCHEMA = {
    "type": "object", "additionalProperties": False,
    "properties": {
        "replicas": {"type": "integer", "minimum": 1, "maximum": 50}, "least": {"type": "integer", "minimum": 1},
        "most": {"type": "integer", "maximum": 9}, "flavour": {"enum": ["current", "classic"]},
        "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]*$"},
        "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
        "enabled": {"type": "boolean"}, "either": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "%$"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}, "any": {"type": "object"},
    },
}  # fmt: skip
KNOWN = ", ".join(SCHEMA["properties"])


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ([], ['the values: "[]" must be a mapping']),
        ({"replicas": 0}, ['"replicas": 0 must be from 1 to 50']), ({"replicas": 51}, ['"replicas": 51 must be from 1 to 50']),
        ({"replicas": 1}, []), ({"replicas": 50}, []), ({"replicas": True}, ['"replicas": "True" must be a whole number']),
        ({"least": 0}, ['"least": 0 must be from 1 to any']), ({"most": 10}, ['"most": 10 must be from any to 9']),
        ({"flavour": "new"}, ['"flavour": "new" is not one of current, classic']), ({"flavour": "classic"}, []),
        ({"name": ""}, ['"name": it must not be empty']), ({"name": "A"}, ['"name": "A" does not match ^[a-z]*$']),
        ({"name": 5}, ['"name": "5" must be a text']), ({"enabled": "true"}, ['"enabled": "true" must be true or false']),
        ({"tags": {}}, ['"tags": "{}" must be a list']), ({"tags": ["a", 1]}, ['"tags.1": "1" must be a text']),
        ({"tags": ["a", "a"]}, ['"tags": "[\'a\', \'a\']" has one of them twice']),
        ({"either": 5}, []), ({"either": "50%"}, []), ({"either": "50"}, ['"either": "50" is not of an allowed type']),
        ({"labels": {"a": 1, "b": "c"}}, ['"labels.a": "1" must be a text']), ({"any": {"a": {"b": 1}}}, []),
        ({"replica": 1}, ['"replica" is not a value of the chart; did you mean replicas?']),
        ({"zzzzzz": 1}, [f'"zzzzzz" is not a value of the chart; it has {KNOWN}']),
        ({"replicas": 0, "name": ""}, ['"replicas": 0 must be from 1 to 50', '"name": it must not be empty']),
    ],
)  # fmt: skip
def test_a_value_that_the_schema_does_not_allow_is_named_with_what_it_allows(value, problems):
    assert list(find_problems(value, SCHEMA)) == problems


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a=1", {"a": 1}), ("a.b.c=x", {"a": {"b": {"c": "x"}}}), ("a=", {"a": ""}), ("a=b=c", {"a": "b=c"}), ("a=[1, 2]", {"a": [1, 2]}),
        ("a=true", {"a": True}),
    ],
)  # fmt: skip
def test_a_value_is_yaml_behind_its_path(text, tree):
    assert set_value(text) == tree


@pytest.mark.parametrize("text", ["a", "", "=1", "a..b=1", ".a=1", "a.=1"])
def test_a_value_without_a_path_is_refused(text):
    with pytest.raises(ConfigError) as error:
        set_value(text)
    assert str(error.value) == f'--set: "{text}" is not KEY=VALUE, such as webhook.failurePolicy=Ignore'


def test_a_value_that_is_not_yaml_is_refused_with_its_path():
    with pytest.raises(ConfigError) as error:
        set_value("a.b=[")
    assert str(error.value).startswith('--set: the value of "a.b" is not YAML: ')
