"""One address family's tables through libiptc, in a process of its own. The rules are this project's own bytes (`encode_rule`)."""

from __future__ import annotations

import ctypes
from struct import unpack_from
from typing import Any

from iptc import ip4tc, ip6tc

from netinit.backends.failure_causes import explain_number
from netinit.base.errors import ApplyError, NetinitError, ParseError
from netinit.base.net import IPV4, Family
from netinit.kernel import read_text
from netinit.rules.iptables.parse import normalise_rule, parse_rule
from netinit.rules.iptables.write import unfold_rule
from netinit.rules.model import Rule
from netinit.rules.xtables.building import ENTRY_FORMS, NAME, NEXT, TableEntry, encode_rule, list_extensions
from netinit.rules.xtables.decoded_tables import decode_entry


class Tables:
    """The tables of `family`."""

    def __init__(self, family: Family) -> None:
        self._family = family
        self._form = ENTRY_FORMS[family.version]
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
        code = ip4tc._get_errno_loc()[0]  # noqa: SLF001 - libiptc explains errno by what was called last
        said = f"{what}: {self._api.iptc_strerror(code).decode()}"
        modules = "ip_tables" if self._family is IPV4 else "ip6_tables"
        loaded = "".join([read_text(f"/proc/net/{modules}_{kind}") for kind in ("matches", "targets")]).split()
        return explain_number(code, said, opening=opening, modules=modules, missing=sorted(self._extensions.difference(loaded)))

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
