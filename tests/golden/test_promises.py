"""Which rules keep which promise: what a kernel without a feature does without, or where it says that it cannot do without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from core import FAMILIES, plan, write_plan
from netinit.options import Options

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


@pytest.mark.parametrize("name", OPTIONS)
def test_the_promises_of_rules_are_those_on_file(name, golden):
    made = plan(Options(**OPTIONS[name]))
    lines = [
        f"{family.name} {table} {chain} {one.text}  # {one.rule.promise or 'needed'}"
        for family in FAMILIES for table, chains in write_plan(made, family).items() for chain, written in chains.items() for one in written.rules
    ]  # fmt: skip
    golden({FOLDER / f"{name}.txt": "".join([f"{line}\n" for line in lines])})
