"""A real control plane on addresses of a network namespace of its own: etcd and kube-apiserver, nothing else.

There is no controller, kubelet or proxy: the tests play them where they must (Endpoints, replicas). The API server leads
calls of a Service to its endpoints itself (aggregator routing). `tests/node/kubelet.py` adds controllers and a kubelet.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from netinit.cli.webhook.manifests import objects
from netinit.webhook.certificates import make_pair
from webhook_server import make_client_pair

ROOT = Path(__file__).parents[2]
ADDRESSES = ("10.77.0.1", "10.77.0.2", "10.77.0.3")
NAMESPACE, NAME = "netinit-system", "netinit-webhook"
NATIVE_SIDECARS = 29  # the minor version from which on an init container may go on running
ADMIN, WEBHOOK = "admin-token", "webhook-token"
PORT, ETCD, PEER, API = 15017, 32379, 32380, 36443


def find_obstacle():
    """Why there can be no control plane here, or nothing."""
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if not named:
        return "KUBEBUILDER_ASSETS names no folder with kube-apiserver and etcd"
    missing = [name for name in ("kube-apiserver", "etcd") if not os.access(Path(named) / name, os.X_OK)]
    if missing:
        return f"KUBEBUILDER_ASSETS={named} has no {' and no '.join(missing)}"
    try:
        for address in ADDRESSES:
            with socket.socket() as probe:
                probe.bind((address, 0))
    except OSError:
        return f"the addresses {', '.join(ADDRESSES)} are not there: run `make cluster-test`, as root"
    return None


class ApiError(Exception):
    def __init__(self, status, told):
        super().__init__(f"{status}: {told.get('message', told)}")
        self.status = status
        self.message = told.get("message", "")


class ControlPlane:
    """etcd and kube-apiserver, by `with`; requests as the administrator."""

    bound = "127.0.0.1"
    disabled = ("ServiceAccount",)  # admission plugins: that one wants a controller
    enabled = ()  # those that an API server does not have by itself
    plugins = ()  # their configurations, beside that of webhooks
    asks_kubelets = False

    def __init__(self, folder):
        self.folder = Path(folder)
        self.assets = Path(os.environ["KUBEBUILDER_ASSETS"])
        self.pair = make_pair(("localhost",), now=time.time(), seconds=86400)
        self.processes = []
        self.named, self.commands = {}, {}  # the process of each name, and its command

    def __enter__(self):
        try:
            self.bring_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def bring_up(self):
        write = lambda name, text: (self.folder / name).write_text(text)  # noqa: E731
        write("ca.crt", self.pair.authority)
        write("tls.crt", self.pair.certificate)
        write("tls.key", self.pair.key)
        key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        write("accounts.key", key.decode())
        account = f"system:serviceaccount:{NAMESPACE}:{NAME}"
        groups = f"system:serviceaccounts,system:serviceaccounts:{NAMESPACE}"
        write("tokens.csv", f'{ADMIN},admin,1,"system:masters"\n{WEBHOOK},{account},2,"{groups}"\n')
        self.show_a_certificate_to_webhooks(write)
        for name, token in (("admin", ADMIN), ("webhook", WEBHOOK)):
            write(f"{name}.kubeconfig", json.dumps(self.kubeconfig(token)))
        self.start(
            "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", f"http://127.0.0.1:{ETCD}", "--advertise-client-urls",
            f"http://127.0.0.1:{ETCD}", "--listen-peer-urls", f"http://127.0.0.1:{PEER}", "--unsafe-no-fsync",
        )  # fmt: skip
        self.start(
            "kube-apiserver", "--etcd-servers", f"http://127.0.0.1:{ETCD}", "--secure-port", API, "--bind-address", self.bound,
            "--advertise-address", ADDRESSES[0], "--tls-cert-file", self.folder / "tls.crt", "--tls-private-key-file",
            self.folder / "tls.key", "--cert-dir", self.folder, "--token-auth-file", self.folder / "tokens.csv",
            "--authorization-mode", "RBAC", "--service-account-key-file", self.folder / "accounts.key",
            "--service-account-signing-key-file", self.folder / "accounts.key", "--service-account-issuer", "https://localhost",
            "--service-cluster-ip-range", "10.78.0.0/16", "--enable-aggregator-routing=true",
            "--allow-privileged=true", "--admission-control-config-file", self.folder / "admission.json",
            *(("--disable-admission-plugins", ",".join(self.disabled)) if self.disabled else ()),
            *(("--enable-admission-plugins", ",".join(self.enabled)) if self.enabled else ()),
            *(self.to_kubelets() if self.asks_kubelets else ()),
        )  # fmt: skip
        self.until(lambda: self.ask("GET", "/readyz", raw=True) == "ok", "the API server is ready", 120)
        self.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})

    def to_kubelets(self):
        """How the API server asks kubelets: by their addresses, for no name server knows these nodes."""
        key = ("--kubelet-client-certificate", self.folder / "tls.crt", "--kubelet-client-key", self.folder / "tls.key")
        return (*key, "--kubelet-preferred-address-types", "InternalIP")

    def show_a_certificate_to_webhooks(self, write):
        """The API server's admission configuration: the certificate that it has for ours, if it is asked for one."""
        user = {"client-certificate": str(self.folder / "caller.crt"), "client-key": str(self.folder / "caller.key")}
        callers = {"apiVersion": "v1", "kind": "Config", "users": [{"name": f"{NAME}.{NAMESPACE}.svc", "user": user}]}
        write("callers.kubeconfig", json.dumps(callers))
        group = "apiserver.config.k8s.io/v1"
        webhooks = {
            "apiVersion": group,
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(self.folder / "callers.kubeconfig"),
        }
        plugin = {"name": "MutatingAdmissionWebhook", "configuration": webhooks}
        write("admission.json", json.dumps({"apiVersion": group, "kind": "AdmissionConfiguration", "plugins": [plugin, *self.plugins]}))
        for name, text in zip(("caller.crt", "caller.key"), make_client_pair(), strict=True):
            write(name, text)

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()

    def kubeconfig(self, token, user=""):
        cluster = {"server": f"https://localhost:{API}", "certificate-authority": str(self.folder / "ca.crt")}
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token, **({"as": user} if user else {})}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}],
            "current-context": "x",
        }

    def start(self, name, *words, within=()):
        """`within`: the command that starts the program."""
        self.commands[name] = [*within, str(self.assets / name), *map(str, words)]
        self.start_again(name)

    def start_again(self, name):
        with (self.folder / f"{name}.log").open("a") as log:
            self.named[name] = subprocess.Popen(self.commands[name], stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(self.named[name])

    def kill(self, name):
        """As a machine that loses power: the process ends at once, and what it keeps stays."""
        process = self.named.pop(name)
        self.processes.remove(process)
        process.kill()
        process.wait()

    def until(self, holds, what, seconds=60):
        end = time.monotonic() + seconds
        last = None
        while time.monotonic() < end:
            if dead := [process for process in self.processes if process.poll() is not None]:
                logs = "\n".join(path.read_text()[-2000:] for path in self.folder.glob("*.log"))
                raise AssertionError(f"{' '.join(dead[0].args[:2])} ended:\n{logs}")
            try:
                if holds():
                    return
            except (OSError, ApiError) as error:
                last = error
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what} ({last})")

    def ask(self, method, path, body=None, *, kind="application/json", raw=False, headers=()):
        request = urllib.request.Request(
            f"https://localhost:{API}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {ADMIN}", "Content-Type": kind, **dict(headers)},
        )
        context = ssl.create_default_context(cadata=self.pair.authority)
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                text = answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                told = error.read().decode()
            raise ApiError(error.code, json.loads(told) if told.startswith("{") else {"message": told}) from None
        return text if raw else json.loads(text)

    def minor(self):
        """The API server's minor version."""
        return int(self.ask("GET", "/version")["gitVersion"].split(".")[1])

    def create(self, path, tree):
        return self.ask("POST", path, tree)

    def namespace(self, name, **labels):
        self.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        return name

    def pod(self, namespace, pod, *, dry_run=True):
        """The pod as the API server keeps it."""
        return self.create(f"/api/v1/namespaces/{namespace}/pods{'?dryRun=All' if dry_run else ''}", pod)

    def kubectl(self, *words, text=""):
        """What kubectl says: exit code, stdout, stderr."""
        own = self.assets / "kubectl"
        program = str(own) if own.exists() else shutil.which("kubectl")
        done = subprocess.run(
            [program, "--kubeconfig", str(self.folder / "admin.kubeconfig"), *words],
            input=text, capture_output=True, text=True, timeout=120, check=False,
            env={**os.environ, "HOME": str(self.folder)},  # it keeps what it discovers below ~/.kube
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    def apply(self, tree):
        """Creates or replaces an object; False where this API server does not know its kind yet."""
        version, kind, metadata = tree["apiVersion"], tree["kind"], tree["metadata"]
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        try:
            listed = self.ask("GET", group)["resources"]
        except ApiError as error:
            if error.status == 404:
                return False
            raise
        (plural, namespaced) = next(
            (one["name"], one["namespaced"]) for one in listed if one["kind"] == kind and "/" not in one["name"]
        )
        path = f"{group}/namespaces/{metadata['namespace']}/{plural}" if namespaced else f"{group}/{plural}"
        try:
            self.create(path, tree)
        except ApiError as error:
            if error.status != 409:
                raise
            there = self.ask("GET", f"{path}/{metadata['name']}")
            kept = {"resourceVersion": there["metadata"]["resourceVersion"]}
            spec = (
                {**tree.get("spec", {}), "clusterIP": there["spec"]["clusterIP"]}
                if kind == "Service"
                else tree.get("spec")
            )
            body = {**tree, "metadata": {**metadata, **kept}, **({"spec": spec} if spec is not None else {})}
            self.ask("PUT", f"{path}/{metadata['name']}", body)
        return True

    def install(self, *given):
        """The chart's objects with these values; the kinds that this API server is too old for."""
        own = () if self.minor() >= NATIVE_SIDECARS else ("injection.nativeSidecars=false",)
        trees = objects(NAMESPACE, "netinit", (), (*own, *given))
        return [tree["kind"] for tree in trees if not self.apply(tree)], trees

    def delete_webhooks(self):
        self.ask("DELETE", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations")

    def endpoints(self, *addresses, name=NAME):
        """What the endpoints' controllers would do when these replicas are ready; API servers since 1.33 read slices."""
        ports = [{"name": "https", "port": PORT}]
        metadata = {"name": name, "namespace": NAMESPACE}
        ready = [{"addresses": [{"ip": one} for one in addresses], "ports": ports}] if addresses else []
        self.apply({"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata, "subsets": ready})
        self.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {**metadata, "labels": {"kubernetes.io/service-name": name}},
                "addressType": "IPv4",
                "endpoints": [{"addresses": [one], "conditions": {"ready": True}} for one in addresses],
                "ports": ports,
            }
        )


def mount_values(trees, folder):
    """The ConfigMap of values for the templates, as a kubelet mounts it, and the flag that leads there."""
    found = [tree for tree in trees if tree["kind"] == "ConfigMap" and "values" in tree.get("data", {})]
    for tree in found:
        (Path(folder) / "values").write_text(tree["data"]["values"])
    return [f"--valuesFile={Path(folder) / 'values'}" for _ in found]


class Replica:
    """One pod's worth of the webhook, with the flags of the chart's Deployment, by `with`."""

    def __init__(self, plane, address, *, trees, folder, more=()):
        self.plane, self.address = plane, address
        (deployment,) = [tree for tree in trees if tree["kind"] == "Deployment"]
        words = deployment["spec"]["template"]["spec"]["containers"][0]["args"][2:]
        words = [word for word in words if not word.startswith(("--log_as_json", "--monitoringPort", "--valuesFile"))]
        if "--injectConfig" not in more:  # which has values of its own
            words += mount_values(trees, folder)
        self.log = Path(folder) / f"webhook-{address}-{time.monotonic_ns()}.log"
        own = [
            "--address",
            address,
            "--kubeconfig",
            str(plane.folder / "webhook.kubeconfig"),
            "--monitoringPort",
            "15014",
            "--log_output_level=debug",
        ]
        self.command = [sys.executable, "-m", "netinit", "webhook", "serve", *words, *own, *map(str, more)]

    def __enter__(self):
        environ = {**os.environ, "POD_NAMESPACE": NAMESPACE}
        self.output = self.log.open("w")
        self.process = subprocess.Popen(
            self.command, stdout=self.output, stderr=subprocess.STDOUT, env=environ, cwd=ROOT
        )
        return self

    def ready(self):
        return self.health().endswith("\nready\n")

    def health(self):
        """What it says of itself, all of it."""
        return self.look("readyz?verbose")

    def metrics(self):
        return self.look("metrics")

    def look(self, path):
        try:
            with urllib.request.urlopen(f"http://{self.address}:15014/{path}", timeout=5) as answer:
                return answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def wait(self):
        self.plane.until(self.ready, f"the replica at {self.address} is ready: {self.log}")
        return self

    def end(self):
        self.process.send_signal(signal.SIGTERM)

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            self.end()
        try:
            self.process.wait(40)
        finally:
            self.process.kill()
            self.output.close()
