"""The rules of earlier releases of Istio for the same options: the first release's whole, and of each later one what changed.

    pytest tests/golden/test_release_plans.py --update-golden

writes them anew; what changed is then for a person to read.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from netinit.options import Options
from netinit.rules.infer_options import native_plan, release_plans
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import ALWAYS, IpRule, Plan
from netinit.rules.nft import render_script
from release_options import SETS, settle

FOLDER = Path(__file__).parent / "releases"


def lines_of(made: Plan) -> list[str]:
    """Every rule with its option and its purpose, and what is beside the rules."""
    listed = []
    for family in made.families:
        for table, chains in write_plan(made, family).items():
            for name, chain in chains.items():
                listed += [f"{family.name} {table} {name} {one.text}  # {one.rule.origin_label}: {one.rule.comment}" for one in chain.rules]
                listed += [] if chain.rules else [f"{family.name} {table} {name}"]
    listed += [f"{one.family.name} {f'rule {one.describe()}' if isinstance(one, IpRule) else f'route in {one.table}'}" for one in (*made.ip_rules, *made.routes)]
    return [*listed, *(f"address {one.cidr}" for one in made.addresses), *made.warnings, f"families: {', '.join(one.name for one in made.families)}"]


@pytest.mark.parametrize("name", SETS)
def test_what_each_release_changed_is_on_file(name, golden):
    known: list[str] = []
    pages = []
    for minor in (*release_plans.GENERATIONS, release_plans.AFTER):
        made = release_plans.plan(release_plans.settle_as(settle(name), minor), minor)
        assert made.made_from, "else no command can say what it would be with other options"
        assert {one.origin_label for *_, one in made.walk() if one.origin != ALWAYS and one.origin_label != Options.flag(one.origin.option).label} == set()
        listed = lines_of(made)
        changed = list(difflib.unified_diff(known, listed, n=0, lineterm=""))[2:]
        pages.append("\n".join([f"1.{minor}", *(changed if known else listed), ""]))
        known = listed
    golden({FOLDER / f"{name}.txt": "\n".join(pages)})


@pytest.mark.parametrize("name", SETS)
def test_istio_s_native_rules_are_on_file(name, golden):
    options = native_plan.settle_as(settle(name))
    golden({FOLDER / f"{name}.nft": render_script(native_plan.plan(options), comments=True)})


@pytest.mark.parametrize("minor", [6, 7, 8])
def test_where_the_agent_resolves_its_port_takes_the_place_of_the_proxy_s(minor):
    options = release_plans.settle_as(settle("dns"), minor)
    of_proxy, of_agent = (lines_of(release_plans.plan(options, minor, *port)) for port in ((), (release_plans.AGENT_LISTENER,)))
    assert of_agent == [line.replace("15053", "15013") for line in of_proxy]
    assert of_agent != of_proxy
