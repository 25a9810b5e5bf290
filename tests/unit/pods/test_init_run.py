"""Which options a pod's start asks lint about: wherever lint objects, and few others, since its import takes as long as the start."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core import settled
from netinit.base.errors import OptionError
from netinit.options import Interception, Options, RunOptions
from netinit.pods.init_run import may_contradict
from netinit.questions.lint import lint
from option_samples import SAMPLES
from randomness import some
from strategies import made_options
from sweeps import choose, together

SIDECAR = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020"
USUAL = {"proxy_uids": (1337,), "inbound_ports": "*", "outbound_cidrs": "*", "exclude_inbound_ports": (15090, 15021, 15020), "ipv6": "on"}
FIELDS = [flag.field for flag in Interception.flags if flag.field != "layout"]
DRAWN = {"outbound_port": 15008, "inbound_port": 15001, "tunnel_port": 15006, "tproxy_mark": 7, "tproxy_table": 8, "dual_stack": True}
OF_OTHERS = ("cni_mode", "netns", "pid", "config", "skip_rule_apply")  # which namespace, and whether there are rules at all
# By placeholder, what a value of another option may contradict: the proxy's ports, root, everything, nothing
PROVOKING = {
    "PORT": ("15001", "15006", "15008", "15053"), "PORT|0": ("0", "15001", "15006"),
    "PORTS": ("53", "443", "15001", "15006", "1-65535"), "PORTS|*": ("80", "", "15001", "15020-15021"),
    "CIDRS": ("0.0.0.0/0", "::/0", "127.0.0.0/8"), "CIDRS|*": ("", "10.0.0.0/8", "fd00::/8"), "CIDR": ("127.0.0.1/8",),
    "UIDS": ("0",), "GIDS": ("0",), "GROUPS": ("0", "1337"), "GROUPS|*": ("0", "1337"), "NAMES": ("eth1", "net1@eth0", "net+"),
    "ADDRESSES": ("127.0.0.1", "::1"),
    "DURATION": ("1ms", "90s"), "NUMBER": ("0", "1"),
}  # fmt: skip


def objections(options):
    """What lint says without a proof, as it is asked at a start; one about health ports is left to those who ask."""
    return [str(one) for one in lint(settled(options), proved=False) if one.kind.name != "health-ports"]


def values_of(kind):
    """Values of a kind: all if it has few, else a sample and what may contradict other options."""
    texts = kind.words or (SAMPLES[kind.metavar][0], *PROVOKING.get(kind.metavar, ()))
    return [kind.read(text) for text in dict.fromkeys(texts)]


def with_values(*changes):
    """The options of a usual sidecar with some values; None if they are refused together."""
    try:
        options = Options(**{**USUAL, **dict(changes)})
        settled(options)
    except OptionError:
        return None
    return options


def test_lint_is_asked_about_each_pair_of_options_that_it_objects_to_and_about_less_than_half_of_the_others():
    values = [(flag, value) for flag in RunOptions.flags if flag.field not in OF_OTHERS for value in values_of(flag.kind)]
    pairs = [(one, other) for one, other in combinations(values, 2) if one[0] is not other[0]]
    objected, silent, asked = 0, 0, 0
    for one, other in choose(pairs[::31], pairs[::3]):
        options = with_values((one[0].field, one[1]), (other[0].field, other[1]))
        if options is None:
            continue
        found, may = objections(options), may_contradict(options)
        assert may or not found, (one[0].label, one[1], other[0].label, other[1], found)
        objected, silent, asked = objected + bool(found), silent + (not found), asked + (may and not found)
    assert min(objected, silent) > choose(40, 100)
    assert asked < silent / 2


@settings(max_examples=some(100))
@given(made_options(), st.lists(st.sampled_from(FIELDS), max_size=3, unique=True))
def test_lint_is_asked_wherever_it_has_something_to_say(drawn, changed):
    values = {field: DRAWN.get(field, getattr(drawn, field)) for field in changed}
    options = Options(**{**USUAL, **values})
    assert may_contradict(options) or not objections(options)


@pytest.mark.parametrize(
    "more", ["", "-m TPROXY", "-x 10.0.0.0/8", "-u 1000670001 -p 1 -z 2 -e 3 --drop-invalid", "-e 0", "-o 5432", "-d 15090,9000-9100",
             "-c eth1", "-k net1", "--exclude-inbound-cidrs 10.0.0.0/8", "--exclude-cloud-metadata", "--backend nftables", "-i ''"],
)  # fmt: skip
def test_a_usual_sidecars_start_does_not_pay_for_lint(more):
    assert not may_contradict(Options.from_argv([*SIDECAR.split(), *more.replace("''", "").split(" ")] if more else SIDECAR.split(), {}))


@together(
    "line",
    ["", "-p 15001", "-m TPROXY -i *", "-m NONE -b *", f"{SIDECAR} -u 0", f"{SIDECAR} -g 0", f"{SIDECAR} -p 15006", f"{SIDECAR} -p 15008",
     f"{SIDECAR} -z 15008", f"{SIDECAR} -b 80", f"{SIDECAR} -i 10.0.0.0/8", f"{SIDECAR} -q 15001", f"{SIDECAR} -k eth1 -c eth1",
     f"{SIDECAR} -c eth1@if3", f"{SIDECAR} --capture-all-dns", f"{SIDECAR} --log-group 5", f"{SIDECAR} --layout classic",
     f"{SIDECAR} --retry-delay 5s", f"{SIDECAR} --retries 2 --lock-timeout 1s", f"{SIDECAR} --ipset-threshold 5 --backend nftables"],
)  # fmt: skip
def test_what_may_contradict_is_looked_at(line):
    assert may_contradict(Options.from_argv(line.split(), {}))


def test_lint_at_a_start_imports_nothing_that_reads_manifests_or_templates():
    script = "import sys, netinit.questions.lint; print(*[name for name in sys.modules if name.startswith('netinit.')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    rooms = {name.split(".")[1] for name in done.stdout.split()}
    assert "simulate" in rooms
    assert not rooms & {"golang", "kube", "kernel"}
    assert [name for name in done.stdout.split() if name.startswith("netinit.inject.")] == ["netinit.inject.deciding", "netinit.inject.deciding.option_findings"]
