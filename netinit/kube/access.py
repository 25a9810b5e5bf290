"""Finds the API server and credentials: tokens, renewed when they expire, and client certificates.

Search order: the given kubeconfig, the files of KUBECONFIG together, the pod's service account, ~/.kube/config. A kubeconfig is
trusted as kubectl trusts it: its `exec` starts programs.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import os
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import yaml

from netinit.base.errors import ClusterError, ConfigError
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, mapping, sequence, string

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_BYTES = 4 << 20  # bytes of a kubeconfig
_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_TOKEN_SECONDS = 60.0  # until the token is read again; the kubelet renews it minutes before it expires
_PROGRAM_SECONDS = 60.0  # timeout of a kubeconfig's program
_UNAUTHORIZED = 401
_HOST, _PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """An API server and credentials for it; certificates and keys are PEM texts.

    `token_file` is read again each minute, because the kubelet renews it; `program` is the `exec` of a kubeconfig, empty
    if there is none; `namespace` is the context's or the pod's.
    """

    server: str
    certificate_authority: str = ""
    server_name: str = ""
    insecure: bool = False
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    client_certificate: str = ""
    client_key: str = ""
    program: Tree = field(default_factory=dict)
    namespace: str = "default"
    origin: str = ""


def find_access(*, kubeconfig: str = "", context: str = "", environ: Mapping[str, str] | None = None) -> Access:
    """Find the access by arguments, environment or pod. Raises ConfigError."""
    environ = os.environ if environ is None else environ
    named: list[str] = [kubeconfig] if kubeconfig else [*filter(None, environ.get("KUBECONFIG", "").split(os.pathsep))]
    if named:
        there = [Path(path) for path in named if os.path.exists(path)]  # noqa: PTH110 - Path.exists raises for a name that is too long
        return of_kubeconfig(*(there or [Path(named[0])]), context=context)
    if _HOST in environ and not context:
        return in_cluster(environ)
    own = Path(environ.get("HOME", "/")) / ".kube" / "config"
    if own.is_file():
        return of_kubeconfig(own, context=context)
    raise ConfigError(
        f"there is no cluster to ask: no kubeconfig is named (--kubeconfig, KUBECONFIG), {own} does not exist, "
        f"and this is not a pod ({_HOST} is not set)"
    )


def in_cluster(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> Access:
    """The access of the pod's service account. Raises ConfigError if it is not mounted."""
    host, port = environ[_HOST], environ.get(_PORT, "443")
    token = folder / "token"
    try:
        token.read_bytes()
        authority = (folder / "ca.crt").read_text()
        namespace = (folder / "namespace").read_text().strip()
    except OSError as error:
        raise ConfigError(
            f"the pod's service account cannot be read: {error.filename}: {error.strerror}; set automountServiceAccountToken: true"
        ) from error
    return Access(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        certificate_authority=authority,
        token_file=str(token),
        namespace=namespace,
        origin="the pod's service account",
    )


class _Texts(yaml.SafeLoader):
    """Reads YAML as a kubeconfig's fields are typed: words for nothing, true and false; all other scalars are texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as in the base class
        first: [(tag, pattern) for tag, pattern in rules if tag.endswith((":null", ":bool", ":merge"))]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def of_kubeconfig(*paths: Path, context: str = "") -> Access:
    """The access of a context, by default the current one; the first of the files that names a thing counts. Raises ConfigError."""
    what = f"the kubeconfig {', '.join(quote(str(path)) for path in paths)}"
    trees = {path: _load(path) for path in paths}
    name = context or next(filter(None, (string(tree.get("current-context")) for tree in trees.values())), "")
    if not name:
        raise ConfigError(f"{what} has no current-context; name one with --context")
    chosen, _ = _entry(trees, "contexts", "context", name, what)
    cluster, folder = _entry(trees, "clusters", "cluster", string(chosen.get("cluster")), what)
    user, folder = _entry(trees, "users", "user", string(chosen["user"]), what) if chosen.get("user") else ({}, folder)
    try:
        return _access(cluster, user, folder, string(chosen.get("namespace")) or "default", f"{what}, context {quote(name)}")
    except (OSError, UnicodeDecodeError, binascii.Error) as error:
        raise ConfigError(f"{what}: a file or text that it holds cannot be read: {error}") from error


def _load(path: Path) -> Tree:
    """Return what a file holds; nothing of an empty one, as for kubectl. Raises ConfigError."""
    what = f"the kubeconfig {quote(str(path))}"
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        tree = yaml.load(data.decode(), _Texts) if len(data) <= _MAX_BYTES else None  # noqa: S506 - a SafeLoader
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is not YAML: {' '.join(str(error).split())}") from error
    if len(data) > _MAX_BYTES or not isinstance(tree, dict | None):
        raise ConfigError(f"{what} is not a kubeconfig: it must be a mapping of at most {_MAX_BYTES >> 20} MiB")
    return tree or {}


def _entry(trees: Mapping[Path, Tree], listed: str, key: str, name: str, what: str) -> tuple[Tree, Path]:
    """Return an entry by its name, with the whole paths of the files that it names, and its file's folder. Raises ConfigError."""
    items = [(mapping(item), path) for path, tree in trees.items() for item in sequence(tree.get(listed))]
    for item, path in items:
        if item.get("name") == name:
            found = mapping(item.get(key))
            return {**found, **{file: str(path.parent / string(found[file])) for file in _FILES if found.get(file)}}, path.parent
    known = ", ".join(quote(string(item.get("name"))) for item, _ in items) or "none"
    raise ConfigError(f"{what} has no {key} {quote(name)}; it has {known}")


