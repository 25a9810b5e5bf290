"""How quick the template engine is: Istio's sidecar template for a plain pod, parsed and rendered.

Beside it, where the package is installed, the pure-Python engine gotpl renders the same template with the same functions
and data to the same text, the two taking turns. Times are processor time of this process. Aim: a third of gotpl's.

    python tests/bench/gotemplate.py                the default rounds
    python tests/bench/gotemplate.py --rounds 20    more of them
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import sys
import time
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from netinit.golang.template import Function, Template  # noqa: E402 - the path must be set first
from netinit.inject.adding import istio_functions  # noqa: E402

AIM = 3.0
RENDERS = 50


def settings() -> Path:
    """The folder of Istio's default settings."""
    named = os.environ.get("NETINIT_CONFORMANCE")
    folder = Path(named) if named else ROOT.parent / "shared" / "conformance"
    return folder / "inject" / "current" / "settings" / "default"


def plain_pod(values: dict) -> dict:
    """What the template sees, in plain maps, which both engines understand."""
    labels = {"app": "hello", "tier": "backend", "track": "stable"}
    ports = [{"Name": "http", "ContainerPort": 80, "Protocol": ""}]
    containers = [{"Name": "hello", "Image": "hello:1.0", "Ports": ports}]
    proxy = {
        "InterceptionMode": "REDIRECT",
        "ProxyMetadata": {},
        "HoldApplicationUntilProxyStarts": {"GetValue": False},
        "GetTracing": {"GetTlsSettings": None},
    }
    return {
        "TypeMeta": {"Kind": "Deployment", "APIVersion": "apps/v1"},
        "DeploymentMeta": {"Name": "hello", "Namespace": ""},
        "ObjectMeta": {"Name": "", "Namespace": "", "Labels": labels, "Annotations": {}},
        "Spec": {"Containers": containers, "InitContainers": [], "ServiceAccountName": ""},
        "ProxyConfig": proxy,
        "MeshConfig": {"ProxyListenPort": 15001, "ProxyInboundListenPort": 15006, "TrustDomain": "cluster.local"},
        "Values": values,
        "Revision": "",
        "NativeSidecars": True,
        "ProxyImage": "proxyv2:latest",
        "ProxyInitImage": "proxyv2:latest",
        "ProxyUID": 1337,
        "ProxyGID": 1337,
        "InboundTrafficPolicyMode": "passthrough",
        "CompliancePolicy": "",
    }


def gotpl_functions(functions: dict) -> dict:
    """Our functions for gotpl, and those of its own that know no typed maps in a form that does."""
    from gotpl.runtime.values import INVALID

    def adapt(call):
        def adapted(*args):
            for arg in args:
                if arg is INVALID:
                    return call(*(None if one is INVALID else one for one in args))
            return call(*args)

        return adapted

    def index(item, key):
        return item.get(key, "") if isinstance(item, dict) else item[key]

    adapted = {name: adapt(function.call) for name, function in functions.items()}
    return {
        **adapted,
        "index": index,
        "eq": lambda first, *others: any(first == other for other in others),
        "ne": lambda left, right: left != right,
    }


def clock(render, data: dict) -> float:
    """Milliseconds of one rendering, the mean of a few."""
    started = time.process_time()
    for _ in range(RENDERS):
        render(data)
    return (time.process_time() - started) / RENDERS * 1000


def main() -> int:
    """The exit code; the clock never fails the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    folder = settings()
    if not folder.is_dir():
        print(f"gotemplate: no conformance data in {folder}; NETINIT_CONFORMANCE names it")
        return 0
    text = yaml.safe_load((folder / "config.yaml").read_text())["templates"]["sidecar"]
    # a plain map has no method String
    text = text.replace(".InterceptionMode.String", ".InterceptionMode")
    data = plain_pod(json.loads((folder / "values.json").read_text(), parse_int=float))
    functions = {
        **istio_functions.FUNCTIONS,
        "otelResourceAttributes": Function.of(lambda *_arguments: ""),
        "protoToJSON": Function.of(lambda _proxy: "{}"),
    }
    parses = []
    for _ in range(rounds):
        started = time.process_time()
        template = Template("sidecar", text, functions)
        parses.append((time.process_time() - started) * 1000)
    contenders = {"netinit": template.render}
    if importlib.util.find_spec("gotpl"):
        import gotpl

        contenders["gotpl"] = gotpl.Template(text, functions=gotpl_functions(functions)).render
    texts = {name: render(data) for name, render in contenders.items()}
    times = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, render in contenders.items():
            times[name].append(clock(render, data))
    print(f"sidecar template of {len(text)} characters -> {len(texts['netinit'])} characters")
    print(f"  parse   netinit {statistics.median(parses):7.2f} ms")
    for name, figures in times.items():
        print(f"  render  {name:7} {statistics.median(figures):7.3f} ms   best {min(figures):.3f} ms")
    if "gotpl" in times:
        same = "the same text" if texts["gotpl"] == texts["netinit"] else "NOT the same text"
        ratio = statistics.median(times["gotpl"]) / statistics.median(times["netinit"])
        print(f"  ratio   {ratio:.1f} (aim {AIM}), {same}")
    else:
        print("  gotpl is not installed: `pip install gotpl` adds the comparison")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
