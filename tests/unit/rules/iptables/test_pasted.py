"""Rules of iptables in a pasted text, line by line: what is read of each, what is said of the others, and what is refused with which words."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ParseError
from netinit.base.net import IPV4
from netinit.rules.iptables.parse import pasted
from netinit.rules.iptables.parse.pasted import (
    MAX_JOINED,
    as_typed,
    clean,
    has_open_quotes,
    has_rules,
    is_listed_by_l,
    read_pasted,
)

FORM = "give what `iptables-save` prints (and `ip6tables-save`), or `iptables -t nat -S`"
TABLES = "filter, mangle, nat, raw, security"
SAVED = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.0.0.1/32 -j RETURN\nCOMMIT\n"
FOUR = "-s 10.0.0.1 -j RETURN"  # a rule that IPv4 alone has
UNKNOWN = "nothing says whether the rules from line {} are those of IPv4 or IPv6: IPv4 is assumed"


def read(text):
    """What is read of a text: each table as `IPv4 nat`, with its rules by chain, and the policies of its chains."""
    found = read_pasted(text)
    return {f"{family.name} {name}": table.rules for family, listing in found.listings.items() for name, table in listing.items()}


def policies(text, family=IPV4):
    return {name: table.policies for name, table in read_pasted(text).listings[family].items()}


def refuse(text):
    with pytest.raises(ParseError) as error:
        read_pasted(text)
    return str(error.value)


# --- lines ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb", ["a", "b"]), ("\ufeffa\r\nb\rc\n", ["a", "b", "c", ""]), ("\x1b[1;32ma\x1b[0m b\x1b[?25h", ["a b"]),
        ("  a \t", ["a"]), ("> > a b", ["a b"]), (">a", ["a"]), (" > > a", ["a"]), ("a > b", ["a > b"]),
        ("2026-11-28T17:56:04.123456Z\tinfo\ta b", ["a b"]), ("2026-11-28 17:56:04,123+01:00 DEBUG a", ["a"]), ("2026-11-28T17:56:04Z other a", ["other a"]),
        ("2026-11-28 a", ["2026-11-28 a"]),
    ],
)  # fmt: skip
def test_a_line_is_what_stands_behind_indentation_quotation_and_the_time_of_a_log(text, lines):
    assert clean(text) == lines


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        (json.dumps({"level": "info", "msg": "a\nb\n"}), ["a", "b"]), (json.dumps({"message": "a"}), ["a"]), (json.dumps({"msg": "a\n \n\n"}), ["a", ""]), (json.dumps({"msg": "-j X\n"}), ["-j X"]), (json.dumps({"log": "a\n", "stream": "x"}), ["a"]),
        (json.dumps({"log": "c", "message": "b", "msg": "a"}), ["a"]), (json.dumps({"msg": 7, "message": "b"}), ["b"]), (json.dumps({"msg": ""}), [""]),
        ('{"text": "a"}', ['{"text": "a"}']), ('{"msg": "a"', ['{"msg": "a"']), ('{"msg": 7}', ['{"msg": 7}']), ('["msg"]', ['["msg"]']), ('{"' * 3, ['{"' * 3]),
        ("{'msg': 'a'}", ["{'msg': 'a'}"]),
    ],
)  # fmt: skip
def test_a_log_in_json_has_the_lines_of_its_message(line, lines):
    assert clean(line) == lines


def test_json_that_is_nested_too_deeply_is_a_line_as_it_stands():
    line = '{"a":' + "[" * 100_000
    assert clean(line) == [line]


def test_a_text_of_too_many_lines_is_refused(monkeypatch):
    monkeypatch.setattr(pasted, "MAX_LINES", 3)
    assert clean("a\nb\nc\nd") == ["a", "b", "c", "d"]
    with pytest.raises(ParseError, match=r"^the listing has more than 3 lines; give the tables that matter alone$"):
        clean("a\nb\nc\nd\n")


def before(*prefixes, lines=("*nat", ":OUTPUT ACCEPT [0:0]", "COMMIT")):
    """The lines of a listing behind one prefix each, in turns."""
    return "\n".join(f"{prefixes[number % len(prefixes)]}{line}" for number, line in enumerate(lines * len(prefixes)))


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        (before("pod app "), True), (before("12: "), True), (before("a7 "), True), (before("a 1| ", "b 2| "), True),
        (before("a ", "b ", "c ", "d "), True), (before("a ", "b ", "c ", "d ", "e "), False), (before("x" * 120 + " "), False), (before("x" * 119 + " "), True),
        (before("a ", lines=("*nat", ":OUTPUT ACCEPT [0:0]")), False), (before("a ", lines=("-P INPUT ACCEPT", "-P OUTPUT DROP")), True),
        (before("a ", lines=("-P INPUT ACCEPT", "COMMIT")), True), (before("a ", lines=("-P INPUT ACCEPT", "-N OWN")), False),
    ],
)  # fmt: skip
def test_what_a_program_wrote_before_every_line_is_cut_off_where_whole_lines_of_rules_are_left(text, is_cut):
    lines = text.split("\n")
    bare = [line[min(line.find(one) for one in ("*", ":OUT", "COMMIT", "-P", "-N") if one in line) :] for line in lines]
    assert clean(text) == (bare if is_cut else lines)


def test_numbers_and_blanks_of_a_prefix_may_change_from_line_to_line():
    assert clean("Nov  8 17:56:04 node[1]: *nat\nNov 18 17:56:05 node[12]: -A OUTPUT -j RETURN\nNov 18 7:00:00 other: COMMIT\nNov 18 1:1:1 node[9]: COMMIT") == [
        "*nat", "-A OUTPUT -j RETURN", "Nov 18 7:00:00 other: COMMIT", "COMMIT",
    ]  # fmt: skip


def test_nothing_is_cut_off_where_a_line_is_a_rule_as_it_stands():
    text = "note: *nat\n-N OWN\nnote: COMMIT"
    assert clean(text) == text.split("\n")


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("a\u00a0b\u2003c\u3000d", "a b c d"), ("a\u200bb\ufeffc\u00add", "abcd"), ("\u201ca\u201d \u2018b\u2019 \u201ec\u201f", "\"a\" 'b' \"c\""),
        ("\u2013A OUTPUT \u2014dport", "-A OUTPUT --dport"), ("\u2212j a\u2013b", "-j a\u2013b"), ("\u2013 a", "-- a"), ("\u2013\u2013dport", "--\u2013dport"), ("plain --a -b", "plain --a -b"),
    ],
)  # fmt: skip
def test_blanks_quotes_and_dashes_of_a_word_processor_are_those_of_a_keyboard(text, typed):
    assert as_typed(text) == typed


@pytest.mark.parametrize(
    ("lines", "is_open"),
    [
        (['-A X -m comment --comment "a'], True), (['[1:2] -A X "a'], True), (['-A X "a"'], False), (['-A X "a\\""'], False), (['-A X "a\\"'], True), (['-A X "a\\\\"'], False),
        (['-A X \\"a"'], False), (['note "a'], False), (["x", '-A X "'], True), ([], False),
    ],
)  # fmt: skip
def test_a_comment_goes_on_where_its_quote_is_not_closed(lines, is_open):
    assert has_open_quotes(lines) is is_open


@pytest.mark.parametrize(
    ("lines", "has"),
    [
        (["-A OUTPUT -p tcp -j RETURN"], True), (["-A OUTPUT -p tcp -j"], False), (["-A OUTPUT -g X"], True), (["-I OUTPUT -p tcp -j RETURN"], True), (["x -A OUTPUT -j RETURN"], False),
        (["[1:2] -A OUTPUT -p tcp -j RETURN -c"], True), (["-A"], False), (["-P INPUT ACCEPT"], True), (["-P INPUT DROP [0:0]"], True), (["-P INPUT -"], False), (["-N OWN"], True),
        (["-N 1"], False), (["-N OWN more"], False), (["*nat"], True), (["* nat"], True), (["*Nat"], False), (["iptables -A OUTPUT -j RETURN"], True), (["iptables -R OUTPUT 1 -j RETURN"], True),
        (["iptables -S"], False), (["use -A with iptables"], True), (["use -A with tables"], False), (["x", "", "/sbin/ip6tables-nft -F"], True), ([], False),
    ],
)  # fmt: skip
def test_a_text_has_rules_where_a_line_is_one_of_a_listing_or_a_command_that_changes_some(lines, has):
    assert has_rules(lines) is has


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("Chain INPUT (policy ACCEPT)\ntarget     prot", True), ("Chain OWN (2 references)\ntarget", True), ("> Chain OWN (0 references)\n> target", True),
        ("Chain INPUT (policy ACCEPT)", False), ("target", False), ("a Chain INPUT (policy ACCEPT)\ntarget", False), ("Chain OWN (x)\ntarget", False),
    ],
)  # fmt: skip
def test_what_iptables_l_prints_is_known_by_its_headings(text, is_one):
    assert is_listed_by_l(text) is is_one


# --- listings ---------------------------------------------------------------------------------------------------------


def test_a_listing_is_read_with_its_policies_chains_and_rules_in_order():
    text = "*nat\n:PREROUTING DROP [1:2]\n:OUTPUT - [0:0]\n:OWN -\n-A OUTPUT -d 10.0.0.1/32 -j OWN\n-A OWN -p tcp\n-A OUTPUT -j RETURN\nCOMMIT\n*filter\nCOMMIT\n"
    assert read(text) == {"IPv4 nat": {"PREROUTING": [], "OUTPUT": ["-d 10.0.0.1/32 -j OWN", "-j RETURN"], "OWN": ["-p tcp"]}, "IPv4 filter": {}}
    assert policies(text) == {"nat": {"PREROUTING": "DROP", "OUTPUT": "ACCEPT", "OWN": "-"}, "filter": {}}
    assert read_pasted(text).notes == read_pasted(text).warnings == ()


@pytest.mark.parametrize("table", TABLES.split(", "))
def test_each_table_of_iptables_is_read(table):
    assert read(SAVED.replace("nat", table)) == {f"IPv4 {table}": {"OUTPUT": ["-d 10.0.0.1/32 -j RETURN"]}}


def test_what_surrounds_a_listing_is_left_out_and_counted():
    assert read_pasted(f"hello\n{SAVED}").notes == ('1 line around the rules: not read, such as "hello"',)
    assert read_pasted(f"hello\nworld\n\n```\n{SAVED}```\n~~~\nbye\n").notes == ('3 lines around the rules: not read, such as "hello"',)
    assert read_pasted(f"{SAVED}bye\n").notes == ('1 line around the rules: not read, such as "bye"',)
    assert read_pasted(f"{SAVED}between\n{SAVED.replace('nat', 'raw')}").notes == ('1 line around the rules: not read, such as "between"',)
    assert read_pasted(f"hello\niptables -t nat -S\n-A OUTPUT {FOUR}\nbye\n").notes == ('2 lines around the rules: not read, such as "hello"',)
    assert read_pasted(f"hello\niptables -A OUTPUT {FOUR}\nbye\n").notes == ('2 lines around the rules: not read, such as "hello"',)
    assert read_pasted(f"hello\n-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-A OUTPUT {FOUR}\n").notes[0] == '1 line around the rules: not read, such as "hello"'


def test_counters_of_a_rule_stand_before_it_whichever_command_printed_them():
    saved = SAVED.replace("-A", "[7:420]   -A")
    assert read(saved)["IPv4 nat"]["OUTPUT"] == ["[7:420] -d 10.0.0.1/32 -j RETURN"]
    for counted in ("-s 10.0.0.1 -c 7 420 -j RETURN", "-c 7 420 -s 10.0.0.1 -j RETURN", "-s 10.0.0.1 -j RETURN -c 7 420"):
        assert read(f"iptables -t nat -S\n-A OUTPUT {counted}\n")["IPv4 nat"]["OUTPUT"] == [f"[7:420] {FOUR}"]
    for other in ("-c 7", "-c x 420 -j RETURN", "-c 7 x -j RETURN", "-d 10.0.0.1 7 420 -j X"):
        assert read(f"iptables -t nat -S\n-A OUTPUT {other}\n")["IPv4 nat"]["OUTPUT"] == [other]


def test_an_inserted_rule_of_a_listing_stands_before_the_others():
    assert read("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -s 10.0.0.1\n-I OUTPUT -p udp\n-I OUTPUT -p tcp\nCOMMIT\n")["IPv4 nat"]["OUTPUT"] == ["-p tcp", "-p udp", "-s 10.0.0.1"]


def test_what_stands_behind_a_hash_is_no_part_of_a_rule_and_in_quotes_it_is():
    text = f'*nat\n-A OUTPUT {FOUR} # why -j DROP\n-A OUTPUT -m comment --comment "# 1" -j RETURN\n-A OUTPUT -j X#1\n# -A OUTPUT -j DROP\nCOMMIT\n'
    assert read(text)["IPv4 nat"]["OUTPUT"] == [FOUR, '-m comment --comment "# 1" -j RETURN', "-j X#1"]


def test_a_comment_in_quotes_goes_on_in_the_next_lines_up_to_a_limit():
    def rule(lines):
        return '-m comment --comment "' + "\n" * lines + '" -j RETURN'

    assert read(f"*nat\n-A OUTPUT {FOUR}\n-A OUTPUT {rule(2)}\nCOMMIT\n")["IPv4 nat"]["OUTPUT"] == [FOUR, rule(2)]
    assert read(f"*nat\n[1:2] -A OUTPUT {rule(MAX_JOINED - 1)}\nCOMMIT\n")["IPv4 nat"]["OUTPUT"] == [f"[1:2] {rule(MAX_JOINED - 1)}"]
    told = f"a quote does not close: the listing is cut off; {FORM}"
    assert refuse(f"*nat\n-A OUTPUT {rule(MAX_JOINED)}\nCOMMIT\n") == f'line 2: "-A OUTPUT -m comment --comment \\"": {told}'
    assert refuse('*nat\n-A OUTPUT -m comment --comment "a\n') == f'line 2: "-A OUTPUT -m comment --comment \\"a": {told}'
    assert refuse("*nat\n-A OUTPUT -m comment --comment 'a -j RETURN\nCOMMIT\n") == (
        f"line 2: \"-A OUTPUT -m comment --comment 'a -j RETURN\": a quote does not close; {FORM}"
    )


def test_a_line_behind_a_comment_of_several_lines_keeps_its_number():
    assert refuse('*nat\n-A OUTPUT -m comment --comment "a\n\nb" -j RETURN\nwhat\n').startswith('line 5: "what"')


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("*nat\n*raw\nCOMMIT\n", f"the listing is cut off: the table nat (line 1) does not end with COMMIT; {FORM}"),
        ("\n*nat\n# Generated by iptables-save\n", f"the listing is cut off: the table nat (line 2) does not end with COMMIT; {FORM}"),
        ("*nat\n# iptables -t raw -S\n", f"the listing is cut off: the table nat (line 1) does not end with COMMIT; {FORM}"),
        ("x\n*nat\n", f"the listing is cut off: the table nat (line 2) does not end with COMMIT; {FORM}"),
        ("*other\nCOMMIT\n", f'line 1: "other" is no table of iptables ({TABLES})'),
        (f"{SAVED}COMMIT\n", f"line 5: COMMIT ends no table: the listing is cut off; {FORM}"),
        ("COMMIT\n-N X\n", f"line 1: COMMIT ends no table: the listing is cut off; {FORM}"),
        (":OUTPUT ACCEPT [0:0]\n", f"line 1: a chain stands outside of a table: the lines with * and COMMIT are missing, as behind grep; {FORM}"),
        ("*nat\n:OUTPUT ACCEPT [0:0]\n:OUTPUT DROP [0:0]\nCOMMIT\n", 'line 3: the chain "OUTPUT" is declared twice'),
        ("*nat\n-N X\n-N X\nCOMMIT\n", 'line 3: the chain "X" is declared twice'), ("*nat\n-P OUTPUT DROP\n-P OUTPUT DROP\nCOMMIT\n", 'line 3: the chain "OUTPUT" is declared twice'),
        ("*nat\n-A OWN -j RETURN\nCOMMIT\n", f'line 2: the chain "OWN" is not declared before: the rules are not all there; {FORM}'),
        ("*nat\nwhat is it\nCOMMIT\n", f'line 2: "what is it" has no place in the table nat; {FORM}'),
        ("*nat\niptables -F\nCOMMIT\n", f'line 2: "iptables -F" has no place in the table nat; {FORM}'),
        ("*nat\n-A\nCOMMIT\n", f'line 2: "-A" is no line of a listing; {FORM}'), ("*nat\n-N A B\nCOMMIT\n", f'line 2: "-N A B" is no line of a listing; {FORM}'),
        ("*nat\n-P OUTPUT\nCOMMIT\n", f'line 2: "-P OUTPUT" is no line of a listing; {FORM}'), ("*nat\n-F\nCOMMIT\n", f'line 2: "-F" is no line of a listing; {FORM}'),
        ("*nat\n-D OUTPUT -j RETURN\nCOMMIT\n", f'line 2: "-D OUTPUT -j RETURN" is no line of a listing; {FORM}'),
        ("-N X\nwhat\n-A X -j RETURN\n", f'line 2: "what" stands between rules and is not understood; {FORM}'),
        ("-N X\nfirst\nsecond\n-A X -j RETURN\n", f'line 2: "first" stands between rules and is not understood; {FORM}'),
        ("what\n", f"it has no rules; {FORM}"), ("", f"it has no rules; {FORM}"), ("iptables -S\n", f"it has no rules; {FORM}"),
        (f"{SAVED}[snip]\n", f'line 5: "[snip]": the listing is cut off there; {FORM}'), (f"{SAVED}<Truncated 5 lines>\n", f'line 5: "<Truncated 5 lines>": the listing is cut off there; {FORM}'),
        (SAVED + SAVED, "line 5: the table nat of IPv4 is there twice; give one state of it"),
        ("*nat\n-A OUTPUT -d 10.0.0.1 -j RETURN\nCOMMIT\n*raw\n-A OUTPUT -d fd00::1 -j RETURN\nCOMMIT\n", "line 1: rules of IPv4 and IPv6 are mixed: put each table behind its command (iptables, ip6tables)"),
        ("-A OUTPUT -p tcp\n", "line 1: no line says which table this is: put the command above it, such as `iptables -t nat -S`"),
    ],
)  # fmt: skip
def test_a_listing_in_which_something_is_missing_is_refused_with_the_line(text, told):
    assert refuse(text) == told


@pytest.mark.parametrize(
    ("text", "is_cut"),
    [
        ("-A OUTPUT -p tcp", True), ("-A OUTPUT -p tcp -j", True), ("-A OUTPUT -p tcp -j RETURN", False), ("-A OUTPUT -p tcp -g X", False), ("-A OUTPUT", True), ("-A OUTPUT -p tcp\n", False),
        ("-A OUTPUT -p tcp\r", False), ("-A OUTPUT -p tcp\n-A OUTPUT -j RETURN", False), ("-A OUTPUT -j RETURN\n-A OUTPUT -p tcp", True),
    ],
)  # fmt: skip
def test_a_last_line_without_an_end_is_whole_only_with_its_target(text, is_cut):
    text = f"iptables -t nat -S\n{text}"
    if is_cut:
        assert refuse(text) == f"line {text.count(chr(10)) + 1}: the listing is cut off inside of a rule; {FORM}"
    else:
        assert [*read(text)] == ["IPv4 nat"]


def test_a_table_of_which_the_last_line_is_cut_is_refused_as_not_ended():
    assert refuse("*nat\n-A OUTPUT -p t") == f"the listing is cut off: the table nat (line 1) does not end with COMMIT; {FORM}"


# --- tables and families ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "family"),
    [
        ("# Generated by iptables-save v1.8.9", "IPv4"), ("# Generated by ip6tables-save v1.8.9", "IPv6"), ("Generated by xip6tables-save", "IPv6"), ("#Generated by ip6tables-nft-save", "IPv6"),
        ("$ ip6tables-save", "IPv6"), ("# ip6tables-save -c", "IPv6"), ("root@pod:/# /sbin/ip6tables-legacy-save", "IPv6"), ("root@pod:/# iptables-save", "IPv4"), ("# nothing", "IPv4"),
    ],
)  # fmt: skip
def test_the_family_is_what_the_heading_or_the_command_above_says(heading, family):
    found = read_pasted(f"{heading}\n*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j RETURN\nCOMMIT\n")
    assert [one.name for one in found.listings] == [family]
    assert found.notes == ((UNKNOWN.format(2),) if "nothing" in heading else ())


@pytest.mark.parametrize(
    ("rule", "family"),
    [
        ("-s fd00::1", "IPv6"), ("-d ::1/128", "IPv6"), ("--source fd00::1", "IPv6"), ("--dst fd00::1", "IPv6"), ("-p ipv6-icmp", "IPv6"), ("--icmpv6-type 1", "IPv6"), ("-j DNAT --to-destination [fd00::1]:80", "IPv6"),
        ("-s 10.0.0.1", "IPv4"), ("! -d 10.0.0.1", "IPv4"), ("-j DNAT --to-destination 10.0.0.1:80", "IPv4"), ("-p tcp", ""), ("-m time --x fd00::1", ""), ("--to-ports 10.", ""),
    ],
)  # fmt: skip
def test_without_a_heading_the_family_is_that_of_the_addresses(rule, family):
    found = read_pasted(f"*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT {rule}\nCOMMIT\n")
    assert [one.name for one in found.listings] == [family or "IPv4"]
    assert found.notes == (() if family else (UNKNOWN.format(1),))


def test_tables_one_behind_the_other_are_of_one_family_until_one_comes_again():
    six, four = "-A OUTPUT -d fd00::1\n", "-A OUTPUT -d 10.0.0.1\n"
    assert [*read(f"*nat\nCOMMIT\n*raw\n{six}COMMIT\n*nat\n{four}COMMIT\n*filter\nCOMMIT\n")] == ["IPv6 nat", "IPv6 raw", "IPv4 nat", "IPv4 filter"]
    text = "# ip6tables-save\n*nat\nCOMMIT\n# nothing\n*raw\nCOMMIT\n# iptables-save\n*raw\nCOMMIT\n"
    assert [*read(text)] == ["IPv6 nat", "IPv6 raw", "IPv4 raw"]
    assert read_pasted(f"*nat\n{four}COMMIT\n*nat\n-A OUTPUT -p ipv6-icmp\nCOMMIT\n*nat\nCOMMIT\n".replace("*nat\nCOMMIT", "*raw\nCOMMIT")).notes == ()


@pytest.mark.parametrize(
    ("command", "table"),
    [
        ("iptables -t nat -S", "IPv4 nat"), ("ip6tables -S -t raw", "IPv6 raw"), ("iptables -tmangle --list-rules", "IPv4 mangle"), ("$ sudo iptables-nft --table=raw -S OUTPUT", "IPv4 raw"),
        ("iptables --table security -S", "IPv4 security"), ("iptables -S", "IPv4 filter"), ("ip6tables -L -v", "IPv6 filter"), ("# iptables -t nat -S", "IPv4 nat"), ("(iptables -S -v)", "IPv4 filter"),
    ],
)  # fmt: skip
def test_rules_belong_to_the_table_of_the_command_above_them_and_without_one_to_filter(command, table):
    assert read(f"{command}\n-N OWN\n-A OWN -j RETURN\n") == {table: {"OWN": ["-j RETURN"]}}


def test_a_command_that_lists_nothing_names_no_table():
    assert read_pasted("iptables -t nat\n-A OUTPUT -j MASQUERADE\n").notes[0] == "the rules from line 2 are those of the table nat, by their chains"


def test_a_command_that_filters_a_listing_is_a_warning_told_once():
    for program in ("grep -v x", "head -5", "tail", "egrep a", "awk 1", "sed p"):
        assert read_pasted(f"iptables-save |{program}\n{SAVED}").warnings == ("its command filters the listing: rules may be missing",)
    twice = f"iptables-save | grep x\n{SAVED}ip6tables-save | grep x\n{SAVED.replace('10.0.0.1/32', 'fd00::1')}"
    assert read_pasted(twice).warnings == ("its command filters the listing: rules may be missing",)
    assert read_pasted(f"iptables-save | cat\n{SAVED}").warnings == ()
    assert read_pasted(f"iptables-save > header\n{SAVED}").warnings == ()


def test_legacy_tables_beside_are_a_warning():
    warning = "# Warning: iptables-legacy tables present, use iptables-legacy-save to see them\n"
    assert read_pasted(SAVED + warning).warnings == ("there are legacy tables too, which are not in it: give what iptables-legacy-save prints as well",)
    assert read_pasted(f"{SAVED}# legacy tables\n").warnings == ()


@pytest.mark.parametrize(
    ("rules", "table"),
    [
        ("-P PREROUTING ACCEPT\n-P INPUT ACCEPT\n-P OUTPUT ACCEPT\n-P POSTROUTING ACCEPT", "nat"), ("-P PREROUTING ACCEPT\n-P OUTPUT ACCEPT\n-P POSTROUTING ACCEPT", "nat"),
        ("-P PREROUTING ACCEPT\n-P OUTPUT ACCEPT", "raw"), ("-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-N OWN", "filter"),
        ("-P PREROUTING ACCEPT\n-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-P POSTROUTING ACCEPT", "mangle"),
        *[(f"-N X\n-A X -j {target}", "nat") for target in ("REDIRECT", "DNAT", "SNAT", "MASQUERADE --random", "NETMAP")],
        *[(f"-N X\n-A X -j {target}", "mangle") for target in ("TPROXY", "MARK", "TOS", "DSCP", "TTL")],
        *[(f"-N X\n-A X -j {target}", "raw") for target in ("CT", "NOTRACK", "TRACE")], *[(f"-N X\n-A X -j {target}", "filter") for target in ("DROP", "REJECT")],
        ("-A FORWARD -j DROP", "filter"), ("-A FORWARD -j MASQUERADE", ""), ("-N X\n-A X -j MARKED", ""), ("-N X\n-A X -j MARK\n-A X -j CT", ""), ("-N X\n-A X -j RETURN", ""),
        ("-P INPUT ACCEPT\n-N X\n-A X -j DROP", "filter"), ("-P POSTROUTING ACCEPT\n-N X\n-A X -j CT", ""),
    ],
)  # fmt: skip
def test_a_table_that_no_line_names_is_known_by_its_chains_or_its_targets(rules, table):
    if not table:
        assert refuse(f"{rules}\n") == "line 1: no line says which table this is: put the command above it, such as `iptables -t nat -S`"
        return
    assert [*read(f"{rules}\n")] == [f"IPv4 {table}"]
    assert read_pasted(f"{rules}\n").notes == (f"the rules from line 1 are those of the table {table}, by their chains", UNKNOWN.format(1))


def test_the_next_table_begins_where_a_chain_is_declared_again_or_a_policy_comes_behind_rules():
    raw, filters = "-P PREROUTING ACCEPT\n-P OUTPUT ACCEPT\n", "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n"
    assert [*read(f"{raw}-N OWN\n{filters}")] == ["IPv4 raw", "IPv4 filter"]
    assert [*read(f"{raw}-A OUTPUT {FOUR}\n{filters}")] == ["IPv4 raw", "IPv4 filter"]
    assert read("-N X\n-A X -j MARK\n-N X\n-A X -j CT\n") == {"IPv4 mangle": {"X": ["-j MARK"]}, "IPv4 raw": {"X": ["-j CT"]}}
    told = "line 4: a second table begins behind that of line 2; give each its command"
    assert refuse("iptables -t nat -S\n-P OUTPUT ACCEPT\n-N X\n-P INPUT ACCEPT\n") == told
    assert refuse("iptables -t nat -S\n-N X\n-A X -j RETURN\n-N X\n") == told
    assert read("iptables -t nat -S\n-N X\n-N Y\n") == {"IPv4 nat": {"X": [], "Y": []}}


# --- commands ---------------------------------------------------------------------------------------------------------


def run(*commands, table="IPv4 nat"):
    """The chains of a table after commands for nat."""
    return read("".join(f"iptables -t nat {one}\n" for one in commands))[table]


def test_commands_do_to_their_tables_what_iptables_does():
    assert run("-N X", "-A X -p tcp", "-A OUTPUT -j X", "-I OUTPUT -p udp") == {"X": ["-p tcp"], "OUTPUT": ["-p udp", "-j X"]}
    assert run("--new-chain X", "--append X -p tcp", "--insert X -p udp", "--new Y") == {"X": ["-p udp", "-p tcp"], "Y": []}
    assert run("-A OUTPUT -p tcp", "-A OUTPUT -p udp", "-I OUTPUT 2 -p sctp", "-I OUTPUT 4 -p icmp", "-I OUTPUT 1 -p ah") == {"OUTPUT": ["-p ah", "-p tcp", "-p sctp", "-p udp", "-p icmp"]}
    assert run("-A OUTPUT -p tcp", "-A INPUT -p udp", "-F OUTPUT") == {"OUTPUT": [], "INPUT": ["-p udp"]}
    assert run("-A OUTPUT -p tcp", "-A INPUT -p udp", "--flush") == {"OUTPUT": [], "INPUT": []}
    assert run("-N X", "-N Y", "-A OUTPUT -p tcp", "-X X") == {"Y": [], "OUTPUT": ["-p tcp"]}
    assert run("-N X", "-N Y", "-A OUTPUT -p tcp", "--delete-chain") == {"OUTPUT": ["-p tcp"]}
    assert run("-N X", "-X X", "-X Y", "-N X", "-A X -p tcp") == {"X": ["-p tcp"]}
    assert run("-A OUTPUT -p tcp", "-A OUTPUT -p udp", "-A OUTPUT -p tcp", "-D OUTPUT --protocol tcp") == {"OUTPUT": ["-p udp", "-p tcp"]}
    assert run("-A OUTPUT -p tcp", "-Z", "-Z OUTPUT", "--zero") == {"OUTPUT": ["-p tcp"]}


def test_a_policy_is_that_of_the_last_command_and_elsewhere_accept():
    assert policies("iptables -P INPUT DROP\niptables -A OUTPUT -p tcp\niptables -N X\n") == {"filter": {"INPUT": "DROP", "OUTPUT": "ACCEPT", "X": "-"}}
    assert policies("iptables --policy INPUT DROP\niptables -P INPUT ACCEPT\n") == {"filter": {"INPUT": "ACCEPT"}}
    assert policies("iptables -N X\niptables -X\niptables -F\n") == {"filter": {}}


@pytest.mark.parametrize(
    ("command", "table"),
    [
        ("iptables -A OUTPUT -p tcp", "IPv4 filter"), ("ip6tables -t nat -A OUTPUT -p tcp", "IPv6 nat"), ("iptables -A OUTPUT --table raw -p tcp", "IPv4 raw"), ("iptables -A OUTPUT --table=raw -p tcp", "IPv4 raw"),
        ("iptables -tmangle -A OUTPUT -p tcp", "IPv4 mangle"), ("sudo /usr/sbin/iptables-legacy -w -A OUTPUT -p tcp", "IPv4 filter"), ("iptables -w 5 -A OUTPUT -p tcp", "IPv4 filter"), ("iptables --wait 5 -A OUTPUT -p tcp", "IPv4 filter"),
        ("iptables --wait -t raw -A OUTPUT -p tcp", "IPv4 raw"), ("iptables -W 100 --wait-interval 7 -A OUTPUT -p tcp", "IPv4 filter"), ("iptables --wait=5 -w5 -A OUTPUT -p tcp", "IPv4 filter"), ("iptables -4 -A OUTPUT -p tcp", "IPv4 filter"),
        ("iptables -6 -A OUTPUT -p tcp", "IPv6 filter"), ("iptables -A OUTPUT --ipv6 -p tcp", "IPv6 filter"), ("ip6tables -A OUTPUT -p tcp --ipv4", "IPv6 filter"), ("iptables -A OUTPUT -p tcp 2>/dev/null", "IPv4 filter"),
        ("iptables -A OUTPUT -p tcp > log 2>&1", "IPv4 filter"), ("iptables -A OUTPUT -p tcp >> log", "IPv4 filter"), ("iptables -A OUTPUT -p tcp &>log", "IPv4 filter"), ("iptables -A OUTPUT -p tcp >log", "IPv4 filter"),
        ("iptables -A OUTPUT -p tcp # why", "IPv4 filter"), ("# iptables -A OUTPUT -p tcp", "IPv4 filter"), ("(iptables -A OUTPUT -p tcp", "IPv4 filter"),
    ],
)  # fmt: skip
def test_a_command_names_its_table_and_family_and_what_does_not_belong_to_the_rule_is_passed_over(command, table):
    assert read(f"{command}\n") == {table: {"OUTPUT": ["-p tcp"]}}
    assert read_pasted(f"{command}\n").notes == ()


def test_what_is_quoted_belongs_to_the_rule():
    text = """iptables -A OUTPUT -m comment --comment "-t" -m string --string '-4' -m string --string "2>x" -j RETURN\n"""
    assert read(text)["IPv4 filter"]["OUTPUT"] == ["""-m comment --comment "-t" -m string --string '-4' -m string --string "2>x" -j RETURN"""]


def test_a_wait_takes_a_number_and_no_other_word():
    assert read("iptables -A OUTPUT -p tcp -w\n") == {"IPv4 filter": {"OUTPUT": ["-p tcp"]}}
    assert read("iptables -w -A OUTPUT -p 6\n") == {"IPv4 filter": {"OUTPUT": ["-p 6"]}}
    assert read("iptables -A OUTPUT -w 5 -p 6\n") == {"IPv4 filter": {"OUTPUT": ["-p 6"]}}


@pytest.mark.parametrize(
    ("line", "rules"),
    [
        ("iptables -A OUTPUT -p tcp; iptables -A OUTPUT -p udp", ["-p tcp", "-p udp"]), ("iptables -A OUTPUT -p tcp ; sudo iptables -A OUTPUT -p udp ;", ["-p tcp", "-p udp"]),
        ("iptables -A OUTPUT -p tcp && /sbin/iptables -A OUTPUT -p udp", ["-p tcp", "-p udp"]), ("iptables -A OUTPUT -p tcp || true", ["-p tcp"]), ("iptables -A OUTPUT -p tcp || :", ["-p tcp"]),
        ("iptables -A OUTPUT -p tcp;", ["-p tcp"]), ("iptables -A OUTPUT -j X;", ["-j X"]), ("iptables -A OUTPUT -j X; iptables -A OUTPUT -g X;;", ["-j X", "-g X"]), ("iptables -A OUTPUT -p tcp &", ["-p tcp"]), ("iptables -A OUTPUT -m comment --comment ';' -p tcp", ["-m comment --comment ';' -p tcp"]),
        ("iptables -A OUTPUT -p tcp \\\n  -j RETURN", ["-p tcp  -j RETURN".replace("  ", " ")]), ("iptables -A OUTPUT \\\n-p tcp \\\n-j \\\nRETURN\niptables -A OUTPUT -p ah", ["-p tcp -j RETURN", "-p ah"]),
    ],
)  # fmt: skip
def test_several_commands_may_stand_in_one_line_and_one_in_several(line, rules):
    assert read(f"{line}\n") == {"IPv4 filter": {"OUTPUT": rules}}


def test_commands_of_both_families_may_stand_in_one_line():
    text = "iptables -A OUTPUT -p tcp; ip6tables -t nat -A OUTPUT -p udp && iptables -A OUTPUT -p ah\n"
    assert read(text) == {"IPv4 filter": {"OUTPUT": ["-p tcp", "-p ah"]}, "IPv6 nat": {"OUTPUT": ["-p udp"]}}


def test_a_command_goes_on_in_so_many_lines_and_no_more():
    lines = ["iptables -A OUTPUT \\", *["-p tcp \\"] * (MAX_JOINED - 2), "-j RETURN"]
    assert read("\n".join(lines) + "\n")["IPv4 filter"]["OUTPUT"] == [" ".join(["-p tcp"] * (MAX_JOINED - 2) + ["-j RETURN"])]
    found = read_pasted("\n".join([lines[0], *["-p tcp \\"] * (MAX_JOINED - 1), "-m x"]) + "\n")
    assert found.listings[IPV4]["filter"].rules["OUTPUT"] == [" ".join(["-p tcp"] * (MAX_JOINED - 1))]
    assert found.notes == ('1 line around the rules: not read, such as "-m x"',)
    assert read("iptables -A OUTPUT -p tcp \\")["IPv4 filter"] == read("iptables -A OUTPUT \\\n-p tcp \\")["IPv4 filter"] == {"OUTPUT": ["-p tcp"]}
    assert read("note \\\niptables -A OUTPUT -p tcp\n") == {"IPv4 filter": {"OUTPUT": ["-p tcp"]}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *[(f"iptables {option} OUTPUT 1 -j X", f"{option} is not followed; {FORM}") for option in ("-R", "--replace", "-E", "--rename-chain")],
        *[(f"iptables {option} OUTPUT -j X || iptables -A OUTPUT -j X", f"{option} is not followed; {FORM}") for option in ("-C", "--check")],
        ("iptables -t other -A OUTPUT -p tcp", f'"other" is no table of iptables ({TABLES})'), ("iptables -A OUTPUT -j $X", f'"$X": the value of a shell\'s variable is not known; {FORM}'),
        ("iptables -A OUTPUT -j `x`", f'"`x`": the value of a shell\'s variable is not known; {FORM}'), ('iptables -A OUTPUT -j "$X"', f'"\\"$X\\"": the value of a shell\'s variable is not known; {FORM}'),
        ("iptables -A", f"the command is not understood; {FORM}"), ("iptables -N", f"the command is not understood; {FORM}"), ("iptables -N A B", f"the command is not understood; {FORM}"),
        ("iptables -P OUTPUT", f"the command is not understood; {FORM}"), ("iptables -P OUTPUT DROP 1", f"the command is not understood; {FORM}"), ("iptables -D", f"the command is not understood; {FORM}"),
        ("iptables -I", f"the command is not understood; {FORM}"), ("iptables -P OWN DROP", f'the chain "OWN" is not declared before: the rules are not all there; {FORM}'),
        *[(f"iptables {option} OWN -j X", f'the chain "OWN" is not declared before: the rules are not all there; {FORM}') for option in ("-I", "--insert", "--append")],
        ("iptables -A OWN -j X", f'the chain "OWN" is not declared before: the rules are not all there; {FORM}'), ("iptables -N A; iptables -N A", 'the chain "A" is declared twice'),
        ("iptables -I OUTPUT 2 -p tcp", f'-I "OUTPUT" 2: the chain has 0 rules here; {FORM}'), ("iptables -A OUTPUT -p tcp; iptables -I OUTPUT 3 -p tcp", f'-I "OUTPUT" 3: the chain has 1 rules here; {FORM}'),
        ("iptables -D OUTPUT -p tcp", f'-D "OUTPUT": it deletes a rule that is not there; {FORM}'), ("iptables -A OUTPUT -p tcp; iptables -D OUTPUT -p udp", f'-D "OUTPUT": it deletes a rule that is not there; {FORM}'),
        ("if iptables -A OUTPUT -p tcp", f'"if iptables -A OUTPUT -p tcp": a script is not followed; {FORM}'), ("  while iptables -D OUTPUT -p tcp", f'"while iptables -D OUTPUT -p tcp": a script is not followed; {FORM}'),
        *[(f"iptables -A OUTPUT -p tcp {end}", f'"iptables -A OUTPUT -p tcp {end}": what follows the command is not followed; give one command on each line') for end in ("|| false", "| cat", "; echo", "&& sudo echo", "& iptables -A OUTPUT -p tcp", "|| iptables -F")],
        ('iptables -A OUTPUT -m comment --comment "a', f'" -A OUTPUT -m comment --comment \\"a": a quote does not close; {FORM}'),
    ],
)  # fmt: skip
def test_a_command_that_is_not_followed_is_refused_with_its_line(text, told):
    assert refuse(f"\n{text}\n") == f"line 2: {told}"


@pytest.mark.parametrize("word", ["for", "while", "until", "if", "case", "do", "done", "then", "else", "fi", "esac", "function"])
def test_a_script_around_commands_is_refused(word):
    assert refuse(f"iptables -A OUTPUT -p tcp\n{word} x in y\n") == f'line 2: "{word} x in y": a script is not followed; {FORM}'
    assert read(f"{word} x in y\niptables -A OUTPUT -p tcp\n") == {"IPv4 filter": {"OUTPUT": ["-p tcp"]}}


def test_a_value_of_a_shell_in_single_quotes_is_no_variable():
    assert read("iptables -A OUTPUT -m comment --comment '$x' -j X\n")["IPv4 filter"]["OUTPUT"] == ["-m comment --comment '$x' -j X"]


def test_a_number_of_more_than_six_digits_is_no_place():
    assert refuse("iptables -I OUTPUT 999999 -p tcp\n") == f'line 1: -I "OUTPUT" 999999: the chain has 0 rules here; {FORM}'
    assert read("iptables -I OUTPUT 1000000 -p tcp\n")["IPv4 filter"]["OUTPUT"] == ["1000000 -p tcp"]


def test_commands_that_are_commented_out_are_none_beside_others_that_are_not():
    assert read("iptables -A OUTPUT -p tcp\n# iptables -A OUTPUT -p udp\n")["IPv4 filter"]["OUTPUT"] == ["-p tcp"]
    assert read("# iptables -A OUTPUT -p tcp\n# sudo /sbin/ip6tables -A OUTPUT -p udp\n") == {"IPv4 filter": {"OUTPUT": ["-p tcp"]}, "IPv6 filter": {"OUTPUT": ["-p udp"]}}
    assert read_pasted("# iptables -A OUTPUT -p tcp\n# why\n").notes == ()
    text = f"*nat\n# ip6tables -A OUTPUT -p udp\n-A OUTPUT {FOUR}\nCOMMIT\niptables -A OUTPUT -p tcp\n"
    assert read(text) == {"IPv4 nat": {"OUTPUT": [FOUR]}, "IPv4 filter": {"OUTPUT": ["-p tcp"]}}


def test_commands_that_delete_look_through_no_more_than_a_limit(monkeypatch):
    monkeypatch.setattr(pasted, "MAX_COMPARED", 3)
    many = ["-A OUTPUT -p tcp", "-A OUTPUT -p udp"]
    told = f"the commands delete more than netinit follows; {FORM}"
    assert run(*many, "-D OUTPUT -p tcp", "-D OUTPUT -p udp") == {"OUTPUT": []}
    for commands in ([*many, *["-D OUTPUT -p tcp", "-A OUTPUT -p tcp"] * 2], ["-N X", "-N Y", "-F", "-F"], ["-N X", "-N Y", "-X", "-N Z", "-N W", "-X"], ["-A OUTPUT -p tcp", *["-F OUTPUT"] * 4], ["-X X"] * 4):
        assert run(*commands[:2]) is not None
        assert refuse("".join(f"iptables -t nat {one}\n" for one in commands)).endswith(told)
        assert refuse("".join(f"iptables -t nat {one}\n" for one in commands)).startswith(f"line {len(commands) - (commands[-1] == '-A OUTPUT -p tcp')}: ")


def test_commands_and_a_listing_of_the_same_table_are_two_states_of_it():
    assert refuse(f"iptables -t nat -A OUTPUT -p tcp\n{SAVED}") == "line 2: the table nat of IPv4 is there twice; give one state of it"
    assert refuse(f"{SAVED}iptables -t nat -A OUTPUT -p tcp\n") == "line 5: the table nat of IPv4 is there twice; give one state of it"
    assert [*read(f"iptables -A OUTPUT -p tcp\n{SAVED}")] == ["IPv4 filter", "IPv4 nat"]


def test_a_rule_is_deleted_in_whatever_notation_in_its_own_family():
    assert run("-A OUTPUT -d 10.0.0.1 -j RETURN", "-A OUTPUT -p tcp", "-D OUTPUT -d 10.0.0.1/32 -j RETURN") == {"OUTPUT": ["-p tcp"]}
    six = "ip6tables -A OUTPUT -d fd00::1 -j RETURN\niptables -A OUTPUT -d 10.0.0.1 -j RETURN\nip6tables -D OUTPUT -d fd00::1/128 -j RETURN\n"
    assert read(six) == {"IPv6 filter": {"OUTPUT": []}, "IPv4 filter": {"OUTPUT": ["-d 10.0.0.1 -j RETURN"]}}


def test_tables_without_rules_begin_where_a_policy_comes_again():
    raw, nat = ["PREROUTING", "OUTPUT"], ["PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"]
    text = "".join(f"-P {chain} ACCEPT\n" for chain in (*raw, *nat, *raw))
    assert refuse(text) == "line 7: the table raw of IPv4 is there twice; give one state of it"
    assert read("".join(f"-P {chain} ACCEPT\n" for chain in (*raw, *nat))) == {"IPv4 raw": {chain: [] for chain in raw}, "IPv4 nat": {chain: [] for chain in nat}}


def test_every_line_that_is_not_read_counts_wherever_it_stands():
    parts = ["iptables -A OUTPUT -p tcp\n", "iptables -A OUTPUT -p udp\n", SAVED, SAVED.replace("nat", "raw"), f"ip6tables -t mangle -S\n-A OUTPUT {FOUR}\n"]
    for count in range(2, len(parts) + 1):
        text = "".join(f"first {number}\n{part}" for number, part in enumerate(parts[:count]))
        assert read_pasted(text).notes[0] == f'{count} lines around the rules: not read, such as "first 0"'


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("iptables -A OUTPUT -p tcp -t nat", {"IPv4 nat": {"OUTPUT": ["-p tcp"]}}), ("iptables -A OUTPUT -p tcp -t nat;", {"IPv4 nat": {"OUTPUT": ["-p tcp"]}}), ("iptables -A OUTPUT -p tcp -t", {"IPv4 filter": {"OUTPUT": ["-p tcp -t"]}}),
        ("iptables -A OUTPUT -p tcp; iptables -F;", {"IPv4 filter": {"OUTPUT": []}}), ("iptables -N X; iptables -X; ip6tables -N Y;", {"IPv4 filter": {}, "IPv6 filter": {"Y": []}}),
        *[(f"iptables -A OUTPUT -p tcp {wait}", {"IPv4 filter": {"OUTPUT": ["-p tcp"]}}) for wait in ("-w 5", "--wait 5", "-W 100", "--wait", "-4", "2> x", "> x")],
        ('iptables -A OUTPUT "-t" nat', {"IPv4 filter": {"OUTPUT": ['"-t" nat']}}), ("iptables -A OUTPUT -p tcp -t nat -t raw", {"IPv4 raw": {"OUTPUT": ["-p tcp"]}}),
    ],
)  # fmt: skip
def test_a_table_may_be_named_last_and_a_semicolon_belongs_to_no_word(text, tables):
    assert read(f"{text}\n") == tables


def test_a_command_for_one_chain_looks_through_that_alone_and_each_rule_is_read_once(monkeypatch):
    monkeypatch.setattr(pasted, "MAX_COMPARED", 3)
    chains = [f"-N {name}" for name in "ABCD"]
    assert run(*chains, "-F A", "-F A", "-F B") == {"A": [], "B": [], "C": [], "D": []}
    assert run(*chains, "-X A", "-X B", "-X C") == {"D": []}
    texts = []
    monkeypatch.setattr(pasted, "MAX_COMPARED", 1000)
    monkeypatch.setattr(pasted, "normalise", lambda text, family: texts.append((text, family)) or (text, family))
    assert run("-A OUTPUT -p tcp", "-A OUTPUT -p udp", *["-D OUTPUT -p udp", "-A OUTPUT -p udp"] * 5) == {"OUTPUT": ["-p tcp", "-p udp"]}
    assert sorted(texts) == [("-p tcp", IPV4), ("-p udp", IPV4)]


def test_tables_behind_those_of_a_known_family_have_the_family_of_their_addresses():
    text = "iptables -A OUTPUT -p tcp\n*nat\n-A OUTPUT -d fd00::1\nCOMMIT\n*raw\nCOMMIT\n"
    assert read(text) == {"IPv4 filter": {"OUTPUT": ["-p tcp"]}, "IPv6 nat": {"OUTPUT": ["-d fd00::1"]}, "IPv6 raw": {}}
