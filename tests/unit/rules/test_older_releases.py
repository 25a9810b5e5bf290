"""Options read back from the rules of each release of Istio, and from those of today in each form that they have."""

from __future__ import annotations

import pytest

from netinit.options import Options
from netinit.rules.infer_options import from_iptables, from_nft, native_plan, release_plans
from netinit.rules.infer_options.older_releases import NATIVE, list_rules
from netinit.rules.layouts import plan
from plan_snapshot import live_chains
from release_options import SETS, settle
from sweeps import together

TODAY = {"iptables": (list_rules, from_iptables), "nft": (live_chains, from_nft)}
OLDER = [name for name in SETS if name != "ipv6-rejected"]
GENERATIONS = release_plans.GENERATIONS
FIRST_OF_DNS_SERVERS = 12  # of both families


def differing(found, wanted, *unseen):
    """The options that were read otherwise, but for those of which no rule tells."""
    assert found, "no options were read"
    fields = [flag.field for flag in Options.flags if hasattr(wanted, flag.field) and flag.applies_to(wanted.layout) and flag.field not in unseen]
    values = {field: (getattr(found, field), getattr(wanted, field)) for field in fields}
    return {field: (one, other) for field, (one, other) in values.items() if in_any_order(one) != in_any_order(other)}


def in_any_order(value):
    """A list as the kernel has it in a set."""
    return set(value) if type(value) is tuple else value


def routing_of(made):
    return {one.mark: one.table for one in made.ip_rules}


@together(("name", "exact"), [(name, exact) for name in SETS for exact in (False, True)])
@pytest.mark.parametrize("dialect", TODAY)
def test_todays_rules_tell_their_options_in_each_dialect(dialect, name, exact):
    make, read = TODAY[dialect]
    options = settle(name, istio_exact=exact)
    made = plan(options)
    found = read(make(made), routing_of(made))
    assert differing(found.options, options, "keep_local_loopback", *["istio_exact"] * (name == "nothing")) == {}
    assert (found.unread, found.older) == ((), None)
    assert found.make_plan(options) == made
    assert found.settle_as(options) == options


@together("name", OLDER)
def test_native_rules_tell_their_options(name):
    options = native_plan.settle_as(settle(name))
    made = NATIVE.plan(options)
    found = from_nft(live_chains(made), routing_of(made))
    assert differing(found.options, made.made_from, "keep_local_loopback", *["istio_exact"] * (name == "nothing")) == {}
    if found.older:  # else they are those of the current layout
        assert str(found.older) == "Istio 1.27 and later, native nft"
        assert found.older.exact
    else:
        assert {place: chain for place, chain in live_chains(plan(made.made_from)).items() if chain} == live_chains(made)


def unseen_of(options, minor):
    """The options of which no rule of the release tells."""
    of_tproxy = () if options.inbound_ports else ("inbound_mode", "tproxy_mark", "tproxy_table")
    return ("keep_local_loopback", *of_tproxy, *(("dns_servers",) if minor < FIRST_OF_DNS_SERVERS else ()))


@together(("name", "minor"), [(name, minor) for place, name in enumerate(OLDER) for minor in GENERATIONS[2 + place % 3 :: 3] if minor >= 9 or name != "tproxy-nothing"])
def test_the_rules_of_a_release_of_the_current_layout_tell_their_options_and_the_release(name, minor):
    excluded = {"exclude_inbound_ports": "15020"} if SETS[name].get("inbound_ports") == "*" else {}
    given = settle(name, tunnel_port=15008, **excluded)
    options = release_plans.settle_as(given, minor)
    made = release_plans.plan(options, minor)
    found = from_iptables(list_rules(made), routing_of(made))
    assert differing(found.options, made.made_from, *unseen_of(options, minor)) == {}
    assert (found.unread, found.older and found.older.exact) == ((), True)
    assert found.older.first <= minor < found.older.after
    assert list_rules(found.make_plan(found.options)) == list_rules(made)


@pytest.mark.parametrize("minor", [0, 1])
@pytest.mark.parametrize("name", ["tproxy-listed", "nothing", "networks-of-ipv4"])
def test_the_rules_of_a_release_of_the_classic_layout_tell_their_options_and_the_release(name, minor):
    options = release_plans.settle_as(settle(name, layout="classic"), minor)
    made = release_plans.plan(options, minor)
    found = from_iptables(list_rules(made), routing_of(made))
    assert differing(found.options, made.made_from) == {}
    assert (found.older.first, found.older.after, found.older.exact) == ((0, 1, True) if minor == 0 else (1, 3, True))
    assert list_rules(found.make_plan(found.options)) == list_rules(made)
