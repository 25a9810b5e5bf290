"""Whatever names and comments others choose, no output holds a control character or a line that is not ours."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from dataclasses import replace
from unittest import mock

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from core import family_rules, owned_rules, plan, settled
from hostile_texts import ATTACKS, commands, texts
from netinit.base.errors import NetinitError, ParseError
from netinit.base.json_answers import to_json
from netinit.base.net import IPV4, number_of
from netinit.base.sanitize import Lines, escape
from netinit.base.snapshot import NftChain, NftRule, NftTable, Snapshot
from netinit.cli import doctor, findings, start
from netinit.cli import verify as verify_command
from netinit.cli.inject import check as check_inject
from netinit.inject.adding.injection_report import StepResult, Verdict
from netinit.live.snapshot_rules import load_snapshot
from netinit.options import IPTABLES_NFT, Options
from netinit.pods.doctor.examination import Examination
from netinit.pods.doctor.feature_checks import FeatureChecks
from netinit.pods.doctor.findings import ERROR, NOTE, WARNING, Symptom
from netinit.pods.probe.matrix import OUTBOUND, Ask
from netinit.pods.probe.rows import ProbeResult, Probes
from netinit.questions import answers, verify
from netinit.questions.answers import Answered
from netinit.questions.explain import explain
from netinit.questions.findings import Issue
from netinit.questions.lint import report as lint
from netinit.questions.lint.options import OWN_PORT
from netinit.questions.plan_comparison import Report
from netinit.questions.pod_rules import PodRules
from netinit.questions.rule_sources import RuleSource
from netinit.rules.expressions.compat import encode_rule
from netinit.rules.iptables.parse import normalise_rule, parse_rule
from netinit.rules.iptables.write import ListedTable, write_plan
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS, expected_base
from netinit.rules.packet_inputs import Surroundings
from netinit.rules.rule_patterns import layout_patterns
from netinit.simulate.draw import make_picture, render_dot, render_mermaid, render_text
from netinit.simulate.endpoints import make_outbound
from netinit.simulate.engine import simulate
from netinit.simulate.listed_rules import load_listing
from netinit.simulate.ruleset import load_plan
from randomness import some

pytestmark = pytest.mark.usefixtures("templates_parsed_once")

OPTIONS = settled(Options.from_argv(["-i", "*", "-b", "*", "--ipv6", "on", "--istio-exact"]))
PLAN = plan(OPTIONS)
AROUND = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
PACKET = make_outbound(AROUND, "1.2.3.4", 80, uid=1000, gid=1000)
UNHELD = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")  # what no bytes in the kernel read as
COMMENT_SIZE = 256  # struct xt_comment_info
NO_CLOCK = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(NO_CLOCK, max_examples=some(10))


def word(text):
    """As iptables-save writes a word that wants quotes."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def planned():
    """A sidecar's rules as a listing."""
    tables = {}
    for table, chains in write_plan(PLAN, IPV4).items():
        tables[table] = ListedTable(
            policies={name: "ACCEPT" if name in ("OUTPUT", "PREROUTING") else "-" for name in chains},
            rules={name: list(chain.texts) for name, chain in chains.items()},
        )
    return tables


def listing(text, *, where="RETURN"):
    """A sidecar's rules with foreign ones before them, whose every text is hostile."""
    tables = planned()
    nat = tables["nat"]
    foreign = text or "EMPTY"
    nat.policies[foreign], nat.rules[foreign] = "-", [f"-m comment --comment {word(text)} -j RETURN"]
    nat.rules["OUTPUT"][:0] = [
        f"-i {word(text)} -m comment --comment {word(text)} -j ACCEPT",
        f"-p tcp -m comment --comment {word(text)} -j {word(foreign)}",
        f"-m set --match-set {word(text)} dst -p udp -j DROP",
        f"-p udp -j LOG --log-prefix {word(text)}",
        f"-p tcp -m comment --comment {word(text)} -j {where}",
    ]
    return tables


