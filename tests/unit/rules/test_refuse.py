"""What rules that refuse QUIC or IPv6 say of themselves."""

from __future__ import annotations

from core import Options, plan


def test_each_rule_that_refuses_says_what_a_client_does_then():
    made = plan(Options(ipv6="reject", reject_quic=True, outbound_cidrs="*", inbound_ports="80"))
    said = {chain: dict.fromkeys(rule.comment for _, where, rule in made.walk() if where == chain) for chain in ("ISTIO_QUIC", "ISTIO_REFUSE_IN", "ISTIO_REFUSE_OUT")}
    assert list(said["ISTIO_QUIC"]) == ["their TCP is not captured either", "clients that are refused QUIC use TCP, which is captured"]
    refused = "IPv6 is refused: clients take IPv4, which is captured"
    first = ["only what begins a connection is refused", "what the pod sends to itself is not captured"]
    assert list(said["ISTIO_REFUSE_IN"]) == [*first, "tunnelled connections reach the proxy as they are", refused]
    assert list(said["ISTIO_REFUSE_OUT"]) == [*first, "the proxy's own traffic goes out: no loops", refused]
