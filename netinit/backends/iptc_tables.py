"""One address family's tables through libiptc and libxtables, in a process of its own.

Rules are listed as iptables-legacy-save does, to delete a rule by its text and to verify what the library built: addresses,
interfaces and protocol from the kernel's entry, matches and targets by their extension's own `save`. Extensions that this
host lacks, or has in another revision, are marked.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator
from socket import AF_INET, AF_INET6, getprotobyname, inet_ntop
from typing import Any

from iptc import ip4tc, ip6tc, xtables

from netinit.backends.failure_causes import explain_number
from netinit.base.errors import ApplyError, NetinitError, ParseError
from netinit.base.net import IPV4, Family, Network
from netinit.rules.iptables.parse import Word, normalise, split_words

VIA_IN, VIA_OUT, FROM, TO, FRAGMENT, PROTOCOL = 0x01, 0x02, 0x08, 0x10, 0x20, 0x40  # ip_tables.h: what is negated
VERDICTS = ("", "ACCEPT", "DROP", "QUEUE", "RETURN")
INTERFACE_BYTES = 16
MAX_WARNING_BYTES = 1 << 16  # that are searched for causes: some 600 lines
UNSUPPORTED = " [unsupported revision]"


class _NamedProtocol(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("number", ctypes.c_uint8))


class _Protocol(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("aliases", ctypes.c_void_p), ("number", ctypes.c_int))


class _Flags:
    def __init__(self, family: Family) -> None:
        four = family is IPV4
        self.part = "ip" if four else "ipv6"
        self.fragment = 0x01 if four else 0
        self.protocol = 0 if four else 0x01
        self.goto = 0x02 if four else 0x04


class Tables:
    """The tables of `family`; `fail` gets libxtables' message before it would exit, and must not return."""

    def __init__(self, family: Family, fail: Callable[[str], None]) -> None:
        self._family = family
        self._flags = _Flags(family)
        four = family is IPV4
        self._api: Any = ip4tc.iptc() if four else ip6tc.ip6tc()
        self._new_rule: Any = ip4tc.Rule if four else ip6tc.Rule6
        self._entry_type: Any = ip4tc.ipt_entry if four else ip6tc.ip6t_entry
        for table in (ip4tc.Table, ip6tc.Table6):  # otherwise each new target opens every table and so creates it
            table.existing_table_names = dict.fromkeys(table.ALL, False)
        self._at = "libiptc"  # the current line, for libxtables' messages, whose values (%s) cannot be read
        self._fail: Any = xtables._EXIT_FN(  # noqa: SLF001
            lambda _, text: fail(f"{self._at}: {text.decode('utf-8', 'replace').strip().replace('%s', '...')}")
        )
        xtables._xt_globals.exit_err = self._fail  # noqa: SLF001 - the library's own jumps over Python's frames
        self.extensions: Any = xtables.xtables(xtables.NFPROTO_IPV4 if four else xtables.NFPROTO_IPV6)
        self._printed = 0  # bytes that extensions have printed so far
        self._output = os.memfd_create("stdout")
        os.dup2(self._output, 1)
        self._warnings = os.memfd_create("stderr")  # libxtables warns here about missing kernel support
        os.dup2(self._warnings, 2)
        self._names, self._numbers = _read_protocols()

    def execute(self, script: str) -> None:
        """Run restore input, one commit for each table. Raises ApplyError with the line; earlier tables are changed then."""
        handle: Any = None
        table = ""
        for number, line in enumerate(script.splitlines(), 1):
            where = self._at = f"libiptc: line {number}: {line!r}"
            if line.startswith("*"):
                table = line[1:]
                handle = self._open(line[1:])
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
        handle = self._api.iptc_init(name.encode())
        if not handle:
            raise self._error(f"libiptc: table {name} of {self._family.name} cannot be opened", opening=True)
        return handle

    def _error(self, what: str, *, opening: bool = False) -> NetinitError:
        code = ip4tc._get_errno_loc()[0]  # noqa: SLF001 - libiptc explains errno by what was called last
        said = f"{what}: {self._api.iptc_strerror(code).decode()}"
        modules = "ip_tables" if self._family is IPV4 else "ip6_tables"
        warned = os.pread(self._warnings, MAX_WARNING_BYTES, 0).decode("utf-8", "replace")
        return explain_number(code, said, opening=opening, modules=modules, said=warned)

    def _check(self, done: int, what: str) -> None:
        if not done:
            raise self._error(what)

    # listing

    def _list_rules(self, chain: str, handle: Any) -> Iterator[str]:
        entry = self._api.iptc_first_rule(chain.encode(), handle)
        while entry:
            yield self._spell(entry, handle)
            entry = self._api.iptc_next_rule(entry, handle)

    def _spell(self, pointer: Any, handle: Any) -> str:
        entry = pointer[0]
        start = ctypes.addressof(entry)
        packet = getattr(entry, self._flags.part)
        words = [*self._format_packet(packet)]
        offset = ctypes.sizeof(self._entry_type)
        while offset < entry.target_offset:
            match = xtables.xt_entry_match.from_address(start + offset)
            words.append(f"-m {self._format_extension(match, packet, self._find_match)}")
            offset += match.u.match_size
        target = xtables.xt_entry_target.from_address(start + entry.target_offset)
        option = "-g" if packet.flags & self._flags.goto else "-j"
        name = target.u.user.name.decode() or (self._api.iptc_get_target(pointer, handle) or b"").decode()
        if name and (name in VERDICTS or self._api.iptc_is_chain(name.encode(), handle)):
            words.append(f"{option} {name}")
        elif name:
            words.append(f"{option} {self._format_extension(target, packet, self._find_target)}")
        return " ".join(words)

    def _format_packet(self, packet: Any) -> Iterator[str]:
        def no(bit: int) -> str:
            return "! " if packet.invflags & bit else ""

        for option, address, mask, bit in (("-s", packet.src, packet.smsk, FROM), ("-d", packet.dst, packet.dmsk, TO)):
            if any(bytes(mask)) or any(bytes(address)) or no(bit):
                yield f"{no(bit)}{option} {_format_network(bytes(address), bytes(mask))}"
        for option, side, bit in (("-i", "iniface", VIA_IN), ("-o", "outiface", VIA_OUT)):
            name, mask = getattr(packet, side), getattr(packet, f"{side}_mask")
            if mask:
                more = "+" if len(mask) < INTERFACE_BYTES and len(name) >= len(mask) else ""
                yield f"{no(bit)}{option} {name[: len(mask)].decode('utf-8', 'surrogateescape')}{more}"
        if packet.proto:
            yield f"{no(PROTOCOL)}-p {self._names.get(packet.proto) or _protocol_name(packet.proto) or packet.proto}"
        if packet.flags & self._flags.fragment:
            yield f"{no(FRAGMENT)}-f"

    def _format_extension(self, found: Any, packet: Any, find: Callable[[bytes, int], tuple[Any, bool]]) -> str:
        """Return an extension's name and options as it prints them."""
        name = found.u.user.name
        module, exact = find(name, found.u.user.revision)
        if module is None:
            return f"{name.decode()} [unknown to this host]"
        if not exact:
            return f"{name.decode()}{UNSUPPORTED}"
        alias = getattr(module, "alias", None)
        shown = (alias(ctypes.pointer(found)) if alias else name).decode()
        if not module.save:
            return str(shown)
        self.extensions.save(module, packet, ctypes.pointer(found))
        end = os.fstat(self._output).st_size
        printed = os.pread(self._output, end - self._printed, self._printed).decode("utf-8", "surrogateescape")
        self._printed = end
        return f"{shown} {printed.strip()}".rstrip()

    def _find_match(self, name: bytes, revision: int) -> tuple[Any, bool]:
        search = xtables._lib_xtables.xtables_find_match_revision  # noqa: SLF001
        return self._find_revision(self.extensions.find_match(name), search, name, revision)

    def _find_target(self, name: bytes, revision: int) -> tuple[Any, bool]:
        search = xtables._lib_xtables.xtables_find_target_revision  # noqa: SLF001
        return self._find_revision(self.extensions.find_target(name), search, name, revision)

    def _find_revision(self, latest: Any, search: Any, name: bytes, revision: int) -> tuple[Any, bool]:
        """Return this host's extension, and whether it has the rule's revision."""
        if not latest:
            return None, False
        if latest[0].revision == revision:
            return latest[0], True
        search.restype = type(latest)
        exact = search(name, xtables.XTF_TRY_LOAD, latest, revision)
        return (exact[0], True) if exact else (latest[0], False)

    # changing

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
            number = int(rest) if rest.isdigit() else self._number_of(name, rest, handle, where)
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

    def _number_of(self, chain: str, text: str, handle: Any, where: str) -> int:
        for number, listed in enumerate(self._list_rules(chain, handle), 1):
            if listed == text:
                return number
        raise ApplyError(f"{where}: there is no such rule in the chain")

    def _build(self, text: str, handle: Any, where: str) -> Any:
        try:
            rule = self._new_rule()
            packet = rule.get_ip()
            extension: Any = None  # the match or target of the current options
            for negated, option, values in _split_options(split_words(text)):
                if option.startswith("--"):
                    if extension is None:
                        raise ValueError(f"unknown option {option}")  # noqa: TRY301
                    extension.parse(option[2:], ["!", *values] if negated else values)
                elif option in ("-m", "-j", "-g"):
                    _finish(extension)
                    extension = self._add(rule, option, values[0], handle)
                else:
                    self._set_packet(packet, option, values[0] if values else "", negated)
            _finish(extension)
            if rule.target is None:
                self._add(rule, "-j", "", handle)
        except (xtables.XTablesError, ParseError, AttributeError, IndexError, ValueError) as error:
            raise ApplyError(f"{where}: {error}") from None
        return self._checked(rule.rule, text, handle, where)

    def _checked(self, entry: Any, text: str, handle: Any, where: str) -> Any:
        """Return the entry if it lists as the requested rule: python-iptables loses what some extensions need."""
        pointer = ctypes.cast(entry, ctypes.POINTER(self._entry_type))
        made = self._spell(pointer, handle)
        if made != text and normalise(made, self._family) != normalise(text, self._family):
            raise ApplyError(f"{where}: python-iptables would make it {made!r}; use --backend iptables-legacy")
        return entry

    def _add(self, rule: Any, option: str, name: str, handle: Any) -> Any:
        if option == "-m":
            return rule.create_match(name)
        if name not in VERDICTS and not self._api.iptc_is_chain(name.encode(), handle):
            return rule.create_target(name, goto=option == "-g")
        target = rule.create_target("ACCEPT", goto=option == "-g")
        target.standard_target = name
        return target

    def _set_packet(self, packet: Any, option: str, value: str, negated: bool) -> None:
        if option in ("-s", "-d"):
            address, mask, bit = ("src", "smsk", FROM) if option == "-s" else ("dst", "dmsk", TO)
            first, netmask = _pack_network(value, self._family)
            ctypes.memmove(ctypes.addressof(getattr(packet, address)), first, len(first))
            ctypes.memmove(ctypes.addressof(getattr(packet, mask)), netmask, len(netmask))
        elif option in ("-i", "-o"):
            side, bit = ("iniface", VIA_IN) if option == "-i" else ("outiface", VIA_OUT)
            name = value.removesuffix("+").encode()
            setattr(packet, side, name)
            setattr(packet, f"{side}_mask", b"\xff" * (len(name) + (value[-1:] != "+")))
        elif option == "-p":
            packet.proto = self._numbers.get(value) or _protocol_number(value)
            packet.flags |= self._flags.protocol
            bit = PROTOCOL
        elif option == "-f" and self._flags.fragment:
            packet.flags |= self._flags.fragment
            bit = FRAGMENT
        else:
            raise ValueError(f"option {option} is not understood")
        if negated:
            packet.invflags |= bit


