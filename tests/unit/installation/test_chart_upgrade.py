"""Values of earlier releases: an upgrade by Helm brings them to today's chart."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from helm import CHART, HELM, needs_helm
from netinit.cli.webhook.manifests import objects

RELEASES = sorted((Path(__file__).parents[2] / "golden" / "chart").glob("values-*.yaml"))
IMAGES = ("image.repository=registry.test/mesh/netinit-webhook", "node.image.repository=registry.test/mesh/netinit-node")


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
@pytest.mark.parametrize("node", ["true", "false"])
def test_today_s_chart_takes_every_value_of_an_earlier_release(release, node):
    trees = objects("netinit-system", "netinit", (str(release),), (*IMAGES, f"node.enabled={node}"))
    assert ("DaemonSet" in {tree["kind"] for tree in trees}) == (node == "true")


@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_the_objects_that_cannot_change_keep_their_names_and_selectors(release):
    given = (*IMAGES, "node.enabled=true")
    assert fixed(objects("netinit-system", "netinit", (str(release),), given)) == FIXED


def fixed(trees):
    """What Kubernetes lets nobody change, so that an upgrade with another would be refused."""
    return {tree["kind"]: (tree["metadata"]["name"], tree["spec"]["selector"]["matchLabels"]) for tree in trees if tree["kind"] in FIXED}


FIXED = {
    "Deployment": ("netinit-webhook", {"app.kubernetes.io/name": "netinit-webhook", "app.kubernetes.io/instance": "netinit", "istio.io/rev": "default"}),
    "DaemonSet": ("netinit-node", {"app.kubernetes.io/name": "netinit-node", "app.kubernetes.io/instance": "netinit"}),
}


@needs_helm
@pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.stem)
def test_helm_s_reuse_values_is_refused_before_anything_changes_and_the_message_is_in_the_docs(release, tmp_path):
    """With that option the installed chart's defaults take the place of those of the new one."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    shutil.copy(release, chart / "values.yaml")
    done = subprocess.run([HELM, "template", "netinit", chart, "--set", IMAGES[0]], capture_output=True, text=True, check=False, env={**os.environ, "HOME": str(tmp_path)})
    message = "(root): fullnameOverride is required"
    assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    assert f"`{message}`" in (Path(__file__).parents[3] / "docs" / "webhook.md").read_text()
