"""No value of a pod adds to, takes from or changes anything in a template's output but the scalars that it stands in.

A template prints annotations, labels and names into the text of a YAML document, and nothing quotes them on the way.
Whoever writes the pod could end the scalar that a value was meant to be, write fields of his own (`privileged: true`),
and with a second value swallow the author's. So every rendered text is read twice, and both readings are compared.

The argument:

1. The engine notes which parts of the text foreign actions printed: those that can reach a field of the root which is
   not the operator's (`gotemplate.origins`). Everything else, literal text and the operator's values, is the author's.
2. The *outline* is the same text with a token in the place of every foreign part. A token is a word of letters and
   digits around a character that stands nowhere in the text. So the outline depends on the author's text and on the
   branches that were taken, but on no character of any value: its nodes are the author's. There is no second
   rendering that could branch in another way.
3. The real text is accepted only if its events (what the YAML parser reports: documents, mappings, sequences,
   scalars, aliases, with their anchors, tags and styles) are those of the outline, one by one. A scalar without a
   token must be the same to the letter. A scalar with tokens must be a scalar again, of the same style, with the
   author's words around the tokens unchanged; one that is a token alone may bring quotes of its own. So the tree that
   comes out is the author's, whatever trick the text plays: comments, anchors, quotes, indentation, cooperating values.
4. Every value lies, as text, inside of the scalar of its own token (offsets are compared), so values cannot change
   places either, and nothing of them is lost in a comment or becomes a tag or an anchor.
5. Where a function wrote a whole tree (toYaml, toJson and their kin), the token stands for that tree: the events there
   must be those of the tree written alone, and that text must read back as the tree (`_nodes_of`).
6. Keys are the one way to change a field without touching it: the last of two equal keys counts, and a key hides what
   `<<` would merge. So where a foreign key stands twice, both values must be foreign too (a list of volumes that bring
   names of their own); it may not merge, and may not stand beside an author's `<<` (`_Keys`).

A value that prints nothing has no token: then the outline is the author's text alone, as in an `{{if}}` not taken.
Indentation that an author gives by nindent and its kin is the author's. Types of plain scalars (`80`, `true`, `~`) stay
what the value makes of them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Sequence

import yaml

from netinit.base.errors import NetinitError, ParseError
from netinit.base.patterns import pattern
from netinit.golang.goyaml import events
from netinit.golang.json_values import to_json
from netinit.golang.template.values import FunctionError, Shaped
from netinit.golang.tree import same
from netinit.golang.yaml_values import pairs_of, to_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Never, TypeAlias

    from netinit.golang.template.nodes import Action
    from netinit.golang.template.template import Rendering

__all__ = ["BreakOut", "Foreign", "read"]

_PRIVATE = map(chr, range(0xE000, 0xF8FF))
_BLANKS = " \t\r\n\x85\u2028\u2029"
_BREAKS = pattern("[\r\n\x85\u2028\u2029]")
_INERT = pattern(r"[A-Za-z0-9_/$(](?:[A-Za-z0-9_./%+=$()~@-]|:(?=[A-Za-z0-9/]))*")
"""Text that is part of a scalar wherever it stands: nobody who looks for culprits needs to try it."""
_KEPT = 1 << 16
"""Characters of the longest outline that is kept parsed; real ones have 5,000 to 20,000."""
_SUSPECTS = 8
"""How many foreign parts are tried one by one when culprits are looked for."""


class Foreign:
    """A part of the text that a foreign action printed: which part it is, its text, and the action.

    In the text that is looked at it begins at `start`; `trusted` is one that is shown by its token there.
    """

    __slots__ = ("action", "place", "start", "text", "trusted")

    def __init__(self, place: int, text: str, action: Action, start: int = 0, *, trusted: bool = False) -> None:
        self.place, self.text, self.action = place, text, action
        self.start, self.trusted = start, trusted


class BreakOut(NetinitError):
    """Foreign parts changed more than their own scalars; the message says where that shows.

    `culprits` are the parts that do so alone, or else all that may do so together.
    """

    def __init__(self, culprits: Sequence[Foreign], where: str) -> None:
        super().__init__(where)
        self.culprits = culprits


class _Mismatch(Exception):  # noqa: N818 - a verdict
    """The text does not fit its outline: where, and by which part, if it is known."""

    def __init__(self, where: str, culprit: Foreign | None = None) -> None:
        super().__init__(where)
        self.culprit = culprit


def read(rendering: Rendering) -> Any:
    """The tree of a rendered text; None for an empty one.

    Raises ParseError where the template itself gives no YAML, BreakOut where foreign parts leave their places.
    """
    places = [(place, action) for place, action in rendering.marks if rendering.parts[place]]
    if not places:
        return events.build(events.scan(rendering.text)).document()
    outline = _Outline(rendering, places)
    try:
        wanted = outline.wanted()
    except ParseError:
        if not _is_yaml(rendering.text):
            raise
        raise BreakOut(outline.suspects(), "the lines around it") from None
    try:
        if "".join(rendering.parts) != rendering.text:
            raise _Mismatch("a character that was cut in two")  # noqa: TRY301 - all refusals end below
        return _Reading(rendering.text, wanted, outline.foreign).tree()
    except _Mismatch as problem:
        culprits = [problem.culprit] if problem.culprit else outline.culprits(wanted)
        raise BreakOut(culprits, str(problem)) from None
    except ParseError as problem:
        # only its place is told: its words may quote the value
        raise BreakOut(outline.culprits(wanted), str(problem).partition(": ")[0]) from None


def _is_yaml(text: str) -> bool:
    try:
        for _ in events.scan(text):
            pass
    except ParseError:
        return False
    return True


# --- the outline -------------------------------------------------------------------------------------------------


class _Outline:
    """The text with tokens in the place of its foreign parts."""

    def __init__(self, rendering: Rendering, places: Sequence[tuple[int, Action]]) -> None:
        self.parts = rendering.parts
        text = rendering.text
        self.mark = "\ue000" if text.isascii() else next((c for c in _PRIVATE if c not in text), "")
        if not self.mark:
            raise ParseError("every character for private use stands in the rendered text")
        self.foreign = [Foreign(place, self.parts[place], action) for place, action in places]
        self.stand_ins = {
            place: _stand_in(self.parts[place], f"{self.mark}{number}{self.mark}")
            for number, (place, _) in enumerate(places)
        }
        _locate(self.parts, self.foreign)

    def wanted(self) -> tuple[_Want, ...]:
        """The outline's events. Raises ParseError."""
        text = "".join(self._with({}))
        return _kept_wants(text, self.mark) if len(text) <= _KEPT else _wants(text, self.mark)

    def _with(self, real: dict[int, str]) -> list[str]:
        """The parts, all foreign ones but the real ones replaced by what stands for them."""
        parts = list(self.parts)
        for place, text in (self.stand_ins | real).items():
            parts[place] = text
        return parts

    def suspects(self) -> list[Foreign]:
        """Foreign parts that may break out, each text of an action once; not more than are worth naming."""
        found = {(part.action, part.text): part for part in reversed(self.foreign)}
        doubtful = [part for part in found.values() if not _INERT.fullmatch(part.text)]
        return (doubtful or list(found.values()))[: -_SUSPECTS - 1 : -1]

    def culprits(self, wanted: tuple[_Want, ...]) -> list[Foreign]:
        """The suspects that break out alone; all of them where none does."""
        suspects = self.suspects()
        return [suspect for suspect in suspects if not self._fits(wanted, suspect)] or suspects

    def _fits(self, wanted: tuple[_Want, ...], alone: Foreign) -> bool:
        parts = self._with({alone.place: alone.text})
        shown = [
            Foreign(part.place, parts[part.place], part.action, trusted=part.place != alone.place)
            for part in self.foreign
        ]
        _locate(parts, shown)
        try:
            _Reading("".join(parts), wanted, shown).tree()
        except (_Mismatch, ParseError):
            return False
        return True


