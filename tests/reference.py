"""The generated parts of README.md and docs/, and the schema of files of options.

`python tests/reference.py`, at the top of a checkout, renews them.

A part stands between two comments. The first says what it is, the second is the same everywhere:

    <!-- options -->                 the tables of all options
    <!-- commands -->                the commands, and the options that several of them have
    <!-- command apply -->           one command: its help and its own options
    <!-- findings -->                the code of each finding, and what it means
    <!-- functions -->               the functions that templates may call, by family
    <!-- flags of linkerd -->        what becomes of each flag of another mesh
    <!-- output -->                  what the last command of the shell block above prints
    <!-- output: mermaid -->         the same, in a block of that language
    <!-- output, 1 line -->          the beginning of it
    <!-- end -->
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from netinit.cli import commands, complete, group
from netinit.cli.findings.codes import GROUPS
from netinit.cli.flags import FLAG_GROUPS, HELP_NAMES, FlagCommand, format_default
from netinit.golang import sprig
from netinit.golang.sprig import refused
from netinit.golang.template import Function
from netinit.inject import istio_functions
from netinit.options import Options
from netinit.options.file import SCHEMA, make_schema
from netinit.options.kinds import SWITCH, Flag
from netinit.options.peers.convert import PEERS
from netinit.options.peers.declare import LACKING, NEEDLESS, SAME, PeerFlag

COMPLETION = "netinit/data/completion.tsv"
PART = re.compile(
    r"^<!-- (?P<what>options|commands|command (?P<command>[a-z-]+)|findings|functions|flags of (?P<peer>[a-z]+)|output(?:: (?P<language>[a-z]+))?(?:, (?P<lines>\d+) lines?)?) -->$"
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
    if part["what"] == "commands":
        return render_commands()
    if part["command"]:
        return render_command(part["command"])
    if part["what"] == "findings":
        return render_findings()
    if part["what"] == "functions":
        return render_functions()
    if part["peer"]:
        return render_peer(part["peer"])
    blocks = SHELL.findall(before)
    if not blocks:
        raise ValueError(f"<!-- {part['what']} -->: no shell block is above it")
    lines = print_output(blocks[-1].splitlines()[-1]).splitlines()
    shown = lines[: int(part["lines"])] if part["lines"] else lines
    return "\n".join((f"```{part['language'] or 'text'}", *shown, "```\n"))


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
    """A table for each group of options, with the name of the field that the library has for it."""
    groups: dict[str, list[Flag]] = {title: [] for title in FLAG_GROUPS}
    for flag in Options.flags:
        groups[flag.group].append(flag)
    return "\n".join([line for title, flags in groups.items() if flags for line in (f"## {title}", "", *_render_flags(flags), "")])


def _render_flags(flags: list[Flag]) -> Iterator[str]:
    columns = ("flag", "variable", "default", "field", "meaning")
    yield from _render_head(columns if flags[0].long else columns[1:])
    for flag in flags:
        variables = "<br>".join([f"`{name}`" for name in flag.variables])
        default = f"`{format_default(flag)}`" if format_default(flag) else ""
        cells = (_spell(flag), variables, default, f"`{flag.field}`", flag.help.translate(_MARKUP))
        yield _render_row(cells if flag.long else cells[1:])


def _spell(flag: Flag) -> str:
    names = [f"`-{flag.short}`"] * bool(flag.short) + [f"`--{name}`" for name in (flag.long, *flag.aliases)]
    return ", ".join(names) + ("" if flag.kind is SWITCH else f" {flag.kind.metavar.translate(_MARKUP)}")


def render_peer(peer: str) -> str:
    """A table of a peer's flags and what each becomes, one row for flags with the same answer; of Istio only flags that it has dropped."""
    cls = PEERS[peer]
    ours = {flag.field: flag for flag in Options.flags}
    rows: dict[str, list[str]] = {}
    for flag in cls.flags:
        if not isinstance(flag, PeerFlag) or (peer == "istio" and flag.fate == SAME):
            continue
        names = [cls.spell(flag), f"-{flag.short}" if flag.short else "", flag.key if flag.names else ""]
        ours_of_it = _name(ours[flag.to]) if flag.to else ""
        becomes = {SAME: ours_of_it, LACKING: f"no equivalent: {flag.why}", NEEDLESS: f"needless: {flag.why}"}.get(flag.fate, flag.why)
        rows.setdefault(becomes.replace("|", "&#124;"), []).append(", ".join([f"`{name}`" for name in names if name]))
    return "\n".join([*_render_head((cls.peer, "netinit")), *[_render_row(("<br>".join(names), text)) for text, names in rows.items()], ""])


