"""Runs the command line: with few imports, or by click.

Without click run `apply`, `istio-iptables` (also as the program's name), flags alone (`netinit -p 15001 …`, as in Istio 1.0)
and `inject`. What their parser cannot read, such as --help, goes to click, which suggests corrections.
"""

from __future__ import annotations

import gc
import sys

from netinit.base.errors import NetinitError, OptionError
from netinit.base.logs import flush, let_pass_all_signs
from netinit.base.records import Record
from netinit.base.system import EMBEDDED, LINUX, posix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

    from netinit.options import Options
    from netinit.options.kinds import Text


NAME = "netinit"
ISTIO_NAME = "istio-iptables"
APPLY = "apply"
INJECT_NAMES = ("inject", "kube-inject")
COMPLETION_VARIABLES = ("_NETINIT_COMPLETE", "_ISTIO_IPTABLES_COMPLETE")  # click's variables: a shell requests completions
OF_THE_GROUP = ("-h", "--help", "--version")  # may precede a command
STDOUT, NARROWEST, WIDEST = 1, 50, 80  # the help's width, like that of click's commands
FAILED, INTERRUPTED = 1, 130  # 128 + SIGINT, as in shells


class Call(Record):
    """A command line, classified for dispatch."""

    program: str  # as in usage lines
    istio: bool  # Istio's exit codes
    apply: bool  # the init container's job: errors are events, also in the termination log
    words: tuple[str, ...]  # flags of apply; otherwise the command and its arguments


