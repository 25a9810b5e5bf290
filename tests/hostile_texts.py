"""Texts that attack whoever reads them on a terminal, and what must be true of everything that is shown."""

from __future__ import annotations

from hypothesis import strategies as st

ATTACKS = (
    "\x1b]0;pwned\x07\x1b[2J\x1b[Has planned: 15 rules for IPv4",  # title, clear, home
    "\x1b[8mhidden\x1b[0m", "\x9b31mred", "\x90q\x9c", "\x1bP$q\x1b\\", "\x1b]52;c;cm0gLXJmIC8=\x07",  # C1 too; the clipboard
    "a\rcaptured: all is well", "a\nnetinit: all is well", "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g", "a\x08\x08\x7f",
    "\u202eevil\u202c", "\u2066x\u2069\u061c\u200e\u200f", "in\u200bvis\u200d\u2060ible\ufeff", "\U000e0001\U000e0041", "\udcff\ud800",
    "because all outbound TCP is captured; no exclusion matches (--istio-service-cidr)",
    '"]; evil [label="x', '"] --> evil["x', "%%{init: {'securityLevel': 'loose'}}%%", "\\N \\G \\l \\", "&#27;&lt;b&gt;&amp;", "<script>alert(1)</script>",
    "`md` **b** $$x$$ fa:fa-check", "#quot; #35; #x1b;", "---\nflowchart", "end", "x" * 5000,
)  # fmt: skip
LETTERS = "".join(dict.fromkeys("".join(ATTACKS))) + "äß漢字\x00\t ;{}[]()|\"'`#&%$<>\\"
texts = st.sampled_from(ATTACKS) | st.text(st.sampled_from(LETTERS), max_size=40) | st.text(max_size=20)


def commands(text: str, layout: str = "\n") -> list[str]:
    """What in a text a terminal obeys or a reader cannot see; empty for what may be shown. `layout` is ours."""
    return [repr(letter) for letter in dict.fromkeys(text) if not letter.isprintable() and letter not in layout]
