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
   must be those of the tree written alone, and that text must read back as the tree (`reading`).
6. Keys are the one way to change a field without touching it: the last of two equal keys counts, and a key hides what
   `<<` would merge. So where a foreign key stands twice, both values must be foreign too (a list of volumes that bring
   names of their own); it may not merge, and may not stand beside an author's `<<` (`keys`).
7. Most values are plain words, and pods of one Deployment after the other differ in nothing else. What YAML makes of a
   text does not depend on which word stands somewhere: so a text is read once for all words (`moulds`).

A value that prints nothing has no token: then the outline is the author's text alone, as in an `{{if}}` not taken.
Indentation that an author gives by nindent and its kin is the author's. Types of plain scalars (`80`, `true`, `~`) stay
what the value makes of them.
"""

from __future__ import annotations

from typing import Any

from netinit.golang.goyaml import events
from netinit.golang.template.template import Rendering
from netinit.inject.guard.moulds import forget_moulds, mould_of
from netinit.inject.guard.outline import checked, kept_wants
from netinit.inject.guard.parts import BreakOut, Foreign

__all__ = ["BreakOut", "Foreign", "forget", "read"]


def read(rendering: Rendering) -> Any:
    """The tree of a rendered text; None for an empty one.

    Raises ParseError where the template itself gives no YAML, BreakOut where foreign parts leave their places.
    """
    places = [(place, action) for place, action in rendering.marks if rendering.parts[place]]
    if not places:
        return events.build(events.scan(rendering.text)).document()
    mould, words = mould_of(rendering, places)
    return checked(rendering, places)[0] if mould is None else mould.filled(words)


def forget() -> None:
    """Lets go of what is kept of the templates read so far: a server has new ones, and the old would only take memory."""
    kept_wants.cache_clear()
    forget_moulds()
