"""Objects of a cluster as `kubectl netinit` reads them: pods, workloads, destinations; and their messages, without a process."""

from __future__ import annotations

import socket

import pytest

from netinit.base.errors import ClusterError, NetinitError, OptionError, ParseError
from netinit.kubectl.common_options import find_pods
from netinit.kubectl.destinations import NamedDestination, find_destinations, read_port_number
from netinit.kubectl.objects import check_name, read_pod, read_pods, split_object, write_selector

NO_KIND = "is not a kind that has pods; give a pod's name or KIND/NAME, with KIND one of pod, deploy, sts, ds and rs"
METADATA = {"name": "web", "namespace": "shop", "uid": "u-1"}
MINIMAL = {"metadata": {"name": "web", "namespace": "shop"}}


class Cluster:
    """A kubectl whose `get` answers from objects by its words, or refuses; `asked` are the words."""

    def __init__(self, **answers):
        self.answers = {name.replace("_", " "): answer for name, answer in answers.items()}
        self.asked = []

    def get(self, *words):
        self.asked.append(" ".join(words))
        found = self.answers.get(" ".join(words[:2]), self.answers.get(words[0], {}))
        if isinstance(found, Exception):
            raise found
        return found


def pod(name="web", *, phase="Running", addresses=("10.0.0.1",), **spec):
    status = {"phase": phase, "podIPs": [{"ip": one} for one in addresses]}
    return {"metadata": {**METADATA, "name": name}, "spec": {"nodeName": "n1", **spec}, "status": status}


def test_a_pod_has_every_field_of_its_object():
    tree = pod(addresses=("10.0.0.1", "FD00::0:1", "10.0.0.1x"), serviceAccountName="robot", hostNetwork=True)
    tree["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "m-1"}, "ownerReferences": [{"kind": "DaemonSet", "controller": True}],
    }  # fmt: skip
    found = read_pod(tree)
    assert (found.namespace, found.name, found.title, found.node, found.phase) == ("shop", "web", "shop/web", "n1", "Running")
    assert (found.addresses, found.uids, found.account) == (("10.0.0.1", "fd00::1"), ("u-1", "m-1"), "robot")
    assert (found.host_network, found.is_of_a_daemonset, found.ended) == (True, True, False)
    assert found.tree is tree


def test_what_a_pod_does_not_have_is_empty():
    found = read_pod(MINIMAL)
    assert (found.node, found.phase, found.addresses, found.uids, found.account) == ("", "", (), (), "")
    assert (found.host_network, found.is_of_a_daemonset, found.ended) == (False, False, False)
    older = read_pod({**MINIMAL, "status": {"podIP": "10.0.0.2"}})
    assert older.addresses == ("10.0.0.2",)


@pytest.mark.parametrize(
    "owner", [{"kind": "DaemonSet"}, {"kind": "ReplicaSet", "controller": True}, {"kind": "DaemonSet", "controller": 1}]
)
def test_only_a_daemonset_that_controls_a_pod_makes_it_one_of_it(owner):
    assert not read_pod({"metadata": {**METADATA, "ownerReferences": [owner]}}).is_of_a_daemonset


@pytest.mark.parametrize(
    ("phase", "ended"), [("Succeeded", True), ("Failed", True), ("Running", False), ("Pending", False), ("", False)]
)
def test_a_pod_has_ended_with_its_last_phases(phase, ended):
    assert read_pod(pod(phase=phase)).ended is ended


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"metadata": {"name": "a b", "namespace": "shop"}}, '"a b" is not a name of a pod'),
        ({"metadata": {"name": "web", "namespace": "--all"}}, '"--all" is not a name of a namespace'),
        ({**MINIMAL, "spec": {"nodeName": "N1"}}, '"N1" is not a name of a node'),
        ({}, '"" is not a name of a namespace'),
        (None, '"" is not a name of a namespace'),
        ({"metadata": {"name": "a" * 254, "namespace": "shop"}}, " is not a name of a pod"),
    ],
)
def test_names_that_no_api_server_accepts_are_refused(tree, message):
    with pytest.raises(ParseError) as error:
        read_pods({"items": [tree]})
    assert str(error.value).startswith("kubectl's answer: ")
    assert str(error.value).endswith(message)
    assert check_name("a" * 253, "pod") == "a" * 253


