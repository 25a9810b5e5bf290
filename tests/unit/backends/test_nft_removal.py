"""The removal of rules of iptables-nft by netlink: what the kernel's refusals become."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from memory_backend import MemoryBackend, MemoryKernel
from netinit.backends import nft_removal
from netinit.backends.nft_removal import NftRemoval, OwnPart
from netinit.base.errors import ApplyError
from netinit.kernel.netlink import attribute
from netinit.rules.model import EMPTY_PLAN

MESSAGE = (1, 0, b"rule")


@pytest.fixture
def kernel(monkeypatch):
    """Answers to transactions (errnos, or an error that is raised), and the transactions."""
    made = SimpleNamespace(answers=[], commits=[])

    class Link:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def commit(self, messages):
            made.commits.append(list(messages))
            answer = made.answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return [SimpleNamespace(number=number) for number in answer]

    monkeypatch.setattr(nft_removal, "NfTables", Link)
    monkeypatch.setattr(nft_removal, "_find_empty", lambda *_: [(2, (2, 0, b"empty"))])
    monkeypatch.setattr(nft_removal.detect, "nft_chains", lambda: ())
    return made


def make_removal():
    return NftRemoval(scripts={}, before=MemoryBackend(kernel=MemoryKernel()).observe(), plan=EMPTY_PLAN, deletions=((2, MESSAGE),), freed={})


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([[16], [2]], "netinit's rules cannot be deleted: they have changed meanwhile, or foreign rules jump to them"),
        ([[16], [16, 1]], "netinit's rules cannot be deleted: they have changed meanwhile, or foreign rules jump to them"),
        ([[16], [1]], "netinit's rules cannot be deleted: Operation not permitted"),
        ([OSError(105, "No buffer space available")], "its rules cannot be deleted: No buffer space available"),
    ],
)
def test_a_removal_that_the_kernel_refuses_is_an_error_with_the_cause(kernel, answers, text):
    kernel.answers = answers
    with pytest.raises(ApplyError) as caught:
        nft_removal.commit(make_removal(), ())
    assert str(caught.value) == f"iptables-nft: {text}"


def test_what_has_come_into_use_stays_while_the_rules_are_deleted(kernel):
    kernel.answers = [[16], []]
    nft_removal.commit(make_removal(), ())
    assert kernel.commits == [[(2, MESSAGE), (2, (2, 0, b"empty"))], [(2, MESSAGE)]]
    kernel.answers, kernel.commits[:] = [[]], []
    nft_removal.commit(make_removal(), ())
    assert kernel.commits == [[(2, MESSAGE), (2, (2, 0, b"empty"))]], "once, if the kernel takes it"


def test_where_nothing_is_left_empty_a_refusal_is_final(kernel, monkeypatch):
    monkeypatch.setattr(nft_removal, "_find_empty", lambda *_: [])
    kernel.answers = [[2]]
    with pytest.raises(ApplyError):
        nft_removal.commit(make_removal(), ())
    assert kernel.commits == [[(2, MESSAGE)]]


def test_an_expression_without_a_name_is_no_jump_to_our_chains():
    assert nft_removal._find_jumps({("nat", "OUTPUT"): [(1, attribute(1, b""))]}) is None


@pytest.mark.parametrize(("answer", "cause"), [([2, 16], ""), ([], ""), ([2, 1], "Operation not permitted"), (OSError(105, "x"), "No buffer space available")])
def test_an_empty_table_may_be_gone_or_in_use_already_and_another_refusal_is_an_error(kernel, answer, cause):
    kernel.answers = [answer]
    parts = [OwnPart(family=2, table="nat", first=1, alone=True)]
    if not cause:
        nft_removal.remove_empty(parts)
        return
    with pytest.raises(ApplyError) as caught:
        nft_removal.remove_empty(parts)
    assert str(caught.value) == f"empty tables of iptables-nft cannot be removed: {cause}"
