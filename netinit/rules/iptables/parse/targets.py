"""Parse the words after `-j` and `-g`."""

from __future__ import annotations

from netinit.base.net import FULL_MASK, Family, parse_address
from netinit.rules import marking_targets, targets
from netinit.rules.decoding import read_masked, read_number
from netinit.rules.foreign_targets import OBSERVING, DestinationNat, Observe, SourceNat, UnknownTarget, Untrack
from netinit.rules.targets import Target

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Names that iptables takes for an extension and not for a chain
_EXTENSIONS = OBSERVING | frozenset((
    "CLUSTERIP", "CONNMARK", "CT", "DNAT", "DNPT", "HL", "HMARK", "MARK", "MASQUERADE", "NETMAP", "NFQUEUE", "NOTRACK", "QUEUE",
    "REDIRECT", "REJECT", "SET", "SNAT", "SNPT", "SYNPROXY", "TPROXY", "TTL",
))  # fmt: skip


def read_target(goes: bool, words: list[str], text: str, family: Family) -> Target:
    """Return the target; `goes`: after `-g`; `text`: the words as written."""
    if not words:
        return Observe(text="")
    name = words[0]
    if goes:
        return targets.Jump(chain=name, goto=True)
    plain = _PLAIN.get(name)
    if plain is not None and len(words) == 1:
        return plain
    if name in OBSERVING:
        return _read_log(words) or Observe(text=text)
    if name not in _EXTENSIONS and name not in _PLAIN and len(words) == 1:
        return targets.Jump(chain=name)
    reader = _READERS.get(name)
    options = _pair(words[1:])
    target = reader(options, text, family) if reader and options is not None else None
    return target or UnknownTarget(text=text)


def _read_log(words: list[str]) -> Target | None:
    """Return a log target with only a prefix and group; None for any other."""
    if words[:2] == ["LOG", "--log-prefix"] and len(words) == 3:  # noqa: PLR2004
        return marking_targets.LogTarget(prefix=words[2])
    if words[:2] == ["NFLOG", "--nflog-prefix"] and words[3:4] == ["--nflog-group"] and len(words) == 5:  # noqa: PLR2004
        group = read_number(words[4])
        return marking_targets.LogTarget(prefix=words[2], group=group) if group else None
    return None


def _pair(words: list[str]) -> dict[str, str] | None:
    """Return options with one value each; None for anything else."""
    options: dict[str, str] = {}
    at = 0
    while at < len(words):
        option = words[at]
        if not option.startswith("--") or option in options:
            return None
        has_value = at + 1 < len(words) and not words[at + 1].startswith("--")
        options[option] = words[at + 1] if has_value else ""
        at += 1 + has_value
    return options


def _read_redirect(options: dict[str, str], _: str, __: Family) -> Target | None:
    port = read_number(options.get("--to-ports") or options.get("--to-port") or "")
    return targets.Redirect(port=port) if port and len(options) == 1 else None


def _read_tproxy(options: dict[str, str], _: str, family: Family) -> Target | None:
    port = read_number(options.get("--on-port", ""))
    mark = read_masked(options.get("--tproxy-mark", ""))
    if not port or mark is None or mark[1] != FULL_MASK or not set(options) <= {"--on-port", "--tproxy-mark", "--on-ip"}:
        return None
    address = options.get("--on-ip", family.any_address)
    try:
        address = "" if address == family.any_address else parse_address(address)
    except ValueError:
        return None
    return targets.Tproxy(port=port, mark=mark[0], address=address)


def _read_reject(options: dict[str, str], _: str, family: Family) -> Target | None:
    if not options:
        return targets.Reject()
    message = options.get("--reject-with", "")
    message = _MESSAGES.get(message, message)
    if not message or len(options) > 1:
        return None
    return targets.Reject() if targets.Reject().xt(family).endswith(f" {message}") else targets.Reject(message=message)


def change_of_mark(options: dict[str, str]) -> tuple[int, int] | None:
    """Return what an option of MARK or CONNMARK does: the value to xor, and the mask to clear before."""
    if len(options) != 1:
        return None
    option, text = next(iter(options.items()))
    if option in ("--set-mark", "--set-xmark"):
        found = read_masked(text)
        if found is None:
            return None
        return (found[0], found[0] | found[1]) if option == "--set-mark" else found
    number = read_number(text)
    if number is None:
        return None
    return {"--and-mark": (0, FULL_MASK & ~number), "--or-mark": (number, number), "--xor-mark": (number, 0)}.get(option)


def _read_mark(options: dict[str, str], _: str, __: Family) -> Target | None:
    change = change_of_mark(options)
    return None if change is None else marking_targets.SetMark(value=change[0], mask=change[1])


def _read_connmark(options: dict[str, str], _: str, __: Family) -> Target | None:
    for option, target in (("--save-mark", marking_targets.SaveMark()), ("--restore-mark", marking_targets.RestoreMark())):
        if option in options:
            masks = [read_number(text) for name, text in options.items() if name in ("--nfmask", "--ctmask", "--mask")]
            return target if len(masks) == len(options) - 1 and all(mask == FULL_MASK for mask in masks) else None
    change = change_of_mark(options)
    return None if change is None else marking_targets.SetMark(value=change[0], mask=change[1], connection=True)


def _read_ct(options: dict[str, str], _: str, __: Family) -> Target | None:
    if options == {"--notrack": ""}:
        return Untrack()
    zone = read_number(options.get("--zone", ""))
    return marking_targets.TrackZone(zone=zone) if zone is not None and len(options) == 1 else None


def _read_dnat(options: dict[str, str], _: str, __: Family) -> Target | None:
    text = options.get("--to-destination", "")
    if not text or len(options) > 1:
        return None
    address, colon, port = text.rpartition(":") if text.count(":") == 1 or text.startswith("[") else (text, "", "")
    if text.startswith("[") and not address.endswith("]"):
        return None
    number = read_number(port) if colon else 0
    try:
        return (
            None if number is None else DestinationNat(address=parse_address(address.strip("[]")) if address else "", port=number)
        )
    except ValueError:  # a range of addresses: the kernel chooses
        return None


_MESSAGES = {
    "port-unreach": "icmp-port-unreachable", "port-unreachable": "icmp-port-unreachable",
    "icmp6-port-unreach": "icmp6-port-unreachable",
}  # fmt: skip
_PLAIN: dict[str, Target] = {"ACCEPT": targets.Accept(), "DROP": targets.Drop(), "RETURN": targets.Return()}
_READERS: dict[str, Callable[[dict[str, str], str, Family], Target | None]] = {
    "REDIRECT": _read_redirect,
    "TPROXY": _read_tproxy,
    "REJECT": _read_reject,
    "MARK": _read_mark,
    "CONNMARK": _read_connmark,
    "CT": _read_ct,
    "NOTRACK": lambda options, _, __: None if options else Untrack(),
    "DNAT": _read_dnat,
    "SNAT": lambda _, text, __: SourceNat(text=text),
    "MASQUERADE": lambda _, text, __: SourceNat(text=text),
}
