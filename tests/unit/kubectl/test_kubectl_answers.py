"""What `kubectl netinit` makes of the answers about pods: tables, groups of equal pods, differences, and parts of a report."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netinit.base.errors import ClusterError, NetinitError
from netinit.cli.console import fit
from netinit.kubectl import check, fix, pod_command, report
from netinit.kubectl.objects import read_pod
from netinit.kubectl.sources import PodAnswer
from netinit.options import Options


def pod(name="web", **more):
    metadata = {"name": name, "namespace": "shop", "uid": "u"}
    return read_pod({"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}, **more})


WEB = pod()


class Source:
    """A source with these answers; an exception is raised."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []

    def ask(self, one, question):
        self.asked.append((one.title, question.verb, question.words))
        found = self.answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def row(name, rules, workload="", **more):
    found = {
        "namespace": "shop", "workload": workload or f"pod/{name}", "name": name, "injected": True, "reason": "init container", "rules": rules, "differences": [],
        "bypasses": [], "warnings": [], "listeners": [],
    }  # fmt: skip
    return found | more


class TestCheck:
    """The table of all pods."""

    def test_what_to_act_on_comes_first_by_namespace_and_workload_and_equal_pods_are_one_row(self):
        rows = [
            row("f", "ended", bypasses=None),
            *[row(f"web-{number}", "as planned", "deploy/web", bypasses=["n (configuration)", "m (foreign)"]) for number in range(4)],
            row("d", "not read", reasonNotRead="no node agent runs on the node", warnings=["w"]),
            row("s", "starting"),
            row("0", None, injected=False, reason="neither an init container nor a proxy", bypasses=None, warnings=["\x1b[2J"]),
            row("b", "different", differences=["missing x", "extra y"], warnings=["w"]),
            *[row(f"log-{number}", "as planned", "ds/log", namespace="infra") for number in range(12)],
            row("log-x", "different", "ds/log", namespace="infra", differences=["missing x"]),
        ]
        assert check.render_rows(rows).splitlines() == [
            "infra",
            "  ds/log: log-x             1 pod    different     [1]",
            "  ds/log: log-0, log-1 +10  12 pods  as planned",
            "shop",
            "  pod/b                     1 pod    different     [1] [2] [3]",
            "  pod/0                     1 pod    not injected  [4] [5]",
            "  pod/d                     1 pod    not read      [6] [3]",
            "  pod/s                     1 pod    starting",
            "  deploy/web                4 pods   as planned    [7] [8]",
            "",
            "[1] missing x",
            "[2] extra y",
            "[3] w",
            "[4] not injected: neither an init container nor a proxy",
            "[5] \\x1b[2J",
            "[6] no node agent runs on the node",
            "[7] bypasses the proxy: n (configuration)",
            "[8] bypasses the proxy: m (foreign)",
            "",
            "22 pods: 16 with rules as planned, 2 with rules different, 1 with rules not read, 1 starting, 1 ended, 1 not injected",
        ]

    def test_without_a_pod_of_a_mesh_it_says_so(self):
        assert check.render_rows([]) == "no pod here is in a mesh\n"

    def test_with_ended_pods_alone_it_counts_them(self):
        assert check.render_rows([row("a", "ended")]) == "1 pod: 1 ended\n"

    def test_who_does_not_listen_comes_before_the_warnings_of_the_manifest(self):
        printed = check.render_rows([row("a", "as planned", listeners=["nothing listens on 15001 (NI301)"], warnings=["w"])]).splitlines()
        assert printed[3:5] == ["[1] nothing listens on 15001 (NI301)", "[2] w"]

    def test_of_many_differences_some_are_shown_and_the_rest_counted(self):
        printed = check.render_rows([row("a", "different", differences=[f"missing {number}" for number in range(12)])]).splitlines()
        assert printed[1] == "  pod/a  1 pod  different  [1] [2] [3] [4] [5] +7"
        assert printed[3:8] == [f"[{number + 1}] missing {number}" for number in range(5)]

    def test_the_rows_of_a_usual_cluster_fit_a_terminal(self):
        names = ("deploy/checkout-service-v2", "sts/postgres-primary", "ds/node-exporter", "rs/frontend-5d8f9c7b6d")
        long = "UDP and other non-TCP traffic of all ports, in and out, which the proxy does not take (by configuration)" * 2
        rows = [row(f"{one[-8:]}-{n}", "as planned", one, namespace=f"team-{n % 7}-production", bypasses=[long]) for one in names for n in range(50)]
        printed = [part for line in check.render_rows(rows).splitlines() for part in fit(line, 80)]
        assert max(map(len, printed)) <= 80
        assert len(printed) < 50

    @pytest.mark.parametrize(
        ("answer", "found"),
        [
            (PodAnswer(0, '{"ok": true}', (), "the agent"), {"rules": "as planned", "source": "the agent", "differences": [], "listeners": []}),
            (PodAnswer(0, '{"ok": 1}', (), "the agent"), {"rules": "different", "source": "the agent", "differences": [], "listeners": []}),
            (PodAnswer(3, '{"differences": [{"kind": "missing", "chain": "OUTPUT", "rule": "-j X"}, {"kind": "extra"}]}'),
             {"rules": "different", "source": "", "differences": ["missing OUTPUT -j X", "extra"], "listeners": []}),
            (PodAnswer(0, '{"ok": true, "listeners": [{"text": "nothing listens on 15001", "code": "NI301"}, 7]}'),
             {"rules": "as planned", "source": "", "differences": [], "listeners": ["nothing listens on 15001 (NI301)"]}),
            (ClusterError("no agent"), {"rules": "not read", "source": "manifest", "reasonNotRead": "no agent"}),
            (PodAnswer(1, "", ("broken",)), {"rules": "not read", "source": "manifest", "reasonNotRead": "broken"}),
        ],
    )  # fmt: skip
    def test_rules_are_as_planned_only_where_the_answer_says_so(self, answer, found):
        source = Source(answer)
        assert check._verify(WEB, SimpleNamespace(options=Options()), source) == found
        assert source.asked == [("shop/web", "verify", ("--json",))]

    def test_bypasses_by_design_are_counted_and_others_named(self):
        traffic = [
            {"kind": "ipv6", "title": "IPv6", "by": "configuration"}, {"kind": "proxy", "title": "p", "by": "design"},
            {"kind": "not-tcp", "title": "u", "by": "design"}, {"kind": "captured", "title": "c", "by": "covered"},
            {"kind": "none"},
        ]  # fmt: skip
        assert check._summarize({"traffic": traffic}) == {"bypasses": ["IPv6 (configuration)"], "byDesign": 2}


