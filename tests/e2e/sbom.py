"""Writes what an image holds as a bill of materials: sbom.py ROOTFS OUTPUT, in CycloneDX 1.6 (JSON).

ROOTFS is the folder of an image's files, nothing of which is run. Debian's packages are read from /var/lib/dpkg/status.d
(one paragraph a file, as in images without dpkg) or /var/lib/dpkg/status, Python's from their *.dist-info folders. The
same files give the same bytes: the time is that of SOURCE_DATE_EPOCH, or left out, and the serial number is made of the
content.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.spdx import is_expression, is_supported_id
from packageurl import PackageURL

ROOT = "netinit"
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "cyclonedx.netinit")
_UNKNOWN_SERIAL = uuid.UUID(int=0)

# How packages without an SPDX expression name their licence.
_SPDX = {
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "Expat": "MIT",
    "MIT License": "MIT",
}
_COPYLEFT = re.compile(r"((?:A|L)?GPL)-?([0-9.]+)(\+?)\Z")


class SbomError(Exception):
    """The folder does not hold what a bill of materials is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package found in the image; `needs` are names of others, each a choice of which one may be there."""

    name: str
    version: str
    purl: PackageURL
    licenses: tuple[str, ...] = ()
    description: str = ""
    homepage: str = ""
    needs: tuple[tuple[str, ...], ...] = ()
    gives: tuple[str, ...] = ()

    @property
    def reference(self) -> str:
        """What names it inside the document."""
        return self.purl.to_string()


# --- Debian ------------------------------------------------------------------------------------------------------


def find_debian_packages(root: Path) -> list[Package]:
    """The installed packages, by name. SbomError where the image has no list of them."""
    folder, file = root / "var/lib/dpkg/status.d", root / "var/lib/dpkg/status"
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    files += [file] if file.is_file() else []
    distro = "-".join(text for text in find_system(root) if text)
    found = {}
    for one in files:
        for paragraph in re.split(r"\n\s*\n", one.read_text(encoding="utf-8", errors="replace")):
            fields = _fields(paragraph)
            if {"Package", "Version"} <= fields.keys() and fields.get("Status", "installed").endswith("installed"):
                package = _debian_package(fields, distro, root)
                found[package.reference] = package
    if not found:
        raise SbomError(f"{root}: no package in var/lib/dpkg/status.d or var/lib/dpkg/status; is this an image's root?")
    return sorted(found.values(), key=lambda package: package.reference)


def _fields(paragraph: str) -> dict[str, str]:
    """The fields of a control paragraph; what a field says on further lines follows after line breaks."""
    result: dict[str, str] = {}
    name = ""
    for line in paragraph.strip("\n").split("\n"):
        if line[:1] in (" ", "\t"):
            result[name] = f"{result.get(name, '')}\n{line.strip()}"
        else:
            name, _, text = line.partition(":")
            result[name] = text.strip()
    return result


def _debian_package(fields: Mapping[str, str], distro: str, root: Path) -> Package:
    name, version = fields["Package"], fields["Version"]
    source, _, source_version = fields.get("Source", name).partition(" ")
    qualifiers = {"arch": fields.get("Architecture", ""), "distro": distro}
    if source != name or source_version:  # advisories are about source packages
        qualifiers["upstream"] = source + (f"@{source_version.strip(' ()')}" if source_version else "")
    relations = ", ".join(fields[key] for key in ("Pre-Depends", "Depends") if fields.get(key))
    return Package(
        name=name,
        version=version,
        purl=PackageURL("deb", "debian", name, version, {key: text for key, text in qualifiers.items() if text}),
        licenses=_debian_licenses(root, name),
        description=fields.get("Description", "").partition("\n")[0],
        homepage=fields.get("Homepage", ""),
        needs=tuple(_names(choice.split("|")) for choice in relations.split(",") if choice.strip()),
        gives=_names(fields.get("Provides", "").split(",")),
    )


def _names(relations: Iterable[str]) -> tuple[str, ...]:
    return tuple(re.split(r"[\s(:\[]", one.strip(), maxsplit=1)[0] for one in relations if one.strip())


def _read(root: Path, name: str) -> str:
    """A file's text; empty where the image has none. A link that leads out of the image is about another machine."""
    file = (root / name).resolve()
    inside = file.is_relative_to(root.resolve()) and file.is_file()
    return file.read_text(encoding="utf-8", errors="replace") if inside else ""


