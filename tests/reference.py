"""The generated parts of README.md and docs/, and the schema of files of options.

`python tests/reference.py`, at the top of a checkout, renews them.

A part stands between two comments. The first says what it is, the second is the same everywhere:

    <!-- options -->                 the lists of all options
    <!-- commands -->                the commands, in groups
    <!-- command apply -->           one command: its usage and the names of its options; of a group those of its commands
    <!-- findings -->                the code of each finding, and what it means
    <!-- chart values -->            the chart's values, from their schema
    <!-- alerts -->                  the alerts of the chart
    <!-- functions -->               the functions that Istio adds for templates, and those that are refused
    <!-- methods -->                 the methods of Go's types that templates do not have
    <!-- flags of linkerd -->        what happens to each flag of another mesh
    <!-- output -->                  what the last command of the shell block above prints
    <!-- output, 1 line -->          the beginning of it
    <!-- end -->
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from chart_values import VALUES, render_alerts, render_table, render_values
from config_schema import make_schema
from netinit.cli import commands, complete, group
from netinit.cli.flags import HELP_NAMES, FlagCommand, format_default
from netinit.golang import sprig
from netinit.inject.adding import istio_functions
from netinit.inject.deciding.annotations import PROXY_CONFIG, known_keys
from netinit.inject.deciding.pod_options import BY_AGENT, REDIRECTION
from netinit.options import Options
from netinit.options.declare import OF_ISTIO, OF_OURS, PLAIN, WITHOUT_FLAG
from netinit.options.file import SCHEMA
from netinit.options.kinds import SWITCH, Flag
from netinit.options.peers.convert import PEERS
from netinit.options.peers.declare import LACKING, PeerFlag
from netinit.questions.finding_codes import grouped
from option_samples import SAMPLES
from template_methods import missing_methods

COMPLETION = "netinit/data/completion.tsv"
PART = re.compile(
    r"^<!-- (?P<what>options|annotations|commands|command (?P<command>[a-z-]+)|findings|chart values|alerts|functions|methods|flags of (?P<peer>[a-z]+)|output(?:, (?P<lines>\d+) lines?)?) -->$"
    r".*?^<!-- end -->$",
    re.DOTALL | re.MULTILINE,
)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_MARKUP = str.maketrans({"|": "&#124;", "*": "\\*", "<": "&lt;", "_": "\\_"})


def find_pages(root: Path) -> list[Path]:
    """The pages that may hold generated parts."""
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]


def renew(text: str) -> str:
    """The page with its generated parts as they must be now. ValueError where a command is missing or fails."""
    return PART.sub(lambda found: f"<!-- {found['what']} -->\n\n{_make(found, text[: found.start()])}\n<!-- end -->", text)


def _make(part: re.Match[str], before: str) -> str:
    if part["what"] == "options":
        return render_options()
    if part["what"] == "annotations":
        return render_annotations()
    if part["what"] == "commands":
        return render_commands()
    if part["command"]:
        return render_command(part["command"])
    if part["what"] == "findings":
        return render_findings()
    if part["what"] == "chart values":
        return render_table()
    if part["what"] == "alerts":
        return render_alerts()
    if part["what"] == "functions":
        return render_functions()
    if part["what"] == "methods":
        return f"`{'`, `'.join(missing_methods())}`.\n"
    if part["peer"]:
        return render_peer(part["peer"])
    blocks = SHELL.findall(before)
    if not blocks:
        raise ValueError(f"<!-- {part['what']} -->: no shell block is above it")
    lines = print_output(blocks[-1].splitlines()[-1]).splitlines()
    shown = lines[: int(part["lines"])] if part["lines"] else lines
    return "\n".join(("```text", *shown, "```\n"))


def print_output(line: str) -> str:
    """What a command line of netinit prints to stdout; its own environment is empty. ValueError where it fails."""
    words = shlex.split(line, comments=True)
    if words[:1] != ["netinit"]:
        raise ValueError(f"{line!r} is not a command of netinit")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = group.run("netinit", tuple(words[1:]), {}, alone=False)
    if status:
        raise ValueError(f"{line!r} ends with {status}")
    return printed.getvalue()


# ---- options ----------------------------------------------------------------------------------------------------------


def render_options() -> str:
    """A list for each group of options, with the name of the field that the library has for it."""
    groups: dict[str, list[Flag]] = {title: [] for title in (PLAIN, OF_ISTIO, OF_OURS, WITHOUT_FLAG)}
    for flag in Options.flags:
        groups[flag.group].append(flag)
    return "\n".join([line for title, flags in groups.items() if flags for line in (f"## {title}", "", *_render_flags(flags), "")])


def _render_flags(flags: list[Flag]) -> Iterator[str]:
    for flag in flags:
        names = ", ".join([f"`{name}`" for name in list_names(flag)])
        default = f" Default: `{format_default(flag)}`." if format_default(flag) else ""
        head = f"{_spell(flag)} ({names})" if flag.long and names else _spell(flag) if flag.long else names
        listed = ", ".join([*[f"`{name}`" for name in annotations_of(flag)], *_by_agent(flag)])
        by_pod = f" [Annotation](annotations.md): {listed}." if listed else ""
        yield f"- {head}: {flag.help.translate(_MARKUP)}{default}{by_pod}"


EXAMPLES = {kind: good for kind, (good, _) in SAMPLES.items()} | {  # a value of each kind that a pod may say
    "PORT|0": "15008", "REDIRECT|TPROXY|NONE": "TPROXY", "PORTS|*": "8080,9000-9010", "PORTS": "5432,6379", "NAMES": "eth1",
    "CIDRS|*": "10.0.0.0/8,fd00::/8", "CIDRS": "10.1.2.0/24", "auto|on|off|inet|reject": "off", "BOOL": "true",
    "PORTS:PORT": "514:10514", "PROTOCOL:PORTS:UIDS": "tcp:5432:999", "PROTOCOL:PORTS:GIDS": "tcp:5432:999", "GROUP": "5",
}  # fmt: skip


def annotations_of(flag: Flag) -> tuple[str, ...]:
    """The annotations by which a pod sets an option; the first that is there takes precedence."""
    return (*flag.istio_annotations, *([flag.annotation] if flag.annotation else []))


def _by_agent(flag: Flag) -> list[str]:
    """How a pod sets an option that has no annotation of its own: by a variable of the proxy, or of an ambient pod."""
    by_plugin = "" if flag.pod_variable in flag.variables else " where a CNI plugin programs the pod"
    variable = f"`{PROXY_CONFIG}`, proxyMetadata `{flag.pod_variable}`{by_plugin}" if flag.pod_variable and not annotations_of(flag) else ""
    of_agent = f"`{BY_AGENT[flag.field]}` of an ambient pod" if flag.field in BY_AGENT else ""
    return [one for one in (variable, of_agent) if one]


def render_annotations() -> str:
    """The annotations that set options, with value, default and example, and below the names of all others that are read."""
    rows = [(name, flag) for flag in Options.flags for name in annotations_of(flag)]
    lines = ["## Annotations that set options", ""]
    for name, flag in sorted(rows, key=lambda row: not row[0].startswith("traffic.")):
        default = f" Default: `{format_default(flag)}`." if format_default(flag) else ""
        value = "true&#124;false" if flag.kind is SWITCH else flag.kind.metavar.translate(_MARKUP)
        lines.append(f'- `{name}` {value} (`{flag.label}`): {flag.help.translate(_MARKUP)}{default} Example: `{name}: "{EXAMPLES[flag.kind.metavar]}"`')
    lines += ["", "## Variables of the proxy that set options", "", f"In `{PROXY_CONFIG}`, which holds a ProxyConfig:", ""]
    for flag in [one for one in Options.flags if one.pod_variable in one.variables and not annotations_of(one)]:
        lines.append(
            f"- proxyMetadata `{flag.pod_variable}` (`{flag.label}`): {flag.help.translate(_MARKUP)}"
            f""" Example: `{PROXY_CONFIG}: '{{proxyMetadata: {{{flag.pod_variable}: "true"}}}}'`"""
        )
    others = [name for name in known_keys() if name not in dict(rows)]
    listed = ", ".join([f"`{name}`" for name in others])
    of_ambient = ", ".join([f"`{name}`" for name in (REDIRECTION, *BY_AGENT.values())])
    lines += ["", "## Other annotations that are read", "", f"By injection, its templates, or the proxy's agent: {listed}.", ""]
    return "\n".join([*lines, f"In ambient mode, by the mesh's agent on the node: {of_ambient}. Istio's injector writes `istio.io/rev`.", ""])


def list_names(flag: Flag) -> tuple[str, ...]:
    """The variables and the field of an option; none where they follow from its flag, as the page says."""
    field = flag.long.replace("-", "_")
    names = (*flag.variables, flag.field)
    return () if names == (f"NETINIT_{field.upper()}", field) else names


def _spell(flag: Flag) -> str:
    names = [f"`-{flag.short}`"] * bool(flag.short) + [f"`--{name}`" for name in (flag.long, *flag.aliases)]
    return ", ".join(names) + ("" if flag.kind is SWITCH else f" {flag.kind.metavar.translate(_MARKUP)}")


PARTIAL = ("no equivalent", "not the whole", "without DNS over TCP")  # in the texts of flags of which only a part is converted


def render_peer(peer: str) -> str:
    """The flags of a peer that have no full equivalent."""
    cls = PEERS[peer]
    flags = [flag for flag in cls.flags if isinstance(flag, PeerFlag)]
    lacks = [flag for flag in flags if flag.fate == LACKING or any(words in flag.why for words in PARTIAL)]
    lacking: dict[str, list[str]] = {}
    for flag in lacks:
        lacking.setdefault(flag.why, []).append(f"`{cls.format_flag(flag.field)}`")
    items = [_render_item(", ".join(names), text) for text, names in lacking.items()]
    return "\n".join(["No full equivalent:", "", *items, ""])


def render_findings() -> str:
    """A section for each group of findings, and one below for each code, which outputs link to."""
    parts: list[str] = []
    for title, kinds in grouped().items():
        parts += [f"## {title}", ""]
        for kind in kinds:
            parts += [f"### {kind.code}", "", f"`{kind}`: {kind.meaning.translate(_MARKUP)}", ""]
    return "\n".join(parts)


# ---- commands ---------------------------------------------------------------------------------------------------------


def render_functions() -> str:
    """The functions of Istio that templates may call, and those of sprig that are refused with the reason."""
    own = istio_functions.FUNCTIONS
    istios = [f"`{name}`" for name in sorted(own) if own[name] is not sprig.FUNCTIONS.get(name)]
    reasons: dict[str, list[str]] = {}
    for name, reason in sorted(istio_functions.REFUSED.items()):
        reasons.setdefault(reason, []).append(f"`{name}`")
    items = [_render_item(", ".join(names), reason.translate(_MARKUP)) for reason, names in reasons.items()]
    return "\n".join([f"Istio's: {', '.join(istios)}.", "", "Refused, with the reason:", "", *items, ""])


def render_commands() -> str:
    """A list for each group of commands, with links to their pages."""
    parts: list[str] = []
    for title, group_of in commands.GROUPS.items():
        items = [_render_item(f"[{name}](commands/{name}.md)", text) for name, (_, text) in group_of.items()]
        parts += [f"## {title}", "", *items, ""]
    return "\n".join(parts)


def render_command(name: str) -> str:
    """The usage of a command and the names of its options; of a group, a list of its commands."""
    found = [(path, command, context) for path, command, context in _walk() if path.split()[1] == name]
    if not found:
        raise ValueError(f"netinit has no command {name!r}")
    (path, command, context), *members = found
    if not members:
        options = _render_options(_list_options(command), command)
        listed = [f"Options: {options}.", ""] * bool(options)
        arguments = command.collect_usage_pieces(context)[1:]  # after [OPTIONS]
        usage = [f"Usage: `{' '.join([path, *arguments])}`", ""] * bool(arguments)
        return "\n".join([*usage, *listed])
    counts = Counter(option for _, one, _ in members for option in _list_options(one))
    shared = [option for option, number in counts.items() if 2 * number >= len(members)]
    items = []
    for member, one, _ in members:
        own = [option for option in _list_options(one) if option not in shared]
        options = _render_options(own, one)
        items.append(_render_item(f"`{member.split()[2]}`", one.get_short_help_str(limit=200).translate(_MARKUP) + (f" {options}." if options else "")))
    most = ["", f"Most also take {', '.join(shared)}."] * bool(shared)
    return "\n".join([*items, *most, ""])


def _walk() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command with its path, groups before their members."""
    root = click.Context(group.root, info_name="netinit", help_option_names=HELP_NAMES["help_option_names"])
    waiting = [(group.root, root, name) for name in group.root.list_commands(root)]
    while waiting:
        owner, outer, name = waiting.pop(0)
        command = owner.get_command(outer, name)
        if command is None:
            raise ValueError(f"the group lists {name!r} and does not have it")
        context = click.Context(command, outer, info_name=name)
        yield context.command_path, command, context
        if isinstance(command, click.Group):
            waiting = [*[(command, context, member) for member in command.list_commands(context)], *waiting]


