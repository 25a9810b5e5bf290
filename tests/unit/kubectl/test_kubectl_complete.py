"""What is proposed for the next word of `kubectl netinit`, and what is asked of the cluster for it."""

from __future__ import annotations

import pytest

from netinit.base.errors import NetinitError
from netinit.cli.commands import KUBECTL
from netinit.kernel.run import Finished
from netinit.kubectl import complete

PODS = "get pods,deployments"


@pytest.fixture
def propose(run, monkeypatch):
    """`propose(words, output)`: the lines before the mask of directives; `propose.asked` are kubectl's words."""

    class Kubectl:
        def ask(self, *words):
            propose_all.asked.append(" ".join(words))
            return Finished(program="kubectl", status=propose_all.status, output=propose_all.output, errors="")

    def propose_all(*words, output="", status=0):
        propose_all.asked, propose_all.output, propose_all.status = [], output, status
        done = run(["netinit", "kubectl", "complete", "--", *words])
        assert (done.code, done.err) == (0, "")
        *found, mask = done.out.splitlines()
        assert mask == ":4", "no files"
        return found

    monkeypatch.setattr(complete, "find_kubectl", Kubectl)
    return propose_all


def test_the_first_word_is_a_command_with_what_it_does(propose):
    known = [f"{name}\t{what}" for name, (_, what) in KUBECTL.items() if name != "complete"]
    assert propose("") == propose() == known
    assert propose("ex") == [line for line in known if line.startswith("ex")] != []
    assert propose.asked == []


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (("verify", ""), PODS), (("verify", "-n", "shop", ""), f"{PODS} -n shop"), (("verify", "--namespace", "shop", ""), f"{PODS} -n shop"),
        (("verify", "--agent-namespace", "mesh", ""), PODS),
    ],
)  # fmt: skip
def test_an_object_is_a_pod_or_a_deployment_of_the_namespace(propose, words, asked):
    output = "pod/web-1\ndeployment.apps/web\npod/two words\npod/\x1b[2J\n\n"
    assert propose(*words, output=output) == ["web-1", "deploy/web"]
    assert propose.asked == [f"{asked} -o name"]


@pytest.mark.parametrize("flag", ["-n", "--namespace", "--agent-namespace"])
def test_a_namespace_is_one_of_the_clusters(propose, flag):
    assert propose("verify", flag, "s", output="namespace/shop\nnamespace/mesh\n") == ["shop"]
    assert propose.asked == ["get namespaces -o name"]


def test_a_context_is_one_of_the_kubeconfigs(propose):
    assert propose("verify", "--context", "", output="prod\ntest\n") == ["prod", "test"]
    assert propose.asked == ["config get-contexts -o name"]


def test_a_flag_is_one_of_the_commands_by_its_long_name(propose):
    assert {"--source", "--image", "--namespace", "--context", "--output", "--json", "--to"} <= {*propose("explain", "-")}
    assert all(one.startswith("--") for one in propose("explain", "-"))
    assert propose("nonsense", "-") == propose.asked == []


def test_check_takes_no_object_and_what_cannot_be_asked_proposes_nothing(propose, monkeypatch):
    assert propose("check", "", output="pod/web\n") == propose.asked == []
    assert propose("verify", "", output="pod/web\n", status=1) == []

    def find():
        raise NetinitError("kubectl is not on the PATH")

    monkeypatch.setattr(complete, "find_kubectl", find)
    assert propose("verify", "") == []


def test_no_more_is_proposed_than_a_shell_lists(propose):
    assert len(propose("verify", "", output="".join(f"pod/p{number}\n" for number in range(501)))) == 500
