"""Streams of manifests: cut, recognised, changed and put together again."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from netinit.base.errors import InjectionError, ParseError
from netinit.base.tree import clone
from netinit.inject import apply_patch, json_patch, load_config
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.manifest_places import FilePlaces, ObjectPlace
from netinit.inject.deciding.manifests import StreamWriter, separate_objects, split, workloads
from netinit.inject.deciding.template_kinds import TemplateKind
from streams import inject_stream
from sweeps import choose, together

CONFIG = load_config({"templates": {"sidecar": "spec: {containers: [{name: istio-proxy, image: p}]}"}})
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"
STREAMS = [
    "",
    "a: 1",
    "---\na: 1\n---\nb: 2\n",
    "a: 1\n---\n",
    "# c\n--- # why\na: |\n  x\n  --- y\n---  \nz\n",
    "a: 1\r\n---\r\nb: 2\r\n",
    "--- {a: 1}\n--- b\n",
    "---",
    "---\n---\n---",
    "a: ----\nb: ---b\n",
    "# licence\n%YAML 1.1\n# more\n--- # x\na: 1\n",
    "%YAML 1.1\n---\na: 1\n...\n",
]


@together("text", STREAMS)
def test_the_parts_of_a_stream_make_the_stream(text):
    assert "".join(document.separator + document.text for document in split(text)) == text


@together("text", STREAMS)
def test_a_stream_without_workloads_comes_out_to_the_letter(text):
    assert inject_stream(text, CONFIG).text == text


@pytest.mark.parametrize("text", ["", "---", "---\n", "--- \r\n", "---\n\n  \n", "---  \n \r\n---"])
def test_a_blank_document_is_read_without_a_parser_as_the_parser_reads_it(text, monkeypatch):
    """Making one took three quarters of the time of a stream of 300,000 such documents."""
    documents = split(text)
    parsed = [yaml_texts.load_reporting(document.separator + document.text) for document in documents]
    monkeypatch.setattr(yaml_texts, "load_reporting", None)
    assert [document.parse() for document in documents] == parsed == [(None, ())] * len(documents)


@pytest.mark.parametrize(("text", "tree"), [("--- null", None), ("---\n# only a comment\n", None), ("--- a\n", "a"), ("---\n{}", {})])
def test_a_document_with_any_other_character_is_the_parsers(text, tree):
    assert [document.parse()[0] for document in split(text)] == [tree]


def test_a_line_that_begins_with_a_tab_is_refused_as_ever():
    with pytest.raises(ParseError):
        split("---\n\t\n")[0].parse()


def test_a_separator_inside_a_text_does_not_separate():
    assert [document.parse()[0] for document in split("a: |\n  x\n  ---\n  y\n---\nb: 1\n")] == [
        {"a": "x\n---\ny\n"},
        {"b": 1},
    ]


@pytest.mark.parametrize("head", ["---\n", "--- # first\n", "", "# comment\n", "a: 1\n---\n", "--- "])
def test_the_neighbours_of_a_changed_document_keep_their_letters(head):
    text = head + (
        json.dumps({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": []}}) + "\n" if head == "--- " else POD
    )
    result = inject_stream(text + "---\n# kept\nb:   2", CONFIG)
    assert result.changed == 1
    assert result.text.endswith("---\n# kept\nb:   2")
    assert result.text.startswith(head.rstrip(" "))
    assert inject_stream(result.text, CONFIG).text == result.text


def test_a_json_document_stays_json():
    text = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": []}})
    written = inject_stream(text.replace('"p"', '"é"'), CONFIG).text
    assert json.loads(written)["spec"]["containers"] == [{"name": "istio-proxy", "image": "p"}]
    assert written == json.dumps(json.loads(written), indent=2) + "\n"


def test_files_are_joined_by_separators_where_they_bring_none():
    written: list[str] = []
    joined = StreamWriter(written.append)
    for stream in ("a: 1", "b: 2\n", "---\nc: 3\n---\n", "d: 4", "", "\n"):
        joined.begin()
        for line in stream.splitlines(keepends=True):
            joined.write(line)
    assert "".join(written) == "a: 1\n---\nb: 2\n---\nc: 3\n---\nd: 4"


TEMPLATED = {"template": {"spec": {"containers": []}}}
OURS = [
    ("apps/v1", "Deployment"), ("apps/v1beta2", "Deployment"), ("extensions/v1beta1", "Deployment"),
    ("apps/v1", "DaemonSet"), ("extensions/v1beta1", "DaemonSet"), ("apps/v1", "StatefulSet"), ("apps/v1", "ReplicaSet"),
    ("v1", "ReplicationController"), ("batch/v1", "Job"), ("batch/v1", "CronJob"), ("batch/v2alpha1", "CronJob"), ("v1", "Pod"),
    ("v1", "DeploymentConfig"), ("apps.openshift.io/v1", "DeploymentConfig"), ("argoproj.io/v1alpha1", "Rollout"),
    ("serving.knative.dev/v1", "Service"), ("serving.knative.dev/v1", "Configuration"),
]  # fmt: skip
FOREIGN = [
    ("batch.volcano.sh/v1alpha1", "Job"), ("example.com/v1", "Pod"), ("v1", "Deployment"), ("example.com/v1", "Rollout"),
    ("v1", "Service"), ("v1", "ConfigMap"), (None, "Pods"), (5, "Deployment"),
]  # fmt: skip


def manifest(version, kind):
    spec = {"CronJob": {"jobTemplate": {"spec": TEMPLATED}}, "Pod": {"containers": []}}.get(kind, TEMPLATED)
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "n", "namespace": "ns"},
        "spec": clone(spec),
        "unknown": {"kept": 1},
    }


@together(("version", "kind"), OURS)
def test_these_kinds_are_injected_and_keep_unknown_fields(version, kind):
    tree = manifest(version, kind)
    (workload,) = workloads(tree)
    assert workload.title == f'{kind} "ns/n"'
    pod = workload.pod()
    pod["metadata"]["labels"] = {"l": "1"}
    pod["spec"]["containers"] = [{"name": "x"}]
    assert tree == manifest(version, kind), "the pod is a copy"
    workload.set_pod(pod)
    assert next(workloads(tree)).pod() == pod
    assert tree["unknown"] == {"kept": 1}


@pytest.mark.parametrize(("version", "kind"), FOREIGN)
def test_kinds_of_others_are_none_of_ours(version, kind):
    assert list(workloads(manifest(version, kind))) == []


def test_a_pod_templates_template_is_not_in_a_spec():
    (workload,) = workloads({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "n"}, "template": {"spec": {"containers": []}}})
    assert workload.pod()["spec"] == {"containers": []}


VOLCANO = {
    "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "train"},
    "spec": {"tasks": [{"name": "first", "template": clone(TEMPLATED["template"])}, {"name": "second", "template": clone(TEMPLATED["template"])}]},
}  # fmt: skip


@pytest.mark.parametrize("declared", ["Job.batch.volcano.sh=spec.tasks[].template", "Job=spec.tasks[].template"])
def test_a_kind_that_the_user_names_is_injected_at_each_of_its_templates(declared):
    result = yaml_texts.load(inject_stream(json.dumps(VOLCANO), CONFIG, kinds=(TemplateKind.parse(declared),)).text)
    assert [[one["name"] for one in task["template"]["spec"]["containers"]] for task in result["spec"]["tasks"]] == [["istio-proxy"]] * 2
    assert [task["name"] for task in result["spec"]["tasks"]] == ["first", "second"]
    titles = [one.title for one in workloads(VOLCANO, (TemplateKind.parse(declared),))]
    assert titles == ['Job "train", spec.tasks.0.template.spec', 'Job "train", spec.tasks.1.template.spec']


def test_a_kind_of_another_group_is_not_that_of_the_user():
    assert not [*workloads(VOLCANO, (TemplateKind.parse("Job.example.com=spec.tasks[].template"),))]


@pytest.mark.parametrize("text", [
    "", "Job", "Job=", "=spec", "job=spec.template", "Job=spec..template", "Job=spec.tasks[*].template", "Job=spec[0]", "Job=.spec",
    "Job.EXAMPLE=spec", "Job=spec\n", "Job=" + "a." * 20 + "a",
])  # fmt: skip
def test_a_kind_that_is_not_in_its_form_is_refused_with_the_form(text):
    with pytest.raises(ValueError, match="KIND=PATH"):
        TemplateKind.parse(text)


def test_a_list_that_is_none_has_no_template():
    kind = TemplateKind.parse("Job=spec.tasks[].template")
    for spec in ({}, {"tasks": None}, {"tasks": {}}, {"tasks": []}):
        assert not [*workloads({**VOLCANO, "spec": spec}, (kind,))]
    (broken,) = workloads({**VOLCANO, "spec": {"tasks": ["text"]}}, (kind,))
    assert broken.bare


def test_a_cron_jobs_metadata_is_that_of_its_job():
    tree = manifest("batch/v1", "CronJob")
    tree["spec"]["jobTemplate"]["metadata"] = {"annotations": {"a": "b"}}
    (workload,) = workloads(tree)
    assert workload.pod()["metadata"] == {"annotations": {"a": "b"}}


def test_lists_of_lists_are_injected_item_by_item():
    inner = {"kind": "DeploymentList", "apiVersion": "apps/v1", "items": [manifest("apps/v1", "Deployment")]}
    outer = {"kind": "List", "apiVersion": "v1", "items": [{"kind": "Service"}, inner, None]}
    assert [workload.tree for workload in workloads(outer)] == inner["items"]
    result = json.loads(inject_stream(json.dumps(outer), CONFIG).text)
    assert result["items"][0] == {"kind": "Service"}
    assert result["items"][1]["items"][0]["spec"]["template"]["spec"]["containers"][0]["name"] == "istio-proxy"


def test_every_problem_is_told_with_its_document_and_object():
    bad = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {}\n  annotations: {{traffic.sidecar.istio.io/includeInboundPorts: '80,'}}\nspec: {{}}\n"
    text = "\n---\n".join(
        [
            bad.format("one"),
            POD,
            "a: [",
            bad.format("two"),
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: 5}}\n",
        ]
    )
    with pytest.raises(InjectionError) as caught:
        inject_stream(text, CONFIG)
    lines = str(caught.value).splitlines()
    assert [line.partition(" (")[0][:34] for line in lines] == [
        'document 1: Pod "one": invalid val', "document 3: line 16, column 1: a v", 'document 4: Pod "two": invalid val',
        'document 5: Deployment "d": spec.t',
    ]  # fmt: skip


def test_a_key_that_stands_twice_is_an_error_where_one_would_be_lost():
    twice = POD + "metadata: {name: q}\n"
    with pytest.raises(InjectionError, match=r"document 1: line 5.*'metadata' occurs twice.*remove one"):
        inject_stream(twice, CONFIG)
    harmless = "kind: ConfigMap\ndata: {a: 1, a: 2}\n"
    assert inject_stream(harmless, CONFIG).text == harmless


@pytest.mark.parametrize(
    ("pod", "notice"),
    [
        ("spec: {hostNetwork: true}", "has host networking enabled"),
        (
            "metadata: {name: p, annotations: {sidecar.istio.io/inject: 'false'}}\nspec: {}",
            "has sidecar injection disabled",
        ),
        (
            "metadata: {name: p, annotations: {sidecar.istio.io/inject: false}}\nspec: {}",
            "has sidecar injection disabled",
        ),
        ("metadata: {name: p, namespace: kube-system}\nspec: {}", "is in a system namespace"),
    ],
)
def test_skipped_pods_are_told_and_kept(pod, notice):
    text = f"apiVersion: v1\nkind: Pod\n{pod}\n"
    result = inject_stream(text, CONFIG)
    assert result.text == text
    assert notice in result.notices[0]
    assert result.notices[0].startswith("===> Skipping injection because Pod ")


def test_progress_is_reported_document_by_document():
    seen = []
    inject_stream("a: 1\n---\nb: 2\n", CONFIG, progress=lambda number, total: seen.append((number, total)))
    assert seen == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"a": 1}),
        ({"a": {"b/c": 1, "d~e": 2}}, {"a": {"b/c": 2}}),
        ({"l": [1, 2, 3]}, {"l": [3, 1]}),
        ({"l": [{"name": "a", "v": 1}, {"name": "b"}]}, {"l": [{"name": "c"}, {"name": "a", "v": 2}]}),
        ({"a": True}, {"a": 1}),
        ({"a": None}, {}),
        ({"l": ["a", "a", "b"]}, {"l": ["a"]}),
    ],
)
def test_a_patch_makes_the_second_object_of_the_first(before, after):
    result = apply_patch(before, json_patch(before, after))
    assert json.dumps(result, sort_keys=True) == json.dumps(after, sort_keys=True)


def test_a_patch_comes_in_the_injectors_order():
    before = {"metadata": {"annotations": {}}, "spec": {"containers": [{"name": "c"}]}}
    after = {
        "metadata": {"annotations": {"a": "b"}},
        "spec": {
            "volumes": [{"name": "v"}],
            "containers": [{"name": "c"}, {"name": "p"}],
            "initContainers": [{"name": "i"}],
        },
    }
    assert json_patch(before, after) == [
        {"op": "add", "path": "/spec/initContainers", "value": [{"name": "i"}]},
        {"op": "add", "path": "/spec/containers/-", "value": {"name": "p"}},
        {"op": "add", "path": "/spec/volumes", "value": [{"name": "v"}]},
        {"op": "add", "path": "/metadata/annotations/a", "value": "b"},
    ]


def calls_for(count):
    """How many functions are called to inject a Deployment with so many variables."""
    variables = "".join(f"      - {{name: V_{number}, value: 'value {number}'}}\n" for number in range(count))
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n    - name: c\n      env:\n{variables}"
    calls = 0

    def count_call(_frame, event, _arg):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count_call)
    try:
        inject_stream(text, CONFIG)
    finally:
        sys.setprofile(None)
    return calls


def test_the_work_for_a_pod_grows_no_quicker_than_its_variables():
    calls_for(10)
    small, middle, large = (calls_for(count) for count in (500, 1000, 2000))
    assert large - middle <= 2.2 * (middle - small), (small, middle, large)


def peak_for(count, length, folder):
    """The most memory that the command takes for so many Deployments of a length in bytes, in MiB."""
    document = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: d{0}}}\nspec:\n  template:\n    spec: {{containers: [{{name: c, image: i}}]}}\n"
    (folder / "in.yaml").write_text("---\n".join(document.format(number) for number in range(count)))
    (folder / "config.yaml").write_text(f"policy: enabled\ntemplates:\n  sidecar: |\n    metadata:\n      annotations:\n        long: {'x' * length}\n")
    program = (
        "import re, sys; from netinit.cli import start; code = start.run(sys.argv, {}); "
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr); sys.exit(code)"  # ru_maxrss begins with the caller's
    )
    words = ["inject", "-f", str(folder / "in.yaml"), "--injectConfigFile", str(folder / "config.yaml")]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.count("long: ") == count
    return int(done.stderr.split()[-1]) / 1024


def test_memory_stays_where_it_is_however_many_documents_there_are(tmp_path):
    start, end, length = choose((300, 1_200, 50_000), (1_000, 10_000, 5_000))
    few, many = peak_for(start, length, tmp_path), peak_for(end, length, tmp_path)
    assert many - few < 10, f"{few:.0f} MiB for {start:,} documents, {many:.0f} MiB for {end:,}: the output alone has 45 MiB more"


@pytest.mark.parametrize("between", ["\n", "\r\n", "\n\n ", ""])
@pytest.mark.parametrize("indent", [None, 2])
def test_a_stream_of_json_objects_is_read_as_documents_on_their_lines(between, indent):
    """What `jq -c .items[]` prints, and `kubectl get -o json` of one object after the other."""
    given = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [{"name": "}{"}]}} for name in "abc"]
    text = between.join(json.dumps(one, indent=indent) for one in given) + between
    separated = separate_objects(text)
    assert yaml_texts.load_all(separated) == given
    assert [document.parse()[0] for document in split(separated) if document.text.strip()] == given
    if between:
        assert separated.rstrip().count("\n") == text.rstrip().count("\n")
    done = inject_stream(separated, CONFIG).text
    assert [[one["name"] for one in tree["spec"]["containers"]] for tree in yaml_texts.load_all(done)] == [["}{", "istio-proxy"]] * 3


def test_objects_of_a_json_stream_are_written_back_as_kubectl_reads_them():
    """kubectl refuses an object on the line of a separator: "invalid Yaml document separator"."""
    given = [f'{{"kind": "ConfigMap", "metadata": {{"name": "{name}"}}}}' for name in "abc"]
    assert inject_stream(separate_objects("\n".join(given)), CONFIG).text == "---\n" + "\n---\n".join(given) + "\n"


@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_places_in_json_streams_are_those_of_the_text(between):
    pod = '{"kind": "Pod", "metadata": {"name": "web", "name": "web"}, "spec": {"containers": [{"name": "a"}]}}'
    text = separate_objects(f"{pod}{between}{pod}")
    errors = [error for document in split(text) for error in document.parse()[1]]
    places = [ObjectPlace(FilePlaces(text), number, ()).find(("spec", "containers", 0, "name")) for number in (0, 1)]
    (alone,), last = split(pod)[0].parse()[1], 1 + between.count("\n")
    assert [(one.line, one.column) for one in errors] == [(1, alone.column), (last, alone.column)]
    assert places == [(1, pod.index('"name": "a"') + 1), (last, pod.index('"name": "a"') + 1)]


@pytest.mark.parametrize("text", ['{"a": 1}', '{"a": 1}\n', "", "{a: 1}\n{b: 2}", '{"a": 1}\n[2]', '{"a": 1}\n{"b": ', '{"a": 1}\n---\n{"b": 2}\n', "a: 1\n"])
def test_a_text_that_is_no_stream_of_json_objects_stays_as_it_is(text):
    assert separate_objects(text) == text
