"""Long lists of networks as address sets on both variants of iptables: a whole life, accidents, and real connections."""

from __future__ import annotations

import errno
import ipaddress
import itertools
import random
import re
import shutil
import signal
import time

import pytest

from core import plan
from goldens import BEHAVIOURS, options_of
from hostile import tool
from ipset_input import render_steps
from lab_probes import Probe
from laboratory import start_servers
from netinit.backends.ipset import change_sets
from netinit.backends.set_contents import read_contents
from netinit.base.errors import ApplyError
from netinit.base.net import IPV4, IPV6, Network
from netinit.kernel.address_sets import AddressSets
from netinit.kernel.netlink import NFTA_TABLE_FLAGS, NFTA_TABLE_NAME, NLM_F_CREATE, attribute
from netinit.kernel.nf_tables import NFT_MSG_NEWTABLE, NfTables
from netinit.kernel.table_replacement import Replacement
from netinit.lab import APP_ID
from netinit.options import Options
from netinit.rules.iptables.set_changes import find_preparation
from netinit.rules.iptables.sets import DESTROY, FILL, SetStep, format_element, unread, use_sets
from programming import (
    FOLDERS,
    SIDECAR,
    TOOL,
    apply_in,
    check_same,
    differences_in,
    inhabitants,
    listing,
    load,
    needs,
    remove_in,
    run_tool,
    state,
)
from sweeps import choose, in_turn

variants = in_turn("variant", ("iptables-nft", "iptables-legacy"))
pytestmark = [
    pytest.mark.skipif(shutil.which("ipset", path=FOLDERS) is None, reason="ipset is not installed: apt-get install ipset"),
    pytest.mark.usefixtures("judged_by_verify"),
]
NETWORKS = [f"10.{i // 256}.{i % 256}.0/24" for i in range(2000)] + [f"fd00:{i:x}::/32" for i in range(1, 400)]
KILLS = choose(6, 30)  # of each variant; the second number is that of `make prove`


def options(variant, *more, networks=NETWORKS, threshold=100):
    needs(variant)
    words = [*SIDECAR, "-x", ",".join(networks), "--ipv6", "on", "--backend", variant, "--ipset-threshold", str(threshold)]
    return Options.from_argv([*words, *more])


def sets(pod):
    """The names of all sets, sorted."""
    return sorted(pod.run(["ipset", "list", "-n"], check=True).stdout.split())


def set_names(variant):
    return [f"netinit-{variant.removeprefix('iptables-')}-exclude-{version}" for version in (4, 6)]


def elements(pod, name):
    saved = pod.run(["ipset", "save", name], check=True).stdout
    return {line.split()[2] for line in saved.splitlines() if line.startswith("add ")}


@variants
def test_long_lists_live_in_sets_from_the_first_run_to_the_removal(pod, variant):
    before = state(pod)
    wanted = options(variant)

    made = apply_in(pod, wanted)
    assert (made.changed, made.committed) == (True, True), "a first run lists the kernel's rules again, which takes longer than making them"
    for name in set_names(variant):
        assert sum(text.count(f"--match-set {name} dst") for text in made.rules.values()) == 2, f"what was made, as the log says it: {made.rules}"

    assert sets(pod) == set_names(variant)
    assert elements(pod, set_names(variant)[0]) == set(NETWORKS[:2000])
    rules = listing(pod, variant)
    assert [rules.count(f"-A ISTIO_OUTPUT -m set --match-set {name} dst -j RETURN\n") for name in set_names(variant)] == [2, 2], "once in nat, once in filter"
    assert "-d 10.1.0.0/24" not in rules
    assert differences_in(pod, wanted) == []
    assert not apply_in(pod, wanted).changed

    fewer = options(variant, networks=NETWORKS[1000:])
    with pytest.raises(ApplyError, match=r"extra: ipset .*-exclude-4: 10\.0\.0\.0/24"):
        apply_in(pod, fewer)
    apply_in(pod, fewer.replace(reconcile=True))
    assert sets(pod) == set_names(variant)
    assert elements(pod, set_names(variant)[0]) == set(NETWORKS[1000:2000])
    assert not apply_in(pod, fewer).changed

    short = options(variant, networks=NETWORKS[:50])
    apply_in(pod, short.replace(reconcile=True))
    assert sets(pod) == []
    assert listing(pod, variant).count("-d 10.") == 2 * 50, "in nat and in filter"

    apply_in(pod, wanted.replace(reconcile=True))
    remove_in(pod)
    check_same(state(pod), before, "not as before")
    assert sets(pod) == []


