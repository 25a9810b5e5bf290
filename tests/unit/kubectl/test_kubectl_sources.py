"""Who reads a pod's rules: what each source asks, how its answer is read, and why it refuses, without a process."""

from __future__ import annotations

import json
import sys
import time

import pytest

from netinit.base.errors import BackendUnavailableError, ChildLostError, ClusterError
from netinit.cli.captured_run import CapturedRun
from netinit.kernel import children, run
from netinit.kernel.run import Finished
from netinit.kubectl import sources
from netinit.kubectl.common_options import AGENT, AUTO, EPHEMERAL, MANIFEST, Sources
from netinit.kubectl.objects import read_pod
from netinit.kubectl.program import Kubectl, read_json
from netinit.kubectl.sources import (
    AgentSource,
    EphemeralSource,
    ManifestSource,
    PodAnswer,
    PodQuestion,
    ask_first,
    bound,
    find_first,
)
from netinit.options import Options


def pod(name="web", node="n1", **spec):
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return read_pod({"metadata": metadata, "spec": {"nodeName": node, **spec}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}})


WEB = pod()
VERIFY = PodQuestion("verify", ("--json",), Options(inbound_ports=(80,)))


def agent(node="n1", *, name="agent-1", phase="Running", namespace="mesh", account="robot", kind="DaemonSet"):
    owners = [{"kind": kind, "controller": True}]
    return {
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners}, "status": {"phase": phase},
        "spec": {"nodeName": node, "serviceAccountName": account},
    }  # fmt: skip


ROBOT = {"kind": "ServiceAccount", "namespace": "mesh", "name": "robot"}
ROLES = {"items": [{"subjects": [ROBOT, {"kind": "User", "name": "x"}]}]}


class FakeKubectl:
    """Answers `get` by its first word, and each `ask` with the next of `outputs`. `asked`: the words, `inputs`: what they got."""

    def __init__(self, *outputs, **answers):
        self.outputs, self.answers, self.asked, self.inputs, self.extra = list(outputs), answers, [], [], None

    def get(self, *words):
        self.asked.append(" ".join(words))
        found = self.answers.get(words[0], {})
        found = found.pop(0) if isinstance(found, list) else found
        if isinstance(found, Exception):
            raise found
        return found

    def ask(self, *words):
        return self.ask_all([(words, "")])[0]

    def ask_all(self, asked, *, extra=0):
        self.extra = extra
        self.asked += [" ".join(words) for words, _ in asked]
        self.inputs += [text for _, text in asked]
        return [self.outputs.pop(0) for _ in asked]


def finished(output="", errors="", status=0):
    return Finished(program="kubectl", status=status, output=output, errors=errors)


def with_agents(*outputs, listed=(), roles=ROLES):
    return FakeKubectl(*outputs, pods={"items": list(listed) or [agent()]}, clusterrolebindings=roles)


