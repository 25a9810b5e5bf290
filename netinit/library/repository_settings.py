"""The settings of a repository of manifests: one file, such as netinit.yaml, for explain, lint, audit and check.

    ipFamilies: [ipv4]          # which addresses the cluster's pods have, the first one first
    assume: injected            # what becomes of pods of which the files do not say it
    injectConfigFile: mesh/injector.yaml
    exclude: [templates]
    accept: {NI108: the node exporter needs it}
    failOn: [bypass]

Names of files are those below the folder of the settings: whoever writes a change to the repository may write this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import shorten
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.podfile import BY_PLUGIN, INJECTED, LEFT_OUT
from netinit.library.manifest_files import in_file, read_file
from netinit.library.rule_reading import Outlook
from netinit.options.kinds import quote_value, suggest
from netinit.questions.finding_codes import read_accepted_codes
from netinit.simulate.stand_ins import EXAMPLE_POD

LABEL = "--settings"
USUAL = "netinit.yaml"  # in the working folder, for `netinit check`
OUTLOOKS = (INJECTED, BY_PLUGIN, LEFT_OUT)
_FAMILIES = {"ipv4": 4, "ipv6": 6}


@dataclass(frozen=True, slots=True)
class RepositorySettings:
    """What a repository says once. `name`: of the file; the names of other files are in its folder."""

    name: str = ""
    families: tuple[str, ...] = ()
    assume: str = ""
    config_file: str = ""
    mesh_file: str = ""
    values_file: str = ""
    exclude: tuple[str, ...] = ()
    accepted: Mapping[str, str] = field(default_factory=dict)
    fail_on: tuple[str, ...] = ()
    baseline: str = ""
    strict: bool = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Examples of the addresses of a pod, in the order of the families; none if these are not known."""
        return tuple([EXAMPLE_POD[_FAMILIES[family]] for family in self.families])

    def outlook(self) -> Outlook:
        """How pods are judged that are not injected yet."""
        return Outlook(self.assume, self.config_file, self.mesh_file, self.values_file, self.addresses)


def read_settings(name: str) -> RepositorySettings:
    """Read a file of settings. Raises OptionError with every problem."""
    try:
        tree, duplicates = yaml_texts.load_reporting(read_file(name, LABEL))
    except ParseError as error:
        raise OptionError(f"{LABEL}: {in_file(name, error)}") from None
    if tree is None:
        return RepositorySettings(name=name)
    if not isinstance(tree, dict):
        raise OptionError(f"{LABEL}: {quote_value(name)} is not a mapping; write `ipFamilies: [ipv4]`, for example")
    found: dict[str, Any] = {"name": name}
    problems = [in_file(name, one) for one in duplicates]
    for key, value in tree.items():
        place = f"{shorten(name)}: {shorten(str(key))}"
        if key not in _KEYS:
            remedy = suggest(str(key), list(_KEYS), 1) or f"there are {', '.join(_KEYS)}"
            problems.append(f"{place}: there is no such setting; {remedy}")
            continue
        attribute, read = _KEYS[key]
        try:
            found[attribute] = read(value, name)
        except OptionError as error:
            problems += [f"{place}: {one}" for one in error.problems]
        except ValueError as error:
            problems.append(f"{place}: {error}")
    if problems:
        raise OptionError(*problems)
    return RepositorySettings(**found)


def _texts(value: Any, _: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(one, str) and one.strip("/ ") for one in listed):
        raise ValueError("write a text or a list of texts, none of them empty")
    return tuple(listed)


def _families(value: Any, name: str) -> tuple[str, ...]:
    found = tuple([one.lower() for one in _texts(value, name)])
    if not found or not _FAMILIES.keys() >= set(found) or len(set(found)) < len(found):
        raise ValueError("write [ipv4], [ipv6], or both in the order in which the cluster's pods have them")
    return found


def _outlook(value: Any, _: str) -> str:
    if value not in OUTLOOKS:
        raise ValueError(f"write one of {', '.join(OUTLOOKS)}")
    return str(value)


def _file(value: Any, name: str) -> str:
    """Return the path of a file below the folder of the settings."""
    if not isinstance(value, str) or not value:
        raise ValueError("write the name of a file")
    folder = os.path.realpath(os.path.dirname(name) or ".")  # noqa: PTH120 - as in safe_files
    path = os.path.join(os.path.dirname(name), value)  # noqa: PTH118, PTH120
    if os.path.isabs(value) or not os.path.realpath(path).startswith(f"{folder.rstrip('/')}/"):  # noqa: PTH117
        raise ValueError(f"{quote_value(value)} is not below the folder of the settings; move it there")
    return path


def _accepted(value: Any, _: str) -> dict[str, str]:
    if not isinstance(value, dict):
        raise OptionError("write a mapping, `CODE: reason`")
    return read_accepted_codes(value, "a code")


def _flag(value: Any, _: str) -> bool:
    if not isinstance(value, bool):
        raise OptionError("write true or false")
    return value


_KEYS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "ipFamilies": ("families", _families),
    "assume": ("assume", _outlook),
    "injectConfigFile": ("config_file", _file),
    "meshConfigFile": ("mesh_file", _file),
    "valuesFile": ("values_file", _file),
    "exclude": ("exclude", _texts),
    "accept": ("accepted", _accepted),
    "failOn": ("fail_on", _texts),
    "baseline": ("baseline", _file),
    "strict": ("strict", _flag),
}
