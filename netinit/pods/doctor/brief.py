"""The short form: what an init container that found no backend says beside its error, in one to three lines."""

from __future__ import annotations

from netinit import backends
from netinit.base.errors import NetinitError
from netinit.base.more_errors import NoBackendError
from netinit.base.net import IPV4
from netinit.kernel import detect, run
from netinit.options import AUTO, BACKENDS, Options

LINES = 3


def summarise(failure: NetinitError) -> str:
    """One to three lines on the likeliest cause and its remedy; empty where the failure says it itself.

    Looks at privileges, programs and the kernel only, changes nothing, and never raises: it goes with an error that is
    being reported and must not replace it.
    """
    if not isinstance(failure, NoBackendError):
        return ""
    try:
        return "\n".join([f"doctor: {line}" for line in _lines(of_kernel=failure.of_kernel)[:LINES]])
    except Exception:  # noqa: BLE001 - see above
        return ""


def _lines(*, of_kernel: bool) -> list[str]:
    missing = not detect.has_capability(detect.CAP_NET_RAW)  # NET_ADMIN is there, or the failure says so itself
    lines = []
    if missing:
        lines.append(
            "NET_RAW missing, which legacy iptables needs: set securityContext.capabilities.add: [NET_ADMIN, NET_RAW]; Pod Security"
            " baseline and restricted forbid it (label the namespace privileged, or use the CNI plugin), OpenShift needs an SCC"
        )
    have = [name for name in (detect.NFT, detect.LEGACY) if detect.find_program(name, IPV4, "restore")]
    programs = [f"iptables-{name}" for name in have] + (["nft"] if run.find("nft") else [])
    if not programs:
        lines.append("neither iptables nor nft is installed: add the package iptables (or nftables) to the image")
    if not missing and programs and of_kernel:
        kernel = "answers for nf_tables" if detect.nft_chains() else "has no chain of nf_tables here"
        lines.append(f"{', '.join(programs)} installed and the privileges are there; the kernel {kernel}")
        lines.append(
            "modules are likely missing: those that are named above; the most usual ones are, on the node, `modprobe -a nf_tables"
            " nft_compat ip_tables iptable_nat ip6table_nat iptable_filter ip6table_filter ipt_REJECT ip6t_REJECT xt_REDIRECT xt_owner"
            " xt_conntrack`"
        )
    return lines


def find_missing_program(options: Options) -> str:
    """What to install so that the backend can work, in one line; empty when it is there."""
    wanted = options.wanted_backend
    with_programs = [line.name for line in BACKENDS.values() if line.variant or line.program]
    if wanted == AUTO and not any(backends.is_installed(name) for name in with_programs):
        return "neither iptables nor nft is installed: apt-get install iptables"
    if wanted != AUTO and not backends.is_installed(wanted):
        package = "iptables" if BACKENDS[wanted].variant else "nftables"
        return f"--backend {wanted} finds none of its programs: apt-get install {package}"
    return ""
