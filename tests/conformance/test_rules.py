"""Istio's own cases, and the classic example: what the kernel holds must be the same, in order."""

from __future__ import annotations

import pytest

from laboratory import Pod
from netinit.base.net import FAMILIES
from netinit.options import Options
from programming import VARIANTS, apply_in, differences_in, listing, load, needs, run_tool
from rules_data import read_cases, read_options
from sweeps import choose

pytestmark = pytest.mark.netns

CLASSIC_EXAMPLE = """\
-P PREROUTING ACCEPT
-P INPUT ACCEPT
-P OUTPUT ACCEPT
-P POSTROUTING ACCEPT
-N ISTIO_INBOUND
-N ISTIO_IN_REDIRECT
-N ISTIO_OUTPUT
-N ISTIO_REDIRECT
-A PREROUTING -p tcp -j ISTIO_INBOUND
-A OUTPUT -p tcp -j ISTIO_OUTPUT
-A ISTIO_INBOUND -p tcp -m tcp --dport 80 -j ISTIO_IN_REDIRECT
-A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15001
-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -j ISTIO_REDIRECT
-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
-A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
-A ISTIO_OUTPUT -j ISTIO_REDIRECT
-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
"""


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_case_of_istio_is_equal_in_the_kernel(conformance, require_netns, variant):
    needs(variant)
    cases = list(read_cases(conformance))
    assert cases
    for case in cases:
        with Pod() as theirs, Pod() as ours:
            for family in FAMILIES:
                if case[family.program]:
                    load(theirs, variant, family, case[family.program])
            apply_in(ours, read_options(case, backend=variant, istio_exact=True))
            assert listing(ours, variant) == listing(theirs, variant), case["name"]


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_classic_example_reads_to_the_letter(pod_v4only, variant):
    needs(variant)
    argv = ["-p", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "80", "-d", ""]
    options = Options.from_argv([*argv, "--layout", "classic", "--istio-exact", "--backend", variant])
    apply_in(pod_v4only, options)

    assert pod_v4only.run([variant, "-w", "-t", "nat", "-S"], check=True).stdout == CLASSIC_EXAMPLE


# Where netinit's native rules differ from Istio's: INVALID is dropped of every protocol, not of TCP alone, and rules for servers of one
# family are of that family.
OTHERWISE = {"drop-invalid", "tproxy"}


def test_native_tables_of_istio_are_as_planned_and_stay_as_they_are(conformance, require_netns):
    needs("nftables")
    other = set()
    for number, case in enumerate(read_cases(conformance)):
        options = read_options(case, backend="nftables", istio_exact=True)
        options = options if case["ipv6"] else options.replace(ipv6="inet")
        with Pod() as pod:
            pod.run(["nft", "-f", "-"], stdin=case["nft"], check=True)
            found = [one for one in differences_in(pod, options) if " routing: " not in str(one)]
            if found:
                other.add(case["name"])
                continue
            before = pod.run(["nft", "--stateless", "list", "ruleset"], check=True).stdout
            apply_in(pod, options)
            assert pod.run(["nft", "--stateless", "list", "ruleset"], check=True).stdout == before, case["name"]
            if number % choose(3, 1):
                continue
            without = run_tool(pod, "verify")
            assert without.returncode == 0, (case["name"], without.stdout)
            assert "foreign" not in run_tool(pod, "audit").stdout, case["name"]
    assert other == OTHERWISE
