"""A plan as text: what iptables-restore takes, what a shell takes, what a program takes."""

from __future__ import annotations

import json
import re
import shlex
from hashlib import sha256
from importlib.resources import files

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core import plan
from netinit.base.net import IPV4, IPV6
from netinit.options import Options
from netinit.rules import render
from netinit.rules.model import EMPTY_PLAN
from netinit.rules.nft import render_script
from restore_grammar import check
from strategies import made_ambient_options, made_options

SCHEMA = json.loads(files("netinit").joinpath("data/plan.schema.json").read_text("utf-8"))
CLASSIC = """\
iptables -t nat -N ISTIO_REDIRECT
iptables -t nat -N ISTIO_IN_REDIRECT
iptables -t nat -N ISTIO_INBOUND
iptables -t nat -N ISTIO_OUTPUT
iptables -t nat -A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001
iptables -t nat -A ISTIO_IN_REDIRECT -p tcp -j REDIRECT --to-ports 15001
iptables -t nat -A PREROUTING -p tcp -j ISTIO_INBOUND
iptables -t nat -A ISTIO_INBOUND -p tcp -m tcp --dport 80 -j ISTIO_IN_REDIRECT
iptables -t nat -A OUTPUT -p tcp -j ISTIO_OUTPUT
iptables -t nat -A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -j ISTIO_REDIRECT
iptables -t nat -A ISTIO_OUTPUT -m owner --uid-owner 1337 -j RETURN
iptables -t nat -A ISTIO_OUTPUT -m owner --gid-owner 1337 -j RETURN
iptables -t nat -A ISTIO_OUTPUT -d 127.0.0.1/32 -j RETURN
iptables -t nat -A ISTIO_OUTPUT -j ISTIO_REDIRECT
ip6tables -t filter -A INPUT -m state --state ESTABLISHED -j ACCEPT
ip6tables -t filter -A INPUT -d ::1/128 -i lo -j ACCEPT
ip6tables -t filter -A INPUT -j REJECT --reject-with icmp6-port-unreachable
"""
SIDECAR = Options(inbound_ports="*", outbound_cidrs="*", exclude_inbound_ports="15090", ipv6="on")


def validate(value, schema, place="$"):
    """Raises AssertionError where the value is not as the schema wants it; knows the keywords that our schema uses."""
    known = {"$schema", "$defs", "title", "description", "type", "required", "additionalProperties", "properties", "items", "enum", "const", "pattern", "minimum"}
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        return validate(value, SCHEMA["$defs"][name], place)
    assert not set(schema) - known, f"this validator does not know {set(schema) - known}"
    types = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
    if "type" in schema:
        assert type(value) is types[schema["type"]], f"{place}: {value!r} is no {schema['type']}"
    assert value == schema.get("const", value), f"{place}: {value!r}"
    assert value in schema.get("enum", [value]), f"{place}: {value!r}"
    if "pattern" in schema:
        assert re.search(schema["pattern"], value), f"{place}: {value!r} is not like {schema['pattern']}"
    assert "minimum" not in schema or value >= schema["minimum"], f"{place}: {value!r}"
    if isinstance(value, dict):
        assert set(schema["required"]) <= set(value), f"{place}: {set(schema['required']) - set(value)} missing"
        assert set(value) <= set(schema["properties"]), f"{place}: {set(value) - set(schema['properties'])} not in the schema"
        for key, one in value.items():
            validate(one, schema["properties"][key], f"{place}.{key}")
    if isinstance(value, list):
        for number, one in enumerate(value):
            validate(one, schema["items"], f"{place}[{number}]")
    return None


def test_the_validator_of_these_tests_notices_what_is_wrong():
    good = render.describe_plan(plan(SIDECAR))
    validate(good, SCHEMA)
    rule = good["rules"][0]
    for key, bad in (("number", 0), ("number", "1"), ("family", "IPv5"), ("text", "-j ACCEPT\n-A OUTPUT"), ("chain", "evil chain"), ("more", 1)):
        with pytest.raises(AssertionError):
            validate({**good, "rules": [{**rule, key: bad}]}, SCHEMA)
    for key in SCHEMA["required"]:
        with pytest.raises(AssertionError):
            validate({name: value for name, value in good.items() if name != key}, SCHEMA)


