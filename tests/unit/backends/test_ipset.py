"""Address sets: what the kernel's refusals become, and how often a set that is in use is tried."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from netinit.backends import ipset
from netinit.backends.ipset import NftVariantWithSets, SetInUseError
from netinit.base.errors import ApplyError
from netinit.kernel import address_sets
from netinit.kernel.address_sets import IN_USE, SetError
from netinit.rules.iptables.sets import DESTROY, FILL, SWAP, SetStep


@pytest.fixture
def kernel(monkeypatch):
    """Answers of the kernel, one after the other (0: done), and what it was asked."""
    made = SimpleNamespace(answers=[], asked=[], pauses=[])

    class Link:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def __getattr__(self, name):
            def act(*given, **more):
                made.asked.append((name, *given, *more.values()))
                if number := made.answers.pop(0):
                    raise SetError(number, given[0])

            return act

    monkeypatch.setattr(address_sets, "AddressSets", Link)
    monkeypatch.setattr(ipset.time, "sleep", made.pauses.append)
    return made


def test_steps_are_made_in_order_with_what_a_set_of_ours_has(kernel):
    kernel.answers = [0] * 4
    steps = (
        SetStep(kind=FILL, name="a-6-new", elements=frozenset({"fd00::/8", "::1"})), SetStep(kind=FILL, name="a-4"),
        SetStep(kind=SWAP, name="a-6", other="a-6-new"), SetStep(kind=DESTROY, name="b"),
    )  # fmt: skip
    ipset.change_sets(steps)
    assert kernel.asked == [
        ("create", "a-6-new", ["::1", "fd00::/8"], 10, 64, 65536), ("create", "a-4", [], 2, 64, 65536),
        ("swap", "a-6", "a-6-new"), ("destroy", "b"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "kind", "text"),
    [
        (IN_USE, SetInUseError, "address set a: it is in use by a kernel component"),
        (4352, ApplyError, "address set a: the set is full"),
        (22, ApplyError, "address set a: Invalid argument"),
    ],
)
def test_a_refusal_names_the_set_and_why(kernel, number, kind, text):
    kernel.answers = [number]
    with pytest.raises(ApplyError) as caught:
        ipset.change_sets((SetStep(kind=DESTROY, name="a"), SetStep(kind=DESTROY, name="b")))
    assert (type(caught.value), str(caught.value)) == (kind, text)
    assert kernel.asked == [("destroy", "a")], "went on after a refusal"


def test_a_set_that_is_in_use_is_tried_again_and_then_an_error(kernel):
    backend = NftVariantWithSets(threshold=1)
    kernel.answers = [IN_USE, IN_USE, 0, 0]
    backend._destroy(("netinit-a", "netinit-b"))
    assert [words for _, words in kernel.asked] == ["netinit-a"] * 3 + ["netinit-b"]
    assert kernel.pauses == [0.005] * 2
    kernel.answers, kernel.pauses[:] = [IN_USE] * (ipset.TRIES + 1), []
    with pytest.raises(ApplyError) as caught:
        backend._destroy(("netinit-a",))
    assert str(caught.value) == "address set netinit-a: it is in use by a kernel component; a foreign rule references it: remove that first"
    assert (kernel.answers, len(kernel.pauses)) == ([], ipset.TRIES)
