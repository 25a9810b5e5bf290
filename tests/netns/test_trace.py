"""`netinit trace` in pods: the kernel's own trace of real connections, beside what was predicted, on every backend."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import jsonschema
import pytest

import netinit
from hostile_texts import commands
from laboratory import Pod, start_servers
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from prefork import Running
from programming import REDIRECT, TOOL, TPROXY, apply_in, begin_tool, needs, remove_in, run_tool, state
from sweeps import fixtures_in_turn

pytestmark = pytest.mark.netns
OUTSIDE = "203.0.113.7"
WAITS = "note: waiting for"
SCHEMA = json.loads((Path(netinit.__file__).parent / "data" / "trace.schema.json").read_text(encoding="utf-8"))
EVIL = "\x1b]0;pwned\x07\u202eevil"
LOGGER = "/proc/sys/net/netfilter/nf_log/2"
LEFT = (
    "add table inet netinit-trace",
    "add chain inet netinit-trace beginning { type filter hook output priority -350; }",
    "add chain inet netinit-trace logger-2-nf_log_ipv4",
    "add rule inet netinit-trace beginning tcp dport 80 limit rate 5/second meta nftrace set 1",
)


pytest_generate_tests = fixtures_in_turn(backend=("iptables-nft", "iptables-legacy", "libiptc", "nftables"))


@pytest.fixture
def backend(request) -> str:
    needs(request.param)
    return request.param


@contextlib.contextmanager
def tracing(place, *words: str):
    """A running `netinit trace` that waits for packets."""
    process = begin_tool(place, "trace", "--json", *words)
    try:
        told = []
        while not (told and told[-1].startswith(WAITS)):
            told.append(process.stderr.readline())
            assert told[-1], told
        yield process
    finally:
        process.kill()
        process.communicate()


def read_packet(process: Running) -> dict:
    found = json.loads(process.stdout.readline())
    jsonschema.validate(found, SCHEMA)
    return found


def end(process: Running) -> int:
    """The exit code of a run that comes to its end by itself."""
    process.communicate()
    return process.returncode


def tables(pod: Pod) -> str:
    return pod.run(["nft", "list", "tables"], check=True).stdout


def call(pod: Pod, port: int = 80, user: int = APP_ID, **more):
    return pod.connect(OUTSIDE, port, uid=user, gid=user, timeout=0.4, **more)


def test_the_kernels_way_of_outbound_connections_is_the_predicted_one(pod, backend):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "-o", "443", "--backend", backend]))
    before = state(pod)
    with tracing(pod.client, "--pid", str(pod.pid), "--to", f"{OUTSIDE}:80", "--count", "2") as process:
        assert call(pod).server == "proxy"
        captured = read_packet(process)
        assert call(pod, user=PROXY_ID).server == "outside"
        direct = read_packet(process)
        assert end(process) == 0
    assert (captured["verdict"], captured["port"], captured["agrees"], captured["uid"]) == ("captured", 15001, True, APP_ID)
    assert (direct["verdict"], direct["port"], direct["agrees"], direct["gid"]) == ("direct", None, True, PROXY_ID)
    assert {step["seen"] for step in captured["path"]} == {"both"}
    assert [step["chain"] for step in captured["path"]] == ["OUTPUT", "ISTIO_OUTPUT", "ISTIO_REDIRECT"]
    assert state(pod) == before


def test_a_pods_name_servers_are_read_before_its_namespace_is_entered(pod):
    """Without --dns-servers the capture of DNS depends on the pod's own file, which a child inside cannot open."""
    needs("nftables")
    start_servers(pod)
    asked = ["-u", str(PROXY_ID), "-g", str(PROXY_ID), "-i", "*", "-b", "*", "--redirect-dns", "--backend", "nftables"]
    apply_in(pod, Options.from_argv(asked))
    with tracing(pod.client, *asked, "--pid", str(pod.pid), "--to", f"{OUTSIDE}:80") as process:
        assert call(pod).server == "proxy"
        assert read_packet(process)["agrees"] is True


@pytest.mark.parametrize("host", [OUTSIDE, "2001:db8::7"])
def test_both_families_are_traced(pod, backend, host):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]))
    with tracing(pod, "--to", f"[{host}]:80" if ":" in host else f"{host}:80") as process:
        assert pod.connect(host, 80, uid=APP_ID, gid=APP_ID).server == "proxy"
        assert read_packet(process)["agrees"] is True
        assert end(process) == 0


