"""The `netinit webhook` command group, which imports commands on demand."""

from __future__ import annotations

from netinit.cli.flags import HELP_NAMES
from netinit.cli.group import LazyGroup

COMMANDS = {  # name -> (module under netinit.cli, summary)
    "serve": ("webhook.serve", "Answer the API server's reviews: inject pods as they are created."),
    "manifests": ("webhook.manifests", "Print the objects that install the server, without Helm."),
    "compare": ("webhook.compare", "Ask two injectors the same reviews, and show where the pods differ."),
    "lint": ("webhook.lint", "Find what is wrong with an installation, in files or in a cluster."),
    "probe": ("webhook.probe", "Find out whether the server is healthy, by the file that it writes."),
}

command = LazyGroup(
    name="webhook",
    commands_there=COMMANDS,
    context_settings=HELP_NAMES,
    help="""Inject pods automatically, as an admission webhook of the cluster.

    `manifests` and the Helm chart install the server, `serve`. `lint` checks an installation, and `compare` shows what would
    change instead of another injector.
    """,
)
