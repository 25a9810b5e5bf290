"""Options and every flag: name, environment, default, reader, help; and the checks across fields.

The names are those of Istio's istio-iptables, so that an unmodified template starts us; those marked `ours` have a
NETINIT_ variable. Precedence: flag, environment variable, default. An empty variable counts as unset.
"""

from __future__ import annotations

from netinit.base.errors import OptionError
from netinit.base.net import Network
from netinit.base.records import Record
from netinit.options import kinds as v
from netinit.options.kinds import ALL, Kind, quote_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Self

CURRENT, CLASSIC = "current", "classic"
REDIRECT, TPROXY, NONE = "REDIRECT", "TPROXY", "NONE"
AUTO, ON, OFF = "auto", "on", "off"
DEFAULT_INBOUND_PORT = 15006
DEFAULT_PROXY_USER = "istio-proxy"
DEFAULT_PROXY_UID = 1337
LOOP_MARK = 1338  # the mark of the proxy's connections to itself in TPROXY mode; not an option in Istio either
BACKEND_CHOICES = (AUTO, "iptables-nft", "iptables-legacy", "nftables", "libiptc", "memory")
_DERIVED: Any = None  # the default depends on other options


class Flag(Record):
    """One option: its field, its spellings, how its value is read and what it means."""

    field: str
    long: str = ""  # without dashes; empty: an environment variable alone
    short: str = ""
    aliases: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    kind: Kind
    help: str
    current_only: bool = False  # the classic layout has no rule for it

    @property
    def label(self) -> str:
        """How messages name the option."""
        return f"--{self.long}" if self.long else self.environment[0]


def _istio(field: str, long: str, short: str, kind: Kind, text: str, *more: str, current_only: bool = False) -> Flag:
    variable = long.upper().replace("-", "_")
    return Flag(
        field=field, long=long, short=short, environment=(variable, *more), kind=kind, help=text, current_only=current_only
    )


def _ours(field: str, long: str, kind: Kind, text: str) -> Flag:
    return Flag(field=field, long=long, environment=("NETINIT_" + long.upper().replace("-", "_"),), kind=kind, help=text)


