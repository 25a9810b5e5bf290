"""Flags and variables of istio-iptables' earlier releases, and of its log. Pure.

Under the name `istio-iptables` each is applied or reported as without effect. Sources: root.go and constants.go of
tools/istio-iptables in every release since 1.4.0, and pkg/log/options.go.
"""

from __future__ import annotations

from netinit.options.kinds import SWITCH, Flag, Kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from netinit.options.kinds import Text

TEXT = Kind(metavar="TEXT", read=str, empty="no effect, like any text")
LOG_IS_PLAIN = "events are lines on stderr; --log_output_level and --log_as_json select them"


class OlderFlag(Flag):
    """A flag without effect here: why, in which releases it existed, and whether its effect is missing."""

    why: str
    releases: str = ""
    lacking: bool = False


def _flag(names: str, kind: Kind, why: str, releases: str = "", *, lacking: bool = False) -> OlderFlag:
    long = names.partition("--")[2]
    variables = () if long.startswith(("log_", "vklog")) else (long.upper().replace("-", "_"),)
    return OlderFlag(
        names=names, variables=variables, kind=kind, default=None, help="", group="", why=why, releases=releases, lacking=lacking,
        field="older_" + long.replace("-", "_"),
    )  # fmt: skip


FLAGS = (
    _flag("-f --restore-format", SWITCH, "rules are always committed at once", "1.4.5 to 1.23"),
    _flag(
        "--iptables-trace-logging", SWITCH, "no rule logs every packet; `netinit trace` follows packets, --log-rules reports new"
        " connections", "1.12 to 1.25", lacking=True),
    _flag("--output-paths", TEXT, "`netinit render` prints the rules", "1.11 to 1.17.5"),
    _flag("--host-nsenter-exec", SWITCH, "--network-namespace is entered without nsenter", "1.15 to 1.19.3"),
    _flag("--iptables-version", TEXT, "the backend is found by itself; --backend names one", "1.18.6 to 1.21"),
    _flag("--log_target", TEXT, LOG_IS_PLAIN),
    _flag("--log_rotate", TEXT, LOG_IS_PLAIN, "1.4 to 1.23"),
    _flag("--log_rotate_max_age", TEXT, LOG_IS_PLAIN, "1.4 to 1.23"),
    _flag("--log_rotate_max_size", TEXT, LOG_IS_PLAIN, "1.4 to 1.23"),
    _flag("--log_rotate_max_backups", TEXT, LOG_IS_PLAIN, "1.4 to 1.23"),
    _flag("--log_caller", TEXT, LOG_IS_PLAIN),
    _flag("--log_stacktrace_level", TEXT, LOG_IS_PLAIN),
    _flag("--vklog", TEXT, "nothing here is logged by klog"),
)
VARIABLES = {  # variables without a flag, or of a flag that no variable sets here -> why they have no effect
    "DNS_CAPTURE": "Istio 1.6 sent queries to Envoy's port 15013; --redirect-dns sends them to 15053",
    "ISTIO_META_DNS_CONNTRACK_ZONE": "with --redirect-dns the queries of the application and of the proxy always have zones of"
    " their own",
    "STUB_IP": "the pod's addresses are the kernel's",
    "DRY_RUN_FILE_PATH": "--dry-run prints to stdout",
}
RENAMED = {"DNS_AGENT": "ISTIO_META_DNS_CAPTURE", "ISTIO_AGENT_DUAL_STACK": "ISTIO_DUAL_STACK"}  # 1.7; 1.17 and 1.18
SERVICE_VARIABLE = "ENVOY_PORT"  # the kubelet sets it to a URL if a Service is named envoy; never to a number


def split(texts: Mapping[str, tuple[Text, str]]) -> tuple[dict[str, tuple[Text, str]], list[str]]:
    """Return the texts of flags that are options, and a notice for each of the others."""
    older = {flag.field: flag for flag in FLAGS}
    notices = [f"{label}: has no effect here: {older[field].why}" for field, (_, label) in texts.items() if field in older]
    return {field: text for field, text in texts.items() if field not in older}, notices


def read_environment(environ: Mapping[str, str]) -> tuple[Mapping[str, str], list[str]]:
    """Return the environment with today's names of variables, and a notice for each variable without effect."""
    reasons = VARIABLES | {name: flag.why for flag in FLAGS for name in flag.variables}
    notices = [f"{name}: has no effect here: {why}" for name, why in reasons.items() if environ.get(name)]
    if environ.get(SERVICE_VARIABLE, "").isdigit():
        notices.append(f"{SERVICE_VARIABLE}: has no effect here: a Service of that name would set it; use --envoy-port")
    today = {RENAMED[name]: _as_switch(environ[name]) for name in RENAMED if environ.get(name) and not environ.get(RENAMED[name])}
    return ({**environ, **today} if today else environ), notices


def _as_switch(text: str) -> str:
    """Convert a DNS_AGENT value to a switch: it allowed any text (ALL); words of a switch keep their meaning."""
    try:
        return SWITCH.write(SWITCH.read(text))
    except ValueError:
        return "true"

