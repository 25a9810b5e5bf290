"""Redacts a report by an allow list: words that netinit itself uses, small numbers and versions stay, everything else is replaced.

Rules, comments, names and messages in a report belong to somebody else, so no list of secrets could be complete. What stays
is what netinit could have written about any pod: a word that stands in netinit's own texts. Addresses, names and bytes become
numbered words, the same one wherever the same text appears. Pure, but for the package's own files.
"""

from __future__ import annotations

import errno
import functools
import inspect
import json
import os
import pkgutil
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

import netinit
from netinit.base.data import read_data
from netinit.base.net import Network, family_of, number_of, parse_address
from netinit.base.version import __version__
from netinit.inject.deciding.annotations import known_keys
from netinit.options import Options

# The same in every cluster, and documentation's; others in fe80::/10 and ff00::/8 may hold a MAC.
KEPT_NETWORKS = tuple(
    Network.parse(text)
    for text in ("0.0.0.0/32", "127.0.0.0/8", "169.254.0.0/16", "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/24",
                 "255.0.0.0/8", "::/127", "::6/128", "2001:db8::/32", "fe80::/120", "ff00::/120", "ff02::/120", "ff05::/120")
)  # fmt: skip
_DATA = ("report-words.json",)
_WITHOUT_ANSWERS = {  # packages and modules with no text of a report, so that the names in their examples stay foreign
    f"netinit.{name}"
    for name in ("cli.config", "cli.demo", "cli.examples", "cli.inject", "cli.node", "cli.webhook", "golang", "inject.adding",
                 "installation", "kube", "lab", "options.peers", "serving", "testing", "webhook")
}  # fmt: skip
_MIN_SECRET = 3  # letters: a shorter word names nobody
_MAX_WORD = 128  # characters of a word that may stay
_MAX_DIGITS = 4  # of a word of netinit's own, as of x86_64; more are an example's address
_SYSTEMS = rf"(?:{'|'.join(json.loads(read_data('report-words.json'))['systems'])})\d{{0,3}}"  # k3s1, fc40
_NUMBER = re.compile(r"v?(?:0|[1-9]\d{0,6})(?:\.(?:0|[1-9]\d{0,6})){0,2}(?:[numkKMGT]?i?[Bs]?|[KMGx])|\d{1,7}-\d{1,7}|0[0-7]{3}")
_HEX = re.compile(r"0x(?:[0-9a-f]{1,5}|[0f]+|0*[0-9a-f]0*)", re.IGNORECASE)
_DEVICE = re.compile(r"(?:bond|br|docker|ens|eno|eth|net|tap|tun|veth|wlan|wg)\d{1,3}")
_VERSION = re.compile(rf"v?\d{{1,4}}\.\d{{1,4}}(?:\.\d{{1,4}})?(?:[-+~._](?:\d{{1,5}}|{_SYSTEMS}))+")
_SYSTEM = re.compile(_SYSTEMS)
_FOUR_BYTES = re.compile(r"\d+([-.])\d+\1\d+\1\d+")
_PARTS = re.compile(r"[-+~._]?[^-+~._]+")
_GROUPS = re.compile(r"[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,}")
_CLOCK = re.compile(r"\d\d?:\d\d:\d\d")
# Bytes of a comparison that netinit does not understand, or one after the other; else a run of what addresses, versions and names
# are made of. Before both, quoted texts and comments.
_COMPARED = r"(?<=[=!]= )[0-9a-f]{2,}(?:(?:-|, )[0-9a-f]{2,})*(?![\w.:-])"
_BYTE = r"(?:0x)?[0-9a-fA-F]{2}(?![\w.:-])"
_LISTED = rf"(?<![\w.:-]){_BYTE}(?:(?: |, ?|\|){_BYTE}){{3,}}"
_PORTS = re.compile(r"[1-9]\d(?:, ?[1-9]\d)+")  # which may look like bytes
_WORDS = rf"(?P<bytes>{_COMPARED}|{_LISTED})|(?P<run>[\w:][\w.:/-]*)|(?P<symbol>[^\x00-\x7f])"
_UNQUOTED = re.compile(_WORDS)
_PIECE = re.compile(
    r'(?P<comment>comment )?"(?P<quoted>(?:[^"\\\n]|\\[^\n]){0,1100})(?P<end>"?)'  # that nothing ends where a text was cut
    rf'|--comment (?P<bare>[^\s"]+)|{_WORDS}'
)


