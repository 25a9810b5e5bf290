"""Connections that are older than the rules: which ones are, what is said of them, and what is ended. Without a kernel."""

from __future__ import annotations

import contextlib
import socket

import pytest

from netinit.base.net import IPV4
from netinit.kernel.conntrack import Event
from netinit.kernel.tcp_sockets import ESTABLISHED, LISTEN, SYN_SENT, TcpSocket
from netinit.options import Options, offline
from netinit.pods import older_connections
from netinit.pods.older_connections import find_older, judge, not_known
from netinit.rules.layouts import plan
from netinit.rules.packet_inputs import Surroundings

OWN, SERVER, PEER = "10.1.1.1", "192.0.2.1", "10.9.9.9"
SIDECAR = ["-p", "15001", "-z", "15006", "-u", "1337", "-g", "1337", "-i", "*", "-b", "*", "-d", "15021", "-o", "22"]


def settled(*more, environ=None):
    return Options.from_argv([*SIDECAR, *more], environ or {}).settle(offline())


def end(host, port):
    return socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host), port


def tcp(local=(OWN, 40000), remote=(SERVER, 80), state=ESTABLISHED, uid=1000, inode=7, mark=0):
    return TcpSocket(state=state, local=end(*local), remote=end(*remote), uid=uid, inode=inode, mark=mark, transparent=False, identity=b"i")


def entry(original, reply=None, protocol=socket.IPPROTO_TCP):
    """An entry of connection tracking; not translated, where no reply is named."""
    source, destination = original
    return Event(destroyed=False, answered=True, original=(protocol, *source, *destination), reply=(protocol, *(reply or (destination, source))[0], *(reply or (destination, source))[1]), handle=b"h")


LISTENING = tcp(("0.0.0.0", 8080), ("0.0.0.0", 0), LISTEN)
OUT = entry(((OWN, 40000), (SERVER, 80)))


class Kernel:
    """Entries by the ends that are asked for; what is destroyed and deleted."""

    def __init__(self, monkeypatch):
        self.entries, self.listed, self.ended, self.deleted, self.errors, self.picks_up, self.range = {}, [], [], [], {}, True, "32768\t60999\n"
        self.groups = {}

        def around(family):
            own = ((("eth0", int.from_bytes(end(OWN, 0)[0], "big")),) if family is IPV4 else (("eth0", int.from_bytes(end("fd00::1", 0)[0], "big")),))
            return Surroundings(family=family, addresses=own, picks_up=self.picks_up)

        def find_entry(_, protocol, source, destination):
            self.fail("find")
            assert protocol == socket.IPPROTO_TCP
            return self.entries.get((source, destination))

        def destroy(_, one):
            self.fail("destroy")
            self.ended.append(one)

        def delete_entry(_, one):
            self.fail("delete")
            self.deleted.append(one)

        monkeypatch.setattr(older_connections, "Netlink", contextlib.nullcontext)
        monkeypatch.setattr(older_connections.conntrack, "find_entry", find_entry)
        monkeypatch.setattr(older_connections.conntrack, "list_entries", lambda _: self.listed)
        monkeypatch.setattr(older_connections.conntrack, "delete_entry", delete_entry)
        monkeypatch.setattr(older_connections, "destroy", destroy)
        monkeypatch.setattr(older_connections, "read_surroundings", around)
        monkeypatch.setattr(older_connections, "read_text", lambda path: self.range if path.endswith("ip_local_port_range") else "")
        monkeypatch.setattr(older_connections.processes, "find_groups", lambda inodes: {one: self.groups[one] for one in inodes if one in self.groups})

    def fail(self, what):
        if what in self.errors:
            raise self.errors[what]


@pytest.fixture
def kernel(monkeypatch):
    return Kernel(monkeypatch)


def older(*suspects, others=(), options=None):
    options = options or settled()
    found = find_older(suspects, [*suspects, *others], options, plan(options), None)
    return [(str(one), one.passes) for one in found]


TO_SERVER = f"from {OWN}:40000 to {SERVER}:80, of user 1000"


def test_a_connection_that_the_rules_would_capture_and_nat_has_not_translated_is_older(kernel):
    kernel.entries[end(OWN, 40000), end(SERVER, 80)] = OUT
    assert older(tcp()) == [(TO_SERVER, True)]