def find_system(root: Path) -> tuple[str, str]:
    """The operating system's id and version as /etc/os-release has them, empty where it says nothing."""
    text = _read(root, "etc/os-release") or _read(root, "usr/lib/os-release")
    found = dict(re.findall(r'^(ID|VERSION_ID)="?([^"\n]*)"?$', text, re.MULTILINE))
    return found.get("ID", ""), found.get("VERSION_ID", "")


def _debian_licenses(root: Path, name: str) -> tuple[str, ...]:
    """The licences of a machine-readable copyright file (DEP-5), those of the packaging left out."""
    text = _read(root, f"usr/share/doc/{name}/copyright")
    if "copyright-format" not in text.partition("\n")[0]:
        return ()
    found = set()
    for paragraph in re.split(r"\n\s*\n", text):
        fields = _fields(paragraph)
        if "Files" in fields and not fields["Files"].startswith("debian/") and fields.get("License"):
            found.add(fields["License"].partition("\n")[0])
    return tuple(sorted(found))


# --- Python ------------------------------------------------------------------------------------------------------


def find_python_packages(root: Path) -> list[Package]:
    """The distributions installed anywhere in the image, by name."""
    found = (_python_package(path / "METADATA") for path in _dist_infos(root))
    return sorted({package.reference: package for package in found}.values(), key=lambda package: package.reference)


