"""What the commands inject and check-inject read and write: manifests, configuration, the cluster. All their I/O."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from netinit.errors import ConfigError, InjectionError, NetinitError, OptionError, ParseError
from netinit.inject import Settings, load_config
from netinit.inject.config import InjectionConfig
from netinit.inject.defaults import default_config
from netinit.inject.manifests import join

__all__ = [
    "Inputs",
    "explain_options",
    "in_file",
    "inputs_of",
    "options",
    "read_config",
    "read_manifests",
    "warn",
    "write_result",
]

_SUFFIXES = (".yaml", ".yml", ".json")
_STDIN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The options that both commands share."""

    filenames: tuple[str, ...]
    recursive: bool
    config_file: str | None
    mesh_file: str | None
    values_file: str | None
    context: str | None
    kubeconfig: str | None
    config_map: str | None
    mesh_map: str | None
    istio_namespace: str
    namespace: str
    settings: Settings

    @property
    def uses_cluster(self) -> bool:
        """Whether an option asks for a cluster."""
        return any((self.context, self.kubeconfig, self.config_map, self.mesh_map))


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that both commands share, as decorators."""
    for decorate in reversed(_OPTIONS):
        command = decorate(command)
    return command


_FILE = click.Path(exists=True, dir_okay=False, allow_dash=True)
_OPTIONS = (
    click.option("filenames", "-f", "--filename", multiple=True, metavar="FILE|DIR|-",
                 help="Manifests: a file, the .yaml, .yml and .json files of a folder, - for stdin. May be repeated."),
    click.option("-R", "--recursive", is_flag=True, help="Take the folders inside folders as well."),
    click.option("config_file", "--injectConfigFile", type=_FILE,
                 help="The injector's configuration: its text or the whole ConfigMap (default: our own templates)."),
    click.option("mesh_file", "--meshConfigFile", type=_FILE,
                 help="The mesh configuration: its YAML or the ConfigMap."),
    click.option("values_file", "--valuesFile", type=_FILE, help="The values of the templates, JSON or YAML."),
    click.option("--revision", default="", help="The revision that the pods are injected for."),
    click.option("--native-sidecars", type=bool, default=True, show_default=True, envvar="ENABLE_NATIVE_SIDECARS",
                 show_envvar=True, metavar="true|false", help="The proxy runs as an init container that never ends."),
    click.option("--compliance-policy", default="", envvar="COMPLIANCE_POLICY", show_envvar=True,
                 help="The policy that the proxy is told to keep, such as fips-140-3."),
    click.option("--context", help="Read the configuration from the cluster of this kubeconfig context."),
    click.option("--kubeconfig", type=click.Path(exists=True, dir_okay=False),
                 help="Read the configuration from the cluster of this kubeconfig."),
    click.option("config_map", "--injectConfigMapName",
                 help="The injector's ConfigMap in the cluster  [default: istio-sidecar-injector]"),
    click.option("mesh_map", "--meshConfigMapName", help="The mesh's ConfigMap in the cluster  [default: istio]"),
    click.option("istio_namespace", "-i", "--istioNamespace", default="istio-system", show_default=True,
                 help="The namespace of these ConfigMaps."),
    click.option("-n", "--namespace", default="", help="The namespace of objects that name none."),
)  # fmt: skip


def explain_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of the explanation, as decorators."""
    for decorate in reversed(_EXPLAIN_OPTIONS):
        command = decorate(command)
    return command


_EXPLAIN_OPTIONS = (
    click.option("labels", "--namespace-labels", metavar="KEY=VALUE,…",
                 help="The labels of the objects' namespace (default: of a Namespace in the input, or in the cluster)."),
    click.option("as_json", "--json", is_flag=True, help="Print the explanation as JSON also on a terminal."),
    click.option("as_table", "--table", is_flag=True, help="Print the explanation as a table also into a pipe."),
)  # fmt: skip


def inputs_of(values: dict[str, Any]) -> Inputs:
    """The shared options, taken out of a command's parameters."""
    settings = Settings(
        revision=values.pop("revision"),
        native_sidecars=values.pop("native_sidecars"),
        compliance_policy=values.pop("compliance_policy"),
    )
    names = Inputs.__dataclass_fields__.keys() - {"settings"}
    found = Inputs(settings=settings, **{name: values.pop(name) for name in names})
    if not found.filenames:
        raise OptionError("-f: no manifest is given; name a file, a folder, or - for stdin")
    if sum(name == _STDIN for name in (*found.filenames, found.config_file, found.mesh_file, found.values_file)) > 1:
        raise OptionError("-: stdin can be read for one option only")
    return found


