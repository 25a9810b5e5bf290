"""Finding the API and credentials for it: kubeconfigs as kubectl reads them, and the pod's own service account."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import ssl
import sys
import time
from pathlib import Path

import httpx2
import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.kube import access as access_module
from netinit.kube.access import Access, Credentials, ask_program, find_access, in_cluster, make_context, of_kubeconfig
from netinit.kube.resources import CONFIG_MAPS, NAMESPACES, PODS, WEBHOOK_CONFIGURATIONS
from netinit.kube.service_account import find_service_account
from netinit.webhook.certificates import make_pair

ENCODING = "'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"


def write(path, **changes):
    config = {
        "clusters": [
            {"name": "c", "cluster": {"server": "https://10.0.0.1:6443/"}},
            {"name": "other", "cluster": {"server": "https://other"}},
        ],
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
    path = write(tmp_path / "config")
    assert of_kubeconfig(path) == Access(
        server="https://10.0.0.1:6443", token="t", namespace="shop", origin=f'the kubeconfig "{path}", context "one"'
    )


def test_an_access_has_all_that_kubectl_reads_of_a_cluster_and_a_user(tmp_path):
    data = {name: base64.b64encode(name.encode()).decode() for name in ("ca", "certificate", "key")}
    cluster = {
        "server": "http://[::1]:1//", "certificate-authority-data": f"{data['ca'][:2]}\n {data['ca'][2:]}\n",
        "certificate-authority": "not-read", "tls-server-name": "api", "insecure-skip-tls-verify": True,
    }  # fmt: skip
    user = {
        "username": "me", "password": "secret", "token": "t", "tokenFile": "/run/token",
        "client-certificate-data": data["certificate"], "client-key-data": data["key"], "exec": {"command": "login"},
    }  # fmt: skip
    path = write(tmp_path / "config", clusters=["odd", {"name": "c", "cluster": cluster}], users=[{"name": "u", "user": user}])
    assert of_kubeconfig(path, context="one") == Access(
        server="http://[::1]:1", certificate_authority="ca", server_name="api", insecure=True, token="t", token_file="/run/token",
        username="me", password="secret", client_certificate="certificate", client_key="key", program={"command": "login"},
        namespace="shop", origin=f'the kubeconfig "{path}", context "one"',
    )  # fmt: skip


def test_certificates_are_verified_unless_it_is_exactly_true_that_they_are_not(tmp_path):
    clusters = [{"name": "c", "cluster": {"server": "https://x", "insecure-skip-tls-verify": "false"}}]
    assert of_kubeconfig(write(tmp_path / "config", clusters=clusters)).insecure is False


@pytest.mark.parametrize("shift", [0, 1])
def test_a_kubeconfig_is_read_up_to_a_limit(tmp_path, monkeypatch, shift):
    path = write(tmp_path / "config")
    monkeypatch.setattr(access_module, "_MAX_BYTES", 4 << 20)
    path.write_text(path.read_text().ljust((4 << 20) + shift))
    if shift:
        with pytest.raises(ConfigError, match=r'/config" is not a kubeconfig: it must be a mapping of at most 4 MiB$'):
            of_kubeconfig(path)
    else:
        assert of_kubeconfig(path).token == "t"


def test_of_a_file_without_an_end_no_more_than_the_limit_is_read(monkeypatch):
    class Endless(io.BytesIO):
        def read(self, size=None):
            assert size == (4 << 20) + 1
            return b"- " * (size // 2) + b"-"

    monkeypatch.setattr(Path, "open", lambda *_: Endless())
    monkeypatch.setattr(access_module.yaml, "load", lambda text, _: {"current-context": "one", "read": len(text)})
    with pytest.raises(ConfigError, match=r'^the kubeconfig "/endless" is not a kubeconfig: '):
        of_kubeconfig(Path("/endless"))


def test_another_context_may_be_named(tmp_path):
    access = of_kubeconfig(write(tmp_path / "config"), context="two")
    assert (access.token, access.namespace, access.origin[-15:]) == ("", "default", ', context "two"')


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
        ({"current-context": ""}, "", " has no current-context; name one with --context"),
        ({}, "three", ' has no context "three"; it has "one", "two"'),
        ({"clusters": []}, "", ' has no cluster "c"; it has none'),
        ({"users": [{"name": "other"}]}, "", ' has no user "u"; it has "other"'),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "ftp://x"}}]}, "",
            ', context "one": the server "ftp://x" must be a URL that begins with https://',
        ),
        (
            {"clusters": [{"name": "c", "cluster": {"server": "https://x", "certificate-authority": "none"}}]}, "",
            ": a file or text that it holds cannot be read: [Errno 2] No such file or directory: '{folder}/none'",
        ),
        (
            {"users": [{"name": "u", "user": {"client-key-data": "!"}}]}, "",
            ": a file or text that it holds cannot be read: Only base64 data is allowed",
        ),
        (
            {"users": [{"name": "u", "user": {"client-key-data": "/w=="}}]}, "",
            f": a file or text that it holds cannot be read: {ENCODING}",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_kubeconfig_is_told(tmp_path, changes, context, said):
    with pytest.raises(ConfigError) as error:
        of_kubeconfig(write(tmp_path / "config", **changes), context=context)
    assert str(error.value) == f'the kubeconfig "{tmp_path}/config"' + said.replace("{folder}", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"{", r"is not YAML: .+"), (b"\x00", r"is not YAML: .+"), (b"\xff", r"is not YAML: 'utf-8' codec .+"),
        (b"- 1", r"is not a kubeconfig: it must be a mapping of at most 4 MiB"),
        (None, "cannot be read: No such file or directory"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_kubeconfig_is_told(tmp_path, text, said):
    if text is not None:
        (tmp_path / "config").write_bytes(text)
    with pytest.raises(ConfigError, match=f'^the kubeconfig "{tmp_path}/config" {said}$'):
        of_kubeconfig(tmp_path / "config")


def test_the_order_is_the_flag_the_variable_the_pod_the_home(tmp_path):
    named, variable = write(tmp_path / "named"), write(tmp_path / "variable")
    home = tmp_path / "home"
    (home / ".kube").mkdir(parents=True)
    environ = {"HOME": str(home)}
    with pytest.raises(ConfigError) as error:
        find_access(environ=environ)
    assert str(error.value) == (
        f"there is no cluster to ask: no kubeconfig is named (--kubeconfig, KUBECONFIG), {home}/.kube/config does not exist, "
        "and this is not a pod (KUBERNETES_SERVICE_HOST is not set)"
    )
    write(home / ".kube" / "config")
    assert str(home) in find_access(environ=environ).origin
    pod = {**environ, "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with pytest.raises(ConfigError, match="the pod's service account cannot be read"):
        find_access(environ=pod)
    assert str(home) in find_access(context="two", environ=pod).origin, "a pod has no contexts"
    pod["KUBECONFIG"] = f"{variable}{os.pathsep}{named}"
    assert find_access(environ=pod) == of_kubeconfig(variable, named)
    assert find_access(context="two", environ=pod) == of_kubeconfig(variable, named, context="two")
    assert find_access(context="two", environ=environ) == of_kubeconfig(home / ".kube" / "config", context="two")
    assert str(named) in find_access(kubeconfig=str(named), environ=pod).origin


def test_the_files_of_the_variable_are_read_as_one_as_kubectl_does(tmp_path):
    """The first that names a thing counts; files that are missing or empty are passed over; each names its own files."""
    first = write(tmp_path / "first", **{"current-context": ""}, users=[], contexts=[{"name": "one", "context": {"cluster": "c", "user": "u"}}])
    (tmp_path / "more").mkdir()
    users = [{"name": "u", "user": {"tokenFile": "token"}}]
    second = write(tmp_path / "more" / "second", clusters=[{"name": "c", "cluster": {"server": "https://never"}}], users=users)
    (tmp_path / "empty").write_text("")
    names = ["", str(tmp_path / "missing"), str(first), str(tmp_path / "empty"), "x" * 5000, str(second), ""]
    found = find_access(environ={"KUBECONFIG": os.pathsep.join(names)})
    assert (found.server, found.token_file) == ("https://10.0.0.1:6443", str(tmp_path / "more" / "token"))
    assert find_access(context="two", environ={"KUBECONFIG": os.pathsep.join(names)}).server == "https://10.0.0.1:6443"
    with pytest.raises(ConfigError, match=r'has no context "three"; it has "one", "one", "two"$'):
        find_access(context="three", environ={"KUBECONFIG": os.pathsep.join(names)})
    with pytest.raises(ConfigError, match=r'"missing" cannot be read: No such file|missing" cannot be read'):
        find_access(environ={"KUBECONFIG": f":{tmp_path / 'missing'}"})


def test_the_environment_is_that_of_the_process_and_may_be_without_a_home(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(write(tmp_path / "config")))
    assert find_access() == of_kubeconfig(tmp_path / "config")
    with pytest.raises(ConfigError, match=r" KUBECONFIG\), /\.kube/config does not exist"):
        find_access(environ={})


def test_the_pods_service_account(tmp_path):
    for name, text in (("token", "secret"), ("ca.crt", "pem"), ("namespace", "mesh\n")):
        (tmp_path / name).write_text(text)
    access = in_cluster({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}, tmp_path)
    assert access == Access(  # without the token, which the kubelet renews: the file is read when it is needed
        server="https://[fd00::1]:6443", certificate_authority="pem", token_file=f"{tmp_path}/token", namespace="mesh",
        origin="the pod's service account",
    )  # fmt: skip
    assert in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path).server == "https://10.0.0.1:443"
    for name in ("namespace", "ca.crt", "token"):
        (tmp_path / name).unlink()
        with pytest.raises(ConfigError) as error:
            in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
        assert str(error.value) == (
            f"the pod's service account cannot be read: {tmp_path}/{name}: No such file or directory; "
            "set automountServiceAccountToken: true"
        )


def test_the_service_account_is_read_from_the_claims_of_the_token(tmp_path):
    path = tmp_path / "token"
    access = Access(server="https://api", token_file=str(path))
    assert find_service_account(access) is None
    account = {"name": "webhook", "uid": "7a11>>>???"}  # with - and _ in base64's alphabet for URLs
    claims = base64.urlsafe_b64encode(json.dumps({"kubernetes.io": {"serviceaccount": account}}).encode()).decode()
    assert {"-", "_"} & set(claims)
    path.write_text(f"head.{claims.rstrip('=')}.sign")
    assert find_service_account(access) == {"apiVersion": "v1", "kind": "ServiceAccount", **account}


def program(text, **more):
    return {"command": sys.executable, "args": ["-c", text], "apiVersion": "client.authentication.k8s.io/v1", **more}


@pytest.mark.parametrize(("command", "found"), [("bin/login", "{folder}/bin/login"), ("/bin/login", "/bin/login"), ("login", "login")])
def test_a_program_is_looked_for_beside_the_kubeconfig_if_it_is_a_path(tmp_path, command, found):
    users = [{"name": "u", "user": {"exec": {"command": command, "args": ["-q"]}}}]
    access = of_kubeconfig(write(tmp_path / "config", users=users))
    assert access.program == {"command": found.format(folder=tmp_path), "args": ["-q"]}


def test_a_program_gives_a_token_and_knows_what_is_asked():
    text = (
        "import os, sys, json; from os import environ; asked = json.loads(environ['KUBERNETES_EXEC_INFO']);"
        "seen = [asked, environ['MINE'], environ['EMPTY'], 'PATH' in environ, sys.argv[1:]];"
        "print(json.dumps({'status': {'token': json.dumps(seen)}}))"
    )
    asked = program(text, env=[{"name": "MINE", "value": "!"}, {"value": "no name"}, {"name": "EMPTY"}, "no pair"])
    asked["args"].append("more")
    request = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "spec": {"interactive": False}}
    assert json.loads(ask_program(asked)) == [request, "!", "", True, ["more"]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("print('{}')", 'gave no token (exit code 0): ""'),
        ("print('x')", "did not give credentials: Expecting value: line 1 column 1 (char 0)"),
        ("print([1])", "did not give credentials: 'list' object has no attribute 'get'"),
        ("import sys; sys.exit('log in first')", 'gave no token (exit code 1): "log in first"'),
        (
            "import os; os.write(1, b'{\"status\": {\"token\": \"t\"}}'); os.write(2, b' \\xff '); os._exit(3)",
            'gave no token (exit code 3): "�"',
        ),
    ],
)  # fmt: skip
def test_a_program_that_gives_none_is_told(text, said):
    with pytest.raises(ClusterError) as error:
        ask_program(program(text))
    assert str(error.value) == f'the kubeconfig\'s program "{sys.executable}" {said}'


@pytest.mark.parametrize(("more", "said"), [({"installHint": "get it"}, "; get it"), ({}, "")])
def test_a_program_that_is_not_there_is_told_with_its_hint(more, said):
    with pytest.raises(ClusterError, match=f'^the kubeconfig\'s program "/nowhere/program" is not installed{said}$'):
        ask_program({"command": "/nowhere/program", **more})


def test_a_program_that_cannot_be_executed_is_told(tmp_path):
    (tmp_path / "program").touch()
    with pytest.raises(ClusterError, match=r'/program" did not give credentials: \[Errno 13\] Permission denied: '):
        ask_program({"command": str(tmp_path / "program")})


def test_a_program_has_a_minute(monkeypatch):
    assert access_module._PROGRAM_SECONDS == 60.0
    monkeypatch.setattr(access_module, "_PROGRAM_SECONDS", 0.01)
    with pytest.raises(ClusterError, match=f'^the kubeconfig\'s program "{sys.executable}" was not done within 0 s$'):
        ask_program(program("import time; time.sleep(60)"))


def send(credentials, *statuses):
    """The Authorization of each request that is sent for one, where the API answers with these statuses."""

    async def run():
        sent = []
        flow = credentials.async_auth_flow(httpx2.Request("GET", "https://api"))
        request = await anext(flow)
        for status in statuses:
            sent.append(request.headers.get("Authorization"))
            try:
                request = await flow.asend(httpx2.Response(status))
            except StopAsyncIteration:
                return sent
        raise AssertionError("another request than expected")

    return asyncio.run(run())


def test_a_token_of_a_file_is_read_once_a_minute(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    credentials = Credentials(Access(server="https://api", token="of the kubeconfig", token_file=str(tmp_path / "token")))
    with pytest.raises(ClusterError, match=f"^the token {tmp_path}/token cannot be read: No such file or directory$"):
        send(credentials, 200)
    (tmp_path / "token").write_text(" one\n")
    assert send(credentials, 200) == ["Bearer one"]
    (tmp_path / "token").write_text("two")
    now[0] += 59.9
    assert send(credentials, 200) == ["Bearer one"]
    now[0] += 0.1
    assert send(credentials, 403) == ["Bearer two"]


def test_a_refused_token_is_renewed_once_and_only_where_it_can_be(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(access_module, "ask_program", lambda program: asked.append(program) or f"p{len(asked)}")
    credentials = Credentials(Access(server="https://api", program={"command": "login"}, token_file=str(tmp_path / "none")))
    assert send(credentials, 401, 401) == ["Bearer p1", "Bearer p2"]
    assert send(credentials, 200) == ["Bearer p2"]
    assert asked == [{"command": "login"}] * 2
    assert send(Credentials(Access(server="https://api", token="t")), 401) == ["Bearer t"]
    assert send(Credentials(Access(server="https://api")), 401) == [None]
    (tmp_path / "empty").touch()
    assert send(Credentials(Access(server="https://api", token_file=str(tmp_path / "empty"))), 200) == ["Bearer "]


def test_an_authority_that_is_no_certificate_is_told():
    with pytest.raises(ConfigError, match=r"^of a file: the certificate authority is not PEM: "):
        make_context(Access(server="https://x", certificate_authority="none", origin="of a file"))


def test_the_api_must_have_a_certificate_of_its_authority_unless_it_is_insecure():
    pair = make_pair(("api",), now=time.time(), seconds=3600)
    context = make_context(Access(server="https://api", certificate_authority=pair.authority))
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert [ssl.DER_cert_to_PEM_cert(one) for one in context.get_ca_certs(binary_form=True)] == [pair.authority]
    context = make_context(Access(server="https://api", insecure=True))
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_NONE)


def test_a_clients_certificate_is_loaded_from_a_private_file_that_is_deleted(tmp_path, monkeypatch):
    mine, other = (make_pair(("me",), now=time.time(), seconds=3600) for _ in range(2))
    monkeypatch.setattr(access_module.tempfile, "tempdir", str(tmp_path))
    loaded, load = [], ssl.SSLContext.load_cert_chain

    def note(context, path):
        loaded.append((Path(path).read_text(), Path(path).stat().st_mode & 0o777))
        load(context, path)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", note)
    make_context(Access(server="https://api", client_certificate=mine.certificate.strip(), client_key=mine.key))
    assert loaded == [(f"{mine.certificate.strip()}\n{mine.key}", 0o600)]
    with pytest.raises(ConfigError, match=r"^of a file: client certificate and key do not fit: KEY_VALUES_MISMATCH$"):
        make_context(Access(server="https://api", client_certificate=mine.certificate, client_key=other.key, origin="of a file"))
    assert list(tmp_path.iterdir()) == []


def test_paths_are_those_of_the_api_and_names_cannot_leave_theirs():
    assert PODS.path("shop", "web", "log") == "/api/v1/namespaces/shop/pods/web/log"
    assert NAMESPACES.path() == "/api/v1/namespaces"
    assert (
        WEBHOOK_CONFIGURATIONS.path(name="x") == "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/x"
    )
    assert CONFIG_MAPS.path("a/../b", "c?d") == "/api/v1/namespaces/a%2F..%2Fb/configmaps/c%3Fd"
