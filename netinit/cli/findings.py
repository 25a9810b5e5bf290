"""Findings of `lint` and `audit` with their stable codes: which are accepted, and their formats for pipelines.

docs/findings.md is generated from the table. The formats are JSON, SARIF 2.1.0, JUnit XML, and GitHub workflow commands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from xml.sax.saxutils import escape as escape_xml
from xml.sax.saxutils import quoteattr

import click

from netinit.base.errors import OptionError
from netinit.base.output import to_json, with_version
from netinit.base.sanitize import escape
from netinit.base.version import __version__
from netinit.cli.config import load_file
from netinit.cli.flags import Decorator, add_value, json_option
from netinit.options.kinds import quote_value

PAGE = "docs/findings.md"
ERROR, WARNING, NOTE = "error", "warning", "note"

OF_OPTIONS = {  # kind: code, what it means and what to do
    "contradiction": ("NI001", "Two options exclude each other. Keep one of them."),
    "no-effect": ("NI002", "No packet is treated differently because of this option. Remove it, or add the option that it needs."),
    "shadowed": ("NI003", "Another option decides before this one does. Remove one of the two."),
    "redundant": ("NI004", "The value is contained in another one. Remove it."),
    "unreachable": ("NI005", "No longer reported: NI002, NI003 and NI004 name the option or the value whose rule no packet reaches."),
    "own-port": ("NI006", "A port of the proxy itself is named among those of the application."),
    "health-ports": ("NI007", "The proxy's own ports for health and metrics are captured, so that probes of it fail."),
    "loop": ("NI008", "The proxy's own traffic is captured again, in a loop."),
    "dns-loop": ("NI009", "The proxy's own DNS queries are captured again: no name is ever resolved."),
    "dns-loopback": ("NI010", "A resolver in the pod itself asks servers outside, which this option does not capture."),
    "dns-incomplete": ("NI011", "Not all name servers of the pod are known, so queries to the others are not captured."),
    "quic-passes": ("NI012", "HTTP/3 bypasses the proxy, over UDP. --reject-quic makes clients fall back to TCP."),
    "idle-family": ("NI013", "Rules of an address family that this pod does not use."),
    "open-tunnel": ("NI014", "Port 15008 is left to the proxy's tunnel, and nothing in the pod enables the tunnel."),
    "docker": ("NI015", "No longer reported: tables of nft answer queries to Docker's resolver too."),
    "backend": ("NI016", "The chosen backend cannot do what the options need."),
    "proxy-owner": ("NI017", "An application runs as the proxy's user or group: its traffic is not captured."),
}
OF_PODS = {
    "host-network": ("NI101", "The pod uses its node's network: nothing is intercepted, or the whole node is."),
    "no-init-container": ("NI102", "Nothing in the pod programs rules, unless an injector or a CNI plugin does."),
    "arguments": ("NI103", "The init container's arguments cannot be read: the pod does not start."),
    "missing-capability": ("NI104", "The init container lacks NET_ADMIN, or NET_RAW where legacy iptables is asked for."),
    "no-network": ("NI105", "An init container runs with the rules but before the proxy."),
    "unknown-annotation": ("NI106", "An annotation of the mesh that nothing reads; it is probably misspelt."),
    "misplaced-annotation": ("NI107", "An annotation, or the label of injection, on a workload instead of its pod template."),
}
OF_TRAFFIC = {
    "foreign": ("NI201", "Foreign rules decide about traffic before netinit's do."),
    "unknown": ("NI202", "A rule matches or does something that netinit does not know, so the verdict is unknown."),
    "ipv6": ("NI203", "IPv6 is not captured: it bypasses the proxy and mTLS."),
    "untranslated": ("NI204", "Connections that begin on another connection's conntrack entry: nat is skipped for them."),
    "uncaptured": ("NI205", "No rule captures this traffic."),
    "group": ("NI206", "Traffic of these groups is excluded."),
    "user": ("NI207", "Traffic of these users is excluded."),
    "interface": ("NI208", "Traffic of these interfaces is excluded."),
    "network": ("NI209", "Traffic to these networks is excluded."),
    "metadata": ("NI210", "Traffic to the cloud's metadata service is excluded."),
    "source": ("NI211", "Inbound connections from these networks are excluded."),
    "port": ("NI212", "Outbound traffic to these ports is excluded."),
    "inbound-port": ("NI213", "Inbound traffic to these ports is excluded."),
    "tunnel-port": ("NI214", "The port of a tunnel (HBONE) that the proxy is not known to serve."),
    "mark": ("NI215", "Packets with the proxy's mark pass: give no container NET_ADMIN or NET_RAW."),
    "shared-owner": ("NI216", "Traffic of containers that run as the proxy's user or group."),
    "assertion": ("NI299", "An assertion of --assert is refuted, or cannot be proved."),
}
GROUPS = {"Options": OF_OPTIONS, "Pods": OF_PODS, "Traffic": OF_TRAFFIC}
CODES = {kind: code for group in GROUPS.values() for kind, (code, _) in group.items()}
MEANINGS = {code: meaning for group in GROUPS.values() for code, meaning in group.values()}


def read_code(text: str, label: str) -> str:
    """Validate a code. Raises OptionError naming `label`."""
    code = text.strip().upper()
    if code not in MEANINGS:
        raise OptionError(f"{label}: {quote_value(text)} is not a finding's code, such as NI012; {PAGE} lists them")
    return code


def link(code: str) -> str:
    """The URL that explains a code."""
    return f"{PAGE}#{code.lower()}"


@dataclass(frozen=True, slots=True)
class Issue:
    """A finding about `subject` (an option or a container), with `severity` ERROR, WARNING or NOTE.

    `pod` and `file` are empty if only options were checked. `accepted` is the reason for ignoring it, or empty.
    """

    kind: str
    severity: str
    subject: str
    message: str
    pod: str = ""
    file: str = ""
    accepted: str = ""

    @property
    def code(self) -> str:
        """The stable code."""
        return CODES[self.kind]

    @property
    def text(self) -> str:
        """The subject and the message."""
        return ": ".join([part for part in (self.subject, self.message) if part])


LABEL, FILE = "--ignore", "--ignore-file"


def read_ignored(codes: Iterable[str] = (), file: str = "") -> dict[str, str]:
    """The codes of --ignore and --ignore-file with their reasons. Raises OptionError."""
    found = {read_code(text, LABEL): f"ignored by {LABEL}" for text in codes}
    if not file:
        return found
    tree = load_file(file, FILE)
    if not isinstance(tree, dict):
        raise OptionError(f"{FILE}: {quote_value(file)} is not a mapping; write `CODE: reason`, a line each")
    for code, reason in tree.items():
        if not isinstance(reason, str) or not reason.strip():
            raise OptionError(f"{FILE}: {quote_value(str(code))} has no reason; write `{code}: reason`")
        found[read_code(str(code), FILE)] = reason.strip()
    return found


def without_ignored(issues: Iterable[Issue], ignored: Mapping[str, str], of_pod: Mapping[str, str]) -> list[Issue]:
    """Attach the reason to accepted issues; `of_pod` holds the codes of the pod's annotation."""
    reasons = {**of_pod, **ignored}
    return [replace(one, accepted=reasons.get(one.code, "")) for one in issues]


