"""Where inside.py is run: on a kernel of Debian in a virtual machine, or in a root of Debian on this machine's kernel."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from built import build_programs, link_executable
from chosen import EXECUTABLE, tests
from debian import NATIVE, Kernel, module_name, run

ROOT = Path(__file__).parents[2]
PATIENCE = 20  # seconds in which a kernel with KVM has come to its panic
SLOWLY = 20  # times longer than the processor works for it, a machine may take on a busy computer
KVM = ("-accel", "kvm", "-cpu", "host,-arch-capabilities")  # without: QEMU's older versions fail to set that register
# Its clock counts instructions, a nanosecond each, and leaps to the next alarm where there is nothing to do: deadlines are kept
# however slow the emulation is, and waiting takes no time. That is why there is no disk: one would be late by that clock.
EMULATED = ("-accel", "tcg,tb-size=512", "-icount", "shift=0,sleep=off")
QUIET = "quiet panic=-1 mitigations=off nokaslr"  # without mitigations an emulated processor is half as slow again
SMALL = ("-smp", "1", "-m", "1536", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot")


class Machine(NamedTuple):
    """What an emulated machine of an architecture is, and what Linux calls its serial lines: that of the console, that of the answer."""

    program: str
    words: tuple[str, ...]
    console: str
    line: str
    second: tuple[str, ...] = ()  # the device that has the line of the answer, where the machine has but one


MACHINES = {
    "amd64": Machine("qemu-system-x86_64", ("-cpu", "max"), "ttyS0", "ttyS1"),
    # Pointer authentication and long vectors, which nothing here asks for, are most of the work of such a processor's emulation.
    "arm64": Machine("qemu-system-aarch64", ("-machine", "virt", "-cpu", "max,pauth=off,sve=off"), "ttyAMA0", "ttyS0", ("pci-serial",)),
}
NOT_NEEDED = (  # of a root, where programs only run
    "boot", "opt", "project", "var/cache", "var/lib", "usr/include", "usr/libexec", "usr/share", "usr/lib/gcc", "usr/lib/*/perl*",
    "usr/lib/*/gconv", "usr/lib/*/lib?san.so*", "usr/lib/*/lib??san.so*", "usr/lib/python3/dist-packages/pip", "usr/bin/*-linux-gnu-*",
    "*.a",
)  # fmt: skip
EMPTY = ("project", "proc", "sys", "dev", "tmp", "run", "opt", "var/lib", "usr/share")


def nice(*command: str | Path) -> list[str]:
    """The command, for a small part of a busy computer's time."""
    return ["nice", "-n", "15", *map(str, command)]


def idle(*command: str | Path) -> list[str]:
    """The command, for the time that nobody else wants."""
    return ["chrt", "--idle", "0", "nice", "-n", "19", *map(str, command)]


@functools.cache
def can_accelerate(kernel: Path) -> bool:
    """Whether a kernel of this computer's architecture really starts with KVM: there are some whose /dev/kvm makes a machine that never runs."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    command = idle("qemu-system-x86_64", *KVM, *SMALL, "-serial", "stdio", "-kernel", kernel, "-append", "console=ttyS0 panic=-1")
    try:  # without a file system it panics, which ends the machine
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0 and b"Linux version" in done.stdout


def copy_project(target: Path) -> None:
    """What the chosen tests need of the files that git knows or would add."""
    wanted = ("netinit", "tests/*.py", "tests/kernels", "tests/golden", "pyproject.toml")
    listed = run(["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *wanted])
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def compile_project(project: Path, root: Path, parts: str) -> None:
    """What the root's Python and pytest would do with the project's files at first, which takes long on an emulated processor."""
    script = """
        mount --bind "$1" "$2/project"
        exec chroot "$2" env -i PATH=/usr/sbin:/usr/bin PYTHONPATH=/project NETINIT_SWEEPS=all sh -c '
            cd /project && python3 -m compileall -q netinit tests && python3 -m pytest --collect-only -q -p no:cacheprovider "$@"' sh "${@:3}"
    """
    run(["unshare", "--mount", "bash", "-e", "-c", script, "bash", project, root, *tests(parts)])


def archive_of(tree: Path, archive: Path, left_out: Iterable[str] = ()) -> Path:
    """The tree in the format in which a kernel takes its first file system."""
    patterns = tuple(left_out)
    names = []
    for folder, folders, files in os.walk(tree):
        base = os.path.relpath(folder, tree)
        found = {one: os.path.normpath(os.path.join(base, one)) for one in (*folders, *files)}  # noqa: PTH118 - as os.walk gives them
        kept = {one: name for one, name in found.items() if not any(fnmatch(name, pattern) for pattern in patterns)}
        folders[:] = [one for one in folders if one in kept]
        names += sorted(kept.values())
    with archive.open("wb") as stream:
        listed = "\n".join(names).encode()
        subprocess.run(["cpio", "--quiet", "--create", "--format=newc"], input=listed, stdout=stream, cwd=tree, check=True)
    return archive


def make_start(kernel: Kernel, root: Path, project: Path, *, without: Iterable[str], parts: str, work: Path) -> Path:
    """The machine's file system, which is its memory: the root, the project and the modules but those `without` which it goes."""
    tree = work / "start"
    for name in EMPTY:
        (tree / name).mkdir(parents=True)
    shutil.copytree(project, tree / "project", dirs_exist_ok=True)
    modules = tree / "usr" / "lib" / "modules" / kernel.version
    missing = set(without)
    shutil.copytree(kernel.modules, modules, ignore=lambda _, names: [name for name in names if module_name(name) in missing])
    run(["depmod", "--basedir", tree / "usr", kernel.version])
    (tree / "parts").write_text(parts)
    (tree / "line").write_text(MACHINES[kernel.architecture].line)
    shutil.copy(Path(__file__).parent / "start.sh", tree / "init")
    (tree / "init").chmod(0o755)
    if kernel.architecture != NATIVE:
        build_programs(project / "netinit", tree / "built", kernel.architecture)
        link_executable(project / "netinit", tree / "built" / "executable", kernel.architecture)
        (tree / "usr" / "lib" / "netinit").symlink_to("/project")  # where the launcher has it
    start = work / "start.cpio"
    with start.open("wb") as stream:  # archives behind each other are one
        stream.write(archive_of(root, work / "root.cpio", NOT_NEEDED).read_bytes())
        stream.write(archive_of(tree, work / "more.cpio").read_bytes())
    return start


