"""What the kernel tells in many messages: whole, or asked again, or an error; and bounded. A pretended socket answers."""

from __future__ import annotations

import struct
from errno import ENOENT, EPERM

import pytest

from netinit.backends import encoded_rules
from netinit.base.errors import ParseError
from netinit.base.net import IPV4
from netinit.base.netlink_attributes import NftChain
from netinit.base.snapshot import NftObject, NftSet
from netinit.kernel import conntrack
from netinit.kernel.netlink import (
    DUMP_ATTEMPTS,
    MSG_TRUNC,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    RECEIVE_SIZE,
    Netlink,
    attribute,
    list_addresses,
    list_local_routes,
    list_mark_rules,
)
from netinit.kernel.nf_tables import (
    NFT_MSG_NEWCHAIN,
    NFT_MSG_NEWFLOWTABLE,
    NFT_MSG_NEWOBJ,
    NFT_MSG_NEWRULE,
    NFT_MSG_NEWSET,
    NFT_MSG_NEWTABLE,
)
from netinit.kernel.snapshot import nf_tables_dump

KIND = 99


class Answers:
    """Answers each question with the next of these dumps: flags and bodies; the last one again and again."""

    def __init__(self, *dumps):
        self.dumps = list(dumps)
        self.asked = 0

    def send(self, message):
        self.sequence = struct.unpack_from("=I", message, 8)[0]
        self.asked += 1

    def recvmsg(self, size):
        whole = self.answer()
        return whole[:size], [], MSG_TRUNC if len(whole) > size else 0, None

    def close(self):
        """Nothing is open."""

    def answer(self):
        flags, bodies = self.dumps.pop(0) if len(self.dumps) > 1 else self.dumps[0]
        return b"".join(
            struct.pack("=IHHII", 16 + len(body), kind, flags, self.sequence, 0) + body for kind, body in [*((KIND, b) for b in bodies), (NLMSG_DONE, bytes(4))]
        )


class Refuses(Answers):
    """Answers each question with this error."""

    def answer(self):
        return struct.pack("=IHHIIi16x", 36, NLMSG_ERROR, 0, self.sequence, 0, -self.dumps[0])


def link_to(answers):
    link = Netlink.__new__(Netlink)
    link._socket, link._sequence, link._size = answers, 0, RECEIVE_SIZE
    link._interrupted = link._truncated = False
    return link


def test_a_dump_that_was_interrupted_by_a_change_is_asked_for_again():
    answers = Answers((NLM_F_DUMP_INTR, [b"half"]), (0, [b"all1", b"all2"]))
    assert link_to(answers).dump(KIND, b"") == [b"all1", b"all2"]
    assert answers.asked == 2


def test_a_dump_that_never_stands_still_is_an_error_after_a_bounded_number_of_attempts():
    answers = Answers((NLM_F_DUMP_INTR, [b"half"]))
    with pytest.raises(InterruptedError):
        link_to(answers).dump(KIND, b"")
    assert answers.asked == DUMP_ATTEMPTS


def test_a_dump_that_is_too_large_is_an_error():
    with pytest.raises(OSError, match="File too large"):
        link_to(Answers((0, [b"1234"] * 3))).dump(KIND, b"", most=11)
    assert len(link_to(Answers((0, [b"1234"] * 3))).dump(KIND, b"", most=12)) == 3



def test_a_refusal_is_the_error_of_its_number_and_an_entry_to_delete_may_be_gone_already():
    gone = conntrack.Event(destroyed=False, answered=False, original=(), reply=(), handle=b"")
    conntrack.delete_entry(link_to(Refuses(ENOENT)), gone)
    with pytest.raises(PermissionError):
        conntrack.delete_entry(link_to(Refuses(EPERM)), gone)
    with pytest.raises(FileNotFoundError):
        link_to(Refuses(ENOENT)).request(KIND, 0, b"")


