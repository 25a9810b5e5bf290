"""Declare a peer's flags, and how each is converted.

`same`: a field of ours means the same. `lacking`: no equivalent. `needless`: done here anyway, or not about packets. `read`:
`complete` converts it together with others. Kinds of values that only one peer has are in its file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from netinit.base.net import Network, family_of, lists_port
from netinit.base.records import Record
from netinit.options import Options, kinds
from netinit.options.declare import DeclaredOptions
from netinit.options.interception import Interception
from netinit.options.kinds import ALL, Flag, Kind, quote_value, suggest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from netinit.options.kinds import Text

TUNNEL_PORT: int = Interception.flag("tunnel_port").default
SAME, LACKING, NEEDLESS, READ = "same", "lacking", "needless", "read"
_WORDS_OF_A_KEY = re.compile(r"[A-Z]{2,}s$|[A-Z]+(?=[A-Z][a-z])|[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


class PeerFlag(Flag):
    """A flag of a peer: its declaration as a flag, and how it is converted."""

    variables: tuple[str, ...] = ()
    default: Any = None  # the peer's; None if the flag matters only when given
    help: str = ""
    group: str = ""
    fate: str = READ
    to: str = ""  # the field of ours with the same meaning
    why: str = ""  # what a lacking or needless flag means here, or what a read one becomes
    key: str = ""  # key in the peer's file, with dots


def same(names: str, kind: Kind, to: str, **more: Any) -> Any:
    """Declare a flag with the same meaning as a field of ours."""
    return PeerFlag(names=names, kind=kind, fate=SAME, to=to, **more)


def lacking(names: str, kind: Kind, why: str, **more: Any) -> Any:
    """Declare a flag without an equivalent; `why` is the end of a sentence, with a remedy if there is one."""
    return PeerFlag(names=names, kind=kind, fate=LACKING, why=why, **more)


def needless(names: str, kind: Kind, why: str, **more: Any) -> Any:
    """Declare a flag that is not needed here, and why."""
    return PeerFlag(names=names, kind=kind, fate=NEEDLESS, why=why, **more)


def read(names: str, kind: Kind, why: str, **more: Any) -> Any:
    """Declare a flag that `complete` converts together with others; `why` says into what, for the documentation."""
    return PeerFlag(names=names, kind=kind, fate=READ, why=why, **more)


class Remark(Record):
    """A message about a given flag: the flag as written, its value, and a sentence without its subject."""

    flag: str
    value: str
    text: str

    def __str__(self) -> str:
        return f"{self.flag}{f' {quote_value(self.value)}' if self.value else ''}: {self.text}"


class Conversion:
    """The options of ours that a peer's become, and remarks.

    `lacking`: flags without a full equivalent. `needless`: flags not needed here. `differing`: differences that always apply.
    """

    options: Options  # made of `fields` when all of them are known

    def __init__(self, peer: str, title: str) -> None:
        self.peer, self.title = peer, title
        self.fields: dict[str, Any] = {}
        self.lacking: list[Remark] = []
        self.needless: list[Remark] = []
        self.differing: list[str] = []

    def note_tunnel_port(self) -> None:
        """Report that the port of Istio's tunnel is not captured here, unlike by the peer."""
        left = self.fields.get("exclude_inbound_ports", ())
        chosen = self.fields.get("inbound_ports", ())
        if chosen and not lists_port(left, TUNNEL_PORT) and (chosen == ALL or lists_port(chosen, TUNNEL_PORT)):
            self.differing.append(f"netinit leaves inbound port {TUNNEL_PORT} alone, {self.title} captures it; -e 0 captures it too")

    def note_group(self, user: int) -> None:
        """Report that the group with the proxy's number is excluded here too."""
        text = f"netinit leaves what group {user} sends alone too, {self.title} knows no group; name the proxy's with -g"
        self.differing.append(text)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(same, lacking, needless, read))
