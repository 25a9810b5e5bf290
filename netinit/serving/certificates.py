"""Read certificates: what one says, who signed it, and for which names. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from netinit.base.errors import ConfigError

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


class CertificateInfo(NamedTuple):
    """Parts of a certificate: validity in seconds since the epoch, and subject alternative names."""

    since: float
    until: float
    names: tuple[str, ...]


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """Return a Service's DNS names; the API server uses the first."""
    return f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local", f"{service}.{namespace}", service


def load(text: str) -> Any:
    """Parse the first certificate of a PEM text. Raises ValueError."""
    from cryptography import x509

    return x509.load_pem_x509_certificate(text[max(0, text.find(_BEGIN)) :].encode())


def describe(text: str) -> CertificateInfo:
    """Parse the first certificate of a PEM text. Raises ConfigError."""
    from cryptography import x509

    try:
        found = load(text)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        listed = (*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress)))
    except x509.ExtensionNotFound:
        listed = ()
    except ValueError as error:
        raise ConfigError(f"it is not a PEM certificate: {error}") from error
    return CertificateInfo(since=found.not_valid_before_utc.timestamp(), until=found.not_valid_after_utc.timestamp(), names=listed)


def is_issued_by(certificate: str, authority: str) -> bool:
    """Whether this CA signed the certificate (both PEM); False for what is not a certificate."""
    from cryptography.exceptions import InvalidSignature

    try:
        load(certificate).verify_directly_issued_by(load(authority))
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
        if own in authorities or any(is_issued_by(own, one) for one in authorities):
            return True
        above = next((one for one in between if is_issued_by(own, one)), "")
        if not above:
            return False
        between.remove(above)
        own = above


def find_missing_name(info: CertificateInfo, service: str, namespace: str) -> str:
    """Return the Service's DNS name if the certificate lacks it; else empty."""
    name = service_names(service, namespace)[0]
    return "" if {name, f"*.{namespace}.svc"} & {one.lower() for one in info.names} else name
