"""Try the rules of an injected pod: read its init container's command line, make its rules, lint and simulate them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from netinit.base.errors import NetinitError, OptionError
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.inject.deciding.podfile import PodFacts, read_object
from netinit.inject.deciding.rules_program import is_image_of_istio
from netinit.options import offline
from netinit.options.declare import describe_strays
from netinit.questions.lint import ERROR, lint


def find_rule_problems(pod: Tree) -> Iterator[str]:
    """Yield what keeps an injected pod's rules from being programmed, or breaks its traffic; nothing for a pod without rules."""
    init = find_init(mapping(pod.get("spec")))
    unreadable = find_unreadable_arguments(init) if init is not None else []
    yield from unreadable
    if unreadable:
        return
    try:
        facts = read_object(pod)
    except OptionError as error:
        if init is None or not _strays(init).issuperset(error.problems):
            yield from error.problems
        return
    except NetinitError as error:
        yield str(error)
        return
    yield from _lint(facts, is_error=True)


def find_rule_warnings(pod: Tree) -> Iterator[str]:
    """Yield what lint warns of in the rules of a pod without problems; of options that only Istio's program knows nothing."""
    with suppress(OptionError):
        yield from _lint(read_object(pod), is_error=False)


def _lint(facts: PodFacts, *, is_error: bool) -> Iterator[str]:
    """Yield the errors of lint, which also sends the proxy's connections through the rules, or its warnings."""
    if not facts.intercepted:
        return
    for finding in lint(facts.options.settle(offline()), proved=False):
        if (finding.severity == ERROR) is is_error:
            yield f"the rules of its init container: {finding.option}: {finding.message}"


def find_unreadable_arguments(init: Tree) -> list[str]:
    """Return what is wrong with an init container's arguments and environment; options that only Istio's program knows are not."""
    try:
        options_of(init)
    except OptionError as error:
        own = [one for one in error.problems if one not in _strays(init)]
        return [f"its init container {string(init.get('name'))} would not start: {one}" for one in own]
    return []


def refuses_to_start(pod: Tree) -> list[str]:
    """Return why the init container of an injected pod would not start; nothing if Istio's image runs Istio's own program."""
    init = find_init(mapping(pod.get("spec")))
    if init is None or is_image_of_istio(string(init.get("image"))):
        return []
    return find_unreadable_arguments(init)


def _strays(init: Tree) -> set[str]:
    """Return what the options' reader says of words that are no options of netinit."""
    words = [string(word) for word in (*sequence(init.get("command")), *sequence(init.get("args")))]
    return {problem for word in words for problem in describe_strays((word,))}
