"""The nftables backend on the kernel: whole tables in one transaction, drift found and mended, nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import netinit
from core import plan
from lab_probes import Probe
from lab_state import describe_state
from laboratory import NetworkNamespace, Pod, start_servers
from netinit.backends.nftables import NftablesBackend
from netinit.base.errors import ApplyError, BackendUnavailableError, KernelFeatureError
from netinit.kernel import run as programs
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.pods.apply import apply as apply_rules
from netinit.pods.apply import remove as remove_rules
from netinit.rules.model import Plan
from netinit.rules.nft import render_script
from programming import run_tool
from sweeps import choose

FOREIGN = """
table inet firewall {
	chain input {
		type filter hook input priority filter; policy accept;
		tcp dport 9999 counter drop
	}
}
table ip istio-proxy-nat {
	chain output {
		ip daddr 192.0.2.1 counter
	}
}
"""
SHRINKING = ("-m", "TPROXY", "-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns", "--drop-invalid")


def planned(*arguments: str, **more) -> Plan:
    return plan(Options.from_argv(arguments).replace(**more))


SIMPLE = planned("-b", "*", "-i", "*", ipv6="on")


@pytest.fixture
def inside(pod):
    """This thread is in a fresh pod."""
    with pod.entered():
        yield pod


def apply(wanted: Plan, *, force: bool = False, **options) -> bool:
    """Whether there was something to do."""
    backend = NftablesBackend(**options)
    change = backend.observe().compare(wanted).change(force=force)
    backend.commit(change)
    return bool(change.parts)


def remove() -> None:
    backend = NftablesBackend()
    backend.commit(backend.observe().removal(SIMPLE))


def differences(wanted: Plan, **options) -> list[str]:
    backend = NftablesBackend(**options)
    return [difference.describe() for difference in backend.observe().compare(wanted).differences]


def nft(pod: NetworkNamespace, command: str) -> str:
    return pod.run(["nft", *command.split()], check=True).stdout


def tables(pod: NetworkNamespace) -> list[str]:
    return [line.removeprefix("table inet ") for line in nft(pod, "list tables inet").splitlines()]


def test_a_second_run_has_nothing_to_do_and_does_not_even_need_json(inside):
    assert apply(SIMPLE)
    assert "json" not in subprocess_modules(inside)
    assert not apply(SIMPLE)
    assert differences(SIMPLE) == []


def subprocess_modules(pod: NetworkNamespace) -> list[str]:
    """The modules of a process that finds the rules as planned."""
    code = (
        "import sys; from netinit.backends.nftables import NftablesBackend as B; from netinit.options import Options, offline;"
        "from netinit.rules.layouts import plan;"
        "b = B(); s = b.observe(); assert s.ours;"
        "assert not s.compare(plan(Options.from_argv(['-b', '*', '-i', '*']).settle(offline()))).differences;"
        "print(*sys.modules)"
    )
    return pod.run([sys.executable, "-S", "-c", code], env={"PYTHONPATH": str(Path(netinit.__file__).parent.parent)}, check=True).stdout.split()


def test_removing_leaves_the_namespace_as_it_was_and_others_tables_alone(inside):
    inside.run(["nft", "-f", "-"], stdin=FOREIGN, check=True)
    before = describe_state(inside)
    assert apply(planned(*SHRINKING, ipv6="on"))
    assert NftablesBackend().observe().foreign
    remove()
    assert describe_state(inside) == before
    assert not NftablesBackend().observe().ours


def test_tables_that_smaller_options_do_not_need_are_gone_in_the_same_transaction(inside):
    apply(planned(*SHRINKING, ipv6="on"))
    assert tables(inside) == ["istio-proxy-mangle", "istio-proxy-nat", "istio-proxy-raw", "istio-proxy-filter"]
    apply(SIMPLE)
    assert tables(inside) == ["istio-proxy-nat", "istio-proxy-filter"]
    assert differences(SIMPLE) == []


def test_only_the_table_that_drifted_is_replaced(inside):
    wanted = planned(*SHRINKING, ipv6="on")
    apply(wanted)
    handles = handles_of(inside)
    nft(inside, "add rule inet istio-proxy-raw istio-output-dns drop")
    assert apply(wanted)
    changed = {name for name, handle in handles_of(inside).items() if handles[name] != handle}
    assert changed == {"istio-proxy-raw"}
    assert apply(wanted, force=True)
    assert all(handles[name] != handle for name, handle in handles_of(inside).items())


def handles_of(pod: NetworkNamespace) -> dict[str, str]:
    lines = nft(pod, "-a list ruleset").splitlines()
    return {line.split()[2]: line.split()[-1] for line in lines if line.startswith("table inet")}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("add rule inet istio-proxy-nat istio-output ip daddr 192.0.2.7 accept", "extra: nft istio-proxy-nat istio-output rule 14: ip daddr 192.0.2.7 accept"),
        ("insert rule inet istio-proxy-nat istio-redirect limit rate 5/second return", "extra: nft istio-proxy-nat istio-redirect rule 1: limit rate 5/second burst 5 packets return"),
        ("insert rule inet istio-proxy-nat istio-redirect quota over 5 bytes return", "extra: nft istio-proxy-nat istio-redirect rule 1: quota return"),
        ("flush chain inet istio-proxy-nat istio-redirect", "missing: nft istio-proxy-nat istio-redirect rule 1: meta l4proto tcp counter redirect to :15001"),
        ("add chain inet istio-proxy-nat mine", "extra: nft istio-proxy-nat mine: the chain itself"),
        ("add set inet istio-proxy-nat mine { type ipv4_addr; }", "extra: nft istio-proxy-nat: set mine"),
        ("add table inet istio-proxy-raw { chain x { accept; }; }", "extra: nft istio-proxy-raw: the whole table"),
        ("chain inet istio-proxy-nat output { policy drop; }", "missing: nft istio-proxy-nat output: type nat hook output priority -100; policy accept;"),
        ("delete table inet istio-proxy-nat", "missing: nft istio-proxy-nat: the whole table"),
    ],
)  # fmt: skip
def test_whatever_somebody_changes_is_found_and_mended(inside, command, expected):
    apply(SIMPLE)
    inside.run(["nft", command], check=True)
    found = differences(SIMPLE)
    assert any(line.startswith(expected) for line in found), found
    assert apply(SIMPLE)
    assert differences(SIMPLE) == []


def test_a_rule_at_another_place_is_found(inside):
    apply(SIMPLE)
    nft(inside, "insert rule inet istio-proxy-nat istio-output counter jump istio-redirect")
    last = nft(inside, "-a list chain inet istio-proxy-nat istio-output").splitlines()[-3].rpartition(" ")[2]
    nft(inside, f"delete rule inet istio-proxy-nat istio-output handle {last}")
    assert [line.partition(":")[0] for line in differences(SIMPLE)] == ["moved"]


def test_comments_are_written_when_asked_for_and_alone_are_no_difference(inside):
    apply(SIMPLE)
    assert not apply(SIMPLE, comments=True)
    assert apply(SIMPLE, comments=True, force=True)
    assert differences(SIMPLE, comments=True) == []
    assert differences(SIMPLE) == []
    assert 'comment "outbound connections go to the proxy"' in nft(inside, "list table inet istio-proxy-nat")


def test_a_dry_run_checks_with_the_kernel_and_touches_nothing(inside):
    before = describe_state(inside)
    NftablesBackend().check(planned(*SHRINKING, ipv6="on"))
    tool = [sys.executable, "-m", "netinit", "render", "-b", "*", "--ipv6", "on", "--format"]
    checked = inside.run([*tool, "nft", "--check"])
    assert (checked.returncode, checked.stdout.count("table inet istio-proxy-nat {")) == (0, 1), checked.stderr
    assert inside.run([*tool, "restore", "--check"]).returncode == 2
    assert inside.run(["nft", "-c", "-f", "-"], stdin=render_script(SIMPLE)).returncode == 0
    assert describe_state(inside) == before


def test_networks_that_overlap_touch_repeat_or_have_host_bits_capture_exactly_what_they_should():
    excluded = "198.51.100.9/31,198.51.100.10/31,198.51.100.8/30,198.51.100.8/30,203.0.113.0/25,203.0.113.130/25,2001:db8::8/127,2001:db8::a/128"
    inner = ("198.51.100.8", "198.51.100.11", "203.0.113.127", "203.0.113.128", "2001:db8::8", "2001:db8::a")
    outer = ("198.51.100.7", "198.51.100.12", "203.0.112.255", "203.0.114.0", "2001:db8::7", "2001:db8::b")
    with Pod(outside=(*inner, *outer)) as pod:
        start_servers(pod)
        with pod.entered():
            apply(planned("-i", "*", "-x", excluded, ipv6="on"))
        for hosts, server in ((inner, "outside"), (outer, "proxy")):
            for host in hosts:
                arrival = pod.connect(host, 80, uid=APP_ID, gid=APP_ID)
                assert arrival.server == server, f"{host}: {arrival}"


def test_ten_thousand_mixed_networks_are_one_rule_a_family_and_compare_equal(inside):
    chance = random.Random(7)
    networks = {f"{chance.randint(1, 223)}.{chance.randint(0, 255)}.{chance.randint(0, 255)}.0/{chance.randint(20, 28)}" for _ in range(6000)}
    networks |= {f"2001:{chance.randint(1, 0xFFFF):x}:{chance.randint(0, 0xFFFF):x}::/{chance.randint(30, 48)}" for _ in range(4000)}
    wanted = planned("-i", "*", "-x", ",".join(networks), ipv6="on")
    assert apply(wanted)
    assert differences(wanted) == []
    listing = nft(inside, "-s list table inet istio-proxy-nat")
    assert len(listing.splitlines()) < 60
    nft(inside, "add rule inet istio-proxy-nat istio-inbound accept")
    assert len(differences(wanted)) == 1, "nft's JSON of the same sets must read as the same rules"


def test_replacing_the_rules_lets_no_connection_by(pod):
    """An application connects without end while its rules are replaced, again and again, by different ones."""
    start_servers(pod)
    code = (
        "from netinit.backends.nftables import NftablesBackend as B; from netinit.options import Options, offline;"
        "from netinit.rules.layouts import plan;"
        "plans = [plan(Options.from_argv(['-i', '*', *more]).settle(offline())) for more in ([], ['-b', '80'], ['-x', '192.0.2.0/24'])]\n"
        "for number in range(30):\n"
        "    b = B(); b.commit(b.observe().compare(plans[number % 3]).change(force=True))"
    )
    with pod.entered():
        apply(SIMPLE)
        replacing = subprocess.Popen([sys.executable, "-c", code])
    arrivals = []
    while replacing.poll() is None:
        arrivals += pod.probe([Probe("203.0.113.7", 80, uid=APP_ID, gid=APP_ID)] * 10)
    assert replacing.returncode == 0
    assert len(arrivals) > 50
    fates = {(arrival.server, arrival.port, arrival.original_destination) for arrival in arrivals}
    assert fates == {("proxy", 15001, "203.0.113.7:80")}


def test_a_proxy_is_never_sent_to_itself_while_rules_are_replaced(pod):
    start_servers(pod)
    with pod.entered():
        apply(SIMPLE)
        for _ in range(20):
            apply(SIMPLE, force=True)
            assert pod.connect("203.0.113.7", 80, uid=PROXY_ID, gid=PROXY_ID).server == "outside"


def test_killed_at_any_moment_the_rules_are_wholly_old_or_wholly_new(inside):
    plans = {"old": SIMPLE, "new": planned(*SHRINKING, "-x", "192.0.2.0/24,198.51.100.0/24", ipv6="on")}
    texts = {}
    for name in ("new", "old"):
        apply(plans[name])
        texts[nft(inside, "-s list ruleset")] = name
    chance = random.Random(1)
    seen, longest = [], 0.03
    for _ in range(choose(25, 200)):
        wanted = "old" if seen and seen[-1] == "new" else "new"
        ready, start = os.pipe(), os.pipe()
        child = os.fork()
        if not child:
            os.write(ready[1], b"x")
            os.read(start[0], 1)
            apply(plans[wanted])
            os._exit(0)
        os.read(ready[0], 1)
        os.write(start[1], b"x")
        time.sleep(chance.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for descriptor in (*ready, *start):
            os.close(descriptor)
        listing = nft(inside, "-s list ruleset")
        assert listing in texts, f"neither old nor new:\n{listing}"
        seen.append(texts[listing])
        longest *= 0.8 if seen[-1] == wanted else 1.25  # about half of the kills are to come too late, however busy the machine is
    assert set(seen) == {"old", "new"}, "every kill came too early, or too late"


def test_no_program_is_needed(inside, monkeypatch):
    monkeypatch.setattr(programs, "find", lambda _: "")
    assert apply(SIMPLE)
    assert not apply(SIMPLE)
    assert apply(planned("-b", "80", ipv6="on"))
    remove()
    assert not NftablesBackend().observe().ours


def test_without_permission_the_error_names_the_capability(pod):
    assert "NET_ADMIN" in pod.call(try_to_apply, uid=APP_ID, gid=APP_ID)


def try_to_apply() -> str:
    try:
        apply(SIMPLE)
    except BackendUnavailableError as error:
        return str(error)
    return "applied"


def test_a_refused_rule_changes_nothing_and_is_named(inside, monkeypatch):
    backend = NftablesBackend()
    apply(SIMPLE)
    before = describe_state(inside)
    change = backend.observe().compare(planned("-b", "80", ipv6="on")).change()
    at = next(at for at, ((_, _, attributes), _) in enumerate(change.parts) if b"redir\0" in attributes)
    (kind, flags, attributes), about = change.parts[at]
    broken = (kind, flags, attributes.replace(b"redir\0", b"redix\0")), about
    wanted = r"nft table istio-proxy-nat chain istio-redirect rule 1 \(meta l4proto tcp counter redirect to :15001\): No such file or directory.*no nft_redix, and modprobe cannot add it: use an iptables backend"
    monkeypatch.setattr("netinit.kernel.modules.can_help", lambda _: False)
    with pytest.raises(KernelFeatureError, match=wanted):
        backend.commit(change.replace(parts=(*change.parts[:at], broken, *change.parts[at + 1 :])))
    assert describe_state(inside) == before


def test_a_planned_table_stays_where_the_one_that_is_missing_beside_it_is_refused(inside):
    apply(SIMPLE)
    nft(inside, "delete table inet istio-proxy-filter")
    backend, before = NftablesBackend(), describe_state(inside)
    change = backend.keep(backend.observe().compare(SIMPLE).change())
    nft(inside, "add table inet istio-proxy-filter")
    nft(inside, "add chain inet istio-proxy-filter input { type filter hook output priority 0; }")  # another one of that name
    with pytest.raises(ApplyError):
        backend.commit(change)
    nft(inside, "delete table inet istio-proxy-filter")
    backend.roll_back(change)
    assert describe_state(inside) == before


def test_a_removal_reads_what_it_removes_only_where_a_later_step_could_fail(inside, monkeypatch):
    """Elements of long lists take longer to read than to delete."""
    apply(SIMPLE)
    before = describe_state(inside)
    monkeypatch.setattr("netinit.backends.nft_tables.dump_tables", lambda *_, **__: pytest.fail("it was read"))
    backend = NftablesBackend()
    change = backend.observe().removal(SIMPLE)
    backend.roll_back(change)  # of a step that the kernel refused
    assert describe_state(inside) == before
    remove_rules(Options())
    assert tables(inside) == []


def test_a_removal_whose_routes_stay_leaves_the_rules_too(inside, monkeypatch):
    networks = [f"10.{one // 256}.{one % 256}.0/24" for one in range(300)]
    apply_rules(Options.from_argv(["-m", "TPROXY", "--native-nftables", "-i", "*", "-b", "*", "-x", ",".join(networks)]))
    before = describe_state(inside)

    def refuse(*_):
        raise ApplyError("no memory")

    monkeypatch.setattr("netinit.backends.routes.make_one", refuse)
    with pytest.raises(ApplyError, match="no memory"):
        remove_rules(Options())
    assert describe_state(inside) == before


def test_tables_that_somebody_makes_meanwhile_are_not_filled_twice(inside):
    backend = NftablesBackend()
    change = backend.observe().compare(SIMPLE).change()
    apply(SIMPLE)
    before = describe_state(inside)
    with pytest.raises(ApplyError, match="nft table istio-proxy-nat chain istio-inbound: File exists"):
        backend.commit(change)
    assert describe_state(inside) == before


@pytest.mark.users
def test_too_many_networks_for_a_pod_with_its_own_user_namespace_are_an_error_with_the_remedy(readable):
    """There nobody can enlarge a socket's buffer beyond net.core.wmem_max, and a transaction must fit into it."""
    buffer = int(Path("/proc/sys/net/core/wmem_max").read_text())
    if buffer > 500_000:
        pytest.skip(f"net.core.wmem_max is {buffer} here: the transaction fits")
    networks = ",".join(f"{first}.{second}.0.0/17" for first in range(1, 201) for second in range(200))
    code = (
        "import sys; from netinit.backends.nftables import NftablesBackend as B;"
        "from netinit.options import Options, offline; from netinit.rules.layouts import plan;"
        "b = B(); p = plan(Options.from_argv(['-i', '*', '-x', sys.stdin.read()]).settle(offline()));"
        "b.commit(b.observe().compare(p).change())"
    )
    with Pod(user_namespace=True) as pod:
        argv = ["nsenter", "-t", str(pod.pid), "-U", "-n", *readable, sys.executable, "-c", code]
        done = subprocess.run(argv, input=networks, capture_output=True, text=True, check=False)
    assert "BackendUnavailableError" in done.stderr
    assert "Message too long; the rules are too many for one transaction" in done.stderr
    assert "net.core.wmem_max" in done.stderr


def test_the_log_calls_the_rules_committed_where_nobody_has_listed_them(pod):
    first, second = (run_tool(pod, "-b", "*", "-i", "*", "--backend", "nftables") for _ in range(2))
    assert "\tinfo\tFinal nftables state, as committed:\ntable inet istio-proxy-nat {" in first.stderr
    assert "\tinfo\tFinal nftables state:\ntable inet istio-proxy-nat {" in second.stderr
