"""Rules that `nft list ruleset` prints, as text or JSON: what each statement means in iptables' words, and what is not understood."""

from __future__ import annotations

import pytest

from netinit.base.errors import ParseError
from netinit.base.net import IPV4, IPV6
from netinit.live.snapshot_rules import load_snapshot
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
        ("ip daddr . udp dport vmap { 10.0.0.1 . 53 : drop }", "-d 10.0.0.1/32 -p udp -m udp --dport 53 -j DROP"),
        ("ip saddr . tcp dport != { 10.0.0.1 . 80 } drop", "-p tcp [not payload 1 12, payload 2 2 in the set __set0] -j DROP"),
        ('xt target "TEE"', "-j TEE [...]"), ('xt match "owner" accept', "-m owner [...] -j ACCEPT"),
    ],
)  # fmt: skip
def test_a_rule_of_text_means_what_nft_means_by_it(rule, meaning):
    text = f"table ip t {{\n\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
    assert read(read_listing(text)[0]) == ([meaning], rule.startswith("xt"))


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
        ("tcp dport > 65535 drop", "-m {?match?: {?op?: ?>?, ?left?: {?payload?: {?protocol?: ?tcp?, ?field?: ?dport?}}, ?right?: 65535}} [...] -j DROP"),
        ("tcp dport < 0 drop", "-m {?match?: {?op?: ?<?, ?left?: {?payload?: {?protocol?: ?tcp?, ?field?: ?dport?}}, ?right?: 0}} [...] -j DROP"),
        ("ip saddr != 10.0.0.0/8 drop", "! -s 10.0.0.0/8 -j DROP"), ("ip daddr 10.0.0.1 accept", "-d 10.0.0.1/32 -j ACCEPT"),
        ("ip saddr < 10.0.0.1 accept", "-m {?match?: {?op?: ?<?, ?left?: {?payload?: {?protocol?: ?ip?, ?field?: ?saddr?}}, ?right?: ?10.0.0.1?}} [...] -j ACCEPT"),
        ("fib saddr type local accept", "-m addrtype --src-type LOCAL -j ACCEPT"),
        ("fib daddr . iif type local accept", "-m {?match?: {?op?: ?==?, ?left?: {?fib?: {?flags?: [?daddr?, ?iif?], ?result?: ?type?}}, ?right?: ?local?}} [...] -j ACCEPT"),
        ("fib daddr oif 1 accept", "-m {?match?: {?op?: ?==?, ?left?: {?fib?: {?flags?: [?daddr?], ?result?: ?oif?}}, ?right?: 1}} [...] -j ACCEPT"),
        ("socket transparent 0 accept", "[socket 0 == 00] -j ACCEPT"),
        ("socket mark 1 accept", "-m {?match?: {?op?: ?==?, ?left?: {?socket?: {?key?: ?mark?}}, ?right?: 1}} [...] -j ACCEPT"),
        ("ct direction reply accept", "-m conntrack --ctdir REPLY -j ACCEPT"),
        ("ct original saddr 10.0.0.1 accept", "-m {?match?: {?op?: ?==?, ?left?: {?ct?: {?key?: ?saddr?, ?dir?: ?original?}}, ?right?: ?10.0.0.1?}} [...] -j ACCEPT"),
        ("ct original ip saddr 10.0.0.1 accept", "-m {?match?: {?op?: ?==?, ?left?: {?ct?: {?key?: ?saddr?, ?dir?: ?original?, ?family?: ?ip?}}, ?right?: ?10.0.0.1?}} [...] -j ACCEPT"),
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
        ("ip dscp cs1 drop", "-m {?match?: {?op?: ?==?, ?left?: {?payload?: {?protocol?: ?ip?, ?field?: ?dscp?}}, ?right?: ?cs1?}} [...] -j DROP"),
        ("ether saddr 00:00:00:00:00:01 drop", "-m {?match?: {?op?: ?==?, ?left?: {?payload?: {?protocol?: ?ether?, ?field?: ?saddr?}}, ?right?: ?00:00:00:00:00:01?}} [...] -j DROP"),
        ("queue num 1", "-j [queue num 1]"), ("synproxy mss 1460", "-j [synproxy mss 1460]"), ("flow add @f", "-j [flow add @f]"),
        ("meta mark set tcp dport", "-j [{?mangle?: {?key?: {?meta?: {?key?: ?mark?}}, ?value?: ?tcp?}}] dport [...]"), ('xt target "MARK"', "-j MARK [...]"),
        ('xt ? "TEE"', "-j TEE [...]"), ('xt ? "owner" accept', "-m owner [...] -j ACCEPT"), ('drop comment "x y"', '-m comment --comment "x y" -j DROP'),
    ],
)  # fmt: skip
def test_a_statement_of_any_form_is_read_or_kept_as_what_is_not_understood(row):
    """The text, then the rules that it is: each keyword, each operator, and where a statement ends before it says what it must."""
    rule, *meaning = row
    other = "\tchain other {\n\t\treturn\n\t}\n"
    text = f"table ip t {{\n{other}\tchain c {{\n\t\ttype filter hook output priority 0; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
    snapshot, hidden = read_objects(read_listing(text)[0])
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
    assert read(read_listing(text)[0]) == ([] if more else ["-s 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DROP"], 0)
    with pytest.raises(ParseError):
        read_listing("table ip t {\n\tcounter k")


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
    found = [read(read_listing(text)[0], family)[0] for family in (IPV4, IPV6)]
    assert found == [[f"-j REJECT --reject-with {one}"] if one else [] for one in (of_ipv4, of_ipv6)]


@pytest.mark.parametrize("key", [{"payload": {"protocol": "ip", "field": "dscp"}}, {"tcp option": {"name": "maxseg", "field": "size"}}, {}, {"meta": {"key": "x"}}])
def test_a_change_of_what_is_no_mark_is_not_understood_and_no_error(key):
    (text,), _ = read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [{"mangle": {"key": key, "value": 1}}]}}])
    assert text.startswith("-j [{?mangle?")


def test_rules_of_another_family_are_not_among_them():
    assert read([*CHAIN, {"rule": {**PLACE, "chain": "c", "expr": [{"drop": None}]}}], IPV6) == ([], 0)
