"""Every command of the image, in each of the situations in which it is run: what it says, and how it ends.

The commands are click's own: one that has no line here, or a line without its command, fails the test.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
import yaml

import netinit
from containers import Image
from engine import ROOT, Engine
from laboratory import USER_BASE, Pod
from netinit.cli.commands import ALIASES
from netinit.cli.group import root

pytestmark = pytest.mark.netns
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020")
MANIFEST = """apiVersion: v1
kind: Pod
metadata: {name: app}
spec: {containers: [{name: app, image: app}]}
"""
ELSEWHERE = ("kubectl", "node", "webhook")  # are not in this image
BROKEN = ("Traceback", "ImportError", "ModuleNotFoundError", "No module named", "internal error")
TEMPLATE, NONROOT, NODE, NODE_TO_USERS, USERS = (
    "root", "uid 65532", "privileged hostPID pod", "privileged hostPID pod, at a pod with users of its own", "user namespace",
)  # fmt: skip


@dataclass(frozen=True)
class Situation:
    """Where the image runs: beside the pod's process `target`, confined so; `place` are the words that lead to the pod."""

    name: str
    target: int
    confinement: Mapping[str, object]
    place: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """A command line, how it ends and what it says; `here` has what differs in a situation. `live`: it takes --pid."""

    words: tuple[str, ...]
    code: int
    said: str
    live: bool = False
    here: Mapping[str, tuple[int, str]] | None = None

    def end_in(self, situation: str) -> tuple[int, str]:
        return (self.here or {}).get(situation, (self.code, self.said))


EVERY_NODE = (NODE, NODE_TO_USERS)
NO_NAMESPACE = "this container may not make network namespaces"
LINES = (  # one after the other in one pod
    Line(("version",), 0, netinit.__version__),
    Line(("completion", "bash"), 0, "_NETINIT_COMPLETE"),
    Line(("help", "NI106"), 0, "NI106 (unknown-annotation)"),
    Line(("render", "-b", "*", "--format", "nft", "--ipv6", "on"), 0, "table inet"),
    Line(("explain", "--to", "10.1.2.3:443", "-b", "*", "-i", "*", "--ipv6", "off"), 0, "captured"),
    Line(("lint", "-b", "80", "-d", "8080"), 0, "1 warning"),
    Line(("draw", "-b", "*", "-i", "*", "--ipv6", "off", "--format", "mermaid"), 0, "flowchart LR"),
    Line(("audit", "-b", "*", "-i", "*", "--ipv6", "off"), 0, "by design"),
    Line(("diff", "apply -b '*' --ipv6 off", "apply -b '*' --ipv6 off"), 0, "no packet is treated differently"),
    Line(("convert", "--from", "linkerd", "--", "-p", "4143", "-o", "4140", "-u", "2102"), 0, "netinit apply"),
    Line(("inject", "-f", "/pod/pod.yaml"), 0, "istio-init"),
    Line(("inject", "-f", "/pod/pod.yaml", "--explain"), 0, "manual injection was asked for"),
    Line(("kube-inject", "-f", "/pod/pod.yaml"), 0, "istio-init"),
    Line(("check-inject", "-f", "/pod/pod.yaml"), 3, "not reached"),
    Line(("check", "--assume", "injected", "/pod/pod.yaml"), 0, "1 pod"),
    Line(("why", "--assume", "injected", "/pod/pod.yaml", "--to", "10.1.2.3:443"), 0, "no cause found"),
    Line(("verify", *SIDECAR), 3, "missing", live=True),
    Line(("istio-iptables", *SIDECAR, "--dry-run"), 0, "-A ISTIO_REDIRECT"),
    Line(("istio-iptables", *SIDECAR), 0, "programmed by", live=True),
    Line(("apply", *SIDECAR), 0, "nothing to do", live=True),
    Line(("verify", *SIDECAR), 0, "as planned", live=True),
    Line(("verify",), 0, "as planned", live=True),
    Line(("verify", "--live", *SIDECAR), 0, "as planned", live=True),
    Line(("explain", "--live", "--to", "203.0.113.7:443"), 0, "captured", live=True),
    Line(("draw", "--live", "--format", "dot"), 0, "digraph", live=True),
    Line(("watch", "--count", "1", "--interval", "0.5"), 0, "rules of netinit apply", live=True),
    Line(
        ("trace", "--to", "203.0.113.7:443", "--timeout", "1"), 1, "no packet that begins such a connection", live=True,
        here=dict.fromkeys((NONROOT, USERS), (1, "trace from the node (--pid), where /proc/sys is not read-only")),
    ),
    Line(("doctor", *SIDECAR), 0, "probably OK", live=True, here=dict.fromkeys(EVERY_NODE, (0, "OK: pods on this node"))),
    Line(("remove", "--dry-run"), 0, "ISTIO_REDIRECT", live=True),
    Line(("remove",), 0, "removed all rules", live=True),
    Line(("remove",), 0, "no rules", live=True),
    Line(("demo",), 2, "not in this executable"),
    Line(("aply",), 2, "did you mean apply"),
)


