"""The chart's DaemonSet of the node: what it asks of the node and of the API, and where it looks on each platform."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import shutil
import subprocess

import pytest

from chart_places import SCHEMA, put, resolve
from chart_values import is_group
from helm import HELM, needs_helm, render_chart, yaml_value
from netinit.base.errors import ConfigError, OptionError
from netinit.cli.node.agent import FOLDERS
from netinit.cli.webhook.manifests import CHART, objects, read_chart
from netinit.golang import goyaml
from netinit.inject.adding.config import load_config
from netinit.inject.adding.pod import inject_pod
from netinit.inject.adding.values import merge_values
from netinit.inject.deciding.init_container import find_init, options_of
from netinit.installation.chart import find_problems, render
from netinit.node.settings import AgentSettings
from netinit.options.declare import extract_flags
from netinit.webhook.settings import ServeSettings
from sweeps import together

VALUES = (
    (), ("node.platform=k3s",), ("node.platform=openshift",), ("node.platform=gke",), ("node.platform=microk8s",), ("node.platform=talos",),
    ("node.repair=delete", "node.startupTaint=netinit.io/not-ready"), ("node.watch=false", "node.repair=label", "node.confName=10-a.conflist", "logAsJson=false"),
    ("node.binFolder=/bin", "node.confFolder=/conf", "node.excludeNamespaces=[a, b]", "node.extraArgs=[--jobs=2]", "node.backend=nftables"),
    ("dualStack=true",), ("ipv6=reject",), ("node.outsideNamespaces=wait",), ("node.repair=delete", "node.repairUnknown=true"),
    ("node.ownList=true",), ("node.ownList=true", "node.ownListName=01-mesh.conflist", "node.confName=10-a.conflist"),
)  # fmt: skip


def made(*given):
    return [tree for tree in render_chart("node.enabled=true", *given) if "netinit-node" in tree["metadata"]["name"]]


def daemon_set(*given):
    (found,) = [tree for tree in made(*given) if tree["kind"] == "DaemonSet"]
    return found


def container(*given):
    (found,) = daemon_set(*given)["spec"]["template"]["spec"]["containers"]
    return found


def test_it_is_not_there_unless_it_is_wanted():
    assert not [tree for tree in render_chart() if tree["kind"] == "DaemonSet"]


@together("given", VALUES, ids=",".join)
def test_the_containers_flags_are_those_of_the_agent(given):
    words = container(*given)["args"]
    assert words[:2] == ["node", "agent"]
    taken = extract_flags(words[2:], AgentSettings.flags)
    settings = AgentSettings.from_texts(taken.texts, {"NODE_NAME": "n", "POD_NAMESPACE": "mesh"}, [*taken.problems, *taken.rest])
    assert settings.daemon_set == daemon_set(*given)["metadata"]["name"]
    assert settings.watch == ("node.watch=false" not in given)
    assert settings.outside_namespaces == ("wait" if "node.outsideNamespaces=wait" in given else "start")
    mounts = {mount["mountPath"] for mount in container(*given)["volumeMounts"]}
    folders = {settings.bin_folder, settings.conf_folder, settings.netns_folder, settings.records_folder, settings.cgroup_folder}
    assert {*folders, settings.socket.rpartition("/")[0]} == mounts


def test_two_agents_of_an_upgrade_are_probed_under_names_of_their_own_and_nothing_waits_for_a_time():
    """With minReadySeconds, Kubernetes' DaemonSet controller forgets a pod that is ready within that time of another."""
    instances = []
    for given in ((), ("node.backend=iptables-nft",), ("logLevel=debug",)):
        agent, spec = container(*given), daemon_set(*given)["spec"]
        (instance,) = [word.removeprefix("--instance=") for word in agent["args"] if word.startswith("--instance=")]
        assert agent["readinessProbe"]["httpGet"]["path"] == f"/readyz/{instance}"
        assert "minReadySeconds" not in spec
        instances.append(instance)
    assert len({*instances}) == len(instances)


BASES = ({}, {"repair": "program"}, {"ownList": True})  # values beside which others count