def _finish(extension: Any) -> None:
    """Let an extension validate its options before another one overwrites the shared state."""
    if extension is not None:
        extension._final_check()  # noqa: SLF001 - the public one reads every option back and sets it again


def _split_options(words: list[Word]) -> Iterator[tuple[bool, str, list[str]]]:
    """Yield a rule's options: whether `!` precedes them, name, values."""
    at = 0
    while at < len(words):
        negated = words[at].text == "!" and not words[at].quoted
        at += negated
        end = at + 1
        while end < len(words) and (words[end].quoted or (words[end].text[:1] != "-" and words[end].text != "!")):
            end += 1
        if at < len(words):
            yield negated, words[at].text, [word.text for word in words[at + 1 : end]]
        at = end


def _format_network(address: bytes, mask: bytes) -> str:
    family = AF_INET if len(address) == 4 else AF_INET6  # noqa: PLR2004 - bytes of an IPv4 address
    number, bits = int.from_bytes(mask, "big"), len(mask) * 8
    length = number.bit_count()
    whole = number == (1 << bits) - (1 << bits - length)
    return f"{inet_ntop(family, address)}/{length if whole else inet_ntop(family, mask)}"


def _pack_network(text: str, family: Family) -> tuple[bytes, bytes]:
    network = Network.parse(text)
    if network.family is not family:
        raise ValueError(f"{text} is no {family.name} network")
    size = family.bits // 8
    mask = (1 << family.bits) - (1 << family.bits - network.length)
    return network.first.to_bytes(size, "big"), mask.to_bytes(size, "big")


def _read_protocols() -> tuple[dict[int, str], dict[str, int]]:
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}
    entry = _NamedProtocol.in_dll(xtables._lib_xtables, "xtables_chain_protos")  # noqa: SLF001
    start = ctypes.addressof(entry)
    while entry.name:
        names.setdefault(entry.number, entry.name.decode())
        numbers[entry.name.decode()] = entry.number
        start += ctypes.sizeof(_NamedProtocol)
        entry = _NamedProtocol.from_address(start)
    return names, numbers


def _protocol_number(text: str) -> int:
    try:
        return getprotobyname(text)
    except OSError:
        if not text.isdecimal():
            raise ValueError(f"unknown protocol {text}") from None
    return int(text)


def _protocol_name(number: int) -> str:
    search = ip4tc._libc.getprotobynumber  # noqa: SLF001
    search.restype = ctypes.POINTER(_Protocol)
    found = search(number)
    return found[0].name.decode() if found else ""
