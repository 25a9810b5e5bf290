"""Flags, and kinds of values: how each is read from text, checked and written. Pure.

A reader raises ValueError with the end of a sentence that begins with the value: the problem and the remedy. Only ASCII
digits count as numbers; Python's int() accepts other digits, blanks and underscores, iptables octal too. What iptables and nft
write in hexadecimal, marks, is read in hexadecimal as well.

An empty text has the meaning that its kind declares, and is an error for all others: `--netns "$UNSET"` names no namespace.
"""

from __future__ import annotations

from netinit.base.logs import LEVELS
from netinit.base.net import IPV4, MAX_PORT, Network, PortRange, Ports, merge_ports, parse_address
from netinit.base.records import Record
from netinit.base.sanitize import escape_character

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    Text = str | tuple[str, ...]  # the value of a flag; all values of a repeated flag

ALL = "*"
BLANKS = " \t\r\n"  # around a value: the block text of a manifest ends with a line feed
OR_LEAVE_OUT = ", or remove it"
NONE = "none"  # what an empty list means
MAX_ID = 2**32 - 2  # 2**32 - 1 is (uid_t)-1, "no user", in the kernel
MAX_32 = 2**32 - 1
MAX_NAME = 15  # IFNAMSIZ of the kernel is 16, its last byte a NUL
MAX_GROUPS = 64  # as in istio-iptables
MAX_SHOWN = 60  # characters of a value in an error message
MAX_ITEMS = 10  # items of a list in an error message
ALL_PORTS = PortRange((1, MAX_PORT))
TABLES_OF_THE_SYSTEM = {253: "default", 254: "main", 255: "local"}
NOT_IN_NAMES = frozenset("/:\"'`\\,;{}$#&|<>()*?[]~!")  # the kernel refuses / and :, the others have a meaning in shells or rules
MICRO = "\u00b5\u03bc"  # Unicode has two micro signs, and Go accepts both
DURATION_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
DURATION_UNITS |= dict.fromkeys((f"{MICRO[0]}s", f"{MICRO[1]}s"), 10**3)
AUTO = "auto"
PROGRAMMING = "Programming"  # the usual topic
PORTS_OF_A_PACKET, ADDRESSES_OF_A_PACKET = "ports", "addresses"
NEVER, IN_PAIRS, ALONE = 0, 1, 2  # when lint may object to an option: never, only beside another one, already by itself
TRUE_WORDS, FALSE_WORDS = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


class Kind(Record):
    """A kind of value: its placeholder in the help, its reader and its writer (the reader's inverse)."""

    metavar: str
    read: Callable[[str], Any]
    write: Callable[[Any], str] = str
    words: tuple[str, ...] = ()  # all permitted values, if there are few
    is_file: bool = False  # shells complete file names
    empty: str = ""  # what an empty text means; without a meaning it is an error
    is_name: bool = False  # it names an object: an empty variable is an error too, and not unset
    lists: str = ""  # what a list of it names, if a packet has one: PORTS_OF_A_PACKET or ADDRESSES_OF_A_PACKET
    is_own_port: bool = False  # a port of the proxy: each option of such a kind needs another one
    is_doubtful: Callable[[Any], bool] | None = None  # which of its values lint objects to in any option

    def parse(self, text: str) -> Any:
        """Read a given text with the rules of every kind: not empty, unless that has a meaning, and UTF-8. Raises ValueError."""
        if not text and not self.empty:
            raise ValueError(f"is empty: give {self.metavar}{OR_LEAVE_OUT}")
        if not (text.isascii() or self.is_file) and has_other_bytes(text):
            raise ValueError(f"is not UTF-8: give {self.metavar}")
        return self.read(text)


