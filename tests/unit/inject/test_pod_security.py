"""Pods that their Namespace refuses once they are injected: Pod Security forbids what the init container needs."""

from __future__ import annotations

import pytest

from netinit.inject.deciding.pod_security import pod_security_findings

ENFORCE = "pod-security.kubernetes.io/enforce"
NAMESPACE = "---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled, LABEL}}\n"
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop}\nspec: {containers: [{name: app, image: a}]}\n"
BY_PLUGIN = ["--set", "pilot.cni.enabled=true"]


def injected(name="istio-init", add=("NET_ADMIN", "NET_RAW"), **spec):
    return {"spec": {"initContainers": [{"name": name, "securityContext": {"capabilities": {"add": list(add), "drop": ["ALL"]}}}], **spec}}


@pytest.mark.parametrize(("pod", "level", "added"), [
    (injected(), "restricted", "NET_ADMIN and NET_RAW"), (injected(), "baseline", "NET_ADMIN and NET_RAW"), (injected(add=["NET_ADMIN"]), "baseline", "NET_ADMIN"),
    (injected(), "privileged", ""), (injected(), "", ""), (injected(add=["CHOWN"]), "restricted", ""), (injected("istio-validation", ()), "restricted", ""),
    (injected("setup"), "restricted", ""), (injected(hostNetwork=True), "restricted", ""), ({"spec": {}}, "restricted", ""),
])  # fmt: skip
def test_what_the_level_of_the_namespace_forbids_is_named(pod, level, added):
    found = list(pod_security_findings(pod, "shop", {ENFORCE: level, "pod-security.kubernetes.io/warn": "restricted"}))
    assert [one.kind.code for one in found] == ["NI128"] * bool(added)
    assert all(f'enforces Pod Security {level}, which refuses the pod as it is injected: init container "istio-init" adds {added}; ' in str(one) for one in found)


@pytest.mark.parametrize(("label", "is_told"), [(f"{ENFORCE}: restricted", True), (f"{ENFORCE}: privileged", False), ("more: x", False)])
def test_lint_and_check_inject_say_so_where_the_namespace_is_known(run, tmp_path, label, is_told):
    file = tmp_path / "pod.yaml"
    file.write_text(POD + NAMESPACE.replace("LABEL", label))
    linted = run(["netinit", "lint", str(file)])
    assert (linted.code, f"{file}:3:12: warning NI128: Namespace" in linted.out) == (0, is_told)
    assert ("note: Namespace " in run(["netinit", "check-inject", "-f", str(file)]).out) is is_told
    config = tmp_path / "config.yaml"
    config.write_text("""
policy: enabled
templates:
  sidecar: |
    spec:
      initContainers: [{name: istio-init, image: i, args: [istio-iptables], securityContext: {capabilities: {add: [NET_ADMIN]}}}]
      containers: [{name: istio-proxy, image: p}]
""")
    given = run(["netinit", "lint", "--injectConfigFile", str(config), str(file)])
    assert (given.code, "error NI128" in given.out) == (int(is_told), is_told), "the injector is known: it will be refused"
