"""A pod whose rules, interfaces and processes have names that command a terminal, and what an operator gets to see of it."""

from __future__ import annotations

import ctypes
import json
import os
import pty
import signal
import subprocess

import pytest

import prefork
from hostile_texts import commands
from netinit.cli.console import STYLES
from programming import FOLDERS, REDIRECT, TOOL, VARIANTS, needs, run_tool
from sweeps import choose, crossed

TITLE = "\x1b]0;pwned\x07"
CLEAR = f"{TITLE}\x1b[2J\x1b[Has planned: 19 rules for IPv4 and IPv6 (iptables-nft)"
REASON = "all outbound TCP is captured; no exclusion matches (--istio-service-cidr)"
COMMENTS = (CLEAR, "\u202eevil\u2066\u200b\U000e0041", "\x9b2J\x90q\x9c", REASON)
INTERFACE = "e\x1b[31mh"
DEVICE = "d\x1b]0;x\x07\u202e"
PR_SET_NAME = 15
RULES = (*REDIRECT, "--istio-exact")  # among which a foreign rule decides, and none behind it
SPOKEN = {
    "verify": ("verify",), "verify --json": ("verify", "--json"),
    "explain": ("explain", "--live", "--all", "--to", "203.0.113.7:80"), "explain --json": ("explain", "--live", "--json", "--to", "203.0.113.7:80"),
    "explain inbound": ("explain", "inbound", "--live", "--from", "10.9.9.9", "--to-port", "8080"),
    "draw": ("draw", "--live", "--to", "203.0.113.7:80"), "draw dot": ("draw", "--live", "--format", "dot"),
    "draw mermaid": ("draw", "--live", "--format", "mermaid", "--to", "203.0.113.7:80"), "draw svg": ("draw", "--live", "--format", "svg"),
    "audit": ("audit", "--live", "--full"), "audit --json": ("audit", "--live", "--full", "--json"),
    "audit markdown": ("audit", "--live", "--full", "--format", "markdown"), "audit html": ("audit", "--live", "--full", "--format", "html"),
    "diff": ("diff", "--live"), "diff --json": ("diff", "--live", "--json"),
    "watch": ("watch", "--count", "1", "--interval", "0.1", "--all"), "watch as json": ("watch", "--count", "1", "--interval", "0.1", "--all", "--format", "json"),
    "doctor": ("doctor",), "doctor --json": ("doctor", "--json"), "apply": ("apply",), "apply as JSON": ("apply", "--log_as_json"),
    "other options": ("apply", "-b", "80"), "remove": ("remove",),
}  # fmt: skip
FORMATS = ("json", "JSON", "dot", "svg", "mermaid", "markdown", "html")  # ends of names: written for programs, to terminals as to files
first = pytest.mark.parametrize("attacked", choose(VARIANTS[:1], VARIANTS), indirect=True)
second = pytest.mark.parametrize("attacked", choose(VARIANTS[1:], VARIANTS), indirect=True)


@pytest.fixture
def attacked(request, pod):
    """A programmed pod, and what its owner has done to it since."""
    needs(request.param)
    assert run_tool(pod, "apply", *RULES, "--backend", request.param).returncode == 0
    for number, comment in enumerate(COMMENTS, 1):
        rule = ["-p", "tcp", "--dport", "80", "-m", "comment", "--comment", comment, "-j", "ACCEPT"]
        pod.run([request.param, "-w", "-t", "nat", "-I", "OUTPUT", str(number), *rule], check=True)
    pod.run([request.param, "-w", "-t", "nat", "-I", "PREROUTING", "-i", "eth9", "-m", "comment", "--comment", CLEAR, "-j", "RETURN"], check=True)
    pod.run(["ip", "link", "add", "name", DEVICE, "type", "veth", "peer", "name", "other"], check=True)
    pod.run(["ip", "address", "add", "203.0.113.1/24", "dev", DEVICE], check=True)
    pod.run(["ip", "link", "set", DEVICE, "up"], check=True)
    return pod


def speak(pod, name):
    options = () if name == "remove" else RULES
    done = run_tool(pod, *SPOKEN[name], *options)
    assert done.stdout or done.stderr, name
    return done


@first
def test_no_command_lets_a_pod_command_the_terminal(attacked):
    for name in choose([*list(SPOKEN)[:-1:2], "remove"], list(SPOKEN)):
        done = speak(attacked, name)
        assert not commands(done.stdout), name
        assert not commands(done.stderr, "\n\t"), name
        if name.endswith("json"):
            json.loads(done.stdout)
    assert "removed all rules" in done.stderr


@second
def test_a_rule_whose_interface_commands_the_terminal_is_named_in_words_that_do_not(attacked, request):
    program = request.node.callspec.params["attacked"]
    attacked.run([program, "-w", "-t", "nat", "-I", "PREROUTING", "-i", INTERFACE, "-j", "RETURN"], check=True)
    named = 0
    for name in choose(list(SPOKEN)[1::2], list(SPOKEN)):
        done = speak(attacked, name)
        assert not commands(done.stdout), name
        assert not commands(done.stderr, "\n\t"), name
        named += r"\x1b" in done.stdout + done.stderr or r"\u001b" in done.stdout
    assert named > 1, "the rule is there, and no command names it"


