"""Debian's packages in the cache: kernels with their modules, and roots with iptables, nft and Python.

Everything lies below one folder ($XDG_CACHE_HOME/netinit-kernels, by default ~/.cache/netinit-kernels) and is downloaded
once; remove the folder to have newer packages.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "netinit-kernels"
MIRROR = os.environ.get("NETINIT_DEBIAN", "http://deb.debian.org/debian")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
PACKAGES = (
    "python3", "python3-pip", "python3-setuptools", "python3-wheel", "python3-dev", "gcc", "libc6-dev",
    "iptables", "nftables", "ipset", "iproute2", "procps", "kmod", "util-linux", "mount",
)  # fmt: skip
UNBUILT = ("python3-pip", "python3-setuptools", "python3-wheel", "python3-dev", "gcc", "libc6-dev")  # left out where nothing is built
LIBRARIES = ("pytest", "pytest-timeout", "hypothesis", "click", "pyyaml", "pyroute2")
MERGED = "/usr/share/mmdebstrap/hooks/merged-usr"  # /bin, /lib and /sbin as links, which a package's script would make
KEPT = (
    *(f"kernel/net/{part}/**/*.ko*" for part in ("core", "ipv4", "ipv6", "netfilter", "netlink", "sched")),
    "kernel/lib/**/*.ko*", "kernel/crypto/**/*.ko*", "kernel/arch/**/*.ko*", "kernel/drivers/net/*.ko*",
    "modules.builtin", "modules.builtin.modinfo", "modules.order",
)  # fmt: skip
UNPACK = {".xz": ("unxz",), ".zst": ("unzstd", "--quiet", "--rm")}


def run(command: Sequence[str | Path], **more: object) -> str:
    """What a command printed; RuntimeError with its last words where it failed."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{command[0]} {command[1]}: {(done.stderr or done.stdout).strip()[-1500:]}")
    return str(done.stdout)


NATIVE = "amd64"


def named_for(suite: str, architecture: str) -> str:
    """What a suite's folders are called, for each architecture."""
    return suite if architecture == NATIVE else f"{suite}-{architecture}"


