"""The results of an audit as values: what is a finding, what fails, and the object that JSON is."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from audits import DB, FOREIGN, QUIET, WEB
from netinit.base.errors import OptionError
from netinit.questions.audit import kinds
from netinit.questions.audit.assertions import Assertion, Ruling
from netinit.questions.audit.bypasses import Traffic
from netinit.questions.audit.report import ASSERTION, Audited, fails, list_issues, read_fail_on, to_object
from netinit.questions.audit.text import render_text, summarise
from netinit.questions.findings import Issue
from netinit.questions.pod_rules import PodRules
from netinit.questions.rule_sources import RuleSource

CONFIGURED = {kind.name for kind in kinds.BYPASSES if kind.intent == kinds.CONFIGURATION}
CLASSES = ", ".join(sorted({kind.name for kind in kinds.BYPASSES} | {"foreign", "unknown", "configuration", "design"}))


def traffic(kind, who=("TCP outbound", "UDP outbound"), closes="close it"):
    return Traffic(kind, ("outbound",), 0, who, ("a rule",), closes, ())


def ruling(text="tcp is captured", name="", line=0, *, holds=None):
    return Ruling(Assertion(text, (), frozenset(), "", 0, frozenset(), name, line), holds, 7)


def audited(*found, rulings=(), accepted=None, file="pod.yaml"):
    facts = None if accepted is None else SimpleNamespace(in_doubt=False, file=file, accepted=accepted, place=None)
    return Audited(RuleSource("Pod x", PodRules({}, {}), facts=facts), found, rulings)


def test_bypasses_that_are_not_by_design_are_findings_with_the_severity_of_their_cause():
    shown = [traffic(kind) for kind in (kinds.FOREIGN, kinds.UNKNOWN, kinds.IPV6, kinds.PROXY, kinds.CAPTURED)]
    found = list_issues(audited(*shown), {})
    assert found == [
        Issue(kind.finding, severity, "", f"{kind.title}: TCP outbound; UDP outbound; close it", "Pod x", "", "")
        for kind, severity in ((kinds.FOREIGN, "error"), (kinds.UNKNOWN, "error"), (kinds.IPV6, "warning"))
    ]


def test_assertions_that_are_not_proved_are_findings_with_their_names():
    rulings = (ruling(holds=True), ruling("udp is direct", "no way out", holds=False), ruling("sctp is direct"))
    assert list_issues(audited(rulings=rulings), {}) == [
        Issue(ASSERTION, "error", "no way out", "refuted: udp is direct", "Pod x", "", ""),
        Issue(ASSERTION, "error", "", "unknown: sctp is direct", "Pod x", "", ""),
    ]


def test_a_finding_names_the_manifest_and_why_it_is_accepted():
    code, other = kinds.IPV6.finding.code, kinds.NETWORK.finding.code
    pod = audited(traffic(kinds.IPV6), traffic(kinds.NETWORK), accepted={code: "of the pod", other: "of the pod"})
    assert [(one.file, one.accepted) for one in list_issues(pod, {other: "of the command"})] == [
        ("pod.yaml", "of the pod"), ("pod.yaml", "of the command"),
    ]  # fmt: skip


def test_what_fails_is_a_named_bypass_or_an_unproved_assertion_that_is_not_accepted():
    bypass = audited(traffic(kinds.IPV6))
    assert fails(bypass, frozenset({"ipv6"}), {})
    assert not fails(bypass, frozenset({"network"}), {})
    assert not fails(bypass, frozenset({"ipv6"}), {kinds.IPV6.finding.code: "a reason"})
    assert not fails(audited(traffic(kinds.IPV6), accepted={kinds.IPV6.finding.code: "a reason"}), frozenset({"ipv6"}), {})
    for holds, failed in ((True, False), (False, True), (None, True)):
        assert fails(audited(rulings=(ruling(holds=holds),)), frozenset(), {}) is failed
    assert not fails(audited(rulings=(ruling(holds=False),)), frozenset(), {ASSERTION.code: "a reason"})


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        ([], set()),
        (["bypass"], {kind.name for kind in kinds.BYPASSES if kind.intent != "design"}),
        (["bypass:ipv6"], {"ipv6"}),
        (["bypass:ipv6", "bypass:proxy"], {"ipv6", "proxy"}),
        (["bypass:configuration"], CONFIGURED),
        (["bypass:design"], {kind.name for kind in kinds.BYPASSES if kind.intent == "design"}),
        (["bypass:unknown"], {kind.name for kind in kinds.BYPASSES if kind.intent == "unknown"}),
    ],
)
def test_fail_on_names_kinds_or_causes(texts, found):
    assert read_fail_on(texts) == found


@pytest.mark.parametrize("text", ["", "bypass:", "ipv6", "bypass:captured", "bypass:covered", "other:ipv6"])
def test_fail_on_lists_what_it_knows(text):
    with pytest.raises(OptionError) as error:
        read_fail_on(["bypass", text])
    assert str(error.value) == f"--fail-on: {text!r} is neither bypass nor bypass:CLASS, with CLASS one of {CLASSES}"


def test_a_ruling_is_an_object_with_its_line_and_how_many_packets_it_is_about():
    rulings = (ruling(line=3, holds=True), ruling("udp is direct", "no way out", holds=False), ruling())
    pod = to_object(audited(rulings=rulings), full=False)
    assert (pod["name"], pod["options"], pod["traffic"], pod["notes"], pod["warnings"]) == ("Pod x", None, [], [], [])
    nothing = {"about": "7", "unless": [], "counterexample": None, "cures": []}
    assert pod["assertions"] == [
        {"assertion": "tcp is captured", "name": "", "line": 3, "result": "proved", **nothing},
        {"assertion": "udp is direct", "name": "no way out", "line": None, "result": "refuted", **nothing},
        {"assertion": "tcp is captured", "name": "", "line": None, "result": "unknown", **nothing},
    ]


@pytest.mark.parametrize(
    ("causes", "text"),
    [
        ([], "all traffic goes through the proxy"),
        (["covered"], "all traffic goes through the proxy"),
        (["design", "covered"], "1 kind of traffic bypasses the proxy: 1 by design"),
        (["design", "configuration", "design"],
         "3 kinds of traffic bypass the proxy: 1 because of the configuration, 2 by design"),
        (["unknown", "foreign"], "2 kinds of traffic bypass the proxy: 1 because of foreign rules, 1 that cannot be evaluated"),
    ],
)  # fmt: skip
def test_the_summary_counts_bypasses_by_cause(causes, text):
    assert summarise({"traffic": [{"by": by} for by in causes]}) == text


def test_text_of_several_pods_says_each_thing_once_what_to_act_on_first():
    assert render_text([WEB, DB, QUIET, QUIET | {"name": "Pod still"}], everything=False) == """\
