"""A plan as `nft --json list ruleset` prints it once it is programmed, made without nft: for tests without a kernel."""

from __future__ import annotations

import json
import re

from netinit.rules.model import Plan
from netinit.rules.nft import write_plan

PRIORITIES = {"dstnat": -100, "-100": -100, "mangle": -150, "raw": -300, "filter": 0}


def as_json(plan: Plan, packets: int = 0) -> str:
    """The JSON of all tables, each rule with this counter."""
    items: list[dict] = [{"metainfo": {"version": "1.0.6", "json_schema_version": 1}}]
    for table, chains in write_plan(plan).items():
        where = {"family": "inet", "table": table}
        items.append({"table": {"family": "inet", "name": table, "handle": 1}})
        items += [
            {"chain": {**where, "name": name, "handle": 1, **_hook(chain.hook)}} for name, chain in chains.items()
        ]
        for name, chain in chains.items():
            items += [
                {"rule": {**where, "chain": name, "handle": 2, "expr": _statements(rule.text, packets)}}
                for rule in chain.rules
            ]
    return json.dumps({"nftables": items})


def _hook(text: str) -> dict:
    found = re.match(r"type (\w+) hook (\w+) priority ([\w-]+); policy (\w+);", text)
    return {"type": found[1], "hook": found[2], "prio": PRIORITIES[found[3]], "policy": found[4]} if found else {}


GRAMMAR = [
    (r"tcp flags (!= )?(\S+) / (\S+)", "flags"),
    (r"tcp flags ! (\S+)", "no flags"),
    (r"fib (\w+) type (!= )?(\S+)", "fib"),
    (r"ct status (! )?(\S+)(?= |$)", "status"),
    (r"ct direction (\S+)", "direction"),
    (r"reject with tcp reset", "reset"),
    (
        r"(iifname|oifname|meta \w+|ct state|ct mark|(?:ip|ip6|tcp|udp) \w+|socket \w+) (?:& (0x\w+) )?(!= |== |<= )?(\{ .*? \}|\S+)(?= |$)",
        "match",
    ),
    (r"counter", "counter"),
    (r"(jump|goto) (\S+)", "jump"),
    (r"(return|accept|drop)(?= |$)", "verdict"),
    (r"redirect to :(\d+)", "redirect"),
    (r"tproxy (\w+) to :(\d+)", "tproxy"),
    (r"limit rate (\d+)/second burst (\d+) packets", "limit"),
    (r"log prefix \"([^\"]*)\"(?: group (\d+))?", "log"),
    (r"reject with (\w+) type (\S+)", "reject"),
]
ASSIGNMENT = re.compile(r"(meta|ct) (mark|zone) set (?:(meta|ct) mark(?: & (\S+) \| (\S+))?|(\S+)) ?")


def _statements(text: str, packets: int) -> list[dict]:
    found: list[dict] = []
    while text:
        assigned = ASSIGNMENT.match(text)
        if assigned:
            value: object = {assigned[3]: {"key": "mark"}} if assigned[3] else int(assigned[6], 0)
            if assigned[4]:
                value = {"|": [{"&": [value, int(assigned[4], 0)]}, int(assigned[5], 0)]}
            found.append({"mangle": {"key": {assigned[1]: {"key": assigned[2]}}, "value": value}})
            text = text[assigned.end() :]
            continue
        match, kind = next((m, kind) for pattern, kind in GRAMMAR if (m := re.match(pattern, text)))
        found.append(_statement(match, kind, packets))
        text = text[match.end() :].lstrip(" ")
    return found


def _of_connection(match: re.Match[str], kind: str) -> dict | None:
    if kind == "flags":
        masked = {"&": [{"payload": {"protocol": "tcp", "field": "flags"}}, match[3].split(",")]}
        return {"match": {"op": "!=" if match[1] else "==", "left": masked, "right": match[2]}}
    if kind == "no flags":
        words = match[1].split(",")
        return {"match": {"op": "!", "left": {"payload": {"protocol": "tcp", "field": "flags"}}, "right": words if len(words) > 1 else words[0]}}
    if kind == "fib":
        return {"match": {"op": "!=" if match[2] else "==", "left": {"fib": {"result": "type", "flags": [match[1]]}}, "right": match[3]}}
    if kind == "status":
        return {"match": {"op": "!" if match[1] else "in", "left": {"ct": {"key": "status"}}, "right": match[2]}}
    if kind == "direction":
        return {"match": {"op": "==", "left": {"ct": {"key": "direction"}}, "right": match[1]}}
    return {"reject": {"type": "tcp reset"}} if kind == "reset" else None


def _statement(match: re.Match[str], kind: str, packets: int) -> dict:
    if found := _of_connection(match, kind):
        return found
    if kind == "counter":
        return {"counter": {"packets": packets, "bytes": 60 * packets}}
    if kind == "verdict":
        return {match[1]: None}
    if kind == "jump":
        return {match[1]: {"target": match[2]}}
    if kind == "redirect":
        return {"redirect": {"port": int(match[1])}}
    if kind == "tproxy":
        return {"tproxy": {"family": match[1], "port": int(match[2])}}
    if kind == "limit":
        return {"limit": {"rate": int(match[1]), "burst": int(match[2]), "per": "second"}}
    if kind == "log":
        return {"log": {"prefix": match[1], **({"group": int(match[2])} if match[2] else {})}}
    if kind == "reject":
        return {"reject": {"type": match[1], "expr": match[2]}}
    operator = (match[3] or "==").strip()
    left = {"&": [_left(match[1]), int(match[2], 0)]} if match[2] else _left(match[1])
    if match[1] == "ct state":
        states = match[4].split(",")
        return {"match": {"op": "in", "left": left, "right": states if len(states) > 1 else states[0]}}
    values = [_value(word) for word in match[4].strip("{} ").split(", ")]
    return {"match": {"op": operator, "left": left, "right": {"set": values} if len(values) > 1 else values[0]}}


def _left(text: str) -> dict:
    kind, _, key = text.partition(" ")
    if kind in ("iifname", "oifname"):
        return {"meta": {"key": kind}}
    return {kind: {"key": key}} if kind in ("meta", "ct", "socket") else {"payload": {"protocol": kind, "field": key}}


def _value(word: str):
    if word.isdigit() or word.startswith("0x"):
        return int(word, 0)
    if "/" in word:
        address, _, length = word.partition("/")
        return {"prefix": {"addr": address, "len": int(length)}}
    if re.fullmatch(r"[0-9]+-[0-9]+", word):
        return {"range": [int(end) for end in word.split("-")]}
    return {"range": word.split("-")} if re.fullmatch(r"[0-9a-f.:]+-[0-9a-f.:]+", word) else word.strip('"')
