"""What a platform team holds its manifests to: run by pytest, proved for all packets."""

from pathlib import Path

from netinit.testing import assert_captured, assert_holds

PODS = Path(__file__).parent


def test_what_applications_send_goes_through_the_proxy():
    assert_captured(PODS / "pod.yaml", "outbound tcp not by proxy not to pod")


def test_the_probes_reach_the_proxy_itself():
    assert_holds(PODS / "pod.yaml", "inbound tcp from 10.0.0.0/8 on port 15021 is not captured")
