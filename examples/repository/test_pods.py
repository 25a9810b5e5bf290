"""What must hold of every packet of every pod here: pytest, with netinit installed, proves it."""

from pathlib import Path

from netinit.testing import assert_captured, assert_holds

MANIFESTS = Path(__file__).parent / "manifests"


def test_what_applications_send_goes_through_the_proxy():
    assert_captured(MANIFESTS, "outbound ipv4 tcp not by proxy not to pod not on port 5432")


def test_the_shop_reaches_its_database_directly():
    assert_holds(MANIFESTS / "shop.yaml", "outbound tcp not by proxy to 10.2.3.4 on port 5432 is direct")
