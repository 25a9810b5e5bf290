"""Certificates of a server on loopback: spoilt files, replaced authorities of clients, and what is shown of them."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import socket
import ssl
import time
from http import HTTPStatus

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from netinit.webhook.certificates import Pair, make_pair
from webhook_server import Server, make_client_pair, make_pod, make_review


def with_client(server, pair):
    """A context that shows the server a client's certificate, of (certificate, key)."""
    (server.folder / "client.pem").write_text(pair[1] + pair[0])
    context = server.context
    context.load_cert_chain(server.folder / "client.pem")
    return context


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_authority_of_clients_that_was_replaced_is_not_trusted_any_more(tmp_path, version):
    old, new = make_client_pair(), make_client_pair()
    (tmp_path / "clients.crt").write_text(old[0])
    with Server(tmp_path, "--clientCAFile", str(tmp_path / "clients.crt")) as server:
        context = with_client(server, old)
        context.maximum_version = version
        with contextlib.closing(server.connect(context)) as connection:
            assert server.review(make_pod(), connection=connection)["allowed"]
            session = connection.sock.session
        (tmp_path / ".clients.crt").write_text(new[0])
        (tmp_path / ".clients.crt").rename(tmp_path / "clients.crt")
        current = with_client(server, new)
        server.until(lambda: allowed_by(server, current), "a client of the new authority is answered")
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
            allowed_by(server, context)
        assert not resumes(server, context, session), "nor by a session of before"


def allowed_by(server, context):
    with contextlib.closing(server.connect(context)) as connection:
        return server.review(make_pod(), connection=connection)["allowed"]


def resumes(server, context, session):
    """Whether a review is answered in a session of before."""
    with socket.create_connection(("localhost", server.port), timeout=30) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as secured:
                body = json.dumps(make_review(make_pod())).encode()
                head = f"POST /inject HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                secured.sendall(head.encode() + body)
                return b" 200 " in secured.recv(1000)
        except (ssl.SSLError, ConnectionError):
            return False


def shown(server):
    return server.get("/readyz?verbose")[1]


def test_whatever_is_wrong_with_the_files_of_the_certificate_is_shown_until_it_is_mended(tmp_path):
    with Server(tmp_path) as server:
        good = server.pair
        weak = make_weak_pair()
        future = make_pair(("localhost",), now=time.time() + 3600, seconds=3600)
        for spoilt, said in (
            (good._replace(certificate=""), "tls.crt is empty"),
            (good._replace(key="\n"), "tls.key is empty"),
            (good._replace(key=future.key), "do not belong to each other"),
            (weak, "the serving certificate cannot be used"),
            (future, "is not valid yet"),
        ):
            server.write_certificate(spoilt)
            server.until(lambda said=said: said in shown(server), said)
            assert server.review(make_pod())["allowed"], "the previous one is served"
            server.write_certificate(good)
            server.until(lambda: "[!]" not in shown(server), "nothing is wrong any more")
        assert "netinit_webhook_cluster_error 0.0" in server.monitor("/metrics")[1]


def make_weak_pair():
    """A pair that fits, of a key that TLS libraries refuse."""
    key = rsa.generate_private_key(65537, 1024)
    now, name = dt.datetime.now(dt.UTC), x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + dt.timedelta(1)).sign(key, hashes.SHA256())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    certificate = made.public_bytes(pem).decode()
    return Pair(authority=certificate, certificate=certificate, key=key.private_bytes(pem, form, serialization.NoEncryption()).decode())


def test_a_certificate_becomes_valid_while_it_waits(tmp_path):
    with Server(tmp_path) as server:
        server.pair = make_pair(("localhost",), now=time.time() + 303, seconds=3600)  # 300 s of allowance
        server.write_certificate(server.pair)
        server.until(lambda: server.review(make_pod())["allowed"], "it is taken as soon as it is valid")


def test_a_certificate_by_another_name_than_the_services_is_told(tmp_path):
    with Server(tmp_path, "--namespace", "mesh", "--serviceName", "hook") as server:
        server.until(lambda: "it is not for hook.mesh.svc, the API server's name for it, but for localhost" in shown(server), "it is told")
        assert server.review(make_pod())["allowed"]


def test_an_authority_of_clients_that_is_none_is_told_and_the_right_one_is_taken(tmp_path):
    certificate, key = make_client_pair()
    spoilt = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    (tmp_path / "clients.crt").write_text(spoilt)
    with Server(tmp_path, "--clientCAFile", str(tmp_path / "clients.crt"), wait=False) as server:
        server.until(lambda: "certificate cannot be used" in server.monitor("/readyz?verbose")[1], "it says what is wrong")
        (tmp_path / "clients.crt").write_text(certificate)
        server.until(lambda: server.monitor("/readyz")[0] == HTTPStatus.OK, "it is taken")
        assert allowed_by(server, with_client(server, (certificate, key)))
