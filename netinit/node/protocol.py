"""The CNI protocol: requests, results and errors (versions 0.1.0 to 1.1.0). Pure.

netinit/node/plugin.c defines the frames around them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from netinit.base.errors import CniError
from netinit.base.sanitize import escape, quote, shorten
from netinit.base.tree import Tree, mapping, sequence

VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")  # all of the specification
NEWEST = VERSIONS[-1]
GREETING = b"netinit-cni 1 "
MAX_HEAD_BYTES = 64
_UNOPENED = "NETINIT_NETNS_ERRNO"
_MAX_ERRNO = 4095  # Linux's, include/linux/err.h
_MAX_VARIABLES, _MAX_INPUT, _MAX_MILLISECONDS = 64 << 10, 1 << 20, 600_000  # bytes, bytes, milliseconds
_MAX_MESSAGE = 2000
_FIRST_WITH = {"CHECK": "0.4.0", "GC": "1.1.0"}  # the first version with this verb
_VERBS = ("ADD", "DEL", "CHECK", "GC")
_ID = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.\-]*\Z")
_INTERFACE = re.compile(r"[^\s/:\0]{1,15}\Z")


class CniCode:
    """CNI's error codes, and our own."""

    VERSION, FIELD, UNKNOWN, ENVIRONMENT, IO, DECODING, CONFIGURATION = range(1, 8)
    LATER = 11
    NOT_PROGRAMMED, BAD_POD, DRIFT = 100, 101, 102


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request: its verb, the pod as the runtime names it, and the plugin's configuration.

    `pod`: namespace and name, empty if the runtime is not Kubernetes'. `uid`: the pod's, if the runtime passes it. `unopened`: the
    errno with which the plugin failed to open the pod's namespace; 0 if it did not, or if the path leads nowhere.
    """

    verb: str
    version: str
    container: str = ""
    netns: str = ""
    interface: str = ""
    pod: tuple[str, str] = ("", "")
    uid: str = ""
    unopened: int = 0
    configuration: Tree = field(default_factory=dict)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses that earlier plugins gave the pod, in order, without prefix lengths.

        Results have a list `ips` since version 0.3.0, and `ip4` and `ip6` before. A plugin may answer in an older version than
        the list's, so both are read.
        """
        previous = mapping(self.configuration.get("prevResult"))
        found = [mapping(one).get("address") for one in sequence(previous.get("ips"))]
        found += [mapping(previous.get(key)).get("ip") for key in ("ip4", "ip6")]
        return tuple(dict.fromkeys(text.partition("/")[0] for text in found if isinstance(text, str) and text))


def parse_head(line: bytes) -> tuple[int, int, int]:
    """Parse the first line: the lengths of variables and input, and the timeout in milliseconds. Raises CniError."""
    words = line[len(GREETING) :].split(b" ")
    if not line.startswith(GREETING) or len(words) != 3 or not all(word.isdigit() and len(word) < 10 for word in words):  # noqa: PLR2004
        raise CniError("this is not a request of netinit's plugin", CniCode.DECODING)
    variables, given, milliseconds = map(int, words)
    if variables > _MAX_VARIABLES or given > _MAX_INPUT:
        raise CniError("the request is too long", CniCode.CONFIGURATION)
    return variables, given, min(milliseconds, _MAX_MILLISECONDS)


def parse_request(variables: bytes, given: bytes) -> Request:
    """Parse a request from its variables and stdin. Raises CniError."""
    environ = _read_variables(variables)
    tree = _read_configuration(given)
    version = tree.get("cniVersion")
    if (problem := version_problem(version)) or not isinstance(version, str):
        raise CniError(f"the configuration {problem}", CniCode.VERSION)
    verb = environ.get("CNI_COMMAND", "")
    if verb not in _VERBS:
        raise CniError(f"CNI_COMMAND is {quote(verb)}; it must be one of {', '.join(_VERBS)}", CniCode.ENVIRONMENT)
    first = _FIRST_WITH.get(verb, VERSIONS[0])
    if VERSIONS.index(version) < VERSIONS.index(first):
        raise CniError(f"{verb} came with CNI {first}; the configuration is of {version}", CniCode.VERSION)
    arguments = _read_arguments(environ.get("CNI_ARGS", ""))
    request = Request(
        verb=verb,
        version=version,
        container=environ.get("CNI_CONTAINERID", ""),
        netns=environ.get("CNI_NETNS", ""),
        interface=environ.get("CNI_IFNAME", ""),
        pod=(arguments.get("K8S_POD_NAMESPACE", ""), arguments.get("K8S_POD_NAME", "")),
        uid=arguments.get("K8S_POD_UID", ""),
        unopened=_read_errno(environ.get(_UNOPENED, "0")),
        configuration=tree,
    )
    if verb != "GC":
        _check_pod(request)
    return request


