"""The image of one static executable: what is in it, that nothing from outside becomes code in it, and that it does the whole job."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers import Image
from lab_state import describe_state
from laboratory import Pod

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
    assert {path.name for path in (root / "usr/bin").iterdir()} == {"istio-iptables", "kubectl-netinit", "netinit"}
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
