"""Values of the chart and how they are checked: the whole message for each keyword of the schema, and --set."""

from __future__ import annotations

import pytest

from netinit.base.errors import ConfigError, OptionError
from netinit.cli.webhook.manifests import objects
from netinit.inject.adding.values import TextSetting
from netinit.installation.chart import find_problems

SCHEMA = {
    "type": "object", "additionalProperties": False,
    "properties": {
        "replicas": {"type": "integer", "minimum": 1, "maximum": 50}, "least": {"type": "integer", "minimum": 1},
        "most": {"type": "integer", "maximum": 9}, "flavour": {"enum": ["current", "classic"]}, "platform": {"enum": ["", "gke"]},
        "name": {"type": "string", "minLength": 1, "pattern": "^[a-z]*$"},
        "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}},
        "enabled": {"type": "boolean"}, "either": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "%$"}]},
        "amount": {"title": "a quantity, such as 1Gi", "anyOf": [{"type": "number"}, {"type": "string", "pattern": "^[0-9]+Gi$"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}, "any": {"type": "object"},
    },
}  # fmt: skip
KNOWN = ", ".join(SCHEMA["properties"])


@pytest.mark.parametrize(
    ("value", "problems"),
    [
        ([], ["the values: [] must be a mapping"]),
        ({"replicas": 0}, ['"replicas": 0 must be from 1 to 50']), ({"replicas": 51}, ['"replicas": 51 must be from 1 to 50']),
        ({"replicas": 1}, []), ({"replicas": 50}, []), ({"replicas": True}, ['"replicas": true must be a whole number']),
        ({"least": 0}, ['"least": 0 must be from 1 to any']), ({"most": 10}, ['"most": 10 must be from any to 9']),
        ({"flavour": "new"}, ['"flavour": "new" is not one of current, classic']), ({"flavour": "classic"}, []),
        ({"platform": "eks"}, ['"platform": "eks" is not one of "", gke']),
        ({"name": ""}, ['"name": it must not be empty']), ({"name": "A"}, ['"name": "A" does not match ^[a-z]*$']),
        ({"name": 5}, ['"name": 5 must be a text']), ({"enabled": "true"}, ['"enabled": "true" must be true or false']),
        ({"tags": {}}, ['"tags": {} must be a list']), ({"tags": ["a", 1]}, ['"tags.1": 1 must be a text']),
        ({"tags": ["a", "a"]}, ['"tags": ["a", "a"] has one of them twice']),
        ({"either": 5}, []), ({"either": "50%"}, []), ({"either": "50"}, ['"either": "50" is not of an allowed type']),
        ({"amount": 0.5}, []), ({"amount": "2Gi"}, []), ({"amount": True}, ['"amount": true must be a quantity, such as 1Gi']),
        ({"amount": "2GB"}, ['"amount": "2GB" must be a quantity, such as 1Gi']),
        ({"labels": {"a": 1, "b": "c"}}, ['"labels.a": 1 must be a text']), ({"any": {"a": {"b": 1}}}, []),
        ({"replica": 1}, ['"replica" is not a value of the chart; did you mean replicas?']),
        ({"zzzzzz": 1}, [f'"zzzzzz" is not a value of the chart; it has {KNOWN}']),
        ({"replicas": 0, "name": ""}, ['"replicas": 0 must be from 1 to 50', '"name": it must not be empty']),
    ],
)  # fmt: skip
def test_a_value_that_the_schema_does_not_allow_is_named_with_what_it_allows(value, problems):
    assert list(find_problems(value, SCHEMA)) == problems


WEBHOOK = ("image.repository=r/netinit-webhook", "initImage.repository=r/netinit")


def made(*given, files=()):
    trees = objects("mesh", "netinit", files, (*WEBHOOK, *given))
    return next(tree for tree in trees if tree["kind"] == "Deployment")["spec"]


def test_set_has_helms_grammar_here_too():
    spec = made("replicas=3,logLevel=all:debug", "imagePullSecrets[0].name=one", "imagePullSecrets[1].name=two", "podAnnotations.a\\.b=c\\,d")
    assert spec["replicas"] == 3
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "two"}]
    assert spec["template"]["metadata"]["annotations"]["a.b"] == "c,d"


def test_a_text_of_set_string_is_not_typed():
    texts = (TextSetting("podAnnotations.a=15,podAnnotations.b=true"), TextSetting("imagePullSecrets[0].name=7"))
    spec = made("podAnnotations.a=x", *texts)["template"]
    assert spec["metadata"]["annotations"]["a"] == "15"
    assert spec["metadata"]["annotations"]["b"] == "true"
    assert spec["spec"]["imagePullSecrets"] == [{"name": "7"}]
    with pytest.raises(OptionError, match='--set-string: "x": the key "x" has no value'):
        made(TextSetting("x"))


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n"])
def test_a_file_of_values_that_sets_nothing_is_taken_as_by_helm(text, tmp_path):
    (tmp_path / "values.yaml").write_text(text)
    assert made(files=(str(tmp_path / "values.yaml"),)) == made()


@pytest.mark.parametrize("values", ["resources.limits.memory=100mb", "node.resources.requests.cpu=half", "resources.limits.cpu=true"])
def test_what_is_no_quantity_is_refused_before_the_api_server_does(values):
    with pytest.raises(ConfigError, match="must be a quantity, such as 500m or 128Mi"):
        made("node.enabled=true", values)
    spec = made("resources.limits.memory=1.5Gi,resources.requests.cpu=0.5,resources.limits.cpu=1e3")
    assert spec["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"] == "1.5Gi"


@pytest.mark.parametrize("given", ["resources.limits=null", "resources={limits: null}"])
def test_null_removes_the_charts_value(given, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text("resources: {limits: null}\n")
    by_file = given.startswith("resources=")
    (container,) = made(*(() if by_file else (given,)), files=(str(file),) if by_file else ())["template"]["spec"]["containers"]
    assert "limits" not in container["resources"]
    assert container["resources"]["requests"]
    file.write_text("resources: {limits: null}\n")
    later = tmp_path / "later.yaml"
    later.write_text("replicas: 4\n")
    spec = made(files=(str(file), str(later)))
    assert "limits" not in spec["template"]["spec"]["containers"][0]["resources"], "a later file keeps the null of an earlier one"


def test_an_item_of_a_list_of_a_file_is_replaced(tmp_path):
    (tmp_path / "values.yaml").write_text("imagePullSecrets: [{name: one}, {name: two}]\n")
    spec = made("imagePullSecrets[1].name=three", files=(str(tmp_path / "values.yaml"),))
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "one"}, {"name": "three"}]
