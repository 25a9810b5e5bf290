"""What a flag needs beside its declaration and its rules: one test names everything that is missing."""

from __future__ import annotations

import re
from pathlib import Path

from netinit.options import Interception
from option_samples import SAMPLES

ROOT = Path(__file__).parents[3]
# The proxy's own ports, mark and table, another word for --ipv6 on, and a form of the rules that has tests of its own
NOT_DRAWN = ("outbound_port", "inbound_port", "tproxy_mark", "tproxy_table", "dual_stack", "istio_exact")
OF_AUDIT = "tests/unit/questions/audit/test_options_of_peers.py"


def read(name):
    return (ROOT / name).read_text("utf-8")


def test_every_flag_is_in_all_tables_and_on_the_pages():
    goldens = "\n".join([path.read_text("utf-8") for path in (ROOT / "tests" / "golden" / "rules").glob("*/options.txt")])
    drawn = read("tests/strategies.py")
    audited, options_page, annotations_page, completion = map(read, (OF_AUDIT, "docs/options.md", "docs/annotations.md", "netinit/data/completion.tsv"))
    lacking = []
    for flag in Interception.flags:
        names = [*[f"--{name}" for name in (flag.long, *flag.aliases) if name], *([f"-{flag.short}"] if flag.short else []), *flag.variables]
        wanted = {
            f"SAMPLES in tests/option_samples.py lacks the kind {flag.kind.metavar}": flag.kind.metavar in SAMPLES,
            "no golden in tests/golden/rules has it (options.txt there begins with `# ` and says what is to be seen)": any(
                re.search(rf"(?<![\w-]){re.escape(name)}\b", goldens) for name in names
            ),
            f"tests/strategies.py does not draw {flag.field!r}": flag.field in NOT_DRAWN or bool(re.search(rf"\b{flag.field}\b", drawn)),
            f"SAID in {OF_AUDIT} lacks {flag.field!r}": not flag.annotation or f'"{flag.field}": (' in audited,
            "docs/options.md is stale: run .venv/bin/python tests/reference.py": flag.label in options_page,
            "docs/annotations.md is stale: run .venv/bin/python tests/reference.py": flag.annotation in annotations_page,
            "completion.tsv is stale: run .venv/bin/python tests/reference.py": not flag.long or f"--{flag.long}" in completion,
        }
        lacking += [f"{flag.label}: {problem}" for problem, is_there in wanted.items() if not is_there]
    assert not lacking, "\n".join(lacking)
