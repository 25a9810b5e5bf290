"""When a self-made certificate is renewed, and in which order: a state that is kept in a Secret, and its next step. Pure.

The new authority must be in every caBundle before a certificate of it is served. So a renewal has two steps, each one
write of the Secret that fails where another replica was quicker: first the bundle gets the new authority, and the next
pair waits beside the present one; after the overlap the next pair becomes the present one. Everybody serves what the
Secret calls present.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from dataclasses import dataclass, replace

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, string
from netinit.webhook.certificates import Pair, check, describe

__all__ = ["Kept", "RenewalPlan", "from_secret", "next_state", "to_data"]

_OVERLAP = 60.0  # seconds in which every API server hears of a new caBundle


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the Secret holds: the present pair, the next one (or None) and since when it waits, and older authorities."""

    present: Pair
    following: Pair | None = None
    waiting_since: float = 0.0
    older: tuple[str, ...] = ()

    @property
    def bundle(self) -> str:
        """What every caBundle must be."""
        following = (self.following.authority,) if self.following else ()
        return "".join(dict.fromkeys((self.present.authority, *following, *self.older)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewalPlan:
    """How long certificates live, in seconds, and how a pair is made (of the time and the lifetime)."""

    lifetime: float
    make: Callable[[float, float], Pair]

    @property
    def overlap(self) -> float:
        """Seconds that the next pair waits."""
        return min(_OVERLAP, self.lifetime / 10)


def next_state(kept: Kept | None, now: float, plan: RenewalPlan, *, announced: bool = True) -> Kept:
    """What the Secret should hold now: the same object where nothing is due.

    `announced`: every caBundle is known to hold the bundle; the next pair is not served before that.
    """
    if kept is None or _ended(kept.present, now):
        if kept is not None and kept.following is not None and not _ended(kept.following, now):
            return _promoted(kept, kept.following, now)
        return Kept(present=plan.make(now, plan.lifetime))
    if kept.following is not None:
        if _ended(kept.following, now):
            return replace(kept, following=None, waiting_since=0.0)
        due = announced and now - kept.waiting_since >= plan.overlap
        return _promoted(kept, kept.following, now) if due else kept
    if now >= describe(kept.present.certificate).until - plan.lifetime / 3:
        return replace(kept, following=plan.make(now, plan.lifetime), waiting_since=now)
    return kept


def _ended(pair: Pair, now: float) -> bool:
    try:
        check(pair.certificate, pair.key, now=now, authority=pair.authority)
    except ConfigError:
        return True
    return False


def _promoted(kept: Kept, following: Pair, now: float) -> Kept:
    """The following pair is the present one; authorities of replicas that have not heard of it yet stay."""
    older = tuple(text for text in (kept.present.authority, *kept.older) if _is_valid(text, now))
    return Kept(present=following, older=older[:2])


def _is_valid(text: str, now: float) -> bool:
    try:
        return now < describe(text).until
    except ConfigError:
        return False


# ---- the Secret --------------------------------------------------------------------------------------------------------


def to_data(kept: Kept) -> dict[str, str]:
    """The Secret's `data`."""
    texts = {
        "ca.crt": kept.bundle,
        "tls.crt": kept.present.certificate,
        "tls.key": kept.present.key,
        "authority.crt": kept.present.authority,
        "older.crt": "".join(kept.older),
    }
    if kept.following is not None:
        texts |= {
            "next-authority.crt": kept.following.authority,
            "next.crt": kept.following.certificate,
            "next.key": kept.following.key,
            "next-since": str(int(kept.waiting_since)),
        }
    return {key: base64.b64encode(text.encode()).decode("ascii") for key, text in texts.items()}


def from_secret(secret: Tree) -> Kept | None:
    """What a Secret holds; None where that is nothing, or nothing that can be used."""
    try:
        texts = {
            key: base64.b64decode(string(value), validate=True).decode()
            for key, value in mapping(secret.get("data")).items()
        }
        if not all(texts.get(key) for key in ("tls.crt", "tls.key", "authority.crt")):
            return None
        present = Pair(authority=texts["authority.crt"], certificate=texts["tls.crt"], key=texts["tls.key"])
        following = None
        if all(texts.get(key) for key in ("next.crt", "next.key", "next-authority.crt")):
            following = Pair(
                authority=texts["next-authority.crt"], certificate=texts["next.crt"], key=texts["next.key"]
            )
        since = float(texts.get("next-since") or 0)
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None
    return Kept(present=present, following=following, waiting_since=since, older=_split(texts.get("older.crt", "")))


def _split(text: str) -> tuple[str, ...]:
    end = "-----END CERTIFICATE-----\n"
    return tuple(part + end for part in text.split(end) if part.strip())
