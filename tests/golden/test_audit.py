"""The sentences of `netinit audit`: what bypasses the proxy by options and by pods, why, and what ends it; one file a question."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from goldens import NOBODY
from netinit.cli import start

FOLDER = Path(__file__).parent / "audit"
SIDECAR = "-p 15001 -z 15006 -u 1337 -g 1337 -i '*' -b '*' -d 15090,15021,15020 --ipv6 on"
QUESTIONS = {
    "sidecar": f"{SIDECAR} -e 0",
    "ipv6-by-the-first-address": "-b '*' -i '*'",
    "ipv6-off": "-b '*' -i '*' --ipv6 off",
    "listed-ports-and-networks": "-b 80 -i 10.0.0.0/8 --ipv6 on",
    "inbound-not-captured": f"{SIDECAR} -m NONE",
    "tproxy": f"{SIDECAR} -m TPROXY",
    "exclusions": f"{SIDECAR} -o 22,3306 -x 10.0.0.0/8 --exclude-inbound-cidrs 10.9.0.0/16 -c eth1 --exclude-outbound-for-uids tcp:22:1000 --exclude-cloud-metadata",
    "dns-and-quic": f"{SIDECAR} --redirect-dns --capture-all-dns --reject-quic",
    "ambient": "--layout ambient --ipv6 on --host-probe-address 169.254.7.127",
    "ambient-gateway": "--layout ambient --ipv6 on --ingress",
    "classic": "--layout classic -b '*' -i '*'",
    "nothing": "",
}
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, annotations: {%s}, labels: {%s}}\nspec: {%s}\n"
BOTH = "initContainers: [{name: istio-init, image: i, args: [istio-iptables, -p, '15001', -z, '15006', -u, '1337', -m, REDIRECT, -i, '*', -b, '*', -d, '15090,15021,15020']}], containers: [{name: web, image: w%s}, {name: istio-proxy, image: p}]"
PODS = {
    "pod": POD % ("", "", BOTH % ""),
    "pod-as-the-proxy": POD % ("", "", BOTH % ", securityContext: {runAsUser: 1337, runAsGroup: 1337}"),
    "pod-on-its-node": POD % ("", "", "hostNetwork: true, containers: [{name: web, image: w}]"),
    "pod-outside": POD % ("", 'sidecar.istio.io/inject: "false"', "containers: [{name: web, image: w}]"),
    "pod-in-doubt": POD % ("traffic.sidecar.istio.io/excludeOutboundPorts: '22'", "", "containers: [{name: web, image: w}]"),
}


@pytest.mark.parametrize("name", [*QUESTIONS, *PODS])
def test_the_answer_is_the_one_on_file(name, capsys, golden, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = f"--all {QUESTIONS[name]}" if name in QUESTIONS else f"--all {name}.yaml"
    Path(f"{name}.yaml").write_text(PODS.get(name, ""))
    code = start.run(["netinit", "audit", *shlex.split(words)], NOBODY)
    out, err = capsys.readouterr()
    golden({FOLDER / f"{name}.txt": f"$ netinit audit {words}\n{out}{err}exit code {code}\n"})


def test_every_file_has_its_question():
    assert {file.stem for file in FOLDER.glob("*.txt")} == {*QUESTIONS, *PODS}
