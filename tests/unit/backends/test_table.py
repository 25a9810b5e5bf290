"""The table of backends: one line is all that is known of a backend before it is loaded."""

from __future__ import annotations

from importlib import import_module

import pytest

from netinit import backends
from netinit.backends import BACKENDS, Backend
from netinit.base.net import FAMILIES
from netinit.options import AUTO, Options


def kinds_of(line):
    names = [(line.module, line.made_by), *([(backends.SETS, line.with_sets)] if line.with_sets else [])]
    return [getattr(import_module(module), name) for module, name in names]


@pytest.mark.parametrize("line", BACKENDS.values(), ids=list(BACKENDS))
def test_a_line_says_of_its_classes_what_they_say_of_themselves(line):
    for kind in kinds_of(line):
        assert issubclass(kind, Backend)
        assert (kind.name, getattr(kind, "variant", "")) == (line.name, line.variant)


def test_the_flags_choose_from_the_table():
    assert Options.flag("backend").kind.words == (AUTO, *BACKENDS)
    assert Options.flag("force_iptables_binary").kind.words == ("legacy", "nft", "")
    assert backends.AUTO_ORDER == ("iptables-nft", "iptables-legacy", "nftables", "libiptc")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, AUTO),
        ({"backend": "libiptc"}, "libiptc"),
        ({"force_iptables_binary": "legacy"}, "iptables-legacy"),
        ({"force_iptables_binary": "nft"}, "iptables-nft"),
        ({"native_nftables": True}, "nftables"),
    ],
)
def test_three_flags_name_a_backend(fields, name):
    assert Options(**fields).wanted_backend == name


def test_a_backend_is_loaded_with_what_the_options_say_of_it(monkeypatch):
    line = BACKENDS["nftables"]
    monkeypatch.setattr(import_module(line.module), line.made_by, lambda **more: more)
    loaded = backends.load("nftables", Options(rule_comments=True, lock_timeout="3s", cni_mode=True, netns="/n"), FAMILIES)
    assert loaded == {"comments": True, "families": FAMILIES, "lock_timeout": 3 * 10**9, "own_files": False}


def test_two_that_see_the_same_tables_know_of_each_other():
    assert backends.readers("iptables-legacy") == backends.readers("libiptc") == ("iptables-legacy", "libiptc")
    assert [backends.readers(name) for name in ("iptables-nft", "nftables")] == [("iptables-nft",), ("nftables",)]
