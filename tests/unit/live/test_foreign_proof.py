"""What foreign rules beside ours do to packets that the plan captures, and to the answers, sentence by sentence."""

from __future__ import annotations

import re

import pytest

from core import plan
from netinit.base.listeners import Listener, Listeners
from netinit.base.net import IPV4, HostAddress
from netinit.base.snapshot import Device, RoutingRule, TableRoute
from netinit.live.host import LOCAL, MAIN
from netinit.live.in_force import find_deviations
from netinit.live.lost_answers import LostAnswers
from netinit.options import Options
from netinit.rules.model import SHADOWING, Difference
from netinit.rules.nft.listing_objects import read_objects
from netinit.rules.nft.listing_text import read_listing
from netinit.rules.rule_builder import RuleBuilder
from netinit.simulate.symbolic.match_sets import MAX_NAMED
from plan_snapshot import snapshot_of

PLAN = plan(Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off"]))
LO, ETH0 = Device(index=1, name="lo", flags=9), Device(index=2, name="eth0", flags=1)
FORWARDS = (("ipv4/ip_forward", "1"),)
HOST = {
    "links": (LO, ETH0),
    "addresses": tuple([HostAddress(family=2, address=address, length=24, index=at) for at, address in ((1, "127.0.0.1"), (2, "10.7.0.2"))]),
    "routes": (TableRoute(family=2, table=MAIN, kind=1, destination=(0, 0), hops=(2,)),),
    "routing_rules": tuple([RoutingRule(family=2, priority=at, action=1, table=table) for at, table in ((0, LOCAL), (32766, MAIN), (32767, 253))]),
}
MISSING = Difference(kind="missing", where="IPv4", table="nat", chain="PREROUTING", rule="…")


def theirs(hook, *rules, kind="filter", priority=-300, policy="accept", more=""):
    """A table with one base chain, as nft lists it."""
    lines = "".join(f"\t\t{rule}\n" for rule in rules)
    return f"table ip theirs {{\n{more}\tchain c {{\n\t\ttype {kind} hook {hook} priority {priority}; policy {policy};\n{lines}\t}}\n}}\n"


def read(text):
    return read_objects(read_listing(text))[0]


def find(text, *, made=PLAN, answers=None, expressions=b"", **host):
    """The lines about foreign rules beside our tables of nft: differences, then warnings. `expressions`: of their rule."""
    ours, foreign = snapshot_of(made), read(text)
    foreign = foreign.replace(rules=tuple([one.replace(expressions=expressions or one.expressions) for one in foreign.rules]))
    held = {name: getattr(ours, name) + getattr(foreign, name) for name in ("tables", "chains", "rules", "sets")}
    differences, warnings = find_deviations(ours.replace(**held, **HOST).replace(**{"settings": FORWARDS, **host}), made, "nftables", (), answers=answers)
    return [*[one.describe() for one in differences], *warnings]


OUT = "from 10.7.0.2 to 198.51.100.7{}, sent by uid 1000, gid 1000"
IN = "from 192.0.2.1 to 10.7.0.2{}, coming in through eth0"
RULE = "nft table ip theirs, chain c, rule 1"


def escaping(text, why, example, of="ip theirs"):
    place = f"nft table {of}"
    return f"escaping: IPv4 {place} c rule 1: {text}  ({place}, chain c, rule 1: {why}, for example TCP {example}; a foreign rule)"


ESCAPES, MAY = "captured packets escape there", "it may divert packets that the plan captures"
DNAT = ("tcp dport 443 dnat to 10.9.9.9:8443", "-p tcp -m tcp --dport 443 -j DNAT --to-destination 10.9.9.9:8443")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (theirs("output", "counter packets 0 bytes 0"), []),
        (theirs("output", "meta mark set 7", kind="route", priority=-150), []),
        (theirs("output", "tcp dport 443 accept", kind="nat", priority=-200), []),
        (theirs("output", "tcp dport 80 drop"), [f"IPv4: {RULE} `-p tcp -m tcp --dport 80 -j DROP` drops packets that the plan captures, for example TCP {OUT.format(':80')}"]),
        (
            theirs("output", "limit rate 1/second tcp dport 80 drop"),
            [f"IPv4: {RULE} `-p tcp -m limit --limit 1/sec --limit-burst 5 -m tcp --dport 80 -j DROP` may drop packets that the plan captures, for example TCP {OUT.format(':80')}"],
        ),
        (
            theirs("output", "jump more", more="\tchain more {\n\t\ttcp dport 80 drop\n\t}\n"),
            [f"IPv4: nft table ip theirs, chain more, rule 1 `-p tcp -m tcp --dport 80 -j DROP` drops packets that the plan captures, for example TCP {OUT.format(':80')}"],
        ),
        (
            theirs("output", "tcp dport 80 notrack"),
            [
                escaping("-p tcp -m tcp --dport 80 -j CT --notrack", ESCAPES, "from 10.7.0.2 to 10.7.0.2:80, sent by uid 1337, gid 1000"),
                f"IPv4: {RULE} `-p tcp -m tcp --dport 80 -j CT --notrack` leads to the loss of packets that the plan captures, for example TCP {OUT.format(':80')}",
            ],
        ),
        (
            theirs("output", "limit rate 1/second tcp dport 80 notrack"),
            [
                escaping("-p tcp -m limit --limit 1/sec --limit-burst 5 -m tcp --dport 80 -j CT --notrack", MAY, "from 10.7.0.2 to 10.7.0.2:80, sent by uid 1337, gid 1000"),
                f"IPv4: {RULE} `-p tcp -m limit --limit 1/sec --limit-burst 5 -m tcp --dport 80 -j CT --notrack` may lead to the loss of packets that the plan captures, for example TCP {OUT.format(':80')}",
            ],
        ),
        (
            theirs("output", "ip daddr 10.0.0.0/8 accept", policy="drop"),
            [f"IPv4: packets that the plan captures are dropped: the policy of nft table ip theirs c is DROP, for example TCP {OUT.format(':8080')}"],
        ),
        (
            theirs("output", "limit rate 1/second accept", policy="drop"),
            [f"IPv4: {RULE} `-m limit --limit 1/sec --limit-burst 5 -j ACCEPT` may lead to the loss of packets that the plan captures, for example TCP {OUT.format(':8080')}"],
        ),
        (theirs("output", DNAT[0], kind="nat", priority=-200), [escaping(DNAT[1], ESCAPES, OUT.format(":443"))]),
        (
            theirs("output", "tcp dport 443 redirect to :7", kind="nat", priority=-200),
            [escaping("-p tcp -m tcp --dport 443 -j REDIRECT --to-ports 7", ESCAPES, OUT.format(":443"))],
        ),
        (
            'table netdev t {\n\tchain c {\n\t\ttype filter hook ingress device "eth0" priority 0; policy accept;\n\t\ttcp dport 80 drop\n\t}\n}\n',
            [f"IPv4: nft table netdev t, chain c, rule 1 `-p tcp -m tcp --dport 80 -j DROP` drops packets that the plan captures, for example TCP {IN.format(':80')}"],
        ),
    ],
)  # fmt: skip
def test_a_foreign_rule_is_named_with_what_it_does_to_captured_packets_and_an_example(text, lines):
    assert find(text) == lines


