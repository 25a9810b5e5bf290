"""Rules that `nft list ruleset` prints, as text or JSON: what each statement means in iptables' words, and what is not understood."""

from __future__ import annotations

import json
from struct import pack

import pytest

from netinit.base.errors import ParseError
from netinit.base.net import IPV4, IPV6
from netinit.base.snapshot import BRIDGE, DORMANT, INET, IP, IP6, NETDEV, SET_INTERVAL, SET_MAP, NftChain, NftTable
from netinit.live.snapshot_rules import load_snapshot
from netinit.rules.nft import listing_objects
from netinit.rules.nft.listing_objects import read_objects
from netinit.rules.nft.listing_text import read_listing

PLACE = {"family": "ip", "table": "t"}
CHAIN = [{"table": {"family": "ip", "name": "t"}}, {"chain": {**PLACE, "name": "c", "type": "filter", "hook": "output", "prio": 0, "policy": "accept"}}]


def read(objects, family=IPV4):
    """The rules, and how many extensions of iptables are not shown."""
    snapshot, hidden = read_objects(objects)
    return [one.text for base in load_snapshot(snapshot).foreign[family] for chain in base.chains.values() for one in chain.rules], hidden


@pytest.mark.parametrize(
    ("rule", "meaning"),
    [
        ("tcp dport 1000-2000 drop", "-p tcp -m tcp --dport 1000:2000 -j DROP"),
        ("tcp dport { 80, 90-95 } accept", "-p tcp -m multiport --dports 80,90:95 -j ACCEPT"),
        ("tcp sport != 53 accept", "-p tcp -m tcp ! --sport 53 -j ACCEPT"),
        ("ip saddr 10.0.0.1-10.0.0.9 drop", "-s 10.0.0.1/32 | -s 10.0.0.2/31 | -s 10.0.0.4/30 | -s 10.0.0.8/31 -j DROP"),
        ("ip saddr 10.0.0.0/8 drop", "-s 10.0.0.0/8 -j DROP"),
        ("ip daddr { 10.0.0.0/8, 192.0.2.1-192.0.2.3 } accept", "-d 10.0.0.0/8 | -d 192.0.2.1/32 | -d 192.0.2.2/31 -j ACCEPT"),
        ("meta skuid 1000-2000 accept", "-m owner --uid-owner 1000-2000 -j ACCEPT"),
        ("ct state new,established accept", "-m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT"),
        ("ct state { new, established } accept", "-m conntrack --ctstate NEW,ESTABLISHED -j ACCEPT"), ("ct state { new } accept", "-m conntrack --ctstate NEW -j ACCEPT"),
        ("ct state != { new, invalid } drop", "-m conntrack ! --ctstate INVALID,NEW -j DROP"),
        ("meta l4proto icmpv6 drop", "-p ipv6-icmp -j DROP"), ("meta l4proto sctp drop", "-p sctp -j DROP"),
        ("tcp flags syn / fin,syn,rst,ack drop", "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j DROP"),
        ("dup to 10.0.0.9", "-j [dup to 10.0.0.9]"),
        ('log prefix "x" group 2', '-j NFLOG --nflog-prefix "x" --nflog-group 2'),
        ("limit rate 5/second burst 3 packets", "-m limit --limit 5/sec --limit-burst 3"),
        ("limit rate over 1 mbytes/second drop", "-j [limit rate over 1 mbytes/second drop]"),
        ("tcp dport < 1024 accept", "-p tcp -m tcp --dport 0:1023 -j ACCEPT"), ("tcp dport <= 80 accept", "-p tcp -m tcp --dport 0:80 -j ACCEPT"),
        ("tcp dport >= 30000 drop", "-p tcp -m tcp --dport 30000:65535 -j DROP"), ("udp sport > 65534 drop", "-p udp -m udp --sport 65535 -j DROP"),
        ("socket transparent 1 accept", "[socket 0 == 01] -j ACCEPT"), ("socket wildcard 0 accept", "[socket 2 == 00] -j ACCEPT"),
        ("meta mark & 0x3 == 0x1 accept", "-m mark --mark 0x1/0x3 -j ACCEPT"), ("ct direction original accept", "-m conntrack --ctdir ORIGINAL -j ACCEPT"),
        ("fib daddr type local accept", "-m addrtype --dst-type LOCAL -j ACCEPT"), ('iifname { "lo", "eth0" } accept', "-i eth0 | -i lo -j ACCEPT"),
        ("reject with tcp reset", "-j REJECT --reject-with tcp-reset"), ("notrack", "-j CT --notrack"), ("dnat to 10.1.1.1:80", "-j DNAT --to-destination 10.1.1.1:80"),
        ("ct mark set meta mark", "-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff"),
        ("ip saddr . tcp dport { 10.0.0.1 . 80 } accept", "-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT"),
        ("tcp dport . ip saddr { 80 . 10.0.0.1 } accept", "-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j ACCEPT"),
        ("meta mark . tcp sport { 1 . 9 } drop", "-p tcp -m mark --mark 0x1 -m tcp --sport 9 -j DROP"),
        ('ip saddr { 10.0.0.1 comment "x", 10.0.0.2 timeout 1h expires 59m } accept', "-s 10.0.0.1/32 | -s 10.0.0.2/32 -j ACCEPT"),
        ('tcp dport vmap { 80 comment "x" : drop }', "-p tcp -m tcp --dport 80 -j DROP"),
        ("ip daddr . udp dport vmap { 10.0.0.1 . 53 : drop }", "-d 10.0.0.1/32 -p udp -m udp --dport 53 -j DROP"),
        ("ip saddr . tcp dport != { 10.0.0.1 . 80 } drop", "-p tcp [not payload 1 12, payload 2 2 in the set __set0] -j DROP"),
        ('xt target "TEE"', "-j TEE [...]"), ('xt match "owner" accept', "-m owner [...] -j ACCEPT"),
    ],
)  # fmt: skip
def test_a_rule_of_text_means_what_nft_means_by_it(rule, meaning):
    text = f"table ip t {{\n\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
    assert read(read_listing(text)) == ([meaning], rule.startswith("xt"))


