"""What no option takes, for every option and argument of every command: an empty text without a meaning, bytes that are not UTF-8.

Problems are in netinit's words, whoever parses: the option, the value, what is wrong, what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest

from command_tree import COMMANDS
from netinit.base.errors import OptionError
from netinit.cli.flags import FlagCommand, describe_error
from netinit.cli.values import ValueType
from netinit.options import FLAGS, Options
from netinit.options.declare import DeclaredOptions
from netinit.options.interception import NOT_EMPTY
from netinit.options.kinds import PID, SWITCH, Flag
from netinit.options.older_istio import FLAGS as OLDER_FLAGS
from netinit.options.peers.convert import PEERS

NOT_UTF_8 = "\udcff"
MEANINGS = {  # of an empty text, by the placeholder of its kind
    "PORTS": "none", "PORTS|*": "none", "CIDRS": "none", "CIDRS|*": "none", "ADDRESSES": "none", "GROUPS": "none", "GROUPS|*": "none",
    "NAMES": "none", "PORTS:PORT": "none", "PROTOCOL:PORTS:UIDS": "none", "PROTOCOL:PORTS:GIDS": "none", "ADDRESSES|CIDRS": "none", "TEXT": "off",
    "REDIRECT|TPROXY|NONE": "the default", "legacy|nft": "the default", "SCOPE:LEVEL": "the default", "REVISION": "the default revision",
    "KEY=VALUE,…": "no labels",
}  # fmt: skip
CLICKS_VOICE = re.compile(
    r"not a valid|Invalid value|No such option|Did you mean|Missing |requires (an|[0-9]+) argument|does not take|Got unexpected|Try '"
)


def all_settings() -> set[type[DeclaredOptions]]:
    return {one.settings for one in COMMANDS.values() if isinstance(one, FlagCommand)}


def all_flags() -> list[Flag]:
    return [flag for settings in all_settings() for flag in settings.flags]


def own_params() -> Iterator[tuple[tuple[str, ...], click.Parameter]]:
    """The options and arguments that click parses and that take a value, with their commands; not the words of another program."""
    for path, command in COMMANDS.items():
        declared = {name for flag in command.settings.flags for name in flag.names.split()} if isinstance(command, FlagCommand) else ()
        for param in command.params:
            takes_none = isinstance(param, click.Option) and (param.is_flag or param.count or param.is_bool_flag)
            if not takes_none and not set(param.opts) & set(declared) and param.type is not click.UNPROCESSED:
                yield path, param


PARAMS = [pytest.param(path, param, id=" ".join([*path, param.opts[0]])) for path, param in own_params()]
OF_FLAGS = {  # those that a command reads, by its words
    " ".join(path): [flag for flag in command.settings.flags if flag.long and command.has_effect(flag.field)]
    for path, command in COMMANDS.items() if isinstance(command, FlagCommand)
}  # fmt: skip


def parse(path: tuple[str, ...], words: list[str], environ: dict[str, str] | None = None) -> str:
    """The problems of a command's words, which is parsed and not run."""
    command = COMMANDS[path]
    try:
        command.make_context(f"netinit {' '.join(path)}", list(words), obj=environ or {})
    except OptionError as error:
        return str(error)
    except click.ClickException as error:
        return "\n".join(describe_error(error, words))
    return ""


def give(param: click.Parameter, value: str) -> list[str]:
    return [param.opts[0], value] if isinstance(param, click.Option) else ["--", value]


def problem_of(label: str, problems: str) -> str:
    return next((line for line in problems.splitlines() if line.startswith((f"{label}: ", f"{label} "))), "")


def label_of(param: click.Parameter) -> str:
    if isinstance(param, click.Option):
        return param.opts[0]
    return param.type.kind.metavar if isinstance(param.type, ValueType) else param.human_readable_name


def test_options_of_all_commands_are_found():
    assert len(PARAMS) > 120
    assert sum(map(len, OF_FLAGS.values())) > 600
    assert {"--to", "--select", "--uid", "--mark", "--netnsFolder", "--kubeconfig"} <= {param.values[1].opts[0] for param in PARAMS}


def test_every_value_that_click_parses_is_of_a_kind():
    """So that none is a text which nobody looks at."""
    others = {f"{' '.join(path)} {param.opts[0]}": param.type for path, param in own_params() if not isinstance(param.type, (ValueType, click.Choice))}
    assert others == {}


