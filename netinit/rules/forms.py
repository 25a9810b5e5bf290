"""What the layouts' rules in built-in chains look like, whatever options made them: rendered once, with holes for values.

This is how rules of an earlier run are known (netinit.rules.iptables.ownership), whose options nobody knows any more. Each
option whose value stands in such a rule has a value here that nothing else spells; where it is found, there is a hole.
"""

from __future__ import annotations

from netinit.base.net import FAMILIES
from netinit.options import CLASSIC, OFF, ON, TPROXY, Interception
from netinit.rules import layouts
from netinit.rules.iptables.ownership import EXCLUDED, MARK, OTHER, VIRTUAL, Form, Forms, target_of
from netinit.rules.iptables.write import write_plan
from netinit.rules.model import BUILTIN_CHAINS, OWNED_CHAINS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MARK, _UID, _GID, _EXCLUDED, _VIRTUAL, _LOOPBACK = 0x7E57AB1E, 4200000011, 4200000013, "excluded0", "virtual0", "127.199.0.0/16"
HOLES = {hex(_MARK): MARK, str(_UID): OTHER, str(_GID): OTHER, _EXCLUDED: EXCLUDED, _VIRTUAL: VIRTUAL, _LOOPBACK: OTHER}
_VALUES: dict[str, Any] = {
    "inbound_mode": TPROXY, "inbound_ports": "*", "outbound_cidrs": "*", "proxy_uids": (_UID,), "proxy_gids": (_GID,),
    "tproxy_mark": _MARK, "virtual_interfaces": (_VIRTUAL,),
}  # fmt: skip
_CURRENT: dict[str, Any] = {
    "exclude_interfaces": (_EXCLUDED,), "loopback_cidr": _LOOPBACK, "redirect_dns": True, "capture_all_dns": True,
    "drop_invalid": True,
}  # fmt: skip
_HOLE = "\0"
_made: list[Forms] = []  # once a process


def layout_forms() -> Forms:
    """The forms of all layouts."""
    if not _made:
        _made.append(make_forms())
    return _made[0]


def make_forms() -> Forms:
    """The same, rendered now."""
    rules: dict[Form, None] = {}
    runs: dict[tuple[str, str, tuple[str, ...]], None] = {}
    plans = [layouts.plan(Interception(ipv6=ON, **_VALUES, **_CURRENT))]
    plans += [layouts.plan(Interception(layout=CLASSIC, ipv6=ipv6, **_VALUES)) for ipv6 in (ON, OFF)]
    for plan in plans:
        for family in FAMILIES:
            for table, chains in write_plan(plan, family).items():
                confirmed = not OWNED_CHAINS.isdisjoint(chains)
                for chain in BUILTIN_CHAINS:
                    texts = chains[chain].texts if chain in chains else []
                    own = [text for text in texts if target_of(text) not in OWNED_CHAINS]
                    if confirmed:
                        rules.update({_form(table, chain, text): None for text in own})
                    elif own:
                        runs[table, chain, tuple(own)] = None
    return Forms(rules=tuple(rules), runs=tuple(runs))


def _form(table: str, chain: str, text: str) -> Form:
    words, holes = [], []
    for word in text.split(" "):
        value = word if word in HOLES else word.partition("/")[0]  # a mark's mask stays
        if value in HOLES:
            holes.append(HOLES[value])
        words.append(_HOLE + word.removeprefix(value) if value in HOLES else word)
    return Form(table=table, chain=chain, parts=tuple(" ".join(words).split(_HOLE)), holes=tuple(holes))
