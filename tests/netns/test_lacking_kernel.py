"""Kernels that lack what only the rules beyond Istio's need: sandboxes such as gVisor, small guests."""

from __future__ import annotations

import json

import pytest

from lacking_kernel import build, lacking
from netinit.base.net import IPV4, IPV6
from netinit.options import Options
from netinit.rules.layouts import plan as plan_for
from netinit.rules.model import OPEN_CHAINS, OTHER
from netinit.rules.promises import OPEN
from programming import needs, run_tool
from sweeps import choose

CAPTURED = ("-b", "*", "-i", "*", "--ipv6", "on")
# What gVisor lacks of what our rules need (gvisor#12685), nf_tables among it
SANDBOX = ("conntrack", "addrtype", "multiport", "socket", "connmark", "comment", "REJECT", "CT", "TPROXY", "raw", "nfnetlink")
XTABLES = ("iptables-nft", "iptables-legacy", "libiptc")
OLD_ENTRIES, OWN_ADDRESSES = OPEN["reuse"], OPEN["own_addresses"]
OF_CONNTRACK = tuple(OPEN[one] for one in OPEN if one in ("reuse", "segments", "handshakes", "own_addresses", "loopback"))
CASES = [
    *[(backend, missing, open_) for backend in XTABLES for missing, open_ in (
        ("addrtype", (OWN_ADDRESSES,)), ("REJECT", (OLD_ENTRIES,)), ("conntrack", OF_CONNTRACK),
    )],
    *[("nftables", missing, open_) for missing, open_ in (("fib", (OWN_ADDRESSES,)), ("reject", (OLD_ENTRIES,)), ("ct", OF_CONNTRACK))],
]  # fmt: skip
BY_BACKEND = [CASES[0], CASES[5], CASES[6], CASES[-3]]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("lacking"))


def words_of(done):
    return [line.split("\t", 2)[-1] for line in done.stderr.splitlines()]


def said_open(done):
    (line,) = [line for line in done.stderr.splitlines() if "this is open: " in line]
    return tuple(line.partition("this is open: ")[2].removeprefix("IPv6: ").split("; "))


@pytest.mark.parametrize(("backend", "missing", "open_"), choose(BY_BACKEND, CASES))
def test_what_the_kernel_cannot_keep_is_left_out_recorded_and_expected(pod, library, backend, missing, open_):
    needs(backend)
    kernel = lacking(library, missing)
    arguments = (*CAPTURED, "--backend", backend)
    done = run_tool(pod, "apply", *arguments, prefix=kernel)
    assert (done.returncode, said_open(done)) == (0, open_), done.stderr
    assert f"this kernel has no {missing}: " in done.stderr

    again = run_tool(pod, "apply", *arguments, prefix=kernel)
    assert (again.returncode, said_open(again)) == (0, open_)
    assert "nothing to do" in again.stdout + again.stderr

    for options in (CAPTURED, ()):  # given, and inferred from the rules
        verified = run_tool(pod, "verify", *options)
        assert (verified.returncode, said_open(verified)) == (0, open_), verified.stdout
        assert "as planned: " in verified.stdout
    assert run_tool(pod, "verify", "--strict", *CAPTURED).returncode == 3

    whole = run_tool(pod, "apply", *arguments, "--reconcile")  # on a kernel that has everything by now
    assert whole.returncode == 0
    assert run_tool(pod, "verify", "--strict", *CAPTURED).returncode == 0
    assert run_tool(pod, "remove").returncode == 0


@pytest.mark.parametrize(("backend", "missing"), [("iptables-legacy", "raw"), ("libiptc", "raw"), ("iptables-legacy", "CT"), ("iptables-nft", "CT")])
def test_what_only_dns_capture_needs_is_named_with_its_option(pod, library, backend, missing):
    needs(backend)
    kernel, dns = lacking(library, missing), ("--redirect-dns", "--dns-servers", "10.96.0.10")
    arguments = (*CAPTURED, "--istio-exact", "--backend", backend)
    done = run_tool(pod, "apply", *arguments, *dns, prefix=kernel)
    assert done.returncode == 1
    assert "; only --redirect-dns needs it: leave that out to do without" in done.stderr, done.stderr
    assert run_tool(pod, "apply", *arguments, prefix=kernel).returncode == 0
    run_tool(pod, "remove")


def test_a_sandbox_gets_istios_rules(pod, library):
    done = run_tool(pod, "apply", *CAPTURED, prefix=lacking(library, *SANDBOX))
    assert done.returncode == 0, done.stderr
    assert "programmed by iptables-legacy" in done.stdout + done.stderr
    assert set(said_open(done)) == {*OF_CONNTRACK, OWN_ADDRESSES}
    assert run_tool(pod, "verify", *CAPTURED).returncode == 0
    assert run_tool(pod, "diff", "--live", *CAPTURED, "--istio-exact").returncode in (0, 3)
    run_tool(pod, "remove")