class Flag(Record):
    """One option: its field, names, reader and meaning."""

    # How it is written.
    names: str  # as on a command line, the long name before its aliases: `-p --envoy-port`; empty: an environment variable only
    variables: tuple[str, ...]
    kind: Kind
    default: Any  # None: derived from other options
    help: str
    group: str  # its heading in help and documentation
    topic: str = PROGRAMMING  # heading in a command's help, if it does not affect rules
    # Which rules it has.
    layouts: tuple[str, ...] = ()  # those with a rule for it; empty: all
    repeated: bool = False  # each use adds to a tuple
    # What a pod says of it, and a node.
    annotation: str = ""  # netinit's pod annotation, which the injection passes on
    istio_annotations: tuple[str, ...] = ()  # Istio's pod annotations; the first takes precedence
    without_annotation: str = ""  # what Istio's CNI plugin uses without any of these annotations; empty: the node's setting
    always_on_node: tuple[int, ...] = ()  # values that the CNI plugin adds, whatever the pod says
    pod_variable: str = ""  # variable of the proxy's container from which a CNI plugin reads it
    # What explain, audit and lint say of it.
    needs: str = ""  # the field without which it has no effect
    contradicts: int | None = None  # when lint may object to it; None: as netinit.pods.init_run derives it
    is_shown: bool = True  # visible in the rules; False: it reports packets, or decides about other options
    offers: tuple[str, ...] | None = None  # values that explanations suggest; None: the kind's words; empty: no other value at all
    bypass: str = ""  # the kind of bypass that its rules create: a name of `netinit.questions.audit.kinds`
    closes: tuple[str, str] = ("", "")  # the kind of bypass that it closes, and how, with {option}
    field: str = ""  # set by the class that declares it

    @property
    def long(self) -> str:
        """The long name without dashes; empty if only a variable sets the option."""
        return self.names.partition("--")[2].partition(" ")[0]

    @property
    def short(self) -> str:
        """The short letter, if there is one."""
        return self.names[1] if self.names[1:2] not in ("", "-") else ""

    @property
    def aliases(self) -> tuple[str, ...]:
        """More long names, without dashes."""
        return tuple([name[2:] for name in self.names.split() if name[:2] == "--"][1:])

    def applies_to(self, layout: str) -> bool:
        """Whether a layout has rules for it."""
        return not self.layouts or layout in self.layouts

    @property
    def label(self) -> str:
        """The option's name in messages."""
        return f"--{self.long}" if self.names else self.variables[0]


def quote_value(text: str) -> str:
    """The value for a message: on one line, control characters and bytes that are not UTF-8 escaped, shortened if long."""
    shown = text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"
    quoted = repr(shown)
    if shown.isascii() or not has_other_bytes(shown):
        return quoted
    mark = quoted[0]
    return mark + "".join([f"\\{mark}" if letter == mark else escape_character(letter) for letter in shown]) + mark


