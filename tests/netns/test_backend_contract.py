"""The contract of backends on the kernel: apply, apply again, verify, reconcile, remove; among foreign rules.

`make test` lives the life of each of Istio's cases with one backend, and takes a few drawn options; `make prove` lives it with
all, and takes more.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from core import plan
from laboratory import Pod
from netinit.base.errors import ApplyError
from netinit.options import Options
from netinit.options.interception import CLASSIC
from netinit.pods.planning import settle
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS
from programming import (
    SIDECAR,
    VARIANTS,
    add_foreign_rules,
    apply_in,
    check_same,
    differences_in,
    force_beside,
    forget_priority,
    listing,
    needs,
    remove_in,
    state,
    variant_of,
)
from strategies import made_options
from sweeps import choose

pytestmark = pytest.mark.usefixtures("judged_by_verify")

BACKENDS = (*VARIANTS, "libiptc")
EXAMPLES = choose(2, 16)
FEW_EXAMPLES = {"libiptc": choose(1, 3)}  # where the default takes long: a process and an import a family and step
OTHERS = (  # what remove may be called with, whatever was applied
    Options(),
    Options(layout=CLASSIC, inbound_ports="*"),
    Options(inbound_mode="TPROXY", tproxy_mark=77, tproxy_table=78, inbound_ports=(1,), ipv6="on"),
)
FEW = settings(
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # every example costs pods: a failure is read, not shrunk
)  # fmt: skip


@st.composite
def full_options(draw):
    """Options of both layouts, numbers varied too; virtual interfaces only with something to capture for them."""
    options = draw(made_options())
    changes = {
        "outbound_port": draw(st.sampled_from((15001, 1, 65535))),
        "inbound_port": draw(st.sampled_from((15006, 15001, 2))),
        "tproxy_mark": draw(st.sampled_from((1337, 1, 2**32 - 1))),
        "tproxy_table": draw(st.sampled_from((133, 1, 2**31))),
        "rule_comments": draw(st.sampled_from((False, False, True))),
    }
    if options.layout != CLASSIC:
        changes["tunnel_port"] = draw(st.sampled_from((15008, 3)))
    served = [network for network in options.outbound_cidrs if network == "*" or network[0] == 4 or options.ipv6 == "on"]
    if not served:  # their one rule is anybody's: only the same options remove it, see the end of this file
        changes["virtual_interfaces"] = ()
    return options.replace(**changes)


def check_planned(pod, options):
    """Our chains hold exactly the planned rules, and the built-in ones hold them in the planned order."""
    with pod.entered():
        made = plan(settle(options))
    for family in made.families:
        listed = parse_listing(listing_of(pod, variant_of(options.backend), family))
        written = write_plan(made, family, comments=options.rule_comments)
        for table, chains in written.items():
            for name, chain in chains.items():
                texts = listed[table].rules[name]
                if name in BUILTIN_CHAINS:
                    texts = keep_in_order(texts, chain.texts)
                assert texts == chain.texts, f"{family} {table} {name}"
        strays = {(table, name) for table in listed for name in listed[table].rules if name in OWNED_CHAINS} - {
            (table, name) for table, chains in written.items() for name in chains
        }
        assert not strays


def listing_of(pod, variant, family):
    return pod.run([variant.replace("iptables", family.program) + "-save"], check=True).stdout


def keep_in_order(texts, wanted):
    """Of the listed rules those that are wanted, as often and in the order as they can be found."""
    kept = []
    for text in texts:
        if len(kept) < len(wanted) and text == wanted[len(kept)]:
            kept.append(text)
    return kept


def check_contract(pod, options, others):
    """One life of rules; `options.backend` names who programs, `others` are what they are removed with too."""
    before = state(pod)
    first = apply_in(pod, options)
    assert first.changed
    check_planned(pod, options)
    programmed = state(pod)

    second = apply_in(pod, options)
    assert not second.changed, "the second run found something to do"
    check_same(state(pod), programmed, "the second run changed something")
    assert [line for line in differences_in(pod, options) if not line.startswith("shadowing")] == []

    for number, other in enumerate((options, *others)):
        if number:
            apply_in(pod, options)
        assert remove_in(pod, other.replace(backend=options.backend)).changed
        check_same(state(pod), before, f"{options.to_argv()} removed with {other.to_argv()}")
    assert not remove_in(pod).changed


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_case_of_istio_keeps_the_contract(conformance, pod, backend):
    needs(backend)
    add_foreign_rules(pod, variant_of(backend))
    paths = sorted((conformance / "rules").glob("*.json"))
    place = BACKENDS.index(backend)
    for number, path in enumerate(paths[-3:] if backend == "libiptc" else choose(paths[place :: 4 * len(VARIANTS)], paths)):
        case = json.loads(path.read_text().replace("java", "4001").replace("ftp", "4002"))
        options = Options.from_argv(case["argv"], case["env"]).replace(
            backend=backend, ipv6="on" if case["ipv6"] else "off", dns_servers=tuple(case["dns_servers"])
        )
        check_contract(pod, options, choose(OTHERS[number % len(OTHERS) :][:1], OTHERS))


@pytest.mark.parametrize("backend", BACKENDS)
def test_options_by_the_dozen_keep_the_contract(require_netns, backend):
    needs(backend)

    @settings(FEW, max_examples=FEW_EXAMPLES.get(backend, EXAMPLES))
    @given(full_options(), st.sampled_from(OTHERS))
    def check(options, other):
        with Pod() as pod:
            add_foreign_rules(pod, variant_of(backend))
            check_contract(pod, options.replace(backend=backend), [other])

    check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_rule_of_others_that_equals_one_of_another_layout_stays(pod, backend):
    """One of the three by which the classic layout refuses IPv6, beside a chain of ours in the same table."""
    needs(backend)
    add_foreign_rules(pod, variant_of(backend))
    check_contract(pod, Options(outbound_cidrs="*", reject_quic=True, ipv6="on", backend=backend), choose(OTHERS[:1], OTHERS))


@pytest.mark.parametrize("backend", BACKENDS)
def test_reconciling_ends_where_a_fresh_start_ends(require_netns, backend):
    needs(backend)

    @settings(FEW, max_examples=FEW_EXAMPLES.get(backend, EXAMPLES))
    @given(full_options(), full_options())
    def check(old, new):
        old = old.replace(backend=backend, rule_comments=new.rule_comments)  # comments alone are no difference
        new = new.replace(backend=backend)
        with Pod() as pod:
            add_foreign_rules(pod, variant_of(backend))
            apply_in(pod, new)
            wanted = forget_priority(state(pod))
            remove_in(pod)

            apply_in(pod, old)
            programmed = state(pod)
            try:
                apply_in(pod, new)  # allowed where nothing of the old is in the way
                check_same(forget_priority(state(pod)), wanted, f"{old.to_argv()}, then {new.to_argv()} without --reconcile")
            except ApplyError as error:
                assert "--reconcile" in str(error)
                check_same(state(pod), programmed, "refused, and still changed")
            apply_in(pod, new.replace(reconcile=True))
            check_same(forget_priority(state(pod)), wanted, f"{old.to_argv()}, then {new.to_argv()} with --reconcile")
            assert not apply_in(pod, new).changed

    check()


@pytest.mark.parametrize("backend", BACKENDS)
def test_other_rules_of_ours_are_reported_and_left_alone_without_reconcile(pod, backend):
    needs(backend)
    old = Options.from_argv([*SIDECAR, "--backend", backend, "-o", "9000"])
    apply_in(pod, old)
    programmed = state(pod)

    with pytest.raises(ApplyError) as refusal:
        apply_in(pod, old.replace(exclude_outbound_ports=(), outbound_port=15101))

    lines = str(refusal.value).splitlines()
    assert lines[0].endswith("--reconcile replaces them, --cleanup-only removes them:")
    assert "  extra: IPv4 nat ISTIO_OUTPUT rule 1: -p tcp -m tcp --dport 9000 -j RETURN" in lines
    assert any(line.startswith("  missing: IPv4 nat ISTIO_REDIRECT rule 1: -p tcp -j REDIRECT --to-ports 15101") for line in lines)
    check_same(state(pod), programmed, "not as before")


def test_rules_move_from_one_variant_to_the_other(pod):
    for backend in VARIANTS:
        needs(backend)
    before = state(pod)
    options = Options.from_argv([*SIDECAR, "-m", "TPROXY"])
    apply_in(pod, options.replace(backend="iptables-legacy"))
    with pytest.raises(ApplyError, match="leftover: iptables-legacy"):
        apply_in(pod, options.replace(backend="iptables-nft"))
    assert listing(pod, "iptables-nft") == ""

    apply_in(pod, options.replace(backend="iptables-nft", reconcile=True))

    assert "ISTIO" not in listing(pod, "iptables-legacy")
    assert differences_in(pod, options) == []
    remove_in(pod)
    check_same(state(pod), before, "not as before")


def test_remove_takes_the_rules_of_both_variants(pod):
    for backend in VARIANTS:
        needs(backend)
    before = state(pod)
    for backend in VARIANTS:
        with pod.entered():
            made = Options.from_argv([*SIDECAR, "--backend", backend])
        apply_in(pod, made) if backend == VARIANTS[0] else force_beside(pod, made)
    assert all("ISTIO_OUTPUT" in listing(pod, backend) for backend in VARIANTS)

    remove_in(pod)

    check_same(state(pod), before, "not as before")


def test_a_lone_rule_for_a_virtual_interface_is_removed_by_those_who_name_it(pod):
    """`-i net1 -j RETURN` could be anybody's where no other rule of ours names net1."""
    needs("iptables-nft")
    before = state(pod)
    options = Options.from_argv(["-k", "net1", "--backend", "iptables-nft"])
    apply_in(pod, options)
    assert not apply_in(pod, options).changed

    remove_in(pod, options)

    check_same(state(pod), before, "not as before")
