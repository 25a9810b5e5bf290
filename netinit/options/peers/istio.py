"""Istio: our own flags, which are those of istio-iptables, without ours; and the ones that older versions had.

The older ones: tools/istio-iptables/pkg/constants/constants.go of Istio 1.4 to 1.24.
"""

from __future__ import annotations

from typing import Any, ClassVar

from netinit.options import FLAGS, kinds
from netinit.options.declare import OF_OURS
from netinit.options.kinds import SWITCH
from netinit.options.peers.declare import Draft, PeerOptions, Remark, lacking, needless, read, same
from netinit.options.peers.kinds import TEXT

FOUND_BY_ITSELF = "the backend is found by itself; --backend names one"


class OlderIstio(PeerOptions):
    """What istio-iptables was told, and is no more."""

    peer: ClassVar = "Istio"
    programs: ClassVar = ("istio-iptables", "pilot-agent istio-iptables", "istio-iptables.sh")

    restore_format: bool = needless("-f --restore-format", SWITCH, "rules are always committed at once (1.5 to 1.23)", default=True)
    trace: bool = lacking(
        "--iptables-trace-logging", SWITCH, "rules are not traced; --log-rules reports new connections", default=False)
    output_paths: str = needless("--output-paths", TEXT, "netinit render prints the rules (1.11 to 1.16)", default="")
    nsenter: bool = needless(
        "--host-nsenter-exec", SWITCH, "--network-namespace is entered without nsenter (1.15 to 1.19)", default=False)
    version: str = needless("--iptables-version", TEXT, FOUND_BY_ITSELF + " (1.20 and 1.21)", default="")
    envoy_user: str = read("", TEXT, "`-u` with the user's number", default="", variables=("ENVOY_USER",))

    def complete(self, draft: Draft) -> None:
        """The proxy's user by name, where its number is not given."""
        if not self.envoy_user or self.is_given("proxy_uids"):
            return
        try:
            draft.fields["proxy_uids"] = (kinds.read_uid(self.envoy_user),)
        except ValueError:
            text = "is no user here; name the number that it has in the image with -u"
            draft.lacking.append(Remark(flag="ENVOY_USER", value=self.envoy_user, text=text))


_TAKEN_OVER = {
    flag.field: same(flag.names, flag.kind, to=flag.field, variables=flag.variables) for flag in FLAGS if flag.group != OF_OURS
}
_KIND: Any = type(OlderIstio)
_TYPES = dict.fromkeys(_TAKEN_OVER, object)
Istio: type[PeerOptions] = _KIND("Istio", (OlderIstio,), {**_TAKEN_OVER, "__annotations__": _TYPES})