@pytest.mark.parametrize("to", ["10.1.2.3", "10.2.3.4", "10.3.4.5"])
def test_each_part_of_what_is_captured_is_looked_at(to):
    made = plan(Options.from_argv(["-b", "80,81", "-i", "10.1.0.0/16,10.2.0.0/16", "-u", "1337", "--ipv6", "off"]))
    found = find(theirs("output", f"ip daddr {to} tcp dport 443 drop"), made=made)
    text = f"-d {to}/32 -p tcp -m tcp --dport 443 -j DROP"
    told = f"IPv4: {RULE} `{text}` drops packets that the plan captures, for example TCP {OUT.format(':443').replace('198.51.100.7', to)}"
    assert found == ([] if to.startswith("10.3") else [told])
    for port in (80, 81, 82):
        (*found,) = find(theirs("input", f"tcp dport {port} drop", priority=-50), made=made)
        assert found == [], "behind the capture there is no such port"
        assert len(find(theirs("prerouting", f"tcp dport {port} drop"), made=made)) == (port != 82)


MARKED = "-m mark --mark 0x7 -j CT --notrack"


@pytest.mark.parametrize(
    ("host", "is_taken"),
    [({"settings": ()}, False), ({"settings": FORWARDS}, True), ({"settings": (), "links": (LO, ETH0.replace(kind="netkit"))}, True)],
    ids=["marks are cleared on the way in", "the host forwards", "netkit keeps marks"],
)
def test_what_comes_in_has_a_mark_where_the_host_forwards_or_a_device_keeps_it(host, is_taken):
    found = find(theirs("prerouting", "meta mark 7 notrack"), **host)
    assert found == [
        escaping(MARKED, ESCAPES, f"{IN.format(':15006')}, mark 7"),
        f"IPv4: {RULE} `{MARKED}` leads to the loss of packets that the plan captures, for example TCP {IN.format(':8080')}, mark 7",
    ] * is_taken


