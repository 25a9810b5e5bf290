"""Kinds of traffic in an audit: handled by the proxy, dropped, or bypassing it, and the intent behind it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from netinit.base.data import read_data

FOREIGN_RULES, NOT_KNOWN, CONFIGURATION, DESIGN, COVERED = "foreign", "unknown", "configuration", "design", "covered"
WHERE_IPV4_IS_FIRST = "where the pod's first address is IPv4 (--ipv6 auto)"
INTENTS = (FOREIGN_RULES, NOT_KNOWN, CONFIGURATION, DESIGN)  # of bypasses


@dataclass(frozen=True, slots=True)
class TrafficKind:
    """A kind of traffic: machine-readable name, intent, title, and remedy (`closes`, which may contain {option}).

    `reason` is the cause if no rule is.
    """

    name: str
    intent: str
    title: str
    closes: str = ""
    reason: str = ""


KINDS = tuple([TrafficKind(name, *texts) for name, texts in json.loads(read_data("traffic-kinds.json")).items()])
"""All, in the order of a whole audit: bypasses come with the most dangerous first."""
BYPASSES = tuple([kind for kind in KINDS if kind.intent != COVERED])
BY_NAME = {kind.name: kind for kind in KINDS}
SHOWN = (*BYPASSES, BY_NAME["unanswered"])
"""What a report shows without being asked for all traffic."""

FOREIGN = BY_NAME["foreign"]
UNKNOWN = BY_NAME["unknown"]
IPV6 = BY_NAME["ipv6"]
UNTRANSLATED = BY_NAME["untranslated"]
UNCAPTURED = BY_NAME["uncaptured"]
PORT = BY_NAME["port"]
INBOUND_PORT = BY_NAME["inbound-port"]
MARK = BY_NAME["mark"]
PROXY = BY_NAME["proxy"]
SHARED_OWNER = BY_NAME["shared-owner"]
NOT_TCP = BY_NAME["not-tcp"]
LOST = BY_NAME["no-connection"]
TUNNEL_PORT = BY_NAME["tunnel-port"]
TUNNEL = BY_NAME["tunnel"]
PROXY_PORT = BY_NAME["proxy-port"]
PERHAPS_IPV6 = BY_NAME["perhaps-ipv6"]
LOCAL = BY_NAME["local"]
CAPTURED = BY_NAME["captured"]
RESOLVED = BY_NAME["resolved"]
UNANSWERED = BY_NAME["unanswered"]
FOLLOWS = BY_NAME["follows"]
DROPPED = BY_NAME["dropped"]
SAFE = BY_NAME["captured-or-dropped"]
