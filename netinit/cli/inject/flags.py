"""The flags of inject and check-inject: one table, from which click's options are made and which is read without click.

A plain command line of `netinit inject`, as scripts have it, is read here: importing click takes longer than injecting.
Everything else (help, completion, an unknown flag, a file that is not there, --explain) is left to click, and what is
read here means the same there.
"""

from __future__ import annotations

import posix

from netinit.base.records import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

TEXT, FILE, NAMED_FILE, SWITCH, TRUE_OR_FALSE = "text", "file or -", "file", "switch", "true|false"
STDIN = "-"
_WORDS = {"true": True, "false": False}  # click knows more of them, and upper case
_TYPE_OF_FILE, _FOLDER = 0o170000, 0o040000


class Flag(Record):
    """One flag: the parameter that it fills, its spellings, the kind of its value, and what the help says."""

    field: str
    names: tuple[str, ...]
    help: str
    kind: str = TEXT
    metavar: str = ""
    default: Any = None
    repeated: bool = False
    variable: str = ""  # of the environment, asked where the flag is not given; an empty one counts as unset
    shows_default: bool = False


SHARED = (
    Flag(field="filenames", names=("-f", "--filename"), repeated=True, metavar="FILE|DIR|-",
         help="Manifests: a file, the .yaml, .yml and .json files of a folder, - for stdin. May be repeated."),
    Flag(field="recursive", names=("-R", "--recursive"), kind=SWITCH, help="Take the folders inside folders as well."),
    Flag(field="config_file", names=("--injectConfigFile",), kind=FILE,
         help="The injector's configuration: its text or the whole ConfigMap (default: our own templates)."),
    Flag(field="mesh_file", names=("--meshConfigFile",), kind=FILE,
         help="The mesh configuration: its YAML or the ConfigMap."),
    Flag(field="values_file", names=("--valuesFile",), kind=FILE, help="The values of the templates, JSON or YAML."),
    Flag(field="revision", names=("--revision",), default="", help="The revision that the pods are injected for."),
    Flag(field="native_sidecars", names=("--native-sidecars",), kind=TRUE_OR_FALSE, default=True, shows_default=True,
         variable="ENABLE_NATIVE_SIDECARS", metavar="true|false",
         help="The proxy runs as an init container that never ends."),
    Flag(field="compliance_policy", names=("--compliance-policy",), default="", variable="COMPLIANCE_POLICY",
         help="The policy that the proxy is told to keep, such as fips-140-3."),
    Flag(field="context", names=("--context",),
         help="Read the configuration from the cluster of this kubeconfig context."),
    Flag(field="kubeconfig", names=("--kubeconfig",), kind=NAMED_FILE,
         help="Read the configuration from the cluster of this kubeconfig."),
    Flag(field="config_map", names=("--injectConfigMapName",),
         help="The injector's ConfigMap in the cluster  [default: istio-sidecar-injector]"),
    Flag(field="mesh_map", names=("--meshConfigMapName",),
         help="The mesh's ConfigMap in the cluster  [default: istio]"),
    Flag(field="istio_namespace", names=("-i", "--istioNamespace"), default="istio-system", shows_default=True,
         help="The namespace of these ConfigMaps."),
    Flag(field="namespace", names=("-n", "--namespace"), default="", help="The namespace of objects that name none."),
)  # fmt: skip
EXPLANATION = (
    Flag(field="labels", names=("--namespace-labels",), metavar="KEY=VALUE,…",
         help="The labels of the objects' namespace (default: of a Namespace in the input, or in the cluster)."),
    Flag(field="as_json", names=("--json",), kind=SWITCH, help="Print the explanation as JSON also on a terminal."),
    Flag(field="as_table", names=("--table",), kind=SWITCH, help="Print the explanation as a table also into a pipe."),
)  # fmt: skip
INJECT = (
    *SHARED,
    Flag(field="output", names=("-o", "--output"), default=STDIN, metavar="FILE|-",
         help="Where the manifests go (default: stdout)."),
    Flag(field="explain", names=("--explain",), kind=SWITCH,
         help="Tell for each object whether it will be injected, and why; write nothing."),
    *EXPLANATION,
)  # fmt: skip
CHECK = (*SHARED, *EXPLANATION)


def read(words: Sequence[str], environ: Mapping[str, str]) -> dict[str, Any] | None:
    """The value of every field of `INJECT` that a plain command line gives; None where click has to read it.

    Plain are long flags, short ones each in a word of its own, and values that do not look like flags.
    """
    known = {name: flag for flag in INJECT for name in flag.names}
    texts: dict[str, list[str]] = {}
    waiting = list(reversed(words))  # the next word is the last
    while waiting:
        word = waiting.pop()
        name, equals, text = word.partition("=") if word.startswith("--") else (word, "", "")
        flag = known.get(name)
        if flag is None or (flag.kind == SWITCH and equals):
            return None
        if flag.kind != SWITCH and not equals:
            if not waiting or (waiting[-1].startswith("-") and waiting[-1] != STDIN):
                return None
            text = waiting.pop()
        texts.setdefault(flag.field, []).append(text)
    try:
        values = {flag.field: _value(flag, texts.get(flag.field), environ) for flag in INJECT}
    except (KeyError, OSError, ValueError):
        return None
    return None if values["explain"] else values


def _value(flag: Flag, texts: list[str] | None, environ: Mapping[str, str]) -> Any:
    """The flag's value; KeyError, OSError or ValueError where it is no plain one."""
    if flag.repeated:
        return tuple(texts or ())
    if flag.kind == SWITCH:
        return texts is not None
    text = texts[-1] if texts else (environ.get(flag.variable) or None) if flag.variable else None
    if text is None:
        return flag.default
    if flag.kind == TRUE_OR_FALSE:
        return _WORDS[text]
    if flag.kind == NAMED_FILE or (flag.kind == FILE and text != STDIN):
        is_folder = posix.stat(text).st_mode & _TYPE_OF_FILE == _FOLDER
        if is_folder or not posix.access(text, posix.R_OK):
            raise OSError(text)
    return text


def declare(flags: Sequence[Flag]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that gives a click command these flags as its options."""
    import click

    types: dict[str, Any] = {
        FILE: click.Path(exists=True, dir_okay=False, allow_dash=True),
        NAMED_FILE: click.Path(exists=True, dir_okay=False),
        TRUE_OR_FALSE: bool,
    }

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for flag in reversed(flags):
            more: dict[str, Any] = {"is_flag": True} if flag.kind == SWITCH else {"type": types.get(flag.kind, str)}
            if not flag.repeated and flag.kind != SWITCH:
                more["default"] = flag.default
            if flag.variable:
                more |= {"envvar": flag.variable, "show_envvar": True}
            option = click.option(
                flag.field,
                *flag.names,
                multiple=flag.repeated,
                metavar=flag.metavar or None,
                show_default=flag.shows_default,
                help=flag.help,
                **more,
            )
            command = option(command)
        return command

    return decorate
