"""A plan in nft's dialect: what the rules say beyond iptables', and what a script does to which tables."""

from __future__ import annotations

import sys
from pathlib import Path
from subprocess import run

import pytest

import netinit
from core import plan, write_nft
from netinit.options import Options
from netinit.rules.nft import miss_all, plan_tables, render_script


def written(*arguments: str, **more):
    return write_nft(plan(Options.from_argv(arguments).replace(**more)))


def texts(*arguments: str, table: str, chain: str, **more) -> list[str]:
    return written(*arguments, **more)[f"istio-proxy-{table}"][chain][1]


def test_tproxy_is_followed_by_a_drop_for_when_nobody_listens():
    assert texts("-m", "TPROXY", "-b", "80", table="mangle", chain="istio-tproxy", ipv6="on") == [
        "ip daddr != 127.0.0.1 meta l4proto tcp counter tproxy ip to :15006 meta mark set 0x00000539 accept",
        "ip daddr != 127.0.0.1 meta l4proto tcp counter drop",
        "ip6 daddr != ::1 meta l4proto tcp counter tproxy ip6 to :15006 meta mark set 0x00000539 accept",
        "ip6 daddr != ::1 meta l4proto tcp counter drop",
    ]


def test_with_ipv6_off_only_ipv4_enters_our_chains():
    assert texts("-b", "*", table="nat", chain="prerouting", ipv6="off") == [
        "meta nfproto ipv4 meta l4proto tcp counter jump istio-inbound"
    ]
    assert texts("-b", "*", table="nat", chain="output", ipv6="off") == ["meta nfproto ipv4 counter jump istio-output"]
    assert not [text for text in texts("-b", "*", table="nat", chain="istio-output", ipv6="off") if "nfproto" in text]


def test_with_both_families_rules_of_one_say_which():
    jumps = texts("--redirect-dns", table="nat", chain="istio-output", ipv6="on", dns_servers=("10.0.0.10",))
    assert "meta nfproto ipv4 counter jump istio-output-dns" in jumps
    assert 'oifname "lo" ip saddr 127.0.0.6 counter return' in jumps


def test_the_socket_match_is_finished_in_a_chain_of_its_own():
    arguments = ("-m", "TPROXY", "-b", "80,81", "--layout", "classic")
    assert texts(*arguments, table="mangle", chain="istio-inbound") == [
        "tcp dport { 80, 81 } ct direction reply counter jump istio-divert-socket",
        "tcp dport { 80, 81 } tcp flags != syn / fin,syn,rst,ack ct status dnat counter jump istio-divert",
        'iifname "lo" tcp dport { 80, 81 } tcp flags != syn / fin,syn,rst,ack counter jump istio-divert-socket',
        "tcp dport { 80, 81 } counter jump istio-tproxy",
    ]
    assert texts(*arguments, table="mangle", chain="istio-divert-socket") == [
        "socket wildcard 1 counter return",
        "socket transparent <= 1 counter jump istio-divert",
    ]


def test_the_rules_of_the_socket_chain_are_those_of_the_rule_they_came_from():
    tables = plan_tables(plan(Options.from_argv(["-m", "TPROXY", "-b", "80", "--layout", "classic"])))
    hook, steps = tables["istio-proxy-mangle"]["istio-divert-socket"]
    assert not hook
    assert {step.rule.target.chain for step in steps} == {"ISTIO_DIVERT"}


def test_a_list_is_one_rule_however_long():
    networks = ",".join(f"10.{number}.0.0/17" for number in range(256))
    rules = texts("-i", "*", "-x", networks, table="nat", chain="istio-output", ipv6="off")
    assert len(rules) == len(texts("-i", "*", "-x", "10.0.0.0/17", table="nat", chain="istio-output", ipv6="off"))
    assert sum(rule.count("/17") for rule in rules) == 256


def test_every_rule_counts_and_every_hook_accepts():
    chains = [chain for table in written("-m", "TPROXY", "-b", "*", "-i", "*", "--drop-invalid", ipv6="on").values() for chain in table.values()]
    assert all(" counter " in f" {rule}" for _, rules in chains for rule in rules)
    assert all(hook.endswith("policy accept;") for hook, _ in chains if hook)


def test_interfaces_stand_first_as_in_istios_commands():
    rules = texts("-k", "eth1", "-i", "10.0.0.0/8", table="nat", chain="prerouting", ipv6="off")
    assert rules == ['iifname "eth1" ip daddr 10.0.0.0/8 counter jump istio-redirect', 'iifname "eth1" meta nfproto ipv4 counter return']


def test_comments_fit_into_what_the_kernel_keeps():
    wanted = write_nft(plan(Options.from_argv(["-m", "TPROXY", "-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns", "--drop-invalid"])), comments=True)
    comments = [rule.partition(' comment "')[2] for table in wanted.values() for _, rules in table.values() for rule in rules]
    assert all(comments)
    assert max(len(comment) for comment in comments) <= 128
    assert not [comment for comment in comments if '"' in comment[:-1]]


def test_a_script_replaces_all_owned_tables_and_names_no_other():
    lines = render_script(plan(Options.from_argv(["-b", "80", "--istio-exact"]).replace(ipv6="off"))).splitlines()
    owned = [f"istio-proxy-{name}" for name in ("mangle", "nat", "raw", "filter")]
    assert lines[:8] == [f"{verb} table inet {name}" for name in owned for verb in ("add", "delete")]
    assert [line for line in lines if line.startswith("table ")] == ["table inet istio-proxy-nat {"]


def test_tables_that_are_not_wanted_any_more_are_deleted_whether_they_exist_or_not():
    script = render_script(plan(Options.from_argv(["-b", "80"])))
    assert "add table inet istio-proxy-raw\ndelete table inet istio-proxy-raw\n" in script
    assert "table inet istio-proxy-raw {" not in script


SLOW = {"re", "os", "json", "enum", "socket", "typing", "dataclasses", "ipaddress", "subprocess", "logging", "difflib"}


@pytest.mark.parametrize("module", ["netinit.rules.nft", "netinit.base.net", "netinit.backends.nftables"])
def test_the_way_to_the_kernel_imports_nothing_slow(module):
    folder = str(Path(netinit.__file__).parent.parent)
    code = f"import sys; sys.path.insert(0, {folder!r}); import {module}; print(*sys.modules)"
    done = run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert SLOW.isdisjoint(done.stdout.split()), SLOW & set(done.stdout.split())


def test_where_no_table_exists_each_is_missing_as_a_whole():
    tables = written("-b", "*")
    assert [difference.describe() for difference in miss_all(tables)] == [f"missing: nft {table}: the whole table" for table in tables]
    assert tables