class PeerOptions(DeclaredOptions):
    """The options given to a peer. Attributes that are not flags describe the peer."""

    flags: ClassVar[tuple[PeerFlag, ...]] = ()
    peer: ClassVar[str] = ""  # the peer's name
    programs: ClassVar[tuple[str, ...]] = ()  # how its command lines begin
    required: ClassVar[tuple[str, ...]] = ()  # fields that it requires
    exclusive: ClassVar[tuple[tuple[str, str], ...]] = ()  # fields of which it accepts only one
    root: ClassVar[str] = ""  # key of its file that may contain the options
    prefix: ClassVar[str] = ""  # prefix of variables named after its file's keys
    variables_of_file: ClassVar[bool] = False  # its variables count only if it reads a file
    single_dash: ClassVar[bool] = False  # long flags have one dash, as in Go's flag package
    same_keys: ClassVar[bool] = False  # the keys of its file are the long names of its flags
    other_keys: ClassVar[tuple[str, ...]] = ()  # keys of its file that are about something else

    def convert(self, peer: str) -> Conversion:
        """Convert each flag by itself, then those that depend on each other. Raises OptionError."""
        made = Conversion(peer, self.peer)
        for flag in self.flags:
            value, label = getattr(self, flag.field), self.format_flag(flag.field)
            if flag.fate == SAME and value is not None:
                made.fields[flag.to] = _joined(value) if flag.repeated else value
            elif flag.fate != READ and self.is_given(flag.field) and value not in (flag.default, (), "", False):
                if flag.fate == LACKING:
                    made.lacking.append(Remark(flag=label, value=_format_value(flag, value), text=flag.why))
                else:  # without its value, which may be a secret
                    made.needless.append(Remark(flag=label, value="", text=flag.why))
        self.complete(made)
        made.options = Options(**made.fields)
        return made

    def complete(self, made: Conversion) -> None:
        """Convert flags that depend on each other, and add what only the peer does. Raises OptionError."""

    @classmethod
    def format_flag(cls, field: str) -> str:
        """Return the flag of a field as the peer writes it; without a flag, its key or variable."""
        flag = next(flag for flag in cls.flags if flag.field == field)
        if flag.names:
            return f"-{flag.long}" if cls.single_dash else f"--{flag.long}"
        return flag.key or flag.variables[0]

    def is_given(self, field: str) -> bool:
        """Whether the flag, its variable or its key was given."""
        return field in self._given

    @classmethod
    def keys(cls) -> dict[str, PeerFlag]:
        """Return the flags by key of the peer's file."""
        return {name: flag for flag in cls.flags if (name := flag.key or (flag.long if cls.same_keys else ""))}

    @classmethod
    def variables(cls) -> dict[str, PeerFlag]:
        """Return the flags by variable."""
        named = {name: flag for flag in cls.flags for name in flag.variables}
        return named | ({cls.prefix + _upper(key): flag for key, flag in cls.keys().items()} if cls.prefix else {})

    @classmethod
    def read_tree(cls, tree: Any, path: str) -> tuple[dict[str, tuple[Text, str]], list[str]]:
        """Return the texts in the peer's file, field -> (text, location), and every problem with its keys."""
        if tree is None:
            return {}, []
        if cls.root and isinstance(tree, dict) and cls.root in tree:
            tree = tree[cls.root]
        if not isinstance(tree, dict):
            some = ", ".join([*list(cls.keys())[:3], "…"]) if cls.keys() else "none: it has no file"
            return {}, [f"{path}: holds no options: give the peer's own file, whose keys are {some}"]
        found: dict[str, tuple[Text, str]] = {}
        problems = []
        keys = cls.keys()
        for key, value in _flatten(tree):
            flag = keys.get(key) or keys.get(key.partition(".")[0])
            if flag is None:
                if key.partition(".")[0] not in cls.other_keys:
                    problems.append(f"{path}: {quote_value(key)} is not a key of it{hint(key, keys)}")
            elif value is not None:
                text = _text_of(value, repeated=flag.repeated)
                if text is None:
                    problems.append(f"{path}: {key}: is a {type(value).__name__}: write {flag.kind.metavar}")
                else:
                    found[flag.field] = (text, f"{path}: {key}")
        return found, problems


def hint(word: str, known: Iterable[str]) -> str:
    """Return the most similar known word as the end of a sentence."""
    found = suggest(word, known, 1)
    return f"; {found}" if found else ""


def _upper(key: str) -> str:
    """Return a file's key as a variable: redirect.inbound.excludePorts is REDIRECT_INBOUND_EXCLUDE_PORTS."""
    return "_".join([word for part in key.split(".") for word in _WORDS_OF_A_KEY.findall(part)]).upper()


def _joined(values: tuple[Any, ...]) -> Any:
    """Join the items of a repeated flag; `*` wins over all others."""
    if any(value == ALL for value in values):
        return ALL
    return tuple([item for value in values for item in (value if type(value) is tuple else (value,))])


def _format_value(flag: Flag, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return ""
    return ", ".join([flag.kind.write(one) for one in value]) if flag.repeated else flag.kind.write(value)


def _flatten(tree: dict[Any, Any], path: str | None = None) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in tree.items():
        name = str(key) if path is None else f"{path}.{key}"
        leaves += _flatten(value, name) if isinstance(value, dict) else [(name, value)]
    return leaves


def _text_of(value: Any, *, repeated: bool) -> Text | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        items = [str(item) for item in value if isinstance(item, (int, str)) and not isinstance(item, bool)]
        if len(items) != len(value):
            return None
        return tuple(items) if repeated else ",".join(items)
    if not isinstance(value, (int, str)):
        return None
    return (str(value),) if repeated else str(value)


def read_addresses_or_networks(text: str) -> tuple[Network, ...]:
    """Read a comma list of CIDRs and addresses; an address is a network with one address."""
    items = kinds.split_list(text)
    return kinds.read_networks(",".join([one if "/" in one else f"{one}/{family_of(one).bits}" for one in items]))


NETWORKS = Kind(metavar="ADDRESSES|CIDRS", read=read_addresses_or_networks, write=kinds.write_list, empty=kinds.NONE)
NOT_SET = "not set"  # what an empty text means, which files of programs in Go hold for whatever was not given
TEXT = Kind(metavar="TEXT", read=kinds.read_path, empty=NOT_SET)
PATH = Kind(metavar="PATH", read=kinds.read_path, is_file=True, empty=NOT_SET)
