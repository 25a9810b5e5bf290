"""Further situations beside programmed rules, made by other means than those of in_force_cases: what the kernel offers to divert packets."""

from __future__ import annotations

from dataclasses import dataclass

from in_force_cases import LEGACY, NATIVE, NFT

ALL = (NFT, LEGACY, NATIVE)
ESCAPES, DROPS, HARMLESS, OPAQUE = "escapes", "drops", "is harmless", "is not followed"
OUT, IN, OUT6, IN6 = "out", "in", "out6", "in6"
TO = "dnat to 203.0.113.7:80"
IPV6 = ("--ipv6", "on")
IPTABLES = "{{iptables}} -w -t nat -I {0} {1} -p tcp -j ACCEPT"


@dataclass(frozen=True)
class Variant:
    """What somebody does, and what it does to the connections of these directions; the others stay captured.

    With OPAQUE nobody who reads rules can know: no command may answer "captured", whatever the truth is.
    """

    commands: tuple[str, ...]
    effect: str = ESCAPES
    directions: tuple[str, ...] = (OUT,)
    backends: tuple[str, ...] = (NFT,)
    options: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()


def nft(*lines: str) -> tuple[str, ...]:
    """One command that loads these lines."""
    text = "\n".join(lines).replace("; } }", "; }\n}")
    return (f"nft -f - <<'X'\n{text}\nX",)


def output(rule: str, *, family: str = "ip", kind: str = "nat", priority: str = "-150", before: str = "", hook: str = "output") -> tuple[str, ...]:
    """A table with one base chain and one rule."""
    return nft(f"table {family} evil {{ {before}", f"chain c {{ type {kind} hook {hook} priority {priority};", rule, "}", "}")


ETH1 = ("ip route replace default via 10.78.0.1 dev eth1",)
TABLE_ETH1 = "ip route add default via 10.78.0.1 dev eth1 table 100"
TABLE_LO = "ip route add local default dev lo table 101"

