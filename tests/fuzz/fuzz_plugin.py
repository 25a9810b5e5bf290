"""Hostile configurations for the plugin's reader, with sanitizers, beside Python's reader: `make fuzz`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "node"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from test_plugin import cases

from plugin_reader import differences

_AT_ONCE = 20_000


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    for first in range(0, asked.cases, _AT_ONCE):
        for case, ours, theirs in differences(list(cases(min(_AT_ONCE, asked.cases - first), asked.seed + first))):
            print(f"{case!r}: the plugin understands {ours!r}, Python {theirs!r}")
            return 1
    print(f"plugin: {asked.cases} configurations, read as Python reads them, no fault found by the sanitizers")
    return 0


if __name__ == "__main__":
    sys.exit(main())
