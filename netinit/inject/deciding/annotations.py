"""The annotations that injection reads, and the checks of their values; that of a ProxyConfig is where its messages are known.

To add an annotation, add a line to the table and a golden test. The accepted forms are Istio's; values that end up on
the init container's command line are checked even if Istio does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from netinit.base.net import MAX_PORT, Network
from netinit.base.tree import shown
from netinit.options import Options, kinds
from netinit.options.kinds import FALSE_WORDS, TRUE_WORDS, Kind

STATUS = "sidecar.istio.io/status"
INTERCEPTION_MODE = "sidecar.istio.io/interceptionMode"
NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar"
PROXY_IMAGE_TYPE = "sidecar.istio.io/proxyImageType"
REWRITE_PROBES = "sidecar.istio.io/rewriteAppHTTPProbers"
STATUS_PORT = "status.sidecar.istio.io/port"
OVERRIDES = "proxy.istio.io/overrides"
PROXY_CONFIG = "proxy.istio.io/config"
TEMPLATES = "inject.istio.io/templates"
MERGE_METRICS = "prometheus.istio.io/merge-metrics"
_READINESS = "readiness.status.sidecar.istio.io/"

_DIGITS = r"[0-9]{1,20}\Z"
_INTERFACE = r"(?=.{1,15}\Z)[a-zA-Z][a-zA-Z0-9_.-]*\+?\Z"
ACCEPTED, UNCAPTURED_INIT = "netinit.io/accepted-findings", "netinit.io/uncaptured-init-containers"
_CODE, _CONTAINER = r"NI[0-9]{3}", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z"
_QUANTITY = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,3})?\Z"
_MAX_UINT32 = 2**32 - 1
_NO_PORT = f"it must be a port from 0 to {MAX_PORT}"
INTERCEPTION_MODES = ("REDIRECT", "TPROXY", "NONE")

Check = Callable[[str], str | None]
"""Returns the problem with a value as the end of a sentence, or None."""


def go_bool(value: str) -> bool | None:
    """Parse a boolean as Go's strconv.ParseBool does; None for an invalid text."""
    return True if value in TRUE_WORDS else False if value in FALSE_WORDS else None


def read_switch(annotations: Mapping[str, str], key: str, *, default: bool) -> bool:
    """Return the annotation's boolean; the default if it is absent or invalid."""
    asked = go_bool(annotations.get(key, ""))
    return default if asked is None else asked


def _must(fits: Callable[[str], object], problem: str) -> Check:
    return lambda value: None if fits(value) else problem


def _is_number(text: str, most: int) -> bool:
    return re.match(_DIGITS, text) is not None and int(text) <= most


def _ports(value: str) -> str | None:
    """Accept ranges too: netinit supports them, Istio's init container does not."""
    for item in value.split(",") if value.strip() else ():
        low, dash, high = item.strip().partition("-")
        is_range = dash and _is_number(high, MAX_PORT) and _is_number(low, int(high)) and int(high)
        if not is_range and (dash or not _is_number(low, MAX_PORT)):
            problem = f"{_NO_PORT}, or two with a dash between, the lower first" if dash else _NO_PORT
            return f"{shown(item)} is not a port: {problem}" if "," in value else problem
    return None


def _each(fits: Callable[[str], object], problem: str) -> Check:
    """Return the check of a comma list, whose problem is that of its first unfit item."""

    def check(value: str) -> str | None:
        unfit = [item for item in value.split(",") if not fits(item)] if value else []
        return f"{shown(unfit[0])} {problem}" if unfit else None

    return check


def _is_network(item: str) -> bool:
    """Whether the text is in CIDR notation, as for Go's net.ParseCIDR; host bits are allowed."""
    try:
        Network.parse(item)
    except ValueError:
        return False
    return True


def _or_all(check: Check) -> Check:
    return lambda value: None if value == "*" else check(value)


def _checked_by(read: Callable[[str], object]) -> Check:
    def check(value: str) -> str | None:
        try:
            read(value)
        except ValueError as error:
            return f"it {error}"
        return None

    return check


