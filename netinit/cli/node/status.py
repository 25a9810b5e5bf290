"""`netinit node status`: what is installed on this node, the agent's health, and recent errors."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from netinit.base.output import show_artefact, to_json, with_version
from netinit.base.sanitize import Lines, lines
from netinit.base.tree import Tree, mapping, sequence, string
from netinit.cli.console import answer
from netinit.cli.flags import FlagCommand, json_option
from netinit.node.settings import STATUS_FILE, InstallSettings

_STALE = 15.0  # seconds since the agent's last update


@click.command("status", cls=FlagCommand, settings=InstallSettings)
@json_option("node-status")
def command(options: InstallSettings, as_json: bool) -> int:
    """Show what is installed on this node, the agent's state, and its last errors.

    Only files are read: run it on the node, or in the agent's container. Exit codes: 0 pods are captured, 1 something is wrong.
    """
    found = gather(options, time.time())
    if as_json:
        show_artefact(to_json(with_version(found)))
    else:
        answer(render(found))
    return 1 if found["executable"] or found["entry"] or found["agent"] else 0


def gather(options: InstallSettings, now: float) -> dict[str, Any]:
    """The problem of each part (empty if none), and the agent's own status."""
    from netinit.node.installer import Installer

    status = _read(Path(options.socket).parent / STATUS_FILE)
    silence = now - float(status.get("time", 0))
    checks = {name: string(wrong) for name, wrong in mapping(status.get("checks")).items()}
    wrong = [f"{name}: {problem}" for name, problem in checks.items() if problem]
    if not status:
        agent = "it has not run on this node since the last start"
    elif silence > _STALE:
        agent = f"it has said nothing for {silence:.0f} s"
    else:
        agent = "; ".join(wrong)
    return {
        **Installer(options).state(), "agent": agent, "pods": status.get("pods", 0),
        "problems": [f"{name}: {problem}" for name, problem in mapping(status.get("problems")).items()],
        "lastErrors": [string(one) for one in sequence(status.get("lastErrors"))],
    }  # fmt: skip


def _read(path: Path) -> Tree:
    try:
        return mapping(json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return {}


def render(found: dict[str, Any]) -> Lines:
    """Format a line per part, and the recent errors."""
    status = [f"{'✘' if found[part] else '✔'} {part}: {found[part] or 'in place'}" for part in ("executable", "entry")]
    status.append(f"✘ agent: {found['agent']}" if found["agent"] else f"✔ agent: it answers for {found['pods']} pods")
    status += [f"! {problem}" for problem in found["problems"]]
    status += [f"error: {error}" for error in found["lastErrors"]]
    return lines(status)
