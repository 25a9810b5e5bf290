"""Load configurations and serving certificates. An invalid one leaves the previous one in use."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netinit.base.errors import ConfigError
from netinit.inject.adding.settings import Settings
from netinit.serving.certificates import find_missing_name, service_names
from netinit.serving.event_log import EventLog
from netinit.webhook.certificates import check, make_pair
from netinit.webhook.configuration import Served, Texts, free_old_configurations, load
from netinit.webhook.serving_state import ServingState, format_date
from netinit.webhook.settings import ServeSettings

_MAX_FILE_BYTES = 8 << 20  # of a configuration; a ConfigMap has at most 1 MiB
_MAX_CERTIFICATE_BYTES = 1 << 20  # per file
_PLACEHOLDER_SECONDS = 365 * 86400.0
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"  # TLS 1.2; those of TLS 1.3 are all allowed


class ConfigLoader:
    """Loads texts as configurations and stores valid ones in `state`."""

    def __init__(self, settings: Settings, state: ServingState, log: Callable[[str, str], None]) -> None:
        self._settings = settings
        self._state = state
        self._log = log
        self._offered: Texts | None = None

    async def offer(self, texts: Texts | str) -> str:
        """Load and publish the texts, or note and log why they are invalid or, given as a str, missing.

        Return the problem; empty if there is none or it was returned before.
        """
        is_known = texts in (self._offered, self._state.configuration_problem)
        self._offered = texts if isinstance(texts, Texts) else None  # the earlier one is tried again when it returns
        if is_known:
            return ""
        if isinstance(texts, str):
            return self._refuse(texts)
        generation = self._state.served.generation + 1 if self._state.served else 1
        try:
            served = await asyncio.to_thread(load, texts, self._settings, generation)
        except ConfigError as error:
            return self._refuse(str(error))
        finally:
            free_old_configurations()
        self._publish(served)
        return ""

    async def restore(self, texts: Texts) -> None:
        """Use the last good configuration after a restart; the newest one's problem stays noted."""
        problem = self._state.configuration_problem
        try:
            served = await asyncio.to_thread(load, texts, self._settings, 1)
        except ConfigError as error:
            self._log("error", f"the last good configuration cannot be used any more: {error}")
            return
        self._publish(dataclasses.replace(served, is_restored=True))
        self._state.configuration_problem = problem

    def change_settings(self, message: str, **changes: Any) -> None:
        """Replace injection settings, such as those from cluster objects, and log the message."""
        self._settings = self._settings.replace(**changes)
        if self._state.served:
            self._state.served = dataclasses.replace(self._state.served, settings=self._settings)
        self._log("info", message)

    def _publish(self, served: Served) -> None:
        self._state.served = dataclasses.replace(served, settings=self._settings)  # may have changed meanwhile
        self._state.configuration_problem = ""
        if served.generation == 1:
            gc.freeze()  # startup objects live on: exclude them from collections
        self._log("info", f"configuration {served.generation} is in use: version {served.version}, of {served.texts.origin}")
        for warning in served.warnings:
            self._log("warn", f"configuration {served.generation}: {warning}")

    def _refuse(self, problem: str) -> str:
        """Note the problem, log it if it is new, and return it."""
        served = self._state.served
        if problem != self._state.configuration_problem:
            stays = f"configuration {served.generation} stays in use" if served else "there is none yet"
            self._log("error", f"the configuration is rejected, {stays}: {problem}")
        self._state.configuration_problem = problem
        return problem


def config_files(settings: ServeSettings) -> list[Path]:
    """Return the files that `read_files` may read."""
    folders = ((settings.inject_config, ("config", "values")), (settings.values_file, ("values",)), (settings.mesh_config, ("mesh",)))
    return [path for name, keys in folders if name for path in (Path(name), *(Path(name) / key for key in keys))]


def read_files(settings: ServeSettings) -> Texts:
    """Return the texts of the files that the flags name. Raises ConfigError."""
    config = _read("--injectConfig", settings.inject_config, "config")
    values = _read("--valuesFile", settings.values_file, "values")
    if values is None and config is not None and Path(settings.inject_config).is_dir():
        values = _read("--injectConfig", settings.inject_config, "values", optional=True)
    mesh = _read("--meshConfig", settings.mesh_config, "mesh")
    return Texts(
        config=config, values=values, mesh=mesh, origin=settings.inject_config or Texts().origin,
        values_origin=settings.values_file, mesh_origin=settings.mesh_config,
    )  # fmt: skip


