"""Reading the API with kubectl, as the executable does: a program in its place answers as kubectl does."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from pathlib import Path

import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.installation import survey
from netinit.kube import by_kubectl, reading
from netinit.kube.by_kubectl import find_reader
from netinit.kube.resources import CONFIG_MAPS, NODES

LOGGED = f'E1130 03:53:05.905903   24938 memcache.go:265] "Unhandled Error" err="couldn\'t get current server API group list: {"x" * 200}"'


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """`kubectl(script)` puts a kubectl on PATH; it writes its arguments into the file that is returned."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    asked = tmp_path / "asked"

    def put(script):
        program = tmp_path / "kubectl"
        program.write_text(f'#!/bin/sh\necho "$*" >>{shlex.quote(str(asked))}\n{script}\n')
        program.chmod(0o755)
        return asked

    return put


def say(tree):
    return f"printf %s {shlex.quote(json.dumps(tree))}"


def refuse(text):
    return f"echo {shlex.quote(text)} >&2; exit 1"


def get(name="istio", namespace="istio-system"):
    return lambda client: client.get(CONFIG_MAPS, name, namespace)


def test_an_object_is_asked_for_by_its_path_in_the_context_that_is_named(kubectl):
    asked = kubectl(say({"kind": "ConfigMap"}))
    assert find_reader(context="prod", kubeconfig="/a b").ask(get()) == {"kind": "ConfigMap"}
    assert asked.read_text() == "get --raw /api/v1/namespaces/istio-system/configmaps/istio --context=prod --kubeconfig=/a b\n"


def test_a_list_has_the_objects_that_are_some_and_their_version(kubectl):
    asked = kubectl(say({"metadata": {"resourceVersion": "7"}, "items": [{"a": 1}, "no object"]}))
    assert find_reader().ask(lambda client: client.list(NODES, fields="metadata.name=a&b")) == ([{"a": 1}], "7")
    assert asked.read_text() == "get --raw /api/v1/nodes?limit=500&fieldSelector=metadata.name%3Da%26b\n"


WHAT = "kubectl get --raw /api/v1/namespaces/istio-system/configmaps/istio: "


@pytest.mark.parametrize(
    ("script", "status", "reason", "message"),
    [
        (refuse('Error from server (NotFound): configmaps "istio" not found'), 404, "NotFound", 'Error from server (NotFound): configmaps "istio" not found'),
        (refuse("Error from server (Forbidden): no"), 403, "Forbidden", "Error from server (Forbidden): no"),
        (refuse("Error from server (Conflict): no"), 0, "Conflict", "Error from server (Conflict): no"),
        (refuse("it says: Error from server (NotFound): no"), 0, "", "it says: Error from server (NotFound): no"),
        (refuse(f"{LOGGED}\n{LOGGED}\nWarning: v1 is deprecated\nError from server (Forbidden): no"), 403, "Forbidden", "Error from server (Forbidden): no"),
        (refuse(f"{LOGGED}\nThe connection to the server x:1 was refused"), 0, "", "The connection to the server x:1 was refused"),
        (refuse("Warning: it is old"), 0, "", "Warning: it is old"),
        (refuse("The connection to the server x:1 was refused"), 0, "", "The connection to the server x:1 was refused"),
        ("exit 3", 0, "", "ended with 3"),
        ("echo '{'", 0, "", "the answer is not JSON: Expecting property name enclosed in double quotes: line 2 column 1 (char 2)"),
        ("echo '[]'", 0, "", "the answer is not an object"),
        (refuse("a\x1b[31mb"), 0, "", "a\\x1b[31mb"),
        (refuse("x" * 500), 0, "", f"{'x' * 400}…"),
    ],
)  # fmt: skip
def test_what_kubectl_does_not_give_is_an_error_with_the_api_s_status(kubectl, script, status, reason, message):
    kubectl(script)
    with pytest.raises(ClusterError) as raised:
        find_reader().ask(get())
    assert (raised.value.status, raised.value.reason, str(raised.value)) == (status, reason, f"{WHAT}{message}")


def test_a_longer_answer_than_the_client_takes_is_refused(kubectl, monkeypatch):
    monkeypatch.setattr(by_kubectl, "_MAX_BYTES", 1 << 20)
    kubectl(f"printf '{{}}'; head -c {(1 << 20) - 2} /dev/zero | tr '\\0' ' '")
    assert find_reader().ask(get()) == {}
    kubectl(f"printf '{{}}'; head -c {(1 << 20) - 1} /dev/zero | tr '\\0' ' '")
    with pytest.raises(ClusterError) as raised:
        find_reader().ask(get())
    assert str(raised.value) == f"{WHAT}the answer is longer than 1 MiB"


def test_a_kubectl_that_cannot_be_started_is_an_error(kubectl):
    kubectl("exit 0")
    reader = find_reader()
    program = Path(reader.program)
    program.unlink()
    with pytest.raises(ClusterError, match="kubectl"):
        reader.ask(get())


def test_kubectl_has_the_environment_of_the_user_and_a_list_without_a_version_is_one(kubectl, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:1")
    kubectl('printf \'{"items": [{"proxy": "%s"}]}\' "$HTTPS_PROXY"')
    assert find_reader().ask(lambda client: client.list(NODES)) == ([{"proxy": "http://proxy:1"}], "")


def test_a_request_that_waits_for_something_else_is_a_bug(kubectl):
    kubectl("exit 0")

    async def other(_):
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="the request waits for something else"):
        find_reader().ask(other)


def test_without_kubectl_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"kubectl is not on the PATH; .* install it"):
        find_reader()


def test_an_installation_is_surveyed_with_it_in_the_executable(kubectl, monkeypatch):
    monkeypatch.setattr(reading, "EMBEDDED", True)
    asked = kubectl(f'case "$*" in *proxyconfigs*) {refuse("Error from server (NotFound): no")};; *services*) {refuse("Error from server (Forbidden): no")};; esac; {say({"items": []})}')
    trees, unread = survey.survey("prod", "")
    assert (trees, list(unread)) == ([], ["Service"])
    assert all(line.endswith(" --context=prod") for line in asked.read_text().splitlines())
