"""What the author of a pod calls an option: an annotation, a Helm value, or else the flag. Pure.

Messages are written with flags. For a pod whose options are annotations, `translate` writes them as those.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from netinit.inject.deciding.pod_options import BY_AGENT
from netinit.inject.deciding.podfile import OF_ANNOTATION, PodFacts, in_proxy_config
from netinit.options import Options, kinds
from netinit.options.declare import OF_OURS
from netinit.options.kinds import Flag

_GIVEN = r"(?:=(?P<joined>[\w*.,:/-]*[\w*])| (?P<quoted>'[^']*')| (?P<value>[0-9*](?:[\w.,:/-]*\w)?|{words})(?![\w-]))?"
_REPEATED = re.compile(rf"\b({OF_ANNOTATION}[\w./, -]+: \"[^\"]*\")(?: \1)+")
_WITHOUT = ("without ", "leave out ", "from ", "to ", "in ", "among ")  # before a name that stands for the whole option
_DEFAULTS = Options()
NEEDS_OURS = " with netinit's image"
"""Ends the name of an option that Istio's program does not have, or does not get from a pod's annotation."""
_OURS_ALONE = {flag.field: f"{flag.label}{NEEDS_OURS}" for flag in Options.flags if flag.group == OF_OURS}


def name_options(facts: PodFacts) -> dict[str, str]:
    """Return what the pod's author calls each option that is no flag to them, by field."""
    if not facts.by_annotation:
        return {**(_OURS_ALONE if facts.program.is_istio else {}), **facts.origins}
    if facts.options.traits.proxy_mark:  # a mesh's agent reads annotations of its own
        return {**{field: f"{OF_ANNOTATION}{name}" for field, name in BY_AGENT.items()}, **facts.origins}
    offered = {flag.field: _offer(flag, istio=facts.program.is_istio) for flag in Options.flags}
    names = {**{field: name for field, name in offered.items() if name}, **facts.origins}
    changed = {field for field in names if getattr(facts.options, field) != getattr(_DEFAULTS, field)}
    spent = {names[field] for field in changed}  # a variable of two options that has set one of them does not set the other
    return {field: name for field, name in names.items() if field in changed or name not in spent}


def is_of_injection(option: str, facts: PodFacts) -> bool:
    """Whether the injection, and not the pod's author or a Helm value, has set this option, such as the proxy's own ports."""
    flag = _flags().get(option)
    return facts.by_annotation and flag is not None and flag.field not in facts.origins


def _offer(flag: Flag, *, istio: bool) -> str:
    """Return the annotation that a pod's author would write; empty if none sets the option. `istio`: Istio's program makes rules."""
    if name := (*flag.istio_annotations, flag.annotation)[0]:
        return f"{OF_ANNOTATION}{name}{NEEDS_OURS if istio and not flag.istio_annotations else ''}"
    return in_proxy_config(flag.pod_variable) if flag.pod_variable else ""


def translate(text: str, names: Mapping[str, str]) -> str:
    """Write the options that a message names, with the values that it gives them, as their author does.

    `remove 80 from --istio-local-outbound-ports-exclude` becomes `remove 80 from annotation …/excludeOutboundPorts`, and `--ipv6 on`
    becomes `annotation netinit.io/ipv6: "on"`.
    """
    if not names or "-" not in text:
        return text
    written = _pattern().sub(lambda found: _write(found, names), text)
    return _REPEATED.sub(r"\1", written)  # one variable may stand for two flags


def _write(found: re.Match[str], names: Mapping[str, str]) -> str:
    flag = _flags()[found["name"]]
    name = names.get(flag.field)
    if name is None:
        return found[0]
    given = found["joined"] or (found["quoted"] or "").strip("'") or found["value"] or ""
    if not given and flag.kind is kinds.SWITCH and not found.string.endswith(_WITHOUT, 0, found.start()):
        given = "true"
    name, needs, _ = name.partition(NEEDS_OURS)
    if needs and (not given or not name.startswith(OF_ANNOTATION)):
        return f"{found[0]}{needs if given else ''}"
    if not given and found["quoted"] is None:
        return name
    return f'{name}: "{given}"{needs}'


@cache
def _flags() -> dict[str, Flag]:
    """All flags by each way to write them."""
    return {
        way: flag for flag in Options.flags if flag.long
        for way in (*[f"--{name}" for name in (flag.long, *flag.aliases)], *([f"-{flag.short}"] if flag.short else []))
    }  # fmt: skip


@cache
def _pattern() -> re.Pattern[str]:
    """A flag as a word of its own, with the value that follows it: quoted, a number, a list, or a word that it takes."""
    ways = "|".join(sorted(map(re.escape, _flags()), key=len, reverse=True))
    known = {word for flag in Options.flags if flag.kind is not kinds.SWITCH for word in flag.kind.words if word}
    words = "|".join(sorted(known, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?P<name>{ways})(?![\w-])" + _GIVEN.replace("{words}", words))
