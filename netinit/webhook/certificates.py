"""Create, parse and check serving certificates, renew the one in a Secret, and patch the caBundle of webhooks. Pure.

A CA must be in every caBundle before its certificate is served. So a renewal first adds the next pair to the Secret and
its CA to the bundle; after an overlap the next pair becomes current. Each step is one write, which fails if another
replica was faster.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.serving.certificates import CertificateInfo, describe, is_issued_by, load, split_pem

_SKEW_SECONDS = 300.0  # of a client's clock
_OVERLAP_SECONDS = 60.0  # for every API server to receive a new caBundle


class Pair(NamedTuple):
    """A serving certificate, its key and the CA that signed it, as PEM."""

    authority: str
    certificate: str
    key: str


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
        public = load(certificate).public_key()
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"the key is not PEM without a password: {error}") from error
    encoding = serialization.Encoding.DER
    if secret.public_key().public_bytes(encoding, form) != public.public_bytes(encoding, form):
        raise ConfigError("certificate and key do not belong to each other")
    if not info.since <= now < info.until:
        when = "has expired" if now >= info.until else "is not valid yet"
        raise ConfigError(f"the certificate {when}; it is valid for {', '.join(info.names) or 'no name'}")
    if authority and not is_issued_by(certificate, authority):
        raise ConfigError("the certificate is not signed by this CA")
    return info


# ---- renewal -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateState:
    """The Secret's content. `waiting_since`: creation time of `next_pair` in seconds since the epoch."""

    current: Pair
    next_pair: Pair | None = None
    waiting_since: float = 0.0
    earlier: tuple[str, ...] = ()

    @property
    def bundle(self) -> str:
        """The caBundle: current, next and earlier CAs, as PEM."""
        next_pair = (self.next_pair.authority,) if self.next_pair else ()
        return "".join(dict.fromkeys((self.current.authority, *next_pair, *self.earlier)))


def overlap_seconds(lifetime: float) -> float:
    """Return the seconds between creating the next pair and serving it."""
    return min(_OVERLAP_SECONDS, lifetime / 10)


def next_state(
    state: CertificateState | None, now: float, *, names: tuple[str, ...], lifetime: float, announced: bool = True
) -> CertificateState:
    """Return the state that the Secret should have; the same object if nothing is due.

    New certificates are for `names` and last `lifetime` seconds. `announced`: every caBundle has the next CA, so its pair
    may be served.
    """
    if state is None or _is_unusable(state.current, now):
        if state is not None and state.next_pair is not None and not _is_unusable(state.next_pair, now):
            return _promote(state, state.next_pair, now)
        return CertificateState(current=make_pair(names, now=now, seconds=lifetime))
    if state.next_pair is not None:
        if _is_unusable(state.next_pair, now):
            return replace(state, next_pair=None, waiting_since=0.0)
        due = announced and now - state.waiting_since >= overlap_seconds(lifetime)
        return _promote(state, state.next_pair, now) if due else state
    if now >= describe(state.current.certificate).until - lifetime / 3:
        return replace(state, next_pair=make_pair(names, now=now, seconds=lifetime), waiting_since=now)
    return state


def _is_unusable(pair: Pair, now: float) -> bool:
    try:
        check(pair.certificate, pair.key, now=now, authority=pair.authority)
    except ConfigError:
        return True
    return False


def _promote(state: CertificateState, next_pair: Pair, now: float) -> CertificateState:
    """Make the next pair current; keep earlier CAs for replicas that still use them."""
    earlier = tuple(text for text in (state.current.authority, *state.earlier) if _is_valid(text, now))
    return CertificateState(current=next_pair, earlier=earlier[:2])


def _is_valid(text: str, now: float) -> bool:
    try:
        return now < describe(text).until
    except ConfigError:
        return False


# ---- the Secret --------------------------------------------------------------------------------------------------------


_CURRENT, _NEXT = ("authority.crt", "tls.crt", "tls.key"), ("next-authority.crt", "next.crt", "next.key")


def to_data(state: CertificateState) -> dict[str, str]:
    """Encode the state as the Secret's `data`."""
    texts = {"ca.crt": state.bundle, "older.crt": "".join(state.earlier)}
    for keys, pair in ((_CURRENT, state.current), (_NEXT, state.next_pair)):
        texts |= dict(zip(keys, pair or (), strict=False))
    if state.next_pair is not None:
        texts["next-since"] = str(int(state.waiting_since))
    return {key: base64.b64encode(text.encode()).decode("ascii") for key, text in texts.items()}


def from_secret(secret: Tree) -> CertificateState | None:
    """Decode the state from a Secret; None if it is empty or invalid."""
    try:
        data = mapping(secret.get("data"))
        texts = {key: base64.b64decode(string(value), validate=True).decode() for key, value in data.items()}
        since, earlier = float(texts.get("next-since") or 0), tuple(split_pem(texts.get("older.crt", "")))
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    current, next_pair = (
        Pair(*[texts[key] for key in keys]) if all(map(texts.get, keys)) else None for keys in (_CURRENT, _NEXT)
    )
    return CertificateState(current=current, next_pair=next_pair, waiting_since=since, earlier=earlier) if current else None


# ---- caBundles ---------------------------------------------------------------------------------------------------------


def is_ours(webhook: Tree, *, service: str, namespace: str, name: str = "") -> bool:
    """Whether a webhook has this `name` or, if that is empty, calls our Service."""
    if name:
        return webhook.get("name") == name
    target = mapping(mapping(webhook.get("clientConfig")).get("service"))
    return target.get("name") == service and target.get("namespace") == namespace


def bundle_patch(configuration: Tree, bundle: str, *, service: str, namespace: str, name: str = "") -> list[Tree]:
    """Return the JSON patch that sets our webhooks' caBundle (PEM); empty if it is set.

    It tests the resourceVersion, since JSON patches address webhooks by index.
    """
    encoded = base64.b64encode(bundle.encode()).decode("ascii")
    operations = [
        {"op": "add", "path": f"/webhooks/{index}/clientConfig/caBundle", "value": encoded}  # add also replaces
        for index, webhook in enumerate(map(mapping, sequence(configuration.get("webhooks"))))
        if is_ours(webhook, service=service, namespace=namespace, name=name)
        and mapping(webhook.get("clientConfig")).get("caBundle") != encoded
    ]
    if not operations:
        return []
    version = mapping(configuration.get("metadata")).get("resourceVersion")
    return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *operations]