@pytest.mark.parametrize(
    "row",
    [
        ("ct mark set 0x5", "-j CONNMARK --set-xmark 0x5/0xffffffff"), ("meta mark set meta mark & 0xff | 0x100", "-j MARK --set-xmark 0x100/0xffffff00"),
        ("meta mark set (meta mark & 0xff) ^ 0x3", "-j MARK --set-xmark 0x3/0xffffff00"),
        ("meta mark set ct mark & 0x0f", "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xf"), ("meta mark set mark ^ 0x1", "-j MARK --set-xmark 0x1/0x0"),
        ("mark set 7", "-j MARK --set-xmark 0x7/0xffffffff"), ("meta mark set meta mark | 0x1 | 0x2", "-j MARK --set-xmark 0x3/0x3"),
        ("meta mark set meta mark and 0xff or 0x100 xor 0x1", "-j MARK --set-xmark 0x101/0xffffff00"),
        ("meta mark set 1 . 2", "-j MARK --set-xmark 0x1/0xffffffff [. 2]"), ("ct zone set 5", "-j CT --zone 5"), ("ct original zone set 5", "-j CT --zone-orig 5"),
        ("ct reply zone set 6", "-j CT --zone-reply 6"), ("meta priority set 5", "-j [meta priority set]"), ("meta nftrace set 1", "-j [meta nftrace set]"),
        ("tcp flags & (syn | ack) == syn drop", "-p tcp -m tcp --tcp-flags SYN,ACK SYN -j DROP"),
        ("tcp flags & (fin|syn|rst|ack) == syn | ack accept", "-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN,ACK -j ACCEPT"),
        ("tcp flags syn,ack accept", "-p tcp -m tcp ! --tcp-flags SYN,ACK NONE -j ACCEPT"),
        ("tcp flags ! fin,rst accept", "-p tcp -m tcp --tcp-flags FIN,RST NONE -j ACCEPT"),
        ("tcp flags != syn / fin,syn,rst,ack drop", "-p tcp -m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN -j DROP"),
        ("ct status dnat accept", "-m conntrack --ctstate DNAT -j ACCEPT"), ("ct status ! dnat accept", "-m conntrack ! --ctstate DNAT -j ACCEPT"),
        ("ct state != invalid accept", "-m conntrack ! --ctstate INVALID -j ACCEPT"), ("ct state established accept", "-m conntrack --ctstate ESTABLISHED -j ACCEPT"),
        ("meta mark & 0x3 != 0x1 accept", "-m mark ! --mark 0x1/0x3 -j ACCEPT"), ("meta mark != 0x5 accept", "-m mark ! --mark 0x5 -j ACCEPT"),
        ("meta mark { 1, 2 } accept", "[meta 3 == 01000000, 02000000] -j ACCEPT"), ("ct mark 0x7 accept", "-m connmark --mark 0x7 -j ACCEPT"),
        ("ct mark & 0xff == 0x7 accept", "-m connmark --mark 0x7/0xff -j ACCEPT"), ('iifname "eth*" accept', "-i eth+ -j ACCEPT"),
        ('iifname != "eth*" accept', "! -i eth+ -j ACCEPT"),
        ('iifname { "eth*", "lo" } accept', "-m {?match?: {?op?: ?==?, ?left?: {?meta?: {?key?: ?iifname?}}, ?right?: {?set?: [?eth*?, ?lo?]}}} [...] -j ACCEPT"),
        ('oifname "eth0" accept', "-o eth0 -j ACCEPT"), ("meta l4proto tcp accept", "-p tcp -j ACCEPT"),
        ("meta l4proto { tcp, udp } accept", "-p tcp -j ACCEPT", "-p udp -j ACCEPT"), ("meta l4proto != udp accept", "! -p udp -j ACCEPT"),
        ("meta nfproto ipv4 accept", "-j ACCEPT"), ("ip protocol udp accept", "-p udp -j ACCEPT"), ("meta skuid 1000 accept", "-m owner --uid-owner 1000 -j ACCEPT"),
        ("meta skgid != 1000 accept", "-m owner ! --gid-owner 1000 -j ACCEPT"), ("skuid { 1, 2 } accept", "[meta 10 == 01000000, 02000000] -j ACCEPT"),
        ("tcp dport != { 80, 90 } accept", "-p tcp -m multiport ! --dports 80,90 -j ACCEPT"), ("tcp dport { 80 } accept", "-p tcp -m tcp --dport 80 -j ACCEPT"),
        ("udp dport 53-54 accept", "-p udp -m udp --dport 53:54 -j ACCEPT"),
        ("tcp dport > 65535 drop", "-p tcp -m tcp dport > 65535 [...] -j DROP"),
        ("tcp dport < 0 drop", "-p tcp -m tcp dport < 0 [...] -j DROP"),
        ("ip saddr != 10.0.0.0/8 drop", "! -s 10.0.0.0/8 -j DROP"), ("ip daddr 10.0.0.1 accept", "-d 10.0.0.1/32 -j ACCEPT"),
        ("ip saddr < 10.0.0.1 accept", "-m ip saddr < 10.0.0.1 [...] -j ACCEPT"),
        ("fib saddr type local accept", "-m addrtype --src-type LOCAL -j ACCEPT"),
        ("fib daddr . iif type local accept", "-m fib daddr . iif type local [...] -j ACCEPT"),
        ("fib daddr oif 1 accept", "-m fib daddr oif 1 [...] -j ACCEPT"),
        ("socket transparent 0 accept", "[socket 0 == 00] -j ACCEPT"),
        ("socket mark 1 accept", "-m {?match?: {?op?: ?==?, ?left?: {?socket?: {?key?: ?mark?}}, ?right?: 1}} [...] -j ACCEPT"),
        ("ct direction reply accept", "-m conntrack --ctdir REPLY -j ACCEPT"),
        ("ct original saddr 10.0.0.1 accept", "-m ct original saddr 10.0.0.1 [...] -j ACCEPT"),
        ("ct original ip saddr 10.0.0.1 accept", "-m ct original ip saddr 10.0.0.1 [...] -j ACCEPT"),
        ("counter packets 3 bytes 4 accept", "-j ACCEPT"), ('counter name "k" accept', "-j object [...] ACCEPT"), ("counter accept", "-j ACCEPT"),
        ("redirect to 15001", "-j REDIRECT --to-ports 15001"), ("redirect", "-j [{?redirect?: {}}]"), ("redirect to :80 random", "-j [redirect to :80 random]"),
        ("dnat to 10.1.1.1", "-j DNAT --to-destination 10.1.1.1"), ("dnat ip to 10.1.1.1:80", "-j DNAT --to-destination 10.1.1.1:80"),
        ("dnat to :80", "-j DNAT --to-destination :80"), ("dnat to 10.1.1.1:http", "-j [dnat to 10.1.1.1:http]"),
        ("dnat to 10.1.1.1 random", "-j [dnat to 10.1.1.1 random]"), ("snat to 10.1.1.1", "-j snat [...]"), ("snat to 10.1.1.1:80", "-j snat [...]"),
        ("snat", "-j snat [...]"), ("masquerade", "-j masquerade [...]"), ("masquerade random,persistent", "-j masquerade [...]"),
        ("masquerade to :80", "-j masquerade [...]"), ("tproxy to :15006", "-j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x0/0xffffffff"),
        ("tproxy to 127.0.0.1:15006", "-j TPROXY --on-port 15006 --on-ip 127.0.0.1 --tproxy-mark 0x0/0xffffffff"),
        ("tproxy ip to 127.0.0.1:15006", "-j TPROXY --on-port 15006 --on-ip 127.0.0.1 --tproxy-mark 0x0/0xffffffff"),
        ("reject with icmp type host-unreachable", "-j REJECT --reject-with icmp code 1"),
        ("reject with icmp host-unreachable", "-j REJECT --reject-with icmp code 1"), ("reject with icmp 13", "-j REJECT --reject-with icmp code 13"),
        ("reject with icmpx port-unreachable", "-j REJECT --reject-with icmp-port-unreachable"), ("reject with tcp", "-j [reject with tcp]"), ("log", "-j log [...]"),
        ('log prefix "a b"', '-j LOG --log-prefix "a b"'), ("log group 3 snaplen 4", "-j log [...]"), ("log level warn flags tcp sequence,options", "-j log [...]"),
        ('log prefix "x" drop', '-j LOG --log-prefix "x" DROP'), ("limit rate 5/minute", "[limit]"), ("limit rate over 5/second drop", "[limit] -j DROP"),
        ("limit rate 5/second burst 7 packets accept", "-m limit --limit 5/sec --limit-burst 7 -j ACCEPT"),
        ("limit rate 5/fortnight drop", "-j [{?limit?: {?rate?: 5, ?per?: ?fortnight?, ?inv?: false}}] DROP"),
        ("limit rate x/second drop", "-j [limit rate x/second drop]"), ("jump other", "-j other"), ("goto other", "-g other"), ("return", "-j RETURN"),
        ("continue", ""), ("accept", "-j ACCEPT"),
        ("tcp dport vmap { 80 : accept, 90-95 : drop }", "-p tcp -m tcp --dport 80 -j ACCEPT", "-p tcp -m tcp --dport 90:95 -j DROP"),
        ("tcp dport vmap { 80 : jump other }", "-p tcp -m tcp --dport 80 -j other"), ("meta mark vmap { 1 : drop }", "-m mark --mark 0x1 -j DROP"),
        ("ip saddr . tcp dport { 10.0.0.0/8 . 80-90, 10.0.0.1 . 443 } drop", "-p tcp [payload 1 12, payload 2 2 in the set __set0] -j DROP"),
        ("ip saddr @none drop", "[payload 1 12 in a set that is not read: none] -j DROP"),
        ("tcp dport @none drop", "-p tcp [payload 2 2 in a set that is not read: none] -j DROP"), ("tcp dport 80,90 drop", "-j [tcp dport 80 , 90 drop]"),
        ("ip dscp cs1 drop", "-m ip dscp cs1 [...] -j DROP"),
        ("icmp type echo-request drop", "-p icmp -m icmp type echo-request [...] -j DROP"),
        ("icmpv6 type != echo-reply drop", "-p ipv6-icmp -m icmpv6 type != echo-reply [...] -j DROP"),
        ("fib saddr . mark . iif oif missing drop", "-m fib saddr . mark . iif oif missing [...] -j DROP"),
        ("ether saddr 00:00:00:00:00:01 drop", "-m ether saddr 00:00:00:00:00:01 [...] -j DROP"),
        ("queue num 1", "-j [queue num 1]"), ("queue flags bypass to 3-5", "-j [queue num 3]"), ("synproxy mss 1460", "-j [synproxy mss 1460]"), ("flow add @f", "-j [flow add @f]"),
        ("meta mark set tcp dport", "-j [{?mangle?: {?key?: {?meta?: {?key?: ?mark?}}, ?value?: ?tcp?}}] dport [...]"), ('xt target "MARK"', "-j MARK [...]"),
        ('xt ? "TEE"', "-j TEE [...]"), ('xt ? "owner" accept', "-m owner [...] -j ACCEPT"), ('drop comment "x y"', '-m comment --comment "x y" -j DROP'),
    ],
)  # fmt: skip
def test_a_statement_of_any_form_is_read_or_kept_as_what_is_not_understood(row):
    """The text, then the rules that it is: each keyword, each operator, and where a statement ends before it says what it must."""
    rule, *meaning = row
    other = "\tchain other {\n\t\treturn\n\t}\n"
    text = f"table ip t {{\n{other}\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
    snapshot, hidden = read_objects(read_listing(text))
    (base,) = load_snapshot(snapshot).foreign[IPV4]
    assert ([one.text for one in base.chain.rules], hidden) == (meaning, rule.startswith("xt"))


