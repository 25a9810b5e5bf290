"""`netinit verify`: what it prints and how it ends."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import netinit
from core import plan
from netinit.base.output import with_version
from netinit.cli.verify import conclude, render_text, to_plain
from netinit.options import Options
from netinit.pods import verify
from netinit.pods.probe.matrix import Ask
from netinit.pods.probe.rows import ProbeResult, Probes
from netinit.rules.model import Difference
from netinit.rules.render import hash_plan
from schemas import check_schema

PLAN = plan(Options(inbound_ports="80", ipv6="on"))
MISSING = Difference(kind="missing", where="IPv4", table="nat", chain="OUTPUT", number=1, rule="-j ISTIO_OUTPUT", purpose="why", origin="always")
MAIN = str(Path(netinit.__file__).parent / "__main__.py")


def test_differences_are_a_line_each_and_one_that_sums_up():
    text = render_text(verify.Report(backend="iptables-nft", plan=PLAN, differences=(MISSING, MISSING)))
    lines = text.splitlines()
    assert lines[0] == lines[1] == f"{MISSING.describe()}"
    assert lines[2].startswith("2 differences from the plan of ")
    assert lines[2].endswith(" rules (iptables-nft)")


def test_no_difference_is_said_in_a_line():
    text = render_text(verify.Report(backend="iptables-nft", plan=PLAN, differences=()))
    assert text.startswith("as planned: ")
    assert text.endswith(" rules for IPv4 and IPv6 (iptables-nft)\n")


@pytest.mark.parametrize(
    ("outcomes", "differences", "verdict"),
    [
        ([True, True], (), "as planned: 2 packets went as expected; the rules are as planned\n"),
        ([True, False, None], (), "NOT as planned: 1 of 2 packets went elsewhere; the rules are as planned\n"),
        ([True], (MISSING,), "NOT as planned: the rules differ from the plan; 1 packets went as expected\n"),
        ([False], (MISSING,), "NOT as planned: 1 of 1 packets went elsewhere; the rules differ from the plan\n"),
        ([True], None, "as planned: 1 packets went as expected; the rules could not be compared\n"),
        ([None], (), "not proven: no packet could be judged; the rules are as planned\n"),
    ],
)
def test_the_last_line_of_a_live_comparison_is_its_own_verdict(outcomes, differences, verdict):
    ask = Ask.__new__(Ask)  # its fields do not matter here
    rows = tuple(ProbeResult(ask, "captured", "direct", outcome) for outcome in outcomes)
    report = None if differences is None else verify.Report(backend="iptables-nft", plan=PLAN, differences=differences)
    assert conclude(report, Probes(rows)) == verdict


def test_json_has_every_field_of_a_difference():
    found = with_version(to_plain(verify.Report(backend="nftables", plan=PLAN, differences=(MISSING,), warnings=("mind",))))
    check_schema(found, "verify")
    assert found.pop("version") == 1
    assert found == {
        "ok": False,
        "backend": "nftables",
        "hash": hash_plan(PLAN),
        "differences": [
            {"kind": "missing", "where": "IPv4", "table": "nat", "chain": "OUTPUT", "number": 1, "rule": "-j ISTIO_OUTPUT", "comment": "", "purpose": "why", "origin": "always"}
        ],
        "warnings": ["mind"],
        "options": None,
    }


def test_json_of_a_namespace_without_rules_is_not_ok():
    assert to_plain(None) == {
        "ok": False, "backend": None, "hash": None, "differences": None, "warnings": [], "options": None
    }  # fmt: skip


@pytest.mark.netns
def test_verify_ends_with_0_when_all_is_as_planned_and_with_3_when_not():
    netinit = shlex.join([sys.executable, "-I", "-S", MAIN])
    script = f"""
        ip link set lo up
        {netinit} verify -b 80 --ipv6 off; echo $?
        {netinit} apply -b 80 --ipv6 off --log_output_level none; echo $?
        {netinit} verify -b 80 --ipv6 off; echo $?
        {netinit} verify -b 81 --ipv6 off; echo $?
        {netinit} verify --json -b 80 --ipv6 off | head -3
        {netinit} remove --log_output_level none; echo $?
    """
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.isdigit()] == ["3", "0", "0", "3", "0"]
    assert any(line.startswith("as planned: ") for line in lines)
    assert any(line.startswith("extra: IPv4 nat ISTIO_INBOUND rule 2: -p tcp -m tcp --dport 80") for line in lines)
    assert '  "ok": true,' in lines


def test_a_process_that_does_not_exist_is_an_error_that_names_the_way_out(run):
    done = run("netinit verify --pid 4194304")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("netinit: /proc/4194304/ns/net: No such file or directory")