def has_other_bytes(text: str) -> bool:
    """Whether a text cannot be encoded, as one of the command line or the environment that was not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def suggest(word: str, known: Iterable[str], most: int = 3) -> str:
    """`did you mean …?` with at most `most` similar known words; empty if none is."""
    from difflib import get_close_matches

    close = get_close_matches(word, list(known), most)
    return f"did you mean {' or '.join(close)}?" if close else ""


def split_list(text: str) -> list[str]:
    """Split a comma list; surrounding blanks and empty items are ignored."""
    items = text.split(",")
    if not text.isprintable() or " " in text:
        items = [item.strip(BLANKS) for item in items]
    return [item for item in items if item]


def read_mark(text: str, low: int = 1) -> int:
    """Read a firewall mark from `low`: decimal, or hexadecimal as iptables and nft write it, also with the mask of all bits."""
    number, slash, mask = text.partition("/")
    if slash and (mask[:2] not in ("0x", "0X") or _read_hexadecimal(mask) != MAX_32):
        raise ValueError(f"has a mask: the option is about the whole mark; give {quote_value(number)} alone")
    if number[:2] in ("0x", "0X"):
        value = _read_hexadecimal(number)
        if low <= value <= MAX_32:
            return value
        raise ValueError(f"is not a firewall mark: use a number from {low:#x} to {MAX_32:#x}")
    return read_number(number, low, MAX_32, "a firewall mark", ", or a hexadecimal one such as 0x539")


def _read_hexadecimal(text: str) -> int:
    """The number in `0x4000`; -1 if it is none."""
    digits = text[2:]
    return int(digits, 16) if digits and len(digits) <= 8 and not digits.strip("0123456789abcdefABCDEF") else -1  # noqa: PLR2004


def read_number(text: str, low: int, high: int, what: str, more: str = "") -> int:
    """Read a decimal number from `low` to `high`; the error calls it `what` and ends with `more`."""
    if text.isascii() and text.isdigit() and (text[0] != "0" or text == "0") and len(text) <= 10:  # noqa: PLR2004
        number = int(text)
        if low <= number <= high:
            return number
    raise ValueError(f"is not {what}: use a decimal number from {low} to {high}{more}")


def read_ports(text: str) -> Ports:
    """Read a comma list of ports and ranges (`80,8000-8100`); duplicates count once, at their first place."""
    return merge_ports(read_items(text, read_port_or_range))


def read_ports_or_all(text: str) -> Ports | str:
    """Read a comma list of ports and ranges, or `*`, which a range of all ports also means."""
    ports = _or_all(read_ports)(text)
    return ALL if ports == (ALL_PORTS,) else ports


def read_port_or_range(text: str) -> int | PortRange:
    """Read a port, or two with a dash between; a range of one port is that port."""
    low, dash, high = text.partition("-")
    if not dash:
        return read_number(text, 1, MAX_PORT, "a port or a range of ports", ", or two with a dash, such as 8000-8100")
    if not low or not high:
        raise ValueError("is not a range of ports: write first and last, such as 8000-8100")
    first = max(1, read_number(low, 0, MAX_PORT, "a range of ports"))
    last = read_number(high, 0, MAX_PORT, "a range of ports")
    if first > last:
        raise ValueError(f"is an empty range of ports: the first is higher than the last{f'; write {high}-{low}' if last else ''}")
    return first if first == last else PortRange((first, last))


def read_networks(text: str) -> tuple[Network, ...]:
    """Read a comma list of CIDRs of both families; host bits are masked, duplicates count once."""
    if text.strip(BLANKS) == ALL:
        raise ValueError("means everything, which cannot be excluded: list CIDRs")
    return read_items(text, Network.parse)


def read_loopback(text: str) -> Network:
    """Read an IPv4 loopback prefix of length 8 to 32."""
    network = Network.parse(text)
    if network.family is not IPV4 or network.first >> 24 != 127 or network.length < 8:  # noqa: PLR2004
        raise ValueError("is not an IPv4 loopback prefix: use one within 127.0.0.0/8")
    return network


def read_uid(text: str) -> int:
    """Read a user id: a number, or the name of a user in this image."""
    return _read_id(text, "user")


def read_gid(text: str) -> int:
    """Read a group id: a number, or the name of a group in this image."""
    return _read_id(text, "group")


def read_groups(text: str) -> tuple[int, ...]:
    """Read a comma list of at most 64 groups."""
    groups = read_items(text, read_gid)
    if len(groups) > MAX_GROUPS:
        raise ValueError(f"lists {len(groups)} groups: at most {MAX_GROUPS} are possible")
    return groups


def read_interface(text: str) -> str:
    """Read the name of a network interface; only characters without a meaning in rules are allowed."""
    if len(text) > MAX_NAME:
        raise ValueError(f"is not an interface name: the kernel allows at most {MAX_NAME} characters")
    if not text.isascii() or not text.isprintable() or " " in text or NOT_IN_NAMES & set(text):
        raise ValueError("is not an interface name: blanks, quotes, slashes, colons and wildcards are not allowed")
    if text in (".", "..") or text[0] == "-" or text[-1] == "+":
        raise ValueError("is not an interface name: it may not be a dot, begin with - or end in +")
    return text


def read_interface_or_prefix(text: str) -> str:
    """Read the name of a network interface or, with `+` at the end, a prefix of names, as for iptables (`br-+`)."""
    if text == "+":
        raise ValueError("means every interface, lo and the pod's own too: write names, or a prefix such as br-+")
    if len(text) <= MAX_NAME and text[-1:] == "+":
        return f"{read_interface(text[:-1])}+"
    return read_interface(text)


def read_table(text: str) -> int:
    """Read the number of a routing table; not one of the system's."""
    table = read_number(text, 1, MAX_32, "a routing table")
    if table in TABLES_OF_THE_SYSTEM:
        raise ValueError(f"is the system's routing table {TABLES_OF_THE_SYSTEM[table]}: use another number")
    return table


def read_bool(text: str) -> bool:
    """Read a boolean as Go's strconv.ParseBool does."""
    if text in TRUE_WORDS:
        return True
    if text in FALSE_WORDS:
        return False
    raise ValueError("is neither true nor false")


def write_bool(value: bool) -> str:
    """Write `true` or `false`."""
    return "true" if value else "false"


