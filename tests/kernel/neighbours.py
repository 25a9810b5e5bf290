"""What netinit says beside the rules of other software, against real connections: the table of docs/neighbours.md.

    python tests/kernel/neighbours.py           prints the table; root is needed
    python tests/kernel/neighbours.py --write   writes it into the page

Each rule set is loaded before and after netinit's rules, on each backend. `wrong`: explain names an end that a connection does not
have, or verify is silent about an escape. `unknown`: explain's answer. `false alarm`: verify names an escape whose connection is captured.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(Path(__file__).parent)]

from test_foreign_against_kernel import (  # noqa: E402
    APP_ID,
    APP_PORTS,
    LEGACY,
    NFT,
    OUTSIDE,
    OUTSIDE6,
    PLANS,
    POD,
    POD6,
    SILENCE,
    TRANSPARENT,
    Trial,
    judge,
)

from core import plan  # noqa: E402 - the path must be set first
from lab_probes import Probe  # noqa: E402
from laboratory import Pod, start_servers  # noqa: E402
from netinit.options import Options  # noqa: E402
from programming import run_tool  # noqa: E402
from randomness import SEED  # noqa: E402

RECORDED = ROOT / "tests" / "unit" / "rules" / "products"
WRITTEN = ROOT / "tests" / "neighbours"
FILES = {path.name: path for path in (*sorted(RECORDED.glob("*.*")), *sorted(WRITTEN.glob("*.sh")))}
ADDRESS_SETS = ("cali40masq-ipam-pools", "cali40all-ipam-pools", "cali40all-hosts-net", "cilium_node_set_v4")
PAGE, BEGIN, END = ROOT / "docs" / "neighbours.md", "<!-- neighbours -->\n", "<!-- end -->"
ORDERS = ("before", "after")
OF_A_RUN = 34  # connections: 5,000 of all rule sets, backends and orders
PROXY_ID = 1337


def load(pod: Pod, path: Path, backend: str) -> str:
    """Load a rule set; rules in iptables' syntax in the variant of the backend. Returns what its program refuses."""
    variant = LEGACY if backend == LEGACY else NFT
    for one in ADDRESS_SETS if "--match-set" in path.read_text() and path.suffix == ".rules" else ():
        pod.run(["ipset", "create", one, "hash:net"], check=True)
    commands = {".nft": ["nft", "-f", str(path)], ".rules": [f"{variant}-restore", "--noflush", str(path)]}
    done = pod.run(commands.get(path.suffix) or ["sh", "-ec", f"IPTABLES='{variant} -w'\n{path.read_text()}"])
    return done.stderr.strip()[:200] if done.returncode else ""


def draw_connections(random: Random, count: int) -> list[tuple[str, Probe]]:
    """Random connections: of application, root and proxy to outside and its name servers, of a client to the pod."""
    found = []
    for _ in range(count):
        outside, pod = random.choice(((OUTSIDE, POD), (OUTSIDE6, POD6)))
        direction = random.choice(("out", "out", "out", "in", "in", "dns"))
        user, port = random.choice((APP_ID, APP_ID, 0, PROXY_ID)), random.choice(APP_PORTS)
        if direction == "in":
            probe = Probe(pod, port, timeout=SILENCE)
        elif direction == "dns":
            probe = Probe(random.choice(outside), 53, udp=True, uid=user, gid=user, timeout=SILENCE)
        else:
            probe = Probe(random.choice(outside), port, uid=user, gid=user, timeout=SILENCE)
        found.append((direction, probe))
    return found


def measure(name: str, backend: str, order: str, count: int = OF_A_RUN) -> tuple[Counter[str], list[str]]:
    """Counts of one rule set on one backend, and what was wrong."""
    counted: Counter[str] = Counter()
    with Pod() as pod:
        start_servers(pod, app=APP_PORTS, outside=APP_PORTS, transparent=TRANSPARENT.get(backend, ()))
        steps = [lambda: load(pod, FILES[name], backend), lambda: _apply(pod, backend)]
        for step in steps if order == "before" else reversed(steps):
            if refused := step():
                return counted, [f"{name} {backend} {order}: not loaded: {refused}"]
        planned = plan(Options.from_argv(PLANS[backend], {}))
        random = Random(f"{SEED} {name} {backend} {order}")
        wrong = judge(pod, planned, backend, Trial(), draw_connections(random, count), counted)
    counted["runs"] += 1
    return counted, [f"{name} {backend} {order}: {one}" for one in wrong]


def _apply(pod: Pod, backend: str) -> str:
    done = run_tool(pod, "apply", *PLANS[backend], "--backend", backend)
    return done.stderr[-200:] if done.returncode else ""


def list_rows(names: list[str]) -> tuple[list[list[str]], list[str], Counter[str]]:
    """A row for each software, everything that was wrong, and the sums."""
    rows, problems, whole = [], [], Counter[str]()
    for name in names:
        counted: Counter[str] = Counter()
        wrong: list[str] = []
        for backend in PLANS:
            for order in ORDERS:
                found, more = measure(name, backend, order)
                counted += found
                wrong += more
        sent = sum(counted[one] for one in ("captured", "escaped", "gone"))
        counted["sent"], counted["wrong"] = sent, sum("false alarm" not in one for one in wrong)
        counted["false alarms"] = sum("false alarm" in one for one in wrong)
        whole += counted
        problems += wrong
        rows.append([name, *[str(counted[one]) for one in ("sent", "wrong", "not predicted", "alarms", "false alarms")]])
    return rows, problems, whole


def main() -> None:
    """Measures all, and prints or writes the table."""
    names = [one for one in sys.argv[1:] if not one.startswith("--")] or [*FILES]
    rows, problems, whole = list_rows(names)
    lines = ["| rules | connections | wrong | unknown | alarms of verify | of these false |", "| --- | --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    unknown = 100 * whole["not predicted"] / max(whole["sent"], 1)
    false = 100 * whole["false alarms"] / max(whole["runs"], 1)
    sums = f"{whole['sent']} connections: {whole['wrong']} wrong, {unknown:.1f} % unknown; {false:.1f} % of {whole['runs']} runs with a false alarm."
    lines += ["", sums, ""]
    print("\n".join([*lines, *problems]))
    if "--write" in sys.argv:
        text = PAGE.read_text()
        begin, end = text.index(BEGIN) + len(BEGIN), text.index(END)
        PAGE.write_text(text[:begin] + "\n".join(lines) + text[end:])


if __name__ == "__main__":
    main()