@pytest.mark.parametrize(("path", "param"), PARAMS)
def test_an_empty_value_of_a_commands_own_option_is_refused(path, param):
    problem = problem_of(label_of(param), parse(path, give(param, "")))
    words = "is not one of" if isinstance(param.type, click.Choice) else "is empty: give "
    assert f"'' {words}" in problem, problem


@pytest.mark.parametrize("command", OF_FLAGS)
def test_an_empty_value_of_a_declared_flag_has_a_meaning_or_is_refused(command):
    for flag in OF_FLAGS[command]:
        problem = problem_of(f"--{flag.long}: ''", parse(tuple(command.split()), [f"--{flag.long}="]))
        assert problem == ("" if flag.kind.empty else f"--{flag.long}: '' is empty: give {flag.kind.metavar}, or remove it")


def test_the_meanings_of_an_empty_value_are_those_documented():
    found = {flag.kind.metavar: flag.kind.empty for flag in all_flags() if flag.kind.empty}
    assert found == {metavar: meaning for metavar, meaning in MEANINGS.items() if metavar != "ADDRESSES|CIDRS"}


@pytest.mark.parametrize("settings", sorted(all_settings(), key=lambda one: one.__name__), ids=lambda one: one.__name__)
def test_an_empty_variable_is_unset_unless_it_names_something(settings):
    for flag in settings.flags:
        for name in flag.variables:
            try:
                settings.from_texts({}, {name: ""})
            except OptionError as error:
                problem = problem_of(f"environment variable {name}", str(error))
            else:
                problem = ""
            assert problem == (f"environment variable {name}: '' is empty: give {flag.kind.metavar}, or remove it" if flag.kind.is_name else "")


@pytest.mark.parametrize("line", ["apply --dry-run", "remove --dry-run", "verify", "explain --to 1.2.3.4:80", "audit", "draw", "trace --to 1.2.3.4:80", "watch", "doctor"])
@pytest.mark.parametrize("given", ["--netns=", "--network-namespace=", "--pid=", "NETINIT_NETNS", "NETWORK_NAMESPACE", "NETINIT_PID"])
def test_an_empty_name_of_a_namespace_is_never_the_commands_own(line, given, run):
    done = run(f"netinit {line}{f' {given}' if given[0] == '-' else ''}", {} if given[0] == "-" else {given: ""})
    assert done.code == 2, done
    assert "'' is empty" in done.err
    assert given.rstrip("=") in done.err


@pytest.mark.parametrize(("path", "param"), PARAMS)
def test_bytes_that_are_not_utf_8_are_a_plain_error_or_a_file_name(path, param):
    problem = problem_of(label_of(param), parse(path, give(param, NOT_UTF_8)))
    if not (isinstance(param.type, ValueType) and param.type.kind.is_file):
        assert r"'\xff' is not" in problem, problem


@pytest.mark.parametrize("command", OF_FLAGS)
def test_bytes_that_are_not_utf_8_are_a_plain_error_of_a_declared_flag(command):
    for flag in OF_FLAGS[command]:
        problems = parse(tuple(command.split()), [f"--{flag.long}={NOT_UTF_8}"])
        if not flag.kind.is_file:
            assert rf"--{flag.long}: '\xff' is not UTF-8: give {flag.kind.metavar}" in problems.splitlines(), flag.long