def _read_yes_no_auto(text: str) -> bool | str:
    """Read `auto`, or a boolean in Go's words and in those that people write into environments."""
    word = text.strip().lower()
    if word == AUTO:
        return AUTO
    if word in (*TRUE_WORDS, "yes", "y", "on"):
        return True
    if word in (*FALSE_WORDS, "no", "n", "off"):
        return False
    raise ValueError("is neither true, false nor auto")


YES_NO_AUTO = Kind(
    metavar="true|false|auto", read=_read_yes_no_auto, words=("true", "false", AUTO),
    write=lambda value: AUTO if value == AUTO else write_bool(value is True),
)  # fmt: skip


def read_duration(text: str, low: int = 1, high: int = DURATION_UNITS["h"], which: str = "a positive one of at most an hour") -> int:
    """Read a duration in Go's syntax (5s, 500ms, 1m30s, 0), from `low` to `high` nanoseconds; the error calls those `which`."""
    rest, total = "0s" if text == "0" else text, 0.0
    while rest:
        digits = _prefix(rest, "0123456789.")
        rest = rest[len(digits) :]
        unit = _prefix(rest, f"nu{MICRO}msh")
        rest = rest[len(unit) :]
        if not any(digit in "0123456789" for digit in digits) or digits.count(".") > 1 or len(digits) > 12:  # noqa: PLR2004
            break
        if unit not in DURATION_UNITS:
            break
        total += float(digits) * DURATION_UNITS[unit]
    else:
        if text and low <= total <= high:
            return round(total)
    raise ValueError(f"is not a duration: use {which} such as 5s, 500ms or 1m30s")


def write_duration(nanoseconds: int) -> str:
    """Write a duration in the largest unit that divides it."""
    for unit in ("h", "m", "s", "ms", "us"):
        if nanoseconds % DURATION_UNITS[unit] == 0:
            return f"{nanoseconds // DURATION_UNITS[unit]}{unit}"
    return f"{nanoseconds}ns"


def read_log_levels(text: str) -> str:
    """Read Istio's log levels, scope:level[,scope:level]; a level alone is for the default scope."""
    for item in split_list(text):
        scope, _, level = item.rpartition(":")
        letters = scope.replace("-", "").replace("_", "")
        if level not in LEVELS or not (scope == "" or (letters.isascii() and letters.isalnum())):
            raise ValueError(f"is not scope:level[,scope:level] with the levels {', '.join(LEVELS)}")
    return text


def read_path(text: str) -> str:
    """Read a path or a name, without control characters."""
    if len(text) > 4096:  # noqa: PLR2004 - PATH_MAX
        raise ValueError("is not a path: the kernel allows at most 4096 bytes")
    if not text.isprintable() and any(not ("\udc80" <= letter <= "\udcff" or letter.isprintable()) for letter in text):
        raise ValueError("is not a path: control characters are not allowed")
    return text


def write_joined(items: tuple[object, ...]) -> str:
    """Join the items with semicolons."""
    return ";".join([str(item) for item in items])


def choice(*words: str, align: bool = False) -> Kind:
    """Return a kind with the values in `words`; with `align`, case is ignored."""

    def read(text: str) -> str:
        word = text.upper() if align else text
        if word in words:
            return word
        raise ValueError(f"is not one of {', '.join(word for word in words if word)}")

    return Kind(
        metavar="|".join(word for word in words if word), read=read, words=words, empty="the default" if "" in words else "",
    )  # fmt: skip


def write_list(values: tuple[object, ...] | str) -> str:
    """Write a comma list that is read back as `values`."""
    return values if isinstance(values, str) else ",".join([str(value) for value in values])


def read_items(text: str, read: Callable[[str], Any], least: str = "") -> tuple[Any, ...]:
    """Read a comma list, duplicates once; `least`: what an empty one lacks, if it is an error."""
    items = split_list(text)
    try:
        values = dict.fromkeys(map(read, items))
    except ValueError:
        if items == [text]:
            raise
        wrong: dict[str, list[str]] = {}  # problem -> the items
        for item in items:
            try:
                read(item)
            except ValueError as error:
                wrong.setdefault(str(error), []).append(item)
        raise ValueError(f"holds {'; and '.join([_describe_items(*pair) for pair in wrong.items()])}") from None
    if least and not values:
        raise ValueError(f"is empty: name {least}")
    return tuple(values)


