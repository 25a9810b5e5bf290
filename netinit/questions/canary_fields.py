"""Find fields of an injected pod that the API server or the kubelet would refuse, where injection alone would not notice.

(k8s.io/kubernetes, pkg/apis/core/validation: `ValidatePodCreate`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from netinit.base.net import MAX_PORT
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, shown, string
from netinit.inject.adding.quantities import is_quantity, nano_units
from netinit.inject.adding.values_checks import bad_image, bad_key

_LABEL = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?\Z"
_VARIABLE = r"[ -<>-~]+\Z"
_SECCOMP, _SECCOMP_OF_FILES = ("RuntimeDefault", "Unconfined"), ("Localhost",)
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_AUTO = "auto"  # the image of a container that a pod brings, for the template's


def find_field_problems(pod: Tree) -> Iterator[str]:
    """Yield each field that would be refused, with its place."""
    for key, value in mapping(mapping(pod.get("metadata")).get("labels")).items():
        if not re.match(_LABEL, string(value)):
            yield f"label {key}: {shown(value)} must be at most 63 letters, digits, '-', '_', '.', with a letter or digit at each end"
    for kind in ("labels", "annotations"):
        for key in mapping(mapping(pod.get("metadata")).get(kind)):
            if problem := bad_key(key):
                yield f"{kind.removesuffix('s')} {quote(key)}: {problem}"
    spec = mapping(pod.get("spec"))
    yield from _of_seccomp(mapping(spec.get("securityContext")))
    for kind in ("initContainers", "containers"):
        for container in sequence(spec.get(kind)):
            for problem in _of_container(mapping(container)):
                yield f"container {string(mapping(container).get('name'))}: {problem}"


def _of_container(container: Tree) -> Iterator[str]:
    image = string(container.get("image"))
    if image != _AUTO and "image" in container and (problem := bad_image(image)):
        yield f"image: {shown(image)}: {problem}"
    for variable in sequence(container.get("env")):
        name = string(mapping(variable).get("name"))
        if not re.match(_VARIABLE, name):
            yield f"env: {shown(name)} is not a variable's name: it must be of printable ASCII characters but ="
    yield from _of_resources(mapping(container.get("resources")))
    yield from _of_seccomp(mapping(container.get("securityContext")))
    for name in _PROBES:
        probe = mapping(container.get(name))
        for count in _COUNTS:
            if isinstance(probe.get(count), int) and probe[count] < 0:
                yield f"{name}.{count}: {probe[count]} must not be negative"
    for number, port in enumerate(sequence(container.get("ports"))):
        told = mapping(port).get("containerPort")
        if not _is_port(told):
            yield f"ports[{number}].containerPort: {shown(told)} must be a port from 1 to {MAX_PORT}"


def _of_seccomp(context: Tree) -> Iterator[str]:
    profile = context.get("seccompProfile")
    if not isinstance(profile, dict):
        return
    kind = profile.get("type")
    if kind not in (_SECCOMP_OF_FILES if profile.get("localhostProfile") else _SECCOMP):
        wanted = f"{', '.join(_SECCOMP)}, or {_SECCOMP_OF_FILES[0]} with a localhostProfile"
        yield f"securityContext.seccompProfile.type: {shown(kind)} must be {wanted}"


def _is_port(value: Any) -> bool:
    return isinstance(value, int) and 1 <= value <= MAX_PORT


def _of_resources(resources: Tree) -> Iterator[str]:
    limits = mapping(resources.get("limits"))
    for kind in ("requests", "limits"):
        for name, value in mapping(resources.get(kind)).items():
            if not is_quantity(value) or nano_units(value) < 0:
                yield f"resources.{kind}.{name}: {shown(value)} must be a quantity from 0, such as 100m or 128Mi"
            elif kind == "requests" and name in limits and nano_units(value) > nano_units(limits[name]):
                yield f"resources.requests.{name}: {shown(value)} is more than the limit {shown(limits[name])}"
