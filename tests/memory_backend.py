"""A backend in memory that refuses what the kernel refuses: for tests, and for trying options without privileges.

Its kernel takes what iptables-restore takes, a whole table or nothing of it, and lists as iptables-nft-save does. The
limits are those of iptables(8), iptables-extensions(8) and the kernel's xt_*.c; a test gives the same bad inputs to
both variants of iptables. Rules are kept as written, so they must come in the spelling of iptables-save.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from netinit.backends.encoded_rules import EncodedRules
from netinit.backends.iptables import XtablesBackend
from netinit.base.errors import ApplyError, NetinitError, ParseError
from netinit.base.net import FAMILIES, MAX_PORT, Family, Network
from netinit.base.records import Record
from netinit.base.snapshot import Snapshot
from netinit.rules.iptables.parse import Word, split_words
from netinit.rules.iptables.parse.listing import parse_listing
from netinit.rules.iptables.write import Listing, Written
from netinit.rules.model import FILTER, INPUT, MANGLE, NAT, OUTPUT, PREROUTING, RAW

FORWARD, POSTROUTING, SECURITY = "FORWARD", "POSTROUTING", "security"
TABLE_HOOKS = {  # a table's built-in chains; tables and chains in the order of iptables-nft-save
    MANGLE: (PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING),
    SECURITY: (INPUT, FORWARD, OUTPUT),
    RAW: (PREROUTING, OUTPUT),
    FILTER: (INPUT, FORWARD, OUTPUT),
    NAT: (PREROUTING, INPUT, OUTPUT, POSTROUTING),
}
MAX_CHAIN_NAME = 28
MAX_INTERFACE_NAME = 15
MAX_PORTS = 15  # of one multiport match
MAX_MARK = 2**32 - 1
REFUSAL = "RULE_APPEND failed (Invalid argument)"  # what the kernel answers, whatever the reason
ROUTED_OUT = frozenset((OUTPUT, POSTROUTING))
WITHOUT_INPUT_DEVICE, WITHOUT_OUTPUT_DEVICE = ROUTED_OUT, frozenset((PREROUTING, INPUT))
ANYWHERE = frozenset((PREROUTING, INPUT, FORWARD, OUTPUT, POSTROUTING))
VERDICTS = ("ACCEPT", "DROP", "QUEUE", "RETURN")

# What an extension's kernel side checks: the table, and the hooks from which a packet may come to the rule.
MATCH_HOOKS = {"owner": ROUTED_OUT, "socket": frozenset((PREROUTING, INPUT))}
TARGET_PLACES = {
    "REDIRECT": (NAT, frozenset((PREROUTING, OUTPUT))),
    "DNAT": (NAT, frozenset((PREROUTING, OUTPUT))),
    "SNAT": (NAT, frozenset((POSTROUTING, INPUT))),
    "MASQUERADE": (NAT, frozenset((POSTROUTING,))),
    "TPROXY": (MANGLE, frozenset((PREROUTING,))),
    "CT": (RAW, ANYWHERE),
    "NOTRACK": (RAW, ANYWHERE),
    "REJECT": (FILTER, frozenset((INPUT, FORWARD, OUTPUT))),
}
WITH_PORTS = ("tcp", "udp", "udplite", "sctp", "dccp")
MATCHES = frozenset((
    "addrtype", "ah", "bpf", "cgroup", "cluster", "comment", "connbytes", "connlabel", "connlimit", "connmark",
    "conntrack", "cpu", "dccp", "devgroup", "dscp", "dst", "ecn", "esp", "eui64", "frag", "hashlimit", "hbh",
    "helper", "hl", "icmp", "icmp6", "ipcomp", "iprange", "ipv6header", "ipvs", "length", "limit", "mac", "mark",
    "mh", "multiport", "nfacct", "osf", "owner", "physdev", "pkttype", "policy", "quota", "rateest", "realm",
    "recent", "rpfilter", "rt", "sctp", "set", "socket", "srh", "state", "statistic", "string", "tcp", "tcpmss",
    "time", "tos", "ttl", "u32", "udp",
))  # fmt: skip
TARGETS = frozenset((
    *TARGET_PLACES, "AUDIT", "CHECKSUM", "CLASSIFY", "CLUSTERIP", "CONNMARK", "CONNSECMARK", "DNPT", "DSCP", "ECN",
    "HL", "HMARK", "IDLETIMER", "LED", "LOG", "MARK", "NETMAP", "NFLOG", "NFQUEUE", "RATEEST", "SECMARK", "SET",
    "SNPT", "SYNPROXY", "TCPMSS", "TCPOPTSTRIP", "TEE", "TOS", "TRACE", "TTL",
))  # fmt: skip


class MemoryTable(Record):
    """A table's chains with their rules, the built-in ones with their policies too."""

    policies: dict[str, str]
    rules: dict[str, list[str]]