def main() -> NoReturn:
    """Run this process's command line and exit with its code."""
    let_pass_all_signs()
    gc.disable()  # apply and inject create few cycles; click's commands enable it again
    code = run(sys.argv, _environment())
    try:
        flush()
    except OSError:  # run has reported it
        posix._exit(code or FAILED)  # noqa: SLF001 - public despite its name
    if "click" in sys.modules or not LINUX:  # a command for people: time hardly matters, clean-up may
        sys.exit(code)
    posix._exit(code)  # noqa: SLF001 - skips the interpreter's shutdown


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command line (program name first), report errors on stderr, and return the exit code."""
    call = _apply_if_configured(read_call(argv), environ)
    try:
        code = _dispatch(call, environ)
        flush()
    except NetinitError as error:
        code = FAILED if call.istio and isinstance(error, OptionError) else error.exit_code
        return _fail(call, environ, str(error), code, error)
    except KeyboardInterrupt as request:  # a run that rolled back reports that
        return _fail(call, environ, str(request), INTERRUPTED) if request.args else INTERRUPTED
    except BrokenPipeError:  # the reader closed the pipe (| head)
        return FAILED
    except OSError as error:  # for example a full disk behind stdout
        what = f"cannot read or write {error.filename or 'the input or output'}: {error.strerror or error}"
        return _fail(call, environ, f"{what}; --debug prints where", FAILED)
    except Exception as error:  # noqa: BLE001 - a bug: one line, or the traceback with --debug
        return _fail(call, environ, f"internal error: {type(error).__name__}: {error}; --debug prints where", FAILED)
    return code


def _fail(call: Call, environ: Mapping[str, str], message: str, code: int, error: NetinitError | None = None) -> int:
    from netinit.cli import fatal_errors  # imported only on failure

    init_container = call.apply and not (call.program == NAME and fatal_errors.names_a_command(call.words))
    hint = fatal_errors.diagnose(error) if error and init_container else ""
    fatal_errors.report(call.words, environ, message + hint, as_event=init_container)
    return code


def read_call(argv: Sequence[str]) -> Call:
    """Classify a command line."""
    words = tuple(argv[1:])
    if argv[0].rpartition("/")[2] == ISTIO_NAME:
        return Call(program=ISTIO_NAME, istio=True, apply=True, words=words)
    first = words[0] if words else ""
    if first in (ISTIO_NAME, APPLY):
        return Call(program=f"{NAME} {first}", istio=first == ISTIO_NAME, apply=True, words=words[1:])
    flags_alone = len(first) > 1 and first[0] == "-" and first not in OF_THE_GROUP
    return Call(program=NAME, istio=False, apply=flags_alone, words=words)


def _apply_if_configured(call: Call, environ: Mapping[str, str]) -> Call:
    """A bare program name is apply if the environment sets options, as a template with `env` and no `args` does."""
    if call.apply or call.words:
        return call
    from netinit.options import Interception

    named = any(environ.get(name) for flag in Interception.flags for name in flag.variables)
    return call.replace(apply=True) if named else call


def _dispatch(call: Call, environ: Mapping[str, str]) -> int:
    asked = next((environ[name] for name in COMPLETION_VARIABLES if name in environ), "")
    if asked.endswith("_complete"):
        from netinit.cli.complete import complete

        return _show(complete(asked, environ, (APPLY,) if call.program == ISTIO_NAME else ()))
    if asked:
        return _ask_click(call, environ, None)
    if not LINUX:
        from netinit.cli.other_systems import refuse

        refuse((APPLY, *call.words) if call.apply else call.words)
    if call.apply:
        from netinit.options import Options
        from netinit.options.declare import extract_flags, parse_flags

        flags = Options.flags
        notices: list[str] = []
        if call.istio:
            from netinit.options import older_istio

            environ, notices = older_istio.read_environment(environ)
            flags = (*flags, *older_istio.FLAGS)
        try:
            texts = parse_flags(call.words, flags)
        except OptionError as error:
            if call.istio:
                call = call.replace(words=extract_flags(call.words, older_istio.FLAGS).rest)
            return _ask_click(call, environ, error)
        if call.istio:
            texts, without_effect = older_istio.split(texts)
            notices = [*without_effect, *notices]
        from netinit.cli import init_container

        named = texts.get("config") or environ.get("NETINIT_CONFIG")
        return init_container.do(_with_file(texts, environ) if named else Options.from_texts(texts, environ), notices=notices)
    if call.words in (("--version",), ("version",)):
        from netinit.base.version import __version__

        return _show(f"{NAME} {__version__}\n")
    if call.words in ((), ("--help",), ("-h",), ("help",)):
        from netinit.cli.commands import render_help

        _show(render_help(NAME, _find_width(environ)))
        return 0 if call.words else OptionError.exit_code  # a container started this way must not look like a successful one
    if call.words[0] in INJECT_NAMES:
        return _inject(call, environ)
    return _ask_click(call, environ, None)


def _with_file(texts: Mapping[str, tuple[Text, str]], environ: Mapping[str, str]) -> Options:
    _find_packages()  # YAML is an installed package
    from netinit.cli.config import read_options

    return read_options(texts, environ)


def _inject(call: Call, environ: Mapping[str, str]) -> int:
    from netinit.cli.inject.flags import InjectFlags
    from netinit.options.declare import parse_flags

    try:
        texts = parse_flags(call.words[1:], InjectFlags.flags)
    except OptionError as error:
        return _ask_click(call, environ, error)
    if "explain" in texts:  # for people; its module requires click
        return _ask_click(call, environ, None)
    _find_packages()
    from netinit.cli.inject import injection

    return injection.run(InjectFlags.from_texts(texts, environ))


def _show(text: str) -> int:
    from netinit.base.output import show_artefact

    show_artefact(text)
    return 0


def _find_width(environ: Mapping[str, str]) -> int:
    try:
        columns = int(environ.get("COLUMNS", "0")) or posix.get_terminal_size(STDOUT).columns
    except (OSError, ValueError):
        columns = WIDEST
    return max(NARROWEST, min(columns, WIDEST) - 2)


def _ask_click(call: Call, environ: Mapping[str, str], known: OptionError | None) -> int:
    """Let click parse the command line; without click, report the `known` error."""
    gc.enable()
    _find_packages()
    try:
        from netinit.cli import group
    except ImportError as error:
        raise known or NetinitError(f"this command needs the Python package click ({error}); install it") from None
    return group.run(call.program, call.words, environ, alone=call.apply)


def _find_packages() -> None:
    """Add site-packages, which has click and yaml, if Python was started without it (-S)."""
    if sys.flags.no_site and not EMBEDDED:
        import site

        site.main()


def _environment() -> dict[str, str]:
    """The environment as text, like os.environ but without importing os."""
    if not LINUX:
        import os

        return dict(os.environ)
    how = ("utf-8", "surrogateescape")
    return {name.decode(*how): text.decode(*how) for name, text in posix.environ.items()}
