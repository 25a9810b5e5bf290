"""The backend without any external program: python-iptables in this process's children, on the older kernel interface.

libiptc and libxtables keep one address family in global variables, and importing them takes 90 to 260 ms, so each
family gets a forked child that imports them, both at the same time. A child that crashes in the libraries is an error
of its family. The children speak to libiptc directly: the library's own classes open every table when they look for a
chain (which registers it in the kernel), write IPv6 interface masks that compare one bit a letter, and read a foreign
rule by the size that this host's extension has instead of the rule's own.
"""

from __future__ import annotations

import posix
import time

from netinit.backends.iptables import XtablesBackend
from netinit.base import errors
from netinit.base.errors import ApplyError, BackendUnavailableError, LockedError, NetinitError
from netinit.base.net import Family
from netinit.kernel import detect, run
from netinit.kernel.files import UnsuitableFileError, open_lock_file
from netinit.kernel.namespaces import describe_holders, read_text, take
from netinit.rules.model import TABLES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from netinit.rules.census import Census

XTABLES_LOCK = "/run/xtables.lock"
OTHERWISE = "or choose another --backend"
MISSING_PACKAGE = f"not installed: pip install python-iptables (it wants gcc and Python's headers), {OTHERWISE}"
MISSING_LIBRARY = f"add iptables' libraries to the image (Debian: libip4tc2 libip6tc2 libxtables12), {OTHERWISE}"
MISSING_LINKER = f"install it (Debian: libc-bin), {OTHERWISE}"
_SONAMES = {"xtables": "libxtables.so.12", "ip4tc": "libip4tc.so.2", "ip6tc": "libip6tc.so.2", "c": "libc.so.6"}


