"""Options by the thousand, from a small world whose values collide often, so that rules meet."""

from __future__ import annotations

from hypothesis import strategies as st

from netinit.options import Options
from netinit.options.interception import AMBIENT, CLASSIC, CURRENT

PORTS = (22, 53, 80, 443, 8080, 9000, 15001, 15006, 15008, 15053, 15090)
USERS = (0, 1000, 1337, 1338)
NETWORKS = (
    "0.0.0.0/0", "10.0.0.0/8", "10.77.0.0/24", "10.77.0.2/32", "127.0.0.0/8", "127.0.0.1/32", "198.51.100.0/24", "198.51.100.7/32",
    "203.0.113.0/25", "::/0", "::1/128", "2001:db8::/32", "2001:db8::7/128", "fd77::/64", "fd77::2/128",
)  # fmt: skip
SERVERS = ("10.77.0.1", "198.51.100.7", "203.0.113.7", "2001:db8::7", "fd77::1")

RANGES = ("8000-9000", "15000-15010", "1-1023", "442-443")
_single_ports = st.lists(st.sampled_from(PORTS), max_size=3, unique=True).map(lambda ports: ",".join(map(str, ports)))
_ranges = st.lists(st.sampled_from((*map(str, PORTS), *RANGES)), min_size=1, max_size=4, unique=True).map(",".join)
_ports = st.one_of(_single_ports, _single_ports, _ranges)
_networks = st.lists(st.sampled_from(NETWORKS), max_size=3, unique=True).map(",".join)
_groups = st.lists(st.sampled_from(USERS), min_size=1, max_size=2, unique=True).map(tuple)


_of_users = st.one_of(
    st.just(""), st.just(""), st.lists(st.sampled_from(("tcp:80,443:1000", "53:0-999", "*:*:1338", "udp:53:1000-1337", "tcp:8000-9000:0"))).map(";".join)
)


_peers = st.fixed_dictionaries({
    "exclude_outbound_for_uids": _of_users,
    "exclude_outbound_for_gids": _of_users,
    "exclude_inbound_cidrs": st.one_of(st.just(""), _networks),
    "exclude_cloud_metadata": st.booleans(),
    "log_rules": st.booleans(),
    "log_group": st.sampled_from((0, 5)),
    "reject_quic": st.sampled_from((True, True, False)),
    "redirect_outbound_udp": st.sampled_from(("", "", "443:8443", "22:9022,8000-9000:15001", "514:10514,9000:443")),
})


@st.composite
def made_ambient_options(draw: st.DrawFn, *, interfaces: tuple[str, ...] = ("eth1", "net2", "net+")) -> Options:
    """Valid options of the ambient layout, which knows the proxy by its mark."""
    probes = draw(st.sampled_from((("10.77.0.1", "fd77::1"), ("10.77.0.1",), ("fd77::1",), ("169.254.7.127", "fd16::7"))))
    return Options(
        layout=AMBIENT,
        ipv6=draw(st.sampled_from(("on", "on", "off", "reject"))),
        redirect_dns=draw(st.booleans()),
        ingress=draw(st.booleans()),
        virtual_interfaces=draw(st.lists(st.sampled_from(interfaces), max_size=2, unique=True).map(tuple)),
        host_probe_addresses=probes,
        tunnel_port=draw(st.sampled_from((15008, 443))),
        redirect_forwarded_dns=draw(st.booleans()),
    )


@st.composite
def made_options(draw: st.DrawFn, *, interfaces: tuple[str, ...] = ("eth1", "net2", "net+")) -> Options:
    """Valid options of both layouts of a sidecar that decide about packets."""
    common = {
        "proxy_uids": draw(st.sampled_from(((1337,), (1337,), (1337, 1338), (0, 1337)))),
        "proxy_gids": draw(st.sampled_from(((1337,), (1337,), (1000,), (1337, 1338)))),
        "inbound_mode": draw(st.sampled_from(("REDIRECT", "REDIRECT", "TPROXY", "NONE"))),
        "inbound_ports": draw(st.one_of(st.just("*"), _ports)),
        "exclude_inbound_ports": draw(_ports),
        "outbound_cidrs": draw(st.one_of(st.just("*"), _networks)),
        "exclude_outbound_cidrs": draw(_networks),
        "ipv6": draw(st.sampled_from(("on", "on", "on", "off", "reject"))),
        "virtual_interfaces": draw(st.lists(st.sampled_from(interfaces), max_size=2, unique=True).map(tuple))
        if interfaces
        else (),
    }
    if draw(st.integers(0, 3)) == 0:
        return Options(layout=CLASSIC, keep_local_loopback=draw(st.booleans()), **common)
    return Options(
        layout=CURRENT,
        exclude_interfaces=draw(st.lists(st.sampled_from(interfaces), max_size=1).map(tuple)) if interfaces else (),
        outbound_ports=draw(_ports),
        exclude_outbound_ports=draw(_ports),
        redirect_dns=draw(st.booleans()),
        capture_all_dns=draw(st.booleans()),
        dns_servers=draw(st.lists(st.sampled_from(SERVERS), max_size=2, unique=True).map(tuple)),
        drop_invalid=draw(st.booleans()),
        loopback_cidr=draw(st.sampled_from(("127.0.0.1/32", "127.0.0.1/32", "127.0.0.0/8"))),
        owner_groups=draw(st.one_of(st.just("*"), st.just("*"), _groups)),
        exclude_owner_groups=draw(st.one_of(st.just(()), _groups)),
        **(draw(_peers) if draw(st.booleans()) else {}),
        tunnel_port=draw(st.sampled_from((15008, 15008, 53, 0))),
        **common,
        redirect_forwarded_dns=draw(st.booleans()),
    )


def made_any_options() -> st.SearchStrategy[Options]:
    """Valid options of every layout, twice as often of a sidecar's."""
    return st.one_of(made_options(), made_options(), made_ambient_options())
