"""The doctor against the kernel: what it says is missing is missing, and what it says gets lost gets lost."""

from __future__ import annotations

import fcntl
import importlib.util
import json
import os
import subprocess
import sys

import pytest

from lab_state import describe_state
from laboratory import start_servers
from lacking_kernel import build, lacking
from netinit.base.net import IPV4
from netinit.kernel.capabilities import PERSON, find_situation
from netinit.kernel.modules import can_help
from netinit.lab import APP_ID, PROXY_ID
from netinit.options import Options
from netinit.pods.doctor.examination import examine
from netinit.pods.doctor.findings import ERROR
from programming import (
    SIDECAR,
    WITHOUT_PROGRAMS,
    apply_in,
    check_same,
    load,
    needs,
    run_tool,
)
from readable import NOBODY

REDIRECT = (*SIDECAR, "--ipv6", "on")
TPROXY = (*REDIRECT, "-m", "TPROXY")


def ask(pod, *arguments, **more):
    """Exit code and answer of the doctor."""
    done = run_tool(pod, "doctor", "--json", *arguments, **more)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def look(pod, *arguments, prefix=()):
    """The answer where it only looks at the pod. What it tries elsewhere, in namespaces of its own, takes five times as long."""
    code, answer = ask(pod, *arguments, prefix=prefix, without=("sys_admin",))
    assert answer["obstacle"].startswith("SYS_ADMIN is missing")
    return code, answer


def messages(answer, severity=ERROR):
    return [finding["message"] for finding in answer["findings"] if finding["severity"] == severity]


@pytest.mark.parametrize("arguments", [REDIRECT, (*TPROXY, "--redirect-dns", "--capture-all-dns", "--drop-invalid")])
def test_on_a_good_node_every_backend_was_tried_and_nothing_stays(pod, arguments):
    for name in ("iptables-nft", "iptables-legacy"):
        needs(name)
    before = describe_state(pod)
    code, answer = ask(pod, *arguments)
    check_same(describe_state(pod), before, "the doctor left a trace")
    assert (code, answer["ok"], answer["backend"]) == (0, True, "iptables-nft"), answer["findings"]
    assert set(answer["feature_checks"]) == {"iptables-nft", "iptables-legacy", "nftables", "libiptc"}
    for name, checked in answer["feature_checks"].items():
        if name == "libiptc" and importlib.util.find_spec("iptc") is None:
            assert "python-iptables: not installed" in json.dumps(checked)
            continue
        lacks = {(family, name): why for family, found in checked["features"].items() for name, why in found.items() if not why["works"]}
        assert (lacks, checked["failure"], checked["works"]) == ({}, None, True)
        assert [len(checked["features"][family]) for family in ("IPv4", "IPv6")] == [17, 17]


def test_the_pod_of_another_process_can_be_examined(pod):
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-nft"]))
    with pod.client.entered():
        found = examine(Options.from_argv([*REDIRECT, "--pid", str(pod.pid)]))
    assert found.good
    assert not [one for one in found.findings if one.subject == "namespace"], "a pod's is neither the machine's nor this process's"
    assert "rules of an earlier run are in iptables-nft; netinit verify compares them" in [one.message for one in found.findings]


@pytest.mark.parametrize("named", ["--pid", "--netns"])
def test_the_namespace_of_another_process_is_not_called_the_commands_own(named, pod):
    place = str(pod.pid) if named == "--pid" else f"/proc/{pod.pid}/ns/net"
    done = subprocess.run([sys.executable, "-m", "netinit", "doctor", "--json", named, place], capture_output=True, text=True, check=False)
    assert not [one for one in json.loads(done.stdout)["findings"] if one["subject"] == "namespace"]
    own = subprocess.run([sys.executable, "-m", "netinit", "doctor", "--json", "--pid", str(os.getpid())], capture_output=True, text=True, check=False)
    (warning,) = [one for one in json.loads(own.stdout)["findings"] if one["subject"] == "namespace"]
    assert "network namespace" in warning["message"]


