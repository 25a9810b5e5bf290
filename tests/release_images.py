"""The images of a release as files: an OCI archive of each with the list of what it holds (SBOM), made by podman or docker and opened again;
and the static executable out of its image, with its list and its licences.

`python tests/release_images.py IMAGE FILE --engine podman` writes the list of an image that is there (`make sbom`).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from executable_commands import try_commands
from image_licenses import IMAGES, read_debian_packages, read_label

ROOT = Path(__file__).parents[1]
WRITER = Path(__file__).with_name("e2e") / "sbom.py"
LICENCES = ("LGPL-2.1", "GPL-2", "GPL-3", "Apache-2.0")  # whose texts Debian keeps in one place; copyright files refer to them
BUILDING = 1800  # seconds for one image: a slow mirror, not a hanging one
ENTRY = ["/usr/bin/netinit"]
MACHINES = {"amd64": 62, "arm64": 183}  # e_machine of elf.h
PROGRAM = "netinit-linux-"  # how the file of an executable is called, before its architecture


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageBuild:
    """How the images of a release are built: `flags` go to the engine's build; `commit` is the label org.opencontainers.image.revision.

    `executables` is a folder of executables that have been made, of other machines too; without it, this machine's is made with the images.
    """

    stages: tuple[str, ...] = ()
    engine: str = ""
    flags: str = ""
    commit: str = ""
    executables: Path | None = None

    @property
    def architectures(self) -> tuple[str, ...]:
        """Those of the executables."""
        if self.executables:
            return tuple(sorted(path.name.removeprefix(PROGRAM) for path in self.executables.glob(f"{PROGRAM}*") if not path.suffix))
        return (name_architecture(),) if self.stages else ()


EXECUTABLE = "init"  # the stage of the image that holds the static executable


def find_stages(root: Path = ROOT) -> tuple[str, ...]:
    """The images of a release that the Dockerfile describes, by the names of their stages."""
    return tuple(re.findall(r"^FROM scratch AS (\S+)$", (root / "Dockerfile").read_text("utf-8"), re.MULTILINE))


def name_image(stage: str) -> str:
    """What an image is called: netinit, netinit-webhook, netinit-node."""
    return "netinit" + ("" if stage == "init" else f"-{stage}")


def name_architecture() -> str:
    """This machine's architecture, as images name it."""
    machine = platform.machine()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def name_files(stages: Iterable[str], version: str) -> dict[str, str]:
    """A word and a file for each image, and for the list of what it holds."""
    files = {}
    for stage in stages:
        name = f"{name_image(stage)}-{version}-{name_architecture()}"
        files |= {f"image {stage}": f"{name}.oci.tar", f"sbom {stage}": f"{name}.cdx.json"}
    return files


def name_executables(architectures: Iterable[str]) -> dict[str, str]:
    """A word and a file for each executable, for the list of what it holds, and for the licences of that."""
    files = {}
    for one in architectures:
        name = f"{PROGRAM}{one}"
        files |= {f"executable {one}": name, f"executable sbom {one}": f"{name}.cdx.json", f"executable licences {one}": f"{name}.licences.txt"}
    return files


def build_images(folder: Path, root: Path, version: str, plan: ImageBuild) -> None:
    """Builds the images of the sources in `root` with the project's own command, and writes their files into the folder."""
    for stage in plan.stages:
        image, names = _build_image(stage, root, version, plan), name_files([stage], version)
        save_image(image, folder / names[f"image {stage}"], plan.engine)
        write_sbom(image, folder / names[f"sbom {stage}"], plan.engine)


def _build_image(stage: str, root: Path, version: str, plan: ImageBuild) -> str:
    image = f"{name_image(stage)}:{version}"
    variables = [f"ENGINE={plan.engine}", f"IMAGE={image}", f"COMMIT={plan.commit}", f"IMAGE_FLAGS=--target {stage} {plan.flags}"]
    _run("make", "--no-print-directory", "-C", str(root), "image", *variables)
    return image


