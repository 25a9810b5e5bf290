# ruff: noqa: INP001 - mkdocs loads this file by its path
"""What mkdocs.yml does not say: pages and files of the project that stand outside of docs/.

Links are written so that they hold in the repository, `../examples/pod.yaml` say. For the site those files are copied
beside the pages, and the links to them are written anew.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

PAGES = {
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
    "changelog.d/README.md": "unreleased.md",
}
COPIES = (
    "LICENSE",
    "charts/netinit/values.yaml",
    "examples/*.yaml",
    "tests/bench/results/*.svg",
    "tests/conformance/compatibility.json",
)
_LINK = re.compile(r"(?<=\]\()(?!https?://|mailto:|#)([^)#\s]+)")
_SOURCES = {page: name for name, page in PAGES.items()}


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages and the files."""
    root = Path(config.config_file_path).parent
    for name, page in [(name, page) for name, page in PAGES.items() if (root / name).exists()]:  # a link to none is an error
        files.append(File.generated(config, page, abs_src_path=str(root / name)))
    for path in sorted(path for pattern in COPIES for path in root.glob(pattern)):
        files.append(File.generated(config, path.relative_to(root).as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page with links as the site has them."""
    here = page.file.src_uri
    source = posixpath.dirname(_SOURCES.get(here, f"docs/{here}"))

    def move(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(source, link[1]))
        return posixpath.relpath(PAGES.get(target, target.removeprefix("docs/")), posixpath.dirname(here) or ".")

    return _LINK.sub(move, markdown)