def test_one_family_gives_way_without_the_other(pod, library):
    needs("iptables-legacy")
    done = run_tool(pod, "apply", *CAPTURED, "--backend", "iptables-legacy", prefix=lacking(library, "REJECT6"))
    assert (done.returncode, said_open(done)) == (0, (OLD_ENTRIES,))
    assert f"IPv6: {OLD_ENTRIES}" in done.stderr
    saved = {family: pod.run([f"{family.program}-legacy-save"]).stdout for family in (IPV4, IPV6)}
    assert ("-j REJECT" in saved[IPV4], "-j REJECT" in saved[IPV6]) == (True, False)
    run_tool(pod, "remove")


@pytest.mark.parametrize("backend", ["iptables-legacy", "nftables"])
def test_require_capture_keeps_the_error_and_names_what_would_be_open(pod, library, backend):
    needs(backend)
    missing = "fib" if backend == "nftables" else "addrtype"
    kernel = lacking(library, missing)
    done = run_tool(pod, "apply", *CAPTURED, "--backend", backend, "--require-capture", prefix=kernel)
    assert done.returncode == 1
    assert OWN_ADDRESSES in done.stderr
    assert "without --require-capture" in done.stderr
    assert run_tool(pod, "verify").returncode == 3  # nothing is there

    assert run_tool(pod, "apply", *CAPTURED, "--backend", backend, prefix=kernel).returncode == 0
    again = run_tool(pod, "apply", *CAPTURED, "--backend", backend, "--require-capture", prefix=kernel)
    assert again.returncode == 1
    assert "--require-capture is set, and the rules here are not whole" in again.stderr
    run_tool(pod, "remove")


def test_istios_own_rules_do_not_give_way(pod, library):
    needs("iptables-legacy")
    for names, arguments in ((("owner",), ()), (("TPROXY",), ("-m", "TPROXY")), (("CT",), ("--redirect-dns", "--dns-servers", "10.9.9.9"))):
        done = run_tool(pod, "apply", *CAPTURED, *arguments, "--backend", "iptables-legacy", prefix=lacking(library, *names))
        assert done.returncode == 1, done.stderr
        assert names[0] in done.stderr
        assert "this is open" not in done.stderr


def test_another_backend_that_keeps_everything_comes_first(pod, library):
    needs("nftables")
    done = run_tool(pod, "apply", *CAPTURED, prefix=lacking(library, "addrtype"))
    assert done.returncode == 0
    assert "programmed by nftables" in done.stdout + done.stderr
    assert "this is open" not in done.stderr
    run_tool(pod, "remove")


def test_a_record_excuses_no_more_than_its_promise(pod, library):
    needs("iptables-legacy")
    arguments = (*CAPTURED, "--backend", "iptables-legacy")
    assert run_tool(pod, "apply", *arguments, prefix=lacking(library, "addrtype")).returncode == 0
    pod.run(["iptables-legacy", "-F", "ISTIO_DROP"], check=True)
    assert run_tool(pod, "verify", *CAPTURED).returncode == 3
    assert run_tool(pod, "apply", *arguments).returncode == 1
    run_tool(pod, "remove")
    assert run_tool(pod, "apply", *arguments).returncode == 0
    name = next(name for name, promise in OPEN_CHAINS.items() if promise == OTHER)
    for words in (("-N", name), ("-A", name, "-j", "RETURN")):
        pod.run(["iptables-legacy", "-t", "nat", *words], check=True)
    assert f"extra: IPv4 nat {name}" in run_tool(pod, "verify", *CAPTURED).stdout
    run_tool(pod, "remove")


def test_the_doctor_has_a_row_for_each_promise(library, pod):
    done = run_tool(pod, "doctor", "--json", *CAPTURED, prefix=lacking(library, "addrtype", "REJECT6", "nfnetlink"))
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["backend"]) == (0, "iptables-legacy")
    promises = answer["feature_checks"]["iptables-legacy"]["promises"]
    assert promises["IPv4"]["own_addresses"] == {"kept": False, "lacking": "addrtype"}
    assert [promises[family]["reuse"]["kept"] for family in ("IPv4", "IPv6")] == [True, False]
    assert set(promises["IPv6"]) == {rule.promise for *_, rule in plan_for(settled()).walk() if IPV6 in rule.families} - {"", "shared"}
    found = {finding["message"]: finding["subject"] for finding in answer["findings"] if "open: " in finding["message"]}
    assert found == {f"open: {OWN_ADDRESSES} (the kernel has no addrtype)": "IPv4 and IPv6", f"open: {OLD_ENTRIES} (the kernel has no REJECT)": "IPv6"}


def settled():
    from netinit.options import offline

    return Options.from_argv(CAPTURED).settle(offline())
