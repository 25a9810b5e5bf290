"""Renew the self-signed serving certificate in a Secret, and patch the caBundle of webhooks. Pure.

A CA must be in every caBundle before its certificate is served. So a renewal first adds the next pair to the Secret and
its CA to the bundle; after an overlap the next pair becomes current. Each step is one write, which fails if another
replica was faster.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, replace

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.webhook.certificates import Pair, check, describe, split_pem

_OVERLAP_SECONDS = 60.0  # for every API server to receive a new caBundle


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


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalPlan:
    """The lifetime in seconds, and a function of time and lifetime that creates a pair."""

    lifetime: float
    make: Callable[[float, float], Pair]

    @property
    def overlap(self) -> float:
        """Seconds between creating the next pair and serving it."""
        return min(_OVERLAP_SECONDS, self.lifetime / 10)


def next_state(state: CertificateState | None, now: float, plan: RenewalPlan, *, announced: bool = True) -> CertificateState:
    """Return the state that the Secret should have; the same object if nothing is due.

    `announced`: every caBundle has the next CA, so its pair may be served.
    """
    if state is None or _is_unusable(state.current, now):
        if state is not None and state.next_pair is not None and not _is_unusable(state.next_pair, now):
            return _promote(state, state.next_pair, now)
        return CertificateState(current=plan.make(now, plan.lifetime))
    if state.next_pair is not None:
        if _is_unusable(state.next_pair, now):
            return replace(state, next_pair=None, waiting_since=0.0)
        due = announced and now - state.waiting_since >= plan.overlap
        return _promote(state, state.next_pair, now) if due else state
    if now >= describe(state.current.certificate).until - plan.lifetime / 3:
        return replace(state, next_pair=plan.make(now, plan.lifetime), waiting_since=now)
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
_PARTS = ("authority", "certificate", "key")


def to_data(state: CertificateState) -> dict[str, str]:
    """Encode the state as the Secret's `data`."""
    texts = {"ca.crt": state.bundle, "older.crt": "".join(state.earlier)}
    for keys, pair in ((_CURRENT, state.current), (_NEXT, state.next_pair)):
        texts |= {key: getattr(pair, part) for key, part in zip(keys, _PARTS, strict=True)} if pair else {}
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
        Pair(**{part: texts[key] for key, part in zip(keys, _PARTS, strict=True)}) if all(map(texts.get, keys)) else None
        for keys in (_CURRENT, _NEXT)
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
