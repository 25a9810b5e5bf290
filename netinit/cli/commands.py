"""Registry of the commands: module and summary of each, and the help that lists them. Imports almost nothing."""

from __future__ import annotations

from netinit.base.system import EMBEDDED, embedded, posix

GROUPS = {  # heading -> name -> (module of netinit with `command` or `make_command(name)`, or a folder of SUBCOMMANDS, summary)
    "Inspect": {
        "explain": ("cli.explain", "Show what happens to a connection, and which option causes it."),
        "why": ("cli.why", "Find why a connection, a probe, a name or a pod's start fails."),
        "audit": ("cli.audit.command", "Show which traffic bypasses the proxy, and how to close it."),
        "diff": ("cli.diff", "Show which packets two sets of rules treat differently."),
        "verify": ("cli.verify", "Compare a pod's live rules with the plan, and check that they are in force."),
        "check": ("cli.check", "Say what is wrong with the pods of a repository: inject in memory, lint and audit."),
        "lint": ("cli.lint", "Find options that contradict each other or have no effect."),
        "draw": ("cli.draw", "Draw the path of packets through the chains."),
        "watch": ("cli.watch", "Show how much traffic is captured, bypasses the proxy or is dropped, live."),
        "trace": ("cli.trace", "Follow real packets through the rules, and compare with what explain predicts."),
        "doctor": ("cli.doctor", "Find out whether pods will work on this node, and what is missing."),
        "kubectl": ("kubectl.__init__", "Ask about pods of a cluster, as `kubectl netinit` does."),
    },
    "Change": {
        "apply": ("cli.apply", "Program the rules into this network namespace, or into another (--pid, --netns)."),
        "remove": ("cli.remove", "Remove all rules; the same as apply --cleanup-only."),
        "render": ("cli.render", "Print what apply would program; changes nothing, needs no privilege."),
        "convert": ("cli.convert", "Print netinit's options for another mesh's command line or file."),
    },
    "Inject": {
        "inject": ("cli.inject.command", "Add the init container and the proxy to the pods of manifests."),
        "check-inject": ("cli.inject.check", "Show for each object whether it will be injected, and why."),
    },
    "Servers": {
        "webhook": ("cli.webhook.__init__", "Inject pods automatically, as an admission webhook of the cluster."),
        "node": ("cli.node.__init__", "Program pods from the node, by a CNI plugin."),
    },
    "More": {
        "demo": ("cli.demo", "Create a pod of network namespaces and watch interception work."),
        "completion": ("cli.completion", "Print the script that completes commands and options in a shell."),
        "help": ("cli.help", "Explain a finding's code, or show a command's help."),
        "version": ("cli.version", "Print the version."),
    },
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
KUBECTL = {  # as in GROUPS
    "explain": ("kubectl.pod_command", "Show what happens to a connection of a pod, and why."),
    "why": ("kubectl.why", "Find why a connection, a probe, a name or a pod's start fails."),
    "audit": ("kubectl.pod_command", "Show which traffic of a pod bypasses the proxy."),
    "verify": ("kubectl.pod_command", "Compare a pod's live rules with those that its manifest asks for."),
    "draw": ("kubectl.pod_command", "Draw the path of packets through a pod's rules."),
    "doctor": ("kubectl.doctor", "Find out whether the rules work where a pod runs, or how the whole cluster is (--cluster)."),
    "watch": ("kubectl.pod_command", "Show how much of a pod's traffic is captured, bypasses the proxy or is dropped, live."),
    "trace": ("kubectl.pod_command", "Follow real packets of a pod through its rules, and compare with what explain predicts."),
    "fix": ("kubectl.fix", "Restore the rules that a pod's manifest asks for."),
    "report": ("kubectl.report", "Write a redacted bug report about a pod."),
    "check": ("kubectl.check", "Show all pods of a mesh in a table: injected, rules, bypasses, warnings."),
    "preflight": ("kubectl.preflight", "Find what would stop an installation, before you install."),
    "complete": ("kubectl.complete", "Complete a command line for kubectl."),
}
WEBHOOK = {
    "serve": ("cli.webhook.serve", "Answer the API server's reviews: inject pods as they are created."),
    "manifests": ("cli.webhook.manifests", "Print the objects that install the server, without Helm."),
    "compare": ("cli.webhook.compare", "Ask two injectors the same reviews, and show where the pods differ."),
    "lint": ("cli.webhook.lint", "Find what is wrong with an installation, in files or in a cluster."),
    "probe": ("cli.webhook.serve", "Find out whether the server is healthy, by the file that it writes."),
}
NODE = {
    "agent": ("cli.node.agent", "Answer the CNI plugin: program pods as the runtime creates them."),
    "status": ("cli.node.agent", "Show what is installed on this node, and the agent's state."),
    "run": ("cli.node.inside", "Run a command for pods of this node, for kubectl netinit."),
    "install": ("cli.node.agent", "Install the plugin, once."),
    "uninstall": ("cli.node.agent", "Remove the plugin from this node."),
}
SUBCOMMANDS = {"kubectl": KUBECTL, "webhook": WEBHOOK, "node": NODE}  # the help of each is its folder's docstring
ALIASES = {"istio-iptables": "apply", "kube-inject": "inject"}
INTRODUCTION = (
    "The interception layer of a service mesh pod.",
    (
        "Flags without a command program the rules, as istio-iptables does: `netinit -p 15001 -u 1337 -b '*'` is `netinit apply`"
        " with these flags. `netinit COMMAND --help` lists a command's options."
    ),
)
OPTIONS = {"--version": "Show the version and exit.", "-h, --help": "Show this message and exit."}
FOLDER = __file__.replace("\\", "/").rpartition("/cli/")[0]


def is_there(module: str) -> bool:
    """Whether this installation includes this module of netinit; an image or the executable may omit it."""
    if EMBEDDED:
        return embedded.find(f"netinit.{module.removesuffix('.__init__')}") is not None
    return posix.access(f"{FOLDER}/{module.replace('.', '/')}.py", posix.R_OK)


def list_commands() -> list[str]:
    """The names of the available commands."""
    return [name for name, (module, _) in COMMANDS.items() if is_there(module)]


def name_page(command: str) -> str:
    """The last line of a command's help."""
    from netinit.base.documentation import address_of

    name = ALIASES.get(command, command)
    return f"Documentation: {address_of(f'commands/{name}' if name in COMMANDS else 'commands')}"


def render_help(program: str, width: int) -> str:
    """The text of `netinit --help`."""
    parts = [f"Usage: {program} [OPTIONS] COMMAND [ARGS]...\n"]
    parts += [_wrap(text, width, "  ") for text in INTRODUCTION]
    there = list_commands()
    sections = [(title, [(name, text) for name, (_, text) in group.items() if name in there]) for title, group in GROUPS.items()]
    for title, rows in [("Options", list(OPTIONS.items())), *sections]:
        if not rows:
            continue
        column = max(len(name) for name, _ in rows) + 4
        lines = [f"  {name}".ljust(column) + _wrap(text, width, " " * column).lstrip() for name, text in rows]
        parts.append(f"{title}:\n" + "".join(lines))
    return "\n".join([*parts, f"{name_page('')}\n"])


def _wrap(text: str, width: int, indent: str) -> str:
    lines, line = [], indent
    for word in text.split():
        if len(line) + len(word) > width and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += f"{word} "
    return "\n".join([*lines, line.rstrip(), ""])