@variants
def test_a_changed_element_is_a_difference_and_mended_by_reconcile(pod, variant):
    wanted = options(variant)
    four, six = set_names(variant)
    apply_in(pod, wanted)
    pod.run(["ipset", "del", four, "10.3.7.0/24"], check=True)
    pod.run(["ipset", "add", six, "fd99::/16"], check=True)

    why = "(these networks are not captured; --istio-service-exclude-cidr)"
    assert differences_in(pod, wanted) == [f"missing: ipset {four}: 10.3.7.0/24  {why}", f"extra: ipset {six}: fd99::/16  {why}"]
    with pytest.raises(ApplyError, match="--reconcile"):
        apply_in(pod, wanted)

    apply_in(pod, wanted.replace(reconcile=True))
    assert differences_in(pod, wanted) == []
    assert sets(pod) == [four, six]


@variants
def test_without_a_threshold_or_sets_in_the_kernel_the_rules_are_plain(pod, variant, monkeypatch):
    plain = options(variant, networks=NETWORKS[1700:], threshold=0)
    apply_in(pod, plain)
    programmed = state(pod)
    assert sets(pod) == []
    assert listing(pod, variant).count("-d 10.") == 2 * 300, "in nat and in filter"
    assert not apply_in(pod, plain.replace(ipset_threshold=100)).changed, "plain rules that are right were replaced"
    remove_in(pod)

    def refuse(self, kind, *_, **__):  # as a kernel that has no subsystem of sets
        raise self.refusal(errno.EINVAL, b"")

    monkeypatch.setattr(AddressSets, "request", refuse)
    for expected in (True, False):
        made = apply_in(pod, plain.replace(ipset_threshold=100))
        assert made.changed is expected
        assert "match-set" not in str(made.rules), "the log names sets that the kernel refused"
        assert made.rules["IPv4"].count("-d 10.") == 2 * 300, "the log lists other rules than there are"
        check_same(state(pod), programmed, "a kernel without sets")
    assert sets(pod) == []


@variants
def test_sets_that_nobody_can_look_into_are_an_error(pod, variant, monkeypatch):
    wanted = options(variant)
    apply_in(pod, wanted)
    programmed = state(pod)

    def refuse(self, *_):
        raise self.refusal(errno.EPERM, b"")

    monkeypatch.setattr(AddressSets, "dump", refuse)
    for act in (apply_in, remove_in):
        with pytest.raises(ApplyError, match=r"the kernel does not list the address set netinit-.*: Operation not permitted"):
            act(pod, wanted)
    check_same(state(pod), programmed, "refused, and still changed")


@pytest.mark.parametrize("there", [False, True], ids=["first run", "reconciling"])
def test_a_table_of_another_process_leaves_rules_and_sets_as_they_were(pod, there):
    if there:
        apply_in(pod, options("iptables-nft", "-o", "9000", networks=NETWORKS[:1500] + NETWORKS[2100:]))
    with pod.entered(), NfTables() as owner:
        table = attribute(NFTA_TABLE_NAME, b"mangle\0") + attribute(NFTA_TABLE_FLAGS, (2).to_bytes(4, "big"))
        assert owner.commit([(IPV6.number, (NFT_MSG_NEWTABLE, NLM_F_CREATE, table))]) == ()
        before = state(pod), [(name, elements(pod, name)) for name in sets(pod)]
        failed = run_tool(pod, *options("iptables-nft", "-m", "TPROXY").to_argv(), "--reconcile")
        assert failed.returncode == 1
        assert "another process may own the table" in failed.stderr
        check_same(state(pod), before[0], "not as before")
        assert [(name, elements(pod, name)) for name in sets(pod)] == before[1]


@pytest.mark.parametrize("there", [False, True], ids=["first run", "reconciling"])
def test_legacy_tables_of_a_family_that_fail_leave_rules_and_sets_as_they_were(pod, there, monkeypatch):
    variant = "iptables-legacy"
    if there:
        apply_in(pod, options(variant, "-o", "9000", networks=NETWORKS[:1500] + NETWORKS[2100:]))
    before = state(pod), [(name, elements(pod, name)) for name in sets(pod)]

    class Failing(Replacement):
        def __init__(self, family):
            super().__init__(family)
            self._refuses = family is IPV6

        def replace(self, table, *given, **more):
            if self._refuses and table == "nat":
                raise OSError(errno.ENOMEM, "Cannot allocate memory")
            return super().replace(table, *given, **more)

    monkeypatch.setattr("netinit.backends.legacy_edits.Replacement", Failing)
    with pytest.raises(ApplyError, match="IPv6: the kernel refuses the new rules of legacy table nat: Cannot allocate memory"):
        apply_in(pod, options(variant, "--reconcile"))

    check_same(state(pod), before[0], "not as before")
    assert [(name, elements(pod, name)) for name in sets(pod)] == before[1]


