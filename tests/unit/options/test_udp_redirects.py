"""UDP that goes to ports of the pod: what is read, in which form it is kept, what is refused and why."""

from __future__ import annotations

import pytest

from netinit.base.errors import OptionError
from netinit.base.net import PortRange
from netinit.options import Options
from netinit.options.interception import UDP_REDIRECTS
from netinit.options.udp_redirects import UdpRedirect
from sweeps import together


def item(port, to):
    return UdpRedirect(port=port, to=to)


@together(
    ("text", "items"),
    [
        ("", ()),
        ("514:10514", (item(514, 10514),)),
        ("514:514", (item(514, 514),)),
        ("514:10514, 1812-1813:11812,", (item(514, 10514), item(PortRange((1812, 1813)), 11812))),
        ("514:10514,514:10514", (item(514, 10514),)),
        ("515:10514,514:10514", (item(515, 10514), item(514, 10514))),
        ("1-65535:9", (item(PortRange((1, 65535)), 9),)),
    ],
)
def test_a_list_is_read_and_written_as_the_same_items(text, items):
    assert UDP_REDIRECTS.parse(text) == items
    assert UDP_REDIRECTS.read(UDP_REDIRECTS.write(items)) == items


@together(
    ("text", "why"),
    [
        ("514", "names no port of the pod: write the port and the pod's port for it, such as 514:10514"),
        ("514:", "holds '', which is not a port"),
        (":10514", "holds '', which is not a port or a range of ports"),
        ("514:10514:udp", "holds '10514:udp', which is not a port"),
        ("514:0", "holds '0', which is not a port"),
        ("0:514", "holds '0', which is not a port or a range of ports"),
        ("20-10:514", "holds '20-10', which is an empty range of ports"),
        ("514:10000-10010", "holds '10000-10010', which is not a port"),
        ("*:514", "holds '*', which is not a port or a range of ports"),
        ("514:1,514:2", "lists port 514 twice, for 1 and for 2"),
        ("510-520:1,514:2", "lists port 514 twice, for 1 and for 2"),
        ("514:1,x,70000:2", "holds 'x', which names no port of the pod"),
    ],
)
def test_what_is_no_such_list_is_refused_with_the_reason(text, why):
    with pytest.raises(ValueError) as caught:
        UDP_REDIRECTS.read(text)
    assert why in str(caught.value)


@together(
    ("words", "said"),
    [
        (["--redirect-outbound-udp", "53:10053"], "--redirect-outbound-udp: port 53 is DNS"),
        (["--redirect-outbound-udp", "50-60:10053"], "use --redirect-dns"),
        (["--layout", "ambient", "--redirect-outbound-udp", "514:10514"], "--layout ambient has no such rules"),
        (["--layout", "classic", "--redirect-outbound-udp", "514:10514"], "has no such rules; remove it or use --layout current"),
    ],
)
def test_what_has_another_option_or_no_rules_is_refused(words, said):
    with pytest.raises(OptionError) as caught:
        Options.from_argv(words)
    assert said in str(caught.value)


def test_options_are_made_again_from_their_command_line():
    options = Options.from_argv(["--redirect-outbound-udp", "514:10514,6000-6009:16000"])
    assert Options.from_argv(options.to_argv()) == options
    assert Options(redirect_outbound_udp="514:10514").redirect_outbound_udp == (item(514, 10514),)
