"""What the kernel's answers say about an extension or a table; whatever else it says is not known."""

from __future__ import annotations

import errno
import os

import pytest

from netinit.base.net import IPV4, IPV6
from netinit.kernel import extensions, libc, netlink
from netinit.kernel.extensions import MATCH, TARGET, has_legacy_extension, has_legacy_table, has_nft_extension


class Socket:
    """A socket that cannot be asked."""

    def __init__(self, *_):
        self.number = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def detach(self):
        """Give the descriptor away."""
        return self.number


@pytest.fixture
def asked(monkeypatch):
    """What is asked of the kernel, and the errno of its answer (0: yes)."""
    found = {"requests": [], "answer": 0}

    def call(name, descriptor, level, option, buffer, size):
        found["requests"].append((level, option, buffer.raw.rstrip(b"\0")))
        if found["answer"]:
            raise OSError(found["answer"], "said")
        return 0

    monkeypatch.setattr(extensions, "socket", Socket)
    monkeypatch.setattr(libc, "call", call)
    return found


def test_each_family_and_kind_has_an_option_of_its_own(asked):
    for family in (IPV4, IPV6):
        assert has_legacy_extension(family, MATCH, "addrtype", 1)
        assert has_legacy_extension(family, TARGET, "REJECT", 0)
        assert has_legacy_table(family, "filter")
    ipv4 = [(0, 66, b"addrtype".ljust(29, b"\0") + b"\1"), (0, 67, b"REJECT"), (0, 64, b"filter")]
    ipv6 = [(41, 68, b"addrtype".ljust(29, b"\0") + b"\1"), (41, 69, b"REJECT"), (41, 64, b"filter")]
    assert asked["requests"] == ipv4 + ipv6


@pytest.mark.parametrize(("number", "revision", "there"), [
    (errno.ENOENT, 0, False), (errno.EPROTONOSUPPORT, 1, False), (errno.ENOPROTOOPT, 0, True), (errno.ENOPROTOOPT, 1, False),
])  # fmt: skip
def test_an_answer_says_whether_an_extension_is_there(asked, number, revision, there):
    asked["answer"] = number
    assert has_legacy_extension(IPV4, MATCH, "owner", revision) is there


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOMEM])
def test_any_other_answer_says_nothing(asked, number):
    asked["answer"] = number
    with pytest.raises(OSError):
        has_legacy_extension(IPV4, MATCH, "owner", 0)
    with pytest.raises(OSError):
        has_legacy_table(IPV4, "nat")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EINVAL, errno.ENOPROTOOPT])
def test_a_table_is_missing_by_any_of_the_kernels_words_for_it(asked, number):
    asked["answer"] = number
    assert not has_legacy_table(IPV4, "filter")


def test_nfnetlink_is_asked_by_name_revision_and_kind(monkeypatch):
    sent = []

    def request(self, kind, flags, body):
        sent.append((kind, body))
        if b"addrtype" in body:
            raise OSError(errno.ENOENT, "said")
        if b"odd" in body:
            raise OSError(errno.EPERM, "said")
        return []

    monkeypatch.setattr(netlink.Netlink, "request", request)
    assert has_nft_extension(IPV6, TARGET, "REJECT", 0)
    assert not has_nft_extension(IPV4, MATCH, "addrtype", 1)
    with pytest.raises(OSError):
        has_nft_extension(IPV4, MATCH, "odd", 1)
    kind, body = sent[0]
    assert (kind, body[0]) == (11 << 8, 10)
    assert netlink.read_attributes(body, netlink.NETFILTER_SIZE) == {1: b"REJECT\0", 2: bytes(4), 3: b"\0\0\0\1"}


def test_without_nfnetlink_nothing_is_known(monkeypatch):
    def refuse(*_):
        raise OSError(errno.EPROTONOSUPPORT, "said")

    monkeypatch.setattr(netlink, "socket", refuse)
    with pytest.raises(OSError):
        has_nft_extension(IPV4, MATCH, "addrtype", 1)