def saved(pod):
    """What `ipset save` lists, without the number that the kernel draws for each set, in which order it keeps elements."""
    return sorted(re.sub(" initval 0x[0-9a-f]+", "", line) for line in pod.run(["ipset", "save"], check=True).stdout.splitlines())


def draw_elements(chance, bits, count):
    """Networks of all lengths, addresses and the two halves of everything among them."""
    found = {element for network in ("0.0.0.0/0" if bits == IPV4.bits else "::/0",) for element in format_element(Network.parse(network))}
    while len(found) < count:
        length = chance.randint(1, bits)
        address = chance.getrandbits(bits) >> bits - length << bits - length
        kind = ipaddress.IPv4Address if bits == IPV4.bits else ipaddress.IPv6Address
        found.update(format_element(Network.parse(f"{kind(address)}/{length}")))
    return frozenset(found)


def test_sets_are_those_that_the_program_makes(pod):
    chance = random.Random(11)
    lists = [
        (SetStep(kind=FILL, name=f"netinit-nft-exclude-{family.version}", elements=draw_elements(chance, family.bits, count)),)
        for family in (IPV4, IPV6)
        for count in (2, 70, 1000, 1001, *([70_000] if choose(0, 1) else []))
    ]
    lists += [tuple(one for number in (4, 0) for one in lists[number])]
    goldens = [find_preparation(use_sets(plan(options_of(behaviour)), "netinit-nft", 1)[1], {}) for behaviour in BEHAVIOURS]
    assert any(goldens)
    for steps in [*lists, *filter(None, goldens)]:
        name = steps[0].name
        with pod.entered():
            change_sets(steps)
            ours = saved(pod)
            read = read_contents()
            for step in steps:
                change_sets((SetStep(kind=DESTROY, name=step.name),))
        assert saved(pod) == []
        pod.run(["ipset", "restore"], stdin=render_steps(steps), check=True)
        check_same("\n".join(ours), "\n".join(saved(pod)), name)
        with pod.entered():
            assert read == read_contents() == {step.name: step.elements for step in steps}
        pod.run(["ipset", "destroy"], check=True)


def test_the_element_that_the_kernel_refuses_is_named(pod):
    elements = [f"10.{number // 256}.{number % 256}.0/24" for number in range(2500)]
    with pod.entered(), AddressSets() as link:
        with pytest.raises(OSError, match=r"netinit-x 10\.5\.220\.0/24: the set is full") as caught:
            link.create("netinit-x", elements, family=IPV4.number, hash_size=64, most=1500)
        assert caught.value.errno == 4352
        with pytest.raises(OSError, match=r"netinit-y 10\.0\.0\.0/24: it is already there"):
            link.create("netinit-y", [elements[0]] * 2, family=IPV4.number, hash_size=64, most=1500)
        with pytest.raises(OSError, match="netinit-x: File exists"):
            link.create("netinit-x", elements, family=IPV4.number, hash_size=64, most=1500)


@pytest.mark.parametrize("made", [
    "create {} hash:net comment\nadd {} 10.0.0.0/8 comment x", "create {} hash:net timeout 60\nadd {} 10.0.0.0/8",
    "create {} hash:net\nadd {} 10.0.0.0/8 nomatch", "create {} hash:ip\nadd {} 10.0.0.1", "create {} hash:net counters\nadd {} 10.0.0.0/8",
    "create {} list:set",
])  # fmt: skip
def test_a_set_of_our_name_that_is_made_otherwise_is_as_no_plan_wants_it(pod, made):
    pod.run(["ipset", "restore"], stdin=made.format(*["netinit-x-4"] * 2) + "\n", check=True)
    with pod.entered():
        assert read_contents() == {"netinit-x-4": unread("it was made with other options")}


@variants
def test_a_run_killed_at_any_moment_is_finished_by_the_next(pod, variant):
    chance = random.Random(7)
    lives = [options(variant, networks=NETWORKS[start:]) for start in (0, 1200)]
    before = state(pod)
    began = time.monotonic()
    for life in lives:
        assert run_tool(pod, *life.to_argv(), "--reconcile").returncode == 0
    whole = (time.monotonic() - began) / 2
    killed, others = 0, inhabitants(pod)
    for number in itertools.count():
        if number >= KILLS and killed >= KILLS // 4:
            break
        wanted = lives[number % 2]
        words = ("--cleanup-only",) if number % 5 == 4 else (*wanted.to_argv(), "--reconcile")
        with pod.popen([*TOOL, *words], env={"PATH": FOLDERS}) as started:
            time.sleep(chance.uniform(0, whole))
            started.kill()
            killed += started.wait() == -signal.SIGKILL
        while inhabitants(pod) != others:  # what it started may still be at work
            time.sleep(0.01)
        if number % 3 == 2:
            remove_in(pod)
            check_same(state(pod), before, f"after kill {number}")
            assert sets(pod) == [], f"after kill {number}"
            continue
        apply_in(pod, wanted.replace(reconcile=True))
        assert differences_in(pod, wanted) == [], f"after kill {number}"
        assert sets(pod) == set_names(variant), f"after kill {number}"
        assert not apply_in(pod, wanted).changed


