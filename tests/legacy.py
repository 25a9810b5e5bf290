"""What the tests of the older kernel interface share: a namespace of their own, and what iptables-legacy lists in it."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import subprocess
from pathlib import Path

from core import plan
from lab_state import drop_empty_tables
from laboratory import NetworkNamespace
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel.snapshot.legacy_tables import read_bytes
from netinit.options import Options
from programming import FOREIGN, SIDECAR, load

LEGACY = "iptables-legacy"
DEFAULT = Options.from_argv(SIDECAR).replace(ipv6="on")
OTHER = DEFAULT.replace(inbound_mode="TPROXY", exclude_outbound_cidrs="10.0.0.0/8,2001:db8::/32", drop_invalid=True)

# Nobody's of ours: every kind of thing that a listing may hold. Spelled as people write it where that is shorter.
FOREIGN_IPV4 = r"""*nat
:FOREIGN - [0:0]
:MORE - [0:0]
-A PREROUTING -i eth+ -j FOREIGN
-A OUTPUT ! -s 10.0.0.0/8 -d 10.0.0.0/255.0.255.0 -o abcdefghijklmno -p tcp -m multiport ! --dports 80,90:91 -m owner ! --uid-owner 5-9 -j DNAT --to-destination 192.0.2.3-192.0.2.9:80-90
-A POSTROUTING -p udp -m udp --sport 5:9 -j MASQUERADE --to-ports 1024-2000 --random
-A FOREIGN -m comment --comment "a \"quoted\" -j DROP" -g MORE
-A FOREIGN -m comment --comment plain
-A FOREIGN -p 58 -j RETURN
-A FOREIGN -p 47 -j RETURN
-A FOREIGN -p 200 -j RETURN
-A FOREIGN ! -p 2 -j RETURN
-A FOREIGN -p tcp -m tcp ! --tcp-flags SYN,RST SYN -m tcp --dport 5 -j REDIRECT --to-ports 50-60
COMMIT
*filter
:INPUT DROP [5:7]
-A INPUT -m state --state NEW,ESTABLISHED -j ACCEPT
-A INPUT -m conntrack --ctstate INVALID -j DROP
-A INPUT -m limit --limit 5/min -j LOG --log-prefix "hi there "
-A INPUT -m recent --set --name x --rsource
-A INPUT -m statistic --mode random --probability 0.5 -j REJECT
-A INPUT -m addrtype --dst-type LOCAL -m mac --mac-source 00:11:22:33:44:55 -j ACCEPT
-A FORWARD -f -j DROP
-A FORWARD ! -f -j DROP
-A FORWARD -m hashlimit --hashlimit-above 5/sec --hashlimit-mode srcip --hashlimit-name foo -j DROP
-A FORWARD -p icmp -m icmp --icmp-type 8 -j ACCEPT
-A FORWARD -m string --string "GET /" --algo bm -j DROP
-A FORWARD -m iprange --src-range 192.0.2.1-192.0.2.5 -j NFLOG --nflog-group 3
-A FORWARD -m time --timestart 08:00 --timestop 09:00 -j DROP
COMMIT
*raw
-A PREROUTING -j CT --notrack
-A PREROUTING -j NOTRACK
-A PREROUTING -j CT --zone 5
COMMIT
*mangle
-A PREROUTING -p tcp -m socket --transparent --nowildcard -j MARK --set-xmark 0x1/0xff
-A POSTROUTING -p tcp -m tcp --tcp-flags SYN,RST SYN -j TCPMSS --clamp-mss-to-pmtu
-A POSTROUTING -j CONNMARK --save-mark --nfmask 0xff --ctmask 0xff
-A POSTROUTING -m mark ! --mark 0x1/0x3 -m connmark --mark 0x7 -j CLASSIFY --set-class 1:2
COMMIT
"""
FOREIGN_IPV6 = """*filter
:FOREIGN - [0:0]
-A INPUT -i eth+ -j FOREIGN
-A INPUT -s fe80::/10 ! -d ::1/128 -i lo -p tcp -m tcp --dport 80 -j REJECT --reject-with icmp6-port-unreachable
-A INPUT -s 2001:db8::1/ffff:0:ffff:: -j FOREIGN
-A INPUT -p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT
-A INPUT -m ipv6header --header hop --soft -g FOREIGN
-A FORWARD -p 135 -j DROP
COMMIT
*mangle
-A PREROUTING -p tcp -j TPROXY --on-port 9 --on-ip :: --tproxy-mark 0x539/0xffffffff
-A POSTROUTING -j HL --hl-set 3
COMMIT
"""


@contextlib.contextmanager
def fresh():
    """The test is in a network namespace of its own."""
    with NetworkNamespace("libiptc") as namespace, namespace.entered():
        yield namespace


def listing(family):
    """What iptables-legacy-save prints, without its comments."""
    done = subprocess.run([f"{family.program}-legacy-save"], capture_output=True, text=True, check=True)
    return "".join(line for line in done.stdout.splitlines(keepends=True) if not line.startswith("#"))


def listings():
    return {family: listing(family) for family in FAMILIES}


def filled():
    """The listings without the empty tables that the kernel keeps, and without counters."""
    return {family: drop_empty_tables(text.replace(" [0:0]", "")) for family, text in listings().items()}


def change_to(backend, options):
    state = backend.observe()
    return state.compare(plan(options)).change()


def feed_by_program(scripts):
    for family in FAMILIES:
        if family.name in scripts:
            command = [f"{family.program}-legacy-restore", "-w", "--noflush"]
            subprocess.run(command, input=scripts[family.name], text=True, check=True)


def add_foreign_rules(namespace):
    for family in FAMILIES:
        load(namespace, LEGACY, family, FOREIGN)


def tables_of(family):
    return Path(f"/proc/net/{'ip' if family is IPV4 else 'ip6'}_tables_names").read_text().split()


def replace_first_mask(table, chain):
    """Gives the first rule of a built-in chain an interface that iptables does not list: the first byte of its mask is 0.

    The table is replaced by IPT_SO_SET_REPLACE of linux/netfilter_ipv4/ip_tables.h, as iptables does it.
    """
    info, entries = read_bytes(IPV4, table)
    hooks = struct.unpack_from("=5I", info, 36)
    at = hooks[("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING").index(chain)]
    changed = bytearray(entries)
    changed[at + 32 : at + 36] = b"\0zz\0"  # the name of the interface that packets leave through
    changed[at + 64 : at + 67] = b"\0\xff\xff"  # its mask
    valid, count, size = struct.unpack_from("=I", info, 32)[0], *struct.unpack_from("=2I", info, 76)
    counters = ctypes.create_string_buffer(16 * count)
    head = struct.pack("=32s3I", table.encode(), valid, count, size) + info[36:76] + struct.pack("=IQ", count, ctypes.addressof(counters))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as asking:
        asking.setsockopt(socket.IPPROTO_IP, 64, head + bytes(changed))
