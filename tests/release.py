"""The pieces of a release, made from a checkout: `python tests/release.py build FOLDER --home URL`, then `check FOLDER`.

`make release` does both. `build` adds to the wheel and the source archive, which `make wheel` has made, the chart as Helm packages it, an
archive of the kubectl plugin with the packages that it needs, and its manifest for krew. `check` opens every piece, and fails with
a line for each that is missing or is of another version. The same commit gives the same bytes: times are SOURCE_DATE_EPOCH.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import importlib.metadata
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
VENDORED = ("click", "PyYAML")  # what `kubectl netinit` imports; all of it is Python, so that the archive is for every architecture
LEFT_OUT = re.compile(r"(^|/)(__pycache__|_yaml)(/|$)|\.(so|pyc|pyd)$|(^|/)(RECORD|INSTALLER|REQUESTED|direct_url\.json)$")
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


def name_pieces(version: str) -> dict[str, str]:
    """What a release consists of beside the images: a word for each piece, and its file."""
    return {
        "wheel": f"netinit-{version}-py3-none-any.whl",
        "sources": f"netinit-{version}.tar.gz",
        "chart": f"netinit-chart-{version}.tgz",
        "plugin": f"kubectl-netinit-{version}.tar.gz",
        "krew": "krew-netinit.yaml",
    }


# ---- build --------------------------------------------------------------------------------------------------------------


def build(folder: Path, home: str, root: Path = ROOT) -> None:
    """Makes the chart, the plugin's archive and its manifest in the folder. `home`: the address of the repository."""
    version, epoch = read_version(root), int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
    names = name_pieces(version)
    chart = root / "netinit/data/chart"
    files = [(f"netinit/{path.relative_to(chart)}", path.read_bytes(), 0o644) for path in sorted(chart.rglob("*")) if path.is_file()]
    write_archive(folder / names["chart"], files, epoch)
    write_archive(folder / names["plugin"], [*_list_plugin(folder / names["wheel"], root)], epoch)
    digest = hashlib.sha256((folder / names["plugin"]).read_bytes()).hexdigest()
    (folder / names["krew"]).write_text(render_krew(version, home, names["plugin"], digest), "utf-8")


def _list_plugin(wheel: Path, root: Path) -> Iterator[tuple[str, bytes, int]]:
    yield "kubectl-netinit", LAUNCHER.encode(), 0o755
    yield "LICENSE", (root / "LICENSE").read_bytes(), 0o644
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if name.startswith("netinit/") and not name.endswith("/") and not LEFT_OUT.search(name):
                yield f"lib/{name}", archive.read(name), 0o644
    for package in VENDORED:
        for file in sorted(importlib.metadata.files(package) or [], key=str):
            if not LEFT_OUT.search(str(file)) and not str(file).startswith(".."):
                yield f"lib/{file}", Path(file.locate()).read_bytes(), 0o644


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


def render_krew(version: str, home: str, archive: str, digest: str) -> str:
    """The manifest for krew's index."""
    text = "Explains, audits, compares and repairs the iptables and nftables rules of pods in a service mesh, with your kubectl and your rights."
    tree = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2", "kind": "Plugin", "metadata": {"name": "netinit"},
        "spec": {
            "version": f"v{version}", "homepage": home, "shortDescription": "Explain and audit the rules of pods in a mesh", "description": text,
            "caveats": "It needs Python 3.11 or newer as python3. Live rules are read through netinit's node agent or an ephemeral container.",
            "platforms": [{
                "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux"]}]},
                "uri": f"{home}/releases/download/v{version}/{archive}", "sha256": digest, "bin": "kubectl-netinit",
            }],
        },
    }  # fmt: skip
    return yaml.safe_dump(tree, sort_keys=False, width=1000)


# ---- check --------------------------------------------------------------------------------------------------------------


