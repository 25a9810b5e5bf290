"""Certificates: made (an authority and a serving certificate of it), read, checked before they are used, and served."""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import dataclass
from typing import Any

from netinit.base.errors import ConfigError

__all__ = [
    "Facts",
    "Pair",
    "check",
    "describe",
    "find_missing_name",
    "leads_to",
    "make_context",
    "make_pair",
    "service_names",
    "split_pem",
]

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # TLS 1.2; all of 1.3 are good
_SKEW = 300.0  # seconds that a clock elsewhere may be behind


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A serving certificate with its key, and the authority that signed it; PEM texts."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a certificate says: seconds of the epoch, and the names that it is for."""

    since: float
    until: float
    names: tuple[str, ...]


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The names by which the API server, and others, call a Service."""
    return (
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
        service,
    )


def make_pair(names: tuple[str, ...], *, now: float, seconds: float) -> Pair:
    """A new authority, and a certificate of it for these names, ECDSA on P-256, both valid for `seconds` from `now`.

    The authority's key is used once and forgotten: with the next certificate comes the next authority.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    since = dt.datetime.fromtimestamp(now - _SKEW, dt.UTC)
    until = dt.datetime.fromtimestamp(now + seconds, dt.UTC)
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    number = x509.random_serial_number()
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"netinit webhook authority {number:x}"[:64])])
    own_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])

    def begin(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(issuer_name=authority_name, subject_name=subject, public_key=public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(since)
            .not_valid_after(until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )

    authority = (
        begin(authority_name, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage("key_cert_sign", "crl_sign"), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    own = (
        begin(own_name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage("digital_signature"), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(
        authority=authority.public_bytes(pem).decode(), certificate=own.public_bytes(pem).decode(), key=secret.decode()
    )


def _usage(*allowed: str) -> Any:
    """The extension that says what a key may be used for."""
    from cryptography import x509

    every = (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    )
    return x509.KeyUsage(**{name: name in allowed for name in every})


def describe(text: str) -> Facts:
    """What the first certificate of a PEM text says. Raises ConfigError."""
    from cryptography import x509

    begin = text.find("-----BEGIN CERTIFICATE-----")
    try:
        found = x509.load_pem_x509_certificate(text[max(0, begin) :].encode())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        listed = tuple(names.get_values_for_type(x509.DNSName)) + tuple(
            map(str, names.get_values_for_type(x509.IPAddress))
        )
    except x509.ExtensionNotFound:
        listed = ()
    except ValueError as error:
        raise ConfigError(f"it is no certificate in PEM: {error}") from error
    return Facts(
        since=found.not_valid_before_utc.timestamp(), until=found.not_valid_after_utc.timestamp(), names=listed
    )


def check(certificate: str, key: str, *, now: float, authority: str = "") -> Facts:
    """What the certificate says. Raises ConfigError where it cannot be served: not PEM, another key's, or not valid.

    Nor where an authority is given (PEM), and it is not the one that signed it.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    facts = describe(certificate)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        secret = serialization.load_pem_private_key(key.encode(), None)
        public = x509.load_pem_x509_certificate(
            certificate[certificate.find("-----BEGIN CERTIFICATE") :].encode()
        ).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"the key is none in PEM without a password: {error}") from error
    encoding = serialization.Encoding.DER
    if secret.public_key().public_bytes(encoding, form) != public.public_bytes(encoding, form):
        raise ConfigError("certificate and key do not belong to each other")
    if not facts.since <= now < facts.until:
        when = "has expired" if now >= facts.until else "is not valid yet"
        raise ConfigError(f"the certificate {when}; it is valid for {', '.join(facts.names) or 'no name'}")
    if authority and not _is_issued_by(certificate, authority):
        raise ConfigError("the certificate is not of this authority")
    return facts


def _is_issued_by(certificate: str, authority: str) -> bool:
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        own, above = (x509.load_pem_x509_certificate(text.encode()) for text in (certificate, authority))
        own.verify_directly_issued_by(above)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def split_pem(text: str) -> list[str]:
    """The certificates of a text in PEM, each a text of its own."""
    begin, end = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
    return [f"{begin}{part.partition(end)[0]}{end}\n" for part in text.split(begin)[1:]]


def leads_to(chain: str, bundle: str) -> bool:
    """Whether the first certificate of a chain was signed by one of a bundle, or by way of the chain's others."""
    own, *between = split_pem(chain) or [""]
    authorities = split_pem(bundle)
    while True:
        if own in authorities or any(_is_issued_by(own, one) for one in authorities):
            return True
        above = next((one for one in between if _is_issued_by(own, one)), "")
        if not above:
            return False
        between.remove(above)
        own = above


def find_missing_name(facts: Facts, service: str, namespace: str) -> str:
    """The name by which the API server calls the Service, where the certificate is not for it; else empty."""
    name = service_names(service, namespace)[0]
    return "" if {name, f"*.{namespace}.svc"} & {one.lower() for one in facts.names} else name


def make_context(certificate: str, key: str, clients: str = "") -> ssl.SSLContext:
    """A TLS context with a chain and its key, which asks for certificates of clients where an authority is given; PEM texts.

    Raises ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        _load_pair(context, f"{key.rstrip()}\n{certificate}")
        if clients:
            context.load_verify_locations(cadata=clients)
            context.verify_mode = ssl.CERT_OPTIONAL  # probes of the kubelet have none; reviews are refused without
            context.options |= ssl.OP_NO_TICKET  # a session would go on with an authority that is not known any more
            context.num_tickets = 0
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the serving certificate cannot be used: {error}") from error
    return context


def _load_pair(context: ssl.SSLContext, pair: str) -> None:
    """Gives a context its key and chain, which OpenSSL reads from files alone: one in memory that has no name."""
    handle = os.memfd_create("serving-pair", os.MFD_CLOEXEC)
    try:
        os.write(handle, pair.encode())
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
