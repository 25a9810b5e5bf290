"""The grammar of what may ever reach iptables-restore: written from iptables(8), independent of the code under test.

`check(text)` raises AssertionError with the line that does not belong. Nothing is skipped: every character of every
line is accounted for by a token of the grammar.
"""

from __future__ import annotations

import ipaddress
import re

TABLES = ("mangle", "nat", "raw", "filter")
BUILTIN = ("PREROUTING", "INPUT", "FORWARD", "OUTPUT")
OWNED = ("ISTIO_INBOUND", "ISTIO_OUTPUT", "ISTIO_REDIRECT", "ISTIO_IN_REDIRECT", "ISTIO_OUTPUT_DNS", "ISTIO_DIVERT", "ISTIO_TPROXY", "ISTIO_DROP", "ISTIO_PRERT", "ISTIO_QUIC", "ISTIO_LOG", "ISTIO_REFUSE_IN", "ISTIO_REFUSE_OUT")
CHAIN = "|".join((*OWNED, *BUILTIN))
NUMBER = r"(?:0|[1-9][0-9]{0,9})"
HEX = r"0x(?:0|[1-9a-f][0-9a-f]{0,7})"
PORT = rf"{NUMBER}(?::{NUMBER})?"
PORT_LIST = rf"{PORT}(?:,{PORT})*"
NETWORK = r"(?P<%s>[0-9a-f.:]+/[0-9]{1,3})"
MATCHES = rf"""
    (?:(?:!\ )?-s\ {NETWORK % "source"}\ )?
    (?:(?:!\ )?-d\ {NETWORK % "destination"}\ )?
    (?:(?:!\ )?-i\ (?P<incoming>\S+)\ )?
    (?:(?:!\ )?-o\ (?P<outgoing>\S+)\ )?
    (?:-p\ tcp\ (?:-m\ tcp\ (?=-j))?|(?:!\ )?-p\ udp\ )?
    (?:
        -m\ tcp\ (?:!\ )?--tcp-flags\ FIN,SYN,RST,ACK\ SYN\ |
        -m\ (?:tcp|udp)\ (?:!\ )?--[ds]port\ {PORT}\ |
        (?:-m\ tcp\ )?(?:!\ )?--tcp-flags\ FIN,SYN,RST,ACK\ SYN\ | (?:-m\ tcp\ )?--tcp-flags\ (?:FIN,RST\ NONE|FIN,SYN\ FIN,SYN|FIN,SYN,RST,ACK\ SYN,ACK)\ |
        -m\ addrtype\ !\ --(?:src|dst)-type\ LOCAL\ |
        -m\ conntrack\ (?:!\ )?--ctstate\ DNAT\ | -m\ conntrack\ --ctdir\ (?:REPLY|ORIGINAL)\ |
        -m\ multiport\ (?:!\ )?--dports\ {PORT_LIST}\ |
        -m\ owner\ (?:!\ )?--[ug]id-owner\ {NUMBER}(?:-{NUMBER})?\ |
        -m\ (?:mark|connmark)\ (?:!\ )?--mark\ {HEX}(?:/0xfff)?\ |
        -m\ (?:conntrack\ --ctstate|state\ --state)\ (?:INVALID|INVALID,UNTRACKED|RELATED,UNTRACKED|NEW|ESTABLISHED|RELATED,ESTABLISHED)\ |
        -m\ limit\ --limit\ {NUMBER}/sec\ --limit-burst\ {NUMBER}\ |
        -m\ socket[ ]
    )*
    (?:-m\ comment\ --comment\ "(?:[a-z0-9A-Z ,:;>()*.*-]|\\')*"\ )?
"""
TARGET = rf"""
    (?: ACCEPT | DROP | RETURN | {"|".join(OWNED)}
      | LOG\ --log-prefix\ "netinit\ [a-z]+:\ "
      | NFLOG\ --nflog-prefix\ "netinit\ [a-z]+:\ "\ --nflog-group\ {NUMBER}
      | REDIRECT\ --to-ports\ {NUMBER}
      | CONNMARK\ --set-xmark\ 0x111/0xfff
      | MARK\ --set-xmark\ {HEX}/0xffffffff
      | CONNMARK\ --(?:save|restore)-mark\ --nfmask\ 0xffffffff\ --ctmask\ 0xffffffff
      | TPROXY\ --on-port\ {NUMBER}\ --on-ip\ (?:0\.0\.0\.0|::)\ --tproxy-mark\ {HEX}/0xffffffff
      | CT\ --zone(?:\ [12]|-orig\ 1)
      | REJECT\ --reject-with\ (?:(?:icmp|icmp6)-port-unreachable|tcp-reset)
    )
"""
RULE = re.compile(rf"(?:-A\ (?:{CHAIN})|-I\ (?:{CHAIN})\ {NUMBER})\ {MATCHES}-j\ {TARGET}", re.VERBOSE)
NAME = re.compile(r"[A-Za-z0-9_.%@=^+-]{1,15}")
OTHER_LINES = (
    re.compile(r"# IPv[46], for ip6?tables-restore --noflush"),
    re.compile(r"# also: ip -6 address add ::6/128 dev lo"),
    re.compile(rf"# also: ip -[46] rule add fwmark {HEX} lookup {NUMBER}"),
    re.compile(r"# also: ip -[46] rule add fwmark 0x111/0xfff pref 32764 lookup 100"),
    re.compile(rf"# also: ip -[46] route add local default dev lo table {NUMBER}"),
    re.compile(rf"\*(?:{'|'.join(TABLES)})"),
    re.compile(rf":(?:{'|'.join(OWNED)}) - \[0:0\]"),
    re.compile("COMMIT"),
)


def check(text: str, interfaces: frozenset[str] = frozenset()) -> int:
    """The number of rules in the text, each of which is understood to the last character.

    `interfaces` are the only names that may occur beside `lo`.
    """
    assert text == "" or text.endswith("\n")
    rules = 0
    for line in text.split("\n")[:-1]:
        if not line.startswith("-"):
            assert any(pattern.fullmatch(line) for pattern in OTHER_LINES), f"no line of iptables-restore: {line!r}"
            continue
        found = RULE.fullmatch(line)
        assert found, f"no rule of the grammar: {line!r}"
        for network in (found["source"], found["destination"]):
            if network:
                assert ipaddress.ip_network(network).prefixlen >= 0, line
        for name in (found["incoming"], found["outgoing"]):
            assert name is None or name == "lo" or (name in interfaces and NAME.fullmatch(name)), f"unknown interface: {line!r}"
        for number in re.findall(r"(?:port|ports|dports|zone) ([0-9,:]+)", line):
            assert all(1 <= int(one) <= 65535 for one in re.split("[,:]", number)), f"no port: {line!r}"
            ranges = [one.split(":") for one in number.split(",") if ":" in one]
            assert all(int(low) < int(high) for low, high in ranges), f"no range: {line!r}"
            assert len(re.split("[,:]", number)) <= 15, f"more than multiport takes: {line!r}"
        rules += 1
    return rules
