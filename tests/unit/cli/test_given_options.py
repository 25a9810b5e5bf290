"""What is printed as options was given: nothing that was read from the machine or decided for a pod is among it."""

from __future__ import annotations

import re
import shlex

import pytest
from hypothesis import HealthCheck, given, settings

from netinit.options import Interception, Options, SettledOptions, offline
from randomness import some
from strategies import made_options

HERE = "203.0.113.53"  # the name server of the machine where the command runs
SETS = ["-b * -i * --redirect-dns", "-b * -i * --redirect-dns --ipv6 off", "-b * -i 10.0.0.0/8 --redirect-dns --ipv6 on -d 15021", "-b 80 --redirect-dns -p 4000"]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr("netinit.kernel.detect.read_resolv_conf", lambda: f"nameserver {HERE}\n")


def printed(text: str) -> list[str]:
    """Every command line of apply in an output."""
    return re.findall(r'netinit apply[^"\n]*', text)


def check(line: str, asked: Options) -> None:
    """Each option of a printed line was asked for, with this value or, if a list, more."""
    made = Options.from_argv(shlex.split(line)[2:])
    wanted = {flag.field: value for flag, value in asked.differing()}
    for flag, value in made.differing():
        assert flag.field in wanted, f"{flag.label} was not given"
        if isinstance(value, tuple) and isinstance(wanted[flag.field], tuple) and flag.field != "proxy_uids":
            assert set(value) <= set(wanted[flag.field]), flag.label
        else:
            assert value == wanted[flag.field], flag.label


@pytest.mark.parametrize("options", SETS)
@pytest.mark.parametrize("command", ["lint --minimal", "explain --json --to 192.0.2.1:53 --udp", "audit --json", "explain --json --to 192.0.2.1:80"])
def test_no_printed_option_is_absent_from_the_input(command, options, run):
    done = run(f"netinit {command} {options}")
    assert done.code == 0, done
    lines = printed(done.out)
    assert lines
    assert not [line for line in lines if HERE in line or "--dns-servers" in line]
    for line in lines:
        check(line, Options.from_argv(options.split()))


@pytest.mark.parametrize("options", SETS)
@pytest.mark.parametrize("command", ["render --format config", "convert --from istio --"])
def test_a_file_and_a_conversion_hold_what_was_given(command, options, run):
    done = run(f"netinit {command} {options.split(' --ipv6')[0]}")
    assert done.code == 0, done
    assert HERE not in done.out
    assert "dns-servers" not in done.out


@pytest.mark.parametrize("options", SETS)
def test_notes_changes_and_comparisons_name_no_server_of_this_machine_as_an_option(options, run, tmp_path):
    (tmp_path / "rules").write_text(run(f"netinit render {options} --ipv6 off").out if "--ipv6" not in options else run(f"netinit render {options}").out)
    for command in ("explain --to 192.0.2.1:80", "explain --to 192.0.2.1:53 --udp", "lint", f"diff {shlex.quote(options)} {shlex.quote(options + ' -x 10.0.0.0/8')}"):
        done = run(["netinit", *shlex.split(command), *([] if command.startswith("diff") else options.split())])
        assert f"--dns-servers {HERE}" not in done.out + done.err, command


@settings(max_examples=some(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made_options())
def test_what_was_given_is_what_was_asked_whatever_is_settled(drawn):
    asked = Options(**{flag.field: getattr(drawn, flag.field) for flag in Interception.flags if getattr(drawn, flag.field) != flag.default})
    settled = asked.settle(offline(read_servers=lambda: [HERE]))
    assert settled.given == asked
    assert settled.given.to_argv() == asked.to_argv()
    assert settled.replace(backend="nftables").given == asked.replace(backend="nftables")
    assert settled.for_backend("nftables").given == asked


def test_settled_options_cannot_be_printed_as_given():
    """A function that prints takes Options; mypy refuses any other, and so does Python."""
    settled = Options(redirect_dns=True).settle(offline(read_servers=lambda: [HERE]))
    assert settled.dns_servers == (HERE,)
    assert not isinstance(settled, Options)
    assert not [name for name in ("to_argv", "to_environ", "differing") if hasattr(SettledOptions, name)]