4 pods:
  ✘ in 1, traffic bypasses the proxy because of foreign rules
  ✘ in 1, an assertion is not proved
  ✔ in 3, nothing bypasses it but by design
✘ refuted: no way out: tcp is captured
    in Pod "web"
    counterexample: TCP to 192.0.2.4:80
    direct: no rule
      OUTPUT nat OUTPUT 1: -j X
      direct
    what would change it: without -x: captured
    what would change it: --ipv6 on: refused
? unknown: sctp is direct
    in Pod "web"
✘ what rules of others decide (foreign, foreign)
    in Pod "web"
    TCP inbound
    TCP <out>
    because: rule 1 of nat OUTPUT
    because: rule 2
    to close it: delete the rule
    example: TCP to 192.0.2.1:80
    at: web.yaml:7:9
✔ goes to the proxy on 15001
    in 3 pods: Pod "web", Pod quiet, Pod still
    TCP outbound
    because: all TCP
· what the proxy sends (design, proxy): in 2 pods
    --all says why
✔ proved: udp is direct
    in Pod "web"
    unless container "app" changes the rules: <it> is privileged
✔ proved: ipv6 is refused
    in Pod "web"
    no packet is concerned: this pod has none of these
"""


def test_text_of_one_pod_has_its_bypasses_and_assertions():
    assert render_text([WEB], everything=True) == """\
Pod "web": 2 kinds of traffic bypass the proxy: 1 because of foreign rules, 1 by design
✘ what rules of others decide (foreign, foreign)
    TCP inbound
    TCP <out>
    because: rule 1 of nat OUTPUT
    because: rule 2
    to close it: delete the rule
    example: TCP to 192.0.2.1:80
    at: web.yaml:7:9
· what the proxy sends (design, proxy)
    uid 1337
    because: no loops
✔ goes to the proxy on 15001
    TCP outbound
    because: all TCP
✘ refuted: no way out: tcp is captured
    counterexample: TCP to 192.0.2.4:80
    direct: no rule
      OUTPUT nat OUTPUT 1: -j X
      direct
    what would change it: without -x: captured
    what would change it: --ipv6 on: refused
✔ proved: udp is direct
    unless container "app" changes the rules: <it> is privileged
✔ proved: ipv6 is refused
    no packet is concerned: this pod has none of these
? unknown: sctp is direct
"""


@pytest.mark.parametrize("other", [{"line": 9, "column": 1}, {"packets": "7"}, {"sets": [{"family": "IPv6"}]}])
def test_traffic_that_differs_in_what_text_does_not_show_is_told_once_for_all_pods(other):
    pods = [DB | {"name": name, "traffic": [{**FOREIGN, **more}]} for name, more in (("Pod a", {}), ("Pod b", other))]
    printed = render_text(pods).splitlines()
    assert len([line for line in printed if line.startswith("✘ ")]) == 1, printed
    assert "    in 2 pods: Pod a, Pod b" in printed
    apart = render_text([*pods, DB | {"name": "Pod c", "traffic": [{**FOREIGN, "who": ["UDP outbound"]}]}]).splitlines()
    assert len([line for line in apart if line.startswith("✘ ")]) == 2, "what text shows is told apart"


def test_what_is_by_design_has_a_line_without_reasons():
    assert render_text([DB]) == """\
Pod db: 1 kind of traffic bypasses the proxy: 1 by design
· what the proxy sends (design, proxy)
    --all says why
"""


def test_the_symbol_and_the_summary_show_the_cause_of_a_bypass():
    rows = [FOREIGN | {"by": by} for by in ("design", "configuration", "unknown", "foreign", "foreign")]
    printed = render_text([DB | {"traffic": rows}], everything=True).splitlines()
    assert printed[0] == (
        "Pod db: 5 kinds of traffic bypass the proxy: 2 because of foreign rules, 1 that cannot be evaluated, "
        "1 because of the configuration, 1 by design"
    )
    assert [line[0] for line in printed[1:] if line[0] != " "] == ["·", "!", "?", "✘", "✘"]
