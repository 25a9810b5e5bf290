"""The formats of an audit: the whole Markdown and page of results that have every field."""

from __future__ import annotations

import re

from audits import DB, DESIGN, FOREIGN, QUIET, REFUTED, WEB
from netinit.base.version import __version__
from netinit.cli.audit.markdown import render_markdown
from netinit.cli.audit.page import render_page


def test_markdown_has_a_section_with_both_tables_for_each_pod():
    assert render_markdown([WEB, DB]) == r"""# Audit of traffic

## Pod "web"

2 kinds of traffic bypass the proxy: 1 because of foreign rules, 1 by design.

> Warning: not all is known

| by | traffic | who | because | to close it |
| --- | --- | --- | --- | --- |
| foreign | what rules of others decide | TCP inbound<br>TCP \<out\> | rule 1 of nat OUTPUT<br>rule 2 | delete the rule |
| design | what the proxy sends | uid 1337 | no loops |  |
| covered | goes to the proxy on 15001 | TCP outbound | all TCP |  |

| assertion | result | counterexample | what would change it |
| --- | --- | --- | --- |
| tcp is captured | refuted | TCP to 192\.0\.2\.4:80: direct: no rule | without \-x; \-\-ipv6 on |
| udp is direct | proved<br>unless container "app" changes the rules: \<it\> is privileged |  |  |
| ipv6 is refused | proved |  |  |
| sctp is direct | unknown |  |  |

## Pod db

1 kind of traffic bypasses the proxy: 1 by design.

| by | traffic | who | because | to close it |
| --- | --- | --- | --- | --- |
| design | what the proxy sends | uid 1337 | no loops |  |
"""


def test_markdown_escapes_every_character_that_is_markup():
    found = render_markdown([DB | {"name": r"\`*_{}[]<>()#+-.!|~" + "\x1b\n"}])
    assert found.splitlines()[2] == r"## \\\`\*\_\{\}\[\]\<\>\(\)\#\+\-\.\!\|\~\\x1b\\n"


def entries_of(page, anchor):
    """The entries of a section, as markup."""
    section = page.split(f'<h2 id="{anchor}">')[1].split("</section>")[0]
    return re.findall(r"<article .*?</article>", section, re.DOTALL)


def test_the_page_has_a_whole_entry_for_what_is_to_be_acted_on():
    page = render_page([WEB], "2026-01-02 <now>")
    refuted, unknown, foreign = entries_of(page, "act")
    assert foreign == """\
<article id="act-1" class="foreign"><h3><span class="mark foreign">✘ foreign</span> \
<span class="title">what rules of others decide <code>foreign</code></span></h3>\
<dl><dt>Who</dt><dd><div>TCP inbound</div><div>TCP &lt;out&gt;</div></dd><dt>Because</dt><dd><div>rule 1 of nat OUTPUT</div><div>rule 2</div></dd>\
<dt>To close it</dt><dd>delete the rule</dd><dt>Example</dt><dd>TCP to 192.0.2.1:80</dd><dt>At</dt><dd><code>web.yaml:7:9</code></dd></dl></article>"""
    assert refuted == """\
<article id="refuted-1" class="refuted"><h3><span class="mark refuted">✘ refuted</span> \
<span class="title">no way out: <code>tcp is captured</code></span></h3>\
<dl><dt>Counterexample</dt><dd><div>TCP to 192.0.2.4:80</div><div>direct: no rule</div><details><summary>its path</summary>\
<div><code>OUTPUT nat OUTPUT 1: -j X</code></div><div><code>direct</code></div></details></dd>\
<dt>What would change it</dt><dd><div>without <span class="option">-x</span>: captured</div>\
<div><span class="option">--ipv6</span> on: refused</div></dd></dl></article>"""
    assert "sctp is direct" in unknown
    assert page.startswith("<!doctype html>\n")
    assert page.endswith(f"<footer>netinit {__version__}, 2026-01-02 &lt;now&gt;</footer>\n</body>\n</html>\n")


def test_the_page_folds_what_is_by_design_what_is_captured_and_what_is_proved():
    page = render_page([WEB], "")
    folded = [entry for anchor in ("design", "covered", "proved") for entry in entries_of(page, anchor)]
    assert len(folded) == 4
    for entry in folded:
        assert re.match(r'<article id="[a-z]+-\d" class="[a-z]+"><details><summary>', entry)
    assert not any("<details><summary><span" in entry for entry in entries_of(page, "act"))
    assert "details-content" in page.split("@media print")[1], "on paper nothing can be unfolded"


def test_the_page_says_first_what_to_act_on_and_has_a_table_of_contents():
    page = render_page([WEB, QUIET], "")
    places = [page.index(text) for text in ('class="summary"', "<nav", ">Act on this first</h2>", ">Pods</h2>", ">By design</h2>")]
    assert places == sorted(places)
    anchors = re.findall(r' id="([^"]+)"', page)
    links = re.findall(r'href="#([^"]+)"', page)
    assert len(anchors) == len(set(anchors))
    assert set(links) == set(anchors)
    assert "<p>There is nothing to act on.</p>" in render_page([QUIET], "")


def test_the_page_has_equal_pods_and_equal_traffic_once():
    equal = [DB | {"name": f"Pod db-{number}"} for number in range(12)]
    page = render_page([WEB, *equal], "")
    assert len(entries_of(page, "pods")) == 2
    assert len(entries_of(page, "design")) == 1, "it is the same in all thirteen"
    assert "<details><summary>13 pods</summary>" in entries_of(page, "design")[0]
    several = entries_of(page, "pods")[1]
    assert all(f"<div>Pod db-{number}</div>" in several for number in range(12))


def test_entries_of_one_title_are_told_apart_where_they_are_folded():
    page = render_page([DB | {"traffic": [DESIGN, DESIGN | {"who": ["UDP <in>", "TCP"]}]}], "")
    first, second = entries_of(page, "design")
    assert '<span class="detail">uid 1337</span></span></summary>' in first
    assert '<span class="detail">UDP &lt;in&gt;; TCP</span></span></summary>' in second
    assert 'class="detail"' not in render_page([WEB], "")
    page = render_page([DB | {"traffic": [DESIGN]}, WEB | {"traffic": [DESIGN | {"because": ["uid"]}]}], "")
    assert [re.findall('class="detail">([^<]*)<', entry) for entry in entries_of(page, "design")] == [["in Pod db"], ["in Pod &quot;web&quot;"]]


def test_equal_traffic_is_one_entry_whatever_the_number_of_its_packets():
    pods = [DB | {"name": f"Pod {packets}", "traffic": [DESIGN | {"packets": packets}]} for packets in ("1", "2")]
    assert len(entries_of(render_page(pods, ""), "design")) == 1


def test_the_page_marks_as_markup_nothing_that_a_pod_names():
    hostile = "<b>\x1b"
    foreign = FOREIGN | dict.fromkeys(("title", "closes", "example"), hostile) | {key: [hostile] for key in ("who", "because")}
    shown = {"packet": hostile, "sentence": hostile, "path": [hostile]}
    refuted = REFUTED | {
        "name": hostile, "assertion": hostile, "counterexample": shown, "cures": [{"change": hostile, "verdict": hostile}],
    }  # fmt: skip
    pod = {"name": hostile, "options": hostile, "traffic": [foreign], "assertions": [refuted], "warnings": [hostile]}
    page = render_page([pod], hostile)
    assert page.count("&lt;b&gt;\\x1b") == 21
    assert hostile not in page
    assert "\x1b" not in page
