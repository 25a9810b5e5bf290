"""What Istio refuses in a mesh's configuration beyond the types of its fields (1.31, pkg/config/validation/agent).

The functions take normalized messages (`read_message`) and yield pairs: the path of a field, and what is wrong with its value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from netinit.base.net import MAX_PORT, parse_address
from netinit.base.tree import Tree, mapping, sequence, shown, string
from netinit.golang.times import NANOSECONDS
from netinit.inject.adding.mesh_messages import duration

Problem = tuple[str, str]
Check = Callable[[Any], str | None]
"""Returns what a value must be, as the end of a sentence; None for a valid one."""

_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_WILDCARD = rf"\*|(?=.{{1,63}}\Z)(?:\*-?)?{_LABEL}"
_MAX_HOST = 255
_MILLISECOND = NANOSECONDS // 1000
_MAX_PERCENT = 100
_MIN_WINDOW = 65535  # HTTP/2's initial window
_LISTENERS, _LISTENERS_OF_PROXIES = ("proxyListenPort", "proxyInboundListenPort"), ("statusPort", "proxyAdminPort")
_TOPOLOGY = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone", "topology.istio.io/subzone")
_SERVERS = ("envoyMetricsService", "envoyAccessLogService")
_PRIVATE_KEY_PROVIDERS = ("cryptomb", "qat")


def _each(prefix: str, tree: Any, checks: Mapping[str, Check]) -> Iterator[Problem]:
    """Check the fields that a message has."""
    for name, check in checks.items():
        value = mapping(tree).get(name)
        if value is not None and (problem := check(value)):
            yield f"{prefix}{name}", f"{shown(value)} {problem}"


# ---- values --------------------------------------------------------------------------------------------------------------


def _bad_port(port: int) -> str | None:
    return None if 1 <= port <= MAX_PORT else f"must be a port from 1 to {MAX_PORT}"


def _empty(text: str) -> str | None:
    return None if text else "must not be empty"


def _negative(value: int) -> str | None:
    return "must not be negative" if value < 0 else None


def _negative_time(text: str) -> str | None:
    return "must not be negative" if (duration(text) or 0) < 0 else None


def _at_least(least: int) -> Check:
    return lambda value: None if value >= least else f"must be at least {least}"


def _bad_percent(value: int) -> str | None:
    return None if 0 <= value <= _MAX_PERCENT else f"must be from 0 to {_MAX_PERCENT}"


def _bad_duration(text: str) -> str | None:
    total = duration(text) or 0
    return None if total >= _MILLISECOND and total % _MILLISECOND == 0 else "must be whole milliseconds, and at least one"


def _bad_timeout(text: str) -> str | None:
    """Check the time to connect."""
    is_too_long = (duration(text) or 0) > 3600 * NANOSECONDS
    return "must be at most an hour" if is_too_long else _bad_duration(text)


def _bad_detection_timeout(text: str) -> str | None:
    return "must be whole milliseconds" if (duration(text) or 0) % _MILLISECOND else None


def _bad_drain(text: str) -> str | None:
    total = duration(text) or 0
    return None if total > 0 and total % NANOSECONDS == 0 else "must be whole seconds, and at least one"


def is_domain(text: str) -> bool:
    """Whether a text is the name of a domain; a dot may end it."""
    return bool(text) and all(re.fullmatch(_LABEL, label) for label in text.removesuffix(".").split("."))


def _is_host(name: str) -> bool:
    """Whether a text is the name of a host, whose last label is no number."""
    last = name.rpartition(".")[2]
    return len(name) <= _MAX_HOST and is_domain(name) and not (last.isdigit() and int(last) < 1 << 63)


def _bad_host(text: str) -> str | None:
    """Check the name of a service; its first label may be, or begin with, an asterisk."""
    first, dot, rest = text.partition(".")
    is_valid = len(text) <= _MAX_HOST and re.fullmatch(_WILDCARD, first) and (not dot or not rest or _is_host(rest))
    return None if is_valid else "must be the name of a host; an asterisk may be its first label"


def _bad_address(text: str) -> str | None:
    """Check HOST:PORT."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        return "must be HOST:PORT"
    if not (port.isascii() and port.isdigit() and len(port) <= 8 and 1 <= int(port) <= MAX_PORT):  # noqa: PLR2004
        return f"must be HOST:PORT with a port from 1 to {MAX_PORT}"
    if _is_host(host):
        return None
    try:
        parse_address(host[1:-1] if bracketed else host)
    except ValueError:
        return "must be HOST:PORT with the name or the address of a host"
    return None


