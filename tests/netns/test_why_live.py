"""`netinit why` on a live pod: the cause that it names is what connect(2) meets there."""

from __future__ import annotations

import errno
import socket
from contextlib import ExitStack, closing

import pytest

from netinit.kernel.sockets import creating_as
from netinit.lab import APP_ID, PROXY_ID
from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_files
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from programming import apply_in

pytestmark = pytest.mark.netns
OPTIONS = Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "-g", "1337"])
OUTSIDE = ("203.0.113.7", 5432)
FILES = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  initContainers:
  - {name: istio-init, image: netinit, args: [-b, "*", -i, "*", -u, "1337", -g, "1337"], securityContext: {capabilities: {add: [NET_ADMIN]}}}
  containers: [{name: web, image: web, ports: [{containerPort: 8080}]}, {name: istio-proxy, image: p, securityContext: {runAsUser: 1337}}]
"""


@pytest.fixture
def why(pod, tmp_path):
    path = tmp_path / "pod.yaml"
    path.write_text(FILES)
    apply_in(pod, OPTIONS)
    return lambda **asked: why_of_files(read_asked(**asked), [str(path)], "", Options(netns=pod.path), Outlook())


def listen(pod, stack, address, port):
    """As the proxy's user on its ports."""
    user = PROXY_ID if port in (15001, 15006) else APP_ID
    with pod.entered(), creating_as(user, user):
        stack.enter_context(closing(socket.create_server((address, port))))


def connect(pod, place, seconds=10):
    """The error with which a connection fails, 0 if it is accepted."""
    with pod.entered(), closing(socket.socket()) as made:
        made.settimeout(seconds)
        return made.connect_ex(place)


def test_without_a_proxy_the_connection_is_refused_and_the_listener_is_the_cause(pod, why):
    found = why(to="203.0.113.7:5432")
    assert connect(pod, OUTSIDE) == errno.ECONNREFUSED
    assert (found.cause.code, found.cause.name) == ("NI301", "listeners"), found.text
    assert found.sources == (f"live rules of {pod.path}",)
    with ExitStack() as stack:
        listen(pod, stack, "0.0.0.0", 15001)
        assert connect(pod, OUTSIDE) == 0
        assert why(to="203.0.113.7:5432").cause is None


def test_an_application_on_loopback_is_the_cause_behind_a_proxy_that_is_up(pod, why):
    with ExitStack() as stack:
        listen(pod, stack, "0.0.0.0", 15006)
        listen(pod, stack, "127.0.0.1", 8080)
        found = why(client="10.77.0.1", port="8080")
        assert (found.cause.code, "127.0.0.1" in found.cause.text) == ("NI305", True), found.text
    with ExitStack() as stack:
        listen(pod, stack, "0.0.0.0", 15006)
        listen(pod, stack, "0.0.0.0", 8080)
        assert why(client="10.77.0.1", port="8080").cause is None


def test_rules_that_are_gone_are_the_cause_with_the_command_that_restores_them(pod, why):
    pod.run(["iptables-nft", "-w", "-t", "nat", "-D", "OUTPUT", "-j", "ISTIO_OUTPUT"], check=True)
    found = why(to="203.0.113.7:5432")
    assert (found.cause.code, "netinit apply --reconcile" in found.cause.remedy) == ("NI333", True), found.text


def test_a_rule_that_somebody_added_is_the_cause_of_a_timeout(pod, why):
    pod.run(["iptables-nft", "-w", "-t", "mangle", "-I", "OUTPUT", "1", "-p", "tcp", "--dport", "5432", "-j", "DROP"], check=True)
    found = why(to="203.0.113.7:5432")
    assert connect(pod, OUTSIDE, seconds=1) == errno.EAGAIN, "no answer within the time"
    assert found.cause.name == "rules", found.text
    assert (found.cause.code, "--dport 5432 -j DROP" in found.cause.text) == ("NI312", True), found.text