@first
def test_a_foreign_comment_is_a_quotation_in_every_answer(attacked):
    verified = speak(attacked, "verify").stdout.splitlines()
    cleared = r'with comment "\x1b]0;pwned\x07\x1b[2J\x1b[Has planned: 19 rules for IPv4 and IPv6 (iptables-nft)"'
    assert any(line.startswith("shadowing: IPv4 nat OUTPUT rule 1: `-p tcp -m tcp --dport 80 -j ACCEPT` " + cleared) for line in verified), verified
    assert not [line for line in verified if line.startswith("as planned")]
    explained = json.loads(speak(attacked, "explain --json").stdout)
    assert explained["sentence"].endswith(
        f", because of a rule that is not netinit's: `-p tcp -m tcp --dport 80 -j ACCEPT` {cleared} (nat OUTPUT, rule 1)"
    )
    deciding = next(step for step in explained["path"] if step["rule"])
    assert (deciding["purpose"], deciding["origin"], deciding["comment"]) == ("", "", CLEAR)
    for rule in range(3):  # until our own words, written by somebody else, decide
        attacked.run([explained["source"], "-w", "-t", "nat", "-D", "OUTPUT", "1"], check=True)
        assert rule < len(COMMENTS)
    sentence = speak(attacked, "explain").stdout.splitlines()[0]
    assert sentence.startswith("direct: ")
    assert sentence.endswith(f'because of a rule that is not netinit\'s: `-p tcp -m tcp --dport 80 -j ACCEPT` with comment "{REASON}" (nat OUTPUT, rule 1)')


@pytest.mark.parametrize("attacked", VARIANTS[:1], indirect=True)
def test_a_terminal_gets_no_more_than_a_pipe(attacked):
    """The same with a real terminal, whose driver would pass everything on; the words of both variants are the same."""
    for name in choose([name for name in SPOKEN if not name.endswith(FORMATS)], list(SPOKEN)):
        shown = in_terminal(attacked, [*SPOKEN[name], *(() if name == "remove" else RULES)])
        for style in {*STYLES.values(), ""}:  # our own colours, each as it is written
            shown = shown.replace(f"\x1b[{style or 0}m", "")
        if name == "watch":
            assert shown.count("\r\x1b[J") == 1  # where its table begins, which a second look would write over
            shown = shown.replace("\r\x1b[J", "")
        assert shown, name
        assert not commands(shown.replace("\r\n", "\n"), "\n\t"), name


def in_terminal(pod, words):
    """What a command writes on a terminal of its own."""
    primary, secondary = pty.openpty()
    with pod.entered():
        child = prefork.Running(words, log=secondary, environ={"PATH": FOLDERS, "TERM": "xterm"})
    os.close(secondary)
    parts = []
    try:
        while part := os.read(primary, 1 << 16):
            parts.append(part)
    except OSError:  # the terminal's other end is closed
        pass
    finally:
        os.close(primary)
        child.wait()
    return b"".join(parts).decode()


@crossed(name=["\x1b[2Jx", "x\npods work", "x\rnetinit: ok", "\u202ex"], more=[(), ("--json",)])
def test_the_name_of_a_process_that_holds_the_lock_is_shown_escaped(pod, name, more):
    holder = hold_lock(pod, name)
    try:
        told = [run_tool(pod, "apply", *RULES, "--lock-timeout", "100ms"), run_tool(pod, "doctor", *more, *RULES)]
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
    for done in told:
        assert not commands(done.stdout)
        assert not commands(done.stderr, "\n\t")
        assert f"process {holder} (" in done.stdout + done.stderr, "the holder is not named, so this shows nothing"
    if more:
        json.loads(told[1].stdout)
        return
    *lines, last = told[1].stdout.splitlines()
    assert last.startswith("OK: pods on this node")
    assert not [line for line in lines if line.startswith(("pods ", "netinit:"))], "a line of the process's making"


def hold_lock(pod, name):
    """A process of this name in the pod that holds the namespace's lock."""
    import fcntl

    ready, done = os.pipe()
    pid = os.fork()
    if not pid:
        with pod.entered():
            ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode()[:15], 0, 0, 0)
            descriptor = os.open("/proc/self/ns/net", os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            os.write(done, b"x")
            signal.pause()
        os._exit(0)
    os.close(done)
    assert os.read(ready, 1) == b"x"
    os.close(ready)
    return pid


def test_a_graphviz_that_is_missing_is_an_error_with_the_way_out(require_netns):
    words = [*TOOL, "draw", "-i", "*", "--format", "svg"]
    script = 'for dot in $(command -v dot); do mount --bind /dev/null "$(readlink -f "$dot")"; done; exec "$@"'
    done = subprocess.run(["unshare", "-m", "sh", "-c", script, "sh", *words], capture_output=True, text=True, check=False, env={"PATH": FOLDERS})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("netinit: --format svg: Graphviz is not installed: there is no program 'dot'; install it (the package graphviz), or ")
    assert "--format dot" in done.stderr
    assert "--format mermaid" in done.stderr