def _describe_items(error: str, items: list[str]) -> str:
    """Return the items and their problem; only the first of many."""
    shown = [quote_value(item) for item in dict.fromkeys(items)]
    if len(shown) == 1:
        return f"{shown[0]}, which {error}"
    if len(shown) > MAX_ITEMS:
        shown = [*shown[:MAX_ITEMS], f"{len(shown) - MAX_ITEMS} more"]
    return f"{', '.join(shown[:-1])} and {shown[-1]}, each of which {error}"


def _or_all(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader that accepts `*` as well."""
    return lambda text: ALL if text.strip(BLANKS) == ALL else read(text)


def _number(metavar: str, low: int, high: int, what: str, **facts: Any) -> Kind:
    return Kind(metavar=metavar, read=lambda text: read_number(text, low, high, what), **facts)


def _list(metavar: str, read: Callable[[str], Any], least: str = "", **facts: Any) -> Kind:
    """Return the kind of a comma list; `least` is what an empty one lacks, if it is an error."""
    meaning = "" if least else NONE
    return Kind(metavar=metavar, read=lambda text: read_items(text, read, least), write=write_list, empty=meaning, **facts)


def _read_id(text: str, what: str) -> int:
    if text.isascii() and text.isdigit():
        return read_number(text, 0, MAX_ID, f"a {what} id")
    try:
        from netinit.base import owners  # names are rare

        return owners.find_uid(text) if what == "user" else owners.find_gid(text)
    except (LookupError, ImportError):  # ImportError: a browser
        raise ValueError(f"is not a {what} here: pass a number") from None
    except ValueError as error:
        raise ValueError(f"cannot be looked up: {error}; pass a number") from None


def _prefix(text: str, characters: str) -> str:
    return text[: len(text) - len(text.lstrip(characters))]


PORT = _number("PORT", 1, MAX_PORT, "a port", is_own_port=True)
PORTS = Kind(metavar="PORTS", read=read_ports, write=write_list, empty=NONE, lists=PORTS_OF_A_PACKET)
PORTS_OR_ALL = Kind(metavar="PORTS|*", read=read_ports_or_all, write=write_list, empty=NONE, lists=PORTS_OF_A_PACKET)
NETWORKS = Kind(metavar="CIDRS", read=read_networks, write=write_list, empty=NONE, lists=ADDRESSES_OF_A_PACKET)
NETWORKS_OR_ALL = Kind(metavar="CIDRS|*", read=_or_all(read_networks), write=write_list, empty=NONE, lists=ADDRESSES_OF_A_PACKET)
LOOPBACK = Kind(metavar="CIDR", read=read_loopback)
ADDRESSES = _list("ADDRESSES", parse_address)
UIDS = _list("UIDS", read_uid, "a user", is_doubtful=lambda ids: 0 in ids)  # without any the proxy's own traffic would loop
GIDS = _list("GIDS", read_gid, "a group", is_doubtful=lambda ids: 0 in ids)
GROUPS = Kind(metavar="GROUPS", read=read_groups, write=write_list, empty=NONE)
GROUPS_OR_ALL = Kind(metavar="GROUPS|*", read=_or_all(read_groups), write=write_list, empty=NONE)
INTERFACES = _list("NAMES", read_interface_or_prefix, is_doubtful=lambda names: "@" in "".join(names))
MARK = Kind(metavar="MARK", read=read_mark)  # 0 is that of every unmarked packet
ANY_MARK = Kind(metavar="MARK", read=lambda text: read_mark(text, 0))
LOG_GROUP = _number("GROUP", 0, MAX_PORT, "a log group")
COUNT = _number("NUMBER", 0, 10**6, "a count")
TABLE = Kind(metavar="TABLE", read=read_table)
SWITCH = Kind(metavar="BOOL", read=read_bool, write=write_bool, words=("true", "false"))
DURATION = Kind(metavar="DURATION", read=read_duration, write=write_duration)
LOG_LEVELS = Kind(metavar="SCOPE:LEVEL", read=read_log_levels, empty="the default")
PID = Kind(metavar="PID", read=lambda text: read_number(text, 1, 2**22, "a process id"), is_name=True)  # PID_MAX_LIMIT of the kernel
PATH = Kind(metavar="PATH", read=read_path, is_file=True, is_name=True)
NAME = Kind(metavar="NAME", read=str, is_name=True)
NAMES = Kind(metavar="NAMES", read=lambda text: tuple(split_list(text)), write=write_list, empty=NONE)
REVISION = Kind(metavar="REVISION", read=str, empty="the default revision")  # as in Istio's values
