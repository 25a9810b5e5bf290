"""The pieces of a release: made from the checkout, and a release without one of them is none."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

import image_licenses
import release
import release_images
from image_licenses import read_debian_packages, read_label
from release_images import ImageBuild

ROOT = Path(__file__).parents[2]
VERSION = release.read_version()
NAMES = release.name_pieces(VERSION)
EPOCH = "1700000000"
WORKFLOW = ROOT / ".github/workflows/release.yml"


HOME = "https://example.invalid/mesh/netinit"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with all pieces but the images."""
    folder = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_DATE_EPOCH", EPOCH)
        release.build(folder, HOME)
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
    assert f"tag: v9.9.9 is not v{VERSION}, the version of the sources" in release.check(folder, tag="v9.9.9")
    manifest = folder / NAMES["krew"]
    manifest.write_text(re.sub("sha256: [0-9a-f]{64}", f"sha256: {'0' * 64}", manifest.read_text()))
    assert release.check(folder) == [f"krew: its sum is not that of {NAMES['plugin']}"]


def test_a_stale_module_in_the_wheel_is_named(folder):
    with zipfile.ZipFile(folder / NAMES["wheel"], "a") as archive:
        archive.writestr("netinit/cli/stale_module.py", "")
    assert release.check(folder)[0] == "wheel: netinit/cli/stale_module.py is no file of the sources"


def test_another_folder_under_another_umask_gives_the_same_bytes_of_every_piece(made, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    before = os.umask(0o022)
    try:
        assert release.repeat(made, HOME) == []
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_a_piece_whose_second_build_has_other_bytes_is_named(made, folder):
    with (folder / NAMES["chart"]).open("ab") as file:
        file.write(b"\0")
    (line,) = release.compare(made, folder, NAMES)
    assert line.startswith(f"chart: two builds gave two {NAMES['chart']}, of ")


def test_a_release_leaves_nothing_of_the_one_before_and_keeps_what_is_not_of_one(tmp_path, monkeypatch):
    for name in ("netinit-0.0.1-py3-none-any.whl", "kubectl-netinit-0.0.1.tar.gz", "netinit-node-0.0.1-amd64.oci.tar", "notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.setattr(release, "build_package", lambda *_: (_ for _ in ()).throw(SystemExit("stopped")))
    with pytest.raises(SystemExit, match="stopped"):
        release.build(tmp_path, HOME)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_the_list_has_the_sum_of_every_piece(folder):
    told = release.write_list(folder)
    assert [line.split()[-1] for line in told.splitlines()] == list(NAMES.values())
    checked = subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], capture_output=True, text=True, check=True, timeout=60, cwd=folder)
    assert checked.stdout.count(": OK\n") == len(NAMES)


def test_the_archive_of_sources_has_one_time_and_no_user(made):
    with tarfile.open(made / NAMES["sources"]) as archive:
        members = archive.getmembers()
    assert {one.name.partition("/")[2] for one in members} > {"netinit/cli/start.py", "pyproject.toml", "setup.py", "PKG-INFO"}
    assert {(one.mtime, one.uid, one.gid, one.uname, one.gname) for one in members} == {(int(EPOCH), 0, 0, "", "")}
    assert {one.mode for one in members} == {0o644, 0o755}
    assert all(one.mode == 0o755 for one in members if one.isdir())


def test_an_action_that_lacks_a_module_is_named(made, folder):
    with tarfile.open(made / NAMES["action"]) as archive:
        files = [(one.name, archive.extractfile(one).read(), one.mode) for one in archive if not one.name.startswith("netinit/questions/")]
    release.write_archive(folder / NAMES["action"], files, 0)
    assert release.check(folder) == ["action: it does not hold the modules of the wheel"]


