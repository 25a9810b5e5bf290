"""The serving certificate: checked as it comes in, and in use from the next handshake on."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

from netinit.base.errors import ConfigError
from netinit.serving.events import EventLog
from netinit.webhook.certificates import Facts, check, find_missing_name, make_context, make_pair, service_names
from netinit.webhook.serving_state import ServingState, format_date
from netinit.webhook.settings import ServeSettings

__all__ = ["CertificateLoader"]

_MOST_BYTES = 1 << 20  # of a certificate's file
_STAND_IN_SECONDS = 365 * 86400.0


class CertificateLoader:
    """Keeps the TLS context of new connections; a certificate that cannot be served leaves the one before in use."""

    def __init__(self, settings: ServeSettings, state: ServingState, log: EventLog) -> None:
        self._settings = settings
        self._state = state
        self._log = log
        self._context: ssl.SSLContext | None = None
        self._served: tuple[str, str, str] | None = None

    @property
    def has_certificate(self) -> bool:
        """Whether a certificate is served that was given, or came out of the Secret."""
        return self._served is not None

    def context(self) -> ssl.SSLContext:
        """The context for a new connection. Before the first certificate it has one that nobody trusts.

        So a client is refused at once, and does not wait for an answer; the kubelet's probes look at no certificate.
        """
        if self._context is None:
            pair = make_pair(service_names(self._settings.service, "netinit"), now=time.time(), seconds=_STAND_IN_SECONDS)
            self._context = make_context(pair.certificate, pair.key)
        return self._context

    def load_files(self) -> None:
        """Reads the files that the flags name, and serves what they hold, if that can be."""
        settings = self._settings
        certificate, key = self.read("--tlsCertFile", settings.tls_cert_file), self.read("--tlsKeyFile", settings.tls_key_file)
        clients = self.read("--clientCAFile", settings.client_ca_file)
        if certificate and key:
            self.offer(certificate, key, clients)

    def offer(self, certificate: str, key: str, clients: str) -> None:
        """Serves this pair from the next handshake on, to clients of this authority, if that can be.

        A session of TLS never outlives its authority: each connection gets the present context when it begins.
        """
        if self._settings.client_ca_file and not clients:
            return  # what is wrong with its file is noted
        offered = (certificate, key, clients)
        if offered == self._served:
            self._state.problems.note("certificate", "")
            return
        try:
            facts = check(certificate, key, now=time.time())
            context = make_context(certificate, key, clients)
        except ConfigError as error:
            problem = f"{error}; " + ("the one before is served" if self._served else "there is none to serve")
            if problem != self._state.problems.get("certificate"):
                self._log.event("error", f"the certificate is not taken: {error}")
            self._state.problems.note("certificate", problem)
            return
        self._context, self._served = context, offered
        self._state.certificate_expires = facts.until
        self._state.problems.note("certificate", "")
        self._log.event("info", f"serving certificate for {', '.join(facts.names)}, valid until {format_date(facts.until)}")
        self._note_names(facts)

    def _note_names(self, facts: Facts) -> None:
        """Notes that the API server would not take the certificate, which is served nevertheless: others may use another name."""
        settings = self._settings
        missing = find_missing_name(facts, settings.service, settings.namespace) if settings.namespace else ""
        problem = f"it is not for {missing}, by which the API server asks, but for {', '.join(facts.names) or 'no name'}"
        self._state.problems.note("names of the certificate", problem if missing else "")
        if missing:
            self._log.event("error", f"the certificate: {problem}")

    def read(self, flag: str, name: str) -> str:
        """The text of a file; empty where none is named, or where it cannot be read, which is noted."""
        if not name:
            return ""
        problem = text = ""
        try:
            with Path(name).open("rb") as file:
                text = file.read(_MOST_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            problem = f"{name} cannot be read: {error}"
        else:
            problem = "" if text.strip() else f"{name} is empty"
        self._state.problems.note(flag, problem)
        return "" if problem else text
