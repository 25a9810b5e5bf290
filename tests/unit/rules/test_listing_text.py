"""What `nft list ruleset` prints, read into the objects that `nft -j` prints of the same (libnftables-json(5))."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from netinit.base.errors import ParseError
from netinit.rules.nft import listing_text
from netinit.rules.nft.listing_objects import read_objects
from netinit.rules.nft.listing_text import NOT_IN_FORCE, leave_tables_out, read_listing

SADDR, DPORT = {"payload": {"protocol": "ip", "field": "saddr"}}, {"payload": {"protocol": "tcp", "field": "dport"}}
MARK, FLAGS = {"meta": {"key": "mark"}}, {"payload": {"protocol": "tcp", "field": "flags"}}
MAXSEG = {"tcp option": {"name": "maxseg", "field": "size"}}
DROP, OPTION = {"drop": None}, {"payload": {"protocol": "tcp", "field": "option"}}


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
    assert expressions(f"counter name k {text}", table="t") == [{"counter": "k"}, statement]


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


# ---- what is no listing, and where --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("table ip t {\n\tchains c {\n\t}\n}\n", "line 2: 'chains' has no place there in a listing of nft"), ('table ip t {\n\t"chain" c {\n\t}\n}\n', "line 2: 'chain' has no place there in a listing of nft"),
        ("table ip t {\n\tchain c\n\t{\n\t}\n}\n", "line 2: '\\n' has no place there in a listing of nft"), ('table ip t {\n\n\tset s "{"\n}\n', "line 3: '{' has no place there in a listing of nft"),
        ("table ip t {\n\tmap m }\n\t}\n}\n", "line 2: '}' has no place there in a listing of nft"), ("\n\ntable ip t { chain }", "line 3: '' has no place there in a listing of nft"),
        ("table ip t { flags dormant; comment }", "line 1: '' has no place there in a listing of nft"), ("table ip t {\n\tcomment }", "line 2: '' has no place there in a listing of nft"), ("table ip t {\n\tcounter k\n}\n", "line 2: '\\n' has no place there in a listing of nft"),
        ("table ip t {\n\tcounter }", "line 2: '}' has no place there in a listing of nft"), ('table ip t {\n\tchain c {\n\t\taccept\n\t}\n\t"}"\n}\n', "line 5: '}' has no place there in a listing of nft"), ("table ip t {\n\n\t{ }\n}\n", "line 3: '{' has no place there in a listing of nft"), ("table ip t {\n\tchain c {\n\t\ttype filter hook\n\t}\n}\n", "line 3: 'type' has no place there in a listing of nft"),
        ("table ip t {\n\tchain c {\n\t\ttype filter hook input policy accept;\n\t}\n}\n", "line 3: 'type' has no place there in a listing of nft"), ("table ip t {\n\t# match owner\n}\n", "line 2: 'xt' has no place there in a listing of nft"),
        ("table ip t {\n\tchain c {\n\t\ttype filter hook input priority 0; policy accept;\n\t\ta; b; c\n\t}\n\tx\n}\n", "line 6: 'x' has no place there in a listing of nft"),
        (f"table ip t {{\n\t{'x' * 40}\n}}\n", f"line 2: '{'x' * 40}' has no place there in a listing of nft"), (f"table ip t {{\n\t{'x' * 41}\n}}\n", f"line 2: '{'x' * 40}…' has no place there in a listing of nft"),
        ("table ip t {\n\tchain c {\n\t\taccept\n", "line 4: the listing is cut off inside of a table; save all of it: nft list ruleset > FILE"), ("\ntable ip t {", "line 2: the listing is cut off inside of a table; save all of it: nft list ruleset > FILE"),
        ('x\ntable ip t {\n\taccept\n\tcomment "a\n}\n', 'line 4: comment "a cannot be read: a quote does not close'), ('table ip t {\n\tcomment "' + "a" * 90, f'line 2: comment "{"a" * 71}… cannot be read: a quote does not close'),
        (f'table ip t {{\n{"a" * 79}"', f'line 2: {"a" * 79}" cannot be read: a quote does not close'), ('table ip t { "', 'line 1: table ip t { " cannot be read: a quote does not close'),
        (f"add rule {'r' * 71}", f'line 1: "add rule {"r" * 71}": {NOT_IN_FORCE}'), (f"\n\n add rule {'r' * 72}\nadd rule x", f'line 3: "add rule {"r" * 71}…": {NOT_IN_FORCE}'),
    ],
)  # fmt: skip
def test_what_is_no_listing_is_refused_with_its_line_and_its_text(text, message):
    with pytest.raises(ParseError) as error:
        read_listing(text)
    assert str(error.value) == message


WHOLE = """table inet filter {
	comment "all { of it }"
	flags dormant
	flowtable f {
		hook ingress priority 0; devices = { eth0 };
	}
	set s {
		type ipv4_addr
		flags interval
		elements = { 10.0.0.1, 10.0.0.2 timeout 1h comment "x" }
	}
	map m {
		type inet_service : verdict
		elements = { 80 : drop, 81 : jump d }
	}
	chain c {
		comment "of c"
		type filter hook ingress devices = { "eth0", "eth1" } priority filter + 5; policy drop;
		tcp dport { 80, 90-95 } ct state new,established counter packets 1 bytes 2 log prefix "x" jump d comment "why" # handle 3
		iifname "eth0" meta mark set meta mark & 0xff | 0x100 tcp flags & (syn | ack) == syn dnat ip to 10.0.0.1:80
		ip saddr . tcp dport vmap { 10.0.0.1 . 80 : accept } reject with icmp type host-unreachable
		tcp option maxseg size set rt mtu limit rate over 5/minute burst 7 packets queue flags bypass num 1 dup to 10.0.0.9 device "eth0"
		meta mark set jhash ip saddr . ip daddr mod 3 seed 0x1 offset 2 ct original ip saddr 10.0.0.1 fib daddr . iif type local
	}
	chain d {
	}
}
"""


def test_a_listing_that_was_cut_off_is_never_read_as_less():
    for end in range(WHOLE.index("{") + 1, len(WHOLE) - 2):
        with pytest.raises(ParseError, match=r"^line \d+: .*(cut off inside of a table|a quote does not close)"):
            read_listing(WHOLE[:end])


def test_a_word_more_or_less_or_another_in_its_place_makes_another_listing_or_none_and_no_error_but_that():
    whole = read_listing(WHOLE)
    pieces = re.findall(r'"[^"\n]*"|\w+|\s+|.', WHOLE)
    for at in range(8, len(pieces) - 2):
        for piece in ("", "{", "}", ";", '"x"', pieces[at] * 2):
            text = "".join([*pieces[:at], piece, *pieces[at + 1 :]])
            with suppress(ParseError):
                read_objects(read_listing(text))
    assert read_listing(WHOLE) == whole


def test_a_listing_has_as_many_words_as_are_read(monkeypatch):
    text = "table ip t {\n}\n"
    monkeypatch.setattr(listing_text, "MAX_TOKENS", 5)  # those of the line, and its end
    assert read_listing(text) == [{"table": {"family": "ip", "name": "t"}}]
    with pytest.raises(ParseError, match=r"^line 2: the listing is longer than netinit reads; list the tables that matter alone$"):
        read_listing("table ip t {\n\n}\n")


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("", ""), ("a\nb\n", "a\nb\n"), ("table ip t {\n}\n", "\n\n"), ("a\n  table ip t {\n\tchain c {\n\t}\n}\nb\ntable inet u { }c\n", "a\n\n\n\n\nb\nc\n"), ("table ip t { } table ip u { }", " table ip u { }"),
        ("ip table t {\n}\n", "ip table t {\n}\n"),
    ],
)  # fmt: skip
def test_without_its_tables_a_text_has_as_many_lines(text, rest):
    assert leave_tables_out(text) == rest
    assert rest.count("\n") == text.count("\n")


def test_a_table_that_is_cut_off_is_not_left_out():
    with pytest.raises(ParseError, match=r"^line 6: the listing is cut off inside of a table"):
        leave_tables_out("a\ntable ip t {\n}\nb\ntable ip u {\n")


# ---- tables of iptables-nft, which nft translates ---------------------------------------------------------------------------

LOST_MATCH, LOST_TARGET = {"xt": {"type": "match", "name": "a match"}}, {"xt": {"type": "target", "name": "a target"}}
CONNTRACK = {"xt": {"type": "match", "name": "conntrack"}}
COUNTER, STATUS = {"counter": {"packets": 1, "bytes": 2}}, {"ct": {"key": "status"}}


def expressions(rule, family="ip", table="filter"):
    *_, one = read_listing(f"table {family} {table} {{\n\tchain c {{\n\t\t{rule}\n\t}}\n}}\n")
    return one["rule"]["expr"]


@pytest.mark.parametrize(
    ("rule", "translated", "listed"),
    [
        ("counter packets 1 bytes 2", [COUNTER, LOST_TARGET], [COUNTER]), ("tcp dport 80 counter packets 1 bytes 2", [match(DPORT, 80), COUNTER, LOST_TARGET], [match(DPORT, 80), COUNTER]),
        ("tcp dport 80", [match(DPORT, 80)], [match(DPORT, 80)]), ("counter packets 1 bytes 2 drop", [COUNTER, {"drop": None}], [COUNTER, {"drop": None}]),
        ("limit rate 5/second counter packets 1 bytes 2", [{"limit": {"rate": 5, "per": "second", "inv": False}}, COUNTER, LOST_TARGET], [{"limit": {"rate": 5, "per": "second", "inv": False}}, COUNTER]),
        ("tcp dport 80  counter packets 1 bytes 2 drop", [LOST_MATCH, match(DPORT, 80), COUNTER, {"drop": None}], [match(DPORT, 80), COUNTER, {"drop": None}]),
        ("tcp dport 80 counter packets 1 bytes 2  drop", [LOST_MATCH, match(DPORT, 80), COUNTER, {"drop": None}], [match(DPORT, 80), COUNTER, {"drop": None}]),
        ("tcp  dport 80 drop", [LOST_MATCH, match(DPORT, 80), {"drop": None}], [match(DPORT, 80), {"drop": None}]), ('  log prefix "a  b"', [{"log": {"prefix": "a  b"}}], [{"log": {"prefix": "a  b"}}]),
        ("ct status dnat drop", [CONNTRACK, {"drop": None}], [match(STATUS, "dnat", "in"), {"drop": None}]), ("ct state new drop", [match({"ct": {"key": "state"}}, "new", "in"), {"drop": None}], [match({"ct": {"key": "state"}}, "new", "in"), {"drop": None}]),
        ("newer thing", [{"unknown": "newer thing"}], [{"unknown": "newer thing"}]), ("tcp dport { 80, 81 } drop", [match(DPORT, {"set": [80, 81]}), DROP], [match(DPORT, {"set": [80, 81]}), DROP]),
    ],
)  # fmt: skip
def test_what_nft_leaves_out_of_a_rule_of_iptables_is_a_match_or_a_target_that_is_not_known(rule, translated, listed):
    for family, table in (("ip", "filter"), ("ip6", "nat"), ("ip", "raw"), ("ip6", "mangle"), ("ip", "security")):
        assert expressions(rule, family, table) == translated
    for family, table in (("ip", "theirs"), ("inet", "filter"), ("bridge", "nat")):
        assert expressions(rule, family, table) == listed


# ---- tables, chains and sets ------------------------------------------------------------------------------------------------


def test_objects_that_decide_nothing_are_passed_over_with_all_their_braces():
    others = ["counter k {\n\t\tpackets 1 bytes 2\n\t}", "quota q {\n\t}", "limit l {\n\t\trate 5/second\n\t}", 'ct helper "h" {\n\t\ttype "{" protocol tcp\n\t}', "flowtable f {\n\t\tdevices = { eth0, { } }\n\t}", "synproxy s { }", "secmark m { }", "tunnel t { }"]
    text = "table ip t {\n" + "".join(f"\t{one}\n" for one in others) + "\tchain c {\n\t}\n}\n"
    assert read_listing(text) == [{"table": {"family": "ip", "name": "t"}}, {"chain": {"family": "ip", "table": "t", "name": "c"}}]


@pytest.mark.parametrize(
    ("line", "listed"),
    [
        ("type filter hook input priority 0; policy accept;", {"type": "filter", "hook": "input", "prio": "0", "policy": "accept"}), ("type nat hook output priority dstnat", {"type": "nat", "hook": "output", "prio": "dstnat"}),
        ('type filter hook ingress device "eth0" priority 5; policy drop;', {"type": "filter", "hook": "ingress", "dev": ["eth0"], "prio": "5", "policy": "drop"}),
        ("type filter hook ingress devices = { eth0, eth1 } priority raw - 5;", {"type": "filter", "hook": "ingress", "dev": ["eth0", "eth1"], "prio": "raw - 5"}),
        ('type filter hook ingress devices = { "device", "devices" } priority 0;', {"type": "filter", "hook": "ingress", "prio": "0", "dev": ["device", "devices"]}),
        ('comment "of c"', {}), ("comment 'of", None), ("policy", None), ("policy accept drop", None), ('"policy" accept', None), ('"type" filter hook input priority 0', None), ("type filter", None), ('comment "a" "b"', None), ("comment x", None),
    ],
)  # fmt: skip
def test_a_line_of_a_chain_is_its_hook_its_policy_its_comment_or_a_rule(line, listed):
    *_, one = read_listing(f"table inet t {{\n\tchain c {{\n\t\t{line}\n\t}}\n}}\n")
    if listed is None:
        assert one["rule"]["chain"] == "c"
        assert next(iter(one["rule"]["expr"][0])) == "unknown"
    else:
        assert one == {"chain": {"family": "inet", "table": "t", "name": "c", **listed}}


@pytest.mark.parametrize(
    ("kind", "lines", "listed"),
    [
        ("set", ["type mark"], {"type": "mark"}), ("set", ["type ipv4_addr . mark"], {"type": ["ipv4_addr", "mark"]}), ("set", ["typeof ip saddr . meta mark"], {"type": [{"typeof": "ip saddr . meta mark"}]}),
        ("set", ["typeof ip saddr : verdict"], {"type": [{"typeof": "ip saddr"}]}), ("map", ["typeof ip saddr : meta mark"], {"type": [{"typeof": "ip saddr"}], "map": "meta mark"}),
        ("map", ["type mark : ipv4_addr . inet_service"], {"type": "mark", "map": "ipv4_addr . inet_service"}), ("map", ["type mark"], {"type": "mark", "map": ""}), ("set", ["size 65535", "auto-merge", "timeout 1h", "policy memory"], {}),
        ("set", ["flags constant,timeout"], {"flags": ["constant", "timeout"]}), ("set", ["elements = { 1, 2 }"], {"elem": [1, 2]}), ("set", ["elements = { }"], {"elem": []}), ("set", ["elements = { 1, }"], {"elem": [1]}),
        ("map", ['elements = { 1 : 2, 3 : goto c, 4 : "x" }'], {"elem": [[1, 2], [3, {"goto": {"target": "c"}}], [4, "x"]]}), ("map", ['elements = { 1 comment "x" : accept }'], {"elem": [[{"elem": {"val": 1, "comment": "x"}}, {"accept": None}]]}),
        ("set", ["elements = { 1 } x"], {"elem": {"unknown": "elements = { 1 } x"}}), ("set", ["elements = 1"], {"elem": {"unknown": "elements = 1"}}), ("set", ["elements = { 1 2 }"], {"elem": {"unknown": "elements = { 1 2 }"}}),
        ("set", [f"elements = {{ {'1' * 70} 2 }}"], {"elem": {"unknown": f"elements = {{ {'1' * 67}…"}}), ("set", ["elements == { 1 }"], {}), ("set", ['comment "x"'], {}), ("set", [], {}),
        ("set", ["elements = { 1 expires 5s timeout 1h counter packets 3 bytes 4, 2 counter }"], {"elem": [{"elem": {"val": 1, "expires": "5s", "timeout": "1h", "counter": {"packets": 3, "bytes": 4}}}, {"elem": {"val": 2, "counter": {"packets": 0, "bytes": 0}}}]}),
    ],
)  # fmt: skip
def test_a_line_of_a_set_or_a_map_is_its_types_its_flags_or_its_elements(kind, lines, listed):
    text = "".join(f"\t\t{line}\n" for line in lines)
    assert read_listing(f"table ip t {{\n\t{kind} s {{\n{text}\t}}\n}}\n")[1:] == [{kind: {"family": "ip", "table": "t", "name": "s", **listed}}]


def test_what_stands_on_one_line_is_what_stands_on_several():
    chains = [{"chain": {"family": "ip", "table": "t", "name": name}} for name in ("c", "d")]
    rules = [{"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"log": {"prefix": "}"}}, DROP]}}, {"rule": {"family": "ip", "table": "t", "chain": "c", "expr": [{"accept": None}]}}]
    for text in ('table ip t { chain c { log prefix "}" drop; accept } chain d { } }', 'table ip t {\nchain c {\n;;log prefix "}" drop\n\naccept\n}\nchain d {\n}\n}'):
        assert read_listing(text) == [{"table": {"family": "ip", "name": "t"}}, chains[0], *rules, chains[1]]


# ---- statements and conditions -----------------------------------------------------------------------------------------------

PRIORITY, CT_MARK, UDP_SPORT = {"meta": {"key": "priority"}}, {"ct": {"key": "mark"}}, {"payload": {"protocol": "udp", "field": "sport"}}
DADDR, STATE = {"payload": {"protocol": "ip", "field": "daddr"}}, {"ct": {"key": "state"}}


def set_mark(value, key=MARK):
    return {"mangle": {"key": key, "value": value}}


def unknown(text):
    return [{"unknown": text}]


@pytest.mark.parametrize(
    ("rule", "listed"),
    [
        ("accept", [{"accept": None}]), ("drop", [DROP]), ("return", [{"return": None}]), ("continue", [{"continue": None}]), ("jump d", [{"jump": {"target": "d"}}]), ("goto d", [{"goto": {"target": "d"}}]),
        ("jump", unknown("jump")), ('drop "drop" drop', [DROP, *unknown('"drop" drop')]), ("drop comment x", [DROP, *unknown("comment x")]), ('drop comments "x"', [DROP, *unknown('comments "x"')]),
        ("mark 7", [match(MARK, 7)]), ("meta priority set 7", [set_mark(7, PRIORITY)]), ("ct mark set 7", [set_mark(7, CT_MARK)]), ("meta mark 7", [match(MARK, 7)]),
        ("ct original zone set 5", [set_mark(5, {"ct": {"key": "zone", "dir": "original"}})]), ("ct zone set 5 drop", [set_mark(5, {"ct": {"key": "zone"}}), DROP]), ("ct mark set", unknown("ct mark set")),
        ("meta mark set ct mark", [set_mark(CT_MARK)]), ("ct mark set meta mark", [set_mark(MARK, CT_MARK)]), ("meta mark set mark", [set_mark(MARK)]), ("meta mark set mark or 0x1", [set_mark({"|": [MARK, 1]})]),
        ("meta mark set (meta mark & 0xff) ^ 0x3 drop", [set_mark({"^": [{"&": [MARK, 255]}, 3]}), DROP]), ("meta mark set meta mark & (0xff | 0x100)", [set_mark({"&": [MARK, {"|": [255, 256]}]})]),
        ("meta mark set meta mark and 0xff or 0x1 xor 0x2", [set_mark({"^": [{"|": [{"&": [MARK, 255]}, 1]}, 2]})]), ("meta mark set (ct mark", unknown("meta mark set ( ct mark")), ("meta mark set (ct mark |)", unknown("meta mark set ( ct mark | )")),
        (f"meta mark set {'(' * 8}1{')' * 8}", [set_mark(1)]), (f"meta mark set {'(' * 9}1{')' * 9}", unknown(f"meta mark set {'( ' * 9}1{' )' * 9}")),
        (f"meta mark set 1 & {'(' * 7}1{')' * 7}", [set_mark({"&": [1, 1]})]), (f"meta mark set 1 & {'(' * 8}1{')' * 8}", unknown(f"meta mark set 1 & {'( ' * 8}1{' )' * 8}")),
        ("meta mark set numgen inc mod 3", [set_mark({"numgen": {"mode": "inc", "mod": 3, "offset": 0}})]), ("meta mark set symhash mod 3 offset 1", [set_mark({"symhash": {"mod": 3, "offset": 1}})]),
        ("ip6 hoplimit set 4", [{"mangle": {"key": {"payload": {"protocol": "ip6", "field": "hoplimit"}}, "value": 4}}]), ("ip ttl set", unknown("ip ttl set")), ("ether saddr set 00:00:00:00:00:01", [{"mangle": {"key": {"payload": {"protocol": "ether", "field": "saddr"}}, "value": "00:00:00:00:00:01"}}]),
        ("tcp option maxseg size 5", [match(OPTION, "maxseg"), *unknown("size 5")]), ("udp option maxseg size set 5", [match({"payload": {"protocol": "udp", "field": "option"}}, "maxseg"), *unknown("size set 5")]), ("tcp option maxseg size set rt", unknown("tcp option maxseg size set rt")),
        ("counter drop", [{"counter": {"packets": 0, "bytes": 0}}, DROP]), ("counter packets 1 drop", unknown("counter packets 1 drop")), ("counter packets x bytes 1", unknown("counter packets x bytes 1")), ("counter name k drop", [{"counter": "k"}, DROP]), ("counter name", unknown("counter name")),
        (f"counter packets {'9' * 20} bytes 0", [{"counter": {"packets": int("9" * 20), "bytes": 0}}]), (f"counter packets {'9' * 21} bytes 0", unknown(f"counter packets {'9' * 21} bytes 0")), ("counter packets \u0663 bytes 0", unknown("counter packets \u0663 bytes 0")),
    ],
)  # fmt: skip
def test_statements_that_end_or_change_a_packet_are_objects_of_nft_and_the_rest_of_a_rule_is_not_understood(rule, listed):
    assert expressions(rule, table="t") == listed


@pytest.mark.parametrize(
    ("rule", "listed"),
    [
        ("dnat to [fd00::1]", {"addr": "fd00::1"}), ("dnat ip6 to [fd00::1]:80", {"family": "ip6", "addr": "fd00::1", "port": 80}), ("dnat to fd00::1", {"addr": "fd00::1"}), ("dnat to 10.0.0.1:80", {"addr": "10.0.0.1", "port": 80}), ("dnat to :80", {"port": 80}),
        ("dnat to 10.0.0.1:", {"addr": "10.0.0.1"}), ("dnat to [fd00::1]:", {"addr": "fd00::1"}), ("dnat to [fd00::1", None), ("dnat to [fd00::1]80", None), ("dnat to [fd00::1]:80]", None), ("dnat to :", None), ("dnat to []", None), ("dnat to 10.0.0.1:http", None), ("dnat to :\u0663", None),
        ("dnat to", None), ("dnat ip", {"family": "ip"}), ("dnat", {}), ("dnat drop", None), ("snat ip drop", None), ("snat to 10.0.0.1 persistent", None), ("snat to 10.0.0.1", {"addr": "10.0.0.1"}), ("dnat to 10.0.0.1 fully-random", None), ("dnat to 10.0.0.1 random", None),
        ("redirect", {}), ("redirect to :80", {"port": 80}), ("redirect to 80", {"port": 80}), ("redirect to 10.0.0.1", None), ("redirect to \u0663", None), ("redirect to :80 persistent", None),
        ("masquerade", {}), ("masquerade random", {}), ("masquerade fully-random,persistent", {}), ("masquerade to :80-90", None), ("masquerade to :80", {"port": 80}), ("masquerade to :80 random", {"port": 80}),
        ("tproxy to :80", {"port": 80}), ("tproxy ip6 to [::1]:80", {"family": "ip6", "addr": "::1", "port": 80}), ("tproxy to 127.0.0.1:80", {"addr": "127.0.0.1", "port": 80}),
    ],
)  # fmt: skip
def test_a_translation_leads_to_an_address_a_port_or_both_and_to_nothing_else(rule, listed):
    assert expressions(rule, table="t") == (unknown(rule) if listed is None else [{rule.split()[0]: listed}])
    if listed or rule in ("redirect", "masquerade"):
        assert expressions(f"{rule} drop", table="t") == (unknown(f"{rule} drop") if rule == "dnat ip" else [{rule.split()[0]: listed}, DROP])


@pytest.mark.parametrize(
    ("rule", "listed"),
    [
        ("reject", {"reject": None}), ("reject with icmpx port-unreachable", {"reject": {"type": "icmpx", "expr": "port-unreachable"}}), ("reject with icmpv6 type no-route", {"reject": {"type": "icmpv6", "expr": "no-route"}}), ("reject with tcp reset", {"reject": {"type": "tcp reset"}}),
        ("reject with tcp", None), ("reject with tcp type", None), ("reject with icmp", None), ("log", {"log": {}}), ("log group 3 snaplen 4 queue-threshold 5", {"log": {"group": 3, "snaplen": "4", "queue-threshold": "5"}}), ("log group x", {"log": {"group": "x"}}),
        ("log group \u0663", {"log": {"group": "\u0663"}}), ("log level warn flags tcp sequence,options", {"log": {"level": "warn", "flags": "tcp"}}), ("log flags ip options", {"log": {"flags": "ip"}}), ("log flags all", {"log": {"flags": "all"}}), ("log prefix", None),
        ("limit rate 5/second", {"limit": {"rate": 5, "per": "second", "inv": False}}), ("limit rate over 5/day burst 2 packets", {"limit": {"rate": 5, "per": "day", "inv": True, "burst": 2}}), ("limit 5/second", None), ("limit rate 5", None), ("limit rate 5/a/b", {"limit": {"rate": 5, "per": "a/b", "inv": False}}), ("limit rate x/second", None),
        ("limit rate \u0663/second", None), ("limit rate 5/second burst 7", None), ("limit rate 5/second burst x packets", None), ("limit rate 5/second burst 7 bytes", None), ("dup to 10.0.0.9", {"dup": {"addr": "10.0.0.9"}}), ('dup to 10.0.0.9 device "eth0"', {"dup": {"addr": "10.0.0.9", "dev": "eth0"}}),
        ("dup 10.0.0.9", None), ("dup to", None), ("queue", {"queue": {"flags": []}}), ("queue num 3", {"queue": {"flags": [], "num": "3"}}), ("queue to 3-5", {"queue": {"flags": [], "num": "3-5"}}), ("queue num 3 bypass", {"queue": {"flags": ["bypass"], "num": "3"}}),
        ("queue flags bypass,fanout to 1-2", {"queue": {"flags": ["bypass", "fanout"], "num": "1-2"}}), ("queue flags fanout num", None), ("notrack", {"notrack": None}), ('xt match "owner"', {"xt": {"type": "match", "name": "owner"}}), ('xt target "TEE"', {"xt": {"type": "target", "name": "TEE"}}),
        ('xt ? "TEE"', {"xt": {"type": "target", "name": "TEE"}}), ('xt ? "owner"', {"xt": {"type": "match", "name": "owner"}}), ("xt match", None), ("xt", None),
    ],
)  # fmt: skip
def test_a_statement_takes_its_own_words_and_no_others(rule, listed):
    if listed is None:
        assert expressions(rule, table="t") == unknown(rule)
    else:
        assert expressions(f"counter name k {rule} drop", table="t") == [{"counter": "k"}, listed, DROP]


def field(left, right=1):
    return match(left, right)


@pytest.mark.parametrize(
    ("rule", "listed"),
    [
        ("tcp dport 80", match(DPORT, 80)), ("tcp dport == 80", match(DPORT, 80)), ("tcp dport != 80", match(DPORT, 80, "!=")), ("tcp dport < 80", match(DPORT, 80, "<")), ("tcp dport > 80", match(DPORT, 80, ">")), ("tcp dport <= 80", match(DPORT, 80, "<=")), ("tcp dport >= 80", match(DPORT, 80, ">=")),
        ("tcp dport 80,90", None), ("tcp dport != 80,90", None), ("tcp dport", None), ("tcp dport ==", None), ("tcp dport !", None), ("tcp", None), ("newer dport 80", None), ("tcp dport http", match(DPORT, "http")), ("tcp dport @s", match(DPORT, "@s")),
        ("ct state new", match(STATE, "new", "in")), ("ct state new,established", match(STATE, ["new", "established"], "in")), ("ct state == new", match(STATE, "new")), ("ct state != new,established", match(STATE, ["new", "established"], "!=")), ("ct state ! new", match(STATE, "new", "!")),
        ("ct state { new, established }", match(STATE, {"set": ["new", "established"]}, "in")), ("ct status dnat", match(STATUS, "dnat", "in")), ("ct status ! dnat,snat", match(STATUS, ["dnat", "snat"], "!")), ("ct direction reply", match({"ct": {"key": "direction"}}, "reply")), ("ct mark 1,2", None),
        ("tcp flags syn", match(FLAGS, "syn", "in")), ("tcp flags syn,ack", match(FLAGS, ["syn", "ack"], "in")), ("tcp flags == syn", match(FLAGS, "syn")), ("tcp flags & syn == syn", match({"&": [FLAGS, "syn"]}, "syn")), ("tcp flags and syn syn", match({"&": [FLAGS, "syn"]}, "syn")),
        ("tcp flags & (fin | syn or rst) == syn | fin | rst", match({"&": [FLAGS, {"|": ["fin", "syn", "rst"]}]}, {"|": ["syn", "fin", "rst"]})), ("tcp flags & (fin | syn == syn", None), ("tcp flags & (fin) != (syn | fin)", match({"&": [FLAGS, {"|": ["fin"]}]}, {"|": ["syn", "fin"]}, "!=")),
        ("tcp flags & (fin | syn) == syn,fin", match({"&": [FLAGS, {"|": ["fin", "syn"]}]}, ["syn", "fin"])), ("tcp flags syn / fin,syn", match({"&": [FLAGS, ["fin", "syn"]]}, "syn")), ("tcp flags != syn,fin / fin,syn,rst", match({"&": [FLAGS, ["fin", "syn", "rst"]]}, ["syn", "fin"], "!=")),
        ("tcp flags syn /", None), ("meta mark & 0x3 != 0x1", match({"&": [MARK, 3]}, 1, "!=")), ("meta mark and 0x3 0x1", match({"&": [MARK, 3]}, 1)), ("meta mark & 0x3 == { 1, 2 }", match({"&": [MARK, 3]}, {"set": [1, 2]})), ("meta mark &", None), ("meta mark 1 | 2", match(MARK, {"|": [1, 2]})),
        ("ip saddr . tcp dport { 10.0.0.1 . 80 }", match({"concat": [SADDR, DPORT]}, {"set": [{"concat": ["10.0.0.1", 80]}]})), ("ip saddr . ip daddr . tcp dport @s", match({"concat": [SADDR, DADDR, DPORT]}, "@s")), ("ip saddr . 10.0.0.1", None), ("ip saddr .", None),
        ("ip saddr . tcp dport != { 10.0.0.1 . 80, 10.0.0.2 . 81 }", match({"concat": [SADDR, DPORT]}, {"set": [{"concat": ["10.0.0.1", 80]}, {"concat": ["10.0.0.2", 81]}]}, "!=")), ("tcp dport vmap @m", {"vmap": {"key": DPORT, "data": "@m"}}),
        ("tcp dport vmap { 80 : accept, 81 : return, 82 : goto c, 83 : continue }", {"vmap": {"key": DPORT, "data": {"set": [[80, {"accept": None}], [81, {"return": None}], [82, {"goto": {"target": "c"}}], [83, {"continue": None}]]}}}), ("tcp dport vmap", None),
        ("tcp dport { 80, }", match(DPORT, {"set": [80]})), ("tcp dport { 80 81 }", None), ("tcp dport { , }", None), ("tcp dport { 80 : }", None), ("tcp dport { 80 timeout }", None), ("tcp dport {}", match(DPORT, {"set": []})),
        *[(f"{key} 1", field({"meta": {"key": key}})) for key in ("iif", "oif", "iifname", "oifname", "iiftype", "oiftype", "iifgroup", "oifgroup", "pkttype", "nftrace", "rtclassid", "priority", "skuid", "skgid", "protocol", "nfproto", "l4proto", "mark")],
        *[(f"{name} x 1", field({"payload": {"protocol": name, "field": "x"}})) for name in ("ip", "ip6", "tcp", "udp", "th", "icmp", "icmpv6", "igmp", "sctp", "dccp", "udplite", "esp", "ah", "comp", "ether", "arp", "vlan", "dst", "frag", "hbh", "mh", "gre")],
        ("ct reply ip6 saddr ::1", match({"ct": {"key": "saddr", "dir": "reply", "family": "ip6"}}, "::1")), ("ct original saddr 10.0.0.1", match({"ct": {"key": "saddr", "dir": "original"}}, "10.0.0.1")), ("ct original", None), ("ct", None), ("meta", None), ("socket", None), ("fib", None), ("fib saddr", None),
        ("fib saddr . mark . iif oif 1", field({"fib": {"flags": ["saddr", "mark", "iif"], "result": "oif"}})), ("fib saddr type local", match({"fib": {"flags": ["saddr"], "result": "type"}}, "local")), ("socket transparent 1", field({"socket": {"key": "transparent"}})), ("meta cpu 1", field({"meta": {"key": "cpu"}})),
        ("numgen inc mod 3 == 1", field({"numgen": {"mode": "inc", "mod": 3, "offset": 0}})), ("numgen inc 3 == 1", None), ("numgen random mod x == 1", None), ("symhash mod 3 1", field({"symhash": {"mod": 3, "offset": 0}})), ("jhash mod 3 1", None),
        ("jhash ip saddr mod 3 1", field({"jhash": {"mod": 3, "offset": 0}})), ("jhash ip saddr . ip daddr mod 3 seed 0x1 offset 2 1", field({"jhash": {"mod": 3, "offset": 2}})), ("jhash ip saddr . mod 3 1", None), ("numgen inc mod 3 offset x 1", None),
    ],
)  # fmt: skip
def test_a_condition_is_a_field_an_operator_and_values(rule, listed):
    spaced = re.sub(r" +", " ", re.sub(r"([{}(),|])", r" \1 ", rule)).strip()
    assert expressions(f"{rule} drop" if listed else rule, table="t") == ([listed, DROP] if listed else unknown(spaced))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("7", 7), ("007", 7), ('"7"', "7"), ('"10.0.0.0/8"', "10.0.0.0/8"), ('"1-2"', "1-2"), ("0x1F", 31), ("0xg", "0xg"), (f"0x{'f' * 16}", (1 << 64) - 1), (f"0x{'f' * 17}", f"0x{'f' * 17}"), ("9" * 20, int("9" * 20)), ("9" * 21, "9" * 21), ("\u0663", "\u0663"),
        ("@7", "@7"), ("@nets/24", "@nets/24"), ("80-90", {"range": [80, 90]}), ("fd00::1-fd00::9", {"range": ["fd00::1", "fd00::9"]}), ("0x1-0x2", {"range": ["0x1", "0x2"]}), ("a-b-c", "a-b-c"), ("1-", "1-"), ("eth-1", "eth-1"), (f"{'9' * 20}-{'9' * 21}", {"range": [int("9" * 20), "9" * 21]}),
        ("10.0.0.0/8", {"prefix": {"addr": "10.0.0.0", "len": 8}}), ("fd00::/128", {"prefix": {"addr": "fd00::", "len": 128}}), ("fd00::/1280", "fd00::/1280"), ("10.0.0.0/", "10.0.0.0/"), ("10.0.0.0/255.0.0.0", "10.0.0.0/255.0.0.0"), ("a/\u0663", "a/\u0663"), ("a/b", "a/b"), ("10.0.0.0/8/9", "10.0.0.0/8/9"),
    ],
)  # fmt: skip
def test_a_value_is_a_number_a_range_a_prefix_or_its_text(word, value):
    assert expressions(f"ip saddr {word}", table="t") == [match(SADDR, value)]
    assert expressions(f"ip saddr {{ {word}, {word} }}", table="t") == [match(SADDR, {"set": [value, value]})]
    assert expressions(f"ip saddr . ip daddr {{ {word} . {word} }}", table="t") == [match({"concat": [SADDR, DADDR]}, {"set": [{"concat": [value, value]}]})]
