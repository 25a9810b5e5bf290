"""Create, parse, check and load certificates."""

from __future__ import annotations

import datetime as dt
import os
import ssl
from dataclasses import dataclass
from typing import Any

from netinit.base.errors import ConfigError

_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # TLS 1.2; those of TLS 1.3 are all allowed
_SKEW_SECONDS = 300.0  # of a client's clock
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A serving certificate, its key and the CA that signed it, as PEM."""

    authority: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateInfo:
    """Parts of a certificate: validity in seconds since the epoch, and subject alternative names."""

    since: float
    until: float
    names: tuple[str, ...]


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return a Service's DNS names; the API server uses the first."""
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", f"{service}.{namespace}", service


def make_pair(names: tuple[str, ...], *, now: float, seconds: float) -> Pair:
    """Create a CA and a certificate for these names (ECDSA P-256), valid for `seconds` from `now`.

    The CA's key is discarded.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = f"netinit webhook authority {x509.random_serial_number():x}"

    def sign(name: str, own: Any, *extensions: tuple[Any, bool]) -> str:
        subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, one[:64])]) for one in (name, authority_name))
        since, until = (dt.datetime.fromtimestamp(one, dt.UTC) for one in (now - _SKEW_SECONDS, now + seconds))
        of_issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
        builder = x509.CertificateBuilder(issuer, subject, own.public_key(), x509.random_serial_number(), since, until)
        of_subject = x509.SubjectKeyIdentifier.from_public_key(own.public_key())
        for extension, is_critical in ((of_subject, False), (of_issuer, False), *extensions):
            builder = builder.add_extension(extension, is_critical)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    is_authority, is_none = x509.BasicConstraints(ca=True, path_length=0), x509.BasicConstraints(ca=False, path_length=None)
    alternatives = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    serves = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(
        authority=sign(authority_name, authority_key, (is_authority, True), (_usage("key_cert_sign", "crl_sign"), True)),
        certificate=sign(
            names[0], key, (is_none, True), (_usage("digital_signature"), True), (serves, False), (alternatives, False)
        ),
        key=secret.decode(),
    )


def _usage(*allowed: str) -> Any:
    from cryptography import x509

    every = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign",
        "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: name in allowed for name in every})


def _load(text: str) -> Any:
    """Parse the first certificate of a PEM text. Raises ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(text[max(0, text.find(_BEGIN)) :].encode())


def describe(text: str) -> CertificateInfo:
    """Parse the first certificate of a PEM text. Raises ConfigError."""
    from cryptography import x509

    try:
        found = _load(text)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        listed = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    except x509.ExtensionNotFound:
        listed = ()
    except ValueError as error:
        raise ConfigError(f"it is no certificate in PEM: {error}") from error
    return CertificateInfo(since=found.not_valid_before_utc.timestamp(), until=found.not_valid_after_utc.timestamp(), names=listed)


def check(certificate: str, key: str, *, now: float, authority: str = "") -> CertificateInfo:
    """Parse a certificate. Raises ConfigError if it is invalid, expired or not this key's.

    `authority`: the CA that must have signed it (PEM), if any.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    info = describe(certificate)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    try:
        secret = serialization.load_pem_private_key(key.encode(), None)
        public = _load(certificate).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"the key is none in PEM without a password: {error}") from error
    encoding = serialization.Encoding.DER
    if secret.public_key().public_bytes(encoding, form) != public.public_bytes(encoding, form):
        raise ConfigError("certificate and key do not belong to each other")
    if not info.since <= now < info.until:
        when = "has expired" if now >= info.until else "is not valid yet"
        raise ConfigError(f"the certificate {when}; it is valid for {', '.join(info.names) or 'no name'}")
    if authority and not _is_issued_by(certificate, authority):
        raise ConfigError("the certificate is not of this authority")
    return info


def _is_issued_by(certificate: str, authority: str) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        _load(certificate).verify_directly_issued_by(_load(authority))
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def split_pem(text: str) -> list[str]:
    """Split a PEM text into its certificates."""
    return [f"{_BEGIN}{part.partition(_END)[0]}{_END}\n" for part in text.split(_BEGIN)[1:]]


def leads_to(chain: str, bundle: str) -> bool:
    """Whether a CA of the bundle signed the chain's first certificate, perhaps through the others."""
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


def find_missing_name(info: CertificateInfo, service: str, namespace: str) -> str:
    """Return the Service's DNS name if the certificate lacks it; else empty."""
    name = service_names(service, namespace)[0]
    return "" if {name, f"*.{namespace}.svc"} & {one.lower() for one in info.names} else name


def make_context(certificate: str, key: str, clients: str = "") -> ssl.SSLContext:
    """Return a server TLS context; `clients`: the CA bundle for client certificates, if any. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        _load_pair(context, f"{key.rstrip()}\n{certificate}")
        if clients:
            context.load_verify_locations(cadata=clients)
            context.verify_mode = ssl.CERT_OPTIONAL  # kubelet probes have none; reviews without one are rejected later
            context.options |= ssl.OP_NO_TICKET  # a resumed session would trust a removed CA
            context.num_tickets = 0
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the serving certificate cannot be used: {error}") from error
    return context


def _load_pair(context: ssl.SSLContext, pair: str) -> None:
    """Load chain and key through a memfd: OpenSSL reads only files."""
    handle = os.memfd_create("serving-pair", os.MFD_CLOEXEC)
    try:
        os.write(handle, pair.encode())
        context.load_cert_chain(f"/proc/self/fd/{handle}")
    finally:
        os.close(handle)
