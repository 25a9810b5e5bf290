"""A node's runtime for tests: containerd with folders of its own, and lists as clusters have them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

from cri import Cri, make_image
from laboratory import NetworkNamespace

ASSETS = os.environ.get("CONTAINERD_ASSETS", "")  # another containerd than the installed one, and its plugins in the folder `cni`
PLUGINS = Path(ASSETS) / "cni" if ASSETS else Path("/usr/lib/cni")
VERSION = os.environ.get("NETINIT_CNI_VERSION", "0.4.0")  # of the lists that the tests write
SEARCH = f"{ASSETS}:{os.environ['PATH']}" if ASSETS else os.environ["PATH"]  # containerd finds its shim and runc here
V4 = {"subnet": "10.90.0.0/16"}
CONFIG = """version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "netinit.test/pause:1"
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{folder}/bin"
conf_dir = "{folder}/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
"""


def find_obstacle():
    """Why there can be no runtime here, or nothing."""
    if os.environ.get("NETINIT_NODE_TEST") != "isolated":
        return "run `make node-test`, as root: the runtime's networks are made in a network namespace of their own"
    if not importlib.util.find_spec("grpc"):
        return "grpcio is not installed: run `make node-test`"
    missing = [name for name in ("containerd", "ctr", "containerd-shim-runc-v2", "runc", "podman") if not shutil.which(name, path=SEARCH)]
    if missing or not PLUGINS.is_dir():
        return f"not installed: {', '.join(missing or [f'the reference plugins, {PLUGINS}'])}"
    return None


def find_versions():
    """The CNI versions of lists that this containerd and its reference plugins know, newest first."""
    asked = subprocess.run([PLUGINS / "bridge"], input='{"cniVersion": "0.4.0"}', env={"CNI_COMMAND": "VERSION"}, capture_output=True, text=True, check=True)
    said = subprocess.run([shutil.which("containerd", path=SEARCH), "--version"], capture_output=True, text=True, check=True).stdout
    known = json.loads(asked.stdout)["supportedVersions"][::-1]
    return [one for one in known if one != "1.1.0" or re.search(r" v?[2-9]\.", said)]  # libcni 1.2 is in containerd 2


class There(NetworkNamespace):
    """A namespace that exists, by its path."""

    def __init__(self, path):
        super().__init__(str(path))
        self._there = path

    def _open(self):
        self._hold(os.open(self._there, os.O_RDONLY | os.O_CLOEXEC))


def bridge(*ranges, bridge="cni0", version=VERSION, **more):
    """A list as clusters have it: the reference plugins alone."""
    ipam = {"type": "host-local", "ranges": [[one] for one in ranges]}
    return {
        "cniVersion": version, "name": "net", **more,
        "plugins": [{"type": "bridge", "bridge": bridge, "isGateway": True, "ipam": ipam}, {"type": "portmap", "capabilities": {"portMappings": True}}],
    }  # fmt: skip


def _list_processes():
    """Every process with its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            yield int(path.parent.name), path.read_bytes().decode(errors="replace").split("\0")


def _descendants(parents):
    """The processes that these have started, and those that they have."""
    found, waiting = set(), list(parents)
    while waiting:
        with contextlib.suppress(OSError):
            for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
                children = {int(pid) for pid in path.read_text().split()}
                waiting += children - found
                found |= children
    return found


class Runtime:
    """containerd, by `with`."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.socket = self.folder / "containerd.sock"

    def __enter__(self):
        shutil.copytree(PLUGINS, self.folder / "bin")
        (self.folder / "net.d").mkdir()
        (self.folder / "config.toml").write_text(CONFIG.format(folder=self.folder))
        self.start()
        self.ctr("-n", "k8s.io", "images", "import", make_image(self.folder))
        self.cri = Cri(self.socket)
        return self

    def start(self):
        with (self.folder / "containerd.log").open("w") as log:
            command = [shutil.which("containerd", path=SEARCH), "-c", self.folder / "config.toml"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PATH": SEARCH})
        end = time.monotonic() + 60
        while self.ctr("version", check=False).returncode and time.monotonic() < end:
            time.sleep(0.1)

    def crash(self):
        """As when a node loses power: containerd, its shims and their containers are killed, and what lies in /run is gone."""
        self.process.kill()
        self.process.wait()
        self._kill_shims()
        for folder in (self.folder / "state", Path("/run/netns")):
            mounted = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
            for path in sorted((one for one in mounted if one.startswith(f"{folder}/")), key=len, reverse=True):
                subprocess.run(["umount", "--lazy", path], check=True)
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def _kill_shims(self):
        shims = {pid for pid, words in _list_processes() if "containerd-shim" in words[0] and str(self.socket) in words}
        for pid in shims | _descendants(shims):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_containers(self):
        """Nothing runs any more when this returns."""
        for line in self.ctr("-n", "k8s.io", "tasks", "ls", "-q", check=False).stdout.split():
            self.ctr("-n", "k8s.io", "tasks", "kill", "-s", "9", line, check=False)
            self.ctr("-n", "k8s.io", "tasks", "delete", "--force", line, check=False)

    def __exit__(self, *_):
        self.end_containers()
        self.process.terminate()
        self.process.wait(30)
        self._kill_shims()  # containerd 2 leaves some whose sandbox is gone

    def ctr(self, *words, check=True):
        program = shutil.which("ctr", path=SEARCH)
        done = subprocess.run([program, "-a", self.socket, *words], capture_output=True, text=True, check=False, timeout=120)
        assert not check or done.returncode == 0, done.stderr + (self.folder / "containerd.log").read_text()[-2000:]
        return done

    def network(self, tree, name="10-net.conflist"):
        """The cluster's CNI writes its list; containerd has read it."""
        for path in (self.folder / "net.d").iterdir():
            path.unlink()
        (self.folder / "net.d" / name).write_text(json.dumps(tree))
        self.settle()

    def settle(self):
        """The runtime has read its folder."""
        end = time.monotonic() + 20
        while self.cri.ready() and time.monotonic() < end:
            time.sleep(0.1)
        time.sleep(0.5)  # its watch of the folder

    def find_sandbox(self, uid):
        """The id of the sandbox that a kubelet has made for this pod."""
        said = self.ctr("-n", "k8s.io", "containers", "ls", "--quiet", f'labels."io.kubernetes.pod.uid"=={uid},labels."io.cri-containerd.kind"==sandbox')
        runs = self.ctr("-n", "k8s.io", "tasks", "ls", "--quiet").stdout.split()
        (found,) = set(said.stdout.split()) & set(runs)
        return found

    def namespace(self, sandbox):
        """The sandbox's network namespace, as a path on the node."""
        spec = self.cri.status(sandbox)["runtimeSpec"]
        return next(one["path"] for one in spec["linux"]["namespaces"] if one["type"] == "network")
