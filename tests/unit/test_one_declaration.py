"""What a change costs: a made-up flag and a made-up finding, of which only what CONTRIBUTING names is written, are known to every command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from netinit.options import Interception, interception
from netinit.options import kinds as option_kinds
from option_samples import SAMPLES

ROOT = Path(__file__).parents[2]
WRITTEN = {"netinit/options/interception.py", "netinit/rules/layouts/outbound.py"}  # by hand
GENERATED = {"netinit/data/config.schema.json"}
DECLARATION = """
    exclude_telemetry: bool = ours(
        "--exclude-telemetry", kinds.SWITCH, default=False, layouts=(CURRENT,), annotated=True,
        pod_variable="TELEMETRY_EXCLUDED", bypass="port", help_text="Exclude outbound connections to OTLP's port.")
    loopback_cidr: """
RULE = """    if options.exclude_telemetry:
        otlp = Port(protocol="tcp", ports=(4317,))
        builder.append(NAT, ISTIO_OUTPUT, otlp, to=Return(), why="telemetry is not captured", origin="exclude_telemetry")
    to_proxy = """
SCHEMA = f"import sys, json, pathlib; sys.path.append({str(ROOT / 'tests')!r}); from config_schema import make_schema; from netinit.options.file import SCHEMA; pathlib.Path(SCHEMA).write_text(json.dumps(make_schema()))"
USUAL = ("-b", "*", "-i", "*", "-u", "1337", "--ipv6", "on", "-d", "15090,15021,15020", "-e", "0")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package that has one flag more."""
    root = tmp_path_factory.mktemp("made-up")
    shutil.copytree(ROOT / "netinit", root / "netinit")
    for name, before, after in (
        ("options/interception.py", "\n    loopback_cidr: ", DECLARATION),
        ("rules/layouts/outbound.py", "    to_proxy = ", RULE),
    ):
        path = root / "netinit" / name
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))
    run(root, "-c", SCHEMA)
    return root


def run(root, *arguments, **more):
    """What a Python that has the copy prints."""
    environ = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, *arguments], cwd=root, env=environ, capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def netinit(root, *words, **more):
    return run(root, "-m", "netinit", *words, **more)


READING = """
import sys
from netinit.options import Options, offline
from netinit.rules.infer_options import from_chains
from netinit.rules.layouts import plan

made = plan(Options.from_argv(sys.argv[1:], {}).settle(offline()))
chains = {(table.name, chain.name): [*chain.inserted, *chain.rules] for table in made.tables for chain in table.chains}
live = {family: {place: [rule for rule in rules if family in rule.families] for place, rules in chains.items()} for family in made.families}
found = from_chains(live, {})
print(found.options.exclude_telemetry, found.options.exclude_outbound_ports, found.unread)
"""


def test_its_name_is_in_two_files_and_what_is_generated_from_them(package):
    name = re.compile(r"exclude[-_]telemetry", re.IGNORECASE)
    files = [path for path in (package / "netinit").rglob("*") if path.suffix != ".pyc" and path.is_file()]
    named = {str(path.relative_to(package)) for path in files if name.search(path.read_text(errors="replace"))}
    assert named == WRITTEN | GENERATED
    assert "exclude-telemetry" in json.loads((package / "netinit/data/config.schema.json").read_text())["properties"]


def test_it_is_explained(package):
    words = ("--to", "203.0.113.9:4317", "--uid", "1000")
    assert "  --exclude-telemetry: direct\n" in netinit(package, "explain", *words, *USUAL)
    printed = netinit(package, "explain", *words, *USUAL, "--exclude-telemetry")
    assert "because telemetry is not captured (--exclude-telemetry)" in printed
    assert "  --exclude-telemetry=false: captured\n" in printed


def test_it_is_audited(package):
    (pod,) = json.loads(netinit(package, "audit", "--json", *USUAL, "--exclude-telemetry"))["pods"]
    rows = [row for row in pod["traffic"] if row["kind"] == "port"]
    assert [row["closes"] for row in rows] == ["remove them from --exclude-telemetry"]
    assert "4317" in rows[0]["who"][0]


