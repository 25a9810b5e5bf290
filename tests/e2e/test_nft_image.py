"""The image of native nft tables: Python and netinit, no program of netfilter, and it does the init container's whole job."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from containers import Image
from engine import Engine
from lab_state import describe_state
from laboratory import Pod

MEGABYTE = 1 << 20
MOST = 45 * MEGABYTE
WORDS = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021,15020")


@pytest.fixture(scope="module")
def root(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    image: Image = engine.build("localhost/netinit-nft", more=["--target=init-nft"])
    return engine.unpack(image, tmp_path_factory.mktemp("nft"))


def test_it_holds_python_and_no_program_beside_it(root: Path):
    programs = {path.name for folder in ("bin", "sbin") for path in (root / "usr" / folder).iterdir()}
    assert programs == {"istio-iptables", "ldconfig", "netinit", "python3", "python3.11"}
    libraries = {path.name for path in (root / "usr" / "lib").rglob("*.so*")}
    assert not [name for name in libraries if name.startswith(("libnftables", "libnftnl", "libmnl", "libxtables", "libipset", "libssl"))]
    size = sum(path.lstat().st_blocks * 512 for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{size / MEGABYTE:.1f} MB")
    assert size < MOST


def run(pod: Pod, root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """netinit of the image, in a mount namespace of its own, with /proc and /dev as a container has them."""
    inside = 'mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" /usr/bin/netinit "$@"'
    return pod.run(["unshare", "--mount", "sh", "-c", inside, str(root), *words])


@pytest.mark.parametrize("words", [(), ("--backend", "nftables"), ("--native-nftables", "-m", "TPROXY", "--reconcile")], ids=" ".join)
def test_it_programs_finds_and_removes_the_rules(root: Path, words: tuple[str, ...]):
    with Pod() as pod:
        before = describe_state(pod)
        backend = "nftables" if "nftables" in " ".join(words) else "iptables-nft"
        for expected in (f"programmed by {backend}", f"rules are as planned ({backend}): nothing to do"):
            done = run(pod, root, *WORDS, *words)
            assert (done.returncode, expected in done.stderr) == (0, True), done.stderr
        assert ("table inet " in pod.run(["nft", "list", "ruleset"], check=True).stdout) is (backend == "nftables")
        removed = run(pod, root, "--cleanup-only")
        assert removed.returncode == 0, removed.stderr
        assert describe_state(pod) == before


def test_legacy_tables_need_no_program_either(root: Path):
    with Pod() as pod:
        done = run(pod, root, *WORDS, "--backend", "iptables-legacy")
        assert (done.returncode, "programmed by iptables-legacy" in done.stderr) == (0, True), done.stderr
        assert run(pod, root, "--cleanup-only", "--backend", "iptables-legacy").returncode == 0
        assert "ISTIO" not in pod.run(["iptables-legacy-save"], check=True).stdout  # the kernel keeps empty tables