def _dist_infos(root: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(root):  # which follows no links out of the image
        yield from (Path(folder, name) for name in names if name.endswith(".dist-info"))


def _python_package(file: Path) -> Package:
    metadata = HeaderParser().parsestr(file.read_text(encoding="utf-8"))
    name = _normalized(metadata["Name"])
    required = [text for text in metadata.get_all("Requires-Dist", ()) if "extra ==" not in text]
    needs = tuple((_normalized(re.split(r"[^A-Za-z0-9._-]", text, maxsplit=1)[0]),) for text in required)
    urls = dict(re.split(r",\s*", url, maxsplit=1) for url in metadata.get_all("Project-URL", ()) if "," in url)
    return Package(
        name=name,
        version=metadata["Version"],
        purl=PackageURL("pypi", None, name, metadata["Version"]),
        licenses=_python_licenses(metadata),
        description=metadata.get("Summary") or "",
        homepage=metadata.get("Home-page") or urls.get("Homepage", ""),
        needs=needs,
    )


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _python_licenses(metadata: Message) -> tuple[str, ...]:
    """The expression, else the short text, else the classifiers."""
    for key in ("License-Expression", "License"):
        text = (metadata.get(key) or "").strip()
        if text and "\n" not in text and text != "UNKNOWN":
            return (text,)
    classifiers = metadata.get_all("Classifier", ())
    return tuple(one.rpartition(" :: ")[2] for one in classifiers if one.startswith("License :: "))


# --- the document ------------------------------------------------------------------------------------------------


def make_bom(root: Path, moment: datetime | None) -> Bom:
    """The bill of materials of the image whose files are in the folder. SbomError."""
    debian, python = find_debian_packages(root), find_python_packages(root)
    own = [package for package in python if package.name == ROOT]
    if len(own) != 1:
        raise SbomError(
            f"{root}: {len(own)} distributions are called {ROOT}; one {ROOT}-VERSION.dist-info must be there"
        )
    bom = Bom(serial_number=_UNKNOWN_SERIAL)
    bom.metadata.timestamp = moment  # type: ignore[assignment] # the format may leave it out
    bom.metadata.component = _component(own[0], ComponentType.APPLICATION)
    others = [package for package in (*debian, *python) if package.name != ROOT]
    components = {package.reference: _component(package, ComponentType.LIBRARY) for package in others}
    bom.components.update(components.values())
    system, version = find_system(root)
    if system:  # by which scanners choose their advisories
        kind = ComponentType.OPERATING_SYSTEM
        bom.components.add(Component(type=kind, name=system, version=version or None, bom_ref=f"{system}-{version}"))
    edges = {**_edges(debian), **_edges(python)}
    needed = {reference for package in others for reference in edges[package.reference]}
    edges[own[0].reference] |= components.keys() - needed  # what nothing else asked for is there for our sake
    components[own[0].reference] = bom.metadata.component
    for reference, wanted in edges.items():
        bom.register_dependency(components[reference], [components[one] for one in sorted(wanted)])
    return bom


def _edges(packages: Iterable[Package]) -> dict[str, set[str]]:
    """What each package needs of the others that are there. Names that are not there were not needed to run."""
    there: dict[str, str] = {}
    for package in packages:
        for name in package.gives:
            there.setdefault(name, package.reference)
    there.update({package.name: package.reference for package in packages})
    result = {}
    for package in packages:
        chosen = (next((there[name] for name in choice if name in there), "") for choice in package.needs)
        result[package.reference] = {one for one in chosen if one} - {package.reference}
    return result


def _component(package: Package, kind: ComponentType) -> Component:
    home = (
        [ExternalReference(type=ExternalReferenceType.WEBSITE, url=XsUri(package.homepage))] if package.homepage else []
    )
    return Component(
        type=kind,
        bom_ref=package.reference,
        name=package.name,
        version=package.version,
        purl=package.purl,
        description=package.description or None,
        licenses=_licenses(package.licenses),
        external_references=home,
    )


def _licenses(texts: Iterable[str]) -> list[LicenseExpression | DisjunctiveLicense]:
    """As SPDX identifiers or an expression where the texts are such, else by name. An expression stands alone."""
    known = [_spdx(text) for text in texts]
    if len(known) == 1 and not is_supported_id(known[0]) and is_expression(known[0]):
        return [LicenseExpression(known[0])]
    return [DisjunctiveLicense(id=one) if is_supported_id(one) else DisjunctiveLicense(name=one) for one in known]


def _spdx(text: str) -> str:
    if found := _COPYLEFT.fullmatch(text):
        version = found[2] if "." in found[2] else f"{found[2]}.0"
        return f"{found[1]}-{version}-{'or-later' if found[3] else 'only'}"
    return _SPDX.get(text, text)


def render(bom: Bom) -> str:
    """The document as text; its serial number is made of everything else in it."""
    bom.serial_number = _UNKNOWN_SERIAL
    content = JsonV1Dot6(bom).output_as_string(indent=2)
    bom.serial_number = uuid.uuid5(_NAMESPACE, content)
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Write what an image holds as CycloneDX 1.6 (JSON).")
    parser.add_argument("rootfs", type=Path, metavar="ROOTFS", help="a folder with the files of the image")
    parser.add_argument("output", type=Path, metavar="OUTPUT", help="where the document goes")
    arguments = parser.parse_args()
    if not arguments.rootfs.is_dir():
        parser.error(f"ROOTFS: {arguments.rootfs} is no folder; export the image's files into one")
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not re.fullmatch(r"[0-9]{0,11}", epoch):
        parser.error(f"SOURCE_DATE_EPOCH: {epoch!r} is no number of seconds since 1970")
    moment = datetime.fromtimestamp(int(epoch), UTC) if epoch else None
    try:
        text = render(make_bom(arguments.rootfs, moment))
        arguments.output.write_text(text, encoding="utf-8")
    except (SbomError, OSError) as error:
        sys.stderr.write(f"sbom: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
