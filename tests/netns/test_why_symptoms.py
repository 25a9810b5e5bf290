"""Symptoms that developers report, rebuilt: first what the client sees, on the kernel; then the first line of `netinit why`.

The proxy not being up, an application on loopback, rules that are gone and rules that drop are in test_why_live.py.
"""

from __future__ import annotations

import errno
import shlex
import socket
import time
from contextlib import closing
from pathlib import Path

import pytest
import yaml

import prefork
from laboratory import Pod
from netinit.inject.deciding.podfile import deciding_objects
from netinit.library.rule_reading import Outlook
from netinit.library.why import why_of_objects
from netinit.options import Options
from netinit.questions.why.asked import read_asked
from netinit.questions.why.objects import read_objects
from netinit.questions.why.pods import read_pod
from programming import apply_in
from stand_ins import REQUEST, SEALED, Proxy, StandIns, answer, greet, talk

pytestmark = pytest.mark.netns
DB, EXTERNAL, RESOLVER, NODE_RESOLVER, KUBELET = "203.0.113.7", "203.0.113.8", "198.51.100.7", "203.0.113.8", "10.77.0.1"
PROXY, ROOT = 1337, 0
SILENCE = 0.5  # seconds without an answer: where none can come, however long one waits
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}"
STRICT = "apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: all, namespace: shop}\nspec: {mtls: {mode: STRICT}}"
NAMES = {"db.data.svc.cluster.local": DB, "api.example.com": EXTERNAL}
SEARCH = "search shop.svc.cluster.local svc.cluster.local cluster.local"


def workload(spec="containers: [{name: web, image: web}]", annotations="", name="web", labels=""):
    """A Deployment of the namespace shop, as its author wrote it."""
    template = f"metadata: {{labels: {{app: {name}{labels}}}, annotations: {{{annotations}}}}}, spec: {{{spec}}}"
    return f"apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}, namespace: shop}}\nspec: {{template: {{{template}}}}}"


def service(port="port: 5432, name: tcp-sql", address=DB, more="", namespace="shop"):
    """The Service of the pods `db`."""
    return f"apiVersion: v1\nkind: Service\nmetadata: {{name: db, namespace: {namespace}}}\nspec: {{clusterIP: {address}, selector: {{app: db}}, ports: [{{{port}}}]{more}}}"


SERVER = workload("containers: [{name: db, image: db}]", name="db")
SERVER_OUTSIDE = workload("containers: [{name: db, image: db}]", name="db", labels=', sidecar.istio.io/inject: "false"')


class Lab:
    """A pod and its surroundings. `client`: what is outside of it."""

    def __init__(self, pod: Pod, stand_ins: StandIns, folder: Path) -> None:
        self.pod, self.client, self.stand_ins = pod, pod.client, stand_ins
        self.file, self.folder = folder / "shop.yaml", folder

    def deploy(self, *texts: str) -> None:
        """Write the objects, and program the pod `web` as its manifest says."""
        self.file.write_text("\n---\n".join((NAMESPACE, *texts)))
        trees = list(yaml.safe_load_all(self.file.read_text()))
        chosen = next(one for one in read_objects(trees).workloads if one.name == "web")
        facts = read_pod(chosen, Outlook().foresee_by(deciding_objects(trees))).facts
        apply_in(self.pod, facts.options)

    def proxy(self, **ways) -> Proxy:
        """The pod's proxy, outbound or inbound."""
        made = Proxy(self.pod, **ways)
        self.stand_ins.serve(self.pod, 15006 if made.inbound else 15001, made, uid=PROXY)
        return made

    def why(self, *words: str) -> tuple[str, str]:
        """The code of the first step that failed, and all that is printed."""
        done = prefork.run(["why", str(self.file), "--select", "web", "--pid", str(self.pod.pid), *words])
        assert done.returncode in (0, 3), done.stderr
        assert done.stdout.startswith("✘ ") == (done.returncode == 3), done.stdout
        first = done.stdout.partition("\n")[0]
        return (first.rpartition("(")[2].removesuffix(")") if done.returncode else ""), done.stdout

    def why_of_a_cluster(self, **asked):
        """The report where all objects of the cluster are known, as the plugin of kubectl reads them."""
        known = read_objects(yaml.safe_load_all(self.file.read_text()), whole=("Service", "ServiceEntry", "Sidecar", "PeerAuthentication"))
        chosen = next(one for one in known.workloads if one.name == "web")
        return why_of_objects(read_asked(**asked), chosen, known, options=Options(pid=str(self.pod.pid)), outlook=Outlook())

    def resolve(self, name: str, conf: str) -> bool:
        """Whether the C library finds a name, with this resolv.conf."""
        (self.folder / "resolv.conf").write_text(conf)
        (self.folder / "nsswitch.conf").write_text("hosts: dns\n")
        mounts = [f"mount --bind {shlex.quote(str(self.folder / one))} /etc/{one}" for one in ("resolv.conf", "nsswitch.conf")]
        script = " && ".join([*mounts, f"exec getent ahosts {shlex.quote(name)}"])
        done = self.pod.run(["unshare", "-m", "sh", "-c", script])
        assert done.returncode in (0, 2), done.stderr
        return done.returncode == 0


