"""What `trace` prints of an observed packet: its path rule by rule, and where kernel and prediction differ."""

from __future__ import annotations

from dataclasses import replace

from core import IPV4, Options, Packet, Surroundings, load_plan, number_of, plan, simulate
from netinit.cli.trace import render_text
from netinit.questions.explain import explain
from netinit.simulate.trace import TraceStep
from netinit.simulate.trace_alignment import align, trace_observed

POD = Surroundings(family=IPV4, addresses=(("eth0", number_of("10.0.0.2")),))
RULES = load_plan(plan(Options.from_argv(["--ipv6=off", "-b", "*", "-i", "*"], {})), IPV4)
PACKET = Packet(
    family=IPV4, protocol="tcp", source=number_of("10.0.0.2"), source_port=40000, destination=number_of("1.2.3.4"),
    destination_port=443, has_socket=True, uid=1000, gid=1000,
)  # fmt: skip


def render(change=lambda met: met):
    """What is printed of a packet that met the predicted rules, or what `change` makes of these."""
    trace = simulate(PACKET, RULES, POD)
    met = [replace(step, outcome="") for step in trace.hits]
    observed = trace_observed(PACKET, trace.last, trace.fate, tuple(change(met)))
    return "".join(render_text(observed, explain(PACKET, RULES, POD), align(observed, trace))).splitlines()


def marked(printed, words):
    return [line.split() for line in printed if line.endswith(words)]


def test_a_path_as_predicted_is_printed_rule_by_rule_without_remarks():
    printed = render()
    assert printed[0] == "captured: goes to the proxy on 15001"
    assert printed[1].startswith("as predicted: captured")
    path = printed[printed.index("path:") + 1 :]
    assert path[0] == "  OUTPUT, table nat"
    assert [line.split()[:3] for line in path[1:4]] == [["✔", "OUTPUT", "1"], ["✔", "ISTIO_OUTPUT", "9"], ["✔", "ISTIO_REDIRECT", "1"]]
    assert not [line for line in path if "<-" in line]


def test_a_rule_that_was_not_predicted_and_one_that_was_not_met_say_so_behind_the_rule():
    printed = render(lambda met: [met[0], replace(met[1], rule=replace(met[1].rule, number=3)), *met[1:]])
    assert printed[1].startswith("NOT as predicted: ")
    assert len(marked(printed, "  <- hit, and not predicted")) == 1
    printed = render(lambda met: [met[0], *met[2:]])
    assert len(marked(printed, "  <- predicted, and not hit")) == 1


def test_a_foreign_rule_is_shown_with_what_it_did():
    foreign = TraceStep("OUTPUT", "drop", "nft table ip others", "c", number=1)
    printed = render(lambda met: [foreign, *met])
    at = printed.index("  OUTPUT, nft table ip others")
    assert printed[at + 1].split()[1:] == ["c", "1", "drop", "#", "not", "read", "by", "netinit"]