def _list_options(command: click.Command) -> list[str]:
    """The names of the options, with the words to choose from; `--help` has the rest."""
    return [_list_names(param) for param in command.params if not _is_elsewhere(command, param) and not getattr(param, "hidden", False)]


def _list_names(param: click.Parameter) -> str:
    words = f" {'|'.join(param.type.choices)}" if isinstance(param.type, click.Choice) else ""
    return f"`{', '.join(sorted(param.opts, key=len))}{words}`"


def _render_options(options: list[str], command: click.Command) -> str:
    linked = {"[all options of the rules](../options.md)": _takes_rules(command), "[those of inject](inject.md)": _takes_injection(command)}
    return ", ".join([*options, *(link for link, takes in linked.items() if takes)])


def _is_elsewhere(command: click.Command, param: click.Parameter) -> bool:
    """True for what the usage line or docs/commands.md shows, and for options that another page lists: of the rules and of inject."""
    if isinstance(param, click.Argument) or "--color" in param.opts:
        return True
    if _takes_injection(command) and param.name in {one.name for one in _inject().params}:
        return True
    return _takes_rules(command) and any(f"--{flag.long}" in param.opts for flag in Options.flags if flag.long)


def _inject() -> click.Command:
    command = group.root.get_command(click.Context(group.root), "inject")
    assert command is not None
    return command