@pytest.fixture
def lab(pod, tmp_path):
    with StandIns() as stand_ins:
        yield Lab(pod, stand_ins, tmp_path)


# --- connection refused, timeout, reset ---


def test_init_container_hangs_because_it_runs_before_the_proxy(lab):
    init = "initContainers: [{name: istio-validation, image: i, args: [--run-validation, --skip-rule-apply]}, {name: vault-agent-init, image: v}]"
    lab.deploy(workload(f"{init}, containers: [{{name: web, image: web}}, {{name: istio-proxy, image: p}}]"), service(), SERVER)
    lab.stand_ins.serve(lab.client, 5432, greet(b"welcome"))
    assert (talk(lab.pod, DB, 5432), talk(lab.pod, DB, 5432, uid=PROXY)) == ("refused", "welcome")
    code, text = lab.why()
    assert (code, '"vault-agent-init"' in text.splitlines()[0]) == ("NI105", True), text


def test_the_server_speaks_first_and_the_proxy_waits_for_the_client(lab):
    lab.deploy(workload(), service("port: 3307, targetPort: 3306, name: db"), SERVER)
    lab.stand_ins.serve(lab.client, 3307, greet(b"5.7.0-mysql"))
    server = lab.proxy(detects=True)
    assert (talk(lab.pod, DB, 3307, seconds=SILENCE), talk(lab.pod, DB, 3307, uid=PROXY)) == ("timeout", "5.7.0-mysql")
    assert server.seen == [f"{DB}:3307"]
    code, text = lab.why("--to", "db:3307")
    assert (code, "appProtocol: tcp" in text.splitlines()[1]) == ("NI326", True), text


def test_the_remedy_of_a_server_that_speaks_first_helps(lab):
    lab.deploy(workload(), service("port: 3307, targetPort: 3306, name: db, appProtocol: tcp"), SERVER)
    lab.stand_ins.serve(lab.client, 3307, greet(b"5.7.0-mysql"))
    lab.proxy()
    assert talk(lab.pod, DB, 3307) == "5.7.0-mysql"
    assert lab.why("--to", "db:3307")[0] == ""


def test_a_port_named_http_resets_what_is_no_request(lab):
    lab.deploy(workload(), service("port: 6379, name: http-cache"), SERVER)
    lab.stand_ins.serve(lab.client, 6379, answer(b"+PONG"))
    lab.proxy(http=True)
    assert (talk(lab.pod, DB, 6379, first=b"PING\r\n"), talk(lab.pod, DB, 6379, first=b"PING\r\n", uid=PROXY)) == ("reset", "+PONG")
    code, text = lab.why("--to", "db:6379")
    assert (code, "Redis" in text.splitlines()[0]) == ("NI325", True), text