def read_accepted(value: str) -> dict[str, str]:
    """Parse the findings that a pod's owner accepts: `NI212 = the database has TLS; NI105 = ...`.

    Raises ValueError for a code without a reason.
    """
    found = {}
    for part in filter(None, (part.strip() for part in value.split(";"))):
        code, _, reason = (text.strip() for text in part.partition("="))
        if not re.fullmatch(_CODE, code) or not reason:
            raise ValueError("must be codes of findings with a reason each, such as: NI212 = the database has TLS of its own")
        found[code] = reason
    return found


_networks = _each(_is_network, "is not in CIDR notation, such as 10.0.0.0/8 or fd00::/8")
_interfaces = _each(
    lambda item: re.match(_INTERFACE, item.strip()),
    "is not an interface name: a letter, then letters, digits, '_', '.', '-', at the end '+' for a prefix, at most 15 in all",
)
_bool = _must(lambda value: go_bool(value) is not None, "it must be true or false")
_mode = _must(INTERCEPTION_MODES.__contains__, f"it must be one of {', '.join(INTERCEPTION_MODES)}")
_quantity = _must(lambda value: re.match(_QUANTITY, value), "it must be a quantity, such as 100m or 128Mi")
_port = _must(lambda value: _is_number(value.strip(), MAX_PORT), _NO_PORT)
_unsigned = _must(lambda value: _is_number(value, _MAX_UINT32), f"it must be a whole number from 0 to {_MAX_UINT32}")
_BY_KIND: Mapping[Kind, Check] = {  # annotations that Istio's injector turns into options, with its own syntax
    kinds.NETWORKS_OR_ALL: _or_all(_networks),
    kinds.NETWORKS: _networks,
    kinds.PORTS_OR_ALL: _or_all(_ports),
    kinds.PORTS: _ports,
    kinds.INTERFACES: _interfaces,
}
_OF_ISTIO: Mapping[str, Check] = {
    name: _BY_KIND.get(flag.kind, _mode) for flag in Options.flags for name in flag.istio_annotations
}

CHECKS: Mapping[str, Check] = {
    STATUS_PORT: _port,
    **{_READINESS + name: _unsigned for name in ("initialDelaySeconds", "periodSeconds", "failureThreshold")},
    **_OF_ISTIO,
    MERGE_METRICS: _bool,
    ACCEPTED: _checked_by(read_accepted),
    UNCAPTURED_INIT: _each(lambda item: re.match(_CONTAINER, item.strip()), "is not the name of a container, such as migrate"),
    **{f"sidecar.istio.io/proxy{name}": _quantity for name in ("CPU", "Memory", "CPULimit", "MemoryLimit")},
    **{flag.annotation: _checked_by(flag.kind.read) for flag in Options.flags if flag.annotation},
}


_UNCHECKED_NAMES = """agentLogLevel bootstrapOverride capNetBindService componentLogLevel controlPlaneAuthPolicy
    discoveryAddress enableCoreDump extraStatTags inject logLevel proxyImage statsCompression statsEvictionInterval
    statsFlushInterval statsHistogramBins statsHistogramBuckets statsInclusionPrefixes statsInclusionRegexps statsInclusionSuffixes
    userVolume userVolumeMount"""
# Not checked here; read by injection, Istio's templates or the agent in the pod.
_UNCHECKED = (
    STATUS,
    NATIVE_SIDECAR,
    PROXY_CONFIG,
    PROXY_IMAGE_TYPE,
    REWRITE_PROBES,
    OVERRIDES,
    TEMPLATES,
    _READINESS + "applicationPorts",
    *(f"sidecar.istio.io/{name}" for name in _UNCHECKED_NAMES.split()),
    *(f"prometheus.istio.io/{name}" for name in ("path", "port", "scrape", "scrape-targets", "secure-port")),
)


def known_keys() -> tuple[str, ...]:
    """Return all annotations that injection, templates or the proxy's agent read."""
    return (*CHECKS, *_UNCHECKED)