class TestAgent:
    """The agents of the nodes."""

    def test_the_questions_of_a_node_are_one_call_and_nodes_are_asked_at_once(self):
        replies = [json.dumps({"code": number, "answer": f"{number}\n", "notes": "note: one\ntwo\n"}) for number in range(3)]
        kubectl = with_agents(
            finished("\n".join(replies[:2])), finished(replies[2]), listed=[agent(), agent("n2", name="agent-2")],
        )  # fmt: skip
        first, second, other = WEB, pod("db"), pod("far", "n2")
        source = AgentSource(kubectl)
        source.prepare([(first, VERIFY), (other, VERIFY), (second, VERIFY)])
        words = "-c agent -- netinit node run"
        assert kubectl.asked == [
            "pods -A -l app.kubernetes.io/name=netinit-node", "clusterrolebindings -l app.kubernetes.io/name=netinit-node",
            f"exec -i -n mesh agent-1 {words}", f"exec -i -n mesh agent-2 {words}",
        ]  # fmt: skip
        assert kubectl.extra == 4.0
        live = list(VERIFY.live)
        assert [[json.loads(line) for line in text.splitlines()] for text in kubectl.inputs] == [
            [{"uids": [f"uid-{name}"], "title": f"shop/{name}", "environ": {}, "words": live} for name in names]
            for names in (["web", "db"], ["far"])
        ]
        assert all(text.endswith("\n") for text in kubectl.inputs)
        by_agent = "live rules, read through the node agent mesh/agent-"
        assert [source.ask(one, VERIFY) for one in (first, second, other)] == [
            PodAnswer(0, "0\n", ("one", "two"), f"{by_agent}1"), PodAnswer(1, "1\n", ("one", "two"), f"{by_agent}1"),
            PodAnswer(2, "2\n", ("one", "two"), f"{by_agent}2"),
        ]  # fmt: skip
        assert len(kubectl.asked) == 4
        kubectl.outputs.append(finished(replies[2]))
        assert source.ask(WEB, VERIFY).code == 2, "a repeated question is asked again"

    @pytest.mark.parametrize(
        ("done", "message"),
        [
            (finished(""), "gave no answer that can be read; is it another version?"),
            (finished('{"code": "0"}'), "gave no answer that can be read; is it another version?"),
            (finished("", " Forbidden\n", 1), "Forbidden"),
            (finished("", "", 7), "ended with 7"),
            (finished('{"code": 1, "error": "the pod is gone"}'), "the pod is gone"),
        ],
    )
    def test_what_is_no_answer_is_an_error_with_the_agents_name(self, done, message):
        with pytest.raises(ClusterError) as error:
            AgentSource(with_agents(done)).ask(WEB, VERIFY)
        assert str(error.value) == f"the node agent mesh/agent-1: {message}"

    def test_an_answer_counts_though_the_program_failed_later(self):
        found = AgentSource(with_agents(finished('{"code": 3, "answer": "x"}', "broken", 1))).ask(WEB, VERIFY)
        assert (found.code, found.output, found.notes) == (3, "x", ())

    @pytest.mark.parametrize(
        "listed",
        [
            [agent("n2")], [agent(phase="Pending")], [agent(kind="ReplicaSet")], [agent(namespace="evil")],
            [agent(account="default")],
        ],
    )  # fmt: skip
    def test_only_a_running_agent_of_the_node_that_the_chart_names_is_trusted(self, listed):
        with pytest.raises(ClusterError, match=r'^no node agent runs on the node "n1"$'):
            AgentSource(with_agents(listed=listed)).find("n1")

    def test_in_a_namespace_that_the_user_names_no_role_is_read(self):
        kubectl = with_agents(listed=[agent(account="default")])
        assert AgentSource(kubectl, "mesh").find("n1").title == "mesh/agent-1"
        assert kubectl.asked == ["pods -n mesh -l app.kubernetes.io/name=netinit-node"]

    def test_without_the_right_to_see_roles_no_agent_is_trusted(self):
        with pytest.raises(ClusterError) as error:
            AgentSource(with_agents(roles=ClusterError("kubectl: Forbidden"))).find("n1")
        hint = "which node agent to trust is not known, name its namespace with --agent-namespace"
        assert str(error.value) == f"{hint}: kubectl: Forbidden"


def container(name, **state):
    return {"status": {"ephemeralContainerStatuses": [{"name": "other"}, {"name": name, "state": state}]}}


