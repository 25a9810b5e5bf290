"""What several pods have in common is said once, with the pods that it is about; pods with the same rules are divided once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from netinit.options import Options
from netinit.questions.rule_sources import find_planned
from netinit.questions.several_pods import gather, list_some, name_pods

NAMES = [f'Pod "{letter}"' for letter in "abcdefg"]


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (1, 'Pod "a"'), (2, '2 pods: Pod "a", Pod "b"'), (5, '5 pods: Pod "a", Pod "b", Pod "c", Pod "d", Pod "e"'),
        (6, '6 pods: Pod "a", Pod "b", Pod "c", Pod "d", Pod "e" and 1 more'), (7, '7 pods: Pod "a", Pod "b", Pod "c", Pod "d", Pod "e" and 2 more'),
    ],
)  # fmt: skip
def test_of_many_pods_the_first_five_are_named_and_the_others_counted(number, words):
    assert name_pods(NAMES[:number]) == words
    assert list_some(NAMES[:number]) == words.removeprefix(f"{number} pods: ")


def test_what_is_true_of_several_pods_is_said_once_with_their_names():
    said = [("a", ["a: has no IPv6", "the mesh is not known"]), ("b", ["b: has no IPv6", "the mesh is not known"]), ("c", ["c: is a gateway"])]
    assert gather(said) == ("2 pods (a, b): has no IPv6", "the mesh is not known", "c: is a gateway")


def test_pods_whose_rules_differ_in_names_alone_share_one_division_and_those_of_another_host_do_not():
    rules = find_planned(Options(outbound_cidrs="*", ipv6="on")).rules
    assert replace(rules, names={"--proxy-uid": "runAsUser"}).partitions is rules.partitions
    assert replace(rules, surroundings=dict(rules.surroundings)).partitions is not rules.partitions
    assert replace(rules, interfaces=frozenset(("eth7",))).partitions is not rules.partitions


def test_rules_on_another_host_are_there_whichever_address_is_first():
    rules = find_planned(Options(outbound_cidrs="*"), pod_ip=("10.1.1.1", "fd00::1")).rules
    assert (rules.ipv4_first is not None) is (rules.made_by.ipv6 == "on")
    open_case = find_planned(Options(outbound_cidrs="*")).rules
    other = open_case.on_host(rules.surroundings, routes_known=True)
    assert [(one.surroundings, one.routes_known) for one in (other, other.ipv4_first)] == [(rules.surroundings, True)] * 2
    assert other.ipv4_first.rulesets is open_case.ipv4_first.rulesets
