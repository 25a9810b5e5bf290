"""Istio: the flags of istio-iptables that we share, and those without effect here."""

from __future__ import annotations

from typing import Any, ClassVar

from netinit.options import FLAGS, kinds, older_istio
from netinit.options.declare import OF_OURS
from netinit.options.peers.declare import TEXT, Conversion, PeerOptions, Remark, lacking, needless, read, same


class OlderIstio(PeerOptions):
    """The options of istio-iptables in addition to those that we share."""

    peer: ClassVar = "Istio"
    programs: ClassVar = ("istio-iptables", "pilot-agent istio-iptables", "istio-iptables.sh")

    envoy_user: str = read("", TEXT, "`-u` with the user's number", default="", variables=("ENVOY_USER",))

    def complete(self, made: Conversion) -> None:
        """Use the proxy's user by name if its number is not given."""
        if not self.envoy_user or self.is_given("proxy_uids"):
            return
        try:
            made.fields["proxy_uids"] = (kinds.read_uid(self.envoy_user),)
        except ValueError:
            text = "is not a user here; give its number in the image with -u"
            made.lacking.append(Remark(flag="ENVOY_USER", value=self.envoy_user, text=text))


_OLDER = {
    flag.field: (lacking if flag.lacking else needless)(
        flag.names, flag.kind, f"{flag.why} ({flag.releases})" if flag.releases else flag.why, variables=flag.variables)
    for flag in older_istio.FLAGS
}  # fmt: skip
_TAKEN_OVER = {
    flag.field: same(flag.names, flag.kind, to=flag.field, variables=flag.variables) for flag in FLAGS if flag.group != OF_OURS
}
_KIND: Any = type(OlderIstio)
_FIELDS = {**_OLDER, **_TAKEN_OVER}
Istio: type[PeerOptions] = _KIND("Istio", (OlderIstio,), {**_FIELDS, "__annotations__": dict.fromkeys(_FIELDS, object)})
