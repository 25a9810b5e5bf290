"""No option is taken and ignored: for every command and every declared flag, taken from the commands themselves."""

from __future__ import annotations

from contextlib import suppress

import pytest

from command_tree import COMMANDS
from netinit.base.errors import OptionError
from netinit.cli.flags import DECIDING, FlagCommand
from netinit.options import Options
from netinit.options.declare import OF_ISTIO
from netinit.options.kinds import DURATION, SWITCH
from sweeps import together

OF_RULES = {path: one for path, one in COMMANDS.items() if isinstance(one, FlagCommand) and one.settings is Options}
VALUES = {DURATION: "1s"}
WRITTEN = {flag.field: (f"--{flag.long}",) if flag.kind is SWITCH else (f"--{flag.long}", VALUES.get(flag.kind, "1")) for flag in Options.flags if flag.long}
WITHOUT_EFFECT = [(" ".join(path), field) for path, one in OF_RULES.items() for field in WRITTEN if not one.has_effect(field)]


def test_commands_and_flags_are_found():
    assert {("explain",), ("audit",), ("lint",), ("remove",), ("trace",)} <= OF_RULES.keys()
    assert len(COMMANDS) > 35
    assert len(WITHOUT_EFFECT) > 100


@together(("command", "field"), WITHOUT_EFFECT)
def test_a_flag_without_an_effect_is_refused_or_named(command, field, capsys):
    label = WRITTEN[field][0]

    def read() -> None:
        OF_RULES[tuple(command.split())].make_context(command, list(WRITTEN[field]), obj={})

    pasted = Options.flag(field).group == OF_ISTIO or command in {"remove", "verify"}  # these get the line that programmed the pod
    if pasted and field not in {"netns", "pid"}:
        with suppress(OptionError):  # a value that fits no such flag
            read()
        assert capsys.readouterr().err == f"note: {label}: no effect on this command\n"
    else:
        with pytest.raises(OptionError, match=rf"(?m)^{label}: .*remove it"):
            read()


@pytest.mark.parametrize("command", [" ".join(path) for path, one in COMMANDS.items() if one not in OF_RULES.values() and path[0] not in {"kubectl", "convert"}])
def test_a_command_without_rules_takes_no_flag_of_theirs(command, run):
    """Those of kubectl hand further options on to the command of the same name; convert reads other programs' options."""
    own = {name for param in COMMANDS[tuple(command.split())].params for name in param.opts}
    for field in ("inbound_ports", "lock_timeout", "run_validation"):
        if WRITTEN[field][0] in own:
            continue
        done = run(["netinit", *command.split(), *WRITTEN[field]])
        assert (done.code, WRITTEN[field][0] in done.err) == (2, True), done


SAME = ["netinit", "explain", "--to", "1.2.3.4:80", "-b", "*", "-i", "*", "--ipv6", "off"]


@pytest.mark.parametrize("line", [
    "render --{} -b 80 --run-validation", "lint -b 80 --{}", "audit -b 80 --{}",
])  # fmt: skip
def test_what_a_pods_command_line_has_can_be_pasted(line, run):
    done = run("netinit " + line.format("log_output_level=default:debug"))
    assert done.code == 0, done


def test_a_note_about_pasted_flags_is_one(run):
    done = run([*SAME, "--run-validation", "--log_output_level", "default:debug"])
    assert (done.code, done.err.count("note: ")) == (0, 1)
    assert "--run-validation, --log_output_level: no effect on this command" in done.err
    assert done.out == run(SAME).out


@pytest.mark.parametrize(("line", "complaint"), [
    ("explain --to 1.2.3.4:80 --interface eth1", "--interface: is where a connection comes in"),
    ("explain inbound --from 1.2.3.4 --to-port 80 --uid 7", "--uid: a connection that comes in has no sender"),
    ("draw --from 1.2.3.4 --to-port 80 --gid 7", "--gid: a connection that comes in has no sender"),
    ("trace inbound --to-port 80 --uid 7", "--uid: a connection that comes in has no sender"),
    ("explain --to 1.2.3.4:80 --live --pod-ip 1.2.3.4", "--pod-ip: live rules are asked"),
    ("draw --uid 7", "--uid: needs a connection"),
    ("draw --to-port 7", "--to-port: needs a connection"),
    ("draw inbound", "inbound: needs a connection"),
    ("lint -b 80 --minimal --json", "--minimal: prints options and no findings"),
    ("lint -b 80 --json --format sarif", "--json: contradicts --format sarif"),
    ("audit -b 80 --json --format html", "--json: contradicts --format html"),
    ("audit -b 80 --full --format junit", "--full: --format junit lists only findings"),
])  # fmt: skip
def test_an_option_that_another_one_leaves_without_a_meaning_is_an_error(line, complaint, run):
    done = run(f"netinit {line}")
    assert (done.code, complaint in done.err) == (2, True), done


def test_what_decides_about_rules_is_what_rules_are_made_of():
    """Each flag that counts as deciding is a field of the options, and those of the run alone do not count."""
    assert {"inbound_ports", "backend", "ipset_threshold", "config"} <= set(DECIDING)
    assert not {"lock_timeout", "retries", "run_validation", "dry_run", "log_as_json", "netns"} & set(DECIDING)