FLAGS = (
    # No variable for -p: a Service named `envoy` makes the kubelet set ENVOY_PORT=tcp://… in every pod.
    Flag(field="outbound_port", long="envoy-port", short="p", kind=v.PORT, help="Outbound TCP is redirected to this port."),
    _istio("inbound_port", "inbound-capture-port", "z", v.PORT, "Inbound TCP is redirected to this port (default: 15006; classic layout: the value of -p)."),
    _istio("tunnel_port", "inbound-tunnel-port", "e", v.PORT, "The inbound tunnel (HBONE) port, never redirected.", current_only=True),
    _istio("proxy_uids", "proxy-uid", "u", v.UIDS, "Traffic of these users is not redirected (default: the uid of $ENVOY_USER, else 1337)."),
    _istio("proxy_gids", "proxy-gid", "g", v.GIDS, "Traffic of these groups is not redirected (default: the value of -u)."),
    _istio("inbound_mode", "istio-inbound-interception-mode", "m", v.choice(REDIRECT, TPROXY, NONE, ""), "How inbound traffic is captured; NONE programs nothing inbound."),
    _istio("inbound_ports", "istio-inbound-ports", "b", v.PORTS_OR_ALL, "Inbound ports to capture; * is all, empty is none."),
    _istio("exclude_inbound_ports", "istio-local-exclude-ports", "d", v.PORTS, "Inbound ports not captured; only with -b '*'."),
    _istio("exclude_interfaces", "istio-exclude-interfaces", "c", v.INTERFACES, "Interfaces neither captured in nor out.", current_only=True),
    _istio("outbound_cidrs", "istio-service-cidr", "i", v.NETWORKS_OR_ALL, "Outbound networks to capture; * is all, empty is none."),
    _istio("exclude_outbound_cidrs", "istio-service-exclude-cidr", "x", v.NETWORKS, "Outbound networks not captured."),
    _istio("outbound_ports", "istio-outbound-ports", "q", v.PORTS, "Outbound ports captured whatever their address.", current_only=True),
    _istio("exclude_outbound_ports", "istio-local-outbound-ports-exclude", "o", v.PORTS, "Outbound ports not captured (TCP and UDP).", current_only=True),
    _istio("virtual_interfaces", "kube-virt-interfaces", "k", v.INTERFACES, "Inbound traffic of these interfaces (a VM behind the pod) is treated as outbound."),
    _istio("tproxy_mark", "istio-inbound-tproxy-mark", "t", v.MARK, "The firewall mark for TPROXY."),
    _istio("tproxy_table", "istio-inbound-tproxy-route-table", "r", v.TABLE, "The routing table for TPROXY."),
    _istio("dry_run", "dry-run", "n", v.SWITCH, "Print what would be done, touch nothing."),
    _istio("redirect_dns", "redirect-dns", "", v.SWITCH, "Capture DNS to port 15053.", "ISTIO_META_DNS_CAPTURE", current_only=True),
    _istio("capture_all_dns", "capture-all-dns", "", v.SWITCH, "With --redirect-dns: all traffic to port 53, not only that to the servers of /etc/resolv.conf.", current_only=True),
    _istio("drop_invalid", "drop-invalid", "", v.SWITCH, "Drop packets in conntrack state INVALID.", "INVALID_DROP", current_only=True),
    _istio("dual_stack", "dual-stack", "", v.SWITCH, "Any IPv6 address of the pod turns IPv6 on, not only the first address.", "ISTIO_DUAL_STACK"),
    Flag(field="netns", long="network-namespace", aliases=("netns",), environment=("NETWORK_NAMESPACE", "NETINIT_NETNS"), kind=v.PATH, help="The network namespace to program: a path, or a name under /run/netns."),
    _ours("pid", "pid", v.PID, "The network namespace of this process is programmed."),
    _ours("host_network", "host-network", v.SWITCH, "Change the machine's own network namespace too, which is refused otherwise."),
    _istio("cni_mode", "cni-mode", "", v.SWITCH, "Running as a CNI plugin on the host's file system; wants --network-namespace."),
    _istio("skip_rule_apply", "skip-rule-apply", "", v.SWITCH, "Do not program."),
    _istio("run_validation", "run-validation", "", v.SWITCH, "After programming (or alone, with --skip-rule-apply) prove that redirection works."),
    _istio("probe_port", "iptables-probe-port", "", v.PORT, "The port used by the validation."),
    _istio("probe_timeout", "probe-timeout", "", v.DURATION, "The limit of the validation."),
    _istio("reconcile", "reconcile", "", v.SWITCH, "Existing, different rules are replaced; otherwise they are reported and left."),
    _istio("cleanup_only", "cleanup-only", "", v.SWITCH, "Remove the rules, add none."),
    _istio("force_apply", "force-apply", "", v.SWITCH, "Apply even where the state looks right already."),
    _istio("native_nftables", "native-nftables", "", v.SWITCH, "Program nft tables instead of iptables."),
    _istio("force_iptables_binary", "force-iptables-binary", "", v.choice("legacy", "nft", ""), "Use this variant of iptables, whatever is found."),
    _istio("log_output_level", "log_output_level", "", v.LOG_LEVELS, "What is logged, in Istio's syntax."),
    _istio("log_as_json", "log_as_json", "", v.SWITCH, "Log one JSON object a line."),
    _ours("layout", "layout", v.choice(CURRENT, CLASSIC), "The set of rules: Istio's current one, or that of 1.0 and 1.1."),
    _ours("backend", "backend", v.choice(*BACKEND_CHOICES), "What programs the kernel."),
    _ours("ipv6", "ipv6", v.choice(AUTO, ON, OFF), "IPv6 rules: auto decides by the pod's addresses, as Istio does."),
    _ours("dns_servers", "dns-servers", v.ADDRESSES, "Name servers for --redirect-dns (default: those of /etc/resolv.conf)."),
    _ours("rule_comments", "rule-comments", v.SWITCH, "Write into the kernel why each rule exists."),
    _ours("ipset_threshold", "ipset-threshold", v.COUNT, "iptables backends: longer lists of networks become address sets, where ipset is installed and the kernel has them; 0 is never."),
    _ours("lock_timeout", "lock-timeout", v.DURATION, "How long locks that others hold are waited for."),
    _ours("debug", "debug", v.SWITCH, "With an error, print Python's traceback."),
    Flag(field="loopback_cidr", environment=("ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",), kind=v.LOOPBACK, help="Traffic to this IPv4 network stays in the pod.", current_only=True),
    Flag(field="owner_groups", environment=("ISTIO_OUTBOUND_OWNER_GROUPS",), kind=v.GROUPS_OR_ALL, help="Groups whose outbound traffic is captured; * is all.", current_only=True),
    Flag(field="exclude_owner_groups", environment=("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",), kind=v.GROUPS, help="Groups whose outbound traffic is not captured; only where all others' is.", current_only=True),
    Flag(field="keep_local_loopback", environment=("DISABLE_REDIRECTION_ON_LOCAL_LOOPBACK",), kind=Kind(metavar="TEXT", read=bool, write=lambda on: "1" if on else ""), help="Classic layout: not empty leaves out the rule for the application's traffic to itself."),
)  # fmt: skip
BY_FIELD = {flag.field: flag for flag in FLAGS}


