"""The pieces of a release, made from a checkout: `python tests/release.py build FOLDER --home URL --images all`, then `check`, `repeat`, `list`.

`make release` does all four. `build` makes the wheel and the source archive, the chart as Helm packages it, each image and the static executable with
the list of what it holds, archives of the kubectl plugin (of each executable, and one of Python with the packages that it needs, for other machines)
and of the GitHub Action, and the plugin's manifest for krew. Without images, executables are those of --executables. `check` opens
every piece, and fails with a line for each that is missing or is of another version. `repeat` builds all of them once more, in another folder,
under another umask and from nothing, and fails with a line for each that has other bytes: times are SOURCE_DATE_EPOCH. `list` writes SHA256SUMS.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import hashlib
import importlib.metadata
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import yaml

from release_images import (
    PROGRAM,
    ImageBuild,
    build_executables,
    build_images,
    check_executables,
    check_images,
    find_stages,
    name_architecture,
    name_executables,
    name_files,
    take_executable,
)

ROOT = Path(__file__).parents[1]
VENDORED = ("click", "PyYAML")  # what `kubectl netinit` imports; all of it is Python, so that the archive is for every architecture
LEFT_OUT = re.compile(r"(^|/)(__pycache__|_yaml)(/|$)|\.(so|pyc|pyd)$|(^|/)(RECORD|INSTALLER|REQUESTED|direct_url\.json)$")
NO_IMAGES = ImageBuild()
SOURCES = (".dockerignore", "Dockerfile", "LICENSE", "Makefile", "README.md", "action.yml", "netinit", "pyproject.toml", "requirements", "setup.py")
ACTION_LOCK = "requirements/webhook.txt"  # what action.yml installs
# The files of any release, of which a folder is cleared before another one is made: an old one would be published beside it.
OF_A_RELEASE = ("netinit-*", "kubectl-netinit-*", "krew-netinit.yaml", "SHA256SUMS")
OF_REGISTRY = re.compile(r"/(?:charts/)?netinit[a-z-]*(?::| --version )(\d+\.\d+\.\d+)")  # as pages name images and the chart
_TRIED: dict[str, list[str]] = {}  # by the sum of an archive, what is wrong with its programs
LAUNCHER = """#!/bin/sh
# `kubectl netinit`, with the packages that lie beside it.
self=$(readlink -f -- "$0") || exit 1
exec python3 -I -X utf8 -c 'import sys
sys.version_info >= (3, 11) or sys.exit("kubectl netinit needs Python 3.11 or newer as python3")
sys.path.insert(0, sys.argv.pop(1)); sys.argv[0] = "netinit"
from netinit.cli.start import main
main()' "${self%/*}/lib" kubectl "$@"
"""


def read_version(root: Path = ROOT) -> str:
    """The version of the sources."""
    return re.search(r'^__version__ = "(.*)"', (root / "netinit/base/version.py").read_text("utf-8"), re.MULTILINE)[1]


def name_pieces(version: str, images: ImageBuild = NO_IMAGES) -> dict[str, str]:
    """What a release consists of, with these images and executables: a word for each piece, and its file."""
    return {
        "wheel": f"netinit-{version}-py3-none-any.whl",
        "sources": f"netinit-{version}.tar.gz",
        "chart": f"netinit-chart-{version}.tgz",
        "plugin": f"kubectl-netinit-{version}.tar.gz",
        "krew": "krew-netinit.yaml",
        "action": f"netinit-action-{version}.tar.gz",
        **name_executables(images.architectures),
        **{f"plugin {one}": f"kubectl-netinit-{version}-linux-{one}.tar.gz" for one in images.architectures},
        **name_files(images.stages, version),
    }


def join(words: Iterable[str]) -> str:
    """Words as a list in a sentence."""
    *first, last = [one for one in words if one]
    return f"{', '.join(first)} and {last}" if first else last


# ---- build --------------------------------------------------------------------------------------------------------------


def build_package(folder: Path, root: Path = ROOT) -> None:
    """Makes the wheel and the source archive in the folder, and lets twine look at them as an index would."""
    for old in (*folder.glob("netinit-*.whl"), *folder.glob("netinit-[0-9]*.tar.gz")):
        old.unlink()
    pieces = name_pieces(read_version(root))
    with tempfile.TemporaryDirectory(prefix="netinit-sources-") as copy:  # setuptools writes beside the sources, where two builds would meet
        copy_sources(root, Path(copy))
        _run_module("build", "--no-isolation", "--outdir", str(folder.absolute()), copy)
    _run_module("twine", "check", "--strict", *(str(folder / pieces[word]) for word in ("wheel", "sources")))


def _run_module(*words: str) -> None:
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        raise SystemExit("\n".join((done.stdout + done.stderr).splitlines()[-20:]))


def copy_sources(root: Path, to: Path) -> None:
    """Copies what the pieces are made of, with permissions that the umask leaves, as a clone has them."""
    for top in SOURCES:
        for path in sorted((root / top).rglob("*")) if (root / top).is_dir() else [root / top]:
            copy = to / path.relative_to(root)
            if path.is_file() and "__pycache__" not in path.parts:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
                if os.access(path, os.X_OK):
                    copy.chmod(copy.stat().st_mode | 0o100)


def build(folder: Path, home: str, root: Path = ROOT, images: ImageBuild = NO_IMAGES) -> None:
    """Makes all pieces in the folder. `home`: the address of the repository."""
    folder.mkdir(parents=True, exist_ok=True)
    for pattern in OF_A_RELEASE:
        for old in folder.glob(pattern):
            old.unlink()
    version, epoch = read_version(root), int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    names = name_pieces(version, images)
    build_package(folder, root)
    build_executables(folder, root, version, images)
    chart = root / "netinit/data/chart"
    files = [(f"netinit/{path.relative_to(chart)}", path.read_bytes(), 0o644) for path in sorted(chart.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    write_archive(folder / names["chart"], files, epoch)
    write_archive(folder / names["plugin"], [*_list_plugin(folder / names["wheel"], root)], epoch)
    write_archive(folder / names["action"], [*_list_action(folder / names["wheel"], root)], epoch)
    for one in images.architectures:
        write_archive(folder / names[f"plugin {one}"], _list_executable_plugin(folder, one, root), epoch)
    archives = {one: names[f"plugin {one}"] for one in images.architectures} | {"": names["plugin"]}
    sums = {name: hash_file(folder / name) for name in archives.values()}
    (folder / names["krew"]).write_text(render_krew(version, home, archives, sums), "utf-8")
    build_images(folder, root, version, images)


def hash_file(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_modules(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("netinit/") and not name.endswith("/") and not LEFT_OUT.search(name):
                yield name, archive.read(name)


def _list_action(wheel: Path, root: Path) -> Iterator[tuple[str, bytes, int]]:
    for name in ("LICENSE", "action.yml", ACTION_LOCK):
        yield name, (root / name).read_bytes(), 0o644
    yield from ((name, data, 0o644) for name, data in _list_modules(wheel))


def _list_plugin(wheel: Path, root: Path) -> Iterator[tuple[str, bytes, int]]:
    yield "kubectl-netinit", LAUNCHER.encode(), 0o755
    yield "LICENSE", (root / "LICENSE").read_bytes(), 0o644
    yield from ((f"lib/{name}", data, 0o644) for name, data in _list_modules(wheel))
    for package in VENDORED:
        for file in sorted(importlib.metadata.files(package) or [], key=str):
            if not LEFT_OUT.search(str(file)) and not str(file).startswith(".."):
                yield f"lib/{file}", Path(file.locate()).read_bytes(), 0o644


def _list_executable_plugin(folder: Path, architecture: str, root: Path) -> list[tuple[str, bytes, int]]:
    program, _, licences = (folder / name for name in name_executables([architecture]).values())
    return [
        ("kubectl-netinit", program.read_bytes(), 0o755),
        ("LICENSE", (root / "LICENSE").read_bytes(), 0o644),
        ("licences.txt", licences.read_bytes(), 0o644),
    ]


def write_archive(path: Path, files: Iterable[tuple[str, bytes, int]], epoch: int) -> None:
    """A tar.gz whose bytes follow from the files' names, contents and modes alone."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data, mode in files:
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, epoch
            archive.addfile(entry, io.BytesIO(data))
    with path.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=epoch) as packed:
        packed.write(plain.getvalue())