def version_problem(version: object) -> str:
    """Return what is wrong with a configuration's version, as a predicate; empty if it is one of VERSIONS.

    A version that is newer than the plugin is refused, as by every plugin made with CNI's library (pkg/skel, pkg/version).
    """
    if isinstance(version, str) and version in VERSIONS:
        return ""
    known = f"netinit's plugin has {', '.join(VERSIONS)}"
    if version is None or version == "":
        return f"has no cniVersion; {known}"
    return f"has cniVersion {quote(version)}; {known}" if isinstance(version, str) else f"has a cniVersion that is no string; {known}"


def _read_variables(variables: bytes) -> dict[str, str]:
    *items, rest = variables.split(b"\0")
    if rest:
        raise CniError("the request's variables are cut off", CniCode.DECODING)
    try:
        texts = [item.decode() for item in items]
    except UnicodeDecodeError:
        raise CniError("a variable of CNI is not UTF-8", CniCode.ENVIRONMENT) from None
    return dict(text.split("=", 1) for text in texts if "=" in text)


def _read_errno(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_ERRNO)) and int(text) <= _MAX_ERRNO):
        raise CniError(f"{_UNOPENED} is {quote(text)}; it must be a number of Linux", CniCode.ENVIRONMENT)
    return int(text)


def _read_configuration(given: bytes) -> Tree:
    try:
        tree = json.loads(given)
    except (ValueError, RecursionError):  # UnicodeDecodeError is a ValueError
        raise CniError("the configuration on stdin is not JSON", CniCode.DECODING) from None
    if not isinstance(tree, dict):
        raise CniError("the configuration on stdin is not an object", CniCode.DECODING)
    name = tree.get("name")
    if not isinstance(name, str) or not _ID.match(name):
        raise CniError("the configuration has no name, or one with other characters than letters, digits, _.-", CniCode.CONFIGURATION)
    if not isinstance(tree.get("prevResult", {}), dict):
        raise CniError("prevResult is not an object", CniCode.DECODING)
    return tree


def _read_arguments(text: str) -> dict[str, str]:
    """Parse CNI_ARGS, K=V;K=V. Raises CniError for an item that is not a pair, as libcni does."""
    pairs = [item.split("=", 1) for item in text.split(";") if item]
    if any(len(pair) != 2 for pair in pairs):  # noqa: PLR2004 - a pair
        raise CniError(f"CNI_ARGS is {quote(text)}; it must be KEY=VALUE;KEY=VALUE", CniCode.ENVIRONMENT)
    return dict(pairs)


def _check_pod(request: Request) -> None:
    needed = {"CNI_CONTAINERID": request.container, "CNI_IFNAME": request.interface}
    if request.verb != "DEL":
        needed["CNI_NETNS"] = request.netns
    missing = [name for name, value in needed.items() if not value]
    if missing:
        raise CniError(f"{request.verb} needs {', '.join(missing)}, which the runtime did not set", CniCode.ENVIRONMENT)
    if not _ID.match(request.container):
        raise CniError("CNI_CONTAINERID has other characters than letters, digits, _.-", CniCode.ENVIRONMENT)
    if not _INTERFACE.match(request.interface) or request.interface in (".", ".."):
        raise CniError("CNI_IFNAME is not an interface name: 1 to 15 characters, no blanks, slashes and colons", CniCode.ENVIRONMENT)


def result(request: Request) -> Tree:
    """Return ADD's output: prevResult as it came, whatever its version; an empty result without one."""
    previous = request.configuration.get("prevResult")
    return previous if isinstance(previous, dict) else {"cniVersion": request.version}


def encode_answer(tree: Tree | None) -> bytes:
    """Encode a success, with the plugin's output."""
    return _frame(0, b"" if tree is None else json.dumps(tree).encode() + b"\n")


def encode_error(error: CniError, version: str = NEWEST) -> bytes:
    """Encode a failure as a CNI error: one line as the message, the rest as details."""
    first, _, more = str(error).partition("\n")
    tree = {"cniVersion": version, "code": error.code, "msg": f"netinit: {escape(shorten(first, _MAX_MESSAGE))}"}
    if more:
        tree["details"] = "\n".join(escape(line) for line in shorten(more, _MAX_MESSAGE).split("\n"))
    return _frame(1, json.dumps(tree).encode() + b"\n")


def _frame(code: int, body: bytes) -> bytes:
    return GREETING + f"{code} {len(body)}\n".encode() + body
