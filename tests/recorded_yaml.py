"""Scalars of every shape with every core tag, and what sigs.k8s.io/yaml makes of them.

    python tests/recorded_yaml.py ORACLE

records the answers again. ORACLE is tests/unit/golang/recorded/oracle.go, built inside a checkout of sigs.k8s.io/yaml
(`go build -o ORACLE ./cmd/oracle`): a program that reads documents as JSON strings, one in a line.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

RECORDED = Path(__file__).parent / "unit" / "golang" / "recorded" / "tagged-scalars.json"
TAGS = ("", "!!str", "!!bool", "!!int", "!!float", "!!null", "!!timestamp", "!!binary", "!!merge", "!!seq", "!!map", "!!set", "!own")
SCALARS = (
    "", "~", "null", "Null", "nULL", "y", "Y", "n", "on", "On", "oN", "off", "true", "TRUE", "tRUE", "False", "yes", "<<", "=", "x", "a b",
    "0", "-0", "+5", "-5", "010", "08", "-010", "0o17", "0O17", "0x1F", "0X1f", "-0x1", "0xg", "0x", "0b101", "-0b11", "0b2", "1_000", "_1", "1__0", "0x_1F",
    "1.5", "-1.5e3", "1e3", ".5", "-.5", "1.", "1e", "1.2.3", "1_0.5", ".5_0", "._5", "1e308", "1e-400", "1e999", "0x1p-2", "3.0", "1.1", "16777217.0", "1e300",
    ".inf", "-.Inf", "+.INF", ".nan", ".Infinity", ".", "+", "-1-", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "18446744073709551615", "18446744073709551616", "-9223372036854775809", "123456789012345678901", "0xffffffffffffffff", "0x1ffffffffffffffff", "07777777777777777777777777",
    "2001-01-01", "2001-1-1", "2001-13-01", "2001-02-29", "2000-02-29", "0000-01-01", "20010-01-01", "2001-12-14T21:59:43Z", "2001-12-14t21:59:43.1+05:30", "2001-12-14 21:59:43.10 -5",
    "2001-12-14 21:59:43", "2001-12-14 1:2:3,5", "2001-12-14T21:59:43", "2001-12-14 21:59:43Z", "2001-12-14T24:00:00Z", "2001-12-14T21:59:43+25:00", "2001-12-14T21:59:43-24:60",
    "12:30:45", "190:20:30", "aGk=", "aGk", "aG k=", "aGk==", "=aGk", "4oI=", "/w==", "é", "aGk=aGk=",
)  # fmt: skip
PLACES = {"plain value": "a: {0} {1}", "quoted value": "a: {0} '{1}'", "plain key": "? {0} {1}\n: x"}
CASES = [place.format(tag, scalar) for place, tag, scalar in itertools.product(PLACES.values(), TAGS, SCALARS)]


def record(oracle: str) -> None:
    """Ask the oracle about all cases; what it answers to is a list of JSON texts, or of errors that begin with `!`."""
    asked = "".join(f"{json.dumps(case)}\n" for case in CASES)
    answers = subprocess.run([oracle], input=asked, capture_output=True, text=True, check=True).stdout.splitlines()
    told = [answer["json"] if "json" in answer else f"!{answer['error']}" for answer in map(json.loads, answers)]
    rows = [", ".join(map(json.dumps, told[at : at + len(SCALARS)])) for at in range(0, len(told), len(SCALARS))]
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    record(sys.argv[1])