def redact(text: str, names: Mapping[str, str]) -> str:
    """Replace everything that is not on the allow list.

    `names`: what the pod's own names become, such as `web-1` -> `POD`; one in quotes is replaced only where it is quoted.
    """
    return _Redaction(names).redact(text)


class _Redaction:
    """One report's replacements, numbered in order of appearance for each kind."""

    def __init__(self, names: Mapping[str, str]) -> None:
        quoted = [(name.strip('"'), word.strip('"')) for name, word in names.items() if name.startswith('"')]
        self._names = {name: word for name, word in quoted if not is_allowed(name)}
        self._names |= {name: word for name, word in names.items() if name}
        self._numbers: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}

    def redact(self, text: str) -> str:
        return _PIECE.sub(self._replace_piece, text)

    def _replace_piece(self, found: re.Match[str]) -> str:
        if found["bare"]:
            return f"--comment of {len(found['bare'])} characters"
        if found["quoted"] is None:
            return self._replace_words(found)
        quoted, label = found["quoted"], found["comment"] or ""
        if f'"{quoted}"' in self._names:
            return label + self._names[f'"{quoted}"']
        if label and quoted not in _read_own_texts().phrases:
            return f"{label}of {len(quoted)} characters"
        inside = _UNQUOTED.sub(self._replace_words, quoted)
        if "NAME-" in inside and " " in quoted:  # of a foreign text not even the words that netinit has too
            inside = self._number("TEXT", quoted)
        return f'{label}"{inside}{found["end"]}'

    def _replace_words(self, found: re.Match[str]) -> str:
        if found["symbol"]:
            return found[0] if found[0] in _read_own_texts().symbols else "?"
        if found["run"]:
            return self._replace_run(found["run"])
        return found[0] if _PORTS.fullmatch(found[0]) else self._number("BYTES", found[0])

    def _replace_run(self, run: str) -> str:
        """Replace each part of a run between slashes; a path or image with a foreign part is replaced as a whole."""
        core = run if run.endswith("::") else run.rstrip(".:-/")
        rest = run[len(core) :]
        parts = core.split("/")
        if len(parts) > 1 and not any(part in self._names for part in parts):
            path, colon, tag = core.rpartition(":") if ":" in parts[-1] else (core, "", "")
            if any(_is_foreign(word) for part in path.split("/") for word in (part, *part.split(":")) if ":" not in word):
                return self._number("NAME", path) + colon + (tag and self._replace_word(tag)) + rest
        return "/".join(map(self._replace_part, parts)) + rest

    def _replace_part(self, part: str) -> str:
        """Replace an address, or each word of a part between colons."""
        if part.count(":") > 1:
            if address := self._replace_address(part):
                return address
            if _GROUPS.fullmatch(part) and not _CLOCK.fullmatch(part):
                return self._number("BYTES", part.lower())
        return ":".join(map(self._replace_word, part.split(":")))

    def _replace_word(self, word: str) -> str:
        if word in self._names:
            return self._names[word]
        if address := self._replace_address(word):
            return address
        if is_allowed(word):
            return word
        parts = word.split(".")
        if any(part in self._names for part in parts):
            return ".".join(map(self._replace_word, parts))
        return self._number("NUMBER" if word.isdecimal() else "NAME", word)

    def _replace_address(self, text: str) -> str:
        """The address, or the two of a range, replaced unless kept; "" if the text is none."""
        found = [_read_address(one) for one in text.split("-")]
        if not all(found):
            return ""
        return "-".join([one if _is_kept(one) else self._number("ADDRESS", one) for one in found])

    def _number(self, kind: str, text: str) -> str:
        if (kind, text) not in self._numbers:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._numbers[kind, text] = f"{kind}-{self._counts[kind]}"
        return self._numbers[kind, text]