@pytest.mark.parametrize("more", ["", "flags dormant"])
def test_what_else_is_in_a_table_is_passed_over_and_a_dormant_table_decides_nothing(more):
    others = """	comment "a { b"
	flowtable f {
		hook ingress priority 0; devices = { eth0 };
	}
	ct helper h {
		type "ftp" protocol tcp; l3proto ip;
	}
	counter k {
		packets 0 bytes 0
	}
	set s {
		type ipv4_addr . inet_service
		elements = { 10.0.0.1 . 80 }
	}
"""
    text = f"table ip t {{\n{more}\n{others}\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\tip saddr . tcp dport @s drop\n\t}}\n}}\n"
    assert read(read_listing(text)) == ([] if more else ["-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DROP"], 0)
    with pytest.raises(ParseError):
        read_listing("table ip t {\n\tcounter k")


@pytest.mark.parametrize("between", ["", "\n\n", "# what comes now\n", "root@pod:/# nft list table ip b\n", "```\nand then:\n```\n", "  add up\n"])
def test_the_tables_of_a_text_are_all_read_whatever_stands_around_them(between):
    tables = [f"table ip {name} {{\n\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\ttcp dport {port} drop\n\t}}\n}}\n" for name, port in (("a", 80), ("b", 81))]
    found = read(read_listing(f"{between}{tables[0]}{between}{tables[1]}{between}"))
    assert found == (["-p tcp -m tcp --dport 80 -j DROP", "-p tcp -m tcp --dport 81 -j DROP"], 0)
    lines = 2 * between.count("\n") + tables[0].count("\n")
    with pytest.raises(ParseError, match=f"^line {lines + 2}: .* a quote does not close"):
        read_listing(f'{between}{tables[0]}{between}table ip b {{\n\tcomment "x\n}}\n')


