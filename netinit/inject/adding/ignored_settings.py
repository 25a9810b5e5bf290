"""Settings of a pod that its injection ignores, or that break the proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, shown, string, strings
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject.adding.mesh_messages import unknown_fields
from netinit.inject.adding.status_port import scrape_target_warnings
from netinit.inject.deciding.annotations import NATIVE_SIDECAR, PROXY_CONFIG, REWRITE_PROBES, go_bool
from netinit.inject.deciding.warnings import IGNORED_SETTING, PodFinding

_SWITCHES = (NATIVE_SIDECAR, REWRITE_PROBES)  # of which Istio ignores other values, where the other switches refuse the pod
_MAX_FIELDS = 5  # unknown fields of a ProxyConfig to report


def injection_warnings(pod: Tree) -> tuple[PodFinding, ...]:
    """Return warnings about settings of a pod that its injection ignores, or that break the proxy."""
    return tuple(PodFinding(kind=IGNORED_SETTING, text=text, path=path) for path, text in _ignored(pod))


def _ignored(pod: Tree) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path below metadata of each such setting, () for one of the spec, and what is wrong with it."""
    policy = string(mapping(pod.get("spec")).get("dnsPolicy"))
    annotations = strings(mapping(pod.get("metadata")).get("annotations"))
    yield from [((), text) for text in scrape_target_warnings(annotations)]
    if policy not in {"", "ClusterFirst"}:
        yield (), f"dnsPolicy {quote(policy)} is not ClusterFirst: the proxy may not find its control plane by name"
    for key in _SWITCHES:
        if (value := annotations.get(key)) and go_bool(value) is None:
            ignored = f"annotation {key}: {shown(value)} is neither true nor false and is ignored"
            yield ("annotations", key), f'{ignored}; write "true" or "false"'
    yield from [(("annotations", PROXY_CONFIG), text) for text in _unknown_settings(annotations)]


def _unknown_settings(annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each key of the pod's ProxyConfig that is no setting, as if it had not been given."""
    try:
        tree = mapping(goyaml.load(annotations.get(PROXY_CONFIG, "")))
    except YamlError:  # the injection is refused
        return
    for path, near in [*unknown_fields("ProxyConfig", tree)][:_MAX_FIELDS]:
        remedy = f"did you mean {near}?" if near else "remove it"
        yield f"annotation {PROXY_CONFIG}: {shown(path)} is no setting of a ProxyConfig and is ignored; {remedy}"
