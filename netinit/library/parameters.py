"""The parameters that the public calls share: manifests, the namespace, and texts of a connection."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from netinit.base.errors import OptionError
from netinit.library.repository_settings import OUTLOOKS, RepositorySettings, read_settings
from netinit.library.rule_reading import Manifest, Outlook, PodChoice
from netinit.options import Options
from netinit.options.command_line import list_given
from netinit.options.kinds import quote_value

Pod = str | os.PathLike[str] | Mapping[str, Any]
Pods = Pod | Sequence[Pod]
"""A manifest or several: a file, a folder, a pattern such as `pods/*.yaml`, or one object as a mapping."""


Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""The path of a file or several."""


def list_files(files: Files) -> tuple[str, ...]:
    """The paths of files."""
    several = (files,) if isinstance(files, str | os.PathLike) else files
    return tuple([os.fspath(one) for one in several])


def list_manifests(pod: Pods) -> tuple[Manifest, ...]:
    """The manifests that `pod` names."""
    several = (pod,) if isinstance(pod, str | os.PathLike | Mapping) else pod
    return tuple([one if isinstance(one, Mapping) else os.fspath(one) for one in several])


def choose_pods(
    pod: Pods, select: str, options: Options | None, assume: str = "", settings: RepositorySettings | str | os.PathLike[str] = ""
) -> PodChoice:
    """The pods of manifests that a call names, beside options of which it may not name any. Raises OptionError."""
    if assume and assume not in OUTLOOKS:
        raise OptionError(f"assume: {quote_value(assume)} is not one of {', '.join(OUTLOOKS)}")
    known = settings if isinstance(settings, RepositorySettings) else read_settings(os.fspath(settings)) if settings else None
    outlook = known.outlook() if known else Outlook()
    outlook = replace(outlook, assume=assume or outlook.assume)
    return PodChoice(list_manifests(pod), select, given=list_given(options) if options else {}, outlook=outlook.read())


def name_place(options: Options | None, pid: int | None, netns: str | None) -> Options:
    """The options, with the namespace that `pid` or `netns` names. Raises OptionError."""
    given = options or Options()
    if pid is not None:
        if pid < 1:
            raise OptionError(f"pid: {pid} is not the number of a process")
        if given.pid not in {0, pid}:
            raise OptionError(f"pid: {pid} contradicts {given.pid} of the options; give it once")
        given = given.replace(pid=pid)
    if netns is not None:
        if not netns:
            raise OptionError("netns: is empty; name a network namespace")
        if given.netns not in {"", netns}:
            raise OptionError(f"netns: {quote_value(netns)} contradicts {quote_value(given.netns)} of the options; give it once")
        given = given.replace(netns=netns)
    return given


def write(value: str | int | None) -> str:
    """A number or a name as the text of an option."""
    return "" if value is None else str(value)