def build_executables(folder: Path, root: Path, version: str, plan: ImageBuild) -> None:
    """Writes the files of the executables that have been made, or else makes this machine's out of its image."""
    if plan.executables:
        for name in name_executables(plan.architectures).values():
            shutil.copyfile(plan.executables / name, folder / name)
            if name.startswith(PROGRAM) and "." not in name:
                (folder / name).chmod(0o755)
    elif plan.stages:
        with _unpacked(_build_image(EXECUTABLE, root, version, plan), plan.engine) as rootfs:
            take_executable(rootfs, folder, name_architecture())


def take_executable(rootfs: Path, folder: Path, architecture: str) -> None:
    """Writes the files of the executable in an image's files. Its licences are those of the packages that it is linked of."""
    program, sbom, licences = (folder / name for name in name_executables([architecture]).values())
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(rootfs / ENTRY[0].removeprefix("/"), program)
    program.chmod(0o755)
    _run(sys.executable, str(WRITER), str(rootfs), str(sbom))
    documents = rootfs / "usr/share/doc"
    told = [documents / "netinit/LICENSE", documents / "netinit/relink", *sorted(documents.glob("*/copyright"))]
    told += sorted(path for path in rootfs.glob("usr/lib/netinit/*.dist-info/**/*") if path.name.startswith(("LICENSE", "LICENCE")))
    told += [rootfs / "usr/share/common-licenses" / name for name in LICENCES]
    parts = [f"==== {path.relative_to(rootfs)}\n\n{path.read_text('utf-8', 'replace').rstrip()}\n" for path in told]
    licences.write_text("\n".join(parts), "utf-8")


def save_image(image: str, path: Path, engine: str) -> None:
    """Writes an image as an OCI archive whose bytes follow from its blobs alone: the engine's archive has the time of its making."""
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        saved = Path(place, "saved.tar")
        _run(engine, "save", *(["--format", "oci-archive"] if Path(engine).name == "podman" else []), "--output", str(saved), image)
        epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))
        with tarfile.open(saved) as archive, tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as plain:
            for member in sorted((one for one in archive if one.isfile()), key=lambda one: one.name):
                entry = tarfile.TarInfo(member.name)
                entry.size, entry.mode, entry.mtime = member.size, 0o644, epoch
                plain.addfile(entry, archive.extractfile(member))


def write_sbom(image: str, path: Path, engine: str) -> None:
    """Writes what an image holds as CycloneDX; nothing of it is run."""
    with _unpacked(image, engine) as rootfs:
        path.parent.mkdir(parents=True, exist_ok=True)
        _run(sys.executable, str(WRITER), str(rootfs), str(path))


@contextlib.contextmanager
def _unpacked(image: str, engine: str) -> Iterator[Path]:
    """The files of an image, in a folder for a while."""
    with tempfile.TemporaryDirectory() as place:
        container = _run(engine, "create", image, "--version").strip()
        try:
            files = Path(place, "files.tar")
            _run(engine, "export", "--output", str(files), container)
            rootfs = Path(place, "rootfs")
            rootfs.mkdir()
            _run("tar", "--extract", "--no-same-owner", "--file", str(files), "--directory", str(rootfs))
            yield rootfs
        finally:
            _run(engine, "rm", container)


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=BUILDING, stdin=subprocess.DEVNULL)
    if done.returncode:
        last = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise SystemExit(f"{' '.join(command)}\nended with {done.returncode}:\n{last}")
    return done.stdout


# ---- check --------------------------------------------------------------------------------------------------------------


def check_images(folder: Path, stages: Iterable[str], version: str) -> Iterator[str]:
    """A line for everything that is wrong with the files of images."""
    for stage in stages:
        names = name_files([stage], version)
        yield from (f"image {stage}: {line}" for line in _check_archive(folder / names[f"image {stage}"], stage, version))
        yield from (f"sbom {stage}: {line}" for line in _check_sbom(folder / names[f"sbom {stage}"], stage, version))


