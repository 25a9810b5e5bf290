"""Values that want to become syntax, and those that are almost right: each is refused in one line, or is harmless.

Harmless means that all renderings of the plan consist of known tokens alone, by a grammar that knows nothing of the
code under test.
"""

from __future__ import annotations

import functools
import grp
import json
import pwd
import re
import shlex

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core import plan
from netinit.base.errors import OptionError
from netinit.options import FLAGS, Options, kinds
from netinit.rules import render
from randomness import some
from restore_grammar import check
from sweeps import choose, together

HOSTILE = (
    # line breaks and control characters
    "\n", "80\n", "\n80", "80\n-A OUTPUT -j ACCEPT", "\n-A OUTPUT -j ACCEPT", "80\r\n", "80\r", "80\x0b81", "80\x0c", "80\x1c81", "80\x85",
    "80\u2028-A OUTPUT -j ACCEPT", "80\u2029", "\x00", "80\x00", "\x0080", "80\x00\n*nat", "80\t", "80\x7f", "80\x08\x08", "\ufeff80", "80\u200b",
    "*\n", "*\n*filter", "COMMIT", "\nCOMMIT\n", "80\nCOMMIT\n*filter\n-P OUTPUT DROP\nCOMMIT", ":EVIL - [0:0]",
    # terminals and text direction
    "\x1b[31mred", "\x1b]0;title\x07", "\x9b31m", "80\u202e08", "\u2066eth0",
    # shells
    "$(reboot)", "`reboot`", "80;reboot", "80|reboot", "80&&reboot", "80&", "${IFS}", "$PATH", "~root", "~", "!!", "eth!0", "> /etc/passwd", "a*b",
    "a?b", "[a-z]0", "{80,81}", "80 # comment", "#", "#80", "'", '"', "\\", "'80'", '"80"', "80\\", "'; reboot; '", '" --comment "', "80' --dport '81",
    # rule languages
    "-j ACCEPT", "80 -j ACCEPT", "80 --sport 1", "! 80", "!80", "-80", "--", "-", "--dport", "-A OUTPUT", "tcp", "any", "all", "0/0", "@set", "{ 80 }",
    "{", "}", "80 }", "80; }", "80,}", "accept", "jump evil", "add rule ip nat OUTPUT accept", "eth0 accept", '80 comment "x"', "$port", 'include "/etc/passwd"',
    # numbers that are not meant
    "0", "00", "080", "0x10", "0X10", "0b1", "0o17", "1e3", "1.0", "80.", ".80", "+80", "-1", " 80", "80 ", "8 0", "1_000", "65536", "99999", "4294967296",
    "18446744073709551617", "9" * 400, "9" * 10_000, "1-65535", "80:90", ":80", "80:", "80-", "inf", "nan", "None", "True", "true ", "yes",
    # digits of other scripts
    "８０", "٨٠", "८०", "𝟠𝟘", "²", "①", "Ⅷ", "8\u03010",
    # lists
    ",", ",,", "80,,81", ",80", "80,", "80, 81", "80;81", "80 81", "80,*", "*,80", "**", "* *", "*,", ",".join(["80"] * 5000), "," * 10_000,
    # networks
    "10.0.0.0", "10.0.0.0/", "/8", "10.0.0.0/8/8", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/08", "10.0.0.0/255.0.0.0", "10.0.0/8", "10/8",
    "010.0.0.0/8", "0x0a.0.0.0/8", "10.0.0.256/32", "1.2.3.4.5/8", "10.0.0.0 /8", "10.0.0.0/8 -j ACCEPT", "10.0.0.0/8\n", "::ffff:1.2.3.4/96", "::ffff:1.2.3.4",
    "::/129", ":::/64", "::1", "[::1]/128", "fe80::1%eth0/64", "fe80::%25/64", "1::2::3/64", "12345::/16", "::1/128,0.0.0.0/0", "example.com/32", "localhost/32",
    "１０.0.0.0/8", "10。0。0。0/8",
    # names and ids
    "root", "root ", "ROOT", "root\n", "nobody,root", "0,root", "4294967295", "4294967294", "-2", "no such user", "../../etc/passwd", "a" * 15, "a" * 16, "a" * 300,
    "eth0", "eth0 ", "eth0:1", "eth/0", "eth0+", "+", "eth*", "lo", ".", "..", "...", "-i", "e\u0301th0", "ｅth0", "eth%d", "lo,eth0,",
    # durations, modes, levels
    "5", "5s\n", "5 s", "-5s", "1e9s", "1h1h", "ms", "s5", "5sm", "99999999h", "REDIRECT\n", "redirect", "TPROXY,", "NONE ", "default:debug\n", "x:y", "default:info,", ":", "::",
    # bytes that were no text
    "80\udcff", "\udc80", "eth\udcff",
)  # fmt: skip
TAKING_FLAGS = [flag for flag in FLAGS if flag.kind is not kinds.SWITCH]
_PORT = r"[ \t\r\n]*(?:(?:[0-9]+-)?[1-9][0-9]*)?[ \t\r\n]*"
PORT_LIST = re.compile(rf"{_PORT}(?:,{_PORT})*", re.ASCII)
harmless = set()  # plans that were examined: many values make the same one
SAFE_SHELL = re.compile(r"[A-Za-z0-9 ./:,!_@%^=+\-]*")


