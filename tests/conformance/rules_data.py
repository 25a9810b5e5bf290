"""Istio's own cases of rules, where the machine has them."""

from __future__ import annotations

import json

from netinit.options import Options

GROUPS = {"java": "4001", "ftp": "4002"}  # machines do not have these groups: numbers stand for them on both sides


def read_cases(folder):
    for path in sorted((folder / "rules").glob("*.json")):
        text = path.read_text()
        for name, number in GROUPS.items():
            text = text.replace(name, number)
        yield json.loads(text)


def read_options(case, **more):
    options = Options.from_argv(case["argv"], case["env"])
    return options.replace(ipv6="on" if case["ipv6"] else "off", dns_servers=tuple(case["dns_servers"]), **more)
