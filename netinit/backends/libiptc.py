"""The backend without any external program: python-iptables in this process's children, on the older kernel interface.

libiptc and libxtables keep one address family in global variables, and importing them takes tens of milliseconds, so each
family gets a forked child that imports them, both at the same time. A child that crashes in the libraries is an error
of its family. The children speak to libiptc directly: the library's own classes open every table when they look for a
chain (which registers it in the kernel), write IPv6 interface masks that compare one bit a letter, and read a foreign
rule by the size that this host's extension has instead of the rule's own.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from typing import NoReturn

from netinit.backends import Lock
from netinit.backends.iptables import XtablesBackend
from netinit.backends.lock import XtablesLock
from netinit.base.errors import ApplyError, BackendUnavailableError, ChildLostError, NetinitError
from netinit.base.net import Family
from netinit.kernel import children, detect, read_text, run

OTHERWISE = "or choose another --backend"
MISSING_PACKAGE = f"not installed: pip install python-iptables (it needs gcc and Python's headers), {OTHERWISE}"
MISSING_LIBRARY = f"add iptables' libraries to the image (Debian: libip4tc2 libip6tc2 libxtables12), {OTHERWISE}"
MISSING_LINKER = f"install it (Debian: libc-bin), {OTHERWISE}"
UNKNOWN_LAYOUT = (
    "does not know how this libxtables lays out the options of rules: python-iptables 1.2.0 serves iptables 1.8.9,"
    " not 1.8.11; use iptables-legacy, or choose another --backend"
)
_SONAMES = {"xtables": "libxtables.so.12", "ip4tc": "libip4tc.so.2", "ip6tc": "libip6tc.so.2", "c": "libc.so.6"}


class LibiptcBackend(XtablesBackend):
    """Rules through libiptc: one commit a table, both families at once."""

    name = "libiptc"

    def read(self, families: tuple[Family, ...]) -> Held:
        if not any(detect.legacy_tables(family) != () for family in families):
            return ()
        from netinit.backends.kernel_comparison import read_legacy  # not on a first run

        try:
            return read_legacy(families)
        except OSError as error:
            from netinit.backends.errors import explain_number

            said = f"libiptc: the kernel does not tell its rules: {os.strerror(error.errno or 0)}"
            raise explain_number(error.errno or 0, said, opening=True, modules="ip_tables") from None

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commits each family's input; LockedError where another process holds iptables-legacy's lock, which libiptc does not know.

        BackendUnavailableError for NFLOG: python-iptables ends by a signal when it makes such a rule.
        """
        if any("-j NFLOG " in script for script in scripts.values()):
            raise BackendUnavailableError("python-iptables cannot make NFLOG rules: leave --log-group out, or use another backend")
        with self.lock():
            answers = _ask({family: _feeding(script) for family, script in scripts.items()})
        return {family: answer for family, answer in answers.items() if isinstance(answer, NetinitError)}

    def lock(self) -> Lock:
        if self._lock is None:
            self._lock = XtablesLock(self.name, self._lock_timeout, own_files=self._own_files)
        return self._lock


TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.iptc_tables import Tables
    from netinit.backends.kernel_comparison import Held

    Job = Callable[[Tables], str]


def _feeding(script: str) -> Job:
    return lambda tables: tables.execute(script)


def _ask(jobs: dict[Family, Job]) -> dict[Family, str | NetinitError]:
    """What each job returned or raised in a child of its own; all children run at the same time."""

    def serve(family: Family, job: Job, answer: children.Answer) -> str:
        warnings.simplefilter("ignore")  # those of python-iptables are nothing a user of netinit can act on
        return job(_load(family, lambda text: answer.fail(ApplyError(text))))

    calls: dict[Family, Callable[[children.Answer], str]] = {}
    for family, job in jobs.items():
        calls[family] = lambda answer, family=family, job=job: serve(family, job, answer)  # type: ignore[misc]
    found: dict[Family, str | NetinitError] = {}
    for family, outcome in children.ask_all(calls, seconds=run.SECONDS, what="libiptc").items():
        if isinstance(outcome, ChildLostError):
            how = "was killed by signal 9" if outcome.late else outcome.how
            found[family] = ApplyError(f"libiptc: the process for {family.name} {how}; use --backend iptables-legacy")
        elif isinstance(outcome, OSError):
            found[family] = ApplyError(f"libiptc: {type(outcome).__name__}: {outcome}")
        else:
            found[family] = ApplyError(f"libiptc: {outcome}") if isinstance(outcome, children.ChildError) else outcome
    return found


def _load(family: Family, fail: Callable[[str], NoReturn]) -> Tables:
    """The libraries, ready for one family. BackendUnavailableError says what is missing or does not fit."""
    try:
        _find_packages()
        _shorten_import()
        from netinit.backends.iptc_tables import Tables  # python-iptables is an extra, and takes long

        return _checked(Tables(family, fail))
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


def _checked(tables: Tables) -> Tables:
    """The same; BackendUnavailableError where python-iptables finds an extension's first option and not the second.

    Releases of libxtables with other sizes of an option's record have the same name, libxtables.so.12. Without both
    capabilities the library cannot ask the kernel of extensions, and prints that; the first table says what is missing.
    """
    if not (detect.has_capability(detect.CAP_NET_ADMIN) and detect.has_capability(detect.CAP_NET_RAW)):
        return tables
    owner = tables.extensions.find_match(b"owner")
    if owner and tables.extensions._option_lookup(owner[0].x6_options, b"gid-owner") is None:  # noqa: SLF001
        raise BackendUnavailableError(f"python-iptables {UNKNOWN_LAYOUT}")
    return tables


def _find_packages() -> None:
    """Installed packages can be imported, also when the interpreter was started with -S, which leaves them out."""
    if "site" not in sys.modules:
        import site

        site.main()


def _shorten_import() -> None:
    """Saves python-iptables' import two thirds of its time: setuptools, gcc and ld in search of its own library."""
    for name in set(os.environ) - {name.decode() for name in run.PASSED_ON}:
        del os.environ[name]  # XTABLES_LIBDIR and the like choose what libraries are loaded; the rest is not theirs to know
    try:
        os.environ["XTABLES_LIBDIR"] = _find_without_programs()
    except OSError:  # libraries of other names, which ldconfig may know
        if run.is_sealed():
            raise
    sys.modules["distutils"] = None  # type: ignore[assignment] # it does without, as on Python 3.12 and later
    found = importlib.util.find_spec("libxtwrapper")
    if found and found.origin:
        os.environ["IPTABLES_LIBDIR"] = found.origin.rpartition("/")[0]  # else it asks gcc and ld


def _find_without_programs() -> str:
    """Keeps python-iptables from asking ldconfig a dozen times; the folder of extensions.

    That takes as long as all the rest, and other processes could trace the program (netinit.kernel.run). The loader finds
    the libraries by their names; extensions lie beside libxtables. OSError where one of them is not installed.
    """
    import ctypes.util  # which imports what starts programs

    def find(name: str) -> str | None:
        return _SONAMES.get(name)

    for name in _SONAMES.values():
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    ctypes.util.find_library = find
    paths = [line.split()[-1] for line in read_text("/proc/self/maps").splitlines() if "/libxtables.so" in line]
    return f"{paths[0].rpartition('/')[0]}/xtables" if paths else ""
