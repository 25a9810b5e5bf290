"""What operators expect of a chart: labels, places, images by digest, variables and volumes of their own, each where it belongs."""

from __future__ import annotations

import json
import re

import pytest

from chart_places import BEYOND, OPERATORS, SCHEMA
from chart_values import is_group, render_table, render_values
from netinit.base.errors import ConfigError
from netinit.base.version import __version__
from netinit.cli.webhook.manifests import objects, read_chart
from netinit.inject.adding.values import merge_values

VALUES = merge_values({**BEYOND, "certificate": {}}, OPERATORS)


def made(values, tmp_path, name="netinit"):
    (tmp_path / "values.json").write_text(json.dumps(values))
    return objects("mesh", name, (str(tmp_path / "values.json"),))


def workloads(values, tmp_path):
    """The Deployment and the DaemonSet."""
    trees = made(values, tmp_path)
    return [next(tree for tree in trees if tree["kind"] == kind) for kind in ("Deployment", "DaemonSet")]


def test_labels_annotations_and_names_are_where_operators_look_for_them(tmp_path):
    trees = made(VALUES, tmp_path)
    assert [tree["metadata"]["name"] for tree in trees if not tree["metadata"]["name"].startswith("mesh-init-")] == []
    assert [tree for tree in trees if tree["metadata"]["labels"].get("team") != "mesh"] == []
    deployment, daemon_set = workloads(VALUES, tmp_path)
    for tree, tier, own in ((deployment, "control", {"d": "e"}), (daemon_set, "node", {"j": "k"})):
        assert tree["metadata"]["annotations"] == own
        labels = tree["spec"]["template"]["metadata"]["labels"]
        assert (labels["team"], labels["tier"], labels["sidecar.istio.io/inject"]) == ("mesh", tier, "false")
        assert tree["spec"]["selector"]["matchLabels"].items() <= labels.items()
        assert not {"team", "tier"} & tree["spec"]["selector"]["matchLabels"].keys(), "a selector cannot be changed later"
    accounts = [tree["metadata"]["annotations"] for tree in trees if tree["kind"] == "ServiceAccount"]
    assert accounts == [{"h": "i"}, {"l": "m"}]
    assert next(tree for tree in trees if tree["kind"] == "Service")["metadata"]["annotations"] == {"f": "g"}


def test_pods_are_placed_and_equipped_as_the_values_say(tmp_path):
    deployment, daemon_set = workloads(VALUES, tmp_path)
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert daemon_set["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert {tree["spec"]["revisionHistoryLimit"] for tree in (deployment, daemon_set)} == {3}
    webhook, node = (tree["spec"]["template"]["spec"] for tree in (deployment, daemon_set))
    assert webhook["affinity"] == OPERATORS["affinity"]
    (constraint,) = webhook["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchLabels"] == deployment["spec"]["selector"]["matchLabels"], "of the replicas, since it names none"
    assert (webhook["nodeSelector"], node["nodeSelector"]) == ({"pool": "system"}, {"pool": "apps", "kubernetes.io/os": "linux"})
    assert (webhook["priorityClassName"], "priorityClassName" in node) == ("high", False)
    assert (webhook["terminationGracePeriodSeconds"], node["terminationGracePeriodSeconds"]) == (60, 45)
    assert (webhook["securityContext"]["fsGroup"], webhook["securityContext"]["runAsNonRoot"]) == (7, True)
    for pod in (webhook, node):
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        (container,) = pod["containers"]
        assert container["env"][-1]["name"] == "HTTPS_PROXY"
        assert container["volumeMounts"][-1] == {"name": "more", "mountPath": "/more"}
        assert pod["volumes"][-1] == {"name": "more", "emptyDir": {}}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True, "what is given is laid over the chart's own"


def test_images_are_named_by_digest(tmp_path):
    trees = made(VALUES, tmp_path)
    images = [tree["spec"]["template"]["spec"]["containers"][0]["image"] for tree in trees if tree["kind"] in {"Deployment", "DaemonSet"}]
    assert images == [f"netinit-webhook@sha256:{'0' * 64}", f"netinit-node:v8@sha256:{'2' * 64}"]
    (values,) = [json.loads(tree["data"]["values"]) for tree in trees if "values" in tree.get("data", {})]
    assert values["global"]["proxy_init"]["image"] == f"netinit:v7@sha256:{'1' * 64}"
    deployment, daemon_set = workloads({"node": {"enabled": True}}, tmp_path)
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == f"netinit-webhook:{__version__}"
    assert daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] == f"netinit-node:{__version__}"


@pytest.mark.parametrize(("values", "said"), [
    ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "commonLabels: app.kubernetes.io/name is the chart's own label; remove it"),
    ({"podLabels": {"sidecar.istio.io/inject": "true"}}, "podLabels: sidecar.istio.io/inject is the chart's own label"),
    ({"node": {"podLabels": {"istio.io/dataplane-mode": "ambient"}}}, "node.podLabels: istio.io/dataplane-mode is the chart's own label"),
    ({"extraEnv": [{"name": "POD_NAMESPACE", "value": "x"}]}, "extraEnv: POD_NAMESPACE is the chart's own variable"),
    ({"node": {"extraEnv": [{"name": "NODE_NAME", "value": "x"}]}}, "node.extraEnv: NODE_NAME is the chart's own variable"),
    ({"node": {"extraVolumes": [{"name": "conf", "emptyDir": {}}]}}, "node.extraVolumes: conf is the name of a volume of the chart"),
    ({"revision": "r" * 60}, "is longer than 63 characters; shorten the revision, or set fullnameOverride"),
])  # fmt: skip
def test_what_is_the_charts_own_is_not_taken_from_values(values, said, tmp_path):
    with pytest.raises(ConfigError, match=re.escape(said)):
        made(values, tmp_path)


def test_every_name_that_the_checks_keep_is_one_that_the_chart_gives(tmp_path):
    trees = made(merge_values(BEYOND, {"certificate": {"mode": "secret", "issuer": None}}), tmp_path)
    pods = [tree["spec"]["template"] for tree in trees if tree["kind"] in {"Deployment", "DaemonSet"}]
    checks = read_chart()["templates/_names.tpl"]
    kept = {what: set(re.findall(r'"([^"]+)"', re.search(rf"\${what} := list (.*?) \}}\}}", checks)[1])) for what in ("own", "variables", "volumes")}
    labels = {key for tree in [*trees, *pods] for key in tree["metadata"]["labels"]}
    assert labels - {"grafana_dashboard"} == kept["own"]
    assert {one["name"] for pod in pods for one in pod["spec"]["containers"][0]["env"]} == kept["variables"]
    assert {one["name"] for pod in pods for one in pod["spec"]["volumes"]} == kept["volumes"]


def test_the_files_of_values_and_the_table_are_those_of_the_schema():
    assert read_chart()["values.yaml"] == render_values(), "run tests/reference.py"
    table = render_table()
    assert "| `node.image.digest` |  |" in table
    assert "| `webhook.timeoutSeconds` | `5` |" in table


def test_every_value_says_what_it_is():
    left = [((name,), one) for name, one in SCHEMA["properties"].items() if name != "global"]
    assert len(left) > 40
    for path, one in left:
        assert re.fullmatch(r"[A-Z`-].*\.", one["description"]), path
        if is_group(one):
            assert one["required"] == list(one["properties"]), f"{path}: null of one of them must be told"
            left += [((*path, name), below) for name, below in one["properties"].items()]
        else:
            assert "default" in one, path
