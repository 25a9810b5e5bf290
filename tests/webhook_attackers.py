"""Strangers that load a webhook on the loopback, as `python tests/webhook_attackers.py PORT KIND COUNT SOURCE ADDRESS NICE` until they are killed.

They have no certificate and no rights, and an address of their own: the source.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import ssl
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
HEAD = "POST /inject?timeout=30s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
SECONDS = 3  # that a connection attempt may take, before the next


def request(body: bytes) -> bytes:
    return HEAD.format(len(body)).encode() + body


def review_of(containers: int) -> bytes:
    """A review of one pod with so many containers."""
    from webhook_server import make_pod, make_review

    pod = make_pod()
    pod["spec"]["containers"] = [{"name": f"c{number}", "image": "i"} for number in range(containers)]
    return json.dumps(make_review(pod), separators=(",", ":")).encode()


def heavy_review() -> bytes:
    """The most work that is accepted: 900 containers with as many values as a review may have."""
    from webhook_server import make_pod, make_review

    pod = make_pod()
    env = [{"name": f"e{at}", "value": "v"} for at in range(100)]
    pod["spec"]["containers"] = [{"name": f"c{number}", "image": "i", "env": env} for number in range(900)]
    return json.dumps(make_review(pod), separators=(",", ":")).encode()


def context() -> ssl.SSLContext:
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    return trusting


class Attacker:
    """So many connections at once, each made again as soon as it ends."""

    def __init__(self, port: int, kind: str, source: str, address: str) -> None:
        self.port, self.source, self.address = port, source, address
        self.tls = None if kind == "silent" else context()
        self.sent = {
            "silent": b"",
            "idle": b"",
            "handshakes": b"",
            "half-heads": b"POST /inject HTTP/1.1\r\nHost: localhost\r\nX: ",
            "half-bodies": request(b"x" * 5_000_000)[:100_000],
            "large-bodies": request(b" " * (6 << 20)),
            "containers": b"",
            "heavy": b"",
            "good": b"",
        }[kind]
        if kind in {"containers", "good"}:
            self.sent = request(review_of(60_000 if kind == "containers" else 1))
        self.stays = kind in {"silent", "idle", "half-heads", "half-bodies"}
        if kind == "heavy":
            self.sent = request(heavy_review())
        self.answers = kind in {"large-bodies", "containers", "heavy", "good"}

    async def attack(self) -> None:
        while True:
            begun = time.monotonic()
            with contextlib.suppress(OSError, TimeoutError):
                await self._once()
            await asyncio.sleep(0.01 if time.monotonic() - begun > 0.01 else 0.05)

    async def _once(self) -> None:
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(self.address, self.port, ssl=self.tls, local_addr=(self.source, 0))
        try:
            writer.write(self.sent)
            if self.answers:
                async with asyncio.timeout(30):
                    await writer.drain()
                    await reader.read(1 << 16)
            elif self.stays:
                await reader.read(1 << 16)  # until it is cut off
        finally:
            writer.transport.abort()


async def attack(port: int, kind: str, count: int, source: str, address: str) -> None:
    attacker = Attacker(port, kind, source, address)
    await asyncio.gather(*[attacker.attack() for _ in range(count)])


@contextlib.contextmanager
def attackers(server, *, nice=19, **counts):
    """Processes that attack the server, each kind with so many connections from an address of its own; `_` is written for `-`.

    `nice` is their priority: at the lowest they take no processor from the server, as strangers have their own, and on a busy machine get none.
    """
    started = []
    try:
        for number, (kind, count) in enumerate(counts.items()):
            words = [sys.executable, __file__, server.port, kind.replace("_", "-"), count, f"127.0.0.{66 + number}", getattr(server, "address", "127.0.0.1"), nice]
            started.append(subprocess.Popen(list(map(str, words)), stderr=subprocess.DEVNULL))
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20_000), hard))
    port, kind, count, source, address, nice = sys.argv[1:]
    os.setpriority(os.PRIO_PROCESS, 0, int(nice))
    asyncio.run(attack(int(port), kind, int(count), source, address))
