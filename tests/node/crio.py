"""CRI-O for tests, of the folder that CRIO_ASSETS names (`crio`, `pinns`), with folders of its own; conmon, runc and podman are the installed ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

from cri import Cri, make_image
from runtime import PLUGINS, Runtime

ASSETS = os.environ.get("CRIO_ASSETS", "")
NEEDED = ("crio", "pinns", "conmon", "runc", "podman")
SEARCH = f"{ASSETS}:{os.environ['PATH']}"
# A sandbox needs no process: its namespaces are files, which pinns mounts below namespaces_dir.
CONFIG = """[crio]
root = "{folder}/root"
runroot = "{folder}/runroot"
storage_driver = "vfs"
log_dir = "{folder}/logs"
version_file = "{folder}/version"
version_file_persist = "{folder}/version-kept"
clean_shutdown_file = "{folder}/clean"
[crio.api]
listen = "{folder}/crio.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.image]
pause_image = "netinit.test/pause:1"
signature_policy = "{folder}/policy.json"
signature_policy_dir = "{folder}/policies"
[crio.runtime]
conmon = "{conmon}"
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
default_runtime = "runc"
pinns_path = "{pinns}"
container_exits_dir = "{folder}/exits"
container_attach_socket_dir = "{folder}/attach"
hooks_dir = []
apparmor_profile = "unconfined"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_type = "oci"
runtime_root = "{folder}/runc"
[crio.network]
network_dir = "{folder}/net.d"
plugin_dirs = ["{folder}/bin"]
[crio.metrics]
enable_metrics = false
[crio.nri]
enable_nri = false
"""


def find_obstacle():
    """Why there can be no CRI-O here, or nothing."""
    if not ASSETS:
        return "CRIO_ASSETS names no folder with crio and pinns"
    missing = [name for name in NEEDED if not shutil.which(name, path=SEARCH)]
    return f"not found: {', '.join(missing)}" if missing else None


class Crio(Runtime):
    """CRI-O, by `with`."""

    def __init__(self, folder):
        super().__init__(folder)
        self.socket = self.folder / "crio.sock"

    def __enter__(self):
        programs = {name: shutil.which(name, path=SEARCH) for name in NEEDED}
        shutil.copytree(PLUGINS, self.folder / "bin")
        (self.folder / "net.d").mkdir()
        (self.folder / "crio.conf").write_text(CONFIG.format(folder=self.folder, **programs))
        (self.folder / "policy.json").write_text(json.dumps({"default": [{"type": "insecureAcceptAnything"}]}))
        storage = ["--root", self.folder / "root", "--runroot", self.folder / "runroot", "--storage-driver", "vfs"]
        subprocess.run([programs["podman"], *storage, "load", "--quiet", "--input", make_image(self.folder)], check=True, capture_output=True)
        self.cri = Cri(self.socket)
        self.start()
        return self

    def start(self):
        with (self.folder / "crio.log").open("w") as log:
            command = [shutil.which("crio", path=SEARCH), "--config", self.folder / "crio.conf", "--config-dir", self.folder / "none"]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PATH": SEARCH})
        end = time.monotonic() + 60
        while not self.socket.exists() and time.monotonic() < end:
            assert self.process.poll() is None, (self.folder / "crio.log").read_text()[-2000:]
            time.sleep(0.1)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def namespace(self, sandbox):
        """The sandbox's network namespace, as a path on the node: as the record says that CRI-O's CNI library keeps of an ADD."""
        (record,) = Path("/var/lib/cni/results").glob(f"*-{sandbox}-eth0")
        return json.loads(record.read_text())["netns"]
