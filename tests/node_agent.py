"""A node for tests and measurements: an API with the node's pods, a real agent, and the plugin as a runtime starts it."""

from __future__ import annotations

import atexit
import contextlib
import functools
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from netinit.node.conflist import settings_of
from netinit.node.settings import OUTSIDE_FILE, SECOND, WAIT, InstallSettings
from prefork import AGENT, SECONDS, Running

ROOT = Path(__file__).parent.parent
PODS = "/api/v1/pods"
HOOKS = "MutatingWebhookConfiguration"
NETWORK = {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge"}]}
LISTS = {"Namespace": "/api/v1/namespaces", HOOKS: f"/apis/admissionregistration.k8s.io/v1/{HOOKS.lower()}s"}  # by kind
NODE, AGENT_NAMESPACE, DAEMON_SET = "node-1", "netinit-system", "netinit-node"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


@functools.cache
def build_plugin(*more, source="netinit/node/plugin.c"):
    """The plugin, compiled as the image's build does where musl is there; NETINIT_PLUGIN names one that was compiled elsewhere, for this machine."""
    if not more and (built := os.environ.get("NETINIT_PLUGIN")):
        return Path(built)
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    folder = Path(tempfile.mkdtemp(prefix="netinit-plugin-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    own = more or (("-O2", "-static", "-s") if shutil.which("musl-gcc") else ("-O2",))
    compiler = "musl-gcc" if shutil.which("musl-gcc") and not more else "gcc"
    subprocess.run([compiler, *FLAGS, *own, "-o", folder / "netinit-cni", ROOT / source], check=True)
    return folder / "netinit-cni"


def copy_plugin(folder, built):
    """A copy of the plugin in a folder of its own, where its settings can stand beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    return shutil.copy(built, folder / "netinit-cni")


def make_network(folder):
    """A node's folders of plugins and lists, bin and net.d; the path of its only list."""
    for name in ("bin", "net.d"):
        (folder / name).mkdir()
    path = folder / "net.d" / "10-net.conflist"
    path.write_text(json.dumps(NETWORK))
    return path


def list_plugins(path):
    """The plugins that a list names."""
    return [one["type"] for one in json.loads(path.read_text())["plugins"]]


def write_settings(plugin, *, socket, namespace="", daemon_set="", seconds=30, excluded=("kube-system",), outside=""):
    settings = InstallSettings(socket=str(socket), namespace=namespace, daemon_set=daemon_set or "none", timeout=seconds * SECOND, exclude_namespaces=excluded)
    text = settings_of(settings.replace(outside_namespaces=WAIT)) + (f"outside-namespaces={outside}\n" if outside else "")
    Path(f"{plugin}.settings").write_text(text if daemon_set else text.replace("=none\n", "=\n"))


def make_pod(name, namespace="shop", *, uid="", annotations=None, labels=None, env=(), security=None, args=("proxy", "sidecar"), **more):
    """An injected pod as the API has it."""
    proxy = {"name": "istio-proxy", "args": list(args), "env": list(env), "securityContext": security or {}}
    spec = {"nodeName": NODE, "containers": [{"name": "app"}, proxy], **more.pop("spec", {})}
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid or f"uid-{namespace}-{name}", "resourceVersion": "1", "labels": labels or {},
            "annotations": {"sidecar.istio.io/status": "{}", **(annotations or {})},
        },
        "spec": spec,
        "status": {"phase": "Running", **more.pop("status", {})},
        **more,
    }  # fmt: skip


def record(folder, netns, *, uid, pod="web", namespace="shop", container="", said=False):
    """What a runtime's libcni keeps of a pod that it has started, its namespace mounted as `netns`; the flags that name the folders.

    `said`: as libcni has it since CNI 1.1; before, the namespace is that of the result's interfaces alone.
    """
    records, names = Path(folder) / "results", Path(folder) / "netns"
    for one in (records, names):
        one.mkdir(exist_ok=True)
    if Path(netns).parent == names:
        name = Path(netns).name
    else:
        name = f"cni-{uid}{container}"
        (names / name).symlink_to(netns)
    path = f"/var/run/netns/{name}"
    arguments = {"K8S_POD_NAMESPACE": namespace, "K8S_POD_NAME": pod, "K8S_POD_INFRA_CONTAINER_ID": container or "c1", "K8S_POD_UID": uid}
    interfaces = [{"name": "cni0", "mac": "ee:ee:ee:ee:ee:ee"}, {"name": "eth0", "mac": "ee:ee:ee:ee:ee:ef", "sandbox": path}]
    tree = {
        "kind": "cniCacheV1", "containerId": container or "c1", "config": "", "ifName": "eth0", "networkName": "net",
        "cniArgs": [list(pair) for pair in arguments.items()], **({"netns": path} if said else {}),
        "result": {"cniVersion": "1.0.0", "interfaces": [] if said else interfaces},
    }  # fmt: skip
    (records / f"net-{container or uid}-eth0").write_text(json.dumps(tree))
    return [f"--netnsFolder={names}", f"--recordsFolder={records}", f"--socket={Path(folder) / 'run' / 'cni.sock'}"]


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        api, parts = self.server.api, urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if api.away.is_set():
            self.close_connection = True
            return
        query = dict(parse_qsl(parts.query))
        if query.get("watch"):
            self.watch(api, parts.path, int(query["resourceVersion"]))
            return
        if self.command == "GET" and parts.path in api.written:
            status, text = 200, api.written[parts.path]
        else:
            status, tree = api.answer(self.command, parts.path, json.loads(body) if body else None, query)
            text = json.dumps(tree).encode()
        with contextlib.suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    def watch(self, api, path, at):
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.send_response(200)
            self.end_headers()
            while not api.away.is_set() and not api.closed:
                while at < len(api.changes):
                    about, change = api.changes[at]
                    if about == path:
                        self.wfile.write(json.dumps(change).encode() + b"\n")
                        self.wfile.flush()
                    at += 1
                with api.changed:
                    api.changed.wait_for(lambda: at < len(api.changes) or api.closed, 0.1)  # noqa: B023

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 - the library's names

    def log_message(self, *_):
        pass


class Api:
    """A cluster's API with pods, a node and a DaemonSet, by `with`; `asked` holds the requests that change something."""

    def __init__(self):
        self.objects = {}  # path -> tree
        self.written = {}  # path -> JSON that is answered as it stands: of what a client would not wait for until it is written
        self.changes = []
        self.asked = []
        self.away, self.closed = threading.Event(), False
        self.refusal = 0  # the status that every request gets
        self.lock = threading.Lock()
        self.changed = threading.Condition()

    def __enter__(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self.server.request_queue_size = 128
        self.server.daemon_threads = True
        self.server.api = self
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.closed = True
        with self.changed:
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def path(tree):
        if kind := tree.get("kind"):
            return f"{LISTS[kind]}/{tree['metadata']['name']}"
        return f"/api/v1/namespaces/{tree['metadata']['namespace']}/pods/{tree['metadata']['name']}"

    def put(self, tree, *, told=True):
        """The object, a pod if it has no kind, is there; `told`: the watch says so."""
        with self.lock:
            self.objects[self.path(tree)] = self.tell(LISTS.get(tree.get("kind"), PODS), "ADDED", tree) if told else tree

    def drop(self, tree, path=""):
        with self.lock:
            self.objects.pop(path or self.path(tree), None)
            self.tell(path.rpartition("/")[0] if path else LISTS.get(tree.get("kind"), PODS), "DELETED", tree)

    def tell(self, about, kind, tree):
        """Who watches hears of it; so does who listed before and watches only now: the version is the number of changes so far."""
        told = {**tree, "metadata": {**tree["metadata"], "resourceVersion": str(len(self.changes) + 1)}}
        with self.changed:
            self.changes.append((about, {"type": kind, "object": told}))
            self.changed.notify_all()
        return told

    def answer(self, method, path, body, query):
        with self.lock:
            if self.refusal:
                return self.refusal, {"kind": "Status", "message": "refused"}
            if method != "GET":
                self.asked.append((method, path, body))
            if method == "GET" and path.endswith("/daemonsets"):
                return 200, {"metadata": {"resourceVersion": str(len(self.changes))}, "items": [tree for key, tree in self.objects.items() if key.startswith(path)]}
            if method == "GET" and path in LISTS.values():
                items = [tree for tree in self.objects.values() if LISTS.get(tree.get("kind")) == path]
                return 200, {"metadata": {"resourceVersion": str(len(self.changes))}, "items": items}
            if method == "GET" and path == PODS:
                items = [tree for key, tree in self.objects.items() if "/pods/" in key]
                return 200, {"metadata": {"resourceVersion": str(len(self.changes))}, "items": items}
            if method == "POST":
                return 201, body
            if path not in self.objects:
                return 404, {"kind": "Status", "reason": "NotFound", "message": f"{path} not found"}
            if method == "DELETE":
                wanted = (body or {}).get("preconditions", {})
                found = self.objects[path]["metadata"]
                if any(found.get(key) != value for key, value in wanted.items()):
                    return 409, {"kind": "Status", "reason": "Conflict", "message": "the precondition does not hold"}
            return 200, self.objects[path]

    def kubeconfig(self, folder):
        path = Path(folder) / "kubeconfig"
        tree = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(tree))
        return path

    def events(self):
        return [body for method, path, body in self.asked if method == "POST" and path.endswith("/events")]


class Node:
    """A running agent, by `with`, and the plugin that asks it."""

    def __init__(self, folder, api, *words, install=False, wait=True, plugin=None, environ=None, inside=None, in_full=False, namespace=AGENT_NAMESPACE, prefix=()):
        self.folder = Path(folder)
        self.api = api
        self.words = words
        self.namespace = namespace
        self.prefix = prefix  # what starts an agent that is `in_full`
        self.install = install
        self.wait = wait
        self.environ = environ or {}
        self.inside = inside or contextlib.nullcontext  # the network namespace that the agent runs in
        self.built = plugin or build_plugin()
        from webhook_server import free_port  # which wants cryptography, as the plugin does not

        self.monitoring = free_port()
        self.socket = self.folder / "run" / "cni.sock"
        self.plugin = copy_plugin(self.folder / "installed", self.built)
        self.set_plugin()
        self.log = self.folder / "agent.log"
        self.in_full = in_full  # started as the image starts it, not forked (prefork.py)
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        command = [
            "node", "agent", "--nodeName", NODE, "--namespace", self.namespace,
            "--daemonSetName", DAEMON_SET, "--socket", self.socket, "--monitoringPort", str(self.monitoring), "--address", "127.0.0.1",
            "--kubeconfig", self.api.kubeconfig(self.folder), f"--install={str(self.install).lower()}",
            "--pluginFile", self.built, "--cniBinFolder", self.folder / "bin", "--cniConfFolder", self.folder / "net.d",
            "--netnsFolder", self.folder / "netns", "--recordsFolder", self.folder / "results", *self.words,
        ]  # fmt: skip
        words, environ = [str(word) for word in command], {**os.environ, **self.environ}
        with self.log.open("a") as log, self.inside():
            if self.in_full:
                self.process = subprocess.Popen([*self.prefix, sys.executable, "-m", "netinit", *words], cwd=ROOT, stdout=log, stderr=log, env=environ)
            else:
                self.process = Running(words, AGENT, log=log.fileno(), environ=environ, folder=ROOT)
        if self.wait:
            self.until(lambda: self.get("/readyz")[0] == 200, "the agent is ready")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        return self.process.returncode

    def kill(self):
        self.process.kill()
        self.process.wait()

    def children(self):
        """The process that answers, then those that program pods, by age."""
        lists = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        found = [pid for one in lists for pid in one.read_text().split()]
        return sorted(found, key=lambda pid: (int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]), int(pid)))

    def until(self, holds, what, seconds=SECONDS):
        end, pause = time.monotonic() + seconds, 0.02
        while time.monotonic() < end:
            if self.process.poll() is not None:
                raise AssertionError(f"the agent ended ({self.process.returncode}):\n{self.log.read_text()[-3000:]}")
            with contextlib.suppress(OSError):
                if holds():
                    return
            time.sleep(pause)
            pause = min(1.2 * pause, 0.1)  # most of `holds` ask the agent, which costs both of them milliseconds
        raise AssertionError(f"not within {seconds} s: {what}\n{self.log.read_text()[-3000:]}")

    def get(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.monitoring}{path}", timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def set_plugin(self, seconds=200):
        """Writes the settings of the plugin that `begin` starts; `seconds`: how long it waits for the agent, which may be on a busy machine."""
        write_settings(self.plugin, socket=self.socket, namespace=self.namespace, daemon_set=DAEMON_SET, seconds=seconds, outside=self.socket.with_name(OUTSIDE_FILE))

    def configuration(self, **more):
        tree = {"cniVersion": "1.0.0", "name": "net", "type": "netinit-cni", **more}
        return {key: value for key, value in tree.items() if value is not None}

    def environment(self, verb, *, netns="", pod="web", namespace="shop", uid="", container="", interface="eth0", more=""):
        arguments = "IgnoreUnknown=1" + (f";K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={pod}" if pod else "")
        arguments += (f";K8S_POD_UID={uid}" if uid else "") + more
        found = {
            "CNI_COMMAND": verb, "CNI_CONTAINERID": container or f"c-{pod or 'none'}", "CNI_IFNAME": interface,
            "CNI_NETNS": str(netns), "CNI_ARGS": arguments, "CNI_PATH": "/opt/cni/bin",
        }  # fmt: skip
        return {key: value for key, value in found.items() if value}

    def begin(self, verb, *, configuration=None, **pod):
        """The plugin, started as a runtime does."""
        text = configuration if isinstance(configuration, (str, bytes)) else json.dumps(self.configuration(**(configuration or {})))
        process = subprocess.Popen(
            [self.plugin], env=self.environment(verb, **pod), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(text if isinstance(text, bytes) else text.encode())
            process.stdin.close()
        process.stdin = None
        return process

    def ask(self, verb, *, configuration=None, **pod):
        """Exit code and what the plugin printed, as a tree where it printed something."""
        with self.begin(verb, configuration=configuration, **pod) as process:
            out, err = process.communicate()
        assert not err, err
        return process.returncode, json.loads(out) if out.strip() else None


def make_validated_pod(name, address, exit_code=None, **more):
    """A pod that runs, with an address, and perhaps a validation that has ended."""
    statuses = [{"name": "istio-validation", "state": {"terminated": {"exitCode": exit_code}}}] if exit_code is not None else []
    return make_pod(name, status={"podIPs": [{"ip": address}], "initContainerStatuses": statuses}, **more)
