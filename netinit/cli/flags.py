"""Commands whose flags are declared options: pflag's syntax, click's help, completion and suggestions.

`apply`'s own parser reads the declared flags, so that both agree; click parses the command's own options and arguments.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import signature
from itertools import takewhile
from typing import Any

import click

from netinit.base.errors import NetinitError
from netinit.base.sanitize import MAX_TEXT_LENGTH, shorten, split_message
from netinit.cli.values import OneOf, ValueType
from netinit.options import Interception, Options
from netinit.options.declare import (
    LOGGING,
    NAMESPACE,
    OF_ISTIO,
    PLAIN,
    VALIDATION,
    DeclaredOptions,
    describe_strays,
    extract_flags,
    is_flag,
)
from netinit.options.kinds import (
    PROGRAMMING,
    SWITCH,
    Flag,
    quote_value,
    suggest,
)

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
HELP_NAMES = {"help_option_names": ["-h", "--help"]}
RULES, OUTPUT = "Rules", "Output"
OF_THE_RUN = tuple([flag for flag in Options.flags if flag not in Interception.flags])
TOPIC_OF = {flag.field: flag.topic for flag in OF_THE_RUN}
EVERY_FIELD = tuple(TOPIC_OF)
ANY_NAMESPACE = ("netns", "pid")
ANY_BACKEND = ("backend", "native_nftables", "force_iptables_binary")
DECIDING = (*[flag.field for flag in Interception.flags], *ANY_BACKEND, "ipset_threshold", "config")  # fields that determine the rules
STDIN = 0
GIVEN = "netinit.given"
NAME = "netinit"
_OUTPUT_PARAMETERS = ("as_json", "form", "color", "everything")
RULES_ELSEWHERE = "The options of the init container (-b, -i, -x and so on, and their variables): see netinit apply --help."

TAKE_A_WHOLE_LINE = ("remove", "verify")  # these are given the line that programmed the pod, with flags of netinit alone


class FlagCommand(click.Command):
    """A command whose callback gets `options`, an instance of `settings`, from flags, environment and defaults.

    All problems of a command line are one OptionError. For Options, `shows` lists the flags of the run that have an effect;
    `rules` is True if the help lists the rules' flags, False if it refers to apply, None if they have no effect. `judges_all`: all
    flags but the namespace's have an effect. A flag without effect is an error; one of istio-iptables, which may be pasted from
    a pod, is a note, and so is any of `remove` and `verify`. For other settings the help has every flag but `hides`.
    """

    def __init__(
        self, *args: Any, settings: type[DeclaredOptions] = Options, shows: tuple[str, ...] = (),
        hides: tuple[str, ...] = (), rules: bool | None = False, judges_all: bool = False, **kwargs: Any,
    ) -> None:  # fmt: skip
        kwargs["context_settings"] = {**HELP_NAMES, **(kwargs.get("context_settings") or {})}
        super().__init__(*args, **kwargs)
        self.settings = settings
        self.shows = (*shows, "debug")
        self.hides = hides
        self.judges_all = judges_all
        self.rules = rules if settings is Options else None
        self.params += [_FlagOption(flag) for flag in settings.flags if flag.long]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Extract the flags, let click parse the rest, and build the options."""
        taken = extract_flags(args, self.settings.flags)
        ctx.meta[GIVEN] = {field: label for field, (_, label) in taken.texts.items()}
        rest, unknown = self._split_unknown(ctx, taken.rest)
        problems = [*self._find_file_names(args), *taken.problems, *unknown, *self._find_ignored(ctx.meta[GIVEN])]
        ctx.allow_extra_args = True  # reported below
        try:
            _, _, order = self.make_parser(ctx).parse_args(list(rest))
            single = [one for one in order if isinstance(one, click.Option) and not (one.multiple or one.is_flag or one.count)]
            repeated = dict.fromkeys([one.opts[0] for one in single if single.count(one) > 1])  # click would silently keep the last
            problems += [f"{name}: is given twice; give it once" for name in repeated]
            strays = super().parse_args(ctx, rest)
            takes_manifests = any(flag.long == "filename" for flag in self.settings.flags)
            problems += describe_strays(strays, "name manifests with -f") if takes_manifests else describe_strays(strays)
        except click.UsageError as error:
            problems += describe_error(error, args)
        environ = environment()
        if self.settings is Options and (taken.texts.get("config") or environ.get("NETINIT_CONFIG")):
            from netinit.cli.config import read_options

            ctx.params["options"] = read_options(taken.texts, environ, problems)
        else:
            ctx.params["options"] = self.settings.from_texts(taken.texts, environ, problems)
        return []

    def has_effect(self, field: str) -> bool:
        """Whether the command uses a declared flag."""
        if self.settings is not Options or field in self.shows:
            return True
        return field not in ANY_NAMESPACE and (self.judges_all or (field in DECIDING and self.rules is not None))

    def _find_file_names(self, words: Sequence[str]) -> list[str]:
        """A problem for each option that is also the name of a file, which a pattern of the shell or a hook may have put here."""
        if not any(isinstance(one, click.Argument) for one in self.params):
            return []
        return [
            f"{quote_value(word)}: is an option and also the name of a file here; put -- before the files, or rename it"
            for word in takewhile(lambda word: word != "--", words)
            if is_flag(word) and os.path.lexists(word)
        ]

    def _find_ignored(self, given: Mapping[str, str]) -> list[str]:
        """A problem for each flag without effect here; those of a pod's command line share a note."""
        ignored = {field: label for field, label in given.items() if not self.has_effect(field)}
        places = [ignored.pop(field) for field in ANY_NAMESPACE if field in ignored]
        known = self.name in TAKE_A_WHOLE_LINE
        pasted = [label for field, label in ignored.items() if known or Options.flag(field).group == OF_ISTIO]
        if pasted:
            from netinit.cli.console import note

            note([f"{', '.join(pasted)}: no effect on this command"])
        return [
            *[f"{label}: {self.name} ignores it; remove it" for label in places],
            *[f"{label}: has no effect on this command; remove it" for label in ignored.values() if label not in pasted],
        ]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options, then the effective declared ones by topic."""
        own = [one for one in self.get_params(ctx) if isinstance(one, click.Option) and not isinstance(one, _FlagOption)]
        output = [param for param in own if param.name in _OUTPUT_PARAMETERS]
        shown: dict[str, list[tuple[str, str]]] = {
            topic: [describe(flag) for flag in self.settings.flags if TOPIC_OF.get(flag.field) == topic and flag.field in self.shows]
            for topic in (NAMESPACE, PROGRAMMING, VALIDATION, LOGGING)
        }
        hidden = [flag.field for flag in Options.flags] if self.settings is Options else self.hides
        of_its_own = [flag for flag in self.settings.flags if flag.field not in hidden]
        sections: dict[str, Sequence[tuple[str, str] | None]] = {
            PLAIN: [*map(describe, of_its_own), *(param.get_help_record(ctx) for param in own if param not in output)],
            RULES: [describe(flag) for flag in Interception.flags] if self.rules else [],
            OUTPUT: [param.get_help_record(ctx) for param in output],
            **shown,
        }
        for title in (PLAIN, NAMESPACE, RULES, PROGRAMMING, VALIDATION, OUTPUT, LOGGING):
            if title == RULES and self.rules is False:
                with formatter.section(RULES):
                    formatter.write_text(RULES_ELSEWHERE)
            elif records := [record for record in sections[title] if record]:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _split_unknown(self, ctx: click.Context, rest: tuple[str, ...]) -> tuple[list[str], list[str]]:
        """The words but unknown flags, and a problem for each of these."""
        known = [name for param in self.get_params(ctx) for name in (*param.opts, *param.secondary_opts) if is_flag(name)]
        has_arguments = any(isinstance(param, click.Argument) for param in self.params)
        kept: list[str] = []
        problems: list[str] = []
        flags = rest[: rest.index("--")] if "--" in rest else rest
        with_value = [one for one in self.params if isinstance(one, click.Option) and not (one.is_flag or one.count)]
        takes_value = {name for param in with_value for name in param.opts}
        is_value = after_unknown = False
        for word in flags:
            name = word.partition("=")[0]
            is_unknown = is_flag(word) and name not in known and not is_value  # in `--timeout -1` it is an invalid value
            if is_unknown:
                hint = suggest(name, [name for name in known if name.startswith("--")]) or f"{ctx.command_path} --help lists them"
                problems.append(f"{quote_value(name)} is not an option; {hint}")
            elif is_value or is_flag(word) or not after_unknown:
                kept.append(word)
            after_unknown = is_unknown and name == word and not has_arguments
            is_value = not is_value and word in takes_value
        return kept + list(rest[len(flags) :]), problems


def environment() -> Mapping[str, str]:
    """The environment passed to the command line."""
    context = click.get_current_context(silent=True)
    return os.environ if context is None or context.obj is None else context.obj


def pass_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """Pass `given` to the function: the flags on its command line, by field, as written; without variables and files."""

    @wraps(function)
    def with_given(*args: Any, **values: Any) -> Any:
        return function(*args, given=click.get_current_context().meta[GIVEN], **values)

    return with_given


def add_options(*decorators: Decorator) -> Decorator:
    """Combine decorators into one; the help lists their options in this order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def add_value(name: str, make: Callable[..., Any], *decorators: Decorator) -> Decorator:
    """Combine options into one argument `name`, which `make` builds from their values."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def with_value(*args: Any, **given: Any) -> Any:
            values = {key: given.pop(key) for key in signature(make).parameters if key in given}
            return function(*args, **{name: make(**values)}, **given)

        return add_options(*decorators)(with_value)

    return decorate


until_input_option = click.option(
    "--until-input", is_flag=True, help="End as well when the standard input has a byte, or its end: so kubectl netinit ends it."
)


def json_option(schema: str, what: str = "an object") -> Decorator:
    """Add --json as the argument `as_json`; `schema` is the first part of a name in netinit/data."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {what}; netinit/data/{schema}.schema.json describes it.")


