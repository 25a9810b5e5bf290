"""A mapping whose values are created on access: a template reads few fields of a pod."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any


class LazyMapping(Mapping[str, Any]):
    """A mapping of names to the values that `make` creates on first access.

    `hidden`: names that are in the mapping, but not iterated over.
    """

    def __init__(self, names: Collection[str], make: Callable[[str], Any], hidden: Collection[str] = ()) -> None:
        self._names, self._make, self._hidden = names, make, hidden
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            if name not in self:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._hidden

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
