"""Which options a live command takes for those of a pod, where none are given."""

from __future__ import annotations

import pytest

from netinit.inject.deciding.manifest_survey import read_pods
from netinit.library.rule_reading import find_known
from netinit.options import Options


def test_a_machine_without_an_agent_has_no_record_of_one(tmp_path, monkeypatch):
    monkeypatch.setattr("netinit.pods.attachments.USUAL_FOLDER", tmp_path / "run" / "attachments")
    assert find_known(Options())[0] is None
    assert find_known(Options(netns="/proc/self/ns/net"))[0] is None
    (tmp_path / "run").touch()
    assert find_known(Options(netns="/proc/self/ns/net"))[0] is None


@pytest.mark.parametrize(("annotations", "is_ambient"), [
    ("{}", False), ("{ambient.istio.io/redirection: disabled}", False), ("{ambient.istio.io/redirection: enabled}", True),
])  # fmt: skip
def test_a_pod_whose_annotation_says_so_has_the_options_of_an_ambient_agent(annotations, is_ambient):
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{annotations: {annotations}}}, spec: {{containers: [{{name: app}}]}}}}"
    (facts,) = read_pods([("pod.yaml", text)])
    assert facts.programmed_by == ("by an ambient agent" if is_ambient else "by a CNI plugin")
    assert (facts.options.layout == "ambient", facts.intercepted) == (is_ambient, is_ambient)
