"""What the pod of `helm test` runs, in a pod of the kernel's: it ends well where its rules capture, and there alone."""

from __future__ import annotations

import sys

import pytest

from helm import find_test_pods, needs_helm, render_chart
from laboratory import start_servers
from netinit.inject import Settings, inject_pod
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.webhook.configuration import Texts, load
from programming import apply_in

pytestmark = [pytest.mark.netns, needs_helm]


@pytest.fixture(scope="module")
def capture_pod():
    (pod,) = find_test_pods("test.namespace=shop")
    return pod


def run_in(pod, tree):
    """The test's own command in this pod, with this machine's Python."""
    (container,) = tree["spec"]["containers"]
    program, *words = container["command"]
    assert program == "/usr/bin/python3"
    own = container["securityContext"]
    return pod.run([sys.executable, *words], uid=own["runAsUser"], gid=own["runAsGroup"])


def test_it_ends_well_once_the_injected_rules_are_there(pod, capture_pod):
    start_servers(pod)
    done = run_in(pod, capture_pod)
    assert done.returncode == 1
    assert "not captured: no process accepted a connection to 192.0.2.1:80" in done.stderr
    (values,) = [tree["data"]["values"] for tree in render_chart() if tree["kind"] == "ConfigMap"]
    injected = inject_pod(capture_pod, load(Texts(values=values), Settings()).config)
    apply_in(pod, options_of(find_init(injected["spec"])))
    done = run_in(pod, capture_pod)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("captured: the proxy accepted a connection to 192.0.2.1:80")


def test_where_everything_is_accepted_nothing_is_proved(pod, capture_pod):
    start_servers(pod)
    pod.run(["iptables-nft", "-w", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", "192.0.2.1", "-j", "REDIRECT", "--to-ports", "15001"], check=True)
    done = run_in(pod, capture_pod)
    assert done.returncode == 1
    assert "not proved" in done.stderr
