"""Reads assertions: sentences, and files of sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from netinit.base.errors import OptionError, ParseError
from netinit.inject.deciding import yaml_texts
from netinit.library.manifest_files import in_file, is_file, read_file
from netinit.options.kinds import quote_value
from netinit.questions.audit.assertions import Assertion, parse_assertion

SENTENCE = " is "
MAX_ASSERTIONS = 500  # per run: each is a proof over all packets


def read_assertions(given: Sequence[str]) -> list[Assertion]:
    """Parse all assertions of the sentences and files. Raises one OptionError with all problems."""
    found: list[Assertion] = []
    problems: list[str] = []
    for text in given:
        sentences = [(text, "", 0)] if SENTENCE in text and not is_file(text) else [*_read_sentences(text)]
        for sentence, name, line in sentences:
            try:
                found.append(parse_assertion(sentence, name=name, line=line))
            except OptionError as error:
                problems += error.problems
    if problems:
        raise OptionError(*problems)
    if len(found) > MAX_ASSERTIONS:
        raise OptionError(f"--assert: {len(found)} assertions are more than {MAX_ASSERTIONS} for one run; give them to several")
    return found


def _read_sentences(file: str) -> Iterator[tuple[str, str, int]]:
    """Yield each sentence of a file with its name and line; the format is netinit/data/assertions.schema.json."""
    import yaml

    try:
        text = read_file(file, "--assert")
    except OptionError as error:
        hint = f'; a sentence has the word "is": "outbound tcp{SENTENCE}captured"'
        raise OptionError(*[f"{problem}{hint}" for problem in error.problems]) from None
    try:
        yaml_texts.load(text)  # rejects what is not YAML, too deep or too large before the composer, which alone provides line numbers
    except ParseError as error:
        raise OptionError(f"--assert: {in_file(file, error)}") from None
    tree = yaml.compose(text, yaml.SafeLoader)
    items = tree
    if isinstance(tree, yaml.MappingNode) and [key.value for key, _ in tree.value] == ["assertions"]:
        items = tree.value[0][1]
    if not isinstance(items, yaml.SequenceNode):
        raise _wrong(file, "is neither a list of assertions nor an object with the one field assertions", tree and tree.start_mark)
    for item in items.value:
        pairs: list[tuple[Any, Any]] = item.value if isinstance(item, yaml.MappingNode) else []
        for key, value in pairs:
            if key.value not in ("assert", "name") or not isinstance(value, yaml.ScalarNode):
                what = f"{quote_value(str(key.value))} is not a field of an assertion; it has assert and name"
                raise _wrong(file, what, key.start_mark)
        fields = {key.value: value for key, value in pairs} if isinstance(item, yaml.MappingNode) else {"assert": item}
        sentence = fields.get("assert")
        if not isinstance(sentence, yaml.ScalarNode):
            raise _wrong(file, "an assertion is a sentence, or an object with the fields assert and name", item.start_mark)
        yield sentence.value, fields["name"].value if "name" in fields else "", sentence.start_mark.line + 1


def _wrong(file: str, what: str, mark: Any) -> OptionError:
    place = f", line {mark.line + 1}" if mark else ""
    return OptionError(f"--assert: {quote_value(file)}{place} {what}")