@pytest.mark.parametrize("change", ["add rule ip a c drop", "nft insert rule ip a c drop", "\tcreate chain ip a d", "replace rule ip a c handle 2 drop", "add element ip a s { 80 }", "add  map ip a m", 'include "b.nft"'])
def test_a_command_that_adds_rules_to_tables_is_refused_wherever_it_stands(change):
    for text, line in ((f"{change}\ntable ip a {{\n}}\n", 1), (f"table ip a {{\n}}\n\n{change}\n", 4), (f"table ip a {{\n}}\n# x\n{change}\ntable ip b {{\n}}\n", 4)):
        with pytest.raises(ParseError) as error:
            read_listing(text)
        assert str(error.value) == f"line {line}: {json.dumps(change.strip())}: it is input for nft, and not what is in force; give what `nft list ruleset` prints"


@pytest.mark.parametrize("deletion", ["flush ruleset", "flush chain ip a c", "nft delete table ip a", "destroy set ip a s"])
def test_a_deletion_is_what_configuration_files_begin_with_and_is_refused_behind_a_table(deletion):
    assert [*map(list, read_listing(f"#!/usr/sbin/nft -f\n{deletion}\ntable ip a {{\n}}\n"))] == [["table"]]
    for text in (f"table ip a {{\n}}\n{deletion}\n", f"table ip a {{\n}}\n{deletion}\ntable ip b {{\n}}\n"):
        with pytest.raises(ParseError, match=f'^line 3: "{deletion}": it is input for nft'):
            read_listing(text)


