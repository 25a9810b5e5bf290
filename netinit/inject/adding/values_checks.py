"""Values of Istio's charts with which no pod could run: Istio puts them into every pod as they are.

Those that become arguments of the init container, or fields of the proxy's, are checked as the annotations that replace them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from netinit.base.data import read_data
from netinit.base.tree import Tree, mapping, shown, string
from netinit.inject.adding.mesh_checks import is_domain
from netinit.inject.adding.values import as_written
from netinit.inject.deciding.annotations import CHECKS, Check

_POLICIES = ("Always", "IfNotPresent", "Never")
_LEVELS = ("trace", "debug", "info", "warning", "warn", "error", "critical", "off")
_LOGGERS = rf"(?:(?:\A|,)[a-z0-9_]+:(?:{'|'.join(_LEVELS)}))+\Z"
_REPOSITORY = r"(?!.*//)[A-Za-z0-9][A-Za-z0-9._:/-]*\Z"
_IMAGE = r"(?!.*//)[A-Za-z0-9][A-Za-z0-9._:/-]*(?:@[a-z0-9]+:[0-9a-f]+)?\Z"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}(?:@[a-z0-9]+:[0-9a-f]+)?\Z"


def _if_given(fits: Callable[[str], object], problem: str) -> Check:
    return lambda text: None if not text or fits(text) else f"it must be {problem}"


def _one_of(words: tuple[str, ...]) -> Check:
    return _if_given(words.__contains__, f"one of {', '.join(words)}")


def _matches(pattern: str, problem: str) -> Check:
    return _if_given(re.compile(pattern).match, problem)


def bad_image(text: str) -> str | None:
    """Return what is wrong with an image's reference; None for a valid one."""
    return None if re.match(_IMAGE, text) else "it must be an image, such as REGISTRY/PATH:TAG"


_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"


def bad_key(text: str) -> str | None:
    """Return what is wrong with the key of a label or annotation; None for a valid one."""
    if re.match(rf"(?:{_DOMAIN}/)?{_NAME}\Z", text):
        return None
    return "the key must be NAME or DOMAIN/NAME, of letters, digits, '-', '_', '.', and NAME of at most 63"


_DEFAULT_OF = r"""annotation \.ObjectMeta ["`]([^"`]+)["`] \.Values\.([A-Za-z_.]+)"""
_QUANTITY = CHECKS["sidecar.istio.io/proxyCPU"]


def _image_if_given(text: str) -> str | None:
    return bad_image(text) if text else None


_MORE: Mapping[str, Check] = {
    "global.proxy.clusterDomain": _if_given(is_domain, "a domain, such as cluster.local"),
    "global.proxy.logLevel": _one_of(_LEVELS),
    "global.proxy.componentLogLevel": _matches(_LOGGERS, f"a list of NAME:LEVEL with the levels {', '.join(_LEVELS)}"),
    "global.proxy.image": _image_if_given,
    "global.proxy_init.image": _image_if_given,
    "global.imagePullPolicy": _one_of(_POLICIES),
    "global.hub": _matches(_REPOSITORY, "a registry with a path, such as docker.io/istio"),
    "global.tag": _matches(_TAG, "an image's tag, such as 1.26.2"),
    **{f"global.proxy_init.resources.{kind}.{name}": _QUANTITY for kind in ("requests", "limits") for name in ("cpu", "memory")},
}
"""Checks of values that no annotation replaces, or one that is not checked."""
_SWITCHES = (
    "pilot.cni.enabled", "istio_cni.enabled", "global.nativeNftables", "global.logAsJson", "global.mountMtlsCerts",
    "global.proxy.privileged", "global.proxy.holdApplicationUntilProxyStarts", "global.proxy.startupProbe.enabled",
    "global.proxy_init.forceApplyIptables",
)  # fmt: skip
"""Values that templates take for true if they are any text, `false` in quotes too."""
_OF_IMAGES = ("hub", "tag")
"""Values that templates read by the names of whole images, such as `.ProxyImage`."""


@functools.cache
def _find_checks() -> Mapping[str, Check]:
    """Return the check of each value; netinit's template says which annotation replaces it."""
    replaced = re.findall(_DEFAULT_OF, read_data("injection.yaml"))
    return {path: CHECKS[annotation] for annotation, path in replaced if annotation in CHECKS} | dict(_MORE)


def find_unfit_values(values: Tree, templates: str) -> Iterator[tuple[str, str]]:
    """Yield path and problem of the values that the templates' text names and that no pod could run with."""
    for path, check in _find_checks().items():
        value = as_written(_at(values, path))
        if value is None or not _is_read(path, templates):
            continue
        if isinstance(value, (dict, list)):
            yield path, f"{shown(value)} must be a single value, not a {'map' if isinstance(value, dict) else 'list'}"
        elif problem := check(string(value)):
            of_item = problem.startswith(shown(value))
            yield path, problem if of_item else f"{shown(value)}: {problem}"
    for path in _SWITCHES:
        value = _at(values, path)
        if isinstance(value, str) and value not in {"", "true"} and _is_read(path, templates):
            yield path, f"{shown(value)} must be true or false, without quotes"


def _at(values: Tree, path: str) -> Any:
    *above, name = path.split(".")
    holder = values
    for key in above:
        holder = mapping(holder.get(key))
    return holder.get(name)


def _is_read(path: str, templates: str) -> bool:
    """Whether templates name the value: its last key, `enabled` with the key before it, resources and images as a whole."""
    above, _, name = path.rpartition(".")
    word = "resources" if ".resources." in path else rf"{above.rpartition('.')[2]}\.enabled" if name == "enabled" else name
    word = rf"(?:{word}|Proxy(?:Init)?Image)" if name in _OF_IMAGES else word
    return re.search(rf"\.{word}\b", templates) is not None
