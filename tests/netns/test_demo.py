"""The demonstration tells the truth: all is well when it is, and not when it is not."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import recording
from netinit.cli import demo
from readable import NOBODY
from sweeps import choose

COMMAND = [sys.executable, "-m", "netinit", "demo"]
ESCAPE = "\x1b"


def texts(lines, *kinds):
    return [line.text for line in lines if line.kind in kinds]


def bare_environment(**more):
    return {"PATH": os.environ.get("PATH", ""), "TERM": "xterm", **more}


def children():
    """The pids of this process's children, zombies included."""
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


@pytest.mark.parametrize("backend", ["auto", "iptables-nft", "iptables-legacy", "nftables"])
def test_every_connection_arrives_where_it_must_in_both_families(backend):
    told = list(demo.play(backend))
    assert not texts(told, demo.BAD)
    good = "\n".join(texts(told, demo.GOOD))
    assert "proxy on 15006, original destination 10.77.0.2:80" in good
    assert "proxy on 15006, original destination [fd77::2]:80" in good
    assert "proxy on 15001, original destination 203.0.113.7:80" in good
    assert "proxy on 15001, original destination [2001:db8::7]:80" in good
    assert "second run: nothing to do" in good
    assert "policy rules are as before" in good


def test_a_rule_that_is_lost_shows_in_the_connections_and_in_the_verification(monkeypatch):
    real = demo.apply

    def apply_and_lose(options, *, final):
        outcome = real(options, final=final)
        if not outcome.changed:  # the second run, after which nobody repairs it
            subprocess.run(["iptables-nft", "-t", "nat", "-F", "ISTIO_IN_REDIRECT"], check=True)
        return outcome

    monkeypatch.setattr(demo, "apply", apply_and_lose)
    bad = texts(demo.play("iptables-nft"), demo.BAD)
    assert any(text.startswith("client → pod ") and text.endswith("refused (ECONNREFUSED); must be the proxy on 15006") for text in bad)
    assert any(text.startswith("missing: IPv4 nat ISTIO_IN_REDIRECT") for text in bad)
    assert not any("[fd77::2]" in text for text in bad), "IPv6 is as it must be"


def test_what_is_left_behind_shows_in_the_comparison_with_before(monkeypatch):
    real = demo.remove

    def remove_and_leave(options):
        outcome = real(options)
        subprocess.run(["ip6tables-nft", "-t", "nat", "-N", "FORGOTTEN"], check=True)
        return outcome

    monkeypatch.setattr(demo, "remove", remove_and_leave)
    told = list(demo.play("iptables-nft"))
    assert any("are as before" in text for text in texts(told, demo.BAD))
    assert "  +IPv6 nat FORGOTTEN: policy -" in texts(told, demo.TEXT)


def test_a_reader_who_goes_away_leaves_nothing_running():
    before = children()
    story = demo.play("auto")
    for line in story:
        if line.kind == demo.CHAIN:
            break
    story.close()
    assert children() == before


def test_the_command_prints_plain_text_into_a_pipe_and_ends_with_0():
    done = subprocess.run(COMMAND, capture_output=True, text=True, check=False, env=bare_environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("checks passed")
    assert ESCAPE not in done.stdout
    assert "✘" not in done.stdout


@pytest.mark.parametrize(("more", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), *choose([], [({"TERM": "dumb"}, False)])])
def test_the_command_is_coloured_on_a_terminal_that_wants_it(more, coloured):
    ours, theirs = os.openpty()
    with subprocess.Popen(COMMAND, stdout=theirs, stderr=theirs, env=bare_environment(**more)) as process:
        os.close(theirs)
        seen = b""
        try:
            while piece := os.read(ours, 65536):
                seen += piece
        except OSError:  # EIO: the other side of a terminal was closed
            pass
        os.close(ours)
    assert process.returncode == 0, seen.decode()
    assert (ESCAPE in seen.decode()) is coloured


def test_without_root_the_remedy_stands_on_one_line(readable):
    command = [*readable, *NOBODY, *COMMAND]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=bare_environment())
    assert done.returncode == 1
    assert done.stderr.startswith("netinit: without root, the demonstration makes a user namespace, and cannot here: ")
    assert "run it as root, or " in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


@pytest.mark.parametrize(("setting", "reason"), [
    ("echo 0 > /proc/sys/user/max_user_namespaces", "the system forbids it: user.max_user_namespaces is 0: run it as root, or `sudo sysctl "),
    ("mount --bind /dev/null $(command -v newuidmap || echo /bin/false)", "newuidmap is not installed: run it as root, or install the package uidmap"),
])  # fmt: skip
def test_a_plain_user_is_told_what_keeps_it_from_a_user_namespace(setting, reason):
    plain = "setpriv --inh-caps=-all --ambient-caps=-all --no-new-privs"
    script = f'{setting}; exec {plain} "$@"'
    line = ["unshare", "--user", "--map-user=1001", "--map-group=1001", "--keep-caps", "--mount", "sh", "-c", script, "sh", *COMMAND]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=bare_environment())
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


VARYING = re.compile(r"\d+(?= ms)|\d+(?= lines compared)|\(iptables-\w+\)")


def test_the_recordings_on_the_first_page_are_what_the_commands_print():
    printed = {command: recording.run(command) for command in recording.COMMANDS}
    for name, size in recording.PICTURES.items():
        picture = (Path(__file__).parents[2] / "docs" / "pictures" / name).read_text("utf-8")
        shown = "".join("".join(text.itertext()) for text in ET.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"))
        measured = iter(VARYING.findall(shown))
        outputs = {command: VARYING.sub(lambda _: next(measured), text) for command, text in printed.items()}  # noqa: B023 - used at once
        assert recording.render(outputs, *size) == picture, "`make recording` renews it"
