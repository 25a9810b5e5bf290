"""Whose program makes a pod's rules, as the image of its init container says."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from netinit.base.sanitize import quote
from netinit.base.tree import Tree, sequence, string
from netinit.inject.deciding.option_findings import NO_EFFECT
from netinit.inject.deciding.warnings import ARGUMENTS, ERROR, PodFinding
from netinit.options import Options
from netinit.options.declare import OF_OURS

_ISTIO = re.compile(r"proxyv2|proxy_init|istio-proxy|^pilot$")  # under any prefix, as mirrors have it, and with a vendor's suffix
_RELEASE = re.compile(r"v?1\.(\d{1,3})(?:[.-][\w.-]*)?")
_CALLED_AS_ISTIO_S = frozenset(("istio-iptables", "istio-iptables.sh", "pilot-agent"))
_OURS = "netinit"


@dataclass(frozen=True, slots=True)
class RulesProgram:
    """The program that makes a pod's rules: netinit, or Istio's, of which netinit's own options and annotations change nothing.

    `release`: N of Istio 1.N; None if the image names none. `note`: what the image says of Istio's program, as a clause.
    """

    is_istio: bool = False
    release: int | None = None
    note: str = ""


NETINIT = RulesProgram()


def find_program(container: Tree) -> RulesProgram:
    """Find the program of an init container that programs the rules.

    An image that names neither Istio nor netinit is taken for Istio's if its program is called by a name that Istio's templates use,
    as with a copy under a private name.
    """
    image = string(container.get("image"))
    name, tag = _split(image)
    if _OURS in name:
        return NETINIT
    of_istio = is_image_of_istio(image)
    if of_istio and (known := _RELEASE.fullmatch(tag)):
        release = int(known[1])
        return RulesProgram(is_istio=True, release=release, note=f"the image is Istio 1.{release}'s")
    if of_istio:
        return RulesProgram(is_istio=True, note="the image is Istio's and names no release")
    if image and _is_called_as_istio_s(container):
        return RulesProgram(is_istio=True, note=f"the image {quote(image)} says neither whose program nor which release it has")
    return NETINIT


def list_unread(container: Tree, annotations: Mapping[str, str]) -> Iterator[PodFinding]:
    """Yield a finding for each option that netinit's program alone has, if the image of a pod's init container is one of Istio's.

    Istio's program ends at a flag that it does not know.
    """
    if not is_image_of_istio(string(container.get("image"))):
        return
    words = {string(word).partition("=")[0] for word in (*sequence(container.get("command")), *sequence(container.get("args")))}
    name, why = string(container.get("name")), "Istio's program, of the init container's image, does not know it"
    for flag in Options.flags:
        if flag.group == OF_OURS and f"--{flag.long}" in words:
            yield PodFinding(
                kind=ARGUMENTS, severity=ERROR, subject=name,
                text=f"init container {quote(name)} has the argument --{flag.long}: {why}, so that it fails; use netinit's image",
            )  # fmt: skip
        if flag.annotation in annotations and not flag.istio_annotations:
            yield PodFinding(
                kind=NO_EFFECT, path=("annotations", flag.annotation),
                text=f"annotation {quote(flag.annotation)} has no effect: {why}; use netinit's image",
            )  # fmt: skip


def is_image_of_istio(image: str) -> bool:
    """Whether an image is one of those with Istio's own program for the rules, by its name."""
    return _ISTIO.search(_split(image)[0]) is not None


def _split(image: str) -> tuple[str, str]:
    """Return the last part of an image's name, and its tag."""
    name, _, tag = posixpath.basename(image.partition("@")[0]).partition(":")
    return name, tag


def _is_called_as_istio_s(container: Tree) -> bool:
    words = [*sequence(container.get("command")), *sequence(container.get("args"))]
    return any(posixpath.basename(string(word)) in _CALLED_AS_ISTIO_S for word in words[:2])
