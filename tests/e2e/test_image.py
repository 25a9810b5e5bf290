"""What is in the image and what is not, that two builds are alike, and that everything in it runs."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import stat
import struct
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import netinit
from containers import Image
from engine import BASE, COMMIT, ROOT, Engine
from image_licenses import OF_DEBIAN, find_licenses, find_main_license, read_debian_packages
from laboratory import Pod
from netinit.cli.commands import ALIASES, COMMANDS
from netinit.kernel.detect import CAP_NET_ADMIN, CAP_NET_RAW

MEGABYTE = 1 << 20
MOST = 15 * MEGABYTE
MOST_PACKED = 6_000_000
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020")
PERMITTED_ONLY = 0x02000000  # VFS_CAP_REVISION_2 without VFS_CAP_FLAGS_EFFECTIVE (linux/capability.h)
SHELLS = {"sh", "bash", "dash", "busybox", "perl"}
INSTALLERS = {"apt", "apt-get", "dpkg", "pip", "pip3", "gcc", "cc", "as", "ld", "make", "git", "curl", "wget"}


def walk(root: Path) -> Iterator[Path]:
    """Everything below a folder, links not followed, in order."""
    for folder, folders, names in os.walk(root):
        for name in sorted(folders + names):
            yield Path(folder, name)


def inside(path: Path, root: Path) -> str:
    return "/" + str(path.relative_to(root))


# The Dockerfile


def test_hadolint_finds_nothing(hadolint: Path):
    done = subprocess.run([hadolint, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_the_dockerfile_names_no_host_and_no_architecture():
    text = "\n".join(line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.startswith("#"))
    assert not re.search(r"https?://|\b[\w-]+\.(io|org/|com|net|dev)\b(?!\.image)", text.replace("org.opencontainers", ""))
    assert not re.search(r"x86|amd64|arm64|aarch64", text)
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == [
        *("${BASE}", "system", "system", "libraries", "package"),
        *("scratch", "scratch", "scratch"),  # the admission server's, the node's, the init container's
    ]


def test_the_base_is_one_of_debian_s_by_date_and_digest():
    (base,) = re.findall(r"^ARG BASE=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"debian:[a-z]+-20\d{6}-slim@sha256:[0-9a-f]{64}", base)


def read_lock() -> dict[str, tuple[str, list[str]]]:
    """The names in the images' lock, each with its version and its hashes."""
    entries = (ROOT / "requirements/webhook.txt").read_text().replace("\\\n", " ").splitlines()
    found = {}
    for words in (entry.split() for entry in entries if not entry.startswith("#")):
        requirement = Requirement(words[0])
        (pin,) = requirement.specifier
        assert pin.operator == "==", words[0]
        found[canonicalize_name(requirement.name)] = (pin.version, words[1:])
    return found


def test_the_lock_has_what_the_package_depends_on_with_versions_that_it_takes_and_hashes():
    wanted = [Requirement(text) for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]]
    locked = read_lock()
    assert {canonicalize_name(one.name) for one in wanted} <= locked.keys()
    for one in wanted:
        assert one.specifier.contains(locked[canonicalize_name(one.name)][0]), f"{one}: run make lock"
    for name, (_, hashes) in locked.items():
        assert hashes, name
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", text) for text in hashes), name


# What is in it


def test_the_labels_tell_version_licence_and_commit(image: Image):
    labels = {key.rpartition(".")[2]: text for key, text in image.configuration["Labels"].items() if "opencontainers" in key}
    assert labels["version"] == netinit.__version__
    assert labels["licenses"] == find_licenses("init")
    assert labels["revision"] == COMMIT
    assert labels["title"] == "netinit"


def test_scanners_find_its_python_packages_which_are_of_the_lock(files: Path):
    found = {canonicalize_name(one.name): one for one in importlib.metadata.distributions(path=[str(files / "usr/lib/netinit")])}
    versions = {name: version for name, (version, _) in read_lock().items() if name in {"click", "pyyaml"}}
    assert {name: one.version for name, one in found.items()} == {**versions, "netinit": netinit.__version__}


