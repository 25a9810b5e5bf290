"""Options shared by the `kubectl netinit` commands: kubectl's own, and the selection of pods."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import click

from netinit.base.errors import NetinitError
from netinit.base.sanitize import quote
from netinit.cli.kubectl.objects import POD, ClusterPod, check_name, read_pod, read_pods, split_object, write_selector
from netinit.cli.kubectl.program import Kubectl


def cluster_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add kubectl's options that select a cluster, and the node agent's namespace."""
    for decorate in reversed((
        click.option("-n", "--namespace", default="", metavar="NAME", help="The namespace (default: that of the context)."),
        click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig."),
        click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig."),
        click.option("--agent-namespace", default="", metavar="NAME",
                     help="Where the node agent is (default: the namespaces that the chart's ClusterRoleBindings name)."),
    )):  # fmt: skip
        function = decorate(function)
    return function


def environment() -> dict[str, str]:
    """The environment passed to the command line."""
    context = click.get_current_context(silent=True)
    return dict(os.environ if context is None or context.obj is None else context.obj)


def find_kubectl(context: str, kubeconfig: str) -> Kubectl:
    """The user's kubectl. Raises NetinitError if there is none."""
    flags = [f"--context={context}"] * bool(context) + [f"--kubeconfig={kubeconfig}"] * bool(kubeconfig)
    return Kubectl.find(tuple(flags), environment())


def find_pods(kubectl: Kubectl, named: str, namespace: str) -> list[ClusterPod]:
    """The pods with an address that the argument names: one pod, or those of a workload.

    Raises NetinitError if there are none.
    """
    kind, name = split_object(named)
    where = ("-n", namespace) if namespace else ()
    tree = kubectl.get(kind, name, *where)
    if not tree:
        raise NetinitError(f"there is no {kind} {quote(name)}{f' in the namespace {quote(namespace)}' if namespace else ''}")
    if kind == POD:
        found = [read_pod(tree)]
    else:
        home = check_name(tree["metadata"].get("namespace") if isinstance(tree.get("metadata"), dict) else "", "namespace")
        found = read_pods(kubectl.get("pods", "-n", home, "-l", write_selector(tree)))
    running = [pod for pod in found if pod.addresses and not pod.host_network and not pod.ended]
    if not running:
        why = "no pod has an address yet"
        if any(pod.host_network for pod in found):
            why = "it is on its node's network, where no rule of a mesh is"
        elif found and all(pod.ended for pod in found):
            why = f"it has ended ({found[0].phase}), and its network with it; netinit explain --pod answers by its manifest"
        elif not found:
            why = "it has no pods"
        raise NetinitError(f"{kind} {quote(name)}: {why}")
    return running
