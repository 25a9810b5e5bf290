"""What a listed rule is known by: where it leads."""

from __future__ import annotations

import pytest

from netinit.base.net import IPV4
from netinit.rules.foreign_targets import Observe, Several, UnknownTarget
from netinit.rules.iptables.keys import jumps_to_ours, target_of
from netinit.rules.iptables.parse import normalise
from netinit.rules.marking_targets import SetMark
from netinit.rules.targets import Accept, Jump, Redirect


@pytest.mark.parametrize(
    ("target", "name"),
    [
        (Jump(chain="THEIRS"), "THEIRS"), (Jump(chain="ISTIO_OUTPUT", goto=True), "ISTIO_OUTPUT"), (Accept(), "ACCEPT"), (Redirect(port=1), "REDIRECT"), (SetMark(value=1), "MARK"),
        (UnknownTarget(text="THEIRS --x 1"), "THEIRS"), (Observe(text=""), ""), (Observe(text="LOG --log-level 7"), "LOG"),
        (Several(targets=(Observe(text="LOG"), Accept())), "[LOG ACCEPT]"), (Several(targets=(SetMark(value=1), Jump(chain="A"))), "[MARK --set-xmark 0x1/0xffffffff A]"),
    ],
)  # fmt: skip
def test_a_rule_leads_to_a_chain_or_a_target_and_several_targets_are_none_of_these(target, name):
    assert target_of((target,)) == target_of((*normalise("-p tcp -i a", IPV4)[:-1], target)) == name


@pytest.mark.parametrize(
    ("rule", "is_ours"),
    [("-j ISTIO_OUTPUT", True), ("-p tcp -i a -g ISTIO_REDIRECT", True), ("-p tcp -j THEIRS", False), ("-p tcp -j RETURN", False), ("-p tcp", False), ("-j ISTIO_OUTPUTS", False)],
)
def test_a_rule_jumps_to_ours_if_its_target_is_a_chain_of_ours(rule, is_ours):
    assert jumps_to_ours(normalise(rule, IPV4)) is is_ours
