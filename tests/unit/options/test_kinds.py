"""How values are read: what counts as a number, a network, a name; what is refused and why."""

from __future__ import annotations

import grp
import pwd

import pytest

from netinit.base.net import IPV4, IPV6, Network, PortRange
from netinit.options import kinds as v
from sweeps import together


def networks(*texts):
    return tuple(Network.parse(text) for text in texts)


READ = [
    (v.PORT, "1", 1),
    (v.PORT, "65535", 65535),
    (v.PORTS, "", ()),
    (v.PORTS, "6000,7000,", (6000, 7000)),
    (v.PORTS, " 80 ,\t443, ,80", (80, 443)),
    (v.PORTS, "80,443\n", (80, 443)), (v.PORTS, "\r\n80\r\n,443", (80, 443)), (v.PORTS_OR_ALL, "*\n", "*"),
    (v.PORTS, "80,8000-8100", (80, PortRange((8000, 8100)))),
    (v.PORTS, "8050,443,8000-8100,8090-8200", (PortRange((8000, 8200)), 443)),
    (v.PORTS, "8101-8200,8000-8100,80-80", (PortRange((8000, 8200)), 80)),
    (v.PORTS, "81,82-90,91", (81, PortRange((82, 90)), 91)),
    (v.PORTS, "0-9", (PortRange((1, 9)),)),
    (v.PORTS, "0-65535", (PortRange((1, 65535)),)),
    (v.PORTS_OR_ALL, "0-65535", "*"),
    (v.PORTS_OR_ALL, "1-40000,80,40001-65535", "*"),
    (v.PORTS_OR_ALL, "2-65535", (PortRange((2, 65535)),)),
    (v.PORTS_OR_ALL, "*", "*"),
    (v.PORTS_OR_ALL, " * ", "*"),
    (v.PORTS_OR_ALL, "80", (80,)),
    (v.NETWORKS, "10.1.2.3/8", networks("10.0.0.0/8")),
    (v.NETWORKS, "10.0.0.0/8,10.255.0.0/8", networks("10.0.0.0/8")),
    (v.NETWORKS, "fd00::1/64, 10.0.0.0/8", networks("fd00::/64", "10.0.0.0/8")),
    (v.NETWORKS, "0.0.0.0/0,::/0", networks("0.0.0.0/0", "::/0")),
    (v.NETWORKS, "1.2.3.4/0", networks("0.0.0.0/0")),
    (v.NETWORKS, "FD00:0:0::ABCD/128", networks("fd00::abcd/128")),
    (v.NETWORKS, "::ffff:1.2.3.4/96", networks("::ffff:0:0/96")),
    (v.NETWORKS_OR_ALL, "*", "*"),
    (v.LOOPBACK, "127.0.0.1/8", Network.parse("127.0.0.0/8")),
    (v.LOOPBACK, "127.9.9.9/32", Network.parse("127.9.9.9/32")),
    (v.ADDRESSES, "10.0.0.1,FD00::0:1,10.0.0.1", ("10.0.0.1", "fd00::1")),
    (v.UIDS, "0,1337", (0, 1337)),
    (v.UIDS, "4294967294", (4294967294,)),
    (v.UIDS, "root", (0,)),
    (v.GIDS, "root,0", (0,)),
    (v.GROUPS, "", ()),
    (v.GROUPS_OR_ALL, "*", "*"),
    (v.INTERFACES, "eth0,net1.100,k6t-9_a", ("eth0", "net1.100", "k6t-9_a")),
    (v.INTERFACES, "exactly15chars_", ("exactly15chars_",)),
    (v.INTERFACES, "br-+,eth0,exactly14chars+", ("br-+", "eth0", "exactly14chars+")),
    (v.MARK, "4294967295", 4294967295),
    (v.TABLE, "133", 133),
    (v.TABLE, "252", 252),
    (v.SWITCH, "T", True),
    (v.SWITCH, "0", False),
    (v.DURATION, "5s", 5 * 10**9),
    (v.DURATION, "500ms", 5 * 10**8),
    (v.DURATION, "1m30s", 90 * 10**9),
    (v.DURATION, "1.5s", 15 * 10**8),
    (v.DURATION, ".5s", 5 * 10**8),
    (v.DURATION, "2\u00b5s", 2000),
    (v.DURATION, "2\u03bcs", 2000),
    (v.DURATION, "1h", 3600 * 10**9),
    (v.LOG_LEVELS, "default:debug,iptables-x:none", "default:debug,iptables-x:none"),
    (v.LOG_LEVELS, "warn", "warn"),
    (v.PID, "1", 1),
    (v.PATH, "/run/netns/blue green", "/run/netns/blue green"),
]


@together(("kind", "text", "value"), READ, ids=lambda x: repr(x) if isinstance(x, str) else "")
def test_a_good_value_is_read(kind, text, value):
    assert kind.read(text) == value
    assert type(kind.read(text)) is type(value)


