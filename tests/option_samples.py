"""A good and a bad value of each kind of option, by its placeholder: a new flag of a known kind needs none of its own."""

from __future__ import annotations

from netinit.options import LAYOUTS

# Another value than the default of any flag, and a bad one
SAMPLES = {
    "PORT": ("4711", "0"),
    "PORT|0": ("4711", "65536"),
    "PORTS": ("80,8000-8100", "80,http"),
    "PORTS|*": ("*", "90-80"),
    "PORTS:PORT": ("514:10514,6000-6009:16000", "514"),
    "PROTOCOL:PORTS:UIDS": ("tcp:22,80:1000-2000;udp:53:3000", "tcp:22"),
    "PROTOCOL:PORTS:GIDS": ("53:1000", "icmp:22:1"),
    "CIDRS": ("10.0.0.0/8,fd00::/8", "10.0.0.0"),
    "CIDRS|*": ("*", "everything"),
    "CIDR": ("127.0.0.0/8", "10.0.0.0/8"),
    "ADDRESSES": ("10.0.0.1,fd00::1", "10.0.0.0/8"),
    "UIDS": ("4711", "nobody-here"),
    "GIDS": ("4711", "nobody-here"),
    "GROUPS": ("4711", "nobody-here"),
    "GROUPS|*": ("4711", "nobody-here"),
    "NAMES": ("net1,net2", "net/1"),
    "MARK": ("4711", "0x"),
    "TABLE": ("4711", "254"),
    "NUMBER": ("5", "-1"),
    "BOOL": ("true", "yes"),
    "TEXT": ("1", ""),  # no text is bad
    "DURATION": ("7s", "7"),
    "SCOPE:LEVEL": ("default:debug", "default:loud"),
    "GROUP": ("5", "65536"),
    "PID": ("4711", "0"),
    "PATH": ("blue", "a\nb"),
    "REDIRECT|TPROXY|NONE": ("TPROXY", "tproxy"),
    "legacy|nft": ("legacy", "iptables"),
    "|".join(LAYOUTS): ("classic", "modern"),
    "auto|on|off|inet|reject": ("reject", "yes"),
}
