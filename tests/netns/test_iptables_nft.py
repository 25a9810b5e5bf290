"""iptables-nft by netlink beside other writers, after failures, and with sets, on the kernel."""

from __future__ import annotations

import pytest

from core import plan
from netinit.backends.iptables import FirstComparison
from netinit.backends.iptables_nft import NftVariant
from netinit.backends.listing_comparison import XtablesComparison
from netinit.base.net import IPV4
from netinit.options import Options
from netinit.rules.model import EMPTY_PLAN
from programming import REDIRECT, TPROXY, add_foreign_rules, listing, load, needs, state

FIRST, SECOND = (plan(Options.from_argv(words)) for words in (REDIRECT, TPROXY))
MORE = "*nat\n-I OUTPUT 1 -p tcp -m tcp --dport 7 -j ACCEPT\n-A PREROUTING -p tcp -m tcp --dport 7 -j ACCEPT\nCOMMIT\n"


@pytest.fixture(autouse=True)
def programs():
    needs("iptables-nft")


def commit(backend, made):
    backend.commit(backend.observe().compare(made).change())


@pytest.mark.parametrize("is_there", [False, True], ids=["first run", "reconciling"])
def test_rules_that_another_program_adds_in_between_are_kept_where_they_are(pod, is_there):
    """The kernel refuses what was computed before them, so it is computed again."""
    backend = NftVariant()
    with pod.entered():
        if is_there:
            add_foreign_rules(pod, "iptables-nft")
            commit(backend, FIRST)
        change = backend.observe().compare(SECOND).change()
        load(pod, "iptables-nft", IPV4, MORE)
        backend.commit(change)
        assert backend.observe().compare(SECOND).differences == ()
        raced = listing(pod, "iptables-nft")
        assert raced.count("--dport 7 -j ACCEPT") == 2
        backend.commit(backend.observe().removal(EMPTY_PLAN))
        if not is_there:
            load(pod, "iptables-nft", IPV4, MORE.replace("-I OUTPUT 1", "-D OUTPUT").replace("-A", "-D"))
            commit(backend, SECOND)
            load(pod, "iptables-nft", IPV4, MORE)
            assert sorted(listing(pod, "iptables-nft").splitlines()) == sorted(raced.splitlines())


def test_a_change_that_is_undone_leaves_rules_counters_and_foreign_rules_as_they_were(pod):
    """Also those that another program has added since, and rules in our chains that no options of ours make."""
    backend = NftVariant()
    with pod.entered():
        add_foreign_rules(pod, "iptables-nft")
        commit(backend, FIRST)
        odd = '*nat\n-A ISTIO_OUTPUT -p udp -m udp --dport 9 -m string --algo bm --hex-string "|0a|x" -c 5 600 -j RETURN\n-I ISTIO_REDIRECT 1 -p sctp -m sctp --dport 3 -j RETURN\nCOMMIT\n'
        load(pod, "iptables-nft", IPV4, odd)
        counted = pod.run(["iptables-nft-save", "-c"], check=True).stdout
        before = state(pod)
        change = backend.observe().compare(SECOND).change(force=True)
        backend.commit(change)
        assert state(pod) != before
        backend.roll_back(change)
        assert state(pod) == before
        assert rules_of(pod.run(["iptables-nft-save", "-c"], check=True).stdout) == rules_of(counted)
        backend.commit(backend.observe().compare(SECOND).change(force=True))
        load(pod, "iptables-nft", IPV4, MORE)
        backend.roll_back(change)
        assert listing(pod, "iptables-nft").count("--dport 7 -j ACCEPT") == 2
        load(pod, "iptables-nft", IPV4, MORE.replace("-I OUTPUT 1", "-D OUTPUT").replace("-A", "-D"))
        assert state(pod) == before


def rules_of(text):
    return [line for line in text.splitlines() if line.startswith("[")]


def test_a_removal_that_is_undone_puts_the_rules_back(pod):
    backend = NftVariant()
    with pod.entered():
        add_foreign_rules(pod, "iptables-nft")
        commit(backend, SECOND)
        before = state(pod)
        change = backend.observe().removal(EMPTY_PLAN)
        backend.commit(change)
        assert state(pod) != before
        backend.roll_back(change)
        assert state(pod) == before


def test_a_first_run_that_is_undone_leaves_nothing(pod):
    backend = NftVariant()
    with pod.entered():
        before = pod.run(["nft", "list", "ruleset"], check=True).stdout
        change = backend.observe().compare(SECOND).change()
        backend.commit(change)
        backend.roll_back(change)
        assert pod.run(["nft", "list", "ruleset"], check=True).stdout == before


BASES = "".join(
    f"add table {family} nat\nadd chain {family} nat OUTPUT {{ type nat hook output priority -100; policy accept; }}\n"
    f"add table {family} filter\nadd chain {family} filter FORWARD {{ type filter hook forward priority 0; policy POLICY; }}\n"
    for family in ("ip", "ip6")
)


def test_built_in_chains_without_rules_are_programmed_without_decoding_them(pod):
    backend = NftVariant()
    pod.run(["nft", "-f", "-"], stdin=BASES.replace("POLICY", "accept"), check=True)
    before = state(pod)
    with pod.entered():
        found = backend.observe()
        comparison = found.compare(FIRST)
        assert (found.in_use, found.ours, found.foreign, type(comparison)) == (False, False, False, FirstComparison)
        change = comparison.change()
        backend.commit(change)
        assert backend.observe().compare_rules(FIRST).differences == ()
        backend.roll_back(change)
    assert state(pod) == before


@pytest.mark.parametrize("more", ["", "add chain ip nat OTHER\n"], ids=["a policy", "a chain"])
def test_built_in_chains_beside_which_there_is_more_are_compared_rule_by_rule(pod, more):
    backend = NftVariant()
    pod.run(["nft", "-f", "-"], stdin=BASES.replace("POLICY", "accept" if more else "drop") + more, check=True)
    with pod.entered():
        assert type(backend.observe().compare(FIRST)) is XtablesComparison
        commit(backend, FIRST)
        assert backend.observe().compare(FIRST).differences == ()
    kept = pod.run(["nft", "list", "ruleset"], check=True).stdout
    assert ("chain OTHER" if more else "policy drop") in kept
