"""`kubectl netinit` against a kubectl that replays answers in kubectl's format (tests/kubectl)."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys

import pytest

from kubectl_calls import AGENTS, ASKED, DEPLOYMENT, FAKE, ON_AGENT, POD, PODS, UID, WEB
from netinit.base.errors import ParseError
from netinit.cli import start
from netinit.cli.watch import read_object, to_object
from netinit.kubectl.objects import write_selector
from netinit.kubectl.sources import AgentSource
from netinit.live.verdict_counters import CounterSnapshot, Fate, FateRate
from netinit.options import Options
from schemas import check_schema

SERVICE = [
    {"words": "get service db -n shop *", "file": "service-db.json"},
    {"words": "get endpointslices.v1.discovery.k8s.io -n shop -l kubernetes.io/service-name=db *", "file": "slices-db.json"},
]


def read(name):
    return json.loads((FAKE / "shop" / name).read_text())


def test_a_pod_is_explained_by_the_agent_of_its_node(kubectl):
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, {"words": f"{ASKED}explain*", "file": "explain-agent.json"}]
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443 --uid 1000", *answers)
    assert done.code == 0, done
    assert f"shop/{WEB}: live rules, read through the node agent mesh/netinit-node-4fj2k" in done.out
    assert "    captured: goes to the proxy on 15001" in done.out
    assert [words[:2] for words in kubectl.calls if words[0] == "exec"] == [["exec", "-i"]]
    (question,) = kubectl.questions
    assert question["uids"] == [UID]
    assert question["words"][-5:] == ["--live", "--to", "203.0.113.7:443", "--uid", "1000"]
    assert "*" in question["words"], "the options of the pod's init container go along"


def test_without_an_agent_an_ephemeral_container_reads_the_rules_and_the_answer_says_what_stays(kubectl):
    answers = [
        {"words": POD, "file": "pod-web-after.json"},
        {"words": f"debug -n shop {WEB} --image=registry.example/mesh/netinit:0.2.0 --profile=netadmin --container=netinit-* --arguments-only -- verify *"},
        {"words": f"logs -n shop {WEB} -c netinit-*", "stdout": "as planned: 37 rules for IPv4 (nftables)\n"},
    ]
    done = kubectl(f"verify {WEB} -n shop", *answers)
    assert done.code == 0, done
    assert "as planned: 37 rules" in done.out
    assert "read by the ephemeral container netinit-" in done.out
    assert "stays listed until the pod is deleted" in done.out
    assert "note: kubectl get pods -A -l app.kubernetes.io/name=netinit-node: Error from server (Forbidden)" in done.out


def test_without_any_right_the_manifest_answers_and_says_so(kubectl):
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", {"words": POD, "file": "pod-web.json"})
    assert done.code == 0, done
    assert "only the pod's manifest: what the rules should be; the live ones were not read" in done.out
    assert "captured: goes to the proxy on 15001, original destination 203.0.113.7:443" in done.out
    assert "note: kubectl debug: Error from server (Forbidden)" in done.out


def test_what_a_manifest_cannot_answer_is_an_error_with_every_reason(kubectl):
    done = kubectl(f"verify {WEB} -n shop", {"words": POD, "file": "pod-web.json"})
    assert done.code == 1
    assert "node agent" in done.err or "netinit-node" in done.err
    assert "kubectl debug" in done.err
    assert "verify needs the live state, which a manifest does not show" in done.err


def test_of_a_service_the_cluster_ip_and_each_ready_endpoint_are_answered(kubectl):
    for port in ("5432", "postgres"):
        done = kubectl(f"explain {WEB} -n shop --to db.shop:{port} --source manifest", {"words": POD, "file": "pod-web.json"}, *SERVICE)
        assert done.code == 0, done
        assert "to service db.shop, its ClusterIP, 10.96.14.3:5432:" in done.out
        assert "to service db.shop, endpoint 1 of 1, 10.244.3.4:6432:" in done.out
        assert done.out.count("captured: goes to the proxy on 15001") == 2
        assert "10.244.3.5" not in done.out


def test_a_comparison_that_goes_on_is_not_asked_of_the_cluster(kubectl):
    done = kubectl(f"verify {WEB} -n shop --watch", {"words": POD, "file": "pod-web.json"})
    assert (done.code, "--watch: goes on until Ctrl-C" in done.err) == (2, True), done.err
    assert not [words for words in kubectl.calls if words[0] in ("exec", "debug")]


def test_a_service_whose_endpoints_may_not_be_read_is_not_taken_for_a_host(kubectl):
    done = kubectl(f"explain {WEB} -n shop --to db:5432 --source manifest", {"words": POD, "file": "pod-web.json"}, SERVICE[0])
    assert (done.code, "endpointslices" in done.err, "Forbidden" in done.err, "no host" in done.err) == (1, True, True, False), done.err


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ("db.shop", "has no port"),
        ("db.shop:99", 'has no port "99"; it has 5432'),
        ("pod/none:80", "there is no pod"),
        ("203.0.113.7:99999", "is not a port"),
        ("no-such-host.invalid:80", "is no Service, no pod, and no host that this machine knows"),
    ],
)
def test_a_destination_that_is_nothing_is_an_error_that_names_it(to, told, kubectl):
    nothing = [{"words": "get service no-such-host *"}, {"words": "get pod no* *"}]
    done = kubectl(f"explain {WEB} -n shop --to {to} --source manifest", {"words": POD, "file": "pod-web.json"}, *SERVICE, *nothing)
    assert (done.code, told in done.err) == (2, True), done.err


def test_of_a_deployment_the_pod_that_differs_is_told_first_and_equal_ones_once(kubectl):
    done = kubectl("explain deploy/web -n shop --to db.shop:5432 --source manifest", *DEPLOYMENT, *SERVICE)
    assert done.code == 0, done
    heads = [line.partition(":")[0] for line in done.out.splitlines() if line.startswith("shop/")]
    assert heads == ["shop/web-6d4cf56db6-zzv5m", f"shop/{WEB}", "shop/web-6d4cf56db6-7hq4t"]
    assert "7hq4t: only the pod's manifest: what the rules should be; the live ones were not read: the same as of web-6d4cf56db6-2xk9p" in done.out
    assert done.out.splitlines()[-1] == "3 pods: 2 different answers"
    assert "    direct" in done.out.partition("2xk9p")[0]


@pytest.mark.parametrize("flags", ["-o json", "--output=json", "--json"])
def test_answers_are_one_object_where_json_is_wanted_as_kubectl_spells_it(kubectl, flags):
    done = kubectl(f"explain deploy/web -n shop --to db.shop:5432 --source manifest {flags}", *DEPLOYMENT, *SERVICE)
    assert done.code == 0, done
    check_schema(json.loads(done.out), "kubectl")
    pods = json.loads(done.out)["pods"]
    assert [pod["name"] for pod in pods] == ["web-6d4cf56db6-zzv5m", WEB, "web-6d4cf56db6-7hq4t"], "those that differ first"
    assert {pod["source"] for pod in pods} == {"only the pod's manifest: what the rules should be; the live ones were not read"}
    first = pods[0]["answers"]
    assert [(one["to"], one["of"]) for one in first] == [
        ("10.96.14.3:5432", "service db.shop, its ClusterIP"), ("10.244.3.4:6432", "service db.shop, endpoint 1 of 1"),
    ]  # fmt: skip
    assert {(pod["name"][-5:], one["answer"]["verdict"]) for pod in pods for one in pod["answers"]} >= {("zzv5m", "direct"), ("2xk9p", "captured")}


def test_an_agent_s_answer_that_is_no_json_is_none_and_the_notes_say_why(kubectl):
    answer = json.dumps({"code": 1, "answer": "", "notes": "netinit: the rules cannot be read\n"})
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, {"words": f"{ASKED}verify*--json*", "stdout": answer}]
    done = kubectl(f"verify {WEB} -n shop -o json", *answers)
    (pod,) = json.loads(done.out)["pods"]
    assert (done.code, pod["answers"]) == (1, [{"to": None, "of": None, "code": 1, "answer": None}])
    assert pod["notes"] == ["netinit: the rules cannot be read"]


def test_check_shows_every_pod_of_the_mesh_and_the_different_ones_first(kubectl):
    answers = [
        {"words": PODS, "file": "pods.json"}, {"words": "get namespace shop *", "file": "namespace-shop.json"}, *AGENTS,
        {"words": "asked *2xk9p*verify*", "file": "verify-ok.json"},
        {"words": "asked *7hq4t*verify*", "file": "verify-bad.json"},
        {"words": "asked *7hq4t*audit*", "file": "audit-bad.json"},
    ]  # fmt: skip
    done = kubectl("check -n shop -o json", *answers)
    assert done.code == 3, done
    check_schema(json.loads(done.out), "kubectl-check")
    rows = {row["name"].rpartition("-")[2]: row for row in json.loads(done.out)["pods"]}
    assert {name: (row["injected"], row["rules"]) for name, row in rows.items()} == {
        "2xk9p": (True, "as planned"), "7hq4t": (True, "different"), "zzv5m": (True, "not read"), "plain": (False, None),
    }  # fmt: skip
    assert rows["7hq4t"]["bypasses"] == [] or rows["7hq4t"]["differences"] == ["missing nat ISTIO_OUTPUT -j ISTIO_REDIRECT"]
    assert len(rows["zzv5m"]["bypasses"]) > len(rows["2xk9p"]["bypasses"]), "the excluded network"
    assert "no node agent runs on the node" in rows["zzv5m"]["reasonNotRead"]
    assert not [words for words in kubectl.calls if words[0] == "debug"], "no pod gets a container"
    table = kubectl("check -n shop", *answers).out.splitlines()
    assert table[0] == "shop"
    assert "7hq4t" in table[1]
    assert any(line.startswith("[1] missing") for line in table), table
    assert table[-1] == "4 pods: 1 with rules as planned, 1 with rules different, 1 with rules not read, 1 not injected"


@pytest.mark.parametrize(("statuses", "rules"), [
    ([], "starting"), ([{"state": {"running": {}}}], "starting"), ([{"state": {"terminated": {"exitCode": 0}}}], "starting"),
    ([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 126}}}], "not read"),
])  # fmt: skip
def test_a_pod_that_waits_for_its_first_start_is_starting_and_one_that_failed_is_not(kubectl, statuses, rules):
    web = next(pod for pod in read("pods.json")["items"] if pod["metadata"]["name"].endswith("zzv5m"))
    web = {**web, "status": {"phase": "Pending", "initContainerStatuses": statuses}}
    answers = [{"words": PODS, "stdout": json.dumps({"items": [web]})}, {"words": "get namespace shop *", "file": "namespace-shop.json"}, *AGENTS]
    done = kubectl("check -n shop -o json", *answers)
    assert [row["rules"] for row in json.loads(done.out)["pods"]] == [rules]
    assert done.code == 0


def test_a_note_that_several_answers_have_is_printed_once(kubectl):
    answer = {"code": 0, "answer": "captured", "notes": "warning: BPF programs may not be read here"}
    pods = read("pods.json")["items"]
    for pod in pods:
        pod["spec"]["nodeName"] = "worker-1"
    told = [{**answer, "answer": f"answer {at}"} for at, _ in enumerate(pods)]
    replies = "".join(json.dumps(one) + "\n" for one in told)
    done = kubectl("explain deploy/web -n shop --to 203.0.113.7:443", *DEPLOYMENT, *AGENTS, {"words": "exec *", "stdout": replies})
    assert done.out.count("BPF programs may not be read here") == 1, done.out
    assert "note, of" in done.out


def test_pods_that_differ_in_the_families_of_their_addresses_have_bypasses_of_their_own(kubectl):
    web = next(pod for pod in read("pods.json")["items"] if pod["metadata"]["name"].endswith("zzv5m"))  # excludes a network of IPv4
    six = {**web, "metadata": {**web["metadata"], "name": "six"}, "status": {**web["status"], "podIP": "fd00::9", "podIPs": [{"ip": "fd00::9"}]}}
    listed = json.dumps({"items": [web, six]})
    done = kubectl("check -n shop -o json", {"words": PODS, "stdout": listed}, {"words": "get namespace shop *", "file": "namespace-shop.json"})
    four, other = (row["bypasses"] for row in json.loads(done.out)["pods"])
    excluded = "networks that are excluded (configuration)"
    assert (excluded in four, excluded in other) == (True, False)


def test_check_says_why_a_pod_of_the_mesh_is_not_injected(kubectl):
    plain = next(pod for pod in read("pods.json")["items"] if pod["metadata"]["name"] == "plain")
    on_node = {**plain, "metadata": {**plain["metadata"], "name": "on-node"}, "spec": {**plain["spec"], "hostNetwork": True}}
    listed = json.dumps({"items": [plain, on_node]})
    done = kubectl("check -n shop -o json", {"words": PODS, "stdout": listed}, {"words": "get namespace shop *", "file": "namespace-shop.json"}, *AGENTS)
    assert {row["name"]: row["reason"] for row in json.loads(done.out)["pods"]} == {
        "plain": "neither an init container nor a proxy", "on-node": "on its node's network",
    }  # fmt: skip


def test_what_a_cluster_says_commands_no_terminal_and_is_cut(kubectl):
    hostile = {"code": 0, "answer": "captured\x1b]0;owned\x07\u202e\n" * 3000, "notes": "\x1b[2J\r"}
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, {"words": "exec *", "file": "hostile.json"}]
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", *answers, files={"hostile.json": hostile})
    assert done.code == 0
    assert not {"\x1b", "\x07", "\r", "\u202e"} & set(done.out)
    assert "captured\\x1b]0;owned\\x07\\u202e" in done.out
    assert len(done.out.splitlines()) < 2010
    refused = kubectl(f"verify {WEB} -n shop --source agent", {"words": "*", "stderr": "\x1b[31m" + "x" * 99999, "status": 1})
    assert refused.code == 1
    assert "\x1b" not in refused.err
    assert len(refused.err) < 1000


@pytest.mark.parametrize("answer", ["", "[]", "null", "{", "[" * 100000, '{"code": 1e999}', '{"code": [1]}', '{"answer": "x"}'])
def test_an_agent_that_says_nothing_that_can_be_read_is_passed_over(answer, kubectl):
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, {"words": "exec *", "stdout": answer}]
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", *answers)
    assert done.code == 0, done.err
    assert "gave no answer that can be read" in done.out
    assert "only the pod's manifest" in done.out


@pytest.mark.parametrize("name", ["--all", "a b", "\x1b[2J", "x;rm", "", 5, None, ["a"]])
def test_names_that_no_cluster_has_never_become_words_of_kubectl(name, kubectl):
    tree = read("pods-web.json")
    tree["items"][0]["metadata"]["name"] = name
    answers = [DEPLOYMENT[0], {"words": "get pods -n shop -l app=web *", "file": "hostile.json"}]
    done = kubectl("verify deploy/web -n shop", *answers, files={"hostile.json": tree})
    if name == 5:
        return
    assert (done.code, "is not a name of a pod" in done.err) == (1, True), done.err
    assert [words[:2] for words in kubectl.calls] == [["get", "deployment"], ["get", "pods"]]


def test_a_pod_that_only_says_that_it_is_the_agent_is_not_asked(kubectl):
    false = read("agents.json")
    false["items"][0]["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    answers = [{"words": POD, "file": "pod-web.json"}, {**AGENTS[0], "file": "false.json"}, AGENTS[1]]
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", *answers, files={"false.json": false})
    assert "no node agent runs on the node" in done.out
    assert not [words for words in kubectl.calls if words[0] == "exec"]


@pytest.mark.parametrize(("field", "value"), [("namespace", "evil"), ("serviceAccountName", "default")])
def test_an_agent_of_another_namespace_or_account_than_the_charts_roles_name_is_not_asked(field, value, kubectl):
    """Whoever may make a DaemonSet could say that all pods of the mesh are as planned."""
    forged = read("agents.json")
    forged["items"][0]["metadata" if field == "namespace" else "spec"][field] = value
    answers = [{"words": POD, "file": "pod-web.json"}, {**AGENTS[0], "file": "forged.json"}, AGENTS[1]]
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", *answers, files={"forged.json": forged})
    assert "no node agent runs on the node" in done.out
    assert not kubectl.questions


def test_without_the_right_to_see_roles_the_agents_namespace_has_to_be_named(kubectl):
    answers = [{"words": POD, "file": "pod-web.json"}, AGENTS[0], {"words": f"{ASKED}explain*", "file": "explain-agent.json"}]
    done = kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", *answers)
    assert "name its namespace with --agent-namespace" in done.out
    assert not kubectl.questions
    named = {"words": "get pods -n mesh -l app.kubernetes.io/name=netinit-node *", "file": "agents.json"}
    kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443 --agent-namespace mesh", answers[0], named, answers[2])
    assert kubectl.questions


def test_kubectl_is_asked_with_the_context_that_was_chosen(kubectl):
    done = kubectl(f"verify {WEB} -n shop --context prod --kubeconfig /k", {"words": "get --context=prod --kubeconfig=/k pod *"})
    assert 'there is no pod "' in done.err
    assert kubectl.calls == [["get", "--context=prod", "--kubeconfig=/k", "pod", WEB, "-n", "shop", "--ignore-not-found", "-o", "json"]]


def test_a_selector_is_written_as_kubectl_reads_it_and_may_have_empty_values():
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", ""]}, {"key": "zone", "operator": "NotIn", "values": ["b"]},
        {"key": "x", "operator": "Exists"}, {"key": "y", "operator": "DoesNotExist"},
    ]  # fmt: skip
    selector = {"matchLabels": {"app": ""}, "matchExpressions": expressions}
    assert write_selector({"spec": {"selector": selector}}) == "app=,tier in (a,),zone notin (b),x,!y"
    with pytest.raises(ParseError, match='"a b" is not a label'):
        write_selector({"spec": {"selector": {"matchLabels": {"app": "a b"}}}})


def test_without_kubectl_the_error_says_so(run, tmp_path):
    done = run("netinit kubectl verify web", {"PATH": str(tmp_path)})
    assert (done.code, "kubectl is not on the PATH" in done.err) == (1, True)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["ver"], ["verify\tCompare a pod's live rules with those that its manifest asks for."]),
        (["explain", "--sour"], ["--source"]),
        (["explain", "-n", "shop", "we"], [WEB]),
        (["explain", "-n", "shop", "deploy/"], ["deploy/web"]),
        (["explain", "-n", "sh"], ["shop"]),
    ],
)
def test_kubectl_is_told_what_may_stand_next(words, found, kubectl):
    answers = [
        {"words": "get pods,deployments -n shop -o name", "stdout": f"pod/{WEB}\ndeployment.apps/web\nweb\x1b[2J\n"},
        {"words": "get namespaces -o name", "stdout": "namespace/shop\n"},
    ]
    done = kubectl(" ".join(["complete", "--", *words]), *answers)
    assert (done.code, done.out.split("\n")) == (0, [*found, ":4", ""])


def test_what_the_agent_is_sent_is_what_its_command_takes(kubectl, run, monkeypatch):
    tree = read("pod-web.json")
    tree["spec"]["initContainers"][0]["args"] += ["--run-validation", "--log_output_level", "debug"]
    tree["spec"]["initContainers"][0]["env"] = [{"name": "DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK", "value": "true"}]
    answers = [{"words": POD, "file": "env.json"}, *AGENTS, {"words": f"{ASKED}explain*", "file": "explain-agent.json"}]
    kubectl(f"explain {WEB} -n shop --to 203.0.113.7:443", *answers, files={"env.json": tree})
    (question,) = kubectl.questions
    words = question["words"]
    assert question["environ"] == {"DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK": "1"}
    assert words[words.index("-u") + 1] == "1337"
    assert not {"--run-validation", "--log_output_level"} & set(words), "what is about that run alone"
    begun, run_it = [], start.run

    def answer(argv, environ):
        if "--netns" not in argv:
            return run_it(argv, environ)
        begun.append((argv, environ))
        print(f"captured in {argv[-1]}")
        return 3

    monkeypatch.setattr("netinit.cli.node.inside.find_namespaces", lambda uids, **_: {uid: f"/run/netns/cni-{uid}" for uid in uids})
    monkeypatch.setattr("netinit.cli.start.run", answer)
    monkeypatch.setattr("netinit.cli.node.inside._in_children", lambda questions, ask: map(ask, questions))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(question) + "\n"))
    done = run(["netinit", "node", "run"])
    assert json.loads(done.out) == {"code": 3, "answer": f"captured in shop/{WEB}\n", "notes": ""}
    ((argv, environ),) = begun
    assert (argv[1], argv[-2:]) == ("explain", ["--netns", f"/run/netns/cni-{UID}"])
    assert environ.pop("PATH")
    assert environ == {"DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK": "1"}
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({**question, "environ": {"LD_PRELOAD": "x"}}) + "\n"))
    refused = run(["netinit", "node", "run"])
    assert (refused.code, "is not a variable of an option" in refused.err) == (2, True)


LOOK = {
    "elapsed": 1.0, "seconds": 1.0, "replaced": False,
    "fates": [
        {"verdict": "captured", "direction": "out", "port": 15001, "unit": "connections", "because": "all \x1b[2J", "option": None, "foreign": False,
         "added": 3, "since_start": 3, "per_second": 3.0},
    ],
}  # fmt: skip


def following(verb, *told):
    return {"words": f"{ON_AGENT} --uid={UID} -- {verb} *", "stdout": "".join(f"{line}\n" for line in (json.dumps({"following": verb}), *told))}


def test_a_watch_through_the_agent_is_shown_in_the_form_that_is_wanted_here(kubectl):
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, following("watch", json.dumps(LOOK))]
    done = kubectl(f"watch {WEB} -n shop --interval 2 --all", *answers)
    assert (done.code, done.out) == (0, "captured out to 15001: 3 connections, 3.0 a second; all \\x1b[2J\n")
    assert f"note: shop/{WEB}: live, through the node agent mesh/netinit-node-4fj2k" in done.err
    (asked,) = [words for words in kubectl.calls if words[0] == "exec"]
    assert asked[asked.index("watch") + 1 :][-5:] == ["--interval", "2", "--all", "--format", "json"]
    assert json.loads(kubectl(f"watch {WEB} -n shop -o json", *answers).out)["fates"] == LOOK["fates"]
    assert f"shop/{WEB}: 1 s\n" in kubectl(f"watch {WEB} -n shop -o table", *answers).out


def test_without_the_agent_an_ephemeral_container_is_followed_and_says_how_it_ended(kubectl):
    debug = f"debug -i -n shop {WEB} --image=registry.example/mesh/netinit:0.2.0 --profile=netadmin --container=netinit-* -- trace *"
    answers = [{"words": POD, "file": "pod-web-after.json"}, {"words": debug, "stdout": "captured: \x1b[31mgoes to the proxy\n"}]
    done = kubectl(f"trace {WEB} -n shop --to 203.0.113.7:443 --uid 1000", *answers)
    assert (done.code, done.out) == (0, "captured: \\x1b[31mgoes to the proxy\n")
    assert "live, by the ephemeral container netinit-" in done.err
    assert "(Forbidden)" in done.err
    (asked,) = [words for words in kubectl.calls if words[0] == "debug"]
    assert asked[-5:] == ["--to", "203.0.113.7:443", "--uid", "1000", "--until-input"]


def test_an_ephemeral_container_that_ended_without_an_exit_code_has_failed(kubectl):
    tree = read("pod-web-after.json")
    (status,) = tree["status"]["ephemeralContainerStatuses"]
    status["state"]["terminated"] = {"reason": "ContainerStatusUnknown"}
    done = kubectl(f"trace {WEB} -n shop --to 203.0.113.7:443", {"words": POD, "stdout": json.dumps(tree)}, {"words": "debug *", "stdout": "captured\n"})
    assert (done.code, done.out) == (1, "captured\n")


def test_an_agent_that_does_not_follow_is_not_believed_and_the_next_is_asked(kubectl):
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, {"words": "exec *", "stdout": "what?\n", "stderr": "no such command", "status": 2}]
    done = kubectl(f"watch {WEB} -n shop", *answers)
    assert done.code == 1
    assert "note: the node agent mesh/netinit-node-4fj2k: no such command\n" in done.err
    assert 'kubectl debug: Error from server (Forbidden): User "ann" cannot do this' in done.err
    bad = kubectl(f"watch {WEB} -n shop", *answers[:3], following("watch", '{"fates": [{}]}'))
    assert (bad.code, "gave a line that cannot be read" in bad.err) == (1, True)


def test_a_pod_has_to_be_named_and_a_service_is_asked_about_by_its_cluster_ip(kubectl):
    done = kubectl("watch deploy/web -n shop", *DEPLOYMENT)
    assert (done.code, "deploy/web has 3 pods; name one of them: web-6d4cf56db6-2xk9p, " in done.err) == (2, True), done.err
    answers = [{"words": POD, "file": "pod-web.json"}, *AGENTS, *SERVICE, following("trace", "captured")]
    done = kubectl(f"trace {WEB} -n shop --to db:5432", *answers)
    assert done.out == "captured\n", done
    (asked,) = [words for words in kubectl.calls if words[0] == "exec"]
    assert asked[asked.index("--to") + 1] == "10.96.14.3:5432"


def test_ctrl_c_ends_what_runs_in_the_cluster_and_shows_its_last_words(kubectl):
    told = {**following("trace", "first"), "waits": "says"}
    environ = kubectl.prepare({"words": POD, "file": "pod-web.json"}, *AGENTS, told)
    command = [sys.executable, "-m", "netinit", "kubectl", "trace", WEB, "-n", "shop", "--to", "203.0.113.7:443"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ, start_new_session=True) as begun:
        assert begun.stdout.readline() == "first\n"
        os.killpg(begun.pid, signal.SIGINT)  # as a terminal does
        out, err = begun.communicate()
    assert (begun.returncode, out) == (0, "ended by '\\n'\n"), err


def test_a_look_is_read_as_it_was_written():
    rows = (
        FateRate(Fate("captured", "outbound", 15001, "connections", "a rule", "outbound_port", foreign=True), 0, 7, 0.0),
        FateRate(Fate("captured", "inbound", 0, "packets", "none"), None, None, None),
    )  # fmt: skip
    for replaced in (True, False):
        snapshot = CounterSnapshot(2.5, 0.5, rows, replaced)
        assert read_object(json.loads(json.dumps(to_object(snapshot, everything=True)))) == snapshot


@pytest.mark.parametrize(
    ("containers", "ipv6"),
    [
        ([{"name": "other"}, {"name": "agent", "args": ["node", "run", "--ipv6", "reject"]}], "reject"),
        ([{"name": "other", "args": ["node", "run", "--ipv6", "reject"]}], "auto"),
        ([{"name": "agent", "args": ["node", "run", "--ipv6", "reject", "--no-such-flag"]}], "auto"),
    ],
    ids=["agent", "another container", "unknown flag"],
)
def test_options_of_all_pods_are_those_of_the_nodes_agent_or_the_defaults(containers, ipv6, monkeypatch):
    agent = type("Agent", (), {"tree": {"spec": {"containers": containers}}})
    monkeypatch.setattr(AgentSource, "find", lambda _, node: {"node-1": agent}[node])
    found = AgentSource(None).base("node-1")
    assert found == Options(ipv6=ipv6)
