"""What the kubectl of tests/kubectl is to answer, and what it was asked: as a shell reads and writes it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

FAKE = Path(__file__).parent / "kubectl"
WEB = "web-6d4cf56db6-2xk9p"
POD = f"get pod {WEB} -n shop --ignore-not-found -o json"
PODS = "get --raw /api/v1/namespaces/shop/pods?limit=500"
DEPLOYMENT = [
    {"words": "get deployment web -n shop *", "file": "deployment-web.json"},
    {"words": "get pods -n shop -l app=web *", "file": "pods-web.json"},
]
AGENTS = [
    {"words": "get pods -A -l app.kubernetes.io/name=netinit-node *", "file": "agents.json"},
    {"words": "get clusterrolebindings -l app.kubernetes.io/name=netinit-node *", "file": "roles.json"},
]
UID = "5a0b7a52-0000-4000-8000-000000000020"
ON_AGENT = "exec -i -n mesh netinit-node-4fj2k -c agent -- netinit node run"
ASKED = f"asked *shop/{WEB}*"  # a question to the agent about this pod


def write_calls(folder, answers):
    """What kubectl is to answer, as tests/kubectl reads it."""
    lines = []
    for number, one in enumerate(answers):
        texts = {name: folder / f"{number}.{name}" for name in ("stdout", "stderr")}
        for name, path in texts.items():
            path.write_text(one.get(name, ""))
        waits = {None: "no", "says": "yes"}[one.get("waits")]
        fields = (one["words"], one.get("file") or texts["stdout"].name, texts["stderr"].name, str(one.get("status", 0)), waits)
        lines.append("".join(f"{field}\t" for field in fields) + "\n")
    (folder / "calls").write_text("".join(lines))
    (folder / "container").unlink(missing_ok=True)


def read_calls(log):
    """The words of each call."""
    left = iter(log.read_text().split("\0")[:-1])
    for number in left:
        yield list(islice(left, int(number)))