class Suite:
    """One suite of Debian, read by apt with a state of its own: the machine's is not touched."""

    def __init__(self, name: str, architecture: str = NATIVE) -> None:
        self.name = name
        folder = CACHE / "apt" / named_for(name, architecture)
        for part in ("lists/partial", "archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} {name} main\n")
        settings = {
            "Dir::Etc::sourcelist": folder / "sources.list", "Dir::Etc::sourceparts": "-", "Dir::State::lists": folder / "lists",
            "Dir::State::status": folder / "status", "Dir::Cache": folder, "APT::Sandbox::User": "root",
            "APT::Architecture": architecture, "APT::Architectures::": architecture, "Acquire::Retries": 3,
        }  # fmt: skip
        self._options = [f"-o{key}={value}" for key, value in settings.items()]
        if not any((folder / "lists").glob("*Packages*")):
            run(["apt-get", *self._options, "--quiet", "update"])

    def newest_kernel(self, flavour: str) -> str:
        """The package that linux-image-FLAVOUR of this suite stands for."""
        shown = run(["apt-cache", *self._options, "show", "--no-all-versions", f"linux-image-{flavour}"])
        found = re.search(rf"^Depends:.*?(linux-image-[0-9][^ ]*-{flavour})\b", shown, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"linux-image-{flavour} of {self.name} names no kernel")
        return found[1]

    def parts_of(self, package: str) -> list[str]:
        """The package and those beside it that hold parts of the same kernel (its binary, its modules)."""
        shown = run(["apt-cache", *self._options, "depends", "--no-suggests", "--no-recommends", package])
        return [package, *sorted(set(re.findall(r"Depends: (linux-(?:binary|modules)-[0-9][^ \n]*)", shown)))]

    def unpack(self, packages: Iterable[str], folder: Path) -> None:
        """Downloads packages and lays their files into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        run(["apt-get", *self._options, "--quiet", "download", *packages], cwd=folder)
        for archive in sorted(folder.glob("*.deb")):
            run(["dpkg-deb", "--extract", archive, folder])
            archive.unlink()


class Kernel:
    """A kernel of Debian, unpacked: `binary`, `modules` (a folder without their index) and `version`."""

    def __init__(self, suite: str, flavour: str, architecture: str = NATIVE) -> None:
        packages, self.architecture = Suite(suite, architecture), architecture
        self.package = packages.newest_kernel(flavour)
        self.folder = CACHE / "kernels" / self.package
        if not (self.folder / "ready").exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            packages.unpack(packages.parts_of(self.package), self.folder)
            self._index()
            (self.folder / "ready").touch()
        (self.modules,) = self.folder.glob("used/*")
        self.version = self.modules.name
        self.binary = next(self.folder.glob("**/vmlinuz-*"))

    def _index(self) -> None:
        """Keeps the modules that matter here, unpacked."""
        (whole,) = (path for pattern in ("lib/modules/*", "usr/lib/modules/*") for path in self.folder.glob(pattern))
        kept = self.folder / "used" / whole.name
        for path in (path for pattern in KEPT for path in whole.glob(pattern)):
            target = kept / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            if path.suffix in UNPACK:
                run([*UNPACK[path.suffix], target])
        if (whole / "vmlinuz").exists():  # newer packages keep the kernel beside its modules
            shutil.copy(whole / "vmlinuz", self.folder / f"vmlinuz-{whole.name}")
        shutil.rmtree(whole)


def module_name(file: str) -> str:
    """xt_owner, of xt_owner.ko or xt-owner.ko.xz."""
    return file.split(".", maxsplit=1)[0].replace("-", "_")


def machines_validity() -> str:
    """Whether this machine's apt insists on lists that are not out of date: the roots' does as it does."""
    return run(["apt-config", "shell", "found", "Acquire::Check-Valid-Until/b"]).partition("'")[2].rstrip("'\n") or "true"


def make_root(suite: str, architecture: str = NATIVE) -> Path:
    """A root of this suite with everything that the tests use. None of its programs run for another architecture, so nothing is built there."""
    root = CACHE / "roots" / named_for(suite, architecture)
    if (root / "opt" / "ready").exists():
        return root
    is_native = architecture == NATIVE
    made = ["--variant=minbase"] if is_native else ["--variant=extract", f"--architectures={architecture}", f"--hook-dir={MERGED}"]
    included = [",".join(PACKAGES)] if is_native else ["?essential", ",".join(name for name in PACKAGES if name not in UNBUILT)]
    _bootstrap(suite, root, *made, *[f"--include={one}" for one in included])
    if is_native:
        _add_libraries(root)
    else:
        _configure(root)
        _lay_libraries(root, make_root(suite))
    for name in ("opt", "project", "proc", "sys", "dev", "tmp", "run", "usr/lib/modules"):
        (root / name).mkdir(parents=True, exist_ok=True)
    (root / "opt" / "ready").touch()
    return root


def make_builder(suite: str, architecture: str, system: str, packages: Iterable[str]) -> Path:
    """A root of this suite with a compiler for another architecture, whose programs begin with `system`, and with packages of both."""
    root = CACHE / "builders" / named_for(suite, architecture)
    if (root / "opt" / "ready").exists():
        return root
    included = ",".join((f"gcc-{system}", *packages))
    _bootstrap(suite, root, "--variant=minbase", f"--architectures={NATIVE},{architecture}", f"--include={included}")
    for path in root.glob("usr/lib/python3*/_sysconfigdata_*"):
        if system not in path.name:  # of the Python that runs here
            path.unlink()
    (root / "opt" / "ready").touch()
    return root


def _bootstrap(suite: str, root: Path, *words: str) -> None:
    """A root of this suite, made anew by mmdebstrap with these words."""
    shutil.rmtree(root, ignore_errors=True)
    root.parent.mkdir(parents=True, exist_ok=True)
    left_out = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "locale", "info")]
    run(["mmdebstrap", "--quiet", *words, *left_out, '--aptopt=APT::Sandbox::User "root"',
         f'--aptopt=Acquire::Check-Valid-Until "{machines_validity()}"', suite, root, MIRROR])  # fmt: skip


def _configure(root: Path) -> None:
    """What the packages' own scripts would do that matters here: users, the shell's name, and which iptables is the usual one."""
    for name in ("passwd", "group"):
        shutil.copy(root / "usr" / "share" / "base-passwd" / f"{name}.master", root / "etc" / name)
    links = {"bin/sh": "dash"}
    for name in ("iptables", "ip6tables"):
        links |= {f"sbin/{name}{end}": f"{name}-nft{end}" for end in ("", "-save", "-restore")}
    for name, target in links.items():
        path = root / "usr" / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _python_of(root: Path) -> str:
    """3.11, of a root whose Python need not run here."""
    return (root / "usr" / "bin" / "python3").readlink().name.removeprefix("python")


def _lay_libraries(root: Path, like: Path) -> None:
    """The libraries of the tests, wheels alone, for a root whose Python cannot run here; `like`: one with the same Python, which compiles its modules."""
    version = _python_of(root)
    target = root / "usr" / "local" / "lib" / f"python{version}" / "dist-packages"
    run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--root-user-action=ignore", "--no-compile",
         "--target", target, "--python-version", version, "--platform", "manylinux2014_aarch64", "--platform", "manylinux_2_28_aarch64",
         "--only-binary=:all:", *LIBRARIES])  # fmt: skip
    script = 'mount --bind "$1" "$2/opt"; exec chroot "$2" python3 -m compileall -q -s /opt -p / /opt/usr/lib/python3 "/opt/usr/lib/python$3" /opt/usr/local/lib'
    run(["unshare", "--mount", "bash", "-e", "-c", script, "bash", root, like, version])


def _add_libraries(root: Path) -> None:
    """The libraries of the tests, for the root's Python; python-iptables is built there."""
    version = _python_of(root)
    wheels = root / "opt" / "wheels"
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--dest", str(wheels)]
    run([*pip, "--python-version", version, "--only-binary=:all:", *LIBRARIES])
    run([*pip, "--no-deps", "--no-binary=:all:", "--no-build-isolation", "python-iptables"])
    inside = ["chroot", root, "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "python3", "-m", "pip", "install", "--quiet",
              "--break-system-packages", "--root-user-action=ignore", "--no-index", "--find-links=/opt/wheels", "--no-build-isolation"]  # fmt: skip
    run([*inside, *LIBRARIES])
    run([*inside, "python-iptables"])
