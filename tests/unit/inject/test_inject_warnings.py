"""What is wrong with a pod itself: found in its manifest, and told with the reason and the remedy."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from netinit.base.errors import OptionError, ParseError
from netinit.golang import goyaml
from netinit.inject.adding.ignored_settings import injection_warnings
from netinit.inject.deciding.manifest_survey import read_pods
from netinit.inject.deciding.warnings import ERROR, WARNING, pod_findings
from sweeps import together

EXAMPLE = Path(__file__).parents[3] / "examples" / "pod.yaml"


def container(name, uid=None, **more):
    made = {"name": name, "image": "i", **more}
    if uid is not None:
        made["securityContext"] = {"runAsUser": uid}
    return made


def init(args="-b * -i *", add=("NET_ADMIN",), drop=("ALL",), **security):
    return {
        "name": "istio-init",
        "args": ["istio-iptables", *args.split()],
        "securityContext": {"capabilities": {"add": list(add), "drop": list(drop)}, **security},
    }


def pod(*, inits=None, containers=None, **spec):
    return {
        "metadata": {"name": "p"},
        "spec": {
            "initContainers": [init()] if inits is None else inits,
            "containers": containers or [container("app"), container("istio-proxy", 1337)],
            **spec,
        },
    }


def kinds(tree):
    return [(one.severity, one.kind.name, one.subject) for one in pod_findings(tree)]


def test_a_pod_that_is_right_has_no_findings():
    assert kinds(pod()) == []


def test_a_pod_on_its_nodes_network_whose_init_container_programs_rules_is_an_error():
    assert kinds(pod(hostNetwork=True)) == [(ERROR, "host-network", "istio-init")]
    said = str(pod_findings(pod(hostNetwork=True))[0])
    assert "node" in said
    assert "remove hostNetwork: true" in said


@pytest.mark.parametrize("inits", [[], [init("--run-validation --skip-rule-apply")]])
def test_a_pod_on_its_nodes_network_without_rules_of_its_own_is_a_warning(inits):
    assert [one[:2] for one in kinds(pod(inits=inits, hostNetwork=True))] == [(WARNING, "host-network")]


def test_host_network_that_is_not_true_is_none():
    assert kinds(pod(hostNetwork="true")) == []


def test_a_pod_without_an_init_container_is_told_that_nothing_is_intercepted():
    assert kinds(pod(inits=[container("setup")])) == [(WARNING, "no-init-container", "")]


def test_an_init_container_of_another_name_is_known_by_its_program():
    other = {**init(add=()), "name": "rules", "command": ["/usr/local/bin/netinit"], "args": ["-b", "*"]}
    assert kinds(pod(inits=[container("a"), other])) == [(ERROR, "missing-capability", "rules")]


@pytest.mark.parametrize(
    ("security", "found"),
    [
        ({"capabilities": {"add": ["NET_ADMIN"]}}, []),
        ({"capabilities": {"add": ["CAP_NET_ADMIN"]}}, [(WARNING, "missing-capability", "istio-init")]),  # containerd grants none
        ({"capabilities": {"add": ["NET_ADMIN"], "drop": ["NET_ADMIN"]}}, [(WARNING, "missing-capability", "istio-init")]),
        ({"capabilities": {"add": ["ALL"]}}, []),
        ({"privileged": True}, []),
        ({"privileged": False}, [(ERROR, "missing-capability", "istio-init")]),
        ({}, [(ERROR, "missing-capability", "istio-init")]),
        ({"capabilities": {"add": ["NET_RAW"]}}, [(ERROR, "missing-capability", "istio-init")]),
    ],
)
def test_an_init_container_without_net_admin_is_an_error(security, found):
    assert kinds(pod(inits=[{**init(), "securityContext": security}])) == found


@pytest.mark.parametrize("args", ["--backend iptables-legacy", "--backend libiptc", "--force-iptables-binary legacy"])
@pytest.mark.parametrize(("drop", "severity"), [(("ALL",), ERROR), (("NET_RAW",), ERROR), ((), WARNING)])
def test_legacy_iptables_without_net_raw_is_found(args, drop, severity):
    tree = pod(inits=[init(args, drop=drop)])
    assert kinds(tree) == [(severity, "missing-capability", "istio-init")]
    assert "NET_RAW" in str(pod_findings(tree)[0])
    assert kinds(pod(inits=[init(args, add=("NET_ADMIN", "NET_RAW"))])) == []


def test_a_container_that_only_checks_the_rules_of_a_cni_plugin_needs_no_capability():
    assert kinds(pod(inits=[{**init("--skip-rule-apply", add=()), "name": "istio-validation"}])) == []


def test_an_application_with_the_proxys_user_is_found():
    tree = pod(containers=[container("app", 1337), container("istio-proxy", 1337)])
    assert kinds(tree) == [(ERROR, "proxy-owner", "app")]
    assert "choose another runAsUser" in str(pod_findings(tree)[0])


def test_the_pods_own_user_counts_where_a_container_names_none():
    tree = pod(containers=[container("app"), container("other", 5), container("istio-proxy")])
    tree["spec"]["securityContext"] = {"runAsUser": 1337}
    assert kinds(tree) == [(ERROR, "proxy-owner", "app")]


def test_an_application_with_the_proxys_group_is_found():
    app = {**container("app"), "securityContext": {"runAsUser": 5, "runAsGroup": 1337}}
    tree = pod(containers=[app, container("istio-proxy", 1337)])
    assert kinds(tree) == [(ERROR, "proxy-owner", "app")]
    assert "runAsGroup" in str(pod_findings(tree)[0])


@pytest.mark.parametrize(
    ("containers", "found"),
    [
        ([container("app", 1337)], ["app"]),
        ([container("app", 1337), container("logs", 1337)], ["app", "logs"]),
        ([container("app", 1337), container("istio-proxy", 1337)], ["app"]),
        ([container("app", 1337), container("istio-proxy", 2102)], []),
        ([container("app", 2102), container("istio-proxy", 2102)], ["app"]),
    ],
)
def test_the_proxys_user_is_found_before_an_injector_or_plugin_programs_the_pod(containers, found):
    has_proxy = any(one["name"] == "istio-proxy" for one in containers)  # otherwise it may never be injected
    shared = [(ERROR if has_proxy else WARNING, "proxy-owner", name) for name in found]
    expected = sorted([(WARNING, "no-init-container", ""), *shared], key=lambda finding: finding[0] != ERROR)
    assert kinds(pod(inits=[container("setup")], containers=containers)) == expected


def test_the_proxys_group_is_found_before_an_injector_programs_the_pod():
    app, proxy = ({"name": name, "image": "i", "securityContext": {"runAsUser": uid, "runAsGroup": 2102}} for name, uid in (("app", 5), ("istio-proxy", 2102)))
    expected = [(ERROR, "proxy-owner", "app"), (WARNING, "no-init-container", "")]
    assert kinds(pod(inits=[container("setup")], containers=[app, proxy])) == expected


def test_the_users_of_the_options_count():
    tree = pod(inits=[init("-b * -i * -u 77")], containers=[container("app", 77), container("istio-proxy", 77)])
    assert kinds(tree) == [(ERROR, "proxy-owner", "app")]


@pytest.mark.parametrize(
    ("proxy", "found"),
    [
        ({"runAsUser": 2102}, ["second"]), ({"runAsUser": 5, "runAsGroup": 7}, ["first", "third"]), ({}, []), ({"runAsUser": 0, "runAsGroup": 0}, []),
        ({"runAsUser": 1337, "runAsGroup": 1337}, []),
    ],
)  # fmt: skip
def test_where_a_plugin_programs_the_rules_the_users_are_those_of_the_proxy(proxy, found):
    applications = [container("first", 5), container("second", 2102), container("third", securityContext={"runAsUser": 9, "runAsGroup": 7})]
    checks = {**init("-b * -i * -u 77 --skip-rule-apply"), "name": "istio-validation"}
    tree = pod(inits=[checks], containers=[*applications, container("istio-proxy", securityContext=proxy)])
    assert [one.subject for one in pod_findings(tree) if (one.severity, one.kind.name) == (ERROR, "proxy-owner")] == found


def test_where_no_container_has_the_proxys_name_the_first_with_its_user_is_the_proxy():
    assert kinds(pod(containers=[container("app", 5), container("envoy", 1337)])) == []
    assert kinds(pod(containers=[container("envoy", 1337), container("app", 1337)])) == [
        (ERROR, "proxy-owner", "app")
    ]


def test_the_only_container_with_the_proxys_user_is_an_application():
    assert kinds(pod(containers=[container("app", 1337)])) == [(ERROR, "proxy-owner", "app")]


@pytest.mark.parametrize(("early", "late", "found"), [(1337, None, []), (None, 1337, ["late"]), (1337, 1337, ["late"]), (None, 5, [])])
def test_an_init_container_behind_a_native_proxy_has_a_network_and_no_reason_for_the_proxys_user(early, late, found):
    proxy = container("istio-proxy", 1337, restartPolicy="Always")
    tree = pod(inits=[init(), container("early", early), proxy, container("enable-core-dump", 1337), container("late", late)], containers=[container("app")])
    assert [(one.severity, one.subject) for one in pod_findings(tree) if one.kind.name == "proxy-owner"] == [(WARNING, name) for name in found]


def test_a_sidecar_among_the_init_containers_counts_as_an_application():
    sidecar = container("logs", 1337, restartPolicy="Always")
    assert (ERROR, "proxy-owner", "logs") in kinds(pod(inits=[init(), sidecar]))


@together(
    ("inits", "found"),
    [
        ([container("before"), init()], []),
        ([init(), container("after")], ["after"]),
        ([init(), container("after", 1337)], []),
        ([init(), container("enable-core-dump")], []),
        ([init("-b *"), container("after")], []),
        ([init("-q 80"), container("after")], ["after"]),
        ([init("-i * --exclude-outbound-for-uids tcp:443:2000-2009"), container("after", 2005)], []),
        ([init("-i * --exclude-outbound-for-uids tcp:443:2000-2009"), container("after", 2010), container("any")], ["after", "any"]),
        ([init("-i * --exclude-outbound-for-gids 7"), container("after", securityContext={"runAsGroup": 7})], []),
        ([init("-i * --exclude-outbound-for-uids udp:53:2005"), container("after", 2005)], ["after"]),
        ([init(), container("early"), container("istio-proxy", 1337, restartPolicy="Always"), container("late")], ["early"]),
        ([container("early"), {**init("-i * --skip-rule-apply"), "name": "istio-validation"}], ["early"]),
    ],
)  # fmt: skip
def test_an_init_container_between_the_rules_and_the_proxy_has_no_network(inits, found):
    assert [one.subject for one in pod_findings(pod(inits=inits)) if one.kind.name == "no-network"] == found


def test_the_remedy_for_no_network_fits_the_pod():
    plain = pod_findings(pod(inits=[init(), container("after")]))[0]
    native = pod_findings(pod(inits=[init(), container("early"), container("istio-proxy", restartPolicy="Always")]))[0]
    assert "use native sidecars" in plain.text
    assert "move it behind istio-proxy" in native.text


def test_arguments_that_cannot_be_read_are_an_error():
    assert kinds(pod(inits=[init("-p 99999")])) == [(ERROR, "arguments", "istio-init")]
    assert "99999" in pod_findings(pod(inits=[init("-p 99999")]))[0].text


def test_errors_come_first():
    tree = pod(inits=[init(add=()), container("after")], containers=[container("app", 1337), container("istio-proxy")])
    assert [one.severity for one in pod_findings(tree)] == [ERROR, ERROR, WARNING]


def test_nothing_of_the_pod_is_changed_and_nonsense_in_it_is_harmless():
    tree = pod(containers=[container("app", "1337"), 5, None, {"name": None}])
    tree["spec"]["initContainers"] += ["x", {"name": 7, "securityContext": []}]
    before = copy.deepcopy(tree)
    pod_findings(tree)
    assert tree == before
    assert [one.kind.name for one in pod_findings({"metadata": None, "spec": None})] == ["no-init-container"]


def test_a_foreign_name_cannot_break_the_line():
    said = str(pod_findings(pod(inits=[init(), container('x"\n\x1b[31m')]))[0])
    assert "\n" not in said
    assert "\x1b" not in said


TWO = """
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
spec: {containers: [{name: c}], hostNetwork: true}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: b}
spec: {template: {spec: {containers: [{name: c}]}}}
"""


def test_all_pods_of_a_file_are_read():
    assert [(one.name, [f.kind.name for f in one.findings]) for one in read_pods([("f", TWO)])] == [
        ('Pod "shop/a"', ["host-network"]),
        ('Deployment "b"', ["no-init-container"]),
    ]


@pytest.mark.parametrize(("select", "name"), [("b", "b"), ("deployment/b", "b"), ("shop/a", "shop/a")])
def test_one_pod_of_a_file_is_chosen_by_name(select, name):
    (one,) = read_pods([("f", TWO)], select)
    assert one.name.endswith(f'"{name}"')


def test_a_name_that_no_pod_has_lists_those_there_are():
    with pytest.raises(ParseError) as error:
        read_pods([("f", TWO)], "x")
    assert str(error.value) == '--select: f has no workload "x"; it has Pod "shop/a", Deployment "b"'


STATUS = "status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: 'fd00::1'}]}\n"


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        (TWO.partition("---\n")[0] + STATUS, ("10.0.0.1", "fd00::1")),
        (TWO.partition("---\n")[0] + "status: {podIP: 10.0.0.1}\n", ("10.0.0.1",)),
        (TWO.partition("---\n")[0], ()),
        (TWO.partition("---\n")[2] + STATUS, ()),
    ],
)
def test_a_pods_addresses_are_those_of_its_status(text, addresses):
    assert [one.addresses for one in read_pods([("f", text)])] == [addresses]


def test_options_that_cannot_be_read_are_told_for_every_pod():
    broken = pod(inits=[init("-p 99999 -z x")])
    text = "\n---\n".join(
        goyaml.dump({"apiVersion": "v1", "kind": "Pod", **broken, "metadata": {"name": name}}) for name in "ab"
    )
    with pytest.raises(OptionError) as error:
        read_pods([("f", text)])
    assert [problem.partition(":")[0] for problem in error.value.problems] == ['Pod "a"'] * 2 + ['Pod "b"'] * 2


def test_the_example_is_right():
    assert [one.findings for one in read_pods([("f", EXAMPLE.read_text())])] == [()]


@pytest.mark.parametrize(("policy", "warned"), [(None, False), ("", False), ("ClusterFirst", False), ("Default", True)])
def test_a_dns_policy_is_warned_about_unless_it_is_that_of_the_cluster(policy, warned):
    assert [str(one).partition(" is ")[0] for one in injection_warnings({"spec": {"dnsPolicy": policy}})] == [f'dnsPolicy "{policy}"'] * warned


CONFIG, PROBERS = "proxy.istio.io/config", "sidecar.istio.io/rewriteAppHTTPProbers"


@pytest.mark.parametrize(("annotations", "said"), [
    ({PROBERS: "yes"}, [f"annotation {PROBERS}: 'yes' is neither true nor false and is ignored"]),
    ({"sidecar.istio.io/nativeSidecar": "on"}, ["annotation sidecar.istio.io/nativeSidecar: 'on' is neither"]),
    ({PROBERS: "T", "sidecar.istio.io/nativeSidecar": "0"}, []),
    ({CONFIG: "holdApplicationUntilProxyStart: true"}, ["did you mean holdApplicationUntilProxyStarts?"]),
    ({CONFIG: "tracing: {samplng: 1}\nxyzzy: 1"}, ["'tracing.samplng' is no setting", "'xyzzy' is no setting of a ProxyConfig and is ignored; remove it"]),
    ({CONFIG: "proxyMetadata: {ANY_NAME: x}\nstatus_port: 15020\nproxyStatsMatcher: {inclusionRegexps: [x]}"}, []),
    ({CONFIG: "{"}, []), ({CONFIG: ""}, []),
])  # fmt: skip
def test_a_value_that_the_injection_ignores_is_said_with_its_place(annotations, said):
    found = injection_warnings({"metadata": {"annotations": annotations}})
    assert len(found) == len(said)
    for one, text in zip(found, said, strict=True):
        assert text in str(one)
        assert one.path[1] in annotations
