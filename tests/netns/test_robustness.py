"""When things go wrong on the kernel: killed, raced, half refused, locked out, without programs or privileges."""

from __future__ import annotations

import fcntl
import os
import threading
import time

import pytest

from lab_state import describe_state
from laboratory import Pod, start_servers
from lacking_kernel import build, lacking
from netinit.base.errors import ApplyError, LockedError
from netinit.base.net import IPV4, IPV6
from netinit.kernel.netlink import NFTA_TABLE_FLAGS, NFTA_TABLE_NAME, NLM_F_CREATE, attribute
from netinit.kernel.nf_tables import NFT_MSG_NEWTABLE, NfTables
from netinit.lab import APP_ID
from netinit.options import Options
from netinit.pods import apply as applying
from programming import (
    REDIRECT,
    SIDECAR,
    TPROXY,
    VARIANTS,
    WITHOUT_PROGRAMS,
    add_foreign_rules,
    apply_in,
    call_on,
    check_same,
    differences_in,
    end,
    listing,
    load,
    needs,
    remove_in,
    run_tool,
    start_tool,
    state,
)
from readable import NOBODY
from sweeps import choose, in_turn, pairs

variants = in_turn("variant", VARIANTS)
POD = {4: "10.77.0.2", 6: "fd77::2"}
OUTSIDE = {4: "203.0.113.7", 6: "2001:db8::7"}


# At the same time


@pytest.mark.parametrize(("variant", "runs"), pairs(VARIANTS, [2, 5]))
def test_runs_at_the_same_time_end_as_one(pod, variant, runs):
    needs(variant)
    options = Options.from_argv([*TPROXY, "--backend", variant])
    apply_in(pod, options)
    wanted = state(pod)
    remove_in(pod)

    processes = [start_tool(pod, *TPROXY, "--backend", variant, "--lock-timeout", "4m") for _ in range(runs)]
    said = [end(process) for process in processes]

    assert [process.returncode for process in processes] == [0] * runs, said
    assert sum("nothing to do" in text for text in said) == runs - 1, said
    check_same(state(pod), wanted, "not as one run")


def test_the_lock_of_the_namespace_is_waited_for_and_its_holder_named(pod):
    needs("iptables-nft")
    with pod.entered():
        holder = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        refused = run_tool(pod, *REDIRECT, "--lock-timeout", "100ms")
        assert refused.returncode == 1
        assert f"the network namespace is being programmed by process {os.getpid()} (" in refused.stderr
        assert "ISTIO" not in state(pod)

        waiting = start_tool(pod, *REDIRECT, "--lock-timeout", "20s")
        time.sleep(0.2)
        assert waiting.poll() is None, "it did not wait"
        fcntl.flock(holder, fcntl.LOCK_UN)
        end(waiting)
        assert waiting.returncode == 0
    finally:
        os.close(holder)
    assert differences_in(pod, Options.from_argv(REDIRECT)) == []


def test_the_lock_of_legacy_iptables_is_waited_for_and_its_holder_named(pod, tmp_path):
    needs("iptables-legacy")
    path = tmp_path / "xtables.lock"
    path.touch()
    more = {"env": {"XTABLES_LOCKFILE": str(path)}}
    arguments = (*REDIRECT, "--backend", "iptables-legacy")
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        refused = run_tool(pod, *arguments, "--lock-timeout", "1s", **more)
        assert refused.returncode == 1
        assert f"{path} is held by process {os.getpid()} (" in refused.stderr
        assert "wait for it, or raise --lock-timeout" in refused.stderr
        assert "kernel lacks" not in refused.stderr
        assert "ISTIO" not in state(pod)

        waiting = start_tool(pod, *arguments, "--lock-timeout", "20s", **more)
        time.sleep(0.3)
        assert waiting.poll() is None, "it did not wait"
        fcntl.flock(holder, fcntl.LOCK_UN)
        end(waiting)
        assert waiting.returncode == 0


def test_a_locked_namespace_raises_a_locked_error(pod):
    with pod.entered():
        holder = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(holder, fcntl.LOCK_EX)
            with pytest.raises(LockedError):
                applying.apply(Options(lock_timeout=10**7))
        finally:
            os.close(holder)


# Under traffic


