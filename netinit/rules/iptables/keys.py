"""What the key of a rule shows, which `normalise` makes: where it leads."""

from __future__ import annotations

from netinit.base.net import IPV4
from netinit.rules.model import OWNED_CHAINS
from netinit.rules.targets import Jump, Target

Key = tuple[object, ...]  # of a rule: its matches and its target


def target_of(key: Key) -> str:
    """Return the chain that a rule jumps to, or its target's name; empty if it has none."""
    target = key[-1]
    if isinstance(target, Jump):
        return target.chain
    assert isinstance(target, Target)  # noqa: S101 - the last of a key is one
    text = target.xt(IPV4)
    return text.partition(" ")[0] if not hasattr(target, "targets") else f"[{text}]"


def jumps_to_ours(key: Key) -> bool:
    """Whether a rule jumps to a chain of ours."""
    return isinstance(key[-1], Jump) and key[-1].chain in OWNED_CHAINS