def test_a_table_that_is_there_twice_is_refused_since_one_of_its_states_is_over():
    for objects in (read_listing("table ip t {\n}\n" * 2), CHAIN * 2):
        with pytest.raises(ParseError, match=r"^the table ip t is there twice; give one state of it$"):
            read_objects(objects)
    assert len(read_objects(read_listing("table ip t {\n}\ntable ip6 t {\n}\n"))[0].tables) == 2


@pytest.mark.parametrize("right", [[1, 5], [5, 1]])
def test_a_range_of_marks_is_not_understood_for_the_kernel_compares_their_bytes(right):
    (text,), _ = read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [{"match": {"op": "==", "left": {"meta": {"key": "mark"}}, "right": {"range": right}}}, {"accept": None}]}}])
    assert text.endswith("[...] -j ACCEPT")
    assert "mark" in text


@pytest.mark.parametrize(
    ("expressions", "meaning", "hidden"),
    [
        ([{"xt": {"type": "target", "name": "TEE"}}], "-j TEE [...]", 1),
        ([{"xt": {"type": "match", "name": "owner"}}, {"accept": None}], "-m owner [...] -j ACCEPT", 1),
        ([{"xt": {"type": "match", "name": "owner"}}, {"xt": {"type": "target", "name": "MASQUERADE"}}], "-m owner [...] -j MASQUERADE [...]", 2),
        ([{"xt": None}], "-j [an extension of iptables that nft does not show]", 1),
    ],
)  # fmt: skip
def test_an_extension_of_iptables_is_a_match_or_a_target_by_its_name_alone(expressions, meaning, hidden):
    assert read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": expressions}}]) == ([meaning], hidden)


@pytest.mark.parametrize(
    ("table", "rule", "of_ipv4", "of_ipv6"),
    [
        ("ip", "reject", "icmp-port-unreachable", None), ("ip6", "reject", None, "icmp6-port-unreachable"),
        ("inet", "reject", "icmp-port-unreachable", "icmp6-port-unreachable"), ("inet", "reject with tcp reset", "tcp-reset", "tcp-reset"),
        ("inet", "reject with icmp host-prohibited", "icmp code 10", None), ("inet", "reject with icmpv6 no-route", None, "icmp code 0"),
        ("inet", "reject with icmpx admin-prohibited", "icmpx code 3", "icmpx code 3"), ("ip6", "reject with icmpv6 no-route", None, "icmp code 0"),
    ],
)  # fmt: skip
def test_a_rejection_by_the_icmp_of_one_family_is_about_this_family_alone(table, rule, of_ipv4, of_ipv6):
    text = f"table {table} t {{\n\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
    found = [read(read_listing(text), family)[0] for family in (IPV4, IPV6)]
    assert found == [[f"-j REJECT --reject-with {one}"] if one else [] for one in (of_ipv4, of_ipv6)]


@pytest.mark.parametrize("key", [{"payload": {"protocol": "ip", "field": "id"}}, {"payload": {"protocol": "ip"}}, {}, {"meta": {"key": "x"}}])
def test_a_change_of_what_is_no_mark_is_not_understood_and_no_error(key):
    (text,), _ = read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [{"mangle": {"key": key, "value": 1}}]}}])
    assert text.startswith("-j [{?mangle?")


