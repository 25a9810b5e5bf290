# ruff: noqa: INP001 - mkdocs loads this file by its path
"""What mkdocs.yml does not say: pages and files of the project that stand outside of docs/.

Links are written so that they hold in the repository, `../examples/pod.yaml` say. For the site those files are copied
beside the pages, and the links to them are rewritten. The playground gets Python for browsers from the folder
NETINIT_PYODIDE, and what its answers import.
"""

from __future__ import annotations

import os
import posixpath
import re
import zipfile
from pathlib import Path
from typing import Any

import yaml
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
PLAYGROUND = "playground.md"
ROOMS = ("base", "data", "golang", "inject", "live", "options", "questions", "rules", "simulate")
"""What the playground's answers stand on; without the chart and the schemas, which are not asked."""
RUNTIME = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json", "python_stdlib.zip")
GRAPHVIZ = "../@viz-js/viz/dist/viz.js"
_OWN_HOST_ALONE = (
    '<meta http-equiv="Content-Security-Policy" content="default-src \'self\'; script-src \'self\' \'unsafe-inline\';'
    " style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'\">"
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


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """The playground's page, which may ask no other host, whatever is pasted."""
    return output.replace("<head>", f"<head>{_OWN_HOST_ALONE}", 1) if page.file.src_uri == PLAYGROUND else output


def on_post_build(config: Any, **_: Any) -> None:
    """Adds Python for browsers, Graphviz and the packages to the playground, if NETINIT_PYODIDE names the folder."""
    runtime = os.environ.get("NETINIT_PYODIDE")
    if not runtime:
        return
    folder = Path(config.site_dir, "playground", "python")
    folder.mkdir(parents=True, exist_ok=True)
    for name in (*RUNTIME, GRAPHVIZ):
        (folder / Path(name).name).write_bytes(Path(runtime, name).read_bytes())
    with zipfile.ZipFile(folder / "packages.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in list_packages(Path(config.config_file_path).parent):
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes(), zipfile.ZIP_DEFLATED)  # with no date: equal for equal files


def list_packages(root: Path) -> list[tuple[str, Path]]:
    """The files that the playground's answers import or read, with their names in the archive."""
    package = root / "netinit"
    files = [package / "__init__.py", *[path for room in ROOMS for path in sorted((package / room).rglob("*.*"))]]
    found = [(path.relative_to(root).as_posix(), path) for path in files if _is_asked(path)]
    return found + [(f"yaml/{path.name}", path) for path in sorted(Path(yaml.__file__).parent.glob("*.py"))]


def _is_asked(path: Path) -> bool:
    return path.suffix in (".py", ".json", ".yaml") and "chart" not in path.parts and not path.name.endswith(".schema.json")
