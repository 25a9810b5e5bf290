"""`kubectl netinit fix` and `report`, against a kubectl that replays answers."""

from __future__ import annotations

import json
import re

from kubectl_calls import AGENTS, ASKED, DEPLOYMENT, FAKE, POD, WEB
from netinit.kubectl import fix


def reply(code, answer, notes=""):
    return json.dumps({"code": code, "answer": answer, "notes": notes})


OK = {"words": f"{ASKED}verify*", "file": "verify-ok.json"}
BAD = {"words": f"{ASKED}verify*", "file": "verify-bad.json"}
APPLIED = {"words": f"{ASKED}apply*", "stdout": reply(0, "", "info: programmed by nftables")}
WEB_POD = {"words": POD, "file": "pod-web.json"}


def asked(kubectl, verb):
    """The words of each question to the agent that is this command."""
    return [question["words"] for question in kubectl.questions if question["words"][0] == verb]


def test_a_pod_that_is_as_planned_is_left_alone(kubectl):
    done = kubectl(f"fix {WEB} -n shop", WEB_POD, *AGENTS, OK)
    assert (done.code, done.out) == (0, f"shop/{WEB}: as planned, nothing to do\n"), done
    assert asked(kubectl, "apply") == []


def test_a_dry_run_shows_the_difference_and_changes_nothing(kubectl):
    done = kubectl(f"fix {WEB} -n shop --dry-run", WEB_POD, *AGENTS, BAD)
    assert done.code == 3
    assert done.out == f"shop/{WEB}: 1 difference from the plan\n  missing: IPv4 nat ISTIO_OUTPUT -j ISTIO_REDIRECT\n"
    assert asked(kubectl, "apply") == []


def test_with_yes_the_rules_are_reconciled_and_compared_once_more(kubectl):
    done = kubectl(f"fix {WEB} -n shop --yes", WEB_POD, *AGENTS, BAD, APPLIED)
    (words,) = asked(kubectl, "apply")
    assert words[words.index("apply") + 1 :][-1] == "--reconcile"
    assert "*" in words, "the options of the pod's init container go along"
    assert len(asked(kubectl, "verify")) == 2
    assert done.code == 3, "the second comparison says the same here, so nothing is claimed"
    assert done.out.count("1 difference from the plan") == 2


LOG = "2026-11-29T09:00:00.000000Z\twarn\tIPv6 is not captured\n2026-11-29T09:00:00.100000Z\tinfo\tprogrammed by nftables\ntable x\n"


def test_what_was_done_is_said_in_a_line_and_a_warning_of_several_pods_once(kubectl, monkeypatch):
    compared = iter([("missing: IPv4 nat ISTIO_OUTPUT -j X", "missing: IPv4 nat Y", "extra: IPv4 nat Z"), ()])
    monkeypatch.setattr(fix, "_compare", lambda *_: next(compared))
    done = kubectl(f"fix {WEB} -n shop --yes", WEB_POD, *AGENTS, {"words": f"{ASKED}apply*", "stdout": reply(0, "a listing\n", LOG)})
    assert done.code == 0, done
    assert done.out.splitlines()[-1] == f"shop/{WEB}: 2 rules restored, 1 removed: as planned"
    assert done.err == "warning: IPv6 is not captured\n"


def test_an_ephemeral_container_s_log_has_the_notes_beside_the_answer(kubectl):
    answer = json.dumps(json.loads(json.loads((FAKE / "shop" / "verify-bad.json").read_text())["answer"]), indent=2)
    started = {"words": f"debug -n shop {WEB} --image=registry.example/mesh/netinit:0.2.0 * -- verify *"}
    logged = {"words": f"logs -n shop {WEB} -c netinit-*", "stdout": f"warning: BPF programs may not be read here\n{answer}\n"}
    done = kubectl(f"fix {WEB} -n shop --dry-run --source debug", {"words": POD, "file": "pod-web-after.json"}, started, logged)
    assert done.out == f"shop/{WEB}: 1 difference from the plan\n  missing: IPv4 nat ISTIO_OUTPUT -j ISTIO_REDIRECT\n", done