@variants
def test_reconciling_neither_drops_nor_spares_a_connection(pod, variant):
    needs(variant)
    start_servers(pod, transparent=(15006,))
    lives = [
        Options.from_argv([*SIDECAR, "--ipv6", "on", "--reconcile", "--backend", variant, *more])
        for more in (["-o", "9000"], ["-m", "TPROXY", "--drop-invalid"], ["-x", "10.9.0.0/16", "-c", "eth7"])
    ]
    apply_in(pod, lives[-1])
    stop = threading.Event()
    arrivals = []
    callers = [
        threading.Thread(target=call_on, args=(namespace, target, user, stop, arrivals))
        for namespace, target, user in (
            (pod.client, POD[4], 0), (pod.client, POD[6], 0), (pod, OUTSIDE[4], APP_ID), (pod, OUTSIDE[6], APP_ID)
        )
    ]  # fmt: skip
    for caller in callers:
        caller.start()
    try:
        rounds = 0
        while rounds < choose(6, 30) or len(arrivals) < choose(30, 300):
            apply_in(pod, lives[rounds % len(lives)])
            rounds += 1
    finally:
        stop.set()
        for caller in callers:
            caller.join()

    strays = {text for text in arrivals if text not in ("proxy 15001", "proxy 15006")}
    assert strays == set(), f"of {len(arrivals)} connections in {rounds} changes"


# Refused by one family


@pytest.mark.parametrize("there", [False, True], ids=["first run", "reconciling"])
def test_legacy_tables_of_ipv6_that_fail_leave_those_of_ipv4_as_they_were(pod, tmp_path, there):
    needs("iptables-legacy")
    add_foreign_rules(pod, "iptables-legacy")
    if there:
        apply_in(pod, Options.from_argv([*TPROXY, "--backend", "iptables-legacy", "-t", "99", "-r", "98", "-c", "eth9"]))
    before = state(pod)

    failed = run_tool(pod, *TPROXY, "--backend", "iptables-legacy", "--reconcile", prefix=lacking(build(tmp_path), "REDIRECT6"))

    assert failed.returncode == 1
    assert "IPv6: the kernel refuses the new rules of legacy table nat: " in failed.stderr
    assert "xt_REDIRECT" in failed.stderr
    assert "the rollback failed" not in failed.stderr
    check_same(state(pod), before, "not as before")


@pytest.mark.parametrize("there", [False, True], ids=["first run", "reconciling"])
def test_a_table_of_another_process_leaves_both_families_as_they_were_and_auto_goes_on(pod, there):
    """The kernel lets only its owner change it (NFT_TABLE_F_OWNER), so that a real transaction of both families is refused."""
    needs("iptables-nft")
    load(pod, "iptables-nft", IPV4, "*nat\n-A OUTPUT -p tcp -m tcp --dport 9 -j ACCEPT\nCOMMIT\n")
    if there:
        apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-nft"]))
    with pod.entered(), NfTables() as owner:
        table = attribute(NFTA_TABLE_NAME, b"mangle\0") + attribute(NFTA_TABLE_FLAGS, (2).to_bytes(4, "big"))
        assert owner.commit([(IPV6.number, (NFT_MSG_NEWTABLE, NLM_F_CREATE, table))]) == ()
        before = state(pod)
        failed = run_tool(pod, *TPROXY, "--backend", "iptables-nft", "--reconcile")
        assert failed.returncode == 1
        assert "iptables-nft: IPv6 table mangle: Operation not permitted; " in failed.stderr
        assert "another process may own the table" in failed.stderr
        assert "the rollback failed" not in failed.stderr
        check_same(state(pod), before, "not as before")
        if not there:
            needs("iptables-legacy")
            done = run_tool(pod, *TPROXY)
            assert (done.returncode, "programmed by iptables-legacy" in done.stderr) == (0, True), done.stderr


def test_a_variant_without_kernel_support_makes_room_for_the_next(pod, tmp_path):
    for variant in VARIANTS:
        needs(variant)

    done = run_tool(pod, *REDIRECT, prefix=lacking(build(tmp_path), "nfnetlink"))

    assert done.returncode == 0, done.stderr
    assert "programmed by iptables-legacy" in done.stderr
    assert "ISTIO" not in listing(pod, "iptables-nft")
    assert "ISTIO_OUTPUT" in listing(pod, "iptables-legacy")


# Without programs or privileges


