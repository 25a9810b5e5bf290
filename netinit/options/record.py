"""The record of a pod's options: a comment that netinit gives its nft table, and that anybody in the pod can change.

It is a command line, `netinit apply -u 1337 -b *`, in which words have no blanks and are not quoted.
"""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.options import Interception, Options

PROGRAM = "netinit apply"
MAX_LENGTH = 128  # bytes: nft lists a longer comment, but does not load what it listed (NFTNL_UDATA_COMMENT_MAXLEN)


def write_record(options: Interception) -> str:
    """Return the options of rules as one line; empty if they do not fit, so that they are inferred from the rules."""
    of_rules = Options(**{flag.field: getattr(options, flag.field) for flag in Interception.flags})
    variables = [f"{name}={value}" for name, value in of_rules.to_environ().items()]
    arguments = of_rules.to_argv(("proxy_uids",))  # its default is a user of this image
    words = [*variables, *PROGRAM.split(), *arguments]
    text = " ".join(words)
    fits = len(text) <= MAX_LENGTH and text.isascii() and text.isprintable() and '"' not in text
    return text if fits and text.split(" ") == words and read_record(text) is not None else ""


def read_record(text: str) -> Interception | None:
    """Return the options of a record; None for any other comment."""
    if len(text) > MAX_LENGTH:
        return None
    variables, found, arguments = f" {text} ".partition(f" {PROGRAM} ")
    environ = dict([word.partition("=")[::2] for word in variables.split()])
    known = {name for flag in Interception.flags for name in flag.variables}
    if not found or not environ.keys() <= known:
        return None
    try:
        return Interception.from_argv(arguments.split(), environ)
    except OptionError:
        return None
