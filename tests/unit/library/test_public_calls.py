"""`netinit.explain`, `audit`, `diff`, `lint` and `verify`: one call gives what the command prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import netinit
from netinit.base.errors import OptionError, ParseError
from netinit.options import Options
from public_calls import compare

ROOT = Path(__file__).parents[3]
POD = str(ROOT / "examples" / "pod.yaml")
NATIVE = str(ROOT / "examples" / "native-sidecar.yaml")
LISTING = str(ROOT / "tests" / "migrations" / "rules" / "linkerd-default.txt")
REPORT, THEIRS = (str(ROOT / "examples" / name) for name in ("report.txt", "tailscale.rules"))
SIDECAR = ("-b", "*", "-i", "*")
OPTIONS = Options(inbound_ports="*", outbound_cidrs="*")
USERS = """
apiVersion: v1
kind: Pod
metadata: {name: users}
spec:
  initContainers: [{name: istio-init, args: [istio-iptables, -b, "*", -i, "*", --exclude-outbound-for-uids, "2000"]}]
  containers:
  - {name: app, securityContext: {runAsUser: 1000}}
  - {name: backup, securityContext: {runAsUser: 2000}}
"""


@pytest.mark.parametrize(
    ("words", "arguments", "named"),
    [
        (["explain", *SIDECAR, "--to", "10.1.2.3:443", "--uid", "1000"], (OPTIONS,), {"to": "10.1.2.3:443", "uid": 1000}),
        (["explain", *SIDECAR, "--to", "[2001:db8:9::5]:443", "--uid", "1000"], (OPTIONS,), {"to": "[2001:db8:9::5]:443", "uid": 1000}),
        (["explain", *SIDECAR, "--to", "[fe80::5]:443", "--all"], (OPTIONS,), {"to": "[fe80::5]:443", "everything": True}),
        (["explain", *SIDECAR, "--from", "10.9.9.9", "--to-port", "80"], (OPTIONS,), {"source": "10.9.9.9", "to_port": 80}),
        (["explain", *SIDECAR, "--to", "10.96.0.10:53", "--udp", "--gid", "7"], (OPTIONS,), {"to": "10.96.0.10:53", "udp": True, "gid": 7}),
        (["explain", "inbound", "--to", "192.0.2.9:80", "--pod-ip", "192.0.2.9", "--interface", "eth1", "--mark", "7"], (),
         {"direction": "inbound", "to": "192.0.2.9:80", "pod_ip": ["192.0.2.9"], "interface": "eth1", "mark": 7}),
        (["explain", "--pod", POD, "--from", "10.9.9.9", "--to", "192.0.2.10:15021"], (), {"pod": POD, "source": "10.9.9.9", "to": "192.0.2.10:15021"}),
        (["explain", "--pod", POD, "--pod", NATIVE, "--to", "10.1.2.3:443"], (), {"pod": [Path(POD), NATIVE], "to": "10.1.2.3:443"}),
        (["audit", *SIDECAR], (OPTIONS,), {}),
        (["audit", POD, "--full"], (), {"pod": POD, "full": True}),
        (["audit", *SIDECAR, "--ipv6", "on", "--assert", "outbound tcp is captured", "--assert", "inbound tcp port 15021 is direct"],
         (OPTIONS.replace(ipv6="on"),), {"assertions": ["outbound tcp is captured", "inbound tcp port 15021 is direct"]}),
        (["diff", "netinit apply -b 80", "netinit apply -b 80,81"], (Options(inbound_ports="80"), Options(inbound_ports="80,81")), {}),
        (["diff", "apply -b 80", "apply -b 80"], ("apply -b 80", "apply -b 80"), {}),
        (["diff", POD, NATIVE, "--full"], (POD, Path(NATIVE)), {"full": True}),
        (["diff", "--pod", POD, "--pod", NATIVE], (), {"pod": [POD, NATIVE]}),
        (["diff", LISTING, "netinit apply -b 80"], (LISTING, Options(inbound_ports="80")), {}),
        (["explain", "--rules", REPORT, "--to", "10.1.2.3:443"], (), {"rules": REPORT, "to": "10.1.2.3:443"}),
        (["audit", "--rules", REPORT], (), {"rules": [REPORT]}),
        (["diff", "--rules", REPORT, "-b", "80"], (Options(inbound_ports="80"),), {"rules": Path(REPORT)}),
        (["verify", "--rules", REPORT, "-b", "80"], (Options(inbound_ports="80"),), {"rules": REPORT}),
        (["verify", *SIDECAR, "--strict", "--rules", THEIRS], (OPTIONS,), {"rules": THEIRS, "strict": True}),
        (["lint", "--rules", REPORT], (), {"rules": REPORT}),
        (["lint", "-b", "15006"], (Options(inbound_ports="15006"),), {}),
        (["lint", *SIDECAR, "--ignore", "NI007"], (OPTIONS,), {"accepted": {"NI007": "ignored by --ignore"}}),
        (["lint", POD, NATIVE], (), {"pod": [POD, NATIVE]}),
    ],
    ids=lambda value: " ".join(Path(one).name for one in value) if isinstance(value, list) else "",
)  # fmt: skip
def test_a_call_gives_the_verdicts_sentences_and_warnings_of_its_command(run, words, arguments, named):
    compare(run, words, arguments, **named)


def test_containers_with_different_answers_are_answered_one_by_one(run, tmp_path):
    file = tmp_path / "users.yaml"
    file.write_text(USERS)
    found = compare(run, ["explain", "--pod", str(file), "--to", "10.1.2.3:443"], pod=file, to="10.1.2.3:443")
    assert [(one.containers, one.answer.verdict) for one in found.answers] == [(("app",), "captured"), (("backup",), "direct")]


def test_what_depends_on_the_addresses_of_a_pod_is_unknown_for_the_library_too():
    """Where nothing says which of a pod's addresses is the first, IPv6 with --ipv6 auto is captured or not."""
    found = netinit.explain(OPTIONS, to="[2001:db8:9::5]:443", uid=1000)
    assert (found.verdict, found.warnings) == ("unknown", ())
    assert found.sentence.endswith("captured where the first is IPv6, direct where it is IPv4")
    assert netinit.explain(OPTIONS, to="[2001:db8:9::5]:443", uid=1000, pod_ip=["2001:db8::1"]).verdict == "captured"


