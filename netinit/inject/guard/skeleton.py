"""The tree of an outline, built once, and the values of each pod in it."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from netinit.base.tree import clone
from netinit.golang.goyaml import events
from netinit.inject.guard.outline import ForeignPart
from netinit.inject.guard.scalars import Entries, Items, Misfit, OutlineScalar, context_of, parse_once

__all__ = ["Skeleton", "forget", "skeleton_of"]

_LONGEST_KEPT = 1 << 16
"""Characters of the longest outline whose skeleton is kept; real ones have 5,000 to 20,000."""
_NOT_IN_COMMENTS = "[^\t\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Line breaks, which end a comment, and characters that YAML forbids."""


class _Builder(events.TreeBuilder):
    """Builds an outline's tree: a scalar with placeholders becomes a text of its own, which names its slot."""

    def __init__(self, outline: str, mark: str) -> None:
        super().__init__()
        self.outline, self.mark = outline, mark
        self.slots: dict[str, OutlineScalar] = {}
        self.starts: list[Any] = []

    def _open(self, value: Any, event: Any) -> None:
        super()._open(value, event)
        self.starts.append(event)

    def _scalar(self, event: Any) -> None:
        if self.mark in event.value:
            start = self.starts[-1] if self.starts else None
            named = start is not None and (start.anchor or start.tag)  # then the mapping itself begins behind its name
            slot = OutlineScalar(
                event,
                self.outline,
                self.mark,
                context_of(
                    -1 if start is None else 0 if named else start.start_mark.column,
                    in_flow=bool(start and start.flow_style),
                    in_list=start.__class__ is yaml.SequenceStartEvent,
                    is_key=self._expects_key(),
                ),
            )
            name = f"{self.mark}{len(self.slots)}"
            self.slots[name] = slot
            event = yaml.ScalarEvent(event.anchor, None, (False, True), name, event.start_mark, event.end_mark, '"')
        super()._scalar(event)

    def _close(self, event: Any) -> None:
        self.starts.pop()
        frame = self._stack[-1]
        if frame.merges and (foreign := [key for key in frame.value if key in self.slots]):
            self.slots[foreign[0]].refuse()
        super()._close(event)


class Skeleton:
    """The tree of an outline, and the slots in it by the texts that stand for them in the tree."""

    def __init__(self, outline: str, mark: str) -> None:
        builder = _Builder(outline, mark)
        for event in events.scan(outline):
            builder.feed(event)
        self.tree, self.slots = builder.document(), builder.slots
        seen = {number for slot in self.slots.values() for number in slot.numbers}
        self.unseen = {int(number) for number in outline.split(mark)[1::2]} - seen
        """Parts that stand in comments."""
        self.is_aliased = bool(builder.aliased)
        self.has_keys = any(slot.is_key for slot in self.slots.values())

    def filled(self, parts: Sequence[ForeignPart]) -> Any:
        """The tree with these parts in the place of the placeholders. Raises Misfit."""
        for number in self.unseen:
            if re.search(_NOT_IN_COMMENTS, parts[number].text):
                raise Misfit("a comment", [number])
        values = {name: slot.value(parts) for name, slot in self.slots.items()}
        if self.has_keys or not {Entries, Items}.isdisjoint(map(type, values.values())):
            tree = _Filling(self.slots, values).node(self.tree)
        else:
            tree = _filled(self.tree, values)
        return clone(tree) if self.is_aliased else tree


def _filled(node: Any, values: Mapping[str, Any]) -> Any:
    if node.__class__ is dict:  # texts, which most items are, without a call of their own
        return {
            key: values.get(item, item) if item.__class__ is str else _filled(item, values)
            for key, item in node.items()
        }
    if node.__class__ is list:
        return [values.get(item, item) if item.__class__ is str else _filled(item, values) for item in node]
    return values.get(node, node) if node.__class__ is str else node


class _Filling:
    """Fills a tree that has foreign keys, or written mappings and lists that become part of those around them."""

    def __init__(self, slots: Mapping[str, OutlineScalar], values: Mapping[str, Any]) -> None:
        self.slots, self.values = slots, values

    def node(self, node: Any) -> Any:
        """A copy of the node with its values."""
        if isinstance(node, dict):
            return self._mapping(node)
        if isinstance(node, list):
            found: list[Any] = []
            for item in node:
                value = self.values[item] if item.__class__ is str and item in self.slots else self.node(item)
                if isinstance(value, Items):
                    found += value
                else:
                    found.append(self._single(value, item))
            return found
        return self._single(self.values.get(node, node), node) if node.__class__ is str else node

    def _single(self, value: Any, node: Any) -> Any:
        if isinstance(value, Entries | Items):
            self.slots[node].refuse()
        return value

    def _mapping(self, node: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        owners: dict[str, tuple[OutlineScalar | None, bool]] = {}
        """For each key, its slot if it is foreign, and whether all of its value is foreign."""
        for key, item in node.items():
            slot = self.slots.get(key)
            of_item = self.slots.get(item) if isinstance(item, str) else None
            is_foreign = of_item is not None and of_item.is_foreign
            entries = self.values.get(key)
            if slot is None:
                entries = {key: self.node(item)}
            elif not isinstance(entries, Entries):
                entries = {slot.key(entries): self.node(item)}
            elif of_item is None or not of_item.is_whole or of_item.numbers != slot.numbers:
                slot.refuse()
            for name in entries.keys() & found.keys():
                before, was_foreign = owners[name]
                if (culprit := slot or before) and not (was_foreign and is_foreign):
                    culprit.refuse()
            found.update(entries)
            owners.update(dict.fromkeys(entries, (slot, is_foreign)))
        return found


def skeleton_of(outline: str, mark: str) -> Skeleton:
    """The skeleton of an outline, kept for the next pod. Raises ParseError, and Misfit for a key beside a merged mapping."""
    return _kept(outline, mark) if len(outline) <= _LONGEST_KEPT else Skeleton(outline, mark)


_kept = functools.lru_cache(maxsize=32)(Skeleton)


def forget() -> None:
    """Forget the skeletons of earlier configurations, which a server would keep for nothing."""
    _kept.cache_clear()
    parse_once.cache_clear()