def render_krew(version: str, home: str, archives: Mapping[str, str], sums: Mapping[str, str]) -> str:
    """The manifest for krew's index. `archives`: the archive of each architecture, and that of Python for others as "" ; `sums` of each."""
    others = [{"key": "arch", "operator": "NotIn", "values": [one for one in archives if one]}] if len(archives) > 1 else []
    caveats = "Live rules are read through netinit's node agent or an ephemeral container."
    python = f"It needs Python 3.11 or newer as python3{f', but on {join(archives)}' if others else ''}."
    text = "Explains, audits, compares and repairs the iptables and nftables rules of pods in a service mesh, with your kubectl and your rights."
    tree = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": "netinit"},
        "spec": {
            "version": f"v{version}", "homepage": home, "shortDescription": "Explain and audit the rules of pods in a mesh", "description": text,
            "caveats": f"{python} {caveats}",
            "platforms": [{
                "selector": {"matchExpressions": [
                    {"key": "os", "operator": "In", "values": ["linux"]},
                    *([{"key": "arch", "operator": "In", "values": [one]}] if one else others),
                ]},
                "uri": f"{home}/releases/download/v{version}/{name}", "sha256": sums[name], "bin": "kubectl-netinit",
            } for one, name in archives.items()],
        },
    }  # fmt: skip
    return yaml.safe_dump(tree, sort_keys=False, width=1000)


