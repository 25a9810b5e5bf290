"""netinit: the interception layer of a service mesh pod.

    options = netinit.Options(inbound_ports="*", outbound_cidrs="*", ipv6="on")
    plan = netinit.plan(options.settle(netinit.offline()))  # pure data
    print(netinit.render(plan))
    netinit.apply(options)  # this process's network namespace
    assert not netinit.verify(options).differences
    print(netinit.explain(options, to="10.1.2.3:443", uid=1000).sentence)

`explain`, `audit`, `check`, `diff`, `lint` and `verify` give what the commands of these names print. `netinit.inject` adds the init
container to pods. The names below are imported when they are first asked for (PEP 562), so that starting the init container
costs only what it uses.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.base.errors import NetinitError
    from netinit.base.version import __version__
    from netinit.library.audit import audit
    from netinit.library.check import check
    from netinit.library.diff import diff
    from netinit.library.explain import explain
    from netinit.library.lint import lint
    from netinit.library.verify import verify
    from netinit.options import Facts, Interception, Options, SettledOptions, offline
    from netinit.pods.apply import apply, remove
    from netinit.rules.layouts import plan
    from netinit.rules.model import Plan
    from netinit.rules.render import render

__all__ = [
    "Facts", "Interception", "NetinitError", "Options", "Plan", "SettledOptions", "__version__", "apply", "audit", "check", "diff",
    "explain", "lint", "offline", "plan", "remove", "render", "verify",
]  # fmt: skip

_HOMES = {
    "Facts": "netinit.options",
    "Interception": "netinit.options",
    "NetinitError": "netinit.base.errors",
    "Options": "netinit.options",
    "Plan": "netinit.rules.model",
    "SettledOptions": "netinit.options",
    "__version__": "netinit.base.version",
    "apply": "netinit.pods.apply",
    "audit": "netinit.library.audit",
    "check": "netinit.library.check",
    "diff": "netinit.library.diff",
    "explain": "netinit.library.explain",
    "lint": "netinit.library.lint",
    "offline": "netinit.options",
    "plan": "netinit.rules.layouts",
    "remove": "netinit.pods.apply",
    "render": "netinit.rules.render",
    "verify": "netinit.library.verify",
}


def __getattr__(name: str) -> object:
    if name in _HOMES:
        return getattr(__import__(_HOMES[name], fromlist=[name]), name)
    raise AttributeError(f"module 'netinit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
