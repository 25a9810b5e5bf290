"""The options of `netinit node agent` and its sibling commands: one declaration for each flag. Pure."""

from __future__ import annotations

import re

from netinit.options import AUTO, BACKENDS, Options
from netinit.options.declare import DeclaredOptions, plain
from netinit.options.interception import OF_IPV6
from netinit.options.kinds import (
    COUNT,
    DURATION,
    LOG_LEVELS,
    NAME,
    NAMES,
    PATH,
    PORT,
    SWITCH,
    Kind,
    choice,
    quote_value,
)

SECOND = 10**9
SOCKET = "/run/netinit/cni.sock"
RECORDS = "/var/lib/cni/results"  # libcni's
CGROUPS = "/host/sys/fs/cgroup"
STATUS_FILE = "status.json"  # next to the socket; `netinit node status` shows it
OUTSIDE_FILE = "outside-namespaces"  # next to the socket: the namespaces whose pods start without the agent
START, WAIT = "start", "wait"
NOTHING, REPORT, LABEL, DELETE, PROGRAM = "none", "report", "label", "delete", "program"
_LIST_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.conflist")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def split_taint(text: str) -> tuple[str, str, str]:
    """Split a taint in kubectl's format, KEY[=VALUE][:EFFECT], into its parts; missing ones are empty. Raises ValueError."""
    named, colon, effect = text.partition(":")
    key, _, value = named.partition("=")
    if not key or (colon and effect not in EFFECTS):
        raise ValueError(f"is not KEY, KEY=VALUE or KEY=VALUE:EFFECT with the effects {', '.join(EFFECTS)}")
    return key, value, effect


def _read_taint(text: str) -> str:
    split_taint(text)
    return text


_TAINT = Kind(metavar="TAINT", read=_read_taint, is_name=True)


class InstallSettings(DeclaredOptions):
    """Where the plugin is installed on a node, and its settings."""

    namespace: str = plain(
        "-n --namespace", NAME, default="", also=("POD_NAMESPACE",), help_text="The namespace of this DaemonSet.")
    daemon_set: str = plain(
        "--daemonSetName", NAME, default="netinit-node", also=("DAEMONSET_NAME",),
        help_text="This DaemonSet: its own pods are not programmed, and its deletion removes the plugin.")
    socket: str = plain("--socket", PATH, default=SOCKET, help_text="The Unix socket that the plugin connects to.")
    timeout: int = plain(
        "--timeout", DURATION, default=30 * SECOND, help_text="How long the plugin waits for an answer; the runtime waits longer.")
    exclude_namespaces: tuple[str, ...] = plain(
        "--excludeNamespaces", NAMES, default=("kube-system",), also=("EXCLUDE_NAMESPACES",),
        help_text="Pods of these namespaces are left alone; they start without the agent too.")
    outside_namespaces: str = plain(
        "--outsideNamespaces", choice(START, WAIT), default=START,
        help_text="Pods of namespaces that the agent knows to be outside of the mesh: they start without the agent, or wait.")
    plugin: str = plain(
        "--pluginFile", PATH, default="/usr/lib/netinit/netinit-cni", help_text="The plugin's executable, as this image has it.")
    bin_folder: str = plain(
        "--cniBinFolder", PATH, default="/host/opt/cni/bin", help_text="The runtime's folder of plugins, as this container sees it.",
    )
    conf_folder: str = plain(
        "--cniConfFolder", PATH, default="/host/etc/cni/net.d",
        help_text="The runtime's folder of networks, as this container sees it.")
    conf_name: str = plain(
        "--cniConfName", NAME, default="",
        help_text="The file of the network that gets the plugin (default: the first of the folder, as runtimes choose).")

    standalone: bool = plain(
        "--standalone", SWITCH, default=False,
        help_text="Write a network of its own, --cniConfName, for Multus, instead of an entry in the cluster's.")
    own_list: bool = plain(
        "--ownList", SWITCH, default=False,
        help_text="Write a list that sorts first: a copy of the cluster's with the plugin, so that other installers cannot drop it.")
    own_list_name: str = plain("--ownListName", NAME, default="00-netinit.conflist", help_text="The file of --ownList.")

    def _check(self) -> list[str]:
        problems = []
        if self.standalone and not self.conf_name:
            problems.append("--standalone: needs --cniConfName, the network's file")
        if self.standalone and self.own_list:
            problems.append("--ownList: contradicts --standalone; give one of the two")
        name = self.own_list_name
        if not _LIST_NAME.fullmatch(name):
            problems.append(f"--ownListName: {quote_value(name)} must be a file name with .conflist at its end: 00-netinit.conflist")
        elif self.own_list and name == self.conf_name:
            problems.append(f"--ownListName: {name} is --cniConfName too, the list that is copied; give another name")
        return problems


