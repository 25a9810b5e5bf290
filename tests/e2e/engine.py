"""Builds and runs the image with podman and runc, in storage of its own: no registry, no running engine, nobody's images.

The base is made by mmdebstrap from Debian's packages and imported under the name that the Dockerfile asks for.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
BASE = "debian:bookworm-slim"
LOCAL = "localhost/netinit"
CERTIFICATES = Path("/usr/local/share/ca-certificates")  # of the building network, used while building alone
PROGRAMS = ("podman", "runc", "mmdebstrap")
NET_ADMIN, NET_RAW = "NET_ADMIN", "NET_RAW"
EPOCH = "1700000000"  # SOURCE_DATE_EPOCH: any one time, so that the builds of a run are alike
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
    mounts: Mapping[str, Path] = field(default_factory=dict)  # path in the container -> path here, writable
    environment: Mapping[str, str] = field(default_factory=dict)


class Image:
    """A built image, and its containers: configured as podman does it, run by runc in a pod's network namespace.

    Like Kubernetes' they have a read-only root, no temporary file systems, podman's default seccomp profile (the same
    as containerd's RuntimeDefault in what netinit uses) and never ambient capabilities.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name
        self._count = itertools.count()

    def run(
        self,
        pid: int,
        arguments: Sequence[str],
        *,
        entrypoint: Sequence[str] = (),
        **confinement: object,
    ) -> subprocess.CompletedProcess[str]:
        """What `<image> <arguments>` said and returned, in the network namespace of process `pid`."""
        process = self.start(pid, arguments, entrypoint=entrypoint, **confinement)
        output, errors = process.communicate(timeout=TIMEOUT)
        return subprocess.CompletedProcess(process.args, process.returncode, output, errors)

    def start(
        self,
        pid: int,
        arguments: Sequence[str],
        *,
        entrypoint: Sequence[str] = (),
        **confinement: object,
    ) -> subprocess.Popen[str]:
        """The same, still running: runc's process, which forwards signals and ends with the container's exit code."""
        return subprocess.Popen(
            self.command(pid, arguments, entrypoint=entrypoint, **confinement),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def command(
        self, pid: int, arguments: Sequence[str], *, entrypoint: Sequence[str] = (), **confinement: object
    ) -> list[str]:
        """The command line that runs it: runc with a bundle of its own."""
        limits = Confinement(**confinement)  # type: ignore[arg-type]
        config = json.loads(json.dumps(self._template))
        name = f"netinit-{os.getpid()}-{next(self._count)}"
        uid, _, gid = limits.user.partition(":")
        names = [f"CAP_{name}" for name in limits.capabilities]
        sets = ("bounding",) if limits.bounding_only else ("bounding", "effective", "permitted")
        process = config["process"]
        process["args"] = [*(entrypoint or self.configuration["Entrypoint"]), *arguments]
        process["user"] = {"uid": int(uid), "gid": int(gid)}
        process["capabilities"] = dict.fromkeys(sets, names)
        process["noNewPrivileges"] = not limits.escalation
        process["env"] += [f"{key}={value}" for key, value in limits.environment.items()]
        config["mounts"] += [
            {"destination": inside, "source": str(outside), "type": "bind", "options": ["bind", "rw"]}
            for inside, outside in limits.mounts.items()
        ]
        config["linux"]["cgroupsPath"] = f"/{name}"
        for namespace in config["linux"]["namespaces"]:
            if namespace["type"] == "network":
                namespace["path"] = f"/proc/{pid}/ns/net"
        bundle = self.engine.folder / "bundles" / name
        bundle.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(config))
        return ["runc", "--root", str(self.engine.folder / "runc"), "run", "--bundle", str(bundle), name]

    @functools.cached_property
    def configuration(self) -> dict[str, Any]:
        """What the image says of itself: User, Entrypoint, Env, Labels."""
        found: dict[str, Any] = json.loads(self.engine.podman("image", "inspect", self.name).stdout)[0]["Config"]
        return found

    @functools.cached_property
    def _template(self) -> dict[str, Any]:
        """The configuration that podman writes for a container (OCI runtime specification); its root stays mounted."""
        flags = ["--pull=never", "--network=ns:/proc/self/ns/net", "--no-hosts", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
        flags += ["--read-only", "--read-only-tmpfs=false"]
        identity = self.engine.podman("create", *flags, self.name, "--version").stdout.strip()
        self.engine.podman("init", identity)
        found = next(self.engine.folder.glob(f"graph/*-containers/{identity}/userdata/config.json"))
        config: dict[str, Any] = json.loads(found.read_text())
        config.pop("hooks", None)  # podman's own
        return config


class Engine:
    """podman with storage and settings of its own in a folder; nothing is left of a temporary one after `close`."""

    def __init__(self, folder: Path | None = None) -> None:
        self._keep = folder is not None
        self.folder = folder or Path(tempfile.mkdtemp(prefix="netinit-image-"))
        self.folder.mkdir(exist_ok=True)
        self._sources = self._copy_sources()
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder))
        (self.folder / "containers.conf").write_text(CONTAINERS)

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which podman uses this storage."""
        settings = {"STORAGE_CONF": "storage.conf", "CONF": "containers.conf"}
        own = {f"CONTAINERS_{key}": str(self.folder / name) for key, name in settings.items()}
        return {**os.environ, **own, "SOURCE_DATE_EPOCH": EPOCH}

    def podman(self, *arguments: str, timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
        """What a podman command said; RuntimeError with its last lines where it failed."""
        return self._do(["podman", *arguments], timeout)

    def make_base(self) -> None:
        """Makes Debian's base, without documents, and gives it the name that the Dockerfile wants; a kept one is good."""
        if self.podman("images", "--quiet", BASE).stdout:
            return
        archive = self.folder / "base.tar"
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
        left_out.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
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
        self._do(
            ["make", "-C", str(self._sources), "image", "ENGINE=podman", f"IMAGE={name}", f"IMAGE_FLAGS={' '.join(flags)}"],
            10 * TIMEOUT,
        )
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

    def _copy_sources(self) -> Path:
        """What the image is built of, as it is now: one state for every build of this engine."""
        folder = self.folder / "sources"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "netinit", folder / "netinit", ignore=shutil.ignore_patterns("__pycache__"))
        for name in (".dockerignore", "Dockerfile", "LICENSE", "Makefile", "README.md", "pyproject.toml"):
            shutil.copy2(ROOT / name, folder / name)
        return folder

    def _do(self, command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=self.environment, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}:\n{last}")
        return done

