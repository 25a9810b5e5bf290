"""What other meshes are told and what they program, as data (tests/migrations), and our options for it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

from netinit.options.peers.convert import convert, part
from netinit.options.peers.declare import Conversion

FOLDER = Path(__file__).parent / "migrations"
PEERS = ("kuma", "linkerd", "consul", "istio")


@dataclass(frozen=True)
class Programmed:
    """Rules that a peer programs for a command line."""

    name: str
    peer: str
    args: str
    differing: tuple[str, ...]
    probes: tuple[str, ...]

    @property
    def path(self) -> Path:
        return FOLDER / "rules" / f"{self.name}.txt"

    @property
    def text(self) -> str:
        return self.path.read_text("utf-8")


def load(peer: str) -> list[dict]:
    """The peer's command lines and files, with what happens to them."""
    return _read(FOLDER / f"{peer}.yaml")


def load_rules() -> list[Programmed]:
    """All rules of peers."""
    cases = _read(FOLDER / "rules.yaml")
    return [
        Programmed(one["rules"], one["peer"], one["args"], tuple(one["differing"]), tuple(one.get("probes", ())))
        for one in cases
    ]


def _read(path: Path) -> list[dict]:
    """Every worker reads it: by the library in C where that is, which takes an eighth of the time."""
    return yaml.load(path.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def convert_line(peer: str, args: str, file: object = None) -> Conversion:
    """A command line as a shell reads it, and a file's tree."""
    return convert(peer, part(peer, shlex.split(args)), [("file.yaml", file)] if file is not None else [])
