"""Decides who reads the command line: a lean path, which imports next to nothing, or click.

Lean are `netinit apply …`, `netinit istio-iptables …`, flags alone (`netinit -p 15001 …`, as 1.0's template has it) and
everything under the program name `istio-iptables`; and `netinit inject …` with plain flags. What the lean path cannot
read (a flag that does not exist, --help) goes to click, which knows every command's flags and what was probably meant.
"""

from __future__ import annotations

import gc
import posix
import sys

from netinit.base.errors import BackendUnavailableError, NetinitError, OptionError
from netinit.base.logs import Log, write_termination_log
from netinit.base.records import Record
from netinit.options.kinds import TRUE_WORDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from typing import Any, NoReturn

    from netinit.options import Options

NAME = "netinit"
ISTIO_NAME = "istio-iptables"
APPLY = "apply"
INJECT_NAMES = ("inject", "kube-inject")
PACKAGES = ("click", "yaml")  # that this process may want; nothing else is worth looking for again
COMPLETION_VARIABLES = ("_NETINIT_COMPLETE", "_ISTIO_IPTABLES_COMPLETE")  # click's; a shell asks for completions
_OBJECTS = 50_000  # more than a short command makes; Python's 700 looks for garbage a hundred times in vain
OF_THE_GROUP = ("-h", "--help", "--version")  # before any command
FAILED, INTERRUPTED = 1, 130  # 128 + SIGINT, as shells have it


class Call(Record):
    """A command line, understood so far that it is clear who reads the rest."""

    program: str  # as usage lines name it
    istio: bool  # exit codes as in Istio
    apply: bool  # the init container's job: errors are events, and go to the termination log
    words: tuple[str, ...]  # for apply its flags; else the command and its arguments


def main() -> NoReturn:
    """Runs this process's command line and ends the process with its exit code."""
    code = run(sys.argv, _environment())
    try:
        _flush()
    except OSError:  # run has tried and told
        posix._exit(code or FAILED)  # noqa: SLF001 - its name, not privacy
    if "click" in sys.modules:  # a command for people: milliseconds do not count, cleaning up may
        sys.exit(code)
    posix._exit(code)  # noqa: SLF001 - saves the interpreter's tidying up


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """The exit code of a command line, program name first; errors have been told on stderr."""
    call = read_call(argv)
    try:
        code = _dispatch(call, environ)
        _flush()
    except NetinitError as error:
        code = FAILED if call.istio and isinstance(error, OptionError) else error.exit_code
        return _report(call, environ, str(error) + (_diagnose(error) if call.apply else ""), code)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader went away (| head): nobody is left to be told
        return FAILED
    except OSError as error:  # a full disk behind stdout, for example
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        return _report(call, environ, f"the system refuses: {what}; --debug prints where", FAILED)
    except Exception as error:  # noqa: BLE001 - a fault of ours: told in one line, with --debug in full
        return _report(call, environ, f"internal error: {type(error).__name__}: {error}; --debug prints where", FAILED)
    return code


def read_call(argv: Sequence[str]) -> Call:
    """Who is to read the command line."""
    words = tuple(argv[1:])
    if argv[0].rpartition("/")[2] == ISTIO_NAME:
        return Call(program=ISTIO_NAME, istio=True, apply=True, words=words)
    first = words[0] if words else ""
    if first == ISTIO_NAME:
        return Call(program=f"{NAME} {ISTIO_NAME}", istio=True, apply=True, words=words[1:])
    if first == APPLY:
        return Call(program=f"{NAME} {APPLY}", istio=False, apply=True, words=words[1:])
    if len(first) > 1 and first[0] == "-" and first not in OF_THE_GROUP:
        return Call(program=NAME, istio=False, apply=True, words=words)
    return Call(program=NAME, istio=False, apply=False, words=words)


def apply(options: Options) -> int:
    """Does what the options say and returns the exit code; NetinitError where that failed."""
    log = Log(options.log_level, as_json=options.log_as_json)
    if options.dry_run:
        from netinit.cli.preview import preview

        sys.stdout.write(preview(options, log))
        return 0
    from netinit.pods.apply import main as do

    return do(options, log)


def _dispatch(call: Call, environ: Mapping[str, str]) -> int:
    if any(name in environ for name in COMPLETION_VARIABLES):
        return _ask_click(call, environ, None)
    if call.apply:
        from netinit.options import Options
        from netinit.options.argv import parse_flags

        try:
            texts = parse_flags(call.words)
        except OptionError as error:
            return _ask_click(call, environ, error)
        return apply(Options.from_texts(texts, environ))
    if not call.words:
        raise OptionError("a command or flags are missing; netinit --help lists them")
    if call.words[0] in INJECT_NAMES:
        from netinit.cli.inject import flags

        values = flags.read(call.words[1:], environ)
        if values is not None:
            return _inject(values)
    return _ask_click(call, environ, None)


def _inject(values: dict[str, Any]) -> int:
    _prepare_for_more()
    from netinit.cli.inject import run as inject_run

    return inject_run.run(values)


def _ask_click(call: Call, environ: Mapping[str, str], known: OptionError | None) -> int:
    """Lets click read the command line; without click a `known` error is better than none."""
    _prepare_for_more()
    try:
        from netinit.cli import group
    except ImportError as error:
        raise known or NetinitError(f"this command wants the Python package click ({error}); install it") from None
    return group.run(call.program, call.words, environ, alone=call.apply)


def _prepare_for_more() -> None:
    """Gets ready for commands that allocate, and import packages."""
    gc.enable()
    gc.set_threshold(_OBJECTS)
    if sys.flags.no_site:
        sys.meta_path.append(_InstalledPackages())


class _InstalledPackages:
    """A finder (PEP 451) that comes last: where -S left out the folder of installed packages, it is added in need."""

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """The package's specification, or None: for every other module, and where it is not installed."""
        if name not in PACKAGES:
            return None
        sys.meta_path.remove(self)
        import site

        site.main()
        found = (finder.find_spec(name, None) for finder in sys.meta_path)
        return next((spec for spec in found if spec is not None), None)


def _report(call: Call, environ: Mapping[str, str], message: str, code: int) -> int:
    """Tells the error that is being handled: as an event in the init container, else as plain lines."""
    from netinit.options.argv import take_flags

    texts = take_flags(call.words).texts
    if call.apply:
        as_json = texts["log_as_json"][0] if "log_as_json" in texts else environ.get("LOG_AS_JSON", "")
        Log(as_json=as_json in TRUE_WORDS).error(message)
        write_termination_log(message)
    else:
        sys.stderr.write("".join([f"{call.program}: {line}\n" for line in message.splitlines()]))
    if (texts["debug"][0] if "debug" in texts else environ.get("NETINIT_DEBUG", "")) in TRUE_WORDS:
        import traceback

        traceback.print_exc()
    return code


def _diagnose(error: NetinitError) -> str:
    """Lines of the doctor's on why nothing works, to stand below the error; empty where it has nothing to add."""
    if not isinstance(error, BackendUnavailableError):
        return ""
    try:
        from netinit.pods.doctor import summarise

        said = summarise(error)
    except Exception:  # noqa: BLE001 - whatever is wrong with the doctor, the error itself is told
        return ""
    return f"\n{said}" if said else ""


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # None when the process was started with it closed
            stream.flush()


def _environment() -> dict[str, str]:
    """The environment as text; what os.environ is, without importing os."""
    how = ("utf-8", "surrogateescape")
    return {name.decode(*how): text.decode(*how) for name, text in posix.environ.items()}
