"""Certificates and their renewal: what is made verifies, what cannot be served is refused, and no step comes too early."""

from __future__ import annotations

import base64
import dataclasses
import datetime as dt
import socket
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from netinit.base.errors import ConfigError
from netinit.serving.certificates import CertificateInfo, describe, find_missing_name, leads_to, service_names
from netinit.webhook.certificates import (
    CertificateState,
    bundle_patch,
    check,
    from_secret,
    is_ours,
    make_pair,
    next_state,
    to_data,
)
from netinit.webhook.loaders import make_context

NOW = 1_800_000_000.0
DAY = 86400.0
NAMES = service_names("netinit-webhook", "mesh")


def plan(lifetime=90 * DAY):
    return {"lifetime": lifetime, "names": NAMES}


PAIR = make_pair(NAMES, now=NOW, seconds=90 * DAY)


def test_a_pair_is_for_the_services_names_and_as_long_as_asked():
    info = describe(PAIR.certificate)
    assert info.names == NAMES
    assert "netinit-webhook.mesh.svc" in info.names
    assert info.until == NOW + 90 * DAY
    assert info.since < NOW  # clocks differ
    assert check(PAIR.certificate, PAIR.key, now=NOW) == info


def test_what_a_key_may_do_is_critical_as_authorities_must_say_it():
    for text in (PAIR.authority, PAIR.certificate):
        found = x509.load_pem_x509_certificate(text.encode()).extensions
        assert found.get_extension_for_class(x509.KeyUsage).critical
        assert found.get_extension_for_class(x509.BasicConstraints).critical


def handshake(server_context, client_context, name):
    """The TLS version of a real handshake between two ends of a socket pair; ssl.SSLError where there is none."""
    left, right = socket.socketpair()
    failed = []

    def serve():
        try:
            with server_context.wrap_socket(left, server_side=True) as end:
                end.recv(1)
        except (ssl.SSLError, OSError) as error:
            failed.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client_context.wrap_socket(right, server_hostname=name) as end:
            end.send(b"x")
            return end.version()
    finally:
        right.close()
        thread.join(10)


@pytest.fixture
def serving():
    import time

    pair = make_pair(NAMES, now=time.time(), seconds=3600)
    return pair, make_context(pair.certificate, pair.key)


def test_a_client_that_trusts_the_authority_verifies_every_name(serving):
    pair, context = serving
    for name in NAMES:
        assert handshake(context, ssl.create_default_context(cadata=pair.authority), name) == "TLSv1.3"


