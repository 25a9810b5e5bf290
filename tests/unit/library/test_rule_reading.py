"""Which options a live command takes for those of a pod, where none are given."""

from __future__ import annotations

import sys

import pytest

from netinit.inject.deciding.manifest_survey import read_pods
from netinit.library.rule_reading import find_known
from netinit.options import Options


@pytest.mark.parametrize("module", ["netinit.node", "netinit.node.pod_records"])
def test_an_image_without_the_agents_modules_has_no_record_of_the_agent(monkeypatch, module):
    for name in [one for one in sys.modules if one.startswith("netinit.node")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert find_known(Options())[0] is None
    assert find_known(Options(netns="/proc/self/ns/net"))[0] is None


@pytest.mark.parametrize(("annotations", "is_ambient"), [
    ("{}", False), ("{ambient.istio.io/redirection: disabled}", False), ("{ambient.istio.io/redirection: enabled}", True),
])  # fmt: skip
def test_a_pod_whose_annotation_says_so_has_the_options_of_an_ambient_agent(annotations, is_ambient):
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{annotations: {annotations}}}, spec: {{containers: [{{name: app}}]}}}}"
    (facts,) = read_pods([("pod.yaml", text)])
    assert facts.programmed_by == ("by an ambient agent" if is_ambient else "by a CNI plugin")
    assert (facts.options.layout == "ambient", facts.intercepted) == (is_ambient, is_ambient)