def _read(flag: str, name: str, key: str, *, optional: bool = False) -> str | None:
    if not name:
        return None
    path = Path(name) / key if Path(name).is_dir() else Path(name)
    try:
        return _read_text(path, _MAX_FILE_BYTES)
    except ConfigError as error:
        if optional and isinstance(error.__cause__, FileNotFoundError):
            return None
        raise ConfigError(f"{flag}: {error}") from error


def _read_text(path: Path, most: int) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise ConfigError(f"{path} is longer than {most >> 20} MiB")
        return data.decode()
    except FileNotFoundError as error:
        raise ConfigError(f"{path} does not exist") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8: byte {error.start}") from error


# ---- certificates


class CertificateLoader:
    """Holds the TLS context for new connections; an invalid certificate does not replace it. `served`: the texts in use."""

    def __init__(self, settings: ServeSettings, state: ServingState, log: EventLog) -> None:
        self._settings = settings
        self._state = state
        self._log = log
        self._context: ssl.SSLContext | None = None
        self.served: tuple[str, str, str] | None = None

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection: until there is a certificate, a self-signed one.

        So clients fail at once, and kubelet probes, which verify nothing, succeed.
        """
        if self._context is None:
            pair = make_pair(service_names(self._settings.service, "netinit"), now=time.time(), seconds=_PLACEHOLDER_SECONDS)
            self._context = make_context(pair.certificate, pair.key)
        return self._context

    def load_files(self) -> None:
        """Use the certificate in the flags' files, if it is valid."""
        settings = self._settings
        certificate, key = self.read("--tlsCertFile", settings.tls_cert_file), self.read("--tlsKeyFile", settings.tls_key_file)
        if certificate and key:
            self.offer(certificate, key)

    def offer(self, certificate: str, key: str) -> None:
        """Use this pair (PEM) if it is valid, with the CA bundle for client certificates that the settings name."""
        clients = self.read("--clientCAFile", self._settings.client_ca_file)
        if self._settings.client_ca_file and not clients:
            return  # already noted as a problem
        offered = (certificate, key, clients)
        if offered == self.served:
            self._state.problems.note("certificate", "")
            return
        try:
            info = check(certificate, key, now=time.time())
            context = make_context(certificate, key, clients)
        except ConfigError as error:
            problem = f"{error}; " + ("the previous one is served" if self.served else "there is none to serve")
            if problem != self._state.problems.get("certificate"):
                self._log.event("error", f"the certificate is rejected: {error}")
            self._state.problems.note("certificate", problem)
            return
        self._context, self.served = context, offered
        self._state.certificate_begins, self._state.certificate_expires = info.since, info.until
        self._state.problems.note("certificate", "")
        self._log.event("info", f"serving certificate for {', '.join(info.names)}, valid until {format_date(info.until)}")
        settings = self._settings  # a certificate without the Service's name is served: clients may use another
        missing = find_missing_name(info, settings.service, settings.namespace) if settings.namespace else ""
        problem = f"it is not for {missing}, the API server's name for it, but for {', '.join(info.names) or 'no name'}"
        self._state.problems.note("names of the certificate", problem if missing else "")
        if missing:
            self._log.event("error", f"the certificate: {problem}")

    def read(self, flag: str, name: str) -> str:
        """Return a file's text; empty without a name, or if unreadable, which is noted as a problem."""
        if not name:
            return ""
        try:
            text = _read_text(Path(name), _MAX_CERTIFICATE_BYTES)
            problem = "" if text.strip() else f"{name} is empty"
        except ConfigError as error:
            text, problem = "", str(error)
        self._state.problems.note(flag, problem)
        return "" if problem else text


def make_context(certificate: str, key: str, clients: str = "") -> ssl.SSLContext:
    """Return a server TLS context; `clients`: the CA bundle for client certificates, if any. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        with os.fdopen(os.memfd_create("serving-pair", os.MFD_CLOEXEC), "wb", buffering=0) as file:  # OpenSSL reads only files
            file.write(f"{key.rstrip()}\n{certificate}".encode())
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        if clients:
            context.load_verify_locations(cadata=clients)
            context.verify_mode = ssl.CERT_OPTIONAL  # kubelet probes have none; reviews without one are rejected later
            context.options |= ssl.OP_NO_TICKET  # a resumed session would trust a removed CA
            context.num_tickets = 0
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"the serving certificate cannot be used: {error}") from error
    return context
