"""The doctor: test whether pods will work here, and report what is missing with the remedy.

Here is the short diagnosis that an init container prints when no backend works; the full one is in netinit.pods.doctor.examination.
"""

from __future__ import annotations

from netinit.base.errors import NetinitError, NoBackendError
from netinit.kernel import detect
from netinit.kernel.modules import can_help

LINES = 3
USUAL_MODULES = (
    "nf_tables nft_compat ip_tables iptable_nat ip6table_nat iptable_filter ip6table_filter ipt_REJECT ip6t_REJECT xt_REDIRECT"
    " xt_owner xt_conntrack"
)


def summarise(failure: NetinitError) -> str:
    """Return one to three lines on the likeliest cause and its remedy; empty if the failure explains itself.

    Never raises: it accompanies an error that must not be replaced.
    """
    if not isinstance(failure, NoBackendError):
        return ""
    try:
        return "\n".join([f"doctor: {line}" for line in _lines(of_kernel=failure.of_kernel)[:LINES]])
    except Exception:  # noqa: BLE001 - see above
        return ""


def _lines(*, of_kernel: bool) -> list[str]:
    missing = not detect.has_capability(detect.CAP_NET_RAW)  # NET_ADMIN is there, or the failure reports it
    lines = []
    if missing:
        lines.append(
            "NET_RAW missing, which legacy iptables needs: set securityContext.capabilities.add: [NET_ADMIN, NET_RAW]; Pod Security"
            " baseline and restricted forbid it (label the namespace privileged, or use the CNI plugin), OpenShift needs an SCC"
        )
    if not missing and of_kernel:
        kernel = "answers for nf_tables" if detect.nft_chains() else "has no chain of nf_tables here"
        lines.append(f"the privileges suffice; the kernel {kernel}")
        usual = f"the most usual ones are, on the node, `modprobe -a {USUAL_MODULES}`"
        likely = f"modules are likely missing: those that are named above; {usual}"
        lines.append(likely if can_help(USUAL_MODULES) else "this kernel loads no modules: it has what it was built with")
    return lines
