"""Situations in which rules are in the kernel while traffic escapes, and some in which none does: what test files try commands in."""

from __future__ import annotations

from dataclasses import dataclass

from lab_probes import Probe
from laboratory import Pod, start_servers
from netinit.lab import APP_ID
from programming import arrivals, run_tool

# By the default rules nothing escapes in most of these situations: what nat does not redirect is refused.
OPTIONS = ("-p", "15001", "-z", "15006", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "off", "--istio-exact")
OUTSIDE, PORT = "203.0.113.7", 80
CAPTURED = {"out": ("proxy", 15001), "in": ("proxy", 15006)}
ESCAPED = {"out": ("outside", 80), "in": ("app", 80)}
NFT, LEGACY, NATIVE = "iptables-nft", "iptables-legacy", "nftables"
OUTPUT_JUMP = "H=$(nft -a list chain ip nat OUTPUT | sed -n 's/.*jump ISTIO_OUTPUT.*handle //p')"


@dataclass(frozen=True)
class Case:
    """What somebody does, how connections of one direction end then, and how verify's answer must begin or what it names.

    `truth` is None where the packets vanish. `named` are words of one line; `backends` those that the change concerns.
    """

    commands: tuple[str, ...]
    truth: object
    named: tuple[str, ...]
    direction: str = "out"
    backends: tuple[str, ...] = (NFT,)
    options: tuple[str, ...] = ()