def test_its_annotation_and_variable_reach_the_pod(package):
    pod = {"metadata": {"name": "web", "annotations": {"netinit.io/exclude-telemetry": "true"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", **pod})
    assert "--exclude-telemetry=true" in netinit(package, "inject", "-f", "-", input=manifest)
    script = (
        "import json; from netinit.options import Options; from netinit.inject.deciding.pod_options import make_cni_options;"
        "made = [make_cni_options(a, e, Options(), uid=None, gid=None).exclude_telemetry"
        " for a, e in (({'netinit.io/exclude-telemetry': 'true'}, {}), ({}, {'TELEMETRY_EXCLUDED': 'true'}), ({}, {}))]; print(json.dumps(made))"
    )
    assert json.loads(run(package, "-c", script)) == [True, True, False]


def test_options_of_a_file_and_help_know_it(package):
    (package / "options.yaml").write_text("exclude-telemetry: true\n")
    assert "--dport 4317 -j RETURN" in netinit(package, "render", "--config", "options.yaml", *USUAL)
    assert "--exclude-telemetry" in netinit(package, "apply", "--help")


def test_it_is_linted(package):
    said = "warning NI002: --exclude-telemetry: counts only with --istio-service-cidr '*'"
    assert said in netinit(package, "lint", "-b", "80", "-e", "0", "--ipv6", "on", "--exclude-telemetry")
    assert netinit(package, "lint", "--minimal", "-b", "80", "--exclude-telemetry") == "netinit apply -b 80\n"
    assert "no problems found" in netinit(package, "lint", *USUAL, "--exclude-telemetry")


@pytest.mark.parametrize("ports", [(), (80,), (80, 4317), (4317, 80)])
@pytest.mark.parametrize("is_on", [False, True])
def test_its_value_is_read_back_from_rules_without_a_line_in_the_reader(package, is_on, ports):
    words = [*USUAL, "-o", ",".join(map(str, ports)), *["--exclude-telemetry"] * is_on]
    if (is_on, ports) == (False, (80, 4317)):
        is_on, ports = True, (80,)  # the same rules
    assert run(package, "-c", READING, *words) == f"{is_on} {ports} ()\n"


# ---- a flag of each kind ----------------------------------------------------------------------------------------------

HOST = "203.0.113.9"
OF_THE_PACKET = {"ports": "{port}", "addresses": f"{HOST}/32"}  # the sample of a list from which explain removes what the packet has
ASKING = """
import json, sys
from netinit.library.explain import explain
from netinit.options import Options

found = {}
for flag, environ, port in json.loads(sys.argv[1]):
    options = Options.from_argv([*sys.argv[2:], *flag], environ)
    one = explain(options, to=f"203.0.113.9:{port}", uid=1000).answers[0].answer
    found[port] = one.verdict, one.changes
print(json.dumps(found))
"""


def list_kinds():
    """The kind of each option that affects rules, once, with its expression in netinit/options/interception.py and a default."""
    names = {id(kind): f"kinds.{name}" for name, kind in vars(option_kinds).items() if isinstance(kind, option_kinds.Kind)}
    names |= {id(kind): name for name, kind in vars(interception).items() if isinstance(kind, option_kinds.Kind)}
    found = {}
    for flag in Interception.flags:
        default = getattr(Interception(), flag.field)
        kind = names.get(id(flag.kind)) or f"kinds.choice{flag.kind.words!r}"
        found.setdefault(flag.kind.metavar, (kind, flag.kind, f"{kind}.read({flag.kind.write(default)!r})"))
    return found


@pytest.fixture(scope="module")
def of_each_kind(tmp_path_factory):
    """A copy of the package with one flag more of each kind: any other value than its default lets a port of its own pass."""
    root = tmp_path_factory.mktemp("kinds")
    shutil.copytree(ROOT / "netinit", root / "netinit")
    declared, rules = [], []
    for number, (kind, _, default) in enumerate(list_kinds().values()):
        declared.append(f'    made_up_{number}: Any = ours("--made-up-{number}", {kind}, default={default}, help_text="Tests made it up.")\n')
        rules.append(f"    if options.made_up_{number} != options.flag('made_up_{number}').default:\n        let_pass = Port(protocol='tcp', ports=({4400 + number},))\n"
                     f"        builder.append(NAT, ISTIO_OUTPUT, let_pass, to=Return(), why='made up', origin='made_up_{number}')\n")
    for name, before, after in (
        ("options/interception.py", "\n    loopback_cidr: ", f"\n{''.join(declared)}    loopback_cidr: "),
        ("rules/layouts/outbound.py", "    to_proxy = ", f"{''.join(rules)}    to_proxy = "),
    ):
        path = root / "netinit" / name
        text = path.read_text()
        assert text.count(before) == 1
        path.write_text(text.replace(before, after))
    return root


def test_a_flag_of_each_kind_is_offered_as_what_would_change_the_answer(of_each_kind):
    asked = []
    for number, (_, kind, _) in enumerate(list_kinds().values()):
        good = OF_THE_PACKET.get(kind.lists, SAMPLES[kind.metavar][0]).format(port=4400 + number)
        asked.append(([f"--made-up-{number}={good}"], {}, 4400 + number))
    found = json.loads(run(of_each_kind, "-c", ASKING, json.dumps(asked), *USUAL))
    assert len(found) > 15
    for number, metavar in enumerate(list_kinds()):
        verdict, changes = found[str(4400 + number)]
        assert verdict == "direct", metavar
        offered = [change for change, after in changes if f"--made-up-{number}" in change and after == "captured"]
        assert offered, f"a flag of the kind {metavar} is never offered: {changes}"


# ---- a finding --------------------------------------------------------------------------------------------------------

LINT = "netinit/questions/lint/options.py"
KIND = """
ODD_PORT = FindingKind("NI099", "odd-port", "Tests made this up. Use another port.")

ERROR, WARNING = """
CHECK = """
def _of_the_run(options: RunOptions) -> Iterator[Finding]:
    if options.outbound_port == 4711:
        yield Finding(WARNING, ODD_PORT, "--envoy-port", f"{options.outbound_port} is odd; use another")
"""


@pytest.fixture(scope="module")
def with_finding(tmp_path_factory):
    """A copy of the package that has one finding more, and one of whose sentences and severities is another."""
    root = tmp_path_factory.mktemp("finding")
    shutil.copytree(ROOT / "netinit", root / "netinit")
    text = (root / LINT).read_text()
    for before, after in (
        ("\nERROR, WARNING = ", KIND),
        ("\ndef _of_the_run(options: RunOptions) -> Iterator[Finding]:\n", CHECK),
        ('WARNING, NO_EFFECT, "--retries",', 'ERROR, NO_EFFECT, "--retries",'),
        ("which ends all attempts; shorten it", "which ends them all; shorten it"),
    ):
        assert text.count(before) == 1, before
        text = text.replace(before, after)
    (root / LINT).write_text(text)
    return root


def netinit_failing(root, *words):
    """What a command of the copy prints that ends with 1."""
    environ = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-m", "netinit", *words], cwd=root, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1, (done.stdout, done.stderr)
    return done.stdout


def test_a_finding_is_written_in_one_file_and_known_to_lint_help_and_pipelines(with_finding):
    words = ("lint", *USUAL, "-p", "4711")
    assert netinit(with_finding, *words) == "warning NI099: --envoy-port: 4711 is odd; use another\n0 errors, 1 warning; netinit help CODE explains them\n"
    assert "no problems found" in netinit(with_finding, *words, "--ignore", "NI099")
    assert netinit(with_finding, "help", "ni099").startswith("NI099 (odd-port)\n\nTests made this up. Use another port.\n")
    (found,) = json.loads(netinit(with_finding, *words, "--json"))["findings"]
    assert (found["code"], found["kind"], found["page"].rpartition("/")[2]) == ("NI099", "odd-port", "findings.html#ni099")
    (sarif,) = json.loads(netinit(with_finding, *words, "--format", "sarif"))["runs"]
    assert [one["shortDescription"]["text"] for one in sarif["tool"]["driver"]["rules"]] == ["Tests made this up. Use another port."]
    script = f"import sys; sys.path.append({str(ROOT / 'tests')!r}); from reference import render_findings; print(render_findings())"
    assert "### NI099\n\n`odd-port`: Tests made this up." in run(with_finding, "-c", script)


def test_a_sentence_and_a_severity_are_changed_in_the_file_of_the_check(with_finding):
    told = netinit_failing(with_finding, "lint", *USUAL, "--retries", "2", "--retry-delay", "90s", "--lock-timeout", "60s")
    assert told.startswith("error NI002: --retries: --retry-delay is not shorter than --lock-timeout, which ends them all; shorten it\n")
