"""What `netinit audit` says of each option that other meshes have: which traffic passes by the proxy, and what closes it."""

from __future__ import annotations

import json

import pytest

from netinit.cli import group
from sweeps import together

BASE = ("-b", "*", "-i", "*", "-u", "1337", "--ipv6", "on", "-e", "0")
SAID = {  # field -> (options, the kinds of traffic that are new, who, what closes it)
    "tunnel_port": (["-e", "15008"], ["tunnel-port"], ["TCP inbound on port 15008"], "--inbound-tunnel-port 0"),
    "exclude_inbound_ports": (["-d", "8000-8100"], ["inbound-port"], ["TCP inbound on port 8000-8100"], "remove them from --istio-local-exclude-ports"),
    "exclude_outbound_ports": (["-o", "9000-9100"], ["port"], ["TCP outbound on port 9000-9100"], "remove them from --istio-local-outbound-ports-exclude"),
    "exclude_outbound_for_uids": (
        ["--exclude-outbound-for-uids", "tcp:22,80:1000-2000"], ["user"], ["TCP outbound on port 22, 80, uid 1000-1336, 1338-2000, gid other than 1337"],
        "remove them from --exclude-outbound-for-uids",
    ),
    "exclude_outbound_for_gids": (
        ["--exclude-outbound-for-gids", "tcp:8000-8100:3000"], ["group"], ["TCP outbound on port 8000-8100, uid other than 1337, gid 3000"], "change --exclude-outbound-for-gids",
    ),
    "exclude_inbound_cidrs": (
        ["--exclude-inbound-cidrs", "10.1.0.0/16"], ["source"], ["IPv4: TCP inbound from 10.1.0.0/16"],
        "remove them from --exclude-inbound-cidrs",
    ),
    "exclude_cloud_metadata": (
        ["--exclude-cloud-metadata"], ["metadata"],
        ["IPv4: TCP outbound to 168.63.129.16, 169.254.169.254, uid other than 1337, gid other than 1337",
         "IPv6: TCP outbound to fd00:ec2::254, fd20:ce::254, uid other than 1337, gid other than 1337"],
        "leave --exclude-cloud-metadata out",
    ),
    "ipv6": (
        ["--ipv6", "off"], ["ipv6", "ipv6"], ["IPv6: TCP inbound", "IPv6: TCP outbound"],
        "remove the pod's IPv6 addresses; --ipv6 on captures it, --ipv6 reject refuses it",
    ),
    "istio_exact": (
        ["--istio-exact"], ["untranslated", "untranslated"], ["TCP inbound on a port other than 15006 on an old conntrack entry", "TCP outbound on an old conntrack entry, uid other than 1337, gid other than 1337"],
        "netinit apply --reconcile, without --istio-exact, adds the rules that refuse them",
    ),
    "redirect_forwarded_dns": (["-k", "net1", "--redirect-dns", "--capture-all-dns", "--redirect-forwarded-dns"], [], [], ""),
    "reject_quic": (["--reject-quic"], [], [], ""),
    "redirect_outbound_udp": (["--redirect-outbound-udp", "514:10514"], [], [], ""),
    "log_rules": (["--log-rules"], [], [], ""),
    "log_group": (["--log-rules", "--log-group", "5"], [], [], ""),
}  # fmt: skip


def audited(capsys, *words):
    group.run("netinit", ("audit", "--json", "--full", *BASE, *words), {}, alone=False)
    (pod,) = json.loads(capsys.readouterr().out)["pods"]
    return pod["traffic"]


@together("field", SAID)
def test_an_audit_names_what_an_option_lets_pass_and_what_closes_it(field, capsys):
    words, kinds, who, closes = SAID[field]
    rows = [row for row in audited(capsys, *words) if row["by"] == "configuration"]
    assert [row["kind"] for row in rows] == kinds
    assert [one for row in rows for one in row["who"]] == who
    assert {row["closes"] for row in rows} == ({closes} if closes else set())


def test_refused_quic_is_dropped_and_no_longer_past_the_proxy(capsys):
    before, after = (str([row["who"] for row in audited(capsys, *words) if row["kind"] == "dropped"]) for words in ((), ("--reject-quic",)))
    assert "UDP outbound on port 443" not in before
    assert "UDP outbound on port 443" in after


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ((), "; DNS: --redirect-dns; HTTP/3: --reject-quic"),
        (("--reject-quic",), "; DNS: --redirect-dns"),
        (("--reject-quic", "--redirect-dns", "--capture-all-dns"), "can deny it"),
    ],
)
def test_what_is_not_tcp_and_goes_out_is_told_of_the_options_that_take_it(words, ends, capsys):
    rows = [row for row in audited(capsys, *words) if row["kind"] == "not-tcp"]
    assert [row["closes"].endswith(ends) for row in rows if row["directions"] == ["outbound"]] == [True]
    assert [row["closes"].endswith("can deny it") for row in rows if row["directions"] == ["inbound"]] == [True]
