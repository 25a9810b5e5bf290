"""`--rules FILE` of the five questions, and files of rules in the place of manifests."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
REPORT = EXAMPLES / "report.txt"
THEIRS = EXAMPLES / "tailscale.rules"
OPTIONS = "-b '*' -i '*' -d 15090,15021,15020 --ipv6 off --istio-exact"
L = "Chain OUTPUT (policy ACCEPT)\ntarget     prot opt source               destination\nISTIO_OUTPUT  all  --  anywhere  anywhere\n"


@pytest.fixture
def ask(run):
    return lambda line: run(["netinit", *shlex.split(line)])


@pytest.mark.parametrize("source", [str(REPORT), "-"])
def test_every_question_is_answered_of_pasted_rules(ask, monkeypatch, source):
    def answer(line):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(REPORT.read_bytes())))
        return ask(line)

    assert answer(f"explain --rules {source} --to 10.1.2.3:443").out.startswith("captured: goes to the proxy on 15001")
    assert "the proxy's own ports for health and metrics (design, proxy-port)" in answer(f"audit --rules {source}").out
    assert answer(f"lint --rules {source}").out == "no problems found\n"
    assert answer(f"verify --rules {source}").out == "as planned: 18 rules for IPv4 (iptables)\n"
    assert answer(f"verify --rules {source} {OPTIONS}").code == 0
    assert "proved for all packets of IPv4" in answer(f"diff --rules {source} {OPTIONS}").out
    assert answer(f"diff --rules {source} -b 80").code == 3
    assert answer(f"diff {source} {shlex.quote(f'apply {OPTIONS}')}").code == 0
    assert answer(f"lint --minimal --rules {source}").out == "netinit apply -b '*' -d 15090,15021,15020 -i '*' --ipv6 off --istio-exact\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_what_windows_powershell_wrote_is_read_by_its_mark(ask, tmp_path, encoding):
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    rules, pods = tmp_path / "rules.txt", tmp_path / "pod.yaml"
    rules.write_text(mark + REPORT.read_text(), encoding=encoding, newline="\r\n")
    pods.write_text(mark + (EXAMPLES / "pod.yaml").read_text(), encoding=encoding, newline="\r\n")
    assert ask(f"verify --rules {rules} {OPTIONS}").code == 0
    assert ask(f"diff {rules} {shlex.quote(f'apply {OPTIONS}')}").code == 0
    assert ask(f"lint {pods}").out == ask(f"lint {EXAMPLES / 'pod.yaml'}").out.replace(str(EXAMPLES / "pod.yaml"), str(pods))
    rules.write_bytes(b"\xff\xfea")
    assert "not UTF-16: byte 2 is 0x61" in ask(f"audit --rules {rules}").err


def test_what_diff_was_given_as_an_argument_is_not_named_as_an_option(ask, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.touch()
    told = f"no pod, and nothing that makes pods, is in {empty}; give `kubectl get pod NAME -o yaml`"
    assert ask(f"diff {empty} 'apply -b 80'").err == ask(f"diff {empty} {empty}").err == f"netinit: {told}\n"
    assert ask(f"diff --pod {empty} --pod {empty}").err == f"netinit: --pod: {told}\n"


def test_what_is_assumed_of_the_host_is_said_once(ask):
    for line in ("explain --to 10.1.2.3:443", "audit", "verify", "diff", "lint"):
        said = ask(f"{line} --rules {REPORT}").err
        assert said.count("a dump does not show the host: assumed are a pod with 192.0.2.10 on eth0") == 1, line
    assert "assumed are a pod with 10.9.8.7 on eth0" in ask(f"explain --rules {REPORT} --pod-ip 10.9.8.7 --from 10.1.1.1 --to-port 80").err


def test_verify_names_the_rules_and_the_packets_that_differ(ask, tmp_path):
    path = tmp_path / "rules"
    path.write_text(REPORT.read_text().replace("-A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN\n", "-A ISTIO_OUTPUT -p tcp --dport 3306 -j RETURN\n"))
    done = ask(f"verify --rules {path} {OPTIONS}")
    assert done.code == 3
    assert "missing: IPv4 nat ISTIO_OUTPUT rule 4: -m owner --uid-owner 1337 -j RETURN" in done.out
    assert "extra: IPv4 nat ISTIO_OUTPUT rule 4: -p tcp --dport 3306 -j RETURN" in done.out
    assert "different: outbound: TCP outbound on port 3306, uid other than 1337, gid other than 1337  (planned captured, to port 15001, but direct" in done.out
    found = json.loads(ask(f"verify --rules {path} {OPTIONS} --json").out)
    assert (found["ok"], found["backend"]) == (False, "iptables")


def test_rules_with_another_text_and_the_same_effect_are_as_planned(ask, tmp_path):
    path = tmp_path / "rules"
    path.write_text(REPORT.read_text().replace("-A ISTIO_INBOUND -p tcp -j", "-A ISTIO_INBOUND -p tcp --dport 0:65535 -j"))
    done = ask(f"verify --rules {path} {OPTIONS}")
    assert done.code == 0
    assert "differences in the text of rules (1 missing, 1 extra): no packet is treated differently" in done.err


def test_a_pod_is_compared_with_pasted_rules(ask, tmp_path):
    pod = tmp_path / "pod.yaml"
    words = json.dumps(["istio-iptables", *shlex.split(OPTIONS.replace("--ipv6 off --istio-exact", ""))])
    pod.write_text(f"apiVersion: v1\nkind: Pod\nmetadata: {{name: web}}\nspec:\n  initContainers: [{{name: istio-init, args: {words}}}]\n  containers: [{{name: app}}]\n")
    assert ask(f"verify --rules {REPORT} --pod {pod}").code == 3  # netinit's own rules stop more
    assert ask(f"diff --rules {REPORT} --pod {pod}").code == 3


def test_a_plan_beside_foreign_rules(ask, tmp_path):
    done = ask(f"verify -b '*' -i '*' --rules {THEIRS}")
    assert done.code == 0
    assert "the plan of the options is put beside them, as `netinit apply` does" in done.err
    assert "TCP inbound through all but tailscale0 on a port other than 15008 from 100.64.0.0/10: planned captured, to port 15006, but dropped" in done.err
    assert ask(f"verify -b '*' -i '*' --strict --rules {THEIRS}").code == 3
    thief = tmp_path / "theirs"
    thief.write_text("*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.0.0.2\nCOMMIT\n")
    assert ask(f"verify -b '*' -i '*' --rules {thief}").code == 3
    assert "foreign rules decide before netinit's do" in ask(f"audit -b '*' -i '*' --rules {thief}").out
    assert ask(f"explain -b '*' -i '*' --rules {thief} --to 10.1.2.3:80").out.startswith("direct: a rule that is not netinit's sends it to 10.0.0.2:80")
    assert ask(f"verify --rules {thief}").out == "no rules of netinit here\n"


@pytest.mark.parametrize("line", ["audit {}", "audit --pod {}", "lint {}", "lint --pod {}", "verify --pod {}", "diff --pod {} --pod {}", "explain --pod {} --to 10.1.2.3:443"])
@pytest.mark.parametrize("text", [REPORT.read_text(), THEIRS.read_text(), "  " + THEIRS.read_text().replace("\n", "\n  ")], ids=["-S", "save", "indented"])
def test_rules_in_the_place_of_manifests_are_named_as_rules(ask, tmp_path, line, text):
    path = tmp_path / "d5.txt"
    path.write_text(text)
    done = ask(line.replace("{}", str(path)))
    assert done.code not in (0, 3)
    assert f"{path} holds rules (the output of iptables" in done.err
    assert f"give it as --rules {path}" in done.err
    assert not {"pod,", "pods", "yaml", "anchor"} & set(done.err.lower().split())


@pytest.mark.parametrize(
    "line",
    ["audit {}", "lint {}", "verify --pod {}", "diff --pod {} --pod {}", "explain --rules {} --to 10.1.2.3:443", "audit --rules {}", "diff {} 'apply -b 80'",
     "lint --rules {}", "verify --rules {}", "diff --rules {} -b 80"],
)  # fmt: skip
def test_what_iptables_l_prints_is_refused_everywhere_with_the_command_that_gives_all(ask, tmp_path, line):
    path = tmp_path / "d6.txt"
    path.write_text(L)
    done = ask(line.replace("{}", str(path)))
    assert done.code not in (0, 3)
    assert "iptables -L" in done.err
    assert "give what `iptables-save` prints" in done.err
    assert not {"pod,", "pods", "yaml", "anchor"} & set(done.err.lower().split())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("verify --rules {} --live", "--rules: a file is compared; leave out --live, --watch, --connections and --require-listener"),
        ("verify --rules {} --pid 1", "--rules: names the rules of a file; leave out --live, --pid and --netns"),
        ("explain --rules {} --live --to 10.1.2.3:443", "--rules: names the rules of a file; leave out --live, --pid and --netns"),
        ("audit --rules - --rules -", "--rules: '-' is given twice, and stdin can be read once; give it once"),
        ("audit --rules /nowhere", "--rules: /nowhere: cannot be read: No such file or directory"),
        ("lint --rules {} -b 80", "--rules: lint checks the options that the rules show; leave out pods and options"),
        ("diff --rules {} a b", "--rules: is compared with options or one --pod; leave A and B out"),
        ("audit --rules {} --all-pods", "--all-pods: names all pods of this node; leave out --pod, --rules, --live, --pid and --netns"),
    ],
)
def test_what_contradicts_a_file_of_rules_is_an_error(ask, line, told):
    done = ask(line.replace("{}", str(REPORT)))
    assert (done.code, done.out) == (2, "")
    assert told in done.err