# ---- check --------------------------------------------------------------------------------------------------------------


def check(folder: Path, root: Path = ROOT, tag: str = "", images: ImageBuild = NO_IMAGES) -> list[str]:
    """A line for each piece that is missing or wrong; none where the release with these images and executables is whole."""
    version = read_version(root)
    names = name_pieces(version, images)
    wrong = [f"{word}: {name} is missing" for word, name in names.items() if not (folder / name).is_file()]
    wrong += [f"tag: {tag} is not v{version}, the version of the sources"] * bool(tag and tag != f"v{version}")
    wrong += _check_texts(root, version, tagged=bool(tag))
    if any(one.endswith("is missing") for one in wrong):
        return wrong
    opened = (
        _check_wheel(folder / names["wheel"], version),
        _check_sources(folder / names["sources"], version),
        _check_chart(folder / names["chart"], version),
        _check_plugin(folder, names, version, tagged=bool(tag)),
        _check_action(folder / names["action"], folder / names["wheel"]),
        check_executables(folder, images.architectures, version),
        check_images(folder, images.stages, version),
    )
    return [*wrong, *[line for lines in opened for line in lines]]


def _check_texts(root: Path, version: str, *, tagged: bool) -> Iterator[str]:
    chart = yaml.safe_load((root / "netinit/data/chart/Chart.yaml").read_text("utf-8"))
    for key in ("version", "appVersion"):
        if chart[key] != version:
            yield f"chart: {key} is {chart[key]}, the sources are {version}"
    others = sorted(set(re.findall(r"^ARG VERSION=(.*)$", (root / "Dockerfile").read_text("utf-8"), re.MULTILINE)) - {version})
    if others:
        yield f"Dockerfile: VERSION is {', '.join(others)}, the sources are {version}"
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        others = sorted(set(OF_REGISTRY.findall(page.read_text("utf-8"))) - {version})
        if others:
            yield f"{page.relative_to(root)}: names images or a chart of {', '.join(others)}, the sources are {version}"
    if tagged and f"## [{version}]" not in (root / "CHANGELOG.md").read_text("utf-8"):
        yield f"CHANGELOG.md: has no section of {version}"
    fragments = sorted(path.name for path in (root / "changelog.d").glob("*.*.md")) if tagged else []
    if fragments:
        yield f"changelog.d: {', '.join(fragments)} are in no section of CHANGELOG.md; run make changelog"