def test_a_package_that_is_not_the_one_of_the_lock_is_refused(engine: Engine, image: Image):
    lock = engine.sources / "requirements/webhook.txt"
    text = lock.read_text()
    try:
        lock.write_text(re.sub("[0-9a-f]{64}", "0" * 64, text))
        with pytest.raises(RuntimeError, match="DO NOT MATCH THE HASHES"):
            engine.build("localhost/netinit-forged")
    finally:
        lock.write_text(text)


def test_a_base_that_names_no_archive_of_its_day_is_refused(engine: Engine, image: Image, tmp_path: Path):
    (tmp_path / "Dockerfile").write_text(f"FROM {BASE}\nRUN sed -i '/^#/d' /etc/apt/sources.list.d/debian.sources\n")
    engine.podman("build", "--pull=never", "--isolation=chroot", "--tag", "localhost/undated", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"debian\.sources"):
        engine.build("localhost/netinit-undated", more=["--build-arg=BASE=localhost/undated"])


def test_the_default_user_is_no_root(image: Image):
    assert image.configuration["User"] == "65532:65532"


def test_it_takes_less_than_15_megabytes(files: Path):
    sizes: dict[str, int] = {}
    for path in walk(files):
        if path.is_file() and not path.is_symlink():
            part = "/".join(path.relative_to(files).parts[:3])
            sizes[part] = sizes.get(part, 0) + path.stat().st_blocks * 512
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:8]
    packed = len(subprocess.run(["tar", "--create", "--gzip", "--directory", files, "."], capture_output=True, check=True).stdout)
    print(*(f"{size / MEGABYTE:6.1f} MB  {part}" for part, size in largest), f"{packed / MEGABYTE:6.1f} MB  compressed", sep="\n")
    assert sum(sizes.values()) < MOST, largest
    assert packed < MOST_PACKED


def test_no_file_is_setuid_or_setgid_or_writable_by_others(files: Path):
    found = []
    for path in walk(files):
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            continue
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_ISUID | stat.S_ISGID):
            found.append(f"setuid or setgid: {inside(path, files)}")
        if status.st_mode & stat.S_IWOTH and inside(path, files) != "/tmp":
            found.append(f"writable by all: {inside(path, files)}")
        if (status.st_uid, status.st_gid) != (0, 0):
            found.append(f"not root's: {inside(path, files)}")
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            found.append(f"neither file nor folder: {inside(path, files)}")
    assert not found, "\n".join(found)


def test_only_the_program_has_capabilities_and_only_permitted_ones(files: Path):
    found = {
        inside(path, files): os.getxattr(path, "security.capability")
        for path in walk(files)
        if not path.is_symlink() and "security.capability" in os.listxattr(path)
    }
    magic, permitted, inheritable, *high = struct.unpack("<5I", found.pop("/usr/bin/netinit"))
    assert (magic, permitted, inheritable, high) == (PERMITTED_ONLY, 1 << CAP_NET_ADMIN | 1 << CAP_NET_RAW, 0, [0, 0])
    assert not found


def test_it_has_no_shell_installer_compiler_certificate_or_cache(files: Path):
    found = []
    for path in walk(files):
        name, where = path.name, inside(path, files)
        if os.access(path, os.X_OK) and path.is_file() and name in SHELLS | INSTALLERS:
            found.append(where)
        if path.suffix in {".pem", ".crt", ".key", ".h", ".a", ".whl", ".o"} or "ca-certificates" in where:
            found.append(where)
        if where.startswith(("/var/cache/", "/var/lib/apt", "/root", "/home", "/tmp/", "/build")) or "/pip/" in where:
            found.append(where)
    assert not found, "\n".join(found)


def test_no_link_leads_nowhere(files: Path):
    dangling = []
    for path in walk(files):
        if path.is_symlink():
            target = str(path.readlink())
            leads = files / target.lstrip("/") if target.startswith("/") else path.parent / target
            if not leads.exists():
                dangling.append(f"{inside(path, files)} -> {target}")
    assert not dangling, "\n".join(dangling)


