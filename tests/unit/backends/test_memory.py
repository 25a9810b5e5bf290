"""The backend in memory: it does what iptables-restore does, and refuses what the kernel refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core import plan
from memory_backend import MemoryBackend, MemoryKernel
from netinit.base.errors import ApplyError, LockedError
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.options import Options
from netinit.options.interception import CLASSIC
from netinit.rules.model import EMPTY_PLAN

INPUTS = json.loads(Path(__file__).with_name("memory_inputs.json").read_text())
FOREIGN = """\
*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:THEIRS - [0:0]
-A PREROUTING -p udp -j THEIRS
-A THEIRS -m comment --comment "-j DROP" -j MARK --set-xmark 0x7/0xffffffff
COMMIT
*nat
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:OUTPUT DROP [0:0]
:POSTROUTING ACCEPT [0:0]
-A OUTPUT -o eth9 -j RETURN
-A OUTPUT -p tcp -m tcp --dport 9999 -j ACCEPT
COMMIT
"""
SIDECAR = Options.from_argv(["-p", "15001", "-z", "15006", "-u", "1337", "-i", "*", "-b", "*", "-d", "15090"]).replace(
    ipv6="on"
)
MANY = (
    SIDECAR,
    SIDECAR.replace(inbound_mode="TPROXY", drop_invalid=True),
    SIDECAR.replace(layout=CLASSIC, ipv6="off"),
    SIDECAR.replace(redirect_dns=True, capture_all_dns=True, exclude_interfaces=("eth1",)),
)


def join(lines):
    return "".join(f"{line}\n" for line in lines)


@pytest.fixture
def kernel():
    return MemoryKernel()


def add_foreign_rules(kernel):
    for family in FAMILIES:
        kernel.execute(family, FOREIGN)


# Refusals: the same inputs go to the real kernel in tests/property/test_memory_backend.py


@pytest.mark.parametrize("case", INPUTS["refused"].values(), ids=list(INPUTS["refused"]))
def test_what_the_kernel_refuses_is_refused_with_its_words_and_leaves_the_table_alone(kernel, case):
    kernel.execute(IPV4, "*raw\n-A OUTPUT -j ACCEPT\nCOMMIT\n" + FOREIGN)
    before = kernel.list_tables(IPV4)
    with pytest.raises(ApplyError) as error:
        kernel.execute(IPV4, join(case["input"]))
    assert case["says"] in str(error.value)
    assert str(error.value).startswith("memory: ")
    after = kernel.list_tables(IPV4).replace("\n:A1 - [0:0]", "")  # the table before the refused one stays changed
    assert after == before


@pytest.mark.parametrize("case", INPUTS["accepted"].values(), ids=list(INPUTS["accepted"]))
def test_what_looks_odd_but_is_fine_for_the_kernel_is_fine_here(kernel, case):
    kernel.execute(IPV4, join(case["input"]))
    listed = [line for line in kernel.list_tables(IPV4).splitlines() if not line.endswith(" ACCEPT [0:0]")]
    assert listed == case["listed"]


def test_a_refusal_names_the_line_and_its_number(kernel):
    with pytest.raises(ApplyError) as error:
        kernel.execute(IPV4, "*nat\n-A OUTPUT -j RETURN\n-A OUTPUT -i lo -j RETURN\nCOMMIT\n")
    assert str(error.value) == "memory: line 3: '-A OUTPUT -i lo -j RETURN': Can't use -i with OUTPUT"


def test_tables_before_the_refused_one_stay_changed_as_in_the_kernel(kernel):
    with pytest.raises(ApplyError, match="NOWHERE"):
        kernel.execute(IPV4, "*raw\n-A OUTPUT -j RETURN\nCOMMIT\n*nat\n-A OUTPUT -j NOWHERE\nCOMMIT\n")
    assert (
        kernel.list_tables(IPV4)
        == "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j RETURN\nCOMMIT\n"
    )


def test_a_rule_becomes_wrong_when_a_later_commit_leads_a_hook_to_it(kernel):
    kernel.execute(IPV4, "*nat\n:A1 - [0:0]\n-A A1 -m owner --uid-owner 1337 -j RETURN\nCOMMIT\n")
    kernel.execute(IPV4, "*nat\n-A OUTPUT -j A1\nCOMMIT\n")
    with pytest.raises(ApplyError, match="rule in chain A1, reached from PREROUTING"):
        kernel.execute(IPV4, "*nat\n-A PREROUTING -j A1\nCOMMIT\n")


def test_an_address_of_ipv6_belongs_into_ipv6(kernel):
    kernel.execute(IPV6, "*nat\n-A OUTPUT -d ::1/128 -j RETURN\nCOMMIT\n")
    with pytest.raises(ApplyError, match=r"host/network `127\.0\.0\.1/32' not found: it is not of IPv6"):
        kernel.execute(IPV6, "*nat\n-A OUTPUT -d 127.0.0.1/32 -j RETURN\nCOMMIT\n")


# Doing


def test_a_listing_can_be_loaded_and_comes_out_the_same(kernel):
    kernel.execute(IPV6, FOREIGN)
    assert kernel.list_tables(IPV6) == FOREIGN
    assert kernel.list_tables(IPV4) == ""


def test_a_table_is_listed_once_something_was_in_it(kernel):
    kernel.execute(IPV4, "*nat\n:A - [0:0]\n-X A\nCOMMIT\n")
    assert kernel.list_tables(IPV4) == ""
    kernel.execute(IPV4, "*raw\n-A OUTPUT -j ACCEPT\nCOMMIT\n")
    kernel.execute(IPV4, "*raw\n-D OUTPUT 1\nCOMMIT\n")
    assert kernel.list_tables(IPV4) == "*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\nCOMMIT\n"


def test_commands_do_what_those_of_iptables_restore_do(kernel):
    kernel.execute(
        IPV4, "*nat\n:B - [0:0]\n:A - [0:0]\n:C - [0:0]\n-A A -j B\n-A OUTPUT -p tcp -j A\n-A OUTPUT -j B\nCOMMIT\n"
    )
    lines = [
        ":A - [0:0]",
        "-A A -p udp -j RETURN",
        "-I OUTPUT 1 -o lo -j RETURN",
        "-D OUTPUT 3",
        "-D OUTPUT -p tcp -j A",
        "-X B",
        "-A OUTPUT",
    ]
    kernel.execute(IPV4, join(["*nat", *lines, "COMMIT"]))
    listed = kernel.list_tables(IPV4).splitlines()[5:]
    assert listed == [
        ":A - [0:0]",
        ":C - [0:0]",
        "-A OUTPUT -o lo -j RETURN",
        "-A OUTPUT",
        "-A A -p udp -j RETURN",
        "COMMIT",
    ]


@pytest.mark.parametrize("options", MANY, ids=["sidecar", "tproxy", "classic", "dns"])
def test_rules_are_programmed_found_right_changed_and_removed_among_those_of_others(kernel, options):
    add_foreign_rules(kernel)
    backend = MemoryBackend(kernel=kernel)
    before = backend.observe().describe()
    for step in (options, *MANY):
        wanted = plan(step)
        backend.commit(backend.observe().compare(wanted).change())
        state = backend.observe()
        assert state.compare(wanted).differences == ()
        assert state.compare(wanted).change().scripts == {}
        assert (state.ours, state.compare(wanted).state.foreign) == (True, True)
    backend.commit(backend.observe().removal(EMPTY_PLAN))
    state = backend.observe()
    assert (state.ours, state.foreign) == (False, True)
    for family in FAMILIES:
        tables = without_empty_tables(state.describe()[family.name])
        assert tables == without_empty_tables(before[family.name])


def without_empty_tables(text):
    tables = [table for table in text.split("*") if "\n-A " in table or " DROP " in table]
    return "*".join(["", *tables])


def test_comments_reach_the_rules_where_they_are_asked_for(kernel):
    backend = MemoryBackend(kernel=kernel, comments=True)
    backend.commit(backend.observe().compare(plan(SIDECAR)).change())
    assert '-m comment --comment "' in kernel.list_tables(IPV4)


# Failing on purpose


@pytest.mark.parametrize("failing", FAMILIES)
def test_when_one_family_fails_the_other_is_put_back(kernel, failing):
    add_foreign_rules(kernel)
    backend = MemoryBackend(kernel=kernel)
    backend.commit(backend.observe().compare(plan(SIDECAR)).change())
    before = backend.observe().describe()
    change = backend.observe().compare(plan(MANY[3])).change()
    kernel.fail_next[failing] = LockedError("held by a test")

    with pytest.raises(LockedError, match=f"^{failing.name}: held by a test$"):
        backend.commit(change)
    assert backend.observe().describe() != before
    backend.roll_back(change)

    after = backend.observe().describe()
    assert {family: without_empty_tables(text) for family, text in after.items()} == before
    assert kernel.fail_next == {}
    backend.commit(change)
    assert backend.observe().compare(plan(MANY[3])).differences == ()


def test_only_the_families_that_the_kernel_has_are_programmed(kernel):
    backend = MemoryBackend(kernel=kernel, families=(IPV4,))
    backend.commit(backend.observe().compare(plan(SIDECAR)).change())
    assert "ISTIO_OUTPUT" in kernel.list_tables(IPV4)
    assert kernel.list_tables(IPV6) == ""
