"""iptables-nft by netlink: where rules are inserted, what is deleted, and what happens when another program is in between."""

from __future__ import annotations

import errno
from struct import unpack_from

import pytest

from core import plan
from netinit.backends import Change
from netinit.backends.compat_messages import AT_END, AT_TOP, CompatChange, FamilyChange, KeptRule
from netinit.backends.iptables import XtablesState
from netinit.backends.iptables_nft import NftVariant
from netinit.base.errors import ApplyError, BackendUnavailableError, BusyError, KernelFeatureError
from netinit.base.net import FAMILIES, IPV4
from netinit.kernel import nf_tables
from netinit.kernel.netlink import read_attributes, read_name
from netinit.kernel.nf_tables import ERESTART, TRIES, NfTables, Refusal
from netinit.options import Options
from netinit.rules.expressions.compat import write_protocol
from netinit.rules.iptables.parse import parse_rule

SIDECAR = plan(Options.from_argv(["-b", "*", "-i", "*", "--ipv6", "on"]))
NAMES = {
    nf_tables.NFT_MSG_NEWTABLE: "add table", nf_tables.NFT_MSG_NEWCHAIN: "add chain", nf_tables.NFT_MSG_NEWRULE: "add rule",
    nf_tables.NFT_MSG_DELRULE: "delete rule", nf_tables.NFT_MSG_DELCHAIN: "delete chain",
}  # fmt: skip


def kept(text):
    return KeptRule(expressions=text.encode(), compat=b"", text=text)


def steps(change):
    """The messages in words: what, the chain, and the handle of a rule or that before which it is inserted."""
    found = []
    for (kind, _, body), (_, chain, _, rule) in change.write():
        attributes = read_attributes(body, 0) if "rule" in NAMES[kind] else {}
        handles = [int.from_bytes(attributes[one], "big") for one in (3, 6) if one in attributes]
        found.append(" ".join([NAMES[kind], chain, *map(str, handles), *([rule.text] if rule else [])]).strip())
    return found


def change(chains, live=(), owned=()):
    placed = {chain: [(place, kept(text)) for place, text in rules] for chain, rules in chains.items()}
    return FamilyChange(
        family=IPV4, target={"nat": placed}, owned={("nat", chain): indexes for chain, indexes in dict(owned).items()},
        live={("nat", chain): handles for chain, handles in dict(live).items()},
    )  # fmt: skip


def test_a_first_run_creates_our_chains_before_the_built_in_ones_that_jump_to_them():
    assert steps(change({"OUTPUT": [(0, "jump")], "ISTIO_OUTPUT": [(0, "a"), (0, "b")]})) == [
        "add table", "add chain ISTIO_OUTPUT", "add chain OUTPUT", "add rule OUTPUT jump", "add rule ISTIO_OUTPUT a", "add rule ISTIO_OUTPUT b",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("live", "owned", "placed", "added"),
    [
        ([7, 8], [], [(AT_TOP, "a"), (AT_TOP, "b"), (AT_END, "c")], ["7 a", "7 b", "c"]),  # before the first foreign rule, in order
        ([7, 8], [0], [(AT_TOP, "a"), (AT_END, "c")], ["8 a", "c"]),
        ([7, 8, 9], [], [(8, "a"), (9, "b")], ["8 a", "9 b"]),
        ([], [], [(AT_TOP, "a"), (AT_TOP, "b")], ["a", "b"]),
        ([7], [0], [(AT_TOP, "a")], ["a"]),
    ],
)
def test_rules_are_inserted_before_the_foreign_rule_at_their_place(live, owned, placed, added):
    made = steps(change({"OUTPUT": placed}, live={"OUTPUT": live}, owned={"OUTPUT": owned}))
    assert [one.removeprefix("add rule OUTPUT ") for one in made if one.startswith("add rule")] == added
    assert [one for one in made if one.startswith("delete")] == [f"delete rule OUTPUT {live[index]}" for index in owned]
    assert "add chain OUTPUT" not in made


def test_our_other_chains_are_emptied_first_and_deleted_last():
    live = {"OUTPUT": [5], "ISTIO_OUTPUT": [6], "ISTIO_REDIRECT": [7], "THEIRS": [8]}
    assert steps(change({"ISTIO_OUTPUT": [(0, "a")]}, live, {"OUTPUT": [0]})) == [
        "add table", "delete rule ISTIO_OUTPUT", "delete rule ISTIO_REDIRECT", "delete rule OUTPUT 5", "add rule ISTIO_OUTPUT a",
        "delete chain ISTIO_REDIRECT",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "number", "flags"),
    [("-p tcp -m tcp --dport 80 -j RETURN", 6, 0), ("-p udp -j RETURN", 17, 0), ("! -p tcp -j RETURN", 6, 2), ("-o lo -j RETURN", 0, 0)],
)
def test_the_kernel_is_told_the_protocol_that_its_extensions_check(rule, number, flags):
    written = write_protocol(parse_rule(rule, IPV4).matches)
    if not number:
        assert written == b""
        return
    found = read_attributes(written[4:], 0)
    assert (unpack_from(">I", found[1])[0], unpack_from(">I", found[2])[0]) == (number, flags)


