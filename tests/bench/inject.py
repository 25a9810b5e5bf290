"""How long injection takes: documents a second through the command, one pod through the library, and where time goes.

    python tests/bench/inject.py [--documents 1000]

The template is Istio's current one where the conformance data is at hand (NETINIT_CONFORMANCE), else our own. Processes
run in an environment of their own that holds what the command needs and nothing else, as users have it: tools of
development start with every process of theirs (`--here` measures in the environment of this one). Both ways to start
are measured, `python -m netinit` and by path, `python -I -S netinit/__main__.py`.

Budgets are processor time against a floor of the same run: the bare interpreter, or PyYAML's own walk over the output,
which whoever reads it again pays. What is over its budget ends the run with exit code 1.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from netinit.golang import goyaml
from netinit.golang.goyaml import events
from netinit.inject import InjectionConfig, inject_pod, load_config
from netinit.inject.adding import pod as injection
from netinit.inject.adding import rendering
from netinit.inject.deciding.manifests import workloads

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from pod_shapes import varied_pods  # noqa: E402 - the line above leads to what tests share

SHAPES = 300
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
        return load_config(), [], "our own template"
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
ONE = 8.0  # times a bare interpreter
MANY = 8.0  # times the walk over the output
LARGE = 14.0  # the same, for a document with 20,000 variables, of which nothing repeats: it is read three times to keep its comments
VARIABLES = 20_000
over: list[str] = []
"""What was found over its budget."""


def plain_python(folder: str) -> str:
    """The interpreter of an environment that holds PyYAML and nothing else."""
    venv.create(folder, symlinks=True)
    (packages,) = Path(folder).glob("lib/python*/site-packages")
    for name in ("yaml", "_yaml"):
        (packages / name).symlink_to(Path(yaml.__file__).parents[1] / name)
    return f"{folder}/bin/python"


def run_once(python: str, arguments: list[str], text: str, start: str = "by path") -> tuple[float, float, str]:
    """Seconds of clock and processor that the command takes, process start included, and what it wrote."""
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.yaml", Path(folder) / "out.yaml"
        source.write_text(text)
        command = [python, *STARTS[start], "inject", "-f", str(source), "-o", str(target), *arguments]
        environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # installed packages are compiled, so this one is too
        return *timed(lambda: subprocess.run(command, check=True, cwd=ROOT, env=environ)), target.read_text()


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of clock, and of processor in the processes that the work starts, which other load disturbs less."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    work()
    took, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def judge(what: str, cpu: float, floor: float, budget: float) -> str:
    """How often the floor that is, and whether it is within the budget."""
    if cpu > budget * floor:
        over.append(what)
    return f"{cpu / floor:.1f} times, {'within' if cpu <= budget * floor else 'OVER'} the budget of {budget:.1f}"


def bench_one(python: str, arguments: list[str]) -> None:
    """Prints what one Deployment as a process takes, beside the interpreter alone; in turns, so that both meet the same load."""
    text = DEPLOYMENT.format(number=0)
    bare, found = [], {start: [] for start in STARTS}
    for _ in range(25):
        bare.append(timed(lambda: subprocess.run([python, "-I", "-S", "-c", "pass"], check=True))[1])
        for start, times in found.items():
            times.append(run_once(python, arguments, text, start)[:2])
    print(f"  the interpreter alone           {min(bare) * 1000:8.1f} ms of CPU")
    for start, times in found.items():
        wall, cpu = (min(column) for column in zip(*times, strict=True))
        verdict = judge(f"one Deployment, {start}", cpu, min(bare), ONE)
        print(f"  one Deployment, {start:16}{wall * 1000:8.1f} ms  {cpu * 1000:.1f} ms of CPU  {verdict}")


def bench_large(python: str, arguments: list[str], title: str, text: str, budget: float, repeat: int) -> float:
    """Prints what a long input takes, beside PyYAML's walk over the output; the seconds of clock."""
    walls, cpus, walks = [], [], []
    for _ in range(repeat):
        wall, cpu, written = run_once(python, arguments, text)
        assert written.count("name: istio-proxy") == text.count("kind: Deployment")
        started = time.process_time()
        for _event in events.scan(written):
            pass
        walks.append(time.process_time() - started)
        walls.append(wall)
        cpus.append(cpu)
    verdict = judge(title, min(cpus), min(walks), budget)
    print(f"  {title:30} {min(walls):8.2f} s   {min(cpus):.2f} s of CPU  {verdict}")
    return min(walls)


def bench_shapes(config: InjectionConfig) -> None:
    """Processor time of a pod among many that differ, against that of the first of them again and again."""
    pods = varied_pods(SHAPES)
    costs = []
    for chosen in (pods, pods[:1] * SHAPES):
        for pod in chosen:  # what is kept of earlier pods is there, as in a server
            inject_pod(pod, config)
        began = time.process_time()
        for pod in chosen:
            inject_pod(pod, config)
        costs.append((time.process_time() - began) / SHAPES * 1000)
    print(f"  {SHAPES} pods that differ             {costs[0]:.2f} ms of processor time each; one of them repeated {costs[1]:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--here", action="store_true", help="measure in the environment of this process")
    given = parser.parse_args()
    config, arguments, title = read_config()
    print(f"injection with {title}")
    with tempfile.TemporaryDirectory() as folder:
        python = sys.executable if given.here else plain_python(folder)
        bench_one(python, arguments)
        stream = "---\n".join(DEPLOYMENT.format(number=number) for number in range(given.documents))
        wall = bench_large(python, arguments, f"{given.documents} Deployments", stream, MANY, 3)
        print(f"    {given.documents / wall:.0f} documents/s")
        more = "".join(f'        - {{name: V_{number}, value: "value {number}"}}\n' for number in range(VARIABLES))
        env = '        - {name: NUMBER, value: "1"}\n'
        large = DEPLOYMENT.format(number=1).replace(env, env + more)
        assert "V_1," in large
        bench_large(python, arguments, f"one with {VARIABLES} variables", large, LARGE, 3)
    (workload,) = workloads(goyaml.load(DEPLOYMENT.format(number=1)))
    pod = workload.pod()
    inject_pod(pod, config, owner=workload.owner)
    times = measure(lambda: inject_pod(pod, config, owner=workload.owner), given.pods)
    print(
        f"  inject_pod                      p50 {percentile(times, 0.5):.2f} ms, p99 {percentile(times, 0.99):.2f} ms"
    )
    bench_shapes(config)
    subject = rendering.Subject(owner=workload.owner, proxy=config.mesh.proxy)
    (name,) = injection.select_templates({}, config)
    text = config.templates[name].render(rendering.template_data(config, pod, subject))
    workload.set_pod(inject_pod(pod, config, owner=workload.owner))
    parts = {
        "rendering": lambda: config.templates[name].render(rendering.template_data(config, pod, subject)),
        f"reading its {len(text)} characters": lambda: goyaml.load(text),
        "writing the result": lambda: goyaml.dump(workload.tree),
        "reading a Deployment": lambda: goyaml.load(DEPLOYMENT.format(number=1)),
    }
    for part, work in parts.items():
        print(f"    {part:30} {percentile(measure(work, 200), 0.5):.2f} ms")
    print(f"    {'loading the configuration':30} {percentile(measure(read_config, 5), 0.5):.2f} ms")
    if over:
        sys.exit(f"over the budget: {'; '.join(over)}")


if __name__ == "__main__":
    main()
