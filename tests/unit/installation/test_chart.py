"""The chart, rendered by our own template engine: the objects, every flavour's selectors, and Helm's opinion where it is."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys

import pytest

from helm import HELM, needs_helm, render_chart, yaml_value
from inject_data import DATA, needs_data
from netinit.base.errors import ConfigError, OptionError
from netinit.base.version import __version__
from netinit.cli.webhook.manifests import CHART, objects, read_chart
from netinit.golang import goyaml
from netinit.inject import Settings, inject_pod
from netinit.inject.adding.canaries import BARE_POD
from netinit.inject.adding.values import merge_values
from netinit.inject.deciding.usual_webhooks import current_webhooks, early_webhook, firing
from netinit.inject.deciding.webhooks import parse_webhooks
from netinit.options.declare import extract_flags
from netinit.webhook.configuration import Texts, load
from netinit.webhook.settings import ServeSettings
from sweeps import together

VALUES = (
    (),
    ("webhook.flavour=classic",),
    ("webhook.flavour=kubesphere",),
    ("webhook.enableNamespacesByDefault=true",),
    ("revision=canary", "tags=[prod, stable]"),
    ("certificate.mode=certManager", "certificate.issuer={name: mesh, kind: ClusterIssuer}"),
    ("certificate.mode=secret", "clientCASecret=clients", "openshift=true"),
    ("injection.configMap=istio-sidecar-injector", "injection.meshConfigMap=istio"),
    ("injection.values={istio_cni: {enabled: false}, global: {proxy: {image: 'mesh/proxyv2:1', statusPort: 15030}}}",),
    ("autoscaling.enabled=true", "dashboard.enabled=true", "networkPolicy.monitoringFrom=[{podSelector: {}}]"),
    ("injection.proxyConfigs=false", "injection.nativeSidecars=auto"),
    ("injection.proxyConfigs=false", "certificate.mode=certManager", "certificate.issuer={name: mesh, kind: ClusterIssuer}"),
    ("resourceQuotas.enabled=false", "disruptionBudget.enabled=false", "networkPolicy.enabled=false", "logAsJson=false", "extraArgs=[--maxReviews=64]"),
)
WITH_NODE = ("node.enabled=true", "injection.values={istio_cni: {enabled: false}, global: {meshID: \"a'b\"}}")


def made(*given, namespace="mesh"):
    return render_chart(*given, namespace=namespace)


def one(kind, *given):
    (found,) = [tree for tree in made(*given) if tree["kind"] == kind]
    return found


def config_map(name, *given):
    (found,) = [tree for tree in made(*given) if (tree["kind"], tree["metadata"]["name"]) == ("ConfigMap", name)]
    return found


def hooks(*given, namespace="mesh"):
    return [tree for tree in made(*given, namespace=namespace) if tree["kind"] == "MutatingWebhookConfiguration"]


@together("given", VALUES, ids=",".join)
def test_every_choice_renders_whole_objects_with_names_and_labels(given):
    trees = made(*given)
    for tree in trees:
        assert tree["apiVersion"]
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", tree["metadata"]["name"]), tree["metadata"]
        assert tree["metadata"]["labels"], tree["kind"]
    assert "<no value>" not in json.dumps(trees)
    assert "<nil>" not in json.dumps(trees)
    names = [(tree["kind"], tree["metadata"].get("namespace"), tree["metadata"]["name"]) for tree in trees]
    assert len(names) == len(set(names))


@together("given", VALUES, ids=",".join)
def test_the_containers_flags_are_those_of_the_server(given):
    words = one("Deployment", *given)["spec"]["template"]["spec"]["containers"][0]["args"]
    assert words[:2] == ["webhook", "serve"]
    taken = extract_flags(words[2:], ServeSettings.flags)
    settings = ServeSettings.from_texts(taken.texts, {"POD_NAMESPACE": "mesh"}, [*taken.problems, *taken.rest])
    assert (settings.port, settings.service) == (15017, one("Service", *given)["metadata"]["name"])


@together("given", VALUES, ids=",".join)
def test_webhook_names_and_rights_fit_each_other(given):
    configurations = {tree["metadata"]["name"] for tree in hooks(*given)}
    words = one("Deployment", *given)["spec"]["template"]["spec"]["containers"][0]["args"]
    named = [word.partition("=")[2] for word in words if word.startswith("--webhookConfigName=")]
    if "certificate.mode=certManager" in given:
        assert named == []
        assert all("cert-manager.io/inject-ca-from" in tree["metadata"]["annotations"] for tree in hooks(*given))
        return
    assert set(named[0].split(",")) == configurations
    (role,) = [tree for tree in made(*given) if tree["kind"] == "ClusterRole"]
    assert set(role["rules"][0]["resourceNames"]) == configurations
    assert role["rules"][0]["verbs"] == ["list", "watch", "patch"]


@pytest.mark.parametrize(("given", "wanted"), [
    ((), {"proxyconfigs"}), (("injection.proxyConfigs=false",), set()),
    (("injection.nativeSidecars=auto",), {"proxyconfigs", "nodes"}), (("openshift=true",), {"proxyconfigs", "namespaces"}),
])  # fmt: skip
def test_what_is_not_watched_may_not_be_read(given, wanted):
    for own in ((), ("certificate.mode=certManager", "certificate.issuer={name: mesh}")):
        rules = [rule for tree in made(*given, *own) if tree["kind"] == "ClusterRole" for rule in tree["rules"]]
        found = {rule["resources"][0]: rule["verbs"] for rule in rules if "resourceNames" not in rule}
        assert found == {"events": ["create"], **{name: ["list", "watch"] for name in wanted}}


def test_no_right_is_given_on_everything():
    for given in VALUES:
        for tree in made(*given):
            if tree["kind"] in {"Role", "ClusterRole"}:
                for rule in tree["rules"]:
                    assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"]
                    open_ended = rule["verbs"] == ["create"] or rule["resources"] in (["namespaces"], ["proxyconfigs"], ["nodes"])
                    assert open_ended or rule["resourceNames"], rule


def test_the_pod_is_allowed_at_the_level_restricted():
    pod = one("Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    own = container["securityContext"]
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"], own["capabilities"]) == (
        False,
        True,
        {"drop": ["ALL"]},
    )
    assert {tuple(volume) for volume in pod["volumes"]} == {("name", "configMap")}
    assert container["resources"]["requests"]
    assert pod["terminationGracePeriodSeconds"] > 5 + 15 + 2, "the drain fits into it"


def test_openshift_gives_the_user_out_of_the_namespaces_range():
    """Its constraint for everybody, restricted-v2, refuses a pod that names another."""
    for given, wanted in (((), 65532), (("openshift=true",), None)):
        context = one("Deployment", *given)["spec"]["template"]["spec"]["securityContext"]
        assert (context.get("runAsUser"), context.get("runAsGroup"), context["runAsNonRoot"]) == (wanted, wanted, True)


def test_selectors_of_service_budget_policy_and_deployment_mean_the_same_pods():
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    selectors = [
        one("Service")["spec"]["selector"],
        one("Deployment")["spec"]["selector"]["matchLabels"],
        one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert len({json.dumps(selector, sort_keys=True) for selector in selectors}) == 1


def policies(*given):
    """The ingress rules of webhook and agent, each its port and who may come."""
    found = [tree["spec"] for tree in made("node.enabled=true", "node.hostNetwork=false", *given) if tree["kind"] == "NetworkPolicy"]
    assert all(spec["policyTypes"] == ["Ingress"] for spec in found)
    return [[(rule["ports"][0]["port"], rule.get("from")) for rule in spec.get("ingress", [])] for spec in found]


def test_network_policies_admit_whom_the_values_name_and_keep_strangers_from_the_agent():
    assert policies() == [[(15017, None)], []]
    server, monitoring = [{"ipBlock": {"cidr": "192.0.2.10/32"}}], [{"podSelector": {}}]
    given = (f"networkPolicy.reviewsFrom={json.dumps(server)}", f"networkPolicy.monitoringFrom={json.dumps(monitoring)}")
    assert policies(*given) == [[(15017, server), (15014, monitoring)], [(15014, monitoring)]]
    assert policies("networkPolicy.enabled=false") == []
    agent = next(tree for tree in made("node.enabled=true", "node.hostNetwork=false") if tree["kind"] == "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    selector = next(tree for tree in made("node.enabled=true", "node.hostNetwork=false") if tree["kind"] == "NetworkPolicy" and "ingress" not in tree["spec"])["spec"]["podSelector"]
    assert selector["matchLabels"].items() <= agent.items()


def test_a_changed_value_of_the_templates_is_a_new_pod():
    """So that it is in use when `helm upgrade --wait` returns, not when a kubelet has renewed the mounted ConfigMap."""

    def checksum(*given):
        (tree,) = [tree for tree in made(*given) if tree["kind"] == "Deployment"]
        return tree["spec"]["template"]["metadata"]["annotations"]["checksum/values"]

    changes = ((), ("node.enabled=true",), ("injection.values={global: {proxy: {image: x}}}",), ("initImage.tag=v2",))
    assert len({checksum(*given) for given in changes}) == len(changes)
    assert checksum() == checksum("webhook.failurePolicy=Ignore")


@pytest.mark.parametrize(
    ("given", "image"),
    [
        ((), f"netinit:{__version__}"),
        (("image.repository=registry.example/mesh/netinit-webhook",), f"registry.example/mesh/netinit:{__version__}"),
        (("initImage.repository=registry.example/init", "initImage.tag=v7"), "registry.example/init:v7"),
        (("injection.values={global: {proxy_init: {image: mine, resources: {}}, meshID: m}, other: 1}",), "mine"),
    ],
)
def test_pods_get_the_init_image_beside_the_webhooks_or_the_one_that_is_named(given, image):
    (values,) = [json.loads(tree["data"]["values"]) for tree in made(*given) if tree["kind"] == "ConfigMap"]
    assert values["global"]["proxy_init"]["image"] == image
    if image == "mine":
        assert values == {"global": {"proxy_init": {"image": "mine", "resources": {}}, "meshID": "m"}, "other": 1}


def test_an_init_image_that_nobody_can_tell_has_to_be_named():
    with pytest.raises(ConfigError, match=r"initImage\.repository: name the image"):
        made("image.repository=registry.example/other")


NAMESPACES = [
    {
        key: value
        for key, value in (("istio-injection", a), ("istio.io/rev", b), ("kubesphere.io/workspace", c))
        if value is not None
    }
    for a, b, c in itertools.product((None, "enabled", "disabled", ""), (None, "default", "canary"), (None, "w"))
]
PODS = [
    {key: value for key, value in (("sidecar.istio.io/inject", a), ("istio.io/rev", b)) if value is not None}
    for a, b in itertools.product((None, "true", "false", "yes", ""), (None, "default", "canary"))
]


def fires(webhooks, namespace, pod):
    return sorted(
        hook.short_name for hook in firing(webhooks, {"kubernetes.io/metadata.name": "shop", **namespace}, pod)
    )


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((), current_webhooks()),
        (("webhook.enableNamespacesByDefault=true",), current_webhooks(by_default=True)),
        (("revision=canary",), current_webhooks("canary")),
    ],
    ids=str,
)
def test_the_current_flavour_takes_what_istios_webhooks_take(given, wanted):
    (configuration,) = hooks(*given)
    ours = parse_webhooks(configuration)
    assert [hook.name for hook in ours] == [hook.name for hook in wanted]
    for namespace, pod in itertools.product(NAMESPACES, PODS):
        assert fires(ours, namespace, pod) == fires(wanted, namespace, pod), (namespace, pod)


@pytest.mark.parametrize("by_default", [False, True])
def test_the_classic_flavour_takes_what_the_early_webhook_takes_but_pods_that_refuse(by_default):
    (configuration,) = hooks("webhook.flavour=classic", f"webhook.enableNamespacesByDefault={str(by_default).lower()}")
    ours, early = parse_webhooks(configuration), early_webhook(by_default=by_default)
    for namespace, pod in itertools.product(NAMESPACES, PODS):
        refused = pod.get("sidecar.istio.io/inject") == "false"
        assert bool(fires(ours, namespace, pod)) == (bool(fires(early, namespace, pod)) and not refused)


@pytest.mark.parametrize(
    ("namespace", "taken"),
    [
        ({"kubesphere.io/workspace": "w"}, True),
        ({"kubesphere.io/workspace": "w", "istio-injection": "enabled"}, True),
        ({"kubesphere.io/workspace": "w", "istio-injection": "disabled"}, False),
        ({"istio-injection": "enabled"}, False),
        ({}, False),
    ],
)
def test_kubespheres_two_expressions(namespace, taken):
    (configuration,) = hooks("webhook.flavour=kubesphere")
    assert bool(fires(parse_webhooks(configuration), namespace, {})) is taken


def test_a_revision_answers_to_its_tags_each_by_a_configuration_of_its_own():
    found = hooks("revision=canary", "tags=[prod]")
    assert [tree["metadata"]["name"] for tree in found] == [
        "netinit-webhook-canary-sidecar-injector",
        "netinit-webhook-canary-tag-prod",
    ]
    tag = parse_webhooks(found[1])
    assert fires(tag, {"istio.io/rev": "prod"}, {}) == ["rev.namespace"]
    assert fires(tag, {"istio.io/rev": "canary"}, {}) == []
    assert found[1]["webhooks"][0]["clientConfig"]["service"]["name"] == "netinit-webhook-canary"


@pytest.mark.parametrize("given", [(), ("revision=canary", "tags=[prod]")], ids=",".join)
def test_no_configuration_has_the_label_by_which_istiod_takes_it_for_its_own(given):
    """istiod writes its own caBundle into configurations labelled with its revision (Istio's pkg/webhooks/webhookpatch.go)."""
    assert not [tree for tree in hooks(*given) if "istio.io/rev" in tree["metadata"]["labels"]]


@together("given", VALUES, ids=",".join)
@pytest.mark.parametrize("name", ["mesh", "kube-system", "kube-public"])
def test_the_own_and_the_systems_namespaces_are_never_matched(given, name):
    for configuration in hooks(*given):
        for hook in parse_webhooks(configuration):
            for namespace, pod in itertools.product(NAMESPACES, PODS):
                assert not hook.matches({"kubernetes.io/metadata.name": name, **namespace}, pod), (
                    hook.name,
                    namespace,
                    pod,
                )


@needs_data
def test_every_cell_of_istios_truth_table():
    matrix = json.loads((DATA / "webhook-matrix.json").read_text())
    given = {
        "default": (),
        "default+enableNamespacesByDefault": ("webhook.enableNamespacesByDefault=true",),
        "rev=canary": ("revision=canary",),
    }
    ours = {config: parse_webhooks(hooks(*words)[0]) for config, words in given.items()}
    assert len(matrix) == 192
    wrong = [
        cell
        for cell in matrix
        if fires(ours[cell["config"]], cell["namespace_labels"], cell["pod_labels"]) != sorted(cell["webhooks"])
    ]
    assert wrong == []


def test_the_schema_takes_the_charts_own_values_and_knows_each():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    values = goyaml.load((CHART / "values.yaml").read_text())
    validator = jsonschema.Draft7Validator(schema)
    for given in VALUES:
        changed = values
        for text in given:
            changed = merge_values(changed, yaml_value(text))
        assert [error.message for error in validator.iter_errors(changed)] == []
    assert set(schema["properties"]) - {"global"} == set(values)
    for wrong in ("replicas=0", "webhook.flavour=new", "webhook.timeoutSeconds=31", "revision=A_B"):
        assert list(validator.iter_errors(merge_values(values, yaml_value(wrong)))), wrong


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("webhok.flavour=classic", "did you mean webhook?"),
        ("webhook.flavor=classic", '"webhook.flavor" is not a value of the chart; did you mean flavour?'),
        ("webhook.flavour=new", "is not one of current, classic, kubesphere"),
        ("processes=2", '"processes" is not a value of the chart'),
        ("replicas", 'the key "replicas" has no value; write replicas=VALUE'),
        ("tags={a", "a list does not end with }"),
    ],
)
def test_a_value_that_is_none_is_told(given, said):
    with pytest.raises((ConfigError, OptionError), match=re.escape(said)):
        objects("mesh", "netinit", (), (given,))


