"""Our address sets in the kernel, through the ipset program."""

from __future__ import annotations

from netinit.base.errors import ApplyError, LateError
from netinit.kernel import run
from netinit.kernel.detect import owned_sets
from netinit.rules.iptables import sets as set_rules

PROGRAM = "ipset"


class SetInUseError(ApplyError):
    """A rule uses the set, so it cannot be destroyed."""


def read_contents() -> set_rules.Contents:
    """Return all sets of ours with their elements. Raises ApplyError if ipset fails or is missing."""
    found: set_rules.Contents = {}
    for name, size in owned_sets().items():
        if size > set_rules.MAX_ELEMENTS:
            found[name] = set_rules.unread(f"it has {size:,}, and more than {set_rules.MAX_ELEMENTS:,} are not read")
        else:
            found[name] = set_rules.parse_save(run_ipset(("save", name)), name, size)
    return found


def run_ipset(arguments: tuple[str, ...], script: str = "") -> str:
    """Run ipset and return its output. Raises ApplyError; SetInUseError for a set that a rule uses."""
    path = run.find(PROGRAM)
    if not path:  # do not fall back to another backend while rules use these sets
        raise ApplyError("address sets of an earlier run are here, but ipset is not installed: add the package ipset to the image")
    result = run.finish(run.start(path, arguments, stdin=script))
    if result.status:
        from netinit.backends.failure_causes import IN_USE, IPSET, LATE, cause_of  # rarely needed

        kind = {IN_USE: SetInUseError, LATE: LateError}.get(cause_of(IPSET, result.errors), ApplyError)
        raise kind(" ".join(result.errors.split()) or f"ipset ended with status {result.status}")
    return result.output
