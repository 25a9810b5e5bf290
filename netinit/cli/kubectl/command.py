"""The `kubectl netinit` command group, which imports commands on demand."""

from __future__ import annotations

from netinit.cli.flags import HELP_NAMES
from netinit.cli.group import LazyGroup

COMMANDS = {  # name -> (module under netinit.cli with `command` or `make_command`, summary)
    "explain": ("kubectl.pod_command", "Show what happens to a connection of a pod, and why."),
    "audit": ("kubectl.pod_command", "Show which traffic of a pod bypasses the proxy."),
    "verify": ("kubectl.pod_command", "Compare a pod's live rules with those that its manifest asks for."),
    "draw": ("kubectl.pod_command", "Draw the path of packets through a pod's rules."),
    "doctor": ("kubectl.pod_command", "Find out whether the rules work where a pod runs."),
    "watch": ("kubectl.stream_command", "Show how much of a pod's traffic is captured, bypasses the proxy or is dropped, live."),
    "trace": ("kubectl.stream_command", "Follow real packets of a pod through its rules, and compare with what explain predicts."),
    "fix": ("kubectl.fix", "Restore the rules that a pod's manifest asks for."),
    "report": ("kubectl.report", "Write a redacted bug report about a pod."),
    "check": ("kubectl.check", "Show all pods of a mesh in a table: injected, rules, bypasses, warnings."),
    "preflight": ("kubectl.preflight", "Find what would stop an installation, before you install."),
    "complete": ("kubectl.complete", "Complete a command line for kubectl."),
}

command = LazyGroup(
    name="kubectl",
    commands_there=COMMANDS,
    context_settings=HELP_NAMES,
    help="""Ask about pods of a cluster, with your kubectl and your permissions, as `kubectl netinit` does.

    The live rules are read through the node agent if it runs, else by an ephemeral container; without either, the answer is that
    of the pod's manifest. Each answer names its source.
    """,
)
