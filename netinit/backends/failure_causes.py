"""Errors of the kernel, and of libiptc: cause and remedy. Loaded only after a failure.

Words are those of strerror(3) in the C locale.
"""

from __future__ import annotations

from collections.abc import Iterable

from netinit.base.errors import (
    ApplyError,
    BackendUnavailableError,
    BusyError,
    KernelFeatureError,
    NetinitError,
)
from netinit.kernel import read_text
from netinit.kernel.capabilities import advise
from netinit.options import FIRST_WITH, TABLES_OF_OUR_OWN

# Causes: a privilege is missing, the kernel lacks support, one of the two, too large, refused.
PRIVILEGE, SUPPORT, EITHER, TOO_LARGE, REFUSED = "privilege", "support", "either", "too large", "refused"
BUSY = "busy"  # temporarily in use
WITHOUT_FEATURE = "the kernel lacks a feature"
ON_THE_NODE = "on the node"


CAUSES = (  # by words of an iptables backend; the first match counts
    (BUSY, ("Resource temporarily unavailable", "Device or resource busy")),
    (PRIVILEGE, ("Permission denied", "Operation not permitted")),
    (EITHER, ("unable to initialize table",)),
    (TOO_LARGE, ("Message too long", "No buffer space available")),
    (SUPPORT, (
        "Protocol not supported", "Operation not supported", "Protocol not available", "No such file or directory",
        "Address family not supported",
    )),
)  # fmt: skip
# Causes by errno(3), when a table is opened or a transaction refused
NUMBERS = {1: PRIVILEGE, 13: PRIVILEGE, 2: SUPPORT, 3: SUPPORT, 92: SUPPORT, 97: SUPPORT, 11: BUSY, 16: BUSY}
NUMBERS_OF_NF_TABLES = {**NUMBERS, 22: SUPPORT, 93: SUPPORT, 95: SUPPORT, 90: TOO_LARGE, 105: TOO_LARGE}

NEEDS_MORE = "the kernel refused it in spite of NET_ADMIN: legacy tables need NET_RAW and an owning user namespace too"
OWNED_TABLE = "the kernel refused it in spite of NET_ADMIN: another process may own the table (flags owner in nft list ruleset)"
NEEDS_ROOM = (
    "the rules are too many for one transaction in a pod with a user namespace of its own:"
    " list fewer networks, or raise net.core.wmem_max on the node"
)
TRY_AGAIN = "the kernel is busy: try again, or let --retries do it"
NF_TABLES, NFT_COMPAT = "nf_tables", "nf_tables, nft_compat"
MODULES = {  # kernel modules to load on the node if the message names none
    "nft": f"{NFT_COMPAT}, xt_REDIRECT, xt_owner and the like",
    "nft nat": "nft_chain_nat",  # where the kernel refuses a chain of nat
    "legacy IPv4": "ip_tables, iptable_nat, xt_REDIRECT, xt_owner and the like",
    "legacy IPv6": "ip6_tables, ip6table_nat, xt_REDIRECT, xt_owner and the like",
    "native": f"{NF_TABLES}, nft_chain_nat, nft_redir, nft_ct and (for TPROXY) nft_tproxy, nft_socket",
}
# other extensions have modules named xt_NAME
_SHARED = {"tcp": "xt_tcpudp", "udp": "xt_tcpudp", "MARK": "xt_mark", "CONNMARK": "xt_connmark"}
# how the names of table modules begin
_LEGACY = {"legacy IPv4": ("ip_tables", "iptable"), "legacy IPv6": ("ip6_tables", "ip6table")}
_CHAIN_OF_NAT = "chain nat"
_OF_FAMILIES = ("fib", "reject")  # their modules are named nft_NAME_FAMILY


def cause_of(output: str) -> str:
    """Return the cause of a message; REFUSED if it is unknown."""
    return next((cause for cause, words in CAUSES if any(one in output for one in words)), REFUSED)


def _name_modules(extensions: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys([
        name.replace("table ", "iptable_") if name.startswith("table ") else _SHARED.get(name, f"xt_{name}") for name in extensions
    ]))


def _modules_of_iptables(output: str, modules: str) -> str:
    table = output.partition("unable to initialize table '")[2].partition("'")[0]
    if table and modules in _LEGACY:
        core, prefix = _LEGACY[modules]
        return f"{core}, {prefix}_{table}"
    return MODULES[modules]


