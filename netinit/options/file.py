"""The file of options (--config): long flag names as keys, lists as lists; options written as a file. Pure.

    istio-inbound-ports: "*"
    istio-local-exclude-ports: [15020, 15021]

An option without a flag has its variable as key. The flags' readers check the values.
"""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.options import FLAGS, Options, kinds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from netinit.options.kinds import Flag, Text

SCHEMA = "netinit/data/config.schema.json"  # in the package
WITHOUT = frozenset(("config", "netns", "pid", "dry_run"))  # they belong to one command line
OF_LISTS = (kinds.write_list, kinds.write_joined)


def key_of(flag: Flag) -> str:
    """Return the key of an option."""
    return flag.long or flag.variables[0]


def known_flags() -> dict[str, Flag]:
    """Return the options that a file may contain, by key; a flag's other names are keys too."""
    kept = [flag for flag in FLAGS if flag.field not in WITHOUT]
    return {name: flag for flag in kept for name in (key_of(flag), *flag.aliases)}


def read_tree(tree: Any, path: str) -> dict[str, tuple[Text, str]]:
    """The texts in a file's tree: field -> (text, location). Raises OptionError with every problem."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise OptionError(f"--config: {path} holds no options: write one a line, as in `istio-inbound-ports: 80`")
    known = known_flags()
    found: dict[str, tuple[Text, str]] = {}
    problems = []
    for key, value in tree.items():
        label = f"{path}: {key}"
        if key == "$schema":
            continue
        flag = known.get(key)
        if flag is None:
            problems.append(f"{label}: {_describe_unknown(str(key), tuple(known))}")
        elif flag.field in found:
            problems.append(f"{label}: the option is given twice, under two of its names")
        else:
            text = _text_of(flag, value)
            if text is None:
                problems.append(f"{label}: {_describe_value(value)}: {_form(flag)}")
            else:
                found[flag.field] = (text, label)
    if problems:
        raise OptionError(*problems)
    return found


def _text_of(flag: Flag, value: Any) -> str | None:
    """Return the value in the flag's syntax; None if it has another type."""
    if isinstance(value, bool):
        if "on" in flag.kind.words:  # YAML parses it as a boolean
            return "on" if value else "off"
        return kinds.write_bool(value) if flag.kind is kinds.SWITCH else None
    if isinstance(value, list):
        between = ";" if flag.kind.write is kinds.write_joined else ","
        items = [str(item) for item in value if isinstance(item, (int, str)) and not isinstance(item, bool)]
        return between.join(items) if flag.kind.write in OF_LISTS and len(items) == len(value) else None
    return str(value) if isinstance(value, (int, str)) else None


def _form(flag: Flag) -> str:
    if flag.kind is kinds.SWITCH:
        return "write true or false"
    return f"write {flag.kind.metavar}{', or a list' if flag.kind.write in OF_LISTS else ''}"


def _describe_unknown(key: str, known: tuple[str, ...]) -> str:
    for flag in FLAGS:
        if key_of(flag) in known and (key == flag.short or key in flag.variables):
            return f"the keys are the long names of flags: write {key_of(flag)}"
        if flag.field in WITHOUT and key in (flag.long, *flag.aliases, flag.short):
            return f"belongs to the command line, and not into a file: give {flag.label} there"
    return f"there is no such option; {kinds.suggest(key, known, 1) or 'the keys are the long names of flags'}"


def _describe_value(value: Any) -> str:
    """Describe the problem with a value of another type, in YAML's terms."""
    if value is None:
        return "has no value"
    if isinstance(value, dict):
        return "is a mapping"
    if isinstance(value, list):
        wrong = next((item for item in value if isinstance(item, bool) or not isinstance(item, (int, str))), None)
        return "is a list" if not value or wrong is None else f"is a list that holds {kinds.quote_value(_format_value(wrong))}"
    return f"{kinds.quote_value(_format_value(value))} is not what it takes"


def _format_value(value: Any) -> str:
    return kinds.write_bool(value) if isinstance(value, bool) else str(value)


def render_file(options: Options) -> str:
    """Render the options as a file: those that differ from the defaults, in YAML with JSON values."""
    import json

    lines = [f"{key}: {json.dumps(value)}" for key, value in make_tree(options).items()]
    return "\n".join([f"# yaml-language-server: $schema={SCHEMA}", *lines]) + "\n"


def make_tree(options: Options) -> dict[str, Any]:
    """Return the options that differ from the defaults, by key."""
    return {key_of(flag): _plain(flag, value) for flag, value in options.differing(("proxy_uids",)) if flag.field not in WITHOUT}


def _plain(flag: Flag, value: Any) -> Any:
    text = flag.kind.write(value)
    if flag.kind is kinds.SWITCH or (isinstance(value, int) and text == str(value)):
        return value
    if flag.kind.write in OF_LISTS and isinstance(value, tuple):
        return [item if isinstance(item, int) else str(item) for item in value]
    return text
