"""The process that answers: an end by an error is told from one that was asked for, and one out of memory is replaced."""

from __future__ import annotations

import errno
import io
import socket

import pytest

from netinit.base.errors import ChildLostError
from netinit.kernel import capabilities, children
from netinit.node import server
from netinit.node.server import AgentServer
from netinit.node.settings import AgentSettings
from netinit.node.supervisor import _explain_end
from netinit.node.unix_server import open_socket
from netinit.serving.event_log import EventLog
from netinit.serving.server_process import listen
from node_agent import Api


def serve(folder, api):
    """The server with sockets of its own, until it ends."""
    settings = AgentSettings(
        node="n", namespace="mesh", install=False, sweep=False, watch=False, kubeconfig=str(api.kubeconfig(folder)), socket=str(folder / "run" / "cni.sock")
    )
    ours, programmer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, programmer, open_socket(settings.socket) as plugin, listen("127.0.0.1", 0) as monitoring:
        server.serve(settings, plugin, server.identify(settings.socket), monitoring, programmer)


@pytest.fixture
def api():
    with Api() as made:
        yield made


async def run_out_of_descriptors(self):
    raise OSError(errno.EMFILE, "Too many open files")


async def run_out_of_memory(self):
    raise MemoryError


def run_in_child(folder, api, monkeypatch, watch_socket):
    """How a child ends that serves, while what looks after the socket ends like this."""
    monkeypatch.setattr(AgentServer, "_lose_socket", watch_socket)
    monkeypatch.setattr(capabilities, "give_up", lambda: None)
    return children.start(lambda _: serve(folder, api), seconds=60, what="the agent", kept=None)


def test_an_error_of_what_looks_after_the_socket_is_not_an_end_that_was_asked_for(tmp_path, api, monkeypatch):
    with run_in_child(tmp_path, api, monkeypatch, run_out_of_descriptors) as child, pytest.raises(OSError, match="Too many open files"):
        child.receive()


def test_a_process_that_runs_out_of_memory_outside_of_its_tasks_is_lost_and_names_no_pod(tmp_path, api, monkeypatch):
    with run_in_child(tmp_path, api, monkeypatch, run_out_of_memory) as child, pytest.raises(ChildLostError) as lost:
        child.receive()
    assert lost.value.how == "ended with status 1"


def test_who_logs_without_memory_ends_all_the_same():
    class Full(io.StringIO):
        def write(self, text):
            raise MemoryError

    with (
        children.start(lambda _: server.end_out_of_memory(EventLog(stream=Full()), "the agent"), seconds=60, what="it", kept=None) as child,
        pytest.raises(ChildLostError, match="ended with status 1"),
    ):
        child.receive()


@pytest.mark.parametrize(
    ("error", "how"),
    [(OSError(errno.ENOSPC, "No space left on device"), "ended by an internal error ([Errno 28] No space left on device)"), (KeyError("x"), "ended by an internal error (KeyError: 'x')")],
    ids=repr,
)
def test_a_process_that_ends_by_an_error_of_the_system_is_replaced_as_one_that_ends_by_a_bug(error, how):
    def fail(_):
        raise error

    stream = io.StringIO()
    with children.start(fail, seconds=60, what="the agent", kept=None) as child:
        assert _explain_end(child, EventLog(stream=stream)) == how
    assert "internal error: " in stream.getvalue()
