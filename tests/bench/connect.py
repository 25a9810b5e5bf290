"""What rules cost a connection: thousands of connects through them, by backend and length of the list.

Each pod stays with its rules while all take turns, some hundred connects each, so that a busy machine slows all of them
alike. The app connects to an address that no list names; every rule is walked and the proxy in the pod accepts. Without
rules it connects to the same listener directly. The time is that of connect(2) alone, the median of all.

    python tests/bench/connect.py                all backends and lengths
    python tests/bench/connect.py --counts 0,500 --backends nftables
    python tests/bench/connect.py --json FILE    the figures for other programs
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import socket
import statistics
import struct
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "bench")]

from apply import BACKENDS, COUNTS, SIDECAR, choose_backend, excluded_networks, write_results  # noqa: E402 - the path must be set first

from laboratory import Listener, Pod  # noqa: E402
from netinit.lab import APP_ID, PROXY_ID  # noqa: E402
from netinit.options import Options  # noqa: E402
from netinit.pods import apply as applying  # noqa: E402

NO_RULES = "no rules"
ELSEWHERE, ITSELF = ("203.0.113.7", 80), ("10.77.0.2", 15001)
BUDGETS = {("nftables", 10000): 1.25, ("iptables-nft+ipset", 10000): 1.25, ("iptables-legacy+ipset", 10000): 1.25}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close at once, leave no port in TIME_WAIT


def time_connects(address: tuple[str, int], count: int) -> list[float]:
    """The time of each of `count` connects in µs; OSError when one fails."""
    took = []
    for _ in range(count):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            before = time.perf_counter_ns()
            client.connect(address)
            took.append((time.perf_counter_ns() - before) / 1000)
    return took


class Contender:
    """A pod with the rules of one backend at one length of list, and the times of its connects."""

    def __init__(self, backend: str, count: int, stack: contextlib.ExitStack) -> None:
        self.backend, self.count = backend, count
        self._pod = stack.enter_context(Pod())
        self._pod.serve("proxy", [Listener(15001, 4)], uid=PROXY_ID, gid=PROXY_ID)
        self._address = ITSELF
        self.times: list[float] = []
        if backend != NO_RULES:
            self._address = ELSEWHERE
            words = [*choose_backend(backend), *SIDECAR, "--ipv6", "on", "-x", excluded_networks(count)]
            with self._pod.entered():
                applying.apply(Options.from_argv(words), final=False)

    def run(self, connects: int) -> None:
        """One turn."""
        self.times += self._pod.call(time_connects, self._address, connects, uid=APP_ID, gid=APP_ID, timeout=120)


def measure(backends: list[str], counts: list[int], turns: int, connects: int) -> list[dict[str, float | str]]:
    """The median of every contender in µs, and its ratio to the same backend's at the shortest list."""
    with contextlib.ExitStack() as stack:
        contenders = [Contender(NO_RULES, 0, stack)]
        contenders += [Contender(backend, count, stack) for backend in backends for count in counts]
        for contender in contenders:
            contender.run(50)  # neighbours are found, caches are warm
            contender.times.clear()
        for _ in range(turns):
            for contender in contenders:
                contender.run(connects)
        medians = {(c.backend, c.count): statistics.median(c.times) for c in contenders}
    return [
        {"backend": backend, "excluded": count, "connect": took, "ratio": took / medians.get((backend, counts[0]), took)}
        for (backend, count), took in medians.items()
    ]


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", default=COUNTS)
    parser.add_argument("--backends", default=BACKENDS)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--connects", type=int, default=250)
    parser.add_argument("--json", type=pathlib.Path)
    given = parser.parse_args()
    counts = [int(count) for count in given.counts.split(",")]
    rows = measure(given.backends.split(","), counts, given.turns, given.connects)
    print(f"{'backend':22} {'excluded':>8} {'connect':>9} {'ratio':>7}")
    for row in rows:
        budget = BUDGETS.get((str(row["backend"]), int(row["excluded"])))
        mark = "" if budget is None else " ✔" if float(row["ratio"]) <= budget else f" ✘ (budget {budget})"
        print(f"{row['backend']:22} {row['excluded']:>8} {row['connect']:9.1f} {row['ratio']:7.2f}{mark}")
    print(f"µs, medians of {given.turns * given.connects} connects each; ratio: to the same backend's first line")
    if given.json:
        write_results(given.json, rows)


if __name__ == "__main__":
    main()