@pytest.mark.parametrize(
    ("one", "others", "more"),
    [
        (tcp(remote=(SERVER, 22)), (), ()), (tcp(uid=1337), (), ()), (tcp(mark=1337), (tcp((SERVER, 80), (OWN, 40000)),), ()),
        (tcp(), (tcp(("127.0.0.1", 15001), (OWN, 40000)),), ()), (tcp(state=SYN_SENT), (), ()), (tcp((OWN, 15021), (PEER, 50000)), (tcp(("0.0.0.0", 15021), ("0.0.0.0", 0), LISTEN),), ()),
        (tcp((OWN, 8080), (PEER, 50000)), (LISTENING,), ("-m", "NONE")),
    ],
    ids=["excluded port", "the proxy's", "within the pod", "the proxy has its other end", "its next attempt is new", "excluded inbound port", "inbound is not captured"],
)  # fmt: skip
def test_a_connection_that_is_not_captured_or_has_its_end_in_the_pod_is_none(kernel, one, others, more):
    assert older(one, others=others, options=settled(*more)) == []


def test_a_connection_that_nat_has_translated_is_captured_already(kernel):
    kernel.entries[end(OWN, 40000), end(SERVER, 80)] = entry(((OWN, 40000), (SERVER, 80)), (("127.0.0.1", 15001), (OWN, 40000)))
    assert older(tcp()) == []


def test_an_attempt_that_is_tracked_goes_on_as_it_began(kernel):
    kernel.entries[end(OWN, 40000), end(SERVER, 80)] = OUT
    assert older(tcp(state=SYN_SENT)) == [(TO_SERVER, True)]


@pytest.mark.parametrize(("picks_up", "more", "passes"), [(True, (), False), (False, (), False), (True, ("--istio-exact",), False), (False, ("--istio-exact",), True)])
def test_what_is_not_tracked_passes_only_where_the_kernel_does_not_pick_it_up_and_no_rule_drops_it(kernel, picks_up, more, passes):
    kernel.picks_up = picks_up
    assert older(tcp(), options=settled(*more)) == [(TO_SERVER, passes)]


@pytest.mark.parametrize(
    ("local", "listens", "is_inbound"), [((OWN, 8080), True, True), ((OWN, 40000), True, True), ((OWN, 8080), False, True), ((OWN, 40000), False, False), ((OWN, 60999), False, False), ((OWN, 61000), False, True), ((OWN, 32767), False, True), ((OWN, 32768), False, False)]
)  # fmt: skip
def test_a_connection_comes_in_at_a_port_where_something_listens_or_which_the_kernel_gives_to_no_client(kernel, local, listens, is_inbound):
    listening = [tcp(("0.0.0.0", local[1]), ("0.0.0.0", 0), LISTEN)] if listens else []
    text = f"from {PEER}:80 to {OWN}:{local[1]}" if is_inbound else f"from {OWN}:{local[1]} to {PEER}:80, of user 1000"
    assert [told for told, _ in older(tcp(local, (PEER, 80)), others=listening)] == [text]


@pytest.mark.parametrize(("text", "is_inbound"), [("1000 2000", True), ("", False), ("1 2 3", False)])
def test_the_kernel_says_which_ports_it_gives_to_clients_and_its_default_counts_where_it_does_not(kernel, text, is_inbound):
    kernel.range = text
    assert ("of user" not in older(tcp())[0][0]) == is_inbound


