"""The laboratory is itself tested on the kernel: what it reports about rules must be what rules do."""

from __future__ import annotations

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lab_probes import Probe
from lab_state import describe_state, drop_empty_tables, list_rules
from laboratory import Listener, NetworkNamespace, Pod, start_servers
from netinit import lab
from netinit.base.errors import LabError
from netinit.lab import APP_ID, PROXY_ID, find_obstacle
from programming import needs

OUTSIDE = {4: "203.0.113.7", 6: "2001:db8::7"}
CLIENT = {4: "10.77.0.1", 6: "fd77::1"}
POD = {4: "10.77.0.2", 6: "fd77::2"}
HERE = "/proc/thread-self/ns/net"
LOOP = {4: "127.0.0.1", 6: "::1"}
LOCALHOST = {4: "127.0.0.1/32", 6: "::1/128"}
PROGRAM = {4: "iptables-nft", 6: "ip6tables-nft"}
TESTS = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
families = pytest.mark.parametrize("family", [4, 6])


@pytest.fixture(autouse=True)
def _servers_are_the_laboratorys_own(servers_of_this_process, monkeypatch):
    monkeypatch.setattr("server_processes._begin", servers_of_this_process)


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def iptables(pod: NetworkNamespace, family: int, *lines: str, variant: str = "nft") -> None:
    program = {4: f"iptables-{variant}", 6: f"ip6tables-{variant}"}[family]
    for line in lines:
        pod.run([program, "-w", *line.split()], check=True)


def children() -> set[int]:
    """The pids of this process's children, zombies included."""
    return {int(pid) for pid in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()}


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def interfaces() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def inode(path: str) -> int:
    return Path(path).stat().st_ino


# The pod itself


def test_a_pod_has_the_interfaces_addresses_and_routes_of_a_pod(pod):
    text = describe_state(pod)

    assert "address address=10.77.0.2 " in text
    assert "address address=fd77::2 " in text
    assert "address address=127.0.0.1 " in text
    assert "route gateway=10.77.0.1 " in text
    assert "route gateway=fd77::1 " in text
    assert pod.call(interfaces) >= {"lo", "eth0"}


def test_an_operator_enters_the_pod_by_the_pid_of_its_pause_process(pod):
    listing = subprocess.run(
        ["nsenter", "-t", str(pod.pid), "-n", "cat", "/proc/net/fib_trie"], capture_output=True, text=True, check=True
    )

    assert "10.77.0.2" in listing.stdout
    assert "10.77.0.2" not in Path("/proc/net/fib_trie").read_text()


def test_the_client_is_entered_by_a_path(pod):
    listing = subprocess.run(
        ["nsenter", f"--net={pod.client.path}", "cat", "/proc/net/fib_trie"], capture_output=True, text=True, check=True
    )

    assert "203.0.113.7" in listing.stdout


def test_a_pod_without_ipv6_addresses_still_has_the_loopback_one(pod_v4only):
    text = describe_state(pod_v4only)

    assert "address=10.77.0.2" in text
    assert "fd77" not in text
    assert "address address=::1 " in text


def test_a_pod_with_ipv6_alone_reaches_and_is_reached(pod_v6only):
    servers = start_servers(pod_v6only)

    for name, owner in (("app", APP_ID), ("proxy", PROXY_ID)):
        status = Path(f"/proc/{servers[name].pid}/status").read_text()
        assert re.findall(r"^[UG]id:\t(\d+)", status, re.MULTILINE) == [str(owner)] * 2
    assert "10.77" not in describe_state(pod_v6only)
    assert pod_v6only.client.connect(POD[6], 80).server == "app"
    assert pod_v6only.connect(OUTSIDE[6], 80).server == "outside"
    assert pod_v6only.connect(OUTSIDE[4], 80).outcome == "unreachable"


def test_a_setting_of_the_kernel_changes_in_the_pod_alone(pod):
    before = Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").read_text()
    pod.set_sysctl("net.ipv6.conf.all.disable_ipv6", 1)

    assert "fd77::2" not in describe_state(pod)
    assert Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").read_text() == before
    with pytest.raises(LabError, match=r"cannot set net\.no\.such=1: No such file"):
        pod.set_sysctl("net.no.such", 1)


