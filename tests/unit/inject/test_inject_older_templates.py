"""What templates of older Istio releases use, and newer ones do not."""

from __future__ import annotations

import pytest

from netinit.base.errors import InjectionError
from netinit.inject import inject_pod, load_config

LIMIT, REQUEST = "sidecar.istio.io/proxyCPULimit", "sidecar.istio.io/proxyCPU"


def printed(action, *, annotations=None, concurrency=None, values=None):
    """What an action prints for a pod."""
    config = load_config(
        {"templates": {"sidecar": f"metadata: {{annotations: {{printed: '{action}'}}}}"}, "defaultTemplates": ["sidecar"]},
        values=values or {}, mesh={"defaultConfig": {} if concurrency is None else {"concurrency": concurrency}},
    )  # fmt: skip
    pod = {"metadata": {"name": "web", "annotations": annotations or {}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    return inject_pod(pod, config)["metadata"]["annotations"]["printed"]


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ({}, "2"),
        ({"concurrency": 5}, "5"),
        ({"concurrency": 0}, "2"),
        ({"concurrency": 0, "annotations": {LIMIT: "2500m", REQUEST: "100m"}}, "3"),
        ({"concurrency": 0, "annotations": {REQUEST: "4"}}, "4"),
        ({"annotations": {LIMIT: "7"}}, "2"),
        ({"concurrency": 0, "values": {"global": {"proxy": {"resources": {"limits": {"cpu": "6500m"}}}}}}, "7"),
        ({"concurrency": 0, "values": {"global": {"proxy": {"resources": {"requests": {"cpu": "100m"}}}}}}, "1"),
    ],
)
def test_the_estimated_concurrency_is_istios(given, number):
    assert printed("{{ .EstimatedConcurrency }}", **given) == number


def test_a_name_without_an_action_renders_to_itself_and_another_is_refused():
    assert printed("{{ render `svc.cluster.local` }}") == "svc.cluster.local"
    with pytest.raises(InjectionError, match=r"render: .* has an action"):
        printed("{{ render `{{ .DeploymentMeta.Namespace }}.global` }}")