def test_a_headless_service_translates_no_port(lab):
    lab.deploy(workload(), service("port: 80, targetPort: 8080, name: tcp", '"None"'), SERVER)
    lab.stand_ins.serve(lab.client, 8080, greet(b"welcome"))
    lab.proxy()
    assert [talk(lab.pod, DB, port) for port in (80, 8080)] == ["reset", "welcome"]
    assert talk(lab.pod, DB, 80, uid=PROXY) == "refused"
    code, text = lab.why("--to", "db:80")
    assert (code, "connect to port 8080" in text.splitlines()[1]) == ("NI322", True), text


def test_a_udp_port_is_refused_by_tcp_and_reached_by_udp_past_the_proxy(lab):
    lab.deploy(workload(), service("port: 514, protocol: UDP, name: log"), SERVER)
    server = lab.proxy()
    with lab.client.entered(), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as log:
        log.bind(("0.0.0.0", 514))
        log.settimeout(10)
        assert talk(lab.pod, DB, 514) == "reset"
        assert server.seen == [f"{DB}:514"]
        with lab.pod.entered(), closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
            sender.sendto(b"line", (DB, 514))
            assert log.recvfrom(10)[0] == b"line"
    assert lab.why("--to", "db:514")[0] == "NI324"
    assert lab.why("--to", "db:514", "--udp")[0] == ""


# --- works for one user, goes past the proxy ---


def test_it_works_as_root_only_because_the_application_has_the_proxy_s_user(lab):
    lab.deploy(workload("containers: [{name: web, image: web, securityContext: {runAsUser: 1337}}]"), service(), SERVER, STRICT)
    lab.stand_ins.serve(lab.client, 5432, sealed_alone)
    lab.proxy(seals=True)
    assert [talk(lab.pod, DB, 5432, first=b"select", uid=uid) for uid in (ROOT, PROXY)] == ["rows", "reset"]
    assert lab.why("--to", "db:5432")[0] == "NI017"


async def sealed_alone(reader, writer):
    """A server behind a proxy that takes mutual TLS alone."""
    first = await reader.read(4096)
    if first.startswith(SEALED):
        writer.write(b"rows")
    else:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()


def test_an_excluded_port_is_reset_by_a_strict_server(lab):
    lab.deploy(workload(annotations='traffic.sidecar.istio.io/excludeOutboundPorts: "5432"'), service(), SERVER, STRICT)
    lab.stand_ins.serve(lab.client, 5432, sealed_alone)
    lab.proxy(seals=True)
    assert talk(lab.pod, DB, 5432, first=b"select") == "reset"
    code, text = lab.why("--to", "db:5432")
    assert (code, "remove 5432 from annotation" in text.splitlines()[1]) == ("NI311", True), text


def test_a_misspelt_annotation_excludes_nothing(lab):
    lab.deploy(workload(annotations='traffic.sidecar.istio.io/excludeOutboundPort: "5432"'), service(), SERVER)
    lab.stand_ins.serve(lab.client, 5432, greet(b"welcome"))
    server = lab.proxy()
    assert (talk(lab.pod, DB, 5432), server.seen) == ("welcome", [f"{DB}:5432"])
    assert lab.why("--to", "db:5432")[0] == "NI106"


def test_an_external_address_passes_by_the_ranges_that_are_captured(lab):
    lab.deploy(workload(annotations="traffic.sidecar.istio.io/includeOutboundIPRanges: 10.0.0.0/8"))
    lab.stand_ins.serve(lab.client, 443, greet(b"welcome"))
    server = lab.proxy()
    assert (talk(lab.pod, EXTERNAL, 443), server.seen) == ("welcome", [])
    code, text = lab.why("--to", f"{EXTERNAL}:443")
    assert (code, "includeOutboundIPRanges" in text.splitlines()[1]) == ("NI311", True), text