class Options(Record):
    """What the user wants, checked. Ports and ids are numbers, networks are `Network`s, lists are tuples.

    Values may also be given as their flag spells them (`inbound_ports="80,443"`). OptionError lists every bad one.
    """

    outbound_port: int = 15001
    inbound_port: int = _DERIVED
    tunnel_port: int = 15008
    proxy_uids: tuple[int, ...] = _DERIVED
    proxy_gids: tuple[int, ...] = _DERIVED
    inbound_mode: str = REDIRECT
    inbound_ports: tuple[int, ...] | str = ()
    exclude_inbound_ports: tuple[int, ...] = ()
    exclude_interfaces: tuple[str, ...] = ()
    outbound_cidrs: tuple[Network, ...] | str = ()
    exclude_outbound_cidrs: tuple[Network, ...] = ()
    outbound_ports: tuple[int, ...] = ()
    exclude_outbound_ports: tuple[int, ...] = ()
    virtual_interfaces: tuple[str, ...] = ()
    tproxy_mark: int = 1337
    tproxy_table: int = 133
    dry_run: bool = False
    redirect_dns: bool = False
    capture_all_dns: bool = False
    drop_invalid: bool = False
    dual_stack: bool = False
    netns: str = ""
    pid: int = 0  # 0: this process
    host_network: bool = False
    cni_mode: bool = False
    skip_rule_apply: bool = False
    run_validation: bool = False
    probe_port: int = 15002
    probe_timeout: int = 5 * 10**9  # nanoseconds
    reconcile: bool = False
    cleanup_only: bool = False
    force_apply: bool = False
    native_nftables: bool = False
    force_iptables_binary: str = ""
    log_output_level: str = "default:info"
    log_as_json: bool = False
    layout: str = CURRENT
    backend: str = AUTO
    ipv6: str = AUTO
    dns_servers: tuple[str, ...] = ()
    rule_comments: bool = False
    ipset_threshold: int = 100  # measured: sets start as quickly there, and 100 rules slow a connect by a sixth
    lock_timeout: int = 10 * 10**9  # nanoseconds
    debug: bool = False
    loopback_cidr: Network = Network.parse("127.0.0.1/32")
    owner_groups: tuple[int, ...] | str = ALL
    exclude_owner_groups: tuple[int, ...] = ()
    keep_local_loopback: bool = False

    def __init__(self, **given: Any) -> None:
        self._fill(self._checked(given))

    def replace(self, **changes: Any) -> Self:
        """A copy in which the given fields have new values; OptionError as in the constructor."""
        made = type(self).__new__(type(self))
        made._fill({**self.__getstate__(), **self._checked(changes)})  # noqa: SLF001 - its own class
        return made

    @classmethod
    def from_texts(
        cls, texts: Mapping[str, tuple[str, str]], environ: Mapping[str, str], known_problems: Sequence[str] = ()
    ) -> Self:
        """Options from the texts given as flags (field -> (text, spelling used)), the environment and the defaults.

        OptionError lists every value that is wrong, with the flag or variable it came from, after `known_problems`.
        """
        read: dict[str, Any] = {}
        problems = list(known_problems)
        for flag in FLAGS:
            text, label = texts.get(flag.field) or _from_environment(flag, environ)
            if not label:
                continue
            try:
                read[flag.field] = flag.kind.read(text)
            except ValueError as error:
                problems.append(f"{label}: {quote_value(text)} {error}")
        if "proxy_uids" not in read:
            read["proxy_uids"] = _default_uids(environ, read.get("layout", CURRENT))
        if problems:
            raise OptionError(*problems)
        made = cls.__new__(cls)
        made._fill(read)  # noqa: SLF001 - its own class
        return made

    @classmethod
    def from_argv(cls, arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> Self:
        """Options from a command line in Istio's syntax (no program name) and an environment (default: an empty one).

        OptionError lists every problem.
        """
        from netinit.options.argv import describe_strays, take_flags

        taken = take_flags(arguments)
        return cls.from_texts(taken.texts, environ or {}, taken.problems + describe_strays(taken.rest))

    def to_argv(self, always: Sequence[str] = ()) -> tuple[str, ...]:
        """The shortest command line from which `from_argv` makes equal options; fields in `always` are spelled out.

        What has no flag is not in it: see `to_environ`.
        """
        plain = type(self)(layout=self.layout, outbound_port=self.outbound_port, proxy_uids=self.proxy_uids)
        # The users' default is what from_argv takes here: the uid of istio-proxy, where this system has such a user.
        basic = {"outbound_port": 15001, "proxy_uids": _default_uids({}, self.layout), "layout": CURRENT}
        arguments: list[str] = []
        for flag in FLAGS:
            value = getattr(self, flag.field)
            default = basic.get(flag.field, getattr(plain, flag.field))
            if not flag.long or (value == default and flag.field not in always):
                continue
            text = flag.kind.write(value)
            name = f"-{flag.short}" if flag.short else f"--{flag.long}"
            one_word = value is False or text.startswith("-")  # the latter would look like a flag
            arguments += [name] if value is True else [f"{name}={text}"] if one_word else [name, text]
        return tuple(arguments)

    def to_environ(self) -> dict[str, str]:
        """The environment variables that carry what has no flag, where it differs from the default."""
        return {
            flag.environment[0]: flag.kind.write(getattr(self, flag.field))
            for flag in FLAGS
            if not flag.long and getattr(self, flag.field) != type(self)._defaults[flag.field]  # noqa: SLF001 - its own class
        }

    @property
    def log_level(self) -> str:
        """The level of the default scope: none, error, warn, info or debug."""
        level = "info"
        for item in v.split_list(self.log_output_level):
            scope, _, word = item.rpartition(":")
            if scope in ("", "default", "all"):
                level = word
        return level

    @classmethod
    def _checked(cls, given: dict[str, Any]) -> dict[str, Any]:
        """The values as their flags' readers return them; what is the default already needs no reading."""
        checked = dict(given)
        problems = []
        for field, value in given.items():
            if field not in BY_FIELD:
                raise TypeError(f"Options has no field {field}")
            if value == cls._defaults[field]:
                continue
            flag = BY_FIELD[field]
            text = value if isinstance(value, str) else flag.kind.write(value)
            try:
                checked[field] = flag.kind.read(text)
            except ValueError as error:
                problems.append(f"{field}: {quote_value(text)} {error}")
        if problems:
            raise OptionError(*problems)
        return checked

    def _fill(self, given: dict[str, Any]) -> None:
        """Sets every field, derived ones included, and checks them against each other."""
        classic = given.get("layout") == CLASSIC
        if given.get("inbound_mode") == "":
            given["inbound_mode"] = REDIRECT
        if given.get("inbound_port") is None:
            given["inbound_port"] = given.get("outbound_port", 15001) if classic else DEFAULT_INBOUND_PORT
        if given.get("proxy_uids") is None:
            given["proxy_uids"] = (DEFAULT_PROXY_UID, 0) if classic else (DEFAULT_PROXY_UID,)
        if given.get("proxy_gids") is None:
            given["proxy_gids"] = given["proxy_uids"]
        super().__init__(**given)
        problems = tuple(_check_together(self))
        if problems:
            raise OptionError(*problems)


def _from_environment(flag: Flag, environ: Mapping[str, str]) -> tuple[str, str]:
    for name in flag.environment:
        text = environ.get(name)
        if text:
            return text, f"environment variable {name}"
    return "", ""


def _default_uids(environ: Mapping[str, str], layout: str) -> tuple[int, ...]:
    """The proxy's user by name, else 1337; classic adds root, as its script did for the CA agent."""
    try:
        uid = v.read_uid(environ.get("ENVOY_USER") or DEFAULT_PROXY_USER)
    except ValueError:
        uid = DEFAULT_PROXY_UID
    return (uid, 0) if layout == CLASSIC else (uid,)


def _check_together(options: Options) -> list[str]:
    problems = []
    defaults = type(options)._defaults  # noqa: SLF001 - one class with its checks
    if options.layout == CLASSIC:
        problems += [
            f"{flag.label}: --layout classic (Istio 1.0 and 1.1) has no such rules; leave it out or use --layout current"
            for flag in FLAGS
            if flag.current_only and getattr(options, flag.field) != defaults[flag.field]
        ]
    if options.inbound_mode == TPROXY and options.tproxy_mark == LOOP_MARK:
        problems.append(f"--istio-inbound-tproxy-mark: '{LOOP_MARK}' marks the proxy's own connections in TPROXY mode; use another")
    if options.netns and options.pid:
        problems.append("--pid: a namespace is named by --network-namespace already; give one of the two")
    if options.cni_mode and not (options.netns or options.pid or options.dry_run):
        problems.append("--cni-mode: rules would go into the host's namespace; name the pod's with --network-namespace")
    variant = f"iptables-{options.force_iptables_binary}"
    if options.force_iptables_binary and options.backend not in (AUTO, variant):
        problems.append(f"--force-iptables-binary: '{options.force_iptables_binary}' contradicts --backend {options.backend}; give one of the two")
    if options.native_nftables and (options.force_iptables_binary or options.backend not in (AUTO, "nftables")):
        problems.append("--native-nftables: contradicts the choice of an iptables variant; give one of the two")
    return problems