def list_values(schema=SCHEMA, path=()):
    """The path and schema of each value that is none of `global`, a group of values without names of their own being one."""
    for name, one in schema["properties"].items():
        if is_group(one):
            yield from list_values(one, (*path, name))
        elif path or name != "global":
            yield (*path, name), one


def other_values(schema):
    """Values that the schema allows, of each kind that it allows, and that are not the default."""
    schema = {**resolve(schema), "definitions": SCHEMA["definitions"]}
    items = [[one] for one in other_values(schema["items"])] if "items" in schema else []
    texts = ["x1", "debug", "r/netinit-webhook", "7m", "/x", "a.example/b", "2Mi", "01-x.conflist", "192.0.2.0/24", f"sha256:{'3' * 64}"]
    tried = [*schema.get("enum", ()), True, False, 2, 3, 15020, *texts, *items, {"k": "v"}, {"k": {"k": "v"}}, {"name": "x"}, {"name": "x", "mountPath": "/x"}]
    return [one for one in tried if one != schema.get("default") and not list(find_problems(one, schema))]


@functools.cache
def chart_of_the_node():
    """The chart without the templates of anything but the node, and its values."""
    files = {path: text for path, text in read_chart().items() if not path.startswith("templates/") or path.startswith(("templates/_", "templates/node."))}
    return collections.defaultdict(str, files), goyaml.load(files["values.yaml"])


def pod_and_instance(values):
    """The agent's pod but for its name under which it answers, and that name; with all that only an API server refuses."""
    chart, defaults = chart_of_the_node()
    trees = render(chart, merge_values(defaults, values), name="netinit", namespace="mesh")
    (template,) = [tree["spec"]["template"] for tree in trees if tree["kind"] == "DaemonSet"]
    (instance,) = [word.removeprefix("--instance=") for word in template["spec"]["containers"][0]["args"] if word.startswith("--instance=")]
    return json.dumps(template).replace(instance, "INSTANCE"), instance


def test_whatever_value_changes_an_agents_pod_changes_its_name_and_no_other_value_restarts_the_agents():
    same, needless, tried = {}, {}, set()
    places = [(path, value) for path, schema in list_values() for value in other_values(schema) if path != ("node", "enabled")]
    for base in BASES:
        node = {"node": {"enabled": True, **base}}
        pod, instance = pod_and_instance(node)
        for path, value in places if not base else [one for one in places if one[0][0] == "node"]:
            with contextlib.suppress(ConfigError):  # it contradicts another
                other, name = pod_and_instance(merge_values(node, put(path, value)))
                tried.add(path)
                if other != pod and name == instance:
                    same[".".join(path)] = value
                elif other == pod and name != instance:
                    needless[".".join(path)] = value
    assert same == {}
    assert needless.keys() <= {"node.platform", "node.ownListName"}, "these change the pod beside other values"
    assert {path for path, _ in list_values()} - tried == {("node", "enabled")}


def test_two_releases_with_the_same_values_are_probed_under_names_of_their_own():
    instances = set()
    for namespace, name in (("mesh", "netinit"), ("mesh", "second"), ("mesh-2", "netinit")):
        (tree,) = [tree for tree in objects(namespace, name, (), ("node.enabled=true",)) if tree["kind"] == "DaemonSet"]
        (agent,) = tree["spec"]["template"]["spec"]["containers"]
        instances |= {word for word in agent["args"] if word.startswith("--instance=")}
    assert len(instances) == 3


def test_what_a_deleted_namespace_leaves_is_found_by_one_label():
    left = [tree for tree in render_chart("node.enabled=true", "tags=[prod]") if "namespace" not in tree["metadata"]]
    assert {tree["kind"] for tree in left} == {"MutatingWebhookConfiguration", "ClusterRole", "ClusterRoleBinding"}
    assert {tree["metadata"]["labels"]["app.kubernetes.io/part-of"] for tree in left} == {"netinit"}