def test_the_group_of_a_socket_s_process_counts_where_rules_or_root_ask_for_it(kernel):
    kernel.groups = {7: 1337}
    assert older(tcp(uid=0)) == [], "a proxy that runs as root"
    assert older(tcp(uid=1000)) != [], "nobody asks for the group of another user"
    options = settled(environ={"ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "1337"})
    assert older(tcp(uid=1000), options=options) == []
    assert older(tcp(uid=0, inode=0)) != [], "no process has it"


def test_ipv6_is_judged_by_its_own_rules(kernel):
    one = tcp(("fd00::1", 40000), ("2001:db8::1", 80))
    assert [told for told, _ in older(one)] == ["from [fd00::1]:40000 to [2001:db8::1]:80, of user 1000"]


# --- what is said, and what is ended ---


def tell(kernel, *suspects, others=(), more=(), tracked=True):
    options = settled(*more)
    for one in suspects if tracked else ():
        kernel.entries[one.local, one.remote] = kernel.entries[one.remote, one.local] = OUT
    return judge(suspects, [*suspects, *others], options, plan(options))


SECOND = tcp((OWN, 40001))


@pytest.mark.parametrize(
    ("suspects", "tracked", "text"),
    [
        ([tcp()], True, f"1 connection older than the rules bypasses the proxy until it ends ({TO_SERVER}); --reset-existing ends it at once, so that programs reconnect"),
        ([tcp(), SECOND], True, f"2 connections older than the rules bypass the proxy until they end (such as {TO_SERVER}); --reset-existing ends them at once, so that programs reconnect"),
        ([tcp()], False, f"1 connection older than the rules is cut off with its next packet ({TO_SERVER}); --reset-existing ends it at once, so that programs reconnect"),
        ([tcp(), SECOND], False, f"2 connections older than the rules are cut off with their next packet (such as {TO_SERVER}); --reset-existing ends them at once, so that programs reconnect"),
    ],
)  # fmt: skip
def test_connections_that_are_left_alone_are_a_warning_with_an_example(kernel, suspects, tracked, text):
    found = tell(kernel, *suspects, tracked=tracked)
    assert (found.warnings, found.notes, found.unended, kernel.ended) == ((text,), (), "", [])


def test_both_kinds_are_one_warning(kernel):
    kernel.entries[SECOND.local, SECOND.remote] = OUT
    found = tell(kernel, tcp(), SECOND, tracked=False)
    (told,) = found.warnings
    assert told == (
        f"1 connection older than the rules bypasses the proxy until it ends (from {OWN}:40001 to {SERVER}:80, of user 1000); "
        f"1 connection older than the rules is cut off with its next packet ({TO_SERVER}); --reset-existing ends them at once, so that programs reconnect"
    )


def test_without_any_nothing_is_said(kernel):
    found = tell(kernel)
    assert (found.warnings, found.notes, found.unended) == ((), (), "")


def test_connections_are_ended_with_their_entries_and_dns_queries_whose_port_would_be_used_again(kernel):
    query, answered, other = (entry(((OWN, 5353), ("10.96.0.10", port)), reply, protocol) for port, reply, protocol in (
        (53, None, socket.IPPROTO_UDP), (53, (("127.0.0.1", 15053), (OWN, 5353)), socket.IPPROTO_UDP), (54, None, socket.IPPROTO_UDP)))  # fmt: skip
    kernel.listed = [query, answered, other, entry(((OWN, 5353), ("10.96.0.10", 53)))]
    found = tell(kernel, tcp(), more=("--reset-existing", "--redirect-dns", "--dns-servers", "10.96.0.10"))
    assert (found.warnings, found.notes, found.unended) == ((), (f"ended 1 connection older than the rules ({TO_SERVER})",), "")
    assert (kernel.ended, kernel.deleted) == ([tcp()], [OUT, query])
    kernel.deleted.clear()
    assert tell(kernel, tcp(), SECOND, more=("--reset-existing",)).notes == (f"ended 2 connections older than the rules (such as {TO_SERVER})",)
    assert kernel.deleted == [OUT, OUT]


def test_what_could_not_be_ended_is_named_with_the_reason_and_what_to_do(kernel):
    kernel.errors["destroy"] = OSError(95, "Operation not supported")
    found = tell(kernel, tcp(), SECOND, more=("--reset-existing",))
    assert found.notes == ()
    assert found.unended == f"2 connections older than the rules could not be ended (such as {TO_SERVER}): SOCK_DESTROY: Operation not supported; restart the programs that hold them"
    assert kernel.deleted == []


def test_entries_that_could_not_be_deleted_are_named_though_the_connections_are_ended(kernel):
    kernel.errors["delete"] = OSError(1, "Operation not permitted")
    found = tell(kernel, tcp(), more=("--reset-existing",))
    assert found.notes == (f"ended 1 connection older than the rules ({TO_SERVER})",)
    assert found.unended == "connections older than the rules: their entries in connection tracking: Operation not permitted; restart the programs that hold them"


@pytest.mark.parametrize(("more", "field"), [((), "warnings"), (("--reset-existing",), "unended")])
def test_a_kernel_that_does_not_answer_leaves_it_unknown_which_is_a_failure_where_they_should_be_ended(kernel, more, field):
    kernel.errors["find"] = OSError(12, "Cannot allocate memory")
    found = tell(kernel, tcp(), more=more)
    text = "whether connections are older than the rules cannot be known: connection tracking: Cannot allocate memory"
    assert found == not_known("connection tracking: Cannot allocate memory", settled(*more))
    assert getattr(found, field) == (text if field == "unended" else (text,))
    assert (found.warnings, found.unended, found.notes).count(()) + (not found.unended) == 2