def test_what_a_tag_would_publish_too_early_is_named(made, tmp_path):
    root = tmp_path / "checkout"
    for name in ("changelog.d", "docs", "netinit/base", "netinit/data/chart"):
        (root / name).mkdir(parents=True)
    for name in ("CHANGELOG.md", "Dockerfile", "README.md", "netinit/base/version.py", "netinit/data/chart/Chart.yaml"):
        (root / name).write_bytes((ROOT / name).read_bytes())
    tag = f"v{VERSION}"
    assert release.check(made, root, tag) == [f"krew: {HOME}/releases/download/{tag}/{NAMES['plugin']} is no address; HOME_PAGE gives that of the repository"]
    (root / "changelog.d" / "+a-thing.added.md").write_text("A thing.\n")
    (root / "docs" / "install.md").write_text("docker pull REGISTRY/mesh/netinit-node:0.0.1\n")
    assert release.check(made, root, tag)[:2] == [
        f"docs/install.md: names images or a chart of 0.0.1, the sources are {VERSION}",
        "changelog.d: +a-thing.added.md are in no section of CHANGELOG.md; run make changelog",
    ]


# ---- executables --------------------------------------------------------------------------------------------------------


OTHER = next(one for one in release_images.MACHINES if one != release_images.name_architecture())


@pytest.fixture
def executables(tmp_path):
    """A folder with the files of an executable of another architecture, which is not started here."""
    folder = tmp_path / "executables"
    folder.mkdir()
    program, sbom, licences = (folder / name for name in release_images.name_executables([OTHER]).values())
    program.write_bytes(b"\x7fELF" + bytes(14) + release_images.MACHINES[OTHER].to_bytes(2, "little") + bytes(100))
    packages = read_debian_packages(image_licenses.IMAGES[release_images.EXECUTABLE][0])
    sbom.write_text(json.dumps({"bomFormat": "CycloneDX", "metadata": {"component": {"name": "netinit", "version": VERSION}}, "components": [{"name": one} for one in packages]}))
    named = [*(f"usr/share/doc/{one}/copyright" for one in packages), "usr/share/doc/netinit/relink", "usr/share/common-licenses/LGPL-2.1"]
    licences.write_text("".join(f"==== {name}\n\ntext\n" for name in named))
    return folder


@pytest.fixture
def with_executable(made, tmp_path, executables, monkeypatch):
    """A release with it, and how it was built: with the wheel and the sources that are made already, which take most of the time."""

    def take_package(folder, _root):
        for piece in ("wheel", "sources"):
            shutil.copyfile(made / NAMES[piece], folder / NAMES[piece])

    monkeypatch.setenv("SOURCE_DATE_EPOCH", EPOCH)
    monkeypatch.setattr(release, "build_package", take_package)
    images = ImageBuild(executables=executables)
    release.build(tmp_path / "dist", HOME, images=images)
    return tmp_path / "dist", images


def test_krew_takes_the_executable_of_its_architecture_and_python_for_every_other(with_executable):
    folder, images = with_executable
    assert release.check(folder, images=images) == []
    platforms = yaml.safe_load((folder / "krew-netinit.yaml").read_text())["spec"]["platforms"]
    chosen = [one["selector"]["matchExpressions"][1] for one in platforms]
    assert chosen == [{"key": "arch", "operator": "In", "values": [OTHER]}, {"key": "arch", "operator": "NotIn", "values": [OTHER]}]
    archive = f"kubectl-netinit-{VERSION}-linux-{OTHER}.tar.gz"
    assert [one["uri"].rpartition("/")[2] for one in platforms] == [archive, NAMES["plugin"]]
    assert platforms[0]["sha256"] == hashlib.sha256((folder / archive).read_bytes()).hexdigest()
    with tarfile.open(folder / archive) as opened:
        assert [(one.name, one.mode) for one in opened] == [("kubectl-netinit", 0o755), ("LICENSE", 0o644), ("licences.txt", 0o644)]
    told = release.write_list(folder, images)
    assert f"netinit-linux-{OTHER}" in {line.split()[-1] for line in told.splitlines()}
    assert os.access(folder / f"netinit-linux-{OTHER}", os.X_OK)