def test_a_feature_that_the_kernel_lacks_is_named_with_its_module_and_auto_goes_on(pod, tmp_path):
    """On a node without xt_owner; native tables need none."""
    needs("iptables-nft")
    broken = lacking(build(tmp_path), "owner")
    code, answer = ask(pod, *REDIRECT, prefix=broken)
    assert (code, answer["backend"]) == (0, "nftables")
    features = answer["feature_checks"]["iptables-nft"]["features"]["IPv4"]
    assert "IPv4 table nat chain OUTPUT rule 1 (`-m owner" in features["owner"]["cause"]
    assert [name for name, cause in features.items() if not cause["works"]] == ["owner", "a connection captured"]

    code, answer = ask(pod, *REDIRECT, "--backend", "iptables-nft", prefix=broken)
    assert code == 1
    found = [one for one in answer["findings"] if one["severity"] == ERROR]
    assert len(found) == 2
    for finding, family in zip(found, ("IPv4", "IPv6"), strict=True):
        assert finding["subject"] == "iptables-nft"
        assert finding["message"].endswith(f"({family} owner)")
        cannot = "none: this kernel has no xt_owner, and modprobe cannot add it"
        assert finding["remedy"] == ("on the node: modprobe -a xt_owner" if can_help("xt_owner") else cannot)


@pytest.mark.mounts
def test_without_programs_iptables_nft_serves_and_a_named_backends_package_is_named(pod):
    code, answer = ask(pod, *REDIRECT, prefix=WITHOUT_PROGRAMS)
    assert (code, answer["backend"]) == (0, "iptables-nft")
    for name in ("iptables-nft", "iptables-legacy"):
        code, answer = ask(pod, *REDIRECT, "--backend", name, prefix=WITHOUT_PROGRAMS)
        assert (code, answer["backend"]) == (0, name)


def test_without_net_admin_one_finding_says_so(pod):
    code, answer = ask(pod, *REDIRECT, without=("net_admin",))
    assert code == 1
    assert messages(answer) == ["this is root, but without NET_ADMIN: no rule can be programmed"]
    failed = run_tool(pod, *REDIRECT, without=("net_admin",), env={"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert "NET_ADMIN is missing (uid 0): run the init container with securityContext" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_as_an_ordinary_user_one_finding_says_so(pod, readable):
    code, answer = ask(pod, *REDIRECT, prefix=[*readable, *NOBODY])
    assert code == 1
    assert messages(answer) == ["this is uid 65534 without NET_ADMIN: no rule can be programmed"]


@pytest.mark.parametrize(("environ", "way_on"), [({}, "run it as root"), ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "run the doctor as root in a privileged container")])
def test_what_an_ordinary_user_cannot_try_is_not_called_broken(pod, readable, environ, way_on):
    done = run_tool(pod, "doctor", *REDIRECT, prefix=[*readable, *NOBODY], env=environ)
    *_, last = done.stdout.splitlines()
    assert done.returncode == 1
    assert done.stdout.startswith("not tried: NET_ADMIN is missing for an isolated namespace")
    assert last.startswith("not known whether pods will work: NET_ADMIN is missing"), done.stdout
    if environ or find_situation() == PERSON:
        assert way_on in last
    assert "will not work" not in done.stdout


@pytest.mark.mounts
def test_without_sys_admin_it_only_looks_and_says_so(pod):
    before = describe_state(pod)
    code, answer = look(pod, *REDIRECT)
    check_same(describe_state(pod), before, "looking left a trace")
    assert (code, answer["backend"], answer["feature_checks"]) == (0, "iptables-nft", {})
    code, answer = look(pod, *REDIRECT, prefix=WITHOUT_PROGRAMS)
    assert (code, answer["backend"]) == (0, "iptables-nft")


def test_without_net_raw_legacy_fails_and_nft_is_taken(pod):
    needs("iptables-nft")
    code, answer = ask(pod, *REDIRECT, without=("net_raw",))
    assert (code, answer["backend"]) == (0, "iptables-nft")
    assert not answer["feature_checks"]["iptables-legacy"]["works"]
    assert not answer["feature_checks"]["libiptc"]["works"]


def test_a_held_lock_is_found_with_its_holder_and_hinders_no_trial(pod, tmp_path):
    needs("iptables-legacy")
    path = tmp_path / "xtables.lock"
    path.touch()
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        code, answer = ask(pod, *REDIRECT, env={"XTABLES_LOCKFILE": str(path)})
    (message,) = messages(answer, "warning")
    assert message.startswith(f"the lock of legacy iptables ({path}) is held by process {os.getpid()} (")
    assert (code, answer["feature_checks"]["iptables-legacy"]["works"]) == (0, True)


def test_rules_in_two_variants_are_an_error(pod):
    for variant in ("iptables-nft", "iptables-legacy"):
        needs(variant)
        load(pod, variant, IPV4, "*nat\n:ISTIO_OUTPUT - [0:0]\n-A OUTPUT -p tcp -j ISTIO_OUTPUT\nCOMMIT\n")
    code, answer = ask(pod, *REDIRECT)
    assert code == 1
    assert messages(answer) == [
        "rules of Istio or netinit are in iptables-nft and iptables-legacy: connections are captured twice"
    ]


def test_rules_in_another_variant_than_the_one_asked_for_are_an_error(pod):
    needs("iptables-legacy")
    apply_in(pod, Options.from_argv([*REDIRECT, "--backend", "iptables-legacy"]))
    code, answer = ask(pod, *REDIRECT, "--backend", "iptables-nft")
    assert code == 1
    assert messages(answer) == ["rules of an earlier run are in iptables-legacy, but iptables-nft would be taken"]


def test_an_application_with_the_proxys_user_is_found(pod):
    assert look(pod, *REDIRECT, "--uid", str(APP_ID))[0] == 0
    code, answer = look(pod, *REDIRECT, "--uid", str(APP_ID), "--uid", str(PROXY_ID))
    assert code == 1
    assert messages(answer) == ["the application runs as user 1337, which is the proxy's: none of its traffic is captured"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("search local\n", "names no server: no DNS query is captured"),
        ("nameserver fd00::a\n", "nameserver fd00::a is IPv6, which is not captured"),
    ],
)
@pytest.mark.mounts
def test_pitfalls_of_the_resolv_conf_of_the_container_are_found(pod, tmp_path, text, message):
    path = tmp_path / "resolv.conf"
    path.write_text(text)
    mount = ["unshare", "-m", "sh", "-c", f'mount --bind {path} /etc/resolv.conf && exec "$@"', "sh"]
    code, answer = look(pod, *SIDECAR, "--ipv6", "off", "--redirect-dns", prefix=mount)
    assert code == 1
    assert message in messages(answer)[0]


