"""`netinit explain`, `lint` and `draw` as command lines: what is refused, what a pod's manifest says."""

from __future__ import annotations

import json

import pytest

POD = """
apiVersion: v1
kind: Pod
metadata:
  name: shop
  annotations:
    traffic.sidecar.istio.io/excludeOutboundIPRanges: 10.0.0.0/8
    traffic.sidecar.istio.io/includeInboundPorts: "80"
spec:
  initContainers:
  - name: istio-init
    args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, REDIRECT, -i, "*", -x, 10.0.0.0/8, -b, "80"]
  containers:
  - name: app
status:
  podIP: 10.44.0.9
  podIPs: [{ip: 10.44.0.9}]
"""


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("explain", "--to-port: the port is missing"),
        ("explain --to 1.2.3.4", "--to-port: the port is missing"),
        ("explain --to 1.2.3.4:0", "--to: '1.2.3.4:0' is not a port"),
        ("explain --to nobody:80", "--to: 'nobody:80' is not an IP address"),
        ("explain --to [::1:80", "--to: '[::1:80' is not an endpoint"),
        ("explain --to-port 80 outbound", "--to: the destination is missing"),
        ("explain --to 1.2.3.4:80 --from ::1", "--from: '::1' is of another address family"),
        ("explain --to 1.2.3.4:80 --uid nobody-at-all", "--uid: 'nobody-at-all' is not a user"),
        ("explain --to 1.2.3.4:80 --pod /no/such/file", "--pod: '/no/such/file' cannot be read"),
        ("explain --to 1.2.3.4:80 --pod x --pid 1", "--pod: live rules are asked for"),
        ("explain sideways --to 1.2.3.4:80", "'sideways' is not one of"),
        ("explain --from 9.9.9.9 --to-port 80 --interface a/b", "--interface: 'a/b' is not an interface name"),
        ("draw --to [::1]:80 --family ipv4", "--family: the connection in question is IPv6"),
        ("draw --format gif", "'gif' is not one of"),
        ("lint -b 0", "-b: '0' is not a port"),
    ],
)  # fmt: skip
def test_a_question_that_cannot_be_answered_says_what_is_missing(run, line, complaint):
    done = run(f"netinit {line}")
    assert done.code == 2
    assert any(complaint in error for error in done.errors), done.err


def test_a_pod_s_own_options_answer_and_its_annotations_are_named(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(POD)
    done = run(f"netinit explain --to 10.1.2.3:443 --pod {file}")
    assert done.out.splitlines()[0] == (
        "direct: goes out to 10.1.2.3:443 through eth0, because these networks are not captured "
        "(annotation traffic.sidecar.istio.io/excludeOutboundIPRanges)"
    )
    told = json.loads(run(f"netinit explain --from 9.9.9.9 --to-port 80 --pod {file} --json").out)
    assert (told["verdict"], told["original_destination"]) == ("captured", "10.44.0.9:80")
    assert told["path"][-1]["origin"] == "--inbound-capture-port"
    assert "annotation traffic.sidecar.istio.io/includeInboundPorts" in [step["origin"] for step in told["path"]]


def test_a_pod_without_an_init_container_is_read_as_the_cni_plugin_reads_it(run, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text(POD.replace("istio-init", "migrate").replace("istio-iptables", "sh"))
    done = run(f"netinit explain --from 9.9.9.9 --to-port 81 --pod {file}")
    assert done.out.startswith("direct: arrives at port 81 as it is")
    assert "no init container of a mesh" in done.err
    assert run(f"netinit explain --from 9.9.9.9 --to-port 80 --pod {file}").out.startswith("captured")


def test_a_deployment_in_a_list_as_json_will_do(run, tmp_path):
    template = {"spec": {"initContainers": [{"name": "istio-init", "args": ["-i", "*"]}]}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {"template": template},
    }
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [deployment]}))
    assert run(f"netinit explain --to 1.2.3.4:80 --pod {file}").out.startswith("captured")
    file.write_text("kind: ConfigMap")
    refused = run(f"netinit explain --to 1.2.3.4:80 --pod {file}")
    assert (refused.code, "holds no pod" in refused.err) == (1, True)


def test_lint_ends_with_1_for_errors_and_with_0_for_warnings_unless_strict(run):
    assert run("netinit lint -i * -b *").out == "nothing found\n"
    assert run("netinit lint -b 80 -d 81").code == 0
    assert run("netinit lint -b 80 -d 81 --strict").code == 1
    done = run("netinit lint -b 15006 --json")
    assert done.code == 1
    assert [set(one) for one in json.loads(done.out)] == [{"severity", "kind", "option", "message"}]


def test_draw_puts_the_sentence_above_the_picture(run):
    done = run("netinit draw -i * --to 1.2.3.4:80 --table nat")
    assert done.code == 0
    assert done.out.splitlines()[1].startswith("captured: goes to the proxy on 15001")
