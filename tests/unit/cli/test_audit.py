"""`netinit audit` as a command line: its formats, its exit codes, and that foreign text commands nobody."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from allpackets import around
from core import parse_listing
from netinit.base.net import IPV4
from netinit.questions.audit.report import examine, to_object
from netinit.questions.pod_rules import PodRules
from netinit.questions.rule_sources import RuleSource
from netinit.simulate.listed_rules import load_listing
from schemas import check_schema
from sweeps import choose

ROOT = Path(__file__).parents[3]
SIDECAR = ["-i", "*", "-b", "*", "-d", "15090,15021,15020", "-u", "1337", "--ipv6=on"]
EXAMPLES = ["pod.yaml", "native-sidecar.yaml"]
PODS = """
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: one}, spec: {initContainers: [{name: istio-init, args: [istio-iptables, -i, "*", -b, "*"]}], containers: [{name: app}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: two}, spec: {initContainers: [{name: istio-init, args: [istio-iptables, -i, "*", -b, "*", -x, 10.0.0.0/8]}], containers: [{name: app}]}}
"""


def ask(run, *words):
    done = run(["netinit", "audit", *words])
    return done, json.loads(done.out) if done.out.startswith("{") else None


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_pass_by_nothing_that_is_not_by_design(run, name):
    done, tree = ask(run, "--pod", str(ROOT / "examples" / name), "--json")
    (pod,) = tree["pods"]
    assert done.code == 0
    assert [(row["kind"], row["who"]) for row in pod["traffic"] if row["by"] != "design"] == []
    assert [row["who"] for row in pod["traffic"] if row["kind"] == "proxy-port"] == [["TCP inbound on port 15021"]]


def test_what_closes_ipv6_that_the_classic_layout_leaves_out_does_close_it(run):
    """The remedy is a value of --ipv6, not a network; with it no IPv6 is uncaptured."""

    def find_uncaptured(ipv6):
        _, tree = ask(run, "-i", "*", "-b", "*", "--layout", "classic", "--ipv6", ipv6, "--json")
        return [row["closes"] for row in tree["pods"][0]["traffic"] if row["kind"] == "uncaptured"]

    assert find_uncaptured("off") == ["--ipv6 on"]
    assert find_uncaptured("on") == []


def test_a_finding_says_who_passes_by_and_what_closes_it(run):
    done = run(["netinit", "audit", *SIDECAR, "-x", "10.0.0.0/8", "--format", "sarif"])
    texts = {one["ruleId"]: one["message"]["text"] for one in json.loads(done.out)["runs"][0]["results"]}
    assert "10.0.0.0/8" in texts["NI209"]
    assert texts["NI209"].endswith("; remove them from --istio-service-exclude-cidr")


@pytest.mark.parametrize("more", [[], *choose([], [["--full"]]), ["--full", "-m", "TPROXY", "--redirect-dns", "--dns-servers", "9.9.9.9"]])
def test_json_is_as_its_schema_says(run, more):
    _, tree = ask(run, *SIDECAR, *more, "--json", "--assert", "tcp is captured", "--assert", "inbound tcp port 80 to pod is captured")
    check_schema(tree, "audit")
    (pod,) = tree["pods"]
    assert all((row["sets"] is None) is ("--full" not in more) for row in pod["traffic"])


def test_with_full_the_default_sidecar_has_at_most_fifteen_lines(run):
    done, _ = ask(run, *SIDECAR, "--full")
    assert sum(not line.startswith(" ") for line in done.out.splitlines()) <= 1 + 15


@pytest.mark.parametrize(
    ("fail_on", "more", "code"),
    [
        (["bypass"], ["-e", "0"], 0), (["bypass"], [], 4), (["bypass:inbound-port"], ["-d", "15021,8080"], 4), (["bypass:network"], [], 0), (["bypass:network"], ["-x", "10.0.0.0/8"], 4),
        (["bypass:design"], [], 4), (["bypass:foreign", "bypass:unknown"], [], 0), (["bypass:configuration"], ["-d", "8080"], 4), ([], ["-x", "10.0.0.0/8"], 0),
    ],
)  # fmt: skip
def test_a_pipeline_stops_at_the_bypasses_that_it_names(run, fail_on, more, code):
    done, _ = ask(run, *SIDECAR, *more, *[word for one in fail_on for word in ("--fail-on", one)])
    assert done.code == code


@pytest.mark.parametrize("wrong", ["everything", "bypass:", "bypass:nothing", "network"])
def test_a_class_that_is_none_is_an_error_that_lists_them(run, wrong):
    done, _ = ask(run, "--fail-on", wrong)
    assert done.code == 2
    assert "inbound-port" in done.err


def test_every_pod_of_a_manifest_is_audited(run, tmp_path):
    file = tmp_path / "pods.yaml"
    file.write_text(PODS)
    done, tree = ask(run, "--pod", str(file), "--json", "--fail-on", "bypass:network")
    assert [pod["name"] for pod in tree["pods"]] == ['Pod "one"', 'Pod "two"']
    assert ["network" in [row["kind"] for row in pod["traffic"]] for pod in tree["pods"]] == [False, True]
    assert done.code == 4


def test_live_rules_without_known_options_have_none_in_the_answer():
    audited = examine(RuleSource("Pod x", PodRules({"iptables-nft": {}}, {IPV4: around(IPV4)})), ())
    assert to_object(audited, full=False)["options"] is None


def test_a_bypass_and_an_assertion_are_objects_with_every_field(run):
    assertion = "outbound ipv4 tcp to 10.1.0.0/16 port 80 not by proxy is captured"
    _, tree = ask(run, *SIDECAR, "-x", "10.0.0.0/8", "--json", "--full", "--assert", assertion)
    (pod,) = tree["pods"]
    (row,) = [one for one in pod["traffic"] if one["kind"] == "network"]
    (ruling,) = pod["assertions"]
    assert (row.pop("packets").isdigit(), ruling.pop("about").isdigit()) == (True, True)
    box = {"protocol": ["tcp"], "state": ["NEW"], "destination": ["10.0.0.0/8"]}
    others = ["0-1336", "1338-4294967295"]
    boxes = [box | {"sent by a socket": ["no"]}, box | {"sent by a socket": ["yes"], "uid": others, "gid": others}]
    because = "these networks are not captured (--istio-service-exclude-cidr)"
    assert row == {
        "kind": "network", "by": "configuration", "title": "networks that are excluded", "directions": ["outbound"], "port": None,
        "who": ["IPv4: TCP outbound to 10.0.0.0/8, uid other than 1337, gid other than 1337"], "because": [because],
        "closes": "remove them from --istio-service-exclude-cidr", "line": None, "column": None,
        "example": "TCP from 192.0.2.10 to 10.0.0.1:8080, sent by uid 1000, gid 1000",
        "sets": [{"family": "IPv4", "direction": "outbound", "boxes": boxes}],
    }  # fmt: skip
    shown = ruling.pop("counterexample")
    assert shown["packet"] == "TCP from 192.0.2.10 to 10.1.0.1:80, sent by uid 1000, gid 1000"
    assert shown["sentence"] == f"direct: goes out to 10.1.0.1:80 through eth0, because {because}"
    assert shown["path"][:3] == [
        "it leaves through eth0: by the routing table", "its connection is NEW", "OUTPUT nat OUTPUT 1: -j ISTIO_OUTPUT",
    ]  # fmt: skip
    cure = {"change": "remove 10.0.0.0/8 from --istio-service-exclude-cidr", "verdict": "captured"}
    assert ruling == {"assertion": assertion, "name": "", "line": None, "result": "refuted", "unless": [], "cures": [cure]}


def test_foreign_rules_are_audited_with_every_port_that_they_redirect_to():
    rules = [f"-A {chain} -p tcp -j REDIRECT --to-ports {port}" for chain, port in (("PREROUTING", 4143), ("OUTPUT", 4140))]
    listing = parse_listing("\n".join(["*nat", ":PREROUTING ACCEPT [0:0]", ":OUTPUT ACCEPT [0:0]", *rules, "COMMIT", ""]))
    audited = examine(RuleSource("Pod x", PodRules({"iptables-nft": {IPV4: load_listing(listing, IPV4)}}, {IPV4: around(IPV4)})), ())
    assert audited.source.warnings == ("no rules of netinit here: what foreign rules redirect to port 4140, 4143 counts as captured",)


@pytest.mark.parametrize(("sentence", "code"), [("outbound tcp not by proxy not to pod is captured", 0), ("tcp is captured", 4)])
def test_an_assertion_that_is_not_proved_fails_the_command(run, sentence, code):
    done, _ = ask(run, *SIDECAR, "--assert", sentence)
    assert done.code == code
    assert ("✔ proved: " if not code else "✘ refuted: ") + sentence in done.out


PRIVILEGED = """
apiVersion: v1
kind: Pod
metadata: {name: one}
spec:
  initContainers: [{name: istio-init, args: [istio-iptables, -i, "*", -b, "*", --ipv6, "on"], securityContext: {capabilities: {add: [NET_ADMIN]}}}]
  containers:
  - {name: app, securityContext: {privileged: true}}
  - {name: other}
  - {name: istio-proxy, securityContext: {capabilities: {add: [NET_ADMIN]}}}
