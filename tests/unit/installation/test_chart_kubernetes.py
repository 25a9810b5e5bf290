"""The chart's objects against the OpenAPI schemas of Kubernetes' releases, which allow no field that a release does not have."""

from __future__ import annotations

import importlib.resources
import json

import pytest

from chart_places import BEYOND, OPERATORS
from netinit.cli.webhook.manifests import objects
from netinit.inject.adding.values import merge_values
from sweeps import choose

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed: pip install kubernetes-validate")
RELEASES = sorted(
    (path.name.removeprefix("v").removesuffix("-local-strict") for path in (importlib.resources.files(kubernetes_validate) / "kubernetes-json-schema").iterdir() if path.name.endswith("-strict")),
    key=lambda text: [int(part) for part in text.split(".")],
)
OTHERS = {"cert-manager.io/v1", "monitoring.coreos.com/v1"}  # kinds of others, which Kubernetes' schemas lack
VALUES = ({}, {"node": {"enabled": True}}, BEYOND, OPERATORS, merge_values({**BEYOND, "certificate": {}}, OPERATORS))


SUPPORTED = [text for text in RELEASES if [int(part) for part in text.split(".")] >= [1, 27]]


@pytest.mark.parametrize("release", choose([SUPPORTED[0], *SUPPORTED[3:-1:4], SUPPORTED[-1]], SUPPORTED))
def test_a_release_of_kubernetes_takes_every_object(release, tmp_path):
    is_before_policies = [int(part) for part in release.split(".")] < [1, 30]
    for values in VALUES:
        (tmp_path / "values.json").write_text(json.dumps(values))
        for tree in objects("mesh", "netinit", (str(tmp_path / "values.json"),)):
            if tree["apiVersion"] not in OTHERS and not (tree["kind"].startswith("ValidatingAdmission") and is_before_policies):
                kubernetes_validate.validate(tree, release.rpartition(".")[0], strict=True)


def test_a_field_that_kubernetes_does_not_have_is_refused():
    tree = next(tree for tree in objects("mesh", "netinit") if tree["kind"] == "Deployment")
    tree["spec"]["template"]["spec"]["containers"][0]["privileged"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(tree, RELEASES[-1].rpartition(".")[0], strict=True)
