"""What questions refuse, word for word: the option or object, what is wrong with it, and what to do."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from netinit.base.errors import OptionError
from netinit.base.net import IPV4, IPV6
from netinit.inject.deciding.manifests import workload
from netinit.inject.deciding.podfile import read_facts
from netinit.options import Options
from netinit.questions.canary_fields import find_field_problems
from netinit.questions.comparison import on_common_host, plan_by_name, read_written_options
from netinit.questions.connections import Question
from netinit.questions.finding_codes import read_accepted_codes, read_code
from netinit.questions.findings import NOTE
from netinit.questions.picture import draw_rules
from netinit.questions.repository_check import CheckReport, Entry, read_baseline, with_baseline
from netinit.questions.rule_sources import choose_one, complete_servers, find_planned, refuse_given
from netinit.questions.verify import describe_nothing

DUAL = find_planned(Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on"]))
PODS = [SimpleNamespace(name=f"Pod shop/{name}") for name in "abcdefg"]
ENTRY = {"code": "NI012", "text": "t"}
NOT_A_SIDE = "is neither a file nor options: name a file, write options as 'apply -b 8080', or give live"
NOT_A_BASELINE = "--baseline: 'b.yaml' is not a baseline: it needs version: 1 and findings; write one with --write-baseline"
NOT_A_FINDING = "is not a finding: write file, pod, code and text, as --write-baseline does"


def one_family(family):
    rules = SimpleNamespace(hosts={family: None})
    return SimpleNamespace(rules=rules)


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: read_written_options("a.yaml", {}), f"'a.yaml' {NOT_A_SIDE}"), (lambda: read_written_options("A=1", {}), f"'A=1' {NOT_A_SIDE}"),
        (lambda: read_written_options("", {}), f"'' {NOT_A_SIDE}"), (lambda: read_written_options("apply 'x", {}), "\"apply 'x\": No closing quotation"),
        (lambda: plan_by_name([PODS[0], PODS[1], PODS[0]], "f.yaml"), "'f.yaml': Pod shop/a occurs twice; diff pairs pods by name: rename one, or use a file"),
        (lambda: on_common_host("x", one_family(IPV4), one_family(IPV6), None), "diff: one side has only IPv4 rules, the other IPv6; save those of the same family"),
        (lambda: choose_one(PODS[:2], "f.yaml"), "--pod: 2 pods are in 'f.yaml': choose one with --select (Pod shop/a, Pod shop/b)"),
        (lambda: choose_one(PODS, "f.yaml", ""), "7 pods are in 'f.yaml': choose one with --select (Pod shop/a, Pod shop/b, Pod shop/c, Pod shop/d, Pod shop/e and more)"),
        (lambda: refuse_given({"dns_servers": "--dns-servers", "inbound_ports": "-b"}), "-b: the pod of --pod has its own options; give one of the two"),
        (lambda: refuse_given({"inbound_ports": "-b"}, ""), "-b: the pod of a file has its own options; give one of the two"),
        (lambda: draw_rules(DUAL, Question("", to="10.1.2.3:80"), IPV6), "--family: the connection in question is IPv4; leave one of them out"),
        (lambda: draw_rules(DUAL, Question("inbound")), "inbound: needs a connection; name one with --to or --from"),
        (lambda: draw_rules(DUAL, Question("", to_port="80")), "--to-port: needs a connection; name one with --to or --from"),
        (lambda: read_code("NI999", "--accept"), "--accept: 'NI999' is not a finding's code, such as NI012; `netinit help codes` lists them"),
        (lambda: read_accepted_codes({"NI012": " "}, "accept"), "accept: 'NI012' has no reason; write `NI012: reason`"),
        (lambda: read_accepted_codes({"NI012": 7}, "accept"), "accept: 'NI012' has no reason; write `NI012: reason`"),
        (lambda: read_baseline([], "b.yaml"), NOT_A_BASELINE), (lambda: read_baseline({"version": 2, "findings": []}, "b.yaml"), NOT_A_BASELINE),
        (lambda: read_baseline({"version": 1, "findings": {}}, "b.yaml"), NOT_A_BASELINE),
        *[(lambda entry=entry: read_baseline({"version": 1, "findings": [ENTRY, entry]}, "b.yaml"), f"--baseline: 'b.yaml': entry 2 {NOT_A_FINDING}") for entry in (
            "x", {**ENTRY, "more": "x"}, {**ENTRY, "pod": 7}, {"code": "NI012"}, {"code": "NI012", "text": ""}, {"code": "NI999", "text": "t"}, {"text": "t"})],
    ],
)  # fmt: skip
def test_a_refusal_says_what_is_wrong_and_what_to_do(ask, told):
    with pytest.raises(OptionError) as raised:
        ask()
    assert str(raised.value) == told


def test_options_are_read_of_a_command_line_behind_variables_and_the_program_s_name():
    found = read_written_options("ISTIO_META_DNS_CAPTURE=true netinit apply -b 8080", {"ISTIO_META_DNS_CAPTURE": "false"})
    assert found == Options.from_argv(["-b", "8080"], {"ISTIO_META_DNS_CAPTURE": "true"})


def test_entries_of_a_baseline_are_read_with_what_they_leave_out():
    tree = {"version": 1, "findings": [{**ENTRY, "file": "a.yaml", "pod": "p"}, ENTRY]}
    assert read_baseline(tree, "b.yaml") == (Entry("a.yaml", "p", "NI012", "t"), Entry("", "", "NI012", "t"))


@pytest.mark.parametrize(("file", "is_told"), [("a.yaml", "given/a.yaml"), ("gone.yaml", "gone.yaml"), ("", ""), ("other.yaml", None)])
def test_an_entry_that_no_longer_occurs_is_a_note_where_its_file_was_read_or_is_gone(file, is_told):
    report = with_baseline(CheckReport((), (), (), strict=False, passed=""), [Entry(file, "p", "NI012", "t")], "b.yaml", {"given/a.yaml": "a.yaml"}, ["gone.yaml"])
    told = [(one.severity, one.pod, one.file, one.text) for one in report.issues]
    assert told == ([] if is_told is None else [(NOTE, "p", is_told, "NI012 of the baseline no longer occurs (t); delete the entry")])


@pytest.mark.parametrize(("mesh", "told"), [("", False), ("Linkerd", True)])
def test_where_rules_are_another_mesh_s_it_is_said_how_to_convert_them(mesh, told):
    more = ": they are Linkerd's; netinit audit and explain read them, netinit convert linkerd finds the options for the same traffic"
    assert describe_nothing(mesh) == f"no rules of netinit here{more if told else ''}"


def pod(container=None, *, kind="containers", **more):
    return {"metadata": {"labels": {"app": "web"}}, "spec": {kind: [{"name": "web", **(container or {})}]}, **more}


QUANTITY = "must be a quantity from 0, such as 100m or 128Mi"
LABEL = "must be at most 63 letters, digits, '-', '_', '.', with a letter or digit at each end"
COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
VARIABLE = "is not a variable's name: it must be of printable ASCII characters but ="


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (pod(), []), (pod({"image": "auto"}), []), (pod({"env": [{"name": "A.b-1"}]}), []),
        (pod(metadata={"labels": {"a": "-x", "b": "x" * 63, "c": "x" * 64}}), [f"label a: '-x' {LABEL}", f"label c: '{'x' * 64}' {LABEL}"]),
        (pod({"env": [{"name": "A="}, {"name": "é"}, {}]}), [f"container web: env: 'A=' {VARIABLE}", f"container web: env: 'é' {VARIABLE}", f"container web: env: '' {VARIABLE}"]),
        (pod({"livenessProbe": {"timeoutSeconds": -1, "periodSeconds": 0}}, kind="initContainers"), ["container web: livenessProbe.timeoutSeconds: -1 must not be negative"]),
        (pod({"resources": {"limits": {"cpu": "1x", "memory": "128Mi"}, "requests": {"cpu": -1}}}), [f"container web: resources.requests.cpu: -1 {QUANTITY}", f"container web: resources.limits.cpu: '1x' {QUANTITY}"]),
        (pod({"resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "0.1", "memory": "1Gi"}}}), []),
        (pod({"resources": {"limits": {"cpu": "0", "memory": 0}, "requests": {"cpu": 0, "memory": "0Mi"}}}), []),
        (pod({"livenessProbe": dict.fromkeys(COUNTS, 0)}), []), (pod({"startupProbe": dict.fromkeys(COUNTS, -1)}), [f"container web: startupProbe.{count}: -1 must not be negative" for count in COUNTS]),
        (pod({"ports": [{"containerPort": port} for port in (1, 65535)]}), []),
        (pod({"ports": [{"containerPort": port} for port in (0, 65536, "80")]}), [f"container web: ports[{at}].containerPort: {shown} must be a port from 1 to 65535" for at, shown in enumerate((0, 65536, "'80'"))]),
    ],
    ids=str,
)  # fmt: skip
def test_a_field_that_the_api_server_would_refuse_is_named_with_its_place(given, told):
    assert list(find_field_problems(given)) == told


def test_options_that_make_no_rules_are_no_rules_that_are_shown():
    assert [*DUAL.rules.options] == ["plan"]
    outside = find_planned(facts=read_facts(workload({"apiVersion": "v1", "kind": "Pod", **pod()}), Options()))
    assert outside.rules.options == {}


NAMED = "the cluster's name servers, which its pods ask first, are not in the manifest: name all with --dns-servers"
MISSING = "its name servers are not in the manifest: name them with --dns-servers, DNS counts as not captured without"


@pytest.mark.parametrize(
    ("own", "only_these", "given", "servers", "notes"),
    [
        ((), False, [], (), (MISSING,)), (("10.1.1.1",), False, [], ("10.1.1.1",), (NAMED,)), (("10.1.1.1",), True, [], ("10.1.1.1",), ()),
        (("10.1.1.1",), False, ["--dns-servers", "10.2.2.2"], ("10.2.2.2",), ()),
    ],
)  # fmt: skip
def test_a_pod_has_the_name_servers_that_are_given_or_its_own_and_what_is_missing_is_noted(own, only_these, given, servers, notes):
    facts = read_facts(workload({"apiVersion": "v1", "kind": "Pod", **pod()}), Options())
    facts = replace(facts, options=Options.from_argv(["-i", "*", "--redirect-dns"]), name_servers=own, only_these=only_these, notes=())
    found = complete_servers(facts, Options.from_argv(given))
    assert (found.options.dns_servers, found.notes) == (servers, notes)
    uncaptured = replace(facts, options=Options.from_argv(["-i", "*"]))
    assert complete_servers(uncaptured, Options.from_argv(given)) is uncaptured


def test_options_alone_have_the_name_servers_that_are_read_once_for_equal_options():
    options, asked, made = Options.from_argv(["-i", "*", "-b", "*", "--redirect-dns", "--ipv6", "off"], {}), [], {}
    for turn in (1, 2):
        source = find_planned(options, read_servers=lambda turn=turn: asked.append(turn) or ("10.0.0.53",), made=made)
        assert (source.rules.made_by.dns_servers, source.name) == (("10.0.0.53",), "the options")
    assert {*asked} == {1}, "equal options have the same rules"
    assert find_planned(options).rules.made_by.dns_servers == ()
