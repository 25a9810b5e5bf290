"""Builds and runs the image with podman and runc, in storage of its own: no registry, no running engine, nobody's images.

The base is made by mmdebstrap from Debian's packages and imported under the name that the Dockerfile asks for.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
BASE = "debian:bookworm-slim"
LOCAL = "localhost/netinit"
CERTIFICATES = Path("/usr/local/share/ca-certificates")  # of the building network, used while building alone
PROGRAMS = ("podman", "runc", "mmdebstrap")
NET_ADMIN, NET_RAW = "NET_ADMIN", "NET_RAW"
TIMEOUT = 120.0  # seconds for a container; builds have ten times as much

STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
# Limits that a root without SYS_RESOURCE may set; no systemd and no journal are asked for.
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1024:2048"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""


def find_obstacle() -> str | None:
    """Why no image can be built and run here; None where it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if os.geteuid():
        return "building and running the image wants root"
    return f"not installed: {' '.join(missing)} (make image-test installs them)" if missing else None


@dataclass(frozen=True)
class Confinement:
    """What a container may do, as a pod's securityContext says it. The default is what Istio's template gives."""

    user: str = "0:0"
    capabilities: Sequence[str] = (NET_ADMIN, NET_RAW)
    escalation: bool = False  # allowPrivilegeEscalation
    bounding_only: bool = False  # as Docker has it for users other than root; containerd and CRI-O permit them, too
    mounts: Mapping[str, str] = field(default_factory=dict)  # path in the container -> path here, writable
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """A built image."""

    engine: Engine
    name: str

    def run(
        self,
        pid: int,
        arguments: Sequence[str],
        *,
        user: str = "0:0",
        capabilities: Sequence[str] = (NET_ADMIN, NET_RAW),
        **more: object,
    ) -> subprocess.CompletedProcess[str]:
        """What `<image> <arguments>` said and returned, in the network namespace of process `pid`.

        As Kubernetes runs it: a read-only root without temporary file systems, every capability dropped but those
        named, no privilege escalation, the default seccomp profile.
        """
        confinement = Confinement(user=user, capabilities=capabilities, **more)  # type: ignore[arg-type]
        with Container(self, pid, arguments, confinement) as container:
            return container.run()

    def inspect(self) -> dict[str, object]:
        """The image's configuration."""
        found: list[dict[str, object]] = json.loads(self.engine.podman("image", "inspect", self.name).stdout)
        return found[0]


class Container:
    """A container of an image, prepared by podman and run by runc with exactly the capabilities that are wanted."""

    def __init__(
        self,
        image: Image,
        pid: int,
        arguments: Sequence[str],
        confinement: Confinement | None = None,
        entrypoint: Sequence[str] = (),
    ) -> None:
        self._engine = image.engine
        self._confinement = confinement or Confinement()
        flags = ["--pull=never", f"--network=ns:/proc/{pid}/ns/net", "--cap-drop=ALL", "--read-only", "--read-only-tmpfs=false"]
        flags += ["--no-hosts", f"--user={self._confinement.user}"]
        flags += [f"--cap-add={name}" for name in self._confinement.capabilities]
        flags += [] if self._confinement.escalation else ["--security-opt=no-new-privileges"]
        flags += [f"--volume={outside}:{inside}" for inside, outside in self._confinement.mounts.items()]
        flags += [f"--env={name}={value}" for name, value in self._confinement.environment.items()]
        flags += [f"--entrypoint={json.dumps(list(entrypoint))}"] if entrypoint else []
        self._id = self._engine.podman("create", *flags, image.name, *arguments).stdout.strip()

    def run(self) -> subprocess.CompletedProcess[str]:
        """Runs it to its end."""
        bundle = self.bundle()
        name = f"netinit-{os.getpid()}-{self._id[:12]}"
        command = ["runc", "--root", str(self._engine.folder / "runc"), "run", "--bundle", str(bundle), name]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)

    def bundle(self) -> Path:
        """The folder of an OCI bundle; its config.json is podman's, but for what only podman can use."""
        self._engine.podman("init", self._id)
        folder = self._engine.folder / "bundles" / self._id
        folder.mkdir(parents=True)
        made = self._engine.folder / "graph" / "overlay-containers" / self._id / "userdata" / "config.json"
        config = json.loads(made.read_text())
        config.pop("hooks", None)
        config["linux"]["cgroupsPath"] = f"/netinit-{os.getpid()}-{self._id[:12]}"
        config["process"]["terminal"] = False
        wanted = [f"CAP_{name}" for name in self._confinement.capabilities]
        sets = ["bounding"] if self._confinement.bounding_only else ["bounding", "effective", "permitted"]
        # Never ambient ones: podman would give them to users other than root, Kubernetes does not.
        config["process"]["capabilities"] = dict.fromkeys(sets, wanted)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.podman("rm", "--force", self._id)
        shutil.rmtree(self._engine.folder / "bundles" / self._id, ignore_errors=True)


class Engine:
    """podman with storage and settings of its own in a folder; nothing is left of a temporary one after `close`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._keep = folder is not None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="netinit-image-"))
        self.folder.mkdir(exist_ok=True)
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder))
        (self.folder / "containers.conf").write_text(CONTAINERS)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which podman uses this storage."""
        own = {"CONTAINERS_STORAGE_CONF": f"{self.folder}/storage.conf", "CONTAINERS_CONF": f"{self.folder}/containers.conf"}
        return {**os.environ, **own}

    def podman(self, *arguments: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
        """What a podman command said; RuntimeError with its last lines where it failed."""
        return self._do(["podman", *arguments], timeout)

    def make_base(self) -> None:
        """Makes Debian's base, without documents, and gives it the name that the Dockerfile wants; a kept one is good."""
        if self.podman("images", "--quiet", BASE).stdout:
            return
        archive = self.folder / "base.tar"
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
        self._do(
            [
                "mmdebstrap", "--quiet", "--variant=minbase", "--include=usr-is-merged", *left_out,
                "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "bookworm", str(archive),
            ],
            10 * TIMEOUT,
        )  # fmt: skip
        self.podman("import", "--quiet", str(archive), BASE)
        archive.unlink()

    def build(self, name: str = LOCAL, *, more: Iterable[str] = ()) -> Image:
        """Builds the image with the project's own command, from the base alone."""
        flags = ["--pull=never", "--isolation=chroot", "--network=host", *more]
        if CERTIFICATES.is_dir():
            flags.append(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro")
        self._do(["make", "-C", str(ROOT), "image", f"IMAGE={name}", "ENGINE=podman", f"IMAGE_FLAGS={' '.join(flags)}"], 10 * TIMEOUT)
        return Image(self, name)

    def unpack(self, image: Image, folder: Path) -> Path:
        """The image's files in a folder, with owners, modes, times and capabilities."""
        mounted = self.podman("image", "mount", image.name).stdout.strip()
        try:
            self._do(["cp", "--archive", f"{mounted}/.", str(folder)], TIMEOUT)
        finally:
            self.podman("image", "unmount", image.name)
        return folder

    def close(self) -> None:
        """Removes containers, and unless a folder was given images and the storage itself."""
        self.podman("rm", "--all", "--force")
        if self._keep:
            return
        self.podman("image", "unmount", "--all", "--force")
        subprocess.run(["umount", "--quiet", str(self.folder / "graph" / "overlay")], check=False)  # podman's bind mount
        shutil.rmtree(self.folder)

    def _do(self, command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=self.environment, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}:\n{last}")
        return done


def confined(**changes: object) -> Confinement:
    """The usual confinement, changed."""
    return replace(Confinement(), **changes)  # type: ignore[arg-type]
