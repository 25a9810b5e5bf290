"""The contract of backends, held by native nft; and moving between it and iptables, at rest and under traffic."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from core import plan, write_nft
from lab_probes import Probe
from lab_state import one_spelling
from laboratory import Pod, start_servers
from netinit.base.errors import ApplyError
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.pods.planning import settle
from netinit.rules.nft import render_tables
from programming import TOOL, add_foreign_rules, apply_in, check_same, differences_in, needs, remove_in, state
from strategies import made_options
from sweeps import choose

pytestmark = pytest.mark.usefixtures("judged_by_verify")

FEW = settings(
    max_examples=choose(2, 12),
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.generate),  # every example costs pods: a failure is read, not shrunk
)
OTHERS = Options(inbound_mode="TPROXY", tproxy_mark=77, tproxy_table=78, inbound_ports=(1,), ipv6="on")
BACKENDS = ("nftables", "iptables-nft", "iptables-legacy")
MOVES = [move for move in itertools.permutations(BACKENDS, 2) if "nftables" in move]
WANTED = ("-b", "*", "-i", "*", "--ipv6", "on")


@pytest.fixture(autouse=True)
def programs(require_netns):
    needs("iptables-nft")


def native(options: Options) -> Options:
    return options.replace(backend="nftables")


def check_planned(pod: Pod, options: Options) -> None:
    """nft lists exactly the plan; the order of tables depends on their history and means nothing."""
    with pod.entered():
        wanted = write_nft(plan(settle(options)), comments=options.rule_comments)
    listed = one_spelling(pod.run(["nft", "--stateless", "list", "ruleset", "inet"], check=True).stdout)
    listed = listed.replace("hook output priority dstnat", "hook output priority -100")
    both = [text.replace("icmp type port", "icmp port").replace("icmpv6 type port", "icmpv6 port") for text in (listed, render_tables(wanted))]
    check_same(*["".join(sorted(re.split("^(?=table )", text, flags=re.MULTILINE))) for text in both], f"{options.to_argv()}: not as planned")


def lines_of(pod: Pod) -> str:
    """The state without the order of tables, which depends on their history and means nothing."""
    return "\n".join(sorted(state(pod).splitlines()))


def test_options_by_the_dozen_keep_the_contract():
    @FEW
    @given(made_options())
    def check(options):
        options = native(options)
        with Pod() as pod:
            add_foreign_rules(pod, "iptables-nft")
            before = state(pod)
            assert apply_in(pod, options).changed
            check_planned(pod, options)
            programmed = state(pod)
            assert not apply_in(pod, options).changed, "the second run found something to do"
            check_same(state(pod), programmed, "the second run changed something")
            # what foreign rules of iptables take away at the same priority is one
            assert [line for line in differences_in(pod, options) if not line.startswith("escaping: ")] == []
            for other in (options, native(OTHERS), OTHERS):
                apply_in(pod, options)
                assert remove_in(pod, other).changed
                check_same(state(pod), before, f"{options.to_argv()} removed with {other.to_argv()}")
            assert not remove_in(pod, options).changed

    check()


def test_reconciling_ends_where_a_fresh_start_ends():
    @FEW
    @given(made_options(), made_options())
    def check(old, new):
        with Pod() as pod:
            apply_in(pod, native(old))
            apply_in(pod, native(new).replace(reconcile=True))
            check_planned(pod, native(new))
            assert not apply_in(pod, native(new)).changed
            assert differences_in(pod, native(new)) == []

    check()


@pytest.mark.parametrize(("old", "new"), MOVES)
def test_rules_move_between_backends_and_nothing_of_the_old_stays(old, new):
    for backend in (old, new):
        needs(backend)
    options = Options.from_argv([*WANTED, "-m", "TPROXY"])
    with Pod() as pod:
        before = state(pod)
        apply_in(pod, options.replace(backend=new))
        wanted = lines_of(pod)
        remove_in(pod)
        check_same(state(pod), before, "removed")
        apply_in(pod, options.replace(backend=old))
        assert any(line.startswith("leftover: ") for line in differences_in(pod, options.replace(backend=new)))
        apply_in(pod, options.replace(backend=new, reconcile=True))
        check_same(lines_of(pod), wanted, f"moved from {old} to {new}")
        assert differences_in(pod, options.replace(backend=new)) == []
        remove_in(pod)
        check_same(state(pod), before, "removed")


@pytest.mark.parametrize("mode", ["REDIRECT", "TPROXY"])
def test_while_rules_move_no_connection_bypasses_and_none_is_captured_twice(pod, mode, tmp_path):
    """The app, the proxy and a caller connect without end while the rules go round all backends."""
    start_servers(pod, transparent=(15006,))
    for backend in BACKENDS:
        needs(backend)
    wanted = [*WANTED, "-m", mode]
    apply_in(pod, Options.from_argv([*wanted, "--backend", BACKENDS[0]]))
    there, back = choose((4, 1) if mode == "REDIRECT" else (1, 4), (10, 9))
    rounds = [BACKENDS[number % 3] for number in range(1, there)] + [BACKENDS[-number % 3] for number in range(1, back)]
    tool = shlex.join([*TOOL, *wanted, "--reconcile", "--backend"])
    commands = " && ".join(f"{tool} {backend}" for backend in rounds)
    log = tmp_path / "log"
    with pod.entered(), log.open("w") as errors:
        moving = subprocess.Popen(["sh", "-c", commands], stderr=errors)
    probes = [Probe("203.0.113.7", 80, uid=APP_ID, gid=APP_ID), Probe("2001:db8::7", 80, uid=APP_ID, gid=APP_ID)] * 4
    probes += [Probe("203.0.113.7", 80, uid=PROXY_ID, gid=PROXY_ID)] * 2
    inbound = [Probe("10.77.0.2", 80), Probe("fd77::2", 80)] * 3
    fates: dict[tuple, int] = {}
    inward = set()
    while moving.poll() is None:
        inward |= {(arrival.outcome, arrival.server, arrival.port) for arrival in pod.client.probe(inbound)}
        for probe, arrival in zip(probes, pod.probe(probes), strict=True):
            fate = (probe.uid, arrival.outcome, arrival.server, arrival.port, arrival.original_destination)
            fates[fate] = fates.get(fate, 0) + 1
    said = log.read_text()
    assert moving.returncode == 0, said
    assert said.count("programmed by") == len(rounds), said
    assert set(fates) == {
        (APP_ID, "answered", "proxy", 15001, "203.0.113.7:80"),
        (APP_ID, "answered", "proxy", 15001, "[2001:db8::7]:80"),
        (PROXY_ID, "answered", "outside", 80, None),
    }, fates
    assert inward == {("answered", "proxy", 15006)}


def test_istios_own_native_tables_are_recognised_replaced_and_removed(conformance):
    for path in sorted((conformance / "rules").glob("*.json"))[:: choose(2, 1)]:
        text = path.read_text().replace("java", "4001").replace("ftp", "4002")
        case = json.loads(text)
        options = Options.from_argv([*case["argv"], "--native-nftables"], case["env"])
        options = options.replace(ipv6="on" if case["ipv6"] else "off", dns_servers=tuple(case["dns_servers"]))
        with Pod() as pod:
            before = state(pod)
            pod.run(["nft", "-f", "-"], stdin=case["nft"], check=True)
            with pytest.raises(ApplyError, match="other rules of Istio or netinit are here"):
                apply_in(pod, options)
            apply_in(pod, options.replace(reconcile=True))
            assert differences_in(pod, options) == []  # tables that say the same in another order stay
            assert not apply_in(pod, options).changed
            remove_in(pod)
            pod.run(["nft", "-f", "-"], stdin=case["nft"], check=True)
            assert remove_in(pod).changed
            check_same(state(pod), before, f"{path.stem}: removed")


def test_without_reconcile_the_other_backends_rules_are_named_and_left(pod):
    apply_in(pod, Options.from_argv([*WANTED, "--native-nftables"]))
    before = state(pod)
    with pytest.raises(ApplyError, match=r"(?s)--reconcile.*leftover: nftables"):
        apply_in(pod, Options.from_argv([*WANTED, "--backend", "iptables-nft"]))
    assert state(pod) == before
    again = apply_in(pod, Options.from_argv(WANTED))
    assert (again.backend, again.changed) == ("nftables", False), "auto stays with what holds the rules"