def owned(kind, name, **labels):
    owner = {"kind": kind, "name": name, "controller": True}
    return read_pod({"metadata": {"namespace": "shop", "name": "web-1", "labels": labels, "ownerReferences": [{"kind": "Other", "name": "x"}, owner]}})


@pytest.mark.parametrize(("kind", "name", "labels", "workload"), [
    ("ReplicaSet", "web-5d8f", {"pod-template-hash": "5d8f"}, "deploy/web"), ("ReplicaSet", "web-5d8f", {}, "rs/web-5d8f"),
    ("ReplicaSet", "web", {"pod-template-hash": "5d8f"}, "rs/web"), ("StatefulSet", "db", {}, "sts/db"), ("DaemonSet", "log", {}, "ds/log"),
    ("Job", "mig", {}, "job/mig"), ("Rollout", "web", {}, "rollout/web"), ("ReplicaSet", "../x", {}, "pod/web-1"), ("\x1b", "x", {}, "pod/web-1"),
    ("ReplicaSet", "-5d8f", {"pod-template-hash": "5d8f"}, "pod/web-1"), ("", "", {}, "pod/web-1"),
])  # fmt: skip
def test_what_made_a_pod_is_named_as_for_kubectl(kind, name, labels, workload):
    assert owned(kind, name, **labels).workload == workload


def test_uids_that_are_no_label_are_left_out():
    assert read_pod({"metadata": {**METADATA, "uid": "--uid x"}}).uids == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("web", ("pod", "web")), ("pod/web", ("pod", "web")), ("pods/web", ("pod", "web")), ("po/web", ("pod", "web")),
        ("deployment/w", ("deployment", "w")), ("deployments/w", ("deployment", "w")), ("deploy/w", ("deployment", "w")),
        ("deployment.apps/w", ("deployment", "w")), ("statefulset/w", ("statefulset", "w")),
        ("statefulsets/w", ("statefulset", "w")), ("sts/w", ("statefulset", "w")), ("daemonset/w", ("daemonset", "w")),
        ("daemonsets/w", ("daemonset", "w")), ("ds/w", ("daemonset", "w")), ("replicaset/w", ("replicaset", "w")), ("replicasets/w", ("replicaset", "w")),
        ("rs/w", ("replicaset", "w")), ("a.b-c1", ("pod", "a.b-c1")),
    ],
)  # fmt: skip
def test_an_object_is_named_as_for_kubectl(text, found):
    assert split_object(text) == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("svc/web", f'"svc" {NO_KIND}'), ("/web", f'"" {NO_KIND}'),
        ("pod/", '"" is not a name of Kubernetes'), ("Web", '"Web" is not a name of Kubernetes'),
        ("-n", '"-n" is not a name of Kubernetes'),
    ],
)  # fmt: skip
def test_an_object_that_has_no_pods_or_no_name_is_refused(text, message):
    with pytest.raises(OptionError) as error:
        split_object(text)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ({}, "kubectl's answer: the selector is empty, so its pods are not known"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]},
         'kubectl\'s answer: "Gt" is not a selector operator'),
        ({"matchExpressions": [{"key": "a,b", "operator": "Exists"}]}, 'kubectl\'s answer: "a,b" is not a label'),
        ({"matchExpressions": [{"key": "", "operator": "Exists"}]}, 'kubectl\'s answer: "" is not a label'),
        ({"matchLabels": {"": "x"}}, 'kubectl\'s answer: "" is not a label'),
    ],
)  # fmt: skip
def test_a_selector_that_kubectl_would_read_as_another_is_refused(selector, message):
    with pytest.raises(ParseError) as error:
        write_selector({"spec": {"selector": selector}})
    assert str(error.value) == message


