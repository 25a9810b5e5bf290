"""How commands look to people: colour, labels, help that shows what has an effect, and a name alone."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import prefork
from netinit.cli import console
from netinit.cli.commands import COMMANDS
from netinit.cli.flags import OF_THE_RUN
from sweeps import choose

MAIN = Path(__file__).parents[3] / "netinit" / "__main__.py"
POD = Path(__file__).parents[3] / "examples" / "pod.yaml"
QUESTION = ["explain", "-b", "*", "-i", "*", "-d", "15021", "--ipv6", "off", "--to", "1.2.3.4:443"]


def on_a_terminal(*words: str, environ: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code, and what a terminal gets of both streams."""
    ours, theirs = pty.openpty()
    process = prefork.Running(words, log=theirs, environ={"PATH": os.environ["PATH"], "TERM": "xterm", **(environ or {})})
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 1 << 16)
        except OSError:  # the other side is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    return process.wait(), seen.decode().replace("\r\n", "\n")


def test_the_help_of_apply_names_every_option_of_a_run_under_its_topic(run):
    text = run("netinit apply --help").out
    sections = dict(re.findall(r"^(\w+):\n((?:  .*\n|\n)+)", text, re.MULTILINE))
    for flag in OF_THE_RUN:
        assert f"--{flag.long}" in sections[flag.topic], flag.field
    assert "--pid" in sections["Namespace"]
    assert "--lock-timeout" in sections["Programming"]


@pytest.mark.parametrize("name", sorted({*COMMANDS} - {"apply"}))
def test_help_fits_on_a_page_or_two(name, run):
    text = run(f"netinit {name} --help").out
    assert len(text.splitlines()) < 83, text
    assert text.splitlines()[-1].strip().startswith("Documentation: https://netinit.io/docs/")
    assert "--istio-local-exclude-ports" not in text


@pytest.mark.parametrize(
    ("name", "shown", "hidden"),
    [
        ("remove", ["--netns", "--pid", "--dry-run", "--lock-timeout"], ["--run-validation", "netinit apply --help", "--json"]),
        ("lint", ["--pod", "--strict", "netinit apply --help"], ["--lock-timeout", "--dry-run", "--netns"]),
        ("draw", ["--pid", "--format", "--color"], ["--force-apply", "--log_as_json"]),
        ("verify", ["--pid", "--backend", "--pod", "--live"], ["--reconcile", "--log_output_level"]),
        ("inject", ["--filename", "--image", "--set", "--output", "--explain", "with --explain also 3, one is left out"], ["netinit apply --help", "--namespace-labels"]),
        ("node agent", ["--socket"], ["--debug", "netinit apply --help"]),
        ("check-inject", ["--filename", "--set", "--namespace-labels", "--json"], ["netinit apply --help", "--output", "--explain "]),
    ],
)
def test_help_shows_what_has_an_effect_and_nothing_else(name, shown, hidden, run):
    text = " ".join(run(f"netinit {name} --help").out.split())
    assert [word for word in shown if word not in text] == []
    assert [word for word in hidden if word in text] == []


WITHOUT_COLOUR = {"apply", "render", "webhook", "node", "kubectl", "completion", "help", "version"}  # events, artefacts, and commands of their own


@pytest.mark.parametrize("name", sorted({*COMMANDS} - WITHOUT_COLOUR))
def test_every_command_that_answers_people_lets_them_choose_the_colour(name, run):
    assert "--color [auto|always|never]" in run(f"netinit {name} --help").out


def test_help_is_grouped_by_what_options_are_about(run):
    text = run("netinit apply --help").out
    heads = re.findall(r"^(\w+):$", text, re.MULTILINE)
    assert heads == ["Options", "Namespace", "Rules", "Programming", "Validation", "Output", "Logging"]


@pytest.mark.parametrize(
    ("words", "environ", "coloured"),
    [
        (QUESTION, {}, True),
        (QUESTION, {"NO_COLOR": "1"}, False),
        (QUESTION, {"TERM": "dumb"}, False),
        ([*QUESTION, "--color", "never"], {}, False),
        ([*QUESTION, "--color", "always"], {"NO_COLOR": "1"}, True),
        (["lint", "-b", "80", "-d", "9"], {}, True),
        (["check-inject", "-f", str(POD)], {}, True),
        (["check-inject", "-f", str(POD)], {"NO_COLOR": "1"}, False),
        (["inject", "--explain", "-f", str(POD)], {}, True),
        (["inject", "--explain", "--color", "never", "-f", str(POD)], {}, False),
    ],
)
def test_a_terminal_gets_colour_unless_it_is_not_welcome(words, environ, coloured):
    _, text = on_a_terminal(*words, environ=environ)
    assert ("\x1b[" in text) is coloured, text
    assert re.search("captured|warning|[✔✘]", text)


def test_a_pipe_gets_no_colour_but_on_demand(run):
    assert "\x1b" not in run(["netinit", *QUESTION]).out
    assert run(["netinit", *QUESTION, "--color", "always"]).out.startswith("\x1b[32mcaptured\x1b[0m: goes to the proxy")


def test_colour_changes_no_letter(run):
    plain = run(["netinit", *QUESTION]).out
    coloured = run(["netinit", *QUESTION, "--color", "always"]).out
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain


@pytest.mark.parametrize(("line", "parts"), [
    ("captured: goes", [("captured", console.GREEN), (": goes", "")]),
    ("    ✔ OUTPUT 1", [("    ", ""), ("✔", console.GREEN), (" OUTPUT 1", "")]),
    ("captureds", [("captureds", "")]),
    ("  error: -b", [("  error", console.RED), (": -b", "")]),
    ("  ? OUTPUT ! 1", [("  ?", console.MAGENTA), (" OUTPUT ! 1", "")]),
    ("nat  ✔/✘  -", [("nat  ", ""), ("✔", console.GREEN), ("/", ""), ("✘", console.RED), ("  -", "")]),
])  # fmt: skip
def test_the_first_words_of_a_line_and_signs_are_painted(line, parts):
    assert [part for part in console.paint(line) if part[0]] == parts