# Settings: what the doctor says, and that it is so

LOST = {
    "src_valid_mark": (TPROXY, {"net/ipv4/conf/all/src_valid_mark": 1}, ("10.77.0.2",)),
    "src_valid_mark, accept_local and rp_filter": (
        TPROXY,
        {"net/ipv4/conf/all/src_valid_mark": 1, "net/ipv4/conf/all/accept_local": 1, "net/ipv4/conf/eth0/rp_filter": 1},
        ("10.77.0.2",),
    ),
    "src_valid_mark of eth0": (TPROXY, {"net/ipv4/conf/eth0/src_valid_mark": 1}, ("10.77.0.2",)),
    "tcp_fwmark_accept": (TPROXY, {"net/ipv4/tcp_fwmark_accept": 1}, ("10.77.0.2", "fd77::2")),
}  # fmt: skip


@pytest.mark.parametrize("what", LOST)
def test_settings_that_lose_inbound_connections_are_found(pod, what):
    arguments, settings, hosts = LOST[what]
    apply_in(pod, Options.from_argv(arguments))
    start_servers(pod, transparent=(15006,))
    assert look(pod, *arguments)[0] == 0
    assert [pod.client.connect(host, 9999).port for host in hosts] == [15006] * len(hosts)
    for name, value in settings.items():
        pod.set_sysctl(name, value)
    assert [pod.client.connect(host, 9999, timeout=0.4).outcome for host in hosts] == ["timeout"] * len(hosts)
    code, answer = look(pod, *arguments)
    assert code == 1
    assert len(messages(answer)) == 1
    assert next(iter(settings)).rpartition("/")[2] in messages(answer)[0]
    assert look(pod, *REDIRECT)[0] == 0, "REDIRECT does not mind"


