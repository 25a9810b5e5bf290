"""Keys: the one way to change a field without touching it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import yaml

from netinit.golang.goyaml import events
from netinit.inject.guard.parts import Foreign, refuse

__all__ = ["Keys"]


class _Mapping:
    """A mapping (or, with `keys` None, a list) that is being read by Keys."""

    __slots__ = ("awaits_key", "key", "keys", "merging", "owner")

    def __init__(self, *, is_list: bool) -> None:
        self.keys: dict[str | None, tuple[Foreign | None, bool]] | None = None if is_list else {}
        """The foreign part that has a hand in a key, and whether its value is foreign alone."""
        self.awaits_key = True
        self.key: tuple[str | None, Foreign | None] = (None, None)
        self.merging = False
        self.owner: Foreign | None = None


class Keys:
    """The keys of all mappings: a foreign one may replace or hide nothing of the author's."""

    def __init__(self, found: Sequence[Any], touched: dict[int, Foreign], owners: dict[int, Foreign]) -> None:
        self.events, self.touched, self.owners = found, touched, owners
        self.stack: list[_Mapping] = []
        self.anchors: dict[str, str | None] = {}

    def check(self) -> None:
        """Raise Mismatch at the first one that does."""
        for number, event in enumerate(self.events):
            kind = event.__class__
            if kind is yaml.ScalarEvent and event.anchor:
                self.anchors[event.anchor] = events.key_text(event)
            if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = self.stack.pop()
                if done.merging and done.owner:
                    refuse(event, done.owner)
            elif kind in (yaml.ScalarEvent, yaml.AliasEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent):
                self.node(event, number)
                if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                    self.stack.append(_Mapping(is_list=kind is yaml.SequenceStartEvent))

    def node(self, event: Any, number: int) -> None:
        """Take note of a node: in a mapping, a key or the value of the last one."""
        within = self.stack[-1] if self.stack else None
        if within is None or within.keys is None:
            return
        within.awaits_key = not within.awaits_key
        if not within.awaits_key:
            within.key = (self.text(event), self.touched.get(number))
            return
        key, key_owner = within.key
        if key is None:
            within.merging = True
            return
        within.owner = within.owner or key_owner
        before = within.keys.get(key)
        foreign = number in self.owners
        if before and (key_owner or before[0]) and not (before[1] and foreign):
            refuse(event, key_owner or before[0])
        within.keys[key] = (key_owner, foreign)

    def text(self, event: Any) -> str | None:
        """The key; None for the author's `<<`."""
        if event.__class__ is yaml.AliasEvent:
            return self.anchors.get(str(event.anchor), "")
        return events.key_text(event)
