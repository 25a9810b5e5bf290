"""Builds the image with podman, in storage of its own: no registry, no running engine, nobody's images or settings.

The base is made by mmdebstrap from Debian's packages, in the place of the one that the Dockerfile names by its digest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from containers import TIMEOUT, Image
from leftovers import FOLDER, end_cgroups, remove_folder, sweep, unmount

__all__ = ["BASE", "BUILDING", "COMMIT", "ROOT", "Engine", "find_obstacle"]

ROOT = Path(__file__).parents[2]
BASE = "debian:bookworm-slim"
LOCAL = "localhost/netinit"
CERTIFICATES = Path("/usr/local/share/ca-certificates")  # of the building network, used while building alone
PROGRAMS = ("podman", "runc", "mmdebstrap")
PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
EPOCH = "1700000000"  # SOURCE_DATE_EPOCH: any one time, so that the builds of a run are alike
COMMIT = "c0ffee" * 6 + "c0de"  # copied sources have no history
BUILDING = 280.0  # seconds for the base, and for the image: together less than conftest.py gives a test with its fixtures

STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/graph"
runroot = "{folder}/run"
"""
# Limits that a root without SYS_RESOURCE may set; no systemd and no journal are asked for. tmp_dir and locks in files keep
# it apart from a podman that is used here; labels would have to fit the policy of a machine with SELinux.
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1024:2048"]
label = false
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
runtime = "runc"
tmp_dir = "{folder}/libpod"
"""
# A base's list of archives as Debian's images have it: the address that shall be used is a comment above one that shall not.
# $1 is the base's root.
SOURCES = r"""
sed --regexp-extended 's,^deb (\[.*\] )?(\S+) (\S+) (.*),Types: deb\n# \2\nURIs: http://elsewhere.invalid\nSuites: \3\nComponents: \4\n,' \
  "$1/etc/apt/sources.list" >"$1/etc/apt/sources.list.d/debian.sources" && rm "$1/etc/apt/sources.list"
"""
# What would lead podman elsewhere, or make to other variables than those given here.
FOREIGN = ("BUILDAH_", "CONTAINER", "MAKE", "MFLAGS", "STORAGE_")

_numbers = itertools.count()


def find_obstacle() -> str | None:
    """Why no image can be built and run here; None where it can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if os.geteuid():
        return "building and running the image needs root"
    return f"not installed: {' '.join(missing)} (make image-test installs them)" if missing else None