def describe_error(error: click.ClickException, words: Sequence[str]) -> list[str]:
    """The lines of click's message, with overlong words of the command line truncated."""
    message = _word(error)
    given = {part for word in words for part in (word, word.partition("=")[2]) if len(part) > MAX_TEXT_LENGTH}
    for part in sorted(given, key=len, reverse=True):
        shown = repr(part)[1:-1]
        message = message.replace(shown, shorten(shown)).replace(part, shorten(part))
    return split_message(message)


def _word(error: click.ClickException) -> str:
    """Rephrase click's message: the option, then the problem."""
    if isinstance(error, click.BadParameter) and error.param is not None:
        kind = error.param.type
        of_type = kind.kind.metavar if isinstance(kind, ValueType) else error.param.human_readable_name
        label = error.param.opts[0] if isinstance(error.param, click.Option) else of_type
        if isinstance(error, click.MissingParameter):
            what = "option" if isinstance(error.param, click.Option) else "argument"
            return f"missing {what}: {label}{'; one of ' + ', '.join(kind.choices) if isinstance(kind, click.Choice) else ''}"
        return f"{label}: {error.message}"
    help_text = f"{error.ctx.command_path if error.ctx else NAME} --help lists them" if isinstance(error, click.UsageError) else ""
    if isinstance(error, click.NoSuchOption):
        hint = suggest(error.option_name, error.possibilities or ())
        return f"{quote_value(error.option_name)} is not an option; {hint or help_text}"
    if isinstance(error, click.BadOptionUsage):
        takes_none = "does not take a value" in error.message
        return f"{error.option_name}: {'takes no value; give it alone' if takes_none else 'the value is missing'}"
    if "unexpected extra argument" in error.message:
        extra = error.message.partition("(")[2].rpartition(")")[0]
        return f"{quote_value(extra)} is not among the command's options and arguments; {help_text}"
    return error.format_message().removesuffix(".")


