"""netinit: the interception layer of a service mesh pod.

    options = netinit.Options(inbound_ports="*", outbound_cidrs="*", ipv6="on")
    plan = netinit.plan(options)

Options become a plan (pure data); a plan is rendered (`netinit.rules.render`), applied (`netinit.pods.apply`), compared
(`netinit.pods.verify`), simulated and explained (`netinit.simulate`). `netinit.inject` adds the init container to pods. The
names below are imported when they are first asked for (PEP 562), so that starting the init container costs only what it
uses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.errors import NetinitError
    from netinit.options import Options
    from netinit.rules.layouts import plan
    from netinit.rules.model import Plan

__version__ = "0.1.0"
__all__ = ["NetinitError", "Options", "Plan", "__version__", "plan"]

_HOMES = {
    "NetinitError": "netinit.base.errors",
    "Options": "netinit.options",
    "Plan": "netinit.rules.model",
    "plan": "netinit.rules.layouts",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(__import__(_HOMES[name], fromlist=[name]), name)
    raise AttributeError(f"module 'netinit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
