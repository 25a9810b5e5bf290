"""Changes of address sets as input for the ipset program, the oracle for what is done by netlink."""

from __future__ import annotations

from netinit.rules.iptables.sets import FILL, SWAP, Steps


def render_steps(steps: Steps) -> str:
    """Return changes of sets as input for `ipset restore`."""
    lines = []
    for step in steps:
        if step.kind == FILL:
            family = "inet6" if step.is_ipv6 else "inet"
            lines.append(f"create {step.name} hash:net family {family} hashsize {step.hash_size} maxelem {step.most_elements}\n")
            lines += [f"add {step.name} {element}\n" for element in sorted(step.elements)]
        else:
            lines.append(f"{step.kind} {step.name}{f' {step.other}' if step.kind == SWAP else ''}\n")
    return "".join(lines)
