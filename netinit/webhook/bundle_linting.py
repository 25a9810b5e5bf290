"""Lint what makes the API server trust a webhook: its CA bundle, and who writes it. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

from netinit.base.errors import ConfigError
from netinit.base.tree import mapping, string
from netinit.inject.webhooks import REVISION_LABEL
from netinit.webhook.certificates import describe, find_missing_name, leads_to, split_pem
from netinit.webhook.installation_findings import (
    ByKind,
    Hook,
    InstallationFinding,
    by_severity,
    finding,
    labels_of,
    metadata_of,
    name_of,
)

__all__ = ["check_bundle", "check_writer"]

_SOON = 7 * 86400.0
_PATCHED = "sidecar-injector.istio.io"  # istiod writes into webhooks whose names end so (Istio's pkg/webhooks/webhookpatch.go)


def check_bundle(hook: Hook, now: float, by_kind: ByKind, *, whole: bool) -> Iterator[InstallationFinding]:
    """Find a CA bundle that is missing, unreadable, expired, or not that of the certificate in the cluster."""
    text = string(mapping(hook.tree.get("clientConfig")).get("caBundle"))
    if not text:
        if whole and hook.service[1]:  # manifests have none: the webhook or cert-manager sets it in the cluster
            yield finding("no-bundle", hook.subject)
        return
    try:
        bundle = base64.b64decode(text, validate=True).decode()
        ends = [describe(one).until for one in split_pem(bundle)]
    except (binascii.Error, UnicodeDecodeError, ConfigError) as error:
        yield finding("bad-bundle", hook.subject, problem=f": {error}")
        return
    if not ends:
        yield finding("bad-bundle", hook.subject, problem="")
    elif max(ends) <= now:
        yield finding("expired-bundle", hook.subject)
    elif max(ends) <= now + _SOON:
        yield finding("expiring-bundle", hook.subject, days=(max(ends) - now) / 86400)
    served = _find_served_certificates(hook, by_kind)
    if served and not any(leads_to(chain, bundle) for chain in served.values()):
        yield finding("wrong-bundle", hook.subject, secrets=", ".join(served))


def check_writer(hook: Hook, by_kind: ByKind, *, whole: bool) -> Iterator[InstallationFinding]:
    """Find a webhook that is not istiod's and whose CA bundle istiod replaces, because of its configuration's label."""
    revision, service = hook.parsed.revision, hook.service[1]
    if not revision or not service or service.startswith("istiod") or not hook.parsed.name.endswith(_PATCHED):
        return
    labels = [labels_of(tree) for tree in by_kind.get("Deployment", [])]
    may_run = not whole or any((one.get("app"), one.get(REVISION_LABEL)) == ("istiod", revision) for one in labels)
    who = "an istiod of that revision replaces" if may_run else "no istiod of that revision runs now, but any would replace"
    yield finding(
        "claimed-by-istiod", hook.subject, severity=by_severity(may_run), revision=revision, who=who, configuration=hook.configuration
    )


def _find_served_certificates(hook: Hook, by_kind: ByKind) -> dict[str, str]:
    """Return the certificates that are valid for the webhook's Service, by Secret."""
    namespace, service = hook.service
    found = {}
    for secret in by_kind.get("Secret", []):
        try:
            chain = base64.b64decode(string(mapping(secret.get("data")).get("tls.crt")), validate=True).decode()
            is_near = metadata_of(secret).get("namespace") == namespace
            if service and is_near and not find_missing_name(describe(chain), service, namespace):
                found[f"{namespace}/{name_of(secret)}"] = chain
        except (binascii.Error, UnicodeDecodeError, ConfigError):
            continue  # not a TLS Secret
    return found