def test_a_neighbour_behind_the_pod_reaches_the_world_through_it(require_netns):
    with Pod(interfaces=["eth1", "net.2"]) as pod:
        start_servers(pod)
        for number, name in enumerate(["eth1", "net.2"], 78):
            neighbour = pod.neighbours[name]
            assert neighbour.connect(OUTSIDE[4], 80).peer.startswith(f"10.{number}.0.1:")
            assert neighbour.connect(OUTSIDE[6], 80).peer.startswith(f"[fd{number}::1]:")
            assert neighbour.connect(f"10.{number}.0.2", 80).server == "app"


def test_servers_of_this_process_answer_while_probes_are_sent(require_netns):
    with lab.Pod() as pod:
        pod.open_servers(app=(80,), proxy=(15001,), outside=(443,))
        asked = [lab.Probe(*end) for end in ((POD[4], 80), (OUTSIDE[6], 443), (POD[6], 15001), (POD[4], 81), ("192.0.2.1", 80))]
        found = pod.probe(asked, outside=True)
        assert [one.server for one in found] == ["app", "outside", "proxy", None, None]
        assert found[0].local == join(POD[4], 80)
        assert [str(one) for one in found[2:]] == ["answered", "refused (ECONNREFUSED)", "unreachable (ENETUNREACH)"]
        with pytest.raises(LabError, match="server 'app' cannot listen on port 80: Address already in use"):
            pod.open_servers(app=(80,), proxy=(), outside=())


@pytest.mark.users
def test_a_pod_can_have_users_of_its_own(require_netns):
    with Pod(user_namespace=True) as pod:
        start_servers(pod)

        assert Path(f"/proc/{pod.pid}/uid_map").read_text().split() == ["0", "200000", "65536"]
        assert inode(f"/proc/{pod.pid}/ns/user") != inode("/proc/self/ns/user")
        assert pod.client.connect(POD[4], 80).server == "app"
        inside = ["nsenter", "-t", str(pod.pid), "-U", "-n", "--setuid", "0", "--setgid", "0"]
        for rule in (
            "-t nat -A OUTPUT -p tcp -m owner --uid-owner 1337 -j RETURN",
            "-t nat -A OUTPUT -p tcp -j REDIRECT --to-ports 15001",
        ):
            subprocess.run([*inside, "iptables-nft", *rule.split()], check=True, capture_output=True)
        assert pod.connect(OUTSIDE[4], 80, uid=pod.first_uid + PROXY_ID).server == "outside"
        assert pod.connect(OUTSIDE[4], 80, uid=pod.first_uid + APP_ID).server == "proxy"
        assert pod.connect(OUTSIDE[4], 80, uid=PROXY_ID).server == "proxy"


# Connections


@families
def test_without_rules_everything_arrives_where_it_was_sent(pod, family):
    start_servers(pod)

    to_app = pod.client.connect(POD[family], 80)
    assert (to_app.outcome, to_app.server, to_app.port) == ("answered", "app", 80)
    assert to_app.local == join(POD[family], 80)
    assert to_app.peer == to_app.source
    assert to_app.peer.startswith(join(CLIENT[family], 0)[:-1])
    assert pod.connect(OUTSIDE[family], 443).server == "outside"
    assert pod.connect(OUTSIDE[family], 53, udp=True).server == "outside"
    assert pod.client.connect(POD[family], 15053, udp=True).server == "proxy"
    assert pod.connect(LOOP[family], 15001).server == "proxy"


@families
def test_inbound_redirection_shows_the_original_destination(pod, family):
    start_servers(pod)
    iptables(
        pod,
        family,
        "-t nat -A PREROUTING -p tcp --dport 8080 -j RETURN",
        "-t nat -A PREROUTING -p tcp -j REDIRECT --to-ports 15006",
    )

    captured, excluded, closed = pod.client.probe(
        [Probe(POD[family], 80), Probe(POD[family], 8080), Probe(POD[family], 9)]
    )
    assert (captured.server, captured.port) == ("proxy", 15006)
    assert captured.original_destination == join(POD[family], 80)
    assert (excluded.server, excluded.port) == ("app", 8080)
    assert (closed.server, closed.original_destination) == ("proxy", join(POD[family], 9))


