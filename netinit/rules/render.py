"""A plan as text: input for iptables-restore (what that cannot program is a comment), shell commands, JSON, nft."""

from __future__ import annotations

from netinit.base.net import Family
from netinit.rules.iptables.write import add_rules, write_plan
from netinit.rules.iptables.write import render_restore as write_restore
from netinit.rules.model import BUILTIN_CHAINS, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

SCHEMA_VERSION = 1
FORMATS = ("restore", "commands", "json", "nft")


def render(
    plan: Plan, form: str = "restore", families: Sequence[Family] | None = None, *, comments: bool = False
) -> str:
    """Return the plan in one of FORMATS; nft's always has both families. Raises ValueError for another format."""
    if form in ("restore", "commands"):
        return (render_restore if form == "restore" else render_commands)(plan, families, comments=comments)
    if form == "json":
        return render_json(plan, families)
    if form == "nft":
        from netinit.rules.nft import render_script

        return render_script(plan, comments=comments)
    raise ValueError(f"{form!r} is not one of {', '.join(FORMATS)}")


def render_restore(plan: Plan, families: Sequence[Family] | None = None, *, comments: bool = False) -> str:
    """Return input for `iptables-restore --noflush` (`ip6tables-restore`), a section for each family."""
    sections = []
    for family in plan.families if families is None else families:
        rules = write_restore(write_plan(plan, family, comments=comments))
        besides = "".join([f"# also: {command}\n" for command in ip_commands(plan, family)])
        sections.append(f"# {family.name}, for {family.program}-restore --noflush\n{rules}{besides}")
    return "".join(sections)


def render_commands(plan: Plan, families: Sequence[Family] | None = None, *, comments: bool = False) -> str:
    """Return shell lines that program the plan in a namespace without rules of ours."""
    lines = []
    for family in plan.families if families is None else families:
        for table, chains in write_plan(plan, family, comments=comments).items():
            commands = [f"-N {name}" for name in chains if name not in BUILTIN_CHAINS]
            commands += [command for name, chain in chains.items() for command in add_rules(name, chain.placed)]
            # a shell keeps the backslash before this quote
            lines += [f"{family.program} -t {table} {command}".replace("\\'", "'") for command in commands]
        lines += ip_commands(plan, family)
    return "".join([line + "\n" for line in lines])


def ip_commands(plan: Plan, family: Family) -> list[str]:
    """Return the address, policy rule and route as iproute2 commands."""
    commands = [f"address add {a.cidr} dev lo" for a in plan.addresses if a.family is family]
    commands += [f"rule add {r.describe()}" for r in plan.ip_rules if r.family is family]
    commands += [f"route add local default dev lo table {r.table}" for r in plan.routes if r.family is family]
    return [f"ip -{family.version} {command}" for command in commands]


def render_json(plan: Plan, families: Sequence[Family] | None = None) -> str:
    """Return the plan as JSON (data/plan.schema.json); `hash` depends only on what is programmed, in both families."""
    import json

    return json.dumps(describe_plan(plan, families), indent=2) + "\n"


def describe_plan(plan: Plan, families: Sequence[Family] | None = None) -> dict[str, Any]:
    """Return the plan as plain data, see data/plan.schema.json."""
    shown = plan.families if families is None else tuple(families)
    written = [(family, write_plan(plan, family)) for family in shown]
    return {
        "schema": SCHEMA_VERSION,
        "hash": hash_plan(plan),
        "layout": plan.layout,
        "families": [family.name for family in shown],
        "chains": [
            {"family": family.name, "table": table, "name": name, "builtin": name in BUILTIN_CHAINS}
            for family, tables in written for table, chains in tables.items() for name in chains
        ],
        "rules": [
            {
                "family": family.name, "table": table, "chain": name, "number": number, "inserted": number <= chain.inserted,
                "text": one.text, "comment": one.rule.comment, "origin": one.rule.origin_label,
            }
            for family, tables in written for table, chains in tables.items() for name, chain in chains.items()
            for number, one in enumerate(chain.rules, 1)
        ],
        "ip_rules": [
            {"family": rule.family.name, "fwmark": rule.mark, "table": rule.table}
            | ({"mask": rule.mask, "priority": rule.priority} if rule.priority else {})
            for rule in plan.ip_rules
            if rule.family in shown
        ],
        "routes": [
            {"family": r.family.name, "table": r.table, "type": "local", "destination": "default", "device": "lo"}
            for r in plan.routes
            if r.family in shown
        ],
        "addresses": [
            {"family": address.family.name, "cidr": address.cidr, "device": "lo"}
            for address in plan.addresses
            if address.family in shown
        ],
        "warnings": list(plan.warnings),
    }  # fmt: skip


def hash_plan(plan: Plan) -> str:
    """Return `sha256:` and the digest of what the plan programs."""
    from hashlib import sha256

    return f"sha256:{sha256(render_commands(plan).encode()).hexdigest()}"
