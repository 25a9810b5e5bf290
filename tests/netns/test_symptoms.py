"""Symptoms that developers report, rebuilt with real sockets: the client meets the symptom, and `netinit why` names its cause."""

from __future__ import annotations

import errno
import queue
import socket
import threading
from contextlib import ExitStack, closing

import pytest

from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_files
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from programming import apply_in

pytestmark = pytest.mark.netns
RULES = ["-b", "*", "-i", "*", "-u", "1337", "-g", "1337"]
DB = ("203.0.113.7", 5432)  # in the namespace of the node's side
POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop, labels: {app: web}}
spec:
  initContainers: [{name: istio-init, image: netinit, args: [ARGS], securityContext: {capabilities: {add: [NET_ADMIN]}}}]
  containers: [{name: web, image: web, securityContext: {runAsUser: 1000}}, {name: istio-proxy, image: p, securityContext: {runAsUser: 1337}}]
"""
WAITS = 0.5  # seconds in which an answer on one machine comes, if one comes


class Lab:
    """A pod with netinit's rules, and what its manifest and other objects say."""

    def __init__(self, pod, folder, rules=()):
        self.pod, self.folder, self.stack = pod, folder, ExitStack()
        self.options = [*RULES, *rules]
        apply_in(pod, Options.from_argv(self.options))
        (folder / "pod.yaml").write_text(POD.replace("ARGS", ", ".join(f'"{word}"' for word in self.options)))

    def write(self, text, name="objects.yaml"):
        (self.folder / name).write_text(text)

    def listen(self, place, port, *, serve=lambda made: None, where=None):
        """A server in the pod, or elsewhere; `serve` gets each connection."""
        with (where or self.pod).entered():
            server = self.stack.enter_context(closing(socket.create_server((place, port))))

        def run():
            while True:
                try:
                    made, _ = server.accept()
                except OSError:
                    return
                self.stack.callback(made.close)
                serve(made)

        threading.Thread(target=run, daemon=True).start()
        return server

    def connect(self, place, *, uid=1000, where=None):
        """A client's socket, or the error with which its connection fails."""
        with (where or self.pod).entered():
            made = self.stack.enter_context(closing(socket.socket()))
        made.settimeout(WAITS)
        code = made.connect_ex(place)
        return made if code == 0 else code

    def why(self, **asked):
        return why_of_files(read_asked(**asked), [str(one) for one in sorted(self.folder.iterdir())], "", Options(netns=self.pod.path), Outlook())


@pytest.fixture
def lab(pod, tmp_path):
    made = []

    def make(*rules):
        made.append(Lab(pod, tmp_path, rules))
        return made[-1]

    yield make
    for one in made:
        for held in [one.stack]:
            held.close()


def wait_for_bytes(client):
    """What the client reads within the time: nothing where both ends wait."""
    if isinstance(client, int):
        return "reset" if client == errno.ECONNRESET else errno.errorcode[client]  # the reset may come while it still connects
    try:
        return client.recv(64)
    except TimeoutError:
        return None
    except ConnectionResetError:
        return "reset"


SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: db, namespace: shop}\nspec: {clusterIP: 203.0.113.7, selector: {app: db}, ports: [PORT]}\n"


def test_a_server_that_speaks_first_and_a_proxy_that_waits_for_the_client_wait_for_each_other(lab):
    here = lab()
    here.write(SERVICE.replace("PORT", "{port: 3307, targetPort: 3306, name: db}"))  # Istio never waits on 3306 itself
    here.listen("0.0.0.0", 3307, serve=lambda made: made.sendall(b"8.0.36 MySQL"), where=here.pod.client)
    here.listen("0.0.0.0", 15001)  # detects the protocol: reads before it writes
    assert wait_for_bytes(here.connect(("203.0.113.7", 3307))) is None, "the client waits for the server's greeting"
    found = here.why(to="db:3307")
    assert (found.cause.code, "server speaks first" in found.cause.text) == ("NI326", True), found.text


