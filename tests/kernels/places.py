"""Where inside.py is run: on a kernel of Debian in a virtual machine, or in a root of Debian on this machine's kernel."""

from __future__ import annotations

import functools
import json
import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from debian import Kernel, run

ROOT = Path(__file__).parents[2]
ANSWER = 16 << 20  # bytes of the disk on which a machine leaves its answer
PATIENCE = 20  # seconds in which a kernel with KVM has come to its panic
KVM = ("-accel", "kvm", "-cpu", "host,-arch-capabilities")  # without: QEMU's older versions fail to set that register
# Its clock counts instructions, a nanosecond each: deadlines are kept however slow the emulation is.
EMULATED = ("-accel", "tcg", "-cpu", "max", "-icount", "shift=0")
QUIET = "console=ttyS0 loglevel=4 panic=-1 mitigations=off nokaslr"  # without mitigations an emulated processor is half as slow again
SMALL = ("-smp", "1", "-m", "1024", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")
DRIVERS = ("virtio_pci", "virtio_blk", "crc32c_generic", "crc32c_cryptoapi", "ext4")
BOOT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc; mount -t sysfs none /sys; mount -t devtmpfs none /dev
for module in $(cat /order); do insmod /modules/$module; done
mount -t ext4 -o ro /dev/vda /root
mount -t ext4 -o ro /dev/vdb /root/project
mount -t ext4 -o ro /dev/vdc /root/usr/lib/modules
for place in proc sys dev; do mount --move /$place /root/$place; done
exec switch_root /root /bin/sh /project/tests/kernels/start.sh "$(cat /parts)"
"""


def nice(*command: str | Path) -> list[str]:
    return ["nice", "-n", "15", *map(str, command)]


@functools.cache
def can_accelerate(kernel: Path) -> bool:
    """Whether a kernel really starts with KVM: there are machines whose /dev/kvm makes a machine that never runs."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    command = nice("qemu-system-x86_64", *KVM, *SMALL, "-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1")
    try:  # without a file system it panics, which ends the machine
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and b"Linux version" in done.stdout


def copy_project(target: Path) -> None:
    """The files that git knows or would add."""
    listed = run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)


def make_disk(folder: Path, disk: Path, spare: int = 16) -> Path:
    """A disk with an ext4 file system that holds the folder's files and `spare` MiB."""
    kilobytes = int(run(["du", "--summarize", "--block-size=1K", folder]).split()[0])
    run(["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-N", "120000", "-d", folder, disk, f"{int(kilobytes * 1.15) // 1024 + spare + 40}M"])
    return disk


def make_start(kernel: Kernel, parts: str, work: Path) -> Path:
    """The first file system of the machine: busybox and the drivers of its disks."""
    tree = work / "start"
    for name in ("bin", "modules", "proc", "sys", "dev", "root"):
        (tree / name).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", tree / "bin" / "busybox")
    order = []
    for path in kernel.needed_for(*DRIVERS):
        name = path.name.removesuffix(".xz").removesuffix(".zst")
        (tree / "modules" / name).write_bytes(_read_module(path))
        order.append(name)
    (tree / "order").write_text("\n".join(order))
    (tree / "parts").write_text(parts)
    (tree / "init").write_text(BOOT)
    (tree / "init").chmod(0o755)
    archive = work / "start.cpio"
    names = "\n".join(str(path.relative_to(tree)) for path in sorted(tree.rglob("*")))
    with archive.open("wb") as stream:
        subprocess.run(["cpio", "--quiet", "--create", "--format=newc"], input=names.encode(), stdout=stream, cwd=tree, check=True)
    return archive


def _read_module(path: Path) -> bytes:
    if path.suffix == ".xz":
        return lzma.decompress(path.read_bytes())
    if path.suffix == ".zst":
        return subprocess.run(["zstd", "--decompress", "--stdout", path], capture_output=True, check=True).stdout
    return path.read_bytes()


def in_machine(kernel: Kernel, root: Path, project: Path, *, without: Iterable[str] = (), parts: str = "all", limit: int) -> object:
    """The answer of inside.py on this kernel, whose modules `without` are taken away; RuntimeError with the console's end."""
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as named:
        work = Path(named)
        modules = make_disk(take_away(kernel, set(without), work), work / "modules.img")
        answer = work / "answer.img"
        with answer.open("wb") as stream:
            stream.truncate(ANSWER)
        disks = [(root, "on"), (project, "on"), (modules, "on"), (answer, "off")]
        drives = [f"-drive=file={path},if=virtio,format=raw,readonly={kept}" for path, kept in disks]
        speed = KVM if can_accelerate(kernel.binary) else EMULATED
        command = nice(
            "qemu-system-x86_64", *speed, *SMALL,
            "-serial", f"file:{work / 'console'}", "-kernel", kernel.binary, "-initrd", make_start(kernel, parts, work),
            "-append", QUIET, *(part for drive in drives for part in drive.split("=", 1)),
        )  # fmt: skip
        try:
            subprocess.run(command, check=True, timeout=limit, stdin=subprocess.DEVNULL)
        except (subprocess.TimeoutExpired, subprocess.CalledProcessError) as error:
            if not answer.read_bytes().lstrip(b"\0"):  # else what it has told so far counts
                raise RuntimeError(f"{type(error).__name__}: {_end_of(work / 'console')}") from error
        return _parse(answer.read_bytes(), _end_of(work / "console"))


def take_away(kernel: Kernel, without: set[str], work: Path) -> Path:
    """The folder /lib/modules of a machine."""
    if not without:
        return kernel.modules.parent
    base = work / "lessened"
    target = base / "lib" / "modules" / kernel.version
    shutil.copytree(kernel.modules, target)
    for path in target.rglob("*.ko*"):
        if path.name.split(".")[0].replace("-", "_") in without:
            path.unlink()
    run(["depmod", "--basedir", base, kernel.version])
    return target.parent


def in_root(root: Path, project: Path, *, parts: str = "all", limit: int) -> object:
    """The answer of inside.py in a root of Debian, in namespaces of its own, on this machine's kernel."""
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as named:
        answer = Path(named) / "answer"
        answer.touch()
        script = Path(__file__).parent / "enter.sh"
        command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", script, root, project, answer, parts]
        try:
            done = subprocess.run(nice(*command), capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"not ready after {limit} s") from error
        return _parse(answer.read_bytes(), (done.stderr or done.stdout)[-1500:])


def _parse(answer: bytes, said: str) -> object:
    try:
        return json.loads(answer.partition(b"\0")[0])
    except ValueError as error:
        raise RuntimeError(f"no answer: {said}") from error


def _end_of(console: Path) -> str:
    return console.read_text(errors="replace")[-1500:] if console.exists() else ""
