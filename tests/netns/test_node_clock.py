"""The machine's clock jumps while pods start: set by hand, by a time server, by a virtual machine that comes back."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from laboratory import NetworkNamespace
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from node_agent import ROOT, Api, Node, make_pod
from programming import differences_in
from sweeps import choose

YEAR = 365 * 86400
JUMPS = (YEAR, -YEAR, 30, -30, 0)
PREVIOUS = {"prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "10.77.0.2/24"}]}}


@pytest.fixture
def shift(tmp_path):
    """A file with the seconds that the agent's clock is off by."""
    path = tmp_path / "shift"
    path.write_text("0")
    return path


@pytest.fixture
def node(tmp_path, shift, require_netns):
    """An agent whose clock the test sets."""
    library = tmp_path / "clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, ROOT / "tests" / "clock.c"], check=True)
    environ = {"LD_PRELOAD": str(library), "CLOCK_SHIFT": str(shift)}
    with Api() as api, Node(tmp_path, api, "--sweepInterval", "1s", environ=environ, in_full=True) as made:
        yield made


def off_by(node):
    """The seconds that the agent's clock is off by, to a minute."""
    return json.loads((node.folder / "run" / "status.json").read_text())["time"] - time.time()


def jump(node, shift, seconds):
    new = shift.with_suffix(".new")
    new.write_text(str(seconds))
    new.rename(shift)
    node.until(lambda: abs(off_by(node) - seconds) < 10, f"the agent's clock is off by {seconds} s")


@pytest.mark.parametrize("seconds", choose(JUMPS[:1], JUMPS[:4]))
def test_pods_in_flight_when_the_clock_jumps_are_captured(node, shift, seconds):
    names = [f"web-{number}" for number in range(4)]
    with ExitStack() as stack, node.api.lock:  # the API does not answer until the clock has jumped
        pods = [stack.enter_context(NetworkNamespace(name)) for name in names]
        for name in names:
            tree = make_pod(name)
            node.api.objects[node.api.path(tree)] = tree
        begun = [node.begin("ADD", netns=one.path, pod=name, configuration=PREVIOUS) for name, one in zip(names, pods, strict=True)]
        jump(node, shift, seconds)
        assert [one.poll() for one in begun] == [None] * len(begun), "it has given up"
        node.api.lock.release()
        try:
            for one in begun:
                out, _ = one.communicate()
                assert one.returncode == 0, out
        finally:
            node.api.lock.acquire()
        for name, one in zip(names, pods, strict=True):
            assert differences_in(one, decide(read_pod(make_pod(name)), Options(), ("10.77.0.2",)).options) == []


@pytest.mark.parametrize("seconds", choose(JUMPS[1:2], JUMPS[:2]))
def test_a_pod_that_waits_in_vain_is_told_so_by_its_own_deadline_whatever_the_clock_says(node, shift, seconds):
    with NetworkNamespace("pod") as pod, node.api.lock:
        begun = time.monotonic()
        node.set_plugin(seconds=6)
        waiting = node.begin("ADD", netns=pod.path, pod="nobody", configuration=PREVIOUS)
        jump(node, shift, seconds)
        out, _ = waiting.communicate()
        assert json.loads(out)["code"] == 11
        assert time.monotonic() - begun > 2, "the jump has ended it"


def test_a_stream_of_pods_goes_on_over_jumps_to_and_fro(node, shift):
    names = [f"web-{number}" for number in range(24)]
    for name in names:
        node.api.put(make_pod(name))

    def start(name):
        with NetworkNamespace(name) as one:
            status, tree = node.ask("ADD", netns=one.path, pod=name, configuration=PREVIOUS)
            return status, tree, differences_in(one, decide(read_pod(make_pod(name)), Options(), ("10.77.0.2",)).options)

    with ThreadPoolExecutor(3) as pool:
        going = [pool.submit(start, name) for name in names]
        for seconds in JUMPS:
            jump(node, shift, seconds)
        found = [one.result() for one in going]
    assert [(status, drift) for status, _, drift in found] == [(0, [])] * len(names), found
    assert node.get("/readyz")[0] == 200