class TestPods:
    """The pods of the object on the command line."""

    def test_a_pod_is_read_from_the_context_s_namespace_or_the_one_that_is_named(self):
        cluster = Cluster(pod=pod())
        assert [one.title for one in find_pods(cluster, "web", "")] == ["shop/web"]
        find_pods(cluster, "po/web", "shop")
        assert cluster.asked == ["pod web", "pod web -n shop"]

    def test_of_a_workload_the_pods_with_a_network_of_their_own_are_found(self):
        workload = {"metadata": METADATA, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
        listed = [pod("a"), pod("b", addresses=()), pod("c", phase="Failed"), pod("d", hostNetwork=True), pod("e")]
        cluster = Cluster(deployment=workload, pods={"items": listed})
        assert [one.name for one in find_pods(cluster, "deploy/web", "")] == ["a", "e"]
        assert cluster.asked == ["deployment web", "pods -n shop -l app=web"]

    @pytest.mark.parametrize(
        ("named", "namespace", "answers", "message"),
        [
            ("web", "", {}, 'there is no pod "web"'),
            ("sts/web", "shop", {}, 'there is no statefulset "web" in the namespace "shop"'),
            ("web", "", {"pod": pod(addresses=())}, 'pod "web": no pod has an address yet'),
            ("web", "", {"pod": pod(hostNetwork=True)}, 'pod "web": it is on its node\'s network, where no rule of a mesh is'),
            ("web", "", {"pod": pod(phase="Succeeded")},
             'pod "web": it has ended (Succeeded), and its network with it; netinit explain --pod answers by its manifest'),
            ("rs/web", "", {"replicaset": {"metadata": METADATA, "spec": {"selector": {"matchLabels": {"a": "b"}}}}},
             'replicaset "web": it has no pods'),
        ],
    )  # fmt: skip
    def test_without_pods_the_error_says_why(self, named, namespace, answers, message):
        with pytest.raises(NetinitError) as error:
            find_pods(Cluster(**answers), named, namespace)
        assert str(error.value) == message


def service(**more):
    ports = [{"name": "http", "port": 80}, {"name": "db", "port": 5432}]
    spec = {"clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1", "fd00::96"], "ports": ports}
    return {"metadata": METADATA, "spec": spec | more}


def slices(*addresses, port=8080, ready=True):
    endpoints = [{"addresses": [one], "conditions": {"ready": ready}} for one in addresses]
    return {"items": [{"ports": [{"name": "http", "port": port}, {"name": "db", "port": 1}], "endpoints": endpoints}]}


SLICES = "endpointslices.v1.discovery.k8s.io"