VARIANTS = {
    # ---- nf_tables: how a rule is come to -------------------------------------------------------------------------------------
    "goto another chain": Variant(output("tcp dport 80 goto away", before=f"chain away {{ meta l4proto tcp {TO}; }}"), backends=ALL),
    "a base chain in the table nat that jumps into a regular one": Variant(
        ("nft add chain ip nat away; nft add rule ip nat away dnat to 203.0.113.7", "nft add chain ip nat evil '{ type nat hook output priority -101; }'",
         "nft add rule ip nat evil tcp dport 80 jump away")),
    "a verdict map of networks": Variant(output(
        "ip daddr vmap @m", before=f"map m {{ type ipv4_addr : verdict; flags interval; elements = {{ 203.0.113.0/24 : jump away }}; }}\nchain away {{ meta l4proto tcp {TO}; }}")),
    "a set of addresses and ports together": Variant(output(
        f"ip daddr . tcp dport @s {TO}", before="set s { type ipv4_addr . inet_service; flags interval; elements = { 203.0.113.0/24 . 80-81 }; }")),
    "a set whose elements end": Variant(output(f"ip daddr @s meta l4proto tcp {TO}", before="set s { type ipv4_addr; flags timeout; elements = { 203.0.113.7 timeout 1h }; }"), backends=(NFT, NATIVE)),
    "a map of addresses": Variant(output("tcp dport 80 dnat to ip daddr map { 203.0.113.7 : 203.0.113.7 }")),
    "a verdict map's catch-all": Variant(output(
        "ip daddr vmap @m", before=f"map m {{ type ipv4_addr : verdict; elements = {{ 9.9.9.9 : accept, * : jump away }}; }}\nchain away {{ meta l4proto tcp {TO}; }}"),
        backends=(NFT, NATIVE)),
    "all but a set of several fields": Variant(output(
        f"ip daddr . tcp dport != @s {TO}", before="set s { type ipv4_addr . inet_service; elements = { 9.9.9.9 . 80 }; }"), backends=(NFT, NATIVE)),
    "a range of users": Variant(output(f"meta skuid 999-1001 meta l4proto tcp {TO}")),
    "a set of users": Variant(output(f"meta skuid {{ 1000, 1001 }} meta l4proto tcp {TO}")),
    "at the priority of ours, in the table of both families": Variant(output(f"tcp dport 80 {TO}".replace("dnat to", "dnat ip to"), family="inet", priority="-100")),
    "one before ours": Variant(output(f"tcp dport 80 {TO}", priority="-101"), backends=(NFT, NATIVE)),
    "a quota that is not used up": Variant(output(f"tcp dport 80 quota 100 mbytes {TO}")),
    "fewer than so many connections": Variant(output(f"tcp dport 80 ct count 100 {TO}")),
    "always, said at random": Variant(output(f"tcp dport 80 numgen inc mod 1 0 {TO}")),
    "the group of a socket": Variant(output(f"tcp dport 80 meta cgroup 0 {TO}")),
    "the class of a device": Variant(output(f"tcp dport 80 meta oiftype ether {TO}")),
    "an accepted connection of nat": Variant(("nft insert rule ip nat OUTPUT tcp dport 80 accept",)),
    "a return before ours": Variant(("nft insert rule ip nat OUTPUT ip daddr 203.0.113.0/24 return",)),
    "our base chain is a regular one": Variant(
        ("nft flush chain ip nat OUTPUT; nft delete chain ip nat OUTPUT; nft add chain ip nat OUTPUT; nft add rule ip nat OUTPUT jump ISTIO_OUTPUT",)),
    "the table belongs to a process": Variant(("OWNER",)),
    # ---- nf_tables: what else may be done --------------------------------------------------------------------------------------
    "another port of the pod inbound": Variant(output("tcp dport 80 redirect to :8080", hook="prerouting"), directions=(IN,), backends=ALL),
    "another port of the pod outbound": Variant(output("tcp dport 80 redirect to :8080"), backends=(NFT, NATIVE)),
    "the port is rewritten on its way into the socket": Variant(
        nft("table ip evil {", "chain i { type filter hook input priority 50; tcp dport 15006 tcp dport set 8080; }",
            "chain o { type filter hook output priority -310; tcp sport 8080 tcp sport set 15006; } }"), directions=(IN,)),
    "the port is rewritten at lo": Variant(
        nft("table netdev evil {", "chain e { type filter hook egress device lo priority 0; tcp dport 15001 tcp dport set 8080; }",
            "chain i { type filter hook ingress device lo priority 0; tcp sport 8080 tcp sport set 15001; } }"), effect=OPAQUE),
    "the destination is rewritten before tracking": Variant(output("tcp dport 80 tcp dport set 443", kind="filter", priority="-350"), options=("-o", "443"), effect=OPAQUE),
    "a copy is sent elsewhere": Variant(output("tcp dport 80 dup to 10.77.0.1 device eth0", kind="filter", priority="0"), effect=HARMLESS),
    # ---- iptables -----------------------------------------------------------------------------------------------------------
    "TPROXY in mangle": Variant(("{iptables} -w -t mangle -A PREROUTING -i eth0 -p tcp --dport 80 -j TPROXY --on-port 9999 --tproxy-mark 1",), effect=OPAQUE, directions=(IN,), backends=(NFT, LEGACY)),
    "a chain of iptables that the chain goes to": Variant(
        ("{iptables} -w -t nat -N MORE; {iptables} -w -t nat -A MORE -p tcp -j DNAT --to-destination 203.0.113.7:80; {iptables} -w -t nat -I OUTPUT -p tcp -g MORE",), backends=(NFT, LEGACY)),
    "several ports": Variant(("{iptables} -w -t nat -I OUTPUT -p tcp -m multiport --dports 79:81,90 -j ACCEPT",), backends=(NFT, LEGACY)),
    "a range of addresses": Variant(("{iptables} -w -t nat -I OUTPUT -m iprange --dst-range 203.0.113.1-203.0.113.9 -j RETURN",), backends=(NFT, LEGACY)),
    "a mark that leads away": Variant(("{iptables} -w -t mangle -A OUTPUT -p tcp --dport 80 -j MARK --set-mark 7", "{iptables} -w -t nat -I OUTPUT -m mark --mark 7 -j ACCEPT"), backends=(NFT, LEGACY)),
    "a policy that drops inbound": Variant(("{iptables} -w -P INPUT DROP",), effect=DROPS, directions=(IN, OUT), backends=(NFT, LEGACY)),
    "a set of networks": Variant(("ipset create x hash:net; ipset add x 203.0.113.0/24", IPTABLES.format("OUTPUT", "-m set --match-set x dst")), backends=(NFT, LEGACY)),
    "all but a set of addresses": Variant(("ipset create x hash:ip; ipset add x 198.51.100.1", IPTABLES.format("OUTPUT", "-m set ! --match-set x dst")), backends=(NFT, LEGACY)),
    "a set of addresses with ports": Variant(
        ("ipset create x hash:ip,port; ipset add x 203.0.113.7,tcp:80", IPTABLES.format("OUTPUT", "-m set --match-set x dst,dst")), backends=(NFT, LEGACY)),
    "a set of networks with devices": Variant(
        ("ipset create x hash:net,iface; ipset add x 10.77.0.0/24,eth0", IPTABLES.format("PREROUTING", "-m set --match-set x src,src")), directions=(IN,), backends=(NFT, LEGACY)),
    "a list of sets": Variant(
        ("ipset create y hash:ip; ipset create x list:set; ipset add x y; ipset add y 203.0.113.7", IPTABLES.format("OUTPUT", "-m set --match-set x dst")), backends=(NFT, LEGACY)),
    "a set with an exception": Variant(
        ("ipset create x hash:net; ipset add x 203.0.113.0/24; ipset add x 203.0.113.7 nomatch", IPTABLES.format("OUTPUT", "-m set --match-set x dst")), effect=OPAQUE, backends=(NFT, LEGACY)),
    # ---- IPv6 -----------------------------------------------------------------------------------------------------------------
    "a dormant table of IPv6": Variant(("nft 'add table ip6 nat { flags dormant; }'",), directions=(OUT6, IN6), options=IPV6),
    "an own table of IPv6": Variant(output("tcp dport 80 dnat to [2001:db8::7]:80", family="ip6"), directions=(OUT6,), options=IPV6, backends=ALL),
    "an own table of IPv6 inbound": Variant(output("tcp dport 80 redirect to :8080", family="ip6", hook="prerouting"), directions=(IN6,), options=IPV6, backends=ALL),
    "NAT of the older interface in IPv6": Variant(("ip6tables-legacy -w -t nat -A OUTPUT -p tcp --dport 80 -j DNAT --to-destination [2001:db8::7]:80",), directions=(OUT6,), options=IPV6, backends=(NFT, NATIVE)),
    "no tracking in IPv6": Variant(
        nft("table ip6 evil {", "chain o { type filter hook output priority raw; tcp dport 80 notrack; }", "chain p { type filter hook prerouting priority raw; tcp sport 80 notrack; } }"),
        directions=(OUT6,), options=IPV6, backends=(NFT, NATIVE)),
    # ---- routes -----------------------------------------------------------------------------------------------------------------
    "a default route of a lower metric through an excluded device": Variant(
        ("ip route del default; ip route add default via 10.77.0.1 dev eth0 metric 100; ip route add default via 10.78.0.1 dev eth1 metric 50",),
        interfaces=("eth1",), options=("-c", "eth1"), backends=(NFT, NATIVE)),
    "the users of a range leave through an excluded device": Variant(
        (TABLE_ETH1, "ip rule add uidrange 500-2000 lookup 100"), interfaces=("eth1",), options=("-c", "eth1")),
    "connections to a port leave through an excluded device": Variant(
        (TABLE_ETH1, "ip rule add ipproto tcp dport 80 lookup 100"), interfaces=("eth1",), options=("-c", "eth1")),
    "all that is sent leaves through an excluded device": Variant(
        (TABLE_ETH1, "ip rule add iif lo lookup 100"), interfaces=("eth1",), options=("-c", "eth1")),
    "the pod's own address leaves through an excluded device": Variant(
        (TABLE_ETH1, "ip rule add from 10.77.0.2 lookup 100"), interfaces=("eth1",), options=("-c", "eth1")),
    "several ways, one of them excluded": Variant(
        ("ip route replace default nexthop via 10.78.0.1 dev eth1 weight 255 nexthop via 10.77.0.1 dev eth0 weight 1",),
        interfaces=("eth1",), options=("-c", "eth1"), effect=OPAQUE),
    "two halves of all addresses through an excluded device": Variant(
        ("ip route add 0.0.0.0/1 via 10.78.0.1 dev eth1; ip route add 128.0.0.0/1 via 10.78.0.1 dev eth1",), interfaces=("eth1",), options=("-c", "eth1")),
    "a port of a policy rule is delivered here": Variant((TABLE_LO, "ip rule add ipproto tcp dport 80 lookup 101"), effect=OPAQUE),
    "a source port of a policy rule is delivered here": Variant((TABLE_LO, "ip rule add ipproto tcp sport 1024-65000 lookup 101"), effect=OPAQUE),
    "all but one address is delivered here": Variant((TABLE_LO, "ip rule add not to 198.51.100.7 lookup 101"), effect=OPAQUE),
    "the address is one of lo": Variant(("ip addr add 203.0.113.7/32 dev lo",), backends=ALL),
    "the address is one of lo in IPv6": Variant(("ip -6 addr add 2001:db8::7/128 dev lo nodad",), directions=(OUT6,), options=IPV6),
    "the address of IPv6 is this host's": Variant(("ip -6 route add local 2001:db8::7 dev lo",), directions=(OUT6,), options=IPV6),
    "a route that drops": Variant(("ip route add blackhole 203.0.113.0/24",), effect=DROPS),
    "a policy rule that drops": Variant(("ip rule add to 203.0.113.7 prohibit",), effect=DROPS),
    # ---- what is not followed ---------------------------------------------------------------------------------------------------
    "a policy of IPsec": Variant(("ip xfrm policy add dir out dst 203.0.113.7/32 action block",), effect=OPAQUE),
    "a program of XDP on lo": Variant(("XDP lo",), effect=OPAQUE, directions=(OUT, IN)),
    "a program of XDP on eth0": Variant(("XDP eth0",), effect=OPAQUE, directions=(OUT, IN)),
    # ---- harmless ---------------------------------------------------------------------------------------------------------------
    "NAT behind ours by one": Variant(output(f"tcp dport 80 {TO}", priority="-99"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "an empty verdict map": Variant(output("ip daddr vmap @m", before="map m { type ipv4_addr : verdict; }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "an empty set of NAT": Variant(output(f"ip daddr @s meta l4proto tcp {TO}", before="set s { type ipv4_addr; flags interval; }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "an empty set of several fields": Variant(output(f"ip daddr . tcp dport @s {TO}", before="set s { type ipv4_addr . inet_service; }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "an empty set of addresses that are blocked": Variant(
        ("ipset create x hash:ip; {iptables} -w -I OUTPUT -m set --match-set x dst -j DROP; {iptables} -w -I INPUT -m set --match-set x src -j DROP",),
        effect=HARMLESS, backends=(NFT, LEGACY)),
    "an empty list of what is blocked": Variant(
        output("ip daddr @s drop", kind="filter", priority="0", before="set s { type ipv4_addr; flags interval, timeout; }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "NAT of the proxy alone": Variant(output(f"ip daddr 203.0.113.0/24 meta skuid 1337 meta l4proto tcp {TO}"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "NAT of UDP": Variant(output("udp dport 80 dnat to 203.0.113.8"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "the size of segments is clamped": Variant(
        output("tcp flags syn tcp option maxseg size set 1300", kind="filter", hook="postrouting", priority="mangle", family="inet"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "a limit on logs": Variant(output('tcp dport 80 limit rate 1/second log prefix "x"', kind="filter", priority="0", family="inet"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "sets, counters, quotas and limits without a verdict": Variant(
        output("tcp dport 80 quota 1 bytes counter name n limit rate over 1/minute meta mark set meta mark", before="counter n { }\nset s { type ipv4_addr; flags timeout, dynamic; }",
               kind="filter", priority="0", family="inet"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "a set that is added to": Variant(
        output("tcp dport 80 add @s { ip daddr timeout 5s }", before="set s { type ipv4_addr; flags timeout, dynamic; }", kind="filter", priority="0"), effect=HARMLESS),
    "a class of service": Variant(output("tcp dport 80 meta priority set 1:1 ip dscp set cs1", kind="filter", priority="150", hook="postrouting"), effect=HARMLESS),
    "a drop at the device of what is not captured": Variant(
        nft("table netdev theirs { chain c { type filter hook ingress device eth0 priority 0; udp dport 9 drop; }; }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "a drop by the older interface of what is not captured": Variant(("iptables-legacy -w -A INPUT -p udp --dport 9 -j DROP",), effect=HARMLESS),
    "rules of a container engine": Variant(
        nft("table ip theirs {", "chain p { type nat hook postrouting priority srcnat; ip saddr 172.17.0.0/16 oifname != docker0 masquerade; }",
            "chain o { type nat hook output priority -100; ip daddr != 127.0.0.0/8 fib daddr type local jump d; }", "chain d { iifname docker0 return; } }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "rules of a firewall": Variant(
        nft("table inet theirs {", "chain i { type filter hook input priority filter; policy accept; ct state established,related accept; ct state invalid drop; iifname lo accept; "
            "tcp dport { 15006, 80, 15001 } ct state new accept; icmp type echo-request accept; }", "chain f { type filter hook forward priority filter; policy drop; } }"), effect=HARMLESS, backends=(NFT, NATIVE)),
    "a way of lower metric that is not there for all": Variant(
        ("ip route add default via 10.78.0.1 dev eth1 metric 900",), interfaces=("eth1",), options=("-c", "eth1"), effect=HARMLESS),
    "a source of another device": Variant(
        (TABLE_ETH1, "ip rule add from 10.78.0.2 lookup 100"), interfaces=("eth1",), options=("-c", "eth1"), effect=HARMLESS),
    "a network behind an excluded device": Variant(("ip route add 192.0.2.0/24 via 10.78.0.1 dev eth1",), interfaces=("eth1",), options=("-c", "eth1"), effect=HARMLESS),
    "two ways, none of them excluded": Variant(("ip route replace default nexthop via 10.78.0.1 dev eth1 nexthop via 10.77.0.1 dev eth0",), interfaces=("eth1",), effect=HARMLESS),
    "users of a range with a table of their own": Variant(("ip rule add uidrange 500-2000 lookup 100", "ip route add default via 10.77.0.1 table 100"), effect=HARMLESS),
    "a mark of somebody else's, and its table": Variant((TABLE_LO, "ip rule add fwmark 0x200/0xf00 lookup 101"), effect=HARMLESS),
}  # fmt: skip
