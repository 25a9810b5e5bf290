"""The doctor's judgement, where no kernel is asked."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import pytest

from core import settled
from netinit.base.errors import (
    ApplyError,
    BackendUnavailableError,
    BusyError,
    LateError,
    LockedError,
    NoBackendError,
    ParseError,
    ValidationLateError,
)
from netinit.base.json_answers import with_version
from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.snapshot import AttachedProgram, Device, Snapshot
from netinit.cli.doctor import render_text, to_object
from netinit.cli.start import run as run_program
from netinit.kernel import detect
from netinit.options import Options, offline
from netinit.pods.doctor import examination as examination_module
from netinit.pods.doctor import feature_checks, summarise
from netinit.pods.doctor import findings as find
from netinit.pods.doctor.examination import Examination
from netinit.pods.doctor.feature_checks import FEATURES, FeatureChecks, needed_features
from netinit.pods.doctor.findings import (
    ERROR,
    NOTE,
    Symptom,
    find_collisions,
    find_full_tracking,
    find_name_servers,
    find_settings,
)
from netinit.rules.foreign_targets import ForeignTarget
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import EMPTY_PLAN, Difference
from schemas import check_schema

SIDECAR = ("-u", "1337", "-b", "*", "-i", "*", "--ipv6", "on")
DNS = ("--redirect-dns", "--ipv6", "off")


def told(findings):
    return [f"{finding.severity} {finding.message}" for finding in findings]


# What is needed


@pytest.mark.parametrize(
    ("arguments", "there", "not_there"),
    [
        ((), {"nat", "REDIRECT", "owner", "REJECT", "conntrack", "addrtype"}, {"TPROXY", "policy routing", "CT zone", "multiport"}),
        (("--istio-exact",), {"nat", "REDIRECT", "owner"}, {"TPROXY", "policy routing", "CT zone", "conntrack", "multiport", "REJECT", "addrtype"}),
        (("-m", "TPROXY"), {"TPROXY", "policy routing", "conntrack", "mark", "connmark"}, {"CT zone"}),
        (("--redirect-dns", "--capture-all-dns"), {"CT zone"}, {"TPROXY"}),
        (("--drop-invalid",), {"conntrack"}, {"TPROXY"}),
        (("-m", "TPROXY", "--istio-exact"), {"TPROXY", "conntrack"}, {"REJECT", "addrtype"}),
    ],
)
def test_needed_is_what_the_plans_rules_use(arguments, there, not_there):
    needed = needed_features(settled(Options.from_argv([*SIDECAR, *arguments])))
    assert set(needed) == {"IPv4", "IPv6"}
    for names in needed.values():
        assert there <= names
        assert not not_there & names


@pytest.mark.parametrize("family", FAMILIES, ids=str)
@pytest.mark.parametrize("feature", FEATURES, ids=lambda one: one.name)
def test_a_features_rule_is_understood(feature, family):
    """Otherwise it is a rule for every packet, or of a class that no plan uses, and the feature is never needed."""
    rule = feature.rule(family)
    assert not any(isinstance(part, UnknownMatch | ForeignTarget) for part in (rule.target, *rule.matches))
    assert (rule.families, rule.comment, bool(rule.matches)) == ((family,), feature.name, True)


def test_a_backend_that_is_missing_is_loaded_once_and_not_again_for_each_feature(monkeypatch):
    loaded = []

    def load(*_):
        loaded.append(1)
        raise BackendUnavailableError("it is not installed")

    monkeypatch.setattr(feature_checks.backends, "load", load)
    causes = feature_checks._check_features("libiptc", Options(), IPV4)
    assert {str(cause) for cause in causes.values()} == {"it is not installed"}
    assert (len(causes), len(loaded)) == (len(FEATURES) + 1, 1)


def test_a_family_that_is_off_needs_nothing():
    options = Options.from_argv([*SIDECAR, "--ipv6", "off"])
    for families, needed in ((FAMILIES, {"IPv4"}), ((IPV4,), {"IPv4"}), ((IPV6,), set())):
        assert set(needed_features(options.settle(offline().replace(kernel_families=families)))) == needed


def test_a_backend_works_when_all_that_is_needed_works_and_was_tried():
    outcomes = {"IPv4": {"nat": "", "owner": "no xt_owner", "TPROXY": "no xt_TPROXY"}}
    checked = FeatureChecks("iptables-nft", outcomes)
    assert checked.works({"IPv4": frozenset({"nat"})})
    assert not checked.works({"IPv4": frozenset({"nat", "owner"})})
    assert not checked.works({"IPv6": frozenset({"nat"})})
    assert not FeatureChecks("iptables-nft", {}, "it died").works({})
    assert checked.problems({"IPv4": frozenset({"nat", "owner"})}) == {"no xt_owner": ["IPv4 owner"]}


@pytest.mark.parametrize("kind", [BusyError, LateError, LockedError, ValidationLateError])
def test_what_did_not_end_in_time_is_neither_usable_nor_unusable(kind, monkeypatch):
    def refuse(rules):
        return kind("too late") if any(rule.comment == "owner" for *_, rule in rules) else None

    monkeypatch.setattr(feature_checks, "renew", lambda: None)
    monkeypatch.setattr(feature_checks, "can_prove", lambda _: False)
    monkeypatch.setattr(feature_checks, "_check_routing", lambda _: None)
    monkeypatch.setattr(feature_checks, "_program", lambda *given: refuse(given[-1]))
    monkeypatch.setenv("XTABLES_LOCKFILE", "")
    checked = feature_checks._check_backend("iptables-nft", settled(Options.from_argv(SIDECAR)), None)
    assert checked.works({"IPv4": frozenset({"owner"})}) is None
    assert checked.judge(checked.outcomes["IPv4"]["owner"]) is None


def test_a_definite_failure_counts_more_than_a_late_one():
    checked = FeatureChecks("iptables-nft", {"IPv4": {"nat": "late", "owner": "no xt_owner"}}, unknown=frozenset({"late"}))
    assert checked.works({"IPv4": frozenset({"nat"})}) is None
    assert checked.works({"IPv4": frozenset({"nat", "owner"})}) is False


def sleep(*_):
    time.sleep(60)


@pytest.mark.parametrize("check", [sleep, lambda *_: os.kill(os.getpid(), 9)], ids=["late", "killed"])
def test_checks_without_a_result_prove_nothing_about_any_backend(check, monkeypatch):
    monkeypatch.setattr(feature_checks, "SECONDS", 0.1)
    monkeypatch.setattr(feature_checks, "_check_backend", check)
    found = feature_checks.check_backends(settled(Options.from_argv(SIDECAR)))
    assert {one.works({"IPv4": frozenset({"nat"})}) for one in found} == {None}
    assert all(one.failure for one in found)


def candidates(*names):
    return SimpleNamespace(candidates=lambda: [SimpleNamespace(backend=SimpleNamespace(name=name)) for name in names])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [("", "", ("iptables-nft", None)), ("late", "", ("", "iptables-nft")), ("no", "", ("nftables", None)), ("no", "late", ("", "nftables")), ("no", "no", ("", None))],
)
def test_a_backend_whose_checks_have_no_result_leaves_the_choice_open(first, second, expected):
    checks = tuple([FeatureChecks(name, {"IPv4": {"nat": cause}}, unknown=frozenset({"late"})) for name, cause in (("iptables-nft", first), ("nftables", second))])
    backend, undecided = examination_module._choose(candidates("iptables-nft", "nftables"), checks, {"IPv4": frozenset({"nat"})})
    assert (backend, undecided and undecided.backend) == expected


# Users


def test_an_application_that_is_the_proxy_is_an_error():
    options = Options.from_argv(["-u", "1337,1338"])
    assert told(find_collisions(options, (1338, 1000), (1000,))) == [
        "error the application runs as user 1338, which is the proxy's: none of its traffic is captured"
    ]
    assert told(find_collisions(options, (), (1337,))) == [
        "error the application runs as group 1337, which is the proxy's: none of its traffic is captured"
    ]
    classic = Options.from_argv(["--layout", "classic"])
    assert "the classic layout excludes root" in told(find_collisions(classic, (0,), ()))[0]


# Name servers


@pytest.mark.parametrize(
    ("text", "complaints"),
    [
        ("nameserver 10.96.0.10\nsearch svc\noptions ndots:5\n", []),
        ("", ["error --redirect-dns, but /etc/resolv.conf names no server: no DNS query is captured"]),
        ("# nameserver 10.0.0.1\n", ["error --redirect-dns, but"]),
        ("nameserver 127.0.0.53\n", ["warning nameserver 127.0.0.53 is a loopback address"]),
        ("nameserver fe80::1%eth0\n", ["warning nameserver fe80::1%eth0: the zone is dropped", "error nameserver fe80::1 is IPv6"]),
        ("nameserver fd00::a\n", ["error nameserver fd00::a is IPv6, which is not captured"]),
        ("nameserver dns.local\nnameserver 10.0.0.1\n", ["warning nameserver dns.local is not an address and is ignored"]),
        ("".join(f"nameserver 10.0.0.{n}\n" for n in range(1, 5)), ["note 4 name servers, of which resolvers ask the first 3"]),
    ],
)  # fmt: skip
def test_pitfalls_of_resolv_conf_are_told_when_dns_is_captured(text, complaints):
    found = told(find_name_servers(settled(Options.from_argv(DNS)), text))
    assert len(found) == len(complaints), found
    for line, complaint in zip(found, complaints, strict=True):
        assert line.startswith(complaint)
    assert not told(find_name_servers(settled(Options.from_argv(["--ipv6", "off"])), text)), "DNS is not captured"


def test_capturing_all_dns_needs_no_server():
    assert not told(find_name_servers(settled(Options.from_argv([*DNS, "--capture-all-dns"])), ""))
    assert not told(find_name_servers(settled(Options.from_argv([*DNS, "--dns-servers", "10.0.0.1"])), ""))


# Settings


def reading(**settings):
    known = {f"/proc/sys/net/{name}": f"{value}\n" for name, value in settings.items()}
    return lambda path: known.get(path, "")


def test_full_connection_tracking_is_an_error():
    full = {"netfilter/nf_conntrack_count": 100, "netfilter/nf_conntrack_max": 100}
    assert "connection tracking is full (100, nf_conntrack_max=100)" in told(find_full_tracking(reading(**full)))[0]
    assert not told(find_full_tracking(reading(**{**full, "netfilter/nf_conntrack_count": 99})))
    assert not told(find_full_tracking(reading())), "no connection tracking"


def test_programs_of_the_node_are_a_note_and_others_a_warning(monkeypatch):
    of_node = AttachedProgram(where="connect4 of the cgroup /", number=7, is_of_node=True)
    monkeypatch.setattr(find, "read_host", lambda: SimpleNamespace(links=()))
    monkeypatch.setattr(find, "read_programs", lambda *_: (of_node, of_node.replace(number=8, is_of_node=False)))
    noted, warned = told(find.find_bpf_programs())
    assert noted.startswith("note BPF program 7 (connect4 of the cgroup /) acts on every process of the node")
    assert warned.startswith("warning ")
    assert "program 8 (connect4 of the cgroup /)" in warned


@pytest.mark.parametrize(("marking", "severity"), [("0", ""), ("1", "error"), (None, "warning")])
def test_a_mark_that_counts_as_the_source_loses_what_tproxy_captures(monkeypatch, marking, severity):
    given = {"src_valid_mark": marking, "accept_local": "0", "rp_filter": "0"}
    links = [Device(index=number, name=name, flags=1) for number, name in enumerate(("lo", "eth0"), 1)]
    settings = [(f"ipv4/conf/{at}/{name}", value) for at in ("all", "eth0") for name, value in given.items() if value]
    monkeypatch.setattr(find, "read_host", lambda: Snapshot(links=tuple(links), settings=tuple(settings)))
    assert not told(find.find_lost_packets(settled(Options())))
    found = told(find.find_lost_packets(settled(Options(inbound_mode="TPROXY"))))
    assert [one.partition(" ")[0] for one in found] == [severity][: bool(severity)]
    assert all("IPv4 connections that come in through eth0" in one and "src_valid_mark" in one for one in found)


def test_settings_matter_only_where_they_do_harm():
    lo = {"ipv6/conf/lo/disable_ipv6": 1}
    assert "captured outbound IPv6 connections are lost" in told(find_settings(settled(Options(ipv6="on")), reading(**lo)))[0]
    assert not told(find_settings(settled(Options(ipv6="off")), reading(**lo)))
    mark = {"ipv4/tcp_fwmark_accept": 1}
    assert told(find_settings(settled(Options(inbound_mode="TPROXY")), reading(**mark)))
    assert not told(find_settings(settled(Options()), reading(**mark)))


# Telling


def examination(**changes):
    checked = FeatureChecks("iptables-nft", {"IPv4": {"nat": "", "owner": "no"}, "IPv6": {"nat": "", "owner": ""}})
    given = {
        "backend": "iptables-nft", "feature_checks": (checked, FeatureChecks("nftables", {}, "it died")),
        "needed": {"IPv4": frozenset({"nat"})}, "findings": (), "obstacle": "",
    }  # fmt: skip
    return Examination(**{**given, **changes})


def test_the_table_has_a_sign_for_each_family_and_marks_what_is_needed():
    assert render_text(examination()).splitlines() == [
        "       iptables-nft  nftables",
        "nat *  ✔/✔           ✘",
        "owner  ✘/✔           ✘",
        "(IPv4/IPv6; * these options need it)",
        "OK: pods on this node will use iptables-nft",
    ]


def test_an_error_decides_a_note_does_not():
    bad = examination(findings=(Symptom(ERROR, "users", "wrong", "do this"),))
    assert not bad.good
    assert render_text(bad).splitlines()[-3:] == [
        "✘ users: wrong", "    remedy: do this", "pods will not work, though iptables-nft programs rules"
    ]  # fmt: skip
    assert examination(findings=(Symptom(NOTE, "users", "so it is"),)).good
    assert not examination(backend="").good


def test_what_is_not_known_has_a_sign_of_its_own_and_decides_nothing():
    late = FeatureChecks("iptables-nft", {"IPv4": {"nat": "late", "owner": ""}}, unknown=frozenset({"late"}))
    lost = FeatureChecks("nftables", {}, "stopped", unknown=frozenset({"stopped"}))
    found = examination(feature_checks=(late, lost), backend="", unknown="the checks of iptables-nft have no result")
    assert render_text(found).splitlines() == [
        "       iptables-nft  nftables",
        "nat *  ?             ?",
        "owner  ✔             ?",
        "(IPv4; * these options need it; ? not known)",
        "not known whether pods will work: the checks of iptables-nft have no result",
    ]
    answer = with_version(to_object(found))
    check_schema(answer, "doctor")
    assert (answer["ok"], answer["unknown"]) == (False, "the checks of iptables-nft have no result")
    assert [one["works"] for one in answer["feature_checks"].values()] == [None, None]
    bad = examination(backend="", unknown="late", findings=(Symptom(ERROR, "users", "wrong"),))
    assert render_text(bad).splitlines()[-1] == "pods will not work"


def test_what_was_not_tried_is_not_claimed():
    text = render_text(examination(feature_checks=(), obstacle="SYS_ADMIN is missing"))
    assert text.startswith("not tried: SYS_ADMIN is missing\n")
    assert "probably OK, without trying it: pods on this node will use iptables-nft" in text


def test_json_says_the_same():
    answer = with_version(to_object(examination(findings=(Symptom(ERROR, "users", "wrong", "do this"),))))
    check_schema(answer, "doctor")
    assert (answer["ok"], answer["backend"], answer["obstacle"]) == (False, "iptables-nft", None)
    assert answer["feature_checks"]["iptables-nft"]["features"]["IPv4"] == {"nat": {"works": True, "cause": None}, "owner": {"works": False, "cause": "no"}}
    assert answer["feature_checks"]["nftables"] == {"works": False, "failure": "it died", "features": {}, "promises": {}}
    assert answer["findings"] == [{"severity": "error", "subject": "users", "message": "wrong", "remedy": "do this"}]


# The short form

NOTHING = NoBackendError("no backend works here:\n  iptables-nft: no", of_kernel=True)


def test_the_short_form_is_for_want_of_a_backend_alone():
    assert summarise(ApplyError("something else")) == ""
    assert summarise(BackendUnavailableError("NET_ADMIN is missing (uid 0): run as user 0")) == ""
    lines = summarise(NOTHING).splitlines()
    assert 1 <= len(lines) <= 3
    assert all(line.startswith("doctor: ") for line in lines)


def test_modules_are_advised_only_where_the_error_says_that_the_kernel_lacks_something(monkeypatch):
    monkeypatch.setattr(detect, "has_capability", lambda _: True)
    monkeypatch.setattr("netinit.pods.doctor.can_help", lambda _: True)
    assert "doctor: modules are likely missing" in summarise(NOTHING)
    monkeypatch.setattr("netinit.pods.doctor.can_help", lambda _: False)
    assert "doctor: this kernel loads no modules" in summarise(NOTHING)
    assert "modprobe" not in summarise(NOTHING)
    assert summarise(NoBackendError("no backend works here:\n  libiptc: python-iptables 1.2.0 serves iptables 1.8.9")) == ""


def test_the_short_form_never_raises_and_never_hides_the_error(monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError

    monkeypatch.setattr(detect, "has_capability", fail)
    assert summarise(NOTHING) == ""

    def refuse(*_, **__):
        raise NOTHING

    monkeypatch.setattr("netinit.cli.init_container.do", refuse)
    monkeypatch.setattr("netinit.pods.doctor.summarise", fail)
    assert run_program(["istio-iptables"], {}) == 1
    assert "no backend works here:" in capsys.readouterr().err


def test_a_failing_apply_ends_with_the_short_form(monkeypatch, capsys):
    def refuse(*_, **__):
        raise NOTHING

    told = []
    monkeypatch.setattr("netinit.cli.init_container.do", refuse)
    monkeypatch.setattr("netinit.cli.fatal_errors.write_termination_log", told.append)
    monkeypatch.setattr(detect, "has_capability", lambda number: number != detect.CAP_NET_RAW)
    assert run_program(["istio-iptables"], {}) == 1
    for text in (capsys.readouterr().err, *told):
        assert "no backend works here:" in text
        assert "doctor: NET_RAW missing, which legacy iptables needs: set securityContext.capabilities.add: [NET_ADMIN, NET_RAW]" in text
    assert len(told) == 1


def test_a_command_that_is_not_apply_ends_with_its_error_alone(monkeypatch, capsys):
    def refuse(*_, **__):
        raise NOTHING

    monkeypatch.setattr("netinit.cli.verify.compare", refuse)
    monkeypatch.setattr(detect, "has_capability", lambda number: number != detect.CAP_NET_RAW)
    assert run_program(["netinit", "verify", "-b", "80"], {}) == 1
    said = capsys.readouterr().err
    assert "no backend works here:" in said
    assert "doctor:" not in said


def test_a_user_that_does_not_exist_is_named(capsys):
    assert run_program(["netinit", "doctor", "--uid", "nobody-here"], {}) == 2
    assert "--uid: 'nobody-here'" in capsys.readouterr().err


@pytest.mark.parametrize(("chains", "more"), [(["A"], ""), (["A", "B"], ", and 1 more"), (["A", "B", "C"], ", and 2 more")])
def test_what_is_not_in_force_is_named_with_the_number_of_the_rest(chains, more, monkeypatch):
    differences = [Difference(kind="missing", where="IPv4", table="nat", chain=name) for name in chains]
    shown = Options(), "", SimpleNamespace(make_plan=None), None
    monkeypatch.setattr("netinit.pods.doctor.findings.infer_run", lambda _: shown)
    monkeypatch.setattr("netinit.pods.doctor.findings.verify", lambda _, **__: SimpleNamespace(differences=differences, plan=EMPTY_PLAN, backend=""))
    expected = f"warning the rules here do not capture what they should: missing: IPv4 nat A: the chain itself{more}"
    assert told(find.find_escapes(Options())) == [expected]
    differences.clear()
    assert told(find.find_escapes(Options())) == []


def test_rules_that_cannot_be_read_are_not_said_to_be_in_force(monkeypatch):
    def fail(_):
        raise ParseError("line 3 of the listing")

    monkeypatch.setattr("netinit.pods.doctor.findings.infer_run", fail)
    assert told(find.find_escapes(Options())) == ["warning whether the rules here are in force is not known: line 3 of the listing"]