def _locate(parts: Sequence[str], foreign: Sequence[Foreign]) -> None:
    """Tell the foreign parts where they begin."""
    start, done = 0, 0
    for part in foreign:
        start += sum(map(len, parts[done : part.place]))
        done = part.place
        part.start = start


def _stand_in(text: str, token: str) -> str:
    """What stands for a foreign part in the outline: its token, as the entry or item that a written tree begins with."""
    if not isinstance(text, Shaped):
        return token
    if text.form != "yaml":
        return text.lead + token if len(text) > len(text.lead) else text.lead
    rest = text[len(text.rstrip(" \n")) :]
    tail = "\n" + rest.rpartition("\n")[2] if "\n" in rest else ""
    if pairs_of(text.tree):
        return f"{text.lead}{token}: {token}{tail}"
    if isinstance(text.tree, list | tuple) and text.tree:
        return f"{text.lead}- {token}{tail}"
    return text.lead + token + tail


class _Want:
    """What an event must be: its signature, and the tokens in it with the literal text around them.

    `whole` is a plain scalar that is one token and nothing else.
    """

    __slots__ = ("literals", "signature", "tokens", "whole")

    def __init__(self, event: Any, mark: str) -> None:
        self.signature = _signature(event)
        self.tokens: tuple[int, ...] = ()
        self.literals: tuple[str, ...] = ()
        self.whole = False
        if event.__class__ is yaml.ScalarEvent and mark in event.value:
            pieces = event.value.split(mark)
            self.tokens = tuple(map(int, pieces[1::2]))
            self.literals = tuple(pieces[::2])
            self.whole = not event.style and self.literals == ("", "")