def test_inbound_connections_through_tproxy_are_followed_and_their_sockets_chains_too(pod, backend):
    start_servers(pod, transparent=[15006])
    apply_in(pod, Options.from_argv([*TPROXY, "--backend", backend]))
    with tracing(pod.client, "--pid", str(pod.pid), "inbound", "--to-port", "8080") as process:
        assert pod.client.connect(pod.address, 8080).server == "proxy"
        found = read_packet(process)
        assert end(process) == 0
    assert (found["verdict"], found["port"], found["agrees"]) == ("captured", 15006, True), found
    assert any(step["chain"] == "ISTIO_TPROXY" for step in found["path"])


def test_a_datagram_is_followed(pod, backend):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*TPROXY, "--backend", backend]))
    with tracing(pod, "--udp", "--to", f"{OUTSIDE}:53", "--uid", str(APP_ID)) as process:
        pod.connect(OUTSIDE, 53, udp=True, uid=APP_ID, gid=APP_ID)
        found = read_packet(process)
        assert end(process) == 0
    assert (found["verdict"], found["port"], found["agrees"]) == ("captured", 15053, True), found


def test_only_what_was_asked_for_is_followed(pod):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "nftables"]))
    with tracing(pod, "--to", f"{OUTSIDE}:80", "--uid", str(PROXY_ID)) as process:
        assert call(pod).server == "proxy"
        assert call(pod, 443, PROXY_ID).server == "outside"
        assert call(pod, user=PROXY_ID).server == "outside"
        assert read_packet(process)["uid"] == PROXY_ID
        assert end(process) == 0


def test_a_foreign_rule_before_ours_is_predicted_and_met_and_its_comment_commands_nobody(pod):
    needs("iptables-nft")
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--istio-exact", "--backend", "iptables-nft"]))
    rule = ["-p", "tcp", "--dport", "80", "-m", "comment", "--comment", EVIL, "-j", "ACCEPT"]
    pod.run(["iptables-nft", "-w", "-t", "nat", "-I", "OUTPUT", *rule], check=True)
    process = begin_tool(pod, "trace", "--to", f"{OUTSIDE}:80")
    while not process.stderr.readline().startswith(WAITS):
        pass
    assert call(pod).server == "outside"
    out, err = process.communicate()
    assert process.returncode == 0
    assert "--dport 80" in out
    assert "with comment" in out
    assert not commands(out + err)


@pytest.mark.parametrize("verdict", ["drop", "accept"])
def test_what_a_foreign_table_does_is_shown_and_predicted(pod, backend, verdict):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]))
    pod.run(["nft", "add table ip others; add chain ip others c { type filter hook output priority 10; }"], check=True)
    pod.run(["nft", f'add rule ip others c tcp dport {{ 80, 15001 }} {verdict} comment "ok"'], check=True)
    with tracing(pod, "--to", f"{OUTSIDE}:80") as process:
        call(pod)
        found = read_packet(process)
        assert end(process) == 0
    foreign = [step for step in found["path"] if step["seen"] == "foreign"]
    assert [(step["table"], step["chain"], step["outcome"]) for step in foreign] == [("nft table ip others", "c", verdict)]
    assert found["agrees"] is True
    assert found["verdict"] == ("dropped" if verdict == "drop" else "captured")
    expected = "dropped: it is dropped, because rule 1 of nft table ip others c" if verdict == "drop" else "captured: goes to the proxy on 15001"
    assert found["predicted"].startswith(expected)


@pytest.mark.parametrize(("exact", "verdict"), [(False, "dropped"), (True, "direct")], ids=["", "istio-exact"])
def test_a_connection_that_a_foreign_table_keeps_from_tracking_is_predicted(pod, backend, exact, verdict):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]).replace(istio_exact=exact))
    pod.run(["nft", "add table ip others; add chain ip others c { type filter hook output priority -300; }"], check=True)
    pod.run(["nft", "add rule ip others c tcp dport 80 notrack"], check=True)
    with tracing(pod, "--to", f"{OUTSIDE}:80") as process:
        assert call(pod).server != "proxy"
        found = read_packet(process)
        code = end(process)
    # nft's `ct status` holds of no untracked packet: the same packets are refused by the rule behind the predicted one.
    agrees = backend != "nftables" or exact
    assert (found["verdict"], found["agrees"], code) == (verdict, agrees, 0 if agrees else 3), found["differences"]


