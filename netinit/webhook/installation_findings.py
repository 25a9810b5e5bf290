"""The injection webhooks of an installation, and findings about them. Pure."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, string
from netinit.inject.webhooks import Webhook, parse_injectors

__all__ = ["ERROR", "WARNING", "Hook", "InstallationFinding", "find_hooks"]

ERROR, WARNING = "error", "warning"


@dataclass(frozen=True, slots=True)
class InstallationFinding:
    """One problem: severity, machine-readable kind, the object concerned, message, remedy, and the page that says more."""

    severity: str
    kind: str
    subject: str
    message: str
    remedy: str
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """A webhook and the name of its MutatingWebhookConfiguration."""

    tree: Tree
    parsed: Webhook
    configuration: str

    @property
    def subject(self) -> str:
        """The object that findings name."""
        return f"{self.configuration}, webhook {self.parsed.short_name}"

    @property
    def service(self) -> tuple[str, str]:
        """The namespace and name of its Service; empty if it has a URL."""
        found = mapping(mapping(self.tree.get("clientConfig")).get("service"))
        return string(found.get("namespace")), string(found.get("name"))

    @property
    def fails(self) -> bool:
        """Whether pods cannot be created without an answer."""
        return bool(self.tree.get("failurePolicy", "Fail") == "Fail")


def find_hooks(configurations: list[Tree]) -> Iterator[Hook]:
    """Yield the webhooks that inject sidecars, by their name or path."""
    for tree in configurations:
        name = string(mapping(tree.get("metadata")).get("name"))
        with contextlib.suppress(ConfigError):  # the API server would have rejected it
            for item, webhook in parse_injectors(tree):
                yield Hook(tree=item, parsed=webhook, configuration=name)
