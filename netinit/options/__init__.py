"""Options: what to capture, in which namespace and how. Every flag has one declaration, here or in `interception`.

Precedence: flag, variable (an empty one is unset), file (--config), default.
"""

from __future__ import annotations

from netinit.base.errors import NetinitError, OptionError
from netinit.base.logs import level_of
from netinit.base.net import FAMILIES, IPV6
from netinit.base.records import Record
from netinit.options import kinds
from netinit.options.declare import LOGGING, NAMESPACE, VALIDATION, istio, ours
from netinit.options.interception import (
    AUTO,
    CURRENT,
    DEFAULT_OUTBOUND_PORT,
    DEFAULT_PROXY_UID,
    DNS_LISTENER,
    DNS_PORT,
    DOCKER_RESOLVER,
    INET,
    LAYOUTS,
    LOOP_MARK,
    NONE,
    OFF,
    ON,
    REDIRECT,
    REJECT,
    TPROXY,
    Interception,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Self

    from netinit.base.net import Family
    from netinit.options.kinds import Flag

__all__ = [
    "AUTO", "BACKENDS", "CURRENT", "DNS_LISTENER", "DNS_PORT", "DOCKER_RESOLVER", "FLAGS", "INET", "LAYOUTS", "LOOP_MARK", "NONE",
    "OFF", "ON", "REDIRECT", "REJECT", "TPROXY", "Facts", "Interception", "Options", "RunOptions", "SettledOptions", "offline",
    "read_record", "write_record",
]  # fmt: skip

DEFAULT_PROXY_USER = "istio-proxy"
RECORDED_PROGRAM = "netinit apply"
MAX_RECORD = 128  # bytes: nft lists a longer comment, but does not load what it listed (NFTNL_UDATA_COMMENT_MAXLEN)
NF_TABLES, LEGACY_TABLES, TABLES_OF_OUR_OWN = "nf_tables", "legacy", "tables of our own"


class BackendLine(Record):
    """A line of the table of backends: what is known of a backend before it is loaded."""

    name: str
    module: str
    made_by: str  # the class
    tables: str = ""  # the tables that it reads and writes; two backends with the same tables are never used together; empty: none
    variant: str = ""  # the iptables variant, as --force-iptables-binary names it
    with_sets: str = ""  # the class that also supports address sets
    wants_net_raw: bool = False
    oldest_kernel: tuple[int, int] = (0, 0)
    logs_to_groups: bool = True  # supports NFLOG
    joins_foreign: bool = False  # auto prefers it if foreign rules are in its tables: otherwise packets would traverse two interfaces


IPTABLES_NFT, IPTABLES_LEGACY, NFTABLES, LIBIPTC = "iptables-nft", "iptables-legacy", "nftables", "libiptc"
BACKENDS = {
    line.name: line
    for line in (
        BackendLine(
            name=IPTABLES_NFT, module="netinit.backends.iptables_nft", made_by="NftVariant", with_sets="NftVariantWithSets",
            tables=NF_TABLES, variant="nft",
        ),
        BackendLine(
            name=IPTABLES_LEGACY, module="netinit.backends.legacy", made_by="LegacyBackend", with_sets="LegacyVariantWithSets",
            tables=LEGACY_TABLES, variant="legacy", wants_net_raw=True, joins_foreign=True,
        ),
        BackendLine(
            name=NFTABLES, module="netinit.backends.nftables", made_by="NftablesBackend", tables=TABLES_OF_OUR_OWN,
            oldest_kernel=(5, 2),  # nat and route chains for inet
        ),
        BackendLine(
            name=LIBIPTC, module="netinit.backends.libiptc", made_by="LibiptcBackend", tables=LEGACY_TABLES, wants_net_raw=True,
            logs_to_groups=False,
        ),
    )
}  # fmt: skip
FIRST_WITH = {line.tables: line.name for line in reversed(BACKENDS.values())}  # of the backends that read the same tables
VARIANTS = {line.variant: line.name for line in BACKENDS.values() if line.variant}


class Facts(Record):
    """What settling options asks of a pod: each function is called only if its result matters."""

    kernel_families: tuple[Family, ...] = FAMILIES
    list_addresses: Callable[[], Sequence[str]]
    read_servers: Callable[[], Sequence[str]] = tuple


def offline(addresses: Sequence[str] = (), read_servers: Callable[[], Sequence[str]] = tuple) -> Facts:
    """The facts where no pod can be asked: its addresses, or one of IPv6 so that --ipv6 auto is on, and name servers, or none."""
    found = addresses or ("2001:db8::10",)  # from the documentation range (RFC 3849)
    return Facts(list_addresses=lambda: found, read_servers=read_servers)


class RunOptions(Interception):
    """All options, whether as given or settled for a pod: see Options and SettledOptions."""

    dry_run: bool = istio("-n --dry-run", kinds.SWITCH, default=False, help_text="Print what would be done, change nothing.")
    netns: str = istio(
        "--network-namespace --netns", kinds.PATH, topic=NAMESPACE, default="", also=("NETINIT_NETNS",),
        help_text="The network namespace: a path, or a name under /run/netns.")
    # 0: this process
    pid: int = ours("--pid", kinds.PID, topic=NAMESPACE, default=0, help_text="The network namespace of this process.")
    host_network: bool = ours(
        "--host-network", kinds.SWITCH, topic=NAMESPACE, default=False,
        help_text="Allow changes to the machine's own network namespace, which are refused otherwise.")
    cni_mode: bool = istio(
        "--cni-mode", kinds.SWITCH, topic=NAMESPACE, default=False,
        help_text="Run as a CNI plugin on the host's file system; needs --network-namespace.")
    skip_rule_apply: bool = istio("--skip-rule-apply", kinds.SWITCH, default=False, help_text="Do not program any rules.")
    run_validation: bool = istio(
        "--run-validation", kinds.SWITCH, topic=VALIDATION, default=False,
        help_text="After programming (or alone, with --skip-rule-apply) check that redirection works.")
    probe_port: int = istio(
        "--iptables-probe-port", kinds.PORT, topic=VALIDATION, default=15002, needs="run_validation",
        help_text="The port used by the validation.")
    # nanoseconds
    probe_timeout: int = istio(
        "--probe-timeout", kinds.DURATION, topic=VALIDATION, default=5 * 10**9, needs="run_validation",
        help_text="How long the validation may take.")
    reconcile: bool = istio(
        "--reconcile", kinds.SWITCH, default=False,
        help_text="Replace existing rules that differ; without it they are reported and left.")
    cleanup_only: bool = istio("--cleanup-only", kinds.SWITCH, default=False, help_text="Remove the rules, add none.")
    force_apply: bool = istio(
        "--force-apply", kinds.SWITCH, default=False, help_text="Program the rules even where they are right already.")
    native_nftables: bool = istio(
        "--native-nftables", kinds.SWITCH, default=False, help_text="Program nft tables instead of iptables.")
    force_iptables_binary: str = istio(
        "--force-iptables-binary", kinds.choice(*sorted(VARIANTS), ""), default="",
        help_text="Use this variant of iptables.")
    log_output_level: str = istio(
        "--log_output_level", kinds.LOG_LEVELS, topic=LOGGING, default="default:info", help_text="What is logged, in Istio's syntax.",
    )
    log_as_json: bool = istio("--log_as_json", kinds.SWITCH, topic=LOGGING, default=False, help_text="Log one JSON object a line.")
    backend: str = ours(
        "--backend", kinds.choice(AUTO, *BACKENDS), default=AUTO,
        help_text="The backend that programs the kernel; auto chooses one that works here.")
    rule_comments: bool = ours(
        "--rule-comments", kinds.SWITCH, default=False, help_text="Give each rule in the kernel a comment that says why it exists.",
    )
    # Measured: sets start as fast there, and 100 rules slow down a connect by a sixth.
    ipset_threshold: int = ours(
        "--ipset-threshold", kinds.COUNT, default=100,
        help_text="iptables backends: longer lists of networks become address sets, where the kernel has"
        " them; 0 is never.")
    # nanoseconds
    lock_timeout: int = ours(
        "--lock-timeout", kinds.DURATION, default=10 * 10**9, help_text="How long to wait for locks that other processes hold.")
    retries: int = ours(
        "--retries", kinds.COUNT, default=0, contradicts=kinds.ALONE,
        help_text="How often a run starts over where a lock is held or the kernel is busy (EAGAIN, EBUSY); no longer than"
        " --lock-timeout in all.")
    # nanoseconds
    retry_delay: int = ours("--retry-delay", kinds.DURATION, default=2 * 10**9, needs="retries",
        help_text="How long --retries waits in between.")
    reset_existing: bool = ours(
        "--reset-existing", kinds.SWITCH, default=False, annotated=True,
        help_text="End TCP connections that are older than the rules and would be captured by them; without it their number is"
        " reported.")
    require_capture: bool = ours(
        "--require-capture", kinds.SWITCH, default=False, annotated=True,
        help_text="Fail where foreign rules, routes or programs divert packets that the rules should capture, or may; without it"
        " they are a warning. The rules stay.")
    config: str = ours(
        "--config", kinds.PATH, default="",
        help_text="A file of options, YAML or JSON, with the long names of flags as keys; flags and variables override it.")
    debug: bool = ours("--debug", kinds.SWITCH, topic=LOGGING, default=False, help_text="Print Python's traceback with an error.")

    @property
    def log_level(self) -> str:
        """The log level of the default scope: none, error, warn, info or debug."""
        return level_of(self.log_output_level)

    @property
    def wanted_backend(self) -> str:
        """The requested backend, or auto."""
        return NFTABLES if self.native_nftables else VARIANTS.get(self.force_iptables_binary, self.backend)

    @property
    def wants_servers(self) -> bool:
        """Whether DNS is captured for each name server and the options do not name the servers."""
        return self.redirect_dns and not self.capture_all_dns and not self.dns_servers and self.has("dns_servers")

    def _check(self) -> list[str]:
        problems = super()._check()
        if self.netns and self.pid:
            problems.append("--pid: a namespace is named by --network-namespace already; give one of the two")
        if self.run_validation and self.traits.proxy_mark:
            problems.append(f"--run-validation: --layout {self.layout} captures no connection of a pod to itself; remove it")
        if self.cni_mode and not (self.netns or self.pid or self.dry_run):
            problems.append("--cni-mode: rules would go into the host's namespace; name the pod's with --network-namespace")
        variant = self.force_iptables_binary
        if variant and self.backend not in (AUTO, VARIANTS[variant]):
            problems.append(f"--force-iptables-binary: '{variant}' contradicts --backend {self.backend}; give one of the two")
        if self.native_nftables and (variant or self.backend not in (AUTO, NFTABLES)):
            problems.append("--native-nftables: contradicts the choice of an iptables variant; give one of the two")
        return problems


class Options(RunOptions):
    """The options of a run as they were given: the only ones that are printed as a command line or a file."""

    @classmethod
    def _add_environment_defaults(cls, read: dict[str, Any], environ: Mapping[str, str]) -> None:
        if "proxy_uids" not in read:
            read["proxy_uids"] = _default_uids(environ, read.get("layout", CURRENT))

    def differing(self, always: Sequence[str] = ()) -> Iterator[tuple[Flag, Any]]:
        """Yield each option, with its value, that `from_argv` would set otherwise; fields in `always` are included."""
        plain = Options(layout=self.layout, outbound_port=self.outbound_port, proxy_uids=self.proxy_uids)
        # Derived values follow from these three, whose defaults are those of from_argv in this environment.
        basic: dict[str, object] = {"outbound_port": DEFAULT_OUTBOUND_PORT, "layout": CURRENT}
        if "proxy_uids" not in always:  # looking up a user by name may load a library: 3 % of a start
            basic["proxy_uids"] = _default_uids({}, self.layout)
        for flag in FLAGS:
            value = getattr(self, flag.field)
            if flag.field in always or value != basic.get(flag.field, getattr(plain, flag.field)):
                yield flag, value

    def to_argv(self, always: Sequence[str] = ()) -> tuple[str, ...]:
        """The shortest command line from which `from_argv` makes equal options, with the fields in `always`; see also `to_environ`."""
        arguments: list[str] = []
        for flag, value in self.differing(always):
            if not flag.long:
                continue
            text = flag.kind.write(value)
            name = f"-{flag.short}" if flag.short else f"--{flag.long}"
            one_word = value is False or text.startswith("-")  # a leading dash would look like a flag
            arguments += [name] if value is True else [f"{name}={text}"] if one_word else [name, text]
        return tuple(arguments)

    def to_environ(self) -> dict[str, str]:
        """Return the environment variables for options without a flag that differ from their defaults."""
        found = self.differing(("proxy_uids",))  # which has a flag
        return {flag.variables[0]: flag.kind.write(value) for flag, value in found if not flag.long}

    def settle(self, facts: Facts) -> SettledOptions:
        """Decide what depends on the pod: IPv6 by its addresses, name servers by its /etc/resolv.conf.

        As in Istio, IPv6 is on if the first address that is neither loopback nor link-local is IPv6 (with --dual-stack: any).
        Without one, or without IPv6 in the kernel, it is off. What --ipv6 auto means on a backend: see `SettledOptions.on`.
        """
        warnings = []
        ipv6, second, families = self.ipv6, "", facts.kernel_families
        if ipv6 == AUTO:
            addresses = [address for address in facts.list_addresses() if not _is_local(address)]
            sixes = [address for address in addresses if ":" in address]
            counted = sixes if self.dual_stack else sixes if addresses[:1] == sixes[:1] else []
            ipv6 = ON if counted else OFF
            second = sixes[0] if sixes and not counted else ""
        elif ipv6 == ON and IPV6 not in families:
            warnings.append("--ipv6 on: the kernel has IPv6 disabled, so there is nothing to capture")
        if IPV6 not in families:
            ipv6 = OFF
        servers = self.dns_servers
        if self.wants_servers:
            servers = tuple(facts.read_servers())
        elif self.redirect_dns and self.capture_all_dns:
            warnings += _warn_of_docker(facts.read_servers)
        follows = self.ipv6 == AUTO and ipv6 == OFF and IPV6 in families
        decided = {
            "ipv6": ipv6, "dns_servers": servers, "kernel_families": families, "machine_warnings": tuple(warnings),
            "follows_istio": follows, "second_address": second, "asked": self,
        }  # fmt: skip
        settled = SettledOptions.__new__(SettledOptions)  # every value has been checked: a second time is 0.2 % of a start
        settled.__dict__.update(self.__dict__, **decided, _given={**self._given, **decided})
        return settled.for_backend(self.wanted_backend)


class SettledOptions(RunOptions):
    """Options with everything decided for a pod: what a plan is made from. Only `Options.settle` creates them.

    `machine_warnings`: about the kernel and the name servers. `follows_istio`: --ipv6 auto found no IPv6 address that counts, so
    IPv6 is as Istio has it on the backend. `second_address`: an IPv6 address of the pod that does not count. `asked`: the options
    that were settled.
    """

    asked: Options
    kernel_families: tuple[Family, ...]
    machine_warnings: tuple[str, ...]
    follows_istio: bool
    second_address: str

    def for_backend(self, backend: str) -> Self:
        """The options for a backend: in nft tables Istio's rules capture IPv6 too, except those that name an address."""
        ipv6 = INET if backend == NFTABLES and self.traits.nft_captures_ipv6 else OFF
        return self.replace(ipv6=ipv6) if self.follows_istio and ipv6 != self.ipv6 else self

    @property
    def given(self) -> Options:
        """The options as given, for printing: without what was decided for this pod on this machine."""
        kept = {field: value for field, value in self._given.items() if field in Options.by_field}
        if self.asked.ipv6 == AUTO:
            kept.pop("ipv6", None)
        if not self.asked.dns_servers:
            kept.pop("dns_servers", None)
        return Options().replace(**kept)

    @property
    def captures_ipv6(self) -> bool:
        """Whether IPv6 is captured as IPv4 is."""
        return self.ipv6 == ON

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the pod, and its backend, keep these options from capturing."""
        if not (self.follows_istio and self.second_address):
            return self.machine_warnings
        has = f"IPv6 is not captured: the pod's first address is IPv4, and {self.second_address} is here too"
        remedy = "use --dual-stack or --ipv6 on, so that the proxy gets it, or --ipv6 reject, so that nothing does"
        what = "as with Istio's nft rules, TCP over it is refused unless the proxy listens on IPv6"
        if self.traits.refuses_ipv6:
            what = "inbound traffic over it is refused, and outbound TCP bypasses the proxy and mTLS"
        elif self.ipv6 == OFF:
            what = "TCP over it bypasses the proxy and mTLS"
        elif self.inbound_mode == TPROXY and self.inbound_ports:
            what = "inbound TCP over it bypasses the proxy and mTLS in TPROXY mode, outbound TCP is refused"
        return (*self.machine_warnings, f"{has}: {what}; {remedy}")

    @classmethod
    def _read(cls, given: dict[str, Any]) -> dict[str, Any]:
        decided = {field: value for field, value in given.items() if field in SettledOptions.__annotations__}  # as a child answers
        return {**decided, **super()._read({field: value for field, value in given.items() if field not in decided})}

    def _values(self) -> tuple[object, ...]:  # what was asked makes no difference to rules
        return tuple([getattr(self, field) for field in type(self)._fields if field != "asked"])

    def _check(self) -> list[str]:
        undecided = self.ipv6 == AUTO
        return super()._check() + ["--ipv6: 'auto' was decided when the options were settled; use another value"] * undecided


FLAGS = Options.flags


def _warn_of_docker(read_servers: Callable[[], Sequence[str]]) -> list[str]:
    """A warning if --capture-all-dns meets Docker's resolver, or if that cannot be known."""
    try:
        if DOCKER_RESOLVER not in read_servers():
            return []
    except NetinitError as error:
        return [f"--capture-all-dns: it is not known whether the name server is Docker's resolver: {error}"]
    text = (
        f"--capture-all-dns: {DOCKER_RESOLVER} in /etc/resolv.conf is Docker's resolver, whose rule comes first, so that"
        " queries to it are not captured, and its own come back to it by way of the proxy; leave --capture-all-dns out"
    )
    return [text]


def _is_local(address: str) -> bool:
    if ":" in address:
        return address in ("::1", "::6") or address[:3] in ("fe8", "fe9", "fea", "feb")
    return address.startswith(("127.", "169.254."))


def _default_uids(environ: Mapping[str, str], layout: str) -> tuple[int, ...]:
    """The proxy's user by name, else 1337; with those that the layout excludes too."""
    try:
        uid = kinds.read_uid(environ.get("ENVOY_USER") or DEFAULT_PROXY_USER)
    except ValueError:
        uid = DEFAULT_PROXY_UID
    return (uid, *LAYOUTS[layout].excluded_uids)


def write_record(options: Interception) -> str:
    """Return the options of rules as a comment of a pod's nft table; empty if they do not fit: then the rules show them.

    It is a command line, `netinit apply -u 1337 -b *`, in which words have no blanks and are not quoted.
    """
    of_rules = Options(**{flag.field: getattr(options, flag.field) for flag in Interception.flags})
    variables = [f"{name}={value}" for name, value in of_rules.to_environ().items()]
    arguments = of_rules.to_argv(("proxy_uids",))  # its default is a user of this image
    words = [*variables, *RECORDED_PROGRAM.split(), *arguments]
    text = " ".join(words)
    fits = len(text) <= MAX_RECORD and text.isascii() and text.isprintable() and '"' not in text
    return text if fits and text.split(" ") == words and read_record(text) is not None else ""


def read_record(text: str) -> Interception | None:
    """Return the options that `write_record` wrote into a comment, which any process of the pod can change; None for any other."""
    if len(text) > MAX_RECORD:
        return None
    variables, found, arguments = f" {text} ".partition(f" {RECORDED_PROGRAM} ")
    environ = dict([word.partition("=")[::2] for word in variables.split()])
    known = {name for flag in Interception.flags for name in flag.variables}
    if not found or not environ.keys() <= known:
        return None
    try:
        return Interception.from_argv(arguments.split(), environ)
    except OptionError:
        return None