def test_a_first_packet_that_is_sent_again_asks_nat_no_more_and_agrees(pod):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "nftables"]))
    pod.client.run(["nft", "add table ip silent; add chain ip silent c { type filter hook prerouting priority 0; }"], check=True)
    pod.client.run(["nft", "add rule ip silent c tcp dport 80 drop"], check=True)
    with tracing(pod, "--to", f"{OUTSIDE}:80", "--count", "2") as process:
        pod.connect(OUTSIDE, 80, uid=PROXY_ID, gid=PROXY_ID, timeout=3.0)
        first, again = read_packet(process), read_packet(process)
        assert end(process) == 0
    assert (first["agrees"], first["notes"]) == (True, [])
    assert again["agrees"] is True
    assert "known before" in again["notes"][0]


def test_rules_that_are_replaced_meanwhile_are_read_anew(pod, backend):
    start_servers(pod)
    options = Options.from_argv([*REDIRECT, "--backend", backend])
    apply_in(pod, options)
    with tracing(pod, "--to", f"{OUTSIDE}:80", "--count", "2") as process:
        remove_in(pod, options)
        assert call(pod).server == "outside"
        first = read_packet(process)
        assert call(pod).server == "outside"
        second = read_packet(process)
        process.wait()
    assert first["verdict"] == second["verdict"] == "direct"
    assert first["agrees"] is None
    assert "replaced" in first["notes"][-1]
    assert second["agrees"] is True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_nothing_is_left(pod, backend, number):
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]))
    before = state(pod)
    for place, words in ((pod, ()), (pod.client, ("--pid", str(pod.pid)))):
        with tracing(place, "--to", f"{OUTSIDE}:80", *words) as process:
            assert "netinit-trace" in tables(pod)
            process.send_signal(number)
            _, err = process.communicate()
        assert process.returncode == 1
        assert "no packet that begins such a connection was seen" in err
        assert "Traceback" not in err
        assert state(pod) == before


def test_after_kill_9_nothing_is_left_or_the_next_run_removes_it(pod, backend):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]))
    before = state(pod)
    with tracing(pod.client, "--pid", str(pod.pid), "--to", f"{OUTSIDE}:80") as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    verified = run_tool(pod, "verify", *REDIRECT)
    assert verified.returncode == 0, verified.stdout
    with tracing(pod, "--to", f"{OUTSIDE}:80") as process:
        assert call(pod).server == "proxy"
        assert read_packet(process)["agrees"] is True
        assert end(process) == 0
    assert state(pod) == before
    assert pod.run(["cat", LOGGER]).stdout == Path(LOGGER).read_text()


def test_a_table_that_a_killed_run_of_an_older_kernel_has_left_confuses_nobody_and_goes_with_the_next_run(pod):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-nft"]))
    clean = state(pod)
    pod.run(["nft", "; ".join(LEFT)], check=True)
    pod.run(["sh", "-c", f"echo nfnetlink_log >{LOGGER}"], check=True)
    told = json.loads(run_tool(pod, "explain", "--live", "--json", "--to", f"{OUTSIDE}:80").stdout)
    assert (told["verdict"], told["warnings"]) == ("captured", [])
    assert run_tool(pod, "verify", *REDIRECT).returncode == 0
    with tracing(pod, "--to", f"{OUTSIDE}:80") as process:
        assert call(pod).server == "proxy"
        assert end(process) == 0
    assert state(pod) == clean
    assert pod.run(["cat", LOGGER]).stdout == "nf_log_ipv4\n"


def test_a_foreign_table_of_the_traces_name_whose_policy_drops_is_not_taken_for_it(pod):
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "nftables"]))
    pod.run(["nft", "add table inet netinit-trace; add chain inet netinit-trace c { type filter hook output priority 0; policy drop; }"], check=True)
    assert json.loads(run_tool(pod, "explain", "--live", "--json", "--to", f"{OUTSIDE}:80").stdout)["verdict"] == "dropped"


@pytest.mark.parametrize(
    ("rule", "verdict"),
    [("tcp dport 80 drop", "dropped"), ("meta mark set 1339", "captured"), ("tcp dport set 81", "captured"), ("tcp checksum set 0", "unknown"), ("tcp dport 80 redirect to :1", "direct")],
)
def test_a_foreign_table_that_takes_the_traces_name_is_not_taken_for_it(pod, rule, verdict):
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-nft"]))
    hook = "type nat hook output priority -110" if "redirect" in rule else "type filter hook output priority -350"
    pod.run(["nft", f"add table inet netinit-trace; add chain inet netinit-trace beginning {{ {hook}; }}"], check=True)
    pod.run(["nft", f"add rule inet netinit-trace beginning {rule}"], check=True)
    told = json.loads(run_tool(pod, "explain", "--live", "--json", "--to", f"{OUTSIDE}:80").stdout)
    assert told["verdict"] == verdict


