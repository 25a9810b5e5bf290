"""The user and group ids that OpenShift permits for a namespace's proxies."""

from __future__ import annotations

import re
from collections.abc import Mapping

from netinit.base.errors import InjectionError
from netinit.base.tree import shown

UID_RANGE = "openshift.io/sa.scc.uid-range"
GROUPS_ANNOTATION = "openshift.io/sa.scc.supplemental-groups"
_BLOCK = r"([0-9]{1,10})([/-])([0-9]{1,10})\Z"


def proxy_ids(annotations: Mapping[str, str]) -> tuple[int, int] | None:
    """Return the proxy's uid and gid: the last of the namespace's ranges, which applications rarely use.

    None without ranges (not OpenShift). A range is `start/size` or `first-last`; of several, the first is used. The
    group's default is the user's range. Raises InjectionError for an invalid range.
    """
    if UID_RANGE not in annotations:
        return None
    uid = _last(UID_RANGE, annotations[UID_RANGE])
    groups = annotations.get(GROUPS_ANNOTATION)
    return uid, _last(GROUPS_ANNOTATION, groups) if groups else uid


def _last(key: str, value: str) -> int:
    found = re.match(_BLOCK, value.partition(",")[0].strip())
    if not found:
        raise InjectionError(
            f"invalid value {shown(value)} for annotation {key!r} of the namespace: give start/size or a-b"
        )
    start, mark, end = int(found[1]), found[2], int(found[3])
    last = start + end - 1 if mark == "/" else end
    if last < start:
        raise InjectionError(
            f"invalid value {shown(value)} for annotation {key!r} of the namespace: the range is empty"
        )
    return last
