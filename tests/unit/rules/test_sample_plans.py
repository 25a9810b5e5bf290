"""Plans in which a value shows of which option it is: the values that options have there."""

from __future__ import annotations

import pytest

from netinit.base.net import Network
from netinit.options import LAYOUTS, Interception
from netinit.rules.layouts import plan
from netinit.rules.sample_plans import flags_of, items_of, make_plans, make_samples

FIELDS = [flag.field for flag in Interception.flags]


def test_each_value_is_of_one_option_alone_and_of_a_list_there_are_two_or_more():
    samples = make_samples(FIELDS)
    items = [item for sample in samples.values() for item in items_of(sample)]
    assert len({str(item) for item in items}) == len(items)
    for field, sample in samples.items():
        default = Interception.flag(field).default
        assert len(items_of(sample)) > 1 or type(default) is not tuple, field
        assert not set(items_of(sample)) & set(items_of(default)), f"{field}: what is there anyway shows nothing"


ADDRESSES = ("outbound_cidrs", "exclude_outbound_cidrs", "exclude_inbound_cidrs", "dns_servers", "host_probe_addresses")


@pytest.mark.parametrize("field", ADDRESSES)
def test_of_addresses_there_is_one_of_each_family(field):
    assert [":" in str(item) for item in make_samples([field])[field]] == [False, True]


def test_only_options_of_words_have_no_value_of_their_own():
    without = set(FIELDS) - make_samples(FIELDS).keys()
    assert without == {
        "inbound_mode", "redirect_dns", "capture_all_dns", "redirect_forwarded_dns", "drop_invalid", "dual_stack", "layout", "ipv6", "istio_exact", "ingress",
        "exclude_cloud_metadata", "reject_quic", "redirect_outbound_udp", "log_rules", "keep_local_loopback",
    }  # fmt: skip
    some = make_samples(["proxy_uids", "ipv6", "outbound_port"])
    assert some == {field: make_samples(FIELDS)[field] for field in ("proxy_uids", "outbound_port")}, "whatever else is asked for"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_valid_variant_is_planned_with_those_of_its_options_that_the_layout_has(layout):
    variants = [{"outbound_port": "70000"}, {"proxy_uids": (7,), "outbound_port": 41}, {"tunnel_port": 42}, {"keep_local_loopback": True}]
    known = flags_of(layout)
    assert {flag.field for flag in Interception.flags if flag.applies_to(layout)} == known.keys()
    made = list(make_plans(layout, variants))
    assert [given for given, _ in made] == [{field: value for field, value in one.items() if field in known} for one in variants[1:]]
    assert all(one.layout == layout for _, one in made)
    assert [one for _, one in made] == [plan(one.made_from) for _, one in made]
    assert [one for _, one in make_plans(layout, variants[1:2], lambda options: options.outbound_port)] == [41]


@pytest.mark.parametrize(("value", "items"), [((1, 2), (1, 2)), ((), ()), (1, (1,)), ("*", ("*",)), (Network.parse("10.0.0.0/8"), (Network.parse("10.0.0.0/8"),))])
def test_the_items_of_a_value_are_those_of_its_list_or_the_value(value, items):
    assert items_of(value) == items