@variants
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_run_that_is_told_to_end_has_done_all_or_nothing(pod, variant, how):
    chance = random.Random(how)
    wanted = options(variant)
    before = state(pod)
    began = time.monotonic()
    apply_in(pod, wanted)
    run_tool(pod, "verify", *wanted.to_argv())
    whole = (time.monotonic() - began) / 2
    programmed = state(pod)
    remove_in(pod)
    for number in range(choose(4, 30)):
        with pod.popen([*TOOL, *wanted.to_argv()], env={"PATH": FOLDERS}) as started:
            time.sleep(chance.uniform(0, 2 * whole))
            started.send_signal(how)
            _, said = started.communicate()
        done = started.returncode == 0 or sets(pod)
        check_same(state(pod), programmed if done else before, f"after signal {number}: {said}")
        assert sets(pod) == (set_names(variant) if done else []), said
        remove_in(pod)


@variants
def test_connections_to_networks_of_a_set_are_not_captured_and_others_are(pod, variant):
    start_servers(pod)
    apply_in(pod, options(variant, networks=[*NETWORKS, "198.51.100.0/24", "2001:db8::7/128"]))

    found = pod.probe([Probe(to, 80, uid=APP_ID, gid=APP_ID) for to in ("198.51.100.7", "203.0.113.7", "2001:db8::7", "2001:db8::8")])

    assert [(arrival.server, arrival.port) for arrival in found] == [("outside", 80), ("proxy", 15001)] * 2


@variants
def test_captured_networks_may_be_a_set_too_the_whole_of_a_family_included(pod, variant):
    start_servers(pod)
    needs(variant)
    networks = ",".join([*NETWORKS, "0.0.0.0/0", "2001:db8::8/128"])
    apply_in(pod, Options.from_argv(["-p", "15001", "-u", "1337", "-i", networks, "--ipv6", "on", "--backend", variant, "--ipset-threshold", "100"]))

    found = pod.probe([Probe(to, 80, uid=APP_ID, gid=APP_ID) for to in ("198.51.100.7", "2001:db8::7", "2001:db8::8")])

    assert [arrival.server for arrival in found] == ["proxy", "outside", "proxy"]
    assert sets(pod) == [name.replace("exclude", "capture") for name in set_names(variant)]
    remove_in(pod)
    assert sets(pod) == []


def test_rules_with_sets_move_from_one_variant_to_the_other(pod):
    for old, new in (("iptables-legacy", "iptables-nft"), ("iptables-nft", "iptables-legacy")):
        apply_in(pod, options(old, "--reconcile"))
        apply_in(pod, options(new, "--reconcile"))
        assert sets(pod) == set_names(new)
        assert differences_in(pod, options(new)) == []


@variants
def test_live_rules_are_explained_with_what_their_sets_hold(pod, variant):
    networks = NETWORKS[700:900]
    apply_in(pod, options(variant, networks=networks))
    words = ["--netns", pod.path, "--ipset-threshold", "100", "-x", ",".join(networks), "--uid", str(APP_ID)]
    for to, where in (("10.3.7.9:80", "these networks are not captured"), ("203.0.113.7:80", "all outbound TCP is captured")):
        done = tool("explain", "--to", to, *words, "-i", "*", "-b", "*")
        assert done.returncode == 0, done.stderr
        assert where in done.stdout
        assert "not known to netinit" not in done.stdout


@variants
def test_a_rule_of_somebody_else_that_asks_a_set_is_named_and_nothing_is_changed(pod, variant):
    apply_in(pod, options(variant))
    load(pod, variant, IPV4, f"*filter\n-A OUTPUT -m set --match-set {set_names(variant)[0]} dst -j ACCEPT\nCOMMIT\n")
    programmed = state(pod)
    for act, wanted in ((remove_in, None), (apply_in, options(variant, "--reconcile", networks=NETWORKS[:50]))):
        with pytest.raises(ApplyError, match="IPv4 filter OUTPUT: a foreign rule references an address set"):
            act(pod, wanted)
    check_same(state(pod), programmed, "refused, and still changed")
