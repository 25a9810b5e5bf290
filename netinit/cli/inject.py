"""`netinit inject`, also `netinit kube-inject`: the init container and the proxy into the pods of manifests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import click

from netinit.cli import inject_inputs
from netinit.errors import InjectionError, NetinitError, OptionError
from netinit.inject.stream import inject_stream

_LONG = 200  # documents
_EVERY = 0.2  # seconds


def _progress(name: str) -> Callable[[int, int], None] | None:
    """What shows on a terminal how far a long stream is."""
    if not sys.stderr.isatty():
        return None
    shown = 0.0

    def show(number: int, total: int) -> None:
        nonlocal shown
        now = time.monotonic()
        if total >= _LONG and (now - shown >= _EVERY or number == total):
            shown = now
            click.echo(f"\r{name}: {number} of {total} documents", err=True, nl=number == total)

    return show


@click.command("inject", context_settings={"help_option_names": ["-h", "--help"]})
@inject_inputs.options
@click.option("-o", "--output", default="-", metavar="FILE|-", help="Where the manifests go (default: stdout).")
@click.option(
    "--explain", is_flag=True, help="Tell for each object whether it will be injected, and why; write nothing."
)
@inject_inputs.explain_options
def command(output: str, labels: str | None, *, explain: bool, as_json: bool, as_table: bool, **shared: Any) -> int:
    """Add the init container and the proxy to the workloads of manifests.

    Deployments, DaemonSets, StatefulSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs, Pods, DeploymentConfigs
    and Lists of them are injected; everything else comes out as it went in, comments included. Nothing is written
    unless all succeeded.

    \b
    kubectl apply -f <(netinit inject -f app.yaml)
    """  # noqa: D301 - click wants the character \b before lines that it must not wrap
    if explain:
        from netinit.cli import check_inject

        return check_inject.check(inject_inputs.inputs_of(shared), labels, as_json=as_json, as_table=as_table)
    if labels is not None or as_json or as_table:
        raise OptionError("--namespace-labels, --json and --table go with --explain")
    inputs = inject_inputs.inputs_of(shared)
    config = inject_inputs.read_config(inputs)
    inject_inputs.warn([f"warning: {line}" for line in config.warnings])
    streams: list[str] = []
    problems: list[str] = []
    for name, text in inject_inputs.read_manifests(inputs):
        try:
            result = inject_stream(
                text, config, settings=inputs.settings, namespace=inputs.namespace, progress=_progress(name)
            )
        except NetinitError as error:
            problems.append(inject_inputs.in_file(name, error))
            continue
        inject_inputs.warn(result.notices)
        streams.append(result.text)
    if problems:
        raise InjectionError("\n".join(problems))
    inject_inputs.write_result(output, streams)
    return 0
