"""Pictures: they parse, they show every chain, and the path of a packet stands out."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from core import plan
from netinit.base.errors import NetinitError
from netinit.base.net import IPV4, IPV6, number_of
from netinit.cli.draw import render_svg
from netinit.options import Options
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.draw import (
    Box,
    Picture,
    Row,
    choose_tables,
    make_picture,
    render_dot,
    render_mermaid,
    render_text,
)
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import LoadedChain, LoadedRule, Ruleset, load_plan
from netinit.simulate.trace import DROPPED, UNKNOWN
from sweeps import together

FORMATS = {"text": render_text, "mermaid": render_mermaid, "dot": render_dot}
LINES = [
    "-i * -b * -d 15090,15021,15020",
    "-i * -b * -m TPROXY --redirect-dns --capture-all-dns -k net1 -c eth1 --drop-invalid",
    "-i 10.0.0.0/8,fd00::/8 -b 80,443 -x 10.1.0.0/16 -q 25 -o 22",
    "--layout classic -i * -b 80 --ipv6=off",
    "-b 80",
]
AROUND = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))


def picture(line, family=IPV4, lit=False, caption='says "so" <&> \\ it'):
    ruleset = load_plan(plan(Options.from_argv(line.split())), family)
    trace = simulate(make_outbound(AROUND, "1.2.3.4", 80, uid=1000, gid=1000), ruleset, AROUND) if lit else None
    return make_picture(ruleset, title="rules", trace=trace, caption=caption)


def chains(made):
    return [(table, name) for table, boxes in made.tables.items() for name in boxes]


@together("line", LINES)
@pytest.mark.parametrize("family", [IPV4, IPV6], ids=str)
@pytest.mark.parametrize("form", FORMATS)
def test_every_chain_with_rules_is_shown(line, family, form):
    made = picture(line, family)
    ruleset = load_plan(plan(Options.from_argv(line.split())), family)
    wanted = {(table, name) for table, boxes in ruleset.tables.items() for name, chain in boxes.items() if chain.rules}
    assert set(chains(made)) == wanted
    text = FORMATS[form](made)
    assert all(name in text for _, name in wanted)


@pytest.mark.parametrize("line", LINES)
def test_the_mermaid_is_a_flowchart_of_known_statements(line):
    """The statements that we use, one a line, with every node declared before an edge names it."""
    text = render_mermaid(picture(line, lit=True)).splitlines()
    label = r'"[^"\n]*"'
    statements = (
        rf"title: {label}", "---", "flowchart LR", rf"  subgraph table_\w+\[{label}\]", "  end",
        rf"    (?P<node>\w+)\[{label}\]:::(?:lit|builtin|chain)", rf"  (?P<proxy>\w+)\(\[{label}\]\):::proxy",
        r"  (?P<start>\w+) (?:-->|==>)\|\d+\| (?P<end>\w+)", r"  linkStyle \d+ stroke:#\w+", r"  classDef \w+ [\w:#,-]+",
    )  # fmt: skip
    nodes, edges = set(), []
    for part in text:
        found = next((match for match in (re.fullmatch(statement, part) for statement in statements) if match), None)
        assert found, part
        groups = found.groupdict()
        nodes |= {groups[key] for key in ("node", "proxy") if groups.get(key)}
        edges += [groups["start"], groups["end"]] if "start" in groups else []
    assert set(edges) <= nodes


@pytest.mark.parametrize("line", LINES)
def test_graphviz_renders_the_dot(line):
    text = render_dot(picture(line, lit=True))
    assert text.count("{") == text.count("}") == 1 + len(picture(line).tables)
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("graphviz is not installed: apt-get install graphviz")
    drawn = subprocess.run([dot, "-Tsvg"], input=text, capture_output=True, text=True, check=False)
    assert drawn.returncode == 0, drawn.stderr
    assert drawn.stderr == ""
    assert "ISTIO_REDIRECT" in drawn.stdout


def test_graphviz_is_asked_for_svg_and_its_error_is_shown(tmp_path, monkeypatch):
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "$@"\ncat\n')
    program.chmod(0o755)
    monkeypatch.setattr("netinit.cli.draw.run.find", {"dot": str(program)}.get)
    shown = picture(LINES[0], lit=True)
    assert render_svg(shown) == f"-Tsvg\n{render_dot(shown)}"
    program.write_text("#!/bin/sh\necho 'no layout' >&2\nexit 3\n")
    with pytest.raises(NetinitError, match=r"^--format svg: .*/dot -Tsvg failed: no layout$"):
        render_svg(shown)


def test_the_tree_unfolds_a_chain_once_and_marks_the_path():
    told = render_text(picture(LINES[0], lit=True))
    assert [line.strip(" │├└─") for line in told.splitlines() if "▶" in line] == [
        "▶ 1 all → ISTIO_OUTPUT  # outbound traffic is checked",
        "▶ 9 all → ISTIO_REDIRECT  # all outbound TCP is captured; no exclusion matches",
        "▶ 1 -p tcp REDIRECT 15001  # outbound connections go to the proxy",
    ]
    assert told.count("ISTIO_IN_REDIRECT (1 rule)") == 1
    assert told.count("ISTIO_IN_REDIRECT (see above)") == 2


def test_live_counters_are_shown_in_every_form():
    listing = "*nat\n:OUTPUT DROP [0:0]\n:MINE - [0:0]\n[4711:9] -A OUTPUT -p tcp -m comment --comment \"<a> & 'b'\" -j MINE\n[12:3] -A MINE -j RETURN\nCOMMIT\n"
    made = make_picture(load_listing(parse_listing(listing, counted=True), IPV4), title="live")
    for form, render in FORMATS.items():
        assert "4711" in render(made), form
        assert "DROP" in render(made) or form == "mermaid", form


def test_many_rules_alike_are_counted_instead_of_drawn():
    networks = ",".join(f"10.{number}.0.0/16" for number in range(200))
    made = picture(f"-i * -x {networks}")
    box = made.tables["nat"]["ISTIO_OUTPUT"]
    assert (box.count, len(box.rows)) == (209, 13)
    assert "197 more like these" in render_text(made)


def test_chains_that_call_each_other_are_drawn_all_the_same():
    listing = "*nat\n:OUTPUT ACCEPT [0:0]\n:A - [0:0]\n:B - [0:0]\n-A OUTPUT -j A\n-A A -j B\n-A B -j A\nCOMMIT\n"
    made = make_picture(load_listing(parse_listing(listing), IPV4), title="a circle")
    for render in FORMATS.values():
        assert render(made)


def test_no_rules_are_a_picture_too():
    made = make_picture(load_listing({}, IPV4), title="nothing")
    assert [bool(render(made)) for render in FORMATS.values()] == [True] * 3


def test_a_drawing_says_in_words_what_rules_ask_for():
    conditions = {row.condition for box in picture(LINES[0]).tables["nat"].values() for row in box.rows}
    assert {"not uid 1337, to lo", "TCP port 15090", "TCP but not port 15008, uid 1337, not to 127.0.0.1, to lo", ""} <= conditions
    for form in ("dot", "mermaid"):
        assert "not uid 1337, to lo" in FORMATS[form](picture(LINES[0]))
        assert "--uid-owner" not in FORMATS[form](picture(LINES[0]))


@pytest.mark.parametrize(("text", "words"), [
    ("-p tcp -m tcp ! --dport 15008 -j RETURN", "TCP but not port 15008"),
    ("-p udp -m udp --sport 53:54 -j RETURN", "UDP from port 53 to 54"),
    ("-p tcp -m multiport --dports 80,443 -j RETURN", "TCP port 80 or 443"),
    ("! -p tcp -j RETURN", "not TCP"),
    ("-o lo -m owner ! --uid-owner 1337 -j RETURN", "not uid 1337, to lo"),
    ("-m owner --gid-owner 5-7 -j RETURN", "gid 5 to 7"),
    ("! -s 10.0.0.0/8 -d 10.0.0.1/32 -j RETURN", "not from 10.0.0.0/8, to 10.0.0.1"),
    ("-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j RETURN", "TCP with SYN"),
    ("-p tcp -m tcp ! --tcp-flags FIN,RST NONE -j RETURN", "TCP but not with none of FIN/RST"),
    ("-m mark --mark 0x539/0xfff -j RETURN", "mark under the mask 0xfff is 0x539"),
    ("-m conntrack ! --ctstate DNAT -j RETURN", "connection is not DNAT"),
    ("-m recent --name x -j RETURN", "`-m recent --name x` holds, which depends on whom packets came from before"),
    ("-j RETURN", ""),
])  # fmt: skip
def test_each_condition_has_words(text, words):
    listing = f"*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT {text}\nCOMMIT\n"
    made = make_picture(load_listing(parse_listing(listing), IPV4), title="live")
    assert made.tables["nat"]["OUTPUT"].rows[0].condition == words


def test_a_table_that_decides_about_the_connection_is_drawn_too():
    listing = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -j RETURN\nCOMMIT\n*filter\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -j DROP\nCOMMIT\n"
    ruleset = load_listing(parse_listing(listing), IPV4)
    assert choose_tables(ruleset) == ("nat",)
    assert choose_tables(ruleset, simulate(make_outbound(AROUND, "1.2.3.4", 80, uid=1, gid=1), ruleset, AROUND)) == ("nat", "filter")


@pytest.mark.parametrize("line", LINES)
def test_the_drawing_is_readable_where_a_page_has_900_pixels(line):
    if not shutil.which("dot"):
        pytest.skip("graphviz is not installed: apt-get install graphviz")
    ruleset = load_plan(plan(Options.from_argv(line.split())), IPV4)
    made = make_picture(ruleset, title="rules", tables=choose_tables(ruleset))
    width = float(re.search(r'<svg width="(\d+)pt"', render_svg(made))[1]) / 0.75
    assert 13.3 * min(1, 900 / width) >= 9, f"letters of 10 points are too small in {width:.0f} pixels"


def test_a_condition_is_broken_behind_a_comma_where_that_is_enough():
    rules = "-A OUTPUT -p tcp ! --dport 53 -m owner ! --uid-owner 1337 -o lo -j ACCEPT\n"
    ruleset = load_listing(parse_listing(f"*nat\n:OUTPUT ACCEPT [0:0]\n{rules}COMMIT\n"), IPV4)
    drawn = render_dot(make_picture(ruleset, title="rules"))
    assert '>TCP but not port 53, not uid 1337,<br align="left"/>to lo<' in drawn


def of_purposes(*purposes, packets=None, text="-j RETURN"):
    """A table of OUTPUT's rules with these purposes, empty for foreign ones, and their counters."""
    counters = packets or (None,) * len(purposes)
    rules = [
        LoadedRule(at, text, parse_rule(text, IPV4), purpose, packets=count) for at, (purpose, count) in enumerate(zip(purposes, counters, strict=True), 1)
    ]
    return Ruleset(IPV4, {"nat": {"OUTPUT": LoadedChain("OUTPUT", tuple(rules), "ACCEPT")}})


