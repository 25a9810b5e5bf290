"""Native sidecars by the nodes' versions; the cases are those of Istio's TestDetectNativeSidecar, and more."""

from __future__ import annotations

import pytest

from netinit.inject import Settings, inject_pod, load_config
from netinit.inject.adding.settings import Kubelets, runs_native_sidecars

CONFIG = load_config({"templates": {"sidecar": "metadata: {annotations: {out: '{{ .NativeSidecars }}'}}"}})


def node(name, version):
    return {"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}}}


@pytest.mark.parametrize(("version", "wanted"), [
    ("1.33.0", True), ("v1.33.0-alpha.1", True), ("v1.34.2+k3s1", True), ("v1.33-eks-1", True), ("v1.32.9", False), ("1.28.0", False), ("v1", False), ("", False), ("new", False), ("v1.33x", True),
])  # fmt: skip
def test_a_kubelets_version(version, wanted):
    assert runs_native_sidecars(node("a", version)) is wanted


@pytest.mark.parametrize(("versions", "wanted"), [(("1.33.0", "1.34.0"), True), (("1.28.0", "1.29.0"), False), (("1.33.0", "1.28.0"), False), (("",), False), ((), True)])
def test_all_nodes_decide_unless_the_pod_names_its_node(versions, wanted):
    kubelets = Kubelets.of(node(f"node-{number}", version) for number, version in enumerate(versions))
    assert kubelets.run_native_sidecars() is wanted
    for number, version in enumerate(versions):
        assert kubelets.run_native_sidecars(f"node-{number}") is (version in {"1.33.0", "1.34.0"})
    assert kubelets.run_native_sidecars("node-9") is wanted


def test_the_templates_are_told_and_the_settings_own_answer_does_not_count():
    for named, wanted in ((None, "false"), ("new", "true"), ("old", "false")):
        pod = {"metadata": {"name": "p"}, "spec": {"containers": [], **({"nodeName": named} if named else {})}}
        settings = Settings(native_sidecars=Kubelets.of([node("new", "1.34.0"), node("old", "1.32.0")]))
        assert inject_pod(pod, CONFIG, settings=settings)["metadata"]["annotations"]["out"] == wanted
