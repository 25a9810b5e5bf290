"""The commands inject and check-inject: files in, files out, verdicts."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from netinit.base.errors import ClusterError, ConfigError, InjectionError, OptionError, ParseError
from netinit.cli.inject import check
from netinit.cli.inject import command as inject
from netinit.cli.inject import injection as inject_run
from netinit.golang import goyaml
from netinit.inject import init_container
from netinit.inject.deciding.init_container import options_of
from netinit.inject.deciding.manifest_survey import read_pods
from netinit.kube import access, one_request
from netinit.library.manifest_files import read_manifests
from netinit.options import Options
from podsecurity import INIT_CONTAINER
from schemas import check_schema

pytestmark = pytest.mark.usefixtures("templates_parsed_once")

POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\nspec: {containers: [{name: c, image: i}]}\n"
CONFIG = "policy: enabled\ntemplates:\n  sidecar: |\n    spec: {containers: [{name: istio-proxy, image: p}]}\n"


def run(command, *arguments, stdin=None, env=None):
    return CliRunner().invoke(command, list(map(str, arguments)), input=stdin, env=env, catch_exceptions=True)


def output(command, *arguments, **more):
    result = run(command, *arguments, **more)
    assert result.exception is None, result.exception
    return result.stdout


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.yaml").write_text(POD)
    (tmp_path / "b.yml").write_text("kind: ConfigMap\n")
    (tmp_path / "c.txt").write_text("no manifest")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "d.json").write_text("{}")
    (tmp_path / "config").write_text(CONFIG)
    return tmp_path


def test_a_folder_gives_its_manifests_in_order(folder):
    text = output(inject.command, "-f", folder, "--injectConfigFile", folder / "config")
    assert text.count("istio-proxy") == 2
    assert text.endswith("\n---\nkind: ConfigMap\n")
    assert output(inject.command, "-R", "-f", folder, "--injectConfigFile", folder / "config").endswith("---\n{}")


def test_a_name_that_leads_in_a_circle_is_an_error_that_names_it(folder, monkeypatch):
    monkeypatch.chdir(folder)  # messages cut long paths
    Path("round.yaml").symlink_to("round.yaml")
    with pytest.raises(ParseError, match=r"^round\.yaml: cannot be read: Too many levels of symbolic links$"):
        read_manifests(["round.yaml"], recursive=False)


def test_stdin_and_several_files_make_one_stream(folder):
    text = output(inject.command, "-f", "-", "-f", folder / "b.yml", "--injectConfigFile", folder / "config", stdin=POD)
    assert text.split("---\n")[1] == "kind: ConfigMap\n"


def test_a_whole_config_map_a_mesh_and_values_are_read(folder):
    template = "metadata: {annotations: {a: '{{ .Values.v }} {{ .MeshConfig.TrustDomain }} {{ .Revision }}'}}"
    data = {"config": json.dumps({"policy": "enabled", "templates": {"sidecar": template}}), "values": '{"v": "one"}'}
    (folder / "map.yaml").write_text(json.dumps({"kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}))
    (folder / "mesh.yaml").write_text("kind: ConfigMap\ndata: {mesh: 'trustDomain: td'}")
    (folder / "values.yaml").write_text("v: two")
    arguments = ["-f", folder / "a.yaml", "--injectConfigFile", folder / "map.yaml", "--revision", "r"]
    assert "a: one cluster.local r\n" in output(inject.command, *arguments)
    more = ["--meshConfigFile", folder / "mesh.yaml", "--valuesFile", folder / "values.yaml"]
    assert "a: two td r\n" in output(inject.command, *arguments, *more)


def test_native_sidecars_and_the_compliance_policy_come_from_the_environment(folder):
    (folder / "config").write_text(
        "templates: {sidecar: 'metadata: {annotations: {a: \"{{ .NativeSidecars }} {{ .CompliancePolicy }}\"}}'}"
    )
    arguments = ["-f", folder / "a.yaml", "--injectConfigFile", folder / "config"]
    env = {"ENABLE_NATIVE_SIDECARS": "false", "COMPLIANCE_POLICY": "fips-140-3"}
    assert "a: 'true '" in output(inject.command, *arguments) or 'a: "true "' in output(inject.command, *arguments)
    assert "a: false fips-140-3\n" in output(inject.command, *arguments, env=env)
    assert "a: true fips-140-3\n" in output(inject.command, *arguments, "--native-sidecars", "true", env=env)


def test_nothing_is_written_unless_all_succeeded(folder):
    target = folder / "out.yaml"
    target.write_text("before")
    (folder / "bad.yaml").write_text(POD.replace("shop}", "shop, annotations: {sidecar.istio.io/proxyCPU: x}}"))
    result = run(inject.command, "-f", folder / "a.yaml", "-f", folder / "bad.yaml", "-o", target)
    assert isinstance(result.exception, InjectionError)
    assert str(result.exception) == (
        f"{folder}/bad.yaml: document 1: Pod \"shop/p\": invalid value 'x' for annotation 'sidecar.istio.io/proxyCPU': "
        "it must be a quantity, such as 100m or 128Mi"
    )
    assert target.read_text() == "before"
    assert result.stdout == ""
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == []


def test_the_output_file_is_replaced_in_one_piece_and_may_be_the_input(folder):
    target = folder / "a.yaml"
    target.chmod(0o640)
    output(inject.command, "-f", target, "-o", target)
    assert "istio-init" in target.read_text()
    assert target.stat().st_mode & 0o777 == 0o640
    again = target.read_text()
    output(inject.command, "-f", target, "-o", target)
    assert target.read_text() == again


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ([], OptionError, "-f: no manifest is given"),
        (["-f", "/nowhere/at/all"], OptionError, "-f: ./nowhere/at/all. does not exist; name a file, a folder, or - for stdin"),
        (["-f", "{folder}/deeper/none"], OptionError, "does not exist"),
        (["-f", "-", "--valuesFile", "-"], OptionError, "stdin can be read for one option only"),
        (["-f", "{folder}/binary.yaml"], ParseError, "binary.yaml: not UTF-8: byte 3 is 0xff"),
        (["-f", "{folder}/a.yaml", "--injectConfigFile", "{folder}/b.yml"], ConfigError, "b.yml: .*no key 'config'"),
        (["-f", "{folder}/a.yaml", "-o", "/nowhere/x"], InjectionError, "-o: /nowhere/x: cannot be written"),
    ],
)
def test_bad_options_are_clear_errors(folder, arguments, error, message):
    (folder / "binary.yaml").write_bytes(b"a: \xff")
    result = run(inject.command, *(argument.format(folder=folder) for argument in arguments))
    assert isinstance(result.exception, error)
    assert re.search(message, str(result.exception)), str(result.exception)


def test_the_cluster_needs_a_package_and_says_so(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx2", None)
    for name in ("access", "client", "one_request"):
        monkeypatch.delitem(sys.modules, f"netinit.kube.{name}", raising=False)
        monkeypatch.delattr(sys.modules["netinit.kube"], name, raising=False)
    result = run(inject.command, "-f", folder / "a.yaml", "--context", "prod")
    assert isinstance(result.exception, ConfigError)
    assert "pip install 'netinit[kubernetes]'" in str(result.exception)


class FakeCluster:
    """The API's answers, in the place of netinit.kube, whose own tests ask one on a socket."""

    def __init__(self, config_maps, webhooks=()):
        self.config_maps, self.webhooks, self.asked = config_maps, list(webhooks), []
        self.proxy_configs, self.nodes, self.annotations = None, [], {}

    def find_access(self, *, kubeconfig, context):
        self.asked.append((kubeconfig, context))
        if context == "nowhere":
            raise ConfigError('the kubeconfig "x" has no context "nowhere"; it has "prod"')

    def ask_once(self, _, request):
        return request(self)

    def get(self, resource, name, namespace=""):
        if resource.plural == "namespaces":
            if name == "secret":
                raise ClusterError("no", status=403, reason="Forbidden")
            return {"metadata": {"labels": {"istio-injection": "enabled"} if name == "shop" else None, "annotations": self.annotations}}
        if (namespace, name) not in self.config_maps:
            raise ClusterError("not there", status=404, reason="NotFound")
        return {"data": self.config_maps[namespace, name]}

    def list(self, resource):
        if resource.kind == "ProxyConfig" and self.proxy_configs is None:
            raise ClusterError("unknown", status=404, reason="NotFound")
        known = {"MutatingWebhookConfiguration": self.webhooks, "ProxyConfig": self.proxy_configs, "Node": self.nodes}
        return known.get(resource.kind, []), "1"