def in_kernel(tables, plans=()):
    """The rules of a listing as they are loaded from iptables-nft's tables in the kernel."""
    chains, rules = [], []
    for table, listed in tables.items():
        for name, specs in listed.rules.items():
            kind, priority = expected_base(table, name) if name in BUILTIN_CHAINS else ("", 0)
            hook = BUILTIN_CHAINS.index(name) if kind else -1
            chains.append(NftChain(family=IPV4.number, table=table, name=name, kind=kind, hook=hook, priority=priority))
            for spec in specs:
                rule = parse_rule(spec, IPV4)
                encoded = encode_rule(rule.matches, rule.target, IPV4, rule.comment)
                rules.append(NftRule(family=IPV4.number, table=table, chain=name, handle=len(rules), expressions=encoded))
    held = tuple(NftTable(family=IPV4.number, name=table) for table in tables)
    snapshot = Snapshot(tables=held, chains=tuple(chains), rules=tuple(rules))
    return load_snapshot(snapshot, plans).rulesets[IPTABLES_NFT][IPV4]


def explained(tables):
    """The rules of a listing; those that the plan would make have its purpose and origin."""
    loaded = load_plan(PLAN, IPV4).tables
    known = {
        (table, name, normalise_rule(one.rule)): one for table, chains in loaded.items() for name, chain in chains.items() for one in chain.rules
    }
    ruleset = load_listing(tables, IPV4)
    for table, chains in ruleset.tables.items():
        for name, chain in chains.items():
            rules = [(one, known.get((table, name, normalise_rule(one.rule)))) for one in chain.rules]
            chains[name] = replace(chain, rules=tuple(
                replace(one, purpose=ours.purpose, origin=ours.origin) if ours else one for one, ours in rules
            ))  # fmt: skip
    return ruleset


def outputs(text, where="RETURN"):
    """Every form in which verify, explain and draw speak of such a namespace; ParseError where the listing is refused."""
    tables = listing(text, where=where)
    ruleset = explained(tables)
    answer = explain(PACKET, ruleset, AROUND, options=OPTIONS)
    written = write_plan(PLAN, IPV4)
    rules = family_rules(tables, owned_rules(IPV4, {IPV4: tables}, written, layout_patterns), written)
    differences = (*rules.find_differences(), *rules.find_shadows())
    report = Report(backend="iptables-nft", plan=PLAN, differences=differences, warnings=(text,))
    picture = make_picture(ruleset, title="live", trace=simulate(PACKET, ruleset, AROUND), caption=answer.sentence)
    return {
        "explain": answers.render_text(answer, everything=True),
        "explain --json": to_json(answers.to_object(RuleSource(text, PodRules({}, {}, {"iptables-nft": OPTIONS}), warnings=(text,)), Answered((text,), "iptables-nft", answer, (text,)), everything=True)),
        "verify": verify.render_text(report),
        "verify --json": to_json(verify_command.to_plain(report)),
        "draw": render_text(picture),
        "draw --format dot": render_dot(picture),
        "draw --format mermaid": render_mermaid(picture),
    }


DEVICES = {name for device in ("eth0", "lo") for name in (device, *[f"{device[:length]}+" for length in range(len(device) + 1)])}


@functools.cache
def benign(where):
    return outputs("benign", where)


@NO_CLOCK
@given(texts, st.sampled_from(["RETURN", "DROP", "OTHER"]))
def test_rules_of_others_command_no_terminal_and_forge_no_line(text, where):
    assume(text not in OWNED_CHAINS | frozenset(BUILTIN_CHAINS) | DEVICES)  # these name another chain, or this packet's device
    try:
        found = outputs(text, where)
    except ParseError:  # refused, and by a message that is on one line
        return
    for name, shown in found.items():
        assert not commands(shown), name
        assert len(shown.splitlines()) == shown.count("\n"), name
    for name in ("explain", "verify", "draw"):
        assert isinstance(found[name], Lines)
        if text and text not in "benign":
            assert found[name].count("\n") == benign(where)[name].count("\n"), f"{name}: a line more or less than with a harmless name"


@NO_CLOCK
@given(texts)
def test_a_foreign_comment_is_quoted_and_never_our_reason(text):
    assume(not UNHELD.search(text) and len(text.encode("utf-8", "surrogateescape")) < COMMENT_SIZE)
    tables = planned()
    tables["nat"].rules["OUTPUT"][:0] = [f"-p tcp -m comment --comment {word(text)} -j RETURN"]
    ruleset = in_kernel(tables, (PLAN,))
    answer = explain(PACKET, ruleset, AROUND, options=OPTIONS)
    first = ruleset.tables["nat"]["OUTPUT"].rules[0]
    assert (first.purpose, first.origin) == ("", None)
    assert answer.trace.cause == answer.trace.hits[0]
    reason = answer.sentence.partition(", because ")[2]
    assert reason.startswith("of a rule that is not netinit's: `-p tcp -j RETURN`" + (' with comment "' if text else " (nat OUTPUT, rule 1)"))


