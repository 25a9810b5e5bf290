"""`netinit.check`: injects in memory, lints and audits the pods of a repository."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from netinit.base.errors import OptionError, ParseError
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.manifest_survey import FileSurvey
from netinit.kernel.detect import read_name_servers
from netinit.library import safe_files
from netinit.library.assertion_files import read_assertions
from netinit.library.manifest_files import in_file, read_file
from netinit.library.parameters import Files, Pods, choose_pods, list_files
from netinit.library.repository_settings import RepositorySettings, read_settings
from netinit.library.rule_reading import Gate, PodChoice
from netinit.options import Options
from netinit.questions.audit.assertions import Assertion
from netinit.questions.audit.report import examine_all, read_fail_on, with_files
from netinit.questions.finding_codes import read_accepted_codes
from netinit.questions.lint.report import examine_files
from netinit.questions.repository_check import (
    CheckReport,
    Entry,
    examine_repository,
    make_baseline,
    read_baseline,
    with_baseline,
)
from netinit.questions.rule_sources import Made, find_planned

BASELINE = "--baseline"
USUAL_FAILING = ("bypass",)  # all that is not by design
_STDIN = "stdin"  # in a baseline


def check(
    pod: Pods, *, assume: str = "", settings: str | os.PathLike[str] = "", baseline: str | os.PathLike[str] = "",
    assertions: Sequence[str] = (), accepted: Mapping[str, str] | None = None, fail_on: Sequence[str] = (), exclude: Files = (),
    strict: bool = False,
) -> CheckReport:  # fmt: skip
    """Say what is wrong with the pods of files and folders, and which traffic bypasses the proxy, as pods will be created.

    Pods that are not injected yet are injected in memory. `assume`: injected, cni or none, for pods of which the files do not say
    it. `settings`: a repository's file of settings. `baseline`: a file of findings that are accepted. `fail_on`: what else than all
    bypasses fails, such as `bypass:network`. `exit_code` of the result is that of the command. Raises OptionError, ParseError,
    TooManyPartsError.
    """
    own = read_settings(os.fspath(settings)) if settings else RepositorySettings()
    codes = {**own.accepted, **read_accepted_codes(accepted or {}, "accepted")}
    gate = Gate((*own.exclude, *list_files(exclude)))
    chosen = choose_pods(pod, "", None, assume=assume, settings=own)
    kept = os.fspath(baseline) or own.baseline
    found = check_files(
        Options(), replace(chosen, gate=gate), codes, assertions=read_assertions(assertions), fail_on=tuple(fail_on) or own.fail_on,
        strict=strict or own.strict,
    )
    return found.against(kept) if kept else found.report


class Checked:
    """A repository that was checked, and the names of its files: what baselines are compared with."""

    def __init__(self, report: CheckReport, files: Sequence[str]) -> None:
        self.report = report
        self._files = files

    def against(self, baseline: str) -> CheckReport:
        """The report without the findings that the file accepts. Raises OptionError."""
        entries = _load(baseline)
        return with_baseline(self.report, entries, baseline, self._relate(baseline), _find_gone(entries, baseline))

    def write(self, baseline: str) -> str:
        """The text of the file that accepts all findings; entries for other files stay. Raises OptionError."""
        entries = _load(baseline) if os.path.lexists(baseline) else ()
        return make_baseline(self.report, entries, self._relate(baseline), _find_gone(entries, baseline))

    def _relate(self, baseline: str) -> dict[str, str]:
        """The name of each file in a baseline: relative to its folder, so that the working folder does not matter."""
        folder = os.path.dirname(os.path.abspath(baseline))  # noqa: PTH100, PTH120 - of names, which may be links
        return {file: _STDIN if file == safe_files.STDIN else os.path.relpath(os.path.abspath(file), folder) for file in self._files}  # noqa: PTH100


def check_files(
    options: Options, pods: PodChoice, accepted: Mapping[str, str], *, assertions: Sequence[Assertion], fail_on: Sequence[str],
    strict: bool,
) -> Checked:  # fmt: skip
    """Lint and audit the pods that are meant. Raises OptionError, ParseError, TooManyPartsError."""
    failing = read_fail_on(fail_on or USUAL_FAILING)
    found = pods.survey()
    made: Made = {}
    sources = [find_planned(options, facts, (), read_name_servers, made) for facts in found.pods]
    audited = with_files(examine_all(sources, assertions), FileSurvey(), accepted)
    report = examine_repository(examine_files(found, options, accepted), audited, accepted, failing, strict=strict)
    return Checked(report, found.files)


def _read(baseline: str) -> str:
    try:
        return read_file(baseline, BASELINE)
    except OptionError as error:
        raise OptionError(*[f"{one}; --write-baseline writes it" for one in error.problems]) from None


def _load(baseline: str) -> tuple[Entry, ...]:
    try:
        tree, problems = yaml_texts.load_reporting(_read(baseline))
    except ParseError as error:
        raise OptionError(f"{BASELINE}: {in_file(baseline, error)}") from None
    if problems:
        raise OptionError(*[f"{BASELINE}: {in_file(baseline, one)}" for one in problems])
    return read_baseline(tree, baseline)


def _find_gone(entries: Sequence[Entry], baseline: str) -> list[str]:
    """The files of entries that do not exist any more."""
    folder = os.path.dirname(os.path.abspath(baseline))  # noqa: PTH100, PTH120
    files = dict.fromkeys([one.file for one in entries if one.file not in ("", _STDIN)])
    return [file for file in files if not os.path.lexists(os.path.join(folder, file))]  # noqa: PTH118