class Engine:
    """podman with storage and settings of its own in a folder; nothing is left of a temporary one after `close`.

    `name` is that of this engine in this process; those of its cgroups and of runc's containers begin with it.
    """

    def __init__(self, folder: Path | None = None) -> None:
        sweep()
        self.name = f"netinit-{os.getpid()}-{next(_numbers)}"
        self._containers = itertools.count()
        self._keep = folder is not None
        self.folder = (folder or Path(tempfile.mkdtemp(prefix=f"{FOLDER}{os.getpid()}-"))).resolve()
        for part in (".", "tmp"):
            (self.folder / part).mkdir(exist_ok=True)
        self.sources = self._copy_sources()
        (self.folder / "storage.conf").write_text(STORAGE.format(folder=self.folder))
        (self.folder / "containers.conf").write_text(CONTAINERS.format(folder=self.folder))
        self.runc = ("runc", "--root", str(self.folder / "runc"))

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which podman, runc and mmdebstrap touch this folder alone."""
        settings = {"STORAGE_CONF": "storage.conf", "CONF": "containers.conf"}
        own = {f"CONTAINERS_{key}": str(self.folder / name) for key, name in settings.items()}
        own |= {"TMPDIR": str(self.folder / "tmp"), "PATH": PATH, "SOURCE_DATE_EPOCH": EPOCH}
        return {key: text for key, text in os.environ.items() if not key.startswith(FOREIGN)} | own

    def podman(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What a podman command said; RuntimeError with its last lines where it failed."""
        return self.do(["podman", *arguments])

    def make_base(self) -> None:
        """Makes Debian's base, without documents, and gives it the name that the Dockerfile wants; a kept one is good."""
        if self.podman("images", "--quiet", BASE).stdout:
            return
        archive = self.folder / "base.tar"
        left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "info", "locale", "man")]
        left_out.append("--dpkgopt=path-include=/usr/share/doc/*/copyright")
        self.do(
            [
                "mmdebstrap", "--quiet", "--variant=minbase", "--include=usr-is-merged", *left_out,
                "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", f"--customize-hook={SOURCES}", "bookworm", str(archive),
            ],
            timeout=BUILDING,
        )  # fmt: skip
        self.podman("import", "--quiet", str(archive), BASE)
        archive.unlink()

    def build(self, name: str = LOCAL, *, more: Iterable[str] = ()) -> Image:
        """Builds the image of the copied sources with the project's own command, from the base alone."""
        self.do(["make", "-C", str(self.sources), "image", f"COMMIT={COMMIT}", *self.variables(name, more)], timeout=BUILDING)
        return Image(self, name)

    def variables(self, name: str, more: Iterable[str] = ()) -> list[str]:
        """What make must be told to build an image of this name here."""
        flags = [f"--build-arg=BASE={BASE}", "--pull=never", "--isolation=chroot", "--network=host", *more]
        if CERTIFICATES.is_dir():
            flags.append(f"--volume={CERTIFICATES}:{CERTIFICATES}:ro")
        return ["ENGINE=podman", f"IMAGE={name}", f"IMAGE_FLAGS={' '.join(flags)}"]

    def unpack(self, image: Image, folder: Path) -> Path:
        """The image's files in a folder, with owners, modes, times and capabilities."""
        mounted = self.podman("image", "mount", image.name).stdout.strip()
        try:
            self.do(["cp", "--archive", f"{mounted}/.", str(folder)])
        finally:
            self.podman("image", "unmount", image.name)
        return folder

    def name_container(self) -> str:
        """A name that no other container has."""
        return f"{self.name}-{next(self._containers)}"

    def delete_container(self, name: str) -> None:
        """The container, running or not, is gone; one that is not there is as good."""
        self.do([*self.runc, "delete", "--force", name])

    def close(self) -> None:
        """Removes containers, mounts and cgroups, and unless a folder was given images and the storage itself.

        Each step is taken also when one before it fails; the failure is raised at the end.
        """
        with contextlib.ExitStack() as steps:  # the last comes first
            if not self._keep:
                steps.callback(remove_folder, self.folder)
            steps.callback(unmount, self.folder)
            steps.callback(shutil.rmtree, self.folder / "bundles", ignore_errors=True)
            steps.callback(end_cgroups, f"{self.name}-")
            steps.callback(self._delete_containers)
            steps.callback(self.podman, "rm", "--all", "--force")

    def do(self, command: Sequence[str], timeout: float = TIMEOUT) -> subprocess.CompletedProcess[str]:
        """What a command said in this engine's environment; RuntimeError with its last lines where it failed."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, check=False, env=self.environment, stdin=subprocess.DEVNULL
        )
        if done.returncode:
            last = "\n".join((done.stdout + done.stderr).splitlines()[-30:])
            raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}:\n{last}")
        return done

    def _delete_containers(self) -> None:
        for name in self.do([*self.runc, "list", "--quiet"]).stdout.split():
            self.delete_container(name)

    def _copy_sources(self) -> Path:
        """What the image is built of, as it is now: one state for every build of this engine."""
        folder = self.folder / "sources"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "netinit", folder / "netinit", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "requirements", folder / "requirements")
        for name in (".dockerignore", "Dockerfile", "LICENSE", "Makefile", "README.md", "pyproject.toml"):
            shutil.copy2(ROOT / name, folder / name)
        return folder
