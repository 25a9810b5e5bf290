"""What `nft list ruleset` prints, read into the objects that `nft -j` prints of the same (libnftables-json(5))."""

from __future__ import annotations

import pytest

from netinit.rules.nft.listing_text import read_listing

SADDR, DPORT = {"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"protocol": "tcp", "field": "dport"}}
MARK, FLAGS = {"meta": {"key": "mark"}}, {"payload": {"protocol": "tcp", "field": "flags"}}
MAXSEG = {"tcp option": {"name": "maxseg", "field": "size"}}


def match(left, right, op="=="):
    return {"match": {"op": op, "left": left, "right": right}}


@pytest.mark.parametrize(
    ("text", "statement"),
    [
        ("counter packets 3 bytes 40", {"counter": {"packets": 3, "bytes": 40}}), ('counter name "k"', {"counter": "k"}), ("counter", {"counter": {"packets": 0, "bytes": 0}}),
        ("tcp dport 80", match(DPORT, 80)), ("tcp dport != @s", match(DPORT, "@s", "!=")), ("tcp dport { 80, 90-95 }", match(DPORT, {"set": [80, {"range": [90, 95]}]})),
        ("ip saddr 10.0.0.0/8", match(SADDR, {"prefix": {"addr": "10.0.0.0", "len": 8}})), ("ip saddr != 10.0.0.1-10.0.0.9", match(SADDR, {"range": ["10.0.0.1", "10.0.0.9"]}, "!=")),
        (
            'ip saddr { 10.0.0.1 timeout 1h comment "x", 10.0.0.2 counter packets 1 bytes 2 }',
            match(SADDR, {"set": [{"elem": {"val": "10.0.0.1", "timeout": "1h", "comment": "x"}}, {"elem": {"val": "10.0.0.2", "counter": {"packets": 1, "bytes": 2}}}]}),
        ),
        ("ct state new,established", match({"ct": {"key": "state"}}, ["new", "established"], "in")), ("ct state != invalid", match({"ct": {"key": "state"}}, "invalid", "!=")),
        ("ct original ip saddr 10.0.0.1", match({"ct": {"key": "saddr", "dir": "original", "family": "ip"}}, "10.0.0.1")), ("meta mark & 0x3 == 0x1", match({"&": [MARK, 3]}, 1)),
        ("tcp flags syn / fin,syn,rst,ack", match({"&": [FLAGS, ["fin", "syn", "rst", "ack"]]}, "syn")), ("tcp flags & (syn | ack) == syn", match({"&": [FLAGS, {"|": ["syn", "ack"]}]}, "syn")),
        ("fib daddr . iif type local", match({"fib": {"flags": ["daddr", "iif"], "result": "type"}}, "local")), ("socket wildcard 0", match({"socket": {"key": "wildcard"}}, 0)),
        ("numgen inc mod 3 offset 1 == 2", match({"numgen": {"mode": "inc", "mod": 3, "offset": 1}}, 2)), ("numgen random mod 3 == 0", match({"numgen": {"mode": "random", "mod": 3, "offset": 0}}, 0)),
        (
            "ip saddr . tcp dport vmap { 10.0.0.1 . 80 : drop, 10.0.0.2 . 81 : jump x }",
            {"vmap": {"key": {"concat": [SADDR, DPORT]}, "data": {"set": [[{"concat": ["10.0.0.1", 80]}, {"drop": None}], [{"concat": ["10.0.0.2", 81]}, {"jump": {"target": "x"}}]]}}},
        ),
        ("meta mark set meta mark & 0xff | 0x100", {"mangle": {"key": MARK, "value": {"|": [{"&": [MARK, 255]}, 256]}}}), ("mark set 7", {"mangle": {"key": MARK, "value": 7}}),
        ("ct reply zone set 6", {"mangle": {"key": {"ct": {"key": "zone", "dir": "reply"}}, "value": 6}}), ("ip dscp set 4", {"mangle": {"key": {"payload": {"protocol": "ip", "field": "dscp"}}, "value": 4}}),
        ("tcp option maxseg size set rt mtu", {"mangle": {"key": MAXSEG, "value": {"rt": {"key": "mtu"}}}}), ("tcp option maxseg size set 1400", {"mangle": {"key": MAXSEG, "value": 1400}}),
        ("dnat ip to 10.1.1.1:80", {"dnat": {"family": "ip", "addr": "10.1.1.1", "port": 80}}), ("dnat to [fd00::1]:80", {"dnat": {"addr": "fd00::1", "port": 80}}),
        ("snat to 10.1.1.1", {"snat": {"addr": "10.1.1.1"}}), ("redirect to :15001", {"redirect": {"port": 15001}}), ("masquerade", {"masquerade": {}}),
        ("tproxy ip to 127.0.0.1:15006", {"tproxy": {"family": "ip", "addr": "127.0.0.1", "port": 15006}}), ("reject", {"reject": None}), ("reject with tcp reset", {"reject": {"type": "tcp reset"}}),
        ("reject with icmp type host-unreachable", {"reject": {"type": "icmp", "expr": "host-unreachable"}}), ('log prefix "x" level warn group 2', {"log": {"prefix": "x", "level": "warn", "group": 2}}),
        ("limit rate over 5/minute burst 7 packets", {"limit": {"rate": 5, "per": "minute", "inv": True, "burst": 7}}), ("limit rate 5/second", {"limit": {"rate": 5, "per": "second", "inv": False}}),
        ('dup to 10.0.0.9 device "eth0"', {"dup": {"addr": "10.0.0.9", "dev": "eth0"}}), ("queue flags bypass,fanout num 1-3", {"queue": {"flags": ["bypass", "fanout"], "num": "1-3"}}),
        ("jump c", {"jump": {"target": "c"}}), ("goto c", {"goto": {"target": "c"}}), ("accept", {"accept": None}), ("notrack", {"notrack": None}), ('xt target "TEE"', {"xt": {"type": "target", "name": "TEE"}}),
        ("what is this", {"unknown": "what is this"}), ('say "this" 5', {"unknown": 'say "this" 5'}),
    ],
)  # fmt: skip
def test_a_statement_is_the_object_that_nft_prints_of_it(text, statement):
    *_, one = read_listing(f'table ip t {{\n\tchain c {{\n\t\t{text} comment "why"\n\t}}\n}}\n')
    assert one == {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [statement], "comment": "why"}}


