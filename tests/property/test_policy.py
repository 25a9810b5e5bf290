"""The rules do what the policy says: thousands of connections through the simulator, against a second oracle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from connections import CARD, NEIGHBOUR, OWN, made_ambient_policies, made_connections, made_policies
from core import (
    FAMILIES,
    IPV4,
    Host,
    Network,
    Options,
    Surroundings,
    load_plan,
    make_inbound,
    make_outbound,
    number_of,
    plan,
)
from policy import DIRECT, REFUSED, Connection, captured, drops_what_belongs_to_no_connection, expected_fate
from randomness import SEED, some

BATCH = 40
# Seldom drawn with what they need: refused QUIC, connections within the pod that the proxy gets as outbound, redirected UDP.
QUIC = Options.from_argv(["-p", "15001", "-b", "*", "-i", "*", "--ipv6", "on", "--reject-quic"])
LISTED = Options.from_argv(["-b", "*", "-i", "127.0.0.0/8", "-u", "1337,1338", "-q", "53,80,15008", "--redirect-dns"])
REDIRECTED = Options.from_argv(["-i", "*", "--ipv6", "on", "--redirect-dns", "--capture-all-dns", "--redirect-outbound-udp", "443:8443,22:9022"])
FEW, MANY = (settings(max_examples=some(number), suppress_health_check=list(HealthCheck)) for number in (100, 200))


def surroundings(made, family):
    """The pod, with the address that the plan gives to lo."""
    cards = zip((CARD, NEIGHBOUR), OWN[family.version], strict=True)
    more = [("lo", number_of(one.cidr.partition("/")[0])) for one in made.addresses if one.family is family]
    route = Network.parse("10.78.0.0/24" if family is IPV4 else "fd78::/64")
    addresses = tuple((card, number_of(address)) for card, address in cards)
    return Surroundings(family=family, addresses=(*addresses, *more), routes=((route, NEIGHBOUR),), forwards=True)


def simulated_fate(host, connection: Connection):
    """Where the simulator says that it ends, in the words of the policy; and how it came there."""
    around = host.surroundings
    if connection.interface:
        packet = make_inbound(
            around, connection.source, connection.destination, connection.port, protocol=connection.protocol, interface=connection.interface
        )  # fmt: skip
    else:
        packet = make_outbound(
            around, connection.destination, connection.port, protocol=connection.protocol,
            uid=connection.uid, gid=connection.gid, source=connection.source,
        )  # fmt: skip
    trace = host.process(packet.replace(flags=("SYN",)) if connection.protocol == "tcp" else packet)
    path = [f"{step.hook} {step.table} {step.chain}: {step.outcome}" for step in trace.steps if step.holds is not False]
    fates = {"refused": REFUSED, "sent": DIRECT, "forwarded": DIRECT, "delivered": DIRECT}
    return (captured(trace.redirect_port) if trace.redirect_port else fates.get(trace.fate, trace.fate)), path


def tell(options: Options, connection: Connection, wanted: str, found: str, path: list[str]) -> str:
    words = [f"{name}={value}" for name, value in options.to_environ().items()] + [
        word or "''" for word in options.to_argv()
    ]
    return "\n".join(
        [f"options: {' '.join(words)}", f"{connection}", f"policy:    {wanted}", f"simulator: {found}", *path]
    )


def compare_with_policy(policies, often=FEW) -> Counter[str]:
    """Every connection ends where the policy says; how often each end was seen."""
    seen: Counter[str] = Counter()

    @seed(SEED)
    @often
    @given(policies, st.integers(0, 2**32))
    def hold(options, number):
        made = plan(options)
        rulesets = {family.version: load_plan(made, family) for family in FAMILIES}
        around = {family.version: surroundings(made, family) for family in FAMILIES}
        for connection in made_connections(BATCH, number):
            if "::6" in (connection.source, connection.destination) and not made.addresses:
                continue  # the pod has no such address
            found, path = simulated_fate(Host(rulesets[connection.version], around[connection.version]), connection)
            wanted = expected_fate(options, connection)
            assert found == wanted, tell(options, connection, wanted, found, path)
            seen[f"{options.layout} {connection.interface or connection.device} {wanted}"] += 1

    hold()
    return seen


def test_every_connection_ends_where_the_policy_says():
    seen = compare_with_policy(st.one_of(*[made_policies()] * 6, st.sampled_from((QUIC, LISTED)), st.just(REDIRECTED)), MANY)  # as many as every end wants
    # What never came up was not compared.
    for layout, ports in (("current", (15001, 15006, 15053)), ("classic", (15001,))):
        for way in ("eth1", "lo"):
            missing = [port for port in ports if (way, port) != ("eth1", 15053) and not seen[f"{layout} {way} {captured(port)}"]]
            assert not missing, (layout, way, missing, seen)
            assert seen[f"{layout} {way} {DIRECT}"], seen
    assert seen[f"current eth0 {captured(8443)}"], seen
    assert seen[f"classic eth0 {REFUSED}"], seen
    assert seen[f"current eth0 {REFUSED}"], seen
    assert sum(seen.values()) > 20 * MANY.max_examples, seen


def test_every_connection_of_an_ambient_mesh_ends_where_the_policy_says():
    seen = compare_with_policy(made_ambient_policies())
    for way in (f"eth0 {captured(15001)}", f"eth0 {captured(15006)}", f"eth0 {captured(15053)}", f"eth1 {captured(15001)}", f"lo {DIRECT}"):
        assert seen[f"ambient {way}"], seen


def test_what_belongs_to_no_connection_is_dropped_where_the_policy_says():
    seen: Counter[bool] = Counter()

    @seed(SEED)
    @MANY
    @given(made_policies(), st.integers(0, 2**32))
    def hold(options, number):
        made = plan(options)
        for connection in made_connections(BATCH, number):
            if connection.protocol != "tcp" or not connection.interface or connection.passes:
                continue
            family = FAMILIES[connection.version == 6]
            around = surroundings(made, family)
            packet = make_inbound(
                around, connection.source, connection.destination, connection.port, interface=connection.interface
            )
            ruleset = replace(load_plan(made, family), tracked=True)
            trace = Host(ruleset, around).process(packet.replace(flags=("SYN", "ACK")))
            wanted = drops_what_belongs_to_no_connection(options, connection)
            assert (trace.fate == "dropped") == wanted, tell(
                options, connection, str(wanted), trace.fate, [trace.reason]
            )
            seen[wanted] += 1

    hold()
    assert seen[True] > 100 < seen[False], seen
