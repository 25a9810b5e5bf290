"""Command lines and files of other meshes become our options, and what cannot is named."""

from __future__ import annotations

import re
import shlex

import pytest

import peers
from netinit.base.errors import OptionError
from netinit.options import Options
from netinit.options.peers.convert import PEERS, convert, part
from netinit.options.peers.declare import LACKING, NEEDLESS, READ, SAME, PeerFlag
from sweeps import together

CASES = [
    pytest.param(peer, case, id=f"{peer}-{number}") for peer in peers.PEERS for number, case in enumerate(peers.load(peer), 1)
]


def ours(text):
    """The options of a command line that may begin with variables."""
    words = shlex.split(text)
    named = dict(word.split("=", 1) for word in words if re.match(r"[A-Z_0-9]+=", word))
    return Options.from_argv([word for word in words if not re.match(r"[A-Z_0-9]+=", word)], named)


@together(("peer", "case"), CASES)
def test_a_peer_s_command_line_is_ours(peer, case):
    found = peers.convert_line(peer, case.get("args", ""), case.get("file"))
    assert found.options == ours(case["ours"])
    assert [remark.flag for remark in found.lacking] == case.get("lacking", [])
    assert [remark.flag for remark in found.needless] == case.get("needless", [])


@pytest.mark.parametrize("peer", peers.PEERS)
def test_each_peer_has_30_command_lines_and_its_flags_are_among_them(peer):
    cases = peers.load(peer)
    assert sum("args" in case for case in cases) >= 30
    given = " ".join(case.get("args", "") for case in cases)
    named = [flag for flag in PEERS[peer].flags if flag.names]
    dash = "-" if PEERS[peer].single_dash else "--"
    missing = [flag.long for flag in named if not re.search(rf"(^| ){dash}-?{flag.long}\b", given) and not re.search(rf"(^| )-{flag.short or '#'}", given)]
    assert set(missing) <= NOT_AMONG_THEM[peer]


NOT_AMONG_THEM = {
    "linkerd": set(),
    "consul": set(),
    "kuma": {"config", "experimental-transparent-proxy-engine", "ebpf-programs-source-path", "ebpf-bpffs-path", "ebpf-cgroup-path", "ebpf-tc-attach-iface"},
    "istio": {"log_as_json"},
}  # fmt: skip


@pytest.mark.parametrize("peer", peers.PEERS)
def test_every_flag_of_a_peer_says_what_becomes_of_it(peer):
    fields = {flag.field for flag in Options.flags}
    for flag in PEERS[peer].flags:
        assert isinstance(flag, PeerFlag)
        assert (flag.fate == SAME) == bool(flag.to)
        assert not flag.to or flag.to in fields
        assert (flag.fate in (LACKING, NEEDLESS, READ)) == bool(flag.why)
        assert flag.names or flag.key or flag.variables