class AgentSettings(InstallSettings):
    """The agent's settings. Durations are nanoseconds; an empty text as a default means not set."""

    node: str = plain(
        "--nodeName", NAME, default="", also=("NODE_NAME", "KUBERNETES_NODE_NAME"), help_text="The node whose pods are watched.")
    backend: str = plain(
        "--backend", choice(AUTO, *BACKENDS), default=AUTO, help_text="The backend that programs the pods' namespaces.")
    native_nftables: bool = plain(
        "--native-nftables", SWITCH, default=False, also=("NATIVE_NFTABLES",), help_text="Program nft tables instead of iptables.")
    dual_stack: bool = plain(
        "--dual-stack", SWITCH, default=False, also=("ISTIO_DUAL_STACK",),
        help_text="Capture IPv6 in every pod that has an IPv6 address, unless the proxy's ISTIO_DUAL_STACK says otherwise.")
    ipv6: str = plain(
        "--ipv6", OF_IPV6, default=AUTO,
        help_text="The --ipv6 of the pods' rules; a pod's annotation and its proxy's NETINIT_IPV6 override it.")
    jobs: int = plain("--jobs", COUNT, default=0, help_text="Pods that are programmed at the same time; 0 is three for each core.")
    most_requests: int = plain(
        "--maxRequests", COUNT, default=512, help_text="Requests of the plugin at a time; further ones are asked to retry.")
    install: bool = plain("--install", SWITCH, default=True, help_text="Keep the plugin installed on the node.")
    netns_folder: str = plain(
        "--netnsFolder", PATH, default="/run/netns", help_text="Where the runtime keeps the pods' namespaces, for sweeps and repairs.",
    )
    records_folder: str = plain(
        "--recordsFolder", PATH, default=RECORDS,
        help_text="Where the runtime keeps the results of plugins, which say whose namespace is whose.")
    cgroup_folder: str = plain(
        "--cgroupFolder", PATH, default=CGROUPS,
        help_text="Where the node's cgroups (version 2) are mounted, to find BPF programs at those of pods.")
    repair: str = plain(
        "--repair", choice(NOTHING, REPORT, LABEL, DELETE, PROGRAM), default=REPORT,
        help_text="What happens to a pod that runs without its rules: an event, a label too, deleted, or programmed.")
    repair_unknown: bool = plain(
        "--repairUnknown", SWITCH, default=False,
        help_text="Also repair a pod that cannot be checked, as one without rules; with --repair label, delete or program.",
    )
    repair_label: str = plain(
        "--repairLabel", NAME, default="cni.istio.io/uninitialized=true", help_text="The label of --repair label, KEY=VALUE.")
    watch: bool = plain(
        "--watch", SWITCH, default=True, help_text="Check a pod whenever something that affects packets changes in it.")
    watch_connections: bool = plain(
        "--watchConnections", SWITCH, default=False,
        help_text="Also check a pod's open connections when it opens one, and report those that bypass the proxy.")
    sweep: bool = plain("--sweep", SWITCH, default=True, help_text="Compare the rules of all pods of the node periodically.")
    sweep_interval: int = plain("--sweepInterval", DURATION, default=300 * SECOND, help_text="How often.")
    host_probes: str = plain(
        "--hostProbes", choice(NOTHING, REPORT, PROGRAM), default=REPORT,
        help_text="What happens if the node's rules for probes of ambient pods are missing: an event, or programmed too.")
    taint: str = plain(
        "--startupTaint", _TAINT, default="",
        help_text="Remove this taint from the node once the plugin is in place: KEY, KEY=VALUE, also with :EFFECT.")
    monitoring_port: int = plain("--monitoringPort", PORT, default=15014, help_text="The port for metrics and health.")
    instance: str = plain(
        "--instance", NAME, default="",
        help_text="Answer readiness at /readyz/NAME only: two agents of an upgrade share the port, and each must answer for itself.",
    )
    address: str = plain("--address", NAME, default="", help_text="Listen for these on this address only.")
    kubeconfig: str = plain("--kubeconfig", PATH, default="", help_text="The cluster's kubeconfig (default: the pod's own account).")
    context: str = plain("--context", NAME, default="", help_text="The context of the kubeconfig.")
    log_level: str = plain(
        "--log_output_level", LOG_LEVELS, default="info", help_text="What is logged: error, warn, info, or debug.")
    log_as_json: bool = plain("--log_as_json", SWITCH, default=False, help_text="Log JSON, an object a line.")

    @property
    def base(self) -> Options:
        """Return the options that the node's configuration gives every pod."""
        return Options(
            backend=self.backend, native_nftables=self.native_nftables, dual_stack=self.dual_stack, ipv6=self.ipv6, reconcile=True
        )

    def _check(self) -> list[str]:
        problems = super()._check()
        if not self.node:
            problems.append("--nodeName: no node is named; set NODE_NAME from spec.nodeName (fieldRef)")
        if self.native_nftables and self.backend not in (AUTO, "nftables"):
            problems.append("--native-nftables: contradicts --backend; give one of the two")
        if self.dual_stack and self.ipv6 != AUTO:
            problems.append("--dual-stack: counts only with --ipv6 auto; give one of the two")
        if self.repair_unknown and self.repair in (NOTHING, REPORT):
            problems.append(f"--repairUnknown: does nothing with --repair {self.repair}; give {LABEL}, {DELETE} or {PROGRAM} there")
        if "=" not in self.repair_label:
            problems.append("--repairLabel: must be KEY=VALUE")
        return problems
