"""The example for Docker Compose comes true: its own file, run by podman-compose in podman's network with podman's resolver.

podman makes its bridge, its rules and its resolver (aardvark-dns) in namespaces of their own, of networks, mounts and
processes, which go with all in them when the run does, also when it is killed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import yaml

from containers import TIMEOUT
from engine import BASE, CONTAINERS, ROOT

pytestmark = pytest.mark.netns

EXAMPLE = ROOT / "examples" / "compose.yaml"
PROJECT, NETWORK, WEB, OTHER = "example", "example_default", "example_web_1", "other"
OWN = "127.0.0.6"
PATIENCE = 30.0  # seconds
APP, ENVOY = "101:101", "1337:1337"
NETWORKS = '[network]\nnetwork_backend = "netavark"\nnetwork_config_dir = "{folder}/networks"\n'
# /run is empty there, so that podman and netavark see no systemd to hand processes to. Whoever ends is reaped.
HOLDER = "mount -t tmpfs run /run && ip link set lo up && trap '' CHLD && echo ready && exec sleep infinity"
# podman-compose cannot say which cgroup; by this one the processes of a run that was killed are found (leftovers.py). And
# it adds --requires to the order that it keeps anyway: podman 4.3 then wants to start netinit again, and cannot.
PODMAN = """#!/bin/sh
for word; do shift; case $word in --requires=*) ;; *) set -- "$@" "$word";; esac; done
case $1 in create|run) command=$1; shift; set -- "$command" --cgroup-parent={parent} "$@";; esac
exec podman "$@"
"""
SERVER = """
import http.server
class Told(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.client_address[0].encode())
made = http.server.ThreadingHTTPServer(('', 8080), Told)
print('listens', flush=True)
made.serve_forever()
"""
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"
PYTHON = "/usr/bin/python3.11"


class Place:
    """podman where it may make networks; the storage is the engine's."""

    def __init__(self, engine, program):
        self.program = program
        self.engine = engine
        self.folder = Path(tempfile.mkdtemp(dir=engine.folder))
        self.settings = self.folder / "containers.conf"
        self.settings.write_text(CONTAINERS.format(folder=engine.folder) + NETWORKS.format(folder=self.folder))
        self.wrapper = self.folder / "podman"
        self.wrapper.write_text(PODMAN.format(parent=f"/{engine.name}-compose"))
        self.wrapper.chmod(0o755)
        words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self.holder = subprocess.Popen([*words, "sh", "-c", HOLDER], stdout=subprocess.PIPE, text=True, env=engine.environment)
        assert self.holder.stdout.readline() == "ready\n"
        pid = self.holder.pid
        self.inside = Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()

    def do(self, *words):
        enter = ["nsenter", "--target", self.inside, "--net", "--mount", "--pid", "env", f"CONTAINERS_CONF={self.settings}"]
        return self.engine.do([*enter, *map(str, words)]).stdout

    def podman(self, *words):
        return self.do(self.wrapper, *words)

    def compose(self, *words):
        return self.do(self.program, "--in-pod=false", "--podman-path", self.wrapper, "--project-name", PROJECT, "--file", EXAMPLE, *words)

    def wait_for(self, container, said):
        """The container is up: its log says so."""
        end = time.monotonic() + PATIENCE
        while said not in (log := self.do("sh", "-c", f"exec {self.wrapper} logs {container} 2>&1")):
            assert time.monotonic() < end, log
            time.sleep(0.1)

    def get(self, container, user, url):
        """What the server at the address says: whom it sees."""
        return self.podman("exec", "--user", user, container, PYTHON, "-c", GET, url).strip()

    def counted(self):
        """What came to Envoy's listeners: inbound and outbound connections, queries."""
        text = self.get(WEB, APP, "http://127.0.0.1:15000/stats?filter=^(tcp|dns_filter).*downstream_(cx_total|rx_queries)$")
        counts = {name.split(".")[1]: int(number) for name, number in (line.split(": ") for line in text.splitlines())}
        return counts["inbound"], counts["outbound"], counts["names"]

    def close(self):
        try:
            self.podman("rm", "--force", "--ignore", "--time", "0", "--depend", "example_envoy_1", OTHER)
        finally:
            self.holder.kill()
            self.holder.communicate(timeout=TIMEOUT)
            shutil.rmtree(self.folder)


@pytest.fixture
def place(podman_compose, envoy_program, engine, image, webhook):
    services = yaml.safe_load(EXAMPLE.read_text())["services"]
    engine.podman("tag", image.name, services["netinit"]["image"])
    build(engine, services["web"]["image"], f"FROM {webhook.name}\nENTRYPOINT {json.dumps([PYTHON, '-c', SERVER])}\n")
    shutil.copy(envoy_program, engine.folder / "tmp" / "envoy")
    build(engine, services["envoy"]["image"], f"FROM {BASE}\nCOPY envoy /usr/local/bin/envoy\n")
    made = Place(engine, podman_compose)
    try:
        yield made
    finally:
        made.close()


def build(engine, name, text):
    """A stand-in for an image of a registry."""
    file = engine.folder / "tmp" / "Dockerfile"
    file.write_text(text)
    flags = ["--quiet", "--pull=never", "--isolation=chroot", "--network=host", "--tag", name, "--file", str(file)]
    engine.podman("build", *flags, str(file.parent))


def test_connections_of_the_example_for_compose_go_through_its_envoy_and_names_are_found(place):
    place.compose("up", "--detach", "--pull", "never")
    assert place.podman("inspect", "--format", "{{.State.ExitCode}}", "example_netinit_1").strip() == "0"
    image = place.podman("inspect", "--format", "{{.ImageName}}", WEB).strip()
    place.podman("run", "--detach", "--pull=never", f"--name={OTHER}", f"--network={NETWORK}", image)
    place.wait_for("example_envoy_1", "starting main dispatch loop")
    for container in (WEB, OTHER):
        place.wait_for(container, "listens")
    assert place.counted() == (0, 0, 0), "nor is what goes to 127.0.0.1 captured"

    assert place.get(OTHER, APP, "http://web:8080/") == OWN, "the application sees the address from which Envoy calls it"
    assert place.counted() == (1, 0, 0)
    seen = place.get(WEB, APP, f"http://{OTHER}:8080/")
    inbound, outbound, queries = place.counted()
    assert (seen.startswith("10."), inbound, outbound, queries > 0) == (True, 1, 1, True)
    assert place.get(WEB, ENVOY, f"http://{OTHER}:8080/") == seen, "as who is Envoy's user finds names and peers by himself"
    assert place.counted() == (1, 1, queries)
