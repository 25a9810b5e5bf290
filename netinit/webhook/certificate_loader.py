"""Load serving certificates; a valid one is used for new connections."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from netinit.base.errors import ConfigError
from netinit.serving.event_log import EventLog
from netinit.webhook.certificates import (
    CertificateInfo,
    check,
    find_missing_name,
    make_context,
    make_pair,
    service_names,
)
from netinit.webhook.serving_state import ServingState, format_date
from netinit.webhook.settings import ServeSettings

_MAX_BYTES = 1 << 20  # per file
_PLACEHOLDER_SECONDS = 365 * 86400.0


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
            problem = f"{error}; " + ("the one before is served" if self.served else "there is none to serve")
            if problem != self._state.problems.get("certificate"):
                self._log.event("error", f"the certificate is not taken: {error}")
            self._state.problems.note("certificate", problem)
            return
        self._context, self.served = context, offered
        self._state.certificate_expires = info.until
        self._state.problems.note("certificate", "")
        self._log.event("info", f"serving certificate for {', '.join(info.names)}, valid until {format_date(info.until)}")
        self._note_names(info)

    def _note_names(self, info: CertificateInfo) -> None:
        """Note a missing Service name; the certificate is served anyway: clients may use another."""
        settings = self._settings
        missing = find_missing_name(info, settings.service, settings.namespace) if settings.namespace else ""
        problem = f"it is not for {missing}, by which the API server asks, but for {', '.join(info.names) or 'no name'}"
        self._state.problems.note("names of the certificate", problem if missing else "")
        if missing:
            self._log.event("error", f"the certificate: {problem}")

    def read(self, flag: str, name: str) -> str:
        """Return a file's text; empty without a name, or if unreadable, which is noted as a problem."""
        if not name:
            return ""
        problem = text = ""
        try:
            with Path(name).open("rb") as file:
                text = file.read(_MAX_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"{name} cannot be read: {error}"
        else:
            problem = "" if text.strip() else f"{name} is empty"
        self._state.problems.note(flag, problem)
        return "" if problem else text