@families
def test_outbound_redirection_depends_on_the_owner_of_the_socket(pod, family):
    start_servers(pod)
    iptables(
        pod,
        family,
        "-t nat -A OUTPUT -p tcp -m owner --uid-owner 1337 -j RETURN",
        "-t nat -A OUTPUT -p tcp -m owner --gid-owner 1337 -j RETURN",
        "-t nat -A OUTPUT -p tcp -m owner --gid-owner 2000 --suppl-groups -j RETURN",
        "-t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001",
    )

    def arrive(**owner):
        return pod.connect(OUTSIDE[family], 80, **owner)

    app = arrive(uid=APP_ID, gid=APP_ID)
    assert (app.server, app.port) == ("proxy", 15001)
    assert app.original_destination == join(OUTSIDE[family], 80)
    assert arrive().server == "proxy"
    assert arrive(uid=PROXY_ID).server == "outside"
    assert arrive(gid=PROXY_ID).server == "outside"
    assert arrive(groups=[2000]).server == "outside"
    assert arrive(uid=APP_ID, groups=[2001]).server == "proxy"


@families
def test_redirected_datagrams_are_answered_from_where_they_were_sent(pod, family):
    start_servers(pod)
    iptables(pod, family, "-t nat -A OUTPUT -p udp --dport 53 -j REDIRECT --to-ports 15053")

    answer = pod.connect(OUTSIDE[family], 53, udp=True, uid=APP_ID)

    assert (answer.outcome, answer.server, answer.port) == ("answered", "proxy", 15053)
    assert answer.original_destination is None
    assert answer.local == join(LOOP[family], 15053)


@families
def test_tproxy_hands_over_the_connection_as_it_was(pod, family):
    start_servers(pod, transparent=[15006])
    iptables(
        pod,
        family,
        f"-t mangle -A PREROUTING ! -d {LOCALHOST[family]} -p tcp --dport 80 "
        "-j TPROXY --tproxy-mark 1337/0xffffffff --on-port 15006",
    )
    route_tproxy(pod, family)

    arrival = pod.client.connect(POD[family], 80, source="203.0.113.8" if family == 4 else "2001:db8::8")

    assert (arrival.server, arrival.port) == ("proxy", 15006)
    assert arrival.local == join(POD[family], 80)
    assert arrival.peer.startswith("203.0.113.8:" if family == 4 else "[2001:db8::8]:")


def route_tproxy(pod, family):
    from pyroute2 import IPRoute

    with pod.entered():
        netlink = IPRoute()
    with netlink:
        number = socket.AF_INET if family == 4 else socket.AF_INET6
        everywhere = "0.0.0.0/0" if family == 4 else "::/0"
        netlink.rule("add", family=number, fwmark=1337, table=133, priority=100)
        netlink.route("add", family=number, dst=everywhere, oif=1, table=133, type="local", scope="host")


@families
def test_what_does_not_arrive_says_how_it_ended(pod, family):
    start_servers(pod)
    pod.listen(1, family, kind="udp")
    unroutable = "192.0.2.1" if family == 4 else "2001:db8:1::1"
    iptables(
        pod,
        family,
        "-A INPUT -p tcp --dport 8080 -j DROP",
        "-A OUTPUT -p tcp --dport 443 -j REJECT --reject-with tcp-reset",
        "-A OUTPUT -p udp --dport 54 -j DROP",
    )

    def outcome(namespace, *address, **more):
        arrival = namespace.connect(*address, timeout=0.3, **more)
        return arrival.outcome, arrival.error

    assert outcome(pod.client, POD[family], 81) == ("refused", "ECONNREFUSED")
    assert outcome(pod.client, POD[family], 81, udp=True) == ("refused", "ECONNREFUSED")
    assert outcome(pod.client, POD[family], 8080) == ("timeout", None)
    assert outcome(pod, OUTSIDE[family], 443) == ("refused", "ECONNREFUSED")
    assert outcome(pod, OUTSIDE[family], 54, udp=True) == ("unreachable", "EPERM")
    assert outcome(pod.client, unroutable, 80) == ("unreachable", "ENETUNREACH")
    assert outcome(pod, OUTSIDE[family], 80, source=OUTSIDE[family]) == ("unreachable", "EADDRNOTAVAIL")


@families
def test_a_server_whose_answer_rules_drop_answers_again_without_them(pod, family):
    pod.listen(54, family, kind="udp")
    iptables(pod, family, "-A OUTPUT -p udp --sport 54 -j DROP")
    assert pod.client.connect(POD[family], 54, udp=True, timeout=0.3).outcome == "timeout"
    iptables(pod, family, "-F OUTPUT")
    assert pod.client.connect(POD[family], 54, udp=True).server == "54"