@pytest.fixture(scope="module", autouse=True)
def _each_name_is_looked_up_once():
    """The system asks a service for every user that no file names, which takes as long as the whole test of a value."""

    def once(look):
        known = functools.cache(lambda name: _answer(look, name))

        def ask(name):
            answer = known(name)
            if isinstance(answer, Exception):
                raise type(answer)(*answer.args)
            return answer

        return ask

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pwd, "getpwnam", once(pwd.getpwnam))
        patch.setattr(grp, "getgrnam", once(grp.getgrnam))
        yield


def _answer(look, name):
    try:
        return look(name)
    except (KeyError, ValueError) as error:
        return error


def try_value(words, environ, label):
    """Either a refusal in lines that a person can read and nobody can forge, or options whose plan is harmless."""
    try:
        options = Options.from_argv(words, environ)
    except OptionError as error:
        problems = error.problems
    else:
        examine(options)
        return options
    assert problems
    for problem in problems:
        assert problem.isprintable(), f"{problem!r} is more than a line"
        assert len(problem) < 400, "a message does not repeat a novel"
        assert problem.startswith((f"{label}: ", "--")), problem
    return None


def examine(options):
    names = frozenset(options.exclude_interfaces + options.virtual_interfaces)
    made = plan(options.replace(ipv6="on"))
    if made in harmless:
        return
    rules = check(render.render_restore(made), names)
    commands = render.render_commands(made)
    for line in commands.splitlines():
        assert SAFE_SHELL.fullmatch(line), f"a shell would read more than words: {line!r}"
        assert shlex.split(line)[0] in ("iptables", "ip6tables", "ip")
    assert sum(" -A " in line or " -I " in line for line in commands.splitlines()) == rules
    assert check(render.render_restore(made, comments=True), names) == rules
    described = json.loads(render.render_json(made))
    assert len(described["rules"]) == rules
    purposes = {rule["comment"] for rule in described["rules"]}
    for line in render.render_commands(made, comments=True).splitlines():
        words = shlex.split(line)
        assert "--comment" not in words or words[words.index("--comment") + 1] in purposes, line
    harmless.add(made)


def test_there_are_enough_hostile_values():
    assert len(set(HOSTILE)) == len(HOSTILE)
    assert len(HOSTILE) > 200


@together("flag", TAKING_FLAGS, ids=lambda flag: flag.label)
def test_no_hostile_value_becomes_syntax(flag):
    """In `make test`, a third of the values for each flag, and each value for a third of the flags."""
    accepted = []
    for value in choose(("eth0", *HOSTILE[TAKING_FLAGS.index(flag) % 3 :: 3]), HOSTILE):
        for environ in ({}, {"NETWORK_NAMESPACE": "x"})[: 2 if flag.field == "cni_mode" else 1]:
            if flag.long and try_value([f"--{flag.long}={value}"], environ, f"--{flag.long}"):
                accepted.append(value)
            if flag.variables and value:
                name = flag.variables[0]
                try_value([], {**environ, name: value}, f"environment variable {name}")
    if flag.kind in (kinds.PORT, kinds.MARK, kinds.TABLE, kinds.PID, kinds.DURATION, kinds.LOOPBACK):
        number = r"0[xX][0-9a-fA-F]+|[1-9][0-9]*" if flag.kind is kinds.MARK else r"[1-9][0-9]*"
        assert all(re.fullmatch(number, value) for value in accepted), accepted
    if flag.field in ("exclude_interfaces", "virtual_interfaces"):
        assert "eth0" in accepted
        items = {item for value in accepted for item in kinds.split_list(value)}  # without the blanks around them
        assert not {item for item in items if set(item) & set("\n\r\x00;|&$`'\"\\#{}()<>*?[]~!/:")}
    if flag.kind is kinds.PORTS:
        assert not [value for value in accepted if not PORT_LIST.fullmatch(value)], accepted


@together("value", HOSTILE, ids=lambda value: ascii(value)[:40])
def test_a_hostile_word_of_its_own_is_never_an_option(value):
    """Without a flag before it a value is a stray word, or a flag that does not exist; -i, -80 and so on want more."""
    with pytest.raises(OptionError) as caught:
        Options.from_argv([value, "-p"])
    assert all(problem.isprintable() for problem in caught.value.problems)


text_values = st.one_of(
    st.text(max_size=20),
    st.text(alphabet="0123456789,.:/*-+ \n\t\"'#{}!ax", max_size=24),
    st.lists(st.sampled_from(("80", "*", "10.0.0.0/8", "fd00::/8", "eth0", "root", ",", "\n", " ", "-j", "0", "/", "true", "5s", "")), max_size=5).map("".join),
    st.sampled_from(HOSTILE),
)


@settings(max_examples=some(60))
@given(st.dictionaries(st.sampled_from([flag for flag in FLAGS if flag.long]), text_values, max_size=6), st.booleans())
@example({}, False)  # noqa: FBT003 - a value to draw
def test_any_mix_of_values_is_refused_readably_or_harmless(chosen, by_environment):
    if by_environment:
        words, environ = [], {flag.variables[0]: text for flag, text in chosen.items() if flag.variables}
    else:
        words, environ = [f"--{flag.long}={text}" for flag, text in chosen.items()], {}
    try:
        options = Options.from_argv(words, environ)
    except OptionError as error:
        problems = error.problems
    else:
        examine(options)
        assert Options.from_argv(options.to_argv(), options.to_environ()) == options
        return
    assert problems
    assert all(problem.isprintable() for problem in problems)
