"""Rules of the last release's init container beside today's: each reads, keeps, replaces and removes those of the other."""

from __future__ import annotations

import contextlib
import itertools
import subprocess

import pytest

import last_release
from runtime import V4, bridge
from test_runtimes import addresses_of, check_captured, sandbox

OBSTACLE = last_release.find_obstacle()
pytestmark = pytest.mark.skipif(last_release.wants(OBSTACLE), reason=OBSTACLE or "")
BACKENDS = ("iptables-nft", "iptables-legacy", "nftables")
PLAIN = ("-b", "*", "-i", "*")
RICH = (*PLAIN, "-d", "15090,15021", "-x", "10.1.0.0/16,10.2.0.0/16", "-o", "9,10", "--redirect-dns", "--capture-all-dns", "--drop-invalid")
TPROXY = (*PLAIN, "-m", "TPROXY")
OPTIONS = {"plain": PLAIN, "rich": RICH, "TPROXY": TPROXY, "exactly Istio's": (*PLAIN, "--istio-exact")}
DIFFERENT = 3  # verify's exit code where rules differ
numbers = itertools.count()


@pytest.fixture(scope="module")
def roots(runtime, tmp_path_factory):
    """The files of each release's image, by `old` and `new`."""
    folder = tmp_path_factory.mktemp("roots")
    with contextlib.ExitStack() as stack:
        yield {age: stack.enter_context(last_release.mounted(runtime, own["netinit"], folder / age)) for age, own in last_release.load_images(runtime, ["netinit"]).items()}


class Program:
    """One release's init container in a pod's network namespace."""

    def __init__(self, root, path, backend):
        self.words, self.backend = last_release.start_in(root, path, "/usr/bin/netinit"), backend

    def __call__(self, command, *words, code=0):
        own = ("--backend", self.backend) if command == "apply" else ()
        command = [*self.words, command, *own, *words]
        done = subprocess.run(command, capture_output=True, text=True, env={"PATH": "/usr/sbin:/usr/bin"}, check=False, timeout=120)
        assert done.returncode == code, (command, done.returncode, done.stdout, done.stderr)


def read_rules(path, backend):
    """Every rule, chain, route and address there, without counters; tables of legacy iptables stay once they are read."""
    programs = [["nft", "--stateless", "list", "ruleset"]] if backend != "iptables-legacy" else [["iptables-legacy-save"], ["ip6tables-legacy-save"]]
    programs += [["ip", *family, *words] for family in ((), ("-6",)) for words in (("rule",), ("route", "show", "table", "all"))]
    lines = [line for words in programs for line in in_namespace(path, words).splitlines()]
    return [line.partition(" [")[0] for line in lines if not line.startswith(("#", "*", "COMMIT", ":INPUT", ":FORWARD", ":OUTPUT", ":PREROUTING", ":POSTROUTING"))]


def in_namespace(path, command):
    return subprocess.run(["nsenter", f"--net={path}", *command], capture_output=True, text=True, check=True).stdout


def delete_a_rule(path, backend):
    """The rule that leads applications' connections to the proxy is gone."""
    if backend != "nftables":
        in_namespace(path, [backend, "-w", "-t", "nat", "-F", "ISTIO_OUTPUT"])
        return
    chains = [line.split() for line in in_namespace(path, ["nft", "list", "chains"]).splitlines()]
    table = next(words[1:3] for words in chains if words[:1] == ["table"] and words[2].endswith("nat"))
    chain = next(words[1] for words in chains if words[:1] == ["chain"] and words[1] == "istio-output")
    in_namespace(path, ["nft", "flush", "chain", *table, chain])


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("first", "second"), [("old", "new"), ("new", "old")], ids=["upgrade", "rollback"])
def test_rules_of_one_release_are_read_kept_repaired_replaced_and_removed_by_the_other(runtime, roots, first, second, backend, options):
    runtime.network(bridge(V4))
    with sandbox(runtime, f"rules-{next(numbers)}") as made:
        path = runtime.namespace(made)
        before, there = Program(roots[first], path, backend), Program(roots[second], path, backend)
        empty = read_rules(path, backend)
        before("apply", *options)
        check(path, options)

        there("verify")  # by the options that the rules themselves show
        there("verify", *options)
        rules = read_rules(path, backend)
        there("apply", *options)
        assert read_rules(path, backend) == rules, "nothing was to do"

        delete_a_rule(path, backend)
        there("verify", *options, code=DIFFERENT)
        there("apply", *options, "--reconcile")
        check(path, options)
        before("verify", *options)

        before("apply", *options, "--exclude-outbound-for-uids", "tcp:9999:4000", "--reconcile")
        there("verify", *options, code=DIFFERENT)
        there("apply", *options, "--reconcile")
        check(path, options)
        before("apply", *options)  # as when the pod's init container runs again
        before("verify")

        there("remove")
        assert read_rules(path, backend) == empty, "nothing is left"


def check(path, options):
    check_captured(path, addresses_of(path), (4,), transparent=(15006,) if options is TPROXY else ())
