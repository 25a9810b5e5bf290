"""`netinit inject`, also `netinit kube-inject`: the command as click sees it; a plain command line never comes here."""

from __future__ import annotations

from typing import Any

import click

from netinit.cli.inject import flags, inputs, run


@click.command("inject", context_settings={"help_option_names": ["-h", "--help"]})
@flags.declare(flags.INJECT)
def command(**values: Any) -> int:
    """Add the init container and the proxy to the workloads of manifests.

    Deployments, DaemonSets, StatefulSets, ReplicaSets, ReplicationControllers, Jobs, CronJobs, Pods, DeploymentConfigs
    and Lists of them are injected; everything else comes out as it went in, comments included. Nothing is written
    unless all succeeded.

    \b
    kubectl apply -f <(netinit inject -f app.yaml)
    """  # noqa: D301 - click wants the character \b before lines that it must not wrap
    if not values["explain"]:
        return run.run(values)
    from netinit.cli.inject import check

    how = {name: values[name] for name in ("as_json", "as_table")}
    return check.check(inputs.inputs_of(values), values["labels"], **how)