@pytest.fixture
def cluster(monkeypatch):
    template = "metadata: {annotations: {mesh: '{{ .MeshConfig.TrustDomain }} {{ .Values.v }}'}}"
    config_maps = {
        ("istio-system", "istio-sidecar-injector"): {
            "config": json.dumps({"policy": "enabled", "templates": {"sidecar": template}}),
            "values": '{"v": "w"}',
        },
        ("istio-system", "istio"): {"mesh": "trustDomain: td"},
        ("istio-system", "istio-canary"): {"mesh": "trustDomain: canary"},
    }
    selector = {"namespaceSelector": {"matchLabels": {"istio-injection": "enabled"}}}
    fake = FakeCluster(
        config_maps,
        [
            {"webhooks": [{"name": "namespace.sidecar-injector.istio.io", **selector}]},
            {"webhooks": [{"name": "other"}]},
        ],
    )
    monkeypatch.setattr(access, "find_access", fake.find_access)
    monkeypatch.setattr(one_request, "ask_once", fake.ask_once)
    return fake


def test_configuration_mesh_and_values_come_from_the_cluster(cluster):
    assert "mesh: td w\n" in output(inject.command, "-f", "-", "--context", "prod", stdin=POD)
    assert set(cluster.asked) == {("", "prod")}
    assert "mesh: canary w\n" in output(inject.command, "-f", "-", "--meshConfigMapName", "istio-canary", stdin=POD)


RESOURCE = """
apiVersion: networking.istio.io/v1beta1
kind: ProxyConfig
metadata: {name: p, namespace: shop}
spec: {concurrency: 7, environmentVariables: {A: b}}
"""
SHOWS = "metadata: {annotations: {out: '{{ .NativeSidecars }} {{ .ProxyConfig.Concurrency.GetValue }}'}}"


