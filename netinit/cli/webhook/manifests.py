"""`netinit webhook manifests`: renders the chart without Helm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from netinit.base.data import read_folder
from netinit.base.errors import ConfigError, ParseError
from netinit.base.output import show_artefact
from netinit.base.sanitize import quote
from netinit.base.system import EMBEDDED
from netinit.base.tree import Tree, mapping
from netinit.cli.flags import add_value
from netinit.cli.values import takes
from netinit.inject.adding.values import TextSetting, apply_settings, merge_values, overlay_values
from netinit.inject.deciding import yaml_texts
from netinit.installation.chart import find_problems, render, to_yaml
from netinit.library.manifest_files import in_file, read_text

CHART = Path(__file__).parents[2] / "data" / "chart"


@dataclass(frozen=True, slots=True)
class ChartValues:
    """How to render the chart: the installation's namespace and name, files of values, and single values."""

    namespace: str
    name: str
    files: tuple[str, ...] = ()
    given: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def settings(self) -> tuple[str, ...]:
        """The single values in the order in which Helm applies them."""
        return (*self.given, *map(TextSetting, self.texts))


chart_options = add_value(
    "chart", ChartValues,
    click.option("-n", "--namespace", default="netinit-system", show_default=True, **takes("NAME"), help="Its namespace."),
    click.option("--name", default="netinit", show_default=True, **takes("NAME"), help="The installation (Helm's release)."),
    click.option("-f", "--values", "files", multiple=True, **takes("FILE"), help="Values in YAML, over the chart's. May be repeated."),
    click.option("--set", "given", multiple=True, **takes("KEY=VALUE"), help="One value, such as webhook.flavour=classic."),
    click.option("--set-string", "texts", multiple=True, **takes("KEY=VALUE"), help="One value that is a text, such as a.b=80."),
)  # fmt: skip


@click.command("manifests")
@chart_options
def command(chart: ChartValues) -> int:
    """Print the objects that install the webhook, without Helm.

    They are those of the chart `charts/netinit`, rendered from its templates and values.
    """
    show_artefact(to_yaml(objects(chart.namespace, chart.name, chart.files, chart.settings)))
    return 0


def objects(namespace: str, name: str, files: tuple[str, ...] = (), given: tuple[str, ...] = ()) -> list[Tree]:
    """Render the objects with values from files and arguments over the chart's defaults. Raises ConfigError."""
    chart = read_chart()
    values = mapping(yaml_texts.load(chart["values.yaml"]))
    schema = json.loads(chart["values.schema.json"])
    own: Tree = {}
    problems = []
    for file in files:
        tree = _read_values(file)
        problems += [f"{file}: {problem}" for problem in _find_problems(tree, schema)]
        own = overlay_values(own, tree)
    of_files = set(_find_problems(own, schema))
    own = apply_settings(own, given)
    told = [problem for problem in _find_problems(own, schema) if problem not in of_files]
    problems += [f"--set: {problem.replace('must be a list', 'must be a list: KEY={a,b}')}" for problem in told]
    merged = merge_values(values, own)
    if problems := problems or list(find_problems(merged, schema)):
        raise ConfigError("\n".join(problems))
    return render(chart, merged, name=name, namespace=namespace)


def _find_problems(own: Tree, schema: Tree) -> Iterator[str]:
    return find_problems(merge_values({}, own), schema, whole=False)  # as Helm does: null removes the chart's default


def read_chart() -> dict[str, str]:
    """The chart's files by their path in the chart."""
    if EMBEDDED:
        return read_folder("chart")
    # pip and the image compile the chart's test as well
    found = sorted(path for path in CHART.rglob("*") if path.is_file() and path.parent.name != "__pycache__")
    return {str(path.relative_to(CHART)): path.read_text() for path in found}


def _read_values(name: str) -> Tree:
    try:
        tree = yaml_texts.load(read_text(name))
    except ParseError as error:
        raise ConfigError(f"--values: {in_file(name, error)}") from error
    if not isinstance(tree, dict | None):
        raise ConfigError(f"--values: {quote(name)} must be a mapping")
    return tree or {}  # a file of comments alone sets nothing, as for Helm
