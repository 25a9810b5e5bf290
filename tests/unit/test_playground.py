"""The documentation's playground: what its situations answer, what it is given, and what it stands on."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "playground"
SITUATIONS = json.loads((FOLDER / "situations.json").read_text())
VERDICTS = {
    "My pod is in the mesh: does this call go through the proxy?": "captured",
    "The database is called past the proxy, without mTLS": "direct",
    "Calls of one container bypass the proxy": "direct",
    "A service outside of the mesh's networks is not seen": "direct",
    "Clients reach a port past the proxy": "direct",
    "Is the kubelet's probe captured?": "direct",
    "DNS: who answers the pod's queries?": "captured",
    "HTTP/3 and other UDP is not in the proxy's metrics": "direct",
    "IPv6 goes past the proxy": "direct",
    "The application calls its own pod's address": "direct",
    "The pod is not injected": "direct",
    "Rules from a bug report": "captured",
    "What does a change of flags do?": "different",
}
FIELDS = ("input", "other", "select", "assume", "direction", "to", "port", "source", "user", "container", "udp")
POD = """apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec:
  initContainers:
  - {name: istio-init, args: [istio-iptables, -b, '*', -i, '*'], securityContext: {capabilities: {add: [NET_ADMIN]}}}
  containers:
  - {name: web, securityContext: {runAsUser: 1000}}
  - {name: sneaky, securityContext: {runAsUser: 1337}}
  - {name: istio-proxy, securityContext: {runAsUser: 1337}}
