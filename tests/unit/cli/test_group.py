"""Help, suggestions and completion."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click import Argument, Group

from netinit.base.documentation import address_of
from netinit.cli import group
from netinit.cli.examples import EXAMPLES
from netinit.cli.flags import FlagCommand
from netinit.options import FLAGS
from sweeps import together

ROOT = Path(__file__).parents[3]
COMMANDS = group.root.list_commands(None)


def test_the_help_lists_the_commands_that_are_there_and_no_others(run):
    done = run("netinit --help")
    assert (done.code, done.err) == (0, "")
    listed = [line.split()[0] for line in done.out.partition("Inspect:")[2].splitlines() if line.startswith("  ") and line[2] != " "]
    assert listed == COMMANDS
    assert re.findall(r"^(\w+):$", done.out, re.MULTILINE) == ["Options", "Inspect", "Change", "Inject", "Servers", "More"]
    assert max(map(len, done.out.splitlines())) < 80
    assert done.out.endswith(f"Documentation: {address_of('commands')}\n")
    assert {"apply", "remove", "verify", "render", "version"} <= set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_that_tells_what_it_does(name, run):
    command = group.root.get_command(None, name)
    if hasattr(command, "_help_option"):
        command._help_option = None  # click keeps that of a test which called the command without its group, which has no -h
    for option in ("--help", "-h"):
        done = run(f"netinit {name} {option}")
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(f"Usage: netinit {name}")
        assert len(done.out.splitlines()[2].strip()) > 10


def list_paths():
    """Every command by its path, those of groups behind their group's name."""
    for name in COMMANDS:
        command = group.root.get_command(None, name)
        yield name, command
        if isinstance(command, Group):
            yield from [(f"{name} {member}", command.get_command(None, member)) for member in command.list_commands(None)]


PATHS = dict(list_paths())


@pytest.mark.parametrize("path", sorted({*PATHS} - {"kubectl complete"}))
def test_every_help_ends_with_two_examples_of_the_command_and_its_page(path, run):
    out = run(f"netinit {path} --help").out
    first, second, page = [line.strip() for line in out.rpartition("Examples:\n\n")[2].splitlines() if line.strip()]
    assert (first, second) == EXAMPLES[path]
    assert page == f"Documentation: {address_of(f'commands/{path.split()[0]}')}"
    assert (ROOT / f"docs/commands/{path.split()[0]}.md").is_file()


def test_the_help_of_a_command_for_kubectl_alone_ends_with_the_page(run):
    out = run("netinit kubectl complete --help").out
    assert out.endswith(f"\n\n  Documentation: {address_of('commands/kubectl')}\n")
    assert "Examples:" not in out


@together("path", sorted(EXAMPLES))
def test_the_options_of_examples_exist(path):
    for example in EXAMPLES[path]:
        part = re.search(r"netinit( .*)?$", example.partition(" -- ")[0])
        words = [word for word in shlex.split(part[0].partition("|")[0])[1:] if not word.startswith((">", "<"))]
        named = next((name for name in (" ".join(words[:2]), " ".join(words[:1])) if name in PATHS), "")
        if "kubectl netinit" in example:
            named = f"kubectl {words[0]}"
        assert named.partition(" ")[0] == path.partition(" ")[0] or words == ["--version"], example
        if named:
            command, inner = PATHS[named], named.removeprefix("kubectl ")
            known = {option for one in (command, PATHS.get(inner, command)) for param in one.params for option in param.opts}
            assert {word for word in words if word.startswith("-") and len(word) > 1} <= known, example


RIDDLES = re.compile(
    r"\b(tells?|told|stands? for|alike|comes? to nothing|(rules|locks) (of|that) others|others' rules|spared?|astray|trial|throw-away|wants?|the way)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_is_written_in_plain_words_of_the_field(name, run):
    text = " ".join(run(f"netinit {name} --help").out.split())
    assert not [found[0] for found in RIDDLES.finditer(text)], text


def test_every_bad_item_of_a_list_is_named(run):
    done = run("netinit render -b 80,abc,70000 -i 10.0.0.0/33,foo")
    assert done.code == 2, done
    assert [item for item in ("'abc'", "'70000'", "'10.0.0.0/33'", "'foo'") if item not in done.err] == [], done.err


@pytest.mark.parametrize("line", [["render", "-b", "80"], ["completion", "bash"], ["explain", "--to", "192.0.2.1:80"], ["lint"]])
def test_a_closed_stdout_is_an_error_that_says_so(line):
    start = [sys.executable, "-m", "netinit", *line]
    done = subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *start], stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, "stdout is closed" in done.stderr) == (1, True), done
    assert "internal error" not in done.stderr


@together("name", COMMANDS)
def test_no_command_uses_the_name_of_a_flag_for_something_else(name):
    command = group.root.get_command(None, name)
    if isinstance(command, FlagCommand):
        seen = [option for param in command.params if not isinstance(param, Argument) for option in param.opts]
        assert len(seen) == len(set(seen)), "an option of the command's own hides a flag"
    assert command.name == name


@pytest.mark.parametrize(
    ("line", "usage"),
    [
        ("netinit apply --help", "Usage: netinit apply [OPTIONS]"),
        ("netinit istio-iptables -h", "Usage: netinit istio-iptables [OPTIONS]"),
        ("netinit -p 1 --help", "Usage: netinit [OPTIONS]"),
        ("istio-iptables --help", "Usage: istio-iptables [OPTIONS]"),
        ("istio-iptables -p 0 --nonsense --help", "Usage: istio-iptables [OPTIONS]"),
    ],
)
def test_help_is_given_under_every_name_whatever_else_stands_there(line, usage, run, applied):
    done = run(line)
    assert (done.code, done.err, done.told, applied) == (0, "", [], [])
    assert done.out.startswith(usage)