ignore_options = add_value(
    "accepted", read_ignored,
    click.option(LABEL, "codes", multiple=True, metavar="CODE", help="Leave out findings of this code (NI012); repeatable."),
    click.option(FILE, "file", default="", metavar="FILE", help="Leave out those of a file: `CODE: reason` in YAML."),
)  # fmt: skip


TEXT, JSON, SARIF, JUNIT, GITHUB = "text", "json", "sarif", "junit", "github"
FORMATS = (SARIF, JUNIT, GITHUB)
_SARIF = "https://json.schemastore.org/sarif-2.1.0.json"
_COMMANDS = {ERROR: "error", WARNING: "warning", NOTE: "notice"}
_OPTIONS = "the options"


def render(form: str, command: str, issues: Sequence[Issue], looked_at: Sequence[str]) -> str:
    """Render a command's issues in one of FORMATS or as JSON. `looked_at` names all pods, also those without issues."""
    if form == JSON:
        return to_json(with_version({"findings": [to_object(one) for one in issues]}))
    if form == SARIF:
        return to_json(_sarif(issues))
    if form == JUNIT:
        return _junit(command, issues, looked_at)
    return "".join([f"{_annotation(one)}\n" for one in issues if not one.accepted])


def choose_format(form: str, as_json: bool) -> str:
    """The format that --format and --json ask for. Raises OptionError if they contradict each other."""
    if as_json and form not in {TEXT, JSON}:
        raise OptionError(f"--json: contradicts --format {form}; give one of the two")
    return JSON if as_json else form


