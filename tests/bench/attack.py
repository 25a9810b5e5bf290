"""What strangers can do to the webhook under the chart's memory limit: latency of valid reviews, memory, readiness, log lines.

    sudo python tests/bench/attack.py                      every attack for 30 seconds, then all of them at once
    sudo python tests/bench/attack.py --seconds 1800 --only mixture

The server runs in a memory cgroup of its own, as in a container with that limit. The attackers (tests/webhook_attackers.py) have
addresses of their own and no certificate. Valid reviews come at a steady rate, half of them on connections that are kept, half on
new ones, and each has the five seconds that the chart gives the API server. The kubelet's readiness probe runs beside them.
A second server, which nobody attacks, is asked at the same rate at the same time: what its reviews take is the machine's part.

A bound that does not hold ends the run with exit code 1: no review fails, p99 is below a second (or half as much again as that of the second
server, on a machine too busy for it), memory stays below the limit, readiness stays, and no minute has 100 lines of log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from webhook import SETTINGS, Client, cpu, share, start

from webhook_attackers import attackers

MIXTURE = {"silent": 3000, "half_heads": 500, "half_bodies": 500, "handshakes": 64, "large_bodies": 16, "containers": 8, "heavy": 4}
ATTACKS = {
    "none": {},
    "3,000 silent connections": {"silent": 3000},
    "1,000 half heads and bodies": {"half_heads": 500, "half_bodies": 500},
    "handshakes": {"handshakes": 64},
    "bodies of 6 MiB": {"large_bodies": 16},
    "60,000 containers": {"containers": 8},
    "900 containers, all values that are taken": {"heavy": 4},
    "mixture": MIXTURE,
}
TIMEOUT = 5.0  # the chart's timeoutSeconds
V1 = Path("/sys/fs/cgroup/memory")


class Group:
    """A memory cgroup with a limit, of version 1 or 2."""

    def __init__(self, limit: int) -> None:
        self.mounted = V1 if V1.is_dir() else Path("/sys/fs/cgroup")
        self.path = self.mounted / f"netinit-attack-{os.getpid()}"
        self.path.mkdir()
        (self.path / ("memory.limit_in_bytes" if V1.is_dir() else "memory.max")).write_text(str(limit))

    def wrap(self, command: list[str]) -> list[str]:
        """The command, started in the group, which it sees as its own as in a container."""
        script = f'echo $$ >{self.path}/cgroup.procs; mount --bind {self.path} {self.mounted}; exec "$@"'
        return ["unshare", "--mount", "sh", "-ec", script, "sh", *command]

    def used(self) -> float:
        """MiB that cannot be given back: without the page cache."""
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return int(stat.get("total_rss", stat.get("anon", 0))) / (1 << 20)

    def kills(self) -> int:
        """How often the kernel killed a process for want of memory."""
        name = "memory.oom_control" if V1.is_dir() else "memory.events"
        return sum(int(line.split()[1]) for line in (self.path / name).read_text().splitlines() if line.startswith("oom_kill "))


class Visitor:
    """Valid reviews and probes, with what became of them."""

    def __init__(self, server, rate: float) -> None:
        self.server, self.pause = server, 1 / rate
        self.times: list[float] = []
        self.failures: list[str] = []
        self.probes: list[bool] = []
        self.idle: asyncio.Queue = asyncio.Queue()
        self.request = Client(server, 0).request
        self.context: ssl.SSLContext = server.context

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.server.port, ssl=self.context, server_hostname="localhost")

    async def review(self, *, kept: bool) -> None:
        begun = time.monotonic()
        streams = None
        try:
            async with asyncio.timeout(TIMEOUT):
                # As Go's client: a kept connection that the server has ended is replaced before anything is sent on it.
                while kept and not self.idle.empty():
                    streams = self.idle.get_nowait()
                    if not streams[0].at_eof() and not streams[1].is_closing():
                        break
                    streams = None
                reader, writer = streams or await self.connect()
                streams = (reader, writer)
                writer.write(self.request)
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
                body = await reader.readexactly(length)
            if b" 200 " not in head.split(b"\r\n")[0] or b'"patch"' not in body:
                self.failures.append(head.split(b"\r\n")[0].decode() + " " + body[:80].decode(errors="replace"))
            if kept and b"connection: close" not in head.lower():
                self.idle.put_nowait(streams)
                streams = None
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            self.failures.append(f"{'kept' if kept else 'new'} connection: {type(error).__name__} {error}")
        finally:
            if streams:
                streams[1].transport.abort()
        self.times.append(time.monotonic() - begun)

    async def probe(self) -> None:
        """A probe of the kubelet's: a new connection, five seconds."""
        streams = None
        try:
            async with asyncio.timeout(5.0):
                streams = await self.connect()
                streams[1].write(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.probes.append(b" 200 " in await streams[0].readline())
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.probes.append(False)
        finally:
            if streams:
                streams[1].transport.abort()

    async def run(self, seconds: float, group: Group) -> float:
        """Visits for so long; the most memory that was seen, MiB."""
        end, number, tasks, most = time.monotonic() + seconds, 0, [], 0.0
        due = time.monotonic()
        while time.monotonic() < end:
            tasks.append(asyncio.create_task(self.review(kept=number % 2 == 0)))
            if number % max(1, round(2 / self.pause)) == 0:  # every two seconds
                tasks.append(asyncio.create_task(self.probe()))
            number += 1
            most = max(most, group.used())
            due += self.pause
            await asyncio.sleep(max(0.0, due - time.monotonic()))
        await asyncio.gather(*tasks)
        return most


P99, LINES = 1000, 100  # ms; lines of log in any minute


def busiest_minute(log: Path) -> int:
    """The most lines of the log in any minute, but for those about pods that were injected, one each."""
    words = [line.split("\t")[0] for line in log.read_text().splitlines() if "decision=injected" not in line]
    times = [datetime.fromisoformat(word).timestamp() for word in words]
    return max(sum(begin <= one < begin + 60 for one in times[place:]) for place, begin in enumerate(times))


def broken_bounds(visitor: Visitor, idle: Visitor, most: float, limit: int, lines: int, kills: int) -> list[str]:
    """The bounds that did not hold, with what was measured."""
    p99, allowed = share(visitor.times, 0.99), max(P99, 1.5 * share(idle.times, 0.99))
    held = {
        f"{len(visitor.failures)} reviews failed": not visitor.failures,
        f"p99 was {p99:.0f} ms, {allowed:.0f} are allowed": p99 < allowed,
        f"{most:.0f} MiB and {kills} kills for want of memory, the limit is {limit} MiB": most < limit and not kills,
        f"{visitor.probes.count(False)} probes of readiness failed": all(visitor.probes),
        f"{lines} lines of log in a minute, {LINES} are too many": lines < LINES,
    }
    return [text for text, good in held.items() if not good]


def dropped(server) -> float:
    lines = server.monitor("/metrics")[1].splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("netinit_webhook_connections_dropped_total"))


