"""Which backend `auto` takes beside what others have left: rules count, empty tables and chains do not."""

from __future__ import annotations

import pytest

from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID
from programming import arrivals, needs, run_tool

NFT, LEGACY = "iptables-nft", "iptables-legacy"
EMPTY_LEGACY = ("iptables-legacy -w -t nat -S", "ip6tables-legacy -w -t filter -S")  # to ask for a table makes it
LEFT_OVER = ("iptables-legacy -w -t nat -N KUBE-SERVICES", "iptables-legacy -w -t nat -N ISTIO_OUTPUT")  # chains without rules
NFT_RULES = ("iptables-nft -w -t nat -A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE",)
LEGACY_RULES = ("iptables-legacy -w -t nat -A POSTROUTING -s 10.1.0.0/16 -j MASQUERADE",)
LEGACY_POLICY = ("iptables-legacy -w -t filter -P FORWARD DROP",)
KUBE_PROXY = ("nft add table ip kube-proxy", "nft add chain ip kube-proxy services", "nft add rule ip kube-proxy services ip daddr 10.96.0.1 dnat to 10.0.0.1",
              "nft add chain ip kube-proxy nat-output '{ type nat hook output priority -100; }'", "nft add rule ip kube-proxy nat-output jump services")  # fmt: skip
CASES = {
    "nothing": ((), NFT),
    "empty legacy tables beside nft rules": ((*EMPTY_LEGACY, *NFT_RULES), NFT),
    "empty legacy chains beside nft rules": ((*LEFT_OVER, *NFT_RULES), NFT),
    "empty tables of both": ((*EMPTY_LEGACY, "iptables-nft -w -t nat -N THEIRS"), NFT),
    "empty legacy tables and chains alone": ((*EMPTY_LEGACY, *LEFT_OVER), NFT),
    "rules in legacy alone": (LEGACY_RULES, LEGACY),
    "a policy in legacy alone": (LEGACY_POLICY, LEGACY),
    "rules in both": ((*LEGACY_RULES, *NFT_RULES), LEGACY),
    "nft rules alone": (NFT_RULES, NFT),
    "native rules of kube-proxy alone": (KUBE_PROXY, NFT),
    "native rules of kube-proxy beside empty legacy tables": ((*EMPTY_LEGACY, *KUBE_PROXY), NFT),
}


@pytest.mark.parametrize("what", CASES)
def test_auto_takes_the_backend_that_is_in_use(what, require_netns):
    needs(NFT)
    needs(LEGACY)
    commands, wanted = CASES[what]
    with Pod() as pod:
        start_servers(pod)
        for command in commands:
            pod.run(["sh", "-ec", command], check=True)
        first, second = (run_tool(pod, "apply", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "off") for _ in range(2))
        arrived = arrivals(pod, Probe("203.0.113.7", 80, uid=APP_ID, gid=APP_ID))[0]
        removed = run_tool(pod, "apply", "--cleanup-only")
        left = [pod.run([f"{program}-save"], check=True).stdout for program in (NFT, LEGACY)]
    assert f"programmed by {wanted}" in first.stderr, first.stderr
    assert f"rules are as planned ({wanted}): nothing to do" in second.stderr, second.stderr
    assert arrived == ("proxy", 15001)
    assert removed.returncode == 0, removed.stderr
    assert not any("ISTIO" in text for text in left), "left-over chains of ours go too"