def _check_wheel(path: Path, version: str) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        told = archive.read(f"netinit-{version}.dist-info/METADATA").decode()
    if f"\nVersion: {version}\n" not in told:
        yield f"wheel: its metadata is not of {version}"
    sources = {str(one.relative_to(ROOT)) for one in (ROOT / "netinit").rglob("*") if one.is_file() and "__pycache__" not in one.parts}
    for name in sorted(one for one in names if one.startswith("netinit/") and one not in sources):
        yield f"wheel: {name} is no file of the sources"
    for name in [start + end for start in ("kubectl-netinit", "kubectl_complete-netinit", "netinit") for end in ("", ".cmd")]:
        if f"netinit-{version}.data/scripts/{name}" not in names:
            yield f"wheel: the script {name} is missing"


def _check_sources(path: Path, version: str) -> Iterator[str]:
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if name.startswith(f"netinit-{version}/")}
    for name in sorted({"LICENSE", "PKG-INFO", "README.md", "netinit/base/version.py", "pyproject.toml", "setup.py"} - names):
        yield f"sources: {name} is missing"


def _check_chart(path: Path, version: str) -> Iterator[str]:
    with tarfile.open(path) as archive:
        told = yaml.safe_load(archive.extractfile("netinit/Chart.yaml").read())
        names = archive.getnames()
    if (told["name"], told["version"]) != ("netinit", version):
        yield f"chart: it is {told['name']} {told['version']}"
    if "netinit/values.schema.json" not in names or not any(name.startswith("netinit/templates/") for name in names):
        yield "chart: templates or the schema of its values are missing"


def _check_plugin(folder: Path, names: dict[str, str], version: str, *, tagged: bool) -> Iterator[str]:
    manifest = yaml.safe_load((folder / names["krew"]).read_text("utf-8"))
    platforms = manifest["spec"]["platforms"]
    archives = [name for word, name in names.items() if word == "plugin" or word.startswith("plugin ")]
    if manifest["spec"]["version"] != f"v{version}" or {f"v{version}/{name}" for name in archives} != {"/".join(one["uri"].split("/")[-2:]) for one in platforms}:
        yield f"krew: it is not of {version}, or not of {join(archives)}"
        return
    for platform in platforms:
        archive = platform["uri"].rpartition("/")[2]
        if platform["sha256"] != hash_file(folder / archive):
            yield f"krew: its sum is not that of {archive}"
        if tagged and ".invalid/" in platform["uri"]:
            yield f"krew: {platform['uri']} is no address; HOME_PAGE gives that of the repository"
        if archive == names["plugin"] or archive == names.get(f"plugin {name_architecture()}"):
            yield from _try(folder / archive, partial(_start_plugin, platform["bin"]))


def _start_plugin(program: str, place: str) -> Iterator[str]:
    done = subprocess.run([f"{place}/{program}", "--help"], capture_output=True, text=True, check=False, timeout=60)
    if done.returncode or "explain" not in done.stdout:
        yield f"plugin: kubectl-netinit --help ended with {done.returncode}: {done.stderr.strip()}"


def _try(archive: Path, look: Callable[[str], Iterable[str]]) -> list[str]:
    """What is wrong with an archive's programs, which are started once for the same bytes: they are compiled as they start."""
    digest = hash_file(archive)
    if digest not in _TRIED:
        with tempfile.TemporaryDirectory() as place:
            subprocess.run(["tar", "-xf", archive, "-C", place], check=True, timeout=60)
            _TRIED[digest] = [*look(place)]
    return _TRIED[digest]


def _check_action(path: Path, wheel: Path) -> list[str]:
    with tarfile.open(path) as archive:
        held = {name for name in archive.getnames() if name.startswith("netinit/")}
    if held != {name for name, _ in _list_modules(wheel)}:
        return ["action: it does not hold the modules of the wheel"]
    return _try(path, _start_action)