def test_other_names_and_other_authorities_do_not_verify(serving):
    pair, context = serving
    for authority, name in ((pair.authority, "elsewhere.svc"), (PAIR.authority, NAMES[0])):
        with pytest.raises(ssl.SSLCertVerificationError):
            handshake(context, ssl.create_default_context(cadata=authority), name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", ["SSLv3", "TLSv1", "TLSv1_1"])
def test_old_versions_of_tls_are_refused(serving, version):
    pair, context = serving
    client = ssl.create_default_context(cadata=pair.authority)
    client.set_ciphers("ALL:@SECLEVEL=0")
    client.minimum_version = ssl.TLSVersion.SSLv3
    client.maximum_version = getattr(ssl.TLSVersion, version)
    with pytest.raises((ssl.SSLError, OSError)):
        handshake(context, client, NAMES[0])


@pytest.mark.parametrize(
    "cipher",
    ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA", "AES256-GCM-SHA384", "NULL", "aNULL", "DHE-RSA-AES128-GCM-SHA256"],
)
def test_ciphers_without_forward_secrecy_or_authentication_are_refused(serving, cipher):
    pair, context = serving
    client = ssl.create_default_context(cadata=pair.authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    client.set_ciphers(f"{cipher}:@SECLEVEL=0")
    with pytest.raises((ssl.SSLError, OSError)):
        handshake(context, client, NAMES[0])


def test_tls_1_2_is_spoken(serving):
    pair, context = serving
    client = ssl.create_default_context(cadata=pair.authority)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(context, client, NAMES[0]) == "TLSv1.2"


OTHER = make_pair(NAMES, now=NOW, seconds=DAY)


@pytest.mark.parametrize(
    ("certificate", "key", "now", "said"),
    [
        (PAIR.certificate, OTHER.key, NOW, "do not belong to each other"),
        (PAIR.certificate, PAIR.key, NOW + 91 * DAY, "has expired"),
        (PAIR.certificate, PAIR.key, NOW - DAY, "is not valid yet"),
        ("nothing", PAIR.key, NOW, "not a PEM certificate"),
        (PAIR.certificate, "nothing", NOW, "the key is not PEM"),
        ("", "", NOW, "not a PEM certificate"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_reason(certificate, key, now, said):
    with pytest.raises(ConfigError, match=said):
        check(certificate, key, now=now)


def test_nothing_there_makes_a_pair():
    kept = next_state(None, NOW, **plan())
    assert kept.bundle == kept.current.authority
    assert kept.next_pair is None


FIRST = next_state(None, NOW, **plan())


@pytest.mark.parametrize("age", [0, 30, 59])
def test_before_two_thirds_nothing_is_due(age):
    assert next_state(FIRST, NOW + age * DAY, **plan()) is FIRST


@pytest.mark.parametrize("lifetime", [30.0, 3600.0, 90 * DAY])
def test_two_thirds_are_those_of_the_lifetime_whatever_the_clocks_allowance(lifetime):
    kept = next_state(None, NOW, **plan(lifetime))
    assert next_state(kept, NOW + lifetime * 0.6, **plan(lifetime)) is kept
    assert next_state(kept, NOW + lifetime * 0.7, **plan(lifetime)).next_pair is not None


def test_the_new_authority_is_in_the_bundle_before_its_certificate_is_served():
    due = NOW + 60.1 * DAY
    waiting = next_state(FIRST, due, **plan())
    assert waiting.current == FIRST.current
    assert waiting.next_pair is not None
    assert waiting.bundle == FIRST.current.authority + waiting.next_pair.authority
    assert next_state(waiting, due + 59, **plan()) is waiting
    assert next_state(waiting, due + 3600, **plan(), announced=False) is waiting, "not before every caBundle has it"
    done = next_state(waiting, due + 61, **plan())
    assert done.current == waiting.next_pair
    assert FIRST.current.authority in done.bundle, "a replica that has not heard of it yet still serves the old one"


def test_an_expired_authority_leaves_the_bundle_at_the_next_renewal():
    kept, now = FIRST, NOW
    for _ in range(4):
        now += 61 * DAY
        kept = next_state(kept, now, **plan())
        now += 61
        kept = next_state(kept, now, **plan())
    assert FIRST.current.authority not in kept.bundle
    assert kept.bundle.count("BEGIN CERTIFICATE") <= 3


def test_an_expired_pair_is_replaced_at_once_whatever_was_announced():
    kept = next_state(FIRST, NOW + 200 * DAY, **plan(), announced=False)
    assert kept.current != FIRST.current
    assert kept.next_pair is None


def test_an_expired_pair_gives_way_to_the_one_that_waits():
    waiting = next_state(FIRST, NOW + 89.9 * DAY, **plan())
    assert next_state(waiting, NOW + 90.5 * DAY, **plan(), announced=False).current == waiting.next_pair


def test_a_waiting_pair_that_has_expired_is_dropped():
    kept = dataclasses.replace(FIRST, next_pair=OTHER, waiting_since=NOW)
    assert next_state(kept, NOW + 2 * DAY, **plan()) == FIRST


@pytest.mark.parametrize(
    "kept",
    [
        FIRST,
        next_state(FIRST, NOW + 61 * DAY, **plan()),
        dataclasses.replace(FIRST, earlier=(OTHER.authority, PAIR.authority)),
    ],
)
def test_the_secret_keeps_all_of_it(kept):
    assert from_secret({"data": to_data(kept)}) == kept


@pytest.mark.parametrize(
    "secret",
    [
        {},
        {"data": None},
        {"data": {"tls.crt": "!"}},
        {"data": {"tls.crt": "AA=="}},
        {"data": {"tls.crt": base64.b64encode(b"\xff").decode()}},
        {"data": []},
    ],
)
def test_a_secret_that_holds_no_pair_is_as_good_as_none(secret):
    assert from_secret(secret) is None


def test_a_secret_that_somebody_spoilt_is_made_anew():
    data = to_data(FIRST)
    data["tls.key"] = to_data(CertificateState(current=OTHER))["tls.key"]
    spoilt = from_secret({"data": data})
    assert next_state(spoilt, NOW, **plan()).current.key not in {FIRST.current.key, OTHER.key}


def test_a_secret_with_the_authority_of_another_certificate_is_made_anew():
    spoilt = from_secret({"data": {**to_data(FIRST), "authority.crt": to_data(CertificateState(current=OTHER))["authority.crt"]}})
    made = next_state(spoilt, NOW, **plan())
    assert made.current.authority not in {FIRST.current.authority, OTHER.authority}
    assert next_state(made, NOW, **plan()) is made


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("hook.mesh.svc",), ""), (("HOOK.mesh.svc", "other"), ""), (("*.mesh.svc",), ""),
        (("hook.mesh.svc.cluster.local",), "hook.mesh.svc"), ((), "hook.mesh.svc"), (("*.svc",), "hook.mesh.svc"),
    ],
)  # fmt: skip
def test_the_name_by_which_the_api_server_asks_is_looked_for(names, missing):
    assert find_missing_name(CertificateInfo(since=0.0, until=1.0, names=names), "hook", "mesh") == missing


def signed(name, key, by, issuer):
    """A certificate for a key, signed by another."""
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, one)]) for one in (issuer, name)]
    since, until = dt.datetime.fromtimestamp(NOW, dt.UTC), dt.datetime.fromtimestamp(NOW + DAY, dt.UTC)
    made = x509.CertificateBuilder(*names, key.public_key(), x509.random_serial_number(), since, until).sign(by, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_chain_leads_to_its_authority_by_way_of_what_is_between():
    root, between, own = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
    leaf, middle, top = signed("leaf", own, between, "middle"), signed("middle", between, root, "top"), signed("top", root, root, "top")
    assert leads_to(leaf + middle, top)
    assert leads_to(leaf + top + middle, PAIR.authority + top), "in whichever order"
    assert leads_to(leaf, middle)
    assert leads_to(leaf, leaf)
    assert not leads_to(leaf, top)
    assert not leads_to(leaf + middle, PAIR.authority)
    assert not leads_to("", top)
    assert not leads_to(middle + leaf, "")


# ---- caBundles

OURS = {"name": "a", "clientConfig": {"service": {"name": "hook", "namespace": "mesh"}}}
THEIRS = {"name": "b", "clientConfig": {"service": {"name": "istiod", "namespace": "mesh"}}}
BY_URL = {"name": "c", "clientConfig": {"url": "https://x"}}


def configuration(*webhooks):
    return {"metadata": {"name": "m", "resourceVersion": "7"}, "webhooks": list(webhooks)}


def test_our_webhooks_get_the_bundle_and_others_are_left_alone():
    patch = bundle_patch(configuration(THEIRS, OURS, BY_URL, OURS), "pem", service="hook", namespace="mesh")
    wanted = base64.b64encode(b"pem").decode()
    assert patch == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": wanted},
        {"op": "add", "path": "/webhooks/3/clientConfig/caBundle", "value": wanted},
    ]


def test_where_the_bundle_is_right_nothing_is_patched():
    right = {**OURS, "clientConfig": {**OURS["clientConfig"], "caBundle": base64.b64encode(b"pem").decode()}}
    assert bundle_patch(configuration(right, THEIRS), "pem", service="hook", namespace="mesh") == []


def test_a_name_means_that_webhook_alone():
    assert is_ours(BY_URL, service="hook", namespace="mesh", name="c")
    assert not is_ours(OURS, service="hook", namespace="mesh", name="c")
    assert not is_ours(OURS, service="hook", namespace="elsewhere")


@pytest.mark.parametrize("tree", [{}, {"webhooks": None}, {"webhooks": [None, 1, {"clientConfig": []}]}])
def test_a_configuration_of_any_shape_is_looked_at(tree):
    assert bundle_patch(tree, "pem", service="hook", namespace="mesh") == []


def test_where_clients_have_certificates_no_session_is_resumed_and_nothing_else_is_loosened(serving):
    pair, plain = serving
    context = make_context(pair.certificate, pair.key, pair.authority)
    assert context.options == plain.options | ssl.OP_NO_TICKET
    assert (context.num_tickets, context.verify_mode) == (0, ssl.CERT_OPTIONAL)
