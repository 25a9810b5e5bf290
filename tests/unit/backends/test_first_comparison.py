"""A namespace in which nothing is listed: the short comparison says what the long one says, and its change is the same."""

from __future__ import annotations

from hypothesis import given

from core import plan
from memory_backend import MemoryBackend, MemoryKernel
from netinit.backends import Change
from netinit.backends.iptables import FirstComparison
from netinit.backends.listing_comparison import XtablesComparison, write_return
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.options import Options
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.model import EMPTY_PLAN
from strategies import made_options

TPROXY = Options.from_argv(["-p", "15001", "-i", "*", "-b", "*", "-m", "TPROXY", "--redirect-dns", "--ipv6", "on"])


def check_same_as_the_long_way(options):
    asked = plan(options)
    state = MemoryBackend(kernel=MemoryKernel(), comments=options.rule_comments).observe()
    short, long = state.compare(asked), state.compare_rules(asked)
    assert (type(short), type(long)) == (FirstComparison, XtablesComparison)
    assert short.differences == long.differences
    assert (short.shadows(), short.resumable()) == (long.shadows(), long.resumable())
    assert state.removed(asked) == {}
    for force in (False, True):
        assert short.change(force=force) == long.change(force=force)
    assert state.removal(asked) == Change(scripts={}, before=state, plan=asked)
    return short


def test_a_pod_in_tproxy_mode_misses_each_rule_of_its_plan():
    short = check_same_as_the_long_way(TPROXY)
    assert {difference.kind for difference in short.differences} == {"missing"}
    assert [line for line in short.change().scripts["IPv4"].splitlines() if line.startswith("*")] == ["*mangle", "*nat", "*filter"]


def test_comments_are_written_where_they_are_asked_for():
    script = check_same_as_the_long_way(TPROXY.replace(rule_comments=True)).change().scripts["IPv4"]
    assert " --comment " in script


def test_a_plan_without_rules_misses_none_and_another_does():
    state = MemoryBackend(kernel=MemoryKernel()).observe()
    assert (state.compare(EMPTY_PLAN).differs(), state.compare(plan(TPROXY)).differs()) == (False, True)


@given(made_options())
def test_any_options_are_compared_the_same(options):
    check_same_as_the_long_way(options)


def test_a_table_without_rules_of_ours_is_compared_the_long_way():
    kernel = MemoryKernel()
    backend = MemoryBackend(kernel=kernel)
    changed = backend.observe().compare(plan(TPROXY)).change()
    backend.commit(changed)
    assert type(backend.observe().compare(plan(TPROXY))) is XtablesComparison


def test_rules_that_cannot_be_written_again_are_named_for_each_family():
    state = MemoryBackend(kernel=MemoryKernel()).observe()
    text = '*nat\n:OUTPUT ACCEPT [0:0]\n:ISTIO_OUTPUT - [0:0]\n-A ISTIO_OUTPUT -m string --string "a\x01" -j RETURN\n-A ISTIO_OUTPUT -j RETURN\nCOMMIT\n'
    before = XtablesComparison(EMPTY_PLAN, state, {family: parse_listing(text) for family in FAMILIES})
    now = XtablesComparison(EMPTY_PLAN, state, {family: parse_listing("") for family in FAMILIES})
    scripts, lost = write_return(now, before, FAMILIES)
    assert lost == ["IPv4 nat ISTIO_OUTPUT rule 1", "IPv6 nat ISTIO_OUTPUT rule 1"]
    assert list(scripts) == list(FAMILIES)
    assert [line for line in scripts[IPV4].splitlines() if line.startswith("-A")] == ["-A ISTIO_OUTPUT -j RETURN"]
    assert write_return(now, before, (IPV6,))[1] == ["IPv6 nat ISTIO_OUTPUT rule 1"]