def test_who_cannot_be_asked_has_to_say_yes_beforehand(kubectl):
    done = kubectl(f"fix {WEB} -n shop", WEB_POD, *AGENTS, BAD)
    assert (done.code, asked(kubectl, "apply")) == (2, [])
    assert "--yes: there is no terminal to confirm on" in done.err


def test_a_failed_change_is_an_error_with_its_reason(kubectl):
    failed = {"words": f"{ASKED}apply*", "stdout": reply(1, "", "error: the lock is held by pid 7")}
    done = kubectl(f"fix {WEB} -n shop -y", WEB_POD, *AGENTS, BAD, failed)
    assert done.code == 1
    assert f"shop/{WEB}: the rules stay as they were: error: the lock is held by pid 7" in done.err


def test_without_agent_and_container_nothing_is_changed_and_every_reason_is_told(kubectl):
    done = kubectl(f"fix {WEB} -n shop --yes", WEB_POD)
    assert done.code == 1
    assert "app.kubernetes.io/name=netinit-node" in done.err
    assert "kubectl debug" in done.err


def test_every_pod_of_a_deployment_is_looked_at(kubectl):
    tree = json.loads((FAKE / "shop" / "agents.json").read_text())
    (agent,) = [one for one in tree["items"] if one["spec"]["nodeName"] == "worker-1"]
    other = json.loads(json.dumps(agent))
    other["spec"]["nodeName"] = "worker-2"
    agents = [*AGENTS, {"words": "asked *verify*", "file": "verify-bad.json"}]
    done = kubectl("fix deploy/web -n shop --dry-run", *DEPLOYMENT, *agents, files={"agents.json": {**tree, "items": [agent, other]}})
    assert done.code == 3, done
    assert done.out.count("1 difference from the plan") > 1


def test_a_report_has_everything_and_no_name_of_the_cluster(kubectl):
    rules = "chain nat OUTPUT\n 1 -d 10.9.8.7/32 -j RETURN\n 2 -d 10.244.1.7/32 -j RETURN\n 3 -d 127.0.0.1/32 -j RETURN"
    node = {"status": {"nodeInfo": {"kernelVersion": "6.18.0", "osImage": "Debian", "machineID": "secret-id"}}}
    answers = [
        WEB_POD, *AGENTS, BAD, {"words": "get node worker-1 *", "stdout": json.dumps(node)},
        {"words": f"{ASKED}draw*", "stdout": reply(0, rules)}, {"words": f"{ASKED}audit*", "stdout": reply(0, f"shop/{WEB} on worker-1")},
        {"words": f"{ASKED}doctor*", "stdout": reply(0, "pods of web and of web-6d4cf56db6 will work")},
    ]  # fmt: skip
    done = kubectl(f"report {WEB} -n shop", *answers)
    assert done.code == 0, done
    assert re.findall("^## (.*)$", done.out, re.MULTILINE) == ["Versions", "Pod", "Options", "Rules compared", "Traffic", "Rules", "Doctor"]
    for text in (WEB, "shop", "worker-1", "web", "registry.example", "10.9.8.7", "10.244.1.7", "secret-id"):
        assert text not in done.out, text
    for text in ("netinit 0.", "kernelVersion: 6.18.0", "netinit apply", "ADDRESS-1/32", "-d 127.0.0.1/32", "NAMESPACE/POD on NODE", "pods of OWNER and of OWNER will work"):
        assert text in done.out, text
    assert '"CONTAINER-1"' in done.out
    assert '"istio-proxy" of proxyv2:1.27.0: runAsUser: 1337' in done.out
    plain = kubectl(f"report {WEB} -n shop --plain", *answers)
    assert f"shop/{WEB} on worker-1" in plain.out


def test_a_report_without_any_right_says_what_could_not_be_read(kubectl):
    done = kubectl(f"report {WEB} -n shop", WEB_POD)
    assert done.code == 0, done
    assert "node: not read: kubectl get node NODE" in done.out
    assert "verify needs the live state, which a manifest does not show" in done.out
