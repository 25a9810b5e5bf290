"""What the backend for iptables-nft programs by netlink is what iptables' own programs make, list, check and delete.

`NETINIT_IPTABLES` names folders, separated by colons, into each of which the package iptables of another release was unpacked with
its libraries (Debian: iptables, libc6, libxtables12, libmnl0, libnftnl11; `dpkg-deb -x PACKAGE FOLDER`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from core import plan
from goldens import BEHAVIOURS, SAMPLE, options_of
from laboratory import NetworkNamespace
from netinit.backends.iptables_nft import NftVariant
from netinit.base.net import FAMILIES
from netinit.kernel.netlink import NETFILTER_SIZE, NETLINK_NETFILTER, Netlink, read_attributes
from netinit.kernel.nf_tables import NFT_MSG_NEWCHAIN, NFT_MSG_NEWTABLE, dump_objects
from netinit.options import Options
from netinit.rules.iptables.write import render_restore, write_plan
from programming import FOREIGN, needs
from restore_oracle import NftByProgram
from strategies import made_options
from sweeps import choose

pytestmark = pytest.mark.netns

RELEASES = [Path(name) for name in os.environ.get("NETINIT_IPTABLES", "").split(":") if name]
EXAMPLES = int(os.environ.get("NETINIT_PLANS", "0")) or choose(4, 60)
OTHER = Options.from_argv(["-p", "15001", "-i", "*", "-b", "8080", "-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7"])


def program(kind, made, comments=False):
    backend = kind(comments=comments)
    backend.commit(backend.observe().compare(made).change())


def take_away(made):
    backend = NftVariant()
    backend.commit(backend.observe().removal(made))


def save(namespace, run=lambda namespace, *words, **more: namespace.run(words, **more)):
    """What iptables-nft-save lists of both families, without its comments, which have the time."""
    texts = [run(namespace, f"{family.program}-nft-save").stdout for family in FAMILIES]
    return "".join([line + "\n" for text in texts for line in text.splitlines() if not line.startswith("#")])


def holders():
    """Each table and chain as the kernel has it, without what differs by the program's release or by the turn of the families."""
    left_out = {NFT_MSG_NEWTABLE: 4, NFT_MSG_NEWCHAIN: 8}  # NFTA_TABLE_HANDLE, which counts both families; NFTA_CHAIN_COUNTERS
    with Netlink(NETLINK_NETFILTER) as link:
        found = [(kind, body, read_attributes(body, NETFILTER_SIZE)) for kind in left_out for body in dump_objects(link, 0, kind)]
    return sorted((body[:1], kind, sorted((one, value) for one, value in had.items() if one != left_out[kind])) for kind, body, had in found)


def in_use(text):
    """The tables of a listing that hold anything: only the backend deletes those that it leaves empty."""
    tables = re.findall(r"\*[^*]+COMMIT\n", text)
    assert "".join(tables) == text
    return "".join(table for table in tables if re.search(r"^-A|^:\S+ (DROP|-) ", table, re.MULTILINE))


def load(namespace, text=FOREIGN):
    for family in FAMILIES:
        namespace.run([f"{family.program}-nft-restore", "--noflush"], stdin=text, check=True)


def test_tables_chains_and_rules_of_goldens_are_those_of_the_program(require_netns):
    """Byte for byte in the kernel too, chains' handles included, but for the rules, whose form is that of one release."""
    needs("iptables-nft")
    for behaviour in choose(SAMPLE, BEHAVIOURS):
        made, comments, found = plan(options_of(behaviour)), "comments" in behaviour, []
        for kind in (NftByProgram, NftVariant):
            with NetworkNamespace("goldens") as namespace:
                namespace.call(program, kind, made, comments)
                found.append((save(namespace), namespace.call(holders)))
        (theirs, their_holders), (ours, our_holders) = found
        assert ours == theirs, behaviour
        assert our_holders == their_holders, behaviour
        assert "ISTIO" in ours


def test_any_options_among_foreign_rules_end_where_the_program_ends(require_netns):
    """Programmed, changed to others, taken away."""
    needs("iptables-nft")

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))
    @given(made_options(), made_options())
    def check(first, second):
        found = []
        for kind in (NftByProgram, NftVariant):
            with NetworkNamespace("options") as namespace:
                load(namespace)
                listed = [save(namespace)]
                for options in (first, second):
                    namespace.call(program, kind, plan(options), options.rule_comments)
                    listed.append(in_use(save(namespace)))
                found.append(listed)
                if kind is NftVariant:
                    namespace.call(take_away, plan(second))
                    lone = first.virtual_interfaces or second.virtual_interfaces  # their rule may be anybody's
                    assert lone or save(namespace) == listed[0]
        assert found[0] == found[1]

    check()


def runner(folder):
    """What runs a program of an unpacked release in a namespace, with its own libraries and extensions."""
    found = (path.resolve() for path in sorted(folder.rglob("ld-linux-x86-64.so.2")))
    loader = next(path for path in found if path.is_relative_to(folder.resolve()))  # links to / lead to the machine's
    libraries = [folder / part for part in ("lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu")]
    environment = {"XTABLES_LIBDIR": str(libraries[1] / "xtables"), "PATH": os.environ["PATH"]}

    def run(namespace, name, *words, **more):
        where = ":".join(map(str, libraries))
        return namespace.run([loader, "--library-path", where, folder / "usr" / "sbin" / name, *words], env=environment, **more)

    return run


@pytest.mark.parametrize("folder", RELEASES or [None], ids=str)
def test_each_release_lists_checks_and_deletes_the_rules_as_its_own(folder, require_netns):
    if folder is None:
        pytest.skip("NETINIT_IPTABLES names no folder with an unpacked release of iptables")
    run, count = runner(folder), 0
    for behaviour in choose(SAMPLE, BEHAVIOURS):
        made, comments = plan(options_of(behaviour)), "comments" in behaviour
        with NetworkNamespace("ours") as ours, NetworkNamespace("theirs") as theirs:
            ours.call(program, NftVariant, made, comments)
            for family in FAMILIES:
                written = write_plan(made, family, comments=comments)
                done = run(theirs, f"{family.program}-nft-restore", "--noflush", stdin=render_restore(written))
                assert done.returncode == 0, f"{behaviour}: {done.stderr}"
            assert save(ours, run) == save(theirs, run), behaviour
            for family in FAMILIES:
                written = write_plan(made, family, comments=comments)
                for command in ("-C", "-D"):
                    lines = [
                        line
                        for table, chains in written.items()
                        for line in (f"*{table}", *[f"{command} {name} {text}" for name, chain in chains.items() for text in chain.texts], "COMMIT")
                    ]
                    done = run(ours, f"{family.program}-nft-restore", "--noflush", stdin="\n".join([*lines, ""]))
                    number = re.search(r"line:? (\d+)", done.stderr)
                    assert done.returncode == 0, f"{behaviour}: {family.name}: {done.stderr} {lines[int(number[1]) - 1] if number else ''}"
                    count += len(lines)
            assert "\n-A " not in save(ours, run), f"{behaviour}: a rule is left"
    assert count > 20 * len(SAMPLE), f"only {count} rules were checked"