@pytest.mark.parametrize(("settings", "lines"), [((), []), (FORWARDS, [escaping("-d 10.9.9.9/32 -j CT --notrack", ESCAPES, "from 192.0.2.1 to 10.9.9.9:8080, coming in through eth0")])])
def test_what_is_for_another_host_comes_in_only_where_this_one_forwards(settings, lines):
    assert find(theirs("prerouting", "ip daddr 10.9.9.9 notrack"), settings=settings) == lines


ANSWERS = "to connections that the proxy captures"
FROM_40000 = ("TCP from 10.7.0.2:40000 to 198.51.100.7:8080, sent by uid 1000, gid 1000", "TCP from 192.0.2.1:40000 to 10.7.0.2:8080, coming in through eth0")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            theirs("output", "tcp dport 40000 drop"),
            [f"`-p tcp -m tcp --dport 40000 -j DROP` drops the answers {ANSWERS}, for example {one}" for one in FROM_40000],
        ),
        (
            theirs("output", "tcp dport 40000 notrack"),
            [f"`-p tcp -m tcp --dport 40000 -j CT --notrack` keeps the answers {ANSWERS} from coming back: they are not tracked, for example {one}" for one in FROM_40000],
        ),
        *[(theirs(hook, f"tcp dport {ports} drop"), []) for hook in ("output", "input") for ports in ("22", "1-1023", "3306", "61000-65535")],
        (
            theirs("output", "ct zone set 5"),
            [
                "`-j CT --zone 5` drops the answers to direct connections, for example TCP from 10.7.0.2 to 198.51.100.7:8080, sent by uid 1000, gid 1337",
                f"`-j CT --zone 5` keeps the answers {ANSWERS} from coming back: the kernel does not find their connection in the zone of the answers, for example TCP {IN.format(':8080')}",
            ],
        ),
        (theirs("output", "limit rate 1/second tcp dport 40000 drop"), []),
    ],
)  # fmt: skip
def test_a_foreign_rule_that_keeps_answers_from_coming_back_is_a_warning_with_a_connection(text, lines):
    found = [line for line in find(text, answers=LostAnswers()) if "the answers" in line]
    assert found == [f"IPv4: {RULE} {line}" for line in lines]
    assert not [line for line in find(text) if "the answers" in line], "only who asks for answers is told of them"


def networks_in(lines):
    """The network of each line's rule, and the network that its example is of."""
    return [(re.search(r"-s 100\.64\.(\d+)\.", line)[1], re.search(r"(?:from|to) 100\.64\.(\d+)\.", line)[1]) for line in lines]


def test_of_neighbours_that_do_the_same_each_is_named_with_an_example_of_its_own():
    drops = [f"ip saddr 100.64.{one}.0/24 drop" for one in range(20)]
    found = find(theirs("input", *drops[:3], priority=-50), answers=LostAnswers())
    dropped, lost = ([line for line in found if what in line] for what in ("packets that the plan captures", "drops the answers"))
    assert networks_in(dropped) == networks_in(lost) == [(f"{one}", f"{one}") for one in range(3)]
    *single, last = find(theirs("input", *drops, priority=-50))
    assert networks_in(single) == [(f"{one}", f"{one}") for one in range(MAX_NAMED)], "long lists are not repeated"
    assert f"rule {MAX_NAMED + 1} or one of the next up to rule 20 `-s 100.64.{MAX_NAMED}.0/24 -j DROP` drops packets" in last


@pytest.mark.parametrize("target", ["dnat to 10.9.9.9:8443", "redirect to :7"])
def test_of_neighbours_that_translate_alike_each_is_named(target):
    found = find(theirs("output", *[f"tcp dport {port} {target}" for port in (443, 444, 445)], kind="nat", priority=-200))
    named = [re.search(r"rule (\d): .* --dport (\d+) .* to 198\.51\.100\.7:(\d+)", line).groups() for line in found]
    assert sorted(named) == [(f"{at}", f"{port}", f"{port}") for at, port in enumerate((443, 444, 445), 1)]