@pytest.fixture
def kernel(monkeypatch):
    """What the kernel lists: chains, and messages with rules."""
    listed = {"chains": [], "rules": []}
    monkeypatch.setattr(encoded_rules.netlink, "read_nft_generation", lambda: 1)
    monkeypatch.setattr(encoded_rules.netlink, "list_nft_rules", lambda _: listed["rules"])
    monkeypatch.setattr(encoded_rules.netlink, "list_nft_chains", lambda: tuple(listed["chains"]))
    return listed


def test_more_rules_than_are_read_are_an_error_that_says_what_to_do(kernel):
    kernel["chains"] = [NftChain(family=2, table="nat", name=name, uses=encoded_rules.MAX_RULES // 2) for name in ("A", "B")]
    assert [one.size for one in encoded_rules.read_nft((IPV4,))[1]] == [0]
    kernel["chains"].append(NftChain(family=2, table="raw", name="C", uses=1))
    with pytest.raises(ParseError, match="IPv4 has 200,001 rules, and more than 200,000 are not read; remove those that are not needed"):
        encoded_rules.read_nft((IPV4,))


def test_a_rule_that_is_not_understood_is_an_error_where_rules_are_decoded(kernel):
    kernel["chains"] = [NftChain(family=2, table="nat", name="A", uses=1)]
    kernel["rules"] = [b"\2\0\0\0" + attribute(1, b"nat\0") + attribute(2, b"A\0") + attribute(2, b"A\0")]
    _, (held,) = encoded_rules.read_nft((IPV4,))
    assert held.size == 1
    with pytest.raises(ParseError, match="a rule of ip: the kernel's message is not understood: two attributes of one type"):
        held.decode()
    with pytest.raises(ParseError, match="a rule of ip: the kernel's message is not understood: two attributes of one type"):
        held.by_place()
    kernel["rules"] = [kernel["rules"][0][:-8]]
    assert [*encoded_rules.read_nft((IPV4,))[1][0].decode()["nat"].rules] == ["A"]


def test_rules_are_read_again_while_they_change(kernel, monkeypatch):
    generations = iter((1, 2, 2))
    monkeypatch.setattr(encoded_rules.netlink, "read_nft_generation", lambda: next(generations))
    assert encoded_rules.read_nft((IPV4,))[1][0].size == 0
    assert next(generations, None) is None
    monkeypatch.setattr(encoded_rules.netlink, "read_nft_generation", iter(range(100)).__next__)
    with pytest.raises(OSError, match="changes all the time"):
        encoded_rules.read_nft((IPV4,))


def test_an_answer_larger_than_the_buffer_is_asked_for_again_with_more_room():
    body = bytes(3 * RECEIVE_SIZE)
    answers = Answers((0, [body]))
    assert link_to(answers).dump(KIND, b"") == [body]
    assert answers.asked == 3, "128 KiB, 256 KiB, 512 KiB"


@pytest.mark.parametrize("ask", [list_addresses, lambda: list_mark_rules(2), lambda: list_local_routes(10)], ids=["addresses", "rules", "routes"])
def test_addresses_rules_and_routes_are_asked_for_again_after_a_change(monkeypatch, ask):
    answers = Answers((NLM_F_DUMP_INTR, []), (NLM_F_DUMP_INTR, []), (0, []))
    monkeypatch.setattr("netinit.kernel.netlink.socket", lambda *_: answers)
    assert ask() == ()
    assert answers.asked == 3


TEXT, HOOK = attribute(1, b"t\0"), attribute(1, b"\0\0\0\3") + attribute(2, b"\xff\xff\xff\x6a")


@pytest.mark.parametrize(
    ("kind", "attributes", "found"),
    [
        (NFT_MSG_NEWCHAIN, TEXT + attribute(3, b"c\0"), NftChain(family=2, table="t", name="c")),
        (
            NFT_MSG_NEWCHAIN, TEXT + attribute(3, b"c\0") + attribute(4, HOOK + attribute(3, b"lo\0")) + attribute(5, bytes(4)) + attribute(7, b"route\0"),
            NftChain(family=2, table="t", name="c", kind="route", hook=3, priority=-150, policy=0, devices=("lo",)),
        ),
        (NFT_MSG_NEWCHAIN, TEXT + attribute(3, b"c\0") + attribute(4, HOOK), "a chain of ip: the kernel's message is not understood: a base chain has no type"),
        (
            NFT_MSG_NEWFLOWTABLE, TEXT + attribute(2, b"f\0") + attribute(3, HOOK + attribute(3, attribute(1, b"lo\0") + attribute(1, b"e\0"))),
            NftObject(family=2, table="t", name="f", kind="flowtable", priority=-150, devices=("lo", "e")),
        ),
        (NFT_MSG_NEWOBJ, TEXT + attribute(2, b"o\0") + attribute(3, b"\0\0\0\1"), NftObject(family=2, table="t", name="o", kind="1")),
        (NFT_MSG_NEWOBJ, TEXT, "a object of ip: the kernel's message is not understood: NftObject: name, kind is missing"),
        (NFT_MSG_NEWSET, TEXT + attribute(2, b"s\0"), NftSet(family=2, table="t", name="s")),
    ],
)  # fmt: skip
def test_objects_of_nf_tables_are_read_by_their_attributes(kind, attributes, found):
    unknown = []
    read = nf_tables_dump._decode_objects(kind, [b"\2\0\0\0" + attributes], unknown)
    assert [*read, *[f"{one.place}: {one.reason}" for one in unknown]] == [found]


@pytest.mark.parametrize(("kind", "attributes", "place"), [
    (NFT_MSG_NEWTABLE, (attribute(1, b"t\0"),), "table ip t, its properties"), (NFT_MSG_NEWCHAIN, (attribute(1, b"t\0"), attribute(3, b"c\0")), "table ip t, chain c, its properties"),
    (NFT_MSG_NEWRULE, (attribute(1, b"t\0"), attribute(2, b"c\0"), attribute(3, struct.pack(">Q", 7))), "table ip t, chain c, rule with handle 7, its properties"),
    (NFT_MSG_NEWSET, (attribute(1, b"t\0"), attribute(2, b"s\0")), "table ip t, set s, its properties"), (NFT_MSG_NEWOBJ, (attribute(1, b"t\0"), attribute(2, b"o\0"), attribute(3, b"\0\0\0\1")), "table ip t, object o, its properties"),
    (NFT_MSG_NEWFLOWTABLE, (attribute(1, b"t\0"), attribute(2, b"f\0"), attribute(3, b"")), "table ip t, flow table f, its properties"),
])  # fmt: skip
def test_an_attribute_of_an_object_that_nobody_knows_is_told_with_its_place(kind, attributes, place):
    for more, reasons in (((), []), ((attribute(99, b"\0\0\0\0"),), ["attribute 99 is not known"])):
        unknown = []
        nf_tables_dump._decode_objects(kind, [struct.pack("BBH", 2, 0, 0) + b"".join([*attributes, *more])], unknown)
        assert [(one.place, one.reason) for one in unknown] == [(place, reason) for reason in reasons]


@pytest.mark.parametrize(("kind", "attributes", "number", "known", "what"), [
    (NFT_MSG_NEWTABLE, attribute(1, b"t\0"), 2, 7, "table ip t"), (NFT_MSG_NEWCHAIN, TEXT + attribute(3, b"c\0"), 10, 7, "table ip t, chain c"),
    (NFT_MSG_NEWSET, TEXT + attribute(2, b"s\0"), 3, 0x1FF, "table ip t, set s"),
])  # fmt: skip
def test_a_flag_of_an_object_that_nobody_knows_is_told(kind, attributes, number, known, what):
    for flags, reasons in ((known, []), (known | 0x400, ["flag 0x400 is not known"]), (0, [])):
        unknown = []
        nf_tables_dump._decode_objects(kind, [b"\2\0\0\0" + attributes + attribute(number, struct.pack(">I", flags))], unknown)
        assert [(one.place, one.reason) for one in unknown] == [(f"{what}, its properties", reason) for reason in reasons]
