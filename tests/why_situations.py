"""Situations about which `netinit why` is asked: symptoms with their cause, and what single steps tell apart."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from netinit.base.errors import NetinitError
from netinit.inject.adding.config import load_config
from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_objects
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from netinit.questions.why.objects import read_objects
from why_objects import (
    CLIENT,
    CLOSED,
    CLOSED_MESH,
    DB,
    FROM,
    KINDS,
    MESH,
    NAMESPACE,
    OPEN,
    OPEN_MESH,
    OUTSIDE,
    STRICT,
    TO_DB,
    WEB_SERVICE,
    only,
    service,
    sidecar,
    workload,
)


@dataclass(frozen=True)
class Situation:
    """Objects and a question about `web`. `whole`: kinds of which all objects are given; `unread`: kinds that could not be read."""

    texts: tuple[str, ...]
    asked: dict[str, Any] = field(default_factory=dict)
    whole: tuple[str, ...] = KINDS
    unread: tuple[str, ...] = ()
    answer: dict[str, Any] | None = None  # of the live pod
    error: str = ""  # in the place of an answer


@functools.cache
def read(text):
    """The objects of a text, which nothing changes."""
    return tuple(yaml.safe_load_all(text))


@functools.cache
def foresight():
    """What injection will do, by netinit's own configuration, read once."""
    return Outlook(config=load_config(None, lazily=True))


def examine(one):
    """The report; the Namespace asks for injection."""
    trees = [tree for text in (NAMESPACE, *one.texts) for tree in read(text)]
    known = read_objects(trees, whole={*one.whole} - {*one.unread}, unread=dict.fromkeys(one.unread, "Forbidden"))
    chosen = next(pod for pod in known.workloads if pod.name == "web")
    is_live = one.error or one.answer is not None
    return why_of_objects(read_asked(**one.asked), chosen, known, options=Options(), outlook=foresight(), explain=(lambda _: answer(one)) if is_live else None)


def answer(one):
    """What the live pod answers."""
    if one.error:
        raise NetinitError(one.error)
    return one.answer


def live(**more):
    """What a live pod answers about a connection; captured, where nothing else is said."""
    return {
        "verdict": "captured", "sentence": "captured: goes to the proxy, because all outbound TCP is", "packet": {"direction": "outbound"},
        "original_destination": "10.0.0.1:5432", "listeners": [], **more,
    }  # fmt: skip


def recipient(code, text, outcome="refused", who="proxy", **more):
    """Who gets a connection, as a live pod answers."""
    return {"who": who, "code": code, "text": text, "outcome": outcome, **more}


