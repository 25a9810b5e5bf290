"""What a match chooses out of all packets at once: those that it is true of, one by one."""

from __future__ import annotations

from random import Random

import pytest

from allpackets import POD, around, check_cover, check_members, divide_all
from core import IPV4, Network, parse_listing
from netinit.simulate.listed_rules import load_listing
from sweeps import together

ROUTED = around(IPV4, routes=((Network.parse("10.0.0.0/8"), "eth1"), (Network.parse("10.1.0.0/16"), "eth2")), forwards=True)
MATCHES = (
    "-p tcp", "! -p tcp", "-p udp -m udp --dport 53", "-p tcp -m tcp ! --dport 80", "-p tcp -m tcp --sport 1:1023",
    "-m iprange --dst-range 10.0.0.5-10.2.3.4", "-m iprange ! --src-range 0.0.0.0-192.0.2.99", "-p tcp -m multiport --ports 53,1000:2000",
    "-p tcp -m multiport ! --ports 80,40000", "-p tcp -m multiport --dports 80,1000:2000", "-s 10.0.0.0/8", "! -s 10.0.0.0/8", "-d 192.0.2.10/32", "! -d 198.51.100.0/24",
    "-i eth0", "! -i lo", "-o eth+", "! -o eth1", "-m owner --uid-owner 1000", "-m owner --uid-owner 1000-2000",
    "-m owner ! --gid-owner 5", "-m owner --gid-owner 5-6", "-m mark --mark 0x1/0x3", "-m mark ! --mark 0x539", "-m connmark --mark 0x10/0x10",
    "-m connmark ! --mark 0x0", "-m conntrack --ctstate NEW", "-m conntrack ! --ctstate INVALID,UNTRACKED",
    "-m conntrack --ctstate RELATED,ESTABLISHED", "-m conntrack --ctstate NEW,DNAT", "-m conntrack ! --ctstate NEW,SNAT", "-m addrtype --dst-type LOCAL",
    "-m addrtype ! --dst-type LOCAL", "-m addrtype ! --src-type LOCAL", "-m addrtype --dst-type LOCAL,BROADCAST", "-m addrtype --dst-type BROADCAST",
    "-m socket", "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN", "-m limit --limit 1/sec --limit-burst 5", "-m set --match-set banned dst",
)  # fmt: skip
HOOKS = {"raw": ("PREROUTING", "OUTPUT"), "mangle": ("PREROUTING", "OUTPUT"), "filter": ("INPUT", "OUTPUT")}


@together("match", MATCHES)
@pytest.mark.parametrize("table", HOOKS)
def test_of_all_packets_a_match_chooses_those_that_it_is_true_of(table, match):
    hooks = [hook for hook in HOOKS[table] if not (hook == "OUTPUT" and "-i " in match) and not (hook != "OUTPUT" and ("-o " in match or "owner" in match))]
    lines = [f"*{table}", *[f":{hook} ACCEPT [0:0]" for hook in HOOKS[table]], *[f"-A {hook} {match} -j DROP" for hook in hooks], "COMMIT", ""]
    rulesets = {IPV4: load_listing(parse_listing("\n".join(lines)), IPV4)}
    for partition in divide_all(rulesets, {IPV4: ROUTED}, free=False):
        assert check_cover(partition)
        assert check_members(partition, rulesets[IPV4], Random(1))


@pytest.mark.parametrize("given", [f"-d {POD[IPV4]}", f"! -d {POD[IPV4]}", "-d 10.0.0.0/8", "-m addrtype --dst-type LOCAL"])
def test_where_a_redirect_goes_to_the_address_of_a_device_it_is_known_of_devices_with_one(given):
    lines = [
        "*nat", ":PREROUTING ACCEPT [0:0]", "-A PREROUTING -p tcp -j REDIRECT --to-ports 15006", "COMMIT",
        "*filter", ":INPUT ACCEPT [0:0]", "-A INPUT -i eth1 -p udp -j ACCEPT", f"-A INPUT {given} -p tcp -j DROP", "COMMIT", "",
    ]  # fmt: skip
    rulesets = {IPV4: load_listing(parse_listing("\n".join(lines)), IPV4)}
    fates = set()
    for partition in divide_all(rulesets, {IPV4: around(IPV4)}, free=False):
        assert check_cover(partition)
        assert check_members(partition, rulesets[IPV4], Random(1))
        fates |= {part.verdict for part in partition.parts if part.condition.redirect_port}
    assert "unknown" in fates, "the address of eth1"
