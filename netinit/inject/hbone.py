"""Whether a pod's proxy listens for HBONE tunnels, as far as its manifest shows.

istiod creates the listener if the proxy's metadata has ENABLE_HBONE (istio pilot/pkg/model/context.go,
EnableHBONEListen), which pilot-agent reads from ISTIO_META_ENABLE_HBONE (pkg/bootstrap/config.go). istiod also needs
PILOT_ENABLE_AMBIENT, which no pod shows.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.tree import Tree, mapping, string, strings
from netinit.golang import goyaml
from netinit.inject.annotations import PROXY_CONFIG
from netinit.inject.containers import find_proxy, named
from netinit.options.kinds import TRUE_WORDS

VARIABLE = "ISTIO_META_ENABLE_HBONE"
_JSON = "ISTIO_METAJSON_"  # prefix of variables with several settings


def has_tunnel(pod: Tree) -> bool | None:
    """Return whether the proxy's environment enables HBONE; None if unknown."""
    proxy = find_proxy(mapping(pod.get("spec")))
    if proxy is None:
        return True if _by_annotation(pod) else None
    variables = named(proxy.get("env"))
    found = [item for item in variables if item.get("name") == VARIABLE]
    if found and "valueFrom" not in found[-1]:  # the last one takes effect
        return string(found[-1].get("value")) in TRUE_WORDS
    if found or proxy.get("envFrom") or any(string(item.get("name")).startswith(_JSON) for item in variables):
        return None
    return False


def _by_annotation(pod: Tree) -> bool:
    annotations = strings(mapping(pod.get("metadata")).get("annotations"))
    try:
        config = goyaml.load(annotations.get(PROXY_CONFIG, ""))
    except ParseError:  # the injector rejects the annotation
        return False
    metadata = mapping(mapping(config).get("proxyMetadata"))
    return string(metadata.get(VARIABLE)) in TRUE_WORDS