@pytest.mark.parametrize(("ending", "spoiled", "line"), [
    ("", b"\x7fELF" + bytes(100), f"executable {OTHER}: it is no program for {OTHER}"),
    (".cdx.json", b"{}", f"executable sbom {OTHER}: it does not describe netinit {VERSION}"),
    (".licences.txt", b"", f"executable licences {OTHER}: usr/share/doc/libc6-dev/copyright is missing"),
])  # fmt: skip
def test_what_is_wrong_with_an_executable_s_files_is_named(with_executable, ending, spoiled, line):
    folder, images = with_executable
    (folder / f"netinit-linux-{OTHER}{ending}").write_bytes(spoiled)
    assert line in release.check(folder, images=images)


def test_an_executable_that_does_not_start_is_named(tmp_path, executables):
    own = release_images.name_architecture()
    for name, new in zip(release_images.name_executables([OTHER]).values(), release_images.name_executables([own]).values(), strict=True):
        (executables / name).rename(executables / new)
    program = executables / f"netinit-linux-{own}"
    true = bytearray(Path(shutil.which("true")).read_bytes())
    program.write_bytes(true)
    program.chmod(0o755)
    (line,) = release_images.check_executables(executables, [own], VERSION)
    assert line.startswith(f"executable {own}: --version ended with 0: ")


def test_a_folder_without_executables_is_refused_before_anything_is_made(tmp_path, capsys):
    with pytest.raises(SystemExit):
        release.main(["build", str(tmp_path / "dist"), "--executables", str(tmp_path)])
    assert f"--executables: {tmp_path} holds no netinit-linux-" in capsys.readouterr().err


def test_the_licences_beside_an_executable_are_those_of_its_image(tmp_path, monkeypatch):
    monkeypatch.setattr(release_images, "_run", lambda *words: Path(words[-1]).write_text("{}"))
    texts = {
        "usr/bin/netinit": "program", "usr/share/doc/netinit/LICENSE": "ours", "usr/share/doc/netinit/relink": "how", "usr/share/doc/zlib1g-dev/copyright": "zlib's",
        "usr/lib/netinit/click-8.dist-info/licenses/LICENSE.txt": "click's",
        **{f"usr/share/common-licenses/{name}": name for name in release_images.LICENCES},
    }
    for name, text in texts.items():
        path = tmp_path / "rootfs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    release.main(["executable", str(tmp_path / "dist"), "--rootfs", str(tmp_path / "rootfs"), "--architecture", "arm64"])
    assert {path.name for path in (tmp_path / "dist").iterdir()} == {f"netinit-linux-arm64{ending}" for ending in ("", ".cdx.json", ".licences.txt")}
    told = (tmp_path / "dist/netinit-linux-arm64.licences.txt").read_text()
    assert all(f"==== {name}\n\n{text}\n" in told for name, text in texts.items() if name != "usr/bin/netinit")


# ---- images -----------------------------------------------------------------------------------------------------------


