"""A pod of a mesh, end to end: the image programs it, and real requests go the ways that they must, with a real Envoy.

Each answer says itself who gave it and what it went through; without the init container the same requests go elsewhere.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from containers import Image
from crash import find_half, run_and_kill
from pod import CLIENT, EXCLUDED_PORT, LOOPBACK, OTHER, POD, WORLD, Answer, MeshPod, open_mesh_pod
from programming import FOLDERS, TOOL, check_same, state, variant_of
from sidecar import INBOUND_PORT, OUTBOUND_PORT, PASS

pytestmark = pytest.mark.netns
MODES = ("REDIRECT", "TPROXY")
MOMENTS = 8  # at which containers are killed
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
# As Istio's template starts it, with an excluded port and network for each direction, and both families.
TEMPLATE = [
    "-p", str(OUTBOUND_PORT), "-z", str(INBOUND_PORT), "-u", "1337", "-i", "*", "-x", f"{OTHER[4]}/32,{OTHER[6]}/128",
    "-b", "*", "-d", f"15090,15021,15020,{EXCLUDED_PORT}", "-o", str(EXCLUDED_PORT), "--dual-stack", "--redirect-dns",
]  # fmt: skip
APP_USER, ROOT_USER = 1000, 0
_ACCEPTED = rf"^listener\.0.0.0.0_({INBOUND_PORT}|{OUTBOUND_PORT})\.downstream_cx_total$"
INBOUND, OUTBOUND = ("inbound",), ("outbound",)
families = pytest.mark.parametrize("family", [4, 6], ids=["IPv4", "IPv6"])
protocols = pytest.mark.parametrize("udp", [True, False], ids=["UDP", "TCP"])


@dataclass(frozen=True)
class Stage:
    """A pod that the image has programmed."""

    mesh: MeshPod
    image: Image
    backend: str
    mode: str
    resolv: Path

    @property
    def flags(self) -> list[str]:
        """The init container's arguments. Where not all DNS is captured, that to the servers of resolv.conf is."""
        return [
            *TEMPLATE,
            "-m",
            self.mode,
            "--backend",
            self.backend,
            *(["--capture-all-dns"] if self.mode == "TPROXY" else []),
        ]

    def run(self, *more: str) -> subprocess.CompletedProcess[str]:
        """The init container, run to its end."""
        return self.image.run(self.mesh.pid, [*self.flags, *more], mounts=self.mounts)

    def remove(self) -> subprocess.CompletedProcess[str]:
        """The image, told to remove the rules."""
        return self.image.run(self.mesh.pid, ["remove"])

    @property
    def mounts(self) -> dict[str, str]:
        """What the kubelet mounts."""
        return {"/etc/resolv.conf": str(self.resolv)}

    def ask(self, command: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A command of netinit's, given outside of the pod and of any container."""
        servers = [] if self.mode == "TPROXY" else ["--dns-servers", ",".join(WORLD.values())]
        words = (command, "--pid", str(self.mesh.pid), *words, *self.flags, *servers)
        return subprocess.run(
            [*TOOL, *words], env={"PATH": FOLDERS}, capture_output=True, text=True, check=False, timeout=60
        )

    def caller_of_app(self, family: int) -> str:
        """Whom the application sees when the client calls: TPROXY keeps the client's address."""
        return CLIENT[family] if self.mode == "TPROXY" else PASS[family]

    def count(self, port: int) -> int:
        """How many packets the rules have sent to this port of the proxy.

        One for each new connection; a TPROXY rule counts every packet that comes in, because no earlier one is trusted.
        """
        if self.backend == "nftables":
            listing = self.mesh.pod.run(["nft", "list", "ruleset"], check=True).stdout
            found = re.findall(rf"counter packets (\d+) .*(?:redirect|tproxy).* :{port}\b", listing)
        else:
            programs = (
                variant_of(self.backend).replace("iptables", name) + "-save" for name in ("iptables", "ip6tables")
            )
            listing = "".join(self.mesh.pod.run([program, "-c"], check=True).stdout for program in programs)
            found = re.findall(rf"^\[(\d+):.* --(?:to-ports|on-port) {port}\b", listing, re.MULTILINE)
        assert found, f"no rule sends anything to port {port}:\n{listing}"
        return sum(map(int, found))


@pytest.fixture(scope="module")
def resolv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A resolv.conf as the kubelet writes it."""
    path = tmp_path_factory.mktemp("kubelet") / "resolv.conf"
    path.write_text(
        "".join(f"nameserver {server}\n" for server in WORLD.values()) + "search default.svc.cluster.local\n"
    )
    return path


@contextlib.contextmanager
def unprogrammed(image: Image, resolv: Path, backend: str, mode: str) -> Iterator[Stage]:
    """A pod before its init container."""
    with open_mesh_pod(transparent=mode == "TPROXY") as mesh:
        yield Stage(mesh, image, backend, mode, resolv)


@pytest.fixture(scope="module", params=[(backend, mode) for backend in BACKENDS for mode in MODES], ids="-".join)
def stage(request: pytest.FixtureRequest, envoy_program: Path, image: Image, resolv: Path) -> Iterator[Stage]:
    """A pod after its init container, for all tests: they only look, or leave it as it was."""
    with unprogrammed(image, resolv, *request.param) as made:
        done = made.run()
        assert done.returncode == 0, done.stderr
        yield made


@pytest.fixture(scope="module", params=MODES)
def bare(request: pytest.FixtureRequest, envoy_program: Path) -> Iterator[MeshPod]:
    """The same pod without an init container."""
    with open_mesh_pod(transparent=request.param == "TPROXY") as mesh:
        yield mesh


@families
def test_without_the_init_container_nothing_meets_the_proxy(bare: MeshPod, family: int) -> None:
    check_out_of_service(bare, family)


@families
def test_a_call_from_outside_is_answered_by_the_app_through_the_proxy(stage: Stage, family: int) -> None:
    before = stage.count(INBOUND_PORT), connections(stage, INBOUND_PORT)
    answer = stage.mesh.client.fetch(POD[family])
    assert answer == Answer("app", APP_USER, stage.caller_of_app(family), INBOUND, INBOUND)
    packets, seen = stage.count(INBOUND_PORT) - before[0], connections(stage, INBOUND_PORT) - before[1]
    assert seen == 1
    assert packets > 1 if stage.mode == "TPROXY" else packets == 1


@families
def test_a_call_of_the_app_reaches_the_world_through_the_proxy_and_only_once(stage: Stage, family: int) -> None:
    before = stage.count(OUTBOUND_PORT), connections(stage, OUTBOUND_PORT)
    answer = stage.mesh.app.fetch(WORLD[family])
    assert answer == Answer("outside", ROOT_USER, POD[family], OUTBOUND, OUTBOUND)
    assert (stage.count(OUTBOUND_PORT), connections(stage, OUTBOUND_PORT)) == (before[0] + 1, before[1] + 1)


@families
def test_what_is_not_http_goes_the_same_ways(stage: Stage, family: int) -> None:
    before = connections(stage, INBOUND_PORT), connections(stage, OUTBOUND_PORT)
    with contextlib.closing(stage.mesh.client.dial(POD[family])) as stream:
        assert (stream.greeting["name"], host_of(stream.greeting["peer"])) == ("app", stage.caller_of_app(family))
    with contextlib.closing(stage.mesh.app.dial(WORLD[family])) as stream:
        assert (stream.greeting["name"], host_of(stream.greeting["peer"])) == ("outside", POD[family])
    assert (connections(stage, INBOUND_PORT), connections(stage, OUTBOUND_PORT)) == (before[0] + 1, before[1] + 1)


@families
def test_the_proxys_own_calls_go_straight_to_the_world(stage: Stage, family: int) -> None:
    assert stage.mesh.proxy.fetch(WORLD[family]) == Answer("outside", ROOT_USER, POD[family])


@families
def test_an_excluded_inbound_port_is_called_directly(stage: Stage, family: int) -> None:
    assert stage.mesh.client.fetch(POD[family], EXCLUDED_PORT) == Answer("app", APP_USER, CLIENT[family])


@families
def test_excluded_ports_and_networks_are_reached_directly(stage: Stage, family: int) -> None:
    direct = Answer("outside", ROOT_USER, POD[family])
    assert stage.mesh.app.fetch(WORLD[family], EXCLUDED_PORT) == direct
    assert stage.mesh.app.fetch(OTHER[family]) == direct


@families
def test_the_app_calls_itself_directly_but_its_service_through_both_listeners(stage: Stage, family: int) -> None:
    for host in (POD[family], LOOPBACK[family]):
        answer = stage.mesh.app.fetch(host)
        assert (answer.server, answer.through, answer.request_through) == ("app", (), ()), host
    answer = stage.mesh.app.fetch(WORLD[family], **to_service(family))
    assert (answer.server, sorted(answer.through), answer.request_through) == (
        "app",
        ["inbound", "outbound"],
        OUTBOUND + INBOUND,
    )
    # With TPROXY the caller's address is kept here too: it is the proxy's, which calls for the application.
    assert answer.peer == (POD if stage.mode == "TPROXY" else PASS)[family]


@families
@protocols
def test_the_apps_dns_is_answered_by_the_meshs_resolver_whose_own_goes_out(
    stage: Stage, family: int, udp: bool
) -> None:
    server = WORLD[family]
    assert stage.mesh.app.resolve("shop.mesh", server, udp=udp) == "the mesh knows shop.mesh"
    assert stage.mesh.app.resolve("example.org", server, udp=udp) == "the resolver heard: the world knows example.org"
    assert stage.mesh.proxy.resolve("example.org", server, udp=udp) == "the world knows example.org"


@families
def test_dns_to_a_server_that_resolv_conf_does_not_name_is_captured_only_with_all_dns(
    stage: Stage, family: int
) -> None:
    knows = "mesh" if stage.mode == "TPROXY" else "world"
    for udp in (True, False):
        assert stage.mesh.app.resolve("shop.mesh", OTHER[family], udp=udp) == f"the {knows} knows shop.mesh"


def test_verify_from_outside_finds_the_rules_as_planned(stage: Stage) -> None:
    done = stage.ask("verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("as planned: ")


@families
def test_explain_from_outside_says_what_the_requests_have_shown(stage: Stage, family: int) -> None:
    for port, words in (
        (INBOUND_PORT, ["--from", CLIENT[family], "--to-port", "80"]),
        (OUTBOUND_PORT, ["--to", render(WORLD[family], 80), "--uid", str(APP_USER)]),
        (None, ["--to", render(WORLD[family], 80), "--uid", "1337"]),
        (None, ["--from", CLIENT[family], "--to-port", str(EXCLUDED_PORT)]),
        (None, ["--to", render(OTHER[family], 80), "--uid", str(APP_USER)]),
    ):
        done = stage.ask("explain", "--json", *words)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        assert (told["verdict"], told["redirect_port"]) == ("captured" if port else "direct", port), told["sentence"]
        assert told["sentence"].startswith(f"{told['verdict']}: "), words


def test_the_init_container_run_again_changes_nothing_and_no_connection_notices(stage: Stage) -> None:
    before = state(stage.mesh.pod)
    with open_streams(stage) as streams:
        for more in ([], ["--force-apply"]):
            done = stage.run(*more)
            assert done.returncode == 0, done.stderr
            check_same(state(stage.mesh.pod), before, f"after another run {more}")
            check_alive(streams)


CHANGE = ("--reconcile", "-o", "9999", "-d", "9998")
by_pieces = [(backend, mode) for backend in BACKENDS if backend != "nftables" for mode in MODES]
changed_by_pieces = [one for one in by_pieces if one[0] != "iptables-nft"]  # whose changes are one transaction


@pytest.mark.parametrize(("backend", "mode"), by_pieces)
def test_an_init_container_killed_half_way_is_finished_by_the_next(envoy_program, image, resolv, backend, mode):
    with unprogrammed(image, resolv, backend, mode) as stage:
        look = functools.partial(listing, stage)
        clean = look()
        succeed(stage.run())
        wanted = look()
        succeed(stage.remove())
        find_half(stage.mesh.pod, stage.run, look, before=clean, after=wanted, undo=lambda: succeed(stage.remove()))
        succeed(stage.run())
        check_same(look(), wanted, "after the killed container was followed by another")
        check_in_service(stage)


@pytest.mark.parametrize(("backend", "mode"), changed_by_pieces)
def test_a_change_killed_half_way_while_the_proxy_serves_can_be_taken_back(envoy_program, image, resolv, backend, mode):
    with unprogrammed(image, resolv, backend, mode) as stage:
        look, change = functools.partial(listing, stage), functools.partial(stage.run, *CHANGE)
        succeed(change())
        changed = look()
        succeed(stage.run("--reconcile"))
        wanted = look()
        with open_streams(stage) as streams:
            find_half(
                stage.mesh.pod, change, look, before=wanted, after=changed, undo=lambda: succeed(stage.run("--reconcile"))
            )
            check_alive(streams)
            succeed(stage.run("--reconcile"))
            check_same(look(), wanted, "after the killed change was taken back")
            check_alive(streams)
        check_in_service(stage)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["nftables", "iptables-nft"])
def test_a_transaction_killed_at_any_moment_has_changed_all_rules_or_none(envoy_program, image, resolv, backend, mode):
    with unprogrammed(image, resolv, backend, mode) as stage:
        pod = stage.mesh.pod

        def look() -> str:
            text = pod.run(["nft", "--stateless", "list", "ruleset"], check=True).stdout
            return "".join(sorted(text.splitlines(keepends=True)))

        started = time.monotonic()
        succeed(stage.run())
        took = time.monotonic() - started  # more than netinit itself takes, so that the last moment is after its end
        states = {}
        for name, more in (("changed", CHANGE), ("wanted", ["--reconcile"])):
            succeed(stage.run(*more))
            states[look()] = name
        succeed(stage.remove())
        states[look()] = "none"
        for first, run, undo in (
            ("none", stage.run, stage.remove),
            ("wanted", functools.partial(stage.run, *CHANGE), functools.partial(stage.run, "--reconcile")),
        ):
            succeed(undo())
            seen: list[str] = []
            # The machine may be slower by now, or so busy that netinit ends before it is seen.
            while len(seen) < MOMENTS or (len(set(seen)) == 1 and len(seen) < 10 * MOMENTS):
                is_late = len(seen) >= MOMENTS and first not in seen
                run_and_kill(pod, run, 0 if is_late else len(seen) / MOMENTS * took)
                seen.append(states.get(look(), look()))
                succeed(undo())
            assert len(set(seen)) == 2, f"{len(seen)} containers, killed one later than the other: {seen}"
            assert first in seen
            assert set(seen) <= set(states.values())
        check_in_service(stage)


@pytest.mark.parametrize(("backend", "mode"), [(backend, mode) for backend in BACKENDS for mode in MODES])
def test_after_removing_the_pod_is_as_before_and_nothing_meets_the_proxy(envoy_program, image, resolv, backend, mode):
    with unprogrammed(image, resolv, backend, mode) as stage:
        before = state(stage.mesh.pod)
        done = stage.run()
        assert done.returncode == 0, done.stderr
        check_in_service(stage)
        done = stage.remove()
        assert done.returncode == 0, done.stderr
        check_same(state(stage.mesh.pod), before, "after remove")
        for family in (4, 6):
            check_out_of_service(stage.mesh, family)


def succeed(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr


def check_out_of_service(mesh: MeshPod, family: int) -> None:
    """Requests go straight, in both directions, and the proxy learns of none."""
    before = mesh.envoy.stats(_ACCEPTED)
    assert len(before) == 2, "one counter for each listener"
    assert mesh.client.fetch(POD[family]) == Answer("app", APP_USER, CLIENT[family])
    assert mesh.app.fetch(WORLD[family]) == Answer("outside", ROOT_USER, POD[family])
    assert mesh.app.fetch(WORLD[family], **to_service(family)) == Answer("outside", ROOT_USER, POD[family])
    for udp in (True, False):
        assert mesh.app.resolve("shop.mesh", WORLD[family], udp=udp) == "the world knows shop.mesh"
    assert mesh.envoy.stats(_ACCEPTED) == before


def check_in_service(stage: Stage) -> None:
    """Requests go through the proxy in both directions and families, and the rules are as planned."""
    for family in (4, 6):
        assert stage.mesh.client.fetch(POD[family]).through == INBOUND
        assert stage.mesh.app.fetch(WORLD[family]).through == OUTBOUND
        assert stage.mesh.app.resolve("shop.mesh", WORLD[family], udp=True) == "the mesh knows shop.mesh"
    done = stage.ask("verify")
    assert done.returncode == 0, done.stdout + done.stderr


def listing(stage: Stage) -> str:
    """The pod's state. nft lists tables in the order of their making, which a change may turn; `verify` looks at the rules'."""
    text = state(stage.mesh.pod)
    return "".join(sorted(text.splitlines(keepends=True))) if stage.backend == "nftables" else text


@contextlib.contextmanager
def open_streams(stage: Stage) -> Iterator[Sequence]:
    """Connections through the proxy in both directions and families, which stay open."""
    calls = [
        (member, host[family])
        for family in (4, 6)
        for member, host in ((stage.mesh.client, POD), (stage.mesh.app, WORLD))
    ]
    before = connections(stage, INBOUND_PORT), connections(stage, OUTBOUND_PORT)
    with contextlib.ExitStack() as stack:
        streams = [stack.enter_context(contextlib.closing(member.dial(host))) for member, host in calls]
        assert (connections(stage, INBOUND_PORT), connections(stage, OUTBOUND_PORT)) == (before[0] + 2, before[1] + 2)
        yield streams


def check_alive(streams: Sequence) -> None:
    for stream in streams:
        assert stream.echo() == stream.greeting


def connections(stage: Stage, port: int) -> int:
    """How many connections the proxy has accepted at this port."""
    return sum(stage.mesh.envoy.stats(rf"^listener\.0.0.0.0_{port}\.downstream_cx_total$").values())


def to_service(family: int) -> dict[str, str]:
    """A header with which the proxy takes the request for one to a service that lives in this pod."""
    return {"x-envoy-original-dst-host": render(POD[family], 80)}


def render(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """The host of `10.77.0.2:80` or `[fd77::2]:80`."""
    return address.rpartition(":")[0].strip("[]")