@contextlib.contextmanager
def serving(limit: int) -> Iterator[tuple]:
    group = Group(limit)
    try:
        with tempfile.TemporaryDirectory() as name:
            server = start(Path(name), "")
            server.command = [word if word != "error" else "info" for word in server.command]
            server.wrap = group.wrap
            with server:
                yield server, group
    finally:
        while True:  # busy until the kernel has taken the last process down
            with contextlib.suppress(OSError):
                group.path.rmdir()
                break
            time.sleep(0.1)


async def both(first, second):
    """What the first returns, when the second has ended too."""
    return (await asyncio.gather(first, second))[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="of each attack")
    parser.add_argument("--memory", type=int, default=256, help="MiB, the limit")
    parser.add_argument("--rate", type=float, default=20.0, help="valid reviews a second")
    parser.add_argument("--only", default="", help="one attack, by its name")
    given = parser.parse_args()
    template = "Istio's current template" if SETTINGS.is_dir() else "our own template"
    print(f"{given.memory} MiB, {given.rate:.0f} valid reviews a second of {template}; load of the machine: {os.getloadavg()[0]:.1f}")
    broken = []
    print(f"{'attack':42} {'p50':>6} {'p99':>6} {'most':>6} {'idle p99':>8} {'load':>4} ms  failed      ready    MiB  log/min  CPU  gave way")
    for name, counts in ATTACKS.items():
        if given.only not in ("", name):
            continue
        with serving(given.memory << 20) as (server, group), tempfile.TemporaryDirectory() as folder, start(Path(folder), "") as unattacked:
            for one in (server, unattacked):
                asyncio.run(Visitor(one, given.rate).run(2.0, group))  # warm
            used, begun = cpu(server.process.pid), time.monotonic()
            with attackers(server, **counts):
                time.sleep(3.0 if counts else 0.0)
                visitor = Visitor(server, given.rate)
                idle = Visitor(unattacked, given.rate)
                most = asyncio.run(both(visitor.run(given.seconds, group), idle.run(given.seconds, group)))
            took, lines = time.monotonic() - begun, busiest_minute(server.log)
            print(
                f"{name:42} {share(visitor.times, 0.5):6.1f} {share(visitor.times, 0.99):6.0f} {max(visitor.times) * 1000:6.0f} "
                f"{share(idle.times, 0.99):8.0f} {os.getloadavg()[0]:4.0f}    "
                f"{len(visitor.failures):3} of {len(visitor.times):4} {sum(visitor.probes):3} of {len(visitor.probes):2} {most:5.0f} "
                f"{lines:8.0f} {(cpu(server.process.pid) - used) / took:4.2f}  {dropped(server):.0f}"
                f"{f', {group.kills()} killed for want of memory' if group.kills() else ''}",
                flush=True,
            )
            for text in sorted(set(visitor.failures))[:5]:
                print(f"    {visitor.failures.count(text)} x {text}")
            broken += [f"{name}: {text}" for text in broken_bounds(visitor, idle, most, given.memory, lines, group.kills())]
    if broken:
        sys.exit("\n".join(["bounds that did not hold:", *broken]))


if __name__ == "__main__":
    main()