def test_every_package_of_debian_is_named_for_scanners(files: Path):
    paragraphs = [path.read_text() for path in (files / "var/lib/dpkg/status.d").iterdir()]
    named = {re.findall(r"^Package: (.*)$", text, re.MULTILINE)[0] for text in paragraphs}
    assert named == {"libc6-dev", "libpython3.11-dev", "libpython3.11-minimal", "libpython3.11-stdlib", "zlib1g-dev"}
    assert all(re.search(r"^Version: \S", text, re.MULTILINE) for text in paragraphs)
    assert "bookworm" in (files / "etc/os-release").read_text()
    without = [name for name in named if not (files / "usr/share/doc" / name / "copyright").is_file()]
    assert not without, f"without a licence: {without}"


def test_the_licence_of_each_package_of_debian_is_one_of_the_label(files: Path):
    for name in read_debian_packages("PARTS"):
        license_of_all = find_main_license((files / "usr/share/doc" / name / "copyright").read_text())
        assert not license_of_all or license_of_all in OF_DEBIAN[name], name


def test_every_licence_that_a_copyright_file_points_to_is_there(files: Path):
    notices = [path for path in walk(files / "usr/share/doc") if path.name == "copyright"]
    named = {
        name for path in notices for name in re.findall(r"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9+])", path.read_text())
    }
    assert {"GPL-2", "LGPL-2.1"} <= named
    missing = [name for name in sorted(named) if not (files / "usr/share/common-licenses" / name).is_file()]
    assert not missing, f"named, but not in the image: {missing}"


# Two builds


def describe(root: Path) -> dict[str, tuple[object, ...]]:
    """Mode, owner, time, capabilities and content of everything in a folder."""
    found: dict[str, tuple[object, ...]] = {}
    for path in walk(root):
        status = path.lstat()
        content = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        attributes = {} if path.is_symlink() else {name: os.getxattr(path, name) for name in os.listxattr(path)}
        found[inside(path, root)] = (oct(status.st_mode), status.st_uid, status.st_gid, int(status.st_mtime), attributes, content)
    return found


def test_two_builds_of_the_same_files_are_alike(engine: Engine, image: Image, files: Path, tmp_path: Path):
    second = engine.build("localhost/netinit-again", more=["--no-cache"])
    here, again = describe(files), describe(engine.unpack(second, tmp_path / "again"))
    shutil.rmtree(tmp_path / "again")
    different = sorted(name for name in here.keys() | again.keys() if here.get(name) != again.get(name))
    report = [f"{name}: {str(here.get(name))[:300]} and {str(again.get(name))[:300]}" for name in different[:10]]
    assert not different, "\n".join([f"{len(different)} differ:", *report])
    assert image.layers == second.layers


# It runs


@pytest.mark.netns
@pytest.mark.parametrize("words", [(), ("istio-iptables",), ("apply",)], ids=["flags alone", "istio-iptables", "apply"])
def test_the_argument_forms_of_istio_work(image: Image, pod: Pod, words):
    done = image.run(pod.pid, [*words, *SIDECAR], capabilities=["NET_ADMIN"])
    assert done.returncode == 0, done.stderr
    assert "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001" in done.stderr


@pytest.mark.netns
@pytest.mark.parametrize("name", ["istio-iptables", "netinit"])
def test_a_command_by_name_works_too(image: Image, pod: Pod, name):
    done = image.run(pod.pid, SIDECAR, entrypoint=[name])
    assert done.returncode == 0, done.stderr
    wrong = image.run(pod.pid, ["-m", "TPROXI"], entrypoint=[name])
    assert wrong.returncode == (1 if name == "istio-iptables" else 2)
    assert "TPROXI" in wrong.stderr


