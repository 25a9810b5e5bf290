"""The examples: what an operator copies must parse, say what its comments say, and not drift apart."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import netinit
import prefork
from core import settled
from netinit.inject.deciding.init_container import options_of
from netinit.inject.deciding.manifest_survey import read_pods
from netinit.questions.lint import lint
from podsecurity import INIT_CONTAINER, containers, offences
from sweeps import together

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples"
FILES = sorted(FOLDER.glob("*.yaml"))
PODS = ["pod.yaml", "native-sidecar.yaml"]

def documents(name):
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def the(kind, name):
    (found,) = [one for one in documents(name) if one["kind"] == kind]
    return found


def init_of(pod):
    return pod["spec"]["initContainers"][0]


def named(pod, name):
    (found,) = [one for one in containers(pod) if one["name"] == name]
    return found


def program(*arguments):
    done = prefork.run([str(one) for one in arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_there_are_examples():
    assert {"istio-operator.yaml", "istio-revision.yaml", "istio-values.yaml", "openshift-scc.yaml", *PODS} <= {
        path.name for path in FILES
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_parses_and_begins_by_saying_what_it_is_for(path):
    text = path.read_text()
    assert all(isinstance(document, dict) for document in yaml.safe_load_all(text))
    assert text.startswith("# ")
    assert re.search(r"^#   (kubectl|helm|istioctl|oc|docker) ", text, re.MULTILINE), "it shows no command"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_names_the_image_of_this_version(path):
    stale = {tag for tag in re.findall(r"netinit:(\d[\w.-]*)", path.read_text()) if tag != netinit.__version__}
    assert not stale, f"examples/{path.name} names netinit:{', '.join(stale)}; this is {netinit.__version__}"


@together("path", [*FILES, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda path: path.name)
def test_a_helm_command_never_upgrades_istio_by_the_way(path):
    commands = re.findall(r"\bhelm (?:install|upgrade) [^\n`]*", path.read_text())
    assert not [command for command in commands if "--version " not in command]


def test_the_image_and_the_default_configuration_name_this_version():
    assert set(re.findall(r"^ARG VERSION=(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)) == {netinit.__version__}
    values = yaml.safe_load((ROOT / "netinit" / "data" / "injection-values.yaml").read_text())
    assert values["global"]["proxy_init"]["image"] == f"netinit:{netinit.__version__}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_files_that_an_example_mentions_exist(path):
    mentioned = set(re.findall(r"\b[a-z]+(?:-[a-z]+)*\.yaml\b", path.read_text())) - {"envoy.yaml", "app.yaml"}
    assert mentioned <= {one.name for one in FILES}


# --- the pods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_the_init_container_runs_first_under_exactly_the_promised_security_context(name):
    init = init_of(the("Pod", name))
    assert init["name"] == "istio-init"
    assert init["image"] == f"netinit:{netinit.__version__}"
    assert init["securityContext"] == INIT_CONTAINER
    assert "restartPolicy" not in init, "it would be a sidecar that never ends"


@pytest.mark.parametrize("name", PODS)
def test_a_failure_of_the_init_container_is_seen_in_the_pods_status(name):
    init = init_of(the("Pod", name))
    assert init["terminationMessagePath"] == "/dev/termination-log"
    assert init["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("name", PODS)
def test_every_container_asks_for_resources_and_has_a_limit_of_memory(name):
    for container in containers(the("Pod", name)):
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys(), container["name"]
        assert "memory" in resources["limits"], container["name"]


@pytest.mark.parametrize("name", PODS)
def test_the_arguments_are_options_of_which_lint_has_nothing_to_say(name):
    options = options_of(init_of(the("Pod", name)))
    assert (options.outbound_port, options.inbound_port, options.proxy_uids) == (15001, 15006, (1337,))
    assert options.dual_stack
    found = lint(settled(options))
    assert not found, "\n".join(map(str, found))


@pytest.mark.parametrize("name", PODS)
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (["--to", "203.0.113.7:443", "--uid", "101"], "captured: goes to the proxy on 15001"),
        (["--to", "[2001:db8::7]:443", "--uid", "101"], "captured: goes to the proxy on 15001"),
        (["--to", "203.0.113.7:443", "--uid", "1337"], "direct"),
        (["--from", "203.0.113.7", "--to-port", "8080"], "captured: goes to the proxy on 15006"),
        (["--from", "203.0.113.7", "--to-port", "15021"], "direct"),
    ],
)
def test_explain_tells_of_the_pod_what_its_comments_promise(name, question, answer):
    assert program("explain", "--pod", str(FOLDER / name), *question).startswith(answer)


@pytest.mark.parametrize("name", PODS)
def test_lint_reads_the_pod_and_finds_nothing(name):
    assert program("lint", "--strict", "--pod", str(FOLDER / name)) == "no problems found in 1 pod\n"
    facts = read_pods([(name, (FOLDER / name).read_text())])[0]
    assert any("init container istio-init" in note for note in facts.notes)


@pytest.mark.parametrize("name", PODS)
def test_nothing_but_the_init_containers_capabilities_offends_baseline(name):
    assert offences(the("Pod", name), "baseline") == {
        ("istio-init", "must not add NET_ADMIN"),
        ("istio-init", "must not add NET_RAW"),
    }


@pytest.mark.parametrize("name", PODS)
def test_nothing_but_the_init_container_offends_restricted(name):
    found = offences(the("Pod", name), "restricted")
    assert {reason for container, reason in found if container == "istio-init"} == {
        "must not add NET_ADMIN",
        "must not add NET_RAW",
        "runAsNonRoot != true",
        "runAsUser=0",
    }
    assert {container for container, _ in found} == {"istio-init"}


def test_the_namespace_enforces_the_only_level_that_admits_the_pod():
    labels = the("Namespace", "pod.yaml")["metadata"]["labels"]
    levels = {mode: labels[f"pod-security.kubernetes.io/{mode}"] for mode in ("enforce", "warn", "audit")}
    assert levels == {"enforce": "privileged", "warn": "baseline", "audit": "restricted"}


@pytest.mark.parametrize("name", PODS)
def test_envoy_alone_runs_as_the_user_who_is_not_captured(name):
    pod = the("Pod", name)
    users = {one["name"]: one["securityContext"]["runAsUser"] for one in containers(pod)}
    assert users == {"istio-init": 0, "web": 101, "envoy": 1337}


@pytest.mark.parametrize("name", PODS)
def test_what_is_mounted_exists(name):
    pod = the("Pod", name)
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    mounted = {mount["name"] for one in containers(pod) for mount in one.get("volumeMounts", ())}
    assert mounted == volumes.keys()
    config_map = the("ConfigMap", "pod.yaml")["metadata"]
    assert volumes["envoy"]["configMap"]["name"] == config_map["name"]
    assert config_map["namespace"] == pod["metadata"]["namespace"] == the("Namespace", "pod.yaml")["metadata"]["name"]


def test_envoy_listens_where_the_rules_send_connections_and_answers_probes_where_they_send_none():
    bootstrap = yaml.safe_load(the("ConfigMap", "pod.yaml")["data"]["envoy.yaml"])
    listeners = {
        one["name"]: one["address"]["socket_address"]["port_value"]
        for one in bootstrap["static_resources"]["listeners"]
    }
    pod = the("Pod", "pod.yaml")
    options = options_of(init_of(pod))
    assert listeners == {"outbound": options.outbound_port, "inbound": options.inbound_port, "health": 15021}
    assert options_of(init_of(pod)).exclude_inbound_ports == (15021,)
    assert named(pod, "envoy")["ports"] == [{"name": "health", "containerPort": 15021}]


def test_the_native_sidecar_differs_in_where_envoy_stands_alone():
    plain, native = the("Pod", "pod.yaml"), the("Pod", "native-sidecar.yaml")
    envoy = named(native, "envoy")
    assert [one["name"] for one in native["spec"]["initContainers"]] == ["istio-init", "envoy"]
    assert envoy.pop("restartPolicy") == "Always"
    assert envoy.pop("startupProbe")["httpGet"] == envoy["readinessProbe"]["httpGet"]
    assert envoy == named(plain, "envoy")
    assert named(native, "web") == named(plain, "web")
    assert options_of(init_of(native)) == options_of(init_of(plain))
    for part in ("securityContext", "volumes", "automountServiceAccountToken"):
        assert native["spec"][part] == plain["spec"][part], part


# --- OpenShift ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PODS)
def test_the_constraints_for_openshift_admit_the_pod_and_allow_nothing_beyond_it(name):
    rules = the("SecurityContextConstraints", "openshift-scc.yaml")
    pod = the("Pod", name)
    added = {
        one for container in containers(pod) for one in container["securityContext"]["capabilities"].get("add", ())
    }
    assert added == set(rules["allowedCapabilities"])
    assert rules["runAsUser"] == {"type": "RunAsAny"}, "0, 101 and 1337 are outside of a namespace's range"
    assert {kind for volume in pod["spec"]["volumes"] for kind in volume if kind != "name"} <= set(rules["volumes"])
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert rules["seccompProfiles"] == ["runtime/default"]
    for container in containers(pod):
        context = container["securityContext"]
        assert set(rules["requiredDropCapabilities"]) <= set(context["capabilities"]["drop"]), container["name"]
        assert context["allowPrivilegeEscalation"] is rules["allowPrivilegeEscalation"] is False, container["name"]
    assert not any(rules[field] for field in rules if field.startswith("allow") and field != "allowedCapabilities")


def test_the_pods_service_account_may_use_the_constraints():
    rules = the("SecurityContextConstraints", "openshift-scc.yaml")
    role, binding = the("ClusterRole", "openshift-scc.yaml"), the("RoleBinding", "openshift-scc.yaml")
    assert role["rules"] == [
        {
            "apiGroups": ["security.openshift.io"],
            "resources": ["securitycontextconstraints"],
            "resourceNames": [rules["metadata"]["name"]],
            "verbs": ["use"],
        }
    ]
    assert (binding["roleRef"]["kind"], binding["roleRef"]["name"]) == ("ClusterRole", role["metadata"]["name"])
    pod = the("Pod", "pod.yaml")
    (subject,) = binding["subjects"]
    assert subject["kind"] == "ServiceAccount"
    assert subject["name"] == pod["spec"].get("serviceAccountName", "default")
    assert subject["namespace"] == binding["metadata"]["namespace"] == pod["metadata"]["namespace"]