class Agent:
    """A node's agent that answers by verb; `asked` are the questions, `prepared` those that were announced together."""

    def __init__(self, **answers):
        self.answers, self.asked, self.prepared = answers, [], []

    def base(self, node):
        self.asked.append(("base", node))
        return Options(ipv6="reject")

    def prepare(self, questions):
        self.prepared.append([(one.name, question.verb) for one, question in questions])

    def ask(self, one, question):
        self.asked.append((one.name, question.verb))
        found = self.answers[question.verb]
        if isinstance(found, Exception):
            raise found
        return found


INIT = {"initContainers": [{"name": "istio-init", "args": ["-b", "80", "-i", "*"]}], "containers": [{"name": "app"}]}
PROXY = {"containers": [{"name": "app"}, {"name": "istio-proxy", "image": "proxyv2"}]}
EMPTY_ROW = {
    "namespace": "shop", "name": "web", "injected": False, "reason": "", "rules": None, "differences": [], "bypasses": None,
    "byDesign": None, "source": None, "warnings": [], "listeners": [], "workload": "pod/web",
}  # fmt: skip


class TestRows:
    """A pod's row from its manifest, and what the agents add to it."""

    def look(self, spec, *, phase="Running", meshed=True, agent=None):
        one = pod(spec={"nodeName": "n1", **spec}, kind="Pod", apiVersion="v1", status={"phase": phase})
        return check._look(one, agent or Agent(), meshed=meshed)

    def test_a_pod_that_is_not_in_the_mesh_has_a_row_where_its_namespace_is(self):
        reason = "neither an init container nor a proxy"
        assert self.look({"containers": [{"name": "app"}]}) == (EMPTY_ROW | {"reason": reason}, None)
        assert self.look({"containers": [{"name": "app"}]}, meshed=False) == (None, None)
        assert self.look({"containers": [{"name": "app"}]}, phase="Failed") == (None, None)
        host = self.look({"hostNetwork": True, "containers": [{"name": "app"}]})
        assert host == (EMPTY_ROW | {"reason": "on its node's network"}, None)

    def test_a_gateway_has_no_row_because_no_rules_are_planned_for_it(self):
        assert self.look({"containers": [{"name": "istio-proxy", "image": "p", "args": ["proxy", "router"]}]}) == (None, None)

    def test_a_pod_of_the_mesh_has_its_options(self):
        agent = Agent()
        found, facts = self.look(INIT, meshed=False, agent=agent)
        warnings = found.pop("warnings")
        assert found == {key: value for key, value in EMPTY_ROW.items() if key != "warnings"} | {
            "injected": True, "reason": "init container",
        }  # fmt: skip
        assert [str(finding) for finding in facts.findings] == warnings
        assert (facts.options.inbound_ports, facts.options.ipv6, agent.asked) == ((80,), "auto", [])
        ended, _ = self.look(INIT, phase="Succeeded")
        assert (ended["injected"], ended["rules"]) == (True, "ended")

    def test_a_pod_without_an_init_container_has_the_options_of_its_nodes_agent(self):
        agent = Agent()
        found, facts = self.look(PROXY, agent=agent)
        assert (found["injected"], facts.options.ipv6, agent.asked) == (True, "reject", [("base", "n1")])

    def test_options_that_cannot_be_read_are_a_warning(self):
        found, facts = self.look({"initContainers": [{"name": "istio-init", "args": ["-b", "x"]}], "containers": []})
        assert (found["reason"], found["injected"], facts) == ("its options cannot be read", False, None)
        assert "'x' is not a port" in found["warnings"][0]

    def test_agents_are_asked_about_all_rules_and_then_about_those_that_differ(self):
        traffic = '{"pods": [{"traffic": [{"kind": "ipv6", "title": "IPv6", "by": "configuration"}]}]}'
        verified = PodAnswer(3, '{"differences": [{"kind": "missing"}]}', (), "agent")
        agent = Agent(verify=verified, audit=PodAnswer(0, traffic))
        ended = pod("done", spec=INIT, kind="Pod", apiVersion="v1", status={"phase": "Failed"})
        plain = pod("plain", spec={"containers": []}, kind="Pod", apiVersion="v1")
        rows = check._look_at_all([pod(spec=INIT, kind="Pod", apiVersion="v1"), ended, plain], agent, {"shop"})
        assert agent.prepared == [[("web", "verify")], [("web", "audit")]]
        assert [(one["name"], one["rules"], one["bypasses"]) for one in rows] == [
            ("web", "different", ["IPv6 (configuration)"]), ("done", "ended", None), ("plain", None, None),
        ]  # fmt: skip
        agent = Agent(verify=verified, audit=ClusterError("gone"))
        (found,) = check._look_at_all([pod(spec=INIT, kind="Pod", apiVersion="v1")], agent, set())
        assert (found["rules"], found["bypasses"]) == ("different", None)

    def test_namespaces_with_injection_are_those_with_its_labels(self):
        labels = {"a": {"istio-injection": "enabled"}, "b": {"istio-injection": "disabled"}, "c": {"istio.io/rev": "x"}, "d": {}}
        listed = [{"metadata": {"name": name, "labels": own}} for name, own in labels.items()]
        asked = []

        def get(*words):
            asked.append(words)
            return {"items": listed} if words == ("namespaces",) else {} if words[1] == "e" else listed["abcd".index(words[1])]

        kubectl = SimpleNamespace(get=get)
        meshed = check.MeshedNamespaces(kubectl, everywhere=True)
        assert [name in meshed for name in "abcde"] == [True, False, True, False, False]
        assert asked == [("namespaces",), ("namespace", "e")], "the last one is newer than the list"
        asked.clear()
        meshed = check.MeshedNamespaces(kubectl, everywhere=False)
        assert [name in meshed for name in "aab"] == [True, True, False]
        assert (asked, meshed.notes) == ([("namespace", "a"), ("namespace", "b")], [])

        def refuse(*_):
            asked.append("refused")
            raise ClusterError("Forbidden")

        meshed, asked[:] = check.MeshedNamespaces(SimpleNamespace(get=refuse), everywhere=False), []
        assert [name in meshed for name in "ab"] == [False, False]
        assert (asked, meshed.notes) == (["refused"], ["only pods that have a proxy are listed: Forbidden"])

    def test_a_list_whose_pages_are_gone_before_its_end_is_continued_by_namespace(self):
        lists = {"": ["a-b/1", "a/1"], "a-b": ["a-b/1"], "a": ["a/1", "a/2"], "b": ["b/1"]}
        asked = []

        def list_pages(_, namespace=""):
            asked.append(namespace)
            yield [{"metadata": dict(zip(("namespace", "name"), one.split("/"), strict=True))} for one in lists[namespace]]
            if not namespace or self.ends == "always":
                raise ClusterError(f"kubectl get: Error from server ({self.reason}): The provided continue parameter is too old")

        kubectl = SimpleNamespace(list_pages=list_pages, get=lambda _: {"items": [{"metadata": {"name": name}} for name in ("a", "a-b", "b")]})
        self.reason, self.ends = "Expired", "of all"
        found = [one.title for one in check._list_pods(kubectl, "", everywhere=True)]
        assert found == ["a-b/1", "a/1", "a/1", "a/2", "b/1"], "the last namespace is read again, and those behind it"
        assert asked == ["", "a", "b"]
        for self.reason, self.ends, where, everywhere in (("Forbidden", "of all", "", True), ("Expired", "always", "a", False), ("Expired", "always", "", True)):
            with pytest.raises(ClusterError, match=self.reason):
                list(check._list_pods(kubectl, where, everywhere=everywhere))

    def test_of_pods_that_were_looked_at_no_object_is_kept_and_those_that_are_intercepted_alike_share_their_facts(self):
        seen = []

        class Sees(Agent):
            def prepare(self, asked):
                seen.extend(asked)
                super().prepare(asked)

        pods = (pod(name, spec=INIT, kind="Pod", apiVersion="v1") for name in ("web-1", "web-2"))
        check._look_at_all(pods, Sees(verify=ClusterError("gone")), set())
        assert [one.name for one, _ in seen] == ["web-1", "web-2"]
        assert [one.tree for one, _ in seen] == [{}, {}]
        assert seen[0][1].options is seen[1][1].options


