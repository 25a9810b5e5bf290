"""`netinit webhook compare`: two servers of ours with different configurations, and one beside the injector in process."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

import pytest

from netinit.base.errors import InjectionError, ParseError
from netinit.inject.adding.settings import proxy_ids
from netinit.installation.comparison import (
    ANSWER,
    DOCUMENTED,
    PodComparison,
    ReviewOutcome,
    find_differences,
    make_reviews,
    read_outcome,
)
from schemas import check_schema
from webhook_server import CONFIG, Server, make_pod, make_review

ROOT = Path(__file__).parents[3]
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "store", "namespace": "shop"},
    "spec": {"template": {"metadata": {"labels": {"app": "store"}}, "spec": {"containers": [{"name": "till", "image": "till:1"}]}}},
}
LATER = {
    **CONFIG,
    "templates": {"sidecar": CONFIG["templates"]["sidecar"] + "  - {name: helper, image: 'helper:{{ .DeploymentMeta.Name }}'}\n"},
}


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    with (
        Server(tmp_path_factory.mktemp("first")) as first,
        Server(tmp_path_factory.mktemp("second"), config=LATER, values='{"release": "second"}') as second,
    ):
        yield first, second


@pytest.fixture
def pods(tmp_path):
    folder = tmp_path / "pods"
    folder.mkdir()
    (folder / "review.json").write_text(json.dumps(make_review(make_pod())))
    (folder / "workloads.yaml").write_text(f"{json.dumps(DEPLOYMENT)}\n---\n{json.dumps(make_pod('skipped', hostNetwork=True))}\n")
    return folder


def sides(*servers):
    return [word for one in servers for word in ("--url", f"https://127.0.0.1:{one.port}/inject", "--ca", str(one.folder / "ca.crt"))]


def compare(run, pods, *words):
    done = run(["netinit", "webhook", "compare", "-f", str(pods), *words, "--server-name", "localhost", "--json"])
    assert not done.err, done.err
    tree = json.loads(done.out)
    check_schema(tree, "compare")
    return done.code, tree


def test_a_server_and_itself_are_equal(run, servers, pods):
    code, tree = compare(run, pods, *sides(servers[0], servers[0]))
    assert (code, tree["pods"], tree["different"], tree["groups"]) == (0, 3, 0, [])


def test_two_servers_differ_where_their_configurations_do(run, servers, pods):
    code, tree = compare(run, pods, *sides(*servers))
    assert (code, tree["pods"], tree["different"], tree["undocumented"]) == (3, 3, 2, 2)
    groups = {group["path"]: group for group in tree["groups"]}
    status = "metadata.annotations[sidecar.istio.io/status].containers"
    assert list(groups) == ["metadata.annotations.release", status, "spec.containers[helper]"]
    assert groups[status]["examples"] == [{"subject": "Pod shop/web", "left": ["istio-proxy"], "right": ["istio-proxy", "helper"]}]
    assert groups["metadata.annotations.release"]["pods"] == 2
    assert groups["metadata.annotations.release"]["examples"] == [{"subject": "Pod shop/web", "left": "first", "right": "second"}]
    images = [(one["subject"], one["right"]["image"]) for one in groups["spec.containers[helper]"]["examples"]]
    assert images == [("Pod shop/web", "helper:web"), ("Deployment shop/store", "helper:store")]  # the Deployment, not its ReplicaSet
    assert {one["left"] for one in groups["spec.containers[helper]"]["examples"]} == {None}


def test_a_server_and_this_netinit_in_process(run, servers, pods):
    own = servers[1]
    flags = ["--injectConfigFile", str(own.config / "config"), "--valuesFile", str(own.config / "values")]
    assert compare(run, pods, *sides(own), *flags)[0] == 0
    code, tree = compare(run, pods, *sides(servers[0]), *flags)
    assert (code, tree["right"], tree["different"]) == (3, "this netinit", 2)


def test_a_workload_without_a_namespace_is_created_in_the_one_that_kubectl_would_take(run, servers, tmp_path):
    file = tmp_path / "workload.json"
    file.write_text(json.dumps({**DEPLOYMENT, "metadata": {"name": "store"}}))
    for words, namespace in (([], "default"), (["--namespace", "shop"], "shop")):
        _, tree = compare(run, file, *sides(*servers), *words)
        assert {one["subject"] for group in tree["groups"] for one in group["examples"]} == {f"Deployment {namespace}/store"}


def test_people_get_the_groups_and_a_sum(run, servers, pods):
    done = run(["netinit", "webhook", "compare", "-f", str(pods), *sides(*servers), "--server-name", "localhost"])
    assert done.code == 3
    assert "metadata.annotations.release: 2 of 3 pods\n  Pod shop/web\n" in done.out
    assert f"    https://127.0.0.1:{servers[0].port}/inject: 'first'\n" in done.out
    assert done.out.endswith("3 pods: 1 equal, 2 differ, 0 differ as documented\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--url: give the URL of one webhook, to compare it with this netinit, or of two"),
        (["--url", "http://x/inject"], "--url: 'http://x/inject' must begin with https://, as webhooks are served"),
        (["--url", "https://x", "--ca", "a", "--ca", "b"], "--ca: is given 2 times for 1 --url; give one for each, or one for both"),
        (["--url", "https://x", "--namespace-labels", "a=b"], "--namespace-labels: belongs to check-inject"),
    ],
)
def test_wrong_options(run, pods, words, message):
    done = run(["netinit", "webhook", "compare", "-f", str(pods), *words])
    assert done.code == 2
    assert message in done.err


def test_a_certificate_by_another_name_is_refused(run, servers, pods):
    done = run(["netinit", "webhook", "compare", "-f", str(pods), *sides(servers[0])])  # asked by its address
    assert done.code == 1
    assert "cannot be reached" in done.err
    assert "--server-name" in done.err


def test_without_pods_there_is_nothing_to_compare(run, servers, tmp_path):
    (tmp_path / "x.yaml").write_text("kind: Service\napiVersion: v1\n")
    done = run(["netinit", "webhook", "compare", "-f", str(tmp_path / "x.yaml"), *sides(servers[0])])
    assert done.code == 1
    assert "there are no pods" in done.err


# ---- the pure part


def one_review(pod):
    (review,) = make_reviews(pod, "shop")
    return review


def groups(pod, left, right):
    compared = PodComparison()
    compared.add(one_review(pod), ReviewOutcome(pod=left), ReviewOutcome(pod=right))
    return {group.path: (group.documented.row if group.documented else "") for group in compared.groups()}


def with_containers(pod, *containers, **spec):
    return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], *containers], **spec}}


def test_zeros_quantities_and_json_in_texts_are_compared_as_they_are_read():
    pod = make_pod()
    left = with_containers(pod, {"name": "p", "volumeMounts": [{"name": "a", "mountPath": "/a", "readOnly": False}],
                                 "resources": {"limits": {"cpu": "2000m"}}})  # fmt: skip
    right = with_containers(pod, {"name": "p", "volumeMounts": [{"name": "a", "mountPath": "/a"}], "resources": {"limits": {"cpu": 2}}})
    left["metadata"] = {**pod["metadata"], "annotations": {"status": '{"a":1,"b":[2]}'}}
    right["metadata"] = {**pod["metadata"], "annotations": {"status": '{ "b": [2], "a": 1 }'}}
    assert groups(pod, left, right) == {}
    right["metadata"]["annotations"]["status"] = '{"a":1,"b":[3]}'
    assert groups(pod, left, right) == {"metadata.annotations.status.b": ""}
    left["spec"]["containers"][1]["securityContext"] = {"privileged": False}  # a pointer: false is not nothing
    assert set(groups(pod, left, right)) == {"metadata.annotations.status.b", "spec.containers[p].securityContext"}


def test_the_order_of_containers_and_what_became_of_the_pods_own_counts():
    pod = make_pod()
    left, right = with_containers(pod, {"name": "p"}), with_containers(pod, {"name": "p"})
    right["spec"]["containers"].reverse()
    assert groups(pod, left, right) == {"spec.containers (order)": ""}
    right["spec"]["containers"] = [{"name": "app", "image": "other"}, {"name": "p"}]
    assert groups(pod, left, right) == {"spec.containers[*].image": ""}


def test_a_refusal_on_one_side_and_no_answer_are_differences():
    review = one_review(make_pod())
    compared = PodComparison()
    compared.add(review, ReviewOutcome(refusal="a"), ReviewOutcome(refusal="b"))
    assert (compared.pods, compared.different) == (1, 0)
    compared.add(review, ReviewOutcome(refusal="a"), ReviewOutcome(pod=review.pod))
    compared.add(review, ReviewOutcome(failure="no answer"), ReviewOutcome(failure="no answer"))
    (group,) = compared.groups()
    assert (group.path, group.pods) == (ANSWER, 2)
    assert [(one.left, one.right) for _, one in group.examples] == [("refused: a", "allowed"), ("no answer", "no answer")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"no", "not JSON"),
        (b"[]", "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "response": {"uid": "other", "allowed": true}}', "not an AdmissionReview"),
        (b'{"kind": "AdmissionReview", "response": {"uid": "c0ffee", "allowed": true, "patch": "W10="}}', "patchType"),
        (b'{"kind": "AdmissionReview", "response": {"uid": "c0ffee", "allowed": true, "patch": "!", "patchType": "JSONPatch"}}', "patch"),
        (
            b'{"kind": "AdmissionReview", "response": {"uid": "c0ffee", "allowed": true, "patchType": "JSONPatch", "patch": "%s"}}'
            % base64.b64encode(b'[{"op": "remove", "path": "/nowhere"}]'),
            "no such place",
        ),
    ],
)
def test_what_is_no_answer_is_said(body, message):
    with pytest.raises(ParseError, match=message):
        read_outcome(one_review(make_review(make_pod())), body)


@pytest.mark.parametrize("levels", [300, 100_000])
def test_an_answer_that_is_nested_too_deeply_is_no_pod(levels):
    deep = '{"a":' * levels + "1" + "}" * levels
    patch = base64.b64encode(f'[{{"op": "add", "path": "/spec/deep", "value": {deep}}}]'.encode()).decode()
    response = {"uid": "c0ffee", "allowed": True, "patchType": "JSONPatch", "patch": patch}
    with pytest.raises(ParseError, match="patch"):
        read_outcome(one_review(make_review(make_pod())), json.dumps({"kind": "AdmissionReview", "response": response}).encode())
    texts = [{**make_pod(annotations={"deep": text})} for text in (deep, deep.replace("1}", "2}"))]
    assert groups(make_pod(), *texts) == {"metadata.annotations.deep": ""}


def test_reviews_are_those_that_the_api_server_sends():
    recorded = one_review(make_review(make_pod(), dryRun=False))
    assert recorded.tree["request"]["dryRun"] is True
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "bill", "namespace": "shop"},
            "spec": {"jobTemplate": {"spec": {"template": DEPLOYMENT["spec"]["template"]}}}}  # fmt: skip
    bare = {**make_pod(), "status": {"phase": "Running"}}
    bare["spec"]["nodeName"] = "n1"
    many = list(make_reviews({"kind": "List", "apiVersion": "v1", "items": [DEPLOYMENT, cron, bare, {"kind": "Service", "apiVersion": "v1"}]}, "x"))
    assert [review.title for review in many] == ["Deployment shop/store", "CronJob shop/bill", "Pod shop/web"]
    assert [review.pod["metadata"].get("generateName") for review in many] == ["store-5c6f7d8b9-", "bill-28000000-", None]
    assert many[0].pod["metadata"]["labels"] == {"app": "store", "pod-template-hash": "5c6f7d8b9"}
    assert "nodeName" not in many[2].pod["spec"]
    assert "status" not in many[2].pod
    assert len({review.tree["request"]["uid"] for review in many}) == 3


def test_a_documented_difference_is_marked():
    pod = make_pod(annotations={"sidecar.istio.io/nativeSidecar": "yes"})
    assert groups(pod, with_containers(pod, {"name": "istio-proxy"}), pod) == {"spec.containers[istio-proxy]": '`sidecar.istio.io/nativeSidecar: "yes"`'}
    assert groups(make_pod(), with_containers(make_pod(), {"name": "istio-proxy"}), make_pod()) == {"spec.containers[istio-proxy]": ""}
    probed = [with_containers(make_pod(), containers=[{"name": "app", "image": "a", "livenessProbe": {"httpGet": {"port": port}}}]) for port in ("nowhere", 15020)]
    assert groups(probed[0], *probed) == {"spec.containers[*].livenessProbe.httpGet.port": "a probe that names a port no container declares"}
    assert groups(probed[1], *probed) == {"spec.containers[*].livenessProbe.httpGet.port": ""}
    named = with_containers(probed[0], containers=[{**probed[0]["spec"]["containers"][0], "ports": [{"name": "nowhere", "containerPort": 80}]}])
    assert groups(named, *probed) == {"spec.containers[*].livenessProbe.httpGet.port": ""}, "the port is declared"
    init = [[{"name": "istio-init", "args": args}] for args in (["-p", "15001"], ["-p", "15001", "--inbound-tunnel-port", "0"])]
    sides = [with_containers(make_pod(), initContainers=containers) for containers in init]
    assert groups(make_pod(), *sides) == {"spec.initContainers[istio-init].args": "netinit's `sidecar`"}


def test_a_refused_range_of_openshift_and_the_user_of_overrides_are_documented_differences():
    compared = PodComparison()
    with pytest.raises(InjectionError) as caught:
        proxy_ids({"openshift.io/sa.scc.uid-range": "1000"})
    compared.add(one_review(make_pod()), ReviewOutcome(refusal=str(caught.value)), ReviewOutcome(pod=make_pod()))
    compared.add(one_review(make_pod()), ReviewOutcome(refusal="other"), ReviewOutcome(pod=make_pod()))
    assert {group.documented and group.documented.row[:22] for group in compared.groups()} == {"a range of OpenShift's", None}
    pod = make_pod(annotations={"proxy.istio.io/overrides": '{"containers": [{"name": "istio-proxy"}]}'})
    sides = [with_containers(pod, initContainers=[{"name": "istio-init", "args": ["-u", uid]}]) for uid in ("1337", "1400")]
    assert groups(pod, *sides) == {"spec.initContainers[istio-init].args": "overrides in the annotation"}
    assert groups(make_pod(), *sides) == {"spec.initContainers[istio-init].args": ""}


@pytest.mark.parametrize("one", DOCUMENTED, ids=lambda one: one.row)
def test_each_marked_difference_is_a_row_of_its_section(one):
    page = (ROOT / "docs/differences.md").read_text()
    headings = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)[1:]
    sections = {title.lower().replace(" ", "-"): text for title, text in zip(headings[::2], headings[1::2], strict=True)}
    rows = [line.split(" | ")[0].removeprefix("| ") for line in sections[one.section].splitlines()]
    assert any(one.row in row for row in rows)


def test_mounts_of_one_volume_are_told_apart_by_their_paths():
    pod = make_pod()
    one, both = ({**pod, "spec": {"containers": [{"name": "new", "volumeMounts": [{"name": "v", "mountPath": path} for path in paths]}]}} for paths in (["/a"], ["/a", "/b"]))
    (found,) = find_differences(pod, ReviewOutcome(one), ReviewOutcome(both))
    assert (found.path, found.left, found.right["mountPath"]) == ("spec.containers[new].volumeMounts[/b]", None, "/b")