def test_rules_of_another_family_are_not_among_them():
    assert read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [{"drop": None}]}}], IPV6) == ([], 0)


# ---- the objects that JSON lists ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({}, {}), ({"prio": "dstnat", "hook": "prerouting"}, {"hook": 0, "priority": -100}), ({"prio": "filter - 10"}, {"priority": -10}),
        ({"prio": "raw + 5"}, {"priority": -295}), ({"prio": -5}, {"priority": -5}), ({"policy": "drop"}, {"policy": 0}), ({"policy": None}, {}),
        ({"hook": "newer"}, {"hook": 6}), ({"type": "route"}, {"kind": "route"}), ({"handle": 7}, {"handle": 7}), ({"handle": "x"}, {}), ({"dev": 7}, {}),
        ({"family": "netdev", "hook": "ingress", "dev": "eth0"}, {"family": NETDEV, "hook": 0, "devices": ("eth0",)}),
        ({"family": "netdev", "hook": "ingress", "dev": ["eth0", "eth1"]}, {"family": NETDEV, "hook": 0, "devices": ("eth0", "eth1")}),
        ({"family": "netdev", "hook": "egress", "dev": ["eth0", "eth*"]}, {"family": NETDEV, "hook": 1, "has_other_devices": True}),
        ({"family": "inet", "hook": "ingress", "dev": ["eth0"]}, {"family": INET, "hook": 5, "devices": ("eth0",)}),
        ({"family": "bridge", "hook": "postrouting"}, {"family": BRIDGE, "hook": 4}), ({"family": "ip6", "hook": "forward"}, {"family": IP6, "hook": 2}),
    ],
)  # fmt: skip
def test_a_base_chain_has_its_hook_priority_policy_and_devices(listed, expected):
    body = {**PLACE, "name": "c", "type": "filter", "hook": "output", "prio": 0, "policy": "accept", **listed}
    usual = NftChain(family=IP, table="t", name="c", kind="filter", hook=3, priority=0, policy=1)
    assert read_objects([{"chain": body}])[0].chains == (usual.replace(**expected),)


def test_a_chain_without_a_hook_has_no_more_than_its_name_and_a_table_its_comment_and_flags():
    objects = [{"chain": {**PLACE, "name": "c", "handle": 4}}, {"table": {"family": "ip", "name": "t", "handle": 3, "flags": ["dormant", "owner"], "comment": "x"}}]
    snapshot, _ = read_objects([*objects, {"table": {"family": "inet", "name": "u", "flags": "owner"}}, {"metainfo": {"version": "1"}}])
    assert snapshot.chains == (NftChain(family=IP, table="t", name="c", handle=4),)
    assert snapshot.tables == (NftTable(family=IP, name="t", handle=3, flags=DORMANT, userdata=b"\0\2x\0"), NftTable(family=INET, name="u"))


def set_of(body, kind="set"):
    (found,) = read_objects([{kind: {**PLACE, "name": "s", **body}}])[0].sets
    assert (found.family, found.table, found.name) == (IP, "t", "s")
    return found


ONE, PORT = bytes((10, 0, 0, 1)), bytes((0, 80))


@pytest.mark.parametrize(
    ("kind", "elements", "keys"),
    [
        ("ipv4_addr", ["10.0.0.1"], [(ONE, b"")]), ("ipv4_addr", [{"prefix": {"addr": "10.0.0.0", "len": 8}}], [(bytes((10, 0, 0, 0)), bytes((10, 255, 255, 255)))]),
        ("ipv4_addr", [{"range": ["10.0.0.1", "10.0.0.3"]}], [(ONE, bytes((10, 0, 0, 3)))]), ("ipv6_addr", ["fd00::1"], [(b"\xfd" + bytes(14) + b"\1", b"")]),
        ("inet_service", [80, {"range": [90, 95]}], [(PORT, PORT), (bytes((0, 90)), bytes((0, 95)))]), ("inet_proto", ["tcp", 17], [(b"\6", b""), (b"\x11", b"")]),
        ("mark", [1], [(pack("=I", 1), b"")]), ("ifname", ["eth0"], [(b"eth0".ljust(16, b"\0"), b"")]), ("uid", [7], [(pack("=I", 7), b"")]),
        (["ipv4_addr", "inet_service"], [{"concat": ["10.0.0.1", 80]}], [(ONE + PORT + bytes(2), b"")]),
        (["ipv4_addr", "inet_service"], [{"concat": ["10.0.0.1", {"range": [80, 81]}]}], [(ONE + PORT + bytes(2), ONE + bytes((0, 81, 0, 0)))]),
        ("ipv4_addr", [{"elem": {"val": "10.0.0.1", "comment": "x", "timeout": 5, "expires": 4, "counter": {}}}], [(ONE, b"")]),
    ],
)  # fmt: skip
def test_the_elements_of_a_set_are_as_the_kernel_holds_them(kind, elements, keys):
    found = set_of({"type": kind, "elem": elements})
    assert [(one.key, one.key_end) for one in found.elements] == keys
    assert (found.is_complete, found.key_length, found.flags) == (True, len(keys[0][0]), SET_INTERVAL if any(end for _, end in keys) else 0)


