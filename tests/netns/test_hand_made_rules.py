"""A rule that somebody has put into one of our chains is one foreign rule to every live command, and hides none of ours."""

from __future__ import annotations

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID
from programming import arrivals, needs, run_tool
from sweeps import choose

OPTIONS = ("-p", "15001", "-z", "15006", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "off", "--istio-exact")
HAND_MADE = {
    "iptables-nft": ("iptables-nft -w -t nat -I ISTIO_OUTPUT 1 -d 203.0.113.7 -j RETURN", "IPv4 nat ISTIO_OUTPUT rule 1: -d 203.0.113.7/32 -j RETURN"),
    "iptables-legacy": ("iptables-legacy -w -t nat -I ISTIO_OUTPUT 1 -d 203.0.113.7 -j RETURN", "IPv4 nat ISTIO_OUTPUT rule 1: -d 203.0.113.7/32 -j RETURN"),
    "nftables": ("nft insert rule inet istio-proxy-nat istio-output ip daddr 203.0.113.7 return", "nft istio-proxy-nat istio-output rule 1: ip daddr 203.0.113.7 return"),
}


@pytest.mark.parametrize("backend", HAND_MADE)
def test_every_live_command_names_one_foreign_rule(backend, require_netns):
    needs(backend)
    command, named = HAND_MADE[backend]
    with Pod() as pod:
        start_servers(pod)
        assert run_tool(pod, "apply", *OPTIONS, "--backend", backend).returncode == 0
        assert arrivals(pod, Probe("203.0.113.7", 80, uid=APP_ID, gid=APP_ID)) == [("proxy", 15001)]
        pod.run(["sh", "-ec", command], check=True)
        assert arrivals(pod, Probe("203.0.113.7", 80, uid=APP_ID, gid=APP_ID)) == [("outside", 80)]
        for options in choose(((), (*OPTIONS, "--backend", backend)), ((), OPTIONS, (*OPTIONS, "--backend", backend))):
            verified = run_tool(pod, "verify", *options)
            lines = verified.stdout.splitlines()
            assert (verified.returncode, lines[0].partition("  (")[0], len(lines)) == (3, f"extra: {named}", 2), verified.stdout
        refused = run_tool(pod, "apply", *OPTIONS)
        assert (refused.returncode, named in refused.stderr, refused.stderr.count("extra: ")) == (1, True, 1), refused.stderr
        explained = run_tool(pod, "explain", "--live", "--to", "203.0.113.7:80", "--uid", str(APP_ID))
        assert explained.stdout.startswith("direct"), explained.stdout
        audited = run_tool(pod, "audit", "--live")
        assert "1 because of foreign rules" in audited.stdout, audited.stdout
        assert "203.0.113.7" in audited.stdout
        for options in choose([OPTIONS], [(), OPTIONS]):
            compared = run_tool(pod, "diff", "--live", *options)
            assert (compared.returncode, "1 kind of packets is treated differently" in compared.stdout) == (3, True), compared.stdout + compared.stderr
        drawn = run_tool(pod, "draw", "--live")
        assert (drawn.returncode, "203.0.113.7" in drawn.stdout) == (0, True), drawn.stderr
        mended = run_tool(pod, "apply", *OPTIONS, "--backend", backend, "--reconcile")
        assert mended.returncode == 0, mended.stderr
        assert arrivals(pod, Probe("203.0.113.7", 80, uid=APP_ID, gid=APP_ID)) == [("proxy", 15001)]
        assert run_tool(pod, "verify", *OPTIONS).returncode == 0