def test_a_port_named_http_has_the_proxy_reset_what_is_not_http(lab):
    here = lab()
    here.write(SERVICE.replace("PORT", "{port: 5432, name: http-sql}"))

    def answer(made):
        if not made.recv(64).startswith((b"GET", b"POST")):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            made.close()

    here.listen("0.0.0.0", 15001, serve=answer)
    client = here.connect(DB)
    client.sendall(b"\0\0\0\x08\x04\xd2\x16\x2f")  # PostgreSQL's request for TLS
    assert wait_for_bytes(client) == "reset"
    found = here.why(to="db:5432")
    assert (found.cause.code, "PostgreSQL" in found.cause.text) == ("NI325", True), found.text


def test_an_excluded_port_goes_out_in_plain_text_past_a_proxy_that_is_up(lab):
    here = lab("-o", "5432")
    seen = queue.Queue()
    here.listen("0.0.0.0", 15001, serve=lambda _: seen.put("proxy"))
    here.listen("0.0.0.0", 5432, serve=lambda made: seen.put(made.recv(64)), where=here.pod.client)
    here.connect(DB).sendall(b"in the clear")
    assert seen.get(timeout=20) == b"in the clear"
    found = here.why(to="203.0.113.7:5432")
    assert found.cause.code == "NI311", found.text
    assert "5432" in found.cause.remedy


def test_a_client_past_the_proxy_of_a_second_interface_is_refused_there(lab):
    here = lab()
    here.listen("0.0.0.0", 8080)
    assert here.connect((here.pod.address, 8080), where=here.pod.client) == errno.ECONNREFUSED, "captured, and no proxy listens"
    text = (here.folder / "pod.yaml").read_text()
    here.write(text.replace("labels: {app: web}", "labels: {app: web}, annotations: {k8s.v1.cni.cncf.io/networks: storage}"), "pod.yaml")
    found = here.why(client="10.77.0.1", port="8080", interface="net1")
    assert found.cause.code in ("NI315", "NI301"), found.text


def test_metrics_of_an_application_on_loopback_are_refused_behind_a_proxy_that_is_up(lab):
    here = lab()
    here.listen("127.0.0.1", 9090)

    def pass_on(made):
        """As a sidecar does since Istio 1.10: to the pod's own address."""
        with here.pod.entered(), closing(socket.socket()) as inner:
            if inner.connect_ex((here.pod.address, 9090)):
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                made.close()

    here.listen("0.0.0.0", 15006, serve=pass_on)
    assert wait_for_bytes(here.connect((here.pod.address, 9090), where=here.pod.client)) == "reset"
    found = here.why(client="10.77.0.1", port="9090")
    assert (found.cause.code, "127.0.0.1" in found.cause.text) == ("NI305", True), found.text


def test_udp_goes_past_the_proxy_and_is_no_cause(lab):
    here = lab()
    with here.pod.client.entered():
        server = here.stack.enter_context(closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)))
        server.bind(("0.0.0.0", 514))
    with here.pod.entered(), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as client:
        client.sendto(b"<1>line", ("203.0.113.7", 514))
    server.settimeout(20)
    assert server.recv(64) == b"<1>line"
    found = here.why(to="203.0.113.7:514", udp=True)
    assert found.cause is None, found.text
    assert "the proxy handles TCP only" in found.text


def test_an_address_in_use_is_found_before_the_second_container_meets_it(lab):
    here = lab()
    here.listen("0.0.0.0", 15001)  # the proxy
    with pytest.raises(OSError, match="in use") as caught:
        here.listen("0.0.0.0", 15001)
    assert caught.value.errno == errno.EADDRINUSE
    text = (here.folder / "pod.yaml").read_text()
    here.write(text.replace("image: web, security", "image: web, ports: [{containerPort: 15001}], security"), "pod.yaml")
    found = here.why()
    assert (found.cause.code, "15001" in found.cause.text) == ("NI314", True), found.text


def test_an_application_with_the_proxys_user_passes_the_proxy(lab):
    here = lab()
    text = (here.folder / "pod.yaml").read_text()
    here.write(text.replace("runAsUser: 1000", "runAsUser: 1337"), "pod.yaml")
    found = here.why(to="203.0.113.7:5432")
    assert (found.cause.code, "1337" in found.cause.text) == ("NI017", True), found.text
