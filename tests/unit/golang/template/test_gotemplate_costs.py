"""What a rendering is charged for: characters and patterns, too, so that no loop over short texts takes longer than the limit allows."""

import gc
import weakref

import pytest

from netinit.golang.errors import TemplateError
from netinit.golang.sprig import FUNCTIONS
from netinit.golang.template import Template, lexer, limits

LOOP = '{{{{ $s := repeat {size} "{text}" }}}}{{{{ range $i, $_ := until 10000 }}}}{{{{ $_ := {call} }}}}{{{{ end }}}}'
LONG = ['printf "%q" $s', "quote $s", "upper $s", "lower $s", "js $s", "html $s", "b32dec $s", "title $s", "snakecase $s"]


@pytest.fixture(autouse=True)
def fewer_steps(monkeypatch):
    """A tenth of the limit, for loops of a tenth of the turns: what a turn is charged stays the same."""
    monkeypatch.setattr(limits, "MAX_STEPS", limits.MAX_STEPS // 10)


def steps_run_out(call, text, size=2000):
    template = Template("t", LOOP.format(call=call, text=text, size=size), functions=FUNCTIONS)
    try:
        template.render(None)
    except TemplateError as error:
        assert "steps" in str(error)
        return True
    return False


@pytest.mark.parametrize("call", [*LONG[:6], *LONG[7:]])
def test_characters_beyond_ascii_are_charged_one_by_one(call):
    assert steps_run_out(call, "é")


@pytest.mark.parametrize("call", ['regexMatch (printf "a%d" $i) "x"', 'regexFind (printf "(a|b%d)*" $i) "x"'])
def test_each_pattern_is_charged_for_its_compilation(call):
    pytest.importorskip("re2")
    assert steps_run_out(call, "x", 1)


@pytest.mark.parametrize("call", LONG)
def test_what_real_templates_print_costs_next_to_nothing(call):
    assert not steps_run_out(call, "ab-C", 2)


def test_a_lexer_and_its_tokens_are_released_without_a_garbage_collection():
    gc.disable()
    try:
        lexing = lexer._Lexer("{{ if eq .a 'b' }}é{{ end }}", "{{", "}}", frozenset())
        lexing.cut()
        assert len(lexing.tokens) > 8
        seen = weakref.ref(lexing)
        del lexing
        assert seen() is None
    finally:
        gc.enable()