class LibiptcBackend(XtablesBackend):
    """Rules through libiptc: one commit a table, both families at once."""

    name = "libiptc"

    def count(self, families: tuple[Family, ...]) -> dict[Family, Census]:
        from netinit.kernel.tally import count_legacy_families

        return count_legacy_families(families)

    def read(self, families: tuple[Family, ...], *, counted: bool = False) -> dict[Family, str]:  # noqa: ARG002
        """The listings, as iptables-legacy-save prints them without its comments; it has no counters."""
        existing = {family: detect.legacy_tables(family) for family in families}
        known = {family: TABLES if tables is None else tables for family, tables in existing.items()}
        answers = _ask({family: _reading(tables) for family, tables in known.items() if tables})
        texts = dict.fromkeys(families, "")
        for family, answer in answers.items():
            if isinstance(answer, NetinitError):
                raise answer
            texts[family] = answer
        return texts

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commits each family's input; LockedError where somebody else holds iptables-legacy's lock."""
        lock = self._lock()
        try:
            answers = _ask({family: _feeding(script) for family, script in scripts.items()})
        finally:
            if lock is not None:
                posix.close(lock)
        return {family: answer for family, answer in answers.items() if isinstance(answer, NetinitError)}

    def _lock(self) -> int | None:
        """The lock that iptables-legacy takes, since libiptc takes none; the children hold it with us.

        None where no lock can be had or none is about this namespace: a root that is read-only, or the host's files.
        """
        named = posix.environ.get(b"XTABLES_LOCKFILE", b"").decode()
        if not named and not self._own_files:
            return None
        path = named or XTABLES_LOCK
        try:
            descriptor = open_lock_file(path)
        except OSError as error:
            if not named and not isinstance(error, UnsuitableFileError):
                return None
            label = "XTABLES_LOCKFILE: " if named else ""
            raise BackendUnavailableError(
                f"{label}{path!r} cannot be opened: {error.strerror};"
                " name a regular file in a writable folder with XTABLES_LOCKFILE"
            ) from None
        if take(descriptor, self._lock_timeout):
            return descriptor
        holders = describe_holders(descriptor)
        posix.close(descriptor)
        raise LockedError(f"libiptc: {path} is held by {holders}: wait for it, or raise --lock-timeout")


if TYPE_CHECKING:
    from netinit.backends.iptc_tables import Tables

    Job = Callable[[Tables], str]


def _reading(names: tuple[str, ...]) -> Job:
    return lambda tables: tables.list_tables(names)


def _feeding(script: str) -> Job:
    return lambda tables: tables.execute(script)


def _ask(jobs: dict[Family, Job]) -> dict[Family, str | NetinitError]:
    """What each job returned or raised in a child of its own; all children run at the same time."""
    children = {}
    for family, job in jobs.items():
        answer = posix.memfd_create("answer", posix.MFD_CLOEXEC)
        pid = posix.fork()
        if pid == 0:
            _serve(family, job, answer)
        children[family] = (pid, answer)
    return {family: _collect(family, pid, answer) for family, (pid, answer) in children.items()}


def _serve(family: Family, job: Job, answer: int) -> None:
    """The child's life: does the job, writes what came of it, ends without running anything of the parent's."""

    def end(kind: str, text: str) -> None:
        data = memoryview(f"{kind}\n{text}".encode("utf-8", "surrogateescape"))
        while data:
            data = data[posix.write(answer, data) :]
        posix._exit(0)  # noqa: SLF001 - the documented way out of a forked child

    try:
        import warnings

        from netinit.kernel.capabilities import die_with_parent

        die_with_parent()
        warnings.simplefilter("ignore")  # those of python-iptables are nothing a user of netinit can act on
        end("", job(_load(family, end)))
    except NetinitError as error:
        end(type(error).__name__, str(error))
    except BaseException as error:  # noqa: BLE001 - whatever it is, the parent is told
        end("ApplyError", f"libiptc: {type(error).__name__}: {error}")
    finally:
        posix._exit(1)  # noqa: SLF001


def _load(family: Family, end: Callable[[str, str], None]) -> Tables:
    """The libraries, ready for one family. BackendUnavailableError tells what is missing or does not fit."""
    try:
        _find_packages()
        _shorten_import()
        from netinit.backends.iptc_tables import Tables

        return Tables(family, lambda text: end("ApplyError", text))
    except NetinitError:
        raise
    except ModuleNotFoundError as error:
        cause = MISSING_PACKAGE if error.name == "iptc" else f"cannot be imported: {error}; {OTHERWISE}"
    except FileNotFoundError as error:
        cause = f"cannot be imported: {error.filename} is missing; {MISSING_LINKER}"
    except (AttributeError, TypeError, OSError) as error:  # a library that was not found is None in there
        cause = f"finds no libxtables, libip4tc or libip6tc ({error}); {MISSING_LIBRARY}"
    except Exception as error:  # noqa: BLE001 - its own class, which cannot be named without the import
        cause = f"cannot be imported: {error}; {OTHERWISE}"
    raise BackendUnavailableError(f"python-iptables: {cause}")


def _find_packages() -> None:
    """Installed packages can be imported, also when the interpreter was started with -S, which leaves them out."""
    import sys

    if "site" not in sys.modules:
        import site

        site.main()


def _shorten_import() -> None:
    """Spares python-iptables' import two thirds of its time: setuptools, gcc and ld in search of its own library."""
    import importlib.util
    import sys
    from os import environ

    for name in set(environ) - {name.decode() for name in run.PASSED_ON}:
        del environ[name]  # XTABLES_LIBDIR and the like choose what libraries are loaded; the rest is not theirs to know
    if run.is_sealed():
        environ["XTABLES_LIBDIR"] = _find_without_programs()
    sys.modules["distutils"] = None  # type: ignore[assignment] # it does without, as on Python 3.12 and later
    found = importlib.util.find_spec("libxtwrapper")
    if found and found.origin:
        environ["IPTABLES_LIBDIR"] = found.origin.rpartition("/")[0]  # else it asks gcc and ld


def _find_without_programs() -> str:
    """Spares python-iptables asking ldconfig, which strangers could trace (netinit.kernel.run); the folder of extensions.

    The loader finds the libraries by their names; extensions lie beside libxtables. OSError where it is not installed.
    """
    import ctypes.util

    def find(name: str) -> str | None:
        return _SONAMES.get(name)

    ctypes.util.find_library = find
    ctypes.CDLL(_SONAMES["xtables"], mode=ctypes.RTLD_GLOBAL)
    paths = [line.split()[-1] for line in read_text("/proc/self/maps").splitlines() if "/libxtables.so" in line]
    return f"{paths[0].rpartition('/')[0]}/xtables" if paths else ""


def _collect(family: Family, pid: int, answer: int) -> str | NetinitError:
    status = run.wait(pid, time.monotonic_ns() + int(run.SECONDS * 10**9))
    if status is None:
        status = run.end(pid)
    parts = []
    offset = 0
    while part := posix.pread(answer, 1 << 20, offset):
        parts.append(part)
        offset += len(part)
    posix.close(answer)
    kind, found, text = b"".join(parts).decode("utf-8", "surrogateescape").partition("\n")
    code = posix.waitstatus_to_exitcode(status)
    if code or not found:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
        return ApplyError(f"libiptc: the process for {family.name} {how}; use --backend iptables-legacy")
    if not kind:
        return text
    error: NetinitError = getattr(errors, kind)(text)
    return error
