"""What netinit says beside the rules of other software, against real connections: the table of docs/neighbours.md.

    python tests/kernel/neighbours.py           prints the table; root is needed
    python tests/kernel/neighbours.py --write   writes it into the page

Each rule set is loaded before and after netinit's rules, on each backend and in each mode. `wrong`: explain names an end that a
connection does not have, or verify is silent about an escape. `unknown`: explain's answer. `false alarm`: verify names an escape whose
connection is captured.
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
    NATIVE,
    NFT,
    OUTSIDE,
    OUTSIDE6,
    POD,
    POD6,
    SIDECAR,
    SILENCE,
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
WAYS = [(backend, mode) for backend in (NFT, LEGACY, NATIVE) for mode in ("REDIRECT", "TPROXY")]
EXACT = {(NFT, "REDIRECT"), (LEGACY, "TPROXY"), (NATIVE, "TPROXY")}  # with --istio-exact: what the others' answers do not need
OF_A_RUN = 17  # connections: 5,000 of all rule sets, backends, modes and orders
PROXY_ID = 1337
HEAD = "| rules | connections | wrong | unknown | alarms of verify | of these false |"  # before and after
FALSE_ALARM = "false alarm: "


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


def measure(name: str, way: tuple[str, str], order: str, count: int = OF_A_RUN) -> tuple[Counter[str], list[str]]:
    """Counts of one rule set on one backend in one mode, and what was wrong."""
    counted: Counter[str] = Counter()
    backend, mode = way
    options = [*SIDECAR, "-m", mode, *["--istio-exact"] * (way in EXACT)]
    with Pod() as pod:
        start_servers(pod, app=APP_PORTS, outside=APP_PORTS, transparent=(15006,) if mode == "TPROXY" else ())
        steps = [lambda: load(pod, FILES[name], backend), lambda: _apply(pod, options, backend)]
        for step in steps if order == "before" else reversed(steps):
            if refused := step():
                return counted, [f"{name} {backend} {mode} {order}: not loaded: {refused}"]
        random = Random(f"{SEED} {name} {backend} {mode} {order}")
        wrong = judge(pod, plan(Options.from_argv(options, {})), backend, Trial(), draw_connections(random, count), counted)
    counted["runs"] += 1
    counted["sent"] = sum(counted[one] for one in ("captured", "escaped", "gone"))
    counted["false alarms"] = sum(FALSE_ALARM in one for one in wrong)
    counted["wrong"] = len(wrong) - counted["false alarms"]
    return counted, [f"{name} {backend} {mode} {order}: {one}" for one in wrong]


def _apply(pod: Pod, options: list[str], backend: str) -> str:
    done = run_tool(pod, "apply", *options, "--backend", backend)
    return done.stderr[-200:] if done.returncode else ""


def list_rows(names: list[str]) -> tuple[list[list[str]], list[str], Counter[str]]:
    """A row for each software, everything that was wrong, and the sums."""
    rows, problems, whole = [], [], Counter[str]()
    for name in names:
        counted = {order: Counter[str]() for order in ORDERS}
        for way in WAYS:
            for order in ORDERS:
                found, wrong = measure(name, way, order)
                counted[order] += found
                problems += wrong
        sums = [[str(one[what]) for one in counted.values()] for what in ("wrong", "not predicted", "alarms", "false alarms")]
        rows.append([name, str(sum(one["sent"] for one in counted.values())), *map(", ".join, sums)])
        whole.update(counted["before"] + counted["after"])
    return rows, problems, whole


def main() -> None:
    """Measures all, and prints or writes the table."""
    names = [one for one in sys.argv[1:] if not one.startswith("--")] or [*FILES]
    rows, problems, whole = list_rows(names)
    lines = [HEAD, "| --- | --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    unknown = 100 * whole["not predicted"] / max(whole["sent"], 1)
    false = 100 * whole["false alarms"] / max(whole["runs"], 1)
    sums = f"{whole['sent']} connections: {whole['wrong']} wrong, {unknown:.1f} % unknown; {false:.1f} % of {whole['runs']} runs with a false alarm."
    lines += ["", sums, ""]
    print("\n".join([*lines, *problems]))
    if "--write" in sys.argv:
        text = PAGE.read_text()
        begin = text.index(BEGIN) + len(BEGIN)
        end = text.index(END, begin)
        PAGE.write_text(text[:begin] + "\n".join(lines) + text[end:])


if __name__ == "__main__":
    main()
