"""What listed rules are known by: where one leads, by the key that `normalise` makes, and the text of one of others."""

from __future__ import annotations

from netinit.base.net import IPV4
from netinit.rules.model import OWNED_CHAINS
from netinit.rules.targets import Jump, Target

DOCKER_RULE = "-d 127.0.0.11/32 -j DOCKER_OUTPUT"  # Docker's resolver; the rules for DNS come before it
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
