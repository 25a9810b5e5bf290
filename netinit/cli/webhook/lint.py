"""`netinit webhook lint`: problems with an installation, from files or a cluster."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import click

from netinit.base.errors import OptionError, ParseError
from netinit.base.sanitize import lines
from netinit.base.tree import Tree
from netinit.cli.console import answer_either, note
from netinit.cli.flags import json_option, optional_packages
from netinit.cli.values import takes
from netinit.inject.deciding import yaml_texts
from netinit.inject.deciding.manifests import objects
from netinit.installation.linting import ERROR, InstallationFinding, lint
from netinit.library.manifest_files import in_file, read_text


@click.command("lint")
@click.option(
    "-f", "--filename", "files", multiple=True, **takes("FILE"), help="Manifests of the installation. May be repeated."
)
@click.option("--context", default="", **takes("CONTEXT"), help="Check the cluster of this kubeconfig context.")
@click.option("--kubeconfig", default="", **takes("FILE"), help="Check the cluster of this kubeconfig.")
@json_option("installation")
def command(files: tuple[str, ...], context: str, kubeconfig: str, as_json: bool) -> int:
    """Find what is wrong with the installation of a sidecar injector, netinit's or Istio's.

    Reads webhook configurations, Services, EndpointSlices, Deployments, PodDisruptionBudgets, namespaces, certificates and
    templates, from files or from a cluster. Each finding has a remedy.

    Exit codes: 0 nothing is wrong that stops pods, 1 something is.
    """
    if not files and not context and not kubeconfig:
        raise OptionError("-f: no manifests are given; name files, or a cluster with --context or --kubeconfig")
    if files and (context or kubeconfig):
        raise OptionError("-f: contradicts --context and --kubeconfig; give manifests or a cluster")
    unread: dict[str, str] = {}
    if files:
        trees = _read(files)
    else:
        remedy = "pip install 'netinit[kubernetes]'; or give manifests with -f"
        with optional_packages("reading a cluster needs a package that is", remedy):
            from netinit.installation.survey import survey
        trees, unread = survey(context, kubeconfig)
    note([f"{kind}s are not judged: {why}" for kind, why in unread.items()])
    return show_findings(lint(trees, now=time.time(), whole=not files, unread=unread), as_json=as_json)


def show_findings(found: Sequence[InstallationFinding], *, as_json: bool) -> int:
    """Print each finding with its remedy, or as JSON; return the exit code, 1 if one is an error."""
    printed = []
    for finding in found:
        printed.append(f"{'✘' if finding.severity == ERROR else '!'} {finding.subject}: {finding.message}")
        printed.append(f"    remedy: {finding.remedy}{f' ({finding.page})' if finding.page else ''}")
    tree = {"findings": [asdict(finding) for finding in found]}
    answer_either(tree, lines(printed or ["nothing found"]), as_json=as_json)
    return 1 if any(finding.severity == ERROR for finding in found) else 0


def _read(files: tuple[str, ...]) -> list[Tree]:
    trees: list[Tree] = []
    for name in files:
        text = read_text(name)
        try:
            documents = yaml_texts.load_all(text)
        except ParseError as error:
            raise ParseError(in_file(name, error)) from error
        trees += [one for tree in documents for one in objects(tree) if isinstance(one, dict)]
    return trees
