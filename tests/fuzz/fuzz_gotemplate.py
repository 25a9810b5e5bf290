"""Hostile templates: whatever the text and the data are, the engine answers with text or with a TemplateError, and soon.

    python tests/fuzz/fuzz_gotemplate.py                  100,000 cases
    python tests/fuzz/fuzz_gotemplate.py --cases 500 --seed 7
    python tests/fuzz/fuzz_gotemplate.py --atheris        guided by coverage, where the package atheris is installed

Cases are of three kinds: templates of the grammar, wrong on purpose; texts put together from pieces of the language or
damaged; bombs, which grow, recurse or nest. A case that ends in any other exception, or takes longer than PATIENCE
seconds, is printed with its seed, and the run fails.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from pathlib import Path
from unittest import mock

_TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS.parent)]

from gotemplate_grammar import FUNCTIONS, Maker, rich_data  # noqa: E402 - the path must be set first
from netinit.golang.template import Template, TemplateError, limits  # noqa: E402
from netinit.inject.adding import istio_functions  # noqa: E402

PATIENCE = 10.0
ALL_FUNCTIONS = {**istio_functions.FUNCTIONS, **FUNCTIONS}
NAMES = tuple(ALL_FUNCTIONS)
DATA = rich_data()
PIECES = (
    "{{", "}}", "{{-", "-}}", " -}}", "{{ ", "/*", "*/", "if ", "else", "else if ", "end", "range ", "with ", "define ", "block ",
    "template ", "break", "continue", "$", "$x", ":=", "=", "|", "(", ")", ".", ".m", ".l", ".s", ".n", "$i, $e := ", '"', "`", "'",
    "\\", "\n", "\t", " ", ",", "0", "1", "-1", "1e9", "99999999999999999999", "0x", "1i", "nil", "true", '"a"', "'x'", "\x00", "\ud800",
    "\u00e9", "\u2028", "%d", "%1000000d", "%v", "printf ", "index ", "and ", "or ", "eq ", "not ", "x", "text", "[[", "]]", "/* c */",
)  # fmt: skip
BOMBS = (
    '{{{{define "a"}}}}{{{{template "a" .}}}}{{{{end}}}}{{{{template "a" .}}}}',
    '{{{{define "a"}}}}{{{{template "b" .}}}}{{{{template "b" .}}}}{{{{end}}}}{{{{define "b"}}}}{{{{template "a" .}}}}x{{{{end}}}}{{{{template "a" .}}}}',
    "{{{{range {n}}}}}{{{{range {n}}}}}{{{{range {n}}}}}{{{{end}}}}{{{{end}}}}{{{{end}}}}",
    '{{{{$x := "ab"}}}}{{{{range {n}}}}}{{{{$x = printf "%s%s" $x $x}}}}{{{{end}}}}{{{{$x}}}}',
    "{{{{$x := list 1}}}}{{{{range {n}}}}}{{{{$x = list $x $x}}}}{{{{end}}}}{{{{$x}}}}",
    "{{{{$x := list 1}}}}{{{{range {n}}}}}{{{{$x = list $x}}}}{{{{end}}}}{{{{toYaml $x}}}}{{{{toJSON $x}}}}{{{{$x}}}}",
    '{{{{$x := dict "a" 1}}}}{{{{range {n}}}}}{{{{$x = dict "a" $x "b" $x}}}}{{{{end}}}}{{{{omitNil $x | toYaml}}}}',
    '{{{{printf "%{n}d" 1}}}}{{{{printf "%.{n}f" 1.5}}}}{{{{printf "%*d" {n} 1}}}}{{{{printf "%-{n}s" "x"}}}}',
    '{{{{repeat {n} "x"}}}}{{{{indent {n} "x"}}}}{{{{nindent {n} "a\\nb"}}}}{{{{until {n} | len}}}}',
    '{{{{$x := repeat 1000 "x"}}}}{{{{range {n}}}}}{{{{$x = replace "x" "xx" $x}}}}{{{{end}}}}',
    '{{{{$x := repeat 100000 "x"}}}}{{{{range {n}}}}}{{{{if contains "y" $x}}}}{{{{end}}}}{{{{end}}}}',
    "{{{{$l := list}}}}{{{{range {n}}}}}{{{{$l = append $l .}}}}{{{{end}}}}{{{{len $l}}}}",
    "{{{{range {n}}}}}{{{{$.m}}}}{{{{end}}}}",
    '{{{{fromJSON (repeat {n} "[")}}}}{{{{fromJSON (print (repeat {n} "[") (repeat {n} "]"))}}}}',
    '{{{{join (repeat 1000 "x") (until {n})}}}}{{{{split "" (repeat {n} "x") | len}}}}',
)
NESTS = (
    ("{{if 1}}", "{{end}}"),
    ("{{(", ")}}"),
    ("{{range .l}}", "{{end}}"),
    ("{{with 1}}", "{{else}}{{end}}"),
    ('{{block "a" .}}', "{{end}}"),
    ("{{if 0}}{{else if 0}}", "{{end}}"),
    ("{{not (", ")}}"),
    ("{{1", "}}"),
    ("{{1 | print", "}}"),
    ("{{.a", "}}"),
    ("{{/*", "*/}}"),
    ('{{define "x"}}', "{{end}}"),
)


def make_text(choose) -> str:
    """A hostile template, by numbers that `choose(below)` gives."""
    kind = choose(10)
    if kind < 4:
        return Maker(choose, wild=True).template()
    if kind < 7:
        return "".join(
            PIECES[choose(len(PIECES))] if choose(6) else NAMES[choose(len(NAMES))] + " " for _ in range(choose(30))
        )
    if kind == 7:
        text = Maker(choose).template() or "x"
        at, until = sorted((choose(len(text)), choose(len(text))))
        return text[:at] + PIECES[choose(len(PIECES))] + (text[until:] if choose(2) else text[at:])
    if kind == 8:
        # most bombs are small: they must end well; the large ones must end at all
        size = (3, 30, 300, 5000, 10**6, 10**9, 10**12)[choose(7)]
        return BOMBS[choose(len(BOMBS))].format(n=size)
    before, after = NESTS[choose(len(NESTS))]
    depth = (3, 99, 101, 1000, 20000)[choose(5) if not choose(10) else choose(3)]
    if before in ("{{(", "{{not (", "{{1", "{{.a", "{{/*", "{{1 | print"):
        inner = before[2:]
        return "{{" + inner * depth + ("1" if "(" in inner else "") + after[:-2] * depth + "}}"
    return before * depth + "x" + after * depth


@mock.patch.multiple(limits, MAX_DEPTH=50, MAX_OUTPUT=100_000, MAX_STEPS=20_000)
def run_case(text: str, patience: float = PATIENCE) -> str | None:
    """None when the engine behaves; else what it did."""
    started = time.process_time()
    try:
        delimiters = ("[[", "]]") if text.startswith("[[") else ("{{", "}}")
        rendered = Template("fuzz", text, ALL_FUNCTIONS, delimiters).render(DATA)
        if len(rendered) > limits.MAX_OUTPUT:
            return f"{len(rendered)} characters of output"
    except TemplateError as error:
        if not str(error).startswith("template: "):
            return f"an error that does not say where: {error}"
    except Exception:  # noqa: BLE001 - every other exception is what is looked for
        return traceback.format_exc(limit=-4)
    took = time.process_time() - started
    return f"took {took:.1f} s of the processor" if took > patience else None


def run(cases: int, seed: int = 0) -> list[str]:
    """The failures of that many cases."""
    failures: list[str] = []
    for number in range(cases):
        chance = random.Random(seed * 1_000_003 + number)
        text = make_text(chance.randrange)
        problem = run_case(text)
        if problem:
            failures.append(f"seed {seed}, case {number}: {text[:300]!r}\n{problem}")
    return failures


def run_with_atheris() -> None:
    """Endless or for atheris' own `-max_total_time`, guided by coverage, from texts of the grammar on; stops at a failure."""
    import atheris

    def one(raw: bytes) -> None:
        text = raw.decode("utf-8", "replace")
        problem = run_case(text, 10 * PATIENCE)  # modules that count their lines are slower
        if problem:
            raise RuntimeError(f"{text!r}\n{problem}")

    atheris.instrument_all()
    with tempfile.TemporaryDirectory() as corpus:
        for number in range(300):
            text = make_text(random.Random(number).randrange)
            Path(corpus, str(number)).write_text(text[:2000], "utf-8", "replace")
        atheris.Setup([sys.argv[0], *(word for word in sys.argv[1:] if word != "--atheris"), corpus], one)
        atheris.Fuzz()


def main() -> int:
    """The exit code: 1 when a case failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--atheris", action="store_true")
    options, of_atheris = parser.parse_known_args()
    if options.atheris:
        run_with_atheris()
    if of_atheris:
        parser.error(f"unknown: {' '.join(of_atheris)}")
    started = time.perf_counter()
    failures = run(options.cases, options.seed)
    print("\n\n".join(failures[:20]))
    took = time.perf_counter() - started
    print(f"templates: {options.cases:,} cases, seed {options.seed}, {len(failures)} failures, {took:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
