"""The kubelet's user, by what /proc and the kernel show of its process and its socket."""

from __future__ import annotations

import posix
import socket
from types import SimpleNamespace

import pytest

from netinit.kernel import kubelet
from netinit.kernel.tcp_sockets import ESTABLISHED, LISTEN

ONLY = "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t7\n"
PROCESSES = [
    ("kubelet", "/usr/bin/kubelet\0--config=x\0", ONLY, {1000}),
    ("kubelet", "/usr/bin/kubelet\0", "Uid:\t0\t0\t0\t1001\nNSpid:\t7\n", {1001}),
    ("kubelet", "/usr/bin/kubelet\0", "Uid:\t0\t0\t0\t0\n", {0}),  # a kernel without PID namespaces
    ("kubelite", "/snap/microk8s/5/kubelite\0--kubelet-args-file=x\0", ONLY, {1000}),
    ("hyperkube", "/hyperkube\0kubelet\0", ONLY, {1000}),
    ("hyperkube", "/hyperkube\0proxy\0", ONLY, set()),
    ("k3s", "/usr/local/bin/k3s server\0", ONLY, {1000}),
    ("k3s-agent", "k3s\0agent\0", ONLY, {1000}),
    ("k3s", "k3s\0kubectl\0get\0pods\0", ONLY, set()),
    ("kubelet", "/bin/evil\0", ONLY, set()),
    ("kubelet", "/usr/bin/kubelet\0", "Uid:\t1000\t1000\t1000\t1000\nNSpid:\t7\t1\n", set()),  # in a container
    ("kubelet", "/usr/bin/kubelet\0", "", set()),  # ended meanwhile
    ("kube-proxy", "/usr/bin/kubelet\0", ONLY, set()),
]


def show(monkeypatch, namespaces, **files):
    monkeypatch.setattr(kubelet, "list_processes", lambda: [7])
    monkeypatch.setattr(kubelet, "namespace_of", namespaces.__getitem__)
    monkeypatch.setattr(kubelet, "read_text", lambda path: files[path.rpartition("/")[2]])


@pytest.mark.parametrize(("comm", "cmdline", "status", "users"), PROCESSES)
def test_the_kubelet_is_a_process_of_the_node_with_its_name_and_command(monkeypatch, comm, cmdline, status, users):
    show(monkeypatch, {"self": (4, 1), 7: (4, 1)}, comm=f"{comm}\n", cmdline=cmdline, status=status)
    assert kubelet.list_process_users() == users


@pytest.mark.parametrize(("namespace", "users"), [((4, 2), set()), (None, {1000})])
def test_a_process_of_another_network_namespace_is_none_of_this_node_s(monkeypatch, namespace, users):
    """Where it may not be inspected, only its name and PID namespace are known."""
    show(monkeypatch, {"self": (4, 1), 7: namespace}, comm="kubelet\n", cmdline="kubelet\0", status=ONLY)
    assert kubelet.list_process_users() == users


def test_the_user_of_the_socket_that_listens_on_the_port_counts_and_no_client(monkeypatch):
    sockets = [SimpleNamespace(state=state, local=(b"", port), uid=uid) for state, port, uid in (
        (LISTEN, 10250, 1000), (ESTABLISHED, 10250, 2), (LISTEN, 10255, 3),
    )]  # fmt: skip
    monkeypatch.setattr(kubelet, "list_tcp", lambda: sockets)
    assert kubelet.list_listening_users() == {1000}


def test_a_real_socket_is_seen(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setattr(kubelet, "PORT", listening.getsockname()[1])
        assert kubelet.list_listening_users() == {posix.geteuid()}