@pytest.mark.parametrize(
    ("mode", "texts", "code"), [("DISABLE", (SERVER, STRICT), "NI327"), ("ISTIO_MUTUAL", (SERVER_OUTSIDE,), "NI328")], ids=["off", "on"]
)
def test_a_destination_rule_that_does_not_fit_the_server_has_it_reset(lab, mode, texts, code):
    rule = f"apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {{name: db, namespace: shop}}\nspec: {{host: db, trafficPolicy: {{tls: {{mode: {mode}}}}}}}"
    lab.deploy(workload(), service(), rule, *texts)
    lab.stand_ins.serve(lab.client, 5432, sealed_alone if code == "NI327" else answer(b"rows"))
    lab.proxy(seals=mode == "ISTIO_MUTUAL")
    assert talk(lab.pod, DB, 5432, first=b"select") == "reset"
    assert lab.why("--to", "db:5432")[0] == code


MESH = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: istio, namespace: istio-system}\ndata: {mesh: 'outboundTrafficPolicy: {mode: REGISTRY_ONLY}'}"


def test_what_is_not_registered_is_reset_where_the_mesh_passes_on_nothing_else(lab):
    lab.deploy(workload(), MESH)
    lab.stand_ins.serve(lab.client, 443, greet(b"welcome"))
    lab.proxy(registered=())
    assert (talk(lab.pod, EXTERNAL, 443), talk(lab.pod, EXTERNAL, 443, uid=PROXY)) == ("reset", "welcome")
    found = lab.why_of_a_cluster(to="api.example.com:443")
    assert (found.cause.code, "REGISTRY_ONLY" in found.cause.text) == ("NI334", True), found.text


def test_a_service_that_the_sidecar_does_not_import_is_reset_where_it_passes_on_nothing_else(lab):
    closed = "outboundTrafficPolicy: {mode: REGISTRY_ONLY}, egress: [{hosts: [istio-system/*]}]"
    sidecar = f"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: shop}}\nspec: {{{closed}}}"
    lab.deploy(workload(), service(), SERVER, sidecar)
    lab.stand_ins.serve(lab.client, 5432, greet(b"welcome"))
    lab.proxy(registered=())
    assert (talk(lab.pod, DB, 5432), talk(lab.pod, DB, 5432, uid=PROXY)) == ("reset", "welcome")
    code, text = lab.why("--to", "db:5432")
    assert (code, 'add "shop/*" to the hosts of egress' in text.splitlines()[1]) == ("NI334", True), text


@pytest.mark.parametrize(("hosts", "answers", "code"), [("istio-system/*", "reset", "NI327"), ("./*", "rows", "")], ids=["not imported", "imported"])
def test_a_service_that_the_sidecar_does_not_import_gets_plain_text_where_the_rest_is_passed_on(lab, hosts, answers, code):
    opened = f"outboundTrafficPolicy: {{mode: ALLOW_ANY}}, egress: [{{hosts: [{hosts}]}}]"
    sidecar = f"apiVersion: networking.istio.io/v1\nkind: Sidecar\nmetadata: {{name: default, namespace: shop}}\nspec: {{{opened}}}"
    rule = "apiVersion: networking.istio.io/v1\nkind: DestinationRule\nmetadata: {name: db, namespace: shop}\nspec: {host: db, trafficPolicy: {tls: {mode: ISTIO_MUTUAL}}}"
    lab.deploy(workload(), service(), SERVER, STRICT, sidecar, rule)
    lab.stand_ins.serve(lab.client, 5432, sealed_alone)
    server = lab.proxy(seals=True, registered=[] if code else [f"{DB}:5432"], passes=True)
    assert (talk(lab.pod, DB, 5432, first=b"select"), server.seen) == (answers, [f"{DB}:5432"])
    found, text = lab.why("--to", "db:5432")
    assert (found, 'add "shop/*" to the hosts of egress' in text) == (code, bool(code)), text


def test_a_process_that_has_the_proxy_s_port_gets_what_is_captured(lab):
    lab.deploy(workload(), service(), SERVER)
    lab.stand_ins.serve(lab.pod, 15001, greet(b"not the database"))
    with pytest.raises(OSError, match="in use"):
        lab.proxy()
    assert talk(lab.pod, DB, 5432) == "not the database"
    code, text = lab.why("--to", "db:5432")
    assert (code, "uid 1000" in text.splitlines()[0]) == ("NI380", True), text