def test_values_of_a_file_and_of_words_are_laid_over_each_other(tmp_path):
    (tmp_path / "values.yaml").write_text("replicas: 5\nresources: {limits: {cpu: 1}}\n")
    trees = objects("mesh", "netinit", (str(tmp_path / "values.yaml"),), ("replicas=7",))
    (deployment,) = [tree for tree in trees if tree["kind"] == "Deployment"]
    assert deployment["spec"]["replicas"] == 7
    assert deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] == {
        "memory": "256Mi",
        "cpu": 1,
    }


def test_the_command_prints_the_same_objects():
    done = subprocess.run(
        [sys.executable, "-m", "netinit", "webhook", "manifests", "-n", "mesh"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert goyaml.load_all(done.stdout) == made()


@pytest.mark.parametrize(
    ("given", "init"),
    [
        ((), "istio-init"),
        (("injection.values={istio_cni: {enabled: true}}",), "istio-validation"),
        (("node.enabled=true",), "istio-validation"),
        (WITH_NODE, "istio-validation"),
    ],
)
def test_with_the_agent_on_the_nodes_the_webhook_gives_pods_no_init_container_with_privileges(given, init):
    (container,) = one("Deployment", *given)["spec"]["template"]["spec"]["containers"]
    (mount,) = [mount for mount in container["volumeMounts"] if mount["name"] == "values"]
    assert f"--valuesFile={mount['mountPath']}" in container["args"]
    (volume,) = [volume for volume in one("Deployment", *given)["spec"]["template"]["spec"]["volumes"] if volume["name"] == "values"]
    values = config_map(volume["configMap"]["name"], *given)["data"]["values"]
    injected = inject_pod(BARE_POD, load(Texts(values=values), Settings()).config)
    (found,) = [one for one in injected["spec"]["initContainers"] if one["name"] != "istio-proxy"]
    assert found["name"] == init
    assert ("NET_ADMIN" in found["securityContext"]["capabilities"].get("add", [])) is (init == "istio-init")


def test_values_for_the_templates_are_laid_over_netinits_own():
    given = "injection.values={global: {proxy: {image: 'registry.example/proxyv2:9'}}}"
    values = config_map("netinit-webhook-values", given)["data"]["values"]
    injected = inject_pod(BARE_POD, load(Texts(values=values), Settings()).config)
    containers = [*injected["spec"].get("initContainers", []), *injected["spec"]["containers"]]
    (proxy,) = [one for one in containers if one["name"] == "istio-proxy"]
    assert proxy["image"] == "registry.example/proxyv2:9"


def test_a_config_map_of_a_control_plane_has_its_own_values():
    (kept,) = [tree for tree in made("injection.configMap=istio") if tree["kind"] == "ConfigMap"]
    assert kept["metadata"]["name"] == "netinit-webhook-last-good"
    assert "data" not in kept, "an upgrade would take what the webhook has written there"
    with pytest.raises(ConfigError, match="values are for netinit's own templates"):
        made("injection.configMap=istio", "injection.values={global: {}}")


@needs_helm
@pytest.mark.parametrize("given", [*VALUES, WITH_NODE], ids=",".join)
def test_helm_renders_the_same_objects(given, tmp_path):
    shutil.copytree(CHART, tmp_path / "netinit")
    words = [
        word
        for text in given
        for word in ("--set-json", f"{text.partition('=')[0]}={json.dumps(goyaml.load(text.partition('=')[2]))}")
    ]
    linted = subprocess.run(
        [HELM, "lint", tmp_path / "netinit", *words], capture_output=True, text=True, check=False, timeout=60
    )
    assert linted.returncode == 0, linted.stdout
    done = subprocess.run(
        [HELM, "template", "netinit", tmp_path / "netinit", "-n", "mesh", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr

    def key(tree):
        return tree["kind"], tree["metadata"]["name"]

    ours = json.loads(
        json.dumps(made(*given)).replace(
            '"app.kubernetes.io/managed-by": "netinit"', '"app.kubernetes.io/managed-by": "Helm"'
        )
    )
    theirs = [tree for tree in goyaml.load_all(done.stdout) if tree]
    assert sorted(ours, key=key) == sorted(theirs, key=key)


def test_the_chart_has_the_packages_version():
    import netinit

    chart = goyaml.load(read_chart()["Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == (netinit.__version__, netinit.__version__)
    assert (CHART.parents[2] / "charts" / "netinit").resolve() == CHART.resolve()


def test_a_compiled_file_beside_the_chart_s_test_is_no_file_of_the_chart(tmp_path, monkeypatch):
    """pip compiles every Python file of a wheel."""
    shutil.copytree(CHART, tmp_path / "chart")
    (tmp_path / "chart" / "tests" / "__pycache__").mkdir(exist_ok=True)
    (tmp_path / "chart" / "tests" / "__pycache__" / "capture.cpython-311.pyc").write_bytes(b"\xa7\r\r\n")
    before = read_chart()
    monkeypatch.setattr("netinit.cli.webhook.manifests.CHART", tmp_path / "chart")
    assert read_chart() == before


@pytest.mark.parametrize("given", [(), WITH_NODE, ("node.enabled=true", "node.platform=gke"), ("priorityClassName=", "resourceQuotas.pods=7")])
def test_a_quota_admits_pods_of_every_critical_class_that_the_chart_uses(given):
    quota = one("ResourceQuota", *given)
    assert quota["metadata"]["namespace"] == "mesh"
    assert quota["spec"]["hard"] == {"pods": "7" if "resourceQuotas.pods=7" in given else "5000"}
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
    pods = [tree["spec"]["template"]["spec"] for tree in made(*given) if tree["kind"] in {"Deployment", "DaemonSet"}]
    used = {pod["priorityClassName"] for pod in pods if "priorityClassName" in pod}
    assert used <= {*scope["values"]} == {"system-node-critical", "system-cluster-critical"}


def test_without_the_quota_there_is_none_and_a_bad_limit_is_refused():
    assert "ResourceQuota" not in {tree["kind"] for tree in made("resourceQuotas.enabled=false")}
    for text, problem in (("pods=0", "0 must be from 1 to any"), ("pods=x", "must be a whole number"), ("enabled=1", "must be true or false")):
        with pytest.raises(ConfigError, match=problem):
            made(f"resourceQuotas.{text}")


@needs_helm
def test_notes_name_the_consequence_of_leaving_the_quota_out(tmp_path):
    """Helm shows notes only of an installation; as a template of the chart they can be rendered without a cluster."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    (chart / "templates" / "told.yaml").write_text('told: |\n{{ tpl (.Files.Get "NOTES.txt") . | indent 2 }}\n')
    shutil.copy(CHART / "templates" / "NOTES.txt", chart / "NOTES.txt")
    told = {}
    for enabled in ("true", "false"):
        words = [HELM, "template", "n", chart, "-n", "mesh", "--show-only", "templates/told.yaml", "--set", f"resourceQuotas.enabled={enabled}"]
        told[enabled] = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "No ResourceQuota is installed" not in told["true"]
    assert "pods with system-cluster-critical are refused" in told["false"]


def test_pods_that_share_the_proxys_user_are_refused_only_if_a_value_says_so():
    def words(*given):
        return one("Deployment", *given)["spec"]["template"]["spec"]["containers"][0]["args"]

    assert not [word for word in words() if "refuse" in word]
    assert "--refuseSharedProxyUser=true" in words("injection.refuseSharedProxyUser=true")


def test_the_webhook_has_a_side_effect_unless_it_is_a_dry_run():
    assert {hook["sideEffects"] for tree in hooks() for hook in tree["webhooks"]} == {"NoneOnDryRun"}


def test_the_labels_that_select_pods_are_written_once():
    texts = {path: text for path, text in read_chart().items() if path.startswith("templates/") and not path.startswith("templates/_")}
    assert [path for path, text in texts.items() if re.search(r'"app.kubernetes.io/name" "netinit-(webhook|node)" "app.kubernetes.io/instance"', text)] == []


def test_the_policies_compare_all_metadata_that_a_request_could_set():
    trees = render_chart("admissionPolicies.enabled=true", "node.enabled=true", "node.repair=label")
    policies = {tree["metadata"]["name"]: tree for tree in trees if tree["kind"] == "ValidatingAdmissionPolicy"}
    fields = {"labels", "annotations", "ownerReferences", "finalizers", "generateName"}
    for name, free in (("netinit-webhook-mesh", set()), ("netinit-node-mesh", {"labels"})):
        expression = policies[name]["spec"]["validations"][-1]["expression"]
        assert set(re.findall(r"object\.metadata\.\?(\w+) == oldObject\.metadata\.\?\1(?!\w)", expression)) == fields - free