def explain_iptables(output: str, message: str, modules: str, *, privileged: bool) -> NetinitError:
    """Return the error for the kernel's refusal in words (`output`); `message` starts it.

    `modules`: a key of MODULES. `privileged`: this process has NET_ADMIN.
    """
    cause = cause_of(output)
    if cause == BUSY:
        return BusyError(f"{message}; {TRY_AGAIN}")
    if cause in (PRIVILEGE, EITHER) and not privileged:
        return BackendUnavailableError(f"{message}; NET_ADMIN is missing: {advise('NET_ADMIN')}")
    if cause == PRIVILEGE:
        return BackendUnavailableError(f"{message}; {NEEDS_MORE if modules in _LEGACY else OWNED_TABLE}")
    if cause == TOO_LARGE:
        return BackendUnavailableError(f"{message}; {NEEDS_ROOM}")
    if cause in (SUPPORT, EITHER):
        return KernelFeatureError(f"{message}; {_lack(_modules_of_iptables(output, modules))}")
    return ApplyError(message)


def explain_nft(number: int, message: str, asked: str, old_kernel: str) -> NetinitError:
    """Return the error for an errno of nf_tables; `message` starts it.

    `asked`: the refused expression's name or chain's type. `old_kernel`: says that the kernel is too old, or is empty.
    """
    cause = NUMBERS_OF_NF_TABLES.get(number, REFUSED)
    if cause == BUSY:
        return BusyError(f"{message}; {TRY_AGAIN}")
    if cause == PRIVILEGE:
        return BackendUnavailableError(f"{message}; NET_ADMIN is missing: {advise('NET_ADMIN')}")
    if cause == TOO_LARGE:
        return BackendUnavailableError(f"{message}; {NEEDS_ROOM}")
    if cause == SUPPORT and old_kernel:
        return BackendUnavailableError(f"{message}; {old_kernel}: use an iptables backend")
    if cause == SUPPORT:
        named = "nft_chain_nat" if asked == _CHAIN_OF_NAT else f"nft_{asked}" if asked and " " not in asked else MODULES["native"]
        named = f"{named}, {named}_inet" if asked in _OF_FAMILIES else named
        lack = _lack(named)
        other = f"{', or' if lack.startswith(WITHOUT_FEATURE) else ':'} use an iptables backend"
        return KernelFeatureError(f"{message}; {lack}{other}", missing=asked)
    return ApplyError(message)


def explain_missing(message: str, missing: str) -> KernelFeatureError:
    """Return the error for rules that need what the kernel, asked for it, does not have: extensions or tables."""
    return KernelFeatureError(f"{message}; {_lack(name_modules(missing))}")


def name_modules(missing: str, *, native: bool = False) -> str:
    """Return the modules of extensions and tables of iptables, or of expressions of `native` nft, as a list."""
    names = missing.split(", ")
    return ", ".join([f"nft_{name}" for name in names] if native else _name_modules(names))


def _lack(named: str) -> str:
    advice = advise_modules(named)
    return f"{WITHOUT_FEATURE}: {advice}" if advice.startswith("load ") else advice


def advise_modules(named: str) -> str:
    """Return what to do about modules that the kernel lacks."""
    from netinit.kernel.modules import can_help  # rarely needed

    return f"load {named} {ON_THE_NODE}" if can_help(named) else f"this kernel has no {named}, and modprobe cannot add it"


def explain_owners(script: str) -> str:
    """Return a hint about users and groups in refused rules that this user namespace does not map, or "".

    The kernel accepts a rule only if both ends of its range are mapped (xt_owner).
    """
    for option, file, what in (("--uid-owner", "uid_map", "user"), ("--gid-owner", "gid_map", "group")):
        lines = [line.split() for line in read_text(f"/proc/self/{file}").splitlines()]
        spans = [(int(line[0]), int(line[0]) + int(line[2])) for line in lines]
        for part in script.split(f"{option} ")[1:]:
            for number in map(int, part.split(None, 1)[0].split("-")):
                if spans and not any(first <= number < end for first, end in spans):
                    most = max(end for _, end in spans) - 1
                    return (
                        f"this user namespace (hostUsers: false) has no {what} {number}, its last is {most}, and iptables takes "
                        f"no rule about one: remove it, or use --backend {FIRST_WITH[TABLES_OF_OUR_OWN]}"
                    )
    return ""
