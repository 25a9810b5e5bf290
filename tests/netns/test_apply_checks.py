"""What apply says of rules that are not in force, or that foreign rules go before: at once, and each time it runs.

A real connection says what the pod does; apply must agree with it, and with verify.
"""

from __future__ import annotations

import pytest

from in_force_cases import CAPTURED, ESCAPES, LEGACY, NATIVE, NFT, OPTIONS, connect, do, programmed
from laboratory import Pod, start_servers
from netinit.backends.iptables import ReadingBackend
from netinit.base.net import IPV4
from netinit.options import Options
from programming import FOLDERS, TOOL, apply_in, load, needs, run_tool

LIBIPTC = "libiptc"
CASES = [(what, case, backend) for what, case in ESCAPES.items() for backend in case.backends]
HIDDEN = [what for what, case in ESCAPES.items() if what.startswith(("a jump that", "a match of", "a return in our own chain"))]
# What can be there before the rules are: it names no chain of a table that iptables makes.
BEFORE = ("an own table of NAT", "an own table of NAT by a verdict map", "an own table of NAT inbound", "no tracking by an own table",
          "any address is this host's")  # fmt: skip


def name(one):
    return f"{one[0]} ({one[2]})"


def apply(pod, backend, *options):
    return run_tool(pod, "apply", *OPTIONS, "--backend", backend, *options)


def says(done, case):
    return any(all(word in line for word in case.named) for line in done.stderr.splitlines())


@pytest.mark.parametrize("one", [one for one in CASES if one[0] in BEFORE], ids=name)
def test_a_first_run_names_what_was_there_before_it(one, require_netns):
    what, case, backend = one
    needs(backend)
    with Pod() as pod:
        start_servers(pod, app=(80, 8080, 8081))
        do(pod, case.commands, backend)
        required = apply(pod, backend, *case.options, "--require-capture")
        assert connect(pod, case.direction) == (case.truth[case.direction] if isinstance(case.truth, dict) else case.truth)
        assert (required.returncode, says(required, case)) == (1, True), f"{what}: {required.stderr}"
        assert "the rules are programmed and stay" in required.stderr
        done = apply(pod, backend, *case.options)
        assert (done.returncode, says(done, case)) == (0, True), f"{what}: {done.stderr}"
        assert "nothing to do" in done.stderr, "the run that failed has left the rules in place"


@pytest.mark.parametrize("sets", [True, False], ids=["sets", "plain"])
@pytest.mark.parametrize("backend", [NFT, LEGACY])
def test_a_rule_that_another_program_adds_while_the_first_run_reads_is_kept_and_named(backend, sets, require_netns, monkeypatch):
    needs(backend)
    networks = ",".join(f"10.1.{number}.0/24" for number in range(40))
    options = Options.from_argv([*OPTIONS, "--backend", backend, "-x", networks, "--ipset-threshold", "20" if sets else "0"])
    observe, began = ReadingBackend.observe, []

    def come_between(*given):
        state = observe(*given)
        if not began:
            began.append(True)
            load(pod, backend, IPV4, "*nat\n-A OUTPUT -p tcp --dport 4444 -j ACCEPT\nCOMMIT\n")
        return state

    monkeypatch.setattr(ReadingBackend, "observe", come_between)
    with Pod() as pod:
        done = apply_in(pod, options)
        assert "--dport 4444 -j ACCEPT" in "".join(done.warnings), "captured packets escape there, and nobody is told"
        assert "--dport 4444 -j ACCEPT" in done.rules["IPv4"]
        assert ("--match-set" in done.rules["IPv4"]) is sets
        again = apply_in(pod, options)
        assert (again.changed, again.warnings) == (False, done.warnings)


@pytest.mark.parametrize("one", [one for one in CASES if one[0] in HIDDEN], ids=name)
def test_rules_that_programs_do_not_list_are_other_rules_and_reconcile_replaces_them(one, require_netns):
    what, case, backend = one
    needs(backend)
    pod = programmed(backend)
    try:
        do(pod, case.commands, backend)
        assert connect(pod, case.direction) == case.truth[case.direction]
        done = apply(pod, backend)
        mended = apply(pod, backend, "--reconcile")
        truth = connect(pod, case.direction)
    finally:
        pod.__exit__(None, None, None)
    assert (done.returncode, "--reconcile replaces them" in done.stderr, says(done, case)) == (1, True, True), f"{what}: {done.stderr}"
    assert mended.returncode == 0, mended.stderr
    assert truth == CAPTURED[case.direction]


@pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE, LIBIPTC])
@pytest.mark.parametrize("runs", [1, 2], ids=["first", "second"])
def test_every_backend_looks_at_once_and_again(backend, runs, require_netns):
    needs(backend)
    case = ESCAPES["an own table of NAT"]
    with Pod() as pod:
        start_servers(pod)
        if runs == 2:
            done = apply(pod, backend)
            assert (done.returncode, "escaping" in done.stderr) == (0, False), done.stderr
        do(pod, case.commands, backend)
        done, required = apply(pod, backend), apply(pod, backend, "--require-capture")
        truth = connect(pod, "out")
    assert truth == case.truth["out"]
    assert (done.returncode, says(done, case)) == (0, True), done.stderr
    assert (required.returncode, says(required, case)) == (1, True), required.stderr


@pytest.mark.parametrize("backend", [NFT, LEGACY, NATIVE])
@pytest.mark.parametrize("options", [(), ("-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7", "--drop-invalid"),
                                     ("-o", "22,9000", "-x", "10.0.0.0/8,192.0.2.4/32", "-c", "eth7", "--exclude-cloud-metadata")],
                         ids=["redirect", "tproxy", "lists"])  # fmt: skip
def test_a_second_run_starts_no_program_to_look(backend, options, require_netns, tmp_path):
    needs(backend)
    asked = ("-p", "15001", "-z", "15006", "-u", "1337", "-b", "*", "-i", "*", "--ipv6", "on", *options, "--backend", backend)
    variant = backend.removeprefix("iptables-")
    for program in ["nft", "iptables"] if backend == NATIVE else [f"iptables-{variant}-save", f"ip6tables-{variant}-save"]:
        path = tmp_path / program
        path.write_text(f'#!/bin/sh\necho x >> {tmp_path}/started\nexec /usr/sbin/{program} "$@"\n')
        path.chmod(0o755)
    with Pod() as pod:
        done = run_tool(pod, "apply", *asked)
        assert done.returncode == 0, done.stderr
        again = run_tool(pod, "apply", *asked, env={"PATH": f"{tmp_path}:{FOLDERS}"})
        assert (again.returncode, "nothing to do" in again.stderr) == (0, True), again.stderr
        assert not (tmp_path / "started").exists()
        other = run_tool(pod, "apply", *asked, "-q", "23", env={"PATH": f"{tmp_path}:{FOLDERS}"})
    assert other.returncode == 1, other.stderr
    assert not (tmp_path / "started").exists(), "differences are found without a program too"


NOT_MET = {  # foreign rules, and whether a packet that the plan captures meets their chain
    "nothing": ((), False),
    "an empty chain": (("{program} -t nat -N DOCKER",), False),
    "forwarded packets": (("{program} -t filter -N DOCKER-USER", "{program} -t filter -A FORWARD -j DOCKER-USER", "{program} -P FORWARD DROP"), False),
    "forwarded packets in a table of nft": (("nft add table inet x", "nft add chain inet x f {{ type filter hook forward priority 0; policy drop; }}",
                                             "nft add rule inet x f tcp dport 80 drop"), False),
    "forwarded frames": (("nft add table bridge x", "nft add chain bridge x f {{ type filter hook forward priority 0; }}", "nft add rule bridge x f counter drop"), True),
    "own packets": (("{program} -t filter -A OUTPUT -p udp --dport 9 -j DROP",), True),
}  # fmt: skip


@pytest.mark.parametrize("backend", [NFT, NATIVE])
@pytest.mark.parametrize("what", NOT_MET)
def test_apply_loads_the_prover_only_for_rules_that_planned_packets_meet(require_netns, what, backend):
    needs(backend)
    commands, met = NOT_MET[what]
    with Pod() as pod:
        for command in commands:
            pod.run(["sh", "-ec", command.format(program=NFT).replace("{", "'{").replace("}", "}'")], check=True)
        done = pod.run([TOOL[0], "-X", "importtime", *TOOL[1:], *OPTIONS, "--backend", backend])
        assert done.returncode == 0, done.stderr
        assert ("netinit.live.in_force" in done.stderr) is met
        assert "may divert" not in done.stderr
