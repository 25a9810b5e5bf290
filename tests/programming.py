"""What the kernel's tests share: the tool run inside a pod, in process or as a program, and the rules as they are then."""

from __future__ import annotations

import contextlib
import difflib
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import prefork
from core import plan
from lab_probes import Probe
from lab_state import describe_state, drop_empty_tables, list_rules
from laboratory import NetworkNamespace
from netinit.base.net import FAMILIES, Family
from netinit.kernel.sockets import creating_as
from netinit.options import Options
from netinit.pods import apply as applying
from netinit.pods import verify as verifying
from netinit.pods.apply import Outcome
from netinit.rules.iptables.write import render_restore, write_plan

ROOT = Path(__file__).parent.parent
SLOW = 60.0  # seconds for an answer that must come, on a busy machine
TENTATIVE = 0x40  # IFA_F_TENTATIVE, linux/if_addr.h
TOOL = (sys.executable, "-I", "-S", str(ROOT / "netinit" / "__main__.py"))  # as the image starts it
SIDECAR = ("-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-x", "", "-b", "*", "-d", "15090,15021,15020")
REDIRECT = (*SIDECAR, "--ipv6", "on")
TPROXY = (*REDIRECT, "-m", "TPROXY", "--redirect-dns", "--dns-servers", "203.0.113.7", "--drop-invalid")
VARIANTS = ("iptables-nft", "iptables-legacy")
FOLDERS = prefork.ENVIRONMENT["PATH"]
# In a mount namespace where no program of iptables or nft is, nor the libraries that serve without them, nor a compiler
# and linker, which python-iptables would ask hundreds of times where those are.
_HIDE = """
for d in /usr/sbin /sbin /usr/local/sbin; do mount -t tmpfs none $(readlink -f $d); done
for f in /usr/lib/libxtables.so.*.* /usr/lib/*/libxtables.so.*.* $(command -v gcc cc ld objdump); do
  [ ! -e $f ] || mount --bind /dev/null $f
done
exec "$@"
"""
WITHOUT_PROGRAMS = ("unshare", "-m", "sh", "-c", _HIDE, "sh")

# Foreign rules: next to where ours go, looking much like ours, with a policy, a chain of their own and odd comments.
FOREIGN = """*mangle
:THEIRS - [0:0]
-A PREROUTING -j THEIRS
-A THEIRS -p udp -m udp --dport 9999 -j MARK --set-xmark 0x7/0xffffffff
-A OUTPUT -p tcp -m mark --mark 0x7 -j CONNMARK --save-mark --nfmask 0xffffffff --ctmask 0xffffffff
COMMIT
*nat
:THEIRS - [0:0]
-A PREROUTING -i eth9 -j RETURN
-A PREROUTING -p tcp -m tcp --dport 9999 -j REDIRECT --to-ports 9998
-A OUTPUT -o eth9 -j RETURN
-A OUTPUT -p tcp -m tcp --dport 9999 -m comment --comment "not ISTIO_OUTPUT's: -j ISTIO_REDIRECT" -j THEIRS
-A THEIRS -j RETURN
COMMIT
*filter
:FORWARD DROP [0:0]
-A INPUT -p tcp -m tcp --dport 9999 -j ACCEPT
-A INPUT -m state --state ESTABLISHED -j ACCEPT
COMMIT
"""


def variant_of(backend: str) -> str:
    """The variant of iptables whose programs see what the backend writes."""
    return "iptables-legacy" if backend == "libiptc" else backend


def needs(backend: str) -> None:
    """Skips where the backend's programs, or those that show what it wrote, are missing."""
    if backend == "nftables":
        if shutil.which("nft", path=FOLDERS) is None:
            pytest.skip("nft is not installed: apt-get install nftables")
        return
    if backend == "libiptc" and importlib.util.find_spec("iptc") is None:
        pytest.skip("python-iptables is not installed: pip install python-iptables")
    variant = variant_of(backend)
    if shutil.which(f"{variant}-restore", path=FOLDERS) is None:
        pytest.skip(f"{variant}-restore is not installed: apt-get install iptables")


def arrivals(namespace: NetworkNamespace, *probes: Probe) -> list[tuple[str | None, int | None] | str]:
    """(server, port) of each connection, or how it ended. All are under way at once."""
    return [(one.server, one.port) if one.outcome == "answered" else one.outcome for one in namespace.probe(probes)]


def load(namespace: NetworkNamespace, variant: str, family: Family, text: str) -> None:
    """The rules of a restore input are in the kernel; legacy programs wait for the machine's lock (`-w`), which other tests hold, too."""
    program = variant.replace("iptables", family.program)
    namespace.run([f"{program}-restore", "-w", "--noflush"], stdin=text, check=True)


def add_foreign_rules(namespace: NetworkNamespace, variant: str) -> None:
    """Both families hold foreign rules."""
    for family in FAMILIES:
        load(namespace, variant, family, FOREIGN)