def test_a_rule_of_ours_keeps_its_reason_whatever_somebody_notes_on_it():
    tables = {"nat": ListedTable(policies={"OUTPUT": "ACCEPT", "ISTIO_OUTPUT": "-"}, rules={
        "OUTPUT": ["-j ISTIO_OUTPUT"],
        "ISTIO_OUTPUT": ['-d 127.0.0.1/32 -m comment --comment "the moon is full" -j RETURN'],
    })}  # fmt: skip
    (rule,) = in_kernel(tables, (PLAN,)).tables["nat"]["ISTIO_OUTPUT"].rules
    assert rule.purpose
    assert "moon" not in rule.purpose
    assert rule.comment == "the moon is full"
    unknown = in_kernel(tables).tables["nat"]["ISTIO_OUTPUT"].rules[0]
    assert unknown.purpose == "", "without a plan nobody knows whose rule it is"


def test_verify_quotes_a_comment():
    shown = benign("RETURN")["verify"].splitlines()
    assert "shadowing: IPv4 nat OUTPUT rule 5: `-p tcp -j RETURN` with comment \"benign\"  (precedes netinit's rules and may decide first; a foreign rule)" in shown


@NO_CLOCK
@given(texts)
def test_what_doctor_lint_check_inject_and_probes_repeat_is_harmless(text):
    checked = FeatureChecks("iptables-nft", {"IPv4": {"nat": text}})
    found = tuple(Symptom(kind, text, text, text) for kind in (ERROR, WARNING, NOTE))
    examined = Examination("", (checked,), {"IPv4": frozenset({"nat"})}, found, text)
    tangled = [Issue(OWN_PORT, "error", text, text, f"Pod {text}", text)]
    verdict = Verdict(
        kind="Pod", namespace=text, name=text, injected=True, webhook=text, revision=text, reason=text, error=text,
        chain=(StepResult(step="webhook", outcome="decided", reason=text),), remedies=(text,), warnings=(text,), interception=(text,), findings=(text,),
    )  # fmt: skip
    row = ProbeResult(Ask(OUTBOUND, IPV4, "tcp", text, text, "1.2.3.4", 80), text, text, right=False, because=text)
    probes = Probes((row,), (text,))
    shown = [
        doctor.render_text(examined), to_json(doctor.to_object(examined)), lint.render_text(tangled, [text]), *[findings.render(form, "lint", tangled, [text]) for form in ("json", "sarif", "github")],
        check_inject._table([verdict], webhooks=True), to_json(dataclasses.asdict(verdict)), verify_command.render_probes(probes), to_json(verify_command.to_plain(None, probes)),
    ]  # fmt: skip
    for one in shown:
        assert not commands(one)
        assert len(one.splitlines()) == one.count("\n")
    assert lint.render_text(tangled, [f"Pod {text}"]).count("\n") == 3
    assert findings.render("github", "lint", tangled, [text]).count("\n") == 1
    ET.fromstring(findings.render("junit", "lint", tangled, [f"Pod {text}"]))
    assert verify_command.render_probes(probes).count("\n") == 2
    bare = [line for line in doctor.render_text(examined).splitlines() if line.startswith(("pods ", "OK: pods ", "probably OK"))]
    assert len(bare) == 1, "only our own answer stands at the beginning of a line"


DOT_STRING = r'"(?:[^"\\]|\\.)*"'
DOT_TAG = r'</?(?:table|tr|td|font|b|br)(?: [a-z-]+="[a-z0-9#]*")*/?>'
DOT_LABEL = rf"<(?:{DOT_TAG}|[^<>&]|&(?:amp|lt|gt|quot|#x27);)*>"  # only our tags, and text


