"""The examples for Istio: its own templates, rendered with the examples' values, start our image with Istio's arguments."""

from __future__ import annotations

import copy
import functools
import json
import re
import sys
from pathlib import Path

import pytest
import yaml

import netinit
from inject_data import CLASSIC, CURRENT, needs_data
from netinit.golang import goyaml
from netinit.inject import Settings, inject_pod, load_config
from netinit.inject.deciding.containers import find
from netinit.inject.deciding.init_container import options_of
from netinit.inject.deciding.usual_webhooks import current_webhooks, firing
from podsecurity import INIT_CONTAINER, offences

pytestmark = [needs_data, pytest.mark.usefixtures("templates_parsed_once")]

FOLDER = Path(__file__).parents[2] / "examples"
IMAGE = f"mesh/netinit:{netinit.__version__}"
POD = """
metadata:
  name: web
  labels: {app: web}
  annotations: %s
spec:
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
  - name: web
    image: "web:1"
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""


@functools.cache
def read_yaml(path):
    return yaml.safe_load(path.read_text())


def example(name):
    return copy.deepcopy(read_yaml(FOLDER / name))


def joined(base, over):
    """Values over others, as Helm joins them."""
    result = copy.deepcopy(base)
    for key, value in over.items():
        mapped = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = joined(result[key], value) if mapped else value
    return result


def installed(values):
    """The injector's ConfigMap that Istio's chart makes of these values over its defaults."""
    folder = CURRENT / "settings" / "default"
    values = joined(json.loads((folder / "values.json").read_text()), values)
    config = copy.deepcopy(read_yaml(folder / "config.yaml"))
    hook = values["sidecarInjectorWebhook"]
    config["templates"] |= hook["templates"]
    config["defaultTemplates"] = hook["defaultTemplates"] or config["defaultTemplates"]
    suffix = f"-{values['revision']}" if values["revision"] else ""
    return {
        "kind": "ConfigMap",
        "metadata": {"name": f"istio-sidecar-injector{suffix}"},
        "data": {"config": json.dumps(config), "values": json.dumps(values)},
    }


def injected(values, annotations=None, **settings):
    mesh = (CURRENT / "settings" / "default" / "mesh.yaml").read_text()
    pod = goyaml.load(POD % json.dumps(annotations or {}))
    return inject_pod(pod, load_config(installed(values), mesh=mesh), settings=Settings(**settings))


def init_of(pod, name="istio-init"):
    found = find(pod["spec"]["initContainers"], name)
    assert found, f"no {name} among {[one['name'] for one in pod['spec']['initContainers']]}"
    return found


# --- global.proxy_init.image -------------------------------------------------------------------------------------


def test_the_values_exchange_the_image_of_the_init_container_and_nothing_else():
    ours, theirs = injected(example("istio-values.yaml")), injected({})
    init = init_of(ours)
    assert init["image"] == IMAGE
    assert init["args"][:3] == ["istio-iptables", "-p", "15001"]
    init["image"] = init_of(theirs)["image"]
    assert ours == theirs


def test_istios_arguments_are_options_of_ours():
    options = options_of(init_of(injected(example("istio-values.yaml"))))
    assert (options.outbound_port, options.inbound_port, options.proxy_uids) == (15001, 15006, (1337,))
    assert options.exclude_inbound_ports == (15090, 15021, 15020)


def test_istioctl_and_helm_are_given_the_same_values():
    assert example("istio-operator.yaml")["spec"]["values"] == example("istio-values.yaml")


@pytest.mark.parametrize(
    ("reference", "image"),
    [
        ("mesh/netinit:0.2.0", "mesh/netinit:0.2.0"),
        ("hub.example/mesh/netinit:0.2.0", "hub.example/mesh/netinit:0.2.0"),
        ("mesh/netinit@sha256:0123abcd", "mesh/netinit@sha256:0123abcd"),
        ("netinit", "HUB/netinit:TAG"),
        ("netinit:0.2.0", "HUB/netinit:0.2.0:TAG"),
    ],
)
@pytest.mark.parametrize("with_cni", [False, True])
def test_a_reference_with_a_slash_is_taken_as_it_stands_and_any_other_gets_hub_and_tag(reference, image, with_cni):
    values = {"pilot": {"cni": {"enabled": with_cni}}}
    values["global"] = {"hub": "HUB", "tag": "TAG", "proxy_init": {"image": reference}}
    name = "istio-validation" if with_cni else "istio-init"
    assert init_of(injected(values), name)["image"] == image


@pytest.mark.parametrize(("variant", "tag"), [("distroless", "TAG-distroless"), ("", "TAG")])
def test_a_bare_name_gets_istios_variant_too(variant, tag):
    values = {"global": {"hub": "HUB", "tag": "TAG", "variant": variant, "proxy_init": {"image": "netinit"}}}
    assert init_of(injected(values))["image"] == f"HUB/netinit:{tag}"


@pytest.mark.parametrize(("annotated", "image"), [("my/proxy:1", "my/proxy:1"), ("proxyv3", f"registry.istio.io/testing/{IMAGE}:latest")])
def test_the_annotation_for_the_proxys_image_replaces_ours_unless_the_template_names_it(annotated, image):
    annotations = {"sidecar.istio.io/proxyImage": annotated}
    assert init_of(injected(example("istio-values.yaml"), annotations))["image"] == image
    assert init_of(injected(example("istio-template.yaml"), annotations))["image"] == IMAGE


# --- the template ------------------------------------------------------------------------------------------------


def test_the_template_gives_the_init_container_our_image_and_a_stricter_security_context():
    init = init_of(injected(example("istio-template.yaml")))
    assert init["image"] == IMAGE
    assert init["args"] == init_of(injected({}))["args"]
    assert init["terminationMessagePolicy"] == "FallbackToLogsOnError"
    assert init["resources"] == {
        "requests": {"cpu": "10m", "memory": "32Mi"},
        "limits": {"cpu": "1", "memory": "128Mi"},
    }
    capabilities = {"drop": ["ALL"], "add": ["NET_ADMIN"]}
    assert init["securityContext"] == {**INIT_CONTAINER, "capabilities": capabilities}


def test_the_trial_of_the_docs_changes_image_and_environment_of_the_init_container_alone():
    page = (FOLDER.parent / "docs" / "kubernetes.md").read_text()
    trial = yaml.safe_load(re.search(r"^```yaml\n(spec:.*?)^```", page, re.DOTALL | re.MULTILINE)[1])
    mesh = (CURRENT / "settings" / "default" / "mesh.yaml").read_text()
    given = goyaml.load(POD % "{}")
    given["spec"]["initContainers"] = trial["spec"]["template"]["spec"]["initContainers"]
    pod = inject_pod(given, load_config(installed({}), mesh=mesh), settings=Settings())
    init, theirs = init_of(pod), init_of(injected({}))
    assert {key: value for key, value in init.items() if key not in ("image", "env")} == {key: value for key, value in theirs.items() if key not in ("image", "env")}
    assert init["image"] == f"REGISTRY/{IMAGE}"
    assert options_of(init) == options_of(theirs).replace(istio_exact=True)


def test_the_template_touches_no_other_container():
    ours, theirs = (injected(values) for values in (example("istio-template.yaml"), {}))
    for pod in (ours, theirs):
        pod["spec"]["initContainers"] = [one for one in pod["spec"]["initContainers"] if one["name"] != "istio-init"]
    assert ours["spec"] == theirs["spec"]


@pytest.mark.parametrize("native", [False, True])
def test_the_template_makes_no_init_container_where_istio_makes_none(native):
    none = {"sidecar.istio.io/interceptionMode": "NONE"}
    for values in (example("istio-template.yaml"), joined(example("istio-template.yaml"), example("istio-cni.yaml"))):
        pod = injected(values, none, native_sidecars=native)
        names = [one["name"] for one in pod["spec"].get("initContainers", [])]
        assert names == (["istio-proxy"] if native else [])


def test_the_template_leaves_the_container_of_the_cni_plugins_pods_alone():
    pod = injected(joined(example("istio-template.yaml"), example("istio-cni.yaml")))
    assert [one["name"] for one in pod["spec"]["initContainers"]] == ["istio-validation", "istio-proxy"]
    assert "add" not in init_of(pod, "istio-validation")["securityContext"]["capabilities"]


def test_the_template_can_be_asked_for_by_annotation():
    values = example("istio-template.yaml")
    del values["sidecarInjectorWebhook"]["defaultTemplates"]
    asking = {"inject.istio.io/templates": "sidecar,netinit"}
    assert init_of(injected(values, asking))["image"] == IMAGE
    assert init_of(injected(values))["image"] != IMAGE


# --- CNI ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("native", [False, True])
def test_with_the_cni_plugin_the_injected_pod_fits_restricted(native):
    pod = injected(example("istio-cni.yaml"), native_sidecars=native)
    assert offences(pod, "restricted") == set()


def test_without_the_cni_plugin_it_does_not_fit_baseline():
    assert offences(injected(example("istio-values.yaml")), "baseline") == {
        ("istio-init", "must not add NET_ADMIN"),
        ("istio-init", "must not add NET_RAW"),
    }


def test_with_the_cni_plugin_our_image_proves_the_redirection_and_programs_nothing():
    container = init_of(injected(example("istio-cni.yaml")), "istio-validation")
    assert container["image"] == IMAGE
    assert container["securityContext"]["runAsUser"] == 1337
    options = options_of(container)
    assert (options.run_validation, options.skip_rule_apply) == (True, True)


@pytest.mark.netns
def test_istio_validation_needs_no_privilege_at_all(pod, readable):
    def start(container, *prefix):
        command = [*prefix, sys.executable, "-m", "netinit", *container["args"]]
        return pod.run(command, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})

    validation = init_of(injected(example("istio-cni.yaml")), "istio-validation")
    context = validation["securityContext"]
    ids = [f"--reuid={context['runAsUser']}", f"--regid={context['runAsGroup']}", "--clear-groups"]
    powerless = [*readable, "setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]

    refused = start(validation, *powerless)
    assert refused.returncode == 126, "nothing is programmed yet"
    assert "the rules do not capture what they must" in refused.stderr
    assert start(init_of(injected(example("istio-values.yaml")))).returncode == 0, "in the place of the CNI plugin"
    proved = start(validation, *powerless)
    assert proved.returncode == 0, proved.stderr
    assert "captured on port 15006" in proved.stderr


# --- revisions ---------------------------------------------------------------------------------------------------


def test_a_revision_has_an_injector_configuration_of_its_own_with_our_image():
    values = example("istio-revision.yaml")
    assert installed(values)["metadata"]["name"] == "istio-sidecar-injector-netinit"
    pod = injected(values, revision=values["revision"])
    assert init_of(pod)["image"] == IMAGE
    assert pod["metadata"]["annotations"]["istio.io/rev"] == "netinit"
    assert init_of(injected({}))["image"] != IMAGE, "pods of the other revision keep Istio's"


@pytest.mark.parametrize(
    ("labels", "fires"),
    [
        ({"istio.io/rev": "netinit"}, ["rev.namespace"]),
        ({"istio-injection": "enabled", "istio.io/rev": "netinit"}, []),
        ({"istio-injection": "enabled"}, []),
        ({}, []),
    ],
)
def test_a_namespace_is_the_revisions_when_it_has_its_label_and_not_istio_injection(labels, fires):
    webhooks = current_webhooks(example("istio-revision.yaml")["revision"])
    assert [webhook.short_name for webhook in firing(webhooks, labels, {"app": "web"})] == fires


# --- classic -----------------------------------------------------------------------------------------------------


def test_the_classic_template_starts_our_image_when_it_names_it():
    text = (CLASSIC / "istio-sidecar-injector.configmap.yaml").read_text()
    changed, count = re.subn(r'image: "?[^"\s]*proxy_init[^"\s]*"?', f"image: {IMAGE}", text)
    assert count == 1, "the ConfigMap names the init container's image once"
    pod = goyaml.load(POD % "{}")
    ours, theirs = (init_of(inject_pod(pod, load_config(config))) for config in (changed, text))
    assert ours["image"] == IMAGE
    assert ours["args"] == theirs["args"]
    options = options_of(ours)
    assert (options.outbound_port, options.proxy_uids, options.outbound_cidrs) == (15001, (1337,), "*")
