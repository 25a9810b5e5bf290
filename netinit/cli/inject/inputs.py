"""What the commands inject and check-inject read and write: manifests, configuration, the cluster. All their I/O."""

from __future__ import annotations

import posix
import sys

from netinit.base.errors import ConfigError, InjectionError, NetinitError, OptionError, ParseError
from netinit.base.output import show_artefact, tell
from netinit.base.records import Record
from netinit.base.shown import shorten, split_message
from netinit.cli.inject import files as inject_files
from netinit.cli.inject.files import RefusedFileError
from netinit.cli.inject.flags import STDIN
from netinit.inject.config import InjectionConfig, load_config
from netinit.inject.manifests import join
from netinit.inject.pod import Settings
from netinit.options.kinds import quote_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = [
    "Inputs",
    "in_file",
    "inputs_of",
    "read_config",
    "read_manifests",
    "warn",
    "write_result",
]

_SUFFIXES = (".yaml", ".yml", ".json")
_TYPE_OF_FILE, _FOLDER = 0o170000, 0o040000


class Inputs(Record):
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


def inputs_of(values: Mapping[str, Any]) -> Inputs:
    """The shared options among a command's parameters."""
    settings = Settings(
        revision=values["revision"],
        native_sidecars=values["native_sidecars"],
        compliance_policy=values["compliance_policy"],
    )
    names = [name for name in Inputs._fields if name != "settings"]
    found = Inputs(settings=settings, **{name: values[name] for name in names})
    if not found.filenames:
        raise OptionError("-f: no manifest is given; name a file, a folder, or - for stdin")
    if sum(name == STDIN for name in (*found.filenames, found.config_file, found.mesh_file, found.values_file)) > 1:
        raise OptionError("-: stdin can be read for one option only")
    return found


def in_file(name: str, error: NetinitError) -> str:
    """The lines of an error, each with the file's name before it."""
    shown = "stdin" if name == STDIN else shorten(name)
    return "\n".join(f"{shown}: {line}" for line in split_message(str(error)))


def read_text(name: str) -> str:
    """The text of a file or of stdin. Raises ParseError where it cannot be read or is not UTF-8."""
    try:
        data = sys.stdin.buffer.read() if name == STDIN else inject_files.read(name)
    except OSError as error:
        raise ParseError(f"{shorten(name)}: cannot be read: {error.strerror}") from error
    except RefusedFileError as error:
        raise ParseError(f"{shorten(name)}: {error}") from error
    return _decoded(name, data)


def _decoded(name: str, data: bytes) -> str:
    try:
        return data.removeprefix(b"\xef\xbb\xbf").decode()
    except UnicodeDecodeError as error:
        raise ParseError(f"{shorten(name)}: not UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}") from error


def read_manifests(inputs: Inputs) -> list[tuple[str, str]]:
    """The name and text of every manifest, folders in the order of their files' names."""
    found: list[tuple[str, str]] = []
    for name in inputs.filenames:
        if name == STDIN:
            found.append((name, read_text(name)))
            continue
        try:
            is_folder = posix.stat(name).st_mode & _TYPE_OF_FILE == _FOLDER
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise OptionError(f"-f: {quote_value(name)} does not exist") from None
        except OSError as error:
            raise ParseError(f"{shorten(name)}: cannot be read: {error.strerror}") from error
        found += _files_of(name, recursive=inputs.recursive) if is_folder else [(name, read_text(name))]
    return found


def _files_of(folder: str, *, recursive: bool) -> list[tuple[str, str]]:
    try:
        files = [
            (name, _decoded(name, data)) for name, data in inject_files.listed(folder, _SUFFIXES, recursive=recursive)
        ]
    except OSError as error:
        raise ParseError(f"{shorten(folder)}: cannot be read: {error.strerror}") from error
    except RefusedFileError as error:
        raise ParseError(str(error)) from error
    if not files:
        raise OptionError(f"-f: {quote_value(folder)} has no file ending in {', '.join(_SUFFIXES)}")
    return files


def read_config(inputs: Inputs, *, lazily: bool = False) -> InjectionConfig:
    """The configuration: of files, else of the cluster where one is asked for, else our own.

    `lazily`: see load_config.
    """
    source = read_text(inputs.config_file) if inputs.config_file else None
    mesh = read_text(inputs.mesh_file) if inputs.mesh_file else None
    values = read_text(inputs.values_file) if inputs.values_file else None
    if inputs.uses_cluster and (source is None or mesh is None):
        from netinit.cli.inject.cluster import Cluster

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
            from netinit.inject.defaults import default_config

            return default_config(values=values, mesh=mesh, lazily=lazily)
        return load_config(source, values=values, mesh=mesh, lazily=lazily)
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
    if name == STDIN:
        show_artefact(text)
        return
    try:
        inject_files.replace(name, text)
    except OSError as error:
        raise InjectionError(f"-o: {name}: cannot be written: {error.strerror}") from error
    except RefusedFileError as error:
        raise InjectionError(f"-o: {name}: is not written: {error}") from error


def warn(lines: Sequence[str]) -> None:
    """Tell the user something, on stderr."""
    tell(lines)
