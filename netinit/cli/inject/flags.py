"""Flags of `inject` and `check-inject`, declared and parsed like those of `apply`."""

from __future__ import annotations

import os

from netinit.inject.deciding.template_kinds import TemplateKind
from netinit.library.safe_files import STDIN, is_folder
from netinit.options.declare import DeclaredOptions, plain
from netinit.options.kinds import AUTO, REVISION, SWITCH, YES_NO_AUTO, Kind

_IMAGE_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:/@-")


def _read_file(text: str) -> str:
    try:
        folder = is_folder(text)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: NUL in the name
        raise ValueError("does not exist; name a file") from None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    if folder:
        raise ValueError("is a folder: name a file")
    if not os.access(text, os.R_OK):
        raise ValueError("cannot be read: permission denied")
    return text


_FILE = Kind(metavar="FILE", read=_read_file, is_file=True)
_INPUT = Kind(metavar="FILE|-", read=lambda text: text if text == STDIN else _read_file(text), is_file=True)
_MANIFESTS = Kind(metavar="FILE|DIR|-", read=str, is_file=True)


def _read_kind(text: str) -> str:
    TemplateKind.parse(text)
    return text


def _read_image(text: str) -> str:
    if not text or any(letter not in _IMAGE_LETTERS for letter in text):
        raise ValueError("is not an image reference; write REGISTRY/PATH:TAG")
    return text


def _text(metavar: str, empty: str = "") -> Kind:
    return Kind(metavar=metavar, read=str, empty=empty)