def test_the_help_explains_every_option_with_its_default_and_variables(run):
    text = " ".join(run("netinit apply --help").out.split())
    for flag in FLAGS:
        for name in (*[f"--{name}" for name in (flag.long, *flag.aliases) if name], *flag.variables):
            assert name in text, f"{flag.label} is not explained"
    assert "-z, --inbound-capture-port PORT Inbound TCP is redirected to this port" in text
    assert "[default: 133; env: ISTIO_INBOUND_TPROXY_ROUTE_TABLE]" in text


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("netinit aply", "netinit: 'aply' is not a command; did you mean apply?"),
        ("netinit xyzzy", "netinit: 'xyzzy' is not a command; commands: explain, why, audit, "),
        ("netinit render --fromat json", "netinit: '--fromat' is not an option; did you mean --format?"),
        ("netinit render --log-as-json", "netinit: '--log-as-json' is not an option; did you mean --log_as_json?"),
        ("netinit render -X", "netinit: '-X' is not an option; netinit render --help lists them"),
        ("netinit render --format yaml", "netinit: --format: 'yaml' is not one of"),
        ("netinit lint --pod", "netinit: --pod: the value is missing"),
        ("netinit convert", "netinit: missing option: --from; one of kuma, linkerd, consul, istio"),
        ("netinit explain sideways --to 10.1.2.3:80", "netinit: DIRECTION: 'sideways' is not one of"),
        ("netinit trace --to 10.1.2.3:80 --count x", "netinit: --count: 'x' is not a number: use a decimal number from 1"),

        ("netinit render stray", "netinit: 'stray' is not an option; quote values that hold blanks or *"),
        ("netinit check-inject -f - app.yaml", "netinit: 'app.yaml' is not an option; name manifests with -f"),
    ],
)
def test_what_was_probably_meant_is_said(line, error, run):
    done = run(line)
    assert done.code == 2
    assert done.err.startswith(error)
    assert done.err.count("\n") == 1


def test_a_commands_own_problems_and_the_flags_are_told_together(run):
    done = run("netinit render --format yaml --famly ipv4 -p 0 -i", {"PROXY_UID": "ghost"})
    assert [line.split(":")[1].strip() for line in done.err.splitlines()] == [
        "-i",
        "'--famly' is not an option; did you mean --family or --force-apply?",
        "--format",
        "-p",
        "environment variable PROXY_UID",
    ]


@pytest.mark.parametrize("line", ["verify --netns nowhere", "--netns nowhere verify", "--netns=nowhere explain --to 1.2.3.4:80", "--pid x doctor"])
def test_options_before_a_command_make_no_init_container_of_it(line, run):
    done = run(f"netinit {line}")
    assert done.code in (1, 2)
    assert done.err.startswith("netinit: "), done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("line", ["--netns nowhere -b 80", "--netns nowhere apply", "apply --netns nowhere"])
def test_the_init_containers_job_is_told_in_lines_for_machines(line, run):
    done = run(f"netinit {line}")
    assert done.code == 1
    assert "\terror\t/run/netns/nowhere" in done.err


def test_the_version_is_told_in_both_ways(run):
    assert run("netinit --version").out == run("netinit version").out == f"netinit {group.__version__}\n"


def test_remove_is_apply_with_cleanup_only(run, applied):
    assert run("netinit remove --netns blue").code == 0
    assert (applied[0].cleanup_only, applied[0].netns) == (True, "blue")


@pytest.mark.parametrize(
    ("words", "number", "offered"),
    [
        ("netinit rend", 1, ["render"]),
        ("netinit apply --envoy", 2, ["--envoy-port"]),
        ("netinit render -m ", 3, ["REDIRECT", "TPROXY", "NONE"]),
        ("netinit render --layout c", 3, ["current", "classic"]),
        ("netinit verify -p 1 --net", 4, ["--network-namespace", "--netns"]),
        ("netinit inject -R --values", 3, ["--valuesFile"]),
        ("netinit check-inject --native-sidecars ", 3, ["true", "false", "auto"]),
    ],
)
def test_a_shell_completes_commands_flags_and_values(words, number, offered, run, monkeypatch, applied):
    asked = {"_NETINIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(number)}
    for name, text in asked.items():
        monkeypatch.setenv(name, text)
    done = run("netinit", asked)
    assert done.out.split() == [f"plain,{word}" for word in offered]
    assert applied == []


@pytest.mark.parametrize("words", ["netinit inject -f a", "netinit check-inject --valuesFile a", "netinit inject -o a", "netinit apply --netns a"])
def test_a_shell_completes_names_of_files_where_a_file_is_meant(words, run, monkeypatch):
    asked = {"_NETINIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "3"}
    for name, text in asked.items():
        monkeypatch.setenv(name, text)
    assert run("netinit", asked).out.split() == ["file,a"]


def test_a_shell_that_asks_for_completions_never_programs_anything(run, monkeypatch, applied):
    monkeypatch.setenv("_ISTIO_IPTABLES_COMPLETE", "bash_source")
    run("istio-iptables", {"_ISTIO_IPTABLES_COMPLETE": "bash_source"})
    assert applied == []


@pytest.mark.parametrize("line", ["node", "webhook", "kubectl", "help", "help lint", "--help"])
def test_help_is_an_answer_and_no_error(run, line):
    done = run(f"netinit {line}")
    assert (done.code, done.err, done.out.splitlines()[0].split(":")[0]) == (0, "", "Usage")
