"""What statements of nft's JSON do to a packet, read into targets; and the model's names of tables and chains."""

from __future__ import annotations

import json
from typing import Any

from netinit.base.net import FULL_MASK
from netinit.rules.foreign_targets import Observe, UnknownTarget
from netinit.rules.model import BUILTIN_CHAINS, ISTIO_PRERT
from netinit.rules.nft import PREFIXES
from netinit.rules.nft.marks import CONNECTION_MARK, MARK, read_change
from netinit.rules.targets import (
    Accept,
    Drop,
    Jump,
    LogTarget,
    Redirect,
    Reject,
    RestoreMark,
    Return,
    SaveMark,
    SetMark,
    Target,
    Tproxy,
    TrackZone,
    spell_chain,
)

Json = dict[str, Any]
_WORDS = {"accept": Accept(), "drop": Drop(), "return": Return()}


def model_table(name: str) -> str:
    """The table's name in the model."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def model_name(chain: str) -> str:
    """The chain's name in the model."""
    if chain == spell_chain(ISTIO_PRERT):
        return ISTIO_PRERT
    upper = chain.upper()
    return upper if upper in BUILTIN_CHAINS else upper.replace("-", "_")


def read_target(statements: list[Json]) -> Target:
    """What the statements behind the conditions do; more than one of them is known for TPROXY alone."""
    if not statements:
        return Observe(text="")
    read = _read_tproxy(statements) if len(statements) > 1 else _read_statement(statements[0])
    return read or UnknownTarget(text=" ".join([json.dumps(statement) for statement in statements]))


def _read_statement(statement: Json) -> Target | None:
    ((kind, content),) = statement.items()
    if kind in _WORDS:
        return _WORDS[kind]
    if kind in ("jump", "goto"):
        return Jump(chain=model_name(content["target"]), goto=kind == "goto")
    if (
        kind == "redirect"
        and isinstance(content, dict)
        and set(content) == {"port"}
        and isinstance(content["port"], int)
    ):
        return Redirect(port=content["port"])
    if kind == "log":
        return _read_log(content)
    if kind == "reject":
        if content == {"type": "tcp reset"}:
            return Reject(message="tcp-reset")
        return Reject() if isinstance(content, dict) and content.get("expr") == "port-unreachable" else None
    return _read_assignment(content) if kind == "mangle" else None


def _read_log(content: Any) -> Target | None:
    if not isinstance(content, dict) or not set(content) <= {"prefix", "group"} or not isinstance(content.get("prefix"), str):
        return None
    return LogTarget(prefix=content["prefix"], group=int(content.get("group", 0)))


def _read_assignment(content: Json) -> Target | None:
    key, value = content["key"], content["value"]
    if key == MARK and value == CONNECTION_MARK:
        return RestoreMark()
    if key == CONNECTION_MARK and value == MARK:
        return SaveMark()
    if change := read_change(key, value):
        return change
    if not isinstance(value, int) or not 0 <= value <= FULL_MASK:
        return None
    if key == {"ct": {"key": "zone"}}:
        return TrackZone(zone=value)
    return SetMark(value=value, connection=key == CONNECTION_MARK) if key in (MARK, CONNECTION_MARK) else None


def _read_tproxy(statements: list[Json]) -> Target | None:
    """`tproxy … meta mark set … accept`; the rule behind it drops what has no transparent socket, as iptables' TPROXY does."""
    if [next(iter(statement)) for statement in statements] != ["tproxy", "mangle", "accept"]:
        return None
    tproxy, mark = statements[0]["tproxy"], _read_assignment(statements[1]["mangle"])
    if set(tproxy) - {"family"} != {"port"} or not isinstance(tproxy["port"], int) or not isinstance(mark, SetMark):
        return None
    return Tproxy(port=tproxy["port"], mark=mark.value) if not mark.connection else None
