"""Check the annotations of a pod before it is injected."""

from __future__ import annotations

from collections.abc import Mapping

from netinit.base.errors import ConfigError, InjectionError
from netinit.base.tree import mapping, shown
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject.adding.meshconfig import read_proxy_config
from netinit.inject.deciding.annotations import CHECKS, INTERCEPTION_MODE, INTERCEPTION_MODES, PROXY_CONFIG


def _proxy_config(value: str) -> str | None:
    try:
        tree = goyaml.load(value)
        if tree is not None and not isinstance(tree, dict):
            return "it must be the YAML of a ProxyConfig, such as `concurrency: 2`"
        read_proxy_config(mapping(tree))
    except YamlError as error:
        return f"it is not YAML ({error})"
    except ConfigError as error:
        return str(error)
    return None


CHECKS_OF_INJECTION = {**CHECKS, PROXY_CONFIG: _proxy_config}


def validate(annotations: Mapping[str, str], modes: tuple[str, ...] = INTERCEPTION_MODES) -> None:
    """Raise InjectionError with a line for each annotation with an invalid value.

    `modes`: the interception modes of the Istio release; 1.0 had no NONE.
    """
    found = []
    for key, check in CHECKS_OF_INJECTION.items():
        if key not in annotations:
            continue
        value = annotations[key]
        problem = check(value)
        if key == INTERCEPTION_MODE and value not in modes:
            problem = f"it must be one of {', '.join(modes)}"
        if problem is not None:
            found.append(f"invalid value {shown(value)} for annotation {key!r}: {problem}")
    if found:
        raise InjectionError("\n".join(found))
