"""Whole rulesets in nft's dialect, for reading: what a change of the writer does is seen here."""

from __future__ import annotations

from pathlib import Path

import pytest

from netinit.options import Options
from netinit.rules.layouts import plan
from netinit.rules.nft.writer import render_script

GOLDEN = Path(__file__).parents[2] / "golden" / "nft"
CASES = {
    "sidecar": ["-b", "*", "-d", "15090,15021,15020", "-i", "*", "-x", "10.96.0.0/16,10.97.0.0/16,192.0.2.1/32"],
    "dual-stack-lists": ["-b", "80,443", "-i", "10.0.0.0/8,fd00::/8", "-x", "10.1.0.0/24,fd00:1::/64", "-o", "25,5432", "-q", "8443"],
    "tproxy-dns": ["-m", "TPROXY", "-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns", "--drop-invalid"],
    "dns-servers": ["-i", "*", "--redirect-dns", "-u", "1337", "-g", "1337"],
    "virtual-machine": ["-b", "*", "-k", "tap0,tap1", "-i", "10.0.0.0/8", "-c", "net1"],
    "classic": ["--layout", "classic", "-b", "80", "-i", "*"],
    "classic-tproxy": ["--layout", "classic", "-m", "TPROXY", "-b", "*", "-i", "10.0.0.0/8"],
}
IPV4_ONLY = {"sidecar", "virtual-machine", "classic-tproxy"}


@pytest.mark.parametrize("name", CASES)
def test_the_ruleset_reads_as_before(name, update_golden):
    options = Options.from_argv(CASES[name])
    options = options.replace(ipv6="off" if name in IPV4_ONLY else "on", dns_servers=("10.96.0.10", "fd00::a"))
    script = render_script(plan(options), comments=name == "sidecar")
    path = GOLDEN / f"{name}.nft"
    if update_golden:
        path.write_text(script)
    assert script == path.read_text(), f"{path} differs; look at it and rewrite it with --update-golden"
