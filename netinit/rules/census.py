"""The second witness of a listing: what the kernel itself counts, which no text in a rule can forge.

iptables-save prints comments, prefixes and patterns between quotes, and the reader leaves them there. Names of
interfaces, of chains and of some extensions' own objects it prints as they are, blanks and newlines included; whoever
may program the namespace chooses them. So a listing counts only where chains and rules are as many as the kernel has,
where names that stand bare are plain, and where a table with such an extension has no rule of several lines.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.records import Record
from netinit.rules.iptables.write import UNSAFE, ListedTable, Listing, cut
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS

MOST_RULES = 200_000  # of one table in one family: some 20 s and 250 MB to compare
MOST_BYTES = 1 << 28  # as the kernel counts them: the listing is about as long

# Extensions whose options are numbers, words of their own or quoted strings (iptables 1.8.9, their `save`).
SPELLED_SAFELY = frozenset(
    """
    addrtype ah comment connbytes connlimit connmark conntrack cpu dccp dscp dst ecn esp eui64 frag hbh helper hl icmp icmp6 iprange
    ipv6header length limit mac mark mh multiport owner pkttype policy quota realm rpfilter rt sctp socket state statistic string tcp
    tcpmss time tos ttl u32 udp udplite
    AUDIT CHECKSUM CLASSIFY CONNMARK CONNSECMARK DNAT DSCP ECN ERROR HL LOG MARK MASQUERADE NETMAP NFLOG NFQUEUE NOTRACK REDIRECT
    REJECT SNAT SYNPROXY TCPMSS TCPOPTSTRIP TOS TPROXY TRACE TTL
    """.split()  # noqa: SIM905 - a list to read and to edit
)


class TableCount(Record):
    """What the kernel says of a table: the number of rules by chain, and what iptables-save prints as it is."""

    chains: dict[str, int]
    hooked: frozenset[str] = frozenset()  # base chains, which iptables may not list
    extensions: frozenset[str] = frozenset()  # names of matches and targets
    bare: frozenset[str] = frozenset()  # interface names, as rules have them

    @property
    def rules(self) -> int:
        """All rules of the table."""
        return sum(self.chains.values())


Census = dict[str, TableCount]  # table name -> what the kernel counts in it


def check_size(census: Census, where: str) -> None:
    """ParseError where a table is larger than anything that is read."""
    for name, table in census.items():
        if table.rules > MOST_RULES:
            raise ParseError(
                f"{UNSAFE}{where}: table {name} has {table.rules:,} rules, and more than {MOST_RULES:,} are not read;"
                f" remove those that nobody needs"
            )


def find_contradiction(listing: Listing, census: Census, where: str) -> str:
    """What the listing says otherwise than the kernel, or where its text has two meanings; empty when it can be believed."""
    for name in listing:
        if name not in census and not _is_bare(listing[name]):
            return f"{where}: table {name} is listed, and the kernel has none"
    for name, counted in census.items():
        problem = _find_in_table(name, listing, counted)
        if problem:
            return f"{where}: {problem}"
    return ""


def _is_bare(table: ListedTable) -> bool:
    """Whether a listed table has built-in chains alone and no rule: the kernel has it without any chain then."""
    return all(chain in BUILTIN_CHAINS and not rules for chain, rules in table.rules.items())


def _find_in_table(name: str, listing: Listing, counted: TableCount) -> str:
    for bare in (*counted.chains, *counted.bare):
        if not is_plain(bare):
            return f"table {name}: a name has blanks, quotes or control characters: {cut(bare)}"
    if name not in listing:  # made with nft, which iptables leaves out
        ours = sorted(OWNED_CHAINS & counted.chains.keys())
        return f"table {name} has the chain {ours[0]} and is not listed" if ours else ""
    listed = {chain: len(rules) for chain, rules in listing[name].rules.items()}
    for chain in (*counted.chains, *listed):
        if chain not in listed and chain in counted.hooked:
            continue
        if chain not in counted.chains and chain in BUILTIN_CHAINS and not listed[chain]:
            continue  # iptables-nft lists those that are not made yet
        if listed.get(chain) != counted.chains.get(chain):
            return f"table {name}, chain {chain}: {_count(listed, chain)} listed, {_count(counted.chains, chain)} in the kernel"
    bare_options = sorted(counted.extensions - SPELLED_SAFELY)
    if bare_options and any("\n" in text for texts in listing[name].rules.values() for text in texts):
        return f"table {name}: a rule of several lines beside {bare_options[0]}, whose names could end it"
    return ""


def _count(chains: dict[str, int], chain: str) -> str:
    return f"{chains[chain]} rules" if chain in chains else "no such chain"


def is_plain(name: str) -> bool:
    """Whether a name that stands without quotes can only be read as itself."""
    return bool(name) and name.isprintable() and not any(letter in name for letter in " \"'\\")