class TestFix:
    """What differs, and how it was repaired."""

    @pytest.mark.parametrize(
        ("answer", "differences"),
        [
            (PodAnswer(0, '{"ok": true, "differences": [{"kind": "missing"}]}'), ()),
            (PodAnswer(3, '{"ok": false, "differences": [{"kind": "missing", "where": "IPv4", "table": "nat", "rule": "-j X"}]}'),
             ("missing: IPv4 nat -j X",)),
            (PodAnswer(3, '{"ok": 1}', ("one", "two")), ("one", "two")),
            (PodAnswer(3, "{}"), ("the rules could not be compared",)),
        ],
    )  # fmt: skip
    def test_what_is_not_as_planned_is_a_difference(self, answer, differences):
        assert fix._compare(WEB, Options(), Source(answer)) == differences

    @pytest.mark.parametrize(
        ("left", "code", "out"),
        [
            ('{"ok": true}', 0, "shop/web: 1 rule restored: as planned\n"),
            ('{"differences": [{"kind": "extra", "rule": "-j X"}]}', 3, "shop/web: 1 difference from the plan\n  extra: -j X\n"),
        ],
    )
    def test_after_the_repair_the_rules_are_compared_again(self, left, code, out, capsys):
        source = Source(PodAnswer(0, "", ("programmed", "warning: w", "T\tinfo\ti", "T\terror\te")), PodAnswer(0, left))
        warned = {}
        assert fix._reconcile(fix.PodState(WEB, Options(), source, ("missing: x",)), warned) == code
        assert capsys.readouterr() == (out, "")
        assert list(warned) == ["w", "e"]
        assert [asked[1:] for asked in source.asked] == [("apply", ("--reconcile",)), ("verify", ("--json",))]

    @pytest.mark.parametrize(
        ("answer", "why"),
        [(PodAnswer(1, "one\ntwo\n", ("note",)), "note; one; two"), (PodAnswer(1, ""), "no reason is given")],
    )
    def test_a_repair_that_fails_is_an_error_with_its_reason(self, answer, why):
        with pytest.raises(NetinitError) as error:
            fix._reconcile(fix.PodState(WEB, Options(), Source(answer), ("x",)), {})
        assert str(error.value) == f"shop/web: the rules stay as they were: {why}"