def _access(cluster: Tree, user: Tree, folder: Path, namespace: str, origin: str) -> Access:
    server = string(cluster.get("server"))
    if not server.startswith(("https://", "http://")):
        raise ConfigError(f"{origin}: the server {quote(server)} must be a URL that begins with https://")
    program = mapping(user.get("exec"))
    command = string(program.get("command"))
    return Access(
        server=server.rstrip("/"),
        certificate_authority=_pem(cluster, "certificate-authority"),
        server_name=string(cluster.get("tls-server-name")),
        insecure=cluster.get("insecure-skip-tls-verify") is True,
        token=string(user.get("token")),
        token_file=string(user.get("tokenFile")),
        username=string(user.get("username")),
        password=string(user.get("password")),
        client_certificate=_pem(user, "client-certificate"),
        client_key=_pem(user, "client-key"),
        program={**program, "command": str(folder / command) if "/" in command else command} if command else {},
        namespace=namespace,
        origin=origin,
    )


def _pem(tree: Tree, key: str) -> str:
    """A certificate or key that the kubeconfig contains (base64) or names."""
    if tree.get(f"{key}-data"):
        return base64.b64decode("".join(string(tree[f"{key}-data"]).split()), validate=True).decode()
    return Path(string(tree[key])).read_text() if tree.get(key) else ""


class Credentials(httpx2.Auth):
    """Adds the token to requests; renews it when old, and once when the API refuses it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._token = access.token
        self._until = 0.0

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Implement httpx2's interface: yield a request, get its response."""
        is_renewed = bool(self._access.token_file or self._access.program)
        if is_renewed and time.monotonic() >= self._until:
            await self._renew()
        if self._token or is_renewed:
            request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if is_renewed and response.status_code == _UNAUTHORIZED:
            await self._renew()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request

    async def _renew(self) -> None:
        if self._access.program:
            self._token = await asyncio.to_thread(ask_program, self._access.program)
        else:
            try:
                self._token = (await asyncio.to_thread(Path(self._access.token_file).read_text)).strip()
            except OSError as error:
                raise ClusterError(f"the token {self._access.token_file} cannot be read: {error.strerror}") from error
        self._until = time.monotonic() + _TOKEN_SECONDS


def ask_program(program: Tree) -> str:
    """The token that the program of a kubeconfig's `exec` prints (client.authentication.k8s.io). Raises ClusterError."""
    command = [string(program.get("command")), *map(string, sequence(program.get("args")))]
    what = f"the kubeconfig's program {quote(command[0])}"
    request = {"apiVersion": string(program.get("apiVersion")), "kind": "ExecCredential", "spec": {"interactive": False}}
    named = [item for item in map(mapping, sequence(program.get("env"))) if item.get("name")]
    variables = {string(item.get("name")): string(item.get("value")) for item in named}
    environ = {**os.environ, **variables, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, timeout=_PROGRAM_SECONDS, check=False)
        status = mapping(json.loads(done.stdout).get("status")) if not done.returncode else {}
    except FileNotFoundError:
        hint = string(program.get("installHint"))
        raise ClusterError(f"{what} is not installed{f'; {hint}' if hint else ''}") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{what} was not done within {_PROGRAM_SECONDS:.0f} s") from None
    except (OSError, ValueError, AttributeError) as error:
        raise ClusterError(f"{what} did not give credentials: {error}") from error
    token = string(status.get("token"))
    if not token:
        errors = done.stderr.decode(errors="replace").strip()
        raise ClusterError(f"{what} gave no token (exit code {done.returncode}): {quote(errors)}")
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