# --- from outside ---


def open_application(lab, **ways):
    """The application on 8080 behind an inbound proxy."""
    lab.stand_ins.serve(lab.pod, 8080, answer(b"200"))
    return lab.proxy(inbound=True, **ways)


@pytest.mark.parametrize("asked", ["readinessProbe: {httpGet: {path: /, port: 8080}}", "lifecycle: {postStart: {httpGet: {path: /, port: 8080}}}"])
def test_a_probe_or_hook_is_reset_where_mutual_tls_is_strict_and_it_is_not_rewritten(lab, asked):
    lab.deploy(workload(f"containers: [{{name: web, image: web, {asked}}}]", 'sidecar.istio.io/rewriteAppHTTPProbers: "false"'), STRICT)
    open_application(lab, strict=True)
    assert talk(lab.client, lab.pod.address, 8080, first=REQUEST) == "reset"
    assert talk(lab.client, lab.pod.address, 8080, first=SEALED + REQUEST) == "200", "the application is well"
    assert lab.why("--probe")[0] == "NI329"


def test_an_application_on_loopback_is_reset_behind_a_proxy_that_is_up(lab):
    lab.deploy(workload())
    lab.stand_ins.serve(lab.pod, 9090, answer(b"200"), host="127.0.0.1")
    server = lab.proxy(inbound=True)
    assert talk(lab.client, lab.pod.address, 9090, first=REQUEST) == "reset"
    assert server.seen == [f"{lab.pod.address}:9090"]
    code, text = lab.why("--from", KUBELET, "--port", "9090")
    assert (code, "127.0.0.1" in text.splitlines()[0]) == ("NI305", True), text


def test_metrics_are_unreachable_for_a_scraper_outside_of_the_mesh(lab):
    lab.deploy(workload("containers: [{name: web, image: web}]", 'prometheus.io/scrape: "true", prometheus.io/port: "8080"'), STRICT)
    open_application(lab, strict=True)
    assert talk(lab.client, lab.pod.address, 8080, first=REQUEST) == "reset"
    code, text = lab.why("--from", KUBELET, "--port", "8080")
    assert (code, "15020" in text.splitlines()[1]) == ("NI327", True), text


def test_a_client_on_its_node_s_network_sends_plain_text(lab):
    agent = workload("hostNetwork: true, containers: [{name: agent, image: a}]", name="agent")
    lab.deploy(workload(), agent, STRICT)
    open_application(lab, strict=True)
    assert talk(lab.client, lab.pod.address, 8080, first=REQUEST) == "reset"
    code, text = lab.why("--from", "agent", "--port", "8080")
    assert (code, "hostNetwork: true" in text.splitlines()[0]) == ("NI327", True), text


def test_an_excluded_inbound_port_gets_mutual_tls_that_the_application_does_not_understand(lab):
    lab.deploy(workload(annotations='traffic.sidecar.istio.io/excludeInboundPorts: "8080"'), SERVER)
    server = open_application(lab, strict=True)
    assert talk(lab.client, lab.pod.address, 8080, first=SEALED + REQUEST) == "reset"
    assert talk(lab.client, lab.pod.address, 8080, first=REQUEST) == "200"
    assert server.seen == []
    code, text = lab.why("--from", "db", "--port", "8080")
    assert (code, "excludeInboundPorts" in text.splitlines()[1]) == ("NI311", True), text


@pytest.mark.parametrize("words", [(), ("--interface", "net1")], ids=["by route", "by name"])
def test_a_second_interface_is_captured_too(tmp_path, require_netns, words):
    with Pod(interfaces=["net1"]) as pod, StandIns() as stand_ins:
        lab = Lab(pod, stand_ins, tmp_path)
        lab.deploy(workload(annotations="k8s.v1.cni.cncf.io/networks: storage"))
        server = open_application(lab, strict=True)
        assert talk(pod.neighbours["net1"], "10.78.0.2", 8080, first=REQUEST) == "reset"
        assert server.seen == ["10.78.0.2:8080"]
        code, text = lab.why("--from", "10.78.0.1", "--port", "8080", *words)
        assert (code, "net1" in text.splitlines()[0]) == ("NI315", True), text


