"""Our address sets in the kernel, with their elements."""

from __future__ import annotations

from netinit.base.errors import ApplyError
from netinit.kernel.detect import owned_sets
from netinit.rules.iptables import sets as set_rules

MAX_BYTES = set_rules.MAX_ELEMENTS * 64  # of one set's elements, of which the kernel lists one in at most 40


def read_contents() -> set_rules.Contents:
    """Return all sets of ours with their elements. Raises ApplyError if the kernel does not list them."""
    found: set_rules.Contents = {}
    for name, size in owned_sets().items():
        if size > set_rules.MAX_ELEMENTS:
            found[name] = set_rules.unread(f"it has {size:,}, and more than {set_rules.MAX_ELEMENTS:,} are not read")
        else:
            found[name] = _read(name, size)
    return found


def _read(name: str, size: int) -> frozenset[str]:
    """Return a set's elements; one that no plan has if it has other options, or another number of elements than `size`."""
    from netinit.kernel.address_sets import AddressSets  # only where there are sets

    try:
        with AddressSets() as link:
            elements = link.read(name, MAX_BYTES)
    except OSError as error:
        raise ApplyError(f"the kernel does not list the address set {name}: {error.strerror}") from None
    if elements is None:
        return set_rules.unread("it was made with other options")
    if len(elements) != size:
        return set_rules.unread(f"it does not list the {size:,} elements that it has")
    return frozenset(elements)