def test_a_pod_may_be_an_object(run):
    container = {"name": "istio-init", "args": ["istio-iptables", "-b", "*", "-i", "*"]}
    tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {"initContainers": [container], "containers": [{"name": "app"}]}}
    found = netinit.explain(pod=tree, to="10.1.2.3:443")
    assert (found.verdict, found.pods[0].source.name) == ("captured", 'Pod "web"')
    assert netinit.audit(pod=tree).pods[0].source.name == 'Pod "web"'
    assert [one.code for one in netinit.lint(pod=tree).errors] == ["NI104"]


def test_the_fewest_options_are_those_of_the_command(run):
    found = netinit.lint(Options(inbound_ports="80", exclude_inbound_ports="81", ipv6="on"))
    assert found.minimal == run("netinit lint --minimal -b 80 -d 81 --ipv6 on").out


def test_results_cannot_be_changed():
    explained, different = netinit.explain(OPTIONS, to="10.1.2.3:443"), netinit.diff("apply -b 80", "apply -b 80")
    for result, field in ((explained, "pods"), (netinit.lint(OPTIONS), "issues"), (netinit.audit(OPTIONS), "pods"), (different, "pairs")):
        with pytest.raises(AttributeError):
            setattr(result, field, ())


@pytest.mark.parametrize(
    ("call", "arguments", "named", "error", "message"),
    [
        ("explain", (OPTIONS,), {"pod": POD, "to": "10.1.2.3:443"}, OptionError, "--istio-inbound-ports: the pod of --pod has its own options; give one of the two"),
        ("explain", (), {"to": "10.1.2.3:443", "pid": 0}, OptionError, "pid: 0 is not the number of a process"),
        ("explain", (), {"to": "10.1.2.3:443", "netns": ""}, OptionError, "netns: is empty; name a network namespace"),
        ("audit", (Options(pid=7),), {"pid": 8}, OptionError, "pid: 8 contradicts 7 of the options; give it once"),
        ("verify", (Options(netns="/a"),), {"netns": "/b"}, OptionError, "netns: '/b' contradicts '/a' of the options; give it once"),
        ("explain", (), {"to": "10.1.2.3:443", "direction": "sideways"}, OptionError, "direction: 'sideways' is not one of outbound, inbound"),
        ("explain", (), {"to": "10.1.2.3:443", "mark": -1}, OptionError, "mark: -1 is not a number from 0 to 4294967295"),
        ("explain", (), {}, OptionError, "--to: the destination is missing"),
        ("explain", (), {"to": "10.1.2.3:443", "select": "web"}, OptionError, "--select: names a pod of --pod"),
        ("explain", (), {"to": "10.1.2.3:443", "pod": "/no/such/file"}, OptionError, "--pod: '/no/such/file' does not exist"),
        ("audit", (), {"pod": {"kind": "Service"}}, ParseError, "the object is not a pod with a spec"),
        ("audit", (), {"assertions": ["captured"]}, OptionError, 'a sentence has the word "is"'),
        ("diff", (), {}, OptionError, "nothing to compare"),
        ("diff", (POD,), {}, OptionError, "after is missing"),
        ("diff", (POD, NATIVE), {"pod": POD}, OptionError, "not several of them"),
        ("diff", (OPTIONS,), {}, OptionError, "nothing to compare"),
        ("diff", (Options(pid=7), "live"), {}, OptionError, "give the namespace whose rules are live as pid or netns of the call"),
        ("diff", (POD, NATIVE), {"pid": 7}, OptionError, "neither side is 'live'"),
        ("lint", (Options(pid=7),), {}, OptionError, "lint ignores them"),
        ("lint", (), {"accepted": {"NI007": ""}}, OptionError, "accepted: 'NI007' has no reason"),
        ("lint", (), {"accepted": {"XX": "why"}}, OptionError, "accepted: 'XX' is not a finding's code"),
        ("verify", (Options(cleanup_only=True),), {}, OptionError, "--cleanup-only: verify compares with rules"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_by_its_name(call, arguments, named, error, message):
    with pytest.raises(error) as raised:
        getattr(netinit, call)(*arguments, **named)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "program",
    ["import netinit.testing", "import netinit; netinit.explain, netinit.audit, netinit.diff, netinit.lint, netinit.verify",
     "import netinit; print(netinit.explain(netinit.Options(outbound_cidrs='*'), to='10.1.2.3:443').text)"],
)  # fmt: skip
def test_the_library_needs_no_command_line(program):
    """Neither click nor the room of the commands is imported: programs that embed netinit have no use for either."""
    listing = "import sys, json; print(json.dumps([one for one in sys.modules if one.split('.')[0] == 'click' or one.startswith('netinit.cli')]))"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{listing}"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert json.loads(done.stdout.splitlines()[-1]) == []
