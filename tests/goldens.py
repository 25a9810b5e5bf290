"""The options of the golden rules: one folder a behaviour, in tests/golden/rules."""

from __future__ import annotations

import os
from pathlib import Path

from netinit.options import Options
from sweeps import choose

FOLDER = Path(__file__).parent / "golden" / "rules"
BEHAVIOURS = sorted(path.name for path in FOLDER.iterdir())
THIRDS = [choose(BEHAVIOURS[part::3], BEHAVIOURS) for part in range(3)]  # for three tests that share them
FEW = [  # named, so that a new one changes no other test
    "all-ports-as-a-range-are-the-asterisk",
    "classic-as-documented",
    "classic-tproxy-all-but-ssh",
    "dns-capture-all-without-redirect-dns-is-nothing",
    "everything-at-once",
    "inbound-redirect-with-port-list",
    "ipv6-refused-by-lists-and-reported",
    "outbound-ports-whatever-the-address",
    "several-users-and-groups-with-dns-capture",
    "virtual-interfaces-with-nothing-captured",
]
# For what loads each in a kernel or walks over all its packets; NETINIT_GOLDENS=few is for a slow machine that takes sweeps whole otherwise.
SAMPLE = FEW if os.environ.get("NETINIT_GOLDENS") == "few" else choose(FEW, BEHAVIOURS)
NOBODY = {"ENVOY_USER": "no-such-user"}  # the default users do not hang on this machine's


def read_words(text):
    """The arguments and the environment of an `options.txt`."""
    environ, argv = dict(NOBODY), []
    for line in text.splitlines():
        if line.startswith("-"):
            flag, *value = line.split(" ", 1)
            argv += [flag, *(value or ([""] if flag in ("-x", "-d") else []))]
        elif not line.startswith("#"):
            name, _, value = line.partition("=")
            environ[name] = value
    return argv, environ


def words_of(behaviour):
    """The arguments and the environment of a behaviour."""
    return read_words((FOLDER / behaviour / "options.txt").read_text())


def options_of(behaviour):
    """The options of a behaviour."""
    return Options.from_argv(*words_of(behaviour))