@together(
    ("peer", "args", "problems"),
    [
        ("linkerd", "-p 4143 -o 4140 --inbound-port-to-ignore 5", ["'--inbound-port-to-ignore' is not a flag of Linkerd; did you mean --inbound-ports-to-ignore?"]),
        ("linkerd", "-o 4140", ["--incoming-proxy-port: is missing, and Linkerd does not start without it; add it"]),
        ("linkerd", "-p 4143 -o x", ["-o: 'x' is not a port: use a decimal number from 1 to 65535"]),
        ("linkerd", "-p 4143 -o 4140 --subnets-to-ignore 10.0.0.0/99", ["--subnets-to-ignore: '10.0.0.0/99' has a prefix length that is not a number from 0 to 32"]),
        ("linkerd", "-p 4143 -o 4140 --inbound-ports-to-ignore 30-20", ["--inbound-ports-to-ignore: '30-20' is an empty range of ports: the first is higher than the last; write 20-30"]),
        ("linkerd", "-p 4143 -o 4140 --iptables-mode foo", ["--iptables-mode: 'foo' is not one of legacy, nft, plain"]),
        ("linkerd", "-p 4143 -o 4140 --ipv6 false", ["'false' is not an option; a switch and its value are one word, --switch=false"]),
        ("linkerd", "-p 4143 -o 4140 pod", ["'pod' is not an option; give the peer's command line, without other words"]),
        ("linkerd", "FOO=1 proxy-init -p 4143 -o 4140", ["'FOO' is not a variable of Linkerd"]),
        ("kuma", "--redirect-dns --redirect-all-dns-traffic", ["--redirect-dns: Kuma refuses it with --redirect-all-dns-traffic; give one of the two"]),
        ("kuma", "--exclude-outbound-ports-for-uids tcp:22:*", ["--exclude-outbound-ports-for-uids: 'tcp:22:*' means every user: exclude the ports themselves with --istio-local-outbound-ports-exclude"]),
        ("kuma", "--vnet +:10.0.0.0/8", [
            "--vnet: '+:10.0.0.0/8' means every interface, lo and the pod's own too: write names, or a prefix such as br-+",
        ]),
        ("kuma", "--vnet docker0", ["--vnet: 'docker0' is not interface:CIDR, such as docker0:172.17.0.0/16"]),
        ("kuma", "--exclude-inbound-ips pod", ["--exclude-inbound-ips: 'pod' is not an IPv4 network"]),
        ("kuma", "--exclude-outbound-tcp-ports-for-uids tcp:22:5", ["--exclude-outbound-tcp-ports-for-uids: 'tcp:22:5' has more than two parts: write ports:users, such as 22,80:1000-2000"]),
        ("kuma", "--kuma-dp-user nobody-of-this-name", ["--kuma-dp-user: 'nobody-of-this-name' is not a user here: pass a number"]),
        ("kuma", "KUMA_TRANSPARENT_PROXY_REDIRECT_INBOUND_PROT=5", ["'KUMA_TRANSPARENT_PROXY_REDIRECT_INBOUND_PROT' is not a variable of Kuma; did you mean KUMA_TRANSPARENT_PROXY_REDIRECT_INBOUND_PORT?"]),
        ("consul", "-proxy-id web", ["-proxy-uid: is missing, and Consul does not start without it; add it"]),
        ("consul", "-proxy-uid 5", ["-proxy-inbound-port: is missing, as is -proxy-id, and Consul does not start without one; add it"]),
        ("consul", "-proxy-uid 5 -proxy-id web -proxy-inbound-port 20000", ["-proxy-id: Consul refuses it with -proxy-inbound-port; give one of the two"]),
        ("consul", "-proxy-uid 5 -proxy-inbound-port 20000 -exclude-inbound-port ssh", ["-exclude-inbound-port: 'ssh' is not a number: service names are not looked up; write the port"]),
        ("consul", "-proxy-uid 5 -proxy-inbound-port 20000 -exclude-inbound-prot 22", ["'-exclude-inbound-prot' is not a flag of Consul; did you mean -exclude-inbound-port?"]),
        ("istio", "-p 15001 --exclude-cloud-metadata", ["'--exclude-cloud-metadata' is not a flag of Istio; its flags are listed in https://netinit.io/docs/0.2.0/meshes.html"]),
        ("istio", "-p 15001 -b 80,x -i 10.0.0.0", ["-b: '80,x' holds 'x', which is not a port or a range of ports: use a decimal number from 1 to 65535, or two with a dash, such as 8000-8100", "-i: '10.0.0.0' has no prefix length; write it as a CIDR, for example 10.0.0.0/8"]),
        ("istio", "ISTIO_META_DNS_CAPTURE=yes istio-iptables -p 15001", ["environment variable ISTIO_META_DNS_CAPTURE: 'yes' is neither true nor false"]),
        ("istio", "-p 15001 -m TPROXY -t 1338", ["--istio-inbound-tproxy-mark: '1338' marks the proxy's own connections in TPROXY mode; use another"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_the_peer_the_flag_the_value_and_a_remedy(peer, args, problems):
    with pytest.raises(OptionError) as caught:
        peers.convert_line(peer, args)
    assert [str(problem) for problem in caught.value.problems] == [f"{peer}: {problem}" for problem in problems]


@pytest.mark.parametrize(
    ("peer", "tree", "problem"),
    [
        ("kuma", {"redirect": {"inbund": {"port": 5}}}, "file.yaml: 'redirect.inbund.port' is not a key of it; did you mean redirect.inbound.port?"),
        ("kuma", {"redirect": {"inbound": {"port": [[5]]}}}, "file.yaml: redirect.inbound.port: is a list: write PORT"),
        ("kuma", {"redirect": {"inbound": {"port": "x"}}}, "file.yaml: redirect.inbound.port: 'x' is not a port: use a decimal number from 1 to 65535"),
        ("kuma", ["redirect"], "file.yaml: holds no options: give the peer's own file, whose keys are kumaDPUser, redirect.inbound.enabled, redirect.inbound.port, …"),
        ("linkerd", {"linkerd": {"incoming-proxy-port": 4143, "outgoing-proxy-port": 4140, "proxy_uid": 5}}, "file.yaml: 'proxy_uid' is not a key of it; did you mean proxy-uid?"),
        ("consul", {"ProxyUserID": "5", "ProxyInboundPort": 20000, "ExcludeInboundPort": ["5"]}, "file.yaml: 'ExcludeInboundPort' is not a key of it; did you mean ExcludeInboundPorts?"),
        ("istio", {"a": 1}, "file.yaml: 'a' is not a key of it"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told_with_its_key(peer, tree, problem):
    with pytest.raises(OptionError) as caught:
        peers.convert_line(peer, "-p 1 -o 2" if peer == "linkerd" else "", tree)
    assert f"{peer}: {problem}" in caught.value.problems


def test_wrong_keys_and_wrong_values_of_all_files_are_told_at_once():
    line = part("kuma", ["--config", "a,b"])
    assert line.files == ("a", "b")
    with pytest.raises(OptionError) as caught:
        convert("kuma", line, [("a", {"redirect": {"x": 1, "inbound": {"port": 0}}}), ("b", {"kumaDPUsr": "5", "": {"kumaDPUser": "6"}})])
    assert list(caught.value.problems) == [
        "kuma: a: 'redirect.x' is not a key of it; did you mean redirect.dns.port?",
        "kuma: b: 'kumaDPUsr' is not a key of it; did you mean kumaDPUser?",
        "kuma: b: '.kumaDPUser' is not a key of it; did you mean kumaDPUser?",
        "kuma: a: redirect.inbound.port: '0' is not a port: use a decimal number from 1 to 65535",
    ]


def test_an_empty_file_gives_nothing():
    assert peers.convert_line("linkerd", "-p 1 -o 2", {}).options == peers.convert_line("linkerd", "-p 1 -o 2").options


def test_flags_go_before_variables_and_these_before_the_file():
    file = {"kumaDPUser": "5", "redirect": {"inbound": {"port": 1}, "outbound": {"port": 2}}}
    found = peers.convert_line("kuma", "KUMA_TRANSPARENT_PROXY_REDIRECT_INBOUND_PORT=11 KUMA_TRANSPARENT_PROXY_KUMA_DP_USER=6 kumactl install transparent-proxy --kuma-dp-user 7", file)
    options = found.options
    assert (options.proxy_uids, options.inbound_port, options.outbound_port) == ((7,), 11, 2)


def test_secrets_are_not_repeated():
    found = peers.convert_line("consul", "-proxy-uid 5 -proxy-inbound-port 20000 -token s3cr3t")
    assert "s3cr3t" not in "".join(map(str, found.needless))


@pytest.mark.parametrize(
    ("args", "mentions"),
    [
        ("-p 1 -o 2 -u 3 -g 4", True),
        ("-p 1 -o 2 -u 3 -g 4 --inbound-ports-to-ignore 15000-15010", False),
        ("-p 1 -o 2 -u 3 -g 4 -r 80", False),
        ("-p 1 -o 2 -u 3 -g 4 -r 15000-15010", True),
    ],
)
def test_the_tunnel_s_port_is_mentioned_where_the_peer_captures_it(args, mentions):
    found = peers.convert_line("linkerd", args)
    assert [one for one in found.differing if "15008" in one] == list(found.differing)
    assert bool(found.differing) == mentions


def test_capturing_the_tunnel_s_port_too_is_offered():
    (remark,) = peers.convert_line("linkerd", "-p 1 -o 2 -u 3 -g 4 --inbound-ports-to-ignore 4190-4195,5000").differing
    assert remark == "netinit leaves inbound port 15008 alone, Linkerd captures it; -e 0 captures it too"


def test_users_and_groups_that_are_left_alone_here_alone_are_mentioned():
    (user, group) = [one for one in peers.convert_line("linkerd", "-p 1 -o 2").differing if "15008" not in one]
    assert user == "Linkerd leaves no user alone without --proxy-uid, netinit leaves user 1337 alone; name the proxy's with -u"
    assert group == "netinit leaves what group 1337 sends alone too, Linkerd knows no group; name the proxy's with -g"
    assert not peers.convert_line("istio", "-p 15001 -b '*' -i '*'").differing


def test_the_user_of_envoy_is_found_by_name():
    assert peers.convert_line("istio", "ENVOY_USER=root istio-iptables -u 5 -p 15001").options.proxy_uids == (5,)
    (remark,) = peers.convert_line("istio", "ENVOY_USER=nobody-of-this-name istio-iptables -p 15001").lacking
    assert str(remark) == "ENVOY_USER 'nobody-of-this-name': is not a user here; give its number in the image with -u"
