"""The commands that ask no kernel: what runs on macOS, Windows and in a browser, and the modules that they lead to.

`offline_commands.py files SYSTEM` prints the files of these modules, for mypy: of all that each command imports as on that system.
`offline_commands.py run` runs each with the netinit that is installed here, on whatever system.
"""

from __future__ import annotations

import io
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
COMMANDS = (
    "version", "help", "help NI106", "--help", "completion zsh", "render -b 80 --ipv6 off", "render --format nft -b 80 --ipv6 off", "lint -b 80 -d 80",
    "explain -b 80 -i '*' --to 10.1.1.1:80", "audit -b '*'", "audit --format html examples/pod.yaml", "draw -b 80", "draw --format mermaid -b 80",
    "diff 'apply -b 80' 'apply -b 81'", "convert --from istio -- -p 15001", "inject -f examples/pod.yaml", "inject -f examples/",
    "check-inject -f examples/pod.yaml", "lint examples/", "why examples/pod.yaml --to 203.0.113.7:443", "audit examples/pod.yaml", "audit --json --pod examples/pod.yaml", "explain --pod examples/pod.yaml --to 10.1.1.1:80",
    "check examples/repository", "kubectl --help", "kubectl explain --help", "webhook --help", "webhook manifests --help", "webhook lint --help",
)  # fmt: skip
CODES = {"diff 'apply -b 80' 'apply -b 81'": 3, "check-inject -f examples/pod.yaml": 3, "check examples/repository": 4}  # others: 0
KUBECTL = tuple(f"kubectl {words}" for words in ("explain pod/web --to 10.1.1.1:80", "audit pod/web", "draw pod/web", "check", "preflight"))


def run_installed() -> None:
    """Run each command by the installed program, and exit with the number of those that end otherwise than on Linux."""
    program, failures = shutil.which("netinit"), 0
    for line in COMMANDS:
        done = subprocess.run([program, *shlex.split(line)], cwd=ROOT, capture_output=True, check=False, timeout=120)
        is_good = done.returncode == CODES.get(line, 0) and done.stdout and b"internal error" not in done.stderr
        print("as on Linux:" if is_good else f"ended with {done.returncode}: {done.stderr!r}:", line)
        failures += not is_good
    sys.exit(failures)


def print_files(system: str) -> None:
    """Print the files that the commands import, as on that system."""
    import another_system

    environ = {**os.environ, "PATH": ""}
    another_system.become(system)
    from netinit.cli.start import run

    own, sys.stdout, sys.stderr = sys.stdout, io.StringIO(), io.StringIO()
    for line in (*COMMANDS, *KUBECTL):
        run(["netinit", *shlex.split(line)], environ)
    for module in ("kubectl.check", "kubectl.preflight", "kubectl.doctor", "kubectl.report", "kubectl.complete", "kubectl.pod_command", "kernel.portable_run"):
        __import__(f"netinit.{module}")
    files = [module.__file__ for name, module in sys.modules.items() if name.startswith("netinit") and module is not None]
    print("\n".join(sorted(os.path.relpath(file, ROOT) for file in files if file)), file=own)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    os.chdir(ROOT)
    run_installed() if sys.argv[1] == "run" else print_files(sys.argv[2])
