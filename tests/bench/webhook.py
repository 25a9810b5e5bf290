"""How many reviews a second the webhook answers over TLS, how quickly, and in how much memory.

    python tests/bench/webhook.py                                 rates 50, 100, 200, and the greatest
    python tests/bench/webhook.py --share 25                      one replica and two, each with a quarter of a core
    python tests/bench/webhook.py --endurance 1200 --rate 150     while configuration and certificate are swapped

The reviews are of Istio's current template where the conformance data is at hand (NETINIT_CONFORMANCE), else of our own.
The client runs beside the server: on a machine of two cores it takes a part of what it measures, so processor time for
each review is printed too, which other load disturbs least. The server can be confined to cores (--cores).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from netinit.webhook.certificates import make_pair  # noqa: E402 - the line above leads to what tests share
from webhook_server import Server, make_review  # noqa: E402

CONFORMANCE = Path(os.environ.get("NETINIT_CONFORMANCE") or ROOT.parent / "shared" / "conformance")
SETTINGS = CONFORMANCE / "inject" / "current" / "settings" / "default"
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "generateName": "service-6d4cf56db6-",
        "namespace": "shop",
        "labels": {"app": "service", "version": "v1", "pod-template-hash": "6d4cf56db6"},
        "annotations": {"prometheus.io/port": "9102"},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "service-6d4cf56db6", "controller": True}
        ],
    },
    "spec": {
        "serviceAccountName": "default",
        "containers": [
            {
                "name": "server",
                "image": "registry.example.com/service:v1",
                "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9102}],
                "env": [{"name": "NUMBER", "value": "1"}],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}},
                "livenessProbe": {"tcpSocket": {"port": 8080}},
                "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
            }
        ],
    },
}
BUDGET_P99 = 100  # ms
MOST_GROWTH = 3  # MiB, from the first third of the endurance run to the last
BUDGET_MEMORY, BUDGET_READY, BUDGET_RATE = 60, 1.0, 240  # MiB, seconds, reviews a second on one core: twice Istio's 120
HEAD = "POST /inject?timeout=10s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"


class Client:
    """Keep-alive connections, as an API server has them; a connection that broke is made anew, an answer is not asked for again."""

    def __init__(self, server, connections):
        self.server, self.idle = server, asyncio.Queue()
        self.body = json.dumps(make_review(POD)).encode()
        self.request = HEAD.format(len(self.body)).encode() + self.body
        for _ in range(connections):
            self.idle.put_nowait(None)
        self.times, self.failed, self.again = [], [], 0

    async def connect(self):
        """All connections are there, so that handshakes are not what is measured."""
        await asyncio.gather(*[self.review(time.monotonic()) for _ in range(self.idle.qsize())])
        self.times.clear()

    async def review(self, scheduled):
        streams = await self.idle.get()
        for attempt in range(50):
            try:
                if streams is None:
                    context = self.server.context
                    streams = await asyncio.open_connection(
                        self.server.host, self.server.port, ssl=context, server_hostname=self.server.name
                    )
                await self._ask(streams)
                break
            except (OSError, asyncio.IncompleteReadError) as error:
                if streams is not None:
                    streams[1].transport.abort()
                streams = None
                self.again += 1
                if attempt == 49:
                    self.failed.append(repr(error))
                await asyncio.sleep(0.02)
        self.idle.put_nowait(streams)
        self.times.append(time.monotonic() - scheduled)

    async def _ask(self, streams):
        reader, writer = streams
        writer.write(self.request)
        head = await reader.readuntil(b"\r\n\r\n")
        body = await read_body(reader, head.lower())
        if b" 200 " not in head.split(b"\r\n")[0] or b'"allowed":true' not in body or b'"patch"' not in body:
            self.failed.append(f"{head[:60]!r} {body[:200]!r}")
        if b"connection: close" in head.lower():
            writer.transport.abort()  # the next review finds it broken, and makes a new one

    async def run(self, rate, seconds):
        """So many reviews a second, at equal distances, each timed from when it was due."""
        await self.connect()
        begun = time.monotonic()
        tasks = []
        for number in range(int(rate * seconds)):
            due = begun + number / rate
            if (wait := due - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            tasks.append(asyncio.create_task(self.review(due)))
        await asyncio.gather(*tasks)
        took = time.monotonic() - begun
        self.close()
        return took

    def close(self):
        """Ends the connections."""
        while not self.idle.empty():
            if (streams := self.idle.get_nowait()) is not None:
                streams[1].close()

    async def flood(self, number, together):
        """So many reviews as quickly as they are answered, `together` at a time."""
        begun = time.monotonic()
        left = [number]

        async def one():
            while left[0] > 0:
                left[0] -= 1
                await self.review(time.monotonic())

        await asyncio.gather(*[one() for _ in range(together)])
        took = time.monotonic() - begun
        self.close()
        return number / took


async def read_body(reader, head):
    """The body of an answer, in one piece or in chunks."""
    if b"transfer-encoding: chunked" not in head:
        return await reader.readexactly(int(head.partition(b"content-length: ")[2].split(b"\r\n")[0]))
    parts = []
    while size := int(await reader.readline(), 16):
        parts.append((await reader.readexactly(size + 2))[:-2])
    await reader.readline()
    return b"".join(parts)


def share(times, part):
    return sorted(times)[min(len(times) - 1, int(len(times) * part))] * 1000


def cpu(pid):
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid):
    """MiB, of which pages that processes share count in parts."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("\nPss:")[2].split()[0]) / 1024


