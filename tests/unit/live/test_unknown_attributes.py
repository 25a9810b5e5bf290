"""One attribute more than netinit knows, at any level of a recorded object, and nothing calls the pod all right any more."""

from __future__ import annotations

import recorded_messages
from core import plan
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel import netlink
from netinit.live.host import surroundings_of
from netinit.live.in_force import find_deviations
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import Options
from netinit.pods.live import _find_unread
from netinit.rules.expressions.table_differences import compare_tables
from netinit.simulate.symbolic.hook_walk import divide
from netinit.simulate.symbolic.match_sets import make_spaces
from netinit.simulate.symbolic.regions import everything
from netinit.simulate.trace import UNKNOWN
from sweeps import choose

OPTIONS = Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off"])
PLAN = plan(OPTIONS)
MESSAGES = recorded_messages.read()
FINE = (recorded_messages.FILTER, str(netlink.RTM_GETROUTE))  # kinds whose recorded messages are not fine in any case


def cases():
    for kind, offset in recorded_messages.HEADERS.items():
        of_routing = kind in {str(netlink.RTM_GETRULE), str(netlink.RTM_GETROUTE)}
        for at, body in enumerate(MESSAGES[kind]):
            if of_routing and body[0] not in {one.number for one in FAMILIES}:  # multicast routing has rules of its own
                continue
            for number, changed in enumerate(recorded_messages.with_unknown(body, offset)):
                yield kind, at, number, changed


UNSENDABLE = b"istio-drop\0"  # its rule drops what nobody may send, so that no connection's verdict depends on it
CASES = [one for one in cases() if UNSENDABLE not in one[3][:64]]
FEW = [*{one[0]: one for one in CASES}.values(), *CASES[::97]]  # one of each kind of object, and some more


def without(messages, *kinds):
    """The messages without what is not followed in any case: routes with an encapsulation, filters of tc."""
    encapsulated = [one for one in messages[str(netlink.RTM_GETROUTE)] if not is_encapsulated(one)]
    return {**messages, recorded_messages.FILTER: [], str(netlink.RTM_GETROUTE): encapsulated}


def is_encapsulated(body):
    found = netlink.read_attributes(body, netlink.ROUTE_SIZE)
    return bool({21, 9} & {*found})  # RTA_ENCAP_TYPE; RTA_MULTIPATH, of which one has one


def judge(messages, monkeypatch):
    """What verify (and apply --require-capture) finds, and what makes the answers of explain, audit and diff unknown."""
    with monkeypatch.context() as context:
        snapshot = recorded_messages.read_snapshot(messages, context.setattr)
    differences, warnings = find_deviations(snapshot, PLAN, "nftables", ())
    return (*compare_tables(PLAN, snapshot), *differences), warnings, _find_unread(snapshot), snapshot


def test_the_recorded_pod_is_fine_without_what_is_never_followed(monkeypatch):
    differences, warnings, unread, snapshot = judge(without(MESSAGES), monkeypatch)
    assert (differences, warnings, unread) == ((), (), ())
    assert len(snapshot.rules) > 20
    assert {one.kind for one in snapshot.objects} >= {"1", "2", "3", "4", "7", "9", "10", "flowtable"}


def test_every_encapsulation_and_filter_is_told(monkeypatch):
    differences, _, unread, _ = judge(MESSAGES, monkeypatch)
    lines = [one.describe() for one in differences]
    for words in ("encapsulation seg6 ", "198.51.100.0/24 of table 254 with encapsulation ip", "198.51.101.0/24 of table 254 with encapsulation ip", "filters on eth0"):
        assert any(words in f"{line} " for line in lines), lines
        assert any(words.strip() in one for one in unread), unread


def may_be_unknown(snapshot):
    """Whether explain and audit answer "unknown" for some packets."""
    live = load_snapshot(snapshot, (PLAN,)).join(IPV4, "nftables")
    spaces = make_spaces([{IPV4: live}], {IPV4: surroundings_of(snapshot, IPV4)}, free=True)
    return any(part.verdict == UNKNOWN for space in spaces for part in divide(space, live, everything(space)).parts)


def test_an_attribute_that_nobody_knows_is_never_silently_dropped(monkeypatch):
    wrong = []
    for kind, at, number, changed in choose(FEW, CASES):
        if kind == str(netlink.RTM_GETROUTE) and not is_encapsulated(MESSAGES[kind][at]):
            continue  # plain routes gain harmless attributes
        whole = {**MESSAGES, kind: [changed if place == at else body for place, body in enumerate(MESSAGES[kind])]}
        differences, _, unread, snapshot = judge(whole if kind in FINE else without(whole), monkeypatch)
        if not differences or not (unread or may_be_unknown(snapshot)):
            wrong.append((kind, at, number, [one.describe() for one in differences], unread))
    assert not wrong, f"{len(wrong)} of {len(CASES)}: {wrong[:5]}"