def in_machine(kernel: Kernel, root: Path, project: Path, *, without: Iterable[str] = (), parts: str = "all", limit: int) -> Mapping[str, object]:
    """The answer of inside.py on this kernel, whose modules `without` are taken away; RuntimeError with the console's end."""
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as named:
        work = Path(named)
        start = make_start(kernel, root, project, without=without, parts=parts, work=work)
        machine, answer = MACHINES[kernel.architecture], work / "answer"
        speed = KVM if kernel.architecture == NATIVE and can_accelerate(kernel.binary) else (*EMULATED, *machine.words)
        lines = (
            "-serial", f"file:{work / 'console'}", "-chardev", f"file,id=answer,path={answer}",
            *(("-device", f"{machine.second[0]},chardev=answer") if machine.second else ("-serial", "chardev:answer")),
        )  # fmt: skip
        command = idle(
            "prlimit", f"--cpu={limit}", machine.program, *speed, *SMALL, *lines, "-kernel", kernel.binary, "-initrd", start,
            "-append", f"console={machine.console} {QUIET}",
        )  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SLOWLY * limit, check=False, stdin=subprocess.DEVNULL)
            said = done.stderr
        except subprocess.TimeoutExpired as error:
            said = str(error)
        return read_answer(answer, f"{said}{_end_of(work / 'console')}")


def in_root(root: Path, project: Path, *, parts: str = "all", limit: int) -> Mapping[str, object]:
    """The answer of inside.py in a root of Debian, in namespaces of its own, on this machine's kernel."""
    with tempfile.TemporaryDirectory(prefix="netinit-kernels-") as named:
        answer, built = Path(named) / "answer", Path(named) / "executable"
        answer.touch()
        if EXECUTABLE in tests(parts):
            link_executable(project / "netinit", built, NATIVE)
        script = Path(__file__).parent / "enter.sh"
        command = ["unshare", "--net", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", script, root, project, answer, parts, *([built] if built.exists() else [])]
        try:
            done = subprocess.run(nice(*command), capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise RuntimeError(f"not ready after {limit} s") from error
        return read_answer(answer, (done.stderr or done.stdout)[-1500:])


def read_answer(path: Path, said: str) -> Mapping[str, object]:
    """The lines that inside.py told, as one: {"facts", "apply", "doctor", "tests", "spent", "ended"}; RuntimeError where there are none."""
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    answer: dict[str, object] = {"ended": False, "tests": []}
    for line in lines:
        try:
            answer |= json.loads(line)
        except ValueError:  # the machine was stopped while it told this line
            break
        if "test" in answer:
            answer["tests"] = [*answer["tests"], answer.pop("test")]  # type: ignore[misc]
    if "facts" not in answer:
        raise RuntimeError(f"no answer: {said}")
    return answer | ({} if answer["ended"] else {"said": said})


def _end_of(console: Path) -> str:
    return console.read_text(errors="replace")[-1500:] if console.exists() else ""