def all_commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command that click knows below a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from all_commands(command, (*before, name))
        else:
            yield (*before, name)


def test_every_command_of_click_has_a_line():
    known = {*all_commands(root), *((name,) for name in ALIASES)}
    wanted = {words for words in known if words[0] not in ELSEWHERE}
    tried = {line.words[:1] for line in LINES}
    assert wanted - tried == set()
    assert {words for words in tried - wanted if words != ("aply",)} == set()


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a manifest that everybody may read."""
    folder = tmp_path_factory.mktemp("pod")
    folder.chmod(0o755)
    (folder / "pod.yaml").write_text(MANIFEST)
    return folder


@pytest.fixture(scope="module")
def shifted(engine: Engine, image: Image) -> Path:
    """The image's files as a runtime gives them to a pod with users of its own: they belong to its root."""
    engine.folder.chmod(0o711)
    folder = engine.unpack(image, engine.folder / "shifted")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, USER_BASE, USER_BASE, follow_symlinks=False)
    return folder


@pytest.fixture(params=[TEMPLATE, NONROOT, NODE, NODE_TO_USERS, USERS])
def situation(request: pytest.FixtureRequest, require_netns: None) -> Iterator[Situation]:
    name = request.param
    with Pod(user_namespace=name in (USERS, NODE_TO_USERS)) as pod, Pod() as node:
        if name == TEMPLATE:
            yield Situation(name, pod.pid, {})
        elif name == NONROOT:
            yield Situation(name, pod.pid, {"user": "65532:65532"})
        elif name == USERS:
            root_there = request.getfixturevalue("shifted")
            yield Situation(name, pod.pid, {"users_of": pod.pid, "root": root_there})
        else:
            yield Situation(name, node.pid, {"privileged": True}, ("--pid", str(pod.pid)))


def test_every_command_of_the_image_ends_as_it_should(image: Image, situation: Situation, manifests: Path):
    wrong = []
    for line in LINES:
        words = [*line.words, *(situation.place if line.live else ())]
        done = image.run(situation.target, words, mounts={"/pod": manifests}, **situation.confinement)
        code, said = line.end_in(situation.name)
        text = done.stdout + done.stderr
        if done.returncode != code or said not in text or any(word in text for word in BROKEN):
            wrong.append(f"{' '.join(words)}: {done.returncode}, wanted {code} and {said!r}\n{done.stdout[-600:]}{done.stderr[-900:]}")
    assert not wrong, "\n".join(wrong)


# What containerd gives every container, and kubectl 1.36 adds with `kubectl debug --profile=netadmin`.
USUAL = ("CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP", "NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE")
CUSTOM = yaml.safe_load((ROOT / "examples" / "kubectl-debug.yaml").read_text())["securityContext"]
DEBUGGED = {  # confinement, and how each command ends: (words, code, what it says)
    "no profile": (
        {"user": "65532:65532", "capabilities": (*USUAL, "SYS_PTRACE"), "escalation": True},
        [(("verify",), 1, "NET_ADMIN is missing"), (("explain", "--live", "--to", "1.2.3.4:80"), 1, "NET_ADMIN is missing")],
    ),
    "netadmin": (
        {"user": "65532:65532", "capabilities": (*USUAL, "NET_ADMIN"), "escalation": True},
        [
            (("verify",), 0, "as planned"),
            (("explain", "--live", "--to", "1.2.3.4:80"), 0, "captured"),
            (("draw", "--live"), 0, "ISTIO_OUTPUT"),
            (("doctor",), 0, "probably OK"),
            (("verify", "--live"), 0, "not proven"),
        ],
    ),
    "netadmin and the file": (
        {"user": f"{CUSTOM['runAsUser']}:0", "capabilities": (*USUAL, *CUSTOM["capabilities"]["add"]), "escalation": True},
        [(("verify", "--live"), 0, "a peer to a port of the pod"), (("explain", "--live", "--to", "1.2.3.4:80"), 0, "captured")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("profile", DEBUGGED)
def test_a_debug_container_of_kubectl_can_do_what_its_profile_allows(image: Image, pod: Pod, profile):
    programmed = image.run(pod.pid, SIDECAR)
    assert programmed.returncode == 0, programmed.stderr
    confinement, commands = DEBUGGED[profile]
    for words, code, said in commands:
        done = image.run(pod.pid, words, **confinement)
        text = done.stdout + done.stderr
        assert (done.returncode, said in text, "✘" in text) == (code, True, False), text


def test_the_help_of_the_image_lists_what_click_knows(image: Image, pod: Pod):
    done = image.run(pod.pid, ["--help"])
    listed = {line.split()[0] for line in done.stdout.partition("Inspect:\n")[2].splitlines() if line.startswith("  ") and line[2] != " "}
    assert (done.returncode, listed) == (0, {words[0] for words in all_commands(root)} - {"demo", "node"})