def _bad_address_if_given(text: str) -> str | None:
    return _bad_address(text) if text else None


# ---- the mesh ------------------------------------------------------------------------------------------------------------

_OF_MESH: Mapping[str, Check] = {
    "proxyListenPort": _bad_port,
    "proxyInboundListenPort": _bad_port,  # of the init container too; Istio's template writes it out instead
    "connectTimeout": _bad_timeout,
    "protocolDetectionTimeout": _bad_detection_timeout,
}


def find_mesh_problems(fields: Tree, *, is_early: bool = False) -> Iterator[Problem]:
    """Yield what Istio refuses in a MeshConfig, without its defaultConfig; `is_early`: a release's that took no trust domain."""
    yield from _each("", fields, _OF_MESH)
    domain = string(fields.get("trustDomain"))
    if not is_domain(domain) and not (is_early and not domain):
        yield "trustDomain", f"{shown(domain)} must be a domain, such as cluster.local"
    for number, alias in enumerate(sequence(fields.get("trustDomainAliases"))):
        if not is_domain(alias):
            yield f"trustDomainAliases[{number}]", f"{shown(alias)} must be a domain"
    for number, setting in enumerate(sequence(fields.get("serviceSettings"))):
        for at, host in enumerate(sequence(mapping(setting).get("hosts"))):
            if problem := _bad_host(host):
                yield f"serviceSettings[{number}].hosts[{at}]", f"{shown(host)} {problem}"
    if mapping(fields.get("meshMTLS")).get("ecdhCurves"):
        yield "meshMTLS.ecdhCurves", "must be left out: mTLS in the mesh has no setting of curves"
    yield from _of_locality(mapping(fields.get("localityLbSetting")))
    zones = mapping(fields.get("zoneAwareLbSetting"))
    yield from _of_failover("zoneAwareLbSetting", zones)
    if unfit := [label for label in sequence(zones.get("failoverPriority")) if label in _TOPOLOGY]:
        yield "zoneAwareLbSetting.failoverPriority", f"{shown(unfit[0])} is followed anyway, and must not be named"
    yield from _of_traffic_policy(mapping(fields.get("defaultTrafficPolicy")))


def find_port_conflicts(mesh: Tree, proxy: Tree, given: Collection[str]) -> Iterator[Problem]:
    """Yield the ports on which the proxy or its agent would listen twice, with which no proxy gets ready. Istio takes them.

    `given`: the paths that the configuration itself sets, of which one is named.
    """
    taken: dict[int, str] = {}
    ports = {name: mesh.get(name) for name in _LISTENERS}
    ports |= {f"defaultConfig.{name}": proxy.get(name) for name in _LISTENERS_OF_PROXIES}
    for path, port in sorted(ports.items(), key=lambda one: one[0] in given):
        if port in taken:
            yield path, f"{port} is the port of {taken[port]} too: choose another"
        elif port:
            taken[port] = path


def _of_locality(setting: Tree) -> Iterator[Problem]:
    path = "localityLbSetting"
    distribute, failover = sequence(setting.get("distribute")), sequence(setting.get("failover"))
    if distribute and failover:
        yield f"{path}.distribute", "distribute and failover exclude each other: remove one"
        return
    if failover and (named := [label for label in sequence(setting.get("failoverPriority")) if label in _TOPOLOGY]):
        yield f"{path}.failoverPriority", f"{shown(named[0])} and failover exclude each other: remove one"
        return
    for number, one in enumerate(distribute):
        weights = mapping(mapping(one).get("to"))
        total = sum(weights.values())
        if not all(1 <= weight <= _MAX_PERCENT for weight in weights.values()) or total != _MAX_PERCENT:
            yield f"{path}.distribute[{number}].to", f"the weights must be from 1 to 100 and add up to 100, not {total}"
            return
        yield from _overlapping(f"{path}.distribute[{number}].to", weights)
    yield from _overlapping(f"{path}.distribute", [string(mapping(one).get("from")) for one in distribute])
    yield from _of_failover(path, setting)


