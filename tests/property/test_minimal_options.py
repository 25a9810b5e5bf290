"""`lint --minimal` prints what `diff` takes, and `diff` says that no packet is treated differently, over random options."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from netinit.options.command_line import write_command
from netinit.questions.comparison import EQUAL, compare, on_common_host, read_written_options
from netinit.questions.lint.report import examine_options
from netinit.questions.rule_sources import find_planned
from randomness import some
from strategies import SERVERS, made_any_options

pytestmark = pytest.mark.timeout(3600)


@settings(max_examples=some(4), suppress_health_check=list(HealthCheck))
@given(made_any_options(), st.lists(st.sampled_from(SERVERS), max_size=2, unique=True).map(tuple))
def test_what_minimal_prints_is_taken_by_diff_and_equal_to_what_was_given(options, servers):
    (line,) = examine_options(options, {}, lambda: servers).minimal.splitlines()
    printed = read_written_options(line, {})
    sides = [find_planned(one, read_servers=lambda: servers) for one in (options, printed)]
    found = compare(on_common_host("both", *sides, None))
    assert found.result == EQUAL, (line, [(one.who, one.before, one.after) for one in found.changes])
    again = read_written_options(write_command(options), {})
    assert again == options
