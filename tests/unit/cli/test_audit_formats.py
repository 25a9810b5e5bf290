"""The formats of an audit: the whole Markdown and page of results that have every field."""

from __future__ import annotations

from audits import DB, FOREIGN, QUIET, REFUTED, WEB
from netinit.base.version import __version__
from netinit.cli.audit.formats import render_markdown, render_page


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


def test_the_page_has_a_section_with_both_tables_for_each_pod():
    page = render_page([WEB, QUIET], "2026-01-02 <now>")
    start, end = page.index("<section>"), page.index("\n<footer>")
    assert page[start:end] == """\
<section>
<h2>Pod &quot;web&quot;</h2>
<p>2 kinds of traffic bypass the proxy: 1 because of foreign rules, 1 by design.</p>
<p class="dim"><code>netinit apply -b &#x27;*&#x27;</code></p>
<p class="warning">not all is known</p>
<div class="table"><table>
<thead><tr><th>By</th><th>Traffic</th><th>Who</th><th>Because</th><th>To close it</th></tr></thead>
<tbody>
<tr><td><span class="by foreign">foreign</span></td>\
<td>what rules of others decide<div class="dim"><code>foreign</code></div></td>\
<td><div>TCP inbound</div><div>TCP &lt;out&gt;</div><div class="dim">for example TCP to 192.0.2.1:80</div></td>\
<td><div>rule 1 of nat OUTPUT</div><div>rule 2</div></td><td>delete the rule</td></tr>
<tr><td><span class="by design">design</span></td><td>what the proxy sends<div class="dim"><code>proxy</code></div></td>\
<td><div>uid 1337</div><div class="dim">for example TCP to 192.0.2.2:80</div></td><td><div>no loops</div></td><td></td></tr>
<tr><td><span class="by covered">covered</span></td><td>goes to the proxy on 15001<div class="dim"><code>captured</code></div></td>\
<td><div>TCP outbound</div><div class="dim">for example TCP to 192.0.2.3:80</div></td><td><div>all TCP</div></td><td></td></tr>
</tbody>
</table></div>
<div class="table"><table>
<thead><tr><th>Result</th><th>Assertion</th><th>Counterexample</th><th>What would change it</th></tr></thead>
<tbody>
<tr><td><span class="by refuted">refuted</span></td><td><div>no way out</div><code>tcp is captured</code></td>\
<td><div>TCP to 192.0.2.4:80</div><div>direct: no rule</div><details><summary>its path</summary>\
<div><code>OUTPUT nat OUTPUT 1: -j X</code></div><div><code>direct</code></div></details></td>\
<td><div>without -x: captured</div><div>--ipv6 on: refused</div></td></tr>
<tr><td><span class="by proved">proved</span><div>unless container &quot;app&quot; changes the rules: &lt;it&gt; is privileged</div></td>\
<td><code>udp is direct</code></td><td></td><td></td></tr>
<tr><td><span class="by proved">proved</span></td><td><code>ipv6 is refused</code></td><td></td><td></td></tr>
<tr><td><span class="by unknown">unknown</span></td><td><code>sctp is direct</code></td><td></td><td></td></tr>
</tbody>
</table></div>
</section>
<section>
<h2>Pod quiet</h2>
<p>all traffic goes through the proxy.</p>
<div class="table"><table>
<thead><tr><th>By</th><th>Traffic</th><th>Who</th><th>Because</th><th>To close it</th></tr></thead>
<tbody>
<tr><td><span class="by covered">covered</span></td><td>goes to the proxy on 15001<div class="dim"><code>captured</code></div></td>\
<td><div>TCP outbound</div><div class="dim">for example TCP to 192.0.2.3:80</div></td><td><div>all TCP</div></td><td></td></tr>
</tbody>
</table></div>
</section>"""
    assert page.startswith("<!doctype html>\n")
    assert page.endswith(f"<footer>netinit {__version__}, 2026-01-02 &lt;now&gt;</footer>\n</body>\n</html>\n")


def test_the_page_marks_as_markup_nothing_that_a_pod_names():
    hostile = "<b>\x1b"
    foreign = FOREIGN | dict.fromkeys(("title", "closes", "example"), hostile) | {key: [hostile] for key in ("who", "because")}
    shown = {"packet": hostile, "sentence": hostile, "path": [hostile]}
    refuted = REFUTED | {
        "name": hostile, "assertion": hostile, "counterexample": shown, "cures": [{"change": hostile, "verdict": hostile}],
    }  # fmt: skip
    pod = {"name": hostile, "options": hostile, "traffic": [foreign], "assertions": [refuted], "warnings": [hostile]}
    page = render_page([pod], hostile)
    assert page.count("&lt;b&gt;\\x1b") == 16
    assert hostile not in page
    assert "\x1b" not in page