HIDE_PROGRAMS = (
    "unshare", "-m", "sh", "-c",
    'for f in /usr/sbin/*tables* /usr/local/sbin/*tables*; do [ -e $f ] && mount --bind /dev/null $(readlink -f $f); done; exec "$@"', "sh",
)  # fmt: skip


@pytest.mark.mounts
def test_without_programs_every_backend_of_iptables_serves(pod):
    for name in VARIANTS:
        before = state(pod)
        done = run_tool(pod, *REDIRECT, "--backend", name, prefix=WITHOUT_PROGRAMS)
        assert (done.returncode, f"programmed by {name}" in done.stderr) == (0, True), done.stderr
        assert run_tool(pod, "--cleanup-only", prefix=WITHOUT_PROGRAMS).returncode == 0
        check_same(state(pod), before, "not as before")
    before = state(pod)
    done = run_tool(pod, *REDIRECT, prefix=WITHOUT_PROGRAMS)
    assert (done.returncode, "programmed by iptables-nft" in done.stderr) == (0, True), done.stderr
    assert run_tool(pod, "--cleanup-only", prefix=WITHOUT_PROGRAMS).returncode == 0
    check_same(state(pod), before, "not as before")


@pytest.mark.mounts
def test_libiptc_removes_what_it_made_where_there_are_no_programs(pod):
    needs("libiptc")
    before = state(pod)
    for arguments in (REDIRECT, ["--cleanup-only"]):
        done = run_tool(pod, *arguments, "--backend", "libiptc", prefix=HIDE_PROGRAMS)
        assert done.returncode == 0, done.stderr
    check_same(state(pod), before, "not as before")