class TestEphemeral:
    """A container that is added to the pod."""

    @pytest.fixture(autouse=True)
    def _named(self, monkeypatch):
        monkeypatch.setattr(sources.secrets, "token_hex", lambda size: "ab" * size)

    def test_its_log_is_the_answer_and_its_exit_code_the_code(self):
        states = [{}, container("netinit-abababab", waiting={}), container("netinit-abababab", terminated={"exitCode": 3})]
        kubectl = FakeKubectl(finished(), finished('warning: mind\n{\n  "ok": true\n}\nnote: end\n'), pod=states)
        found = EphemeralSource(kubectl, "netinit:1", pause=0.0).ask(WEB, VERIFY)
        name = "netinit-abababab"
        source = f"live rules, read by the ephemeral container {name}, which has ended and stays listed until the pod is deleted"
        assert found == PodAnswer(3, '{\n  "ok": true\n}', ("warning: mind", "end"), source)
        flags = f"--image=netinit:1 --profile=netadmin --container={name} --quiet --arguments-only"
        assert kubectl.asked == [
            f"debug -n shop web {flags} -- {' '.join(VERIFY.live)}", *["pod web -n shop"] * 3, f"logs -n shop web -c {name}",
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("outputs", "states", "message"),
        [
            ([finished("", "Forbidden", 1)], [], "kubectl debug: Forbidden"),
            ([finished()], [container("netinit-abababab", waiting={"reason": "ErrImagePull"})],
             'the ephemeral container netinit-abababab of shop/web does not end: "ErrImagePull"'),
            ([finished()], [{}], 'the ephemeral container netinit-abababab of shop/web does not end: "it has not started"'),
        ],
    )  # fmt: skip
    def test_one_that_does_not_run_is_an_error(self, outputs, states, message):
        with pytest.raises(ClusterError) as error:
            EphemeralSource(FakeKubectl(*outputs, pod=states), "netinit:1", seconds=-1.0, pause=0.0).ask(WEB, VERIFY)
        assert str(error.value) == message

    def test_without_an_image_none_is_started(self):
        with pytest.raises(ClusterError) as error:
            EphemeralSource(FakeKubectl(), "").ask(WEB, VERIFY)
        assert str(error.value) == "no image for an ephemeral container is known: name it with --image or NETINIT_IMAGE"


class Followed:
    """A program whose lines are given."""

    def __init__(self, *lines):
        self.given, self.errors, self.status, self.finished = lines, "no such command", 2, False

    def lines(self):
        return iter(self.given)

    def finish(self):
        self.finished = True


class TestFollowing:
    """Commands that go on until they are stopped."""

    QUESTION = PodQuestion("watch", ("--all",))

    def follow(self, kubectl, followed, source):
        kubectl.follow = lambda *words: kubectl.asked.append(" ".join(words)) or followed
        return source.follow(WEB, self.QUESTION)

    def test_the_agent_says_first_that_it_follows(self):
        kubectl, followed = with_agents(), Followed('{"following": "watch"}', "line")
        found = self.follow(kubectl, followed, AgentSource(kubectl))
        assert (found.followed, found.source, found.find_code) == (followed, "live, through the node agent mesh/agent-1", None)
        words = " ".join(self.QUESTION.live)
        assert kubectl.asked[-1] == f"exec -i -n mesh agent-1 -c agent -- netinit node run --uid=uid-web -- {words}"
        assert not followed.finished

    @pytest.mark.parametrize("lines", [(), ('{"following": "trace"}',), ("x",)])
    def test_an_agent_that_does_not_is_ended_and_an_error(self, lines):
        kubectl, followed = with_agents(), Followed(*lines)
        with pytest.raises(ClusterError, match=r"^the node agent mesh/agent-1: no such command$"):
            self.follow(kubectl, followed, AgentSource(kubectl))
        assert followed.finished

    def test_an_ephemeral_container_is_attached_to_and_its_exit_code_is_found_later(self, monkeypatch):
        monkeypatch.setattr(sources.secrets, "token_hex", lambda size: "ab" * size)
        kubectl, followed = FakeKubectl(pod=[container("netinit-abababab", terminated={"exitCode": 7})]), Followed()
        found = self.follow(kubectl, followed, EphemeralSource(kubectl, "netinit:1"))
        name = "netinit-abababab"
        source = f"live, by the ephemeral container {name}, which stays listed until the pod is deleted"
        assert (found.followed, found.source, found.find_code()) == (followed, source, 7)
        assert kubectl.asked[0].startswith(f"debug -i -n shop web --image=netinit:1 --profile=netadmin --container={name} --quiet")


