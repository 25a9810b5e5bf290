"""Pictures: they parse, they show every chain, and the path of a packet stands out."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from core import plan
from netinit.base.errors import NetinitError
from netinit.base.net import IPV4, IPV6, number_of
from netinit.cli.draw import render_svg
from netinit.options import Options
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.draw import choose_tables, make_picture, render_dot, render_mermaid, render_text
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import load_plan
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