def test_proxy_configs_and_nodes_come_from_the_cluster(cluster, tmp_path):
    (tmp_path / "config").write_text(json.dumps({"policy": "enabled", "templates": {"sidecar": SHOWS}}))
    arguments = ("-f", "-", "--context", "prod", "--injectConfigFile", str(tmp_path / "config"))
    cluster.nodes = [{"metadata": {"name": "n"}, "status": {"nodeInfo": {"kubeletVersion": "v1.33.1"}}}]
    assert "out: true 0\n" in output(inject.command, *arguments, "--native-sidecars=auto", stdin=POD), "its API server knows no ProxyConfig"
    cluster.proxy_configs = [goyaml.load(RESOURCE)]
    cluster.nodes[0]["status"]["nodeInfo"]["kubeletVersion"] = "v1.32.9"
    assert "out: false 7\n" in output(inject.command, *arguments, "--native-sidecars=auto", stdin=POD)


def test_proxy_configs_come_from_files(tmp_path):
    (tmp_path / "config").write_text(json.dumps({"policy": "enabled", "templates": {"sidecar": SHOWS}}))
    (tmp_path / "resources.yaml").write_text(f"{POD}\n---\n{RESOURCE}")
    arguments = ("-f", "-", "--injectConfigFile", str(tmp_path / "config"), "--proxyConfigFile")
    assert "out: true 7\n" in output(inject.command, *arguments, str(tmp_path / "resources.yaml"), stdin=POD)
    (tmp_path / "resources.yaml").write_text(POD)
    result = run(inject.command, *arguments, str(tmp_path / "resources.yaml"), stdin=POD)
    assert "resources.yaml has no ProxyConfig of networking.istio.io" in str(result.exception)


def test_native_sidecars_by_the_nodes_need_a_cluster():
    result = run(inject.command, "-f", "-", "--native-sidecars=auto", stdin=POD)
    assert "--native-sidecars: auto needs the nodes of a cluster; name it with --context or --kubeconfig" in str(result.exception)


def test_namespaces_and_webhooks_come_from_the_cluster(cluster):
    assert verdicts("-f", "-", "--context", "prod", stdin=POD)[0]["webhook"] == "namespace"
    other = POD.replace("shop", "elsewhere")
    (found,) = verdicts("-f", "-", "--context", "prod", stdin=other)
    assert not found["injected"]
    assert found["remedies"] == ["for the webhook namespace: the namespace must have istio-injection=enabled"]


RANGE = {"openshift.io/sa.scc.uid-range": "1000980000/10000"}
USER = json.dumps({"policy": "enabled", "templates": {"sidecar": "metadata: {annotations: {uid: 'uid {{ .ProxyUID }}'}}"}})


def test_openshifts_user_ids_come_from_the_namespaces_of_the_input(tmp_path):
    (tmp_path / "config").write_text(USER)
    namespaces = [{"kind": "Namespace", "metadata": {"name": name, "annotations": RANGE}} for name in ("shop", "other")]
    listed = json.dumps({"kind": "List", "items": namespaces})
    arguments = ("-f", "-", "--injectConfigFile", tmp_path / "config")
    for text in (f"{POD}---\n{listed}\n", f"{json.dumps(namespaces[0])}\n---\n{POD}"):
        assert "uid: uid 1000989999\n" in output(inject.command, *arguments, stdin=text)
    for text in (POD, f"{json.dumps(namespaces[1])}\n---\n{POD}", f"# {json.dumps(namespaces[0])}\n---\n{POD}"):
        assert "uid: uid 1337\n" in output(inject.command, *arguments, stdin=text)


def test_yaml_errors_and_duplicate_keys_are_told_with_file_line_and_column_also_of_later_documents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("all.yaml").write_text(f"# head\n---\n{POD}---\nkind: Pod\n\tmetadata: {{}}\n---\n{POD}metadata: {{name: twice}}\n")
    lines = POD.count("\n")
    told = str(run(inject.command, "-f", "all.yaml").exception).splitlines()
    assert told == [
        f"all.yaml:{lines + 5}:1: a tab stands where YAML wants spaces; indent with spaces",
        f"all.yaml:{2 * lines + 7}:11: the key 'metadata' occurs twice in one mapping; remove one, as only the last would be kept",
    ]
    assert str(run(inject.command, "-f", "-", stdin="a: 1\n---\nb: [\n").exception).startswith("stdin:4:1: a value is missing here")


def test_a_namespace_of_the_input_with_openshifts_groups_alone_gives_the_group(tmp_path):
    (tmp_path / "config").write_text(USER.replace("uid {{ .ProxyUID }}", "gid {{ .ProxyGID }}"))
    groups = {"openshift.io/sa.scc.supplemental-groups": "1000/5"}
    namespace = json.dumps({"kind": "Namespace", "metadata": {"name": "shop", "annotations": groups}})
    assert "uid: gid 1004\n" in output(inject.command, "-f", "-", "--injectConfigFile", tmp_path / "config", stdin=f"{namespace}\n---\n{POD}")


def test_openshifts_user_ids_come_from_the_cluster_and_a_namespace_that_cannot_be_read_is_a_warning(cluster, tmp_path):
    (tmp_path / "config").write_text(USER)
    cluster.annotations = RANGE
    arguments = ("-f", "-", "--context", "prod", "--injectConfigFile", tmp_path / "config")
    assert "uid: uid 1000989999\n" in output(inject.command, *arguments, stdin=POD)
    result = run(inject.command, *arguments, stdin=POD.replace("shop", "secret"))
    assert result.exception is None
    assert "the cluster does not give the namespace secret: 403 Forbidden; if it has user ids of OpenShift, the proxy does not get them" in result.output
    assert "1000989999" not in result.stdout