ESCAPES = {
    "a dormant table of iptables": Case(("nft 'add table ip nat { flags dormant; }'",), ESCAPED, ("inactive: ip nat", "dormant")),
    "a dormant table of our own": Case(
        ("nft 'add table inet istio-proxy-nat { flags dormant; }'",), ESCAPED, ("inactive: inet istio-proxy-nat", "dormant"), backends=(NATIVE,)
    ),
    "a jump that looks at protocol 0": Case(
        (f"{OUTPUT_JUMP}; nft replace rule ip nat OUTPUT handle $H meta l4proto 0 counter jump ISTIO_OUTPUT",), ESCAPED, ("IPv4 nat OUTPUT",)
    ),
    "a jump that looks at the link layer": Case(
        (f"{OUTPUT_JUMP}; nft replace rule ip nat OUTPUT handle $H @ll,0,8 7 counter jump ISTIO_OUTPUT",), ESCAPED, ("IPv4 nat OUTPUT", "payload 0 0")
    ),
    "a jump that looks at the payload": Case(
        (f"{OUTPUT_JUMP}; nft replace rule ip nat OUTPUT handle $H @ih,0,8 7 counter jump ISTIO_OUTPUT",), ESCAPED, ("IPv4 nat OUTPUT", "payload")
    ),
    "a base chain of NAT in the table nat": Case(
        ("nft add chain ip nat EVIL '{ type nat hook output priority -150; }'", f"nft add rule ip nat EVIL ip daddr {OUTSIDE} tcp dport 80 dnat to {OUTSIDE}:80"),
        ESCAPED, ("escaping", "nft table ip nat", "chain EVIL", "handle"),
    ),
    "a base chain of NAT before inbound capture": Case(
        ("nft add chain ip nat EVIL '{ type nat hook prerouting priority -150; }'", "nft add rule ip nat EVIL tcp dport 80 dnat to 10.77.0.2:80"),
        ESCAPED, ("escaping", "nft table ip nat", "chain EVIL"), direction="in",
    ),
    "no tracking by a base chain in the table raw": Case(
        ("nft add table ip raw", "nft add chain ip raw EVIL '{ type filter hook output priority -310; }'", "nft add rule ip raw EVIL tcp dport 80 notrack",
         "nft add chain ip raw BACK '{ type filter hook prerouting priority -310; }'", "nft add rule ip raw BACK tcp sport 80 notrack"),
        ESCAPED, ("escaping", "nft table ip raw", "chain EVIL"),
    ),
    "an own table of NAT": Case(
        ("nft add table inet evil", "nft add chain inet evil c '{ type nat hook output priority -150; }'", f"nft add rule inet evil c ip daddr {OUTSIDE} tcp dport 80 dnat ip to {OUTSIDE}"),
        ESCAPED, ("escaping", "nft table inet evil", "chain c"), backends=(NFT, LEGACY, NATIVE),
    ),
    "an own table of NAT by a verdict map": Case(
        ("nft add table ip evil", "nft add chain ip evil away", f"nft add rule ip evil away dnat to {OUTSIDE}", "nft add chain ip evil c '{ type nat hook output priority -150; }'",
         "nft add rule ip evil c tcp dport vmap { 80 : jump away, 443 : accept }"),
        ESCAPED, ("escaping", "nft table ip evil", "away"),
    ),
    "an own table of NAT inbound": Case(
        ("nft add table ip evil", "nft add chain ip evil c '{ type nat hook prerouting priority -150; }'", "nft add rule ip evil c tcp dport 80 dnat to 10.77.0.2"),
        ESCAPED, ("escaping", "nft table ip evil"), direction="in", backends=(NFT, LEGACY, NATIVE),
    ),
    "no tracking by an own table": Case(
        ("nft add table ip evil", "nft add chain ip evil o '{ type filter hook output priority raw; }'", "nft add rule ip evil o tcp dport 80 notrack",
         "nft add chain ip evil p '{ type filter hook prerouting priority raw; }'", "nft add rule ip evil p tcp sport 80 notrack"),
        ESCAPED, ("escaping", "nft table ip evil"), backends=(NFT, NATIVE),
    ),
    "no tracking by iptables": Case(
        ("{iptables} -w -t raw -A OUTPUT -p tcp --dport 80 -j CT --notrack", "{iptables} -w -t raw -A PREROUTING -p tcp --sport 80 -j CT --notrack"),
        ESCAPED, ("escaping", "table raw", "OUTPUT"), backends=(NFT, LEGACY),
    ),
    "NAT of the older interface beside nft": Case(
        (f"iptables-legacy -w -t nat -A OUTPUT -p tcp --dport 80 -d {OUTSIDE} -j DNAT --to-destination {OUTSIDE}",), ESCAPED,
        ("escaping", "iptables-legacy table nat", "OUTPUT"), backends=(NFT, NATIVE),
    ),
    "no tracking by the older interface beside nft": Case(
        ("iptables-legacy -w -t raw -A OUTPUT -p tcp --dport 80 -j CT --notrack", "iptables-legacy -w -t raw -A PREROUTING -p tcp --sport 80 -j CT --notrack"), ESCAPED,
        ("escaping", "iptables-legacy table raw", "OUTPUT"),
    ),
    "NAT of nft beside the older interface": Case(
        (f"iptables-nft -w -t nat -A OUTPUT -p tcp --dport 80 -d {OUTSIDE} -j DNAT --to-destination {OUTSIDE}",), ESCAPED,
        ("escaping", "iptables-nft table nat", "OUTPUT"), backends=(LEGACY,),
    ),
    "a port rewritten at the device": Case(
        ("nft add table netdev evil", "nft add chain netdev evil i '{ type filter hook ingress device eth0 priority 0; }'", "nft add rule netdev evil i tcp dport 80 tcp dport set 8081",
         "nft add chain netdev evil e '{ type filter hook egress device eth0 priority 0; }'", "nft add rule netdev evil e tcp sport 8081 tcp sport set 80"),
        ("app", 8081), ("escaping", "nft table netdev evil", "chain i"), direction="in", options=("-d", "8081"), backends=(NFT, NATIVE),
    ),
    "a destination rewritten in mangle": Case(
        ("nft add table ip mangle", "nft add chain ip mangle EVIL '{ type route hook output priority -160; }'", "nft add rule ip mangle EVIL tcp dport 80 tcp dport set 443",
         "nft add chain ip mangle BACK '{ type filter hook prerouting priority -310; }'", "nft add rule ip mangle BACK tcp sport 443 tcp sport set 80"),
        ("outside", 443), ("escaping", "nft table ip mangle", "EVIL"), options=("-o", "443"),
    ),
    "lo is another device": Case(
        ("ip link set lo down", "ip link set lo name xlo", "ip link set eth0 down", "ip link set eth0 name lo", "ip link set lo up", "ip link set xlo up",
         "ip route add default via 10.77.0.1"),
        ESCAPED, ("escaping: devices", "called lo"), backends=(NFT, LEGACY, NATIVE),
    ),
    "any address is this host's": Case(
        (f"ip route add local {OUTSIDE} dev lo",), ("app", 80), ("escaping: IPv4 routing", f"local {OUTSIDE}/32"), backends=(NFT, LEGACY, NATIVE)
    ),
    "a policy rule that leads to lo": Case(
        (f"ip rule add to {OUTSIDE} lookup 77", "ip route add default dev lo src 10.77.0.2 table 77"), "timeout", ("escaping: IPv4 routing", "table 77")
    ),
    "a policy rule of a source address that leads to lo": Case(
        ("ip rule add from 10.77.0.2 lookup 78", f"ip route add local {OUTSIDE} dev lo table 78"), "timeout", ("escaping: IPv4 routing", "table 78"), backends=(NFT, NATIVE)
    ),
    "a policy rule of a user that leads to lo": Case(
        ("ip rule add uidrange 1000-1000 lookup 77", f"ip route add local {OUTSIDE} dev lo table 77"), "unreachable", ("escaping: IPv4 routing", "table 77")
    ),
    "a device has the name of an excluded one": Case(
        ("ip link set eth0 down", "ip link set eth0 name eth7", "ip link set eth7 up", "ip route add default via 10.77.0.1"),
        ESCAPED, ("escaping: devices", "eth7"), options=("-c", "eth7"), backends=(NFT, LEGACY, NATIVE),
    ),
    "a return in our own chain by what listings do not print": Case(
        ("nft insert rule ip nat ISTIO_OUTPUT ip dscp 0 return",), ESCAPED, ("extra: IPv4 nat ISTIO_OUTPUT rule 1",)
    ),
    "a match of the older interface that is not listed": Case(
        ("LEGACY-MASK",), ESCAPED, ("IPv4 nat OUTPUT", "under a mask"), backends=(LEGACY,),
    ),
}  # fmt: skip