def status(one, *body, code=0, notes=()):
    return pod_command._PodStatus(one, body, code, {"source": f"source of {one.name}", "notes": list(notes)})


class TestGroups:
    """Pods of a workload whose answers are equal."""

    def test_an_answer_without_names_addresses_and_counters_is_compared(self):
        two = {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}
        one = status(pod(status=two), "shop/web at 10.0.0.1 and [fd00::1]:80", "  -j X  [12 packets]", '"packets": 7, 10.0.0.11')
        assert one.meaning == ("POD at POD and [POD]:80", "  -j X", ", 10.0.0.11")

    def test_the_outliers_come_first_and_equal_pods_are_a_line_each(self):
        groups = pod_command._group([status(pod(name), answer) for name, answer in (("a", "same"), ("b", "other"), ("c", "same"))])
        assert pod_command._arrange(groups) == [
            "shop/b: source of b", "other", "shop/a: source of a", "same", "shop/c: source of c: the same as of a",
            "3 pods: 2 different answers",
        ]  # fmt: skip

    def test_one_pod_has_no_summary_and_equal_ones_have(self):
        one = status(pod("a"), "x", notes=("n",))
        assert pod_command._arrange([[one]]) == ["shop/a: source of a", "  note: n", "x"]
        assert pod_command._arrange([[one, status(pod("b"), "x")]])[-1] == "2 pods: all the same"


