"""The flags of inject and check-inject: one reader, every bad value named at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from netinit.base.errors import OptionError
from netinit.cli import start
from netinit.cli.inject.flags import CheckFlags, InjectFlags

MAIN = str(Path(start.__file__).parent.parent / "__main__.py")
READ = InjectFlags.from_argv


def test_each_manifest_adds_to_the_list_in_order_and_the_last_of_other_flags_counts():
    found = READ(["-f", "b", "--filename=a", "-fc", "--revision", "1", "--revision", "2"])
    assert (found.filenames, found.revision) == (("b", "a", "c"), "2")


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        (["-R"], "recursive", True),
        (["-R=false"], "recursive", False),
        (["--explain=true"], "explain", True),
        (["-Rfx"], "filenames", ("a", "x")),
        (["-n", "shop"], "namespace", "shop"),
        (["-i=mesh"], "istio_namespace", "mesh"),
        (["--native-sidecars", "false"], "native_sidecars", False),
        (["--native-sidecars", "Yes"], "native_sidecars", True),
        (["-o", "-"], "output", "-"),
        ([], "labels", None),
        (["--valuesFile", "-"], "values_file", "-"),
    ],
)
def test_a_flag_means_what_it_says(words, field, value):
    assert getattr(READ(["-f", "a", *words]), field) == value


def test_the_flag_wins_over_the_variable_and_an_empty_variable_counts_as_unset():
    environ = {"ENABLE_NATIVE_SIDECARS": "false", "COMPLIANCE_POLICY": ""}
    found = READ(["-f", "a"], environ)
    assert (found.native_sidecars, found.compliance_policy) == (False, "")
    assert READ(["-f", "a", "--native-sidecars=true"], environ).native_sidecars


@pytest.mark.parametrize(
    ("words", "environ", "problems"),
    [
        ([], {}, ["-f: no manifest is given; name a file, a folder, or - for stdin"]),
        (["-f", "-", "-f", "-"], {}, ["-: stdin can be read for one option only"]),
        (["-f", "a", "--json"], {}, ["--json: needs --explain; manifests keep their format"]),
        (["-f", "a", "--namespace-labels="], {}, ["--namespace-labels: belongs to check-inject; this command asks no webhook"]),
        (["-f", "a", "--image=a b"], {}, ["--image: 'a b' is not an image reference; write REGISTRY/PATH:TAG"]),
        (["-f"], {}, ["-f: the value is missing (FILE|DIR|-)"]),
        (["-f", "-R"], {}, ["-f: '-R' looks like a flag; an empty value is written -f=''"]),
        (
            ["--valuesFile", "/nowhere/at/all", "--kubeconfig", "/", "--meshConfigFile=a\0b"],
            {"ENABLE_NATIVE_SIDECARS": "maybe"},
            [
                "--meshConfigFile: 'a\\x00b' does not exist; name a file",
                "--valuesFile: '/nowhere/at/all' does not exist; name a file",
                "environment variable ENABLE_NATIVE_SIDECARS: 'maybe' is neither true, false nor auto",
                "--kubeconfig: '/' is a folder: name a file",
            ],
        ),
    ],
)
def test_all_that_is_wrong_is_named_at_once(words, environ, problems):
    with pytest.raises(OptionError) as caught:
        READ(words, environ)
    assert list(caught.value.problems) == problems


@pytest.mark.parametrize("given", ["a.yaml", ["a.yaml"], ("a.yaml",)])
def test_one_manifest_may_be_given_as_a_text(given):
    assert CheckFlags(filenames=given).filenames == ("a.yaml",)


def test_check_inject_has_the_same_flags_without_those_that_write():
    own = {flag.field for flag in InjectFlags.flags} - {flag.field for flag in CheckFlags.flags}
    assert own == {"output", "explain", "check_config"}


@pytest.mark.parametrize(("typed", "meant"), [("--valueFile", "--valuesFile"), ("--namespace-label", "--namespace-labels")])
@pytest.mark.parametrize("command", ["inject", "check-inject", "kube-inject"])
def test_a_mistyped_flag_is_answered_with_what_may_be_meant(command, typed, meant):
    done = subprocess.run([sys.executable, MAIN, command, "-f", "a", typed, "x"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done
    assert f"'{typed}' is not an option; did you mean {meant}" in done.stderr


def test_a_wrong_line_is_refused_without_click():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", MAIN, "inject", "-f", "a", "--valuesFile", "/nowhere/at/all"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done
    assert "netinit: --valuesFile: '/nowhere/at/all' does not exist" in done.stderr
    assert "click" not in {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_a_fault_shows_where_it_happened_if_asked():
    done = subprocess.run([sys.executable, MAIN, "inject", "-f", "/nowhere/at/all", "--debug"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done
    assert "Traceback" in done.stderr
