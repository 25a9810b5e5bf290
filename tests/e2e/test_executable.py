"""The image of one static executable: what is in it, that nothing from outside becomes code in it, and that it does the whole job."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import release_images
from bare_executable import BareExecutable
from containers import Image
from executable_commands import try_commands
from lab_state import describe_state
from laboratory import Pod
from netinit.base.version import __version__

WORDS = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021,15020")
PROGRAM = "usr/bin/netinit"
DATA = {"/etc/group", "/etc/localtime", "/etc/nsswitch.conf", "/etc/passwd"}  # what the C library reads


@pytest.fixture(scope="module")
def root(files: Path) -> Path:
    return files


@pytest.fixture
def pod() -> Iterator[Pod]:
    with Pod() as made:
        yield made


def test_it_holds_one_program_and_no_library(root: Path):
    programs = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes()[:4] == b"\x7fELF"]
    assert programs == [root / PROGRAM]
    told = subprocess.run(["readelf", "--program-headers", "--dynamic", root / PROGRAM], capture_output=True, text=True, check=True).stdout
    assert "INTERP" not in told
    assert "There is no dynamic section" in told
    assert {path.name for path in (root / "usr/bin").iterdir()} == {"istio-iptables", "kubectl-netinit", "kubectl_complete-netinit", "netinit"}
    assert not [path for path in root.rglob("*") if path.suffix in {".py", ".pyc", ".so"}]


def test_who_wants_another_c_library_is_told_how_to_link_it(root: Path):
    assert "LGPL-2.1" in (root / "usr/share/doc/netinit/relink").read_text()
    assert (root / "usr/share/common-licenses/LGPL-2.1").read_text().startswith(" " * 10)


@pytest.mark.netns
@pytest.mark.parametrize("user", ["0:0", "65532:65532"])
@pytest.mark.parametrize("backend", ["iptables-nft", "iptables-legacy", "nftables"])
def test_it_programs_finds_and_removes_the_rules(image: Image, pod: Pod, user: str, backend: str):
    for program in ("iptables-legacy", "ip6tables-legacy"):  # a user other than root registers legacy tables by asking for them
        for table in ("filter", "mangle", "nat", "raw"):
            pod.run([program, "-t", table, "-S"], check=True)
    before = describe_state(pod)
    escalation = user != "0:0"  # capabilities of the file, permitted to a user other than root
    for expected in (f"programmed by {backend}", f"rules are as planned ({backend}): nothing to do"):
        words = [*WORDS, "--backend", backend]
        done = image.run(pod.pid, words, user=user, escalation=escalation, bounding_only=escalation)
        assert (done.returncode, expected in done.stderr) == (0, True), done.stderr
    assert "15001" in describe_state(pod)
    removed = image.run(pod.pid, ["--cleanup-only", "--backend", backend], user=user, escalation=escalation, bounding_only=escalation)
    assert removed.returncode == 0, removed.stderr
    assert describe_state(pod) == before


POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: app}\nspec: {containers: [{name: app, image: app}]}\n"


def test_each_command_starts_or_says_that_it_is_not_in_it(root: Path):
    assert try_commands(str(root / PROGRAM)) == []


def test_it_renders_the_chart_and_help_as_the_package_does(root: Path):
    for words in (["webhook", "manifests"], ["explain", "--help"], ["help", "NI106"]):
        theirs, ours = (
            subprocess.run([*program, *words], capture_output=True, text=True, check=True, timeout=120).stdout
            for program in ([str(root / PROGRAM)], [sys.executable, "-m", "netinit"])
        )
        assert theirs == ours, words


def test_a_release_takes_it_out_of_its_image_with_what_it_holds_and_its_licences(root: Path, tmp_path: Path):
    own = release_images.name_architecture()
    release_images.take_executable(root, tmp_path, own)
    assert list(release_images.check_executables(tmp_path, [own], __version__)) == []
    assert (tmp_path / f"netinit-linux-{own}").read_bytes() == (root / PROGRAM).read_bytes()


@pytest.fixture
def bare(root: Path, tmp_path: Path) -> BareExecutable:
    """The image's program alone, and a manifest."""
    made = BareExecutable(root / PROGRAM, tmp_path / "root")
    (made.folder / "pod.yaml").write_text(POD)
    return made