def write_image(path, *, version=VERSION, spoil=False):
    """An image of no files as the engines write it: an OCI layout in a tar, with a time of its own."""
    labels = {"version": version, "title": "netinit-node", "licenses": read_label("node")}
    config = {"architecture": release_images.name_architecture(), "config": {"Labels": {f"org.opencontainers.image.{key}": text for key, text in labels.items()}, "Entrypoint": release_images.ENTRY}}
    blobs, described = {}, {}
    for word, data in (("config", json.dumps(config).encode()), ("layer", b"layer")):
        described[word] = {"digest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
        blobs[described[word]["digest"]] = data
    manifest = json.dumps({"config": described["config"], "layers": [described["layer"]]}).encode()
    blobs[f"sha256:{hashlib.sha256(manifest).hexdigest()}"] = manifest
    index = {"manifests": [{"digest": f"sha256:{hashlib.sha256(manifest).hexdigest()}"}]}
    files = {"index.json": json.dumps(index).encode(), **{f"blobs/{digest.replace(':', '/')}": data + b"!" * (spoil and data == b"layer") for digest, data in blobs.items()}}
    with tarfile.open(path, "w") as archive:
        for name, data in reversed(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime = len(data), time.time()
            archive.addfile(entry, io.BytesIO(data))


@pytest.fixture
def image(folder):
    """The files of an image in a folder: (the folder, the archive, the list of what it holds)."""
    names = release_images.name_files(["node"], VERSION)
    archive, sbom = (folder / name for name in names.values())
    write_image(archive)
    sbom.write_text(json.dumps({"bomFormat": "CycloneDX", "metadata": {"component": {"name": "netinit", "version": VERSION}}, "components": [{"name": name} for name in read_debian_packages("SERVED")]}))
    return folder, archive, sbom


def test_a_release_with_an_image_wants_its_archive_and_the_list_of_what_it_holds(image):
    folder, archive, sbom = image
    assert [*release_images.check_images(folder, ["node"], VERSION)] == []
    assert release.check(folder, images=ImageBuild(stages=("init",), executables=folder)) == [f"{word}: {name} is missing" for word, name in release_images.name_files(["init"], VERSION).items()]
    sbom.write_text("{}")
    other, incomplete = release_images.check_images(folder, ["node"], VERSION)
    assert other == f"sbom node: it does not describe netinit {VERSION}"
    assert incomplete.startswith("sbom node: packages are missing: libc-bin, libc6, ")
    write_image(archive, version="0.0.1")
    assert next(release_images.check_images(folder, ["node"], VERSION)) == f"image node: its label version is 0.0.1, not {VERSION}"


def test_an_image_whose_layer_was_changed_is_named(image):
    folder, archive, _ = image
    write_image(archive, spoil=True)
    (line,) = release_images.check_images(folder, ["node"], VERSION)
    assert line.endswith("has other bytes than its name says")


def test_every_image_of_the_dockerfile_has_its_files():
    names = release.name_pieces(VERSION, ImageBuild(stages=release_images.find_stages(), engine="podman"))
    assert len(names) == len(NAMES) + 6 + 4
    assert names[f"executable {release_images.name_architecture()}"] == f"netinit-linux-{release_images.name_architecture()}"
    assert names["image init"] == f"netinit-{VERSION}-{release_images.name_architecture()}.oci.tar"


def test_images_without_an_engine_are_refused_before_anything_is_made(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        release.main(["build", str(tmp_path / "dist"), "--images", "all"])
    assert ended.value.code == 2
    assert "--images wants --engine" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


# ---- the changelog ----------------------------------------------------------------------------------------------------


def read_sections():
    """The sections of the changelog that a fragment may go to, as towncrier knows them."""
    return {one["directory"]: one["name"] for one in tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["towncrier"]["type"]}


def test_every_fragment_of_the_changelog_is_named_for_a_section_and_says_something():
    for path in sorted((ROOT / "changelog.d").iterdir()):
        if path.name != "README.md":
            assert re.fullmatch(rf"\+[a-z0-9-]+\.({'|'.join(read_sections())})\.md", path.name), f"changelog.d/{path.name}: see changelog.d/README.md"
            text = path.read_text("utf-8")
            assert text.strip(), path.name
            assert not text.startswith(("-", "#")), f"changelog.d/{path.name}: towncrier puts the dash before it"


def test_the_changelog_begins_with_a_section_of_a_released_version():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert all(re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", one) for one in headings), headings


def test_fragments_become_a_section_above_the_last_one(tmp_path):
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "changelog.d").mkdir()
    for name, text in (("README.md", "# How\n"), ("+new.added.md", "A new thing.\n"), ("+old.fixed.md", "An old thing works.\n")):
        (tmp_path / "changelog.d" / name).write_text(text)
    words = ["-m", "towncrier", "build", "--yes", "--version", "99.0.0", "--date", "2030-01-02"]
    subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=60, cwd=tmp_path)
    before, after = ((folder / "CHANGELOG.md").read_text("utf-8") for folder in (ROOT, tmp_path))
    head, _, rest = after.partition("## [99.0.0] - 2030-01-02\n\n### Added\n\n- A new thing.\n\n### Fixed\n\n- An old thing works.\n")
    assert before == head.rstrip("\n") + "\n\n" + rest.lstrip("\n")
    assert [path.name for path in (tmp_path / "changelog.d").iterdir()] == ["README.md"]


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
    made = jobs["executable"]
    assert {one["architecture"] for one in made["strategy"]["matrix"]["machine"]} == {*release_images.MACHINES}
    assert [step["with"]["target"] for step in made["steps"] if "build-push" in step.get("uses", "")] == [release_images.EXECUTABLE]
    for piece in ("dist/netinit-linux-*", "EXECUTABLES=executables"):
        assert piece in words(jobs["pieces"]), piece
    matrix = jobs["build"]["strategy"]["matrix"]
    assert {one["architecture"] for one in matrix["machine"]} == {"amd64", "arm64"}
    images = set(release_images.find_stages())
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


DOCKER = """#!/bin/sh
echo "$*" >>"$LOG"
case "$1" in save) : >"$3" ;; login) cat >/dev/null ;; esac
"""


@pytest.fixture
def fetch_last_release(tmp_path):
    """`fetch_last_release(*tags, **variables)`: how the step ends in a repository with a commit for each tag; what docker was asked; its outputs."""
    (step,) = [one for one in yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]["upgrade"]["steps"] if one.get("id") == "last"]
    log, outputs, folder = tmp_path / "log", tmp_path / "outputs", tmp_path / "old-images"
    (tmp_path / "docker").write_text(DOCKER)
    (tmp_path / "docker").chmod(0o755)

    def run(*tags, **variables):
        git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        for tag in tags:
            subprocess.run([*git, "commit", "--quiet", "--allow-empty", "--message", "x"], check=True)
            subprocess.run([*git, "tag", tag], check=True) if tag else None
        given = {"REGISTRY": "registry.example", "REGISTRY_USER": "", "TOKEN": "secret", "GITHUB_REPOSITORY": "Mesh/NetInit", "GITHUB_ACTOR": "ann", "LOG": log}
        environ = {**os.environ, **given, "FOLDER": folder, "GITHUB_OUTPUT": outputs, "PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
        done = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60, check=False)
        read = lambda path: path.read_text().splitlines() if path.exists() else []  # noqa: E731
        return done, read(log), read(outputs)

    run.folder = folder
    return run


def test_the_last_release_is_that_before_this_commit_and_its_three_images_are_saved(fetch_last_release):
    done, asked, outputs = fetch_last_release("v0.1.0", "v0.2.0", "v0.3.0")
    assert (done.returncode, outputs) == (0, [f"folder={fetch_last_release.folder}"]), done.stderr
    names = ["netinit", "netinit-node", "netinit-webhook"]
    assert asked[0] == "login registry.example --username ann --password-stdin"
    assert [one for one in asked if one.startswith("pull")] == [f"pull --quiet registry.example/mesh/{name}:0.2.0" for name in names]
    assert {path.name for path in fetch_last_release.folder.iterdir()} == {f"{name}.tar" for name in names}
    assert "secret" not in done.stdout + done.stderr + "".join(asked)


def test_before_the_first_release_there_is_nothing_to_upgrade_from_and_nobody_is_asked(fetch_last_release):
    done, asked, outputs = fetch_last_release("", "v0.1.0")
    assert (done.returncode, asked, outputs) == (0, [], []), done.stderr
    assert "::notice::no release is tagged yet" in done.stdout


def test_the_forge_s_token_is_given_to_no_other_registry(fetch_last_release):
    done, asked, outputs = fetch_last_release("v0.2.0", "", REGISTRY_USER="robot")
    assert (done.returncode, len(outputs)) == (0, 1), done.stderr
    assert not any(one.startswith("login") for one in asked)


def test_a_release_without_a_registry_is_an_error(fetch_last_release):
    done, _, outputs = fetch_last_release("v0.2.0", "", REGISTRY="")
    assert (done.returncode, outputs) == (1, [])
    assert "::error::the variable REGISTRY is not set" in done.stdout


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
