"""`netinit render` and --dry-run: text without privileges, and nothing is touched."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import netinit
from core import plan
from netinit.base.net import IPV4, IPV6
from netinit.options import Options
from netinit.rules import render
from programming import needs
from readable import NOBODY

WANTED = plan(Options(inbound_ports="*", outbound_cidrs="*", ipv6="on"))
FLAGS = "-b * -i * --ipv6 on"
MAIN = str(Path(netinit.__file__).parent / "__main__.py")
RENDER = shlex.join([sys.executable, "-I", "-S", MAIN, "render"])


@pytest.mark.parametrize("command", ["netinit render --family both", "netinit apply -n", "netinit --dry-run", "netinit istio-iptables -n", "istio-iptables -n"])
def test_every_way_to_a_dry_run_prints_the_restore_form(command, run, applied):
    done = run(f"{command} {FLAGS}")
    assert (done.code, done.err, applied) == (0, "", [])
    assert done.out == render.render_restore(WANTED)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("restore", render.render_restore(WANTED)),
        ("commands", render.render_commands(WANTED)),
        ("json", render.render_json(WANTED)),
    ],
)
@pytest.mark.parametrize("command", ["netinit render --family both", "netinit apply -n", "netinit -n"])
def test_the_form_can_be_chosen(command, form, text, run):
    done = run(f"{command} {FLAGS} --format {form}")
    assert (done.code, done.out) == (0, text)


def test_the_form_of_nft_is_a_script_with_both_families(run):
    done = run(f"netinit render {FLAGS} --format nft")
    assert done.code == 0, done.err
    assert "table inet istio-proxy-nat" in done.out
    refused = run(f"netinit render {FLAGS} --format nft --family ipv4")
    assert (refused.code, refused.out) == (2, "")
    assert "--family: 'ipv4' contradicts --format nft" in refused.err


def test_what_render_prints_can_be_loaded_as_it_is(run):
    """One program loads one family: with both in one text, the first would be committed before the second is refused."""
    done = run(f"netinit render {FLAGS}")
    assert done.out == render.render_restore(WANTED, [IPV4])
    assert "IPv6 has rules too: --family ipv6 prints them" in done.err
    alone = run("netinit render -b * -i * --ipv6 off")
    assert (alone.out.count("# IPv"), alone.err) == (1, "")


def test_a_family_can_be_chosen(run):
    assert run(f"netinit render {FLAGS} --family ipv4").out == render.render_restore(WANTED, [IPV4])
    assert run(f"netinit apply -n {FLAGS} --family=ipv6 --format=commands").out == render.render_commands(WANTED, [IPV6])
    assert {rule["family"] for rule in json.loads(run(f"netinit render {FLAGS} --family ipv6 --format json").out)["rules"]} == {"IPv6"}


def test_a_family_that_is_off_is_empty_and_says_so(run):
    done = run("netinit render -b * --ipv6 off --family ipv6")
    assert (done.code, done.out) == (0, "")
    assert "--family: nothing is programmed for ipv6, which is off; see --ipv6" in done.err


def test_comments_are_in_the_rules_where_they_are_asked_for(run):
    assert "--comment" not in run(f"netinit render {FLAGS}").out
    assert "--comment" in run(f"netinit render {FLAGS} --rule-comments").out
    assert "--comment" in run(f"netinit render {FLAGS} --rule-comments --format commands").out


def test_the_warnings_of_a_plan_go_to_stderr(run, monkeypatch):
    monkeypatch.setattr("netinit.kernel.detect.RESOLV_CONF", "/nonexistent")
    done = run("netinit render --redirect-dns --ipv6 on")
    assert "warning: --redirect-dns: no name server" in done.err
    assert "warning" not in done.out
    quiet = run("netinit render --redirect-dns --ipv6 on --log_output_level default:error")
    assert quiet.err == ""


@pytest.mark.parametrize("option", ["--cleanup-only", "--skip-rule-apply"])
def test_what_would_program_nothing_prints_nothing(option, run, applied):
    done = run(f"netinit apply -n {FLAGS} {option}")
    assert (done.code, done.out, applied) == (0, "", [])
    assert f"{option}: no rules would be programmed" in done.err


def test_format_without_dry_run_is_refused_before_anything_is_done(run, applied):
    for option in ("--format json", "--family ipv4"):
        done = run(f"netinit apply -b 80 {option}")
        assert (done.code, applied) == (2, [])
        assert done.errors == [f"{option.split()[0]}: needs --dry-run"]


@pytest.mark.netns
def test_whether_ipv6_is_on_is_decided_by_the_pods_addresses_as_apply_decides():
    script = "ip link set lo up; ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up; ip -6 address add 2001:db8::1/64 dev eth0 nodad; {more} exec {render}"
    for more, families in (("", ["IPv4", "IPv6"]), ("ip address add 192.0.2.1/24 dev eth0;", ["IPv4"])):
        line = script.format(more=more, render=f"{RENDER} -b 80 --format json")
        done = subprocess.run(["unshare", "-n", "sh", "-ec", line], capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["families"] == families, done.stderr


@pytest.mark.netns
def test_a_dry_run_leaves_no_trace_and_needs_no_privilege(readable, tmp_path):
    look = "iptables-nft-save; ip6tables-nft-save; cat /proc/net/ip_tables_names /proc/net/ip6_tables_names; ip rule; ip address"
    dry = "; ".join(
        f"{shlex.join([*readable, *NOBODY, '--inh-caps=-all', sys.executable, '-I', '-S', MAIN])} {words}"
        for words in ("-n -b 80 -m TPROXY", "render --format nft", "render --format json --redirect-dns", "apply -n --reconcile")
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-ec", f"({look}) >$0; ({dry}) >/dev/null; ({look}) | cmp - $0", tmp_path / "before"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.netns
@pytest.mark.parametrize("variant", ["nft", "legacy"])
def test_the_restore_form_is_valid_input_of_iptables_restore(variant):
    needs(f"iptables-{variant}")
    line = f"{RENDER} -b '*' -i '*' -m TPROXY --redirect-dns --capture-all-dns --drop-invalid --ipv6 on --rule-comments"
    for family, program in (("ipv4", "iptables"), ("ipv6", "ip6tables")):
        done = subprocess.run(
            ["unshare", "-n", "bash", "-c", f"set -o pipefail; {line} --family {family} | {program}-{variant}-restore -w --noflush"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.netns
@pytest.mark.parametrize("form", ["-m TPROXY --redirect-dns --capture-all-dns", "-m REDIRECT --rule-comments", "--layout classic -m TPROXY"])
def test_the_commands_program_what_the_restore_form_programs(form):
    """Through a shell, as people paste them."""
    line = f"{RENDER} -b 80,81 -i '*' -x 10.0.0.0/8 -k net1 --ipv6 on {form}"
    saves = []
    for load in (f"{line} --format commands | sh -e", f"{line} --family ipv4 | iptables-restore -n; {line} --family ipv6 | ip6tables-restore -n"):
        done = subprocess.run(
            ["unshare", "-n", "bash", "-c", f"set -eo pipefail; ip link set lo up; {load}; iptables-save; ip6tables-save"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        saves.append([row for row in done.stdout.splitlines() if row.startswith(("-A", ":ISTIO", "*"))])
    assert sorted(saves[0]) == sorted(saves[1])
    assert [row for row in saves[0] if row.startswith("-A")] == [row for row in saves[1] if row.startswith("-A")]