def shown(ruleset, **more):
    return [(row.label, row.number, row.more, row.packets, row.hit) for row in make_picture(ruleset, title="rules", **more).tables["nat"]["OUTPUT"].rows]


def test_the_fifth_rule_of_a_purpose_makes_a_row_that_counts_those_behind_the_third():
    assert shown(of_purposes(*["a"] * 4)) == [(str(at), at, 0, None, False) for at in range(1, 5)]
    first = [(str(at), at, 0, None, False) for at in range(1, 4)]
    assert shown(of_purposes(*["a"] * 5)) == [*first, ("…", 5, 2, None, False)]
    assert [row[:3] for row in shown(of_purposes(*["a"] * 3, "b", *["a"] * 3))] == [(str(at), at, 0) for at in range(1, 8)], "neighbours are counted"
    assert len(shown(of_purposes(*[""] * 9))) == 9, "foreign rules are drawn, each for itself"


def test_a_row_that_counts_others_has_their_target_and_the_sum_of_their_counters():
    ruleset = of_purposes(*["a"] * 6, packets=(1, 2, 4, 8, None, 16), text="-p tcp -j REDIRECT --to-ports 15001")
    last = make_picture(ruleset, title="rules").tables["nat"]["OUTPUT"].rows[-1]
    text = "3 more like these"
    assert last == Row(6, text, text, "a", "REDIRECT 15001", "", 15001, packets=24, more=3)
    assert str(last) == "… 3 more like these → REDIRECT 15001 (24 packets)"


