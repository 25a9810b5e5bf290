"""Istio's cases of its CNI plugin: a pod's annotations, proxy and security context come to the same rules of the kernel."""

from __future__ import annotations

import json

import pytest

from laboratory import Pod
from netinit.base.net import FAMILIES
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from programming import VARIANTS, apply_in, listing, load, needs

pytestmark = pytest.mark.netns


def make_pod(case):
    proxy = {"name": "istio-proxy", "env": case["proxy_env"], "securityContext": case["proxy_security_context"]}
    return {
        "metadata": {"name": "pod", "namespace": "default", "annotations": case["annotations"]},
        "spec": {"containers": [{"name": "app"}, proxy]},
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_case_of_istios_plugin_is_equal_in_the_kernel(conformance, require_netns, variant):
    needs(variant)
    cases = [json.loads(path.read_text()) for path in sorted((conformance / "cni").glob("*.json"))]
    assert len(cases) >= 5
    for case in cases:
        addresses = ("10.77.0.2", "fd77::2") if case["ip6tables"] else ("10.77.0.2",)
        options = decide(read_pod(make_pod(case)), Options(backend=variant, istio_exact=True), addresses).options
        assert options is not None, case["name"]
        with Pod() as theirs, Pod() as ours:
            for family in FAMILIES:
                if case[family.program]:
                    load(theirs, variant, family, case[family.program])
            apply_in(ours, options)
            assert listing(ours, variant) == listing(theirs, variant), case["name"]