@settings(max_examples=60)
@example(Options(reject_quic=True, log_rules=True, ipv6="on"))  # a protocol negated
@given(st.one_of(made_options(), made_ambient_options()))
def test_every_rendering_tells_the_same_rules(options):
    made = plan(options)
    names = frozenset(options.exclude_interfaces + options.virtual_interfaces)
    described = json.loads(render.render_json(made))
    validate(described, SCHEMA)
    restore = render.render_restore(made)
    commands = [line for line in render.render_commands(made).splitlines() if line.startswith("ip") and " -t " in line]
    rules = [line.partition(" -A ")[2] or line.partition(" -I ")[2] for line in commands if " -N " not in line]
    assert check(restore, names) == len(rules) == len(described["rules"])
    assert [line[3:] for line in restore.splitlines() if line.startswith(("-A ", "-I "))] == rules
    written = [f"{r['chain']} {r['number']} {r['text']}" if r["inserted"] else f"{r['chain']} {r['text']}" for r in described["rules"]]
    assert written == rules
    routing = len(described["ip_rules"]) + len(described["routes"]) + len(described["addresses"])
    assert restore.count("# also: ") == routing


def test_a_section_can_be_had_for_one_family():
    made = plan(SIDECAR)
    four, six = render.render_restore(made, [IPV4]), render.render_restore(made, [IPV6])
    assert render.render_restore(made) == four + six
    assert four.startswith("# IPv4, for iptables-restore --noflush\n*nat\n")
    assert six.startswith("# IPv6, for ip6tables-restore --noflush\n*nat\n")
    assert "127.0.0.6" not in six
    assert six.endswith("COMMIT\n# also: ip -6 address add ::6/128 dev lo\n")
    assert {rule["family"] for rule in render.describe_plan(made, [IPV6])["rules"]} == {"IPv6"}


def test_commands_hold_what_iptables_cannot_do():
    lines = render.render_commands(plan(SIDECAR.replace(inbound_mode="TPROXY"))).splitlines()
    assert "ip -4 rule add fwmark 0x539 lookup 133" in lines
    assert "ip -4 route add local default dev lo table 133" in lines
    assert "ip -6 address add ::6/128 dev lo" in lines
    assert "iptables -t nat -N ISTIO_INBOUND" in lines
    assert "ip6tables -t nat -A OUTPUT -j ISTIO_OUTPUT" in lines


def test_the_hash_tells_what_is_programmed_and_nothing_else():
    base = render.hash_plan(plan(SIDECAR))
    assert base == render.hash_plan(plan(SIDECAR.replace(rule_comments=True, log_as_json=True, backend="nftables")))
    assert base == render.describe_plan(plan(SIDECAR), [IPV4])["hash"]
    made = plan(SIDECAR)
    assert base == render.hash_plan(made.replace(warnings=("mind this",)))
    changed = [SIDECAR.replace(**{k: v}) for k, v in (("outbound_port", 15002), ("ipv6", "off"), ("exclude_inbound_ports", ()), ("inbound_mode", "TPROXY"))]
    assert len({base, *[render.hash_plan(plan(one)) for one in changed]}) == 5


def test_the_hash_is_the_same_in_every_run_and_version_that_programs_the_same():
    made = plan(Options(layout="classic", inbound_ports="80", outbound_cidrs="*", proxy_uids="1337", ipv6="off", istio_exact=True))
    assert render.render_commands(made) == CLASSIC
    assert render.hash_plan(made) == f"sha256:{sha256(CLASSIC.encode()).hexdigest()}"


def test_every_rule_says_why_it_exists_and_which_option_made_it():
    for rule in render.describe_plan(plan(SIDECAR.replace(inbound_mode="TPROXY", redirect_dns=True, capture_all_dns=True)))["rules"]:
        assert len(rule["comment"]) > 5, rule
        assert re.fullmatch(r"--[a-z_-]+|[A-Z0-9_]+|always", rule["origin"]), rule


def test_the_empty_plan_is_empty_in_every_form():
    assert render.render_restore(EMPTY_PLAN) == render.render_commands(EMPTY_PLAN) == ""
    validate(render.describe_plan(EMPTY_PLAN), SCHEMA)