class CheckFlags(DeclaredOptions):
    """Flags of check-inject. Files are only named here; an empty text as a default means not set."""

    filenames: tuple[str, ...] = plain(
        "-f --filename", _MANIFESTS, default=(), repeated=True,
        help_text="Manifests: a file, a folder (.yaml, .yml, .json), - for stdin. May be repeated.")
    recursive: bool = plain("-R --recursive", SWITCH, default=False, help_text="Also read the folders inside folders.")
    config_file: str = plain(
        "--injectConfigFile", _INPUT, default="",
        help_text="The injector's configuration or ConfigMap (default: netinit's templates).")
    mesh_file: str = plain("--meshConfigFile", _INPUT, default="", help_text="The mesh configuration: its YAML or the ConfigMap.")
    values_file: str = plain(
        "--valuesFile --operatorFileName", _INPUT, default="",
        help_text="Values for the templates, or an IstioOperator; netinit's own templates have values beneath.")
    settings: tuple[str, ...] = plain(
        "--set", _text("KEY=VALUE"), default=(), repeated=True,
        help_text="Set a value in Helm's grammar: a.b=c, a[0]=c, a={b,c}, a=null. Repeatable.")
    text_settings: tuple[str, ...] = plain(
        "--set-string", _text("KEY=VALUE"), default=(), repeated=True,
        help_text="Set a text after all of --set, such as a.b=80. Repeatable.")
    image: str = plain(
        "--image", Kind(metavar="IMAGE", read=_read_image), default="",
        help_text="The image of the init container (sets global.proxy_init.image).")
    revision: str = plain("--revision", REVISION, default="", help_text="The revision that the pods are injected for.")
    native_sidecars: bool | str = plain(
        "--native-sidecars", YES_NO_AUTO, default=True, also=("ENABLE_NATIVE_SIDECARS",),
        help_text="Run the proxy as an init container that keeps running; auto: where every kubelet of the cluster is 1.33 or later.")
    proxy_config_files: tuple[str, ...] = plain(
        "--proxyConfigFile", _INPUT, default=(), repeated=True,
        help_text="ProxyConfig resources that count for the pods (default: the cluster's, if one is asked). May be repeated.")
    compliance_policy: str = plain(
        "--compliance-policy", _text("POLICY"), default="", also=("COMPLIANCE_POLICY",),
        help_text="The compliance policy of the proxy, such as fips-140-3.")
    refuse_shared_user: bool = plain(
        "--refuseSharedProxyUser", SWITCH, default=False,
        help_text="Refuse applications with the proxy's user.")
    kinds: tuple[str, ...] = plain(
        "--crd", Kind(metavar="KIND=PATH", read=_read_kind), default=(), repeated=True,
        help_text="Also inject this kind (KIND or KIND.GROUP); PATH leads to its pod template. Repeatable.")
    context: str = plain(
        "--context", _text("CONTEXT"), default="", help_text="Read the configuration from the cluster of this kubeconfig context.",
    )
    kubeconfig: str = plain("--kubeconfig", _FILE, default="", help_text="Read the configuration from the cluster of this kubeconfig.")
    config_map: str = plain(
        "--injectConfigMapName", _text("NAME"), default="",
        help_text="The injector's ConfigMap in the cluster (default: istio-sidecar-injector).")
    mesh_map: str = plain(
        "--meshConfigMapName", _text("NAME"), default="", help_text="The mesh's ConfigMap in the cluster (default: istio).")
    istio_namespace: str = plain(
        "-i --istioNamespace", _text("NAMESPACE"), default="istio-system", help_text="The namespace of these ConfigMaps.")
    namespace: str = plain(
        "-n --namespace", _text("NAMESPACE"), default="", help_text="The namespace of objects without one.")
    select: str = plain(
        "--select", _text("NAME"), default="", help_text="Only workloads of this name: NAME, NAMESPACE/NAME or KIND/NAME.")
    # None: unset; an empty text: no labels
    labels: str | None = plain(
        "--namespace-labels", _text("KEY=VALUE,…", "no labels"), default=None,
        help_text="The labels of the objects' namespace (default: of a Namespace in the input, or in the cluster).")
    as_json: bool = plain("--json", SWITCH, default=False, help_text="Print the answer as JSON.")
    debug: bool = plain("--debug", SWITCH, default=False, also=("NETINIT_DEBUG",), help_text="Print Python's traceback with an error.")

    @property
    def uses_cluster(self) -> bool:
        """Whether an option requires a cluster."""
        return any((self.context, self.kubeconfig, self.config_map, self.mesh_map))

    @property
    def template_kinds(self) -> tuple[TemplateKind, ...]:
        """The kinds of --crd."""
        return tuple(map(TemplateKind.parse, self.kinds))

    def _check(self) -> list[str]:
        problems = []
        if not self.filenames:
            problems.append("-f: no manifest is given; name a file, a folder, or - for stdin")
        if (*self.filenames, self.config_file, self.mesh_file, self.values_file, *self.proxy_config_files).count(STDIN) > 1:
            problems.append("-: stdin can be read for one option only")
        return problems + self._problems_of_sidecars()

    def _problems_of_sidecars(self) -> list[str]:
        if self.native_sidecars == AUTO and not self.uses_cluster:
            remedy = "name it with --context or --kubeconfig, or give true or false"
            return [f"--native-sidecars: auto needs the nodes of a cluster; {remedy}"]
        return []


class InjectFlags(CheckFlags):
    """Flags of inject."""

    output: str = plain(
        "-o --output", Kind(metavar="FILE|-", read=str, is_file=True), default=STDIN,
        help_text="Where the manifests are written; - is stdout.")
    explain: bool = plain(
        "--explain", SWITCH, default=False, help_text="Show for each object what this command would do, and why; write no manifests.",
    )
    check_config: bool = plain(
        "--check-config", SWITCH, default=False,
        help_text="Say what the webhook would find wrong with the configuration and its templates.")

    def _check(self) -> list[str]:
        problems = self._problems_of_sidecars() if self.check_config and not self.filenames else super()._check()
        if self.check_config and (self.filenames or self.explain):
            problems.append("--check-config: needs no manifests and explains none; leave -f and --explain out")
        if self.labels is not None:
            problems.append("--namespace-labels: belongs to check-inject; this command asks no webhook")
        if self.as_json and not self.explain:
            problems.append("--json: needs --explain; manifests keep their format")
        return problems
