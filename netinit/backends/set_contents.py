"""Our address sets in the kernel: read, and changed by steps."""

from __future__ import annotations

from _socket import AF_INET, AF_INET6

from netinit.base.errors import ApplyError
from netinit.kernel.detect import owned_sets
from netinit.rules.iptables import sets as set_rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from netinit.kernel.address_sets import AddressSets
    from netinit.rules.iptables.sets import SetStep, Steps

MAX_BYTES = set_rules.MAX_ELEMENTS * 64  # of one set's elements, of which the kernel lists one in at most 40


class SetInUseError(ApplyError):
    """A rule uses the set, so it cannot be destroyed."""


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


def change_sets(steps: Steps) -> None:
    """Make these changes in order. Raises ApplyError; SetInUseError for a set that a rule uses."""
    if not steps:
        return
    from netinit.kernel.address_sets import IN_USE, AddressSets

    with AddressSets() as link:
        for step in steps:
            try:
                _make(link, step)
            except OSError as error:
                kind = SetInUseError if error.errno == IN_USE else ApplyError
                raise kind(f"address set {error.strerror}") from None


def _make(link: AddressSets, step: SetStep) -> None:
    if step.kind == set_rules.FILL:
        link.create(
            step.name, sorted(step.elements), family=AF_INET6 if step.is_ipv6 else AF_INET, hash_size=step.hash_size,
            most=step.most_elements,
        )  # fmt: skip
    elif step.kind == set_rules.SWAP:
        link.swap(step.name, step.other)
    else:
        link.destroy(step.name)
