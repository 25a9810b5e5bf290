"""The licences of what each image holds, package by package: their sum is the image's label org.opencontainers.image.licenses.

OCI means the contained software, not netinit alone. Of a Debian package the licences of the files that an image takes of it count
(/usr/share/doc/PACKAGE/copyright), not those of its build, tests and manuals. `python tests/image_licenses.py`, at the top of a
checkout, prints the labels.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NETINIT = ("Apache-2.0",)
_GLIBC = ("BSD-3-Clause", "GPL-2.0-or-later", "ISC", "LGPL-2.1-or-later")
_PYTHON = ("Python-2.0",)
OF_DEBIAN = {
    "libexpat1": ("MIT",), "libffi8": ("MIT",), "netbase": ("GPL-2.0-only",),
    "musl-dev": ("BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"), "zlib1g": ("Zlib",), "libc-bin": _GLIBC, "libc6": _GLIBC,
    "libpython3.11-minimal": _PYTHON, "libpython3.11-stdlib": _PYTHON, "python3.11-minimal": _PYTHON,
    "libpython3.11-dev": _PYTHON, "libc6-dev": _GLIBC, "zlib1g-dev": ("Zlib",),
    "libgcc-s1": ("GPL-3.0-or-later WITH GCC-exception-3.1",), "libssl3": ("Apache-2.0",),
}  # fmt: skip
OF_PYTHON = {
    "anyio": "MIT", "cffi": "MIT-0", "click": "BSD-3-Clause", "cryptography": "Apache-2.0 OR BSD-3-Clause", "google-re2": "BSD-3-Clause",
    "h11": "MIT", "httpcore2": "BSD-3-Clause", "httptools": "MIT", "httpx2": "BSD-3-Clause", "idna": "BSD-3-Clause",
    "prometheus-client": "Apache-2.0 AND BSD-2-Clause", "pycparser": "BSD-3-Clause", "pyroute2": "GPL-2.0-or-later OR Apache-2.0",
    "pyyaml": "MIT", "truststore": "MIT", "typing-extensions": "PSF-2.0", "uvicorn": "BSD-3-Clause",
}  # fmt: skip
LOCK = "requirements/webhook.txt"
IMAGES = {  # stage of the Dockerfile -> its variable of Debian's packages, and those of the lock that it holds; none: all
    "init": ("PARTS", ("click", "pyyaml")), "webhook": ("SERVED", ()), "node": ("SERVED", ()),
}  # fmt: skip


def read_debian_packages(variable: str) -> list[str]:
    """The packages in a variable of the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text()
    (python,) = re.findall(r"^ARG PYTHON=(.+)$", text, re.MULTILINE)
    (value,) = re.findall(rf'\b{variable}="([^"]+)"', text)
    names = value.replace("\\\n", "").replace("${PYTHON}", python).split()
    return [package for name in names for package in (read_debian_packages(name[1:]) if name.startswith("$") else [name])]


def read_python_packages(stage: str) -> list[str]:
    """The distributions that an image holds."""
    return [*IMAGES[stage][1]] or re.findall(r"^([a-z0-9-]+)==", (ROOT / LOCK).read_text(), re.MULTILINE)


def find_licenses(stage: str) -> str:
    """The SPDX expression of an image. Raises KeyError for a package whose licences stand nowhere here."""
    found = {*NETINIT, *[one for name in read_debian_packages(IMAGES[stage][0]) for one in OF_DEBIAN[name]]}
    found |= {one for name in read_python_packages(stage) for one in OF_PYTHON[name].split(" AND ")}
    return " AND ".join([f"({one})" if " OR " in one else one for one in sorted(found)])


def read_label(stage: str) -> str:
    """The label of an image in the Dockerfile."""
    text = (ROOT / "Dockerfile").read_text()
    (part,) = re.findall(rf"^FROM scratch AS {stage}$(.*?)(?=^FROM |\Z)", text, re.MULTILINE | re.DOTALL)
    (label,) = re.findall(r'org\.opencontainers\.image\.licenses="([^"]*)"', part)
    return label


OF_COPYRIGHT = {  # a licence of Debian's copyright files -> its SPDX expression
    "Apache-2.0": "Apache-2.0", "BSD-3-clause": "BSD-3-Clause", "Expat": "MIT", "GPL-2": "GPL-2.0-only", "GPL-2+": "GPL-2.0-or-later",
    "GPL-2+ or LGPL-3+": "GPL-2.0-or-later OR LGPL-3.0-or-later", "GPL-2.0+": "GPL-2.0-or-later", "LGPL-2.1": "LGPL-2.1-or-later",
    "MIT": "MIT", "MIT/X11": "X11", "Zlib": "Zlib",
}  # fmt: skip


def find_main_license(copyright_text: str) -> str:
    """The licence of all files that a machine-readable copyright file (DEP-5) names no other for; empty if it is none."""
    found = re.search(r"^Files:\s+\*\n(?:\S.*\n|[ \t].*\n)*?License: *(.+)$", copyright_text, re.MULTILINE)
    return OF_COPYRIGHT[found[1]] if found else ""


if __name__ == "__main__":
    for name in IMAGES:
        print(f'{name}: org.opencontainers.image.licenses="{find_licenses(name)}"')
