"""Work that a forked child does and tells of: it can give up rights that this process keeps, and can be late or die.

What comes back is not trusted more than a text: a child that somebody has taken over from inside of a pod can hand over
records of netinit's own and plain values, and nothing that runs when it is read.
"""

from __future__ import annotations

import posix
import time

from netinit.base import errors
from netinit.base.errors import NamespaceError, NetinitError, OptionError
from netinit.base.logs import flush
from netinit.kernel import run
from netinit.kernel.capabilities import die_with_parent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn, TypeVar

    Result = TypeVar("Result")

_STDERR = 2
_NOTHING, _VALUE, _ERROR, _SYSTEM, _FAULT = b"-", b"=", b"E", b"O", b"F"


_TOO_MUCH = "there is more of it than fits into the memory that looking into a pod may take: remove what nobody needs"


class ChildError(Exception):
    """A fault of netinit's own in a child; the text is what the child's traceback ended with."""


def ask(action: Callable[[], Result], *, seconds: float, what: str, kept: tuple[int, ...] = ()) -> Result:
    """What `action` returned, or raises what it raised, in a child of this process that dies with it.

    The child has no supplementary group, and no descriptor but stdin, stdout, stderr and those `kept`. NetinitError says
    what was not done where the child is not ready after `seconds`, or is killed.
    """
    answer = posix.memfd_create("answer", posix.MFD_CLOEXEC)
    flush()
    parent = posix.getpid()
    pid = _fork()
    if not pid:
        _serve(action, answer, parent, kept)
    status: int | None = None
    try:
        status = run.wait(pid, time.monotonic_ns() + int(seconds * 10**9))
    finally:
        late = status is None
        if status is None:
            status = run.end(pid)
        data = _read_all(answer)
        posix.close(answer)
    if late:
        raise NetinitError(f"{what}: it was not done within {seconds:.0f} s and was stopped; is a process of it stopped?")
    code = posix.waitstatus_to_exitcode(status)
    if code or not data:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        raise NetinitError(f"{what}: the process that did it {how}")
    return _open(data)  # type: ignore[no-any-return]


def limit(memory: int, output: int) -> None:
    """From now on this process and its programs have no more address space, and write no longer files, than this."""
    import resource

    for kind, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_FSIZE, output)):
        hard = resource.getrlimit(kind)[1]
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (allowed, allowed))


def _fork() -> int:
    import warnings

    with warnings.catch_warnings():  # since 3.12, of other threads, whose locks this child does not touch
        warnings.simplefilter("ignore", DeprecationWarning)
        return posix.fork()


def _serve(action: Callable[[], object], answer: int, parent: int, kept: tuple[int, ...]) -> NoReturn:
    """The child's life. It never returns into the parent's frames."""
    code = 1
    try:
        die_with_parent()
        if posix.getppid() == parent:  # else it ended before the line above
            _write(answer, _describe(action, (answer, *kept)))
            flush()
            code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        posix._exit(code)  # noqa: SLF001 - the documented way out of a forked child


def _describe(action: Callable[[], object], kept: tuple[int, ...]) -> bytes:
    import marshal

    try:
        _leave_behind(kept)
        found = action()
    except MemoryError:
        return _ERROR + marshal.dumps(("NetinitError", (_TOO_MUCH,)))
    except OptionError as error:
        return _ERROR + marshal.dumps((type(error).__name__, error.problems))
    except NetinitError as error:
        return _ERROR + marshal.dumps((type(error).__name__, (str(error),)))
    except OSError as error:
        return _SYSTEM + marshal.dumps((error.errno or 0, error.strerror or str(error), str(error.filename or "")))
    except Exception as error:  # noqa: BLE001 - whatever it is, the parent is told
        import traceback

        return _FAULT + marshal.dumps(f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
    if found is None:
        return _NOTHING
    return _VALUE + _pack(found)


def _leave_behind(kept: tuple[int, ...]) -> None:
    """No supplementary group, which may open doors to who takes this process over; no descriptor of whoever started us."""
    try:
        posix.setgroups([])
    except OSError as error:
        if posix.getgroups():
            raise NamespaceError(
                f"supplementary groups cannot be given up ({error.strerror}), which a pod is not to meet: run as root with SETGID"
            ) from None
    for name in posix.listdir("/proc/self/fd"):
        if int(name) > _STDERR and int(name) not in kept:
            try:
                posix.close(int(name))
            except OSError:  # that of the listing itself
                continue


def _open(data: bytes) -> Any:
    import marshal

    kind, rest = data[:1], data[1:]
    if kind == _NOTHING:
        return None
    if kind == _VALUE:
        return _unpack(rest)
    told = marshal.loads(rest)  # noqa: S302 - values alone, and nothing of them is run
    if kind == _ERROR:
        name, words = told
        error = getattr(errors, name, NetinitError) if name in errors.__all__ else NetinitError
        raise error(*words)
    if kind == _SYSTEM:
        number, text, name = told
        raise OSError(number, text, name or None)
    raise ChildError(str(told).partition("\n")[0])


def _pack(value: object) -> bytes:
    """The value as pickle writes it, address families by their number, since they are known by identity."""
    import io
    import pickle

    from netinit.base.net import Family

    class Pickler(pickle.Pickler):
        def persistent_id(self, item: object) -> object:
            return item.version if isinstance(item, Family) else None

    stream = io.BytesIO()
    Pickler(stream, protocol=4).dump(value)
    return stream.getvalue()


def _unpack(data: bytes) -> object:
    import io
    import pickle

    from netinit.base.net import FAMILIES
    from netinit.base.records import Record

    class Unpickler(pickle.Unpickler):
        def persistent_load(self, item: object) -> object:
            return next(family for family in FAMILIES if family.version == item)

        def find_class(self, module: str, name: str) -> object:
            """A record, dataclass or tuple of netinit's own; anything else is not read."""
            found = super().find_class(module, name) if module.startswith("netinit.") and "." not in name else None
            plain = isinstance(found, type) and found.__module__.startswith("netinit.")
            if plain and (issubclass(found, (Record, tuple)) or hasattr(found, "__dataclass_fields__")):  # type: ignore[arg-type]
                return found
            raise NetinitError(f"a child's answer holds {module}.{name}, which no answer may")

    return Unpickler(io.BytesIO(data)).load()


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[posix.write(descriptor, view) :]


def _read_all(descriptor: int) -> bytes:
    parts = []
    offset = 0
    while part := posix.pread(descriptor, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
