"""Packets that a peer's own rules and the converted options treat differently. Pure."""

from __future__ import annotations

from dataclasses import replace

from netinit.options import Options
from netinit.options.peers.convert import PEERS
from netinit.options.peers.declare import Conversion
from netinit.questions.comparison import Compared, compare, on_common_host
from netinit.questions.rule_sources import RuleSource

STRICTER = (
    "left out of the comparison is what netinit stops beyond other meshes: TCP on a conntrack entry that another connection left, and"
    " over lo from foreign addresses (--istio-exact leaves it out of the rules)"
)
OF_THE_RUN = ("netns", "pid", "dry_run", "cni_mode", "run_validation")  # where and how to run, not what is captured


def take_rule_options(options: Options) -> Options:
    """The converted options as they are compared: those of the rules alone, without what netinit stops beyond other meshes."""
    fields = [flag.field for flag in Options.flags if flag.field not in OF_THE_RUN]
    return Options(**{field: getattr(options, field) for field in fields} | {"istio_exact": True})


def compare_conversion(found: Conversion, ours: RuleSource, theirs: RuleSource, *, is_live: bool) -> Compared:
    """The peer's rules compared with `ours`, which are planned of the converted options.

    `is_live`: theirs are in a pod, whose host both are compared on. Raises OptionError, TooManyPartsError.
    """
    name = f"the rules of {PEERS[found.peer].peer} and the converted options"
    return compare(on_common_host(name, replace(theirs, notes=(STRICTER,)), ours, theirs if is_live else None))