def test_the_rule_that_was_hit_is_drawn_for_all_of_its_purpose():
    texts = [f"-p tcp -m tcp --dport {port} -j REDIRECT --to-ports 1" for port in (81, 82, 83, 80, 84, 85)]
    rules = tuple([LoadedRule(at, text, parse_rule(text, IPV4), "a", packets=at) for at, text in enumerate(texts, 1)])
    ruleset = Ruleset(IPV4, {"nat": {"OUTPUT": LoadedChain("OUTPUT", rules, "ACCEPT")}})
    trace = simulate(make_outbound(AROUND, "1.2.3.4", 80, uid=1, gid=1), ruleset, AROUND)
    assert shown(ruleset, trace=trace) == [("4", 4, 0, 4, True), ("…", 6, 5, 17, False)]
    made = make_picture(ruleset, title="rules", trace=trace)
    assert made.tables["nat"]["OUTPUT"].rows[-1].rule == "5 more like this"
    assert (made.tables["nat"]["OUTPUT"].hit, make_picture(ruleset, title="rules").tables["nat"]["OUTPUT"].hit) == (True, False)


def test_a_row_has_the_rule_without_its_target_and_its_comment():
    listing = '*nat\n:OUTPUT ACCEPT [0:0]\n:A - [0:0]\n-A OUTPUT -p tcp -m comment --comment "x -j y" -j A\n-A OUTPUT -p udp -g A\n-A OUTPUT -p sctp\n-A A -p tcp -j RETURN\nCOMMIT\n'
    made = make_picture(load_listing(parse_listing(listing), IPV4), title="rules")
    assert (made.title, made.caption) == ("rules", "")
    rows = made.tables["nat"]["OUTPUT"].rows
    assert [(row.rule, row.condition, row.target, row.to, row.comment) for row in rows] == [
        ("-p tcp", "TCP", "A", "A", "x -j y"), ("-p udp", "UDP", "A", "A", ""), ("-p sctp", "SCTP", rows[2].target, "", ""),
    ]  # fmt: skip
    assert [row.details for row in rows] == [' with comment "x -j y"', "", ""]