def test_servers_that_are_not_the_laboratorys_are_told_apart(pod):
    with pod.entered():
        server = socket.create_server(("127.0.0.1", 7))

    def serve():
        for word in (b"", b"SSH-2.0\n"):
            connection, _ = server.accept()
            connection.sendall(word)
            connection.close()

    with server:
        thread = threading.Thread(target=serve)
        thread.start()
        silent, foreign = pod.connect("127.0.0.1", 7), pod.connect("127.0.0.1", 7)
        thread.join()

    assert (silent.outcome, silent.error) == ("refused", "connected, but closed without an answer")
    assert foreign.outcome == "refused"
    assert "not of this laboratory" in foreign.error


def test_probes_keep_their_order(pod):
    start_servers(pod)
    iptables(pod, 4, "-A INPUT -p tcp --dport 8080 -j DROP")

    arrivals = pod.client.probe([Probe(POD[4], port, timeout=0.4) for port in (8080, 80, 8080, 81, 8080)])

    assert [arrival.outcome for arrival in arrivals] == ["timeout", "answered", "timeout", "refused", "timeout"]


def test_probes_run_at_the_same_time(pod):
    """Their server closes no connection before it has all three; one after the other, the first would wait in vain."""
    with pod.entered():
        server = socket.create_server(("127.0.0.1", 7))

    def serve():
        for connection in [server.accept()[0] for _ in range(3)]:
            connection.close()

    with server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        arrivals = pod.probe([Probe("127.0.0.1", 7, timeout=5) for _ in range(3)])

    assert [arrival.outcome for arrival in arrivals] == ["refused"] * 3, "closed without an answer"


def test_a_long_connection_is_answered_again_and_again(pod):
    start_servers(pod)
    with pod.client.entered():
        stream = socket.create_connection((POD[4], 80))
    with stream, stream.makefile("r") as lines:
        assert '"app"' in lines.readline()
        for _ in range(3):
            stream.sendall(b"again\n")
            assert '"app"' in lines.readline()


def test_an_arrival_reads_like_a_sentence(pod):
    start_servers(pod)
    iptables(pod, 4, "-t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001")

    arrival = pod.connect(OUTSIDE[4], 80, uid=APP_ID)

    assert str(arrival) == (
        f"answered by proxy on port 15001 (from {arrival.source} to 127.0.0.1:15001, original destination 203.0.113.7:80)"
    )
    assert str(pod.connect(LOOP[4], 9)) == "refused (ECONNREFUSED)"


# Servers


def test_servers_run_as_their_users_even_on_low_and_transparent_ports(pod):
    server = pod.serve(
        "proxy",
        [Listener(15006, family, transparent=True) for family in (4, 6)] + [Listener(53, 4)],
        uid=1337,
        gid=1337,
    )
    pod.set_sysctl("net.ipv4.ip_unprivileged_port_start", 1024)
    low = pod.listen(81, uid=APP_ID, gid=APP_ID)

    for pid, owner in ((server.pid, "1337"), (low.pid, "1000")):
        status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
        assert status["Uid"].split() == [owner] * 4
        assert status["Gid"].split() == [owner] * 4
        assert status["Groups"].split() == []
        assert int(status["CapEff"], 16) == 0
    owners = {
        line.split()[1]: line.split()[7]
        for line in pod.run(["cat", "/proc/net/tcp"], check=True).stdout.splitlines()[1:]
    }
    assert owners == {"00000000:3A9E": "1337", "00000000:0035": "1337", "00000000:0051": "1000"}


def test_a_server_that_cannot_listen_says_why_and_leaves_nothing(pod):
    pod.listen(80)
    before = children(), descriptors()

    with pytest.raises(LabError, match=r"server '80' did not start: cannot listen on .*Address already in use"):
        pod.listen(80)

    assert (children(), descriptors()) == before


def test_a_closed_server_refuses_and_its_port_is_free_again(pod):
    server = pod.listen(80, name="first")
    assert pod.client.connect(POD[4], 80).server == "first"
    server.close()
    server.close()

    assert pod.client.connect(POD[4], 80).outcome == "refused"
    pod.listen(80, name="second")
    assert pod.client.connect(POD[4], 80).server == "second"


@pytest.mark.parametrize("listener", [{"family": 5}, {"kind": "sctp"}])
def test_a_listener_of_an_unknown_kind_is_refused(listener):
    with pytest.raises(LabError, match="family 4 or 6"):
        Listener(80, **listener)


# Programs and functions inside


