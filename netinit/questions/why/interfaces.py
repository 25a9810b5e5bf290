"""The step "interfaces": a second interface of the pod, whose traffic is captured like that of the first."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from netinit.base.findings import FindingKind
from netinit.base.net import is_named
from netinit.base.sanitize import quote
from netinit.base.tree import string
from netinit.options import Options
from netinit.questions.option_names import name_options, translate
from netinit.questions.why.objects import MAX_LISTED
from netinit.questions.why.pods import PodInQuestion, read_json_list
from netinit.questions.why.steps import Step, count_unexamined, failed, passed, unknown

SECOND_INTERFACE = FindingKind(
    "NI315", "second-interface",
    "The pod has a second interface (Multus), and connections there are captured too, although the proxy knows no "
    "service there. Exclude the interface: annotation traffic.sidecar.istio.io/excludeInterfaces.",
)

NAME = "interfaces"
NETWORKS = "k8s.v1.cni.cncf.io/networks"  # Multus: a list of names, or JSON


def examine_interfaces(pod: PodInQuestion, arrivals: Collection[str]) -> Iterator[Step]:
    """Say whether the pod's further interfaces are captured; nothing if it has none. `arrivals`: where the connection comes in."""
    if pod.facts is None or not pod.in_mesh:
        return
    options = pod.facts.options
    further = list(list_interfaces(pod.annotations.get(NETWORKS, "")))
    captured = [one for one in further if not is_named(one, options.exclude_interfaces)]
    for one in captured[:MAX_LISTED]:
        flag = Options.flag("exclude_interfaces").label
        remedy = translate(f"add {one} to {flag}", name_options(pod.facts))
        named = f"interface {quote(one)} is a second network (annotation {NETWORKS})"
        text = f"{named}, and its connections go to the proxy, which knows no service there"
        if one in arrivals:
            yield failed(NAME, SECOND_INTERFACE, text, pod.title, remedy=remedy)
        else:
            yield unknown(NAME, text, pod.title, remedy=remedy, kind=SECOND_INTERFACE)
    yield from count_unexamined(NAME, captured, "interfaces", pod.title)
    if further and not captured:
        yield passed(NAME, "its further interfaces are left out of capture", pod.title)


def list_interfaces(text: str) -> Iterator[str]:
    """The interfaces that Multus adds by this annotation: named ones, else net1, net2 and so on."""
    if text.lstrip().startswith("["):
        given = [string(one.get("interface")) for one in read_json_list(text)]
    else:
        given = [one.strip().partition("@")[2] for one in text.split(",") if one.strip()]
    yield from [name or f"net{number}" for number, name in enumerate(given, 1)]
