"""The flags of `netinit webhook serve`, named as in Istio's injector. Pure."""

from __future__ import annotations

from functools import partial

from netinit.inject.adding.settings import Kubelets
from netinit.inject.adding.settings import Settings as InjectionSettings
from netinit.options import AUTO, kinds
from netinit.options.declare import DeclaredOptions, plain
from netinit.options.interception import DUAL_STACK, IPV6_OF_PODS, OF_IPV6
from netinit.options.kinds import COUNT, LOG_LEVELS, NAME, PATH, PORT, REVISION, SWITCH, YES_NO_AUTO, Kind

SECOND = 10**9
_HOUR = 3600 * SECOND
DURATION = Kind(
    metavar="DURATION", read=partial(kinds.read_duration, low=0, high=10 * 365 * 24 * _HOUR, which="one of at most ten years"),
    write=lambda value: kinds.write_duration(value) if value else "0s",
)  # fmt: skip
_BOOL = Kind(metavar="true|false", read=kinds.read_bool, write=kinds.write_bool, words=("true", "false"))


class ServeSettings(DeclaredOptions):
    """The server's settings. Durations in nanoseconds; an empty text as a default means not set."""

    inject_config: str = plain(
        "--injectConfig", PATH, default="",
        help_text="The injector's configuration: a file, or a mounted ConfigMap's folder with config and values "
        "(default: netinit's own templates).")
    mesh_config: str = plain("--meshConfig", PATH, default="", help_text="The mesh configuration: a file, or a folder with mesh.")
    values_file: str = plain("--valuesFile", PATH, default="", help_text="The values for the templates.")
    values_map: str = plain(
        "--valuesConfigMapName", NAME, default="",
        help_text="The ConfigMap that --valuesFile is mounted from: an event on it says what is wrong with it.")
    config_map: str = plain(
        "--injectConfigMapName", NAME, default="",
        help_text="Watch this ConfigMap for the injector's configuration, instead of a file.")
    mesh_map: str = plain(
        "--meshConfigMapName", NAME, default="", help_text="Watch this ConfigMap for the mesh configuration, instead of a file.")
    last_good_map: str = plain(
        "--lastGoodConfigMapName", NAME, default="",
        help_text="Save the last valid configuration in this ConfigMap, which must exist; after a restart it is used if the "
        "watched ones are invalid.")
    namespace: str = plain(
        "-n --namespace", NAME, default="", also=("POD_NAMESPACE",),
        help_text="The namespace of these ConfigMaps, the Secret and the Service (default: this pod's own).")
    pod_name: str = plain(
        "--podName", NAME, default="", also=("POD_NAME",),
        help_text="The pod of this server, on which events say why it is not ready.")
    pod_uid: str = plain("--podUid", NAME, default="", also=("POD_UID",), help_text="The uid of this pod.")
    revision: str = plain("--revision", REVISION, default="default", also=("REVISION",), help_text="The revision of injected pods.")
    native_sidecars: bool | str = plain(
        "--native-sidecars", YES_NO_AUTO, default=True, also=("ENABLE_NATIVE_SIDECARS",),
        help_text="Run the proxy as a native sidecar, an init container that keeps running; auto: if every kubelet is "
        "1.33 or later, for which nodes are watched.")
    dual_stack: bool = plain(
        "--dual-stack", _BOOL, default=False, also=("ISTIO_DUAL_STACK",),
        help_text="Capture IPv6 in every pod that has an IPv6 address, like the mesh's proxyMetadata ISTIO_DUAL_STACK.")
    ipv6: str = plain(
        "--ipv6", OF_IPV6, default=AUTO,
        help_text="The --ipv6 of init containers, like the mesh's proxyMetadata NETINIT_IPV6; a pod's annotation overrides it.")
    compliance_policy: str = plain(
        "--compliance-policy", Kind(metavar="POLICY", read=str), default="", also=("COMPLIANCE_POLICY",),
        help_text="The compliance policy of the proxy, such as fips-140-3.")
    refuse_shared_user: bool = plain(
        "--refuseSharedProxyUser", _BOOL, default=False,
        help_text="Refuse pods in which an application runs as the proxy's user or group, and so bypasses it; otherwise they get a "
        "warning and an event.")
    address: str = plain(
        "--address", Kind(metavar="ADDRESS", read=str, is_name=True), default="", help_text="Listen only on this address.")
    port: int = plain("--port", PORT, default=15017, help_text="The port for reviews, over TLS.")
    monitoring_port: int = plain("--monitoringPort", PORT, default=15014, help_text="The port for metrics and health, without TLS.")
    tls_cert_file: str = plain("--tlsCertFile", PATH, default="", help_text="The serving certificate, read again when it changes.")
    tls_key_file: str = plain("--tlsKeyFile", PATH, default="", help_text="The certificate's private key.")
    ca_cert_file: str = plain(
        "--caCertFile", PATH, default="",
        help_text="The certificate authority of the serving certificate, which becomes the caBundle of --webhookConfigName.")
    client_ca_file: str = plain(
        "--clientCAFile", PATH, default="",
        help_text="Serve reviews only to clients with a certificate of this authority.")
    certificate_secret: str = plain(
        "--certificateSecret", NAME, default="",
        help_text="Create and renew an authority and a certificate in this Secret, instead of reading files.")
    certificate_lifetime: int = plain(
        "--certificateLifetime", DURATION, default=90 * 24 * _HOUR,
        help_text="How long a created certificate is valid; it is renewed after two thirds of that.")
    service: str = plain("--serviceName", NAME, default="netinit-webhook", help_text="The Service of this server.")
    webhook_config: str = plain(
        "--webhookConfigName", NAME, default="",
        help_text="Keep the caBundle of these MutatingWebhookConfigurations (a comma list) up to date.")
    webhook_name: str = plain(
        "--webhookName", NAME, default="", help_text="The webhook in them to update (default: all that use the Service).")
    kubeconfig: str = plain("--kubeconfig", PATH, default="", help_text="The cluster's kubeconfig (default: the pod's own account).")
    context: str = plain("--context", NAME, default="", help_text="The context of the kubeconfig.")
    watch_namespaces: bool = plain(
        "--watchNamespaces", _BOOL, default=False,
        help_text="Watch namespaces for the annotations that hold OpenShift's user ids.")
    watch_proxy_configs: bool = plain(
        "--watchProxyConfigs", _BOOL, default=False,
        help_text="Watch ProxyConfig resources (networking.istio.io), and merge them into the pods' proxy configuration.")
    health_file: str = plain(
        "--healthCheckFile", PATH, default="", help_text="Write ok to this file while the server is healthy.")
    health_interval: int = plain("--healthCheckInterval", DURATION, default=0, help_text="How often to write this file; 0: never.")
    shutdown_delay: int = plain(
        "--shutdownDelay", DURATION, default=5 * SECOND,
        help_text="How long to keep serving after SIGTERM, until no new reviews arrive.")
    max_reviews: int = plain("--maxReviews", COUNT, default=128, help_text="Maximum number of waiting reviews; further ones get 503.")
    max_connections: int = plain(
        "--maxConnections", COUNT, default=0,
        help_text="Maximum number of connections; half for one peer (default: 2 per MiB of the memory limit, 64 to 512).")
    log_level: str = plain(
        "--log_output_level", LOG_LEVELS, default="info",
        help_text="The log level: error, warn, info or debug, also as default:debug.")
    log_as_json: bool = plain("--log_as_json", SWITCH, default=False, help_text="Log one JSON object per line.")

    @property
    def injection(self) -> InjectionSettings:
        """The initial settings of the injector."""
        return InjectionSettings(
            revision=self.revision, compliance_policy=self.compliance_policy, refuse_shared_user=self.refuse_shared_user,
            native_sidecars=Kubelets() if self.watches_nodes else self.native_sidecars is True, proxy_metadata=self._proxy_metadata(),
        )

    def _proxy_metadata(self) -> dict[str, str]:
        found = {DUAL_STACK: "true"} if self.dual_stack else {}
        return found if self.ipv6 == AUTO else {**found, IPV6_OF_PODS: self.ipv6}

    @property
    def watches_nodes(self) -> bool:
        """Whether native sidecars depend on the nodes' kubelets."""
        return self.native_sidecars == AUTO

    @property
    def uses_cluster(self) -> bool:
        """Whether a setting needs the Kubernetes API."""
        return any((
            self.config_map, self.mesh_map, self.values_map, self.certificate_secret, self.webhook_config, self.watch_namespaces,
            self.watch_proxy_configs, self.watches_nodes,
        ))  # fmt: skip

    def _check(self) -> list[str]:
        problems = []
        for name, file, in_cluster, other in (
            ("--injectConfigMapName", self.inject_config, self.config_map, "--injectConfig"),
            ("--meshConfigMapName", self.mesh_config, self.mesh_map, "--meshConfig"),
            ("--certificateSecret", self.tls_cert_file, self.certificate_secret, "--tlsCertFile"),
        ):
            if file and in_cluster:
                problems.append(f"{name}: contradicts {other}; give one of the two")
        if self.last_good_map and not (self.config_map or self.mesh_map):
            problems.append("--lastGoodConfigMapName: needs --injectConfigMapName or --meshConfigMapName; files are read again")
        if self.dual_stack and self.ipv6 != AUTO:
            problems.append("--dual-stack: counts only with --ipv6 auto; give one of the two")
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            problems.append("--tlsCertFile: needs --tlsKeyFile; give both")
        if not self.tls_cert_file and not self.certificate_secret:
            problems.append("--tlsCertFile: no certificate is given; name files, or a Secret with --certificateSecret")
        if self.port == self.monitoring_port and self.port:
            problems.append(f"--monitoringPort: {self.port} is --port already; give another")
        if self.health_file and not self.health_interval:
            problems.append("--healthCheckFile: needs --healthCheckInterval, such as 2s")
        return problems