def _wants(outline: str, mark: str) -> tuple[_Want, ...]:
    return tuple([_Want(event, mark) for event in events.scan(outline)])


_kept_wants = functools.lru_cache(maxsize=32)(_wants)

_Signature: TypeAlias = "tuple[Any, ...]"


def _signature(event: Any) -> _Signature:
    """Everything of an event that must not change: kind, value, style, anchor and tag."""
    kind = event.__class__
    if kind is yaml.ScalarEvent:
        return (kind, event.anchor, event.tag, event.value, event.style or "")
    if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
        return (kind, event.anchor, event.tag)
    if kind is yaml.AliasEvent:
        return (kind, event.anchor)
    if kind is yaml.DocumentStartEvent:
        return (kind, event.explicit, event.version, event.tags)
    return (kind,)


# --- the comparison ----------------------------------------------------------------------------------------------


def _refuse(event: Any, culprit: Foreign | None = None) -> Never:
    mark = event.start_mark
    raise _Mismatch(f"line {mark.line + 1}, column {mark.column + 1}", culprit)


class _Reading:
    """The events of a text, which must be those that are wanted."""

    def __init__(self, text: str, wanted: tuple[_Want, ...], foreign: Sequence[Foreign]) -> None:
        self.events = list(events.scan(text))
        self.wanted = wanted
        self.foreign = foreign
        self.at = 0
        self.touched: dict[int, Foreign] = {}
        self.owners: dict[int, Foreign] = {}
        """By number of the event: a foreign part that had a hand in it, and the one that alone made it."""
        self.unseen = set(range(len(foreign)))

    def tree(self) -> Any:
        """The tree of the text. Raises _Mismatch or ParseError."""
        wanted = iter(self.wanted)
        for want in wanted:
            event = self.event()
            if not want.tokens:
                if _signature(event) != want.signature:
                    _refuse(event)
                self.at += 1
                continue
            part = self.foreign[want.tokens[0]]
            if want.whole and isinstance(part.text, Shaped) and part.text.form and not part.trusted:
                self.written(want, part, part.text, wanted)
            else:
                self.scalar(want, event)
                self.at += 1
            self.unseen.difference_update(want.tokens)
        if self.at < len(self.events):
            _refuse(self.event())
        self.comments()
        builder = events.build(self.events)
        if builder.duplicates or builder.merges:
            _Keys(self.events, self.touched, self.owners).check()
        return builder.document()

    def event(self) -> Any:
        if self.at == len(self.events):
            _refuse(self.events[-1])
        return self.events[self.at]

    def scalar(self, want: _Want, event: Any) -> None:
        """A scalar with tokens in it."""
        if event.__class__ is not yaml.ScalarEvent or _signature(event)[:3] != want.signature[:3]:
            _refuse(event)
        style = event.style or ""
        if want.whole:
            if style in "|>" and style:
                _refuse(event)
            if not style and event.value == "<<":
                _refuse(event, self.foreign[want.tokens[0]])
        elif style != want.signature[4] or not _holds(event.value, want):
            _refuse(event)
        self.touched[self.at] = self.foreign[want.tokens[0]]
        if not any(want.literals):
            self.owners[self.at] = self.foreign[want.tokens[0]]
        for number in want.tokens:
            part = self.foreign[number]
            text = part.text.rstrip(_BLANKS)
            start = part.start + len(text) - len(text.lstrip(_BLANKS))
            inside = event.start_mark.index <= start and part.start + len(text) <= event.end_mark.index
            if text and not inside and not part.trusted:
                _refuse(event, part)

    def written(self, want: _Want, part: Foreign, text: Shaped, wanted: Iterator[_Want]) -> None:
        """A tree that a function wrote: the events are its own, and all of them lie in the part."""
        nodes, entries = _nodes_of(text)
        end = part.start + len(text)
        for number, node in enumerate(nodes):
            event = self.event()
            if _signature(event) != (node if number else (node[0], want.signature[1], *node[2:])):
                _refuse(event, part)
            if len(node) > 1 and not part.start <= event.start_mark.index <= end:
                _refuse(event, part)
            self.touched[self.at] = self.owners[self.at] = part
            self.at += 1
        if entries:
            follower = next(wanted)
            if not follower.whole or follower.tokens != want.tokens:
                _refuse(self.events[self.at - 1], part)

    def comments(self) -> None:
        """Refuse parts that stand in no scalar and have line breaks: a comment of the author's would end there."""
        for number in self.unseen:
            if _BREAKS.search(self.foreign[number].text):
                raise _Mismatch("a comment", self.foreign[number])