@pytest.mark.parametrize("rule", ['iifname != "lo" ip daddr 127.0.0.1 tcp dport 8080 drop', 'iifname != "lo" ip saddr 127.0.0.0/8 drop'])
def test_what_nobody_sends_from_or_to_loopback_addresses_of_others_may_be_dropped(rule):
    """As Docker's rules do for ports that it publishes on 127.0.0.1 alone."""
    assert find(theirs("prerouting", rule), answers=LostAnswers()) == []


def write_payload(value, base, offset, protocol="tcp"):
    """The expressions of a rule that writes a value into packets: `ip daddr set`, `tcp dport set`."""
    builder = RuleBuilder(IPV4.number, [])
    builder.limit_protocol(protocol)
    builder.put(value)
    builder.add(b"payload", (5, 1), (2, base), (3, offset), (4, len(value)))  # NFTA_PAYLOAD_SREG, _BASE, _OFFSET, _LEN
    return builder.block()


@pytest.mark.parametrize(
    ("hook", "written", "text", "lines"),
    [
        ("output", (bytes((203, 0, 113, 50)), 1, 16), "write 4 bytes at 16 of the network", [(ANSWERS, f"TCP {OUT.format(':8080')}")]),
        ("output", (bytes((0, 81)), 2, 2), "write 2 bytes at 2 of the transport", [(ANSWERS, f"TCP {OUT.format(':8080')}")]),
        ("prerouting", (bytes((0, 81)), 2, 2), "write 2 bytes at 2 of the transport", [(ANSWERS, f"TCP {IN.format(':8080')}")]),
        ("output", (bytes((0, 81)), 2, 2, "udp"), "write 2 bytes at 2 of the transport", [("to direct connections", f"UDP {OUT.format(':8080')}")]),
    ],
)  # fmt: skip
def test_answers_are_translated_back_to_the_destination_that_a_rule_wrote_without_nat(hook, written, text, lines):
    """Connection tracking knows no other, as a real connection shows: tests/netns/test_lost_answers.py."""
    found = [line for line in find(theirs(hook, "accept"), answers=LostAnswers(), expressions=write_payload(*written)) if "the answers" in line]
    assert found == [
        f"IPv4: {RULE} `-p {example[:3].lower()} -j [{text} header]` keeps the answers {whose} from coming back: "
        f"they are translated back to a destination that a rule wrote into the packets, for example {example}"
        for whose, example in lines
    ]


@pytest.mark.parametrize(("text", "lines"), [("tcp dport 80 accept", [OUT.format(":80")]), ("udp dport 53 accept", [])])
def test_a_foreign_rule_that_copies_captured_packets_is_a_warning(text, lines):
    objects = read_listing(theirs("output", text))
    objects[-1]["rule"]["expr"][-1] = {"dup": {"addr": "10.9.9.9"}}
    copying = read_objects(objects)[0].rules[0].expressions
    rule = "`-p tcp -m tcp --dport 80 -j [dup to 10.9.9.9]`"
    assert find(theirs("output", text), expressions=copying) == [f"IPv4: {RULE} {rule} copies packets that the plan captures, for example TCP {one}" for one in lines]


# ---- rules of iptables before ours ------------------------------------------------------------------------------------------


def of_iptables(*, nat=(), filtering=(), own=()):
    """The tables of iptables-nft with these rules at OUTPUT, and in a chain with a name of ours."""
    lines = ["table ip nat {", "\tchain PREROUTING {", "\t\ttype nat hook prerouting priority -100; policy accept;", "\t}"]
    lines += ["\tchain ISTIO_OUTPUT {", *[f"\t\t{one}" for one in own], "\t}", "\tchain OUTPUT {", "\t\ttype nat hook output priority -100; policy accept;"]
    lines += [*[f"\t\t{one}" for one in nat], "\t}", "}", "table ip filter {", "\tchain OUTPUT {", "\t\ttype filter hook output priority 0; policy accept;"]
    return "\n".join([*lines, *[f"\t\t{one}" for one in filtering], "\t}", "}", ""])


