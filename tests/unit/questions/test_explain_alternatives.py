"""Which other values of options explain tries for a packet."""

from __future__ import annotations

import pytest

from core import IPV4
from netinit.base.net import number_of
from netinit.options import Options, offline
from netinit.questions.explain import find_alternatives
from netinit.rules.packet_inputs import Surroundings
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.stand_ins import make_inbound

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
OUT, IN = make_outbound(POD, "203.0.113.7", 443, uid=1000, gid=1000), make_inbound(POD, "198.51.100.9", "", 80)


def offered(packet, *words):
    options = Options.from_argv(["--ipv6", "off", *words]).settle(offline())
    return dict(find_alternatives(options, packet))


@pytest.mark.parametrize(
    ("packet", "words", "label", "field", "value"),
    [
        (IN, ("-b", "*"), "add 80 to --istio-local-exclude-ports", "exclude_inbound_ports", (80,)),
        (IN, ("-b", "*", "-d", "9,80"), "remove 80 from --istio-local-exclude-ports", "exclude_inbound_ports", (9,)),
        (IN, ("-b", "*", "-d", "9"), "add 80 to --istio-local-exclude-ports", "exclude_inbound_ports", (9, 80)),
        (OUT, ("-i", "*"), "add 203.0.113.7/32 to --istio-service-exclude-cidr", "exclude_outbound_cidrs", None),
        (OUT, ("-i", "*", "-x", "203.0.113.0/24"), "remove 203.0.113.0/24 from --istio-service-exclude-cidr", "exclude_outbound_cidrs", ()),
        (OUT, ("-i", "203.0.113.0/24"), "add 203.0.113.7/32 to --istio-service-cidr", "outbound_cidrs", None),
        (OUT, ("-i", "203.0.113.0/24"), "--istio-service-cidr '*'", "outbound_cidrs", "*"),
    ],
)  # fmt: skip
def test_what_names_the_packet_leaves_a_list_and_what_lacks_it_enters(packet, words, label, field, value):
    found = offered(packet, *words)
    assert label in found, "\n".join(found)
    got = getattr(found[label], field)
    assert str(got) if value is None else got == value
    assert value is not None or "203.0.113.7/32" in [str(one) for one in got]