def _holds(value: str, want: _Want) -> bool:
    """Whether the author's words stand in the value as in the outline; blanks beside a token may be folded away."""
    first, last = want.literals[0].rstrip(_BLANKS), want.literals[-1].lstrip(_BLANKS)
    if not value.startswith(first) or not value.endswith(last):
        return False
    start, end = len(first), len(value) - len(last)
    between = zip(want.tokens[:-1], want.tokens[1:], want.literals[1:-1], strict=True)
    for literal in [words.strip(_BLANKS) for before, after, words in between if before != after]:
        start = value.find(literal, start, end)
        if start < 0:
            return False
        start += len(literal)
    return start <= end


def _nodes_of(text: Shaped) -> tuple[list[_Signature], bool]:
    """The events of a written tree, and whether they are the bare entries of a mapping, which may have others beside.

    Raises _Mismatch where the text does not read back as the tree: then it proves nothing.
    """
    try:
        alone = to_yaml(text.tree) if text.form == "yaml" else text.strip()
        found = list(events.scan(alone))
        right = same(events.build(found).document(), json.loads(to_json(text.tree)))
    except (FunctionError, ParseError, RecursionError, ValueError):
        right = False
    if not right:
        raise _Mismatch("a tree that YAML cannot hold")
    nodes = [_signature(event) for event in found[2:-2]]
    if text.form == "yaml" and len(nodes) > 2:  # noqa: PLR2004 - the start and the end of a collection
        return nodes[1:-1], nodes[0][0] is yaml.MappingStartEvent
    return nodes, False


class _Mapping:
    """A mapping (or, with `keys` None, a list) that is being read by _Keys."""

    __slots__ = ("awaits_key", "key", "keys", "merging", "owner")

    def __init__(self, *, is_list: bool) -> None:
        self.keys: dict[str, tuple[Foreign | None, bool]] | None = None if is_list else {}
        """The foreign part that has a hand in a key, and whether its value is foreign alone."""
        self.awaits_key = True
        self.key: tuple[str | None, Foreign | None] = (None, None)
        self.merging = False
        self.owner: Foreign | None = None


class _Keys:
    """The keys of all mappings: a foreign one may replace or hide nothing of the author's."""

    def __init__(self, found: Sequence[Any], touched: dict[int, Foreign], owners: dict[int, Foreign]) -> None:
        self.events, self.touched, self.owners = found, touched, owners
        self.stack: list[_Mapping] = []
        self.anchors: dict[str, str | None] = {}

    def check(self) -> None:
        """Raise _Mismatch at the first one that does."""
        for number, event in enumerate(self.events):
            kind = event.__class__
            if kind is yaml.ScalarEvent and event.anchor:
                self.anchors[event.anchor] = events.key_text(event)
            if kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
                done = self.stack.pop()
                if done.merging and done.owner:
                    _refuse(event, done.owner)
            elif kind in (yaml.ScalarEvent, yaml.AliasEvent, yaml.MappingStartEvent, yaml.SequenceStartEvent):
                self.node(event, number)
                if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
                    self.stack.append(_Mapping(is_list=kind is yaml.SequenceStartEvent))

    def node(self, event: Any, number: int) -> None:
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
            _refuse(event, key_owner or before[0])
        within.keys[key] = (key_owner, foreign)

    def text(self, event: Any) -> str | None:
        """The key; None for the author's `<<`."""
        if event.__class__ is yaml.AliasEvent:
            return self.anchors.get(event.anchor, "")
        return events.key_text(event)
