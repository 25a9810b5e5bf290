"""The full examination: checks, the backend that `auto` chooses, and whether pods will work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from netinit import backends
from netinit.backends.failure_causes import advise_modules, name_modules
from netinit.backends.machine import HERE
from netinit.backends.named_pod import NamedPod
from netinit.base.errors import NamespaceError, NetinitError
from netinit.kernel import detect
from netinit.kernel.capabilities import CAP_SETPCAP, PERSON, advise, confine, find_situation
from netinit.kernel.modules import can_help
from netinit.kernel.snapshot import bpf
from netinit.options import AUTO, BACKENDS, TABLES_OF_OUR_OWN, Options, RunOptions, SettledOptions
from netinit.pods.backend_choice import Survey
from netinit.pods.doctor import findings as find
from netinit.pods.doctor.feature_checks import CAPTURE, FEATURES, FeatureChecks, check_backends, needed_features
from netinit.pods.doctor.findings import ERROR, NOTE, WARNING, Symptom
from netinit.rules.promises import OPEN

MAX_NAMED = 4
TRY_AGAIN = "run netinit doctor again when the machine is less busy"
MODULES_OF_FEATURE = {feature.name: feature.modules for feature in FEATURES}


@dataclass(frozen=True, slots=True)
class Examination:
    """The result. `backend`: what apply would choose; `obstacle`: why there are no `feature_checks`.

    `needed`: the features that the options need, by family name. `seen`: False without the privileges to read, when nothing
    is known about pods. `unknown`: why it is not known what `backend` is.
    """

    backend: str
    feature_checks: tuple[FeatureChecks, ...]
    needed: dict[str, frozenset[str]]
    findings: tuple[Symptom, ...]
    obstacle: str = ""
    seen: bool = True
    unknown: str = ""

    @property
    def good(self) -> bool:
        """Whether pods with these options will work."""
        return bool(self.backend) and not any(finding.severity == ERROR for finding in self.findings)


def examine(options: Options, uids: tuple[int, ...] = (), gids: tuple[int, ...] = ()) -> Examination:
    """Examine the namespace that the options name (default: this process's) and the machine; changes nothing.

    `uids`, `gids`: the application's. Raises NamespaceError.
    """
    if not (options.pid or options.netns):
        text, trouble = _read_resolv_conf(detect.read_resolv_conf, options)
        options = _without_servers(options) if trouble else options
        found = HERE.inside(options, lambda inner, warning: _examine_here(inner, uids, gids, warning, text))
        return replace(found, findings=(*found.findings, *trouble))
    with NamedPod(options, reads_servers=False) as pod:
        text, trouble = _read_resolv_conf(pod.read_resolv_conf, options)
        pod.servers = tuple(detect.name_servers(text))
        options = _without_servers(options) if trouble else options
        programs = bpf.of_processes(pod.identity)
        warning = pod.warn_if_host()  # before the child enters: inside, every pod is the process's own namespace

        def act() -> Examination:
            bpf.remember(programs)
            return _examine_here(options, uids, gids, warning, text)

        found = pod.run_inside(act, keep=(detect.CAP_SETGID, detect.CAP_SETUID, detect.CAP_SYS_ADMIN, CAP_SETPCAP))
    return replace(found, findings=(*found.findings, *trouble))


def _without_servers(options: Options) -> Options:
    """Options that need the same of kernel and programs, and no name server."""
    return options.replace(capture_all_dns=True) if options.wants_servers else options


def _read_resolv_conf(read: Callable[[], str], options: Options) -> tuple[str, tuple[Symptom, ...]]:
    if not options.redirect_dns:
        return "", ()
    try:
        return read(), ()
    except NetinitError as error:
        return "", (Symptom(ERROR, "resolv.conf", str(error)),)


def _examine_here(options: Options, uids: tuple[int, ...], gids: tuple[int, ...], warning: str, resolv_conf: str) -> Examination:
    settled = HERE.settle(options)
    needed = needed_features(settled)
    checks, obstacle = _check(settled)
    found = [Symptom(WARNING, "options", text) for text in settled.warnings]
    if warning:
        found.append(Symptom(WARNING if options.pid or options.netns else NOTE, "namespace", warning))
    seen = tuple(find.find_privileges(lacking=all(checked.works(needed) is False for checked in checks)))
    if options.pid or options.netns:
        confine()  # only the feature checks needed more privileges; from here on, foreign data is read
    backend = ""
    survey = undecided = None
    if detect.has_capability(detect.CAP_NET_ADMIN):  # without it nothing can be read, which is reported separately
        try:
            survey = Survey(settled, thorough=False)
            backend, undecided = _choose(survey, checks, needed)
        except NetinitError as error:
            found.append(Symptom(ERROR, "backend", str(error)))
        if undecided:
            found += _explain_doubt(undecided, needed)
        elif survey and not backend:
            found += _explain_lack(settled, survey, checks, needed)
        found += _explain_open([checked for checked in checks if checked.backend == backend])
    found += seen
    found += find.find_locks()
    if survey:
        found += find.find_leftovers(survey, backend)
        found += find.find_escapes(Options()) if survey.holders() else ()
    found += find.find_lost_packets(settled)
    found += find.find_settings(settled)
    found += find.find_full_tracking()
    found += find.find_bpf_programs()
    found += find.find_collisions(settled, uids, gids)
    found += find.find_name_servers(settled, resolv_conf)
    can_read = detect.has_capability(detect.CAP_NET_ADMIN)  # the rights of this process say nothing about a pod's
    unknown = f"the checks of {undecided.backend} have no result" if undecided else ""
    return Examination(backend, checks, needed, tuple(dict.fromkeys(found)), obstacle, can_read, unknown)


def _check(options: SettledOptions) -> tuple[tuple[FeatureChecks, ...], str]:
    wanted = options.wanted_backend
    names = backends.AUTO_ORDER if wanted == AUTO else tuple(dict.fromkeys([wanted, *backends.AUTO_ORDER]))
    for name, number in (("NET_ADMIN", detect.CAP_NET_ADMIN), ("SYS_ADMIN", detect.CAP_SYS_ADMIN)):
        if not detect.has_capability(number):
            how = advise(name) if find_situation() == PERSON else "run the doctor as root in a privileged container to check features"
            return (), f"{name} is missing for an isolated namespace; {how}"
    try:
        return check_backends(options, names), ""
    except (NamespaceError, OSError) as error:
        return (), str(error)


def _choose(
    survey: Survey, checks: tuple[FeatureChecks, ...], needed: dict[str, frozenset[str]]
) -> tuple[str, FeatureChecks | None]:
    """Return the backend that apply would use: the first candidate whose feature checks passed.

    If it is not known whether those of an earlier one pass, return these instead.
    """
    found = {checked.backend: checked for checked in checks}
    for observed in survey.candidates():
        checked = found.get(observed.backend.name)
        works = checked.works(needed) if checked else True
        if works is None:
            return "", checked
        if works:
            return observed.backend.name, None
    return "", None


def _explain_doubt(checked: FeatureChecks, needed: dict[str, frozenset[str]]) -> list[Symptom]:
    return [
        Symptom(WARNING, checked.backend, f"not known: {_flatten(cause)}{_list_features(concerned)}", TRY_AGAIN)
        for cause, concerned in checked.problems(needed).items()
    ]


def _explain_lack(
    options: RunOptions, survey: Survey, checks: tuple[FeatureChecks, ...], needed: dict[str, frozenset[str]]
) -> list[Symptom]:
    found = []
    wanted = options.wanted_backend
    for checked in checks:
        if wanted not in (AUTO, checked.backend):
            continue
        problems = {cause: names for cause, names in checked.problems(needed).items() if cause not in checked.unknown}
        rooted = {cause: names for cause, names in problems.items() if not all(CAPTURE in name for name in names)}
        for cause, concerned in (rooted or problems).items():  # if nothing can be programmed, nothing is captured
            remedy = _remedy(checked.backend, concerned) if cause in checked.of_kernel else ""
            found.append(Symptom(ERROR, checked.backend, f"{_flatten(cause)}{_list_features(concerned)}", remedy))
    if not checks:
        found += [Symptom(ERROR, "backend", f"{name}: {reason}") for name, reason in survey.failures.items()]
    return found or [Symptom(ERROR, "backend", "no backend seems to work here", find.remedy_for_privileges())]


def _explain_open(chosen: list[FeatureChecks]) -> list[Symptom]:
    """Return what is open with the backend that apply takes, because the kernel lacks what rules beyond Istio's need."""
    found: dict[tuple[str, str], list[str]] = {}
    for checked in chosen:
        for family, promises in checked.promises.items():
            for promise, lacking in promises.items():
                if lacking:
                    found.setdefault((promise, lacking), []).append(family)
    return [
        Symptom(
            WARNING, " and ".join(families), f"open: {OPEN[promise]} (the kernel has no {lacking})",
            _remedy_for_modules(name_modules(lacking, native=BACKENDS[chosen[0].backend].tables == TABLES_OF_OUR_OWN)),
        )
        for (promise, lacking), families in found.items()
    ]


def _remedy_for_modules(named: str) -> str:
    words = named.replace(", ", " ")
    return f"on the node: modprobe -a {words}" if can_help(named) else f"none: {advise_modules(named)}"


def _flatten(cause: str) -> str:
    return " ".join(line.strip() for line in cause.splitlines())


def _list_features(concerned: list[str]) -> str:
    more = " and more" if len(concerned) > MAX_NAMED else ""
    return f" ({', '.join(concerned[:MAX_NAMED])}{more})" if concerned else ""


def _remedy(backend: str, concerned: list[str]) -> str:
    names = dict.fromkeys(name.partition(" ")[2] for name in concerned)
    place = -1 if backends.BACKENDS[backend].tables == TABLES_OF_OUR_OWN else 0
    modules = dict.fromkeys(MODULES_OF_FEATURE[name].split("; ")[place] for name in names if name in MODULES_OF_FEATURE)
    return _remedy_for_modules(", ".join(modules)) if modules else ""
