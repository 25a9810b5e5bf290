"""The admission server's image: it serves as an ordinary user with a read-only root, and nothing else is in it."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from pathlib import Path

import click
import pytest

from containers import Image
from engine import Engine
from laboratory import Pod
from netinit.cli.group import make_group
from netinit.webhook.certificates import make_pair

MEGABYTE = 1 << 20
MOST = 90 * MEGABYTE
WORDS = [
    "webhook",
    "serve",
    "--tlsCertFile",
    "/tls/tls.crt",
    "--tlsKeyFile",
    "/tls/tls.key",
]


def files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]


def test_it_holds_the_server_and_no_programs_of_netfilter(python_files: Path):
    names = {path.name for path in files(python_files)}
    assert {"controller.py", "client.py", "Chart.yaml"} <= names
    assert not names & {
        "iptables",
        "xtables-nft-multi",
        "nft",
        "ipset",
        "sh",
        "bash",
        "dash",
        "apt",
        "dpkg",
        "pip",
        "gcc",
    }
    assert sum(path.stat().st_size for path in files(python_files)) < MOST
    assert not [path for path in files(python_files) if path.stat().st_mode & 0o6000]


def test_a_change_of_the_sources_leaves_the_layer_of_the_dependencies_as_it_is(engine: Engine, webhook: Image):
    source = engine.sources / "netinit" / "base" / "errors.py"
    text = source.read_text()
    try:
        source.write_text(f"{text}\n# One line more.\n")
        changed = engine.build("localhost/netinit-changed", more=["--target=webhook"])
    finally:
        source.write_text(text)
    before, after = webhook.layers, changed.layers
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_the_init_containers_image_holds_nothing_of_the_server(engine: Engine, image: Image, tmp_path: Path):
    names = {str(path.relative_to(tmp_path)) for path in files(engine.unpack(image, tmp_path))}
    assert [
        name
        for name in names
        if re.search(
            r"netinit/(webhook|serving|node|kube|cli/webhook|cli/node|data/chart)/|httpx2|uvicorn|cryptography|prometheus_client|libssl|_ssl", name
        )
    ] == []


KEPT = {  # by which others know where an agent answers, and find the certificates of an installation
    "node": ("__init__.py", "settings.py"), "serving": ("__init__.py", "certificates.py"),
}  # fmt: skip
SERVERS = ("cli/node", "node", "serving", "webhook")


def contents(root: Path) -> dict[str, tuple[int, bytes]]:
    return {str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes()) for path in files(root)}


def test_the_servers_add_no_byte_to_the_init_containers_image(engine: Engine, image: Image, tmp_path: Path):
    """It is, file by file, the image of sources without them."""
    package, whole = engine.sources / "netinit", tmp_path / "whole"
    shutil.copytree(package, whole)
    try:
        for name in SERVERS:
            kept = {package / name / one: (package / name / one).read_bytes() for one in KEPT.get(name, ())}
            shutil.rmtree(package / name)
            (package / name).mkdir()
            for path, content in {package / name / "__init__.py": b"", **kept}.items():
                path.write_bytes(content)
        alone = engine.build("localhost/netinit-alone")
    finally:
        shutil.rmtree(package)
        shutil.copytree(whole, package)
    ours, theirs = contents(engine.unpack(image, tmp_path / "ours")), contents(engine.unpack(alone, tmp_path / "theirs"))
    assert [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)] == []
    print(f"{len(ours)} files, {sum(len(data) for _, data in ours.values())} bytes in both")


SERVED = ("serve",)  # tested below, with its certificates
LINES = {  # words behind `webhook`, exit code, and what is said
    ("manifests",): (0, "MutatingWebhookConfiguration"),
    ("lint", "-f", "/pod/installation.yaml"): (0, ""),
    ("probe", "--probe-path", "/pod/none"): (1, "cannot be read"),
    ("compare", "--help"): (0, "two injectors"),
}


@pytest.mark.netns
@pytest.mark.parametrize("user", ["0:0", "65532:65532"])
def test_every_command_of_the_server_works_in_its_image(webhook: Image, pod: Pod, tmp_path: Path, user):
    known = set(make_group("webhook").list_commands(click.Context(make_group("webhook"))))
    assert known == {*SERVED, *(words[0] for words in LINES)}
    tmp_path.chmod(0o755)
    for words, (code, said) in LINES.items():
        done = webhook.run(pod.pid, ["webhook", *words], user=user, capabilities=(), mounts={"/pod": tmp_path})
        if words == ("manifests",):
            (tmp_path / "installation.yaml").write_text(done.stdout)
        text = done.stdout + done.stderr
        assert (done.returncode, said in text) == (code, True), (words, text)
        assert "Traceback" not in text
        assert "No module named" not in text


@pytest.mark.netns
def test_it_serves_with_a_read_only_root_as_an_ordinary_user(webhook: Image, pod: Pod, tmp_path: Path):
    pair = make_pair(("localhost",), now=time.time(), seconds=3600)
    tls = tmp_path / "tls"
    tls.mkdir()
    for name, text in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (tls / name).write_text(text)
        (tls / name).chmod(0o644)
    done: list[subprocess.CompletedProcess[str]] = []
    serving = threading.Thread(
        target=lambda: done.append(webhook.run(pod.pid, WORDS, mounts={"/tls": tls}))
    )
    serving.start()
    said = ""
    end = time.monotonic() + 60
    while "[+]configuration: generation 1" not in said and time.monotonic() < end and not done:
        asked = ["nsenter", "-t", str(pod.pid), "-n", "curl", "--silent", "http://127.0.0.1:15014/readyz?verbose"]
        said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        time.sleep(0.1)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        words = path.read_bytes().split(b"\0") if path.exists() else []
        if b"--tlsCertFile" in words and b"/tls/tls.crt" in words:
            subprocess.run(["kill", "-TERM", path.parent.name], check=False)
    serving.join(60)
    assert "[+]certificate: valid until" in said, (said, done)
    assert "Traceback" not in done[0].stderr
