"""What a change costs: a made-up flag, whose declaration and layout are all that anybody writes, is known to every command."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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
