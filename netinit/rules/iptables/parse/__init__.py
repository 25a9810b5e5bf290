"""Parse rules in iptables syntax into matches and targets, so that all notations of a rule compare equal.

Accepts listings and what people write: `--dport 80` without `-m tcp`, decimal or hexadecimal marks, addresses without a
mask. Unknown words become UnknownMatch or UnknownTarget.
"""

from __future__ import annotations

from netinit.base.errors import ParseError
from netinit.base.net import Family, Network, bounds_of
from netinit.base.records import Record
from netinit.base.sanitize import MAX_RULE_LENGTH, escape, quote, shorten
from netinit.rules.decoding.matches import OPTIONS, read_module
from netinit.rules.decoding.targets import read_target
from netinit.rules.iptables.write import DecodedRule
from netinit.rules.matches import Match, packet
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.matches.foreign import name_unread
from netinit.rules.matches.packet import AddressMatch, InterfaceMatch, Protocol, drop_implied_protocols
from netinit.rules.model import Rule
from netinit.rules.structs import protocol_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LONG = {
    "--source": "-s", "--src": "-s", "--destination": "-d", "--dst": "-d", "--in-interface": "-i", "--out-interface": "-o",
    "--protocol": "-p", "--proto": "-p", "--match": "-m", "--jump": "-j", "--goto": "-g", "--fragment": "-f", "--set-counters": "-c",
}  # fmt: skip
_BUILT_IN = frozenset(_LONG.values())
_PROTOCOLS = {"0": "all", "icmpv6": "ipv6-icmp"}
_PROTOCOL_NUMBERS = frozenset(map(str, range(256)))
_BLANKS = " \t"


class Word(Record):
    """A word of a rule: value, original text, and whether it was quoted (then it is no option)."""

    text: str
    raw: str
    quoted: bool = False


def parse_rule(spec: str, family: Family) -> Rule:
    """Parse a rule without `-A CHAIN`. Raises ParseError if a quote does not close or a word is missing."""
    if isinstance(spec, DecodedRule):
        return spec.rule
    reader = _Reader(spec, family)
    reader.read(split_words(spec))
    matches = sorted(reader.matches, key=lambda match: match.place)
    words, text = [word.text for word in reader.target], " ".join([word.raw for word in reader.target])
    target = read_target(reader.is_goto, words, text, family)
    return Rule(matches=drop_implied_protocols(matches), target=target, comment=reader.comment, families=(family,))


def normalise(spec: str, family: Family) -> tuple[object, ...]:
    """Return a hashable key that all notations of a rule share."""
    return normalise_rule(parse_rule(spec, family))


def normalise_rule(rule: Rule) -> tuple[object, ...]:
    """Return a parsed rule's key, without matches on every address or interface."""
    return (*[_order(match) for match in rule.matches if not _always_holds(match)], rule.target)


def _always_holds(match: Match) -> bool:
    if isinstance(match, AddressMatch):
        return not match.negated and any(not network.length for network in match.networks)
    return isinstance(match, InterfaceMatch) and not match.negated and "+" in match.names


def _order(match: Match) -> Match:
    if not match.listed or len(values := getattr(match, match.listed)) == 1:
        return match
    return match.replace(**{match.listed: tuple(sorted(set(values), key=bounds_of if isinstance(match, packet.Port) else None))})


def split_words(spec: str) -> list[Word]:
    """Split a rule into words. In double quotes a backslash escapes the next character."""
    if '"' not in spec and "'" not in spec:  # the usual case: a listing has up to a hundred thousand rules
        return [Word(text=word, raw=word) for word in spec.replace("\t", " ").split(" ") if word]
    words = []
    at, end = 0, len(spec)
    while at < end:
        if spec[at] in _BLANKS:
            at += 1
            continue
        start, letters, quoted, quote = at, [], False, ""
        while at < end and (quote or spec[at] not in _BLANKS):
            letter = spec[at]
            if quote and letter == "\\" and quote == '"' and at + 1 < end:
                at += 1
                letters.append(spec[at])
            elif letter == quote:
                quote = ""
            elif not quote and letter in "\"'":
                quote, quoted = letter, True
            else:
                letters.append(letter)
            at += 1
        if quote:
            raise ParseError(f"rule {spec!r}: a quote is not closed")
        words.append(Word(text="".join(letters), raw=spec[start:at], quoted=quoted))
    return words


