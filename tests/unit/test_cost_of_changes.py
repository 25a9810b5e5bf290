"""What another match, target, annotation, layout or backend costs: in how many files of the package one that is there is named."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from package_trees import parse

PACKAGE = Path(__file__).parents[2] / "netinit"
OTHER_CLASSIC = ("inject/", "webhook/", "cli/inject/", "cli/webhook/")  # where `classic` is a form of the injector's configuration
HOST_PROBES = (  # the node's rules that an ambient mesh's own agent makes, in its dialects: another layout or backend of ours does not touch them
    "live/host_probes.py", "pods/probe/host_probe_rules.py", "pods/probe/probe_rules.py", "node/sweep.py", "node/metrics.py", "node/settings.py",
)  # fmt: skip
IN_AN_AMBIENT_MESH = ("inject/deciding/warnings.py",)  # the sentence about annotations that Istio's agent does not read
EARLIER = ("rules/infer_options/release_plans.py",)  # rules of earlier releases of Istio, which nobody changes any more
MOST_FILES = [  # these numbers may only go down
    ("a match", "AddressType", (), 3),
    ("a match", "TcpFlags", (), 3),
    ("a match that layouts use", "Owner", EARLIER, 4),
    ("a target", "Tproxy", EARLIER, 3),
    ("a target", "TrackZone", EARLIER, 4),
    ("an annotation", "excludeOutboundIPRanges", (), 2),
    ("an annotation", "kubevirtInterfaces", (), 3),
    ("a layout", "classic|CLASSIC", (*OTHER_CLASSIC, *EARLIER), 1),
    ("a layout", "ambient|AMBIENT", (*HOST_PROBES, *IN_AN_AMBIENT_MESH), 4),
    ("a backend", "libiptc|LIBIPTC", (), 2),
    ("a backend", "nftables|NFTABLES", HOST_PROBES, 4),
]


@cache
def list_words():
    """For each file that is written by hand, its names and texts, without comments and docstrings."""
    files = {path: list(words_of(parse(path))) for path in PACKAGE.rglob("*.py")}
    template = PACKAGE / "data" / "injection.yaml"
    files[template] = [template.read_text()]
    return {path.relative_to(PACKAGE).as_posix(): "\n".join(words) for path, words in files.items()}


def words_of(tree):
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if id(node) not in docstrings:
                yield text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.ImportFrom(module=str() as module):
                yield module


@pytest.mark.parametrize(("what", "name", "elsewhere", "most"), MOST_FILES)
def test_it_is_named_in_no_more_files_than_before(what, name, elsewhere, most):
    wanted = re.compile(rf"\b(?:{name})\b")
    files = [path for path, words in list_words().items() if not path.startswith(elsewhere or ("/",)) and wanted.search(words)]
    assert 0 < len(files) <= most, f"{what} costs {len(files)} files: {sorted(files)}"
