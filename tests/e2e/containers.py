"""Containers of a built image: configured as podman does it, run by runc in a pod's network namespace."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import Engine

__all__ = ["Confinement", "Image"]

NET_ADMIN, NET_RAW = "NET_ADMIN", "NET_RAW"
TIMEOUT = 120.0  # seconds
CAPABILITIES = (  # linux/capability.h, by number
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE"),
    *("NET_BIND_SERVICE", "NET_BROADCAST", NET_ADMIN, NET_RAW, "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT"),
    *("SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD"),
    *("LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND"),
    *("AUDIT_READ", "PERFMON", "BPF", "CHECKPOINT_RESTORE"),
)


@dataclass(frozen=True)
class Confinement:
    """What a container may do, as a pod's securityContext says it. The default is what Istio's template gives."""

    user: str = "0:0"
    capabilities: Sequence[str] = (NET_ADMIN, NET_RAW)
    escalation: bool = False  # allowPrivilegeEscalation
    bounding_only: bool = False  # as Docker has it for users other than root; containerd and CRI-O permit them, too
    mounts: Mapping[str, Path] = field(default_factory=dict)  # path in the container -> path here, writable
    environment: Mapping[str, str] = field(default_factory=dict)
    privileged: bool = False  # and hostPID: every capability, no seccomp profile, nothing masked, the machine's processes
    users_of: int = 0  # a process whose user namespace it joins, as in a pod with hostUsers: false; needs a root of its own
    root: Path | None = None  # the image's files, where they are not the image's own mount


class Image:
    """A built image.

    Like Kubernetes' its containers have a read-only root, no temporary file systems, podman's default seccomp profile
    (the same as containerd's RuntimeDefault in what netinit uses) and never ambient capabilities.
    """

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine = engine
        self.name = name

    def run(
        self,
        pid: int,
        arguments: Sequence[str],
        *,
        entrypoint: Sequence[str] = (),
        **confinement: object,
    ) -> subprocess.CompletedProcess[str]:
        """What `<image> <arguments>` said and returned, in the network namespace of process `pid`."""
        command = self.command(pid, arguments, entrypoint=entrypoint, **confinement)
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=self.engine.environment,
        ) as process:  # fmt: skip
            try:
                output, errors = process.communicate(timeout=TIMEOUT)
            except BaseException:  # a timeout, Ctrl-C: runc's end would not be the container's
                process.kill()
                self.engine.delete_container(command[-1])
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    def command(
        self, pid: int, arguments: Sequence[str], *, entrypoint: Sequence[str] = (), **confinement: object
    ) -> list[str]:
        """The command line that runs it once, whose last word is its name: runc with a bundle of its own."""
        limits = Confinement(**confinement)  # type: ignore[arg-type]
        config = copy.deepcopy(self._template)
        name = self.engine.name_container()
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
        if limits.root:
            config["root"]["path"] = str(limits.root)
        if limits.privileged:
            _free(config)
        if limits.users_of:
            config["linux"]["namespaces"].append({"type": "user", "path": f"/proc/{limits.users_of}/ns/user"})
            for kind in ("uid", "gid"):
                inside, outside, size = map(int, Path(f"/proc/{limits.users_of}/{kind}_map").read_text().split())
                config["linux"][f"{kind}Mappings"] = [{"containerID": inside, "hostID": outside, "size": size}]
        bundle = self.engine.folder / "bundles" / name
        bundle.mkdir(parents=True)
        (bundle / "config.json").write_text(json.dumps(config))
        return [*self.engine.runc, "run", "--bundle", str(bundle), name]

    @functools.cached_property
    def configuration(self) -> dict[str, Any]:
        """What the image says of itself: User, Entrypoint, Env, Labels."""
        found: dict[str, Any] = json.loads(self.engine.podman("image", "inspect", self.name).stdout)[0]["Config"]
        return found

    @functools.cached_property
    def layers(self) -> list[str]:
        """The digests of its layers, the lowest first."""
        found: list[str] = json.loads(self.engine.podman("image", "inspect", self.name).stdout)[0]["RootFS"]["Layers"]
        return found

    @functools.cached_property
    def _template(self) -> dict[str, Any]:
        """The configuration (OCI runtime specification) that podman writes for a container of this image.

        podman knows the default seccomp profile, masked paths and mounts, which nobody should write a second time. It
        writes them, and mounts the image's files, when it initialises a container; this one stays at that, never
        started, since its mounted files are the root of all others. They are run by runc itself because podman would
        take five times as long for each. `Engine.close` removes it.
        """
        flags = ["--pull=never", "--network=ns:/proc/self/ns/net", "--no-hosts", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
        flags += ["--read-only", "--read-only-tmpfs=false", f"--cgroup-parent=/{self.engine.name}-podman"]
        identity = self.engine.podman("create", *flags, self.name, "--version").stdout.strip()
        self.engine.podman("init", identity)
        found = next(self.engine.folder.glob(f"graph/*-containers/{identity}/userdata/config.json"))
        config: dict[str, Any] = json.loads(found.read_text())
        config.pop("hooks", None)  # podman's own
        return config


def _free(config: dict[str, Any]) -> None:
    """What `privileged: true` and `hostPID: true` of a pod change."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    bounds = int(status["CapBnd"], 16)  # of this process: who has not all cannot give all
    names = [f"CAP_{name}" for number, name in enumerate(CAPABILITIES) if bounds >> number & 1]
    config["process"]["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted"), names)
    config["process"]["noNewPrivileges"] = False
    linux = config["linux"]
    linux["namespaces"] = [namespace for namespace in linux["namespaces"] if namespace["type"] != "pid"]
    for name in ("seccomp", "maskedPaths", "readonlyPaths"):
        linux.pop(name, None)
    for mount in config["mounts"]:
        if mount["destination"].startswith("/sys"):
            mount["options"] = [option for option in mount["options"] if option != "ro"]