TWO_TABLES = "*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -j ACCEPT\nCOMMIT\n*nat\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n:EMPTY - [0:0]\n-A OUTPUT -p udp -j ACCEPT\nCOMMIT\n"


def test_tables_are_drawn_in_the_kernel_s_order_without_chains_that_let_everything_pass():
    ruleset = load_listing(parse_listing(f"*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\nCOMMIT\n{TWO_TABLES}*security\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"), IPV4)
    assert chains(make_picture(ruleset, title="rules")) == [("mangle", "OUTPUT"), ("nat", "OUTPUT"), ("filter", "INPUT")]
    assert chains(make_picture(ruleset, title="rules", tables=("nat", "security"))) == [("nat", "OUTPUT")]
    foreign = Ruleset(IPV4, {"theirs": ruleset.tables["nat"], "mangle": ruleset.tables["mangle"]})
    assert chains(make_picture(foreign, title="rules")) == [("mangle", "OUTPUT"), ("theirs", "OUTPUT")]


@pytest.mark.parametrize(("more", "chosen"), [
    ("", ("nat",)), ("*filter\n:INPUT DROP [0:0]\nCOMMIT\n", ("nat", "filter")), ("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\nCOMMIT\n", ("nat",)),
    ("*filter\n:INPUT ACCEPT [0:0]\n:A - [0:0]\nCOMMIT\n", ("nat",)),
])  # fmt: skip
def test_the_tables_that_capture_or_drop_are_chosen(more, chosen):
    assert choose_tables(load_listing(parse_listing(TWO_TABLES + more), IPV4)) == chosen


