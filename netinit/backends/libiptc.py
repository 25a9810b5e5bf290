"""The backend without programs: python-iptables in child processes, for legacy iptables.

libiptc and libxtables keep one family in global variables, so each family has a child, whose crash is that family's error.
The children call libiptc directly: python-iptables' classes open, and so create, every table to find a chain, write IPv6
interface masks with one bit per letter, and read foreign rules with this host's sizes.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any, NoReturn

from netinit.backends import Lock
from netinit.backends.iptables import XtablesBackend
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
    """Rules through libiptc: one commit for each table, both families at once."""

    name = "libiptc"

    def refusal(self, error: OSError) -> NetinitError:
        from netinit.backends.errors import explain_number

        said = f"libiptc: the kernel does not list its rules: {os.strerror(error.errno or 0)}"
        return explain_number(error.errno or 0, said, opening=True, modules="ip_tables")

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commit each family's input. Raises LockedError if iptables-legacy's lock, which libiptc ignores, is held.

        BackendUnavailableError for NFLOG: such a rule crashes python-iptables.
        """
        if any("-j NFLOG " in script for script in scripts.values()):
            raise BackendUnavailableError("python-iptables cannot make NFLOG rules: leave --log-group out, or use another backend")
        with self.lock():
            answers = _ask({family: methodcaller("execute", script) for family, script in scripts.items()})
        return {family: answer for family, answer in answers.items() if isinstance(answer, NetinitError)}

    def lock(self) -> Lock:
        return self._legacy_lock()


TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.iptc_tables import Tables


def _ask(jobs: dict[Family, Callable[[Tables], Any]]) -> dict[Family, Any]:
    """Return each job's result or NetinitError; each runs in a child, all at once."""

    def serve(family: Family, job: Callable[[Tables], Any], answer: children.Answer) -> Any:
        warnings.simplefilter("ignore")  # a user of netinit can do nothing about python-iptables' warnings
        return job(_load(family, lambda text: answer.fail(ApplyError(text))))

    found: dict[Family, Any] = {}
    calls = {family: partial(serve, family, job) for family, job in jobs.items()}
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
    """Load the libraries for one family. Raises BackendUnavailableError that says what is missing or incompatible."""
    try:
        _find_packages()
        _shorten_import()
        from netinit.backends.iptc_tables import Tables  # python-iptables is an optional dependency, and slow to import

        return _checked(Tables(family, fail))
    except NetinitError:
        raise
    except ModuleNotFoundError as error:
        cause = MISSING_PACKAGE if error.name == "iptc" else f"cannot be imported: {error}; {OTHERWISE}"
    except FileNotFoundError as error:
        cause = f"cannot be imported: {error.filename} is missing; {MISSING_LINKER}"
    except (AttributeError, TypeError, OSError) as error:  # python-iptables sets a library that it did not find to None
        cause = f"finds no libxtables, libip4tc or libip6tc ({error}); {MISSING_LIBRARY}"
    except Exception as error:  # noqa: BLE001 - its own class, which cannot be named without the import
        cause = f"cannot be imported: {error}; {OTHERWISE}"
    raise BackendUnavailableError(f"python-iptables: {cause}")


def _checked(tables: Tables) -> Tables:
    """Return the tables; raise BackendUnavailableError if python-iptables misreads this libxtables.

    Releases with option records of different sizes share the name libxtables.so.12; then an extension's second option is
    not found. Without both capabilities extensions cannot be queried; opening a table reports that.
    """
    if not (detect.has_capability(detect.CAP_NET_ADMIN) and detect.has_capability(detect.CAP_NET_RAW)):
        return tables
    owner = tables.extensions.find_match(b"owner")
    if owner and tables.extensions._option_lookup(owner[0].x6_options, b"gid-owner") is None:  # noqa: SLF001
        raise BackendUnavailableError(f"python-iptables {UNKNOWN_LAYOUT}")
    return tables


def _find_packages() -> None:
    if "site" not in sys.modules:
        import site

        site.main()


def _shorten_import() -> None:
    """Save two thirds of python-iptables' import time: it runs setuptools, gcc and ld to find its own library."""
    for name in set(os.environ) - {name.decode() for name in run.PASSED_ON}:
        del os.environ[name]  # XTABLES_LIBDIR and the like choose which libraries are loaded; other variables are not passed on
    try:
        os.environ["XTABLES_LIBDIR"] = _find_without_programs()
    except OSError:  # libraries with other names, which ldconfig may know
        if run.is_sealed():
            raise
    sys.modules["distutils"] = None  # type: ignore[assignment] # it does without, as on Python 3.12 and later
    found = importlib.util.find_spec("libxtwrapper")
    if found and found.origin:
        os.environ["IPTABLES_LIBDIR"] = found.origin.rpartition("/")[0]  # otherwise it runs gcc and ld


def _find_without_programs() -> str:
    """Keep python-iptables from running ldconfig a dozen times; return the directory of extensions.

    ldconfig takes as long as everything else, and could be traced by others (netinit.kernel.open_pod). Raises OSError if
    a library is missing.
    """
    import ctypes.util  # imports what starts programs

    def find(name: str) -> str | None:
        return _SONAMES.get(name)

    for name in _SONAMES.values():
        ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
    ctypes.util.find_library = find
    paths = [line.split()[-1] for line in read_text("/proc/self/maps").splitlines() if "/libxtables.so" in line]
    return f"{paths[0].rpartition('/')[0]}/xtables" if paths else ""
