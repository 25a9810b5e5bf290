"""Find problems of an injector's configuration before it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from netinit.base.errors import ConfigError, NetinitError
from netinit.base.tree import Tree
from netinit.golang.sprig import REFUSED
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.pod import POD_FIELDS, inject_pod
from netinit.inject.adding.rendering import Subject, render, template_data
from netinit.inject.adding.settings import Namespace, Settings
from netinit.inject.deciding.manifests import PodOwner

CANARY: Tree = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "canary", "namespace": "canary", "labels": {"app": "canary"}},
    "spec": {
        "serviceAccountName": "default",
        "containers": [{"name": "app", "image": "canary", "ports": [{"containerPort": 80}]}],
    },
}


class TemplateFinding(NamedTuple):
    """A problem of a template. `stops_pods`: pods that request the template are rejected."""

    template: str
    message: str
    stops_pods: bool


def try_canary(config: InjectionConfig, settings: Settings) -> None:
    """Inject a small pod with all default templates. Raises ConfigError."""
    try:
        inject_pod(CANARY, config, namespace=Namespace(name="canary"), settings=settings)
    except NetinitError as error:
        raise ConfigError(f"a canary pod cannot be injected with it: {error}") from error


def find_template_problems(config: InjectionConfig, settings: Settings) -> Iterator[TemplateFinding]:
    """Yield the problems of each template: it cannot be parsed, calls refused functions, or renders unknown fields."""
    for name, source in config.sources.items():
        try:
            called = config.templates[name].called
        except ConfigError as error:
            yield TemplateFinding(name, str(error), stops_pods=True)
            continue
        for function, place in sorted(called.items(), key=lambda use: use[1]):
            if function in REFUSED and function != "env":  # Istio has one of its own
                line = source.count("\n", 0, place) + 1
                message = f"line {line} names {function}, which is refused when it is called: {REFUSED[function]}"
                yield TemplateFinding(name, f"template {name!r}: {message}", stops_pods=False)
        yield from _find_misplaced(name, config, settings)


def _find_misplaced(name: str, config: InjectionConfig, settings: Settings) -> Iterator[TemplateFinding]:
    """Render a small pod, and report top-level fields that a pod does not have."""
    subject = Subject(owner=PodOwner.of_pod(CANARY, "canary"), proxy=config.mesh.proxy, settings=settings)
    try:
        rendered = {} if config.classic else render(name, config, CANARY, template_data(config, CANARY, subject))
    except NetinitError:
        return  # it may be for other pods
    for field in sorted(rendered.keys() - POD_FIELDS):
        if not field.startswith("$"):
            message = f"renders {field} at the top of the pod, which has no such field: it is left out; put it under metadata or spec"
            yield TemplateFinding(name, f"template {name!r}: {message}", stops_pods=False)