class TestReport:
    """Parts of a report."""

    def test_a_section_is_a_block_that_no_row_ends(self):
        assert list(report._section("Pod", ["a ``` b", "\x1b"])) == ["## Pod", "", "```text", "a ''' b", "\\x1b", "```", ""]

    def test_the_node_is_described_by_versions_alone(self):
        info = {"kernelVersion": "6.1", "machineID": "secret", "architecture": "amd64", "osImage": "Debian"}
        kubectl = SimpleNamespace(get=lambda *words: {"status": {"nodeInfo": info}} if words == ("node", "n1") else {})
        assert report._describe_node(kubectl, WEB) == ["kernelVersion: 6.1", "osImage: Debian", "architecture: amd64"]

    def test_a_container_is_described_by_its_rights_and_the_meshs_ones_by_their_image(self):
        context = {"runAsUser": 1, "runAsGroup": 2, "privileged": True, "capabilities": {"add": ["NET_ADMIN"]}, "x": 1}
        proxy = {"name": "istio-proxy", "image": "r.example/proxyv2:1", "restartPolicy": "Always", "securityContext": context}
        assert report._describe_container(proxy) == (
            '"istio-proxy" of proxyv2:1: restartPolicy: Always, runAsUser: 1, runAsGroup: 2, privileged: True, '
            "capabilities: {'add': ['NET_ADMIN']}"
        )
        assert report._describe_container({"name": "app", "image": "r.example/app:1"}) == '"app"'

    def test_names_of_the_cluster_become_words_and_containers_numbers(self):
        metadata = {
            "name": "web-1-x", "namespace": "shop", "generateName": "web-1-", "ownerReferences": [{"name": "web-1"}],
        }  # fmt: skip
        spec = {
            "nodeName": "n1", "serviceAccountName": "robot", "initContainers": [{"name": "istio-init"}, {"name": "first"}],
            "containers": [{"name": "app"}, {"name": "istio-proxy"}], "ephemeralContainers": [{"name": "debug"}],
        }  # fmt: skip
        assert report._find_names(pod(metadata=metadata, spec=spec)) == {
            "web": "OWNER", "web-1": "OWNER", "robot": "ACCOUNT", "n1": "NODE", "shop": "NAMESPACE", "web-1-x": "POD",
            '"first"': '"CONTAINER-1"', '"app"': '"CONTAINER-2"', '"debug"': '"CONTAINER-3"',
        }  # fmt: skip
        spec["serviceAccountName"] = "default"
        assert "default" not in report._find_names(pod(metadata=metadata, spec=spec))