# --- names ---


@pytest.mark.parametrize("name", ["api.example.com", "api.example.com.", "db.data", "db.data.svc", "db.data.svc.cluster.local", "db.data.svc.cluster.local."])
def test_a_name_costs_as_many_queries_as_the_name_server_counts(lab, name):
    lab.deploy(workload(), service(namespace="data"))
    server = lab.stand_ins.answer_names(lab.client, RESOLVER, NAMES)
    assert lab.resolve(name, f"nameserver {RESOLVER}\n{SEARCH}\noptions ndots:5\n")
    code, text = lab.why("--dns", name)
    assert f"costs {len(server.asked)} queries" in text, (server.asked, text)
    assert code == ("NI331" if len(server.asked) > 4 else ""), text
    if code:  # the first form that the remedy names costs less
        better = text.splitlines()[1].removeprefix("  remedy: write ").partition(" ")[0].removesuffix(",")
        before = len(server.asked)
        assert lab.resolve(better, f"nameserver {RESOLVER}\n{SEARCH}\noptions ndots:5\n")
        assert len(server.asked) - before <= 4


def test_the_first_byte_is_slow_because_a_query_of_a_search_domain_is_lost(lab):
    lab.deploy(workload())
    server = lab.stand_ins.answer_names(lab.client, RESOLVER, NAMES, lose=2)
    before = time.monotonic()
    assert lab.resolve("api.example.com", f"nameserver {RESOLVER}\n{SEARCH}\noptions ndots:5 timeout:1\n")
    assert (time.monotonic() - before >= 1, server.asked[0]) == (True, "api.example.com.shop.svc.cluster.local")
    code, text = lab.why("--dns", "api.example.com")
    assert (code, "seconds if a datagram is lost" in text.splitlines()[0]) == ("NI331", True), text


def test_a_short_name_of_another_namespace_does_not_exist(lab):
    lab.deploy(workload(), service(namespace="data"))
    server = lab.stand_ins.answer_names(lab.client, RESOLVER, NAMES)
    conf = f"nameserver {RESOLVER}\n{SEARCH}\noptions ndots:5\n"
    assert [lab.resolve(name, conf) for name in ("db", "db.data")] == [False, True]
    assert "db.shop.svc.cluster.local" in server.asked
    code, text = lab.why("--to", "db:5432")
    assert (code, text.splitlines()[1]) == ("NI318", "  remedy: write db.data"), text


def test_a_pod_that_asks_its_node_s_name_servers_does_not_find_services(lab):
    lab.deploy(workload("dnsPolicy: Default, containers: [{name: web, image: web}]"), service(namespace="data"))
    lab.stand_ins.answer_names(lab.client, RESOLVER, NAMES)
    lab.stand_ins.answer_names(lab.client, NODE_RESOLVER, {"api.example.com": EXTERNAL})
    full = "db.data.svc.cluster.local"
    assert [lab.resolve(full, f"nameserver {server}\n") for server in (NODE_RESOLVER, RESOLVER)] == [False, True]
    assert lab.why("--to", f"{full}:5432")[0] == "NI332"


# --- address already in use ---


@pytest.mark.parametrize("port", [15000, 15001, 15004, 15006, 15020, 15021, 15053, 15090])
def test_a_port_of_the_proxy_is_in_use(lab, port):
    lab.deploy(workload(f"containers: [{{name: web, image: web, ports: [{{containerPort: {port}}}]}}]"))
    lab.stand_ins.serve(lab.pod, port, greet(b"proxy"), host="127.0.0.1" if port in (15000, 15004, 15053) else "0.0.0.0")
    with pytest.raises(OSError, match="in use") as caught, lab.pod.entered():
        socket.create_server(("0.0.0.0", port))
    assert caught.value.errno == errno.EADDRINUSE
    code, text = lab.why()
    assert (code, str(port) in text.splitlines()[0]) == ("NI314", True), text
