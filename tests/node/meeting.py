"""Requests that must meet the Envoy of a pod, and those that must not: as the image's test has them."""

from __future__ import annotations

import contextlib

from netinit.lab import APP_ID, PROXY_ID
from pod import Member, serve_pages
from runtime import There
from sidecar import PASS


def check_meets_envoy(path, addresses, *, first_user=0):
    """The application's requests go through the proxy's listener, and so do those that come; the proxy's own go out as they are.

    `path` is the pod's network namespace, `addresses` its addresses; the node is the other end. `first_user`: what the pod's user 0
    is on the node.
    """
    app, proxy = first_user + APP_ID, first_user + PROXY_ID
    with contextlib.ExitStack() as stack:
        node, pod = (stack.enter_context(There(one)) for one in ("/proc/self/ns/net", path))
        own = {6 if ":" in one else 4: one for one in addresses}
        gateways = {4: ".".join([*own.get(4, "").split(".")[:2], "0", "1"]), 6: f"{own.get(6, '').partition('::')[0]}::1"}
        stack.enter_context(serve_pages(pod, "app", ids=(app, app), families=own))
        stack.enter_context(serve_pages(node, "outside", families=own))
        for family, address in own.items():
            out = Member(pod, app, app).fetch(gateways[family])
            assert (out.server, out.through, out.request_through) == ("outside", ("outbound",), ("outbound",))
            bare = Member(pod, proxy, proxy).fetch(gateways[family])
            assert (bare.server, bare.through) == ("outside", ())
            came = Member(node).fetch(address)
            assert (came.server, came.through, came.peer) == ("app", ("inbound",), PASS[family])
