"""`netinit verify`: what it prints and how it ends."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import netinit
from core import plan
from netinit.base.errors import BackendUnavailableError, NamespaceError
from netinit.base.json_answers import with_version
from netinit.base.net import IPV4, IPV6
from netinit.base.snapshot import Snapshot
from netinit.cli import verify as command
from netinit.cli.verify import conclude, render_probes, to_plain
from netinit.options import Options
from netinit.pods.probe.matrix import Ask
from netinit.pods.probe.rows import ProbeResult, Probes
from netinit.questions.plan_comparison import Report
from netinit.questions.verify import render_text
from netinit.rules.infer_options import InferredOptions
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import Difference
from netinit.rules.render import hash_plan
from schemas import check_schema

PLAN = plan(Options(inbound_ports="80", ipv6="on"))
MISSING = Difference(kind="missing", where="IPv4", table="nat", chain="OUTPUT", number=1, rule="-j ISTIO_OUTPUT", purpose="why", origin="always")
DOUBT = Difference(kind="doubt", where="kernel", rule="a rule drops")
OPTIONS = Options(inbound_ports="80")
MAIN = str(Path(netinit.__file__).parent / "__main__.py")


def number_of_rules(family):
    return sum(len(chain.rules) for chains in write_plan(PLAN, family).values() for chain in chains.values())


RULES = number_of_rules(IPV4) + number_of_rules(IPV6)
EQUAL = Report(backend="iptables-nft", plan=PLAN, differences=())
DIFFERENT = EQUAL.replace(differences=(MISSING,))
AS_PLANNED = f"as planned: {RULES} rules for IPv4 and IPv6 (iptables-nft)"
ONE = f"1 difference from the plan of {RULES} rules (iptables-nft)"
OUT = Ask("outbound", IPV4, "TCP", "the application", "an address", "192.0.2.1", 80, uid=1000, gid=1001, source="10.0.0.1")
IN = Ask("inbound", IPV6, "TCP", "a \x1bneighbour", "the pod", "fd00::1", 8080)


def test_packets_are_a_line_each_with_what_was_expected_where_it_differs():
    rows = (
        ProbeResult(OUT, "captured", "captured", right=True),
        ProbeResult(OUT, "captured", "direct", right=False, because="all TCP"),
        ProbeResult(OUT, "captured", "direct", right=False),
        ProbeResult(IN, "captured", "no route", None),
        ProbeResult(IN, "", "not sent", None),
    )
    assert render_probes(Probes(rows)).splitlines() == [
        "✔  IPv4  TCP  the application to an address  192.0.2.1:80    captured",
        "✘  IPv4  TCP  the application to an address  192.0.2.1:80    must be captured (all TCP), but direct",
        "✘  IPv4  TCP  the application to an address  192.0.2.1:80    must be captured, but direct",
        "?  IPv6  TCP  a \\x1bneighbour to the pod     [fd00::1]:8080  captured: no route",
        "?  IPv6  TCP  a \\x1bneighbour to the pod     [fd00::1]:8080  not sent",
        "1 of 5 packets went as planned, 2 did not, 2 not judged",
    ]
    assert render_probes(Probes(rows[:2])).splitlines()[-1] == "1 of 2 packets went as planned, 1 did not"


@pytest.mark.parametrize(
    ("outcomes", "differences", "verdict"),
    [
        ([True, True], (), "as planned: 2 packets went as expected; the rules are as planned\n"),
        ([True, False, None], (), "NOT as planned: 1 of 2 packets went elsewhere; the rules are as planned\n"),
        ([True], (MISSING,), "NOT as planned: the rules differ from the plan; 1 packets went as expected\n"),
        ([False], (MISSING,), "NOT as planned: 1 of 1 packets went elsewhere; the rules differ from the plan\n"),
        ([True], None, "as planned: 1 packets went as expected; the rules could not be compared\n"),
        ([None], (), "not proven: no packet could be judged; the rules are as planned\n"),
    ],
)
def test_the_last_line_of_a_live_comparison_is_its_own_verdict(outcomes, differences, verdict):
    ask = Ask.__new__(Ask)  # its fields do not matter here
    rows = tuple(ProbeResult(ask, "captured", "direct", outcome) for outcome in outcomes)
    report = None if differences is None else Report(backend="iptables-nft", plan=PLAN, differences=differences)
    assert conclude(report, Probes(rows)) == verdict


def test_json_has_every_field_of_a_difference():
    found = with_version(to_plain(Report(backend="nftables", plan=PLAN, differences=(MISSING,), warnings=("mind",))))
    check_schema(found, "verify")
    assert found.pop("version") == 1
    assert found == {
        "ok": False,
        "backend": "nftables",
        "hash": hash_plan(PLAN),
        "differences": [
            {"kind": "missing", "where": "IPv4", "table": "nat", "chain": "OUTPUT", "number": 1, "rule": "-j ISTIO_OUTPUT", "comment": "", "purpose": "why", "origin": "always"}
        ],
        "warnings": ["mind"],
        "options": None, "istio": None, "listeners": [],
    }


def test_json_of_a_namespace_without_rules_is_not_ok():
    assert to_plain(None) == {
        "ok": False, "backend": None, "hash": None, "differences": None, "warnings": [], "options": None, "istio": None,
        "listeners": [],
    }  # fmt: skip


def test_json_of_packets_has_every_field_of_a_probe():
    right = ProbeResult(OUT, "captured", "captured", right=True)
    wrong = ProbeResult(IN, "captured", "direct", right=False, because="all TCP")
    found = to_plain(EQUAL, Probes((right,), ("IPv6 is off",)), Options(inbound_ports="80"))
    check_schema(with_version(found), "verify")
    assert found == {
        "ok": True, "backend": "iptables-nft", "hash": hash_plan(PLAN), "differences": [], "warnings": [], "wrong": 0,
        "notes": ["IPv6 is off"], "options": "netinit apply -b 80", "istio": None, "listeners": [],
        "probes": [{
            "ok": True, "direction": "outbound", "family": "IPv4", "protocol": "TCP", "who": "the application", "uid": 1000,
            "gid": 1001, "target": "an address", "destination": "192.0.2.1", "port": 80, "interface": "", "expected": "captured",
            "observed": "captured", "because": "",
        }],
    }  # fmt: skip
    found = to_plain(None, Probes((right, wrong)))
    check_schema(with_version(found), "verify")
    assert (found["ok"], found["wrong"], found["notes"], found["options"]) == (False, 1, [], None)
    assert {key: found["probes"][1][key] for key in ("ok", "family", "observed", "because")} == {
        "ok": False, "family": "IPv6", "observed": "direct", "because": "all TCP",
    }  # fmt: skip
    assert to_plain(None, Probes((right,)))["ok"] is True
    assert to_plain(DIFFERENT, Probes((right,)))["ok"] is False


class TestCommand:
    """The command, with a comparison and probes that are given."""

    @pytest.fixture
    def compared(self, monkeypatch):
        """What the comparison answers: reports or errors, the last one for ever; `compared.asked` are its arguments."""

        class Compared(list):
            pass

        made = Compared([EQUAL])
        made.asked = []

        def compare(_, target, **more):
            made.asked.append((target, more))
            found = made.pop(0) if len(made) > 1 else made[0]
            if isinstance(found, BaseException):
                raise found
            return found

        monkeypatch.setattr(command, "compare", compare)
        return made

    @pytest.mark.parametrize(
        ("report", "words", "code", "last", "err"),
        [
            (EQUAL, "", 0, AS_PLANNED, ""),
            (DIFFERENT, "", 3, ONE, ""),
            (EQUAL.replace(warnings=("mind",), doubts=("mind",)), "", 0, AS_PLANNED, "warning: mind\n"),
            (EQUAL.replace(doubts=("a rule drops",)), "--strict", 3, ONE, ""),
        ],
    )
    def test_the_code_says_whether_the_rules_differ(self, run, compared, report, words, code, last, err):
        compared[:] = [report]
        options = Options(inbound_ports=(80,), ipv6="on")
        done = run(f"netinit verify -b 80 --ipv6 on {words}")
        assert (done.code, done.out.splitlines()[-1], done.err) == (code, last, err)
        assert compared.asked == [(options, {"connections": False, "snapshot": None})]
        judged = report.replace(differences=(DOUBT,)) if words else report
        tree = json.loads(run(f"netinit verify -b 80 --ipv6 on {words} --json").out)
        assert tree == json.loads(json.dumps(with_version(to_plain(judged, None, options))))

    def test_open_connections_are_judged_on_request(self, run, compared):
        run("netinit verify -b 80 --connections")
        assert compared.asked[0][1] == {"connections": True, "snapshot": None}

    @pytest.mark.parametrize("words", ["", "--json"])
    def test_without_options_and_rules_there_is_nothing_to_compare(self, run, compared, monkeypatch, words):
        monkeypatch.setattr("netinit.pods.live.infer_run", lambda options: None)
        monkeypatch.setattr("netinit.pods.live.read_live", lambda options: SimpleNamespace(rules=SimpleNamespace(other_mesh="", snapshot=Snapshot())))
        done = run(f"netinit verify {words}")
        assert (done.code, done.err, compared.asked) == (3, "", [])
        assert json.loads(done.out) == with_version(to_plain(None)) if words else done.out == "no rules of netinit here\n"

    @pytest.mark.parametrize("recorded", [None, Options(inbound_ports=(80,))])
    def test_options_that_the_rules_show_are_named(self, run, compared, monkeypatch, recorded):
        inferred = InferredOptions(None, unread=("--proxy-uid",), recorded=recorded)
        shown = (Options(inbound_ports=(80,)), "iptables-nft", inferred, "what was read")
        monkeypatch.setattr("netinit.pods.live.infer_run", lambda options: shown)
        done = run("netinit verify")
        origin = "the nft table's comment records" if recorded else "the rules show"
        unread = "" if recorded else "note: iptables-nft: not shown by the rules: --proxy-uid\n"
        assert (done.code, done.err) == (0, f"note: no options were given; those that {origin}: netinit apply -b 80\n{unread}")
        assert compared.asked == [(Options(inbound_ports=(80,)), {"connections": False, "snapshot": "what was read"})]

    def test_options_of_the_agents_record_are_named_and_keep_the_namespace(self, run, compared, monkeypatch):
        recorded = Options(inbound_ports=(80,), netns="/gone")
        monkeypatch.setattr("netinit.library.verify.find_known", lambda options: (recorded, "the agent's record"))
        done = run("netinit verify --netns /run/netns/web")
        told = "note: no options were given; those with which the node's agent programmed the pod: netinit apply -b 80"
        assert done.err.startswith(told)
        assert compared.asked[0][0] == Options(inbound_ports=(80,), netns="/run/netns/web")

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ("--live --watch", "--watch: contradicts --live, which sends packets each time; give one of the two"),
            ("--cleanup-only",
             "--cleanup-only: verify compares with rules; remove it (netinit remove --dry-run lists the rules)"),
        ],
    )  # fmt: skip
    def test_what_it_cannot_do_is_refused(self, run, compared, words, message):
        done = run(f"netinit verify {words}")
        assert (done.code, done.out, compared.asked) == (2, "", [])
        assert f"netinit: {message}\n" in done.err

    def test_the_options_of_a_manifests_pod_are_compared_with_this_namespace(self, run, compared, tmp_path):
        file = tmp_path / "pod.yaml"
        init = {"name": "istio-init", "args": ["-b", "80", "--redirect-dns", "--ipv6", "off"]}
        spec = {"initContainers": [init], "containers": []}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}
        file.write_text(json.dumps(pod))
        done = run(f"netinit verify --pod {file} --netns /run/netns/web --dns-servers 10.0.0.10")
        assert (done.code, done.err) == (0, 'note: Pod "web": options of its init container istio-init\n')
        expected = Options(inbound_ports=(80,), redirect_dns=True, dns_servers=("10.0.0.10",), ipv6="off", netns="/run/netns/web")
        assert compared.asked[0][0] == expected
        done = run(f"netinit verify --pod {file}")
        unnamed = "its name servers are not in the manifest: name them with --dns-servers, DNS counts as not captured without"
        assert done.err == f'note: Pod "web": options of its init container istio-init; {unnamed}\n'
        file.write_text(json.dumps(pod | {"spec": spec | {"hostNetwork": True}}))
        done = run(f"netinit verify --pod {file}")
        assert (done.code, done.out) == (2, "")
        why = 'hostNetwork: true: init container "istio-init" is for the node\'s own network: its rules w'
        assert done.err.startswith(f'netinit: --pod: Pod "web": {why}')

    def test_a_manifests_container_that_may_change_the_rules_is_a_warning(self, run, compared, tmp_path):
        file = tmp_path / "pod.yaml"
        init = {"name": "istio-init", "args": ["-b", "80", "--ipv6", "off"], "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}}
        spec = {"initContainers": [init], "containers": [{"name": "app", "securityContext": {"privileged": True}}]}
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec}))
        told = 'this holds unless container "app" changes the rules: it is privileged'
        done = run(f"netinit verify --pod {file}")
        assert (done.code, done.out.splitlines()[-1]) == (0, AS_PLANNED)
        assert done.err == f'note: Pod "web": options of its init container istio-init\nwarning: {told}\n'
        assert json.loads(run(f"netinit verify --pod {file} --json").out)["warnings"] == [told]

    def test_packets_decide_where_the_rules_cannot_be_read(self, run, compared, monkeypatch):
        compared[:] = [BackendUnavailableError("the rules cannot be read")]
        assert run("netinit verify -b 80").code == 1
        probed = Probes((ProbeResult(OUT, "captured", "captured", right=True),), ("IPv6 is off",))
        monkeypatch.setattr("netinit.pods.probe.rows.probe", lambda target: probed)
        done = run("netinit verify -b 80 --live")
        assert (done.code, done.err) == (0, "warning: the rules cannot be read\nwarning: IPv6 is off\n")
        assert done.out == render_probes(probed) + conclude(None, probed)
        compared[:] = [EQUAL.replace(warnings=("mind",))]
        done = run("netinit verify -b 80 --live")
        assert (done.code, done.err) == (0, "warning: mind\nwarning: IPv6 is off\n")
        assert done.out == render_probes(probed) + render_text(EQUAL) + conclude(EQUAL, probed)
        compared[:] = [DIFFERENT]
        assert run("netinit verify -b 80 --live").code == 3
        wrong = Probes((ProbeResult(OUT, "captured", "direct", right=False),))
        monkeypatch.setattr("netinit.pods.probe.rows.probe", lambda target: wrong)
        assert run("netinit verify -b 80 --live").code == 126


class TestWatch:
    """A comparison that goes on, with changes that are given."""

    @pytest.fixture
    def watch(self, monkeypatch, capsys):
        waited = []

        class Changes:
            def __init__(self, options, *, connections):
                waited.append(("watches", options, connections))

            def __enter__(self):
                return self

            def __exit__(self, *_):
                waited.append("closed")

            def begin_read(self):
                waited.append("reads")

            def wait(self, *, briefly):
                waited.append(("waits", briefly))

        def watch(*reports, as_json=False, connections=False):
            left = list(reports)

            def look():
                found = left.pop(0)
                if isinstance(found, BaseException):
                    raise found
                return found

            waited.clear()
            capsys.readouterr()
            code = command.watch(OPTIONS, look, as_json=as_json, connections=connections)
            assert left == []
            return code, *capsys.readouterr()

        monkeypatch.setattr("netinit.pods.pod_changes.Changes", Changes)
        watch.waited = waited
        return watch

    def test_what_differs_from_the_report_before_is_shown_once(self, watch):
        bypassing = EQUAL.replace(differences=(MISSING.replace(kind="bypassing"),))
        code, out, err = watch(
            EQUAL.replace(warnings=("one",)), EQUAL.replace(warnings=("one", "two")), bypassing,
            EQUAL.replace(backend="nftables"), KeyboardInterrupt(), connections=True,
        )  # fmt: skip
        assert (code, err) == (0, "warning: one\nwarning: two\n")
        assert out == render_text(EQUAL) + render_text(bypassing) + render_text(EQUAL.replace(backend="nftables"))
        waits = [("waits", briefly) for briefly in (False, False, True, False)]
        reads = [step for one in waits for step in ("reads", one)]
        assert watch.waited == [("watches", OPTIONS, True), *reads, "reads", "closed"]

    def test_ctrl_c_ends_it_with_the_last_reports_code(self, watch):
        assert watch(EQUAL, DIFFERENT, KeyboardInterrupt())[0] == 3
        with pytest.raises(KeyboardInterrupt):
            watch(KeyboardInterrupt())

    def test_json_is_a_line_for_each_report_with_the_seconds_since_the_start(self, watch, monkeypatch):
        times = iter((5.0, 6.23456, 8.0))
        monkeypatch.setattr(command.time, "monotonic", lambda: next(times))
        _, out, _ = watch(EQUAL, DIFFERENT, KeyboardInterrupt(), as_json=True)
        expected = [{"seconds": 1.235, **to_plain(EQUAL, None, OPTIONS)}, {"seconds": 3.0, **to_plain(DIFFERENT, None, OPTIONS)}]
        assert [json.loads(line) for line in out.splitlines()] == [with_version(one) for one in expected]

    def test_rules_that_cannot_be_read_for_a_while_are_read_again(self, watch):
        unread = [BackendUnavailableError("they change")] * 5
        assert watch(EQUAL, *unread, EQUAL, *unread, KeyboardInterrupt())[:2] == (0, render_text(EQUAL))
        with pytest.raises(BackendUnavailableError):
            watch(EQUAL, *unread, *unread[:1])
        with pytest.raises(BackendUnavailableError):
            watch(*unread[:1])
        with pytest.raises(NamespaceError):
            watch(EQUAL, NamespaceError("the pod is gone"))


@pytest.mark.netns
def test_verify_ends_with_0_when_all_is_as_planned_and_with_3_when_not():
    netinit = shlex.join([sys.executable, "-I", "-S", MAIN])
    script = f"""
        ip link set lo up
        {netinit} verify -b 80 --ipv6 off; echo $?
        {netinit} apply -b 80 --ipv6 off --log_output_level none; echo $?
        {netinit} verify -b 80 --ipv6 off; echo $?
        {netinit} verify -b 81 --ipv6 off; echo $?
        {netinit} verify --json -b 80 --ipv6 off | head -3
        {netinit} remove --log_output_level none; echo $?
    """
    done = subprocess.run(["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.isdigit()] == ["3", "0", "0", "3", "0"]
    assert any(line.startswith("as planned: ") for line in lines)
    assert any(line.startswith("extra: IPv4 nat ISTIO_INBOUND rule 2: -p tcp -m tcp --dport 80") for line in lines)
    assert '  "ok": true,' in lines


def test_a_process_that_does_not_exist_is_an_error_that_names_the_way_out(run):
    done = run("netinit verify --pid 4194304")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("netinit: /proc/4194304/ns/net: No such file or directory")