def _check_sbom(path: Path, stage: str, version: str) -> Iterator[str]:
    told = json.loads(path.read_text("utf-8"))
    subject = told.get("metadata", {}).get("component", {})
    if (told.get("bomFormat"), subject.get("name"), subject.get("version")) != ("CycloneDX", "netinit", version):
        yield f"it does not describe netinit {version}"
    missing = {*read_debian_packages(IMAGES[stage][0])} - {one["name"] for one in told.get("components", ())}
    if missing:
        yield f"packages are missing: {', '.join(sorted(missing))}"


def check_executables(folder: Path, architectures: Iterable[str], version: str) -> Iterator[str]:
    """A line for everything that is wrong with the files of executables; this machine's is started."""
    for one in architectures:
        program, sbom, licences = (folder / name for name in name_executables([one]).values())
        with program.open("rb") as file:
            start = file.read(20)
        if (start[:4], int.from_bytes(start[18:20], "little")) != (b"\x7fELF", MACHINES.get(one)):
            yield f"executable {one}: it is no program for {one}"
        elif one == name_architecture():
            done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False, timeout=60)
            if done.stdout != f"netinit {version}\n":
                yield f"executable {one}: --version ended with {done.returncode}: {(done.stdout + done.stderr).strip()}"
            else:
                yield from (f"executable {one}: {line}" for line in try_commands(str(program)))
        yield from (f"executable sbom {one}: {line}" for line in _check_sbom(sbom, EXECUTABLE, version))
        text = licences.read_text("utf-8")
        wanted = [f"usr/share/doc/{package}/copyright" for package in read_debian_packages(IMAGES[EXECUTABLE][0])]
        for name in (*wanted, "usr/share/doc/netinit/relink", "usr/share/common-licenses/LGPL-2.1"):
            if f"==== {name}\n" not in text:
                yield f"executable licences {one}: {name} is missing"


def _check_archive(path: Path, stage: str, version: str) -> Iterator[str]:
    with tarfile.open(path) as archive:
        blobs = {one.name.removeprefix("blobs/sha256/"): one for one in archive if one.name.startswith("blobs/sha256/")}
        for digest, member in blobs.items():
            if hashlib.file_digest(io.BytesIO(archive.extractfile(member).read()), "sha256").hexdigest() != digest:
                yield f"the blob {digest} has other bytes than its name says"

        def read(digest: str) -> dict:
            return json.loads(archive.extractfile(blobs[digest.removeprefix("sha256:")]).read())

        index = json.loads(archive.extractfile("index.json").read())
        manifest = read(index["manifests"][0]["digest"])
        missing = [one["digest"] for one in (manifest["config"], *manifest["layers"]) if one["digest"].removeprefix("sha256:") not in blobs]
        if missing:
            yield f"blobs are missing: {', '.join(missing)}"
            return
        image = read(manifest["config"]["digest"])
    labels = image["config"].get("Labels", {})
    wanted = {"version": version, "title": name_image(stage), "licenses": read_label(stage)}
    for key, text in wanted.items():
        if labels.get(f"org.opencontainers.image.{key}") != text:
            yield f"its label {key} is {labels.get(f'org.opencontainers.image.{key}')}, not {text}"
    if image["architecture"] != name_architecture() or image["config"].get("Entrypoint") != ENTRY:
        yield f"it is for {image['architecture']} and starts {image['config'].get('Entrypoint')}"


def main(words: list[str]) -> None:
    """Writes the list of what one image holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image")
    parser.add_argument("file", type=Path)
    parser.add_argument("--engine", required=True)
    given = parser.parse_args(words)
    write_sbom(given.image, given.file, given.engine)
    print(given.file)


if __name__ == "__main__":
    main(sys.argv[1:])