@together(("kind", "text", "value"), READ, ids=lambda x: repr(x) if isinstance(x, str) else "")
def test_what_is_read_and_written_reads_the_same_again(kind, text, value):
    assert kind.read(kind.write(kind.read(text))) == value


REFUSED = [
    (v.PORT, "0", "is not a port: use a decimal number from 1 to 65535"),
    (v.PORT, "65536", "is not a port"),
    (v.PORT, "080", "is not a port"),
    (v.PORT, "0x50", "is not a port"),
    (v.PORT, "1_000", "is not a port"),
    (v.PORT, " 80", "is not a port"),
    (v.PORT, "+80", "is not a port"),
    (v.PORT, "-80", "is not a port"),
    (v.PORT, "８０", "is not a port"),
    (v.PORT, "٨٠", "is not a port"),
    (v.PORT, "²", "is not a port"),
    (v.PORT, "", "is not a port"),
    (v.PORTS, "90-80", "is an empty range of ports: the first is higher than the last; write 80-90"),
    (v.PORTS, "80,90-", "holds '90-', which is not a range of ports: write first and last, such as 8000-8100"),
    (v.PORTS, "80,-90", "holds '-90', which is not a range of ports"),
    (v.PORTS, "80--90", "is not a range of ports: use a decimal number from 0 to 65535"),
    (v.PORTS, "0-0", "is an empty range of ports: the first is higher than the last"),
    (v.PORTS, "1-65536", "is not a range of ports: use a decimal number from 0 to 65535"),
    (v.PORTS_OR_ALL, "a-b", "is not a range of ports"),
    (v.PORTS, "80:90", "is not a port"),
    (v.PORTS, "80,0,443", "holds '0', which is not a port"),
    (v.PORTS, "*", "is not a port"),
    (v.NETWORKS, "*", "means everything, which cannot be excluded: list CIDRs"),
    (v.NETWORKS, "10.0.0.1", "has no prefix length; write it as a CIDR, for example 10.0.0.0/8"),
    (v.NETWORKS, "10.0.0.0/33", "a number from 0 to 32"),
    (v.NETWORKS, "fd00::/129", "a number from 0 to 128"),
    (v.NETWORKS, "10.0.0.0/255.0.0.0", "a number from 0 to 32"),
    (v.NETWORKS, "10.0.0.0/08", "leading zero"),
    (v.NETWORKS, "10.0.0.0/ 8", "a number from 0 to 32"),
    (v.NETWORKS, "10.0.0.0/８", "a number from 0 to 32"),
    (v.NETWORKS, "10.0.0/8", "is not an IPv4 network"),
    (v.NETWORKS, "010.0.0.0/8", "is not an IPv4 network"),
    (v.NETWORKS, "0x0a.0.0.0/8", "is not an IPv4 network"),
    (v.NETWORKS, "example.com/32", "is not an IPv4 network"),
    (v.NETWORKS, "fe80::1%eth0/64", "is not an IPv6 network"),
    (v.NETWORKS, "10.0.0.0/8\x00", "a number from 0 to 32"),
    (v.NETWORKS, "10.0.0.0\x00/8", "is not an IPv4 network"),
    (v.NETWORKS_OR_ALL, "*,10.0.0.0/8", "holds '*', which has no prefix length"),
    (v.PORTS, "80,abc,70000", "holds 'abc' and '70000', each of which is not a port or a range of ports: use a decimal number from 1 to 65535, or two with a dash, such as 8000-8100"),
    (v.PORTS, "http", "is not a port or a range of ports: use a decimal number from 1 to 65535, or two with a dash, such as 8000-8100"),
    (v.PORTS_OR_ALL, "0", "is not a port or a range of ports: use a decimal number from 1 to 65535, or two with a dash, such as 8000-8100"),
    (v.PORTS, "x,x,80", "holds 'x', which is not a port"),
    (v.PORTS_OR_ALL, "*,80,y", "holds '*' and 'y', each of which is not a port"),
    (v.NETWORKS, "10.0.0.0/33,foo", "holds '10.0.0.0/33', which has a prefix length that is not a number from 0 to 32; and 'foo', which has no prefix length"),
    (v.UIDS, "nobody-here,1337,-1", "holds 'nobody-here' and '-1', each of which is not a user here: pass a number"),
    (v.INTERFACES, "eth0,a/b,c:d", "holds 'a/b' and 'c:d', each of which is not an interface name"),
    (v.PORTS, ",".join(f"p{number}" for number in range(10)), "'p8' and 'p9', each of which is not a port"),
    (v.PORTS, ",".join(f"p{number}" for number in range(5000)), "'p9' and 4990 more, each of which is not a port"),
    (v.LOOPBACK, "10.0.0.0/8", "use one within 127.0.0.0/8"),
    (v.LOOPBACK, "127.0.0.0/7", "use one within 127.0.0.0/8"),
    (v.LOOPBACK, "::1/128", "use one within 127.0.0.0/8"),
    (v.ADDRESSES, "8.8.8.8/32", "is not an IP address"),
    (v.ADDRESSES, "fe80::1%lo", "is not an IP address"),
    (v.UIDS, "", "is empty: name a user"),
    (v.UIDS, ",,", "is empty: name a user"),
    (v.UIDS, "4294967295", "is not a user id"),
    (v.UIDS, "nobody-here", "is not a user here: pass a number"),
    (v.UIDS, "0:1337", "is not a user here"),
    (v.UIDS, "-1", "is not a user here"),
    (v.UIDS, "root\x00", "is not a user here"),
    (v.UIDS, "root\udcff", "is not a user here"),
    (v.GIDS, "nobody-here", "is not a group here: pass a number"),
    (v.GROUPS, ",".join(map(str, range(65))), "lists 65 groups: at most 64 are possible"),
    (v.INTERFACES, "exactly_16_chars", "at most 15 characters"),
    (v.INTERFACES, "eth 0", "blanks, quotes, slashes"),
    (v.INTERFACES, "eth0:1", "blanks, quotes, slashes"),
    (v.INTERFACES, "../eth0", "blanks, quotes, slashes"),
    (v.INTERFACES, "éth0", "blanks, quotes, slashes"),
    (v.INTERFACES, "eth*", "wildcards"),
    (v.INTERFACES, "eth++", "end in +"),
    (v.INTERFACES, "exactly15chars_+", "at most 15 characters"),
    (v.INTERFACES, "eth0,+", "means every interface, lo and the pod's own too: write names, or a prefix such as br-+"),
    (v.INTERFACES, ".+", "may not be a dot"),
    (v.INTERFACES, "-eth0", "begin with -"),
    (v.INTERFACES, "!eth0", "is not an interface name"),
    (v.INTERFACES, "..", "may not be a dot"),
    (v.MARK, "0", "is not a firewall mark"),
    (v.MARK, "4294967296", "is not a firewall mark"),
    (v.MARK, "0539", "is not a firewall mark"),
    (v.MARK, "0x100000000", "is not a firewall mark"),
    (v.TABLE, "0", "is not a routing table"),
    (v.TABLE, "254", "is the system's routing table main: use another number"),
    (v.SWITCH, "yes", "is neither true nor false"),
    (v.SWITCH, "", "is neither true nor false"),
    (v.DURATION, "", "is not a duration"),
    (v.DURATION, "5", "is not a duration"),
    (v.DURATION, "0s", "is not a duration"),
    (v.DURATION, "0.1ns", "is not a duration"),
    (v.DURATION, "-5s", "is not a duration"),
    (v.DURATION, "1h1ns", "at most an hour"),
    (v.DURATION, "5 s", "is not a duration"),
    (v.DURATION, "1..5s", "is not a duration"),
    (v.DURATION, "1e3s", "is not a duration"),
    (v.DURATION, "５s", "is not a duration"),
    (v.LOG_LEVELS, "default:loud", "with the levels none, error, warn, info, debug"),
    (v.LOG_LEVELS, "a b:info", "is not scope:level"),
    (v.PID, "0", "is not a process id"),
    (v.PATH, "/run/netns/a\nb", "control characters are not allowed"),
    (v.PATH, "x" * 4097, "is not a path"),
    (v.choice("REDIRECT", "TPROXY", ""), "redirect", "is not one of REDIRECT, TPROXY"),
]


