"""The bill of materials: complete, valid, and the same bytes for the same files."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from containers import Image
from engine import BUILDING, ROOT

PROGRAM = Path(__file__).with_name("sbom.py")
EPOCH = "1700000000"

pytestmark = pytest.mark.usefixtures("cyclonedx")

LIBC = """\
Package: libc6
Status: install ok installed
Architecture: amd64
Multi-Arch: same
Source: glibc
Version: 2.36-9+deb12u10
Depends: libgcc-s1
Description: GNU C Library: Shared libraries
 Contains the standard libraries.
 .
 Depends: in a description is no field.
Homepage: https://www.gnu.org/software/libc/libc.html
"""
IPTABLES = """\
Package: iptables
Status: install ok installed
Architecture: amd64
Version: 1.8.9-2
Provides: xtables (= 1.8.9),
 filter
Pre-Depends: libc6 (>= 2.36)
Depends: absent | libmnl0:any (>= 1.0.3-4~),
 nothing (>= 1)
Description: administration tools for packet filtering and NAT
"""
LIBMNL = """\
Package: libmnl0
Status: install ok installed
Architecture: amd64
Version: 1.0.4-3
Source: libmnl (1.0.4-2)
Depends: libc6 (>= 2.14)
Description: minimalistic Netlink communication library
"""
FRONTEND = """\
Package: frontend
Status: install ok installed
Architecture: all
Version: 1:2.0~rc1
Depends: filter
Description: needs something virtual
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: libmnl

Files: *
Copyright: somebody
License: LGPL-2.1+

Files: tool.c
Copyright: somebody
License: Expat

