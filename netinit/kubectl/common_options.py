"""Options shared by the `kubectl netinit` commands: kubectl's own, the selection of pods, and who reads their rules."""

from __future__ import annotations

from dataclasses import dataclass

import click

from netinit.base.errors import NetinitError
from netinit.base.sanitize import quote
from netinit.base.tree import mapping, string
from netinit.cli.flags import Decorator, add_options, add_value, environment
from netinit.cli.values import OneOf, takes
from netinit.inject.deciding.init_container import find_init
from netinit.kube.kubectl_program import find_kubectl_program
from netinit.kubectl.objects import POD, ClusterPod, check_name, read_pod, read_pods, split_object, write_selector
from netinit.kubectl.program import Kubectl
from netinit.kubectl.sources import AgentSource, EphemeralSource, LiveSource, ManifestSource, PodSource
from netinit.options import Options

AUTO, AGENT, EPHEMERAL, MANIFEST = "auto", "agent", "debug", "manifest"


def find_kubectl(context: str = "", kubeconfig: str = "") -> Kubectl:
    """The user's kubectl, on PATH. Raises NetinitError if there is none."""
    return Kubectl(*find_kubectl_program(environment(), context=context, kubeconfig=kubeconfig))


kubectl_options = add_value(
    "kubectl", find_kubectl,
    click.option("--context", default="", **takes("NAME"), help="The context of the kubeconfig."),
    click.option("--kubeconfig", default="", **takes("FILE"), help="The kubeconfig."),
)  # fmt: skip
cluster_options = add_options(
    click.option("-n", "--namespace", default="", **takes("NAME"), help="The namespace (default: that of the context)."),
    click.option("--agent-namespace", default="", **takes("NAME"),
                 help="Where the node agent is (default: the namespaces that the chart's ClusterRoleBindings name)."),
    kubectl_options,
)  # fmt: skip


image_option = click.option(
    "--image", default="", **takes("IMAGE"),
    help="For ephemeral containers (default: NETINIT_IMAGE, or the image of the pod's init container).",
)  # fmt: skip


def object_options(choices: tuple[str, ...], text: str) -> Decorator:
    """Add the argument OBJECT, --image, --source with these choices and this help, and `cluster_options`, as `sources`."""

    def make(*, named: str, namespace: str, kubectl: Kubectl, agent_namespace: str, image: str, source: str) -> Sources:
        return Sources(find_pods(kubectl, named, namespace), kubectl, AgentSource(kubectl, agent_namespace), image, source)

    return add_value(
        "sources", make, click.argument("named", **takes("OBJECT")), image_option,
        click.option("--source", type=OneOf(choices), default=AUTO, show_default=True, help=text),
        cluster_options,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sources:
    """Pods with an address, and who reads their rules: `chosen` is AGENT, EPHEMERAL or MANIFEST, or AUTO for all in this order."""

    pods: list[ClusterPod]
    kubectl: Kubectl
    agent: AgentSource
    image: str
    chosen: str

    def of(self, pod: ClusterPod) -> list[PodSource]:
        """The sources to ask about a pod, in order of preference."""
        return [*self.live(pod), *[ManifestSource()] * (self.chosen in (AUTO, MANIFEST))]

    def live(self, pod: ClusterPod) -> list[LiveSource]:
        """Those of them that see the pod itself."""
        known: dict[str, LiveSource] = {AGENT: self.agent, EPHEMERAL: self._ephemeral(pod)}
        return [source for name, source in known.items() if self.chosen in (AUTO, name)]

    def base(self, pod: ClusterPod) -> Options:
        """The options that a pod has from the configuration of its node's agent."""
        return self.agent.base(pod.node) if self.chosen in (AUTO, AGENT) else Options()

    def _ephemeral(self, pod: ClusterPod) -> EphemeralSource:
        """With the image of --image or NETINIT_IMAGE, or that of the pod's init container if it is netinit's: the node has it."""
        own = string(mapping(find_init(mapping(pod.tree.get("spec")))).get("image"))
        is_ours = own.partition("@")[0].rpartition("/")[2].partition(":")[0] == "netinit"
        return EphemeralSource(self.kubectl, self.image or environment().get("NETINIT_IMAGE", "") or (own if is_ours else ""))


def find_pods(kubectl: Kubectl, named: str, namespace: str) -> list[ClusterPod]:
    """The pods with an address that the argument names: one, or those of a workload. Raises NetinitError if there are none."""
    kind, name = split_object(named)
    tree = kubectl.get(kind, name, *(("-n", namespace) if namespace else ()))
    if not tree:
        raise NetinitError(f"there is no {kind} {quote(name)}{f' in the namespace {quote(namespace)}' if namespace else ''}")
    if kind == POD:
        found = [read_pod(tree)]
    else:
        home = check_name(mapping(tree.get("metadata")).get("namespace"), "namespace")
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
