"""`kubectl netinit doctor`: of pods, or of the cluster with --cluster."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

import click

from netinit.kubectl import pod_command

CLUSTER = "--cluster"


class DoctorCommand(click.Command):
    """The doctor of pods, which passes on what it does not know; --cluster makes another command of it, with options of its own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the arguments by the command that they are for."""
        if CLUSTER in takewhile(lambda word: word != "--", args):
            from netinit.kubectl import cluster_doctor

            rest = [word for word in args if word != CLUSTER]
            return cluster_doctor.command.make_context(info_name, rest, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


command = pod_command.make_command("doctor", cls=DoctorCommand)
command.params.insert(0, click.Option(
    [CLUSTER], is_flag=True, expose_value=False,
    help="Instead of a pod: all nodes, webhooks and releases, on one screen. Takes -o, --context and --kubeconfig alone.",
))  # fmt: skip
