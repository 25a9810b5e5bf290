"""Hostile requests against a real server over TLS: `python tests/fuzz/fuzz_webhook.py --cases 10000`.

Each must get its status; the log must stay one line an event, and the process must not grow.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import hostile_reviews
from webhook_server import Server, make_pod

ALLOWED = {200, 400, 413, 415}
MOST_GROWTH = 40 << 10  # KiB, after the first tenth: what the largest body takes may stay with the allocator


def rss(pid: int) -> int:
    """KiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    seen: Counter[object] = Counter()
    with (
        tempfile.TemporaryDirectory() as folder,
        Server(folder, "--log_output_level=default:debug", "--log_as_json") as server,
    ):
        first = 0
        with contextlib.closing(server.connect()) as connection:
            for number in range(given.cases):
                if number == given.cases // 10:
                    first = rss(server.process.pid)
                headers, body = hostile_reviews.request(drawn)
                try:
                    status, told = server.post(body, headers=headers, connection=connection)
                except (OSError, http.client.HTTPException) as error:
                    connection.close()
                    status, told = type(error).__name__, b""
                seen[status] += 1
                if (
                    (isinstance(status, int) and status not in ALLOWED)
                    or b"Traceback" in told
                    or b"internal error" in told
                ):
                    print(f"case {number}: {status} {told[:300]!r}\n{body[:2000]!r}")
                    return 1
        last = rss(server.process.pid)
        assert server.review(make_pod())["allowed"]
        bad = [
            line
            for line in server.log.read_text().splitlines()
            if not line.startswith("{") or not isinstance(json.loads(line), dict)
        ]
        print(
            f"{given.cases} requests: {dict(seen.most_common())}; the server had {first >> 10} MiB, and has {last >> 10} MiB"
        )
        if bad or last - first > MOST_GROWTH:
            print(f"{len(bad)} lines of the log are none: {bad[:3]}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