def _overlapping(path: str, localities: Iterable[str]) -> Iterator[Problem]:
    """Yield the first locality, REGION/ZONE/SUBZONE with `*` for the rest, that is malformed or holds another or is held by it."""
    before: list[tuple[str, ...]] = []
    for locality in localities:
        parts = tuple(locality.split("/", 2))
        if not all(parts) or "*" in locality[:-1]:
            yield path, f"{shown(locality)} must be REGION, REGION/ZONE or REGION/ZONE/SUBZONE; an asterisk may end it"
            return
        known = parts[:-1] if parts[-1] == "*" else parts
        if any(known[: len(one)] == one or one[: len(known)] == known for one in before):
            yield path, f"{shown(locality)} overlaps with another one"
            return
        before.append(known)


def _of_failover(path: str, setting: Tree) -> Iterator[Problem]:
    for number, one in enumerate(sequence(setting.get("failover"))):
        regions = [string(mapping(one).get(key)) for key in ("from", "to")]
        if regions[0] == regions[1] or any(re.search("[/*]", region) for region in regions):
            yield f"{path}.failover[{number}]", "from and to must be different regions, without zones and asterisks"


_OF_HTTP_POOL: Mapping[str, Check] = {
    **dict.fromkeys(("http1MaxPendingRequests", "http2MaxRequests", "maxRequestsPerConnection", "maxRetries"), _negative),
    "maxConcurrentStreams": _negative,
    "idleTimeout": _bad_duration,
}
_OF_TCP_POOL: Mapping[str, Check] = {
    "maxConnections": _negative,
    **dict.fromkeys(("connectTimeout", "maxConnectionDuration"), _bad_duration),
    "idleTimeout": lambda text: _bad_duration(text) if abs(duration(text) or 0) >= _MILLISECOND else None,  # 0 switches it off
}
_OF_OUTLIERS: Mapping[str, Check] = {
    **dict.fromkeys(("baseEjectionTime", "interval"), _bad_duration),
    **dict.fromkeys(("maxEjectionPercent", "minHealthPercent"), _bad_percent),
}


def _of_traffic_policy(policy: Tree) -> Iterator[Problem]:
    path, pool = "defaultTrafficPolicy.connectionPool", policy.get("connectionPool")
    http, tcp = mapping(mapping(pool).get("http")), mapping(mapping(pool).get("tcp"))
    if pool is not None and "http" not in pool and "tcp" not in pool:
        yield path, "must have http or tcp"
    yield from _each(f"{path}.http.", http, _OF_HTTP_POOL)
    if http.get("h2UpgradePolicy") == "UPGRADE" and http.get("useClientProtocol"):
        yield f"{path}.http.useClientProtocol", "h2UpgradePolicy UPGRADE excludes it: remove one"
    yield from _each(f"{path}.tcp.", tcp, _OF_TCP_POOL)
    yield from _each(f"{path}.tcp.tcpKeepalive.", tcp.get("tcpKeepalive"), dict.fromkeys(("time", "interval"), _bad_duration))
    outliers = mapping(policy.get("outlierDetection"))
    yield from _each("defaultTrafficPolicy.outlierDetection.", outliers, _OF_OUTLIERS)
    if (outliers.get("consecutiveLocalOriginFailures") or 0) > 0 and not outliers.get("splitExternalLocalOriginErrors"):
        yield (
            "defaultTrafficPolicy.outlierDetection.consecutiveLocalOriginFailures",
            "needs splitExternalLocalOriginErrors: true",
        )


# ---- the proxy -----------------------------------------------------------------------------------------------------------