class TestManifest:
    """What should be there."""

    def test_the_manifest_is_the_input_of_the_command(self, monkeypatch):
        asked = []

        def run_captured(words, environ, stdin):
            asked.append((words, environ, json.loads(stdin)))
            return CapturedRun(4, "captured\n", "note: planned\n")

        monkeypatch.setattr(sources, "run_captured", run_captured)
        monkeypatch.setattr(children, "ask", lambda action, **_: action())
        found = ManifestSource().ask(WEB, PodQuestion("explain", ("--to", "192.0.2.1:80")))
        what = "only the pod's manifest: what the rules should be; the live ones were not read"
        assert found == PodAnswer(4, "captured\n", ("planned",), what)
        assert asked == [(("explain", "--pod", "-", "--to", "192.0.2.1:80"), {}, WEB.tree)]

    def test_a_child_answers_what_the_command_prints_and_this_process_starts_no_program(self, monkeypatch):
        monkeypatch.setattr(run, "start", lambda *_, **__: pytest.fail("a program was started"))
        before = sys.stdin
        web = read_pod({"kind": "Pod", **WEB.tree})
        found = ManifestSource().ask(web, PodQuestion("explain", ("--to", "192.0.2.1:80", "--json")))
        assert (found.code, found.tree["verdict"], sys.stdin) == (0, "unknown", before)
        refused = ManifestSource().ask(web, PodQuestion("explain", ("--to", "192.0.2.1")))
        assert (refused.code, refused.output) == (2, "")
        assert refused.notes[-1].startswith("netinit: --to-port: the port is missing")

    def test_a_child_that_does_not_answer_in_time_is_stopped(self, monkeypatch):
        monkeypatch.setattr(sources, "ANSWER_SECONDS", 0.1)
        monkeypatch.setattr(sources, "run_captured", lambda *_: time.sleep(60))
        with pytest.raises(ChildLostError, match="did not finish within 0 s"):
            ManifestSource().ask(WEB, PodQuestion("explain"))

    @pytest.mark.parametrize("verb", ["verify", "doctor", "watch", "trace", "apply"])
    def test_what_needs_live_rules_is_refused(self, verb):
        with pytest.raises(ClusterError) as error:
            ManifestSource().ask(WEB, PodQuestion(verb))
        assert str(error.value) == f"{verb} needs the live state, which a manifest does not show"


class Refuses:
    """A source that has no answer."""

    def __init__(self, error):
        self.error = error

    def ask(self, *_):
        raise self.error


class Answers:
    """A source that has one."""

    def ask(self, *_):
        return PodAnswer(0, "yes", ("own",))


def test_the_first_source_with_an_answer_is_used_and_earlier_refusals_are_notes():
    first, second = Refuses(ClusterError("one")), Refuses(ClusterError("two"))
    assert ask_first([first, Answers(), second], WEB, VERIFY) == PodAnswer(0, "yes", ("one", "own"))
    with pytest.raises(ClusterError) as error:
        ask_first([first, second], WEB, VERIFY)
    assert str(error.value) == "shop/web: one; two"


def test_a_program_that_cannot_be_started_ends_the_search():
    broken = Refuses(BackendUnavailableError("kubectl cannot be started"))
    with pytest.raises(ClusterError, match=r"^kubectl cannot be started$"):
        find_first([broken, Answers()], WEB, lambda one: one.ask())


@pytest.mark.parametrize(
    ("chosen", "found", "live"),
    [
        (AUTO, ["AgentSource", "EphemeralSource", "ManifestSource"], ["AgentSource", "EphemeralSource"]),
        (AGENT, ["AgentSource"], ["AgentSource"]), (EPHEMERAL, ["EphemeralSource"], ["EphemeralSource"]),
        (MANIFEST, ["ManifestSource"], []),
    ],
)  # fmt: skip
def test_sources_are_asked_in_order_or_only_the_chosen_one(chosen, found, live):
    chooses = Sources([WEB], FakeKubectl(), AgentSource(with_agents()), "", chosen)
    assert [type(one).__name__ for one in chooses.of(WEB)] == found
    assert [type(one).__name__ for one in chooses.live(WEB)] == live