def _name(flag: Flag) -> str:
    return f"`-{flag.short}`" if flag.short else f"`{flag.label}`"


def render_findings() -> str:
    """A section for each group of findings, and one below for each code, which outputs link to."""
    parts: list[str] = []
    for title, group_of in GROUPS.items():
        parts += [f"## {title}", ""]
        for kind, (code, meaning) in group_of.items():
            parts += [f"### {code}", "", f"`{kind}`: {meaning.translate(_MARKUP)}", ""]
    return "\n".join(parts)


# ---- commands ---------------------------------------------------------------------------------------------------------


SHARED = 3  # an option that so many commands have stands on the page of all commands, once


def render_functions() -> str:
    """The functions that templates may call, each with what it does, and those of sprig that are refused with the reason."""
    own = istio_functions.functions()
    istios = {name: own[name] for name in own if own[name] is not sprig.FUNCTIONS.get(name)}
    written = ["### Istio's", "", *_render_family(istios)]
    for family, functions in sprig.FAMILIES.items():
        written += [f"### {family}", "", *_render_family(functions)]
    return "\n".join(written)


def _render_family(functions: Mapping[str, Callable[..., Any] | Function]) -> Iterator[str]:
    """A table of the functions, one row for those with the same description."""
    rows: dict[str, list[str]] = {}
    for name, function in sorted(functions.items()):
        reason = refused.REFUSED.get(name) if functions is refused.FUNCTIONS else None
        call = Function.of(function).call
        rows.setdefault(reason or _first_line(getattr(call, "func", call)), []).append(f"`{name}`")
    refusing = functions is refused.FUNCTIONS
    yield from _render_head(("function", "why it is refused" if refusing else "what it gives"))
    yield from [_render_row((", ".join(names), text.translate(_MARKUP) or "as its name says")) for text, names in rows.items()]
    yield ""


def _first_line(call: Callable[..., Any]) -> str:
    return "" if isinstance(call, type) else (inspect.getdoc(call) or "").partition("\n")[0]


def render_commands() -> str:
    """A row for each command, and the options that several commands have."""
    rows = [f"[{path}](commands/{path.split()[1]}.md)" for path, _, _ in _walk()]
    names = [path for path, _, _ in _walk()]
    texts = {path: command.get_short_help_str(limit=200) for path, command, _ in _walk()}
    top = [_render_row((row, texts[name])) for row, name in zip(rows, names, strict=True) if name.count(" ") == 1]
    shared = [_render_row(cells) for cells in _shared_options()]
    head = ["## Options of several commands", "", *_render_head(("option", "meaning")), *shared, ""]
    return "\n".join([*_render_head(("command", "what it does")), *top, "", *head])


def render_command(name: str) -> str:
    """What a command's help says, its usage and its own options; of a group also its commands, in sections below.

    Paragraphs that the help of at least SHARED of these commands has appear once, above the sections.
    """
    found = [(path, command, context) for path, command, context in _walk() if path.split()[1] == name]
    if not found:
        raise ValueError(f"netinit has no command {name!r}")
    counts = Counter(paragraph for _, command, _ in found for paragraph in _render_help(command.help or "") if paragraph)
    repeated = [paragraph for paragraph, number in counts.items() if number >= SHARED and not paragraph.startswith("```")]
    parts: list[str] = []
    for path, command, context in found:
        parts += [f"## {path}", ""] * (path.count(" ") > 1)
        parts += _render_command(command, context, repeated)
        parts += [line for paragraph in repeated for line in (paragraph, "")] * (path.count(" ") == 1)
    return "\n".join(parts)


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


