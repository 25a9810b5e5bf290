"""Finding the API and credentials for it: kubeconfigs as kubectl reads them, and the pod's own service account."""

from __future__ import annotations

import base64
import json
import sys

import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.kube.access import ask_program, find_access, in_cluster, make_context, of_kubeconfig
from netinit.kube.client import CONFIG_MAPS, NAMESPACES, PODS, WEBHOOK_CONFIGURATIONS


def write(path, **changes):
    config = {
        "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "shop"}},
            {"name": "two", "context": {"cluster": "c"}},
        ],
        "current-context": "one",
        **changes,
    }
    path.write_text(json.dumps(config))
    return path


def test_the_current_context_is_read(tmp_path):
    access = of_kubeconfig(write(tmp_path / "config"))
    assert (access.server, access.token, access.namespace) == ("https://10.0.0.1:6443", "t", "shop")


def test_another_context_may_be_named(tmp_path):
    access = of_kubeconfig(write(tmp_path / "config"), "two")
    assert (access.token, access.namespace) == ("", "default")


def test_certificates_are_read_from_the_text_or_from_files_beside_it(tmp_path):
    (tmp_path / "ca.crt").write_text("authority")
    data = base64.b64encode(b"mine").decode()
    access = of_kubeconfig(
        write(
            tmp_path / "config",
            clusters=[{"name": "c", "cluster": {"server": "https://x", "certificate-authority": "ca.crt", "tls-server-name": "api.example"}}],
            users=[
                {"name": "u", "user": {"client-certificate-data": data, "client-key-data": data, "tokenFile": "token"}}
            ],
        )
    )
    assert (access.certificate_authority, access.client_certificate, access.client_key) == ("authority", "mine", "mine")
    assert access.server_name == "api.example"
    assert access.token_file == str(tmp_path / "token")


@pytest.mark.parametrize(
    ("changes", "context", "said"),
    [
        ({"current-context": ""}, "", "has no current-context"),
        ({}, "three", '^the kubeconfig "/.*/config" has no context "three"; it has "one", "two"'),
        ({"clusters": []}, "", 'has no cluster "c"; it has none'),
        ({"clusters": [{"name": "c", "cluster": {"server": "ftp://x"}}]}, "", "must be a URL"),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://x", "certificate-authority": "none"}}]},
            "",
            "cannot be read",
        ),
        ({"users": [{"name": "u", "user": {"client-key-data": "!"}}]}, "", "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_kubeconfig_is_told(tmp_path, changes, context, said):
    with pytest.raises(ConfigError, match=said):
        of_kubeconfig(write(tmp_path / "config", **changes), context)


@pytest.mark.parametrize(("text", "said"), [("{", "is not YAML"), ("- 1", "is not a kubeconfig"), ("\x00", "is not YAML")])
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path, text, said):
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match=said):
        of_kubeconfig(tmp_path / "config")


def test_the_order_is_the_flag_the_variable_the_pod_the_home(tmp_path):
    named, variable = write(tmp_path / "named"), write(tmp_path / "variable")
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    environ = {"HOME": str(home)}
    with pytest.raises(ConfigError, match="there is no cluster to ask"):
        find_access(environ=environ)
    write(home / ".kube" / "config")
    assert str(home) in find_access(environ=environ).origin
    pod = {**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(ConfigError, match="the pod's service account cannot be read"):
        find_access(environ=pod)
    pod["KUBECONFIG"] = str(variable)
    assert str(variable) in find_access(environ=pod).origin
    assert str(named) in find_access(kubeconfig=str(named), environ=pod).origin


def test_the_pods_service_account(tmp_path):
    for name, text in (("token", "secret"), ("ca.crt", "pem"), ("namespace", "mesh\n")):
        (tmp_path / name).write_text(text)
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert (access.server, access.namespace, access.token_file) == (
        "https://[fd00::1]:6443",
        "mesh",
        str(tmp_path / "token"),
    )
    assert access.token == "", "the kubelet renews it: the file is read when it is needed"


def program(text, **more):
    return {"command": sys.executable, "args": ["-c", text], "apiVersion": "client.authentication.k8s.io/v1", **more}


@pytest.mark.parametrize(("command", "found"), [("bin/login", "{folder}/bin/login"), ("/bin/login", "/bin/login"), ("login", "login")])
def test_a_program_is_looked_for_beside_the_kubeconfig_if_it_is_a_path(tmp_path, command, found):
    users = [{"name": "u", "user": {"exec": {"command": command, "args": ["-q"]}}}]
    access = of_kubeconfig(write(tmp_path / "config", users=users))
    assert access.program == {"command": found.format(folder=tmp_path), "args": ["-q"]}


def test_a_program_gives_a_token_and_knows_what_is_asked():
    text = (
        "import os, json; asked = json.loads(os.environ['KUBERNETES_EXEC_INFO']);"
        "print(json.dumps({'status': {'token': asked['apiVersion'] + os.environ['MINE']}}))"
    )
    assert ask_program(program(text, env=[{"name": "MINE", "value": "!"}, "no pair"])) == "client.authentication.k8s.io/v1!"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('{}')", "gave no token"),
        ("print('x')", "did not give"),
        ("print([1])", "did not give"),
        ("import sys; sys.exit('log in first')", "log in first"),
    ],
)
def test_a_program_that_gives_none_is_told(text, said):
    with pytest.raises(ClusterError, match=said):
        ask_program(program(text))


def test_a_program_that_is_not_there_is_told_with_its_hint():
    with pytest.raises(ClusterError, match="is not installed; get it"):
        ask_program({"command": "/nowhere/program", "installHint": "get it"})


@pytest.mark.parametrize("changes", [{"certificate-authority-data": "bm9uZQ=="}])
def test_an_authority_that_is_no_certificate_is_told(tmp_path, changes):
    access = of_kubeconfig(
        write(tmp_path / "config", clusters=[{"name": "c", "cluster": {"server": "https://x", **changes}}])
    )
    with pytest.raises(ConfigError, match="is not PEM"):
        make_context(access)


def test_paths_are_those_of_the_api_and_names_cannot_leave_theirs():
    assert PODS.path("shop", "web", "log") == "/api/v1/namespaces/shop/pods/web/log"
    assert NAMESPACES.path() == "/api/v1/namespaces"
    assert (
        WEBHOOK_CONFIGURATIONS.path(name="x") == "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/x"
    )
    assert CONFIG_MAPS.path("a/../b", "c?d") == "/api/v1/namespaces/a%2F..%2Fb/configmaps/c%3Fd"