_OF_PROXY: Mapping[str, Check] = {
    **dict.fromkeys(("configPath", "binaryPath", "serviceCluster"), _empty),
    "discoveryAddress": lambda text: _empty(text) or _bad_address(text),
    **dict.fromkeys(("proxyAdminPort", "statusPort"), _bad_port),
    **dict.fromkeys(("statsdUdpAddress", "envoyMetricsServiceAddress"), _bad_address_if_given),
    "drainDuration": _bad_drain,
    "controlPlaneAuthPolicy": lambda name: None if name in {"NONE", "MUTUAL_TLS"} else "must be NONE or MUTUAL_TLS",
}
_OF_CONNECTIONS: Mapping[str, Check] = {
    **dict.fromkeys(("listenerPerConnectionBufferLimitBytes", "clusterPerConnectionBufferLimitBytes"), _negative),
    **dict.fromkeys(
        (
            "httpIdleTimeout", "httpMaxConnectionDuration", "httpDrainTimeout", "httpRequestTimeout", "httpRequestHeadersTimeout",
            "httpStreamIdleTimeout", "httpMaxStreamDuration",
        ),
        _negative_time,
    ),
    **dict.fromkeys(("httpMaxConcurrentStreams", "listenerConnectionLimit", "globalDownstreamConnectionLimit"), _at_least(1)),
    **dict.fromkeys(("http2InitialStreamWindowSize", "http2InitialConnectionWindowSize"), _at_least(_MIN_WINDOW)),
}  # fmt: skip


def find_proxy_problems(fields: Tree) -> Iterator[Problem]:
    """Yield what Istio refuses in a ProxyConfig."""
    yield from _each("", fields, _OF_PROXY)
    for name in _SERVERS:
        yield from _each(f"{name}.", fields.get(name), {"address": _bad_address_if_given})
    yield from _of_tracing(mapping(fields.get("tracing")))
    provider = fields.get("privateKeyProvider")
    chosen = next((name for name in _PRIVATE_KEY_PROVIDERS if name in mapping(provider)), "")
    if provider is not None and not chosen:
        yield "privateKeyProvider", f"must have one of {', '.join(_PRIVATE_KEY_PROVIDERS)}"
    elif provider is not None and not duration(mapping(provider[chosen]).get("pollDelay")):
        yield f"privateKeyProvider.{chosen}.pollDelay", "is needed, and must not be 0"
    yield from _each("connectionSettings.", fields.get("connectionSettings"), _OF_CONNECTIONS)


def _of_tracing(tracing: Tree) -> Iterator[Problem]:
    for name in ("zipkin", "lightstep", "datadog"):
        if name in tracing:
            address = string(mapping(tracing[name]).get("address"))
            on_node = address if name == "lightstep" else address.replace("$(HOST_IP)", "127.0.0.1", 1)
            if problem := _bad_address(on_node):
                yield f"tracing.{name}.address", f"{shown(address)} {problem}"
    if "lightstep" in tracing and not mapping(tracing["lightstep"]).get("accessToken"):
        yield "tracing.lightstep.accessToken", "must not be empty"
    tls = mapping(tracing.get("tlsSettings"))
    if tls.get("mode") not in {"SIMPLE", "MUTUAL"}:
        return
    credential = string(tls.get("credentialName"))
    own = [name for name in ("clientCertificate", "privateKey", "caCertificates", "caCrl") if tls.get(name)]
    unverified = [name for name in ("caCertificates", "subjectAltNames") if tls.get(name)]
    if tls.get("insecureSkipVerify") and (unverified or (credential and tls["mode"] == "SIMPLE")):
        yield "tracing.tlsSettings.insecureSkipVerify", f"excludes {(unverified or ['credentialName'])[0]}: remove one"
    if credential and own:
        yield "tracing.tlsSettings.credentialName", f"excludes {own[0]}: remove one"
    elif not credential and tls["mode"] == "MUTUAL" and not (tls.get("clientCertificate") and tls.get("privateKey")):
        yield "tracing.tlsSettings", "mode MUTUAL needs clientCertificate and privateKey"