def _takes_injection(command: click.Command) -> bool:
    """True for the other commands that take most options of inject."""
    names = {param.name for param in command.params}
    return command.name != "inject" and "injectconfigfile" in names


def _takes_rules(command: click.Command) -> bool:
    return isinstance(command, FlagCommand) and command.settings is Options


# ---- Markdown -----------------------------------------------------------------------------------------------------------


def _render_item(name: str, text: str) -> str:
    return f"- {name}: {text}"


def main(root: Path) -> list[Path]:
    """Renews the pages of the checkout at `root`, which is also where their commands run; those that changed."""
    changed = []
    for name in commands.COMMANDS:
        page = root / "docs" / "commands" / f"{name}.md"
        if page.parent.exists() and not page.exists():
            page.write_text(f"# netinit {name}\n\n{commands.COMMANDS[name][1]}\n\n<!-- command {name} -->\n<!-- end -->\n", "utf-8")
    for page in find_pages(root):
        text = page.read_text("utf-8")
        renewed = renew(text)
        if renewed != text:
            page.write_text(renewed, "utf-8")
            changed.append(page)
    for path, text in ((root / SCHEMA, render_schema()), (root / COMPLETION, render_completion()), (root / VALUES, render_values())):
        if not path.is_file() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            changed.append(path)
    return changed