def in_file(name: str, error: NetinitError) -> str:
    """The lines of an error, each with the file's name before it."""
    shown = "stdin" if name == _STDIN else name
    return "\n".join(f"{shown}: {line}" for line in str(error).splitlines())


def read_text(name: str) -> str:
    """The text of a file or of stdin. Raises ParseError where it cannot be read or is not UTF-8."""
    try:
        data = sys.stdin.buffer.read() if name == _STDIN else Path(name).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise ParseError(f"{name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ParseError(f"{name}: not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}") from error


def read_manifests(inputs: Inputs) -> list[tuple[str, str]]:
    """The name and text of every manifest, folders in the order of their files' names."""
    found: list[tuple[str, str]] = []
    for name in inputs.filenames:
        path = Path(name)
        if name != _STDIN and path.is_dir():
            pattern = "**/*" if inputs.recursive else "*"
            files = sorted(item for item in path.glob(pattern) if item.suffix in _SUFFIXES and item.is_file())
            if not files:
                raise OptionError(f"-f: {name!r} has no file ending in {', '.join(_SUFFIXES)}")
            found += [(str(item), read_text(str(item))) for item in files]
        elif name == _STDIN or path.exists():
            found.append((name, read_text(name)))
        else:
            raise OptionError(f"-f: {name!r} does not exist")
    return found


def read_config(inputs: Inputs) -> InjectionConfig:
    """The configuration: of files, else of the cluster where one is asked for, else our own."""
    source = read_text(inputs.config_file) if inputs.config_file else None
    mesh = read_text(inputs.mesh_file) if inputs.mesh_file else None
    values = read_text(inputs.values_file) if inputs.values_file else None
    if inputs.uses_cluster and (source is None or mesh is None):
        from netinit.cli.inject_cluster import Cluster

        cluster = Cluster(context=inputs.context, kubeconfig=inputs.kubeconfig)
        if source is None:
            name = inputs.config_map or _injector_map(inputs.settings.revision)
            data = cluster.config_map(inputs.istio_namespace, name)
            source = _entry(data, "config", inputs)
            values = data.get("values") if values is None else values
        if mesh is None:
            name = inputs.mesh_map or _mesh_map(inputs.settings.revision)
            mesh = _entry(cluster.config_map(inputs.istio_namespace, name), "mesh", inputs)
    try:
        if source is None:
            return default_config(values=values, mesh=mesh)
        return load_config(source, values=values, mesh=mesh)
    except ConfigError as error:
        given = inputs.config_file or inputs.mesh_file or inputs.values_file
        raise ConfigError(in_file(given, error) if given else str(error)) from error


def _injector_map(revision: str) -> str:
    return f"istio-sidecar-injector-{revision}" if revision not in {"", "default"} else "istio-sidecar-injector"


def _mesh_map(revision: str) -> str:
    return f"istio-{revision}" if revision not in {"", "default"} else "istio"


def _entry(data: dict[str, str], key: str, inputs: Inputs) -> str:
    if key not in data:
        known = ", ".join(sorted(data)) or "nothing"
        raise ConfigError(f"a ConfigMap in {inputs.istio_namespace} has no key {key!r}; it has {known}")
    return data[key]


def write_result(name: str, streams: list[str]) -> None:
    """Write the streams as one, to stdout or in one piece to a file: it has the old content or all of the new."""
    text = join(streams)
    if name == _STDIN:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    target = Path(name)
    try:
        if target.exists() and not target.is_file():  # /dev/stdout, a pipe
            target.write_text(text, encoding="utf-8")
            return
        _replace(target.resolve(), text)
    except OSError as error:
        raise InjectionError(f"-o: {name}: cannot be written: {error.strerror}") from error


def _replace(target: Path, text: str) -> None:
    temporary = target.with_name(f".{target.name[:200]}.{os.getpid()}.{os.urandom(4).hex()}")  # tempfile takes 10 ms
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            stream.write(text)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def warn(lines: Sequence[str]) -> None:
    """Tell the user something, on stderr."""
    for line in lines:
        click.echo(line, err=True)
