"""The rules for inbound connections: what each is for, and the texts of those that exclude some."""

from __future__ import annotations

import pytest

from core import IPV4, Options, plan, write_plan


def inbound(*words):
    """The rules of ISTIO_INBOUND with what each is for."""
    options = Options.from_argv(["--ipv6", "off", *words], {})
    tables = write_plan(plan(options), IPV4)
    texts = tables["nat"]["ISTIO_INBOUND"].texts
    table = next(one for one in plan(options).tables if one.name == "nat")
    rules = next(one for one in table.chains if one.name == "ISTIO_INBOUND").all_rules
    return list(zip(texts, [rule.comment for rule in rules], strict=True))


TUNNEL = ("-p tcp -m tcp --dport 15008 -j RETURN", "tunnelled connections reach the proxy as they are")


@pytest.mark.parametrize(
    ("words", "rules"),
    [
        (("-b", "*"), [TUNNEL, ("-p tcp -j ISTIO_IN_REDIRECT", "all inbound TCP is captured; no exclusion matches")]),
        (("-b", "80"), [TUNNEL, ("-p tcp -m tcp --dport 80 -j ISTIO_IN_REDIRECT", "inbound connections to these ports go to the proxy")]),
        (("-b", "80", "-e", "0"), [("-p tcp -m tcp --dport 80 -j ISTIO_IN_REDIRECT", "inbound connections to these ports go to the proxy")]),
        (("-b", "80", "--layout", "classic"), [("-p tcp -m tcp --dport 80 -j ISTIO_IN_REDIRECT", "these inbound connections go to the proxy")]),
        (
            ("-b", "*", "-d", "22", "--exclude-inbound-cidrs", "10.0.0.0/8"),
            [
                TUNNEL, ("-s 10.0.0.0/8 -j RETURN", "connections from these networks are not captured"),
                ("-p tcp -m tcp --dport 22 -j RETURN", "these inbound ports are not captured"), ("-p tcp -j ISTIO_IN_REDIRECT", "all inbound TCP is captured; no exclusion matches"),
            ],
        ),
    ],
)  # fmt: skip
def test_each_rule_says_what_it_is_for(words, rules):
    assert inbound(*words) == rules
