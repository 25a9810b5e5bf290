"""`netinit verify --watch`: what changes is said when it changes, and Ctrl-C ends with the code of the last comparison."""

from __future__ import annotations

import json
import os
import signal

import pytest

from laboratory import NetworkNamespace
from netinit.options import Options
from prefork import Running
from programming import SIDECAR, apply_in, run_tool

OPTIONS = Options.from_argv([*SIDECAR, "--ipv6", "on"])
RULE = ["-t", "nat", "-d", "10.9.9.9", "-j", "RETURN"]


@pytest.fixture
def place(require_netns):
    with NetworkNamespace("watch-verify") as made:
        made.run(["ip", "link", "set", "lo", "up"], check=True)
        apply_in(made, OPTIONS)
        yield made


def begin(place, *words):
    return Running(["verify", "--watch", f"--netns={place.path}", *OPTIONS.to_argv(), *words], environ={**os.environ, **OPTIONS.to_environ()})


def end(process):
    process.send_signal(signal.SIGINT)
    return process.wait()


def change(place, verb):
    place.run(["iptables-nft", f"-{verb}", "ISTIO_OUTPUT", *RULE], check=True)


def test_each_change_is_a_line_and_the_code_is_the_last_ones(place):
    process = begin(place, "--json")
    try:
        first = json.loads(process.stdout.readline())
        assert (first["ok"], first["differences"]) == (True, [])
        change(place, "I")
        second = json.loads(process.stdout.readline())
        assert (second["ok"], [one["rule"] for one in second["differences"]]) == (False, ["-d 10.9.9.9/32 -j RETURN"])
        place.run(["nft", "add", "table", "inet", "harmless"], check=True)  # looked at, and nothing is to be said of it
        change(place, "D")
        assert json.loads(process.stdout.readline())["ok"] is True
        change(place, "I")
        assert json.loads(process.stdout.readline())["ok"] is False
        assert end(process) == 3
    finally:
        process.kill()
        process.communicate()


def test_the_text_is_that_of_verify(place):
    process = begin(place)
    try:
        assert process.stdout.readline().startswith("as planned: ")
        change(place, "I")
        assert "-d 10.9.9.9/32 -j RETURN" in process.stdout.readline()
        change(place, "D")
        while not process.stdout.readline().startswith("as planned: "):
            pass
        assert end(process) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_pod_that_goes_ends_it(place):
    with NetworkNamespace("watch-gone") as other:
        apply_in(other, OPTIONS)
        process = begin(other)
        assert process.stdout.readline().startswith("as planned: ")
    try:
        assert process.wait() == 1
        assert "the pod is gone" in process.communicate()[1]
    finally:
        process.kill()


def test_probes_are_not_sent_for_ever(place):
    done = run_tool(place, "verify", "--watch", "--live")
    assert (done.returncode, "--watch: contradicts --live" in done.stderr) == (2, True)