@pytest.mark.parametrize(
    "body",
    [
        {"type": "ifname", "elem": ["eth*"]}, {"type": ["ipv4_addr", "inet_service"], "elem": ["10.0.0.1"]}, {"type": "ipv4_addr", "elem": []}, {"type": "ipv4_addr"},
        {"type": "ipv4_addr", "elem": [{"elem": {"val": "10.0.0.1", "limit": 5}}]}, {"type": "newer", "elem": [1]}, {"type": [{"typeof": "x"}], "elem": [1]},
        {"type": "ipv4_addr", "elem": "x"}, {"type": "ipv4_addr", "elem": ["10.0.0.256"]}, {"type": "inet_service", "elem": [65536]}, {"type": "inet_service", "elem": [-1]},
        {"type": "inet_service", "elem": ["http"]}, {"type": "inet_service", "elem": [{"range": [95, 90]}]}, {"elem": [1]},
    ],
)  # fmt: skip
def test_a_set_with_an_element_that_is_not_understood_or_none_listed_is_not_read(body):
    """`nft -t` lists no elements, which looks as if the set were empty."""
    assert (set_of(body).is_complete, set_of(body).elements) == (False, ())


def test_an_empty_set_is_one_where_another_shows_its_elements():
    listed = [{"set": {**PLACE, "name": "a", "type": "mark", "elem": [1]}}, {"set": {**PLACE, "name": "b", "type": "mark"}}]
    assert [one.is_complete for one in read_objects(listed)[0].sets] == [True, True]


def test_a_map_of_verdicts_is_read_and_of_other_values_it_is_not():
    body = {"type": "inet_service", "map": "verdict", "elem": [[80, {"drop": None}], [81, {"jump": {"target": "c"}}]]}
    found = set_of(body, "map")
    assert (found.flags, found.key_length, found.is_complete) == (SET_MAP, 2, True)
    rule = {"rule": {**PLACE, "chain": "c", "expr": [{"vmap": {"key": {"payload": {"protocol": "tcp", "field": "dport"}}, "data": "@s"}}]}}
    assert read([*CHAIN, {"map": {**PLACE, "name": "s", **body}}, rule])[0] == ["-p tcp -m tcp --dport 80 -j DROP", "-p tcp -m tcp --dport 81 -j c"]
    for wrong in ({"elem": [80]}, {"elem": [[80, {"newer": None}]]}, {"elem": [[80]]}, {"map": "ipv4_addr", "elem": [[80, "10.0.0.1"]]}):
        assert (set_of({**body, **wrong}, "map").is_complete, set_of({**body, **wrong}, "map").flags) == (False, SET_MAP)


@pytest.mark.parametrize("verdict", [{}, [], 7, "drop", None])
def test_an_element_of_a_map_whose_verdict_is_none_is_not_understood(verdict):
    listed = {"vmap": {"key": {"payload": {"protocol": "tcp", "field": "dport"}}, "data": {"set": [[80, verdict]]}}}
    (text,), _ = read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [listed]}}])
    assert text.startswith("-j ["), text


@pytest.mark.parametrize(("item", "shown"), [("accept", "[?accept?]"), (7, "7 [...]"), (None, "null [...]"), ({}, "[{}]"), ([], "[[]]")])
def test_what_is_no_statement_is_shown_and_what_is_behind_it_is_read(item, shown):
    (text,), _ = read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [{"counter": None}, item, {"drop": None}]}}])
    assert text == f"-j {shown} DROP"


@pytest.mark.parametrize("wrong", [{"table": 1}, {"chain": {"family": "newer"}}, {"set": {}}, {"map": {"family": 2}}, {"rule": {**PLACE, "expr": {"a": 1}}}])
def test_what_is_no_object_of_nft_is_refused_with_its_beginning(wrong):
    with pytest.raises(ParseError, match=r"is no (object|rule) of `nft -j list ruleset`$"):
        read_objects([wrong])


def test_a_dump_with_more_elements_than_are_read_is_refused(monkeypatch):
    monkeypatch.setattr(listing_objects, "MAX_ELEMENTS", 3)
    listed = [{"set": {**PLACE, "name": name, "type": "mark", "elem": elements}} for name, elements in (("a", [1, 2]), ("b", [3]), ("c", [4]))]
    assert len(read_objects(listed[:2])[0].sets) == 2
    with pytest.raises(ParseError, match="its sets and maps have more than 3 elements; list the tables that matter alone"):
        read_objects(listed)


