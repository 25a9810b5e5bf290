"""Istio's own cases, and the classic example: what the kernel holds must be the same, in order."""

from __future__ import annotations

import pytest

from netinit.base.net import FAMILIES
from netinit.lab import Pod
from netinit.options import Options
from programming import VARIANTS, apply_in, listing, load, needs
from rules_data import read_cases, read_options

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
