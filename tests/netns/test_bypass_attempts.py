"""Ways past the proxy that an attacker with ordinary means can try, each in every mode; one backend after the other, in `make prove` all of them.

Two kinds of rules: the default ones, which must let nothing past, and Istio's own (`--istio-exact`), for which the attempts that
are known to succeed must succeed: that shows that an attempt is real.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator

import pytest

import bypass_cooperation
import bypass_inbound
import bypass_outbound
import bypass_sockets
from bypass_world import (
    BACKENDS,
    CAPTURED,
    DEFAULT_IS_EXACT,
    EXACT,
    EXPECTING,
    LEAKED,
    MODES,
    NOBODY,
    NOT_ALLOWED,
    OTHER_LAYOUTS,
    SETTLED,
    Attempt,
    World,
)
from programming import needs
from sweeps import choose, together

TURNS = itertools.cycle(BACKENDS)


@pytest.fixture(scope="session")
def worlds() -> Iterator[dict[tuple[str, str, bool], World]]:
    """Pods that serve all attempts of this process; no attempt uses another's ports."""
    made: dict[tuple[str, str, bool], World] = {}
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: [world.close() for world in made.values()])
        yield made


def enter(worlds: dict[tuple[str, str, bool], World], mode: str, backend: str, *, exact: bool) -> World:
    needs(backend)
    key = (mode, backend, exact and not DEFAULT_IS_EXACT)
    if key not in worlds:
        worlds[key] = World(mode, backend, *([EXACT] if key[2] else [])).__enter__()
    worlds[key].verdict(0)
    return worlds[key]


def cases(attempts: tuple[Attempt, ...], *, exact: bool) -> list:
    """Every attempt in each mode and IP version, on the next backend or on all; with Istio's rules those that succeed there."""
    found = []
    for attempt in attempts:
        for mode in MODES:
            for version in attempt.versions:
                open_with_istio = (mode, version) in attempt.istio
                if exact and not open_with_istio:
                    continue
                marks = [pytest.mark.xfail(strict=True, raises=AssertionError, reason="no rule stops it yet")] if open_with_istio and not exact and DEFAULT_IS_EXACT else []
                special = [backend for backend in BACKENDS if exact and (mode, version, backend) in attempt.istio]
                for backend in choose(special or [next(TURNS)], BACKENDS):
                    named = f"{attempt.what}-{mode}-{backend}-ipv{version}"
                    expected = (attempt.with_istio(mode, version, backend),) if exact else attempt.expected
                    found.append(pytest.param(attempt, mode, backend, version, expected, id=named, marks=marks))
    return found


APPLICATIONS = (*bypass_outbound.ATTEMPTS, *bypass_cooperation.ATTEMPTS, *bypass_sockets.ATTEMPTS)


def check(world: World, attempt: Attempt, version: int, expected: tuple[str, ...]) -> None:
    world.patience = SETTLED if {NOBODY, LEAKED} & set(expected) else EXPECTING
    found = attempt.run(world, version)
    assert found in expected, f"{attempt.what} (IPv{version}, {world.mode}, {world.backend}): {found}, and must be: {' or '.join(expected)}"


@together(("attempt", "mode", "backend", "version", "expected"), cases(bypass_inbound.ATTEMPTS, exact=False))
def test_a_peer_does_not_get_past_the_proxy(require_netns, worlds, attempt, mode, backend, version, expected):
    check(enter(worlds, mode, backend, exact=False), attempt, version, expected)


@together(("attempt", "mode", "backend", "version", "expected"), cases(APPLICATIONS, exact=False))
def test_an_application_does_not_get_past_the_proxy(require_netns, worlds, attempt, mode, backend, version, expected):
    check(enter(worlds, mode, backend, exact=False), attempt, version, expected)


@together(("attempt", "mode", "backend", "version", "expected"), cases((*bypass_inbound.ATTEMPTS, *APPLICATIONS), exact=True))
def test_istios_own_rules_let_it_past(require_netns, worlds, attempt, mode, backend, version, expected):
    check(enter(worlds, mode, backend, exact=True), attempt, version, expected)


def cases_of_layouts() -> list:
    """Every attempt in each other layout, on the next backend or on all."""
    attempts = (*bypass_inbound.ATTEMPTS, *APPLICATIONS)
    places = [(attempt, mode, backend) for attempt in attempts for mode in OTHER_LAYOUTS for backend in choose([next(TURNS)], BACKENDS)]
    return [pytest.param(*place, id="-".join((place[0].what, *place[1:]))) for place in places]


@together(("attempt", "mode", "backend"), cases_of_layouts())
def test_nobody_gets_past_the_proxy_in_another_layout(require_netns, worlds, attempt, mode, backend):
    """More is captured there, or has no address: ::6 is the current layout's alone."""
    for version in attempt.versions:
        world = enter(worlds, mode, backend, exact=False)
        world.patience = SETTLED if {NOBODY, LEAKED} & set(attempt.expected) else EXPECTING
        found = attempt.run(world, version)
        assert found in {CAPTURED, NOBODY, *attempt.expected, f"{NOT_ALLOWED}: Cannot assign requested address"}, f"IPv{version}: {found}"