@pytest.mark.parametrize("line", [
    "lint FILE", "lint --pod FILE", "audit FILE", "explain --to 1.2.3.4:80 --pod FILE", "draw --pod FILE", "diff FILE FILE", "inject -f FILE",
    "inject -f - --meshConfigFile FILE", "check-inject -f FILE", "webhook lint -f FILE", "webhook manifests -f FILE", "webhook probe --probe-path FILE",
    "convert --from kuma --file FILE", "verify --pod FILE", "apply --dry-run --config FILE", "apply --netns FILE", "node status --cniBinFolder FILE",
    "node install --cniBinFolder FILE --cniConfFolder FILE --pluginFile FILE", "audit -b 80 --assert FILE", "lint -b 80 --ignore-file FILE",
])  # fmt: skip
def test_a_file_name_that_is_not_utf_8_is_shown_by_its_bytes(line, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(["netinit", *[f"./{NOT_UTF_8}" if word == "FILE" else word for word in line.split()]])
    assert done.code in (1, 2), done
    assert "internal error" not in done.err
    assert "udcff" not in done.err + done.out
    assert r"\xff" in done.err + done.out


WRONG = "zzz ~"


@pytest.mark.parametrize(("path", "param"), PARAMS)
def test_a_wrong_value_is_answered_in_netinits_words(path, param):
    assert not CLICKS_VOICE.search(parse(path, give(param, WRONG)))
    if isinstance(param, click.Option):
        assert not CLICKS_VOICE.search(missing := parse(path, [param.opts[0]]))
        assert missing.splitlines()[0].startswith(f"{param.opts[0]}: "), missing


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("words", [[], ["--zzz"], ["--zzz=1"], ["zzz", "~", "zzz"], ["--help=1"], ["-\udcff"], ["-h1"], ["\x1b[2J"]], ids=repr)
def test_words_that_a_command_does_not_know_are_answered_in_netinits_words(path, words):
    try:
        problems = parse(path, words)
    except click.exceptions.Exit:  # the help
        return
    assert not CLICKS_VOICE.search(problems)
    assert problems.isprintable() or "\n" in problems


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_a_switch_with_a_value_is_answered_in_netinits_words(path):
    for param in COMMANDS[path].params:
        if isinstance(param, click.Option) and param.is_flag and not param.secondary_opts:
            try:
                problems = parse(path, [f"{param.opts[-1]}=zzz"])
            except click.exceptions.Exit:
                continue
            assert not CLICKS_VOICE.search(problems)


@pytest.mark.parametrize(("text", "mark"), [
    ("0x4000", 0x4000), ("0X4000", 0x4000), ("16384", 0x4000), ("0x00004000", 0x4000), ("0x4000/0xffffffff", 0x4000), ("0xffffffff", 2**32 - 1),
])  # fmt: skip
def test_a_mark_is_read_as_iptables_and_nft_write_it(text, mark, run):
    assert Options.from_argv(["-t", text]).tproxy_mark == mark
    done = run(["netinit", "explain", "--json", "-b", "*", "--to", "1.2.3.4:80", "--ipv6", "off", "--mark", text])
    assert (done.code, f'"mark": {mark}' in done.out) == (0, True), done


@pytest.mark.parametrize(("text", "problem"), [
    ("0x", "is not a firewall mark: use a number from 0x"), ("0x1ffffffff", "is not a firewall mark"), ("0xg", "is not a firewall mark"),
    ("0x_1", "is not a firewall mark"), ("010", "use a decimal number"), ("-1", "use a decimal number"), ("0x4000/0xff", "has a mask"),
    ("0x4000/", "has a mask"), ("1/255", "has a mask"), ("", "is empty"),
])  # fmt: skip
def test_another_mark_is_refused_with_the_ones_that_are_read(text, problem):
    for path, option in ((("explain",), "--mark"), (("draw",), "--mark"), (("apply",), "--istio-inbound-tproxy-mark")):
        assert problem in problem_of(option, parse(path, [f"{option}={text}"]))


def test_no_mark_of_a_socket_is_zero():
    assert parse(("explain",), ["--mark", "0"]) == parse(("explain",), ["--mark", "0x0"]) == ""
    assert "from 0x1 to 0xffffffff" in parse(("apply",), ["-t", "0x0"])


@pytest.mark.parametrize("peer", PEERS)
def test_an_empty_value_of_another_meshs_flag_has_a_meaning_or_is_refused(peer):
    for flag in PEERS[peer].flags:
        if flag.names and flag.kind is not SWITCH:
            try:
                PEERS[peer].from_texts({flag.field: ("", f"--{flag.long}")}, {})
            except OptionError as error:
                problem = problem_of(f"--{flag.long}", str(error))
            else:
                problem = ""
            assert bool(flag.kind.empty) == (problem == ""), (flag.names, problem)


def test_the_kinds_that_name_an_object_are_those_of_namespaces_processes_files_and_names():
    named = {flag.kind.metavar for flag in all_flags() if flag.kind.is_name}
    assert named == {"PATH", "PID", "NAME", "ADDRESS", "TAINT"}
    assert not [flag.names for flag in all_flags() if flag.kind.is_name and flag.kind.empty]
    assert PID.is_name
    assert not [flag for flag in (*FLAGS, *OLDER_FLAGS) if flag.kind is NOT_EMPTY and flag.names]
