"""Legacy tables through iptables' own library: python-iptables in child processes.

Each family has a child, whose crash is that family's error. The children call libiptc through python-iptables and give it
rules as this project encodes them: python-iptables' own classes open, and so create, every table to find a chain, write IPv6
interface masks with one bit per letter, and misread the extensions of iptables 1.8.11.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from operator import methodcaller
from struct import unpack_from
from typing import Any

from netinit.backends import Change, Lock, of_kind
from netinit.backends.failure_causes import (
    BUSY,
    NUMBERS,
    PRIVILEGE,
    REFUSED,
    SUPPORT,
    TRY_AGAIN,
    advise_modules,
    explain_missing,
)
from netinit.backends.iptables import XtablesBackend, XtablesState
from netinit.base.errors import (
    ApplyError,
    BackendUnavailableError,
    BusyError,
    ChildLostError,
    LateError,
    NetinitError,
    ParseError,
)
from netinit.base.net import IPV4, Family
from netinit.kernel import children, read_text, run
from netinit.kernel.capabilities import advise
from netinit.kernel.several_children import ask_all
from netinit.rules.iptables.parse import normalise_rule, parse_rule
from netinit.rules.iptables.write import unfold_rule
from netinit.rules.model import OWNED_CHAINS, Rule
from netinit.rules.xtables.building import ENTRY_FORMS, NAME, NEXT, TableEntry, encode_rule, list_extensions
from netinit.rules.xtables.decoded_tables import decode_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.backends.kernel_support import Need

OTHERWISE = "or choose another --backend"
MISSING_PACKAGE = f"not installed: pip install python-iptables (it needs gcc and Python's headers), {OTHERWISE}"
MISSING_LIBRARY = f"add iptables' libraries to the image (Debian: libip4tc2 libip6tc2 libxtables12), {OTHERWISE}"
MISSING_LINKER = f"install it (Debian: libc-bin), {OTHERWISE}"
_SONAMES = {"xtables": "libxtables.so.12", "ip4tc": "libip4tc.so.2", "ip6tc": "libip6tc.so.2", "c": "libc.so.6"}


class LibiptcBackend(XtablesBackend):
    """Rules through libiptc: one commit for each table, both families at once."""

    name = "libiptc"

    def has(self, family: Family, need: Need) -> bool:
        from netinit.backends.kernel_support import has_exactly

        return has_exactly(family, need)

    def refusal(self, error: OSError) -> NetinitError:
        message = f"libiptc: the kernel does not list its rules: {os.strerror(error.errno or 0)}"
        return explain_number(error.errno or 0, message, opening=True, modules="ip_tables")

    def commit(self, change: Change) -> None:
        """Change the rules. Raises ApplyError before that if it could not put back what is in our chains, such as matches of sets."""
        for family, listing in of_kind(change.before, XtablesState).listings.items():
            for chain, texts in [one for listed in listing.values() for one in listed.rules.items() if one[0] in OWNED_CHAINS]:
                for rule in [parse_rule(text, family) for text in texts]:
                    try:
                        encode_rule(unfold_rule(rule, family)[0].matches, rule.target, family, rule.comment)
                    except ValueError as error:
                        what = f"libiptc: {family.name} {chain} could not be put back"
                        raise ApplyError(f"{what}: {error}; use --backend iptables-legacy") from None
        super().commit(change)

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Commit each family's input. Raises LockedError if iptables-legacy's lock, which libiptc ignores, is held."""
        with self.lock():
            answers = _ask({family: methodcaller("execute", script) for family, script in scripts.items()})
        return {family: answer for family, answer in answers.items() if isinstance(answer, NetinitError)}

    def lock(self) -> Lock:
        return self._legacy_lock()


