"""The server's current values and problems, which the controller writes and the application reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from netinit.base.tree import Tree, mapping
from netinit.inject.pod import Namespace
from netinit.webhook.configuration import Served

AWAITED_CONFIGS, AWAITED_NODES = "ProxyConfig resources", "nodes"


class Problems(dict[str, str]):
    """Current problems by subject."""

    def note(self, subject: str, problem: str) -> None:
        """Set a subject's problem; an empty one clears it."""
        if problem:
            self[subject] = problem
        else:
            self.pop(subject, None)


@dataclass(slots=True)
class ServingState:
    """The values in use.

    `certificate_expires`: seconds since the epoch, or 0. `awaited`: kinds of objects not listed yet.
    """

    served: Served | None = None
    certificate_expires: float = 0.0
    namespaces: Mapping[str, Tree] = field(default_factory=dict)
    namespaces_source: str = "the review alone"
    awaited: set[str] = field(default_factory=set)
    draining: bool = False
    configuration_problem: str = ""
    problems: Problems = field(default_factory=Problems)
    cluster_problems: Problems = field(default_factory=Problems)

    def namespace(self, name: str) -> Namespace:
        """Return a namespace's known labels and annotations."""
        known = mapping(self.namespaces.get(name))
        return Namespace(name=name, labels=mapping(known.get("labels")), annotations=mapping(known.get("annotations")))

    def find_obstacle(self) -> str:
        """Return why reviews cannot be answered yet; empty if they can."""
        if self.served is None:
            return "there is no configuration yet"
        return f"the cluster's {' and '.join(sorted(self.awaited))} have not been read yet" if self.awaited else ""

    def is_ready(self) -> bool:
        """Whether every check of /readyz passes."""
        return all(passed for _, passed, _ in self._checks())

    def report(self, verbose: bool) -> tuple[bool, str]:
        """Return whether it is ready, and the text of /readyz: `ok`, or details if not ready or `verbose`."""
        checks = self._checks()
        is_ready = all(passed for _, passed, _ in checks)
        if is_ready and not verbose:
            return True, "ok\n"
        lines = [f"[{'+' if passed else '-'}]{name}: {detail}" for name, passed, detail in checks]
        if self.configuration_problem:
            lines.append(f"[!]configuration: {self.configuration_problem}")
        lines += [f"[!]{subject}: {problem}" for subject, problem in sorted({**self.problems, **self.cluster_problems}.items())]
        lines.append(f"[ ]namespaces: known from {self.namespaces_source}")
        return is_ready, "\n".join([*lines, "ready" if is_ready else "not ready", ""])

    def _checks(self) -> list[tuple[str, bool, str]]:
        """Return name, result and detail of each check."""
        served, expires = self.served, self.certificate_expires
        configuration = f"generation {served.generation}, version {served.version}, of {served.origin}" if served else "none yet"
        return [
            ("serving", not self.draining, "draining: it is stopping" if self.draining else "ok"),
            ("configuration", served is not None, configuration),
            *([("cluster", False, f"waiting for {', '.join(sorted(self.awaited))}")] if self.awaited else ()),
            ("certificate", expires > time.time(), f"valid until {format_date(expires)}" if expires else "none yet"),
        ]


def format_date(seconds: float) -> str:
    """Format seconds since the epoch as RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
