"""The backend in memory against the real kernel: the same listings, and the same inputs refused."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from core import plan
from laboratory import NetworkNamespace
from memory_backend import MemoryBackend, MemoryKernel
from netinit.base.errors import ApplyError
from netinit.base.net import FAMILIES, IPV4
from netinit.rules.model import EMPTY_PLAN
from programming import VARIANTS, needs
from randomness import some
from restore_oracle import NftByProgram
from strategies import made_options

pytestmark = pytest.mark.netns

INPUTS = json.loads((Path(__file__).parents[1] / "unit" / "backends" / "memory_inputs.json").read_text())
FOREIGN = """*nat
:THEIRS - [0:0]
-A PREROUTING -i eth9 -j RETURN
-A OUTPUT -p tcp -m tcp --dport 9999 -j THEIRS
COMMIT
"""
SOME = settings(max_examples=some(10), suppress_health_check=list(HealthCheck))


def run_restore(variant, text):
    """How iptables-restore ended and what it said, in the namespace that the test is in."""
    done = subprocess.run([f"{variant}-restore", "-w", "--noflush"], input=text, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def list_rules(texts):
    """The listings without the comments of iptables-save."""
    return {family: [line for line in text.splitlines() if not line.startswith("#")] for family, text in texts.items()}


@SOME
@given(first=made_options(), second=made_options())
def test_memory_and_iptables_nft_end_in_the_same_listing(first, second):
    needs("iptables-nft")
    with NetworkNamespace("memory") as namespace, namespace.entered():
        real, fake = NftByProgram(), MemoryBackend(kernel=MemoryKernel())
        for backend in (real, fake):
            assert backend.feed(dict.fromkeys(FAMILIES, FOREIGN)) == {}
        for step in (first, second, None):
            scripts = []
            for backend in (real, fake):
                state = backend.observe()
                change = state.compare(plan(step)).change() if step else state.compare_rules(EMPTY_PLAN).removal()
                backend.commit(change)
                scripts.append({family: in_any_order_of_chains(text) for family, text in change.scripts.items()})
            assert scripts[0] == scripts[1]
            assert tables_in_use(texts_of(fake.read(FAMILIES, None))) == tables_in_use(list_live(FAMILIES))


def in_any_order_of_chains(script):
    """The lines of an input, sorted: the kernel lists chains in an order of its own. What comes of the order of rules is compared below."""
    return sorted(script.splitlines())


def list_live(families):
    """What iptables-nft prints of the namespace that this process is in."""
    saves = {family: f"{family.program}-nft-save" for family in families}
    return {family: subprocess.run([name], capture_output=True, text=True, check=True).stdout for family, name in saves.items()}


def texts_of(held):
    return {one.family: one.text for one in held}


def tables_in_use(texts):
    """The listings without the tables that hold nothing: the real one takes along those that its own rules had made."""
    used = {}
    for family, lines in list_rules(texts).items():
        tables = "\n".join(lines).split("\nCOMMIT")
        used[family] = [table.strip() for table in tables if "\n-A " in table or " - [" in table]
    return used


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_refusal_is_the_kernel_s_and_each_oddity_is_accepted_by_it(require_netns, variant):
    needs(variant)
    with NetworkNamespace("refusals") as namespace, namespace.entered():
        ended = {name: run_restore(variant, join(case["input"]))[0] for name, case in INPUTS["refused"].items()}
        accepted = [name for name, status in ended.items() if status == 0]
    assert accepted == []
    for name, case in INPUTS["accepted"].items():
        with NetworkNamespace("oddities") as namespace, namespace.entered():
            assert run_restore(variant, join(case["input"])) == (0, ""), name
            if variant == "iptables-nft":
                fake = MemoryKernel()
                fake.execute(IPV4, join(case["input"]))
                assert list_rules({IPV4: fake.list_tables(IPV4)}) == list_rules(list_live((IPV4,))), name


def join(lines):
    return "".join(f"{line}\n" for line in lines)


def test_a_refused_table_leaves_both_kernels_as_they_were(require_netns):
    needs("iptables-nft")
    with NetworkNamespace("refusals") as namespace, namespace.entered():
        fake = MemoryKernel()
        assert run_restore("iptables-nft", FOREIGN)[0] == 0
        fake.execute(IPV4, FOREIGN)
        for name, case in INPUTS["refused"].items():
            assert run_restore("iptables-nft", join(case["input"]))[0] != 0, name
            with pytest.raises(ApplyError):
                fake.execute(IPV4, join(case["input"]))
            assert list_rules({IPV4: fake.list_tables(IPV4)}) == list_rules(list_live((IPV4,))), name