@pytest.mark.parametrize(
    "settings",
    [
        {"net/ipv4/conf/eth0/rp_filter": 1, "net/ipv4/conf/all/rp_filter": 1},
        {"net/ipv4/conf/lo/src_valid_mark": 1},
        {"net/ipv4/conf/eth0/accept_local": 1, "net/ipv4/conf/all/src_valid_mark": 1},
        {"net/ipv4/conf/all/accept_local": 1, "net/ipv4/conf/all/src_valid_mark": 1, "net/ipv4/conf/eth0/rp_filter": 2},
        {"net/ipv4/conf/all/route_localnet": 0, "net/ipv4/ip_forward": 0, "net/ipv4/ip_nonlocal_bind": 0},
    ],
)
def test_settings_that_do_no_harm_are_not_complained_about(pod, settings):
    apply_in(pod, Options.from_argv(TPROXY))
    start_servers(pod, transparent=(15006,))
    for name, value in settings.items():
        pod.set_sysctl(name, value)
    assert pod.client.connect("10.77.0.2", 9999).port == 15006
    code, answer = look(pod, *TPROXY)
    assert code == 0, messages(answer)


def test_ipv6_off_on_lo_alone_loses_ipv6_and_is_found(pod):
    pod.set_sysctl("net/ipv6/conf/lo/disable_ipv6", 1)
    apply_in(pod, Options.from_argv(REDIRECT))
    start_servers(pod)
    assert pod.connect("2001:db8::7", 80, uid=APP_ID, gid=APP_ID, timeout=0.4).outcome == "timeout"
    assert pod.connect("203.0.113.7", 80, uid=APP_ID, gid=APP_ID).port == 15001
    code, answer = look(pod, *REDIRECT)
    assert code == 1
    assert messages(answer)[0].startswith("net.ipv6.conf.lo.disable_ipv6=1 while IPv6 is captured")
    assert look(pod, *SIDECAR, "--ipv6", "off")[0] == 0


ANNOTATED = """
apiVersion: v1
kind: Pod
metadata:
  name: web
  labels: {sidecar.istio.io/inject: "true"}
  annotations: {netinit.io/ipv6: "on", proxy.istio.io/config: '{proxyMetadata: {ISTIO_META_DNS_CAPTURE: "true"}}'}
spec: {containers: [{name: app, image: a, securityContext: {runAsUser: USER}}]}
"""


def test_the_doctor_of_a_pods_manifest_names_its_annotations_and_knows_its_users(pod, tmp_path):
    (tmp_path / "pod.yaml").write_text(ANNOTATED.replace("USER", str(PROXY_ID)))
    pod.set_sysctl("net/ipv6/conf/lo/disable_ipv6", 1)
    done = run_tool(pod, "doctor", "--pod", str(tmp_path / "pod.yaml"))
    assert done.returncode == 1
    assert """or annotation netinit.io/ipv6: "off"\n""" in done.stdout
    assert "the application runs as user 1337, which is the proxy's" in done.stdout
    assert "--" not in done.stdout.partition("settings: ")[2].partition("OK: pods")[0].replace("--dns-servers", ""), done.stdout
    assert "as the webhook would inject it" in done.stderr
    pod.set_sysctl("net/ipv6/conf/lo/disable_ipv6", 0)
    (tmp_path / "pod.yaml").write_text(ANNOTATED.replace("USER", str(APP_ID)))
    healthy = run_tool(pod, "doctor", "--pod", str(tmp_path / "pod.yaml"), "--dns-servers", "10.96.0.10")
    assert (healthy.returncode, "the application runs as" in healthy.stdout) == (0, False), healthy


@pytest.mark.mounts
def test_a_variable_that_is_set_already_is_no_remedy(pod, tmp_path):
    """It captures DNS of known servers in an injected pod; that it also stands for --capture-all-dns is no help."""
    (tmp_path / "pod.yaml").write_text(ANNOTATED.replace("USER", str(APP_ID)))
    (tmp_path / "resolv.conf").write_text("search local\n")
    mount = ["unshare", "-m", "sh", "-c", f'mount --bind {tmp_path}/resolv.conf /etc/resolv.conf && exec "$@"', "sh"]
    code, answer = look(pod, "--pod", str(tmp_path / "pod.yaml"), prefix=mount)
    (found,) = [one for one in answer["findings"] if "names no server" in one["message"]]
    assert (code, found["message"].count("ISTIO_META_DNS_CAPTURE"), found["remedy"]) == (
        1, 1, "name them with --dns-servers, or use --capture-all-dns",
    )  # fmt: skip


def test_ipv6_off_everywhere_is_no_complaint(pod_v4only):
    pod_v4only.set_sysctl("net/ipv6/conf/all/disable_ipv6", 1)
    code, answer = ask(pod_v4only, *SIDECAR)
    assert (code, answer["ok"]) == (0, True), answer["findings"]
