"""The runtime's network configuration list: add and remove netinit's entry, and the plugin's settings. Pure: text in, text out.

The rest of a list stays unchanged byte for byte: the entry is inserted into the text and cut out again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from netinit.base.errors import ConfigError
from netinit.base.sanitize import quote
from netinit.base.tree import Tree, explain_json_error, mapping, sequence, string
from netinit.node.protocol import version_problem
from netinit.node.settings import OUTSIDE_FILE, SECOND, START, InstallSettings

TYPE = "netinit-cni"
ENTRY: Tree = {"type": TYPE}
_INSERTED = f', {{"type": "{TYPE}"}}'  # after the last of the other plugins
_COPY_OF = "copyOf"  # in the entry of a list of our own: the file that it is a copy of
MULTUS = frozenset({"multus", "multus-shim"})
OTHER_MESHES = {"istio-cni": "Istio", "linkerd-cni": "Linkerd", "kuma-cni": "Kuma", "consul-cni": "Consul"}  # by plugin
LIST, SINGLE = ".conflist", (".conf", ".json")


def networks_of(names: Iterable[str]) -> list[str]:
    """Return the files that a runtime takes for networks, in its order: it uses the first."""
    return sorted(name for name in names if name.endswith((LIST, *SINGLE)))  # hidden ones too: libcni takes them


def first_of(names: Iterable[str]) -> str:
    """Return the file that a runtime uses; empty if there is none."""
    return next(iter(networks_of(names)), "")


def settings_of(settings: InstallSettings) -> str:
    """Return the settings file next to the plugin's executable (netinit/node/plugin.c), NAME=VALUE lines. Raises ConfigError."""
    lines = [("socket", settings.socket), ("seconds", str(max(1, settings.timeout // SECOND)))]
    lines += [("namespace", settings.namespace), ("daemon-set", settings.daemon_set)]
    if settings.outside_namespaces == START:
        lines.append(("outside-namespaces", "".join((*settings.socket.rpartition("/")[:2], OUTSIDE_FILE))))
    lines += [("exclude-namespace", name) for name in settings.exclude_namespaces]
    for name, value in lines:
        if "\n" in value or "\0" in value:
            raise ConfigError(f"the plugin's setting {name}={quote(value)} must be one line")
    return "".join(f"{name}={value}\n" for name, value in lines)


def owner_of(text: str) -> str:
    """Return whose plugin it is by such a settings file: the agents' NAMESPACE/DAEMONSET; empty if none is named."""
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    names = found.get("namespace", ""), found.get("daemon-set", "")
    return "/".join(names) if all(names) else ""


def network_of() -> str:
    """Return a network with netinit's plugin only, for Multus to add to a pod (annotation k8s.v1.cni.cncf.io/networks)."""
    return _write({"cniVersion": "1.0.0", "name": TYPE, **ENTRY})


def with_entry(text: str, *, single: bool) -> str:
    """Return the list with the entry at its end, replacing an older one; a single plugin is converted to a list.

    Returns the same text if nothing changes. Raises ConfigError for a configuration that no runtime accepts.
    """
    tree, plugins = _read(text, single=single)
    if plugins[-1:] == [ENTRY] and len(_ours(plugins)) == 1:
        return text
    others = [one for one in plugins if one not in _ours(plugins)]
    wanted = {**tree, "plugins": [*others, ENTRY]}
    cleared = text if single else without_entry(text)
    ends = (len(cleared[:at].rstrip()) for at in _places(cleared, "]"))  # of each list in the text, the last list first
    inserted = (f"{cleared[:end]}{_INSERTED}{cleared[end:]}" for end in ends)
    return next((one for one in inserted if _is(one, wanted)), "") or _write(wanted)


def without_entry(text: str) -> str:
    """Return the list without our entry; the same text if there is none. Raises ConfigError."""
    tree, plugins = _read(text)
    ours = _ours(plugins)
    if not ours:
        return text
    wanted = {**tree, "plugins": [one for one in plugins if one not in ours]}
    removed = (text[:at] + text[at + len(_INSERTED) :] for at in _places(text, _INSERTED))
    return next((one for one in removed if _is(one, wanted)), "") or _write(wanted)


def make_copy(text: str, name: str, *, single: bool) -> str:
    """Return a list of our own: a copy of the network in the file `name`, with our entry at its end. Raises ConfigError."""
    tree, plugins = _read(text, single=single)
    others = [one for one in plugins if one not in _ours(plugins)]
    return _write({**tree, "plugins": [*others, {**ENTRY, _COPY_OF: name}]})


def source_of(text: str) -> str:
    """Return the name of the file that this list is a copy of; empty if it is no list of our own."""
    try:
        ours = _ours(_read(text)[1])
    except ConfigError:
        return ""
    return string(ours[-1].get(_COPY_OF)) if ours else ""


def is_copy(text: str, of: str, name: str, *, single: bool) -> bool:
    """Whether the text is a list of our own that has all of `of`, the text of the file `name`; of any release. Raises ConfigError.

    `of` is a single plugin if `single` is set.
    """
    (tree, plugins), (own, copied) = _read(of, single=single), _read(text)
    return (
        source_of(text) == name and is_last(text) and [one for one in plugins if one not in _ours(plugins)] == copied[:-1]
        and {**own, "plugins": []} == {**tree, "plugins": []}
    )  # fmt: skip


def plugins_of(text: str) -> frozenset[str]:
    """Return the types of all plugins that a network names, a list or a single plugin; empty if it is neither."""
    try:
        tree = mapping(json.loads(text))
    except (ValueError, RecursionError):
        return frozenset()
    return frozenset(string(mapping(one).get("type")) for one in (tree, *sequence(tree.get("plugins")))) - {""}


def _places(text: str, what: str) -> Iterator[int]:
    """Yield the positions of a substring, the last first."""
    at = text.rfind(what)
    while at >= 0:
        yield at
        at = text.rfind(what, 0, at)


def _is(text: str, tree: Tree) -> bool:
    """Whether the text decodes to this tree, in the same order."""
    try:
        return json.dumps(json.loads(text)) == json.dumps(tree)
    except ValueError:
        return False


def has_entry(text: str) -> bool:
    """Whether our entry is in the list, at any position. Raises ConfigError."""
    return bool(_ours(_read(text)[1]))


def is_last(text: str) -> bool:
    """Whether our only entry is the last of the list. Raises ConfigError."""
    _, plugins = _read(text)
    return _ours(plugins) == plugins[-1:]


def _read(text: str, *, single: bool = False) -> tuple[Tree, list[Any]]:
    """Return the list, and its plugins. Raises ConfigError."""
    try:
        tree = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"it is not JSON: {explain_json_error(error)}") from None
    if not isinstance(tree, dict):
        raise ConfigError("it is not a JSON object")
    version = tree.get("cniVersion")
    for one in _versions_of(tree):
        if problem := version_problem(one):
            raise ConfigError(f"it {problem}")
    if not isinstance(tree.get("name"), str) or not tree["name"]:
        raise ConfigError("it has no name")
    if single:
        if not isinstance(tree.get("type"), str):
            hint = f"; runtimes read lists of plugins only from files named *{LIST}: rename it" if "plugins" in tree else ""
            raise ConfigError(f"it names no plugin (type){hint}")
        own = {key: value for key, value in tree.items() if key not in ("cniVersion", "name")}
        tree = {"cniVersion": version, "name": tree["name"], "plugins": [own]}
    if "plugins" not in tree:
        raise ConfigError("it has no list of plugins; netinit takes none of the folder of that name beside it for a network")
    plugins = tree["plugins"]
    if not isinstance(plugins, list) or not all(isinstance(one, dict) and isinstance(one.get("type"), str) for one in plugins):
        raise ConfigError("it has no list of plugins")
    if len(_ours(plugins)) == len(plugins):
        raise ConfigError("it has no plugin that makes a network")
    return tree, plugins


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def folder_of(text: str) -> str:
    """Return the folder, beside the list, whose plugins libcni 1.3 runs behind the list's; empty for none. Raises ConfigError."""
    tree = _read(text)[0]
    return "" if str(tree.get("loadOnlyInlinedPlugins")).lower() == "true" or "/" in tree["name"] else str(tree["name"])


def _versions_of(tree: Tree) -> list[Any]:
    """Return the versions in which a runtime may pass the list: its cniVersion, and since 1.1.0 each one of cniVersions."""
    more = sequence(tree.get("cniVersions"))
    return [*more, tree["cniVersion"]] if more and "cniVersion" in tree else more or [tree.get("cniVersion")]


def _ours(plugins: list[Any]) -> list[Any]:
    return [one for one in plugins if one["type"] == TYPE]


def _write(tree: Tree) -> str:
    text = json.dumps(tree, indent=2, ensure_ascii=False) + "\n"
    # A lone surrogate, which JSON can express and UTF-8 cannot, stays escaped.
    return "".join(f"\\u{ord(one):04x}" if "\ud800" <= one <= "\udfff" else one for one in text)
