"""Whether a pod's proxy listens for tunnelled connections (HBONE), as far as a manifest shows.

istiod gives a sidecar that listener where its metadata has ENABLE_HBONE (istio pilot/pkg/model/context.go,
EnableHBONEListen), which pilot-agent reads from the environment variable ISTIO_META_ENABLE_HBONE (pkg/bootstrap/config.go);
it comes from proxyMetadata. istiod itself must have PILOT_ENABLE_AMBIENT, which no pod shows.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.tree import Tree, mapping, string, strings
from netinit.golang import goyaml
from netinit.inject.containers import find_proxy, named
from netinit.options.kinds import TRUE_WORDS

__all__ = ["has_tunnel"]

VARIABLE = "ISTIO_META_ENABLE_HBONE"
_JSON = "ISTIO_METAJSON_"  # variables that hold several settings
_PROXY_CONFIG = "proxy.istio.io/config"


def has_tunnel(pod: Tree) -> bool | None:
    """True: its environment enables HBONE; False: its proxy is there, and nothing enables it; None: the manifest does not show it."""
    proxy = find_proxy(mapping(pod.get("spec")))
    if proxy is None:
        return True if _by_annotation(pod) else None
    variables = named(proxy.get("env"))
    found = [item for item in variables if item.get("name") == VARIABLE]
    if found and "valueFrom" not in found[-1]:  # of several the last counts
        return string(found[-1].get("value")) in TRUE_WORDS
    if found or proxy.get("envFrom") or any(string(item.get("name")).startswith(_JSON) for item in variables):
        return None
    return False


def _by_annotation(pod: Tree) -> bool:
    """Whether the pod asks for it itself, before an injector has made its proxy."""
    annotations = strings(mapping(pod.get("metadata")).get("annotations"))
    try:
        config = goyaml.load(annotations.get(_PROXY_CONFIG, ""))
    except ParseError:  # the injector refuses it
        return False
    metadata = mapping(mapping(config).get("proxyMetadata"))
    return string(metadata.get(VARIABLE)) in TRUE_WORDS