class _FlagOption(click.Option):
    """A declared flag for help and completion; click never parses its value."""

    def __init__(self, flag: Flag) -> None:
        names = [f"--{name}" for name in (flag.long, *flag.aliases)] + ([f"-{flag.short}"] if flag.short else [])
        words = [word for word in flag.kind.words if word]
        kind = OneOf(words) if words else click.Path() if flag.kind.is_file else click.STRING
        switch = flag.kind is SWITCH
        super().__init__(names, is_flag=switch, type=None if switch else kind, help=flag.help, expose_value=False)


def describe(flag: Flag) -> tuple[str, str]:
    """A help line: the flag's names (`-p, --envoy-port PORT`), and its meaning, default and variables."""
    notes = [f"default: {default}"] if (default := format_default(flag)) else []
    if not flag.long:
        names = flag.variables[0]
    else:
        notes += [f"env: {', '.join(flag.variables)}"] * bool(flag.variables)
        names = ", ".join(flag.names.split()) + ("" if flag.kind is SWITCH else f" {flag.kind.metavar}")
    return names, f"{flag.help} [{'; '.join(notes)}]" if notes else flag.help


def format_default(flag: Flag) -> str:
    """The default as written on a command line; empty if it is empty, off or depends on other options."""
    value = flag.default
    if value is None or value in ((), False, "", 0):
        return ""
    return flag.kind.write(value)


@contextmanager
def optional_packages(what: str, remedy: str = "pip install 'netinit[kubernetes]'") -> Iterator[None]:
    """Turn a failed import into a NetinitError. `what`: the message before "not installed"."""
    try:
        yield
    except ImportError as error:
        raise NetinitError(f"{what} not installed ({error.name}): {remedy}") from error
