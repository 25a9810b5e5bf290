"""Kubernetes label selectors, which can also explain why they do not match."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.records import Record
from netinit.base.tree import shown, string

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


class Requirement(Record):
    """A condition on a label: `In` and `NotIn` with values, `Exists` and `DoesNotExist` without."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy it; as in Kubernetes, a missing key satisfies NotIn."""
        present = self.key in labels
        if self.operator == "Exists":
            return present
        if self.operator == "DoesNotExist":
            return not present
        listed = present and labels[self.key] in self.values
        return listed if self.operator == "In" else not listed

    def __str__(self) -> str:
        values = ", ".join(self.values)
        words = {
            "In": f"{self.key}={values}" if len(self.values) == 1 else f"{self.key} in ({values})",
            "NotIn": f"{self.key}!={values}" if len(self.values) == 1 else f"{self.key} not in ({values})",
            "Exists": f"{self.key} exists",
            "DoesNotExist": f"{self.key} does not exist",
        }
        return words[self.operator]


class Selector(Record):
    """Requirements that must all match; an empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def failures(self, labels: Mapping[str, str]) -> tuple[Requirement, ...]:
        """Return the requirements that the labels do not satisfy."""
        return tuple(requirement for requirement in self.requirements if not requirement.matches(labels))

    def __str__(self) -> str:
        return " and ".join(map(str, self.requirements)) or "everything"

    @classmethod
    def parse(cls, value: Any) -> Selector:
        """Parse a LabelSelector (matchLabels, matchExpressions). Raises ConfigError."""
        if not isinstance(value, dict):
            raise ConfigError(f"a selector must be a mapping with matchLabels or matchExpressions, not {shown(value)}")
        labels = value["matchLabels"] if value.get("matchLabels") is not None else {}
        expressions = value["matchExpressions"] if value.get("matchExpressions") is not None else []
        if not isinstance(labels, dict) or not isinstance(expressions, list):
            raise ConfigError(f"selector {shown(value)}: matchLabels must be a mapping and matchExpressions a list")
        found = [Requirement(key=key, operator="In", values=(string(wanted),)) for key, wanted in labels.items()]
        return cls(requirements=(*found, *map(_expression, expressions)))


def _expression(value: Any) -> Requirement:
    if not isinstance(value, dict) or not isinstance(value.get("key"), str) or not value["key"]:
        raise ConfigError(f"selector expression {shown(value)} has no key")
    operator = value.get("operator")
    values = value.get("values") or []
    if operator not in _OPERATORS:
        raise ConfigError(f"selector on {value['key']}: operator {shown(operator)} is none of {', '.join(_OPERATORS)}")
    if not isinstance(values, list) or any(isinstance(item, (dict, list)) for item in values):
        raise ConfigError(f"selector on {value['key']}: values must be a list of strings, not {shown(values)}")
    if operator in {"In", "NotIn"} and not values:
        raise ConfigError(f"selector on {value['key']}: {operator} needs at least one value")
    if operator in {"Exists", "DoesNotExist"} and values:
        raise ConfigError(f"selector on {value['key']}: {operator} takes no values, not {shown(values)}")
    return Requirement(key=value["key"], operator=operator, values=tuple(map(string, values)))
