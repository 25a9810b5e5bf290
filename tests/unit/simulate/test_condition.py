"""What targets do to packets of one condition: where it is done, where the kernel has no such target, and what stays as it was."""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Network, Surroundings, number_of
from netinit.base.net import FULL_MASK
from netinit.rules.targets import ACCEPTED, ENDED, GO_ON
from netinit.simulate.condition import INITIAL_MARKS, KEPT, OWN, PRIMARY, Condition, MarkBits, TargetEffects
from netinit.simulate.trace import DROPPED, REFUSED, UNKNOWN

POD = Surroundings(family=IPV4, addresses=(("lo", number_of("127.0.0.1")), ("eth0", number_of("10.0.0.2"))))
POD6 = Surroundings(family=IPV6, addresses=(("eth0", number_of("fd00::2")),))
IN = {"hook": "PREROUTING", "in_interface": "eth0", "connection": True}
OUT = {"hook": "OUTPUT", "connection": True}


def effects(table="nat", around=POD, **condition):
    return TargetEffects(around, Condition(**condition), table, lambda port: port == 15001)


def apply(call, table="nat", around=POD, **condition):
    """The verdict of a target, what it changed, and the fate."""
    actor = effects(table, around, **condition)
    verdict = call(actor)
    before = Condition(**condition)
    changed = {name: value for name, value in actor.now.__dict__.items() if name != "_hash" and value != before.__dict__[name]}
    return verdict, changed, actor.fate


GIVEN_UP = (ENDED, {}, UNKNOWN)


def test_what_ends_packets_changes_nothing():
    assert apply(lambda actor: actor.drop()) == (ENDED, {}, DROPPED)
    assert apply(lambda actor: actor.refuse()) == (ENDED, {}, REFUSED)
    assert apply(lambda actor: actor.give_up()) == GIVEN_UP
    actor = effects()
    assert (actor.called, actor.call("A"), actor.called, actor.fate) == ("", GO_ON, "A", "")


@pytest.mark.parametrize(("condition", "around", "address"), [
    (OUT, POD, number_of("127.0.0.1")), (OUT, POD6, 1), (IN, POD, number_of("10.0.0.2")), ({**IN, "in_interface": "eth9"}, POD, None), ({**IN, "in_interface": KEPT}, POD, PRIMARY),
])  # fmt: skip
def test_a_redirect_leads_to_the_address_of_lo_or_of_the_device(condition, around, address):
    changes = {"redirected": True, "destination": address, "destination_port": 15001, "redirect_port": 15001}
    assert apply(lambda actor: actor.redirect(15001), around=around, **condition) == (ACCEPTED, changes, "")


def test_a_redirect_to_another_port_than_the_proxy_s_is_a_translation():
    changes = {"redirected": True, "destination": number_of("10.0.0.2"), "destination_port": 9, "translated": True}
    assert apply(lambda actor: actor.redirect(9), **IN) == (ACCEPTED, changes, "")
    kept = {**IN, "redirect_port": 15001, "transparent": True}
    for port, more in ((9, {"translated": True}), (15001, {})):
        assert apply(lambda actor, port=port: actor.redirect(port), **kept) == (ACCEPTED, {"redirected": True, "destination": number_of("10.0.0.2"), "destination_port": port, **more}, "")
    assert apply(lambda actor: actor.redirect(15001), translated=True, **IN)[1].get("translated") is None
    assert apply(lambda actor: actor.redirect(15001), hook="PREROUTING") == (ACCEPTED, {}, ""), "it belongs to no connection"
    assert apply(lambda actor: actor.redirect(15001), "mangle", **IN) == GIVEN_UP


def test_a_socket_that_is_chosen_keeps_the_addresses():
    marked = {"mark": MarkBits(flip=7), "transparent": True}
    for condition in ({}, {"redirect_port": 15001}):
        given = {**IN, **condition}
        assert apply(lambda actor: actor.deliver_to_socket(15001, 7), "mangle", **given) == (ACCEPTED, marked | ({"redirect_port": 15001} if not condition else {}), "")
        assert apply(lambda actor: actor.deliver_to_socket(9, 7), "mangle", **given) == (ACCEPTED, marked | ({"redirect_port": 0} if condition else {}), "")


@pytest.mark.parametrize(("address", "port", "changes"), [
    ("1.1.1.1", 9, {"destination": number_of("1.1.1.1"), "destination_port": 9}), ("1.1.1.1", 0, {"destination": number_of("1.1.1.1")}), ("", 9, {"destination_port": 9}),
])  # fmt: skip
def test_a_destination_is_translated_by_what_is_named(address, port, changes):
    for condition in (IN, OUT):
        assert apply(lambda actor: actor.send_to(address, port), **condition) == (ACCEPTED, {"translated": True, **changes}, "")
    assert apply(lambda actor: actor.send_to(address, port), hook="POSTROUTING", connection=True) == (ACCEPTED, {"translated": True}, "")
    assert apply(lambda actor: actor.send_to(address, port), hook="OUTPUT") == GIVEN_UP
    assert apply(lambda actor: actor.send_to(address, port), "mangle", **OUT) == GIVEN_UP
    assert apply(lambda actor: actor.send_to("fd00::1", port), "mangle", **OUT) == (GO_ON, {}, ""), "it is of the other family"


