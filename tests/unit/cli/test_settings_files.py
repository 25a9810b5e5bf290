"""Files of an installation that are given to gates and questions: read also where no pod needs them, and never without effect."""

from __future__ import annotations

import pytest

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {sidecar.istio.io/inject: "true"}}
spec: {containers: [{name: web, image: web:1}]}
"""
PLAIN = POD.replace('"true"', '"false"')
COMMANDS = ("lint --pod pod.yaml", "lint pod.yaml", "audit pod.yaml", "explain --pod pod.yaml --to 10.9.0.1:80")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_keys_without_effect_are_warnings(run, folder, command):
    (folder / "values.yaml").write_text("global: {proxy: {excludeIPRange: 10.9.0.0/16}}")
    done = run(f"netinit {command} --valuesFile values.yaml")
    assert 'warning: values: "global.proxy.excludeIPRange" is not a value' in done.err
    assert "did you mean excludeIPRanges?" in done.err


@pytest.mark.parametrize("option", ["injectConfigFile", "meshConfigFile", "valuesFile"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_of_another_kind_is_refused_also_where_no_pod_is_injected(run, folder, command, option):
    (folder / "pod.yaml").write_text(PLAIN)
    (folder / "app.yaml").write_text("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: istiod}\n")
    done = run(f"netinit {command} --{option} app.yaml")
    assert (done.code, done.out) == (1, "")
    assert f"--{option} app.yaml" in done.err
    assert 'it is of kind "Application", which sets none' in done.err


@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_is_not_there_is_an_error_also_where_no_pod_is_injected(run, folder, command):
    (folder / "pod.yaml").write_text(PLAIN)
    done = run(f"netinit {command} --valuesFile nowhere.yaml")
    assert done.code in {1, 2}
    assert "--valuesFile: nowhere.yaml: cannot be read" in done.err


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n---\n", "null\n", "# a\n---\n# b"])
@pytest.mark.parametrize("command", ["lint pod.yaml", "inject -f pod.yaml", "check-inject -f pod.yaml"])
@pytest.mark.parametrize("option", ["injectConfigFile", "meshConfigFile", "valuesFile"])
def test_an_empty_file_is_refused(run, folder, command, text, option):
    (folder / "empty.yaml").write_text(text)
    done = run(f"netinit {command} --{option} empty.yaml")
    assert (done.code, done.out) == (1, "")
    assert f"--{option}: the file is empty, and sets nothing; leave the option out" in done.err


@pytest.mark.parametrize("option", ["meshConfigFile", "valuesFile"])
def test_a_file_that_says_that_nothing_is_set_is_taken(run, folder, option):
    (folder / "none.yaml").write_text("{}\n")
    assert run(f"netinit inject -f pod.yaml --image a/b:1 --{option} none.yaml").code == 0
