"""What the agent remembers of a pod's changes, and from when on it says so: each bound at its edge."""

from __future__ import annotations

import pytest

from netinit.node.pod_history import LOOKS, MANY, QUIET, SPACING, SPAN, PodHistory

HERE = (1, 2)


def follow(*looks, namespace=HERE):
    """The history after looks, each at a time and with a generation."""
    history = PodHistory()
    for at, generation in looks:
        history.note_look(namespace, generation, at, planned=True, woken=False)
    return history


def test_two_looks_into_a_namespace_that_was_not_found_are_not_compared():
    history = follow((1.0, 3), namespace=None)
    assert history.note_look(None, 9, 2.0, planned=True, woken=True) == 0
    assert history.take_undone(2.0) == (0, 0.0)


def test_changes_count_as_undone_between_two_looks_that_both_found_the_plan():
    for found in ((False, True), (True, False), (False, False)):
        history = PodHistory()
        for at, (planned, generation) in enumerate(zip(found, (3, 5), strict=True)):
            history.note_look(HERE, generation, 100.0 + at, planned=planned, woken=False)
        assert history.take_undone(102.0) == (0, 0.0)
    assert follow((100.0, 3), (101.0, 5)).take_undone(102.5) == (2, 2.5)


@pytest.mark.parametrize(("pause", "told"), [(QUIET - 1, 0), (QUIET, 4)])
def test_undone_changes_are_told_when_the_last_report_is_a_minute_ago_and_then_are_not_told_again(pause, told):
    history = follow((100.0, 3), (101.0, 5))
    assert history.take_undone(101.0) == (2, 1.0)
    assert history.take_undone(500.0) == (0, 0.0), "nothing has changed since"
    history = follow((100.0, 3), (101.0, 5))
    history.take_undone(101.0)
    history.note_look(HERE, 9, 102.0, planned=True, woken=False)
    assert history.take_undone(101.0 + pause)[0] == told


def test_a_report_is_soon_after_the_machine_s_start_too():
    assert follow((0.5, 3), (1.0, 5)).take_undone(1.0) == (2, 0.5)


# ---- a pod that changes again and again


def change(history, times, *, each=MANY, begin=1):
    """What is told after looks at these times, each of which finds changes."""
    told = []
    for number, at in enumerate(times, 1):
        history.note_look(HERE, begin + each * number, at, planned=True, woken=False)
        told.append(history.take_series(at))
    return told


def spread(looks, span, start=101.0):
    """So many times, evenly over so many seconds."""
    return [start + span * number / (looks - 1) for number in range(looks)]


@pytest.mark.parametrize(("looks", "span", "each", "told"), [
    (LOOKS, SPAN, MANY, True), (LOOKS, SPAN - 0.5, MANY, False), (LOOKS - 1, SPAN, MANY, False), (5, SPAN, MANY // 5, True), (9, SPAN * 2, 1, False), (10, SPAN * 2, 1, True),
])  # fmt: skip
def test_so_many_changes_in_so_many_looks_over_so_many_seconds_are_a_pod_that_changes_again_and_again(looks, span, each, told):
    found = change(follow((100.0, 1)), spread(looks, span), each=each)
    assert found[:-1] == [(0, 0.0)] * (looks - 1)
    assert found[-1] == ((each * looks, span) if told else (0, 0.0))


@pytest.mark.parametrize(("spacing", "told"), [(SPACING, True), (SPACING - 0.5, False)])
def test_a_look_counts_that_comes_the_spacing_after_the_last_that_counted(spacing, told):
    """The last change makes the span long enough in any case; of the looks before, each second one counts if they are too close."""
    times = [101.0, 101.0 + spacing, 101.0 + 2 * spacing]
    assert (change(follow((100.0, 1)), [*times, 101.0 + SPAN])[-1] != (0, 0.0)) is told


@pytest.mark.parametrize(("pause", "is_between", "changes"), [(QUIET, True, 50), (QUIET + 1, True, 0), (QUIET + 1, False, 50)])
def test_a_pause_without_a_change_ends_a_series_where_a_look_has_seen_the_pause(pause, is_between, changes):
    """Without a look in between, as where only sweeps look, nothing says that the pod was quiet."""
    history, times = follow((100.0, 1)), spread(LOOKS, SPAN - 1)
    assert change(history, times)[-1] == (0, 0.0)
    last = 1 + MANY * LOOKS
    if is_between:
        history.note_look(HERE, last, times[-1] + 1, planned=True, woken=False)
    at = times[-1] + pause
    assert change(history, [at], begin=last)[-1][0] == changes


def test_after_a_pause_a_series_is_counted_from_its_own_first_change():
    history = follow((100.0, 1))
    change(history, spread(LOOKS, SPAN - 1))
    last, start = 1 + MANY * LOOKS, 300.0
    history.note_look(HERE, last, 150.0, planned=True, woken=False)
    found = change(history, spread(LOOKS, SPAN, start=start), begin=last)
    assert found == [*[(0, 0.0)] * (LOOKS - 1), (MANY * LOOKS, SPAN)]


def test_a_look_that_finds_no_change_tells_nothing_again():
    history = follow((100.0, 1))
    assert change(history, spread(LOOKS, SPAN))[-1] != (0, 0.0)
    history = follow((100.0, 1))
    for number, at in enumerate(spread(LOOKS, SPAN), 1):
        history.note_look(HERE, 1 + MANY * number, at, planned=True, woken=False)
    history.note_look(HERE, 1 + MANY * LOOKS, 120.0, planned=True, woken=False)
    assert history.take_series(120.0) == (0, 0.0)