def judge(text, *, shadows=(), listed=(MISSING,)):
    differences, warnings = find_deviations(read(text).replace(**HOST), PLAN, "iptables-nft", listed, shadows)
    return [*[one.describe() for one in differences], *warnings]


def shadow(table):
    return (Difference(kind=SHADOWING, where="IPv4", table=table, chain="OUTPUT", number=1, rule="…", comment="theirs"),)


LIMITED = "limit rate 1/second tcp dport 443"
PRECEDES = "rule 1: `…` with comment \"theirs\"  (precedes netinit's rules"


@pytest.mark.parametrize(
    ("rules", "table", "line"),
    [
        ({"nat": [DNAT[0]]}, "nat", f"shadowing: IPv4 nat OUTPUT {PRECEDES}: {ESCAPES}, for example TCP {OUT.format(':443')}; )"),
        ({"nat": [f"{LIMITED} dnat to 10.9.9.9"]}, "nat", f"shadowing: IPv4 nat OUTPUT {PRECEDES}: {MAY}, for example TCP {OUT.format(':443')}; )"),
        ({"filtering": [f"{LIMITED} drop"]}, "filter", f"shadowing: IPv4 filter OUTPUT {PRECEDES}: {MAY}, for example TCP {OUT.format(':443')}; )"),
        (
            {"filtering": ["tcp dport 443 drop"]}, "filter",
            f"IPv4: iptables-nft table filter, chain OUTPUT, rule 1 `-p tcp -m tcp --dport 443 -j DROP` drops packets that the plan captures, for example TCP {OUT.format(':443')}",
        ),
    ],
)  # fmt: skip
def test_a_rule_before_ours_is_that_difference_with_its_effect_and_one_that_drops_a_warning(rules, table, line):
    assert judge(of_iptables(**rules), shadows=shadow(table)) == [line]


def test_a_rule_in_a_chain_of_ours_is_named_unless_the_chain_is_known_to_differ():
    text = of_iptables(nat=["jump ISTIO_OUTPUT"], own=["tcp dport 7 dnat to 10.9.9.9"])
    place = "IPv4 iptables-nft table nat ISTIO_OUTPUT rule 1: -p tcp -m tcp --dport 7 -j DNAT --to-destination 10.9.9.9"
    said = f"escaping: {place}  (iptables-nft table nat, chain ISTIO_OUTPUT, rule 1: {ESCAPES}, for example TCP {OUT.format(':7')}; a foreign rule)"
    assert judge(text) == [said]
    assert judge(text, listed=(MISSING.replace(chain="ISTIO_OUTPUT"),)) == []
    assert judge(text, listed=(MISSING.replace(chain="ISTIO_OUTPUT", where="IPv6"),)) == [said]


# ---- which of several rules ---------------------------------------------------------------------------------------------------


def table(name, *rules, hook="output", **more):
    return theirs(hook, *rules, **more).replace("table ip theirs", f"table ip {name}")


MARKS = "-j MARK --set-xmark 0x7/0xffffffff"
LOSS = f"of packets that the plan captures, for example TCP {OUT.format(':8080')}"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (  # the policy drops what the first rule marks
            table("a", "meta mark set 7", priority=-310) + theirs("output", "meta mark != 7 accept", policy="drop"),
            [f"IPv4: nft table ip a, chain c, rule 1 `{MARKS}` leads to the loss {LOSS}"],
        ),
        (
            table("a", "meta mark set 7", priority=-310) + table("b", "ct mark set meta mark", priority=-140)
            + theirs("output", "ct mark != 7 accept", policy="drop", priority=0),
            [f"IPv4: nft table ip b, chain c, rule 1 `-j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff` leads to the loss {LOSS}"],
        ),
        (  # what is marked already is dropped whatever the rule does
            table("a", "limit rate 1/second meta mark set 7", priority=-310) + theirs("output", "meta mark != 7 accept", policy="drop"),
            [
                f"IPv4: packets that the plan captures are dropped: the policy of nft table ip theirs c is DROP, for example TCP {OUT.format(':8080')}, mark 7",
                f"IPv4: nft table ip a, chain c, rule 1 `-m limit --limit 1/sec --limit-burst 5 {MARKS}` may lead to the loss {LOSS}",
            ],
        ),
        (  # the one that ends a packet, not the one that marked it
            table("a", "meta mark set 7", priority=-310) + theirs("output", "meta mark 7 drop"),
            [f"IPv4: {RULE} `-m mark --mark 0x7 -j DROP` drops packets that the plan captures, for example TCP {OUT.format(':8080')}"],
        ),
        (
            table("a", "accept", priority=-310) + theirs("output", "tcp dport 80 notrack"),
            [
                escaping("-p tcp -m tcp --dport 80 -j CT --notrack", ESCAPES, "from 10.7.0.2 to 10.7.0.2:80, sent by uid 1337, gid 1000"),
                f"IPv4: {RULE} `-p tcp -m tcp --dport 80 -j CT --notrack` leads to the loss of packets that the plan captures, for example TCP {OUT.format(':80')}",
            ],
        ),
        (
            theirs("output", "tcp dport vmap { 80 : drop, 90 : accept }"),
            [f"IPv4: {RULE} `-p tcp -m tcp --dport 80 -j DROP` drops packets that the plan captures, for example TCP {OUT.format(':80')}"],
        ),
    ],
)  # fmt: skip
def test_of_several_rules_the_one_is_named_without_which_the_packets_are_captured(text, lines):
    assert find(text) == lines


