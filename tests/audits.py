"""Sidecars to audit, from a command line, and objects of audits that have every field."""

from __future__ import annotations

from allpackets import around
from core import FAMILIES, Options, load_plan, plan, settled
from netinit.questions.pod_rules import PodRules

SIDECAR = "-p 15001 -z 15006 -u 1337 -m REDIRECT -i * -b * -d 15090,15021,15020"


def subject_of(line, families=FAMILIES, **more):
    options = settled(Options.from_argv(["--ipv6=on", *line.split()], {}))
    made = plan(options)
    rulesets = {"plan": {family: load_plan(made, family) for family in families}}
    return PodRules(rulesets, {family: around(family) for family in families}, {"plan": options}, **more)


FOREIGN = {
    "kind": "foreign", "by": "foreign", "title": "what rules of others decide", "port": None, "who": ["TCP inbound", "TCP <out>"],
    "because": ["rule 1 of nat OUTPUT", "rule 2"], "closes": "delete the rule", "line": 7, "column": 9, "example": "TCP to 192.0.2.1:80",
}  # fmt: skip
DESIGN = {
    "kind": "proxy", "by": "design", "title": "what the proxy sends", "port": None, "who": ["uid 1337"], "because": ["no loops"],
    "closes": "", "line": None, "column": None, "example": "TCP to 192.0.2.2:80",
}  # fmt: skip
COVERED = {
    "kind": "captured", "by": "covered", "title": "goes to the proxy on", "port": 15001, "who": ["TCP outbound"], "because": ["all TCP"],
    "closes": "", "line": None, "column": None, "example": "TCP to 192.0.2.3:80",
}  # fmt: skip
COUNTEREXAMPLE = {"packet": "TCP to 192.0.2.4:80", "sentence": "direct: no rule", "path": ["OUTPUT nat OUTPUT 1: -j X", "direct"]}
CURES = [{"change": "without -x", "verdict": "captured"}, {"change": "--ipv6 on", "verdict": "refused"}]
REFUTED = {
    "name": "no way out", "assertion": "tcp is captured", "result": "refuted", "about": "9", "unless": [], "counterexample": COUNTEREXAMPLE,
    "cures": CURES,
}  # fmt: skip
CONDITIONS = ['container "app" changes the rules: <it> is privileged']
PROVED = {"name": "", "assertion": "udp is direct", "result": "proved", "about": "9", "unless": CONDITIONS, "counterexample": None, "cures": []}
EMPTY = {"name": "", "assertion": "ipv6 is refused", "result": "proved", "about": "0", "unless": [], "counterexample": None, "cures": []}
UNKNOWN = {"name": "", "assertion": "sctp is direct", "result": "unknown", "about": "0", "unless": [], "counterexample": None, "cures": []}
WEB = {
    "name": 'Pod "web"', "file": "web.yaml", "options": "netinit apply -b '*'", "traffic": [FOREIGN, DESIGN, COVERED],
    "assertions": [REFUTED, PROVED, EMPTY, UNKNOWN], "warnings": ["not all is known"],
}  # fmt: skip
DB = {"name": "Pod db", "file": None, "options": None, "traffic": [DESIGN], "assertions": [], "warnings": []}
QUIET = {"name": "Pod quiet", "file": None, "options": None, "traffic": [COVERED], "assertions": [], "warnings": []}