class Link(NfTables):
    """Answers transactions from a list, and keeps what was sent."""

    def __init__(self):
        pass

    def close(self):
        pass

    def commit(self, messages, *, check=False, generation=0):
        self.sent.append((generation, messages))
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.fixture
def link(monkeypatch):
    monkeypatch.setattr(nf_tables, "NfTables", Link)
    monkeypatch.setattr(Link, "answers", [], raising=False)
    monkeypatch.setattr(Link, "sent", [], raising=False)
    monkeypatch.setattr("netinit.backends.iptables_nft.detect.has_capability", lambda _: True)
    monkeypatch.setattr("netinit.backends.failure_causes.read_text", lambda _: "")
    return Link


class Backend(NftVariant):
    """Observes nothing, each time in the next generation, and knows what the kernel lacks."""

    lacks = ""
    _generation = 1

    def read(self, families, snapshot=None):
        self._generation += 1
        return ()

    def missing_for(self, _):
        return self.lacks


def first_change(backend):
    return backend.observe().compare(SIDECAR).change()


def refuse(number, message=-1, backend=None):
    return (Refusal(number=number, message=message),)


def test_a_change_names_the_generation_that_it_was_computed_from_and_is_computed_again_in_another(link):
    backend = Backend()
    link.answers += [refuse(ERESTART), refuse(ERESTART), ()]
    backend.commit(first_change(backend))
    assert [generation for generation, _ in link.sent] == [2, 3, 4]
    assert link.sent[0][1] == link.sent[2][1]
    assert {family for family, _ in link.sent[0][1]} == {one.number for one in FAMILIES}


def test_nf_tables_that_changes_all_the_time_is_busy(link):
    backend = Backend()
    link.answers += [refuse(ERESTART)] * TRIES
    with pytest.raises(BusyError, match="iptables-nft: other programs change nf_tables all the time"):
        backend.commit(first_change(backend))


def test_what_is_right_by_then_is_not_sent(link):
    backend = Backend()
    state = backend.observe()
    done = CompatChange(scripts={}, before=state, plan=SIDECAR, families=(), renew=lambda _: done)
    link.answers += [refuse(ERESTART)]
    backend.commit(first_change(backend).replace(renew=lambda _: done))
    assert len(link.sent) == 1


@pytest.mark.parametrize(
    ("number", "lacks", "kind", "text"),
    [
        (errno.ENOENT, "owner", KernelFeatureError, "No such file or directory; "),
        (errno.ENOENT, "", KernelFeatureError, "No such file or directory; "),
        (errno.EINVAL, "", ApplyError, "Invalid argument"),
        (errno.EINVAL, "comment", KernelFeatureError, "Invalid argument; "),
        (errno.EBUSY, "", BusyError, "Device or resource busy; the kernel is busy: try again, or let --retries do it"),
        (errno.EPERM, "", BackendUnavailableError, "Operation not permitted; the kernel refused it in spite of NET_ADMIN: another process may own the table "),
    ],
)
def test_a_refusal_names_the_family_the_place_and_the_rule(link, number, lacks, kind, text):
    backend = Backend()
    backend.lacks = lacks
    made = first_change(backend)
    parts = backend.write(made)
    place = next(index for index, (_, (_, about)) in enumerate(parts) if about[3])
    family, (_, (table, chain, row, rule)) = parts[place]
    link.answers += [refuse(number, place)]
    with pytest.raises(kind) as caught:
        backend.commit(made)
    assert type(caught.value) is kind
    assert str(caught.value).startswith(f"iptables-nft: {family.name} table {table} chain {chain} rule {row} (`{rule.text}`): {text}")
    assert not lacks or f" xt_{lacks}" in str(caught.value).partition(text)[2]


@pytest.mark.parametrize(("number", "words"), [(errno.EMSGSIZE, "the rules are too many for one transaction"), (errno.EPROTONOSUPPORT, "nf_tables")])
def test_rules_that_cannot_be_sent_are_no_error_of_a_rule(link, number, words):
    backend = Backend()
    link.answers += [OSError(number, "x")]
    with pytest.raises(BackendUnavailableError, match=r"^iptables-nft: the rules cannot be sent to the kernel: ") as caught:
        backend.commit(first_change(backend))
    assert words in str(caught.value)


def test_a_chain_of_nat_that_is_refused_names_its_module(link):
    backend = Backend()
    made = first_change(backend)
    place = next(index for index, (_, (_, about)) in enumerate(backend.write(made)) if about[:2] == ("nat", "OUTPUT"))
    link.answers += [refuse(errno.ENOENT, place)]
    with pytest.raises(KernelFeatureError, match="nft_chain_nat"):
        backend.commit(made)


def test_a_change_of_another_backend_is_refused():
    state = XtablesState(families=FAMILIES, encoded=(), comments=False, ours=False, foreign=False)
    with pytest.raises(TypeError, match="the change of another backend: Change"):
        NftVariant().commit(Change(scripts={"IPv4": ""}, before=state, plan=SIDECAR))


def test_messages_name_their_chain():
    (one,) = [body for (_, _, body), (_, chain, number, _) in change({"OUTPUT": [(0, "a")]}).write() if number]
    assert read_name(read_attributes(one, 0)[2]) == "OUTPUT"