def test_a_program_runs_inside_with_the_ids_it_was_given(pod):
    done = pod.run(
        ["sh", "-c", "id -u; id -g; id -G; cat; grep -c eth0 /proc/net/dev"],
        uid=1000,
        gid=2000,
        groups=[3, 4],
        stdin="in\n",
    )

    assert done.stdout.split() == ["1000", "2000", "2000", "3", "4", "in", "1"]
    assert pod.run(["sh", "-c", "echo $X; exit 3"], env={"X": "set"}).returncode == 3


def test_a_program_that_fails_or_hangs_is_told_of(pod):
    with pytest.raises(LabError, match=r"in 'pod' ended with 1: no"):
        pod.run(["sh", "-c", "echo no >&2; exit 1"], check=True)
    before = children()
    with pytest.raises(LabError, match=r"did not end within 0\.1 s and was killed"):
        pod.run(["sleep", "60"], timeout=0.1)
    assert children() == before


def test_a_function_runs_inside_with_the_ids_it_was_given(pod):
    def look(word):
        names = [name for _, name in socket.if_nameindex()]
        return word, "eth0" in names, os.getresuid(), os.getresgid(), os.getgroups()

    assert pod.call(look, "x", uid=1000, gid=1001, groups=[7]) == ("x", True, (1000,) * 3, (1001,) * 3, [7])
    assert pod.call(look, "y") == ("y", True, (0,) * 3, (0,) * 3, [])