TO_SOCKET = "-p tcp -m tcp --dport 8080 -j TPROXY --on-port 4444 --on-ip 0.0.0.0 --tproxy-mark 0x1/0xffffffff"
WHOLE, OPEN = "tcp dport 8080 tproxy to :4444 meta mark set 1", {"protocol": "tcp", "family": 2, "address": bytes(4), "port": 4444}


@pytest.mark.parametrize(
    ("rules", "listener", "lines"),
    [
        ((f"{WHOLE} accept",), None, [escaping(TO_SOCKET, MAY, IN.format(":8080"))]),
        ((f"{WHOLE} accept",), Listener(**OPEN, transparent=True), [escaping(TO_SOCKET, ESCAPES, IN.format(":8080"))]),
        ((f"{WHOLE} accept",), Listener(**OPEN, transparent=True, device=7), [escaping(TO_SOCKET, MAY, IN.format(":8080"))]),
        ((f"{WHOLE} accept",), Listener(**{**OPEN, "protocol": "udp"}, transparent=True), [escaping(TO_SOCKET, MAY, IN.format(":8080"))]),
        ((f"{WHOLE} accept", "tcp dport 8080 drop"), Listener(**OPEN, transparent=False), [escaping(TO_SOCKET, MAY, IN.format(":8080"))]),
        ((WHOLE, "tcp dport 8080 drop"), Listener(**OPEN, transparent=True), [f"IPv4: nft table ip theirs, chain c, rule 2 `-p tcp -m tcp --dport 8080 -j DROP` drops packets that the plan captures, for example TCP {IN.format(':8080')}"]),
    ],
    ids=["unread sockets", "an open socket", "bound to a device", "of UDP", "one that is not transparent", "a drop behind it"],
)  # fmt: skip
def test_nfts_tproxy_takes_packets_where_a_transparent_socket_is_open_and_goes_on_with_the_next_rule(rules, listener, lines):
    assert find(theirs("prerouting", *rules, priority=-155), listeners=listener and Listeners(sockets=(listener,))) == lines


@pytest.mark.parametrize(
    ("mode", "rule", "lines"),
    [
        ("REDIRECT", "meta mark set numgen inc mod 3 offset 1336", []),
        ("REDIRECT", "meta mark set jhash ip saddr . ip daddr mod 2 seed 0x5 offset 100", []),
        ("TPROXY", 'iifname "eth0" meta mark set numgen inc mod 2 offset 10', []),
        ("TPROXY", 'iifname "eth0" meta mark set numgen inc mod 2 offset 1336', [escaping("-i eth0 [numgen mod 2 offset 1336 == 1336] -j MARK --set-xmark 0x538/0xffffffff", MAY, IN.format(":8080"))]),
        ("TPROXY", 'iifname "eth0" meta mark set numgen inc mod 100', [escaping("-i eth0 -j meta [...]", MAY, IN.format(":8080"))]),
    ],
)  # fmt: skip
def test_marks_that_chance_sets_matter_where_a_rule_reads_one_of_them(mode, rule, lines):
    made = plan(Options.from_argv(["-b", "*", "-i", "*", "-u", "1337", "--ipv6", "off", "-m", mode]))
    assert [one for one in find(theirs("prerouting", rule, priority=-160), made=made) if "of netinit's own" not in one] == lines
