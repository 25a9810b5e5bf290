"""The backend of legacy tables on the kernel: foreign rules stay byte for byte, and ours are those that the program would make."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import threading
from struct import pack_into, unpack_from

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from core import plan
from goldens import SAMPLE, options_of
from laboratory import NetworkNamespace
from legacy import FOREIGN_IPV4, FOREIGN_IPV6, LEGACY, change_to, filled, fresh, listings
from netinit.backends import legacy_edits
from netinit.backends.iptables import FirstComparison
from netinit.backends.legacy import LegacyBackend
from netinit.backends.listing_comparison import XtablesComparison
from netinit.base.errors import ApplyError, BusyError, ParseError
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.kernel.snapshot import legacy_tables
from netinit.kernel.snapshot.legacy_tables import read_bytes
from netinit.kernel.table_replacement import Replacement
from netinit.options import Options
from netinit.pods.planning import settle
from netinit.rules.model import OWNED_CHAINS
from netinit.rules.structs import ACCEPTING
from netinit.rules.xtables import building
from programming import REDIRECT, SIDECAR, TPROXY, apply_in, load, needs, remove_in, run_tool
from restore_oracle import LegacyByProgram
from strategies import made_options
from sweeps import choose

COUNTED = r"""*raw
:PREROUTING ACCEPT [5:500]
-A PREROUTING -p icmp -m limit --limit 3/hour --limit-burst 7 -c 6 66 -j ACCEPT
COMMIT
*filter
:EMPTY - [0:0]
:FIRST - [0:0]
:SECOND - [0:0]
:aaa - [0:0]
:zzz - [0:0]
:FORWARD DROP [7:700]
-A INPUT ! -i lo -c 1 11 -g FIRST
-A INPUT -m comment --comment "a \"quoted\" -j ISTIO_INBOUND" -c 2 22
-A INPUT -m recent --set --name seen --rsource -c 3 33 -j EMPTY
-A INPUT -m hashlimit --hashlimit-above 5/sec --hashlimit-burst 5 --hashlimit-mode srcip --hashlimit-name many -c 4 44 -j DROP
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -c 5 55 -j ACCEPT
-A INPUT -p tcp -m multiport ! --dports 80,90:91 -c 6 66 -j RETURN
-A OUTPUT -m quota --quota 10000 -c 7 77 -j ACCEPT
-A OUTPUT -m statistic --mode nth --every 3 --packet 0 -c 8 88 -j LOG --log-prefix "third: "
-A OUTPUT -m owner ! --uid-owner 5 -m mark ! --mark 0x1/0x3 -c 9 99 -j zzz
-A FIRST ! -p udp -c 10 110 -j SECOND
-A FIRST -c 11 121 -g zzz
-A SECOND -c 12 132 -j RETURN
-A zzz -c 13 143 -j aaa
-A zzz -p tcp -c 14 154 -j REJECT --reject-with tcp-reset
COMMIT
*nat
:THEIRS - [4:400]
-A OUTPUT ! -d 127.0.0.0/8 -p tcp -m tcp --dport 9 -c 15 165 -j THEIRS
-A THEIRS -p tcp -m tcp ! --syn -c 16 176 -j ACCEPT
-A THEIRS -p tcp -c 17 187 -j REDIRECT --to-ports 9998
-A POSTROUTING -o eth9 -c 18 198 -j MASQUERADE
COMMIT
"""
SETS = "create theirs hash:net\nadd theirs 192.0.2.0/24\n"
OF_SETS = "*mangle\n-A PREROUTING -m set --match-set theirs src -c 3 30 -j MARK --set-xmark 0x7/0xffffffff\nCOMMIT\n"


@pytest.fixture(autouse=True)
def _programs(require_netns):
    needs(LEGACY)


def saved(pod):
    """What iptables-legacy-save prints of both families with counters, without its comments."""
    return {
        family: [line for line in pod.run([f"{family.program}-legacy-save", "-c"], check=True).stdout.splitlines() if line[:1] != "#"]
        for family in FAMILIES
    }


def blobs(pod):
    """Every table that exists, as the kernel holds it with counters."""
    with pod.entered():
        return {
            (family, name): read_bytes(family, name)
            for family in FAMILIES
            for name in legacy_tables.detect.legacy_tables(family)
        }


def foreign(lines):
    """The lines of a listing that are not of our chains, and name none of them."""
    return [line for line in lines if not any(re.search(rf"(^:| |-[AI] ){chain}\b", line.split(' --comment "')[0]) for chain in OWNED_CHAINS)]


@contextlib.contextmanager
def foreign_rules():
    with NetworkNamespace("foreign") as pod:
        for family, text in ((IPV4, FOREIGN_IPV4), (IPV6, FOREIGN_IPV6)):
            load(pod, LEGACY, family, text)
        pod.run(["iptables-legacy-restore", "-w", "--noflush", "-c"], stdin=COUNTED, check=True)
        if pod.run(["ipset", "restore"], stdin=SETS).returncode == 0:
            pod.run(["iptables-legacy-restore", "-w", "--noflush", "-c"], stdin=OF_SETS, check=True)
        for program in ("iptables", "ip6tables"):
            for table in ("mangle", "nat", "filter", "raw"):  # which reading creates
                pod.run([f"{program}-legacy", "-w", "-t", table, "-S"], check=True)
        yield pod


@pytest.mark.parametrize("words", [REDIRECT, TPROXY], ids=["REDIRECT", "TPROXY"])
def test_foreign_rules_of_all_shapes_are_the_same_bytes_after_apply_repair_and_removal(words):
    options = Options.from_argv([*words, "--backend", LEGACY])
    with foreign_rules() as pod:
        before, bytes_before = saved(pod), blobs(pod)
        assert len([line for lines in before.values() for line in lines if "-A " in line]) > 50
        apply_in(pod, options)
        between = saved(pod)
        assert between != before
        if words is REDIRECT:
            assert {family: foreign(lines) for family, lines in between.items()} == before
        pod.run(["iptables-legacy", "-w", "-t", "nat", "-F", "ISTIO_OUTPUT"], check=True)
        assert apply_in(pod, options.replace(reconcile=True)).changed
        assert saved(pod) == between
        assert remove_in(pod, options).changed
        assert saved(pod) == before
        assert blobs(pod) == bytes_before


def test_a_removal_with_other_options_leaves_the_same_bytes_too():
    with foreign_rules() as pod:
        before = blobs(pod)
        apply_in(pod, Options.from_argv([*TPROXY, "-c", "eth9", "--backend", LEGACY]))
        assert remove_in(pod).changed
        assert blobs(pod) == before


def outcome(backend, options, foreign_too):
    """The listings after the options were programmed, and again after they were removed."""
    found = []
    with fresh() as pod:
        if foreign_too:
            load(pod, LEGACY, IPV4, FOREIGN_IPV4)
            load(pod, LEGACY, IPV6, FOREIGN_IPV6)
        made = plan(settle(options))
        backend.commit(backend.observe().compare(made).change())
        found.append(listings())
        backend.commit(backend.observe().removal(made))
        found.append(listings())
    return found


def check_as_by_program(options, *, foreign_too=False):
    comments = options.rule_comments
    by_program, ours = [outcome(kind(comments=comments), options, foreign_too) for kind in (LegacyByProgram, LegacyBackend)]
    assert ours == by_program, options.to_argv()


def test_the_tables_of_goldens_are_those_that_the_program_makes():
    for number, behaviour in enumerate(SAMPLE):
        check_as_by_program(options_of(behaviour), foreign_too=number % 2 > 0)


@settings(suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate), max_examples=choose(8, 400), deadline=None)
@given(made_options())
def test_the_tables_of_any_options_are_those_that_the_program_makes(options):
    check_as_by_program(options)


def test_rules_that_others_add_between_reading_and_changing_stay():
    with fresh():
        backend = LegacyBackend()
        change = change_to(backend, Options.from_argv(REDIRECT))
        call = ["iptables-legacy", "-w", "-t", "nat"]
        subprocess.run([*call, "-A", "OUTPUT", "-p", "tcp", "--dport", "9", "-j", "ACCEPT"], check=True)
        before = filled()
        backend.commit(change)
        subprocess.run([*call, "-I", "OUTPUT", "-p", "tcp", "--dport", "10", "-j", "ACCEPT"], check=True)
        removal = backend.observe().removal(plan(Options.from_argv(REDIRECT)))
        subprocess.run([*call, "-D", "OUTPUT", "1"], check=True)
        between = filled()
        backend.commit(removal)
        assert filled() == before
        backend.roll_back(removal)
        assert filled() == between
        backend.roll_back(change)
        assert filled() == before


def test_writers_under_the_lock_lose_nothing():
    """Each adds rules of its own with the program while ours come and go."""
    rounds = choose(6, 40)
    with NetworkNamespace("writers") as pod:

        def write(number):
            for index in range(rounds):
                address = f"192.0.2.{number * 100 + index}"
                pod.run(["iptables-legacy", "-w", "-t", "nat", "-A", "OUTPUT", "-d", address, "-j", "ACCEPT"], check=True)

        writers = [threading.Thread(target=write, args=(number,)) for number in (0, 1)]
        for writer in writers:
            writer.start()
        options = Options.from_argv([*SIDECAR, "--ipv6", "off", "--backend", LEGACY, "--lock-timeout", "1m"])
        while any(writer.is_alive() for writer in writers):
            apply_in(pod, options)
            remove_in(pod, options)
        for writer in writers:
            writer.join()
        text = pod.run(["iptables-legacy-save", "-t", "nat"], check=True).stdout
    assert sorted(re.findall(r"-A OUTPUT -d (\S+)/32 -j ACCEPT", text)) == sorted(f"192.0.2.{n * 100 + i}" for n in (0, 1) for i in range(rounds))
    assert "ISTIO" not in text


def test_counters_go_on_while_packets_flow():
    """Not one packet is missing in the counter of a foreign rule, whose table was replaced again and again."""
    sent, stop = [0], threading.Event()
    options = Options.from_argv([*REDIRECT, "--backend", LEGACY])
    with NetworkNamespace("counters") as pod:

        def send():
            with pod.entered(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.bind(("127.0.0.1", 0))
                while not stop.is_set():
                    sender.sendto(b"x", sender.getsockname())
                    sent[0] += 1

        pod.run(["iptables-legacy", "-w", "-A", "OUTPUT", "-p", "udp", "-j", "ACCEPT"], check=True)
        sending = threading.Thread(target=send)
        sending.start()
        try:
            for _ in range(choose(4, 40)):
                apply_in(pod, options)
                remove_in(pod, options)
        finally:
            stop.set()
            sending.join()
        line = next(line for line in saved(pod)[IPV4] if "-A OUTPUT -p udp -j ACCEPT" in line)
    assert int(line[1:].partition(":")[0]) == sent[0] > 100, line


def test_counters_of_our_rules_come_back_with_a_roll_back():
    with fresh() as pod:
        backend, options = LegacyBackend(), Options.from_argv([*SIDECAR, "--ipv6", "off"])
        backend.commit(change_to(backend, options))
        subprocess.run(["iptables-legacy-restore", "-w", "-n", "-c"], input="*nat\n[9:99] -I OUTPUT 1 -j ISTIO_OUTPUT\nCOMMIT\n", text=True, check=True)
        before = saved(pod)
        removal = backend.observe().removal(plan(options))
        backend.commit(removal)
        assert saved(pod) != before
        backend.roll_back(removal)
        assert saved(pod) == before


@pytest.mark.parametrize("accepts", [True, False], ids=["accepting", "dropping"])
def test_tables_that_a_removal_leaves_empty_are_programmed_again_without_decoding_them(accepts):
    backend, wanted = LegacyBackend(), Options.from_argv([*TPROXY, "--ipv6", "on"])
    with fresh() as pod:
        backend.commit(change_to(backend, wanted))
        first = listings()
        backend.commit(backend.observe().removal(plan(wanted)))
        if not accepts:
            pod.run(["iptables-legacy", "-w", "-P", "FORWARD", "DROP"], check=True)
        found = backend.observe()
        assert (found.in_use, found.ours, found.foreign) == (not accepts, False, not accepts)
        comparison = found.compare(plan(wanted))
        assert type(comparison) is (FirstComparison if accepts else XtablesComparison)
        change = comparison.change()
        backend.commit(change)
        dropping = {} if accepts else {IPV4: first[IPV4].replace("*filter\n:INPUT ACCEPT [0:0]\n:FORWARD ACCEPT", "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP")}
        assert listings() == first | dropping
        backend.roll_back(change)
        assert not backend.observe().ours


def test_a_removal_is_refused_while_a_foreign_chain_jumps_to_ours():
    with NetworkNamespace("jumps") as pod:
        options = Options.from_argv([*REDIRECT, "--backend", LEGACY])
        apply_in(pod, options)
        for words in (["-N", "THEIRS"], ["-A", "THEIRS", "-p", "udp", "-g", "ISTIO_REDIRECT"]):
            pod.run(["iptables-legacy", "-w", "-t", "nat", *words], check=True)
        before = saved(pod)
        with pytest.raises(ApplyError, match=r"IPv4 nat THEIRS: a foreign rule jumps into netinit's chains \(`-p udp -g ISTIO_REDIRECT`\); remove it"):
            remove_in(pod, options)
        assert saved(pod) == before


def test_a_foreign_jump_that_comes_after_reading_is_refused_under_the_lock():
    with fresh() as pod:
        backend, options = LegacyBackend(), Options.from_argv(REDIRECT)
        backend.commit(change_to(backend, options))
        removal = backend.observe().removal(plan(options))
        for words in (["-N", "THEIRS"], ["-A", "THEIRS", "-j", "ISTIO_REDIRECT"]):
            subprocess.run(["iptables-legacy", "-w", "-t", "nat", *words], check=True)
        before = saved(pod)
        with pytest.raises(ApplyError, match="IPv4 legacy table nat: rule 1 of THEIRS jumps to ISTIO_REDIRECT"):
            backend.commit(removal)
        backend.roll_back(removal)
        assert saved(pod) == before


def test_a_table_that_changes_meanwhile_is_read_again_but_not_forever(monkeypatch):
    with fresh():
        replace, asked = Replacement.replace, []

        def change_first(self, table, *given, **more):
            asked.append(table)
            if len(asked) <= limit:  # another program without the lock
                words = ["-t", table, "-I", "OUTPUT", "-s", f"192.0.2.{len(asked)}", "-j", "ACCEPT"]
                subprocess.run(["iptables-legacy", "-w", *words], check=True)
            return replace(self, table, *given, **more)

        monkeypatch.setattr(Replacement, "replace", change_first)
        monkeypatch.setattr(LegacyBackend, "lock", lambda _: contextlib.nullcontext())
        backend, options = LegacyBackend(families=(IPV4,)), Options.from_argv([*SIDECAR, "--ipv6", "off"])
        limit = 3
        change = change_to(backend, options)
        backend.commit(change)
        assert asked[:4] == [asked[0]] * 4
        text = listings()[IPV4]
        assert all(f"-s 192.0.2.{number}/32" in text for number in (1, 2, 3))
        backend.roll_back(change)
        before = listings()
        asked.clear()
        limit = 1000
        monkeypatch.setattr(legacy_edits, "ATTEMPTS", 2)
        with pytest.raises(BusyError, match=r"IPv4: legacy table .* changes all the time; the kernel is busy"):
            backend.commit(backend.observe().compare(plan(options)).change())
        assert len(asked) == 2
        assert "ISTIO" not in listings()[IPV4] + before[IPV4]


def end_with(table, chain, verdict):
    """Give a user-defined chain another verdict than a return at its end, which iptables does not list."""
    info, entries = read_bytes(IPV4, table)
    hooks, first = unpack_from("=I", info, 32)[0], unpack_from("=5I", info, 36)
    found, _ = building.find_chains(4, hooks, first, entries)
    last = next(places[-1] for name, _, _, places in found if name == chain)
    changed = bytearray(entries)
    pack_into("=i", changed, last + 112 + 32, verdict)
    number, size = unpack_from("=2I", info, 76)
    with Replacement(IPV4) as kernel:
        kernel.replace(table, hooks, unpack_from("=10I", info, 36), bytes(changed), size=number, old_size=number)
    assert size == len(changed)


def test_a_chain_that_ends_with_a_verdict_that_iptables_does_not_list_is_an_error():
    with fresh():
        backend = LegacyBackend()
        backend.commit(change_to(backend, Options.from_argv(REDIRECT)))
        before = listings()
        end_with("nat", "ISTIO_REDIRECT", ACCEPTING)
        assert listings() == before
        with pytest.raises(ParseError, match="IPv4: legacy table nat: the chain 'ISTIO_REDIRECT' does not end with a return, as iptables ends it"):
            backend.observe()


def test_a_huge_table_is_an_error_that_names_it(monkeypatch):
    with fresh():
        backend = LegacyBackend()
        change = change_to(backend, Options.from_argv(REDIRECT))
        monkeypatch.setattr(legacy_tables, "MAX_BYTES", 100)
        with pytest.raises(ApplyError, match=r"IPv4 legacy table nat: it has more than .* MB of rules: remove those that are not needed"):
            backend.commit(change)


USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", *(f"--{kind}-caps=+net_admin,+net_raw" for kind in ("inh", "ambient"))]
ROUTE = "link add eth0 type veth peer outside\naddress add 10.0.0.2/24 dev eth0\nlink set eth0 up\nlink set outside up\n"
EXPLAIN = ("explain", "outbound", "--live", "--to", "10.0.0.1:80")
FOREIGN = "*nat\n-A OUTPUT -p tcp --dport 80 -j REDIRECT --to-ports 15001\nCOMMIT\n"


def test_tables_that_a_user_may_not_list_are_not_taken_for_none():
    with NetworkNamespace("plain") as pod:
        pod.run(["ip", "-batch", "-"], stdin=ROUTE, check=True)
        load(pod, LEGACY, IPV4, FOREIGN)
        explained, verified = run_tool(pod, *EXPLAIN, prefix=USER), run_tool(pod, "verify", prefix=USER)
    assert (explained.returncode, explained.stdout.split(":")[0]) == (0, "unknown"), explained
    assert "legacy tables of IPv4" in explained.stdout
    assert (verified.returncode, verified.stdout) == (1, "")
    assert "whether rules are here is not known: legacy tables of IPv4 and legacy tables of IPv6 may not be read by this user: run netinit as root" in verified.stderr


def test_rules_that_a_user_may_list_count_beside_tables_that_it_may_not():
    with NetworkNamespace("plain") as pod:
        pod.run(["ip", "-batch", "-"], stdin=ROUTE, check=True)
        load(pod, LEGACY, IPV4, "*nat\nCOMMIT\n")
        apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-nft"]))
        explained, verified = run_tool(pod, *EXPLAIN, prefix=USER), run_tool(pod, "verify", prefix=USER)
    assert (explained.stdout.split(":")[0], verified.returncode) == ("captured", 0), (explained, verified)
    assert "legacy tables of IPv4 may not be read here" in verified.stderr
