"""Plans of a layout in which each option has values of its own, so that a value in a rule shows which option it is of."""

from __future__ import annotations

from contextlib import suppress

from netinit.base.errors import OptionError
from netinit.options import Interception, Options, offline
from netinit.rules.layouts import plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from netinit.options import SettledOptions
    from netinit.options.kinds import Flag
    from netinit.rules.model import Plan


def flags_of(layout: str) -> dict[str, Flag]:
    """Return the options of a layout by their fields."""
    return {flag.field: flag for flag in Interception.flags if flag.applies_to(layout)}


def make_samples(fields: Iterable[str]) -> dict[str, Any]:
    """Return values for these fields: of a list two, of addresses one of each family. Fields of an unusual kind have none."""
    numbers = {flag.field: number for number, flag in enumerate(Interception.flags)}
    found = {field: _make_sample(Interception.flag(field), numbers[field]) for field in fields}
    return {field: sample for field, sample in found.items() if sample is not None}


def make_plans(
    layout: str, variants: Iterable[Mapping[str, Any]], make: Callable[[SettledOptions], Plan] = plan
) -> Iterator[tuple[dict[str, Any], Plan]]:
    """Yield the fields of each variant that this layout has, and the plan that `make` makes of them; of valid ones alone."""
    flags = flags_of(layout)
    for variant in variants:
        given = {field: value for field, value in variant.items() if field in flags}
        try:
            settled = Options(layout=layout, **given).settle(offline())
        except OptionError:  # without an option that this layout needs
            continue
        yield given, make(settled)


def items_of(value: Any) -> tuple[Any, ...]:
    """Return the elements of a list, or the only value."""
    return value if type(value) is tuple else (value,)


def _make_sample(flag: Flag, number: int) -> Any:
    first = 41000 + 2 * number
    for text in (f"{first},{first + 1}", f"{first}", f"198.18.{number}.0/28,2001:db8:{number}::/64",
                 f"198.19.{number}.1,2001:db8:{number}::1", f"127.{number}.0.0/16"):  # fmt: skip
        with suppress(ValueError):
            value = flag.kind.read(text)
            return None if isinstance(value, (bool, str)) else value
    return None