class _Parts(Record):
    """What the checks look at in a rule."""

    protocol: str
    interfaces: tuple[tuple[str, str], ...]  # -i or -o, and the name
    networks: tuple[str, ...]
    matches: tuple[tuple[str, tuple[tuple[str, str], ...]], ...]  # module, and its options with their values
    target: str
    options: tuple[tuple[str, str], ...]  # the target's


class MemoryKernel:
    """The tables of one pretended network namespace.

    `fail_next` is for tests: the next input for a family is refused with its error, and changes nothing.
    """

    def __init__(self) -> None:
        self.tables: dict[Family, dict[str, MemoryTable]] = {family: {} for family in FAMILIES}
        self.fail_next: dict[Family, NetinitError] = {}

    def list_tables(self, family: Family) -> str:
        """What iptables-nft-save prints, without its comments."""
        lines = []
        for name, hooks in TABLE_HOOKS.items():
            table = self.tables[family].get(name)
            if table is None:
                continue
            chains = [*hooks, *sorted(chain for chain in table.rules if chain not in hooks)]
            lines += [f"*{name}", *[f":{chain} {table.policies.get(chain, '-')} [0:0]" for chain in chains]]
            lines += [f"-A {chain} {text}".rstrip() for chain in chains for text in table.rules[chain]]
            lines.append("COMMIT")
        return "".join([line + "\n" for line in lines])

    def list_rules(self, family: Family) -> str:
        """The same without tables that hold nothing."""
        parts = self.list_tables(family).split("COMMIT\n")
        return "".join([f"{part}COMMIT\n" for part in parts if "\n-A " in part or " - [" in part or " DROP [" in part])

    def execute(self, family: Family, script: str) -> None:
        """Does what iptables-restore --noflush does with the input; ApplyError says why the kernel would refuse it.

        The tables before the refused one are changed then, as in the kernel.
        """
        if family in self.fail_next:
            raise self.fail_next.pop(family)
        name, table = "", None
        for number, line in enumerate(script.splitlines(), 1):
            try:
                if line.startswith("*"):
                    name, table = line[1:], _copy(self._find(line[1:], family))
                elif line == "COMMIT" and table is not None:
                    _check_hooks(name, table)
                    self._keep(name, table, family)
                    table = None
                else:
                    _change(line, name, table, family)
            except (ApplyError, ParseError) as error:
                raise ApplyError(f"memory: line {number}: {line!r}: {error}") from None
        if table is not None:
            raise ApplyError("memory: COMMIT expected at the end of the input")

    def _find(self, name: str, family: Family) -> MemoryTable:
        if name not in TABLE_HOOKS:
            raise ApplyError(f"table name {name!r} invalid")
        return self.tables[family].get(name) or _new_table(name)

    def _keep(self, name: str, table: MemoryTable, family: Family) -> None:
        """A table that nobody has put anything into is not listed; one that was emptied is."""
        if name in self.tables[family] or table != _new_table(name):
            self.tables[family][name] = table


class HeldText(EncodedRules):
    """One family's rules, as iptables-nft-save prints them without its comments."""

    text: str
    tables: Listing

    @classmethod
    def of(cls, family: Family, text: str) -> HeldText:
        tables = parse_listing(text)
        rules = {(name, chain): texts for name, table in tables.items() for chain, texts in table.rules.items()}
        accepts = not any(table.policies[chain] == "DROP" for table in tables.values() for chain in table.policies)
        return cls(family=family, text=text, tables=tables, rules=rules, accepts=accepts, snapshot=Snapshot())

    def is_as_planned(self, written: Written) -> bool:
        return False  # rules are compared one by one

    def decode(self) -> Listing:
        return self.tables


class MemoryBackend(XtablesBackend):
    """Rules in a MemoryKernel, forgotten when the process ends."""

    name = "memory"

    def has(self, family, need):
        """This kernel has everything."""
        return True

    def __init__(
        self,
        *,
        comments: bool = False,
        families: tuple[Family, ...] = FAMILIES,
        lock_timeout: int = 10 * 10**9,
        own_files: bool = True,
        kernel: MemoryKernel,
    ) -> None:
        super().__init__(comments=comments, families=families, lock_timeout=lock_timeout, own_files=own_files)
        self.kernel = kernel

    def read(self, families: tuple[Family, ...], snapshot: Snapshot | None) -> tuple[HeldText, ...]:
        """What the kernel lists."""
        found = tuple([HeldText.of(family, self.kernel.list_tables(family)) for family in families])
        return found if any(one.tables for one in found) else ()

    def refusal(self, error: OSError) -> NetinitError:
        raise NotImplementedError

    def feed(self, scripts: dict[Family, str]) -> dict[Family, NetinitError]:
        """Gives each family's input to the kernel; returns its refusals."""
        failed = {}
        for family, script in scripts.items():
            try:
                self.kernel.execute(family, script)
            except NetinitError as error:
                failed[family] = error
        return failed