@together(("kind", "text", "reason"), REFUSED, ids=lambda x: ascii(x)[:40] if isinstance(x, str) else "")
def test_a_bad_value_is_refused_with_the_reason(kind, text, reason):
    with pytest.raises(ValueError) as caught:
        kind.read(text)
    assert reason in str(caught.value)


def test_names_become_the_ids_of_this_system():
    somebody, some_group = pwd.getpwall()[-1], grp.getgrall()[-1]
    assert v.read_uid(somebody.pw_name) == somebody.pw_uid
    assert v.read_gid(some_group.gr_name) == some_group.gr_gid


def test_a_network_knows_its_bounds_and_family():
    four, six = Network.parse("10.9.8.7/24"), Network.parse("2001:db8::1/127")
    assert (four.text, four.family, four.length, four.last - four.first) == ("10.9.8.0/24", IPV4, 24, 255)
    assert (six.text, six.family, six.length, six.last - six.first) == ("2001:db8::/127", IPV6, 127, 1)


def test_a_long_value_is_shortened_in_messages_and_stays_on_one_line():
    assert v.quote_value("a\nb\x1b[31m") == r"'a\nb\x1b[31m'"
    assert len(v.quote_value("9" * 100_000)) < 70


def test_durations_are_written_in_the_largest_unit_that_divides_them():
    assert [v.write_duration(n) for n in (3600 * 10**9, 90 * 10**9, 5 * 10**8, 2000, 7)] == ["1h", "90s", "500ms", "2us", "7ns"]
