"""Findings about an installation, whose texts are data, and the webhooks and objects that they are about. Pure."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from netinit.base.errors import ConfigError
from netinit.base.tree import Tree, mapping, string, strings
from netinit.inject.schema import read_data
from netinit.inject.webhooks import Webhook, parse_injectors

ERROR, WARNING = "error", "warning"
HOOKS = "MutatingWebhookConfiguration"
ByKind = Mapping[str, list[Tree]]
_TEXTS = json.loads(read_data("installation-findings.json"))  # kind -> severity, message, remedy, and page if there is one


@dataclass(frozen=True, slots=True)
class InstallationFinding:
    """One problem: severity, machine-readable kind, the object concerned, message, remedy, and the page that says more."""

    severity: str
    kind: str
    subject: str
    message: str
    remedy: str
    page: str = ""


def finding(kind: str, subject: str, *, severity: str = "", **values: object) -> InstallationFinding:
    """Return the finding of this kind; `values` fill its message and remedy. `severity`: instead of the usual one."""
    usual, message, remedy, *page = _TEXTS[kind]
    return InstallationFinding(severity or usual, kind, subject, message.format(**values), remedy.format(**values), *page)


def sort_findings(found: Iterable[InstallationFinding]) -> tuple[InstallationFinding, ...]:
    """Return each finding once, errors first."""
    return tuple(sorted(dict.fromkeys(found), key=lambda one: one.severity != ERROR))


def by_severity(stops_pods: bool) -> str:
    """Return the severity of what stops pods, or does not."""
    return ERROR if stops_pods else WARNING


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


def find_hooks(configurations: Iterable[Tree]) -> Iterator[Hook]:
    """Yield the webhooks that inject sidecars, by their name or path."""
    for tree in configurations:
        with contextlib.suppress(ConfigError):  # the API server would have rejected it
            for item, webhook in parse_injectors(tree):
                yield Hook(tree=item, parsed=webhook, configuration=name_of(tree))


def metadata_of(tree: Tree) -> Tree:
    """Return an object's metadata."""
    return mapping(tree.get("metadata"))


def name_of(tree: Tree) -> str:
    """Return an object's name."""
    return string(metadata_of(tree).get("name"))


def labels_of(tree: Tree) -> dict[str, str]:
    """Return the labels of an object, or of a pod template."""
    return strings(metadata_of(tree).get("labels"))


def template_of(workload: Tree) -> Tree:
    """Return the template of a workload's pods."""
    return mapping(mapping(workload.get("spec")).get("template"))


def subject_of(kind: str, tree: Tree) -> str:
    """Return the object's kind, namespace and name, as findings name it."""
    return f"{kind} {metadata_of(tree).get('namespace')}/{metadata_of(tree).get('name')}"
