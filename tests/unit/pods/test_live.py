"""What decides about packets of a live pod and is not simulated, as sentences name it."""

from __future__ import annotations

from netinit.base.snapshot import IFF_LOOPBACK, IFF_UP, AttachedProgram, Device, Snapshot, TrafficControl, Unknown
from netinit.pods.live import _find_unread
from netinit.simulate.trace import list_unread

LOOPBACK = Device(index=1, name="lo", flags=IFF_LOOPBACK | IFF_UP)


def test_a_device_called_lo_that_is_not_the_loopback_is_named_in_a_sentence():
    found = _find_unread(Snapshot(links=(LOOPBACK, LOOPBACK.replace(index=2))))
    assert found == ("a device called lo that is not the loopback",)
    assert list_unread(found).endswith(f"({found[0]})")


def test_a_loopback_device_as_usual_needs_no_mention():
    assert _find_unread(Snapshot(links=(LOOPBACK,))) == ()


def test_what_is_not_followed_is_named_as_verify_names_it_and_the_node_s_programs_are_not():
    held = Snapshot(
        links=(LOOPBACK, Device(index=2, name="eth0")), transforms=2, traffic_control=(TrafficControl(what="filter", index=2, kind="bpf"),) * 2,
        programs=(AttachedProgram(where="a", number=7), AttachedProgram(where="b", number=8, is_of_node=True)),
        unknown=(Unknown(place="a route", reason="?"), Unknown(place="hidden", reason="?", is_forbidden=True)),
    )  # fmt: skip
    assert _find_unread(held) == ("BPF: program 7 (a)", "tc: filters on eth0", "IPsec: 2 policies (ip xfrm policy)", "a route")
