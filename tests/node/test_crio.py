"""CRI-O as a kubelet asks it: pods without a process of their own, whose namespaces pinns mounts below /var/run; ours in the list of its plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from cri import CriError
from crio import Crio, find_obstacle
from node_agent import AGENT_NAMESPACE, DAEMON_SET, Node, make_pod, make_validated_pod
from runtime import V4, bridge
from test_runtimes import (
    DUAL,
    addresses_of,
    agent,
    check_captured,
    check_told_of_annotation,
    differences,
    sandbox,
    subnets,
)

USERS = 1 << 20  # the node's first user of a pod with users of its own


@pytest.fixture(scope="module")
def runtime(tmp_path_factory):
    if reason := find_obstacle():
        pytest.skip(reason)
    with Crio(tmp_path_factory.mktemp("crio")) as made:
        yield made


@pytest.mark.parametrize(("number", "env", "families"), [(85, [], (4,)), (86, [], (6,)), (87, DUAL, (4, 6))], ids=["IPv4", "IPv6", "both"])
def test_a_pod_of_cri_o_is_captured_before_anything_runs_in_it(runtime, api, tmp_path, number, env, families):
    runtime.network(bridge(*subnets(number, families), bridge=f"cni{number}", name=f"net{number}"))
    api.put(make_pod("web", env=env))
    with agent(runtime, api, tmp_path), sandbox(runtime, "web") as made:
        path = runtime.namespace(made)
        assert Path(path).parent == Path("/var/run/netns")
        check_captured(path, addresses_of(path), families)


def test_a_pod_of_cri_o_with_users_of_its_own_is_captured(runtime, api, tmp_path):
    runtime.network(bridge(*subnets(88), bridge="cni88", name="net88"))
    api.put(make_pod("web", env=DUAL))
    with agent(runtime, api, tmp_path), sandbox(runtime, "web", users=USERS) as made:
        path = runtime.namespace(made)
        check_captured(path, addresses_of(path), (4, 6), users=USERS)


def test_without_an_agent_pods_of_cri_o_wait_and_start_when_it_is_back_and_its_own_starts_at_once(runtime, api, tmp_path):
    runtime.network(bridge(V4))
    api.put(make_pod("web"))
    with agent(runtime, api, tmp_path) as node:
        node.kill()
        with pytest.raises(CriError, match="agent does not answer"):
            runtime.cri.run_sandbox("web")
        assert not runtime.cri.ready()
        with sandbox(runtime, f"{DAEMON_SET}-ab3de", namespace=AGENT_NAMESPACE) as own:
            assert runtime.namespace(own)
        node.start()
        with sandbox(runtime, "web", attempt=1) as made:
            assert differences(runtime, made) == []


def test_a_bad_annotation_is_what_the_kubelet_is_told_by_cri_o(runtime, api, tmp_path):
    check_told_of_annotation(runtime, api, tmp_path)


def test_a_pod_that_started_without_the_plugin_is_found_by_the_record_that_cri_o_keeps(runtime, api, tmp_path):
    runtime.network(bridge(V4))
    with sandbox(runtime, "web") as made:
        address = addresses_of(runtime.namespace(made))[0]
        api.put(make_validated_pod("web", address))
        with Node(tmp_path, api, "--netnsFolder", "/run/netns", "--recordsFolder", "/var/lib/cni/results", "--sweepInterval", "1s", "--repair", "program", in_full=True) as node:
            node.until(lambda: "InterceptionRepaired" in [event["reason"] for event in api.events()], "the repair")
        assert differences(runtime, made) == []