class Tables:
    """The tables of `family` through libiptc, in a process of its own; the rules are this project's own bytes (`encode_rule`)."""

    def __init__(self, family: Family) -> None:
        from iptc import ip4tc, ip6tc  # an optional dependency, and slow to import

        self._family = family
        self._form = ENTRY_FORMS[family.version]
        self._errno = ip4tc._get_errno_loc  # noqa: SLF001 - libiptc explains errno by what was called last
        self._api: Any = ip4tc.iptc() if family is IPV4 else ip6tc.ip6tc()
        self._extensions: set[str] = set()  # of the open table's new rules

    def execute(self, script: str) -> None:
        """Run restore input, one commit for each table. Raises ApplyError with the line; earlier tables are changed then."""
        handle: Any = None
        table = ""
        for number, line in enumerate(script.splitlines(), 1):
            where = f"libiptc: line {number}: {line!r}"
            if line.startswith("*"):
                table = line[1:]
                handle = self._open(table)
            elif handle is None:
                raise ApplyError(f"{where} belongs to no table")
            elif line == "COMMIT":
                self._check(self._api.iptc_commit(handle), f"libiptc: the kernel refused the new rules of table {table}")
                self._api.iptc_free(handle)
                handle = None
            else:
                self._change(line, handle, where)
        if handle is not None:
            raise ApplyError("libiptc: the input ends without COMMIT")

    def _open(self, name: str) -> Any:
        self._extensions.clear()
        handle = self._api.iptc_init(name.encode())
        if not handle:
            raise self._error(f"libiptc: table {name} of {self._family.name} cannot be opened", opening=True)
        return handle

    def _error(self, what: str, *, opening: bool = False) -> NetinitError:
        code = self._errno()[0]
        message = f"{what}: {self._api.iptc_strerror(code).decode()}"
        modules = "ip_tables" if self._family is IPV4 else "ip6_tables"
        loaded = "".join([read_text(f"/proc/net/{modules}_{kind}") for kind in ("matches", "targets")]).split()
        return explain_number(code, message, opening=opening, modules=modules, missing=sorted(self._extensions.difference(loaded)))

    def _check(self, done: int, what: str) -> None:
        if not done:
            raise self._error(what)

    def _change(self, line: str, handle: Any, where: str) -> None:
        command, _, rest = line.partition(" ")
        if command.startswith(":"):
            self._reset_chain(command[1:], handle, where)
            return
        name, _, rest = rest.partition(" ")
        chain = name.encode()
        if command == "-X":
            self._check(self._api.iptc_delete_chain(chain, handle), where)
        elif command == "-D":
            number = int(rest) if rest.isdigit() else self._number_of(chain, self._parse(rest, where), handle, where)
            self._check(self._api.iptc_delete_num_entry(chain, number - 1, handle), where)
        elif command == "-A":
            self._check(self._api.iptc_append_entry(chain, self._build(rest, handle, where), handle), where)
        elif command == "-I":
            position, _, rest = rest.partition(" ")
            entry = self._build(rest, handle, where)
            self._check(self._api.iptc_insert_entry(chain, entry, int(position) - 1, handle), where)
        else:
            raise ApplyError(f"{where} is not understood")

    def _reset_chain(self, name: str, handle: Any, where: str) -> None:
        known = self._api.iptc_is_chain(name.encode(), handle)
        action = self._api.iptc_flush_entries if known else self._api.iptc_create_chain
        self._check(action(name.encode(), handle), where)

    def _parse(self, text: str, where: str) -> Rule:
        try:
            return parse_rule(text, self._family)
        except ParseError as error:
            raise ApplyError(f"{where}: {error}") from None

    def _number_of(self, chain: bytes, wanted: Rule, handle: Any, where: str) -> int:
        number, pointer = 1, self._api.iptc_first_rule(chain, handle)
        while pointer:
            target = self._api.iptc_get_target(pointer, handle) or b""
            called = target.decode("utf-8", "surrogateescape") if self._api.iptc_is_chain(target, handle) else "" if target else NEXT
            rule = decode_entry(TableEntry(data=ctypes.string_at(pointer, pointer[0].next_offset), chain=called), self._form)
            if rule.comment == wanted.comment and normalise_rule(rule) == normalise_rule(wanted):
                return number
            number, pointer = number + 1, self._api.iptc_next_rule(pointer, handle)
        raise ApplyError(f"{where}: there is no such rule in the chain")

    def _build(self, text: str, handle: Any, where: str) -> Any:
        """Return the entry for a rule; as a target libiptc takes the name of a verdict or chain."""
        rule = self._parse(text, where)
        target = rule.target
        if target.calls and not self._api.iptc_is_chain(target.calls.encode(), handle):
            raise ApplyError(f"{where}: there is no chain {target.calls}")
        try:
            (alone,) = unfold_rule(rule, self._family)
            entry = encode_rule(alone.matches, target, self._family, rule.comment)
        except ValueError as error:
            raise ApplyError(f"{where}: {error}; use --backend iptables-legacy") from None
        self._extensions.update([name for name, *_ in list_extensions(entry, self._form) if name])
        data = bytearray(entry.data)
        if label := target.calls or (target.name if target.verdict else ""):
            place = unpack_from("=H", data, self._form.packet + 4)[0] + NAME.start
            data[place : place + len(label)] = label.encode()
        return ctypes.create_string_buffer(bytes(data))


def _ask(jobs: dict[Family, Callable[[Tables], Any]]) -> dict[Family, Any]:
    """Return each job's result or NetinitError; each runs in a child, all at once."""

    def serve(family: Family, job: Callable[[Tables], Any], _: children.Answer) -> Any:
        warnings.simplefilter("ignore")  # a user of netinit can do nothing about python-iptables' warnings
        return job(_load(family))

    found: dict[Family, Any] = {}
    calls = {family: partial(serve, family, job) for family, job in jobs.items()}
    for family, outcome in ask_all(calls, seconds=run.SECONDS, what="libiptc").items():
        if isinstance(outcome, ChildLostError):
            how = f"did not end within {run.SECONDS:.0f} s and was killed" if outcome.late else outcome.how
            kind = LateError if outcome.late else ApplyError
            found[family] = kind(f"libiptc: the process for {family.name} {how}; use --backend iptables-legacy")
        elif isinstance(outcome, OSError):
            found[family] = ApplyError(f"libiptc: {type(outcome).__name__}: {outcome}")
        else:
            found[family] = ApplyError(f"libiptc: {outcome}") if isinstance(outcome, children.ChildError) else outcome
    return found


def explain_number(number: int, message: str, *, opening: bool, modules: str, missing: Iterable[str] = ()) -> NetinitError:
    """Return the error for an errno of libiptc; `message` starts it.

    `opening`: a table was being opened, for which the node may have to load `modules`. `missing`: extensions of the refused
    rules that the kernel does not list.
    """
    cause = NUMBERS.get(number, REFUSED)
    if cause == BUSY:
        return BusyError(f"{message}; {TRY_AGAIN}")
    if cause == PRIVILEGE:
        return BackendUnavailableError(f"{message}; legacy tables need NET_ADMIN and NET_RAW: {advise('NET_ADMIN', 'NET_RAW')}")
    if cause == SUPPORT and opening:
        return BackendUnavailableError(f"{message}; {advise_modules(f'{modules} and its tables')}")
    if cause == SUPPORT and missing:
        return explain_missing(message, ", ".join(missing))
    return ApplyError(message)


def _load(family: Family) -> Tables:
    """Load the libraries for one family. Raises BackendUnavailableError that says what is missing or incompatible."""
    try:
        if "site" not in sys.modules:  # in a start by path, which finds no installed packages
            import site

            site.main()
        _shorten_import()
        return Tables(family)
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
