"""Listings of rules for the tests, out of lines such as `nat OUTPUT -j ISTIO_OUTPUT`."""

from __future__ import annotations

from collections.abc import Mapping

from core import parse_listing, parse_rule, write_plan
from netinit.rules.infer_options import InferredOptions, from_iptables

BUILTIN = {
    "raw": ("PREROUTING", "OUTPUT"),
    "mangle": ("PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"),
    "nat": ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"),
    "filter": ("INPUT", "FORWARD", "OUTPUT"),
}


def make_listing(text: str, policies: Mapping[str, str] | None = None):
    """What iptables-save lists: a line a rule, or a chain alone; `policies` by table and chain, else ACCEPT."""
    tables: dict[str, dict[str, list[str]]] = {}
    for line in text.strip().splitlines():
        table, chain, rule = (*line.strip().split(" ", 2), "")[:3]
        tables.setdefault(table, {}).setdefault(chain, []).extend([rule] if rule else [])
    lines = []
    for table, chains in tables.items():
        lines.append(f"*{table}")
        for chain in dict.fromkeys((*BUILTIN[table], *chains)):
            policy = (policies or {}).get(f"{table} {chain}", "ACCEPT") if chain in BUILTIN[table] else "-"
            lines.append(f":{chain} {policy} [0:0]")
        lines += [f"-A {chain} {rule}" for chain, rules in chains.items() for rule in rules]
        lines.append("COMMIT")
    return parse_listing("".join([f"{line}\n" for line in lines]))


def listing_of(plan, family) -> str:
    """The lines of a namespace in which the plan is programmed and nothing else."""
    return "\n".join(
        f"{table} {name} {text}"
        for table, chains in write_plan(plan, family).items()
        for name, chain in chains.items()
        for text in chain.texts or [""]
    )


def from_listings(listings, routing) -> InferredOptions:
    """The options that the rules of listings show."""
    rules = {
        family: {
            (table, chain): [parse_rule(text, family) for text in texts]
            for table, listed in listing.items() for chain, texts in listed.rules.items()
        }
        for family, listing in listings.items()
    }  # fmt: skip
    return from_iptables(rules, routing)