def test_a_plan_is_rendered_in_the_form_that_is_asked_for():
    made = plan(SIDECAR)
    assert render.render(made) == render.render_restore(made)
    assert render.render(made, "restore", [IPV6], comments=True) == render.render_restore(made, [IPV6], comments=True)
    assert render.render(made, "commands", [IPV4], comments=True) == render.render_commands(made, [IPV4], comments=True)
    assert render.render(made, "json", [IPV6]) == render.render_json(made, [IPV6])
    assert render.render(made, "nft", [IPV4], comments=True) == render_script(made, comments=True)
    for form in render.FORMATS[:2]:
        assert " --comment " in render.render(made, form, comments=True)
        assert " --comment " not in render.render(made, form)
    assert ' comment "' not in render.render(made, "nft")
    with pytest.raises(ValueError, match=r"^'yaml' is not one of restore, commands, json, nft$"):
        render.render(made, "yaml")


def test_what_is_no_rule_stands_beside_the_rules_of_its_family():
    made = plan(SIDECAR.replace(inbound_mode="TPROXY"))
    four = ["ip -4 rule add fwmark 0x539 lookup 133", "ip -4 route add local default dev lo table 133"]
    six = ["ip -6 address add ::6/128 dev lo", *[command.replace("-4", "-6") for command in four]]
    assert (render.ip_commands(made, IPV4), render.ip_commands(made, IPV6)) == (four, six)
    assert render.render_restore(made, [IPV4]).splitlines()[0] == "# IPv4, for iptables-restore --noflush"
    assert render.render_restore(made, [IPV4]).splitlines()[-2:] == [f"# also: {command}" for command in four]
    assert render.render_commands(made, [IPV6]).splitlines()[-3:] == six
    assert {line.split()[0] for line in render.render_commands(made, [IPV6]).splitlines()} == {"ip6tables", "ip"}
    assert json.loads(render.render_json(made, [IPV6])) == json.loads(json.dumps(render.describe_plan(made, [IPV6])))
    described = render.describe_plan(made, [IPV6])
    assert described["addresses"] == [{"family": "IPv6", "cidr": "::6/128", "device": "lo"}]
    assert described["ip_rules"] == [{"family": "IPv6", "fwmark": 1337, "table": 133}]
    assert described["routes"] == [{"family": "IPv6", "table": 133, "type": "local", "destination": "default", "device": "lo"}]
    assert render.describe_plan(made, [IPV4])["addresses"] == []


def test_a_policy_rule_with_a_place_of_its_own_is_described_with_its_mask():
    described = render.describe_plan(plan(Options(layout="ambient", ipv6="off")))
    assert described["ip_rules"] == [{"family": "IPv4", "fwmark": 0x111, "table": 100, "mask": 0xFFF, "priority": 32764}]


def test_the_json_is_indented_by_two_and_ends_a_line():
    text = render.render_json(plan(SIDECAR))
    assert text == json.dumps(render.describe_plan(plan(SIDECAR)), indent=2) + "\n"


def test_an_apostrophe_in_a_comment_is_as_a_shell_reads_it():
    first = plan(SIDECAR).tables[0]
    rule = first.chains[0].rules[0].replace(comment="the pod's own")
    made = plan(SIDECAR).replace(tables=(first.replace(chains=(first.chains[0].replace(rules=(rule,), inserted=()),)),))
    line = next(line for line in render.render_commands(made, [IPV4], comments=True).splitlines() if "own" in line)
    assert "the pod's own" in shlex.split(line)


def test_the_json_tells_built_in_chains_and_inserted_rules_from_the_others():
    described = render.describe_plan(plan(SIDECAR.replace(virtual_interfaces=("a",))), [IPV4])
    chains = {(one["table"], one["name"]): one["builtin"] for one in described["chains"]}
    assert chains["nat", "OUTPUT"] is True
    assert chains["nat", "ISTIO_OUTPUT"] is False
    rules = [(one["number"], one["inserted"], one["text"]) for one in described["rules"] if one["chain"] == "PREROUTING"]
    assert rules == [(1, True, "-i a -j ISTIO_REDIRECT"), (2, True, "-i a -j RETURN"), (3, False, "-p tcp -j ISTIO_INBOUND")]


def test_what_is_routed_by_a_mark_in_one_family_is_not_in_the_other():
    made = plan(SIDECAR.replace(inbound_mode="TPROXY"))
    one = made.replace(ip_rules=made.ip_rules[:1], routes=made.routes[:1], addresses=())
    assert render.ip_commands(one, IPV4) == ["ip -4 rule add fwmark 0x539 lookup 133", "ip -4 route add local default dev lo table 133"]
    assert render.ip_commands(one, IPV6) == []