class _Reader:
    """Parses the words of one rule."""

    def __init__(self, spec: str, family: Family) -> None:
        self._spec = spec
        self._family = family
        self._protocol = ""
        self._modules: list[tuple[str, list[Word]]] = []  # that the rule loads, and their words
        self.matches: list[Match] = []
        self._loose: list[Sequence[Word]] = []  # options of no module, each with its values: unknown matches, the last ones
        self.is_goto = False  # whether it was -g instead of -j
        self.target: list[Word] = []
        self.comment = ""

    def read(self, words: Sequence[Word]) -> None:
        """Parse the words into the attributes."""
        at = 0
        while at < len(words):
            negated = words[at].text == "!" and not words[at].quoted
            first, at = at, at + negated
            if at == len(words):
                raise ParseError(f"rule {self._spec!r}: ends with !")
            option = "" if words[at].quoted else _LONG.get(words[at].text, words[at].text)
            if option in ("-j", "-g"):
                self.is_goto = option == "-g"
                self.target = list(words[at + 1 :])
                break
            if option in _BUILT_IN:
                at = self._read_built_in(option, negated, words, first)
            elif option.startswith("-"):
                at = self._read_option(option, words, first, at)
            else:
                raise ParseError(f"rule {self._spec!r}: {words[at].raw} belongs to no option")
        if self.is_goto and len(self.target) != 1:
            raise ParseError(f"rule {self._spec!r}: -g names one chain, and nothing else")
        for module, own in self._modules:
            if module == "comment":
                self.comment = own[1].text if len(own) > 1 else ""
            elif own or module != self._protocol:
                self.matches += read_module(module, [word.text for word in own], self._protocol) or [
                    name_unread(" ".join([f"-m {module}", *[word.raw for word in own]]))
                ]
            else:  # a bare `-m tcp` only repeats `-p tcp`
                self.matches = [one.replace(module=True) if isinstance(one, Protocol) else one for one in self.matches]
        self.matches += [UnknownMatch(text=" ".join([word.raw for word in own])) for own in self._loose]

    def _read_built_in(self, option: str, negated: bool, words: Sequence[Word], first: int) -> int:
        """Parse a built-in option; return the position after it."""
        at = first + negated
        if option == "-f":
            self._loose.append(words[first : at + 1])
            return at + 1
        if option == "-c":  # counters, in some listings
            return at + 3
        if at + 1 == len(words):
            raise ParseError(f"rule {self._spec!r}: {words[at].raw} has no value")
        value = words[at + 1]
        if option == "-m":
            self._modules.append((value.text, []))
        elif option == "-p":
            text = value.text.lower()
            self._protocol = _PROTOCOLS.get(text) or (protocol_name(int(text)) if text in _PROTOCOL_NUMBERS else text)
            if self._protocol != "all":
                self.matches.append(Protocol(name=self._protocol, negated=negated))
        elif option in ("-i", "-o"):
            kind = packet.InInterface if option == "-i" else packet.OutInterface
            self.matches.append(kind(names=(value.text,), negated=negated))
        else:
            networks = read_networks(value.text, self._family)
            side = packet.Source if option == "-s" else packet.Destination
            if networks is None:
                self._loose.append(words[first : at + 2])
            else:
                self.matches.append(side(networks=networks, negated=negated))
        return at + 2

    def _read_option(self, option: str, words: Sequence[Word], first: int, at: int) -> int:
        """Assign an option with its values to its module; return the position after it."""
        end = at + 1 + (option == "--comment")  # whatever it says
        while end < len(words) and not _begins_option(words[end]):
            end += 1
        takers = [words for module, words in self._modules if option in OPTIONS.get(module, ())]
        if not takers and option in OPTIONS.get(self._protocol, ()):
            self._modules.append((self._protocol, []))  # implied by the option
        takers = takers or [words for _, words in self._modules]
        if takers:
            takers[-1].extend(words[first:end])
        else:
            self._loose.append(words[first:end])
        return end


def _begins_option(word: Word) -> bool:
    if word.quoted:
        return False
    return word.text == "!" or (word.text.startswith("-") and len(word.text) > 1 and not word.text[1].isdigit())


def read_networks(text: str, family: Family) -> tuple[Network, ...] | None:
    """Parse a comma list of networks; None for names and non-contiguous masks."""
    networks = []
    for item in text.split(","):
        address, slash, mask = item.partition("/")
        if address == "0" and family.version == 4:  # noqa: PLR2004
            address = family.any_address
        try:
            if slash and ("." in mask or ":" in mask):
                bits = Network.parse(f"{mask}/{family.bits}").first
                mask = str(bits.bit_count())
                if bits != Network.parse(f"{family.any_address}/{mask}").last ^ (1 << family.bits) - 1:
                    return None
            network = Network.parse(f"{address}/{mask or family.bits}")
        except ValueError:
            return None
        if network.family is not family:
            return None
        networks.append(network)
    return tuple(networks)


def part_comment(spec: str) -> tuple[str, str]:
    """Return the rule without its comments, and these joined with "; "."""
    spec = str(spec)  # of a DecodedRule the text alone
    if "--comment" not in spec:
        return spec, ""
    try:
        words = split_words(spec)
    except ParseError:
        return spec, ""
    kept: list[str] = []
    comments: list[str] = []
    at = 0
    while at < len(words):
        head = words[at : at + 4]
        if [word.raw for word in head[:3]] == ["-m", "comment", "--comment"] and head[3:]:
            comments.append(head[3].text)
            at += 4
        else:
            kept.append(head[0].raw)
            at += 1
    return (" ".join(kept), "; ".join(comments)) if comments else (spec, "")


def quote_rule(spec: str) -> str:
    """Return the rule in backquotes with its comment in quotes, each shortened."""
    text, comment = part_comment(spec)
    return f"`{escape(shorten(text, MAX_RULE_LENGTH))}`" + (f" with comment {quote(comment)}" if comment else "")
