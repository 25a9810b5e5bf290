"""Lint what makes the API server trust a webhook: its CA bundle, and who writes it. Pure."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, string, strings
from netinit.webhook.certificates import describe, find_missing_name, leads_to, split_pem
from netinit.webhook.installation_findings import ERROR, WARNING, Hook, InstallationFinding

__all__ = ["check_bundle", "check_writer"]

_SOON = 7 * 86400.0
_REVISION = "istio.io/rev"
_PATCHED = "sidecar-injector.istio.io"  # istiod writes into webhooks whose names end so (Istio's pkg/webhooks/webhookpatch.go)
_WRITER_PAGE = "docs/webhook.md#istiod-and-the-label-istioiorev"


def check_bundle(hook: Hook, now: float, by_kind: Mapping[str, list[Tree]], *, whole: bool) -> Iterator[InstallationFinding]:
    """Find a CA bundle that is missing, unreadable, expired, or not that of the certificate in the cluster."""
    text = string(mapping(hook.tree.get("clientConfig")).get("caBundle"))
    remedy = "let the webhook set it (--webhookConfigName), or cert-manager (cert-manager.io/inject-ca-from)"
    if not text:
        if whole and hook.service[1]:  # manifests have none: the webhook or cert-manager sets it in the cluster
            yield InstallationFinding(WARNING, "no-bundle", hook.subject, "it has no caBundle: it is not trusted yet", remedy)
        return
    try:
        bundle = base64.b64decode(text, validate=True).decode()
        ends = [describe(one).until for one in split_pem(bundle)]
    except (binascii.Error, UnicodeDecodeError, ConfigError) as error:
        yield InstallationFinding(ERROR, "bad-bundle", hook.subject, f"its caBundle holds no certificates: {error}", remedy)
        return
    if not ends:
        yield InstallationFinding(ERROR, "bad-bundle", hook.subject, "its caBundle holds no certificates", remedy)
    elif max(ends) <= now:
        yield InstallationFinding(ERROR, "expired-bundle", hook.subject, "every authority of its caBundle has expired", remedy)
    elif max(ends) <= now + _SOON:
        days = (max(ends) - now) / 86400
        yield InstallationFinding(
            WARNING,
            "expiring-bundle",
            hook.subject,
            f"the last authority of its caBundle expires in {days:.1f} days",
            remedy,
        )
    served = _find_served_certificates(hook, by_kind.get("Secret", []))
    if served and not any(leads_to(chain, bundle) for chain in served.values()):
        message = f"its caBundle lacks the authority of the certificate in Secret {', '.join(served)}"
        yield InstallationFinding(ERROR, "wrong-bundle", hook.subject, message, remedy)


def check_writer(hook: Hook, by_kind: Mapping[str, list[Tree]], *, whole: bool) -> Iterator[InstallationFinding]:
    """Find a webhook that is not istiod's and whose CA bundle istiod replaces, because of its configuration's label."""
    revision, service = hook.parsed.revision, hook.service[1]
    if not revision or not service or service.startswith("istiod") or not hook.parsed.name.endswith(_PATCHED):
        return
    labels = [strings(mapping(tree.get("metadata")).get("labels")) for tree in by_kind.get("Deployment", [])]
    may_run = not whole or any((one.get("app"), one.get(_REVISION)) == ("istiod", revision) for one in labels)
    who = "an istiod of that revision replaces" if may_run else "no istiod of that revision runs now, but any would replace"
    yield InstallationFinding(
        severity=ERROR if may_run else WARNING,
        kind="claimed-by-istiod",
        subject=hook.subject,
        message=f"its configuration has the label {_REVISION}={revision}: {who} the caBundle by its own, "
        "which this webhook's certificate does not lead to",
        remedy=f"kubectl label mutatingwebhookconfiguration {hook.configuration} {_REVISION}-, and take the label out of what "
        "installs it: the revision of the pods is in the selectors (chart value revision)",
        page=_WRITER_PAGE,
    )


def _find_served_certificates(hook: Hook, secrets: list[Tree]) -> dict[str, str]:
    """Return the certificates that are valid for the webhook's Service, by Secret."""
    namespace, service = hook.service
    found = {}
    for secret in secrets:
        metadata = mapping(secret.get("metadata"))
        try:
            chain = base64.b64decode(string(mapping(secret.get("data")).get("tls.crt")), validate=True).decode()
            if service and metadata.get("namespace") == namespace and not find_missing_name(describe(chain), service, namespace):
                found[f"{namespace}/{metadata.get('name')}"] = chain
        except (binascii.Error, UnicodeDecodeError, ConfigError):
            continue  # not a TLS Secret
    return found
