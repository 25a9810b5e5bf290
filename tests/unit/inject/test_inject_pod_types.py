"""What a template renders must fit the types of the API: told here, and not by the server."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import inject_pod, load_config
from netinit.inject.adding.kubernetes_types import misfits


@pytest.mark.parametrize(
    ("field", "value", "wanted"),
    [
        ("image", 5, "image is 5 and must be a text"),
        ("args", ["-p", 15001], r"args\[1\] is 15001 and must be a text"),
        ("args", "x", "args is 'x' and must be a list"),
        ("env", [{"name": "A", "value": True}], r"env\[0\].value is True and must be a text"),
        ("volumeMounts", [{"mountPath": 1}], r"volumeMounts\[0\].mountPath is 1 and must be a text"),
        ("volumeMounts", [{"readOnly": "yes"}], r"volumeMounts\[0\].readOnly is 'yes' and must be true or false"),
        ("readinessProbe", {"initialDelaySeconds": 4294967295}, "initialDelaySeconds is 4294967295 and must be a whole number"),
        ("readinessProbe", {"periodSeconds": "5"}, "periodSeconds is '5' and must be a whole number"),
        ("readinessProbe", {"httpGet": {"port": True}}, "port is True and must be a whole number"),
        ("ports", [{"containerPort": 1.5}], "containerPort is 1.5 and must be a whole number"),
        ("securityContext", [], r"securityContext is \[\] and must be a mapping"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path(field, value, wanted):
    template = "spec: " + json.dumps({"containers": [{"name": "istio-proxy", field: value}]})
    with pytest.raises(InjectionError, match=rf"template 'sidecar': spec\.containers\[0\]\.{field}.*must be"):
        inject_pod({"metadata": {}, "spec": {}}, load_config({"templates": {"sidecar": template}}))
    (said,) = misfits({"spec": {"containers": [{field: value}]}})
    assert wanted.replace("\\", "") in said


@pytest.mark.parametrize(
    "container",
    [
        {"readinessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 5.0}},
        {"livenessProbe": {"initialDelaySeconds": 2147483647}},
        {"securityContext": {"runAsUser": 2**40, "privileged": None}},
        {"futureField": [1, {"a": 5}], "resources": {"limits": {"cpu": 1}}},
        {"env": [{"name": "A", "valueFrom": {"x": 1}}]},
    ],
)
def test_what_fits_and_what_is_not_known_passes(container):
    assert list(misfits({"spec": {"containers": [container]}})) == []


def test_labels_and_annotations_are_maps_of_texts():
    assert list(misfits({"metadata": {"labels": {"a": 1}, "annotations": {"b": None, "c": "x"}}})) == [
        "metadata.labels.a is 1 and must be a text: put it in quotes"
    ]


def test_every_field_of_a_pod_is_checked():
    spec = {"tolerations": [{"tolerationSeconds": "300"}], "volumes": [{"projected": {"sources": {}}}]}
    assert list(misfits({"spec": spec})) == [
        f"spec.tolerations[0].tolerationSeconds is '300' and must be a whole number from {-(2**63)} to {2**63 - 1}",
        "spec.volumes[0].projected.sources is {} and must be a list",
    ]
