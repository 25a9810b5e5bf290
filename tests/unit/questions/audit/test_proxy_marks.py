"""Packets with the mark that TPROXY sets are the proxy's own where no other container may set marks."""

import json

import pytest

from netinit.library.audit import audit
from sweeps import together

QUIET = {"allowPrivilegeEscalation": False, "runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}


def pod(tmp_path, *contexts):
    """A file with a pod that asks for injection with TPROXY, a container for each security context."""
    tree = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "app", "namespace": "shop", "labels": {"sidecar.istio.io/inject": "true"},
            "annotations": {"sidecar.istio.io/interceptionMode": "TPROXY"},
        },
        "spec": {"containers": [{"name": f"c{number}", "image": "i", "securityContext": one} for number, one in enumerate(contexts)]},
    }  # fmt: skip
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(tree))
    return str(file)


def kinds(file):
    (one,) = audit(pod=file).pods
    return {found.kind.name: found.kind.intent for found in one.traffic}


@pytest.mark.parametrize("contexts", [(QUIET,), (QUIET, QUIET)], ids=["one container", "two"])
def test_an_untouched_pod_whose_containers_may_set_no_marks_has_no_bypass_of_its_configuration(contexts, tmp_path):
    found = kinds(pod(tmp_path, *contexts))
    assert not {"mark", "configuration"} & {*found, *found.values()}, found
    assert found["proxy"] == "design"


@together("context", [{}, {"privileged": True}, {"capabilities": {"add": ["NET_ADMIN"]}}, {"capabilities": {"drop": ["NET_ADMIN"]}}])
def test_a_container_that_may_set_marks_is_a_bypass_of_the_configuration(context, tmp_path):
    assert kinds(pod(tmp_path, QUIET, context))["mark"] == "configuration"