"""


def test_a_proof_names_the_containers_that_may_change_the_rules(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(PRIVILEGED)
    proved, refuted = "outbound tcp not by proxy not to pod is captured", "tcp is captured"
    done, _ = ask(run, str(file), "--assert", proved, "--assert", refuted)
    condition = 'container "app" changes the rules: it is privileged'
    assert f"✔ proved: {proved}\n    unless {condition}\n✘ refuted: {refuted}\n    counterexample: " in done.out
    assert 'warning: Pod "one": container "app" may change the rules: it is privileged; ' in done.err
    _, tree = ask(run, str(file), "--assert", proved, "--assert", refuted, "--json")
    assert [one["unless"] for one in tree["pods"][0]["assertions"]] == [[condition], []]
    check_schema(tree, "audit")
    file.write_text(PRIVILEGED.replace("privileged: true", "privileged: false"))
    done, tree = ask(run, str(file), "--assert", proved, "--json")
    assert (tree["pods"][0]["assertions"][0]["unless"], tree["pods"][0]["warnings"]) == ([], [])


def test_a_proof_about_many_containers_names_five_and_counts_the_rest(run, tmp_path):
    many = "\n".join(f"  - {{name: a{number}, securityContext: {{privileged: true}}}}" for number in range(8))
    file = tmp_path / "pod.yaml"
    file.write_text(PRIVILEGED.replace("  - {name: other}", many))
    _, tree = ask(run, str(file), "--assert", "outbound tcp not by proxy not to pod is captured", "--json")
    conditions = tree["pods"][0]["assertions"][0]["unless"]
    assert len(conditions) == 6
    assert conditions[-1] == "one of 4 more containers changes the rules"


def test_assertions_come_from_a_file_with_names_and_lines(run, tmp_path):
    file = tmp_path / "assertions.yaml"
    file.write_text("assertions:\n- inbound tcp port 80 to pod is captured\n- name: no way out\n  assert: outbound tcp is captured\n")
    done, tree = ask(run, *SIDECAR, "--assert", str(file), "--json")
    assert done.code == 4
    assert [(one["line"], one["name"], one["result"]) for one in tree["pods"][0]["assertions"]] == [(2, "", "proved"), (4, "no way out", "refuted")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("assertions:\n- tcp is captured\n- tcp iz captured\n", "line 3, word 2, 'iz': expected one of"),
        ("rules: []\n", "line 1 is neither a list of assertions nor an object"),
        ("- {sentence: tcp is captured}\n", "line 1 'sentence' is not a field of an assertion"),
        ("- [tcp]\n", "line 1 an assertion is a sentence"),
        ("- 'tcp\n", "assertions.yaml:1:3: this quote is not closed"),
        ("", "is neither a list of assertions"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_by_its_line(run, tmp_path, text, complaint):
    file = tmp_path / "assertions.yaml"
    file.write_text(text)
    done, _ = ask(run, "--assert", str(file))
    assert done.code == 2
    assert complaint in done.err


class Page(HTMLParser):
    """Where a page would load something from, and what it shows."""

    def __init__(self):
        super().__init__()
        self.loads, self.tags, self.text = [], [], ""

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.loads += [value for name, value in attributes if name in {"src", "href", "srcset", "data", "action"}]

    def handle_data(self, data):
        self.text += data


def test_the_page_loads_nothing_and_shows_foreign_names_as_text(run, tmp_path):
    file = tmp_path / "pods.yaml"
    file.write_text(PODS.replace("name: two", 'name: "<script src=//evil>\\u202e"'))
    done, _ = ask(run, "--pod", str(file), "--format", "html", "--assert", "tcp is captured")
    page = Page()
    page.feed(done.out)
    assert all(re.fullmatch(r"#[a-z]+(-\d+)?", link) for link in page.loads), "it leads to places in itself alone"
    assert not {"script", "link", "img", "iframe"} & set(page.tags)
    assert "<script src=//evil>\\u202e" in page.text
    assert "prefers-color-scheme: dark" in done.out


def test_markdown_has_a_table_for_each_pod_and_no_markup_of_others(run, tmp_path):
    file = tmp_path / "pods.yaml"
    file.write_text(PODS.replace("name: two", 'name: "[a](http://b) | <b>"'))
    done, _ = ask(run, "--pod", str(file), "--format", "markdown", "--assert", "tcp is captured")
    assert done.out.count("| by | traffic | who | because | to close it |") == 2
    assert "[a](http" not in done.out
    assert "<b>" not in done.out


@pytest.mark.parametrize(("others", "told"), [((), ""), (((2, "sh"), (3, "sh")), "2 network namespaces of this node without any rule: not of a mesh")])
def test_what_has_no_rules_on_a_node_is_counted_only_where_there_is_any(run, monkeypatch, others, told):
    made = {1: RuleSource("", PodRules({}, {})), **{pid: RuleSource("", PodRules({}, {})) for pid, _ in others}}
    monkeypatch.setattr(PodRules, "has_rules", lambda one: one is made[1].rules)
    monkeypatch.setattr("netinit.cli.audit.command.find_pods", lambda: [(1, "envoy"), *others])
    monkeypatch.setattr("netinit.cli.audit.command.find_rule_source", lambda options, _: made[options.pid])
    done, tree = ask(run, "--all-pods", "--json")
    assert [one["name"] for one in tree["pods"]] == ["pid 1 (envoy)"]
    assert ("without any rule" in done.err, told in done.err) == (bool(others), True)


def test_all_pods_is_for_a_node_alone(run):
    done, _ = ask(run, "--all-pods", "--pod", "x.yaml")
    assert done.code == 2
    assert "--all-pods: names all pods of this node" in done.err
