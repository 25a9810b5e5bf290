"""What options leave to the pod, decided by its addresses and name servers as they are given here."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

from netinit.backends.machine import HERE
from netinit.base.errors import OptionError
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel import answers, detect
from netinit.options import Facts, Interception, Options, SettledOptions, offline
from netinit.rules import layouts

LINK_LOCAL, LOOPBACK = ("fe80::1", "169.254.0.1"), ("127.0.0.1", "::1", "::6")
FOUR, SIX = "10.0.0.1", "fd77::2"


def never():
    pytest.fail("was asked for what decides nothing")


def settled(addresses=never, servers=never, families=FAMILIES, **options):
    lists = [given if callable(given) else lambda given=given: given for given in (addresses, servers)]
    return Options(**options).settle(Facts(kernel_families=families, list_addresses=lists[0], read_servers=lists[1]))


@pytest.mark.parametrize(
    ("addresses", "dual_stack", "ipv6", "told"),
    [
        ((), False, "off", 0),
        ((FOUR,), False, "off", 0),
        ((SIX,), False, "on", 0),
        ((FOUR, SIX), False, "off", 1),
        ((FOUR, SIX), True, "on", 0),
        ((SIX, FOUR), False, "on", 0),
        ((*LOOPBACK, *LINK_LOCAL), False, "off", 0),
        ((*LOOPBACK, *LINK_LOCAL), True, "off", 0),
        ((*LOOPBACK, "febf::1", SIX, FOUR), False, "on", 0),
        (("fec0::1",), False, "on", 0),
    ],
)
def test_ipv6_goes_by_the_first_address_that_is_the_pods_own(addresses, dual_stack, ipv6, told):
    found = settled(addresses, dual_stack=dual_stack)
    assert (found.ipv6, len(found.warnings)) == (ipv6, told)
    for warning in found.warnings:
        assert warning == (
            f"IPv6 is not captured: the pod's first address is IPv4, and {SIX} is here too: TCP over it bypasses the proxy and mTLS;"
            " use --dual-stack or --ipv6 on, so that the proxy gets it, or --ipv6 reject, so that nothing does"
        )


@pytest.mark.parametrize(
    ("options", "ipv6", "told"),
    [
        ({"native_nftables": True}, "inet", "TCP over it is refused unless the proxy listens on IPv6"),
        ({"backend": "nftables"}, "inet", "TCP over it is refused unless the proxy listens on IPv6"),
        ({"backend": "nftables", "inbound_mode": "TPROXY", "inbound_ports": "*"}, "inet", "inbound TCP over it bypasses the proxy and mTLS in TPROXY mode"),
        ({"backend": "nftables", "layout": "ambient"}, "off", "TCP over it bypasses the proxy and mTLS"),
        ({"backend": "nftables", "layout": "classic"}, "off", "inbound traffic over it is refused, and outbound TCP bypasses the proxy and mTLS"),
        ({"backend": "iptables-legacy"}, "off", "TCP over it bypasses the proxy and mTLS"),
    ],
)
def test_where_ipv4_is_first_ipv6_is_as_istio_leaves_it_on_the_backend(options, ipv6, told):
    found = settled((FOUR, SIX), **options)
    assert (found.ipv6, [told in warning for warning in found.warnings]) == (ipv6, [True]), found.warnings
    assert "--dual-stack" in found.warnings[0]
    assert settled((SIX, FOUR), **options).ipv6 == "on"
    assert settled((FOUR, SIX), ipv6="off", **options).ipv6 == "off"


def test_the_backend_that_is_chosen_later_has_a_say_in_what_auto_comes_to():
    found = settled((FOUR, SIX))
    native = found.for_backend("nftables")
    assert (found.ipv6, native.ipv6, native.for_backend("iptables-nft")) == ("off", "inet", found)
    assert [len(one.warnings) for one in (found, native)] == [1, 1]
    assert settled((SIX,)).for_backend("nftables").ipv6 == "on"
    assert settled((FOUR, SIX), ipv6="off").for_backend("nftables").ipv6 == "off"


@pytest.mark.parametrize("ipv6", ["on", "off", "inet", "reject"])
def test_addresses_are_not_asked_for_where_ipv6_is_given(ipv6):
    found = settled(ipv6=ipv6)
    assert (found.ipv6, found.warnings, found.kernel_families) == (ipv6, (), FAMILIES)


@pytest.mark.parametrize(("ipv6", "told"), [("on", 1), ("auto", 0), ("reject", 0), ("inet", 0)])
def test_a_kernel_without_ipv6_has_it_off(ipv6, told):
    found = settled((SIX,), families=(IPV4,), ipv6=ipv6)
    assert (found.ipv6, found.kernel_families, len(found.warnings)) == ("off", (IPV4,), told)


@pytest.mark.parametrize(
    ("options", "servers"),
    [
        ({}, ("10.0.0.10", "fe80::1")),
        ({"dns_servers": ("10.9.9.9",)}, ("10.9.9.9",)),
        ({"layout": "ambient"}, ()),
        ({"capture_all_dns": True}, ()),
        ({"redirect_dns": False}, ()),
    ],
)
def test_name_servers_are_read_where_dns_is_captured_server_by_server_in_this_namespace(options, servers):
    found = settled(servers=["10.0.0.10", "fe80::1"], ipv6="off", **{"redirect_dns": True, **options})
    assert (found.dns_servers, found.warnings) == (servers, ())


@pytest.mark.parametrize("options", [{"dns_servers": ("10.9.9.9",)}, {"layout": "ambient"}, {"redirect_dns": False}])
def test_name_servers_are_not_read_where_they_decide_nothing(options):
    assert settled(ipv6="off", **{"redirect_dns": True, **options}).warnings == ()


def test_dockers_resolver_is_named_where_all_dns_is_captured():
    (warning,) = settled(servers=["127.0.0.11"], ipv6="off", redirect_dns=True, capture_all_dns=True).warnings
    assert warning.startswith("--capture-all-dns: 127.0.0.11 in /etc/resolv.conf is Docker's resolver")


def test_a_pods_name_servers_are_read_where_they_are_wanted_and_not_named():
    assert Options(redirect_dns=True).settle(offline(read_servers=lambda: ["10.0.0.1"])).dns_servers == ("10.0.0.1",)
    for options in (Options(), Options(redirect_dns=True, dns_servers=("10.9.9.9",))):
        assert options.settle(offline(read_servers=never)).dns_servers == options.dns_servers


@pytest.mark.parametrize("capture_all_dns", [False, True])
def test_the_name_servers_of_this_process_are_not_those_of_another_pod(monkeypatch, capture_all_dns):
    monkeypatch.setattr(detect, "read_name_servers", never)
    found = HERE.settle(Options(pid=7, ipv6="off", redirect_dns=True, capture_all_dns=capture_all_dns))
    assert (found.dns_servers, found.warnings) == ((), ())


@pytest.mark.parametrize("options", [Options(), Options(ipv6="on", dns_servers=("10.9.9.9",), redirect_dns=True), Interception(ipv6="on")])
def test_options_that_are_not_settled_have_no_plan(options):
    with pytest.raises(TypeError, match=r"not settled for a pod: use options\.settle\(facts\), or options\.settle\(offline\(\)\) without a pod"):
        layouts.plan(options)


def test_every_layout_plans_settled_options_alone():
    modules = [importlib.import_module(f"{layouts.__name__}.{one.name}") for one in pkgutil.iter_modules(layouts.__path__)]
    plans = [layouts.plan, *[module.plan for module in modules if hasattr(module, "plan")]]
    assert len(plans) == len({"current", "classic", "ambient"}) + 1
    for plan in plans:
        assert [one.annotation for one in inspect.signature(plan).parameters.values()] == [SettledOptions.__name__]


def test_settled_options_are_made_by_settling_and_stay_settled():
    found = settled((SIX,), redirect_dns=True, servers=["10.0.0.10"])
    changed = found.replace(inbound_ports="80").without("redirect_dns")
    assert type(changed) is SettledOptions
    assert (changed.inbound_ports, changed.redirect_dns, changed.ipv6, changed.kernel_families) == ((80,), False, "on", FAMILIES)
    for undo in (lambda: found.replace(ipv6="auto"), lambda: found.without("ipv6")):
        with pytest.raises(OptionError, match="'auto' was decided when the options were settled"):
            undo()
    assert answers.decode(answers.encode(found)) == found, "as a child in the pod answers with them"
    with pytest.raises(TypeError, match="kernel_families, machine_warnings, follows_istio, second_address is missing"):
        SettledOptions(ipv6="on")


def test_without_a_pod_ipv6_is_on_unless_its_addresses_are_known_and_no_name_server_is():
    options = Options(redirect_dns=True)
    assert [options.settle(offline(known)).ipv6 for known in ((), (SIX,), (FOUR,), (FOUR, SIX))] == ["on", "on", "off", "off"]
    assert [options.replace(ipv6=ipv6).settle(offline()).ipv6 for ipv6 in ("off", "reject")] == ["off", "reject"]
    assert (options.settle(offline()).dns_servers, options.settle(offline()).warnings) == ((), ())