LONG_ANSWERS = [
    ["audit", "-b", "*", "-i", "*", "-d", "15090,15021,15020", "--assert", "outbound tcp is captured"],
    [*QUESTION, "--all"],
    ["lint", "-b", "80", "-d", "9", "-x", "10.0.0.0/8", "-q", "443"],
    ["diff", "apply -b * -i *", "apply -b * -i 10.0.0.0/8 -d 443,8080"],
    ["check-inject", "-f", str(POD)],
    ["explain", "--to", "example.com:443"],
]


@pytest.mark.parametrize("words", LONG_ANSWERS, ids=lambda words: words[0])
def test_a_terminal_of_few_columns_gets_whole_words_and_whole_options(words):
    code, wide = on_a_terminal(*words, environ={"NO_COLOR": "1"})
    for width in choose((60,), (60, 80)):
        again, text = on_a_terminal(*words, environ={"NO_COLOR": "1", "COLUMNS": str(width)})
        assert (again, text.split()) == (code, wide.split())  # nothing is lost, and no word is in two
        assert [line for line in text.splitlines() if len(line) > width and " " in line.strip()] == []
        assert max(map(len, wide.splitlines())) > width
        options = re.compile(r"(?<!\S)--[\w-]+ [^\s-]\S*")
        assert options.findall(text) == options.findall(wide)  # each beside its value


@pytest.mark.parametrize(("columns", "widest"), [("60", 58), ("10000", 78), ("none", 78), ("", 78), ("20", 50)])
def test_help_is_as_wide_as_the_terminal_says_within_limits(run, columns, widest):
    done = run(["netinit", "--help"], {"COLUMNS": columns})
    longest = max(len(line) for line in done.out.splitlines() if "https://" not in line)  # an address is not broken
    assert widest - 10 < longest <= widest, done.out


def test_a_pipe_gets_lines_whole_whatever_the_columns(run):
    assert run(["netinit", *LONG_ANSWERS[0]], {"COLUMNS": "60"}).out == run(["netinit", *LONG_ANSWERS[0]]).out


@pytest.mark.parametrize(("line", "shown"), [
    ("    to close it: take it away from the list --ipv6 on", ["    to close it: take it away from", "      the list --ipv6 on"]),
    ("  note: take it away or use --ipv6 on", ["  note: take it away or use", "        --ipv6 on"]),
    ("! what is sent (configuration, a-long-name)", ["! what is sent (configuration,", "  a-long-name)"]),
    (f"a {'w' * 50} z", ["a", f"  {'w' * 50}", "  z"]),
    ("short", ["short"]),
])  # fmt: skip
def test_a_line_is_broken_at_blanks_and_goes_on_below_its_text(line, shown):
    assert console.fit(line, 34) == shown
    assert console.fit(line, 0) == [line]


def test_on_a_terminal_apply_refuses_in_plain_words_and_in_a_pipe_as_an_event(run):
    code, text = on_a_terminal("apply", "-b", "99999")
    assert code == 2
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    assert plain.startswith("netinit: -b: '99999' is not a port")
    assert "\t" not in plain
    assert "\terror\t" in run("netinit apply -b 99999").err


def test_a_terminal_that_wants_json_gets_it():
    _, text = on_a_terminal("apply", "-b", "99999", "--log_as_json")
    assert text.startswith('{"level":"error"')


def test_the_name_alone_prints_the_help_and_is_no_success(run, applied):
    done = run("netinit")
    assert (done.code, applied) == (2, [])
    assert done.out.startswith("Usage: netinit [OPTIONS] COMMAND")
    assert run("netinit", {"PATH": "/bin", "LOG_AS_JSON": "true"}).out.startswith("Usage:")


def test_the_name_alone_programs_where_the_environment_has_an_option(run, applied):
    assert run("netinit", {"ISTIO_INBOUND_PORTS": "80"}).code == 0
    assert [options.inbound_ports for options in applied] == [(80,)]
    wrong = run("netinit", {"ISTIO_INBOUND_PORTS": "no"})
    assert (wrong.code, "environment variable ISTIO_INBOUND_PORTS" in wrong.err) == (2, True)


@pytest.mark.parametrize(
    ("line", "same"),
    [
        ("netinit -b 80 lint -d 9", "netinit lint -b 80 -d 9"),
        ("netinit --ipv6 off -i * explain --to 1.2.3.4:80", "netinit explain --to 1.2.3.4:80 --ipv6 off -i *"),
    ],
)
def test_options_may_stand_before_the_command(line, same, run):
    assert run(line).out == run(same).out != ""


def test_a_value_that_reads_like_a_command_is_a_value(run):
    done = run("netinit --netns verify verify")
    assert "/run/netns/verify" in done.err



@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "line", ["explain --to 10.0.0.1:53 --udp -b 80 --redirect-dns --dns-servers 1.2.3.4", "render --redirect-dns --ipv6 on", "lint -b 80"]
)
def test_warnings_that_nobody_can_read_make_no_failure(line):
    start = [sys.executable, "-I", "-S", str(MAIN), *line.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(start, stdout=subprocess.PIPE, stderr=full, text=True, check=False, timeout=60)
    assert (done.returncode, bool(done.stdout)) == (0, True)
    with Path("/dev/full").open("w") as full:
        failed = subprocess.run(start, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert failed.returncode == 1, "an answer that cannot be written is one"