def test_a_rule_has_its_handle_its_counter_and_its_comment():
    body = {**PLACE, "chain": "c", "handle": 9, "comment": "why", "expr": [{"counter": {"packets": 3, "bytes": 40}}, {"drop": None}]}
    (base,) = load_snapshot(read_objects([*CHAIN, {"rule": body}])[0]).foreign[IPV4]
    assert [(one.text, one.handle, one.packets, one.comment) for one in base.chain.rules] == [('-m comment --comment "why" -j DROP', 9, 3, "why")]
    (rule,) = read_objects([*CHAIN, {"rule": {**body, "comment": 7, "handle": None}}])[0].rules
    assert (rule.handle, rule.userdata) == (0, b"")


@pytest.mark.parametrize(
    ("family", "statement", "of_ipv4", "of_ipv6"),
    [
        ("inet", {"tproxy": {"port": 9}}, "0.0.0.0", "::"), ("inet", {"tproxy": {"port": 9, "family": "ip"}}, "0.0.0.0", None),
        ("inet", {"tproxy": {"port": 9, "family": "ip6"}}, None, "::"), ("inet", {"tproxy": {"port": 9, "addr": "::1", "family": "ip6"}}, None, "::1"),
        ("ip6", {"tproxy": {"port": 9, "addr": "::1"}}, None, "::1"),
    ],
)  # fmt: skip
def test_a_transparent_socket_is_of_the_family_that_is_named_or_of_both(family, statement, of_ipv4, of_ipv6):
    """Packets of the other go on behind the rule (nft_tproxy.c)."""
    place = {"family": family, "table": "t"}
    chain = [{"table": {"family": family, "name": "t"}}, {"chain": {**place, "name": "c", "type": "filter", "hook": "prerouting", "prio": -150}}]
    objects = [*chain, {"rule": {**place, "chain": "c", "expr": [statement]}}]
    for version, address in ((IPV4, of_ipv4), (IPV6, of_ipv6)):
        found, _ = read(objects, version)
        assert [text.partition("--on-ip ")[2].partition(" ")[0] for text in found if "TPROXY" in text] == ([address] if address else []), found


@pytest.mark.parametrize(
    ("statements", "of_ipv4", "of_ipv6"),
    [
        (["dnat ip to :80"], ["-j DNAT --to-destination :80"], []), (["dnat ip6 to :80"], [], ["-j DNAT --to-destination :80"]),
        (["dnat ip to 10.0.0.1"], ["-j DNAT --to-destination 10.0.0.1"], []), (["dnat ip6 to fd00::1"], [], ["-j DNAT --to-destination fd00::1"]),
        (["counter tproxy ip to :9"], ["-j TPROXY --on-port 9 --on-ip 0.0.0.0 --tproxy-mark 0x0/0xffffffff"], []),
        (["redirect to :80"], ["-j REDIRECT --to-ports 80"], ["-j REDIRECT --to-ports 80"]),
        (["dnat ip to :80", "drop"], ["-j DNAT --to-destination :80", "-j DROP"], ["-j DROP"]),
    ],
)  # fmt: skip
def test_a_translation_in_a_table_of_both_families_is_of_the_one_that_it_names(statements, of_ipv4, of_ipv6):
    """For packets of the other the expression does nothing (nft_nat_inet_eval)."""
    rules = "".join(f"\t\t{one}\n" for one in statements)
    text = f"table inet t {{\n\tchain c {{\n\t\ttype nat hook output priority -100; policy accept;\n{rules}\t}}\n}}\n"
    assert [read(read_listing(text), family)[0] for family in (IPV4, IPV6)] == [of_ipv4, of_ipv6]


def test_what_a_rule_does_before_it_names_a_family_it_does_to_both():
    text = "table inet t {\n\tchain c {\n\t\ttype filter hook prerouting priority -150; policy accept;\n\t\tmeta mark set 7 tproxy ip to :9\n\t}\n}\n"
    found = [read(read_listing(text), family)[0] for family in (IPV4, IPV6)]
    assert found == [[f"-j MARK --set-xmark 0x7/0xffffffff TPROXY --on-port 9 --on-ip {one} --tproxy-mark 0x0/0xffffffff"] for one in ("0.0.0.0", "::")]


def test_a_field_that_an_object_of_nft_lacks_is_empty_and_no_word():
    table = listing_objects._table({"family": "ip"})
    assert (table.name, table.flags, table.userdata) == ("", 0, b"")
    chains = [listing_objects._chain({"family": "ip", **more}) for more in ({}, {"hook": "input", "prio": 0})]
    assert [(one.table, one.name, one.kind, one.devices) for one in chains] == [("", "", "", ())] * 2
    sets = [listing_objects._set({"family": "ip", **more}, are_listed=True) for more in ({}, {"type": "ipv4_addr"}, {"type": "nothing known", "elem": [1]})]
    assert [(one.table, one.name, one.flags) for one in sets] == [("", "", 0)] * 3