def _new_table(name: str) -> MemoryTable:
    return MemoryTable(policies=dict.fromkeys(TABLE_HOOKS[name], "ACCEPT"), rules={hook: [] for hook in TABLE_HOOKS[name]})


def _copy(table: MemoryTable) -> MemoryTable:
    return MemoryTable(policies=dict(table.policies), rules={chain: list(rules) for chain, rules in table.rules.items()})


def _change(line: str, name: str, table: MemoryTable | None, family: Family) -> None:
    if table is None:
        raise ApplyError("the line belongs to no table")
    command, _, rest = line.partition(" ")
    if command.startswith(":"):
        _declare(command[1:], rest, table)
        return
    chain, _, rest = rest.partition(" ")
    rules = table.rules.get(chain)
    if command not in ("-A", "-I", "-D", "-X"):
        raise ApplyError(f"Bad argument `{command}'")
    if rules is None:
        raise ApplyError("No chain/target/match by that name")
    if command == "-X":
        _delete_chain(chain, table)
    elif command == "-D":
        _delete_rule(rest, rules)
    elif command == "-A":
        _check_rule(rest, name, chain, table, family)
        rules.append(rest)
    else:
        position, _, rest = rest.partition(" ")
        if not position.isdecimal() or not 1 <= int(position) <= len(rules) + 1:
            raise ApplyError("Index of insertion too big")
        _check_rule(rest, name, chain, table, family)
        rules.insert(int(position) - 1, rest)


def _declare(chain: str, rest: str, table: MemoryTable) -> None:
    """A chain of our own is made or flushed; a built-in one gets the policy, and keeps its rules."""
    policy = rest.partition(" ")[0]
    if len(chain) > MAX_CHAIN_NAME:
        raise ApplyError(f"chain name `{chain}' too long (must be under {MAX_CHAIN_NAME + 1} chars)")
    if chain not in table.policies:
        table.rules[chain] = []
    elif policy in ("ACCEPT", "DROP"):
        table.policies[chain] = policy
    elif policy != "-":
        raise ApplyError(f"Bad policy name `{policy}'")


def _delete_chain(chain: str, table: MemoryTable) -> None:
    if chain in table.policies:
        raise ApplyError("No chain/target/match by that name: a built-in chain stays")
    used = any(_split(text).target == chain for rules in table.rules.values() for text in rules)
    if table.rules[chain] or used:
        cause = "rules jump to it" if used else "it is not empty"
        raise ApplyError(f"CHAIN_DEL failed (Device or resource busy): {cause}")
    del table.rules[chain]


def _delete_rule(rule: str, rules: list[str]) -> None:
    if rule.isdecimal():
        if not 1 <= int(rule) <= len(rules):
            raise ApplyError("Index of deletion too big")
        del rules[int(rule) - 1]
    elif rule in rules:
        rules.remove(rule)
    else:
        raise ApplyError("Bad rule (does a matching rule exist in that chain?)")


def _check_rule(text: str, name: str, chain: str, table: MemoryTable, family: Family) -> None:
    """What iptables itself checks, and the extensions' checks of the table."""
    parts = _split(text)
    for option, interface in parts.interfaces:
        if chain in table.policies and chain in (WITHOUT_INPUT_DEVICE if option == "-i" else WITHOUT_OUTPUT_DEVICE):
            raise ApplyError(f"Can't use {option} with {chain}")
        if len(interface) > MAX_INTERFACE_NAME:
            raise ApplyError(f"interface name `{interface}' must be shorter than IFNAMSIZ ({MAX_INTERFACE_NAME})")
    for network in parts.networks:
        _check_network(network, family)
    for module, options in parts.matches:
        if module not in MATCHES:
            raise ApplyError(f"Couldn't load match `{module}': No such file or directory")
        _check_match(module, options, parts.protocol)
    _check_target(parts, name, table)


def _check_network(text: str, family: Family) -> None:
    try:
        known = Network.parse(text).family is family
    except ValueError as error:
        raise ApplyError(f"host/network `{text}' {error}") from None
    if not known:
        raise ApplyError(f"host/network `{text}' not found: it is not of {family.name}")