def test_without_privileges_one_line_says_so(pod, readable):
    for prefix in ([*readable, *NOBODY], [*readable, *NOBODY, "--bounding-set=-all", "--inh-caps=-all"]):
        for more in (["--ipv6", "on"], ["--ipv6", "off"], ["--cleanup-only"]):
            failed = run_tool(pod, *SIDECAR, *more, prefix=prefix, env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
            assert failed.returncode == 1
            assert "NET_ADMIN is missing (uid 65534): run the init container with securityContext" in failed.stderr, failed.stderr
            assert len(failed.stderr.splitlines()) == 1, failed.stderr


def test_root_without_net_admin_learns_what_is_missing(pod):
    failed = run_tool(pod, *REDIRECT, without=["net_admin"])

    assert failed.returncode == 1
    assert "NET_ADMIN is missing (uid 0)" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1, failed.stderr


# Choosing


def test_choosing_leaves_no_trace_in_an_ipv4_pod(pod_v4only):
    needs("iptables-nft")
    apply_in(pod_v4only, Options.from_argv(SIDECAR))

    assert names_of_legacy_tables(pod_v4only) == ["", ""]
    tables = pod_v4only.run(["sh", "-c", "command -v nft >/dev/null && nft list tables || printf 'table ip nat\\ntable ip filter\\n'"]).stdout
    assert tables == "table ip nat\ntable ip filter\n"
    assert "KUBE" not in describe_state(pod_v4only)


def names_of_legacy_tables(pod):
    return [pod.run(["cat", f"/proc/net/{name}_tables_names"]).stdout for name in ("ip", "ip6")]


def test_auto_follows_rules_of_ours_then_of_others_then_prefers_nft():
    for variant in VARIANTS:
        needs(variant)
    foreign = "*filter\n-A INPUT -p tcp -m tcp --dport 9 -j ACCEPT\nCOMMIT\n"
    options = Options.from_argv(SIDECAR)
    with Pod() as pod:
        load(pod, "iptables-legacy", IPV6, "*nat\nCOMMIT\n")
        assert apply_in(pod, options).backend == "iptables-nft", "an empty legacy table is nobody's"
        load(pod, "iptables-legacy", IPV4, foreign)
        assert apply_in(pod, options).backend == "iptables-nft", "ours are there"
        remove_in(pod)
        assert apply_in(pod, options).backend == "iptables-legacy", "others use legacy"
    with Pod() as pod:
        load(pod, "iptables-nft", IPV4, foreign)
        assert apply_in(pod, options).backend == "iptables-nft"


@variants
def test_a_rule_of_others_before_ours_is_warned_of_by_every_run(pod, variant):
    needs(variant)
    load(pod, variant, IPV4, "*nat\n-A OUTPUT -p tcp -m tcp --dport 9 -j ACCEPT\nCOMMIT\n")
    for _ in range(2):
        outcome = apply_in(pod, Options.from_argv([*REDIRECT, "--backend", variant]))
        assert [text.partition("  (")[0] for text in outcome.warnings] == [
            "shadowing: IPv4 nat OUTPUT rule 1: -p tcp -m tcp --dport 9 -j ACCEPT"
        ]


@pytest.mark.parametrize(
    "words",
    ["route add local default dev lo table 133 proto static", "-6 route add local default dev lo table 133 metric 7", "address add ::6/64 dev lo",
     *choose([], ["route add local default dev lo table 133 src 127.0.0.1", "route add local default dev lo table 133 metric 5"])],
)  # fmt: skip
def test_an_equal_route_or_address_of_others_serves_and_stays(pod, words):
    options = Options.from_argv([*TPROXY, "--backend", "nftables"])
    pod.run(["ip", *words.split()], check=True)
    before = state(pod)
    assert apply_in(pod, options).changed
    own = "::/64 dev lo" if "::6/64" in words else "nothing"  # the prefix of that address is a route into the pod itself
    assert [one for one in differences_in(pod, options) if own not in one] == []
    assert not apply_in(pod, options).changed, "a second run has nothing to do"
    remove_in(pod)
    check_same(state(pod), before, words)


@pytest.mark.parametrize("words", ["unreachable default", "default dev lo"])
def test_another_route_in_the_table_of_marked_packets_is_an_error(pod, words):
    """They would go there instead of to the proxy."""
    pod.run(["ip", "route", "add", *words.split(), "table", "133"], check=True)
    before = state(pod)
    with pytest.raises(ApplyError, match=r"^add -4 route local default dev lo table 133: another default route is in this table"):
        apply_in(pod, Options.from_argv([*TPROXY, "--backend", "nftables"]))
    check_same(state(pod), before, words)
    assert apply_in(pod, Options.from_argv([*TPROXY, "--backend", "nftables", "-r", "134"])).changed


# Hostile values

HOSTILE = (
    ("-p", "15001; touch /tmp/x"),
    ("-p", "0"),
    ("-p", "0x10"),
    ("-p", "٨٠"),
    ("-p", "99999999999999999999"),
    ("-b", "65535-1"),
    ("-b", "80,-1"),
    ("-b", "80\n-A OUTPUT -j DROP"),
    ("-d", "$(reboot)"),
    ("-i", "::ffff:1.2.3.4/97/1"),
    ("-i", "10.0.0.0/33"),
    ("-i", "10.0.0.1"),
    ("-x", "*"),
    ("-u", "root'; -j ACCEPT"),
    ("-u", "-1"),
    ("-g", "4294967295"),
    ("-c", "eth0 -j ACCEPT"),
    ("-c", "abcdefghijklmnop"),
    ("-k", "eth0\nCOMMIT"),
    ("-m", "tproxy\n"),
    ("-t", "0"),
    ("-r", "255"),
    ("-i", "-b"),
    ("--dns-servers", "1.1.1.1 --redirect-dns"),
    ("--layout", "classic\x00"),
    ("--probe-timeout", "-5s"),
    ("--no-such-flag", "1"),
)


def test_hostile_values_end_in_one_line_and_change_nothing(pod):
    needs("iptables-nft")
    apply_in(pod, Options.from_argv(REDIRECT))
    before = describe_state(pod)
    for arguments in HOSTILE:
        if "\x00" in arguments[1]:
            continue  # no argument can hold a NUL: the kernel ends it there
        failed = run_tool(pod, *REDIRECT, "--reconcile", *arguments)
        assert failed.returncode in (1, 2), (arguments, failed.stderr)
        assert failed.stdout == ""
        lines = [line for line in failed.stderr.splitlines() if not line.startswith("Usage:")]
        assert len(lines) in (1, 2), (arguments, lines)
        assert "Traceback" not in failed.stderr
    check_same(describe_state(pod), before, "a hostile value changed something")


def test_every_wrong_value_is_named_at_once(pod):
    failed = run_tool(pod, "istio-iptables", "-p", "0", "-u", "nobody-here", "-i", "10.0.0.0/40")

    assert failed.returncode == 1
    assert all(flag in failed.stderr for flag in ("-p: '0'", "-u: 'nobody-here'", "-i: '10.0.0.0/40'")), failed.stderr