@pytest.mark.parametrize(("address", "port", "written"), [
    ("1.1.1.1", 9, (number_of("1.1.1.1"), 9)), ("1.1.1.1", 0, (number_of("1.1.1.1"), KEPT)), ("", 9, (KEPT, 9)), ("", 0, (KEPT, KEPT)),
])  # fmt: skip
def test_a_destination_is_written_before_tracking_alone(address, port, written):
    changes = {name: value for name, value in zip(("destination", "destination_port"), written, strict=True) if value is not KEPT}
    for hook in ("OUTPUT", "PREROUTING"):
        assert apply(lambda actor: actor.write_destination(address, port), "raw", hook=hook) == (GO_ON, {"rewritten": written, **changes}, "")
        for more in ({"connection": True}, {"redirect_port": 1}):
            assert apply(lambda actor: actor.write_destination(address, port), "raw", hook=hook, **more) == GIVEN_UP
    for hook in ("INPUT", "FORWARD", "POSTROUTING"):
        assert apply(lambda actor: actor.write_destination(address, port), "raw", hook=hook) == GIVEN_UP


@pytest.mark.parametrize(("address", "own", "source"), [("1.1.1.1", False, number_of("1.1.1.1")), ("", False, None), ("", True, OWN), ("1.1.1.1", True, OWN)])
def test_a_source_is_translated_to_an_address_to_one_of_the_pod_s_own_or_to_one_that_is_not_known(address, own, source):
    assert apply(lambda actor: actor.replace_source(address, own=own), hook="POSTROUTING") == (ACCEPTED, {"source": source}, "")
    assert apply(lambda actor: actor.replace_source(address, own=own), "mangle", hook="POSTROUTING") == GIVEN_UP
    assert apply(lambda actor: actor.replace_source(""), hook="POSTROUTING")[1] == {"source": None}


TO = Network.parse("10.6.0.0/16")


@pytest.mark.parametrize(("network", "began", "address"), [
    (TO, number_of("10.5.1.9"), number_of("10.6.1.9")), (TO, KEPT, None), (TO, None, None), (Network.parse("10.6.0.7/32"), number_of("10.5.1.9"), number_of("10.6.0.7")),
    (Network.parse("10.6.0.7/32"), KEPT, number_of("10.6.0.7")),
])  # fmt: skip
def test_a_network_is_mapped_host_by_host(network, began, address):
    assert apply(lambda actor: actor.map_to(network), destination=began, source=1, **OUT) == (ACCEPTED, {"translated": True} | ({"destination": address} if address != began else {}), "")
    back = {"hook": "POSTROUTING", "connection": True, "source": began, "destination": 1}
    assert apply(lambda actor: actor.map_to(network), **back) == (ACCEPTED, {"source": address} if address != began else {}, "")
    assert apply(lambda actor: actor.map_to(network), hook="OUTPUT", destination=began) == GIVEN_UP
    assert apply(lambda actor: actor.map_to(network), "mangle", destination=began, **OUT) == GIVEN_UP


def test_marks_of_connections_are_set_saved_and_restored_where_there_is_one():
    mark, connection = MarkBits(packet=FULL_MASK), MarkBits(connection=FULL_MASK)
    calls = {
        "mark": lambda actor: actor.set_mark(5, 7, connection=False), "connection": lambda actor: actor.set_mark(5, 7, connection=True),
        "save": lambda actor: actor.save_mark(3, 12), "restore": lambda actor: actor.restore_mark(3, 12),
    }  # fmt: skip
    expected = {
        "mark": {"mark": mark.set(5, 7)}, "connection": {"connection_mark": connection.set(5, 7)}, "save": {"connection_mark": connection.mix(mark, 12, 3)},
        "restore": {"mark": mark.mix(connection, 3, 12)},
    }  # fmt: skip
    for name, call in calls.items():
        assert apply(call, "mangle", **OUT) == (GO_ON, expected[name], "")
        assert apply(call, "mangle", hook="OUTPUT") == (GO_ON, expected[name] if name == "mark" else {}, "")
    assert [INITIAL_MARKS["mark"], INITIAL_MARKS["connection mark"]] == [mark, connection]


@pytest.mark.parametrize(("zone", "side", "changes"), [
    (None, "", {"state": "UNTRACKED"}), (5, "", {"zone": 5, "reply_zone": 5}), (5, "orig", {"zone": 5}), (5, "reply", {"reply_zone": 5}),
])  # fmt: skip
def test_the_first_rule_about_tracking_counts_while_packets_are_not_tracked(zone, side, changes):
    assert apply(lambda actor: actor.track(zone, side), "raw") == (GO_ON, changes | {"zone_decided": True}, "")
    for more in ({"connection": True}, {"zone_decided": True}):
        assert apply(lambda actor: actor.track(zone, side), "raw", **more) == (GO_ON, {}, "")
    assert apply(lambda actor: actor.track(zone, side), "mangle") == GIVEN_UP


@pytest.mark.parametrize(("value", "mask", "mark", "expected"), [(5, 7, 0xFF, 0xFD), (5, 0, 0xFF, 0xFA), (0, 0xF, 0xFF, 0xF0), (0x10, 0xF, 0xFF, 0xE0)])
def test_a_mark_is_cleared_under_the_mask_and_xored(value, mask, mark, expected):
    found = MarkBits(packet=FULL_MASK).set(value, mask)
    assert (mark & found.packet) ^ found.flip == expected
    assert MarkBits(packet=1, connection=2, flip=4).mix(MarkBits(packet=8, connection=16, flip=32), 3, 24) == MarkBits(packet=8, connection=16, flip=4)


def test_conditions_are_equal_by_their_values_and_copied_with_others():
    one = Condition(zone=1)
    assert hash(one) == hash(Condition(zone=1))
    assert one == Condition(zone=1)
    other = one.replace(zone=2, hook="INPUT")
    assert (other, one.zone, hash(other)) == (Condition(zone=2, hook="INPUT"), 1, hash(Condition(zone=2, hook="INPUT")))
    assert one.translation == (KEPT, KEPT, KEPT, False, False)
    assert one.replace(destination=1, destination_port=2, source=3, redirected=True, translated=True).translation == (1, 2, 3, True, True)