@pytest.mark.parametrize(
    ("comment", "extension"),
    [
        ("# xt_owner", {"type": "match", "name": "owner"}), ("# match owner", {"type": "match", "name": "owner"}), ("#match owner 1 2", {"type": "match", "name": "owner"}),
        ("# target TEE", {"type": "target", "name": "TEE"}), ("# xt_TEE", {"type": "target", "name": "TEE"}), ("# matches owner", None), ("# handle 3", None),
    ],
)  # fmt: skip
def test_a_comment_in_which_older_versions_of_nft_name_an_extension_is_that_extension(comment, extension):
    *_, one = read_listing(f"table ip t {{\n\tchain c {{\n\t\ttcp dport 80 {comment}\n\t}}\n}}\n")
    assert one["rule"]["expr"] == [match(DPORT, 80), *([{"xt": extension}] if extension else [])]


LISTING = """# of a table
table inet t {
	comment "of t"
	flags dormant
	set s {
		type ipv4_addr . inet_service
		flags interval,timeout
		elements = { 10.0.0.1 . 80,
			10.0.0.2 . 81 }
	}
	map m {
		typeof ip saddr : verdict
		elements = { 10.0.0.1 : drop }
	}
	counter k {
		packets 1 bytes 2
	}
	chain c {
		comment "of c"
		type filter hook ingress devices = { "eth0", "eth1" } priority filter + 5; policy drop;
	}
}
"""


def test_tables_sets_maps_and_chains_are_the_objects_that_nft_prints_of_them():
    place = {"family": "inet", "table": "t"}
    assert read_listing(LISTING) == [
        {"table": {"family": "inet", "name": "t", "comment": "of t", "flags": ["dormant"]}},
        {"set": {**place, "name": "s", "type": ["ipv4_addr", "inet_service"], "flags": ["interval", "timeout"], "elem": [{"concat": ["10.0.0.1", 80]}, {"concat": ["10.0.0.2", 81]}]}},
        {"map": {**place, "name": "m", "type": [{"typeof": "ip saddr"}], "map": "verdict", "elem": [["10.0.0.1", {"drop": None}]]}},
        {"chain": {**place, "name": "c", "type": "filter", "hook": "ingress", "dev": ["eth0", "eth1"], "prio": "filter + 5", "policy": "drop"}},
    ]
