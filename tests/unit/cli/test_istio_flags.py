"""Under the name istio-iptables every flag and variable of every Istio release since 1.4 is accepted, and no other."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from netinit.cli import start
from netinit.options import Options, older_istio

DATA = Path(__file__).parents[2] / "conformance" / "istio_flags.yaml"
SWITCHES = frozenset((
    "dry-run", "restore-format", "skip-rule-apply", "run-validation", "redirect-dns", "capture-all-dns", "cni-mode", "drop-invalid",
    "dual-stack", "iptables-trace-logging", "host-nsenter-exec", "cleanup-only", "force-apply", "reconcile", "native-nftables",
    "log_as_json",
))  # fmt: skip
VALUES = {
    "istio-inbound-interception-mode": "TPROXY", "istio-service-cidr": "10.0.0.0/8", "istio-service-exclude-cidr": "10.1.0.0/16",
    "kube-virt-interfaces": "net1", "istio-exclude-interfaces": "net1", "probe-timeout": "3s", "log_output_level": "default:info",
    "network-namespace": "/proc/self/ns/net", "force-iptables-binary": "nft", "output-paths": "/tmp/rules",
}  # fmt: skip
OF_VARIABLES = {
    "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR": "127.0.0.0/8", "ISTIO_OUTBOUND_OWNER_GROUPS": "101", "ENVOY_USER": "root", "DNS_CAPTURE": "ALL",
    "DNS_AGENT": "ALL", "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE": "101", "DRY_RUN_FILE_PATH": "/tmp/rules", "STUB_IP": "127.0.0.1",
}  # fmt: skip
OURS = {name for flag in Options.flags for name in (flag.long, *flag.aliases)}
OUR_VARIABLES = {name for flag in Options.flags for name in flag.variables} | {"ENVOY_USER"} | set(older_istio.RENAMED)


def read_releases():
    """Each release with all flags that it has, (letter, variables) by name, and its variables without a flag."""
    flags, variables = {}, []
    for one in yaml.safe_load(DATA.read_text("utf-8")):
        flags = {name: flag for name, flag in {**flags, **one.get("added", {})}.items() if name not in one.get("removed", ())}
        variables = [name for name in (*variables, *one.get("variables", ())) if name not in one.get("variables_removed", ())]
        yield one["release"], flags, variables


RELEASES = list(read_releases())


def value_of(name):
    return "true" if name in SWITCHES else VALUES.get(name, "1338")


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command line under that name, and gives its exit code, the options that it came to, and the notices."""
    found = []

    def do(options, log=None, notices=()):
        found.append((options, tuple(notices)))
        return 0

    monkeypatch.setattr("netinit.cli.init_container.do", do)

    def run(words, environ=None, program="istio-iptables"):
        found.clear()
        code = start.run([program, *words], environ or {})
        options, notices = found[0] if found else (None, ())
        return code, options, notices, capsys.readouterr().err

    return run


def test_the_data_is_of_every_release_from_1_4():
    assert RELEASES[0][0] == "1.4.0"
    assert len(RELEASES) > 20
    assert {name for _, flags, _ in RELEASES for name in flags} >= {
        "restore-format", "iptables-version", "iptables-trace-logging", "output-paths", "host-nsenter-exec",
    }  # fmt: skip


@pytest.mark.parametrize(("release", "flags", "variables"), RELEASES, ids=[release for release, _, _ in RELEASES])
def test_every_flag_of_a_release_has_its_meaning_or_a_notice(run, release, flags, variables):
    for name, flag in flags.items():
        value = value_of(name)
        ways = [([f"--{name}={value}"], {}), ([f"--{name}"] if name in SWITCHES else [f"--{name}", value], {})]
        ways += [([f"-{flag['short']}"] if name in SWITCHES else [f"-{flag['short']}", value], {})] * bool(flag["short"])
        ways += [([], {variable: value}) for variable in flag["variables"]]
        for words, environ in ways:
            more = ["--dry-run"] if name == "cni-mode" else []
            code, options, notices, err = run([*words, *more], environ)
            assert (code, err) == (0, ""), (release, name, words, environ)
            effective = name in OURS and "ENVOY_PORT" not in environ
            assert len(notices) == (not effective), (release, name, notices)
            assert effective == (options != Options.from_argv(more)) or value == "default:info"
    for name in variables:
        code, _, notices, err = run([], {name: OF_VARIABLES.get(name, "true")})
        assert (code, err) == (0, "")
        assert len(notices) == (name not in OUR_VARIABLES), (release, name, notices)


def test_a_notice_says_why_and_a_renamed_variable_keeps_its_meaning(run):
    _, _, notices, _ = run(["-f", "-b", "80", "--log_caller", "default"], {"RESTORE_FORMAT": "true"})
    assert notices[:2] == (
        "-f: has no effect here: rules are always committed at once",
        "--log_caller: has no effect here: events are lines on stderr; --log_output_level and --log_as_json select them",
    )
    assert notices[2].startswith("RESTORE_FORMAT: has no effect here")
    assert run([], {"DNS_AGENT": "ALL"})[1].redirect_dns
    assert not run([], {"DNS_AGENT": "ALL", "ISTIO_META_DNS_CAPTURE": "false"})[1].redirect_dns
    assert run([], {"ISTIO_AGENT_DUAL_STACK": "true"})[1].dual_stack
    assert not run([], {"ISTIO_AGENT_DUAL_STACK": "false"})[1].dual_stack
    assert run([], {"ENVOY_PORT": "tcp://10.0.0.1:80"})[2] == ()
    assert run([], {"ENVOY_PORT": "80"})[2] == ("ENVOY_PORT: has no effect here: a Service of that name would set it; use --envoy-port",)
    assert run([], {"VKLOG": "1", "LOG_TARGET": "stdout", "ISTIO_LOG_CALLER": "x"})[2] == ()  # Istio's logging flags have no variables


def test_a_flag_that_never_existed_is_an_error_and_older_ones_are_of_that_name_alone(run):
    code, options, _, err = run(["--restore-forma", "--restore-format", "-b", "80"])
    assert (code, options) == (1, None)
    assert err.count("\n") == 1
    assert "'--restore-forma' is not an option" in err
    for name in {name for _, flags, _ in RELEASES for name in flags} - OURS:
        code, options, _, err = run(["apply", f"--{name}"], program="netinit")
        assert (code, options) == (2, None)
        assert f"'--{name}' is not an option" in err