class TestDestinations:
    """What --to names."""

    @pytest.mark.parametrize(
        ("text", "address", "endpoint"),
        [("192.0.2.1:80", "192.0.2.1", "192.0.2.1:80"), ("[FD00::1]:65535", "fd00::1", "[fd00::1]:65535")],
    )
    def test_an_address_is_asked_of_nothing(self, text, address, endpoint):
        cluster = Cluster()
        (found,) = find_destinations(cluster, text, "shop")
        assert (found.title, found.address, found.endpoint, cluster.asked) == ("", address, endpoint, [])

    @pytest.mark.parametrize("port", ["80", "http"])
    def test_a_service_has_its_own_addresses_and_three_of_its_endpoints(self, port):
        ready = slices("10.1.0.1", "10.1.0.2", "10.1.0.1", "10.1.0.3", "10.1.0.4")
        ready["items"] += slices("10.1.0.9", ready=False)["items"]
        cluster = Cluster(service=service(), **{SLICES: ready})
        assert find_destinations(cluster, f"web.prod.svc.cluster.local:{port}", "shop") == [
            NamedDestination("service web.prod, its ClusterIP", "10.96.0.1", 80),
            NamedDestination("service web.prod, its ClusterIP", "fd00::96", 80),
            NamedDestination("service web.prod, endpoint 1 of 4", "10.1.0.1", 8080),
            NamedDestination("service web.prod, endpoint 2 of 4", "10.1.0.2", 8080),
            NamedDestination("service web.prod, endpoint 3 of 4", "10.1.0.3", 8080),
        ]
        assert cluster.asked == ["service web -n prod", f"{SLICES} -n prod -l kubernetes.io/service-name=web"]

    def test_a_name_alone_is_of_the_pods_namespace_and_a_headless_service_has_endpoints_alone(self):
        cluster = Cluster(service=service(clusterIP="None", clusterIPs=["None"]), **{SLICES: slices("10.1.0.1")})
        (found,) = find_destinations(cluster, "web:80", "shop")
        assert found == NamedDestination("service web.shop, endpoint 1 of 1", "10.1.0.1", 8080)
        assert cluster.asked[0] == "service web -n shop"

    @pytest.mark.parametrize("text", ["pod/web:80", "web:80", "web.shop:80"])
    def test_a_pod_has_each_of_its_addresses(self, text):
        cluster = Cluster(pod=pod(addresses=("10.0.0.1", "fd00::1")))
        assert find_destinations(cluster, text, "shop") == [
            NamedDestination("pod shop/web", "10.0.0.1", 80), NamedDestination("pod shop/web", "fd00::1", 80),
        ]  # fmt: skip
        assert cluster.asked[-1] == "pod web -n shop"
        assert ("service web -n shop" in cluster.asked) is (not text.startswith("pod/"))

    @pytest.mark.parametrize("text", ["db.example.org:5432", "ext:5432"])
    def test_a_host_and_an_external_service_are_what_the_resolver_says(self, text, monkeypatch):
        asked = []

        def resolve(host, port, **more):
            asked.append((host, port, more))
            addresses = ("192.0.2.1", "192.0.2.1", "fe80::1%eth0")
            return [(None, None, None, None, (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        cluster = Cluster(service={"spec": {"type": "ExternalName", "externalName": "db.example.org"}})
        title = "host db.example.org, as this machine's resolver has it"
        assert find_destinations(cluster, text, "shop") == [
            NamedDestination(title, "192.0.2.1", 5432), NamedDestination(title, "fe80::1", 5432),
        ]  # fmt: skip
        assert asked == [("db.example.org", 5432, {"type": socket.SOCK_STREAM})]

    @pytest.mark.parametrize(
        ("text", "answers", "message"),
        [
            ("web", {}, '--to: "web" has no port; give service.namespace:port or host:port'),
            (":80", {}, '--to: ":80" has no port; give service.namespace:port or host:port'),
            ("web:", {}, '--to: "web:" has no port; give service.namespace:port or host:port'),
            ("192.0.2.1:0", {}, '--to: "0" is not a port; give a number from 1 to 65535'),
            ("web:99", {"service": service()}, '--to: service web.shop has no port "99"; it has 80, 5432'),
            ("web:99", {"service": service(ports=[])}, '--to: service web.shop has no port "99"; it has none'),
            ("pod/web:80", {}, '--to: there is no pod "web" with an address'),
            ("pod/web:80", {"pod": ClusterError("kubectl: Forbidden")},
             '--to: there is no pod "web" with an address (kubectl: Forbidden)'),
            ("web:80", {}, '--to: "web" is no Service, no pod, and no host that this machine knows'),
            ("web:80", {"service": ClusterError("kubectl: Forbidden")},
             '--to: "web" is no Service, no pod, and no host that this machine knows (kubectl: Forbidden)'),
            ("web:http", {}, '--to: "http" is not a port; give a number from 1 to 65535'),
        ],
    )  # fmt: skip
    def test_what_is_nothing_is_refused_with_the_reason(self, text, answers, message, monkeypatch):
        def resolve(*_, **__):
            raise OSError

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        with pytest.raises(OptionError) as error:
            find_destinations(Cluster(**answers), text, "shop")
        assert str(error.value) == message

    def test_a_service_whose_endpoints_may_not_be_read_is_an_error_of_the_cluster(self):
        cluster = Cluster(service=service(), **{SLICES: ClusterError("kubectl: Forbidden")})
        with pytest.raises(ClusterError, match=r"^kubectl: Forbidden$"):
            find_destinations(cluster, "web:80", "shop")

    @pytest.mark.parametrize("text", ["0", "65536", "-1", "", "８０", "1" * 5000, "80x"])
    def test_a_number_that_is_no_port_is_refused(self, text):
        with pytest.raises(OptionError, match="is not a port; give a number from 1 to 65535"):
            read_port_number(text)
        assert (read_port_number("1"), read_port_number("65535")) == (1, 65535)
