"""Sweeps: `make test` takes a few of their cases, so chosen that each has its part in one; `make prove` sets NETINIT_SWEEPS and takes all."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Cases = TypeVar("Cases")
Test = TypeVar("Test", bound=Callable[..., object])
WHOLE = bool(os.environ.get("NETINIT_SWEEPS"))


def choose(few: Cases, whole: Cases) -> Cases:
    """The cases, or their number, of this run."""
    return whole if WHOLE else few


def combine(*dimensions: Iterable[Any]) -> list[tuple[Any, ...]]:
    """All combinations; in `make test` as many as the longest dimension has values, in which every value of each is."""
    values = [list(one) for one in dimensions]
    few = [  # from each round to the next, the dimensions are shifted against each other
        tuple(one[(row + place * (row // len(one))) % len(one)] for place, one in enumerate(values)) for row in range(max(map(len, values)))
    ]
    return choose(few, list(itertools.product(*values)))


def pairs(ones: Iterable[Any], others: Iterable[Any]) -> list[tuple[Any, Any]]:
    """All pairs; in `make test` as many as there are of the more numerous kind, in which everything of both is."""
    return [(one, other) for one, other in combine(ones, others)]


def in_turn(name: str | tuple[str, ...], values: Sequence[Any], number: int = 1) -> Callable[[Test], Test]:
    """A decorator for many tests of a module: each gets all values of a parameter; in `make test` the next `number` of them."""
    turns = itertools.cycle(values)

    def decorate(test: Test) -> Test:
        return pytest.mark.parametrize(name, choose(list(itertools.islice(turns, number)), list(values)))(test)

    return decorate


def fixtures_in_turn(**dimensions: Sequence[Any]) -> Callable[[pytest.Metafunc], None]:
    """A module's `pytest_generate_tests`: each test gets all values of these fixtures; in `make test` the next one of each that it asks for."""
    turns = {name: itertools.cycle(values) for name, values in dimensions.items()}

    def generate(metafunc: pytest.Metafunc) -> None:
        for name, values in dimensions.items():
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, choose([next(turns[name])], list(values)), indirect=True)

    return generate


def together(names: str | tuple[str, ...], rows: Iterable[Any], **ids: Any) -> Callable[[Test], Test]:
    """A test's table as `pytest.mark.parametrize` has it, of rows that take less time than a test of their own: all are tried in one.

    A failure names its row. `make prove` makes a test of each, and so does `make test` where a row has marks.
    """
    table = list(rows)
    words = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    if WHOLE or any(getattr(row, "marks", ()) for row in table):
        return pytest.mark.parametrize(words if len(words) > 1 else words[0], table, **ids)

    def decorate(test: Test) -> Test:
        def try_all(**fixtures: object) -> None:
            skipped = None
            for row in table:
                values = getattr(row, "values", row) if isinstance(row, type(pytest.param())) else row
                given = dict(zip(words, values if len(words) > 1 or values is not row else (values,), strict=True))
                try:
                    test(**given, **fixtures)
                except pytest.skip.Exception as reason:
                    skipped = reason
                except BaseException as error:
                    error.add_note(f"with {given}")
                    raise
            if skipped:
                raise skipped

        functools.update_wrapper(try_all, test)
        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in words]
        try_all.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        del try_all.__wrapped__  # type: ignore[attr-defined]
        return try_all  # type: ignore[return-value]

    return decorate


def crossed(**dimensions: Iterable[Any]) -> pytest.MarkDecorator:
    """The parameters of a test in all combinations; in `make test` in as many as it takes for every value of each, see `combine`."""
    return pytest.mark.parametrize(",".join(dimensions), combine(*dimensions.values()) if len(dimensions) > 1 else list(*dimensions.values()))
