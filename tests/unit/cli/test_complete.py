"""What a shell is offered."""

from __future__ import annotations

import pytest

from netinit.base.errors import NetinitError
from netinit.cli import start
from netinit.cli.commands import COMMANDS
from netinit.cli.complete import complete
from sweeps import together

PODS = ["file,"]


def offered(line, form="bash_complete", program=()):
    """The values for the last word of a command line."""
    words = line.split(" ")
    environ = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return complete(form, environ, program).splitlines()


@together(
    ("line", "values"),
    [
        ("netinit exp", ["plain,explain"]),
        ("netinit explain --to-p", ["plain,--to-port"]),
        ("netinit explain --istio-inb", ["plain,--istio-inbound-interception-mode", "plain,--istio-inbound-ports", "plain,--istio-inbound-tproxy-mark", "plain,--istio-inbound-tproxy-route-table"]),
        ("netinit apply --ipv6 re", ["plain,reject"]),
        ("netinit apply --ipv6 = re", ["plain,reject"]),
        ("netinit lint --format s", ["plain,sarif"]),
        ("netinit audit --pod ex", ["file,ex"]),
        ("netinit explain --uid 1", []),
        ("netinit completion z", ["plain,zsh"]),
        ("netinit node st", ["plain,status"]),
        ("netinit webhook serve --cert", None),
        ("netinit istio-iptables --envoy", ["plain,--envoy-port"]),
        ("netinit nothing --", ["plain,--version", "plain,--help"]),
    ],
)  # fmt: skip
def test_bash_is_offered(line, values):
    found = offered(line)
    assert found == values if values is not None else found


def test_every_command_that_is_there_is_offered():
    assert offered("netinit ") == [f"plain,{name}" for name in COMMANDS]
    assert offered("istio-iptables --envoy-p", program=("apply",)) == ["plain,--envoy-port"]


def test_zsh_and_fish_get_what_each_means():
    assert offered("netinit exp", "zsh_complete") == ["plain", "explain", COMMANDS["explain"][1]]
    environ = {"COMP_WORDS": "netinit exp", "COMP_CWORD": "exp"}
    assert complete("fish_complete", environ, ()) == f"plain,explain\t{COMMANDS['explain'][1]}\n"


def test_a_command_that_the_installation_lacks_is_not_offered(monkeypatch):
    monkeypatch.setattr("netinit.cli.complete.is_there", lambda module: "kubectl" not in module)
    assert offered("netinit kub") == []
    assert offered("netinit kubectl --") == ["plain,--version", "plain,--help"]


@pytest.mark.parametrize("number", ["", "x", "-1"])
def test_a_number_that_is_none_is_an_error(number, capsys):
    with pytest.raises(NetinitError, match="COMP_CWORD: is not a number"):
        complete("bash_complete", {"COMP_WORDS": "netinit", "COMP_CWORD": number}, ())
    assert start.run(["netinit"], {"_NETINIT_COMPLETE": "bash_complete", "COMP_CWORD": number}) == 1
    assert "COMP_CWORD" in capsys.readouterr().err
