"""`netinit verify --pod` names a difference by what the pod's author wrote."""

from __future__ import annotations

from programming import run_tool

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {sidecar.istio.io/inject: "true"}, annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "8200"}}
spec: {containers: [{name: app, image: a}]}
"""


def test_a_missing_rule_is_named_by_the_annotation_that_asks_for_it(pod, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD)
    assert run_tool(pod, "apply", "-b", "*", "-i", "*", "-d", "15020,15021,15090", "-e", "0").returncode == 0
    done = run_tool(pod, "verify", "--pod", str(tmp_path / "pod.yaml"))
    missing = [line for line in done.stdout.splitlines() if line.startswith("missing: ")]
    assert (done.returncode, bool(missing)) == (3, True), done
    assert all(line.endswith("; annotation traffic.sidecar.istio.io/excludeOutboundPorts)") for line in missing), missing