POD_YAML = b"""apiVersion: v1
kind: Pod
metadata: {name: app}
spec: {containers: [{name: app, image: app}]}
"""
SAID = [  # words, exit code, and what is said; one after the other in one pod
    (("--help",), 0, "Inspect:"),
    (("version",), 0, netinit.__version__),
    (("help", "NI106"), 0, "NI106 (unknown-annotation)"),
    (("completion", "bash"), 0, "_NETINIT_COMPLETE"),
    (("render", "-b", "*", "--format", "nft", "--ipv6", "on"), 0, "table inet"),
    (("explain", "--to", "10.1.2.3:443", "--uid", "1000", "-b", "*", "-i", "*", "--ipv6", "off"), 0, "captured"),
    (("lint", "-b", "80", "-d", "8080"), 0, "1 warning"),
    (("draw", "-b", "*", "-i", "*", "--ipv6", "off", "--format", "mermaid"), 0, "flowchart LR"),
    (("audit", "-b", "*", "-i", "*", "--ipv6", "off"), 0, "by design"),
    (("diff", "apply -b '*' --ipv6 off", "apply -b '*' --ipv6 off"), 0, "no packet is treated differently"),
    (("convert", "--from", "linkerd", "--", "-p", "4143", "-o", "4140", "-u", "2102"), 0, "netinit apply"),
    (("verify", *SIDECAR), 3, "missing"),
    (("istio-iptables", *SIDECAR, "--dry-run"), 0, "-A ISTIO_REDIRECT"),
    (("apply", *SIDECAR), 0, "programmed by"),
    (("verify", *SIDECAR), 0, "as planned"),
    (("watch", "--count", "1", "--interval", "0.5"), 0, "rules of netinit apply"),
    (("trace", "--to", "203.0.113.7:443", "--timeout", "1"), 1, "no packet that begins such a connection"),
    (("remove",), 0, "removed all rules"),
    (("remove",), 0, "no rules"),
    (("inject", "-f", "/pod/pod.yaml"), 0, "istio-init"),
    (("kube-inject", "-f", "/pod/pod.yaml"), 0, "istio-init"),
    (("check-inject", "-f", "/pod/pod.yaml"), 3, "not reached"),
    (("check", "--assume", "injected", "/pod/pod.yaml"), 0, "1 pod"),
    (("why", "--assume", "injected", "/pod/pod.yaml", "--to", "10.1.2.3:443"), 0, "no cause found"),
    (("doctor",), 0, "probably OK"),
    (("kubectl", "--help"), 0, "verify"),
    (("aply",), 2, "did you mean apply"),
    (("demo",), 2, "not in this executable: install the package\n"),
    (("webhook", "serve"), 2, "not in this executable"),
    (("node", "agent"), 2, "not in this executable: install the package, or use the image netinit-node"),
    (("webhook", "manifests"), 0, "kind: MutatingWebhookConfiguration"),
    (("webhook", "lint", "-f", "/pod/pod.yaml"), 1, "there is no webhook that injects sidecars"),
    (("kubectl", "doctor", "--cluster"), 1, "kubectl is not on the PATH"),
    (("apply", "-b", "80", "--backend", "libiptc"), 1, "libiptc: not in this executable"),
    (("inject", "--context", "x", "-f", "/pod/pod.yaml"), 1, "kubectl is not on the PATH"),
]


@pytest.mark.netns
def test_every_command_works_in_it_or_says_that_it_is_not_in_it(image: Image, pod: Pod, tmp_path: Path):
    assert {*COMMANDS, *ALIASES} <= {words[0] for words, *_ in SAID}
    (tmp_path / "pod.yaml").write_bytes(POD_YAML)
    wrong = []
    for words, status, said in SAID:
        done = image.run(pod.pid, words, mounts={"/pod": tmp_path})
        if done.returncode != status or said not in done.stdout + done.stderr or "Traceback" in done.stderr:
            wrong.append(f"{' '.join(words)}: {done.returncode}\n{done.stdout[-600:]}{done.stderr[-600:]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.netns
def test_legacy_takes_a_lock_file_that_is_given(image: Image, pod: Pod, tmp_path: Path):
    arguments = [*SIDECAR, "--backend", "iptables-legacy"]
    done = image.run(pod.pid, arguments, mounts={"/lock": tmp_path}, environment={"XTABLES_LOCKFILE": "/lock/xtables.lock"})
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "xtables.lock").exists()
