"""pflag's syntax."""

from __future__ import annotations

import pytest

from netinit.base.errors import OptionError
from netinit.options import FLAGS
from netinit.options.declare import extract_flags, parse_flags
from sweeps import together


def texts(*words):
    return {field: text for field, (text, _) in parse_flags(words, FLAGS).items()}


@together(
    ("words", "want"),
    [
        (["-p", "15001"], {"outbound_port": "15001"}),
        (["-p=15001"], {"outbound_port": "15001"}),
        (["-p15001"], {"outbound_port": "15001"}),
        (["--envoy-port", "15001"], {"outbound_port": "15001"}),
        (["--envoy-port=15001"], {"outbound_port": "15001"}),
        (["--envoy-port=a=b"], {"outbound_port": "a=b"}),
        (["-n"], {"dry_run": "true"}),
        (["-n=false"], {"dry_run": "false"}),
        (["--dry-run=false"], {"dry_run": "false"}),
        (["--dry-run="], {"dry_run": ""}),
        (["-np", "1"], {"dry_run": "true", "outbound_port": "1"}),
        (["-np=1"], {"dry_run": "true", "outbound_port": "1"}),
        (["-np1"], {"dry_run": "true", "outbound_port": "1"}),
        (["-nn=false"], {"dry_run": "false"}),
        (["-pn"], {"outbound_port": "n"}),
        (["-x", ""], {"exclude_outbound_cidrs": ""}),
        (["-x="], {"exclude_outbound_cidrs": ""}),
        (["-i", "*", "-b", "*"], {"outbound_cidrs": "*", "inbound_ports": "*"}),
        (["-b", "-"], {"inbound_ports": "-"}),
        (["-p", "1", "-p", "2"], {"outbound_port": "2"}),
        (["-p", "1", "--envoy-port=2"], {"outbound_port": "2"}),
        (["--netns", "blue"], {"netns": "blue"}),
        (["-n", "--"], {"dry_run": "true"}),
        ([], {}),
    ],
    ids=" ".join,
)
def test_flags_are_read_as_pflag_reads_them(words, want):
    assert texts(*words) == want


def test_the_spelling_that_was_used_is_kept_for_messages():
    assert parse_flags(["-p=1", "--netns=x"], FLAGS) == {"outbound_port": ("1", "-p"), "netns": ("x", "--netns")}


def test_the_arguments_of_the_first_template_are_read():
    words = ["-p", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "80,", "-d", ""]
    assert texts(*words)["inbound_ports"] == "80,"


@pytest.mark.parametrize(
    ("words", "problems"),
    [
        (["-i", "-b", "80"], ["-i: '-b' looks like a flag; an empty value is written -i=''"]),
        (["--istio-service-cidr", "--dry-run"], ["--istio-service-cidr: '--dry-run' looks like a flag; an empty value is written --istio-service-cidr=''"]),
        (["-i", "--", "x"], ["-i: '--' looks like a flag; an empty value is written -i=''", "'x' is not an option; quote values that hold blanks or *"]),
        (["-p"], ["-p: the value is missing (PORT)"]),
        (["-np"], ["-p: the value is missing (PORT)"]),
        (["-b", "80", "443"], ["'443' is not an option; quote values that hold blanks or *"]),
        (["--redirect-dns", "false"], ["'false' is not an option; a switch and its value are one word, --switch=false"]),
        (["-"], ["'-' is not an option; quote values that hold blanks or *"]),
        ([""], ["'' is not an option; quote values that hold blanks or *"]),
        (["a\nb"], ["'a\\nb' is not an option; quote values that hold blanks or *"]),
        (["-n", "--", "-p", "1"], ["'-p' is not an option; --help lists them"]),
    ],
    ids=lambda x: " ".join(x).replace("\n", "") if isinstance(x, list) else None,
)
def test_a_line_that_cannot_be_meant_is_refused_and_says_why(words, problems):
    with pytest.raises(OptionError) as caught:
        parse_flags(words, FLAGS)
    assert list(caught.value.problems) == problems


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--nonsense"], ["--nonsense"]),
        (["--nonsense=1"], ["--nonsense"]),
        (["--nonsense", "1", "-p", "2"], ["--nonsense"]),
        (["-X"], ["-X"]),
        (["-nX"], ["-nX"]),
        (["-X", "-Y"], ["-X", "-Y"]),
        (["--envoy"], ["--envoy"]),
        (["--ENVOY-PORT=1"], ["--ENVOY-PORT"]),
        (["--log-as-json"], ["--log-as-json"]),
        (["--=1"], ["--"]),
        (["---envoy-port=1"], ["---envoy-port"]),
    ],
    ids=" ".join,
)
def test_an_unknown_flag_is_named(words, named):
    with pytest.raises(OptionError) as caught:
        parse_flags(words, FLAGS)
    assert [problem.split("'")[1] for problem in caught.value.problems] == named


def test_flags_can_be_taken_out_of_a_line_that_holds_other_words():
    taken = extract_flags(["pod.yaml", "--to", "10.0.0.1:443", "-p", "1", "--json", "--", "-n"], FLAGS)
    assert taken.texts == {"outbound_port": ("1", "-p")}
    assert taken.rest == ("pod.yaml", "--to", "10.0.0.1:443", "--json", "--", "-n")
    assert taken.problems == ()
