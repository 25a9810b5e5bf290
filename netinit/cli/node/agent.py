"""`netinit node agent`: the CNI plugin's agent."""

from __future__ import annotations

import click

from netinit.cli.flags import FlagCommand, optional_packages
from netinit.node.settings import AgentSettings


@click.command("agent", cls=FlagCommand, settings=AgentSettings)
def command(options: AgentSettings) -> int:
    """Answer the CNI plugin: program pods as the runtime creates them.

    Installs the plugin and keeps it installed, watches the node's pods, and programs the namespace of each injected one before
    a container starts. Serves metrics, /livez and /readyz. On SIGTERM it ends when running requests are done.
    """
    with optional_packages("the agent needs packages that are", "pip install httptools httpx2 prometheus-client uvicorn"):
        from netinit.node import supervisor
    return supervisor.run(options)