def is_allowed(word: str) -> bool:
    """Whether a word names nothing of a cluster: it is one of netinit's own, a small number, a version or a usual device."""
    if len(word) < _MIN_SECRET and word.isascii():
        return True
    if len(word) > _MAX_WORD:
        return False
    if word in _read_own_texts().words or word.removesuffix("s") in _read_own_texts().words:
        return True
    if _FOUR_BYTES.search(word):
        return False
    return any(one.fullmatch(word) for one in (_NUMBER, _HEX, _DEVICE, _VERSION, _SYSTEM))


def _read_address(text: str) -> str:
    """The address in its usual form; "" if the text is none."""
    try:
        return parse_address(text)
    except ValueError:
        return ""


def _is_kept(address: str) -> bool:
    family, value = family_of(address), number_of(address)
    return any(one.family is family and one.first <= value <= one.last for one in KEPT_NETWORKS)


def _is_foreign(word: str) -> bool:
    return not is_allowed(word) and not _read_address(word)


def trim_version(text: str) -> str:
    """Cut a version before the part that is a vendor's own: `v1.31.2-eks-a18cd3a` becomes `v1.31.2-eks…`."""
    parts = _PARTS.findall(text[:_MAX_WORD])
    while parts and not is_allowed("".join(parts).rpartition("//")[2]):
        del parts[-1]
    kept = "".join(parts)
    return kept if kept == text else f"{kept}…"


class _OwnTexts:
    """The texts in the package's code and data: `words` as a report's runs are split, `phrases` whole, `symbols` beyond ASCII."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.phrases = frozenset(text.strip() for text in texts)
        self.symbols = frozenset(one for text in self.phrases for one in text if not one.isascii() and not one.isalnum())
        runs = (run for text in self.phrases for run in re.findall(r"[\w:][\w.:/-]*", text))
        words = frozenset(word for run in runs for word in re.split("[:/]", run.rstrip(".:-/")))
        self.words = frozenset(word for word in words if sum(map(str.isdecimal, word)) <= _MAX_DIGITS)


@functools.cache
def _read_own_texts() -> _OwnTexts:
    texts = [
        *_find_texts([_read_codes(netinit.__path__, "netinit.")]),
        *_find_texts([json.loads(read_data(file)) for file in _DATA]),
        *map(os.strerror, errno.errorcode),
        *known_keys(),
        *(flag.field for flag in Options.flags),
        __version__,
        platform.python_version(),
    ]
    return _OwnTexts(texts)


def _read_codes(path: Iterable[str], prefix: str) -> Iterator[CodeType]:
    """Yield the code of the package's modules without executing it."""
    for found in pkgutil.iter_modules(path, prefix):
        spec = found.module_finder.find_spec(found.name, None)
        if spec is None or found.name in _WITHOUT_ANSWERS:
            continue
        get_code = getattr(spec.loader, "get_code", None)
        if get_code is not None and (code := get_code(found.name)):
            yield code
        yield from _read_codes(spec.submodule_search_locations or (), f"{found.name}.")


def _has_docstring(code: CodeType) -> bool:
    """Whether the first constant is a docstring: of a module, or of a function (before Python 3.13, it is one or None)."""
    return code.co_name == "<module>" or bool(code.co_flags & getattr(inspect, "CO_HAS_DOCSTRING", inspect.CO_OPTIMIZED))


def _find_texts(waiting: list[Any]) -> Iterator[str]:
    """Yield the texts among nested constants of code or of JSON."""
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, CodeType):
            waiting.extend(one.co_consts[_has_docstring(one) :])
        elif isinstance(one, Mapping):
            waiting += [*one, *one.values()]
        elif isinstance(one, Iterable) and not isinstance(one, bytes):
            waiting.extend(one)