def test_all_tables_are_chosen_where_none_decides_or_nobody_knows_which():
    nothing_in_nat = "*mangle\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p udp -j ACCEPT\nCOMMIT\n*nat\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"
    assert choose_tables(load_listing(parse_listing(nothing_in_nat), IPV4)) == ("mangle", "nat")
    ruleset = load_listing(parse_listing(TWO_TABLES), IPV4)
    trace = simulate(make_outbound(AROUND, "1.2.3.4", 80, uid=1, gid=1), ruleset, AROUND)
    for fate, tables in ((trace.fate, ("nat",)), (DROPPED, ("mangle", "nat")), (UNKNOWN, ("mangle", "nat"))):
        assert choose_tables(ruleset, replace(trace, fate=fate)) == tables
    captures = "*mangle\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p tcp -j TPROXY --on-port 15006 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xffffffff\nCOMMIT\n"
    assert choose_tables(load_listing(parse_listing(captures + "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j DROP\nCOMMIT\n"), IPV4)) == ("mangle",)


def leaf(name, policy="", to=""):
    return Box(name, policy, (Row(1, "", "", "", to, to),) if to else (), int(bool(to)))


def test_the_tree_has_a_branch_for_each_chain_that_nobody_calls():
    boxes = {box.name: box for box in (leaf("INPUT", "ACCEPT", "A"), leaf("A", to="INPUT"), leaf("B", to="A"), leaf("OUTPUT", "DROP"))}
    assert render_text(Picture("t", "", {"nat": boxes})) == (
        "t\n\ntable nat\n├─ INPUT (1 rule, policy ACCEPT)\n│  └─ 1 all → A\n│     └─ A (1 rule)\n│        └─ 1 all → INPUT (see above)\n"
        "├─ B (1 rule)\n│  └─ 1 all → A (see above)\n└─ OUTPUT (0 rules, policy DROP)\n"
    )
    assert render_text(Picture("t", "", {"nat": {"B": leaf("B", to="x")}, "filter": {}})) == "t\n\ntable nat\n└─ B (1 rule)\n   └─ 1 all → x\n\ntable filter\n"
    assert render_text(Picture(" t", "c ", {})) == "c\n t\n\n(no rules)\n"


def test_each_table_stands_below_the_one_before_by_few_edges_between_ends_and_beginnings():
    upper = {**{f"u{at}": leaf(f"u{at}") for at in range(10)}, "first": leaf("first", to="u0")}
    lower = {**{f"l{at}": leaf(f"l{at}") for at in range(10)}, "start": leaf("start", to="l0")}
    text = render_dot(Picture("t", "", {"a": {"first": upper["first"], **upper}, "b": {"start": lower["start"], **lower}}))
    ties = re.findall(r'^  "(.*)" -> "(.*)" \[style=invis\];$', text, re.MULTILINE)
    assert ties == [(f"a/u{one}", f"b/{other}") for one in range(8) for other in ("start", *[f"l{at}" for at in range(1, 8)])]


@pytest.mark.parametrize(("condition", "lines"), [
    ("a" * 18 + ", " + "b" * 18, ["a" * 18 + ", " + "b" * 18]), ("a" * 18 + ", " + "b" * 19, ["a" * 18 + ",", "b" * 19]),
    ("a" * 38 + ", b", ["a" * 38 + ",", "b"]), ("a, b, " + "c" * 33 + ", d", ["a, b,", "c" * 33 + ", d"]), ("a" * 40, ["a" * 39, "a"]), ("", ["all"]),
])  # fmt: skip
def test_lines_of_a_condition_have_at_most_38_letters_and_a_comma(condition, lines):
    text = render_dot(Picture("", "c", {"a": {"b": Box("b", "", (Row(1, condition, condition, "", "RETURN"),), 1)}}))
    assert ">" + '<br align="left"/>'.join(lines) + "</td>" in text
    assert '<font point-size="10" color="#475569"> </font>' in text, "a line without a title"
