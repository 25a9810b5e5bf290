"""Find the rules of a plan that native nft tables cannot have, by trying each. Loaded only after the kernel refused the plan."""

from __future__ import annotations

from collections.abc import Callable

from netinit.base.errors import KernelFeatureError
from netinit.base.net import Family
from netinit.rules.model import Chain, Plan, Rule, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.rules.promises import Unsupported


def try_each(plan: Plan, check: Callable[[Plan], None]) -> Unsupported:
    """Return the rules that native nft tables cannot have, by a transaction for each that the kernel only checks.

    Raises the errors of `check` but a KernelFeatureError that names what the kernel lacks.
    """
    found: dict[Family, dict[Rule, str]] = {}
    for table, chain, rule in plan.walk():
        called = (Chain(name=rule.target.calls),) if rule.target.calls else ()
        alone = plan.replace(tables=(Table(name=table, chains=(Chain(name=chain, rules=(rule,)), *called)),))
        try:
            check(alone)
        except KernelFeatureError as error:
            if not error.missing:  # nf_tables itself
                raise
            for family in rule.families:
                found.setdefault(family, {})[rule] = error.missing
    return found
