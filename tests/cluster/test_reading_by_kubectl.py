"""kubectl, by which the executable reads the API, gives what netinit's own client gives, and the same refusals."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest

from netinit.base.errors import ClusterError
from netinit.installation import survey
from netinit.kube import one_request, reading
from netinit.kube.access import of_kubeconfig
from netinit.kube.by_kubectl import KubectlReader
from netinit.kube.resources import CONFIG_MAPS, NAMESPACES, PROXY_CONFIGS, Resource

NAME = "read-by-kubectl"


@pytest.fixture(scope="module")
def asks(plane):
    """What both are asked with: the client, and kubectl."""
    plane.namespace(NAME)
    kubeconfig = plane.folder / "admin.kubeconfig"
    program = plane.assets / "kubectl" if (plane.assets / "kubectl").exists() else Path(shutil.which("kubectl"))
    reader = KubectlReader(str(program), (f"--kubeconfig={kubeconfig}",), {"HOME": str(plane.folder)})
    return partial(one_request.ask_once, of_kubeconfig(kubeconfig)), reader.ask


def test_objects_and_lists_are_the_same(plane, asks):
    plane.create(f"/api/v1/namespaces/{NAME}/configmaps", {"metadata": {"name": "mesh"}, "data": {"mesh": "trustDomain: é\n"}})
    one, other = (ask(lambda client: client.get(CONFIG_MAPS, "mesh", NAME)) for ask in asks)
    assert one == other
    assert one["data"] == {"mesh": "trustDomain: é\n"}
    found, same = ([tree["metadata"]["name"] for tree in ask(lambda client: client.list(NAMESPACES, fields=f"metadata.name={NAME}"))[0]] for ask in asks)
    assert found == same == [NAME]


@pytest.mark.parametrize(("resource", "name"), [(CONFIG_MAPS, "absent"), (PROXY_CONFIGS, "any"), (Resource("v9", "No", "nos"), "x")])
def test_what_is_not_there_has_the_same_status(asks, resource, name):
    for ask in asks:
        with pytest.raises(ClusterError) as raised:
            ask(lambda client: client.get(resource, name, NAME))
        assert raised.value.status == 404


def test_the_survey_of_an_installation_is_the_same(plane, asks, monkeypatch, tmp_path):
    kubeconfig = str(plane.folder / "admin.kubeconfig")
    (tmp_path / "kubectl").symlink_to(asks[1].__self__.program)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    own = survey.survey("", kubeconfig)
    monkeypatch.setattr(reading, "EMBEDDED", True)
    assert survey.survey("", kubeconfig) == own
    assert own[0]


@pytest.mark.skipif("NETINIT_EXECUTABLE" not in os.environ, reason="NETINIT_EXECUTABLE does not name the executable")
def test_the_executable_injects_by_a_cluster_s_configuration(plane, asks, tmp_path):
    (tmp_path / "kubectl").symlink_to(asks[1].__self__.program)
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: app:1}]}\n")
    template = "policy: enabled\ntemplates:\n  sidecar: |\n    metadata: {annotations: {mesh: '{{ .MeshConfig.TrustDomain }}'}}\n"
    where = f"/api/v1/namespaces/{NAME}/configmaps"
    plane.create(where, {"metadata": {"name": "istio-sidecar-injector"}, "data": {"config": template, "values": "{}"}})
    plane.create(where, {"metadata": {"name": "istio"}, "data": {"mesh": "trustDomain: of-the-cluster"}})
    words = ["inject", "-f", str(tmp_path / "pod.yaml"), "--kubeconfig", str(plane.folder / "admin.kubeconfig"), "--istioNamespace", NAME]
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run([os.environ["NETINIT_EXECUTABLE"], *words], capture_output=True, text=True, env=environ, timeout=120, check=False)
    assert (done.returncode, "mesh: of-the-cluster" in done.stdout) == (0, True), done.stderr