def check(folder: Path, root: Path = ROOT, tag: str = "") -> list[str]:
    """A line for each piece that is missing or wrong; none where the release is whole."""
    version = read_version(root)
    names = name_pieces(version)
    wrong = [f"{word}: {name} is missing" for word, name in names.items() if not (folder / name).is_file()]
    wrong += [f"tag: {tag} is not v{version}, the version of the sources"] * bool(tag and tag != f"v{version}")
    wrong += _check_texts(root, version, tagged=bool(tag))
    if any(one.endswith("is missing") for one in wrong):
        return wrong
    opened = (_check_wheel(folder / names["wheel"], version), _check_chart(folder / names["chart"], version), _check_plugin(folder, names, version))
    return [*wrong, *[line for lines in opened for line in lines]]


def _check_texts(root: Path, version: str, *, tagged: bool) -> Iterator[str]:
    chart = yaml.safe_load((root / "netinit/data/chart/Chart.yaml").read_text("utf-8"))
    for key in ("version", "appVersion"):
        if chart[key] != version:
            yield f"chart: {key} is {chart[key]}, the sources are {version}"
    others = sorted(set(re.findall(r"^ARG VERSION=(.*)$", (root / "Dockerfile").read_text("utf-8"), re.MULTILINE)) - {version})
    if others:
        yield f"Dockerfile: VERSION is {', '.join(others)}, the sources are {version}"
    if tagged and f"## [{version}]" not in (root / "CHANGELOG.md").read_text("utf-8"):
        yield f"CHANGELOG.md: has no section of {version}"


def _check_wheel(path: Path, version: str) -> Iterator[str]:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        told = archive.read(f"netinit-{version}.dist-info/METADATA").decode()
    if f"\nVersion: {version}\n" not in told:
        yield f"wheel: its metadata is not of {version}"
    sources = {str(one.relative_to(ROOT)) for one in (ROOT / "netinit").rglob("*") if one.is_file() and "__pycache__" not in one.parts}
    for name in sorted(one for one in names if one.startswith("netinit/") and one not in sources):
        yield f"wheel: {name} is no file of the sources"
    for name in ("kubectl-netinit", "kubectl_complete-netinit", "netinit"):
        if f"netinit-{version}.data/scripts/{name}" not in names:
            yield f"wheel: the script {name} is missing"


def _check_chart(path: Path, version: str) -> Iterator[str]:
    with tarfile.open(path) as archive:
        told = yaml.safe_load(archive.extractfile("netinit/Chart.yaml").read())
        names = archive.getnames()
    if (told["name"], told["version"]) != ("netinit", version):
        yield f"chart: it is {told['name']} {told['version']}"
    if "netinit/values.schema.json" not in names or not any(name.startswith("netinit/templates/") for name in names):
        yield "chart: templates or the schema of its values are missing"


def _check_plugin(folder: Path, names: dict[str, str], version: str) -> Iterator[str]:
    manifest = yaml.safe_load((folder / names["krew"]).read_text("utf-8"))
    (platform,) = manifest["spec"]["platforms"]
    digest = hashlib.sha256((folder / names["plugin"]).read_bytes()).hexdigest()
    if platform["sha256"] != digest:
        yield f"krew: its sum is not that of {names['plugin']}"
    if manifest["spec"]["version"] != f"v{version}" or not platform["uri"].endswith(f"/v{version}/{names['plugin']}"):
        yield f"krew: it is not of {version}"
    with tempfile.TemporaryDirectory() as place:
        subprocess.run(["tar", "-xf", folder / names["plugin"], "-C", place], check=True, timeout=60)
        done = subprocess.run([f"{place}/{platform['bin']}", "--help"], capture_output=True, text=True, check=False, timeout=60)
        if done.returncode or "explain" not in done.stdout:
            yield f"plugin: kubectl-netinit --help ended with {done.returncode}: {done.stderr.strip()}"


def main(words: list[str]) -> int:
    """Builds or checks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("build", "check"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--home", default="https://example.invalid/netinit", help="the address of the repository")
    parser.add_argument("--tag", default="", help="the tag that is released")
    given = parser.parse_args(words)
    if given.what == "build":
        build(given.folder, given.home)
        return 0
    wrong = check(given.folder, tag=given.tag)
    for line in wrong:
        print(line, file=sys.stderr)
    if not wrong:
        print(f"the release is whole: {', '.join(name_pieces(read_version()).values())}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
