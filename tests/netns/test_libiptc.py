"""The backend libiptc on the kernel: what iptables-legacy programs and lists is the measure."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from core import plan
from lab_state import describe_state, drop_empty_tables
from laboratory import Pod
from legacy import (
    DEFAULT,
    LEGACY,
    OTHER,
    add_foreign_rules,
    change_to,
    feed_by_program,
    filled,
    fresh,
    listing,
    listings,
    tables_of,
)
from netinit.backends.libiptc import LibiptcBackend
from netinit.base.errors import NetinitError
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.options import Options
from netinit.options.interception import CLASSIC
from netinit.pods.apply import apply, remove
from netinit.rules.model import EMPTY_PLAN
from programming import load, needs
from restore_oracle import LegacyByProgram
from sweeps import choose

pytestmark = pytest.mark.netns

GROUPS = {"java": "4001", "ftp": "4002"}  # machines do not have these groups: numbers stand for them


@pytest.fixture(autouse=True)
def libraries():
    needs("libiptc")


def read_cases(folder):
    for path in sorted((folder / "rules").glob("*.json")):
        text = path.read_text()
        for name, number in GROUPS.items():
            text = text.replace(name, number)
        case = json.loads(text)
        options = Options.from_argv(case["argv"], case["env"])
        yield path.stem, options.replace(ipv6="on" if case["ipv6"] else "off", dns_servers=tuple(case["dns_servers"]))


# Equal to iptables-legacy


def test_every_case_ends_as_iptables_legacy_restore_ends_it(conformance):
    """Programmed among foreign rules, then changed to other options, then removed; each step beside the program's."""
    cases = list(read_cases(conformance))[:: choose(3, 1)]
    assert cases
    for name, options in cases:
        with fresh() as namespace:
            add_foreign_rules(namespace)
            wanted = []
            for step in (options, OTHER):
                feed_by_program(change_to(LegacyByProgram(), step).scripts)
                wanted.append(listings())
        with fresh() as namespace:
            add_foreign_rules(namespace)
            before = filled()
            backend = LibiptcBackend()
            state = backend.observe()
            for step, want in zip((options, OTHER), wanted, strict=True):
                backend.commit(state.compare(plan(step)).change())
                assert listings() == want, name
                state = backend.observe()
                assert state.compare(plan(step)).differences == (), name
                assert state.compare(plan(step)).change().scripts == {}, name
            backend.commit(state.removal(EMPTY_PLAN))
            assert filled() == before, name


def test_the_classic_layout_and_comments_in_the_kernel_come_out_the_same():
    options = DEFAULT.replace(layout=CLASSIC, ipv6="off", rule_comments=True)
    wanted = []
    for backend in (LegacyByProgram(comments=True), LibiptcBackend(comments=True)):
        with fresh():
            backend.commit(change_to(backend, options))
            wanted.append(listings())
    assert wanted[0] == wanted[1]
    assert '-m comment --comment "' in wanted[1][IPV4]


@pytest.mark.parametrize("programs", [(LibiptcBackend, LegacyByProgram), (LegacyByProgram, LibiptcBackend)])
def test_one_removes_what_the_other_programmed(programs):
    """iptables-legacy deletes a rule by comparing the kernel's bytes, so those are the same too."""
    with fresh() as namespace:
        add_foreign_rules(namespace)
        before = filled()
        programming, removing = programs[0](), programs[1]()
        for options in (DEFAULT, OTHER):
            programming.commit(change_to(programming, options))
        assert filled() != before
        removing.commit(removing.observe().removal(EMPTY_PLAN))
        assert filled() == before


def test_a_rule_is_deleted_by_its_text_in_any_notation_and_with_its_comment():
    """The first with this meaning and comment, as iptables-legacy deletes."""
    texts = ["-j ACCEPT", "-p tcp -m tcp --dport 80 -j ACCEPT", '-p tcp -m tcp --dport 80 -m comment --comment "a b" -j ACCEPT', "-j A1"]
    rules = "".join([f"-A INPUT {text}\n" for text in (*texts, *texts[:2])])
    with fresh() as namespace:
        load(namespace, LEGACY, IPV4, f"*filter\n:A1 - [0:0]\n{rules}COMMIT\n")
        for text in ("-p 6 --dport 80 -m comment --comment 'a b' -j ACCEPT", "-j A1", texts[1]):
            assert LibiptcBackend().feed({IPV4: f"*filter\n-D INPUT {text}\nCOMMIT\n"}) == {}
        left = [line.removeprefix("-A INPUT ") for line in listing(IPV4).splitlines() if line.startswith("-A")]
        assert left == [texts[0], *texts[:2]]


# No traces


def test_looking_creates_no_table_and_a_change_only_those_it_names():
    with fresh():
        assert LibiptcBackend().read(FAMILIES) == ()
        assert tables_of(IPV4) == tables_of(IPV6) == []

        errors = LibiptcBackend().feed({IPV4: "*nat\n-A OUTPUT -p tcp -j RETURN\nCOMMIT\n"})

        assert errors == {}
        assert (tables_of(IPV4), tables_of(IPV6)) == (["nat"], [])
        LibiptcBackend().read(FAMILIES)
        assert (tables_of(IPV4), tables_of(IPV6)) == (["nat"], [])


def test_this_process_imports_nothing_and_keeps_no_child_and_no_descriptor():
    with fresh():
        before = descriptors(), children()
        backend = LibiptcBackend()
        backend.commit(change_to(backend, DEFAULT))
        backend.observe()
        assert "iptc" not in sys.modules
        assert sys.modules.get("distutils", "not touched") is not None
        assert (descriptors(), children()) == before


def children():
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())[:-1]


# As the user meets it


def test_a_pod_is_programmed_found_right_and_cleaned_up():
    options = DEFAULT.replace(backend="libiptc")
    with Pod() as pod, pod.entered():
        before = drop_empty_tables(describe_state(pod))
        first = apply(options)
        assert (first.backend, first.changed) == ("libiptc", True)
        assert "-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001" in first.rules["IPv6"]
        programmed = describe_state(pod)
        assert not apply(options).changed
        assert describe_state(pod) == programmed
        with pytest.raises(NetinitError, match="reconcile"):
            apply(options.replace(inbound_port=15016))
        assert describe_state(pod) == programmed
        assert apply(options.replace(inbound_port=15016, reconcile=True)).changed
        assert "--to-ports 15016" in listing(IPV4)
        remove(options)
        assert drop_empty_tables(describe_state(pod)) == before
