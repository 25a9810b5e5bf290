"""What the server works with at this moment, and what is wrong: written by the controller, read by whoever answers requests."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from netinit.base.tree import Tree, mapping
from netinit.inject.pod import Namespace
from netinit.webhook.configuration import Served

__all__ = ["Problems", "ServingState"]


class Problems(dict[str, str]):
    """What is wrong now, by what it is about."""

    def note(self, subject: str, problem: str) -> None:
        """Sets the problem of a subject; an empty one says that nothing is wrong with it any more."""
        if problem:
            self[subject] = problem
        else:
            self.pop(subject, None)


@dataclass(slots=True)
class ServingState:
    """The values in use. `certificate_expires` is in seconds of the epoch, 0 where there is no certificate yet.

    `awaited` are the kinds of objects that decide about pods and have not been listed yet.
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
        """What is known of a namespace."""
        known = mapping(self.namespaces.get(name))
        return Namespace(name=name, labels=mapping(known.get("labels")), annotations=mapping(known.get("annotations")))

    def has_cluster_error(self) -> bool:
        """Whether the cluster's API cannot be asked, or refuses something."""
        return bool(self.cluster_problems or "cluster" in self.problems)

    def find_obstacle(self) -> str:
        """What is missing for a review to be answered, or nothing."""
        if self.served is None:
            return "there is no configuration yet"
        return f"the cluster's {' and '.join(sorted(self.awaited))} have not been read yet" if self.awaited else ""

    def is_ready(self) -> bool:
        """Whether reviews can be answered, and the server is not about to end."""
        return all(passed for _, passed, _ in self._checks())

    def report(self, *, verbose: bool) -> str:
        """The text of /readyz: `ok`, or where it is not, or `verbose`, all that is known."""
        checks = self._checks()
        is_ready = all(passed for _, passed, _ in checks)
        if is_ready and not verbose:
            return "ok\n"
        lines = [f"[{'+' if passed else '-'}]{name}: {detail}" for name, passed, detail in checks]
        if self.configuration_problem:
            lines.append(f"[!]configuration: {self.configuration_problem}")
        lines += [f"[!]{subject}: {problem}" for subject, problem in sorted({**self.problems, **self.cluster_problems}.items())]
        lines.append(f"[ ]namespaces: known from {self.namespaces_source}")
        return "\n".join([*lines, "ready" if is_ready else "not ready", ""])

    def _checks(self) -> list[tuple[str, bool, str]]:
        """Name, whether it is as it must be, and a detail."""
        served, expires = self.served, self.certificate_expires
        configuration = f"generation {served.generation}, version {served.version}, of {served.origin}" if served else "none yet"
        return [
            ("serving", not self.draining, "draining: it was told to end" if self.draining else "ok"),
            ("configuration", served is not None, configuration),
            *([("cluster", False, f"waiting for {', '.join(sorted(self.awaited))}")] if self.awaited else ()),
            ("certificate", expires > time.time(), f"valid until {format_date(expires)}" if expires else "none yet"),
        ]


def format_date(seconds: float) -> str:
    """A time of the epoch as RFC 3339 has it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