def test_a_function_that_raises_dies_or_hangs_is_told_of(pod):
    before = children(), descriptors()

    with pytest.raises(LabError, match=r"(?s)in 'pod' raised:.*ZeroDivisionError"):
        pod.call(lambda: 1 / 0)
    with pytest.raises(LabError, match=r"in 'pod' raised:\nFileNotFoundError: .*'/gone'"):
        pod.call(os.listdir, "/gone")
    with pytest.raises(LabError, match=r"raised:(?s:.*)a child cannot answer with a builtins\.function"):
        pod.call(lambda: lambda: None)
    with pytest.raises(LabError, match="ended without a result"):
        pod.call(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(LabError, match=r"did not end within 0\.1 s"):
        pod.call(time.sleep, 60, timeout=0.1)
    with pytest.raises(LabError, match="SystemExit"):
        pod.call(sys.exit, 3)

    assert (children(), descriptors()) == before


def test_results_larger_than_a_pipe_come_through(pod):
    assert pod.call(bytes, 3_000_000) == bytes(3_000_000)


def test_an_entered_block_ends_where_it_began_even_after_an_error(pod):
    home = inode(HERE)

    def fail():
        with pod.entered():
            assert inode(HERE) == inode(pod.path) != home
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert inode(HERE) == home


def test_a_namespace_outside_its_block_is_refused_with_the_remedy():
    with pytest.raises(LabError, match="use it inside its `with` block"):
        NetworkNamespace("early").connect("127.0.0.1", 1)


# Snapshots


@families
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_a_snapshot_is_the_same_until_something_changes(pod, family, variant):
    needs(f"iptables-{variant}")
    start_servers(pod)
    before = describe_state(pod)
    assert before == describe_state(pod)

    iptables(pod, family, "-t nat -A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001", variant=variant)
    with_rule = describe_state(pod)
    assert with_rule.count("REDIRECT --to-ports 15001") == 1
    pod.connect(OUTSIDE[family], 80)
    assert describe_state(pod) == with_rule, "counters do not show"

    iptables(pod, family, "-t nat -D OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001", variant=variant)
    assert describe_state(pod) != before, "the kernel keeps the empty table"
    assert drop_empty_tables(describe_state(pod)) == before


def test_a_snapshot_registers_no_table(pod):
    describe_state(pod)

    assert pod.run(["nft", "list", "tables"], check=True).stdout == ""
    for name in ("ip_tables_names", "ip6_tables_names"):
        assert pod.run(["cat", f"/proc/net/{name}"]).stdout == ""


def test_a_snapshot_shows_routes_rules_addresses_and_other_nft_tables(pod):
    before = describe_state(pod)
    route_tproxy(pod, 4)
    route_tproxy(pod, 6)
    pod.run(["nft", "add table inet mesh; add set inet mesh s { type ipv4_addr; }"], check=True)
    after = describe_state(pod).splitlines()

    added = [line for line in after if line not in before.splitlines()]
    assert sum("fwmark=1337" in line and line.startswith("rule ") for line in added) == 2
    assert sum("table=133" in line and line.startswith("route ") for line in added) == 2
    assert "table inet mesh {" in added


def test_only_tables_that_hold_nothing_are_dropped():
    empty = "*nat\n:PREROUTING ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"
    chain = "*nat\n:PREROUTING ACCEPT\n:MINE -\nCOMMIT\n"
    policy = "*filter\n:INPUT DROP\nCOMMIT\n"
    rule = "*raw\n:OUTPUT ACCEPT\n-A OUTPUT -j ACCEPT\nCOMMIT\n"

    assert drop_empty_tables(f"# a\n{empty}{chain}{empty}{policy}{rule}# b\n") == f"# a\n{chain}{policy}{rule}# b\n"


def test_a_listing_keeps_the_order_of_rules(pod):
    lines = [f"-A OUTPUT -p tcp -m tcp --dport {port} -j ACCEPT" for port in (3, 1, 2)]
    iptables(pod, 4, *lines)

    listed = list_rules(pod, "iptables-nft-save").splitlines()
    assert [line for line in listed if line.startswith("-A")] == lines


# Cleaning up


def test_nothing_is_left_of_a_pod_after_an_error_in_its_block(require_netns):
    pids, inodes = set(), set()

    def fail():
        with Pod(interfaces=["eth1"]) as pod:
            start_servers(pod)
            pids.update(children() - before[0])
            inodes.update(inode(f"/proc/{pid}/ns/net") for pid in pids)
            raise KeyError

    with NetworkNamespace("machine") as machine, machine.entered():  # the machine's own devices and names are others', too, which come and go
        before = children(), descriptors(), interfaces()
        with pytest.raises(KeyError):
            fail()
        assert (children(), descriptors(), interfaces()) == before

    assert len(pids) == 4, "a pause process and three servers"
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not [path for path in Path("/run").glob("netns/*") if path.exists() and path.stat().st_ino in inodes - {inode("/proc/self/ns/net")}]


def test_nothing_is_left_of_a_pod_that_cannot_be_made(require_netns):
    before = children(), descriptors()

    with pytest.raises(LabError, match="the kernel refuses a link"), Pod(interfaces=["a-name-longer-than-15"]):
        pass

    assert (children(), descriptors()) == before


STORY = """
import sys, time
from laboratory import Pod, start_servers
with Pod() as pod:
    servers = start_servers(pod)
    print(pod.pid, *(server.pid for server in servers.values()), flush=True)
    time.sleep(60)
"""


def test_nothing_outlives_a_killed_parent(require_netns):
    with subprocess.Popen([sys.executable, "-c", STORY], stdout=subprocess.PIPE, text=True, env=TESTS) as parent:
        pids = parent.stdout.readline().split()
        assert len(pids) == 4
        watched = [os.pidfd_open(int(pid)) for pid in pids]
        parent.kill()

    for descriptor in watched:
        ended = select.select([descriptor], [], [], 5)[0]
        os.close(descriptor)
        assert ended, "a child of the laboratory outlives its parent"


# Where namespaces cannot be made


def run_pytest_unprivileged(*options):
    """One test of this file, by a root that lost CAP_SYS_ADMIN."""
    pytest_run = [sys.executable, "-m", "pytest", "-rs", f"{__file__}::{test_a_snapshot_registers_no_table.__name__}"]
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-sys_admin", *pytest_run, *options], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def test_without_privileges_a_test_is_skipped_with_the_reason_or_fails_on_demand(require_netns):
    reason = "cannot make a network namespace: Operation not permitted; run as root with CAP_SYS_ADMIN"

    code, text = run_pytest_unprivileged()
    assert (code, "1 skipped" in text) == (0, True), text
    assert f"no network namespaces: {reason}" in text

    code, text = run_pytest_unprivileged("--require-netns")
    assert (code, "1 error" in text) == (1, True), text
    assert f"--require-netns: {reason}" in text


def test_without_root_the_remedy_is_named(pod):
    assert pod.call(find_obstacle, uid=65534) == "making network namespaces needs root: run as root"
    assert pod.call(find_obstacle) is None


@pytest.mark.mounts
def test_a_pod_needs_no_writable_settings(require_netns):
    freeze = 'mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$0" "$@"'
    story = (
        "from laboratory import Pod, start_servers\n"
        "with Pod() as pod:\n"
        "    start_servers(pod)\n"
        "    print(pod.client.connect('fd77::2', 80, timeout=0.5).server, pod.connect('10.77.0.1', 80).server)\n"
    )
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", freeze, sys.executable, "-c", story], capture_output=True, text=True, check=True, env=TESTS
    )

    assert done.stdout == "app outside\n"