Files: debian/*
Copyright: somebody else
License: GPL-2+

License: LGPL-2.1+
 The text.
"""
NETINIT = """\
Metadata-Version: 2.1
Name: netinit
Version: 0.1.0
Summary: The interception layer
License: Apache-2.0
Requires-Dist: Click>=8.1
Requires-Dist: py_yaml>=6.0
Requires-Dist: pytest>=8; extra == "dev"
Requires-Dist: absent; sys_platform == "win32"
"""
CLICK = "Metadata-Version: 2.4\nName: click\nVersion: 8.5.1\nLicense-Expression: BSD-3-Clause\n"
YAML = "Metadata-Version: 2.4\nName: Py.YAML\nVersion: 6.0.3\nLicense-Expression: MIT OR Apache-2.0\n"
PYTEST = "Metadata-Version: 2.1\nName: pytest\nVersion: 9\nClassifier: License :: OSI Approved :: MIT License\n"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def rootfs(tmp_path):
    """A small image: four packages of Debian's, four distributions of Python's."""
    root = tmp_path / "root"
    for text in (LIBC, IPTABLES, LIBMNL, FRONTEND):
        write(root / "var/lib/dpkg/status.d" / text.split()[1], text)
    write(root / "var/lib/dpkg/status.d/libc6.md5sums", "0123456789abcdef0123456789abcdef  lib/libc.so.6\n")
    write(root / "usr/share/doc/libmnl0/copyright", COPYRIGHT)
    write(root / "etc/os-release", 'PRETTY_NAME="Debian"\nVERSION_ID="12"\nID=debian\n')
    for name, text in (
        ("netinit-0.1.0", NETINIT),
        ("click-8.5.1", CLICK),
        ("py_yaml-6.0.3", YAML),
        ("pytest-9", PYTEST),
    ):
        write(root / "usr/lib/netinit" / f"{name}.dist-info" / "METADATA", text)
    return root


def start(root, output, epoch=EPOCH):
    environment = {key: text for key, text in os.environ.items() if key != "SOURCE_DATE_EPOCH"}
    environment |= {} if epoch is None else {"SOURCE_DATE_EPOCH": epoch}
    command = [sys.executable, PROGRAM, root, output]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def write_sbom(root, epoch=EPOCH):
    output = root.with_name(f"sbom-{epoch}.json")
    done = start(root, output, epoch)
    assert done.returncode == 0, done.stderr
    return output.read_text()


def validate(text):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert error is None, error


def licenses(component):
    return [entry.get("expression") or next(iter(entry["license"].values())) for entry in component.get("licenses", ())]


def by_name(document):
    return {one["name"]: one for one in document["components"]}


def graph(document):
    """Names of what each component needs, by name."""
    names = {one["bom-ref"]: one["name"] for one in [*document["components"], document["metadata"]["component"]]}
    return {names[one["ref"]]: {names[ref] for ref in one.get("dependsOn", ())} for one in document["dependencies"]}


def test_the_document_follows_the_schema_with_and_without_a_time(rootfs):
    for epoch in (EPOCH, None):
        validate(write_sbom(rootfs, epoch))


def test_every_package_of_the_image_is_named_by_its_purl(rootfs):
    document = json.loads(write_sbom(rootfs))
    assert {one["purl"] for one in document["components"] if "purl" in one} == {
        "pkg:deb/debian/frontend@1:2.0~rc1?arch=all&distro=debian-12",
        "pkg:deb/debian/iptables@1.8.9-2?arch=amd64&distro=debian-12",
        "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=debian-12&upstream=glibc",
        "pkg:deb/debian/libmnl0@1.0.4-3?arch=amd64&distro=debian-12&upstream=libmnl%401.0.4-2",
        "pkg:pypi/click@8.5.1",
        "pkg:pypi/py-yaml@6.0.3",
        "pkg:pypi/pytest@9",
    }
    (system,) = [one for one in document["components"] if one["type"] == "operating-system"]
    assert (system["name"], system["version"]) == ("debian", "12")


def test_netinit_is_what_the_document_is_about(rootfs):
    about = json.loads(write_sbom(rootfs))["metadata"]["component"]
    assert (about["name"], about["version"], about["purl"]) == ("netinit", "0.1.0", "pkg:pypi/netinit@0.1.0")
    assert licenses(about) == ["Apache-2.0"]


def test_licences_are_spdx_where_the_packages_name_them(rootfs):
    found = by_name(json.loads(write_sbom(rootfs)))
    assert licenses(found["click"]) == ["BSD-3-Clause"]
    assert licenses(found["py-yaml"]) == ["MIT OR Apache-2.0"]
    assert licenses(found["pytest"]) == ["MIT"]
    assert licenses(found["libmnl0"]) == ["LGPL-2.1-or-later", "MIT"]
    assert licenses(found["libc6"]) == [], "the image does not say"


def test_a_link_that_leads_out_of_the_image_is_not_followed(rootfs, tmp_path):
    notice = rootfs / "usr/share/doc/libmnl0/copyright"
    (tmp_path / "copyright").write_text(COPYRIGHT)
    notice.unlink()
    notice.symlink_to(tmp_path / "copyright")
    assert licenses(by_name(json.loads(write_sbom(rootfs)))["libmnl0"]) == []


def test_dependencies_are_those_that_the_packages_declare_and_the_image_has(rootfs):
    assert graph(json.loads(write_sbom(rootfs))) == {
        "netinit": {"click", "py-yaml", "pytest", "frontend"},  # and what nothing else needs is there for netinit
        "frontend": {"iptables"},
        "iptables": {"libc6", "libmnl0"},
        "libmnl0": {"libc6"},
        "libc6": set(),
        "debian": set(),
        "click": set(),
        "py-yaml": set(),
        "pytest": set(),
    }


def test_the_same_files_give_the_same_bytes(rootfs, tmp_path):
    first = write_sbom(rootfs)
    other = tmp_path / "elsewhere" / "root"
    for path in sorted(rootfs.rglob("*"), reverse=True):  # the same files, made in another order
        if path.is_file():
            write(other / path.relative_to(rootfs), path.read_text())
    assert write_sbom(other) == first


def test_the_time_is_that_of_the_sources(rootfs):
    document = json.loads(write_sbom(rootfs))
    assert document["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert "timestamp" not in json.loads(write_sbom(rootfs, None))["metadata"]


def test_the_serial_number_is_made_of_the_content(rootfs):
    first = json.loads(write_sbom(rootfs))["serialNumber"]
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", first)
    write(rootfs / "var/lib/dpkg/status.d/libmnl0", LIBMNL.replace("1.0.4-3", "1.0.4-4"))
    assert json.loads(write_sbom(rootfs))["serialNumber"] != first


def test_the_list_of_an_image_with_dpkg_is_read_too(rootfs):
    folder = rootfs / "var/lib/dpkg"
    removed = FRONTEND.replace("install ok installed", "deinstall ok config-files")
    (folder / "status").write_text(f"{LIBC}\n{IPTABLES}\n{LIBMNL}\n{removed}")
    for path in (folder / "status.d").iterdir():
        path.unlink()
    names = set(by_name(json.loads(write_sbom(rootfs))))
    assert {"libc6", "iptables", "libmnl0"} <= names
    assert "frontend" not in names, "only its configuration is left"


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        ("rm -r var", "no package in var/lib/dpkg/status.d or var/lib/dpkg/status"),
        ("rm -r usr/lib/netinit/netinit-0.1.0.dist-info", "0 distributions are called netinit"),
        ("cp -r usr/lib/netinit/netinit-0.1.0.dist-info usr", ""),
    ],
)
def test_a_folder_that_is_no_image_is_refused_in_one_line(rootfs, tmp_path, damage, complaint):
    subprocess.run(["sh", "-c", damage], cwd=rootfs, check=True)
    done = start(rootfs, tmp_path / "out.json")
    assert complaint in done.stderr
    assert done.returncode == bool(complaint), done.stderr
    assert done.stderr.count("\n") == bool(complaint)
    assert (tmp_path / "out.json").exists() != bool(complaint)


def test_arguments_that_make_no_sense_are_told(rootfs, tmp_path):
    missing = start(tmp_path / "missing", tmp_path / "out.json")
    assert missing.returncode == 2
    assert "is no folder" in missing.stderr
    odd = start(rootfs, tmp_path / "out.json", "yesterday")
    assert odd.returncode == 2
    assert "SOURCE_DATE_EPOCH: 'yesterday'" in odd.stderr


def test_the_image_s_own_document_is_valid_and_names_what_does_the_work(files, tmp_path):
    output = tmp_path / "sbom.json"
    done = start(files, output)
    assert done.returncode == 0, done.stderr
    validate(output.read_text())
    document = json.loads(output.read_text())
    assert document["metadata"]["component"]["name"] == "netinit"
    found = by_name(document)
    assert {"libpython3.11-minimal", "libc6-dev", "zlib1g-dev", "click", "pyyaml"} <= found.keys()
    listed = {path.name for path in (files / "var/lib/dpkg/status.d").iterdir()}
    assert listed <= found.keys(), "a package is missing from the document"


def test_make_sbom_builds_the_image_of_these_sources_and_writes_its_document(engine, image, tmp_path):
    name, output, tools = "localhost/netinit-sbom", tmp_path / "sbom.json", Path(sys.executable).parent
    installed = [f"--old-file=.venv/{stamp}" for stamp in (".installed", ".installed-release")]
    done = engine.do(
        ["make", "--no-print-directory", "-C", str(ROOT), *installed, "sbom", f"BIN={tools}", f"SBOM={output}", *engine.variables(name)], timeout=BUILDING
    )
    assert done.stdout.splitlines()[-1] == str(output)
    validate(output.read_text())
    assert {"libpython3.11-minimal", "libc6-dev", "click"} <= by_name(json.loads(output.read_text())).keys()
    revision = Image(engine, name).configuration["Labels"]["org.opencontainers.image.revision"]
    told = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    assert revision == told.stdout.strip() or told.returncode
