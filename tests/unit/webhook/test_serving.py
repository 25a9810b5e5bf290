"""The server on loopback, with real TLS: reviews, swaps, bounds and the end."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time

import pytest

import prefork
from netinit.webhook.certificates import make_pair
from netinit.webhook.settings import DURATION, SECOND
from webhook_server import CONFIG, Server, make_client_pair, make_pod, make_review, patched


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("server"), "--log_output_level=default:debug", "--log_as_json") as made:
        yield made


def release(server, **more):
    pod = make_pod()
    return patched(pod, server.review(pod, **more))["metadata"]["annotations"]["release"]


def test_a_pod_is_injected_over_tls(server):
    pod = make_pod()
    response = server.review(pod, uid="u-77")
    assert response["uid"] == "u-77"
    assert patched(pod, response)["spec"]["containers"][1]["name"] == "istio-proxy"


def test_the_path_sets_the_cluster(server):
    pod = make_pod()
    result = patched(pod, server.review(pod, path="/inject/cluster/far?timeout=5s"))
    assert {"name": "ISTIO_META_CLUSTER_ID", "value": "far"} in result["spec"]["containers"][1]["env"]


def test_a_connection_serves_many_reviews(server):
    with contextlib.closing(server.connect()) as connection:
        for _ in range(20):
            assert server.review(make_pod(), connection=connection)["allowed"]


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/inject", {}, 405),
        ("POST", "/nowhere", {"Content-Type": "application/json"}, 404),
        ("POST", "/inject", {"Content-Type": "text/plain"}, 415),
        ("POST", "/inject", {}, 415),
        ("POST", "/inject", {"Content-Type": "application/json", "Content-Encoding": "gzip"}, 415),
        ("POST", "/inject", {"Content-Type": "application/json", "Content-Length": str(7 << 20)}, 413),
        ("POST", "/inject", {"Content-Type": "application/json", "Content-Length": "0"}, 400),
        ("POST", "/inject", {"Content-Type": "application/json; charset=utf-8", "Content-Length": "0"}, 400),
        ("DELETE", "/inject", {"Content-Type": "application/json"}, 405),
    ],
)
def test_what_is_no_review_gets_its_status(server, method, path, headers, status):
    with contextlib.closing(server.connect()) as connection:
        connection.putrequest(method, path)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        assert connection.getresponse().status == status


@pytest.mark.parametrize(("connection_header", "status", "text"), [("Upgrade, HTTP2-Settings", 400, "the header Upgrade asks for h2c"), ("close", 200, "patch")])
def test_a_review_that_asks_for_another_protocol_is_told_so_and_not_that_it_is_empty(server, connection_header, status, text):
    body = json.dumps(make_review(make_pod())).encode()
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/inject", body, {"Content-Type": "application/json", "Connection": connection_header, "Upgrade": "h2c"})
        answer = connection.getresponse()
        assert (answer.status, text in answer.read().decode()) == (status, True)


def test_the_log_has_a_line_for_each_review_with_its_facts(server):
    server.review(make_pod("logged\nname"), uid="for-the-log")
    server.review(make_pod(hostNetwork=True), uid="skipped-one")
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    (found,) = [line for line in lines if line.get("uid") == "for-the-log"]
    assert found["pod"] == "shop/logged\nname"
    assert (found["decision"], found["owner"], found["level"]) == ("injected", "Pod/logged\nname", "info")
    assert found["milliseconds"] > 0
    (found,) = [line for line in lines if line.get("uid") == "skipped-one"]
    assert (found["level"], found["reason"]) == ("debug", "host-network")


def test_health_and_metrics(server):
    assert server.get("/livez") == (200, "ok\n")
    assert server.get("/readyz") == (200, "ok\n")
    status, text = server.get("/readyz?verbose")
    assert status == 200
    assert "[+]configuration: generation 1, version " in text
    assert "namespaces: known from the review alone" in text
    server.review(make_pod())
    server.review(make_pod(hostNetwork=True))
    server.post(b"{")
    status, text = server.monitor("/metrics")
    assert status == 200
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(samples["sidecar_injection_success_total"]) >= 1
    assert float(samples["sidecar_injection_skip_total"]) >= 1
    assert float(samples["sidecar_injection_failure_total"]) >= 1
    assert float(samples['netinit_webhook_reviews_total{outcome="refused",reason="not-json"}']) >= 1
    assert float(samples["sidecar_injection_requests_total"]) == float(samples["sidecar_injection_time_seconds_count"])
    assert float(samples["netinit_webhook_configuration_generation"]) == 1
    assert float(samples["netinit_webhook_certificate_start_timestamp_seconds"]) < time.time() < float(samples["netinit_webhook_certificate_expiry_timestamp_seconds"])
    assert server.monitor("/readyz?verbose")[0] == 200


def test_a_head_that_never_ends_is_cut_off_by_its_length(server):
    with (
        socket.create_connection(("127.0.0.1", server.port)) as raw,
        server.context.wrap_socket(raw, server_hostname="localhost") as end,
    ):
        end.settimeout(20)
        end.sendall(b"POST /inject HTTP/1.1\r\nX: ")
        with contextlib.suppress(OSError):
            for _ in range(64):
                end.sendall(b"x" * 4096)
        data = b"not closed"
        with contextlib.suppress(OSError):
            data = end.recv(100)
        assert data == b"" or data.startswith(b"HTTP/1.1 431"), data
    assert server.review(make_pod())["allowed"]


def test_a_head_that_comes_slowly_is_cut_off_by_its_deadline(server):
    with (
        socket.create_connection(("127.0.0.1", server.port)) as raw,
        server.context.wrap_socket(raw, server_hostname="localhost") as end,
    ):
        end.settimeout(30)
        end.sendall(b"POST /inject HTTP/1.1\r\nX: ")
        with contextlib.suppress(OSError):
            assert end.recv(100) == b""  # as long as the deadline is; the socket's own would raise TimeoutError
    assert server.review(make_pod())["allowed"]


def test_a_body_that_comes_slowly_is_answered_408(server):
    with contextlib.closing(server.connect()) as connection:
        connection.putrequest("POST", "/inject?timeout=1s")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", "1000")
        connection.endheaders()
        connection.send(b"{")
        assert connection.getresponse().status == 408


def test_chunks_are_bounded_as_well(server):
    def chunks():
        for _ in range(13 * 16):
            yield b" " * (1 << 15)

    with contextlib.closing(server.connect()) as connection:
        connection.putrequest("POST", "/inject")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Transfer-Encoding", "chunked")
        connection.endheaders()
        with contextlib.suppress(OSError):
            for chunk in chunks():
                connection.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            connection.send(b"0\r\n\r\n")
        with contextlib.suppress(OSError, http.client.HTTPException):
            assert connection.getresponse().status == 413
    assert server.review(make_pod())["allowed"]


def test_a_configuration_is_swapped_and_a_bad_one_keeps_the_old(tmp_path):
    with Server(tmp_path) as server:
        assert release(server) == "first"
        (server.config / "values").write_text('{"release": "second"}')
        server.until(lambda: release(server) == "second", "the second one is in use")
        (server.config / "config").write_text('{"policy": "enabled", "templates": {"sidecar": "{{ bad"}}')
        server.until(lambda: "[!]configuration: " in server.get("/readyz?verbose")[1], "the bad one is told")
        assert server.get("/readyz")[0] == 200
        assert "template 'sidecar' cannot be parsed" in server.monitor("/readyz?verbose")[1]
        server.until(
            lambda: "netinit_webhook_configuration_error 1.0" in server.monitor("/metrics")[1], "the metric says so"
        )
        assert release(server) == "second"
        (server.config / "config").write_text(json.dumps(CONFIG))
        (server.config / "values").write_text('{"release": "third"}')
        server.until(lambda: release(server) == "third", "the third one is in use")
        server.until(lambda: "[!]" not in server.get("/readyz?verbose")[1], "the bad one is forgotten")


def test_a_template_that_cannot_be_parsed_hurts_those_who_ask_for_it_alone(tmp_path):
    broken = {**CONFIG, "templates": {**CONFIG["templates"], "mine": "metadata:\n  name: {{ nope }}"}}
    with Server(tmp_path, config=broken) as server:  # also the start of one whose configuration is like that
        assert release(server) == "first"
        assert "netinit_webhook_broken_templates 1.0" in server.monitor("/metrics")[1]
        response = server.review(make_pod(annotations={"inject.istio.io/templates": "sidecar,mine"}))
        assert not response["allowed"]
        assert "template 'mine' cannot be parsed: template: mine:2: function \"nope\" not defined" in response["status"]["message"]
        assert release(server) == "first"


def test_without_a_configuration_reviews_are_answered_503_at_once(tmp_path):
    with Server(tmp_path, config={"templates": {"sidecar": "{{ bad"}}, wait=False) as server:
        server.until(lambda: "[!]configuration: " in server.monitor("/readyz?verbose")[1], "the bad one is told")
        assert server.get("/readyz")[0] == 503
        status, body = server.post(json.dumps(make_review(make_pod())).encode())
        assert status == 503
        assert "no configuration yet" in str(body), "not that it waited too long"


def test_a_file_that_is_away_for_a_while_is_a_problem_for_that_while_alone(tmp_path):
    with Server(tmp_path) as server:
        values = tmp_path / "config" / "config"
        for change, back, said in (
            (lambda: values.rename(tmp_path / "aside"), lambda: (tmp_path / "aside").rename(values), "does not exist"),
            (lambda: values.write_text(""), lambda: values.write_text(json.dumps(CONFIG)), "is empty"),
        ):
            change()
            server.until(lambda said=said: said in server.get("/readyz?verbose")[1], said)
            server.until(lambda: "netinit_webhook_configuration_error 1.0" in server.monitor("/metrics")[1], "and counted")
            assert release(server) == "first"
            back()
            server.until(lambda: "netinit_webhook_configuration_error 0.0" in server.monitor("/metrics")[1], "nothing is wrong any more")


def test_a_mounted_config_map_is_followed_when_its_link_is_switched(tmp_path):
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    for name in ("one", "two"):
        (mounted / f"..{name}").mkdir()
        (mounted / f"..{name}" / "config").write_text(json.dumps(CONFIG))
        (mounted / f"..{name}" / "values").write_text(json.dumps({"release": name}))
    (mounted / "..data").symlink_to("..one")
    for name in ("config", "values"):
        (mounted / name).symlink_to(f"..data/{name}")
    server = Server(tmp_path)
    server.command[server.command.index(str(server.config))] = str(mounted)
    with server:
        assert release(server) == "one"
        (mounted / "..new").symlink_to("..two")
        (mounted / "..new").rename(mounted / "..data")
        server.until(lambda: release(server) == "two", "the switched folder is read")


def test_a_certificate_is_swapped_and_open_connections_go_on(tmp_path):
    with Server(tmp_path) as server, contextlib.closing(server.connect()) as old:
        assert server.review(make_pod(), connection=old)["allowed"]
        before = server.pair
        server.pair = make_pair(("localhost",), now=time.time(), seconds=7200)
        server.write_certificate(server.pair)
        server.until(lambda: server.review(make_pod())["allowed"], "a client of the new authority is served")
        assert server.review(make_pod(), connection=old)["allowed"], "the connection of before was not dropped"
        server.write_certificate(make_pair(("localhost",), now=time.time() - 10**7, seconds=60))
        server.until(lambda: "has expired; " in server.log.read_text(), "an expired one is told")
        server.until(
            lambda: "[!]certificate: the certificate has expired" in server.get("/readyz?verbose")[1], "and shown"
        )
        assert server.review(make_pod())["allowed"]
        with pytest.raises(ssl.SSLError):
            server.connect(ssl.create_default_context(cadata=before.authority)).connect()


def test_clients_without_a_certificate_get_health_and_no_reviews(tmp_path):
    client = make_pair(("apiserver",), now=time.time(), seconds=3600)
    (tmp_path / "clients.crt").write_text(client.certificate)  # trusted as it is: this very one
    (tmp_path / "client.pem").write_text(client.key + client.certificate)
    with Server(tmp_path, "--clientCAFile", str(tmp_path / "clients.crt")) as server:
        assert server.get("/readyz")[0] == 200
        assert server.post(json.dumps(make_review(make_pod())))[0] == 403


def test_a_client_with_a_certificate_of_the_authority_is_answered_once_the_authority_is_there(tmp_path):
    certificate, key = make_client_pair()
    (tmp_path / "client.pem").write_text(key + certificate)
    with Server(tmp_path, "--clientCAFile", str(tmp_path / "clients.crt"), wait=False) as server:
        server.until(lambda: "--clientCAFile" in server.monitor("/readyz?verbose")[1], "it says what it waits for")
        assert server.monitor("/readyz")[0] == 503
        (tmp_path / "clients.crt").write_text(certificate)
        server.until(lambda: server.get("/readyz")[0] == 200, "it is ready")
        context = server.context
        context.load_cert_chain(tmp_path / "client.pem")
        with contextlib.closing(server.connect(context)) as connection:
            for _ in range(3):
                assert server.review(make_pod(), connection=connection)["allowed"]


def test_told_to_end_it_finishes_what_was_begun(tmp_path):
    with Server(tmp_path, "--shutdownDelay", "500ms") as server:
        with contextlib.closing(server.connect()) as connection:
            body = json.dumps(make_review(make_pod())).encode()
            connection.putrequest("POST", "/inject?timeout=20s")
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            connection.send(body[:10])
            server.review(make_pod())
            server.process.send_signal(signal.SIGTERM)
            server.until(lambda: server.get("/readyz")[0] == 503, "readiness goes first")
            assert server.monitor("/readyz")[0] == 503, "on both ports"
            assert server.review(make_pod())["allowed"], "who has not heard of it yet is served"
            server.until(lambda: refuses(server), "new connections are refused")
            connection.send(body[10:])
            answer = connection.getresponse()
            assert (answer.status, json.loads(answer.read())["response"]["allowed"]) == (200, True)
        assert server.process.wait() == 0
        told = [line.split("\t", 1)[1] for line in server.log.read_text().splitlines()]
        assert f"info\tserving reviews on port {server.port}, metrics on port {server.monitoring}" in told
        assert told[-1] == "info\tended"
        assert "info\tstopping: reviews in progress are finished" in told


def refuses(server):
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60):
            return False
    except ConnectionRefusedError:
        return True


SLOW = {
    "policy": "enabled",
    "templates": {
        "sidecar": "{{ range $i, $a := .ObjectMeta.Annotations }}{{ range $j, $b := $.ObjectMeta.Annotations }}{{ $b }}{{ end }}{{ end }}"
        "metadata: {annotations: {release: x}}"
    },
}
MANY = {f"example.com/{number}": "" for number in range(995)}


def test_too_many_reviews_get_503_and_never_hang(tmp_path):
    with Server(tmp_path, "--maxReviews", "2", config=SLOW) as server, contextlib.ExitStack() as stack:
        connections = [stack.enter_context(contextlib.closing(server.connect())) for _ in range(6)]
        for connection in connections:
            connection.request("GET", "/livez")
            connection.getresponse().read()
        body = json.dumps(make_review(make_pod(annotations=MANY)))
        for connection in connections:  # while the first is computed the others come in
            connection.request("POST", "/inject?timeout=1s", body, {"Content-Type": "application/json"})
        answers = [(one.status, one.read()) for one in (connection.getresponse() for connection in connections)]
        assert {status for status, _ in answers} <= {200, 408, 503}  # 408: on a busy machine a body comes later than is waited
        assert sum(status == 408 or b"2 reviews are waiting already" in said for status, said in answers) >= 2
        assert server.review(make_pod())["allowed"]


def test_a_pod_that_takes_too_long_is_interrupted_and_the_next_is_served(tmp_path):
    with Server(tmp_path, config=SLOW) as server:
        given = server.post(json.dumps(make_review(make_pod(annotations=MANY))), "/inject?timeout=1s")
        assert given[0] in {200, 503}, given
        assert server.review(make_pod())["allowed"]


def test_the_health_file_is_written_and_probed(tmp_path):
    path = tmp_path / "health"
    probe = [sys.executable, "-m", "netinit", "webhook", "probe", "--probe-path", str(path), "--interval"]
    with Server(tmp_path, "--healthCheckFile", str(path), "--healthCheckInterval", "100ms") as server:
        server.until(lambda: path.read_text() == "ok", "the file is there")  # it is written anew ten times a second
        assert subprocess.run([*probe, "60s"], check=False, timeout=60).returncode == 0
    with Server(tmp_path, "--healthCheckFile", str(tmp_path / "none" / "health"), "--healthCheckInterval", "100ms") as server:
        server.until(lambda: "[!]health file: " in server.monitor("/readyz?verbose")[1], "the problem has the task's name")
        server.until(lambda: "\terror\thealth file: FileNotFoundError: " in server.log.read_text(), "the problem is in the log", 20)
        assert server.review(make_pod())["allowed"]
    os.utime(path, (1, 1))
    done = subprocess.run([*probe, "1s"], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "the server is not healthy" in done.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--tlsCertFile", "x"], "--tlsCertFile: needs --tlsKeyFile"),
        ([], "no certificate is given"),
        (["--certificateSecret", "s", "--tlsCertFile", "x", "--tlsKeyFile", "y"], "contradicts --tlsCertFile"),
        (["--certificateSecret", "s", "--healthCheckFile", "x"], "--healthCheckFile: needs --healthCheckInterval"),
        (["--certificateSecret", "s", "--port", "99999"], "--port: '99999'"),
        (["--certificateSecret", "s", "--shutdownDelay", "soon"], "is not a duration"),
        (["--certificateSecret", "s", "--portt", "1"], "did you mean --port"),
        (["--certificateSecret", "s", "--processes", "2"], "'--processes' is not an option"),
        (["--certificateSecret", "s", "--stateFolder", "x"], "'--stateFolder' is not an option"),
        (
            ["--certificateSecret", "s", "--injectConfig", "a", "--injectConfigMapName", "b"],
            "contradicts --injectConfig",
        ),
    ],
)
def test_bad_flags_are_told_by_name(words, said):
    done = prefork.run(["webhook", "serve", *words])
    assert done.returncode == 2
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("text", "seconds"), [("0", 0), ("0s", 0), ("2160h", 2160 * 3600), ("1h30m", 5400), ("87600h", 87600 * 3600)])
def test_a_duration_may_be_nothing_or_years(text, seconds):
    assert DURATION.read(text) == seconds * SECOND
    assert DURATION.read(DURATION.write(seconds * SECOND)) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "5", "-5s", "00", "87601h", "5s ", "1e3s"])
def test_a_duration_of_more_than_ten_years_and_words_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="is not a duration: use one of at most ten years such as 5s"):
        DURATION.read(text)


def test_a_port_that_is_taken_is_one_line(tmp_path):
    with Server(tmp_path) as server:
        done = subprocess.run([sys.executable, "-m", "netinit", *server.command], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert f"port {server.port} of 127.0.0.1 cannot be listened on: Address already in use" in done.stderr
