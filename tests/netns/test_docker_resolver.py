"""Docker's resolver: queries of the application reach the proxy, the proxy's reach the resolver, and all goes with the rules.

The rules are those that Docker 20 to 28 makes in every container of a network that users made (libnetwork's resolver).
"""

from __future__ import annotations

import pytest

from lab_probes import Probe
from laboratory import Listener
from netinit.base.net import IPV4
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from programming import apply_in, differences_in, load, needs, remove_in, run_tool, state

DOCKER = """*nat
:DOCKER_OUTPUT - [0:0]
:DOCKER_POSTROUTING - [0:0]
-A OUTPUT -d 127.0.0.11/32 -j DOCKER_OUTPUT
-A POSTROUTING -d 127.0.0.11/32 -j DOCKER_POSTROUTING
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p tcp -m tcp --dport 53 -j DNAT --to-destination 127.0.0.11:44123
-A DOCKER_OUTPUT -d 127.0.0.11/32 -p udp -m udp --dport 53 -j DNAT --to-destination 127.0.0.11:35123
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p tcp -m tcp --sport 44123 -j SNAT --to-source :53
-A DOCKER_POSTROUTING -s 127.0.0.11/32 -p udp -m udp --sport 35123 -j SNAT --to-source :53
COMMIT
"""
APP, PROXY = {"uid": APP_ID, "gid": APP_ID}, {"uid": PROXY_ID, "gid": PROXY_ID}


def asked(pod, **user):
    found = pod.probe([Probe("127.0.0.11", 53, udp=udp, **user) for udp in (False, True)])
    return [(one.server, one.port) if one.outcome == "answered" else one.outcome for one in found]


@pytest.mark.parametrize("variant", ["iptables-nft", "iptables-legacy"])
def test_the_application_asks_the_proxy_and_the_proxy_asks_docker(pod, variant):
    needs(variant)
    load(pod, variant, IPV4, DOCKER)
    before = state(pod)
    resolver = [Listener(44123, address="127.0.0.11"), Listener(35123, kind="udp", address="127.0.0.11")]
    pod.serve("docker", resolver, uid=0, gid=0)
    pod.serve("proxy", [Listener(15053), Listener(15053, kind="udp")], uid=PROXY_ID, gid=PROXY_ID)
    assert asked(pod, **APP) == [("docker", 44123), ("docker", 35123)]

    options = Options.from_argv(["-b", "*", "-i", "*", "--redirect-dns", "--dns-servers", "127.0.0.11", "--ipv6", "off", "--backend", variant])
    outcome = apply_in(pod, options)
    assert not [warning for warning in outcome.warnings if "DOCKER" in warning]
    assert differences_in(pod, options) == []
    assert run_tool(pod, "verify").returncode == 0
    assert asked(pod, **APP) == [("proxy", 15053), ("proxy", 15053)]
    assert asked(pod, **PROXY) == [("docker", 44123), ("docker", 35123)]
    told = run_tool(pod, "explain", "--live", "--to", "127.0.0.11:53", "--udp", "--uid", str(APP_ID)).stdout
    assert told.startswith("captured: goes to the proxy's resolver on 15053"), told

    remove_in(pod)
    assert state(pod) == before
    assert asked(pod, **APP) == [("docker", 44123), ("docker", 35123)]


def test_all_dns_in_a_network_of_docker_is_warned_of(pod, tmp_path):
    path = tmp_path / "resolv.conf"
    mount = ["unshare", "-m", "sh", "-c", f'mount --bind {path} /etc/resolv.conf && exec "$@"', "sh"]
    words = ["-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns", "--ipv6", "off"]
    for server, said in (("127.0.0.11", True), ("10.96.0.10", False)):
        path.write_text(f"nameserver {server}\n")
        for command in ("apply", "render", "verify", "doctor"):
            told = run_tool(pod, command, *words, prefix=mount)
            assert ("leave --capture-all-dns out" in told.stdout + told.stderr) == said, (command, told.stdout, told.stderr)