def render_completion() -> str:
    """The rows that completion reads, see netinit/cli/complete.py."""
    shared = [_complete_option("@", param) for param in group.root.get_command(None, "apply").params if _is_flag(param)]
    context = click.Context(group.root, info_name="netinit")
    rows = ["\t--version\t\tShow the version and exit.", f"\t{complete.HELP}\t\tShow this message and exit.", *shared]
    for name in group.root.list_commands(context):
        rows += _complete_command(group.root.get_command(context, name), name, context)
    return "".join([f"{row}\n" for row in rows])


def _complete_command(command: click.Command, path: str, parent: click.Context) -> Iterator[str]:
    context = click.Context(command, parent, info_name=path)
    yield f"{path}\t{complete.HELP}\t\t{command.get_short_help_str(200)}"
    if _takes_rules(command):
        yield f"{path}\t{complete.RULES}\t\t"
    for param in command.params:
        if not (_takes_rules(command) and _is_flag(param)):
            yield _complete_option(path, param)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            yield from _complete_command(command.get_command(context, name), f"{path} {name}", context)


def _complete_option(path: str, param: click.Parameter) -> str:
    words = param.type.choices if isinstance(param.type, click.Choice) else ()
    of_files = isinstance(param.type, click.Path) or any(word in (param.metavar or "") for word in ("FILE", "FOLDER"))
    takes_none = isinstance(param, click.Option) and (param.is_flag or param.count)
    kind = "" if takes_none else "|".join(words) or (complete.FILE if of_files else complete.ANY)
    names = ",".join(param.opts) if isinstance(param, click.Option) else ""
    text = " ".join((getattr(param, "help", "") or "").split())
    return f"{path}\t{names}\t{kind}\t{text}"


def _is_flag(param: click.Parameter) -> bool:
    return isinstance(param, click.Option) and any(f"--{flag.long}" in param.opts for flag in Options.flags if flag.long)


def render_schema() -> str:
    """The schema of files of options, one option a line."""
    made = make_schema()
    options = ",\n".join([f"    {json.dumps(name)}: {json.dumps(one)}" for name, one in made.pop("properties").items()])
    head = json.dumps(made, indent=2).removesuffix("\n}")
    return f'{head},\n  "properties": {{\n{options}\n  }}\n}}\n'


if __name__ == "__main__":
    main(Path())