def test_by_a_flag_objects_that_share_the_proxys_user_are_refused(folder):
    shared = POD.replace("containers:", "securityContext: {runAsUser: 1337}, containers:")
    assert "runs as uid 1337, which is the proxy's" in run(inject.command, "-f", "-", stdin=shared).stderr
    result = run(inject.command, "-f", "-", "--refuseSharedProxyUser", stdin=shared)
    assert "runs as uid 1337, which is the proxy's" in str(result.exception)
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "nowhere"], 'has no context "nowhere"; it has "prod"'),
        (["--injectConfigMapName", "none"], "does not give the ConfigMap istio-system/none: 404 NotFound"),
        (["--meshConfigMapName", "istio-sidecar-injector"], "no key 'mesh'; it has config, values"),
    ],
)
def test_a_cluster_that_cannot_answer_is_a_clear_error(cluster, arguments, message):
    result = run(inject.command, "-f", "-", *arguments, stdin=POD)
    assert isinstance(result.exception, ConfigError)
    assert message in str(result.exception)


def objects(text):
    """The verdicts of an answer, which is as its schema says."""
    tree = json.loads(text)
    check_schema(tree, "check-inject")
    return tree["objects"]


def verdicts(*arguments, **more):
    return objects(output(check.command, "--json", *arguments, **more))


@pytest.mark.parametrize(
    ("labels", "manifest", "injected", "step"),
    [
        ("istio-injection=enabled", "", True, "policy"),
        ("istio-injection=disabled", "", False, "webhook"),
        ("", "metadata: {labels: {sidecar.istio.io/inject: 'true'}}", True, "label"),
        ("istio-injection=enabled", "metadata: {annotations: {sidecar.istio.io/inject: 'false'}}", False, "annotation"),
        ("istio-injection=enabled", "metadata: {namespace: kube-system}", False, "namespace"),
        ("istio-injection=enabled", "metadata: {labels: {never: ''}}", False, "neverInjectSelector"),
        ("istio.io/rev=default", "spec: {hostNetwork: true}", False, "host-network"),
    ],
)
def test_the_verdict_names_the_step_that_decides(folder, labels, manifest, injected, step):
    (folder / "config").write_text(
        CONFIG + "neverInjectSelector: [{matchExpressions: [{key: never, operator: Exists}]}]\n"
    )
    text = f"apiVersion: v1\nkind: Pod\n{manifest}\n" + (
        "" if "spec" in manifest else "spec: {containers: [{name: c}]}\n"
    )
    (found,) = verdicts("-f", "-", "--injectConfigFile", folder / "config", "--namespace-labels", labels, stdin=text)
    assert found["injected"] is injected
    assert [link["step"] for link in found["chain"] if link["outcome"] == "decided"] == [step]
    assert found["remedies"]


def test_the_labels_of_a_namespace_in_the_input_count():
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {istio-injection: enabled}}\n---\n"
    assert verdicts("-f", "-", stdin=namespace + POD)[0]["webhook"] == "namespace"
    (found,) = verdicts("-f", "-", stdin=POD)
    assert not found["injected"]
    assert "labels are unknown" in found["chain"][0]["reason"]
    assert any("istio-injection=enabled" in remedy for remedy in found["remedies"])


def test_the_metadata_of_a_cron_jobs_pods_count_not_those_of_the_job():
    job = {
        "metadata": {"labels": {"sidecar.istio.io/inject": "true"}},
        "spec": {
            "template": {"metadata": {"labels": {"sidecar.istio.io/inject": "false"}}, "spec": {"containers": []}}
        },
    }
    cron = json.dumps(
        {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": job}}
    )
    (found,) = verdicts("-f", "-", "--namespace-labels", "istio-injection=enabled", stdin=cron)
    assert not found["injected"]


def test_without_a_revision_those_that_labels_ask_for_are_taken_as_installed():
    labelled = POD.replace("metadata: {", "metadata: {labels: {istio.io/rev: 1-22-0}, ", 1)
    assert labelled != POD
    (found,) = verdicts("-f", "-", stdin=labelled)
    assert (found["injected"], found["revision"]) == (True, "1-22-0")
    (found,) = verdicts("-f", "-", "--namespace-labels", "istio.io/rev=canary", stdin=POD)
    assert (found["injected"], found["revision"]) == (True, "canary")
    (found,) = verdicts("-f", "-", "--revision", "other", stdin=labelled)
    assert not found["injected"]


def test_a_label_that_must_not_be_there_is_named_so():
    asking = POD.replace("metadata: {", 'metadata: {labels: {sidecar.istio.io/inject: "true"}, ', 1)
    (found,) = verdicts("-f", "-", "--namespace-labels", "istio-injection=disabled", stdin=asking)
    assert "for the webhook object: the namespace must have no label istio-injection" in found["remedies"]


def test_the_webhooks_of_the_input_count():
    webhook = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kubesphere}
webhooks:
- name: sidecar-injector.istio.io
  namespaceSelector:
    matchExpressions:
    - {key: kubesphere.io/workspace, operator: Exists}
    - {key: istio-injection, operator: NotIn, values: [disabled]}