@FEW
@given(texts)
def test_graphviz_draws_the_nodes_that_are_there_and_no_others(text):
    dot = shutil.which("dot")
    if dot is None:
        pytest.skip("graphviz is not installed: apt-get install graphviz")
    tables = listing(text)
    made = make_picture(explained(tables), title=text, caption=text)
    source = render_dot(made)
    outside = re.sub(DOT_STRING, "S", re.sub(rf"(?<=label=){DOT_LABEL}(?=[\],])", "S", source))
    assert set(re.findall(r"[^\w\s]", outside)) <= set("[]{}=,;->.")
    drawn = subprocess.run([dot, "-Tsvg"], input=source, capture_output=True, text=True, check=False)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert not commands(drawn.stdout)
    root = ET.fromstring(drawn.stdout)
    kinds = [element.get("class") for element in root.iter("{http://www.w3.org/2000/svg}g")]
    boxes = sum(map(len, made.tables.values()))
    assert kinds.count("node") == boxes + 2
    assert kinds.count("cluster") == len(made.tables)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {"svg", "g", "title", "polygon", "path", "text"}
    written = " ".join(element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")).replace("\xa0", " ")
    assert not commands(written), "an entity became a control character"
    name = text or "EMPTY"
    assert escape(name).split() == [] or " ".join(escape(name).split()) in " ".join(written.split()), "the chain's name is not shown as it is"


LABEL = r'"(?:[^"\n]*)"'
STATEMENTS = (
    r"---", r'title: "(?:[^"\\\n]|\\U[0-9a-f]{8})*"', r"flowchart LR", rf"  subgraph \w+\[{LABEL}\]", r"  end", rf"    \w+\[{LABEL}\]:::(?:lit|builtin|chain)",
    rf"  proxy_\d+\(\[{LABEL}\]\):::proxy", r"  \w+ (?:-->|==>)\|\d+\| \w+", r"  linkStyle \d+ stroke:#\w+", r"  classDef \w+ [\w:#,-]+",
)  # fmt: skip
OURS = re.compile(r"</?b>|<br/>|#\d+;")


@NO_CLOCK
@given(texts)
def test_mermaid_finds_in_a_label_nothing_but_letters_and_codes(text):
    """Only our bold type and line breaks, entity codes, and letters that neither Mermaid, HTML nor Markdown reads."""
    made = make_picture(explained(listing(text)), title=text, caption=text)
    source = render_mermaid(made)
    labels = []
    for line in source.splitlines():
        assert any(re.fullmatch(statement, line) for statement in STATEMENTS), line
        assert "%%" not in line
        if ":::proxy" not in line and not line.startswith("title:"):
            labels += re.findall(LABEL, line)
    assert len(labels) == sum(1 + len(boxes) for boxes in made.tables.values())
    for label in labels:
        left = OURS.sub("", label[1:-1])
        assert not set(left) & set("\"'[]{}|;#%&<>`\\$:@") - {"'"}, label
    names = [OURS.sub(_decoded, label[1:-1]) for label in labels]
    assert any(escape(text or "EMPTY") in name for name in names), "the chain's name is not shown as it is"


def _decoded(found):
    return chr(int(found.group()[1:-1])) if found.group().startswith("#") else ""


def test_different_chains_are_different_nodes():
    tables = {"nat": ListedTable(policies={"OUTPUT": "ACCEPT"}, rules={"OUTPUT": []})}
    names = ["-", "x2dx", "a-b", "ax2dxb", "a_b", "ISTIO_OUTPUT ", "ISTIO_OUTPUT", "x", "x78x"]
    for name in names:
        tables["nat"].policies[name], tables["nat"].rules[name] = "-", ["-j RETURN"]
    source = render_mermaid(make_picture(load_listing(tables, IPV4), title="t"))
    nodes = re.findall(r"^    (\w+)\[", source, re.MULTILINE)
    assert len(nodes) == len(set(nodes)) == len(names)


def refuse(text):
    """In place of what would change this machine's own rules: some of the texts are good options."""

    def fail(*_):
        raise NetinitError(f"the lock is held by process 1 ({escape(text)})")

    return fail


LINES = [
    ["explain", "--to"], ["explain", "--to", "1.2.3.4:80", "--uid"], ["explain", "--pod"], ["draw", "--format"], ["draw", "--to"], ["lint", "--pod"],
    ["verify", "--netns"], ["apply", "--netns"], ["apply", "-p"], ["render", "--family"], ["doctor", "--uid"], ["inject", "-f"], ["inject", "--injectConfigFile"],
    ["check-inject", "-f"], ["check-inject", "-f", "/dev/null", "--namespace-labels"], ["version"], [],
]  # fmt: skip


@NO_CLOCK
@given(st.sampled_from(LINES), texts, st.booleans())
def test_errors_repeat_an_argument_harmlessly(line, text, debug):
    text = text.replace("\x00", "")  # no argument of a process can hold one
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), contextlib.suppress(SystemExit),
        mock.patch("netinit.pods.init_run.main", refuse(text)), mock.patch("netinit.cli.doctor.examine", refuse(text)),
    ):  # fmt: skip
        start.run(["netinit", *line, text], {"NETINIT_DEBUG": "true"} if debug else {})
    assert not commands(out.getvalue())
    assert not commands(err.getvalue(), "\n\t")
    known = ("netinit", "warning: ", "note: ", "20", "    ")
    assert all(one.startswith(known) for one in err.getvalue().split("\n") if one), "a line of stderr that is not ours"
    assert debug or max(map(len, err.getvalue().split("\n"))) < 1000, "a long argument is repeated in full"


