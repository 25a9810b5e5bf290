"""The options that name a connection, pods of manifests, and which rules are meant."""

from __future__ import annotations

from collections.abc import Mapping

import click

from netinit.base.errors import OptionError
from netinit.cli.console import warn
from netinit.cli.flags import Decorator, add_value, pass_given
from netinit.cli.values import OneOf, takes
from netinit.library.manifest_files import is_file
from netinit.library.repository_settings import USUAL, RepositorySettings, read_settings
from netinit.library.rule_reading import Gate, Outlook, PodChoice, RuleChoice
from netinit.library.safe_files import STDIN
from netinit.options.kinds import ANY_MARK, quote_value
from netinit.questions.connections import APPLICATION, DIRECTIONS, Question
from netinit.questions.rule_sources import name_manifests


def question_options(uid: str, gid: str, *more: Decorator) -> Decorator:
    """Add the options that name a connection, with the help of --uid and --gid; the function gets `question`."""
    return add_value(
        "question", Question, click.argument("direction", type=OneOf(DIRECTIONS), required=False),
        click.option("--to", default="", **takes("ADDRESS[:PORT]"), help="Where the connection goes."),
        click.option("--from", "source", default="", **takes("ADDRESS"), help="Where it comes from (inbound, unless --uid is given)."),
        click.option("--to-port", default="", **takes("PORT"), help="The port, where --to has none."),
        click.option("--udp", is_flag=True, help="UDP instead of TCP."),
        click.option("--uid", default="", **takes("USER"), help=uid),
        click.option("--gid", default="", **takes("GROUP"), help=gid), *more,
    )  # fmt: skip


ask_about_a_connection = question_options(
    f"Who connects: a user (default: those of --pod, else {APPLICATION}).",
    "The group that connects (default: the number of --uid).",
    click.option("--interface", default="", **takes("NAME"), help="Inbound: the interface (default: that of the default route)."),
    click.option("--mark", default=0, **takes(ANY_MARK), help="The firewall mark of the socket."),
)


def _read_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if any(not one.strip("/") for one in patterns):
        raise OptionError("--exclude: a pattern is empty; name a file or a folder, such as templates or '*.tpl.yaml'")
    return patterns


_SETTINGS = "netinit.settings"


def _remember_settings(context: click.Context, _: click.Parameter, name: str) -> None:
    """Read the settings before the options that they complete ask for them; `netinit check` has a usual file."""
    chosen = name or (USUAL if context.command.name == "check" and is_file(USUAL) else "")
    if chosen:
        context.meta[_SETTINGS] = read_settings(chosen)


settings_option = click.option(
    "--settings", default="", expose_value=False, is_eager=True, callback=_remember_settings, **takes("FILE"),
    help="A repository's settings (netinit.yaml).",
)  # fmt: skip


def find_settings() -> RepositorySettings:
    """The settings that --settings names."""
    found: RepositorySettings = click.get_current_context().meta.get(_SETTINGS, RepositorySettings())
    return found


gate_options = add_value(
    "gate", lambda exclude, require_pods: Gate(_read_patterns((*find_settings().exclude, *exclude)), require_pods),
    click.option("--exclude", multiple=True, **takes("PATTERN"), help="Leave out files of this name, path or folder; repeatable."),
    click.option("--require-pods", is_flag=True, help="Files without any pod are an error."),
)  # fmt: skip


def _choose_outlook(assume: str | None, config_file: str, mesh_file: str, values_file: str) -> Outlook:
    own = find_settings().outlook()
    files = (config_file or own.config_file, mesh_file or own.mesh_file, values_file or own.values_file)
    return Outlook(assume or own.assume, *files, own.addresses)


outlook_options = add_value(
    "outlook", _choose_outlook, settings_option,
    click.option("--assume", type=OneOf(("injected", "cni", "none")), help="Whether pods are injected."),
    click.option("--injectConfigFile", "config_file", default="", **takes("FILE"), help="The injector's, for pods not injected yet."),
    click.option("--meshConfigFile", "mesh_file", default="", **takes("FILE"), help="The mesh's, likewise."),
    click.option("--valuesFile", "values_file", default="", **takes("FILE"), help="Values of the templates, likewise."),
)  # fmt: skip


def check_outlook(outlook: Outlook, *, has_manifests: bool) -> Outlook:
    """Refuse what is said of pods without any. Raises OptionError."""
    if outlook != Outlook() and not has_manifests:
        given = {"--assume": outlook.assume, "--injectConfigFile": outlook.config_file}
        given |= {"--meshConfigFile": outlook.mesh_file, "--valuesFile": outlook.values_file}
        given = {"--settings": find_settings().name} if find_settings().name else given
        wrong = [name for name, value in given.items() if value]
        raise OptionError(*[f"{name}: is about pods of manifests; name some, or remove it" for name in wrong])
    return outlook


stdin_name_option = click.option("--stdin-name", default="", **takes("NAME"), help="What the text of stdin is called in findings.")


def choose_pods(
    *, outlook: Outlook, pod: tuple[str, ...] = (), select: str = "", given: Mapping[str, str] | None = None,
    files: tuple[str, ...] = (), gate: Gate | None = None, stdin_name: str = "",
) -> PodChoice:  # fmt: skip
    """The pods of files, which options and arguments name. Raises OptionError, ConfigError."""
    if stdin_name and STDIN not in (*pod, *files):
        raise OptionError(f"--stdin-name: {quote_value(stdin_name)} names what is read from stdin; give - for it, or remove it")
    known = check_outlook(outlook, has_manifests=bool(pod or files)).read()
    warn(known.warnings)
    return PodChoice((*pod, *files), select, name_manifests(files), given or {}, gate, known, stdin_name)


def pod_options(text: str, *more: Decorator) -> Decorator:
    """Add --pod, with `text` as its help, --select and `more`; the function gets `pods`, with those of its argument FILE, if any."""
    return add_value(
        "pods", choose_pods, outlook_options,
        click.option("--pod", multiple=True, **takes("FILE|FOLDER|PATTERN|-"), help=f"{text} Repeatable."),
        click.option("--select", default="", **takes("NAME"), help="Which pod: NAME, NAMESPACE/NAME or KIND/NAME."),
        *more, pass_given,
    )  # fmt: skip


RULES_HELP = "Pasted rules; repeatable."
rules_option = click.option("--rules", multiple=True, **takes("FILE|-"), help=RULES_HELP)

rule_source_options = add_value(
    "choice", RuleChoice,
    pod_options("Use the rules of this pod's init container; --pid compares.", stdin_name_option),
    click.option("--pod-ip", multiple=True, **takes("ADDRESS"), help="The pod's address (default: that of --pod, or an example)."),
    click.option("--live", is_flag=True, help="Use the live rules of this namespace; implied by --pid and --netns."),
    rules_option,
)  # fmt: skip