@pytest.mark.parametrize(
    ("named", "variable", "own", "image"),
    [
        ("a:1", "b:1", "registry.example/netinit:1", "a:1"), ("", "b:1", "registry.example/netinit:1", "b:1"),
        ("", "", "registry.example:5000/mesh/netinit:0.2@sha256:aa", "registry.example:5000/mesh/netinit:0.2@sha256:aa"),
        ("", "", "netinit", "netinit"), ("", "", "registry.example/istio/proxyv2:1", ""), ("", "", "netinit/other", ""),
    ],
)  # fmt: skip
def test_the_image_is_the_named_one_or_that_of_the_pods_own_init_container(named, variable, own, image, monkeypatch):
    monkeypatch.setattr("netinit.kubectl.common_options.environment", lambda: {"NETINIT_IMAGE": variable} if variable else {})
    one = pod(initContainers=[{"name": "istio-init", "image": own}])
    (source,) = Sources([one], FakeKubectl(), AgentSource(with_agents()), named, EPHEMERAL).live(one)
    assert source.image == image


def test_a_question_has_the_options_of_the_rules_and_reads_live_ones():
    options = Options(inbound_ports=(80,), run_validation=True, netns="/n", backend="nftables")
    assert PodQuestion("explain", ("--to", "x"), options).live == (
        "explain", "-u", "1337", "-b", "80", "--backend", "nftables", "--live", "--to", "x",
    )  # fmt: skip
    assert "--live" not in PodQuestion("verify", (), options).live


def test_an_answer_is_cut_to_lines_and_characters_that_can_be_shown():
    assert bound("") == ()
    assert bound("a\nb\n") == ("a", "b")
    assert bound("x\n" * 2000) == ("x",) * 2000
    assert bound("x\n" * 2001) == ("x",) * 2000 + ("…",)
    assert bound("y" * ((1 << 20) + 1)) == ("y" * (1 << 20) + "…",)


def test_the_object_of_an_answer_is_json_or_an_error_with_the_notes():
    assert PodAnswer(0, '{"a": 1}').tree == {"a": 1}
    for notes, message in (((), "no answer"), (("one", "two"), "one; two")):
        with pytest.raises(ClusterError, match=f"^{message}$"):
            _ = PodAnswer(1, "[]", notes).tree
    assert [read_json(text) for text in ("", "[]", "{", "null", "[" * 100_000, "{}")] == [None] * 5 + [{}]


class TestKubectl:
    """The program's own words."""

    @pytest.mark.parametrize(
        ("done", "message"),
        [
            (finished("", "e" * 401, 1), f"kubectl get pod web: {'e' * 400}…"),
            (finished("", "", 9), "kubectl get pod web: ended with 9"),
            (finished("[]"), "kubectl get pod web: the answer is not a JSON object; is /bin/kubectl kubectl?"),
        ],
    )
    def test_an_answer_that_is_none_is_an_error_with_the_words(self, done, message, monkeypatch):
        monkeypatch.setattr(Kubectl, "ask", lambda *_: done)
        with pytest.raises(ClusterError) as error:
            Kubectl("/bin/kubectl").get("pod", "web")
        assert str(error.value) == message

    def test_flags_stand_behind_the_command(self, monkeypatch):
        asked = []

        def run(*given):
            asked.append(given)
            return [finished(" \n")]

        monkeypatch.setattr("netinit.kubectl.program._run_at_once", run)
        assert Kubectl("/bin/kubectl", ("--context=c",), {"A": "b"}).get("pod", "web") == {}
        words = ("get", "--context=c", "pod", "web", "--ignore-not-found", "-o", "json")
        assert asked == [([("/bin/kubectl", words, "")], {"A": "b"}, 0)]

    def test_a_program_that_cannot_run_is_an_error(self, monkeypatch):
        monkeypatch.setattr("netinit.kubectl.program._run_at_once", lambda *_: [finished(), BackendUnavailableError("too long")])
        with pytest.raises(BackendUnavailableError, match=r"^too long$"):
            Kubectl("/bin/kubectl").ask_all([(("a",), ""), (("b",), "")], extra=1.5)