def apply_in(namespace: NetworkNamespace, options: Options) -> Outcome:
    """What apply() does inside; the address that it may add is usable."""
    with namespace.entered():
        made = applying.apply(options)
    namespace.await_addresses()
    return made


def force_beside(namespace: NetworkNamespace, options: Options) -> None:
    """The rules of a second variant beside the first's: what an older tool did that could not see the other."""
    made = plan(options.replace(ipv6="on"))
    for family in made.families:
        load(namespace, options.backend, family, render_restore(write_plan(made, family)))


def remove_in(namespace: NetworkNamespace, options: Options | None = None) -> Outcome:
    """What remove() does inside."""
    with namespace.entered():
        return applying.remove(options or Options())


def differences_in(namespace: NetworkNamespace, options: Options) -> list[str]:
    """What verify() finds inside, a line each."""
    with namespace.entered():
        return [difference.describe() for difference in verifying.verify(options).differences]


def listing(namespace: NetworkNamespace, variant: str) -> str:
    """iptables-save of both families without counters."""
    return "".join([list_rules(namespace, variant.replace("iptables", family.program) + "-save") for family in FAMILIES])


def state(namespace: NetworkNamespace) -> str:
    """Everything that rules, routes and addresses are, but for what the kernel does by itself.

    It keeps empty built-in tables, and in a pod's first second it settles link-local addresses and the routes of its own;
    an IPv6 address is tentative for a moment after it was added.
    """
    text = drop_empty_tables(describe_state(namespace))
    text = re.sub(r"(?<= flags=)\d+", lambda flags: str(int(flags[0]) & ~TENTATIVE), text)
    return re.sub(r"^(route .* proto=2 .*|address address=fe80::.*)\n", "", text, flags=re.MULTILINE)


def forget_priority(text: str) -> str:
    """A state without the places of our policy rules: the kernel numbers them downwards as they come."""
    return re.sub(r" priority=\d+ protocol=137 ", " protocol=137 ", text)


def check_same(now: str, wanted: str, what: str) -> None:
    """Fails with the lines that differ."""
    if now != wanted:
        lines = difflib.unified_diff(wanted.splitlines(), now.splitlines(), "wanted", "now", n=1, lineterm="")
        pytest.fail("\n".join([what, *lines]), pytrace=False)


def run_tool(
    namespace: NetworkNamespace, *arguments: str, env: Mapping[str, str] | None = None, prefix: Sequence[str] = (), without: Sequence[str] = (), **more: Any
) -> subprocess.CompletedProcess[str]:
    """The program, run inside to its end. `prefix` is a program that starts it (setpriv, unshare); it has no capability in `without`."""
    if not (prefix or more) and prefork.can_run(arguments, env):
        with namespace.entered():
            return prefork.run(arguments, env, without=without)
    if without:
        prefix = [*prefix, "setpriv", "--bounding-set=" + ",".join(f"-{name}" for name in without), "--inh-caps=-all"]
    environment = {"PATH": FOLDERS, **(env or {})}
    return namespace.run([*prefix, *TOOL, *arguments], env=environment, **{"timeout": prefork.SECONDS, **more})


def begin_tool(namespace: NetworkNamespace, *arguments: str) -> prefork.Running:
    """The program, just started inside. The caller ends it and hears its end."""
    with namespace.entered():
        return prefork.Running(arguments)


def inhabitants(namespace: NetworkNamespace) -> set[str]:
    """The ids of the processes inside."""
    own, found = os.fstat(namespace.descriptor), set()
    for one in Path("/proc").glob("[0-9]*/ns/net"):
        with contextlib.suppress(OSError):  # it has ended
            if os.path.samestat(one.stat(), own):
                found.add(one.parts[2])
    return found


def call_on(namespace, host, user, stop, arrivals):
    """Connects to port 80 again and again; says who answered, or what went wrong."""
    with namespace.entered():
        while not stop.is_set():
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            with creating_as(user, user):
                connection = socket.socket(family, socket.SOCK_STREAM)
            with connection:
                connection.settimeout(SLOW)
                try:
                    connection.connect((host, 80))
                    answer = json.loads(connection.recv(4096))
                    arrivals.append(f"{answer['name']} {answer['port']}")
                except (OSError, ValueError) as error:
                    arrivals.append(f"{host}: {error!r}")


def start_tool(pod: NetworkNamespace, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """The tool, started inside as the leader of a process group of its own."""
    with pod.entered():
        return subprocess.Popen(
            [*TOOL, *arguments],
            env={"PATH": FOLDERS, **(env or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, process_group=0,
        )  # fmt: skip


def end(process: subprocess.Popen[str]) -> str:
    """What it said; it is gone."""
    with process:
        return process.communicate()[1]