def _check_match(module: str, options: tuple[tuple[str, str], ...], protocol: str) -> None:
    if module in ("tcp", "udp") and protocol != module:
        raise ApplyError(f"{module.upper()} match requires '-p {module}'")
    if module == "multiport" and protocol not in WITH_PORTS:
        raise ApplyError("multiport needs `-p tcp', `-p udp', `-p udplite', `-p sctp' or `-p dccp'")
    for option, value in options:
        if option.rstrip("s") in ("--dport", "--sport", "--port"):
            ports = [port for part in value.split(",") for port in part.split(":")]
            if len(ports) > MAX_PORTS:
                raise ApplyError("too many ports specified")
            for port in ports:
                if not (port.isascii() and port.isdecimal() and int(port) <= MAX_PORT):
                    raise ApplyError(f"invalid port/service `{port}' specified")
        elif option == "--mark" and not all(_is_mark(part) for part in value.split("/")):
            raise ApplyError(f'{module}: bad integer value for option "--mark", or out of range')


def _is_mark(text: str) -> bool:
    try:
        return 0 <= int(text, 0) <= MAX_MARK
    except ValueError:
        return False


def _check_target(parts: _Parts, name: str, table: MemoryTable) -> None:
    target = parts.target
    if target in table.policies:
        raise ApplyError("No such file or directory: a built-in chain is nothing to jump to")
    if target and target not in table.rules and target not in VERDICTS and target not in TARGETS:
        raise ApplyError(f"Chain '{target}' does not exist")
    if target == "DROP" and name == NAT:
        raise ApplyError('The "nat" table is not intended for filtering, the use of DROP is therefore inhibited')
    if TARGET_PLACES.get(target, (name,))[0] != name:
        raise ApplyError(f"{REFUSAL}: {target} belongs into table {TARGET_PLACES[target][0]}")
    if target == "REDIRECT" and parts.options and parts.protocol not in WITH_PORTS:
        raise ApplyError("Need TCP, UDP, SCTP or DCCP with port specification")
    if target == "TPROXY" and parts.protocol not in ("tcp", "udp"):
        raise ApplyError(f"{REFUSAL}: TPROXY can be used only with -p tcp or -p udp")


def _check_hooks(name: str, table: MemoryTable) -> None:
    """The kernel's check at the commit: every rule against each hook from which packets come to it."""
    for hook in TABLE_HOOKS[name]:
        for chain, text in _reach(hook, table, (), set()):
            parts = _split(text)
            allowed = [MATCH_HOOKS.get(module, ANYWHERE) for module, _ in parts.matches]
            allowed.append(TARGET_PLACES.get(parts.target, (name, ANYWHERE))[1])
            if any(hook not in hooks for hooks in allowed):
                raise ApplyError(f"{REFUSAL}: rule in chain {chain}, reached from {hook}: {text}")


def _reach(chain: str, table: MemoryTable, path: tuple[str, ...], done: set[str]) -> Iterator[tuple[str, str]]:
    """Every rule that a packet can come to from the chain, with its chain; those of chains in `done` are left out."""
    path = (*path, chain)
    done.add(chain)
    for text in table.rules[chain]:
        yield chain, text
        target = _split(text).target
        if target in path:
            circle = " -> ".join([*path, target])
            raise ApplyError(f"RULE_APPEND failed (Too many links): chains lead in a circle: {circle}")
        if target in table.rules and target not in done:
            yield from _reach(target, table, path, done)


@lru_cache(maxsize=4096)
def _split(text: str) -> _Parts:
    """The parts of a rule. ApplyError for an option that belongs to nothing."""
    protocol = target = ""
    interfaces, networks, modules = [], [], []
    own: list[tuple[str, str]] | None = None  # the options of the match or target at hand
    for option, value in _options(split_words(text)):
        if option in ("-m", "-j", "-g"):
            own = []
            if option == "-m":
                modules.append((value, own))
            else:
                target = value
        elif option in ("-i", "-o"):
            interfaces.append((option, value))
        elif option in ("-s", "-d"):
            networks.append(value)
        elif option == "-p":
            protocol = value
        elif option.startswith("--") and own is not None:
            own.append((option, value))
        elif option != "-f":
            raise ApplyError(f'unknown option "{option}"')
    matches = tuple([(module, tuple(options)) for module, options in modules])
    options = tuple(own or ()) if target else ()
    return _Parts(
        protocol=protocol,
        interfaces=tuple(interfaces),
        networks=tuple(networks),
        matches=matches,
        target=target,
        options=options,
    )


def _options(words: list[Word]) -> Iterator[tuple[str, str]]:
    """Each option with its values; `!` is left out, since the kernel's limits do not depend on it."""
    kept = [word for word in words if word.quoted or word.text != "!"]
    at = 0
    while at < len(kept):
        end = at + 1
        while end < len(kept) and (kept[end].quoted or not kept[end].text.startswith("-")):
            end += 1
        yield kept[at].text, " ".join([word.text for word in kept[at + 1 : end]])
        at = end
