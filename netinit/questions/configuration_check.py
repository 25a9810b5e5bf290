"""Find problems of an injector's configuration before it is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, NoReturn

from netinit.base.errors import ConfigError, InjectionError, NetinitError
from netinit.inject.adding.canaries import BARE_POD, CANARIES, NAMESPACE, Canary
from netinit.inject.adding.config import InjectionConfig
from netinit.inject.adding.installations import TEMPLATES
from netinit.inject.adding.istio_functions import REFUSED
from netinit.inject.adding.places import SettingError, SettingsText, errors_of
from netinit.inject.adding.pod import POD_FIELDS, inject_pod
from netinit.inject.adding.rendering import Subject, render, template_data
from netinit.inject.adding.settings import Namespace, Settings
from netinit.inject.deciding.manifests import PodOwner
from netinit.questions.canary_fields import find_field_problems
from netinit.questions.canary_rules import find_rule_problems, find_rule_warnings
from netinit.questions.setting_at_fault import find_setting


class TemplateFinding(NamedTuple):
    """A problem of a template. `stops_pods`: pods that request the template are rejected."""

    template: str
    message: str
    stops_pods: bool


class CanaryResult(NamedTuple):
    """What became of a canary pod; `problem`: why it is refused, empty if it was injected. `warnings`: of its rules then."""

    canary: str
    problem: str
    warnings: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.canary} is refused: {self.problem}" if self.problem else f"{self.canary} is injected"


class _Trial(NamedTuple):
    """What is wrong with an injected canary, empty if nothing is; whether others may be injected; and warnings of one that is."""

    problem: str = ""
    depends_on_pod: bool = False
    warnings: tuple[str, ...] = ()


def try_canaries(config: InjectionConfig, settings: Settings) -> tuple[CanaryResult, ...]:
    """Inject each canary pod with the default templates, and try the rules that its init container would program.

    Raises ConfigError if all are refused, and one for a reason that does not depend on the pod. It names the setting that
    is the reason, if there is one, and its place in the configuration's files.
    """
    tried = {name: _try(canary, config, settings) for name, canary in CANARIES.items()}
    fatal = {name: one.problem for name, one in tried.items() if one.problem and not one.depends_on_pod}
    if fatal and all(one.problem for one in tried.values()):
        _refuse(*next(iter(fatal.items())), config, settings)
    return tuple([CanaryResult(name, one.problem, one.warnings) for name, one in tried.items()])


def warnings_of(tried: Iterable[CanaryResult]) -> tuple[str, ...]:
    """Return why canary pods are refused, and what lint warns of in the rules of the others: each once."""
    return tuple(dict.fromkeys(text for one in tried for text in ((str(one),) if one.problem else one.warnings)))


def _try(canary: Canary, config: InjectionConfig, settings: Settings) -> _Trial:
    try:
        namespace = Namespace(name=NAMESPACE, annotations=canary.namespace)
        injected = inject_pod(canary.pod, config, namespace=namespace, settings=settings)
        problem = "; ".join(dict.fromkeys((*find_field_problems(injected), *find_rule_problems(injected))))
        return _Trial(problem) if problem else _Trial(warnings=tuple(find_rule_warnings(injected)))
    except NetinitError as error:
        of_pod = isinstance(error, InjectionError) and config.depends_on_pod(error) and not config.is_of_own_templates(error)
        return _Trial(str(error), of_pod)


def _refuse(canary: str, problem: str, config: InjectionConfig, settings: Settings) -> NoReturn:
    message = f"a canary pod cannot be injected with it: {problem}"
    setting = find_setting(problem, config, lambda other: _try(CANARIES[canary], other, settings).problem)
    with errors_of(config.texts.get(setting.what if setting else TEMPLATES, SettingsText(what=TEMPLATES))):
        if not setting:
            raise ConfigError(message)
        raise SettingError(setting.what, [(setting.path, f"line {setting.line}: {message}" if setting.line else message)])


def find_template_problems(config: InjectionConfig, settings: Settings) -> Iterator[TemplateFinding]:
    """Yield the problems of each template: it cannot be parsed, calls refused functions, or renders unknown fields."""
    for name, source in config.sources.items():
        try:
            called = config.templates[name].called
        except ConfigError as error:
            yield TemplateFinding(name, str(error), stops_pods=True)
            continue
        for function, place in sorted(called.items(), key=lambda use: use[1]):
            if function in REFUSED:
                line = source.count("\n", 0, place) + 1
                message = f"line {line} names {function}, which is refused when it is called: {REFUSED[function]}"
                yield TemplateFinding(name, f"template {name!r}: {message}", stops_pods=False)
        yield from _find_misplaced(name, config, settings)


def _find_misplaced(name: str, config: InjectionConfig, settings: Settings) -> Iterator[TemplateFinding]:
    """Render a small pod, and report top-level fields that a pod does not have."""
    subject = Subject(owner=PodOwner.of_pod(BARE_POD, NAMESPACE), proxy=config.mesh.proxy, settings=settings)
    try:
        rendered = render(name, config, BARE_POD, template_data(config, BARE_POD, subject)) if config.renders_pods else {}
    except NetinitError:
        return  # it may be for other pods
    for field in sorted(rendered.keys() - POD_FIELDS):
        if not field.startswith("$"):
            message = f"renders {field} at the top of the pod, which has no such field: it is left out; put it under metadata or spec"
            yield TemplateFinding(name, f"template {name!r}: {message}", stops_pods=False)