"""


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


ANSWERS = load(FOLDER / "answers.py")


def ask(task, **given):
    return json.loads(ANSWERS.answer(task, json.dumps({**dict.fromkeys(FIELDS, ""), **given})))


def fill(situation):
    texts = {name: "\n".join(situation.get(name, [])) for name in ("input", "other")}
    return {**{name: text for name, text in situation.items() if name in FIELDS}, **texts}


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda one: one["title"])
def test_each_situation_answers_as_its_title_says(situation):
    given = fill(situation)
    found = ask("compare" if given["other"] else "connection", **given)
    assert found["verdict"] == VERDICTS[situation["title"]]
    for task in ("rules", "picture", "audit", "lint"):
        assert "error" not in ask(task, **given)


def test_a_pod_that_is_assumed_to_be_injected_is_captured():
    given = fill(next(one for one in SITUATIONS if one["title"] == "The pod is not injected"))
    given["input"] = given["input"].partition("---\n")[2]  # without the namespace, which says that it is not
    assert [ask("connection", **given, assume=one)["verdict"] for one in ("", "injected", "none")] == ["unknown", "captured", "direct"]


def test_the_rules_are_those_that_render_prints(netinit):
    found = ask("rules", input="-b '*' -i '*' --ipv6 on")
    for dialect, form in (("iptables", ["--format", "restore", "--family", "both"]), ("nft", ["--format", "nft"])):
        assert found[dialect] == netinit("render", "-b", "*", "-i", "*", "--ipv6", "on", "--rule-comments", *form)


@pytest.fixture
def netinit(capsys):
    """Runs a command, and returns what it prints."""

    def run(*words):
        from netinit.cli.start import run as run_command

        assert run_command(["netinit", *words], {}) == 0
        return capsys.readouterr().out

    return run


def test_a_container_is_answered_for_by_its_user():
    given = {"input": POD, "to": "203.0.113.7", "port": "443"}
    assert ask("connection", **given)["verdict"] == "several"
    assert ask("connection", **given, container="web")["verdict"] == "captured"
    assert ask("connection", **given, container="sneaky")["verdict"] == "direct"
    assert ask("rules", **given)["containers"] == ["web", "sneaky"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input": " "}, "nothing is pasted"),
        ({"input": "hello"}, "nothing that makes pods, is in pasted"),
        ({"input": "-q"}, "-q: the value is missing"),
        ({"input": "-b 80 --pid 1"}, "a browser sees no network namespace"),
        ({"input": "-b 80", "to": "shop:5432"}, "rules know no names"),
        ({"input": "-b 80", "to": "10.0.0.1", "port": "99999"}, "99999"),
        ({"input": "-b 80", "to": "10.0.0.1:80", "container": "web"}, "flags and rules have none"),
        ({"input": POD, "to": "10.0.0.1:80", "container": "nginx"}, 'container: "nginx" is none of "web", "sneaky"'),
        ({"input": POD, "to": "10.0.0.1:80", "container": "web", "user": "5"}, "give one of the two"),
        ({"input": f"-o {'1,' * (1 << 20)}", "to": "10.0.0.1:80"}, "paste fewer"),
        ({"input": "a: &a [x,x]\n" + "".join([f"a{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '*a'] * 9)}]\n" for n in range(9)])}, "alias"),
        ({"input": "[" * 100_000}, "nested deeper"),
    ],
)
def test_what_cannot_be_answered_says_why(given, said):
    assert said in ask("connection", **given)["error"]


def test_flags_may_stand_as_in_a_shell_or_a_log():
    for text in ("-b 80", "apply -b 80", "netinit apply -b 80", "istio-iptables \\\n  -b 80", "ISTIO_INBOUND_PORTS=80 apply", "  --istio-inbound-ports=80"):
        assert ask("rules", input=text)["text"].startswith("netinit apply -b 80"), text


def test_names_of_a_hostile_pod_are_escaped_and_bounded():
    evil = "x\\u001b[2J\\u202e<script>"
    found = ask("connection", input=POD.replace("NAME", f'"{evil}"').replace("name: web", f'name: "{evil * 99}"'), to="10.0.0.1:80")
    assert "\x1b" not in json.dumps(found, ensure_ascii=False)
    assert "\u202e" not in json.dumps(found, ensure_ascii=False)
    assert ask("rules", input=POD.replace("name: web", f"name: {'w' * 999}"))["containers"] == ["sneaky"]


def test_more_pods_than_a_page_holds_are_counted():
    many = "---\n".join(POD.replace("NAME", f"p{number}") for number in range(12))
    assert ask("connection", input=many, to="10.0.0.1:80")["notes"][-1] == "2 more pods: name one to ask about it"
    assert ask("connection", input=many, to="10.0.0.1:80", select="p11")["notes"] == ['Pod "p11": options of its init container istio-init']


def test_an_answer_is_cut_where_nobody_reads_on():
    found = ask("rules", input=f"-b '*' -i {','.join([f'10.{n >> 8}.{n & 255}.0/24' for n in range(6000)])}")
    assert len(found["iptables"]) < ANSWERS.MAX_SHOWN + 100
    assert found["iptables"].endswith("characters more")


def test_the_page_and_its_worker_ask_what_is_answered():
    page, form = (FOLDER / "page.mjs").read_text(), (ROOT / "docs" / "playground.md").read_text()
    named = re.search(r"const sections = \{(.*?)\};", page, re.DOTALL)[1]
    assert set(re.findall(r"(\w+): \"", named)) == set(ANSWERS.TASKS)
    assert tuple(json.loads(re.search(r"const fields = (\[.*?\]);", page)[1])) == FIELDS
    assert all(f'name="{name}"' in form for name in FIELDS)
    assert len(re.findall(r"<(?:input|select|textarea) ", form)) == len(re.findall(r"<label for=", form))


def test_text_never_becomes_markup_and_no_other_host_is_named():
    for name in ("page.mjs", "worker.mjs"):
        source = (FOLDER / name).read_text()
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|https?:", source), name


def test_the_answers_stand_on_the_pure_rooms_alone(tmp_path):
    pytest.importorskip("mkdocs")
    hooks = load(ROOT / "docs" / "hooks.py")
    with zipfile.ZipFile(tmp_path / "packages.zip", "w") as archive:
        for name, path in hooks.list_packages(ROOT):
            archive.writestr(name, path.read_bytes())
        archive.extractall(tmp_path / "packages")
    given = [dict(dict.fromkeys(FIELDS, ""), **fill(one)) for one in SITUATIONS]
    script = (
        "import sys, json; sys.path[:0] = sys.argv[1:3]; import answers\n"
        "for one in json.loads(sys.stdin.read()):\n"
        "    for task in answers.TASKS:\n"
        "        found = json.loads(answers.answer(task, json.dumps(one)))\n"
        "        assert 'error' not in found or task in ('compare', 'connection'), found\n"
        "import netinit; print(netinit.__file__)"
    )
    line = [sys.executable, "-I", "-c", script, str(FOLDER), str(tmp_path / "packages")]
    done = subprocess.run(line, input=json.dumps(given), capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "packages" / "netinit" / "__init__.py")
