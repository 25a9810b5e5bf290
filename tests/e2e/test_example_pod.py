"""The example pod comes true: the image under its security context, its Envoy with its file, connections in both directions."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest
import yaml

from laboratory import Listener
from netinit.base.errors import LabError
from netinit.inject.deciding.containers import find

pytestmark = pytest.mark.netns

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE = 20.0
ENVOY = 1337
OF_THE_IMAGE = 65532


def documents():
    return {one["kind"]: one for one in yaml.safe_load_all((EXAMPLES / "pod.yaml").read_text())}


def get(url):
    with urllib.request.urlopen(url, timeout=1) as answer:
        return answer.read().decode().strip()


def wait_for(pod, process):
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return pod.call(get, "http://127.0.0.1:15021/healthz/ready")
        except LabError:  # nobody listens yet, or the answer is 503
            if process.poll() is not None or time.monotonic() > end:
                process.kill()
                pytest.fail(f"Envoy is not ready:\n{process.communicate()[1][-2000:]}")
            time.sleep(0.05)


@pytest.fixture
def envoy(envoy_program, pod):
    """Envoy in the pod as the example starts it, ready."""
    text = documents()["ConfigMap"]["data"]["envoy.yaml"]
    container = find(documents()["Pod"]["spec"]["containers"], "envoy")
    said = ["--config-path", "/etc/envoy/envoy.yaml", "--disable-hot-restart"]
    assert container["args"] == said
    arguments = ["--config-yaml", text, "--disable-hot-restart", "--log-level", "warning"]
    context = container["securityContext"]
    process = pod.popen(
        [envoy_program, *arguments], uid=context["runAsUser"], gid=context["runAsGroup"], env={}
    )
    try:
        wait_for(pod, process)
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_connections_of_the_example_pod_go_through_its_envoy_and_arrive(envoy, image, pod):
    app = find(documents()["Pod"]["spec"]["containers"], "web")
    uid, port = app["securityContext"]["runAsUser"], app["ports"][0]["containerPort"]
    pod.serve("app", [Listener(port, family) for family in (4, 6)], uid=uid, gid=uid)
    pod.client.serve("outside", [Listener(80, family) for family in (4, 6)])
    done = start_in_image(image, pod, example_init())
    assert done.returncode == 0, done.stderr

    for address in (pod.address, pod.address6):
        assert pod.client.connect(address, port).server == "app", address
    for address in ("10.77.0.1", "fd77::1"):
        assert pod.connect(address, 80, uid=uid, gid=uid).server == "outside", address
        assert pod.connect(address, 80, uid=ENVOY, gid=ENVOY).server == "outside", address
    assert pod.client.call(get, f"http://{pod.address}:15021/healthz/ready") == "LIVE", "the kubelet's probe"
    stats = pod.call(get, "http://127.0.0.1:15000/stats?filter=^tcp.*downstream_cx_total")
    counted = dict(line.split(": ") for line in stats.splitlines())
    assert counted == {"tcp.inbound.downstream_cx_total": "2", "tcp.outbound.downstream_cx_total": "2"}


def start_in_image(image, pod, container):
    """The init container as a kubelet has it started: the image with these arguments, confined as it says."""
    context = container.get("securityContext", {})
    ids = context.get("runAsUser", OF_THE_IMAGE), context.get("runAsGroup", OF_THE_IMAGE)
    return image.run(
        pod.pid,
        container["args"],
        user=f"{ids[0]}:{ids[1]}",
        capabilities=context["capabilities"].get("add", ()),
        escalation=context.get("allowPrivilegeEscalation", True),
    )


def example_init():
    return documents()["Pod"]["spec"]["initContainers"][0]


@pytest.mark.parametrize(
    "other",
    [{}, {"runAsUser": 65532, "runAsGroup": 65532, "runAsNonRoot": True}, {"capabilities": {"add": ["NET_ADMIN"]}}],
    ids=["as it stands", "as another user", "without NET_RAW"],
)
def test_the_image_works_under_the_security_contexts_that_the_example_names(image, pod, other):
    container = example_init()
    container["securityContext"] |= other
    done = start_in_image(image, pod, container)
    assert done.returncode == 0, done.stderr
    assert "programmed by" in done.stderr


def test_the_image_proves_the_rules_without_any_privilege(image, pod):
    """As istio-validation, which the injector makes where a CNI plugin programs the rules."""
    rules = example_init()
    assert start_in_image(image, pod, rules).returncode == 0, "in the place of the CNI plugin"
    powerless = {
        "runAsUser": ENVOY,
        "runAsGroup": ENVOY,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    arguments = [*rules["args"], "--run-validation", "--skip-rule-apply"]
    done = start_in_image(image, pod, {"args": arguments, "securityContext": powerless})
    assert done.returncode == 0, done.stderr
    assert "captured on port 15006" in done.stderr


def test_the_image_works_as_the_classic_injector_starts_it(image, pod):
    """Its template names a capability and no user, so the image's own counts."""
    arguments = ["-p", "15001", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "80, ", "-d", ""]
    done = start_in_image(image, pod, {"args": arguments, "securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}})
    assert done.returncode == 0, done.stderr