def test_a_second_trace_of_a_pod_is_refused_and_the_first_goes_on(pod):
    start_servers(pod)
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "nftables"]))
    with tracing(pod, "--to", f"{OUTSIDE}:80") as process:
        second = run_tool(pod.client, "trace", "--pid", str(pod.pid), "--to", f"{OUTSIDE}:443", "--timeout", "1")
        assert second.returncode == 1
        assert "is being traced already" in second.stderr
        assert call(pod).server == "proxy"
        assert read_packet(process)["agrees"] is True
        assert end(process) == 0


def test_the_rules_are_applied_verified_and_removed_while_a_trace_waits(pod, backend):
    clean = state(pod)
    with tracing(pod, "--to", f"{OUTSIDE}:80"):
        apply_in(pod, Options.from_argv([*REDIRECT, "--backend", backend]))
        assert run_tool(pod, "verify", *REDIRECT).returncode == 0
        assert run_tool(pod, "remove").returncode == 0
    while "netinit-trace" in tables(pod):
        pass
    assert state(pod) == clean


@pytest.mark.users
@pytest.mark.parametrize("chosen", ["iptables-nft", "iptables-legacy", "nftables"])
def test_a_pod_of_another_user_namespace_is_traced_by_its_own_numbers(require_netns, chosen):
    needs(chosen)
    with Pod(user_namespace=True) as pod:
        start_servers(pod)
        apply_words = [*REDIRECT, "--backend", chosen, "--pid", str(pod.pid)]
        assert run_tool(pod.client, "apply", *apply_words).returncode == 0
        with tracing(pod.client, "--pid", str(pod.pid), "--to", f"{OUTSIDE}:80") as process:
            user = pod.first_uid + APP_ID
            assert pod.connect(OUTSIDE, 80, uid=user, gid=user).server == "proxy"
            found = read_packet(process)
            assert end(process) == 0
        assert (found["agrees"], found["uid"]) == (True, APP_ID)


def test_the_machines_own_namespace_is_left_alone(pod):
    done = subprocess.run([*TOOL, "trace", "--pid", str(os.getpid()), "--to", f"{OUTSIDE}:80", "--timeout", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "nothing was changed" in done.stderr
    assert "--host-network" in done.stderr


def test_a_table_that_a_living_program_holds_is_left_to_it(pod):
    with pod.popen(["nft", "-i"], stdin=subprocess.PIPE) as holder:
        holder.stdin.write("add table inet netinit-trace { flags owner; }\nlist tables\n")
        holder.stdin.flush()
        while "netinit-trace" not in tables(pod):
            pass
        done = run_tool(pod, "trace", "--to", f"{OUTSIDE}:80", "--timeout", "1")
        holder.stdin.close()
        holder.stdout.read()
    assert done.returncode == 1
    assert "belongs to another program" in done.stderr


@pytest.mark.parametrize("name", ["2-nf_log_ipv4x", "2-no/such", "99-nf_log_ipv4"])
def test_a_logger_that_nobody_can_have_remembered_is_not_put_back(pod, name):
    pod.run(["nft", "add table inet netinit-trace"], check=True)
    pod.run(["nft", f'add chain inet netinit-trace "logger-{name}"'], check=False)
    done = run_tool(pod, "trace", "--to", f"{OUTSIDE}:80", "--timeout", "0.2")
    assert done.returncode == 1
    assert "internal error" not in done.stderr
    assert pod.run(["cat", LOGGER]).stdout == "nf_log_ipv4\n"


def test_without_a_packet_it_says_so_and_what_to_do(pod):
    done = run_tool(pod, "trace", "--to", f"{OUTSIDE}:80", "--timeout", "0.2")
    assert done.returncode == 1
    assert "make the connection while this waits" in done.stderr


@pytest.mark.parametrize(("words", "named"), [(("--to", OUTSIDE), "--to-port"), (("--to", "nowhere:80"), "--to"), (("--count", "0"), "--count")])
def test_a_question_that_is_none_is_refused_by_name(pod, words, named):
    done = run_tool(pod, "trace", *words)
    assert done.returncode == 2
    assert named in done.stderr


def test_without_net_admin_the_error_names_it(pod):
    apply_in(pod, Options.from_argv(REDIRECT))
    done = run_tool(pod, "trace", "--to", f"{OUTSIDE}:80", "--timeout", "0.2", without=["net_admin"])
    assert done.returncode == 1
    assert "packets cannot be traced: NET_ADMIN is missing" in done.stderr
