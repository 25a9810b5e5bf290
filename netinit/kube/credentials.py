"""Credentials of requests: tokens, renewed when they expire, and client certificates."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.sanitize import quote
from netinit.base.tree import mapping, string
from netinit.kube.access import Access, Exec

_TOKEN_SECONDS = 60.0  # until the token is read again; the kubelet renews it minutes before it expires
_PROGRAM_SECONDS = 60.0  # timeout of a kubeconfig's program
_UNAUTHORIZED = 401


class Credentials(httpx2.Auth):
    """Adds the token to requests; renews it when old, and once when the API refuses it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = access.token
        self._until = 0.0

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Implement httpx2's interface: yield a request, get its response."""
        access = self._access
        if access.username:
            basic = httpx2.BasicAuth(access.username, access.password)
            yield next(basic.auth_flow(request))
            return
        if not (access.token_file or access.program):
            if access.token:
                request.headers["Authorization"] = f"Bearer {access.token}"
            yield request
            return
        if time.monotonic() >= self._until:
            await self._renew()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            await self._renew()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    async def _renew(self) -> None:
        if self._access.program is not None:
            self._token = await asyncio.to_thread(ask_program, self._access.program)
        else:
            try:
                self._token = (await asyncio.to_thread(Path(self._access.token_file).read_text)).strip()
            except OSError as error:
                raise ClusterError(f"the token {self._access.token_file} cannot be read: {error.strerror}") from error
        self._until = time.monotonic() + _TOKEN_SECONDS


def ask_program(program: Exec) -> str:
    """The token that a kubeconfig's program prints (ExecCredential). Raises ClusterError."""
    what = f"the kubeconfig's program {quote(program.command)}"
    request = {"apiVersion": program.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
    environ = {**os.environ, **dict(program.environment), "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        done = subprocess.run(
            [program.command, *program.arguments], env=environ, capture_output=True, timeout=_PROGRAM_SECONDS, check=False
        )
        status = mapping(json.loads(done.stdout).get("status")) if not done.returncode else {}
    except FileNotFoundError:
        hint = f"; {program.install_hint}" if program.install_hint else ""
        raise ClusterError(f"{what} is not installed{hint}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{what} was not done within {_PROGRAM_SECONDS:.0f} s") from None
    except (OSError, ValueError, AttributeError) as error:
        raise ClusterError(f"{what} did not give credentials: {error}") from error
    token = string(status.get("token"))
    if not token:
        said = done.stderr.decode(errors="replace").strip()
        raise ClusterError(f"{what} gave no token (exit code {done.returncode}): {quote(said)}")
    return token


def make_context(access: Access) -> Any:
    """The TLS context for the API: its CA and the client's certificate, if any. Raises ConfigError."""
    try:
        context = ssl.create_default_context(cadata=access.certificate_authority or None)
    except ssl.SSLError as error:
        raise ConfigError(f"{access.origin}: the certificate authority is not PEM: {error.reason}") from error
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.client_certificate:
        with tempfile.NamedTemporaryFile("w") as file:  # the library reads files only; this one has mode 0600 and is deleted at once
            file.write(access.client_certificate + "\n" + access.client_key)
            file.flush()
            try:
                context.load_cert_chain(file.name)
            except ssl.SSLError as error:
                raise ConfigError(f"{access.origin}: client certificate and key do not fit: {error.reason}") from error
    return context
