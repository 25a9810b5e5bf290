"""Manifests of the real world through the command: the text that comes out is under review, file by file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from netinit.cli.inject.command import command
from netinit.inject import decide, load_config
from netinit.inject.deciding.init_container import options_of
from netinit.inject.deciding.manifests import split, workloads

FOLDER = Path(__file__).parent
CASES = sorted(path.name for path in FOLDER.iterdir() if (path / "input.yaml").exists())


def arguments(case):
    config = FOLDER / case / "config.yaml"
    return ["--injectConfigFile", str(config)] if config.exists() else []


def inject(case, source, *more):
    result = CliRunner().invoke(command, ["-f", str(source), *arguments(case), *more], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result


@pytest.mark.parametrize("case", CASES)
def test_the_output_is_the_golden_one(case, golden):
    golden({FOLDER / case / "output.yaml": inject(case, FOLDER / case / "input.yaml").stdout})


@pytest.mark.parametrize("case", CASES)
def test_injecting_the_output_again_changes_no_letter(case):
    source = FOLDER / case / "output.yaml"
    assert inject(case, source).stdout == source.read_text()


@pytest.mark.parametrize("case", CASES)
def test_another_reader_of_yaml_sees_the_same_objects(case):
    text = (FOLDER / case / "output.yaml").read_text()
    ours = [document.parse()[0] for document in split(text)]
    theirs = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    assert without_keys_of_yaml_1_1(ours) == without_keys_of_yaml_1_1(theirs)


def without_keys_of_yaml_1_1(value):
    """PyYAML has true where Go has the string "true" for the key `yes`."""
    if isinstance(value, dict):
        return {str(key).lower(): without_keys_of_yaml_1_1(item) for key, item in value.items()}
    return [without_keys_of_yaml_1_1(item) for item in value] if isinstance(value, list) else value


def test_documents_that_are_not_injected_keep_every_letter():
    before = split((FOLDER / "shop" / "input.yaml").read_text())
    after = split((FOLDER / "shop" / "output.yaml").read_text())
    kept = [document for document, other in zip(before, after, strict=True) if document.text == other.text]
    assert [[w.name for w in workloads(document.parse()[0])] for document in kept] == [[], [], [], ["recommendation"], ["shipping"], []]


def test_the_skipped_ones_are_told_on_stderr():
    result = inject("shop", FOLDER / "shop" / "input.yaml")
    assert result.stderr.splitlines() == [
        '===> Skipping injection because Deployment "shop/recommendation" has sidecar injection disabled',
        '===> Skipping injection because DaemonSet "shop/shipping" has host networking enabled',
        "note: the init container's image is 'netinit:0.2.0', which only nodes have that built it; name yours with --image",
    ]


@pytest.mark.parametrize("case", CASES)
def test_every_init_container_can_be_read_by_our_init_container(case):
    for document in split((FOLDER / case / "output.yaml").read_text()):
        for workload in workloads(document.parse()[0]):
            for container in workload.pod()["spec"].get("initContainers", []):
                if container["name"] == "istio-init":
                    assert options_of(container).outbound_port == 15001


def test_the_build_pod_is_left_to_itself_by_the_selectors():
    config = load_config((FOLDER / "s2i-build" / "config.yaml").read_text())
    (workload,) = workloads(split((FOLDER / "s2i-build" / "input.yaml").read_text())[0].parse()[0])
    decision = decide(workload.pod(), "shop", config)
    assert not decision.inject
    assert decision.reason == "neverInjectSelector[0] matches the pod's labels (openshift.io/build.name exists)"
    pod = workload.pod()
    pod["metadata"]["annotations"]["sidecar.istio.io/inject"] = "true"
    assert decide(pod, "shop", config).inject, "an annotation wins over the selectors"


def test_the_classic_traps_are_made_good():
    (tree,) = yaml.load_all((FOLDER / "classic" / "output.yaml").read_text(), Loader=yaml.SafeLoader)
    spec = tree["spec"]["template"]["spec"]
    (init,) = spec["initContainers"]
    assert "restartPolicy" not in init
    assert "restartPolicy" not in init["securityContext"]
    assert "restartPolicy" not in spec["containers"][-1]
    assert init["args"] == ["-p", "15001", "-u", "1337", "-m", "TPROXY", "-b", "5432, 8008, 9187,", "-d", ""]