MISSPELT = 'traffic.sidecar.istio.io/excludeOutboundPort: "5432"'
OLD_SIDECAR = 'sidecar.istio.io/nativeSidecar: "false"'
CASES = {  # symptom -> objects, question, code, words of the cause, words of the remedy
    "an annotation is misspelt": ([workload(annotations=MISSPELT)], {}, "NI106", "excludeOutboundPort", "did you mean traffic.sidecar.istio.io/excludeOutboundPorts"),
    "an annotation is on the Deployment": ([workload(top=', annotations: {traffic.sidecar.istio.io/excludeOutboundPorts: "5432"}')], {}, "NI107", "has no effect", "spec.template.metadata.annotations"),
    "works as root only: the application has the proxy's user": (
        [workload("containers: [{name: web, image: web, securityContext: {runAsUser: 1337}}]"), service(), DB], TO_DB, "NI017", "1337", "runAsUser"),
    "an init container hangs": (
        [workload("initContainers: [{name: istio-validation, image: i, args: [--run-validation, --skip-rule-apply]}, {name: migrate, image: m}], containers: [{name: web, image: web}, {name: istio-proxy, image: p}]")],
        {}, "NI105", "no network", "native sidecars"),
    "an external address goes past the proxy": (
        [workload(annotations="traffic.sidecar.istio.io/includeOutboundIPRanges: 10.0.0.0/8")], {"to": "8.8.8.8:443"}, "NI311", "past the proxy", "includeOutboundIPRanges"),
    "an excluded port is sent in plain text": (
        [workload(annotations='traffic.sidecar.istio.io/excludeOutboundPorts: "5432"'), service(), DB, STRICT], TO_DB, "NI311", "plain text", "remove 5432 from annotation traffic.sidecar.istio.io/excludeOutboundPorts"),
    "DNS is slow": ([workload()], {"name": "api.example.com"}, "NI331", "costs 8 queries", "api.example.com."),
    "a headless Service is refused": ([workload(), service("[{port: 80, targetPort: 5432, name: tcp}]", ", clusterIP: None"), DB], {"to": "db:80"}, "NI322", "headless", "5432"),
    "a probe fails": (
        [workload("containers: [{name: web, image: web, readinessProbe: {httpGet: {path: /, port: 8080}}}]", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false"'), STRICT],
        {"probe": True}, "NI329", "STRICT", 'rewriteAppHTTPProbers: "true"'),
    "a hook of the kubelet fails": (
        [workload("containers: [{name: web, image: web, lifecycle: {preStop: {httpGet: {path: /, port: 8080}}}}]", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false"'), STRICT],
        {"probe": True}, "NI329", "STRICT", 'rewriteAppHTTPProbers: "true"'),
    "NXDOMAIN of a short name": ([workload(), service(namespace="data")], TO_DB, "NI318", "NXDOMAIN", "db.data"),
    "NXDOMAIN by --dns": ([workload(), service(namespace="data")], {"name": "db"}, "NI318", "NXDOMAIN", "db.data"),
    "NXDOMAIN of a pod that asks its node's servers": ([workload("dnsPolicy: Default, containers: [{name: web, image: web}]"), service(), DB], TO_DB, "NI332", "NXDOMAIN", "ClusterFirst"),
    "a Job never ends": ([workload("restartPolicy: Never, containers: [{name: web, image: web}]", OLD_SIDECAR, "Job")], {}, "NI313", "never ends", "nativeSidecar"),
    "address already in use": ([workload("containers: [{name: web, image: web, ports: [{containerPort: 15001}]}]")], {}, "NI314", "15001", "another port"),
    "address already in use by another container": (
        [workload("containers: [{name: web, image: web, ports: [{containerPort: 80}]}, {name: log, image: l, ports: [{containerPort: 80}]}]")], {}, "NI314", '"log"', "own port"),
    "metrics are unreachable": (
        [workload(annotations='prometheus.io/port: "9090"'), STRICT], {"client": "10.9.9.9", "port": "9090"}, "NI327", "plain text", "15020"),
    "a server that speaks first": ([workload(), service("[{port: 3307, targetPort: 3306, name: db}]"), DB], {"to": "db:3307"}, "NI326", "server speaks first", "appProtocol: tcp"),
    "a port named http with another protocol": ([workload(), service("[{port: 5432, name: http-sql}]"), DB], TO_DB, "NI325", "PostgreSQL", "appProtocol: tcp"),
    "appProtocol http with another protocol": ([workload(), service("[{port: 6379, appProtocol: HTTP}]"), DB], {"to": "db:6379"}, "NI325", "Redis", "appProtocol: tcp"),
    "a UDP port is asked by TCP": ([workload(), service("[{port: 514, protocol: UDP, name: log}]"), DB], {"to": "db:514"}, "NI324", "UDP", "--udp"),
    "a second interface": (
        [workload(annotations="k8s.v1.cni.cncf.io/networks: storage")], {"client": "192.168.5.7", "port": "8080", "interface": "net1"}, "NI315", "net1", "excludeInterfaces"),
    "a client on the host's network": (
        [workload(), DB.replace("name: db, namespace", "name: agent, namespace").replace("spec: {containers", "spec: {hostNetwork: true, containers"), STRICT],
        {"client": "agent", "port": "8080"}, "NI327", "hostNetwork: true", "hostNetwork"),
    "a client outside of the mesh": (
        [workload(), DB.replace("labels: {app: db}", 'labels: {app: db, sidecar.istio.io/inject: "false"}'), STRICT], {"client": "db", "port": "8080"}, "NI327", "not in the mesh", "inject"),
    "a DestinationRule turns TLS off": (
        [workload(), service(), DB, STRICT, "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: off, namespace: shop}\nspec: {host: db, trafficPolicy: {tls: {mode: DISABLE}}}"],
        TO_DB, "NI327", "DISABLE", "ISTIO_MUTUAL"),
    "a DestinationRule wants TLS of a server without a proxy": (
        [workload(), service(), DB.replace("labels: {app: db}", 'labels: {app: db, sidecar.istio.io/inject: "false"}'),
         "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: on, namespace: shop}\nspec: {host: db.shop.svc.cluster.local, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}"],
        TO_DB, "NI328", "no proxy", "leave out"),
    "a selector that matches nothing": ([workload(), service(more=", selector: {app: database}"), DB], TO_DB, "NI320", "app=database", "selector"),
    "no endpoint is ready": (
        [workload(), service(), DB, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}\nendpoints: [{addresses: [10.0.0.9], conditions: {ready: false}}]"],
        TO_DB, "NI320", "none is ready", "--probe"),
    "a port that the Service lacks": ([workload(), service(), DB], {"to": "db:5433"}, "NI319", "5432 (tcp-sql)", "5432"),
    "a targetPort by a name that no container has": ([workload(), service("[{port: 5432, name: tcp, targetPort: psql}]"), DB], TO_DB, "NI321", "psql", "containerPort"),
    "an ExternalName that is an address": ([workload(), service(more=", type: ExternalName, externalName: 10.1.2.3")], TO_DB, "NI323", "10.1.2.3", "EndpointSlice"),
    "a probe of a port name that does not exist": (
        [workload("containers: [{name: web, image: web, livenessProbe: {httpGet: {port: health}}}]")], {"probe": True}, "NI330", "health", "containerPort"),
    "a pod that is not injected": ([workload(labels='app: web, sidecar.istio.io/inject: "false"'), service(), DB, STRICT], TO_DB, "NI310", "no proxy", "sidecar.istio.io/inject"),
}  # fmt: skip

# --- the pod alone ---


def pod(spec, status="", more=""):
    """A pod that exists already."""
    text = f", status: {{{status}}}" if status else ""
    return f"{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: shop, labels: {{app: web}}{more}}}, spec: {{{spec}}}{text}}}"


PROXY = "{name: istio-proxy, image: p}"
WAITS = "{name: istio-proxy, image: p, lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}}"
VALIDATION = "{name: istio-validation, image: i, args: [--run-validation, --skip-rule-apply]}"
OFF = 'sidecar.istio.io/inject: "false"'
AWAY = "traffic.sidecar.istio.io/excludeOutboundPorts: '80'"
PODS = {
    "a Deployment that will be injected": Situation((workload(),)),
    "an option that cannot be read": Situation((workload(annotations='traffic.sidecar.istio.io/includeOutboundPorts: "x"'),)),
    "arguments that cannot be read": Situation((pod(f"initContainers: [{{name: istio-init, image: i, args: [istio-iptables, --nope]}}], containers: [{PROXY}]"),)),
    "a pod of a namespace that is not given": Situation((workload().replace("namespace: shop", "namespace: data"),)),
    "a pod that exists and has no proxy": Situation((pod("containers: [{name: web, image: web}]"),)),
    "a pod on its node's network": Situation((workload("hostNetwork: true, containers: [{name: web, image: web}]"),)),
    "a proxy that is ready": Situation((pod(f"initContainers: [{VALIDATION}, {{name: m, image: m}}], containers: [{WAITS}, {{name: web, image: w}}]",
        "containerStatuses: [{name: istio-proxy, ready: true}], initContainerStatuses: [{name: m, state: {terminated: {exitCode: 0}}}]"),)),
    "a proxy that is not ready": Situation((pod(f"initContainers: [{VALIDATION}, {{name: m, image: m}}], containers: [{{name: web, image: w}}, {PROXY}]",
        "containerStatuses: [{name: istio-proxy, ready: false, state: {waiting: {reason: CrashLoopBackOff}}}], initContainerStatuses: [{name: m, state: {running: {}}}]"),)),
    "a proxy that has ended with its pod": Situation((pod(f"initContainers: [{VALIDATION}], containers: [{PROXY}]",
        "phase: Failed, containerStatuses: [{name: istio-proxy, ready: false}]"),)),
    "a native sidecar that is not ready and says no reason": Situation((pod(f"initContainers: [{VALIDATION}, {PROXY.replace('}', ', restartPolicy: Always}')}], containers: [{{name: web, image: w}}]",
        "initContainerStatuses: [{name: istio-proxy, ready: false}]"),)),
    "an init container before the proxy, of which a connection is asked": Situation((pod(f"initContainers: [{VALIDATION}, {{name: m, image: m}}], containers: [{PROXY}, {{name: web, image: w}}]"),), {"to": "203.0.113.7:443"}),
    "an init container behind a native sidecar": Situation((pod(f"initContainers: [{PROXY.replace('}', ', restartPolicy: Always}')}, {{name: m, image: m}}], containers: [{{name: web, image: w}}]"),)),
    "a Job of a native sidecar": Situation((workload("restartPolicy: Never, containers: [{name: web, image: web}]", 'sidecar.istio.io/nativeSidecar: "true"', "Job"),)),
    "containers that run as the proxy's user and group": Situation((workload("containers: [{name: web, image: web, securityContext: {runAsUser: 1337}}, {name: log, image: l, securityContext: {runAsGroup: 1337}}]"),)),
    "ports that are the proxy's": Situation((workload(
        f"containers: [{{name: web, image: web, ports: [{', '.join([f'{{containerPort: {port}}}' for port in (15000, 15004, 15006, 15021, 15053)])}, {{containerPort: 15090, protocol: udp}}]}}]"),)),
    "ports that two containers want": Situation((workload("containers: [{name: web, image: web, ports: [{containerPort: 80}, {containerPort: 81}]}, {name: log, image: l, ports: [{containerPort: 80}, {containerPort: 81, protocol: UDP}]}]"),)),
    "a second network": Situation((workload(annotations="k8s.v1.cni.cncf.io/networks: 'storage, data@eth9'"),)),
    "a connection that works": Situation((workload(), OPEN_MESH, service(more=", clusterIP: 10.96.0.7"), DB, STRICT), TO_DB, answer=live()),
    "a connection that is reset": Situation((workload(), CLOSED_MESH), {"to": OUTSIDE}),
    "a client of its Service": Situation((workload(), OPEN_MESH, WEB_SERVICE, CLIENT, STRICT), FROM),
    "a client that is not in the mesh": Situation((workload(), WEB_SERVICE, STRICT), {"client": "10.9.9.9", "port": "80"}),
    "probes of a pod": Situation((workload("containers: [{name: web, image: web, livenessProbe: {tcpSocket: {port: 8080}}}]"),), {"probe": True}),
    "a second network that is left out": Situation((workload(annotations="k8s.v1.cni.cncf.io/networks: storage, traffic.sidecar.istio.io/excludeInterfaces: net1"),)),
}  # fmt: skip


# --- single steps ---

PERMISSIVE, DISABLE = STRICT.replace("STRICT", "PERMISSIVE"), STRICT.replace("STRICT", "DISABLE")
ABSENT = sidecar(only("istio-system/*", mode="ALLOW_ANY"))
DATA = "apiVersion: v1\nkind: Namespace\nmetadata: {name: data, labels: {istio-injection: enabled}}"
DB_OUTSIDE = DB.replace("labels: {app: db}", f"labels: {{app: db, {OFF}}}")
CLIENT_OUTSIDE = CLIENT.replace("labels: {app: api}", f"labels: {{app: api, {OFF}}}")
CLIENT_AWAY = CLIENT.replace("labels: {app: api}", f"labels: {{app: api}}, annotations: {{{AWAY}}}")
CLIENT_AS_PROXY = CLIENT.replace("image: db,", "image: db, securityContext: {runAsUser: 1337},")
CLIENT_ON_NODE = CLIENT.replace("spec: {containers", "spec: {hostNetwork: true, containers")
ABROAD = "remove 5432 from --istio-local-outbound-ports-exclude"
SECOND_SERVICE = WEB_SERVICE.replace("name: web", "name: www")
UNINJECTED = workload(labels=f"app: web, {OFF}")


def rule(mode, host="db.shop.svc.cluster.local", more=""):
    """A DestinationRule."""
    tls = f", trafficPolicy: {{tls: {{mode: {mode}}}}}" if mode else ""
    return f"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: r, namespace: shop}}\nspec: {{host: {host}{tls}{more}}}"


def to_db(*texts, server=DB, **more):
    """The pod connects to the Service `db`."""
    return Situation((workload(), OPEN_MESH, service(), server, *texts), TO_DB, **more)


def from_api(*texts, client=CLIENT, asked=FROM, **more):
    """The pod `api` connects to the pod."""
    return Situation((workload(), OPEN_MESH, client, *texts), asked, **more)


def probe(text, *more, annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false"', whole=KINDS, ports="[{containerPort: 8080, name: web}]", labels="app: web"):
    """The pod has a readiness probe."""
    spec = f"containers: [{{name: web, image: web, ports: {ports}, readinessProbe: {{{text}}}}}]"
    return Situation((workload(spec, annotations, labels=labels), *more), {"probe": True}, whole=whole)


MUTUAL_TLS = {
    "STRICT, and the proxy knows the Service": to_db(STRICT),
    "nothing sets a mode": to_db(),
    "plain text to a PERMISSIVE server": to_db(PERMISSIVE, ABSENT),
    "plain text to a STRICT server, of a Service that is not imported": to_db(STRICT, ABSENT),
    "a DestinationRule turns TLS off": to_db(STRICT, rule("DISABLE")),
    "a DestinationRule without a mode": to_db(STRICT, rule("", more=", trafficPolicy: {tls: {}}")),
    "a DestinationRule of another port": to_db(STRICT, rule("", more=", trafficPolicy: {portLevelSettings: [{port: {number: 80}, tls: {mode: DISABLE}}]}")),
    "TLS of its own to a STRICT server": to_db(STRICT, rule("SIMPLE")),
    "TLS of its own to another server": to_db(PERMISSIVE, rule("MUTUAL")),
    "mutual TLS to a server that takes none": to_db(DISABLE, rule("ISTIO_MUTUAL")),
    "a server that takes no mutual TLS": to_db(DISABLE),
    "a server outside of the mesh": to_db(server=DB_OUTSIDE),
    "mutual TLS to a server outside of the mesh": to_db(rule("ISTIO_MUTUAL"), server=DB_OUTSIDE),
    "TLS of its own to a server outside of the mesh": to_db(rule("SIMPLE"), server=DB_OUTSIDE),
    "a server whose namespace is not given": Situation(
        (workload(), OPEN_MESH, service(namespace="data"), DB.replace("namespace: shop", "namespace: data")), {"to": "db.data:5432"}),
    "an excluded port": to_db(STRICT, answer=live(verdict="direct", sentence="direct: goes out", changes=[{"change": ABROAD, "verdict": "captured"}])),
    "the mode of the port": to_db(STRICT.replace("spec: {", "spec: {selector: {matchLabels: {app: db}}, portLevelMtls: {'5432': {mode: DISABLE}}, ")),
    "PeerAuthentications that could not be read": to_db(ABSENT, unread=("PeerAuthentication",)),
    "DestinationRules that could not be read": to_db(STRICT, unread=("DestinationRule",)),
    "DestinationRules of another namespace that could not be read": Situation(
        (workload(), OPEN_MESH, DATA, service(namespace="data"), DB.replace("namespace: shop", "namespace: data"), STRICT.replace("namespace: shop", "namespace: data"),
         rule("DISABLE", "db.data.svc.cluster.local").replace("namespace: shop", "namespace: data")), {"to": "db.data:5432"}, unread=("DestinationRule",)),
    "Sidecars that could not be read": to_db(STRICT, unread=("Sidecar",)),
    "files that give nothing else": to_db(STRICT, whole=()),
    "a client outside of the pods that are given": from_api(STRICT, WEB_SERVICE, asked={"client": "10.9.9.9", "port": "8080"}),
    "a client that is not given": Situation((workload(), OPEN_MESH, STRICT), {"client": "nobody", "port": "8080"}),
    "a client in the mesh": from_api(STRICT, WEB_SERVICE),
    "a client outside of the mesh": from_api(STRICT, WEB_SERVICE, client=CLIENT_OUTSIDE),
    "a client on its node's network": from_api(STRICT, WEB_SERVICE, client=CLIENT_ON_NODE),
    "a client that runs as the proxy": from_api(STRICT, WEB_SERVICE, client=CLIENT_AS_PROXY),
    "a client whose options let some connections pass": from_api(STRICT, WEB_SERVICE, client=CLIENT_AWAY),
    "a client with a DestinationRule": from_api(STRICT, WEB_SERVICE, rule("DISABLE", "web")),
    "a client whose Sidecar does not import the Service": from_api(STRICT, WEB_SERVICE, ABSENT),
    "a client whose Sidecar could not be read": from_api(STRICT, WEB_SERVICE, unread=("Sidecar",)),
    "no Service leads to the port": from_api(STRICT),
    "Services that could not be read": from_api(STRICT, unread=("Service",)),
    "two Services that lead to the port, of which one has a DestinationRule": from_api(STRICT, WEB_SERVICE, SECOND_SERVICE, rule("DISABLE", "web")),
    "two Services that lead to the port, of which one is imported": from_api(STRICT, WEB_SERVICE, SECOND_SERVICE, sidecar(only("shop/www.shop.svc.cluster.local", mode="ALLOW_ANY"))),
    "the port of metrics": Situation((workload(annotations='prometheus.io/port: "9090"'), STRICT), {"client": "10.9.9.9", "port": "9090"}),
}  # fmt: skip

PROBES = {
    "none": Situation((workload(),), {"probe": True}),
    "a command": probe("exec: {command: [true]}"),
    "a name that no port has": probe("httpGet: {path: /, port: health}"),
    "the name of a port": probe("httpGet: {path: /, port: web}", STRICT),
    "a number as a text": probe('httpGet: {path: /, port: "8080"}', STRICT),
    "through the agent, because injection rewrites it": probe("httpGet: {path: /, port: 8080}", annotations=""),
    "a loopback address": probe("httpGet: {host: 127.0.0.1, path: /, port: 8080}"),
    "a pod outside of the mesh": probe("httpGet: {path: /, port: 8080}", labels=f"app: web, {OFF}"),
    "a pod whose namespace is not given": Situation((probe("httpGet: {path: /, port: 8080}").texts[0].replace("namespace: shop", "namespace: data"),), {"probe": True}),
    "a port that is excluded": probe("httpGet: {path: /, port: 8080}", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false", traffic.sidecar.istio.io/excludeInboundPorts: "8080"'),
    "a port that is not included": probe("httpGet: {path: /, port: 8080}", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false", traffic.sidecar.istio.io/includeInboundPorts: "80"'),
    "a port that is included": probe("httpGet: {path: /, port: 8080}", STRICT, annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false", traffic.sidecar.istio.io/includeInboundPorts: "8080"'),
    "a pod whose inbound traffic is not captured": probe("httpGet: {path: /, port: 8080}", annotations='sidecar.istio.io/rewriteAppHTTPProbers: "false", sidecar.istio.io/interceptionMode: NONE'),
    "a connection alone": probe("tcpSocket: {port: 8080}"),
    "STRICT": probe("httpGet: {path: /, port: 8080}", STRICT),
    "gRPC": probe("grpc: {port: 8080}", STRICT),
    "a mode that is not known": probe("httpGet: {path: /, port: 8080}", whole=()),
    "PERMISSIVE": probe("httpGet: {path: /, port: 8080}", PERMISSIVE),
    "more than are examined": Situation((workload(
        f"containers: [{', '.join([f'{{name: c{number}, image: i, livenessProbe: {{exec: {{command: [x]}}}}}}' for number in range(21)])}]"),), {"probe": True}),
    "hooks": Situation((workload("containers: [{name: web, image: web, lifecycle: {postStart: {exec: {command: [x]}}, preStop: {httpGet: {path: /, port: 81}}}, startupProbe: {tcpSocket: {port: 82}}, livenessProbe: {grpc: {port: 83}}}]"), STRICT), {"probe": True}),
}  # fmt: skip

NAMES = {
    "a Service of the namespace": to_db(),
    "a Service of another namespace": Situation((workload(), service(namespace="data"), DB.replace("namespace: shop", "namespace: data"), DATA), {"name": "db.data"}),
    "a Service in full": Situation((workload(), service()), {"name": "db.shop.svc.cluster.local"}),
    "a Service in full, with a dot at the end": Situation((workload(), service()), {"name": "db.shop.svc.cluster.local."}),
    "a pod of a headless Service": Situation((workload(), service()), {"name": "db-0.db.shop.svc"}),
    "a host outside": Situation((workload(),), {"name": "api.example.com"}),
    "a host outside, of a connection": Situation((workload(), OPEN_MESH), {"to": OUTSIDE}),
    "a host outside, with a dot at the end": Situation((workload(),), {"name": "api.example.com."}),
    "a host outside, with ndots 1": Situation((workload('dnsConfig: {options: [{name: ndots, value: "1"}]}, containers: [{name: web, image: web}]'),), {"name": "api.example.com"}),
    "a name without a dot that is none of a Service": Situation((workload(), OPEN_MESH), {"name": "nothing"}),
    "a pod that asks its node's servers": Situation((workload("dnsPolicy: Default, containers: [{name: web, image: web}]"), service(), DB), TO_DB),
    "a pod that asks its node's servers, about a host outside": Situation((workload("dnsPolicy: Default, containers: [{name: web, image: web}]"),), {"name": "api.example.com"}),
    "a pod on its node's network": Situation((workload("hostNetwork: true, containers: [{name: web, image: web}]"), service(), DB), TO_DB),
    "a pod on its node's network that asks the cluster's servers": Situation((workload("hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, containers: [{name: web, image: web}]"), service(), DB), TO_DB),
    "a pod with servers of its own": Situation((workload("dnsPolicy: None, dnsConfig: {nameservers: [10.1.1.1], searches: [example.com.]}, containers: [{name: web, image: web}]"), service(), DB), TO_DB),
    "more name servers than a resolver asks": Situation((workload("dnsPolicy: None, dnsConfig: {nameservers: [10.96.0.10, 10.96.0.11, 10.96.0.12, 10.96.0.13, 10.96.0.14]}, containers: [{name: web, image: web}]", annotations="proxy.istio.io/config: 'proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}'"),), {"name": "api.example.com"}),
    "a pod with servers of its own that may know the cluster": Situation((workload("dnsPolicy: None, dnsConfig: {searches: [svc.cluster.local]}, containers: [{name: web, image: web}]"), service(), DB), TO_DB),
    "queries that are captured": Situation((workload(annotations="proxy.istio.io/config: 'proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}'"), service(), DB), TO_DB),
    "a pod outside of the mesh": Situation((UNINJECTED, service(), DB), TO_DB),
}  # fmt: skip

SLICE = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: db-1, namespace: shop, labels: {kubernetes.io/service-name: db}}\nendpoints: [%s]"
READY, NOT_READY = "{addresses: [10.0.0.9]}", "{addresses: [10.0.0.8], conditions: {ready: false}}"
BY_NAME = "[{port: 5432, name: tcp, targetPort: %s}]"
SERVICES = {
    "as it should be": to_db(),
    "of another namespace": Situation((workload(), service(namespace="data")), TO_DB),
    "none of this name": Situation((workload(),), TO_DB),
    "none of this name among files": Situation((workload(),), TO_DB, whole=()),
    "none of this name among others": Situation((workload(), WEB_SERVICE), TO_DB, whole=()),
    "a host of two parts": Situation((workload(),), {"to": "example.com:443"}),
    "a port that it lacks": Situation((workload(), service("[{port: 5432, name: tcp-sql}, {port: 80}]"), DB), {"to": "db:5433"}),
    "a Service without ports": Situation((workload(), service("[]"), DB), {"to": "db:5433"}),
    "a port by its name": Situation((workload(), service(BY_NAME % "sql"), DB), {"to": "db:tcp"}),
    "an ExternalName": Situation((workload(), service(more=", type: ExternalName, externalName: db.example.com")), TO_DB),
    "an ExternalName that is an address": Situation((workload(), service(more=", type: ExternalName, externalName: 10.1.2.3")), TO_DB),
    "endpoints of which one is ready": Situation((workload(), service(), DB, SLICE % f"{READY}, {NOT_READY}"), TO_DB),
    "endpoints of which none is ready": Situation((workload(), service(), DB, SLICE % f"{NOT_READY}, {NOT_READY}"), TO_DB),
    "no endpoints": Situation((workload(), service(), SLICE % ""), TO_DB),
    "no endpoints, and no selector": Situation((workload(), service(more=", selector: {}"), SLICE % ""), TO_DB),
    "no pod in the cluster": Situation((workload(), service()), TO_DB, whole=(*KINDS, "Pod")),
    "no pod among files": Situation((workload(), service()), TO_DB, whole=()),
    "a selector that almost matches": Situation((workload(), service(more=", selector: {app: db, tier: back}"), DB), TO_DB),
    "a selector that matches a pod of the Service's name not at all": Situation((workload(), service(more=", selector: {tier: back}"), DB), TO_DB),
    "a targetPort that no container has": Situation((workload(), service(BY_NAME % "psql"), DB), TO_DB),
    "a targetPort by name": Situation((workload(), service(BY_NAME % "sql"), DB), TO_DB),
    "a headless Service": Situation((workload(), service("[{port: 80, targetPort: 5432, name: tcp}]", ", clusterIP: None"), DB), {"to": "db:80"}),
    "a headless Service with a targetPort by name": Situation((workload(), service("[{port: 80, targetPort: sql, name: tcp}]", ", clusterIP: None"), DB), {"to": "db:80"}),
    "an address of a Service": Situation((workload(), service(more=", clusterIP: 10.96.0.7"), DB), {"to": "10.96.0.7:5432"}),
    "an address of an endpoint": Situation((workload(), service("[{port: 80, targetPort: 5432, name: tcp}]"), DB, SLICE % READY), {"to": "10.0.0.9:5432"}),
}  # fmt: skip


def to_port(ports, mesh="{}", **asked):
    """The pod connects to a port of the Service `db`."""
    return Situation((workload(), MESH.replace("SETTINGS", mesh), service(ports), DB), {"to": "db:" + ports.partition("port: ")[2].partition(",")[0].partition("}")[0], **asked})


PROTOCOLS = {
    "TCP": to_port("[{port: 5432, name: tcp-sql}]"),
    "HTTP": to_port("[{port: 80, name: http-web}]"),
    "TLS by appProtocol": to_port("[{port: 443, name: web, appProtocol: https}]"),
    "detected": to_port("[{port: 8080, name: web}]"),
    "detected, without a name": to_port("[{port: 8080}]"),
    "detected, with a limit": to_port("[{port: 8080}]", "protocolDetectionTimeout: 5s"),
    "HTTP by its name, where something else is spoken": to_port("[{port: 5432, name: http-sql}]"),
    "HTTP by appProtocol, where something else is spoken": to_port("[{port: 6379, name: x, appProtocol: http}]"),
    "the server speaks first": to_port("[{port: 3307, targetPort: 3306, name: db}]"),
    "the server speaks first, with a limit": to_port("[{port: 22}]", "protocolDetectionTimeout: 0.1s"),
    "UDP is asked by TCP": to_port("[{port: 514, protocol: UDP, name: log}]"),
    "TCP is asked by UDP": to_port("[{port: 514, name: log}]", udp=True),
    "UDP": to_port("[{port: 514, protocol: UDP, name: log}]", udp=True),
}  # fmt: skip

ENTRY = "apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: e, namespace: shop}\nspec: {hosts: [HOST]MORE}"
PROXY_OUT = sidecar("outboundTrafficPolicy: {mode: ALLOW_ANY, egressProxy: {host: out.example.com, port: {number: 80}}}")


def outside(*texts, to=OUTSIDE, mesh=OPEN_MESH, **more):
    """The pod connects to a host outside."""
    return Situation((workload(), mesh, *texts), {"to": to}, **more)


def entry(host="api.example.com", more=""):
    """A ServiceEntry."""
    return ENTRY.replace("HOST", host).replace("MORE", more)


def exported(places):
    """The Service `db` of the namespace `data`, with what it says of exportTo."""
    text = service(namespace="data").replace("metadata: {", f"metadata: {{annotations: {{networking.istio.io/exportTo: '{places}'}}, ")
    return Situation((workload(), CLOSED_MESH, text, DATA, DB.replace("namespace: shop", "namespace: data")), {"to": "db.data:5432"})


VIRTUAL = "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: v, namespace: shop}\nspec: {hosts: [HOST], http: [{}]}"
REGISTRY = {
    "nothing names it, and the mesh passes it on": outside(),
    "nothing names it, and the mesh resets it": outside(mesh=CLOSED_MESH),
    "nothing names it, and a Sidecar has it reset": outside(sidecar(CLOSED)),
    "nothing names it, and a Sidecar has it passed on": outside(sidecar(OPEN), mesh=CLOSED_MESH),
    "nothing names it, and the mesh's settings are not known": outside(mesh=NAMESPACE),
    "nothing names it, and the mode is none": outside(sidecar("outboundTrafficPolicy: {mode: FAST}")),
    "nothing names it, and an egressProxy gets it": outside(PROXY_OUT),
    "nothing that is given names it": outside(mesh=CLOSED_MESH, whole=()),
    "Sidecars that could not be read": outside(mesh=OPEN_MESH, unread=("Sidecar",)),
    "a ServiceEntry names it": outside(entry(), mesh=CLOSED_MESH),
    "a ServiceEntry names it for another port": outside(entry(more=", ports: [{number: 80, name: http, protocol: HTTP}]"), mesh=CLOSED_MESH),
    "a ServiceEntry that is not exported": outside(entry(more=", exportTo: ['~']"), mesh=CLOSED_MESH),
    "a ServiceEntry that is not imported": outside(entry(), sidecar(only("istio-system/*"))),
    "a ServiceEntry has its address": outside(entry(more=", addresses: [203.0.113.0/24]"), to="203.0.113.7:443", mesh=CLOSED_MESH),
    "a ServiceEntry has its address as an endpoint": outside(entry(more=", addresses: [203.0.113.0/24], endpoints: [{address: 198.51.100.9}]"), to="198.51.100.9:443", mesh=CLOSED_MESH),
    "a VirtualService leads it elsewhere": outside(VIRTUAL.replace("HOST", "api.example.com"), mesh=CLOSED_MESH),
    "a Service that a Sidecar does not import": to_db(sidecar(only("istio-system/*"))),
    "a Service that only a listener without capture imports": to_db(sidecar(f"{CLOSED}, egress: [{{port: {{number: 5432}}, captureMode: NONE, hosts: [shop/*]}}]")),
    "a Service whose Sidecar is not known": to_db(unread=("Sidecar",)),
    "a Service without Sidecars that are given": to_db(whole=()),
    "a Service that is not exported": exported("other"),
    "a Service of which it is not known whether it is exported": Situation((workload(), service(namespace="data"), DATA, DB.replace("namespace: shop", "namespace: data")), {"to": "db.data:5432"}),
    "the address of an endpoint": Situation((workload(), CLOSED_MESH, service("[{port: 80, targetPort: 5432, name: tcp}]", ", clusterIP: 10.96.0.7"), DB, SLICE % READY), {"to": "10.0.0.9:5432"}),
    "the address of an endpoint that speaks HTTP": Situation((workload(), CLOSED_MESH, service("[{port: 80, targetPort: 8080, name: http}]", ", clusterIP: 10.96.0.7"), DB, SLICE % READY), {"to": "10.0.0.9:8080"}),
    "a client whose proxy resets it": from_api(WEB_SERVICE, sidecar(only("istio-system/*"))),
    "a client whose proxy resets it, without a Service": from_api(sidecar(CLOSED)),
    "a client whose options let some connections pass": from_api(WEB_SERVICE, sidecar(only("istio-system/*")), client=CLIENT_AWAY),
}  # fmt: skip


def policy(kind, group, spec, name="p"):
    """A policy of a kind."""
    return f"apiVersion: {group}/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{{spec}}}"


def network(spec, name="p"):
    return policy("NetworkPolicy", "networking.k8s.io", spec, name)


def authorization(spec, name="p"):
    return policy("AuthorizationPolicy", "security.istio.io", spec, name)


NETWORK_POLICIES = {
    "none": to_db(),
    "of both ends": to_db(network("podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]"), network("podSelector: {matchLabels: {app: db}}", "q")),
    "of the other direction": to_db(network("podSelector: {matchLabels: {app: web}}")),
    "of egress, by its rules": to_db(network("podSelector: {}, egress: [{}]")),
    "more than are shown": to_db(*[network("podSelector: {matchLabels: {app: web}}, egress: [{}], policyTypes: [Egress]", f"p{number}") for number in range(7)]),
    "that could not be read": to_db(unread=("NetworkPolicy",)),
    "of a pod and its client": from_api(WEB_SERVICE, network("podSelector: {}, policyTypes: [Egress]")),
}  # fmt: skip
AUTHORIZATIONS = {
    "none": to_db(),
    "of the server": to_db(authorization("action: DENY, selector: {matchLabels: {app: db}}")),
    "of the namespace": to_db(authorization("")),
    "that only reports": to_db(authorization("action: AUDIT")),
    "that could not be read": to_db(unread=("AuthorizationPolicy",)),
}
ROUTES = {
    "none": to_db(),
    "of the Service": to_db(VIRTUAL.replace("HOST", "db")),
    "of the host": outside(VIRTUAL.replace("HOST", "api.example.com")),
    "that could not be read": to_db(unread=("VirtualService",)),
}

RULES = {
    "captured": to_db(answer=live()),
    "past the proxy": to_db(answer=live(verdict="direct", sentence="direct: goes out", changes=[{"change": ABROAD, "verdict": "captured"}])),
    "past the proxy, whatever is changed": to_db(answer=live(verdict="direct", sentence="direct: goes out")),
    "dropped": to_db(answer=live(verdict="dropped", sentence="dropped: by rule 1 of filter OUTPUT")),
    "dropped by an option": to_db(answer=live(verdict="dropped", sentence="dropped: by rule 1", changes=[{"change": "--drop-invalid off", "verdict": "direct"}])),
    "not known": to_db(answer=live(verdict="unknown", sentence="unknown: a rule is not understood")),
    "an answer that is lost": to_db(answer=live(answer={"arrives": False, "reason": "x"}, sentence="captured, and its answer is lost")),
    "UDP": Situation((workload(), service("[{port: 514, protocol: UDP, name: log}]"), DB), {"to": "db:514", "udp": True}),
    "a name whose address is not known": Situation((workload(annotations="traffic.sidecar.istio.io/includeOutboundIPRanges: 10.0.0.0/8"), service(), DB), TO_DB),
    "a port by a name that is not known": Situation((workload(), OPEN_MESH), {"to": "api.example.com:https"}),
    "an example's address": Situation((workload(), OPEN_MESH), {"to": OUTSIDE}),
    "options that cannot be read": Situation((workload(annotations='traffic.sidecar.istio.io/includeOutboundPorts: "x"'), service(), DB), TO_DB),
    "probes of more ports than the rules are asked about": replace(Situation((workload(
        f"containers: [{', '.join([f'{{name: c{number}, image: i, livenessProbe: {{tcpSocket: {{port: {8080 + number}}}}}}}' for number in range(7)])}]", 'sidecar.istio.io/rewriteAppHTTPProbers: "false"'),), {"probe": True}), answer=live()),
    "rules that cannot be read": to_db(error="NET_ADMIN is missing"),
    "rules that cannot be read, inbound": from_api(WEB_SERVICE, error="NET_ADMIN is missing"),
    "rules that cannot be read, of a port with a probe": replace(probe("httpGet: {path: /, port: 8080}"), error="NET_ADMIN is missing"),
    "inbound": from_api(WEB_SERVICE),
    "inbound, excluded, from a client of the mesh": Situation((workload(annotations='traffic.sidecar.istio.io/excludeInboundPorts: "8080"'), OPEN_MESH, CLIENT, WEB_SERVICE), FROM),
    "inbound, excluded, from a client outside": Situation((workload(annotations='traffic.sidecar.istio.io/excludeInboundPorts: "8080"'), OPEN_MESH), {"client": "10.9.9.9", "port": "8080"}),
    "more name servers than a resolver asks": Situation((workload("dnsPolicy: None, dnsConfig: {nameservers: [10.96.0.10, 10.96.0.11, 10.96.0.12, 10.96.0.13, 10.96.0.14]}, containers: [{name: web, image: web}]", annotations="proxy.istio.io/config: 'proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}'"),), {"name": "api.example.com"}),
    "the server that is asked for a name": Situation((workload("dnsPolicy: None, dnsConfig: {nameservers: [10.96.0.10]}, containers: [{name: web, image: web}]", annotations="proxy.istio.io/config: 'proxyMetadata: {ISTIO_META_DNS_CAPTURE: \"true\"}'"),), {"name": "api.example.com"}),
}  # fmt: skip
RECIPIENTS = {
    "not read": to_db(),
    "the proxy": to_db(answer=live(listeners=[recipient(None, "0.0.0.0:15001 (uid 1337) gets it", "accepted", users=[1337])])),
    "a process of another user": to_db(answer=live(listeners=[recipient("NI380", "0.0.0.0:15001 (uid 1000) gets it", "accepted", users=[1000])])),
    **{f"refused ({code})": to_db(answer=live(listeners=[recipient(code, "nobody listens", who=who)])) for code, who in (
        ("NI301", "proxy"), ("NI302", "proxy"), ("NI303", "proxy"), ("NI304", "application"), ("NI305", "application"), ("NI306", "application"), ("NI307", "proxy"), ("NI308", "resolver"))},
    "refused, perhaps": to_db(answer=live(listeners=[recipient("NI301", "it is not known who listens", "unknown")])),
}  # fmt: skip
PLAIN_RULES = {
    "the way out depends on the routes": to_db(answer=live(sentence="captured: the way out depends on what the routes say")),
    "a way out": to_db(answer=live()),
}
ENTRIES = {"an entry of another connection": to_db(answer=live(warnings=["a conntrack entry of before the rules keeps it from the proxy", "another"]))}
PORTS = {
    "not known": Situation((workload(),), {"client": "10.9.9.9"}),
    "a name that no Service has": Situation((workload(), WEB_SERVICE), {"client": "10.9.9.9", "port": "grpc"}),
}
CLIENTS = {
    "in the mesh": from_api(),
    "outside of the mesh": from_api(client=CLIENT_OUTSIDE),
    "on its node's network": from_api(client=CLIENT_ON_NODE),
    "not given": Situation((workload(),), FROM),
    "of a namespace that is not given": Situation((workload(), CLIENT.replace("namespace: shop", "namespace: data")), {"client": "data/api", "port": "8080"}),
}
SERVERS = {"not given": Situation((workload(), service()), TO_DB)}
SITUATIONS = {
    "mutual TLS": MUTUAL_TLS, "probe": PROBES, "dns": NAMES, "service": SERVICES, "protocol": PROTOCOLS, "registry": REGISTRY,
    "network policy": NETWORK_POLICIES, "authorization": AUTHORIZATIONS, "route": ROUTES, "rules": RULES, "listeners": RECIPIENTS,
    "routes": PLAIN_RULES, "conntrack": ENTRIES, "port": PORTS, "client": CLIENTS, "server": SERVERS,
}  # fmt: skip


# --- the file of a report ---


def report_of(**sections):
    """The file of a report with these sections, an underscore for a space in a title."""
    return "# netinit report\n\n" + "".join([f"## {title.replace('_', ' ')}\n\n```\n{text}\n```\n\n" for title, text in sections.items()])


IN_MESH = 'container: "web"\ncontainer: "istio-proxy"'
SAME = "netinit verify: exit code 0\nsource: live rules\nas planned: 37 rules\nnote: nothing"
SHOWN = "netinit apply -p 15001 -z 15006 -u 1337 -m REDIRECT -i '*' -b '*' -d 15090,15021,15020 -o 3306 --ipv6 off"
REPORTS = {  # the file, and what is asked
    "as it should be": (report_of(Pod=IN_MESH, Rules_compared=SAME, Doctor="netinit doctor: exit code 0", Options=SHOWN), {}),
    "nothing but a title": (report_of(), {}),
    "findings about the pod": (report_of(Pod=f"finding: container NAME-1 runs as root; choose another; or not (NI017)\nfinding: of another version\nfinding: of no code; do it (NI999)\n{IN_MESH}"), {}),
    "more findings than are told": (report_of(Pod="\n".join([f"finding: number {number} (NI017)" for number in range(7)])), {}),
    "a pod outside of the mesh": (report_of(Pod='container: "web"\ninit container: "istio-proxy-like"'), {}),
    "a pod with an init container of the mesh": (report_of(Pod='init container: "istio-init"'), {}),
    "rules that could not be compared": (report_of(Rules_compared="the agent of the node did not answer"), {}),
    "rules that differ": (report_of(Rules_compared="netinit verify: exit code 3\nNOT as planned\nmissing nat ISTIO_OUTPUT -j ISTIO_REDIRECT\n" + "\n".join([f"extra {number}" for number in range(5)])), {}),
    "a comparison that failed without a word": (report_of(Rules_compared="netinit verify: exit code 1"), {}),
    "a comparison without a word": (report_of(Rules_compared="netinit verify: exit code 0"), {}),
    "who listens": (report_of(Rules_compared=f"{SAME}\nthen: nothing listens on 15001 (NI301)\nnothing listens on 8080 (NI304)\nanother (NI017)"), {}),
    "a node that lacks something": (report_of(Doctor="netinit doctor: exit code 1"), {}),
    "an address that is excluded": (report_of(Options=SHOWN), {"to": "203.0.113.7:3306"}),
    "an address that is captured": (report_of(Options=f"A=B {SHOWN}"), {"to": "203.0.113.7:443"}),
    "an address, by UDP": (report_of(Options=SHOWN), {"to": "203.0.113.7:53", "udp": True}),
    "an address, of the proxy's user": (report_of(Options=SHOWN), {"to": "203.0.113.7:443", "uid": "1337"}),
    "an address and options that are redacted": (report_of(Options=f"{SHOWN} -x ADDRESS-1/24"), {"to": "203.0.113.7:443"}),
    "an address and options that are none": (report_of(Options="netinit apply --nope"), {"to": "203.0.113.7:443"}),
    "an address and a quote that does not end": (report_of(Options="netinit apply '"), {"to": "203.0.113.7:443"}),
    "an address without options": (report_of(), {"to": "203.0.113.7:443"}),
    "an address and options that the report could not read": (report_of(Options="cannot be read: invalid value 'x' for -p"), {"to": "203.0.113.7:443"}),
    "a name": (report_of(Options=SHOWN), {"to": "db:5432"}),
    "an address and a port by its name": (report_of(Options=SHOWN), {"to": "203.0.113.7:https"}),
    "a client": (report_of(Options=SHOWN), {"client": "10.9.9.9"}),
}  # fmt: skip
