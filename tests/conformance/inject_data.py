"""Istio's injection cases as data, and the comparison of manifests as values."""

from __future__ import annotations

import functools
import json
import os
import re
from fractions import Fraction
from pathlib import Path

import pytest

from netinit.golang import goyaml
from netinit.inject import load_config

_NAMED = os.environ.get("NETINIT_CONFORMANCE")
_FOLDER = Path(_NAMED) if _NAMED else Path(__file__).parents[3] / "shared" / "conformance"
DATA = _FOLDER / "inject"
CURRENT, CLASSIC = DATA / "current", DATA / "classic"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"no conformance data in {_FOLDER}; NETINIT_CONFORMANCE names it"
)


def cases(folder):
    path = folder / "index.json"
    return json.loads(path.read_text()) if path.exists() else []


@functools.cache
def documents(path):
    return goyaml.load_all(path.read_text())


def text_of(name):
    path = DATA / name
    return path.read_text() if path.exists() else ""


def joined_mesh(base, override):
    """MeshConfig YAML over another one; `extensionProviders(append)` adds to the list."""
    result = dict(base)
    for key, value in (override or {}).items():
        if key.endswith("(append)"):
            name = key.removesuffix("(append)")
            result[name] = [*result.get(name, []), *value]
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = joined_mesh(result[key], value)
        else:
            result[key] = value
    return result


@functools.cache
def _current_config(settings, override):
    folder = CURRENT / "settings" / settings
    mesh = joined_mesh(goyaml.load((folder / "mesh.yaml").read_text()) or {}, json.loads(override))
    return load_config((folder / "config.yaml").read_text(), values=(folder / "values.json").read_text(), mesh=mesh)


def current_config(case):
    return _current_config(case["settings"], json.dumps(case["mesh_override"]))


@functools.cache
def _classic_config(template, mesh):
    text = (CLASSIC / template).read_text()
    return load_config({"policy": "enabled", "template": text}, mesh=json.loads(mesh))


def classic_config(case):
    return _classic_config(case["template"], json.dumps(case["mesh"]))


_QUANTITY = re.compile(r"([+-]?[0-9.]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?\Z")
_FACTORS = {
    None: Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000) ** (number + 1) for number, unit in enumerate("kMGTPE")},
    **{unit + "i": Fraction(1024) ** (number + 1) for number, unit in enumerate("KMGTPE")},
}


def quantity(value):
    found = _QUANTITY.match(str(value))
    return f"quantity {Fraction(found[1]) * _FACTORS[found[2]]}" if found else value


def comparable(value, path=()):
    """The value without what does not count: nulls, empties, status, zero delays, the spelling of quantities."""
    if isinstance(value, dict):
        kept = {}
        for key, item in value.items():
            if (key == "status" and not path) or (key == "initialDelaySeconds" and item == 0):
                continue
            made = comparable(item, (*path, key))
            # Go drops (or adds) zero fields of the workload itself: DeploymentConfig's paused, test, minReadySeconds.
            of_workload = path == ("spec",) and type(made) in (bool, int) and not made
            if made not in (None, "", {}, []) and not of_workload:
                kept[key] = made
        return kept
    if isinstance(value, list):
        return [comparable(item, (*path, "[]")) for item in value]
    if len(path) > 1 and (path[-2] in ("limits", "requests") or path[-1] == "divisor"):
        return quantity(value)
    return value


def differences(ours, wanted, path=""):
    """Lines that tell a person where two comparable trees differ."""
    if isinstance(ours, dict) and isinstance(wanted, dict):
        found = []
        for key in sorted(ours.keys() | wanted.keys()):
            if key not in ours:
                found.append(f"{path}.{key}: missing {json.dumps(wanted[key])[:300]}")
            elif key not in wanted:
                found.append(f"{path}.{key}: unwanted {json.dumps(ours[key])[:300]}")
            else:
                found += differences(ours[key], wanted[key], f"{path}.{key}")
        return found
    if isinstance(ours, list) and isinstance(wanted, list) and len(ours) == len(wanted):
        return [
            line
            for position, pair in enumerate(zip(ours, wanted, strict=True))
            for line in differences(*pair, f"{path}[{position}]")
        ]
    if ours != wanted:
        return [f"{path}:\n     ours {json.dumps(ours)[:400]}\n   wanted {json.dumps(wanted)[:400]}"]
    return []


def assert_same(ours, wanted):
    lines = differences(comparable(ours), comparable(wanted))
    assert not lines, "\n".join(lines)