def _shared_options() -> list[tuple[str, str]]:
    """The cells of options that at least SHARED commands have with the same meaning, in the order of the alphabet."""
    counts = Counter(
        cells for _, command, context in _walk() for param in command.params
        if not _is_elsewhere(command, param) for cells in [_cells(param, context)]
    )  # fmt: skip
    return sorted(cells for cells, number in counts.items() if number >= SHARED)


def _render_command(command: click.Command, context: click.Context, repeated: list[str]) -> Iterator[str]:
    aliases = [f"`netinit {alias}`" for alias, name in commands.ALIASES.items() if name == command.name]
    for paragraph in "\n".join(_render_help(command.help or "")).strip().split("\n\n"):
        if paragraph not in repeated:
            yield from (paragraph, "")
    if aliases:
        yield from (f"Also called {', '.join(aliases)}.", "")
    yield from ("```text", " ".join([context.command_path, *command.collect_usage_pieces(context)]), "```", "")
    options = [_cells(param, context) for param in command.params if not _is_elsewhere(command, param)]
    shared = [cells for cells in options if cells in _shared_options()]
    own = [_render_row(cells) for cells in options if cells not in shared]
    if own:
        yield from (*_render_head(("option", "meaning")), *own, "")
    several = "([options of several commands](../commands.md#options-of-several-commands))"
    elsewhere = [f"{', '.join(cells[0] for cells in shared)} {several}"] * bool(shared)
    elsewhere += ["[all options of the rules](../options.md)"] * _takes_rules(command)
    if elsewhere:
        yield from (f"It also takes {' and '.join(elsewhere)}.", "")


def _render_help(text: str) -> Iterator[str]:
    """The paragraphs of a help text; those that are indented, or that click must not wrap, are shell lines."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        shell = paragraph.startswith((" ", "\b"))
        lines = [line.strip() for line in paragraph.splitlines() if line.strip("\b ")]
        yield from ("```sh", *lines, "```", "") if shell else (" ".join(lines).replace("*", "\\*"), "")


def _cells(param: click.Parameter, context: click.Context) -> tuple[str, str]:
    spelled, meaning = param.get_help_record(context) or ("", "")
    code = f"<code>{spelled.translate(_MARKUP)}</code>" if "|" in spelled else f"`{spelled}`"  # a | would end the cell
    return code, meaning.translate(_MARKUP)


def _is_elsewhere(command: click.Command, param: click.Parameter) -> bool:
    """True for what the usage line shows already, and for options of the rules, which have a page of their own."""
    if isinstance(param, click.Argument):
        return True
    return _takes_rules(command) and any(f"--{flag.long}" in param.opts for flag in Options.flags if flag.long)


def _takes_rules(command: click.Command) -> bool:
    return isinstance(command, FlagCommand) and command.settings is Options


# ---- tables -----------------------------------------------------------------------------------------------------------


def _render_head(columns: tuple[str, ...]) -> tuple[str, str]:
    return _render_row(columns), _render_row(("---",) * len(columns))


def _render_row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def main(root: Path) -> list[Path]:
    """Renews the pages of the checkout at `root`, which is also where their commands run; those that changed."""
    changed = []
    for name in commands.COMMANDS:
        page = root / "docs" / "commands" / f"{name}.md"
        if page.parent.exists() and not page.exists():
            page.write_text(f"# netinit {name}\n\n<!-- command {name} -->\n<!-- end -->\n", "utf-8")
    for page in find_pages(root):
        text = page.read_text("utf-8")
        renewed = renew(text)
        if renewed != text:
            page.write_text(renewed, "utf-8")
            changed.append(page)
    for path, text in ((root / SCHEMA, render_schema()), (root / COMPLETION, render_completion())):
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