def wake_ups(pid):
    """How often its threads have waited for something and gone on."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "status").read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0]) for task in tasks)


def start(folder, cores):
    texts = {}
    if SETTINGS.is_dir():
        texts = {"config": (SETTINGS / "config.yaml").read_text(), "values": (SETTINGS / "values.json").read_text()}
        (folder / "mesh").write_text((SETTINGS / "mesh.yaml").read_text())
    words = ["--meshConfig", str(folder / "mesh")] if texts else []
    server = Server(folder, *words, "--log_output_level", "error", in_full=True, **texts)
    if not texts:
        index = server.command.index("--injectConfig")
        del server.command[index : index + 2]
    if cores:
        server.command = ["taskset", "--cpu-list", cores, *server.command]
    return server


def measure(cores, rates, flood):
    with tempfile.TemporaryDirectory() as name:
        begun = time.monotonic()
        with start(Path(name), cores) as server:
            ready, pid = time.monotonic() - begun, server.process.pid
            print(f"{f'on core {cores}: ' if cores else ''}ready after {ready:.2f} s")
            idle(pid)
            asyncio.run(Client(server, 4).flood(100, 4))  # warm
            for rate in rates:
                client, before = Client(server, 16), cpu(pid)
                asyncio.run(client.run(rate, 5.0))
                spent = (cpu(pid) - before) / (len(client.times) + 16) * 1000
                told = f"p50 {share(client.times, 0.5):6.1f} ms  p99 {share(client.times, 0.99):6.1f} ms  {spent:.2f} ms of CPU a review"
                print(f"  {rate:4} a second   {told}  {len(client.failed)} failed")
            print(f"  greatest rate with p99 < {BUDGET_P99} ms: {climb(server)} a second")
            client, before = Client(server, 16), cpu(pid)
            rate = asyncio.run(client.flood(flood, 8))
            spent = (cpu(pid) - before) / flood * 1000
            print(
                f"  as quickly as it can: {rate:.0f} a second, p99 {share(client.times, 0.99):.0f} ms, {spent:.2f} ms of CPU a review, {len(client.failed)} failed"
            )
            memory = memory_of(pid)
            verdicts = {
                f"{memory:.0f} MiB, {BUDGET_MEMORY} are allowed": memory <= BUDGET_MEMORY,
                f"ready after {ready:.2f} s, {BUDGET_READY:.0f} s is allowed": ready <= BUDGET_READY,
                f"{1000 / spent:.0f} reviews a second of a whole core by its processor time, {BUDGET_RATE} are wanted": 1000
                / spent
                >= BUDGET_RATE,
            }
            for text, good in verdicts.items():
                print(f"  {'within' if good else 'OVER'}: {text}")
            return rate


def idle(pid, seconds=10.0):
    """What it takes while nobody asks."""
    time.sleep(1.0)
    woken, used = wake_ups(pid), cpu(pid)
    time.sleep(seconds)
    print(
        f"  idle: {memory_of(pid):.0f} MiB, {(wake_ups(pid) - woken) / seconds:.1f} wake-ups a second, {(cpu(pid) - used) / seconds * 1000:.1f} ms of CPU a second"
    )


def climb(server):
    """The greatest rate of those that it keeps for three seconds, each a tenth above the one before."""
    best, rate = 0, 150
    while True:
        client = Client(server, 16)
        took = asyncio.run(client.run(rate, 3.0))
        if client.failed or took > 4 or share(client.times, 0.99) >= BUDGET_P99:
            return best
        best, rate = rate, round(rate * 1.1)


@contextlib.contextmanager
def confined(server, percent):
    """The server has so much of a core, as a replica has that a limit is set for."""
    group = Path(f"/sys/fs/cgroup/cpu/netinit-bench-{server.process.pid}")  # cgroups of version 1
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("20000")
        (group / "cpu.cfs_quota_us").write_text(str(20000 * percent // 100))
        (group / "cgroup.procs").write_text(str(server.process.pid))
        yield
        (group.parent / "cgroup.procs").write_text(str(server.process.pid))
    finally:
        group.rmdir()


def compare_replicas(percent, number):
    """One replica and two, each with a part of a core: what each way serves."""
    rates = []
    for replicas in (1, 2):
        with contextlib.ExitStack() as stack:
            servers = []
            for _ in range(replicas):
                server = stack.enter_context(start(Path(stack.enter_context(tempfile.TemporaryDirectory())), ""))
                asyncio.run(Client(server, 4).flood(30, 4))
                stack.enter_context(confined(server, percent))
                servers.append(server)

            async def flood(servers=tuple(servers)):
                return await asyncio.gather(*[Client(one, 8).flood(number, 4) for one in servers])

            rates.append(sum(asyncio.run(flood())))
    print(
        f"replicas with {percent} % of a core each: one serves {rates[0]:.0f} a second, two serve {rates[1]:.0f}: {rates[1] / rates[0]:.2f} times"
    )


def endure(seconds, rate):
    """A steady rate while configuration and certificate change under it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start(folder, "") as server:
            trusted = [server.pair]
            Server.context = property(lambda self: _trusting(trusted))
            client = Client(server, 32)
            events = {"configurations": 0, "certificates": 0}
            memory = []

            async def disturb():
                begun, number = time.monotonic(), 0
                while time.monotonic() - begun < seconds:
                    await asyncio.sleep(5)
                    number += 1
                    (folder / "mesh.new").write_text(f"trustDomain: td{number}.example\n")
                    (folder / "mesh.new").rename(folder / "mesh")
                    events["configurations"] += 1
                    if number % 6 == 0:
                        server.pair = make_pair(("localhost",), now=time.time(), seconds=3600)
                        trusted.append(server.pair)
                        server.write_certificate(server.pair)
                        events["certificates"] += 1
                    memory.append(memory_of(server.process.pid))

            async def both():
                await asyncio.gather(client.run(rate, seconds), disturb())

            asyncio.run(both())
            generation = server.monitor("/readyz?verbose")[1].splitlines()[1]
            print(
                f"{len(client.times)} reviews in {seconds:.0f} s at {rate:.0f} a second: {len(client.failed)} failed, {client.again} connections made anew"
            )
            print(f"  {', '.join(f'{count} {what}' for what, count in events.items())}; {generation}")
            print(f"  p50 {share(client.times, 0.5):.1f} ms, p99 {share(client.times, 0.99):.1f} ms")
            third = max(1, len(memory) // 3)
            first, last = statistics.mean(memory[:third]), statistics.mean(memory[-third:])
            print(f"  memory: {first:.0f} MiB in the first third, {last:.0f} in the last, {max(memory):.0f} at most")
            print(*client.failed[:3], sep="\n")
            return not client.failed and last - first <= MOST_GROWTH


def _trusting(pairs):
    import ssl

    return ssl.create_default_context(cadata="".join(pair.authority for pair in pairs[-3:]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="50,100,200")
    parser.add_argument("--reviews", type=int, default=1500, help="for the greatest rate")
    parser.add_argument("--endurance", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--rate", type=float, default=100.0, help="of the endurance run")
    parser.add_argument("--cores", default="", help="for the server, as taskset has them")
    parser.add_argument("--share", type=int, default=0, metavar="PERCENT", help="of a core, for one replica and for two (root)")
    given = parser.parse_args()
    if given.share:
        compare_replicas(given.share, 300)
        return
    if given.endurance:
        sys.exit(0 if endure(given.endurance, given.rate) else 1)
    rates = [int(rate) for rate in given.rates.split(",")]
    title = "Istio's current template" if SETTINGS.is_dir() else "our own template"
    print(f"the webhook over TLS with {title}; load of the machine: {os.getloadavg()[0]:.1f}")
    measure(given.cores, rates, given.reviews)


if __name__ == "__main__":
    main()
