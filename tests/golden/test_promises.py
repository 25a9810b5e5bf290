"""Which rules keep which promise: what a kernel without a feature does without, or where it says that it cannot do without it."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from core import FAMILIES, IPV4, IPV6, plan, write_plan
from netinit.options import Options
from netinit.rules.model import PROMISES, Plan
from netinit.rules.promises import leave_out

FOLDER = Path(__file__).parent / "promises"
ALL = {"inbound_ports": "*", "outbound_cidrs": "*", "ipv6": "on", "redirect_dns": True, "capture_all_dns": True, "virtual_interfaces": ("tap0",)}
OPTIONS = {
    "sidecar": {**ALL, "outbound_cidrs": "10.0.0.0/8,fd00::/8", "redirect_outbound_udp": "514:10514", "exclude_inbound_ports": "22", "exclude_outbound_ports": "25"},
    "tproxy": {**ALL, "inbound_mode": "TPROXY", "redirect_forwarded_dns": True, "drop_invalid": True},
    "classic": {**ALL, "layout": "classic", "redirect_dns": False, "capture_all_dns": False},
    "classic-tproxy": {"layout": "classic", "inbound_mode": "TPROXY", "inbound_ports": "80", "outbound_cidrs": "*", "ipv6": "on"},
    "ambient": {"layout": "ambient", "ipv6": "on", "redirect_dns": True},
    "ipv6-rejected": {**ALL, "ipv6": "reject", "reject_quic": True, "log_rules": True},
}  # fmt: skip


LEFT = {
    **{promise: dict.fromkeys(FAMILIES, frozenset({promise})) for promise in PROMISES},
    "reuse and segments": dict.fromkeys(FAMILIES, frozenset({"reuse", "segments"})),
    "reuse in IPv6": {IPV6: frozenset({"reuse"})},
    "all in IPv4": {IPV4: frozenset(PROMISES)},
    "reuse in IPv4, all in IPv6": {IPV4: frozenset({"reuse"}), IPV6: frozenset(PROMISES)},
}


def list_rules(made: Plan) -> list[str]:
    return [
        f"{family.name} {table} {chain} {text}"
        for family in FAMILIES for table, chains in write_plan(made, family).items() for chain, written in chains.items()
        for text in ([f"{one.text}  # {one.rule.promise or 'needed'}" for one in written.rules] or ["(empty)"])
    ]  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_the_promises_of_rules_are_those_on_file(name, golden):
    golden({FOLDER / f"{name}.txt": "".join([f"{line}\n" for line in list_rules(plan(Options(**OPTIONS[name])))])})


def list_record(made: Plan) -> list[str]:
    """What the record says, and the warning."""
    said = [f"{chain} {rule.origin_label}: {rule.comment}" for _, chain, rule in made.walk() if chain.startswith("ISTIO_OPEN")]
    return [*said, *made.warnings]


@pytest.mark.parametrize("name", OPTIONS)
def test_what_is_left_where_promises_give_way_is_on_file(name, golden):
    made = plan(Options(**OPTIONS[name]))
    pages = []
    for what, left in LEFT.items():
        reduced = leave_out(made, left)
        changed = list(difflib.unified_diff(list_rules(made), list_rules(reduced), n=0, lineterm=""))[2:]
        pages.append("\n".join([f"without {what}", *changed, *list_record(reduced), ""]))
    golden({FOLDER / f"{name}-without.txt": "\n".join(pages)})