def format_options(schema: str, *others: str) -> Decorator:
    """Add --format with text, `others` and FORMATS, and --json; the function gets `form`."""
    forms = click.Choice((TEXT, *others, *FORMATS))
    choice = click.option("--format", "form", type=forms, default=TEXT, show_default=True, help="The format.")
    return add_value("form", choose_format, choice, json_option(schema))


def to_object(one: Issue) -> dict[str, Any]:
    """An issue in the form of netinit/data/findings.schema.json."""
    return {
        "code": one.code, "kind": one.kind, "severity": one.severity, "option": one.subject, "message": one.message,
        "pod": one.pod or None, "file": one.file or None, "accepted": one.accepted or None, "page": link(one.code),
    }  # fmt: skip


def _sarif(issues: Sequence[Issue]) -> dict[str, Any]:
    rules = [
        {"id": code, "shortDescription": {"text": MEANINGS[code]}, "help": {"text": link(code)}}
        for code in sorted({one.code for one in issues})
    ]
    driver = {"name": "netinit", "semanticVersion": __version__, "rules": rules}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [{"tool": {"driver": driver}, "results": [_result(one) for one in issues]}]}


def _result(one: Issue) -> dict[str, Any]:
    place: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": escape(one.pod or _OPTIONS)}]}
    if one.file:
        place["physicalLocation"] = {"artifactLocation": {"uri": escape(one.file)}, "region": {"startLine": 1}}
    found = {"ruleId": one.code, "level": one.severity, "message": {"text": escape(one.text)}, "locations": [place]}
    if one.accepted:
        found["suppressions"] = [{"kind": "external", "justification": escape(one.accepted)}]
    return found


def _junit(command: str, issues: Sequence[Issue], looked_at: Sequence[str]) -> str:
    """One test case per pod: findings are failures, accepted findings its output."""
    lines = ['<?xml version="1.0" encoding="UTF-8"?>']
    failed = sum(not one.accepted for one in issues)
    lines.append(f'<testsuite name="netinit {command}" tests="{len(looked_at)}" failures="{failed}">')
    for name in dict.fromkeys(looked_at):
        lines.append(f"  <testcase name={quoteattr(escape(name or _OPTIONS))}>")
        for one in [one for one in issues if one.pod == name]:
            text = escape_xml(escape(f"{one.text} ({link(one.code)})"))
            if one.accepted:
                lines.append(f"    <system-out>{one.code} accepted ({escape_xml(escape(one.accepted))}): {text}</system-out>")
            else:
                lines.append(f'    <failure type="{one.code}" message="{one.severity}">{text}</failure>')
        lines.append("  </testcase>")
    return "\n".join([*lines, "</testsuite>", ""])


def _annotation(one: Issue) -> str:
    message = _encode(escape(f"{one.pod + ': ' if one.pod else ''}{one.text} ({link(one.code)})"))
    file = f"file={_encode(escape(one.file), ':,')}," if one.file else ""
    return f"::{_COMMANDS[one.severity]} {file}title={one.code} {one.kind}::{message}"


def _encode(text: str, more: str = "") -> str:
    return text.translate({ord(sign): f"%{ord(sign):02X}" for sign in f"%\r\n{more}"})