DROPS = {
    "an own table that drops": Case(
        ("nft add table ip evil", "nft add chain ip evil c '{ type filter hook output priority 0; }'", "nft add rule ip evil c meta skuid 1000 tcp dport 15001 drop"), None,
        ("nft table ip evil, chain c, rule 1",), backends=(NFT, NATIVE),
    ),
    "a policy that drops": Case(("{iptables} -w -P OUTPUT DROP",), None, ("the policy of filter OUTPUT is DROP",), backends=(NFT, LEGACY)),
    "a base chain that drops in the table filter": Case(
        ("nft add table ip filter", "nft add chain ip filter EVIL '{ type filter hook output priority -200; }'", "nft add rule ip filter EVIL tcp dport 80 drop"), None,
        ("nft table ip filter, chain EVIL, rule 1",),
    ),
}  # fmt: skip

HARMLESS = {
    "the source of what leaves is replaced": ("nft add table ip theirs", "nft add chain ip theirs c '{ type nat hook postrouting priority 100; }'", "nft add rule ip theirs c masquerade"),
    "counters and logs": ("nft add table inet theirs", "nft add chain inet theirs c '{ type filter hook output priority -350; }'", 'nft add rule inet theirs c tcp dport 80 counter log prefix "x" accept'),
    "another port is dropped": ("nft add table inet theirs", "nft add chain inet theirs c '{ type filter hook output priority -350; }'", 'nft add rule inet theirs c oifname "wg0" udp dport 9 drop'),
    "a mark that nobody looks at": ("nft add table ip theirs", "nft add chain ip theirs c '{ type route hook output priority -160; }'", "nft add rule ip theirs c meta mark set 0x4000"),
    "a dormant foreign table": ("nft add table ip theirs '{ flags dormant; }'", "nft add chain ip theirs c '{ type nat hook output priority -150; }'", "nft add rule ip theirs c tcp dport 80 dnat to 9.9.9.9"),
    "zones of the same number both ways": ("iptables-nft -w -t raw -A OUTPUT -p tcp --dport 80 -j CT --zone 0",),
    "NAT behind ours": ("nft add table ip theirs", "nft add chain ip theirs c '{ type nat hook output priority -50; }'", "nft add rule ip theirs c tcp dport 80 dnat to 9.9.9.9"),
    "a policy rule and a table of their own": ("ip rule add from 10.77.0.2 lookup 100", "ip route add default via 10.77.0.1 dev eth0 table 100"),
    "accepted or not, by what is unknown beforehand": (
        "nft add table inet theirs", "nft add chain inet theirs c '{ type filter hook input priority 0; }'",
        "nft add rule inet theirs c tcp flags syn limit rate 5/second accept", "nft add rule inet theirs c ct status dnat accept"),
    "a mark whose packets stay in the pod, once it is captured": (
        "nft add table ip theirs", "nft add chain ip theirs c '{ type route hook output priority -160; }'", "nft add rule ip theirs c tcp dport 81 meta mark set 0x9",
        "ip rule add fwmark 0x9 lookup 79", f"ip route add local {OUTSIDE} dev lo table 79"),
    "a bridge's table": ("nft add table bridge theirs", "nft add chain bridge theirs c '{ type filter hook forward priority 0; }'"),
}  # fmt: skip


def programmed(backend, options=()):
    pod = Pod()
    pod.__enter__()
    try:
        start_servers(pod, app=(80, 8080, 8081))
        done = run_tool(pod, "apply", *OPTIONS, *options, "--backend", backend)
        assert done.returncode == 0, done.stderr
        assert verify(pod, backend, options).returncode == 0
    except BaseException:
        pod.__exit__(None, None, None)
        raise
    return pod


def verify(pod, backend, options=()):
    return run_tool(pod, "verify", *OPTIONS, *options, "--backend", backend)


def connect(pod, direction):
    """Where a connection of the application, or of a caller outside, arrives."""
    if direction == "out":
        return arrivals(pod, Probe(OUTSIDE, PORT, uid=APP_ID, gid=APP_ID))[0]
    return arrivals(pod.client, Probe("10.77.0.2", PORT))[0]


def do(pod, commands, backend):
    for command in commands:
        if command == "LEGACY-MASK":
            pod.call(hide_a_match)
        else:
            pod.run(["sh", "-ec", command.replace("{iptables}", backend)], check=True)


def hide_a_match():
    """Replaces nat OUTPUT's jump by one that looks at an interface's name under a mask that begins with a zero byte."""
    from legacy import replace_first_mask

    replace_first_mask("nat", "OUTPUT")
