"""The pieces of a release: made from the checkout, and a release without one of them is none."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
import yaml

import release

ROOT = Path(__file__).parents[2]
VERSION = release.read_version()
NAMES = release.name_pieces(VERSION)
WORKFLOW = ROOT / ".github/workflows/release.yml"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with all pieces; the wheel is what `make wheel` makes, without its builder."""
    folder = tmp_path_factory.mktemp("dist")
    with zipfile.ZipFile(folder / NAMES["wheel"], "w") as archive:
        for path in sorted((ROOT / "netinit").rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(ROOT))
        archive.writestr(f"netinit-{VERSION}.dist-info/METADATA", f"Metadata-Version: 2.4\nName: netinit\nVersion: {VERSION}\n")
        for name in ("netinit", "kubectl-netinit", "kubectl_complete-netinit"):
            archive.writestr(f"netinit-{VERSION}.data/scripts/{name}", "")
    (folder / NAMES["sources"]).write_bytes(b"")
    release.build(folder, "https://example.invalid/mesh/netinit")
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy that a test may spoil."""
    for path in made.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def test_a_whole_release_is_whole(made):
    assert release.check(made) == []


@pytest.mark.parametrize("piece", NAMES)
def test_a_piece_that_is_missing_is_named(folder, piece):
    (folder / NAMES[piece]).unlink()
    assert release.check(folder) == [f"{piece}: {NAMES[piece]} is missing"]
    assert release.main(["check", str(folder)]) == 1


def test_what_does_not_fit_together_is_named(folder):
    assert release.check(folder, tag="v9.9.9") == [f"tag: v9.9.9 is not v{VERSION}, the version of the sources", f"CHANGELOG.md: has no section of {VERSION}"][: 2 - ("## [" + VERSION + "]" in (ROOT / "CHANGELOG.md").read_text())]
    manifest = folder / NAMES["krew"]
    manifest.write_text(re.sub("sha256: [0-9a-f]{64}", f"sha256: {'0' * 64}", manifest.read_text()))
    assert release.check(folder) == [f"krew: its sum is not that of {NAMES['plugin']}"]


def test_a_stale_module_in_the_wheel_is_named(folder):
    with zipfile.ZipFile(folder / NAMES["wheel"], "a") as archive:
        archive.writestr("netinit/cli/stale_module.py", "")
    assert release.check(folder) == ["wheel: netinit/cli/stale_module.py is no file of the sources"]


def test_the_same_sources_make_the_same_bytes(made, tmp_path):
    (tmp_path / NAMES["wheel"]).write_bytes((made / NAMES["wheel"]).read_bytes())
    release.build(tmp_path, "https://example.invalid/mesh/netinit")
    for piece in ("chart", "plugin", "krew"):
        assert (tmp_path / NAMES[piece]).read_bytes() == (made / NAMES[piece]).read_bytes()


def test_the_plugin_works_from_its_archive_alone(made, tmp_path):
    with tarfile.open(made / NAMES["plugin"]) as archive:
        assert not [name for name in archive.getnames() if name.endswith((".so", ".pyc"))]
    subprocess.run(["tar", "-xf", made / NAMES["plugin"], "-C", tmp_path], check=True, timeout=60)
    link = tmp_path / "bin"
    link.mkdir()
    (link / "kubectl-netinit").symlink_to(tmp_path / "kubectl-netinit")  # as krew does
    done = subprocess.run([link / "kubectl-netinit", "explain", "--help"], capture_output=True, text=True, check=True, timeout=60, env={"PATH": "/usr/bin:/bin"})
    assert done.stdout.startswith("Usage: netinit kubectl explain")


def test_the_chart_is_the_one_of_the_sources(made):
    with tarfile.open(made / NAMES["chart"]) as archive:
        told = yaml.safe_load(archive.extractfile("netinit/Chart.yaml").read())
        assert "netinit/values.schema.json" in archive.getnames()
        json.loads(archive.extractfile("netinit/values.schema.json").read())
    assert (told["version"], told["appVersion"]) == (VERSION, VERSION)


# ---- the workflow -----------------------------------------------------------------------------------------------------


def read_jobs():
    return yaml.safe_load(WORKFLOW.read_text("utf-8"))["jobs"]


def words(job):
    """All that a job's steps use and run."""
    return "\n".join(f"{step.get('uses', '')} {step.get('run', '')} {json.dumps(step.get('with', {}))}" for step in job["steps"])


def test_one_tag_publishes_every_piece():
    jobs = read_jobs()
    text = "\n".join(map(words, jobs.values()))
    for piece in ("make release", "gh-action-pypi-publish", "helm push", "gh release create", "imagetools create", "krew-netinit.yaml"):
        assert piece in text, piece
    matrix = jobs["build"]["strategy"]["matrix"]
    assert {one["architecture"] for one in matrix["machine"]} == {"amd64", "arm64"}
    images = set(re.findall(r"^FROM scratch AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert {one["target"] for one in matrix["image"]} == images >= {"init", "webhook", "node"}
    assert f"for target in {' '.join(one['target'] for one in matrix['image'])}; do" in text


def test_what_signs_installs_nothing_without_hashes():
    for name, job in read_jobs().items():
        if "id-token" in job.get("permissions", {}):
            for line in re.findall(r"^.*\b(?:pip3?|uv|pipx|npm)\b.*\binstall\b.*$", words(job), re.MULTILINE):
                assert "--require-hashes" in line, (name, line)
            assert "make " not in words(job), f"{name}: make installs what it wants"


def test_the_package_is_published_by_the_workflow_s_identity_and_no_secret():
    job = read_jobs()["package"]
    assert job["permissions"] == {"id-token": "write"}
    assert "secrets" not in json.dumps(job)
    assert job["environment"]["name"] == "pypi"


def test_the_pieces_are_made_for_every_change():
    steps = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]["release"]["steps"]
    assert any("make release" in step.get("run", "") for step in steps)


def test_the_lock_of_what_signs_has_hashes():
    text = (ROOT / "requirements/release.txt").read_text("utf-8")
    packages = re.findall(r"^([a-z0-9-]+)==", text, re.MULTILINE)
    assert "cyclonedx-python-lib" in packages
    assert len(re.findall(r"^[a-z0-9-]+==.* \\\n    --hash=sha256:", text, re.MULTILINE)) == len(packages)


def test_workflows_name_our_own_action_as_every_runner_can_find_it():
    workflows = [yaml.safe_load(path.read_text("utf-8")) for path in (ROOT / ".github/workflows").glob("*.yml")]
    used = [step["uses"] for one in workflows for job in one["jobs"].values() for step in job.get("steps", ()) if "uses" in step]
    own = [name for name in used if "@" not in name]
    assert own == ["./", "./"]  # runners refuse `$/` where no path follows
    assert all(re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40}", name) for name in used if name not in own)
    assert (ROOT / own[0] / "action.yml").is_file()