def _start_action(place: str) -> Iterator[str]:
    (installed, *_) = yaml.safe_load(Path(place, "action.yml").read_text("utf-8"))["runs"]["steps"]
    if f'"$HERE/{ACTION_LOCK}"' not in installed["run"]:
        yield f"action: it does not install {ACTION_LOCK}"
    pod = Path(place, "pod.yaml")
    pod.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app, image: app:1}]}\n", "utf-8")
    environ = {**os.environ, "PYTHONPATH": place}
    words = [sys.executable, "-P", "-m", "netinit", "lint", "--format", "github", "--", str(pod)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60, env=environ, cwd="/")
    if done.returncode:
        yield f"action: netinit lint ended with {done.returncode}: {done.stderr.strip()}"


# ---- repeat -------------------------------------------------------------------------------------------------------------


def repeat(folder: Path, home: str, images: ImageBuild = NO_IMAGES) -> list[str]:
    """Builds everything again, in another folder and under another umask, and returns a line for each piece that has other bytes."""
    with tempfile.TemporaryDirectory(prefix="netinit-release-") as place, _with_umask(0o077):
        sources, again = Path(place, "another checkout"), Path(place, "dist")
        copy_sources(ROOT, sources)
        build(again, home, sources, replace(images, flags=f"--no-cache {images.flags}"))
        return compare(folder, again, name_pieces(read_version(), images))


def compare(folder: Path, again: Path, names: dict[str, str]) -> list[str]:
    """A line for each piece of which two folders hold other bytes."""
    sums = {word: (hash_file(folder / name), hash_file(again / name)) for word, name in names.items()}
    return [f"{word}: two builds gave two {names[word]}, of {one} and {other}" for word, (one, other) in sums.items() if one != other]


@contextlib.contextmanager
def _with_umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def write_list(folder: Path, images: ImageBuild = NO_IMAGES) -> str:
    """Writes SHA256SUMS, which `sha256sum --check` reads, and returns it with a word and the size of each piece."""
    names = name_pieces(read_version(), images)
    sums = {name: hash_file(folder / name) for name in names.values()}
    (folder / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items())), "utf-8")
    return "".join(f"{word:26} {sums[name]}  {(folder / name).stat().st_size:>11,}  {name}\n" for word, name in names.items())


def main(words: list[str]) -> int:
    """Does one of the steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("package", "executable", "build", "check", "repeat", "list"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", default="https://example.invalid/netinit", help="the address of the repository")
    parser.add_argument("--tag", default="", help="the tag that is released")
    parser.add_argument("--images", default="", help="stages of the Dockerfile, or all; none if empty")
    parser.add_argument("--engine", default="", help="podman or docker")
    parser.add_argument("--image-flags", default="", help="further flags of the engine's build")
    parser.add_argument("--commit", default="", help="the commit that images name")
    parser.add_argument("--executables", type=Path, help="a folder of executables that have been made, instead of this machine's from its image")
    parser.add_argument("--rootfs", type=Path, help="for executable: the files of its image")
    parser.add_argument("--architecture", default=name_architecture(), help="for executable: of which it is")
    given = parser.parse_args(words)
    stages = find_stages() if given.images == "all" else tuple(given.images.split())
    if stages and not given.engine:
        parser.error("--images wants --engine: podman or docker; without images: --images=")
    if given.executables and not [*given.executables.glob(f"{PROGRAM}*")]:
        parser.error(f"--executables: {given.executables} holds no {PROGRAM}…")
    images = ImageBuild(stages=stages, engine=given.engine, flags=given.image_flags, commit=given.commit, executables=given.executables)
    wrong = []
    match given.what:
        case "package":
            build_package(given.folder)
        case "executable":
            take_executable(given.rootfs, given.folder, given.architecture)
        case "build":
            build(given.folder, given.home, images=images)
        case "check":
            wrong = check(given.folder, tag=given.tag, images=images)
        case "repeat":
            wrong = repeat(given.folder, given.home, images)
        case "list":
            print(write_list(given.folder, images), end="")
            print("two builds gave the same bytes" + ("" if stages else "; images are left out"))
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
