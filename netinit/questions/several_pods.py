"""Says once what several pods have in common. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from netinit.base.tables import count

MAX_NAMED = 5  # pods in a message


def name_pods(names: Sequence[str]) -> str:
    """`6 pods: Deployment "shop/a", … and 1 more`; one pod is its name."""
    if len(names) == 1:
        return names[0]
    return f"{count(len(names), 'pod')}: {list_some(names)}"


def list_some(texts: Sequence[str]) -> str:
    """The first texts, and how many more there are."""
    more = f" and {len(texts) - MAX_NAMED} more" if len(texts) > MAX_NAMED else ""
    return ", ".join(texts[:MAX_NAMED]) + more


def gather(said: Iterable[tuple[str, Iterable[str]]]) -> tuple[str, ...]:
    """Return the texts about pods, of which each may begin with its pod's name, with all the pods that each is about.

    `said`: the name of each pod, and its texts.
    """
    found: dict[str, dict[str, None]] = {}
    bare: list[str] = []
    for name, texts in said:
        for text in texts:
            rest = text.removeprefix(f"{name}: ")
            if rest == text and rest not in found:
                bare.append(text)
            found.setdefault(rest, {})[name] = None
    return tuple([text if text in bare else _join(list(names), text) for text, names in found.items()])


def _join(names: Sequence[str], text: str) -> str:
    return f"{names[0]}: {text}" if len(names) == 1 else f"{name_pods(names).replace(': ', ' (', 1)}): {text}"
