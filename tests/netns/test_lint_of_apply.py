"""apply says what is wrong with its options; the usual ones are not even looked at."""

from __future__ import annotations

import sys

from laboratory import Pod
from programming import SIDECAR, run_tool


def warnings_of(pod, *arguments):
    done = run_tool(pod, *arguments)
    assert done.returncode == 0, done.stderr
    return [line.split("\twarn\t")[1] for line in done.stderr.splitlines() if "\twarn\t" in line]


def test_options_that_work_against_each_other_are_warned_of():
    with Pod(ipv6=False) as pod:
        found = warnings_of(pod, "-b", "80,15006", "-i", "10.1.0.0/16", "--log-group", "5")
        assert any(line.startswith("--log-group: counts only with") for line in found), found
        assert any(line.startswith("--istio-inbound-ports: 15006 is the proxy's own") for line in found), found
        assert len(found) == len(set(found)), "each once"


def test_options_that_capture_nothing_say_so():
    with Pod(ipv6=False) as pod:
        for words in ((), ("apply", "-p", "15001", "-u", "1337"), ("istio-iptables", "-m", "TPROXY")):
            found = warnings_of(pod, *words, "--reconcile")
            assert any("no connection of an application is captured; add -b '*' and -i '*'" in line for line in found), (words, found)
        assert not any("no connection of an application is captured" in line for line in warnings_of(pod, "-b", "80", "--reconcile"))


def test_the_usual_options_cost_and_say_nothing():
    with Pod(ipv6=False) as pod:
        assert warnings_of(pod, *SIDECAR) == []
        done = pod.run([sys.executable, "-X", "importtime", "-m", "netinit", *SIDECAR], env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
        assert done.returncode == 0, done.stderr
        assert "netinit.simulate" not in done.stderr
