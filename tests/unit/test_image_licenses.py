"""The label of each image names the licences of all that it holds, GPL programs included."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.licenses import canonicalize_license_expression

from image_licenses import (
    IMAGES,
    OF_DEBIAN,
    OF_PYTHON,
    find_licenses,
    find_main_license,
    read_debian_packages,
    read_label,
    read_python_packages,
)

ROOT = Path(__file__).parents[2]


def test_every_image_of_the_dockerfile_has_a_label_of_licences():
    assert re.findall(r"^FROM scratch AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE) == [
        "webhook", "node", "init",
    ]  # fmt: skip
    assert sorted(IMAGES) == ["init", "node", "webhook"]


@pytest.mark.parametrize("stage", IMAGES)
def test_the_label_is_the_spdx_expression_of_all_packages_of_the_image(stage):
    assert read_label(stage) == find_licenses(stage)
    assert canonicalize_license_expression(read_label(stage)) == read_label(stage)


def test_each_image_names_the_licence_of_the_c_library_and_that_of_what_it_alone_holds():
    assert [stage for stage in IMAGES if "LGPL-2.1-or-later" in read_label(stage)] == ["init", "webhook", "node"]
    assert [stage for stage in IMAGES if "GCC-exception-3.1" in read_label(stage)] == ["webhook", "node"]
    assert [stage for stage in IMAGES if "GPL-2.0-only" in read_label(stage)] == ["webhook", "node"]  # of netbase


def test_the_main_licence_of_a_copyright_file_is_that_of_all_files():
    text = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: debian/*\nLicense: Expat\n\n"
    stanza = "Files: *\nCopyright: 2000 A\n 2001 B\nComment: c\nLicense: GPL-2+ or LGPL-3+\n text\n"
    assert find_main_license(text + stanza) == "GPL-2.0-or-later OR LGPL-3.0-or-later"
    assert find_main_license("This package was debianized by\nLicense: GPL\n") == ""


def test_no_licence_stands_there_for_a_package_that_no_image_holds():
    debian = {name for variable, _ in IMAGES.values() for name in read_debian_packages(variable)}
    python = {name for stage in IMAGES for name in read_python_packages(stage)}
    assert (debian, python) == ({*OF_DEBIAN}, {*OF_PYTHON})
