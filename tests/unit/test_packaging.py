"""The wheel, installed where nothing else is: what it needs, what it holds, and that its commands work."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCES = ("netinit", "pyproject.toml", "setup.py", "README.md", "LICENSE")
# What builds leave behind: the modules of a finished one, the contents of the wheel where one was interrupted.
STALE = ("build/lib/netinit/cli/stale_module.py", f"build/bdist.{sysconfig.get_platform()}/wheel/netinit/stale_module.py")
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: app:1}]}\n"


def check(*command, **more):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the sources with what a build of an earlier version left behind."""
    folder = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, folder / name, **({"ignore": shutil.ignore_patterns("__pycache__")} if copy is shutil.copytree else {}))
    for place in STALE:
        (folder / place).parent.mkdir(parents=True)
        (folder / place).touch()
    return folder


@pytest.fixture(scope="module")
def wheel(source, tmp_path_factory):
    """Built from these sources, without asking an index."""
    folder = tmp_path_factory.mktemp("wheel")
    check(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, source)
    return next(folder.glob("netinit-*.whl"))


@pytest.fixture(scope="module")
def described(wheel):
    """The wheel's own description, as an index and pip read it."""
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(path).decode())


def needed(described, *extras):
    """The names of the distributions that it needs on this machine, without an extra or with these."""
    texts = described.get_all("Requires-Dist")
    wanted = [Requirement(text) for text in texts]
    return {one.name for one in wanted if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *extras))}


@pytest.fixture(scope="module")
def installed(wheel, described, tmp_path_factory):
    """The programs of an environment that holds the wheel and the distributions it names, and nothing else."""
    folder = tmp_path_factory.mktemp("empty")
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": folder, "platbase": folder}))
    for name in needed(described):
        for top in {Path(str(file)).parts[0] for file in metadata.files(name)} - {"..", "__pycache__"}:
            (packages / top).symlink_to(metadata.distribution(name).locate_file(top))
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
    check(*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", wheel)  # the first start compiles what it reads
    check(*pip, "check")
    return folder / "bin"


def test_it_needs_no_compiler_and_the_backend_libiptc_is_an_extra(described):
    assert needed(described) == {"click", "pyyaml", "pyroute2"}
    assert needed(described, "libiptc") - needed(described) == {"python-iptables"}
    server = {"cryptography", "google-re2", "httptools", "httpx2", "prometheus-client", "uvicorn"}
    assert needed(described, "webhook") - needed(described) == server
    assert needed(described, "kubernetes") - needed(described) == {"httpx2"}


def test_an_extra_that_a_message_advises_is_one_of_the_package(described):
    advised = {name for path in (ROOT / "netinit").rglob("*.py") for name in re.findall(r"netinit\[(\w+)\]", path.read_text())}
    assert advised
    assert advised <= set(described.get_all("Provides-Extra"))


def test_it_holds_what_the_sources_hold(wheel):
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "netinit").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    there -= {"netinit/bin/executable.c", "netinit/bin/launcher.c", "netinit/node/plugin.c"}  # the images'
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name for name in held if name.endswith(".data/scripts/netinit")}
    assert {name for name in held if ".data/" not in name} == there


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--version", "netinit "),
        ("render -p 15001 -u 1337 -b * -i * --ipv6 off", "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001"),
        ("explain --to 10.1.2.3:443 --uid 1000 -b * -i * --ipv6 off", "goes to the proxy on 15001"),
        ("lint -b * -i * -d 15021,15090", ""),
        ("completion bash", "_NETINIT_COMPLETE=bash_complete"),
    ],
)
def test_a_command_works_where_nothing_else_is_installed(installed, words, told, tmp_path):
    assert told in check(installed / "netinit", *words.split(), cwd=tmp_path)


def test_kubectl_finds_the_plugin_and_what_completes_it(installed, tmp_path):
    folders = {"PATH": f"{installed}:{os.environ['PATH']}"}
    assert "Usage: netinit kubectl check" in check("kubectl-netinit", "check", "--help", cwd=tmp_path, env=folders)
    assert check("kubectl_complete-netinit", "che", cwd=tmp_path, env=folders).splitlines()[-1] == ":4"


def test_the_server_says_which_packages_it_wants(installed, tmp_path):
    command = [installed / "netinit", "webhook", "serve", "--certificateSecret", "s"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "pip install cryptography httptools httpx2 prometheus-client uvicorn" in done.stderr, done.stderr
    assert "kind: MutatingWebhookConfiguration" in check(installed / "netinit", "webhook", "manifests", cwd=tmp_path)


def test_pods_are_injected_where_nothing_else_is_installed(installed, tmp_path):
    (tmp_path / "pod.yaml").write_text(POD)
    injected = check(installed / "netinit", "inject", "-f", "pod.yaml", cwd=tmp_path)
    assert "name: istio-init" in injected
    assert "name: istio-proxy" in injected


def test_the_backend_that_is_not_installed_says_what_is_missing(installed, tmp_path):
    command = [installed / "python", "-c", LIBIPTC]
    assert "python-iptables: not installed: pip install python-iptables" in check(*command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""})


LIBIPTC = """
from netinit.backends.libiptc import LibiptcBackend
from netinit.base.net import IPV4
print(*LibiptcBackend(own_files=False).feed({IPV4: "*nat"}).values())
"""
