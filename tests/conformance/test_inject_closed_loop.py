"""The loop closed: a pod is injected, its init container's arguments run in a network namespace, the kernel obeys."""

from __future__ import annotations

import sys

import pytest

from inject_data import CLASSIC, CURRENT, DATA
from lab_state import list_rules
from laboratory import start_servers
from netinit.golang import goyaml
from netinit.inject import inject_pod, load_config
from netinit.inject.deciding.containers import find
from netinit.lab import APP_ID, PROXY_ID

pytestmark = pytest.mark.netns

POD = """
metadata:
  name: web
  labels: {app: web}
  annotations:
    traffic.sidecar.istio.io/excludeOutboundPorts: "443"
spec:
  containers:
  - {name: web, image: "web:1", ports: [{containerPort: 80}]}
"""


def istio(folder, name):
    if not DATA.is_dir():
        pytest.skip("no conformance data; NETINIT_CONFORMANCE names it")
    return (folder / name).read_text()


def configuration(name):
    if name == "ours":
        return load_config()
    if name == "current":
        folder = CURRENT / "settings" / "default"
        return load_config(
            istio(folder, "config.yaml"), values=istio(folder, "values.json"), mesh=istio(folder, "mesh.yaml")
        )
    return load_config(istio(CLASSIC, "istio-sidecar-injector.configmap.yaml"))


def start(pod, container):
    """The init container as a kubelet would start it, but for the image: arguments and environment alone."""
    environment = {item["name"]: item["value"] for item in container.get("env", [])}
    return pod.run(
        [sys.executable, "-m", "netinit", *container["args"]],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", **environment},
    )


@pytest.mark.parametrize("name", ["ours", "current", "classic"])
def test_the_rules_of_an_injected_pod_are_those_that_its_annotations_ask_for(pod, name):
    injected = inject_pod(goyaml.load(POD), configuration(name))
    container = find(injected["spec"]["initContainers"], "istio-init")
    done = start(pod, container)
    assert done.returncode == 0, done.stderr
    rules = list_rules(pod, "iptables-nft-save")
    assert "-j REDIRECT --to-ports 15001" in rules
    assert f"-m owner --uid-owner {PROXY_ID} -j RETURN" in rules
    servers = start_servers(pod)
    app = {"uid": APP_ID, "gid": APP_ID}
    outside = "10.77.0.1"
    assert pod.connect(outside, 80, **app).server == "proxy", "the application's traffic goes to the proxy"
    assert pod.connect(outside, 80, uid=PROXY_ID, gid=PROXY_ID).server == "outside", "the proxy's own does not"
    excluded = "proxy" if name == "classic" else "outside"  # 1.0 knows no such annotation
    assert pod.connect(outside, 443, **app).server == excluded
    assert pod.client.connect(pod.address, 80).server == "proxy", "inbound traffic goes to the proxy"
    assert set(servers) == {"app", "proxy", "outside"}


def test_running_it_twice_changes_nothing(pod):
    injected = inject_pod(goyaml.load(POD), load_config())
    container = find(injected["spec"]["initContainers"], "istio-init")
    assert start(pod, container).returncode == 0
    before = list_rules(pod, "iptables-nft-save")
    assert start(pod, container).returncode == 0
    assert list_rules(pod, "iptables-nft-save") == before