MANIFEST = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "namespace": "x", "annotations": {}}, "spec": {"containers": [{"name": "app", "image": "app"}]},
}  # fmt: skip


@settings(NO_CLOCK, max_examples=some(15))
@given(text=st.sampled_from(ATTACKS) | texts, host=st.booleans(), key=st.sampled_from(["inject", "includeInboundPorts", "note"]))
def test_a_pods_names_and_annotations_reach_no_terminal(tmp_path_factory, text, host, key):
    text = text.encode("utf-8", "replace").decode()  # a manifest is UTF-8
    pod = json.loads(json.dumps(MANIFEST))
    pod["metadata"] |= {"name": text, "namespace": text}
    names = {"inject": "sidecar.istio.io/inject", "includeInboundPorts": "traffic.sidecar.istio.io/includeInboundPorts", "note": text}
    pod["metadata"]["annotations"] = {names[key]: text}
    pod["spec"]["hostNetwork"] = host
    path = tmp_path_factory.mktemp("pod") / "pod.yaml"
    path.write_text(json.dumps(pod))
    for command in (["inject", "-f"], ["check-inject", "-f"], ["check-inject", "--json", "-f"], ["lint", "--pod"], ["explain", "--to", "1.2.3.4:80", "--pod"]):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            start.run(["netinit", *command, str(path)], {})
        assert not commands(err.getvalue(), "\n\t"), command
        assert all(line.startswith(("netinit", "20", "    ", "===>", "warning", "note", "Pod ")) for line in err.getvalue().split("\n") if line), err.getvalue()
        if command[0] == "inject":
            check_yaml(out.getvalue())
        else:
            assert not commands(out.getvalue()), command


BROKEN = ("{text}", "a: [{text}", "a: '{text}'\n b: {text}", "kind: Pod\nmetadata: {{name: [{text}]}}", "{{{{ {text} }}}}", "templates:\n  sidecar: |\n    {{{{ {text} }}}}\n")


@settings(NO_CLOCK, max_examples=some(15))
@given(text=texts, form=st.sampled_from(BROKEN), debug=st.booleans())
def test_errors_that_quote_a_file_command_nothing(tmp_path_factory, text, form, debug):
    path = tmp_path_factory.mktemp("file") / "x.yaml"
    path.write_bytes(form.format(text=text).encode("utf-8", "surrogatepass"))
    good = path.with_name("good.yaml")
    good.write_text(json.dumps(MANIFEST))
    lines = [["inject", "-f", path], ["check-inject", "-f", path], ["lint", "--pod", path], ["explain", "--to", "1.2.3.4:80", "--pod", path]]
    lines += [["inject", flag, path, "-f", good] for flag in ("--injectConfigFile", "--meshConfigFile", "--valuesFile")]
    for line in lines:
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            start.run(["netinit", *map(str, line)], {"NETINIT_DEBUG": "true"} if debug else {})
        assert not commands(err.getvalue(), "\n\t"), line
        if line[0] != "inject":
            assert not commands(out.getvalue()), line
        assert all(one.startswith(("netinit", "20", "    ", "===>", "warning", "note", "Pod ")) for one in err.getvalue().split("\n") if one), err.getvalue()


def check_yaml(text):
    """The artefact is YAML, whose own escapes hold the controls; it may hold direction marks, as the manifest may."""
    assert not [letter for letter in commands(text) if letter.startswith("'\\x") and letter not in {"'\\xa0'", "'\\xad'"}], "a control character in YAML"
    list(yaml.safe_load_all(text))


def test_the_errors_are_errors():
    """The command lines above reach the code that reports: each fails with the first attack."""
    with mock.patch("netinit.pods.init_run.main", refuse("")), mock.patch("netinit.cli.doctor.examine", refuse("")):
        assert [line for line in LINES if start.run(["netinit", *line, ATTACKS[0]], {}) == 0] == []