---
"""
    assert verdicts("-f", "-", "--namespace-labels", "kubesphere.io/workspace=w", stdin=webhook + POD)[0]["injected"]
    (found,) = verdicts("-f", "-", "--namespace-labels", "a=b", stdin=webhook + POD)
    assert found["remedies"][0].endswith("the namespace must have the label kubesphere.io/workspace")


@pytest.mark.parametrize(("name", "path"), [
    ("linkerd-proxy-injector.linkerd.io", "/"), ("vault.hashicorp.com", "/mutate"), ("kuma-injector.kuma.io", "/inject-sidecar"), ("mutate.kyverno.svc-fail", "/mutate/fail"),
])  # fmt: skip
def test_the_webhooks_of_neighbours_decide_nothing(name, path):
    """They match nearly each pod, and none of them injects Istio's sidecar."""
    configuration = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration", "metadata": {"name": "n"}}
    webhook = json.dumps({**configuration, "webhooks": [{"name": name, "clientConfig": {"service": {"name": "s", "namespace": "n", "path": path}}}]}) + "\n---\n"
    (alone,) = verdicts("-f", "-", stdin=POD)
    assert verdicts("-f", "-", stdin=webhook + POD) == [alone]
    asked = verdicts("-f", "-", "--namespace-labels", "istio-injection=enabled", stdin=webhook + POD)
    assert [(one["injected"], one["webhook"]) for one in asked] == [(True, "namespace")]


def test_what_the_owner_of_a_pod_should_know_is_told():
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: p, annotations: {sidecar.istio.io/nativeSidecar: "false", traffic.sidecar.istio.io/excludeOutboundPorts: "25"}}
spec:
  securityContext: {runAsUser: 1337}
  containers:
  - {name: c, readinessProbe: {httpGet: {port: nowhere}}, livenessProbe: {tcpSocket: {port: 5}}}
  - {name: d, securityContext: {runAsUser: 5}}
