"""How long injection takes: documents a second through the command, one pod through the library, and where time goes.

    python tests/bench/inject.py [--documents 1000]

The template is Istio's current one where the conformance data is at hand (NETINIT_CONFORMANCE), else our own. One
Deployment as a process is measured in both ways to start: `python -m netinit`, which reads what is installed (with a
finder for the sources where the package is installed editable), and by path, `python -I -S netinit/__main__.py`.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from netinit.golang import goyaml
from netinit.inject import InjectionConfig, inject_pod, load_config, rendering
from netinit.inject import pod as injection
from netinit.inject.defaults import default_config
from netinit.inject.manifests import workloads

ROOT = Path(__file__).parents[2]
CONFORMANCE = Path(os.environ.get("NETINIT_CONFORMANCE") or ROOT.parent / "shared" / "conformance")
SETTINGS = CONFORMANCE / "inject" / "current" / "settings" / "default"
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata:
  name: service-{number}
  namespace: bench
spec:
  replicas: 3
  selector:
    matchLabels: {{app: service-{number}}}
  template:
    metadata:
      labels: {{app: service-{number}, version: v1}}
      annotations:
        prometheus.io/port: "9102"
    spec:
      containers:
      - name: server
        image: registry.example.com/service-{number}:v1
        ports:
        - {{name: http, containerPort: 8080}}
        - {{name: metrics, containerPort: 9102}}
        env:
        - {{name: NUMBER, value: "{number}"}}
        readinessProbe:
          httpGet: {{path: /ready, port: http}}
        livenessProbe:
          tcpSocket: {{port: 8080}}
        resources:
          requests: {{cpu: 100m, memory: 64Mi}}
"""


def read_config() -> tuple[InjectionConfig, list[str], str]:
    """The configuration, the command's arguments for it, and what it is called."""
    if not SETTINGS.is_dir():
        return default_config(), [], "our own template"
    files = {name: SETTINGS / name for name in ("config.yaml", "values.json", "mesh.yaml")}
    arguments = ["--injectConfigFile", "--valuesFile", "--meshConfigFile"]
    pairs = [word for pair in zip(arguments, map(str, files.values()), strict=True) for word in pair]
    texts = [path.read_text() for path in files.values()]
    return load_config(texts[0], values=texts[1], mesh=texts[2]), pairs, "Istio's current template"


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * share))] * 1000


def measure(work: Callable[[], Any], times: int) -> list[float]:
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return found


STARTS = {"-m netinit": ["-m", "netinit"], "by path": ["-I", "-S", str(ROOT / "netinit" / "__main__.py")]}
BUDGET = 8.0  # times a bare interpreter, in CPU time


def bench_command(arguments: list[str], documents: int, repeat: int, start: str = "-m netinit") -> float:
    """The best time of the command on a stream of so many Deployments, process start included."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.yaml", Path(folder) / "out.yaml"
        source.write_text("---\n".join(DEPLOYMENT.format(number=number) for number in range(documents)))
        command = [sys.executable, *STARTS[start], "inject", "-f", str(source), "-o", str(target), *arguments]
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # installed packages are compiled, so this one is too
        best = min(measure(lambda: subprocess.run(command, check=True, cwd=ROOT, env=environ), repeat))
        assert target.read_text().count("name: istio-proxy") == documents
    return best


def cpu_of(work: Callable[[], Any]) -> float:
    """The least processor time of what the work starts, in milliseconds: other load disturbs it less."""
    found = []
    for _ in range(15):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        work()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found) * 1000


def bench_one(arguments: list[str]) -> None:
    """Prints what one Deployment as a process takes, beside the interpreter alone."""
    bare = cpu_of(lambda: subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True))
    print(f"  the interpreter alone           {bare:8.1f} ms of CPU")
    for start in STARTS:
        wall = bench_command(arguments, 1, 10, start) * 1000
        cpu = cpu_of(lambda start=start: bench_command(arguments, 1, 1, start))
        verdict = "within" if cpu <= BUDGET * bare else "OVER"
        ratio = f"{cpu / bare:.1f} times the interpreter, {verdict} the budget of {BUDGET:.1f}"
        print(f"  one Deployment, {start:16}{wall:8.1f} ms  {cpu:.1f} ms of CPU  {ratio}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    given = parser.parse_args()
    config, arguments, title = read_config()
    print(f"injection with {title}")
    bench_one(arguments)
    large = bench_command(arguments, given.documents, 1)
    print(f"  {given.documents} Deployments as a process  {large:8.2f} s   {given.documents / large:.0f} documents/s")
    (workload,) = workloads(goyaml.load(DEPLOYMENT.format(number=1)))
    pod = workload.pod()
    inject_pod(pod, config, owner=workload.owner)
    times = measure(lambda: inject_pod(pod, config, owner=workload.owner), given.pods)
    print(
        f"  inject_pod                      p50 {percentile(times, 0.5):.2f} ms, p99 {percentile(times, 0.99):.2f} ms"
    )
    subject = rendering.Subject(owner=workload.owner, proxy=config.mesh.proxy)
    (name,) = injection.select_templates({}, config)
    text = rendering.render_text(name, config, pod, subject)
    injected = workload.with_pod(inject_pod(pod, config, owner=workload.owner))
    parts = {
        "rendering": lambda: rendering.render_text(name, config, pod, subject),
        f"reading its {len(text)} characters": lambda: goyaml.load(text),
        "writing the result": lambda: goyaml.dump(injected),
        "reading a Deployment": lambda: goyaml.load(DEPLOYMENT.format(number=1)),
    }
    for part, work in parts.items():
        print(f"    {part:30} {percentile(measure(work, 200), 0.5):.2f} ms")
    print(f"    {'loading the configuration':30} {percentile(measure(read_config, 5), 0.5):.2f} ms")


if __name__ == "__main__":
    main()
