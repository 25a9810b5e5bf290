"""The record of options in a comment: what is written is read back, and a comment that somebody else wrote does no harm."""

from __future__ import annotations

import pwd

import pytest

from goldens import BEHAVIOURS, options_of
from netinit.options import MAX_RECORD, Interception, Options, read_record, write_record
from sweeps import together


def of_rules(options: Interception) -> dict[str, object]:
    return {flag.field: getattr(options, flag.field) for flag in Interception.flags}


@together("behaviour", BEHAVIOURS)
def test_the_options_of_a_golden_are_read_back_or_too_long(behaviour):
    options = options_of(behaviour)
    text = write_record(options)
    assert len(text) <= MAX_RECORD
    found = read_record(text)
    assert of_rules(found) == of_rules(options) if text else found is None


def test_most_goldens_fit():
    texts = [write_record(options_of(behaviour)) for behaviour in BEHAVIOURS]
    assert sum(map(bool, texts)) > 0.9 * len(texts)


def test_a_record_is_a_command_line_with_variables_before_it():
    options = Options(inbound_ports="*", exclude_owner_groups=(5, 6), proxy_uids=(7,), exclude_interfaces=("eth1",))
    text = write_record(options)
    assert text == "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE=5,6 netinit apply -u 7 -b * -c eth1"
    assert of_rules(read_record(text)) == of_rules(options)


def test_a_record_looks_up_no_user(monkeypatch):
    monkeypatch.setattr(pwd, "getpwnam", lambda name: pytest.fail(f"{name} was looked up: this may load a library"))
    assert write_record(Options(proxy_uids=(7,), proxy_gids=(8,))) == "netinit apply -u 7 -g 8"


def test_what_does_not_fit_is_not_recorded():
    ports = tuple(range(1, 100, 2))
    assert write_record(Options(inbound_ports=ports)) == ""
    assert write_record(Options(inbound_ports=ports[:10]))


@together(
    "text",
    [
        "", "netinit", "kept by the firewall", "netinit apply -b", "netinit apply -b 0", "netinit apply --nonsense",
        "netinit apply -b * --network-namespace /proc/1/ns/net", "netinit apply --config /etc/passwd", "netinit apply --cleanup-only",
        "netinit apply -u 1337 -b * extra", "LD_PRELOAD=x netinit apply -b *", "netinit apply --layout ambient -b *",
        "netinit apply " + "-b * " * 50, "netinit apply -b *\n-i 10.0.0.0/8\x1b[2J -x", "netinit apply -c \udce4",
    ],
)  # fmt: skip
def test_any_other_comment_is_no_record(text):
    assert read_record(text) is None