@pytest.mark.netns
@pytest.mark.parametrize("backend", ["iptables-nft", "iptables-legacy", "nftables"])
def test_the_file_alone_programs_a_namespace_and_answers_about_it(bare: BareExecutable, pod: Pod, backend: str):
    asked = [
        (("istio-iptables", *WORDS), 0, "programmed by"),
        (("netinit", "remove"), 0, "removed all rules"),
        (("netinit", "apply", *WORDS, "--backend", backend), 0, f"programmed by {backend}"),
        (("netinit", "verify", *WORDS, "--backend", backend), 0, "as planned"),
        (("netinit", "verify", "--pid", str(pod.pid)), 0, "as planned"),
        (("netinit", "explain", "--live", "--to", "203.0.113.7:443"), 0, "captured"),
        (("netinit", "audit", "--live"), 0, "by design"),
        (("netinit", "remove"), 0, "removed all rules"),
        (("netinit", "doctor"), 0, "REDIRECT"),
        (("netinit", "check", "--assume", "injected", "/pod.yaml"), 0, "1 pod"),
        (("netinit", "inject", "-f", "/pod.yaml"), 0, "istio-init"),
        (("netinit", "render", *WORDS, "--format", "nft"), 0, "add table"),
        (("netinit", "convert", "--from", "linkerd", "--", "-p", "4143", "-o", "4140", "-u", "2102"), 0, "netinit apply"),
        (("netinit", "completion", "bash"), 0, "_NETINIT_COMPLETE"),
        (("netinit", "help", "NI106"), 0, "NI106 (unknown-annotation)"),
        (("kubectl-netinit", "--help"), 0, "Usage: netinit kubectl"),
        (("kubectl_complete-netinit", "fi"), 0, "fix\t"),
    ]
    wrong = []
    for words, status, said in asked:
        done = bare.run(pod, *words)
        if done.returncode != status or said not in done.stdout + done.stderr or "Traceback" in done.stderr:
            wrong.append(f"{' '.join(words)}: {done.returncode}\n{done.stdout[-600:]}{done.stderr[-600:]}")
    assert not wrong, "\n".join(wrong)


def test_nothing_from_outside_becomes_code(root: Path, tmp_path: Path):
    evil = "import os; os.write(2, b'EVIL\\n'); os._exit(66)\n"
    for name in ("encodings", "netinit", "site", "sitecustomize", "usercustomize", "__future__", "click", "os", "json"):
        (tmp_path / f"{name}.py").write_text(evil)
    (tmp_path / "python311._pth").write_text(f"{tmp_path}\nimport site\n")
    (tmp_path / "pyvenv.cfg").write_text(f"home = {tmp_path}\n")
    source = tmp_path / "evil.c"
    source.write_text('#include <unistd.h>\n__attribute__((constructor)) static void evil(void) { write(2, "EVIL\\n", 5); _exit(66); }\n')
    library = tmp_path / "evil.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    for name in ("libnss_files.so.2", "libnss_evil.so.2", "gconv-modules", "libgcc_s.so.1"):
        (tmp_path / name).write_bytes(library.read_bytes())
    (tmp_path / "program").write_bytes((root / PROGRAM).read_bytes())
    (tmp_path / "program").chmod(0o755)
    places = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONUSERBASE", "PYTHONPLATLIBDIR", "LD_LIBRARY_PATH", "GCONV_PATH", "LOCPATH", "HOME")
    environ = {name: str(tmp_path) for name in places}
    environ |= {"LD_PRELOAD": str(library), "LD_AUDIT": str(library), "PYTHONINSPECT": "1", "PYTHONBREAKPOINT": "os.abort", "LANG": "xx_XX.EVIL"}
    for words in (["version"], ["lint", "-b", "80"], ["explain", "--to", "10.1.2.3:443", "-b", "*", "--ipv6", "off"]):
        done = subprocess.run(
            [tmp_path / "program", *words], capture_output=True, text=True, check=False, env=environ, cwd=tmp_path, timeout=60
        )
        assert (done.returncode, "EVIL" in done.stderr, "Traceback" in done.stderr) == (0, False, False), done.stderr
    traced = subprocess.run(
        ["strace", "-f", *[f"-E{name}={text}" for name, text in environ.items()], "-e", "trace=open,openat,execve,readlink",
         tmp_path / "program", "lint", "-b", "80"],
        capture_output=True, text=True, check=True, env={"PATH": "/usr/bin"}, cwd=tmp_path, timeout=60,
    ).stderr  # fmt: skip
    opened = {line.split('"')[1] for line in traced.splitlines() if "open" in line and "ENOENT" not in line}
    assert {path for path in opened if not path.startswith("/proc/")} <= DATA, "it reads no file of the folders that variables name"
