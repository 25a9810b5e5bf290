"""The options that a CNI plugin makes of a pod: of its annotations and its proxy, as Istio's plugin does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.base.errors import OptionError
from netinit.base.records import Record
from netinit.base.shown import shorten
from netinit.base.tree import Tree, string
from netinit.inject.annotations import CHECKS, OF_OPTIONS, REROUTE, go_bool
from netinit.inject.containers import find_proxy, named, security
from netinit.options import AMBIENT, Options
from netinit.options.interception import DEFAULT_PROXY_UID, DUAL_STACK, IPV6_OF_PODS

__all__ = ["REDIRECTION", "CniProxy", "ambient_options", "cni_options"]

REDIRECTION = "ambient.istio.io/redirection"
"""The annotation with which a mesh's ambient agent marks the pods that it programmed: `enabled`."""
_AMBIENT_DNS = "ambient.istio.io/dns-capture"
_AMBIENT_BYPASS = "ambient.istio.io/bypass-inbound-capture"

_OURS = {flag.field: flag for flag in Options.flags if flag.annotation}
_ALWAYS_EXCLUDED = (15020, 15021, 15090)  # the proxy's own statistics, readiness and metrics
_MERGED_STATISTICS = "15020"
_IPV6 = Options.flag("ipv6")
_READ = ("DISABLE_ENVOY", "ISTIO_META_DNS_CAPTURE", DUAL_STACK, "INVALID_DROP", IPV6_OF_PODS)


class CniProxy(Record):
    """What a plugin reads of a pod's proxy: the variables that count, its user and its group; None where the image decides."""

    environment: dict[str, str]
    uid: int | None = None
    gid: int | None = None

    @staticmethod
    def of_spec(spec: Tree) -> CniProxy:
        """The proxy of a pod's spec; an empty one where there is none."""
        proxy = find_proxy(spec) or {}
        variables = {string(item.get("name")): string(item.get("value")) for item in named(proxy.get("env"))}
        uid, gid = (_number(security(proxy).get(key)) for key in ("runAsUser", "runAsGroup"))
        return CniProxy(environment={name: variables[name] for name in _READ if name in variables}, uid=uid, gid=gid)

    def is_on(self, name: str) -> bool:
        """Whether a variable is true as Go reads it."""
        return go_bool(self.environment.get(name, "")) is True


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def cni_options(annotations: Mapping[str, str], proxy: CniProxy, base: Options, addresses: tuple[str, ...] = ()) -> Options:
    """The options of a pod; `base` has what the node's configuration says of every pod. OptionError, a line for each wrong value."""
    if wrong := [f"annotation {key}: {shorten(annotations[key])!r}: {said}" for key, said in _problems(annotations)]:
        raise OptionError(*wrong)

    def asked(option: str, default: str = "") -> str:
        return annotations.get(OF_OPTIONS[option], default).strip()

    excluded = [*asked("exclude_inbound_ports", _MERGED_STATISTICS).split(","), *map(str, _ALWAYS_EXCLUDED)]
    ipv6 = annotations.get(_IPV6.annotation) or proxy.environment.get(IPV6_OF_PODS) or base.ipv6
    made = base.replace(
        inbound_mode=annotations.get(OF_OPTIONS["inbound_mode"], base.inbound_mode),
        proxy_uids=(proxy.uid or DEFAULT_PROXY_UID,),
        proxy_gids=(proxy.gid or DEFAULT_PROXY_UID,),
        outbound_cidrs=asked("outbound_cidrs", "*"),
        exclude_outbound_cidrs=asked("exclude_outbound_cidrs"),
        inbound_ports=_ports(asked("inbound_ports", "*")),
        exclude_inbound_ports=_ports(",".join(excluded)),
        outbound_ports=_ports(asked("outbound_ports")),
        exclude_outbound_ports=_ports(asked("exclude_outbound_ports", _MERGED_STATISTICS)),
        exclude_interfaces=asked("exclude_interfaces"),
        virtual_interfaces=annotations.get(REROUTE, asked("virtual_interfaces")),
        redirect_dns=proxy.is_on("ISTIO_META_DNS_CAPTURE"),
        capture_all_dns=proxy.is_on("ISTIO_META_DNS_CAPTURE"),
        drop_invalid=proxy.is_on("INVALID_DROP"),
        dual_stack=proxy.is_on(DUAL_STACK) if DUAL_STACK in proxy.environment else base.dual_stack,
        **{"ipv6": ipv6} | _given(annotations),
    )
    return made.decide_ipv6(addresses) if addresses else made


def ambient_options(annotations: Mapping[str, str], *, dns: bool = True) -> Options:
    """The options of a pod that a mesh's ambient agent programs; `dns` is what the mesh says of pods that do not."""
    asked = go_bool(annotations.get(_AMBIENT_DNS, ""))
    return Options(
        layout=AMBIENT,
        redirect_dns=dns if asked is None else asked,
        ingress=go_bool(annotations.get(_AMBIENT_BYPASS, "")) is True,
        virtual_interfaces=Options.flag("virtual_interfaces").kind.read(annotations.get(REROUTE, "")),
    )


def _given(annotations: Mapping[str, str]) -> dict[str, Any]:
    """What a pod's annotations of netinit's own set, by field."""
    return {field: flag.kind.read(annotations[flag.annotation]) for field, flag in _OURS.items() if flag.annotation in annotations}


def _problems(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    known = (*OF_OPTIONS.values(), REROUTE, *[flag.annotation for flag in _OURS.values()])
    found = [(key, CHECKS[key](annotations[key])) for key in known if key in annotations]
    return [(key, said) for key, said in found if said]


def _ports(text: str) -> str:
    """The list without port 0, which annotations may have and which captures nothing."""
    return ",".join(item.strip() for item in text.split(",") if item.strip().lstrip("0"))
