"""Annotations that look like the mesh's and that nothing reads: mostly a slip of the pen, which would have no effect in silence."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping

from netinit.base.shown import quote
from netinit.inject.annotations import known_keys
from netinit.inject.config import InjectionConfig

__all__ = ["known_to", "unknown_annotations"]

_KEY = re.compile(r"""(?<=["'`])[a-z0-9.-]+/[A-Za-z0-9._-]+(?=["'`])""")
_MOST = 5  # unknown annotations that are looked up
_LONGEST = 120  # characters of one


def known_to(config: InjectionConfig) -> frozenset[str]:
    """The annotations that something reads: the injection, the proxy's agent, or these templates, as far as they quote them."""
    named = frozenset(word for text in config.sources.values() for word in _KEY.findall(text))
    return frozenset(known_keys()) | named


def unknown_annotations(annotations: Mapping[str, str], known: frozenset[str]) -> Iterator[str]:
    """A sentence for each annotation in the domains of the mesh that nothing reads, with the nearest that is read."""
    domains = _domains(known)
    strange = [key for key in annotations if key not in known and key.partition("/")[0] in domains]
    for key in strange[:_MOST]:
        near = _nearest(key[:_LONGEST], known)
        hint = f"; did you mean {near}?" if near else ""
        yield f"annotation {quote(key)} is not known and has no effect{hint}"


@functools.lru_cache(maxsize=1024)
def _nearest(key: str, known: frozenset[str]) -> str:
    """The known annotation that is most like this one; pods of one workload have the same mistake, so it is kept."""
    from difflib import get_close_matches  # seldom

    return next(iter(get_close_matches(key, sorted(known), 1)), "")


@functools.lru_cache(maxsize=2)
def _domains(known: frozenset[str]) -> frozenset[str]:
    """The domains of the mesh's annotations, but for the one that workloads' own are in too."""
    found = {key.partition("/")[0] for key in known}
    return frozenset(domain for domain in found if domain.endswith(("istio.io", "netinit.io"))) - {"istio.io"}
