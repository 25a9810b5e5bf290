"""Read the sysctls that decide where packets go (Documentation/networking/ip-sysctl.rst)."""

from __future__ import annotations

from netinit.kernel import read_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

FOLDER = "/proc/sys/net"
OF_NAMESPACE = (
    "ipv4/ip_forward", "ipv4/tcp_l3mdev_accept", "ipv4/udp_l3mdev_accept", "ipv4/raw_l3mdev_accept", "ipv4/fwmark_reflect",
    "ipv4/tcp_fwmark_accept", "ipv4/ip_nonlocal_bind", "ipv6/fwmark_reflect", "ipv6/ip_nonlocal_bind",
    "netfilter/nf_conntrack_tcp_loose", "netfilter/nf_conntrack_tcp_be_liberal",
)  # fmt: skip
OF_DEVICES = (
    "ipv4/conf/{}/forwarding", "ipv4/conf/{}/route_localnet", "ipv4/conf/{}/rp_filter", "ipv4/conf/{}/accept_local",
    "ipv4/conf/{}/src_valid_mark", "ipv6/conf/{}/forwarding", "ipv6/conf/{}/disable_ipv6",
)  # fmt: skip
MAX_DEVICES = 64  # whose own settings are read; a pod has three


def read(devices: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return the settings that the kernel has, by path."""
    paths = [*OF_NAMESPACE]
    for device in ("all", *devices[:MAX_DEVICES]):
        paths += [path.format(device) for path in OF_DEVICES]
    found = [(path, read_text(f"{FOLDER}/{path}").strip()) for path in paths]
    return tuple([(path, value) for path, value in found if value])