"""
    (found,) = verdicts("-f", "-", "--namespace-labels", "istio-injection=enabled", stdin=pod)
    notes = "\n".join(found["findings"])
    assert "container \"c\" runs as uid 1337, which is the proxy's" in notes
    assert "container d runs" not in notes
    assert "readinessProbe of c: httpGet on port nowhere stays as it is: the container declares no port" in notes
    assert "livenessProbe of c: tcpSocket on port 5 goes through the agent" in notes
    assert found["interception"][1] == "outbound: all addresses but port 25 to 15001"


def test_what_lint_finds_in_the_options_is_told_too(tmp_path):
    pod = POD.replace("shop}", "shop, annotations: {sidecar.istio.io/interceptionMode: NONE}}")
    config = json.dumps(
        {
            "policy": "enabled",
            "templates": {"sidecar": "spec: {initContainers: [{name: istio-init, args: [-m, NONE, -b, '80']}]}"},
        }
    )
    (tmp_path / "config").write_text(config)
    arguments = ("-f", "-", "--injectConfigFile", tmp_path / "config", "--namespace-labels", "istio-injection=enabled")
    (found,) = verdicts(*arguments, stdin=pod)
    assert any(note.startswith("warning: --istio-inbound-ports:") for note in found["findings"]), found["findings"]
    assert "options" not in found
    assert found["interception"] == [
        "inbound: nothing is captured (mode NONE)",
        "outbound: no address to 15001",
        "traffic of uid 1337 passes untouched: it is the proxy's",
    ]


@pytest.mark.parametrize(
    ("args", "inbound", "outbound"),
    [
        ("[-b, '*', -d, '22,8000-8100', -i, '*', -x, '10.0.0.0/8,fd00::/8', -o, '25', -u, '5,6']", "all ports but 22, 8000-8100 to 15006 (REDIRECT)", "all addresses but 10.0.0.0/8, fd00::/8, port 25 to 15001"),
        ("[-b, '80,443', -d, '22', -m, TPROXY, -z, '15007', -p, '15002', -i, '10.0.0.0/8', -q, '53,99-100', -u, '5,6']", "80, 443 to 15007 (TPROXY)", "10.0.0.0/8 to 15002, and ports 53, 99-100 whatever their address"),
        ("[-b, '', -i, '', -u, '5,6']", "no port to 15006 (REDIRECT)", "no address to 15001"),
    ],
)
def test_what_the_rules_capture_is_said_in_three_lines(args, inbound, outbound, tmp_path):
    config = {"policy": "enabled", "templates": {"sidecar": f"spec: {{initContainers: [{{name: istio-init, args: {args}}}]}}"}}
    (tmp_path / "config").write_text(json.dumps(config))
    (found,) = verdicts("-f", "-", "--injectConfigFile", tmp_path / "config", "--namespace-labels", "istio-injection=enabled", stdin=POD)
    assert found["interception"] == [f"inbound: {inbound}", f"outbound: {outbound}", "traffic of uid 5, 6 passes untouched: it is the proxy's"]


def test_init_containers_without_a_network_are_found_behind_a_validation(folder):
    (folder / "config").write_text(
        "policy: enabled\ntemplates: {sidecar: 'spec: {initContainers: [{name: istio-validation, args: [-u, x]}], containers: [{name: istio-proxy}]}'}".replace("-u, x", '-u, "1337"')
    )
    pod = "apiVersion: v1\nkind: Pod\nspec: {initContainers: [{name: migrate}], containers: [{name: c}]}\n"
    arguments = ("-f", "-", "--injectConfigFile", folder / "config", "--namespace-labels", "istio-injection=enabled")
    (found,) = verdicts(*arguments, stdin=pod)
    assert any('init container "migrate" runs when traffic is captured' in note for note in found["findings"])


def test_an_object_that_the_injector_would_refuse_is_a_failure():
    pod = POD.replace("shop}", "shop, annotations: {status.sidecar.istio.io/port: x}}")
    result = CliRunner().invoke(
        check.command,
        ["-f", "-", "--namespace-labels", "istio-injection=enabled"],
        input=pod,
        standalone_mode=False,
    )
    assert result.return_value == 1
    assert "refused   invalid value 'x'" in result.stdout


def test_the_table_has_istioctls_columns_and_the_chain():
    text = output(check.command, "-f", "-", stdin=POD)
    assert text.splitlines()[0].split() == ["OBJECT", "WEBHOOK", "REVISION", "INJECTED", "REASON"]
    assert "✘" in text
    assert "  → webhook: none of 4 webhooks selects the pod" in text
    assert json.loads(output(check.command, "-f", "-", "--json", stdin=POD))["version"] == 1
    assert isinstance(run(inject.command, "-f", "-", "--json", stdin=POD).exception, OptionError)


def explained(*arguments, stdin):
    return objects(output(inject.command, "--explain", "--json", "-f", "-", *arguments, stdin=stdin))


def code(*arguments, stdin):
    """The exit code of check-inject, or with --explain of inject."""
    command = inject.command if "--explain" in arguments else check.command
    words = list(map(str, ("-f", "-", *arguments)))
    result = CliRunner().invoke(command, words, input=stdin, standalone_mode=False)
    assert result.exception is None, result.exception
    return result.return_value


def test_inject_explains_what_it_does_itself_without_a_webhook():
    (found,) = explained(stdin=POD)
    assert found["injected"]
    assert found["reason"] == "manual injection was asked for"
    assert [(link["step"], link["outcome"]) for link in found["chain"]] == [("manual", "decided")]
    assert found["interception"][1] == "outbound: all addresses to 15001"
    text = output(inject.command, "--explain", "-f", "-", stdin=POD)
    assert text.splitlines()[0].split() == ["OBJECT", "INJECTED", "REASON"]
    assert "webhook" not in text


@pytest.mark.parametrize(
    ("metadata", "spec", "step", "remedy"),
    [
        ("{}", "hostNetwork: true", "host-network", "remove hostNetwork: true"),
        ("{namespace: kube-system}", "", "namespace", "move the workload"),
        ("{annotations: {sidecar.istio.io/inject: 'false'}}", "", "annotation", "set the label or annotation"),
    ],
)
def test_inject_explains_what_it_leaves_out(metadata, spec, step, remedy):
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {metadata}\nspec: {{containers: [{{name: c}}], {spec}}}\n"
    (found,) = explained(stdin=pod)
    assert not found["injected"]
    assert found["chain"][0]["step"] == step
    assert found["remedies"][0].startswith(remedy)
    assert "Skipping injection" in run(inject.command, "-f", "-", stdin=pod).stderr


def test_a_workload_whose_name_is_to_be_generated_names_no_owner():
    job = "apiVersion: batch/v1\nkind: Job\nmetadata: {NAME}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: app, image: a:1}]}}}\n"
    named, generated = (output(inject.command, "-f", "-", stdin=job.replace("NAME", text)) for text in ("name: web", "generateName: web-"))
    for variable, value in (("ISTIO_META_WORKLOAD_NAME", "value: web\n"), ("ISTIO_META_OWNER", "value: kubernetes://apis/batch/v1/namespaces/default/jobs/web\n")):
        assert f"{variable}\n          {value}" in named, named
        assert variable not in generated


def test_a_pod_that_was_injected_before_is_called_so():
    once = output(inject.command, "-f", "-", stdin=POD)
    (found,) = explained(stdin=once)
    assert (found["injected"], found["already"]) == (True, True)
    assert found["reason"] == "already injected, the injector would change nothing"
    (found,) = explained("--set", "global.proxy.image=other/proxy:2", stdin=once)
    assert found["reason"] == "already injected, the injector would change it"
    (found,) = verdicts("-f", "-", stdin=once)
    assert (found["injected"], found["already"]) == (False, True)
    assert found["reason"] == "already injected, and left as it is: no webhook selects the pod"
    assert "already   already injected" in output(check.command, "-f", "-", stdin=once)


def test_the_exit_code_says_whether_all_objects_are_injected():
    enabled = ("--namespace-labels", "istio-injection=enabled")
    out = POD.replace("shop}", "shop, labels: {sidecar.istio.io/inject: 'false'}}")
    bad = POD.replace("shop}", "shop, annotations: {status.sidecar.istio.io/port: x}}")
    once = output(inject.command, "-f", "-", stdin=POD)
    assert [code(*enabled, stdin=text) for text in (POD, once, POD + "---\n" + out, out + "---\n" + bad)] == [0, 0, 3, 1]
    assert [code(stdin=text) for text in (POD, once)] == [3, 0]
    assert [code("--explain", stdin=text) for text in (POD, once, out, bad)] == [0, 0, 3, 1]
    assert code(stdin="kind: ConfigMap\n") == 0


TWO = POD + "---\n" + POD.replace("name: p", "name: q").replace("kind: Pod", "kind: Pod # second")


def test_one_workload_of_the_input_is_chosen_by_name():
    text = output(inject.command, "-f", "-", "--select", "q", stdin=TWO)
    first, second = text.split("---\n")
    assert first == POD
    assert "istio-init" in second
    assert [found["name"] for found in explained("--select", "pod/p", stdin=TWO)] == ["p"]
    assert [found["name"] for found in verdicts("-f", "-", "--select", "shop/q", stdin=TWO)] == ["q"]


@pytest.mark.parametrize("words", [["inject"], ["inject", "--explain"], ["check"]])
def test_a_name_that_no_workload_has_is_an_error_and_writes_nothing(words):
    command = check.command if words == ["check"] else inject.command
    result = run(command, "-f", "-", "--select", "x", *words[1:], stdin=TWO)
    assert isinstance(result.exception, ParseError)
    assert str(result.exception) == '--select: the input has no workload "x"; it has Pod "shop/p", Pod "shop/q"'
    assert result.stdout == ""


def test_of_many_workloads_the_first_ten_are_named():
    result = run(inject.command, "-f", "-", "--select", "x", stdin="---\n".join(POD.replace("name: p", f"name: p{number}") for number in range(13)))
    listed = ", ".join(f'Pod "shop/p{number}"' for number in range(10))
    assert str(result.exception) == f'--select: the input has no workload "x"; it has {listed} and 3 more'


def test_a_pod_on_its_nodes_network_with_rules_of_its_own_is_named():
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {hostNetwork: true, containers: [{name: c}], initContainers: [{name: istio-init, args: [-b, '*']}]}\n"
    said = run(inject.command, "-f", "-", stdin=pod).stderr
    assert 'warning: Pod "p": hostNetwork: true: init container "istio-init" is for the node' in said
    for found in (*explained(stdin=pod), *verdicts("-f", "-", stdin=pod)):
        assert any("the whole node" in finding for finding in found["findings"])
    harmless = pod.replace(", initContainers: [{name: istio-init, args: [-b, '*']}]", "")
    assert "warning" not in run(inject.command, "-f", "-", stdin=harmless).stderr


def test_a_workload_without_a_pod_spec_passes_unchanged_with_a_notice():
    patch = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2} # patch\n"
    result = run(inject.command, "-f", "-", "--image", "r/n:1", stdin=patch + "---\n" + POD)
    assert result.exception is None
    assert result.stdout.startswith(patch + "---\n")
    assert "istio-init" in result.stdout
    assert result.stderr == '===> Skipping injection because Deployment "d" has no pod spec\n'
    assert explained(stdin=patch)[0]["reason"] == "it has no pod spec: there is nothing to inject"
    assert code(stdin=patch) == 3


def test_an_image_that_no_registry_has_is_named_where_it_is_used():
    note = "note: the init container's image is 'netinit:0.2.0', which only nodes have that built it; name yours with --image\n"
    assert run(inject.command, "-f", "-", stdin=POD).stderr == note
    assert run(inject.command, "-f", "-", "--image", "r/n:1", stdin=POD).stderr == ""
    assert run(inject.command, "-f", "-", "--set", "global.proxy_init.image=r/n:1", stdin=POD).stderr == ""
    assert run(inject.command, "-f", "-", stdin="kind: ConfigMap\n").stderr == ""
    refused = run(inject.command, "-f", "-", "--image", "", stdin=POD)
    assert "--image: '' is empty: give IMAGE" in str(refused.exception)


def test_an_annotation_that_nothing_reads_is_named_with_the_nearest():
    pod = POD.replace("name: p,", "name: p, annotations: {netinit.io/reject-quick: 'true', example.org/x: z, sidecar.istio.io/inject: 'true'},")
    said = run(inject.command, "-f", "-", "--image", "r/n:1", stdin=pod).stderr
    wrong = 'annotation "netinit.io/reject-quick" has no effect: nothing reads it; did you mean netinit.io/reject-quic?'
    assert said == f'warning: Pod "shop/p": {wrong}\n'


@pytest.mark.parametrize(("second", "warned"), [("eth1", True), ("net1", False), (" net1", False)])
def test_an_annotation_that_another_one_for_the_same_option_hides_is_named(tmp_path, second, warned):
    both = f"istio.io/reroute-virtual-interfaces: net1, traffic.sidecar.istio.io/kubevirtInterfaces: '{second}'"
    pod = POD.replace("name: p,", f"name: p, annotations: {{{both}}},")
    injected = run(inject.command, "-f", "-", "--image", "r/n:1", stdin=pod)
    wrong = (
        'warning: Pod "shop/p": annotation "traffic.sidecar.istio.io/kubevirtInterfaces" has no effect:'
        ' "istio.io/reroute-virtual-interfaces" is there too and comes first, for the same option --kube-virt-interfaces; remove one of the two\n'
    )
    assert injected.stderr == (wrong if warned else "")
    assert "- -k\n    - net1\n" in injected.stdout, "and so it is"
    (tmp_path / "pod.yaml").write_text(injected.stdout)
    (facts,) = read_pods([("pod.yaml", injected.stdout)])
    assert [one.kind.name for one in facts.findings if "kubevirt" in str(one)] == (["no-effect"] if warned else [])


def test_what_the_proxy_will_miss_is_warned_about():
    pod = POD.replace("shop}", "shop, annotations: {prometheus.istio.io/scrape-targets: ':/m'}}").replace(
        "spec: {", "spec: {dnsPolicy: None, "
    )
    said = run(inject.command, "-f", "-", stdin=pod).stderr
    assert 'warning: Pod "shop/p": dnsPolicy "None" is not ClusterFirst' in said
    assert "has a target without a port and is ignored" in said
    assert len(explained(stdin=pod)[0]["warnings"]) == 2


@pytest.mark.parametrize("labels", ["a", "=b", "a=b,c"])
def test_bad_namespace_labels_are_a_clear_error(labels):
    result = run(check.command, "-f", "-", "--namespace-labels", labels, stdin=POD)
    assert isinstance(result.exception, OptionError)
    assert "is not a label" in str(result.exception)


@pytest.mark.parametrize(
    "options",
    [
        Options(),
        Options(inbound_ports="*", outbound_cidrs="*", proxy_uids="1337,2000"),
        Options(
            inbound_mode="TPROXY",
            inbound_ports="80,443",
            exclude_outbound_cidrs="10.0.0.0/8,fd00::/8",
            redirect_dns="true",
        ),
        Options(layout="classic", inbound_ports="80"),
        Options(loopback_cidr="127.0.1.0/24", owner_groups="1000", exclude_interfaces="eth1", dual_stack="true"),
    ],
)
def test_the_options_of_an_init_container_are_those_that_made_it(options):
    container = init_container(options, image="netinit:1")
    assert options_of(container) == options
    assert options_of({**container, "args": ["istio-iptables", *container["args"]]}) == options
    assert container["name"] == "istio-init"
    assert all(isinstance(argument, str) for argument in container["args"])
    assert container["securityContext"] == INIT_CONTAINER


def test_a_long_stream_shows_its_progress_on_a_terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show = inject_run._progress("app.yaml")
    for number in range(1, 501):
        show(number, 500)
    assert capsys.readouterr().err.endswith("\rapp.yaml: 500 of 500 documents\n")
    show = inject_run._progress("app.yaml")
    show(1, 1)
    assert capsys.readouterr().err == ""


def test_nothing_shows_progress_where_stderr_is_no_terminal():
    assert inject_run._progress("app.yaml") is None


def test_a_broken_template_hinders_only_the_pods_that_ask_for_it(folder):
    (folder / "config").write_text(CONFIG + "  other: '{{ if }}'\n")
    assert "istio-proxy" in output(inject.command, "-f", folder / "a.yaml", "--injectConfigFile", folder / "config")
    single_requests = POD.replace("namespace: shop}", "namespace: shop, annotations: {inject.istio.io/templates: other}}")
    (folder / "a.yaml").write_text(POD + "---\n" + single_requests)
    result = run(inject.command, "-f", folder / "a.yaml", "--injectConfigFile", folder / "config")
    assert isinstance(result.exception, InjectionError)
    assert str(result.exception).startswith(f'{folder}/a.yaml: document 2: Pod "shop/p": template \'other\' cannot be parsed: template: other:1')
    refused = run(check.command, "-f", folder / "a.yaml", "--injectConfigFile", folder / "config")
    assert "template 'other' cannot be parsed: template: other:1" in refused.stderr, "the check tells about every template"


def test_a_configuration_is_checked_without_manifests(folder):
    def checked():
        words = ["--check-config", "--injectConfigFile", str(folder / "config")]
        return CliRunner().invoke(inject.command, words, standalone_mode=False)

    (folder / "config").write_text(CONFIG + "  other: '{{ if }}'\n  third: 'labels: {a: {{ uuidv4 }}}'\n")
    result = checked()
    assert result.return_value == 1
    assert "3 templates, 1 broken; 6 of 6 canary pods were injected with the default: sidecar" in result.stdout
    assert "error: template 'other' cannot be parsed: template: other:1" in result.stderr
    assert "warning: template 'third': line 1 names uuidv4, which is refused when it is called" in result.stderr
    (folder / "config").write_text(CONFIG)
    assert checked().return_value == 0
    both = run(inject.command, "--check-config", "-f", folder / "a.yaml")
    assert isinstance(both.exception, OptionError)
    assert "--check-config: needs no manifests" in str(both.exception)


def test_the_name_servers_of_this_machine_are_none_of_the_pods():
    captured = POD.replace("metadata: {", 'metadata: {annotations: {proxy.istio.io/config: "proxyMetadata: {ISTIO_META_DNS_CAPTURE: \'true\'}"}, ', 1)
    assert captured != POD
    (found,) = explained(stdin=captured)
    assert not [text for text in found["findings"] if "resolv.conf" in text]


def test_what_manual_injection_does_not_read_of_a_cron_job_is_told():
    """Like Istio's, it reads the Job's metadata; the webhook sees the pod's."""
    template = {"metadata": {"annotations": {"sidecar.istio.io/inject": "false", "a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    job = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "n"}, "spec": {"jobTemplate": {"spec": {"template": template}}}}
    said = 'annotation sidecar.istio.io/inject: "false" of spec.jobTemplate.spec.template has no effect on manual injection, which reads spec.jobTemplate.metadata'
    (found,) = explained(stdin=json.dumps(job))
    assert (found["injected"], [said in text for text in found["warnings"]]) == (True, [True])
    assert f'warning: CronJob "n": {said}' in run(inject.command, "-f", "-", stdin=json.dumps(job)).stderr
    (webhooks,) = verdicts("-f", "-", "--namespace-labels", "istio-injection=enabled", stdin=json.dumps(job))
    assert (webhooks["injected"], webhooks["warnings"]) == (False, [])
    job["spec"]["jobTemplate"]["metadata"] = {"annotations": {"sidecar.istio.io/inject": "false"}}
    assert explained(stdin=json.dumps(job))[0]["warnings"] == []