def test_an_agent_that_watches_no_other_namespace_may_watch_its_own():
    (rule,) = [rule for tree in made("node.outsideNamespaces=wait") if tree["kind"] == "ClusterRole" for rule in tree["rules"] if rule["resources"] == ["namespaces"]]
    assert rule["resourceNames"] == ["mesh"]


@pytest.mark.parametrize(("given", "dual_stack", "ipv6"), [((), False, "auto"), (("dualStack=true",), True, "auto"), (("ipv6=reject",), False, "reject")])
def test_one_value_decides_about_ipv6_for_the_agent_and_the_webhook(given, dual_stack, ipv6):
    words = container(*given)["args"]
    agent = AgentSettings.from_texts(extract_flags(words[2:], AgentSettings.flags).texts, {"NODE_NAME": "n"})
    (deployment,) = [tree for tree in render_chart(*given) if tree["kind"] == "Deployment"]
    words = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    webhook = ServeSettings.from_texts(extract_flags(words[2:], ServeSettings.flags).texts, {})
    assert [(one.dual_stack, one.ipv6) for one in (agent, webhook)] == [(dual_stack, ipv6)] * 2
    assert (agent.base.dual_stack, agent.base.ipv6) == (dual_stack, ipv6)
    pod = {"metadata": {}, "spec": {"containers": [{"name": "app", "image": "x"}]}}
    injected = inject_pod(pod, load_config(), settings=webhook.injection)
    options = options_of(find_init(injected["spec"]))
    assert (options.dual_stack, options.ipv6) == (dual_stack, ipv6), "the init container follows"


PLATFORMS = SCHEMA["properties"]["node"]["properties"]["platform"]["enum"]


@pytest.mark.parametrize("platform", [*PLATFORMS, *(FOLDERS.keys() - PLATFORMS)])
def test_each_platforms_folders_are_mounted_and_are_those_where_node_status_looks(platform):
    volumes = daemon_set(*([f"node.platform={platform}"] if platform else []))["spec"]["template"]["spec"]["volumes"]
    paths = {volume["name"]: volume["hostPath"]["path"] for volume in volumes}
    assert (paths["bin"], paths["conf"]) == FOLDERS[platform if platform in FOLDERS else ""]
    assert paths["run"] == "/run/netinit"
    words = container(*([f"node.platform={platform}"] if platform else []))["args"]
    assert ("--standalone" in words) is (platform == "openshift")


def test_it_has_three_capabilities_a_seccomp_profile_and_nothing_of_the_host_but_six_folders_and_its_network():
    spec = daemon_set()["spec"]["template"]["spec"]
    own = container()["securityContext"]
    assert own["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN", "NET_ADMIN", "NET_RAW"]}
    assert (own["privileged"], own["readOnlyRootFilesystem"], spec["securityContext"]["seccompProfile"]) == (False, True, {"type": "RuntimeDefault"})
    assert not {"hostPID", "hostIPC"} & spec.keys()
    assert (spec["priorityClassName"], spec["tolerations"]) == ("system-node-critical", [{"operator": "Exists"}])
    (netns,) = [mount for mount in container()["volumeMounts"] if mount["name"] == "netns"]
    assert (netns["readOnly"], netns["mountPropagation"]) == (True, "HostToContainer")
    assert {mount["name"] for mount in container()["volumeMounts"] if mount.get("readOnly")} == {"netns", "records", "cgroups"}
    assert len(spec["volumes"]) == 6


