"""What `make mutants` found: for each file how many changes were tried and noticed, then those that no test noticed.

Reads what mutmut left in mutants/. A change after which a test does not end within its limit counts as noticed.
"""

from __future__ import annotations

import json
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "mutants" / "netinit"
SURVIVED, UNTESTED = 0, (5, 33)  # exit codes of mutmut: every test passed; there is none that runs the function


def report(folder: Path) -> str:
    """A line for each file that was tried, and below the names of the changes that survived."""
    lines, survivors = [f"{'':36}{'tried':>7}{'killed':>8}{'%':>7}"], []
    for path in sorted(folder.rglob("*.meta")):
        codes = {name: code for name, code in json.loads(path.read_text())["exit_code_by_key"].items() if code is not None}
        if not codes:
            continue
        lost = [name for name, code in codes.items() if code == SURVIVED or code in UNTESTED]
        survivors += [f"{name}{'  (no test runs it)' if codes[name] in UNTESTED else ''}" for name in lost]
        killed = len(codes) - len(lost)
        name = str(path.relative_to(folder)).removesuffix(".py.meta")
        lines.append(f"{name:36}{len(codes):7}{killed:8}{100 * killed / len(codes):7.1f}")
    remedy = ["", "mutmut show NAME prints what was changed"] if survivors else []
    return "".join(f"{line}\n" for line in [*lines, "", *survivors, *remedy])


if __name__ == "__main__":
    print(report(FOLDER), end="")