@pytest.mark.parametrize("on_host", [True, False])
def test_the_next_version_starts_before_the_present_one_ends(on_host):
    tree = daemon_set(f"node.hostNetwork={str(on_host).lower()}")
    assert tree["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    (own,) = tree["spec"]["template"]["spec"]["containers"]
    assert tree["spec"]["template"]["spec"]["hostNetwork"] is on_host
    assert ("ports" in own) is not on_host, "a port of the node would keep the second agent from being scheduled"
    assert {own[f"{name}Probe"]["httpGet"]["port"] for name in ("startup", "readiness", "liveness")} == {15014}


def rights(*given):
    return {(resource, verb) for tree in made(*given) if "Role" in tree["kind"] and "Binding" not in tree["kind"] for rule in tree["rules"] for resource in rule["resources"] for verb in rule["verbs"]}


def test_the_rights_are_what_the_settings_need():
    least = {("pods", "get"), ("pods", "list"), ("pods", "watch"), ("events", "create"), ("daemonsets", "get"), ("daemonsets", "list"), ("daemonsets", "watch")}
    least |= {(resource, verb) for resource in ("namespaces", "mutatingwebhookconfigurations") for verb in ("list", "watch")}
    assert rights() == least
    assert rights("node.outsideNamespaces=wait") == {right for right in least if right[0] in {"pods", "events", "daemonsets", "namespaces"}}
    assert rights("node.repair=none") == least - {("events", "create")}
    assert rights("node.repair=delete") == least | {("pods", "delete")}
    assert rights("node.repair=label") == least | {("pods/status", "patch")}
    assert rights("node.platform=openshift") == least | {("securitycontextconstraints", "use")}
    assert rights("node.startupTaint=x") == least | {("nodes", "get"), ("nodes", "patch")}


@pytest.mark.parametrize("wrong", ["node.platform=beos", "node.outsideNamespaces=maybe", "node.repair=pray", "node.repairUnknown=always", "node.binFolder=relative", "node.capabilities=[SYS_MODULE]", "node.ownList=maybe", "node.ownListName=a/b.conflist", "node.ownListName=net.conf"])
def test_the_schema_refuses_what_is_no_value(wrong):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = goyaml.load((CHART / "values.yaml").read_text())
    assert list(jsonschema.Draft7Validator(schema).iter_errors(merge_values(values, yaml_value(wrong))))
    for given in VALUES:
        changed = values
        for text in given:
            changed = merge_values(changed, yaml_value(text))
        assert [error.message for error in jsonschema.Draft7Validator(schema).iter_errors(changed)] == []


@pytest.mark.parametrize("repair", ["none", "report"])
def test_unknown_pods_are_repaired_only_where_others_are(repair):
    with pytest.raises(ConfigError, match=r"node\.repairUnknown: needs node.repair label, delete or program"):
        made(f"node.repair={repair}", "node.repairUnknown=true")
    with pytest.raises(OptionError, match=f"--repairUnknown: does nothing with --repair {repair}; give label, delete or program there"):
        AgentSettings.from_argv(["--nodeName", "n", "--repair", repair, "--repairUnknown"], {})


@pytest.mark.parametrize(("given", "said"), [
    (["node.standalone=true", "node.confName=x.conf"], r"node\.ownList: contradicts node\.standalone"), (["node.platform=openshift"], r"node\.ownList: contradicts"),
    (["node.confName=00-netinit.conflist"], r"node\.ownListName: is node\.confName too"),
])  # fmt: skip
def test_a_list_of_the_agents_own_is_refused_with_what_contradicts_it(given, said):
    with pytest.raises(ConfigError, match=said):
        made("node.ownList=true", *given)


def test_an_unknown_value_of_the_node_is_told():
    with pytest.raises(ConfigError, match="did you mean platform"):
        made("node.plattform=k3s")


@needs_helm
@pytest.mark.parametrize("given", VALUES, ids=",".join)
def test_helm_renders_the_same_objects(given, tmp_path):
    shutil.copytree(CHART, tmp_path / "netinit")
    words = [word for text in ("node.enabled=true", *given) for word in ("--set-json", f"{text.partition('=')[0]}={json.dumps(goyaml.load(text.partition('=')[2]))}")]
    done = subprocess.run([HELM, "template", "netinit", tmp_path / "netinit", "-n", "mesh", *words], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    theirs = [tree for tree in goyaml.load_all(done.stdout) if tree and "netinit-node" in tree["metadata"]["name"]]
    ours = json.loads(json.dumps(made(*given)).replace('"app.kubernetes.io/managed-by": "netinit"', '"app.kubernetes.io/managed-by": "Helm"'))
    key = lambda tree: (tree["kind"], tree["metadata"]["name"])  # noqa: E731
    assert sorted(ours, key=key) == sorted(theirs, key=key)
