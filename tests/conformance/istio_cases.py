"""The rules that each Istio release programs, as its own sources at the release's tag say: options in, commands of iptables out.

- 1.0 to 1.4: its shell script, run here with programs that record their arguments instead of iptables;
- 1.5 to 1.11: the commands that its Go tests expect;
- since 1.12: the golden files of its Go tests; since 1.27 there are some of native nft rules, too.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

SCRIPTS = ("tools/deb/istio-iptables.sh", "tools/packaging/common/istio-iptables.sh")
NATIVE = "tools/istio-nftables/pkg/capture"
CAPTURE, COMMAND = "tools/istio-iptables/pkg/capture", "tools/istio-iptables/pkg/cmd"
GROUPS = {"java": "4001", "ftp": "4002"}  # machines do not have these groups: numbers stand for them on both sides
FIRST_WITH_GO, FIRST_WITH_GOLDENS = 5, 12
BOTH = ("iptables", "ip6tables")

_SIDECAR = ["-p", "15001", "-u", "1337", "-m", "REDIRECT"]
SCRIPT_CASES = {
    "all ports": ([*_SIDECAR, "-i", "*", "-x", "", "-b", "*", "-d", "15020"], {}),
    "listed ports": ([*_SIDECAR, "-i", "*", "-x", "", "-b", "80,8080", "-d", "15020"], {}),
    "networks": ([*_SIDECAR, "-i", "10.0.0.0/8", "-x", "10.1.0.0/16", "-b", "*", "-d", ""], {}),
    "excluded networks": ([*_SIDECAR, "-i", "*", "-x", "10.1.0.0/16", "-b", "*", "-d", ""], {}),
    "tproxy": ([*_SIDECAR, "-i", "*", "-x", "", "-b", "*", "-d", "15020", "-m", "TPROXY"], {}),
    "nothing": ([*_SIDECAR, "-i", "", "-x", "", "-b", "", "-d", ""], {}),
}
_OPTIONS = {
    "InboundPortsInclude": "-b", "InboundPortsExclude": "-d", "OutboundIPRangesInclude": "-i", "OutboundIPRangesExclude": "-x",
    "OutboundPortsInclude": "-q", "OutboundPortsExclude": "-o", "ProxyUID": "-u", "ProxyGID": "-g", "KubeVirtInterfaces": "-k",
    "KubevirtInterfaces": "-k", "RerouteVirtualInterfaces": "-k", "ExcludeInterfaces": "-c", "InboundInterceptionMode": "-m",
}  # fmt: skip
_SWITCHES = {"RedirectDNS": "--redirect-dns", "DropInvalid": "--drop-invalid", "CaptureAllDNS": "--capture-all-dns"}
_VARIABLES = {
    "OwnerGroupsInclude": "ISTIO_OUTBOUND_OWNER_GROUPS", "OwnerGroupsExclude": "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE",
    "HostIPv4LoopbackCidr": "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR",
}  # fmt: skip
_CASES_OF_GO = re.compile(r'"([\w-]+)",\s*func\(cfg \*config\.Config\) \{(.*?)\},\n', re.DOTALL)
_IPV6 = ("EnableInboundIPv6", "EnableIPv6")
_WITHOUT_EFFECT = ("DryRun", "TraceLogging")  # of TraceLogging the rules differ: netinit logs in another way


@dataclass(frozen=True)
class Case:
    """Options as a pod of the release gives them, and the rules of the release for them: restore input by program."""

    name: str
    argv: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]
    ipv6: bool
    dns_servers: tuple[str, ...]
    rules: tuple[tuple[str, str], ...]
    refuses_ipv6: bool = False  # where IPv6 is off, as the shell scripts did


class Istio:
    """A git directory or clone of Istio."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def git(self, *words: str) -> str:
        return subprocess.run(["git", "-C", self.folder, *words], check=True, capture_output=True, text=True).stdout

    @functools.cached_property
    def releases(self) -> dict[int, str]:
        """The last patch release of each minor release of Istio 1, by the minor number; its newest candidate where none is released yet."""
        found: dict[int, tuple[tuple[bool, int, int], str]] = {}
        for tag in self.git("tag").split():
            if read := re.fullmatch(r"1\.(\d+)\.(\d+)(?:-rc\.(\d+))?", tag):
                rank = (read[3] is None, int(read[2]), int(read[3] or 0))
                found[int(read[1])] = max((rank, tag), found.get(int(read[1]), (rank, tag)))
        return {minor: tag for minor, (_, tag) in sorted(found.items())}

    @functools.cache  # noqa: B019  # one for each run
    def files(self, tag: str) -> tuple[str, ...]:
        return tuple(self.git("ls-tree", "-r", "--name-only", tag).splitlines())

    def read(self, tag: str, path: str) -> str:
        return self.git("show", f"{tag}:{path}")

    def read_script(self, tag: str) -> str:
        """The shell script of a release up to 1.4."""
        return self.read(tag, next(path for path in SCRIPTS if path in self.files(tag)))

    def cases(self, minor: int) -> Iterator[Case]:
        """The release's cases of rules."""
        tag = self.releases[minor]
        if minor < FIRST_WITH_GO:
            return _of_script(self.read_script(tag))
        if minor < FIRST_WITH_GOLDENS:
            return _of_go(self.read(tag, f"{COMMAND}/run_test.go"))
        return _of_goldens(self.read(tag, f"{CAPTURE}/run_test.go"), self._goldens(tag, CAPTURE))

    def _goldens(self, tag: str, folder: str) -> dict[str, str]:
        """The golden files of a package by their names."""
        paths = [path for path in self.files(tag) if path.startswith(f"{folder}/testdata/")]
        return {Path(path).stem: self.read(tag, path) for path in paths}

    def native_cases(self, minor: int) -> Iterator[Case]:
        """The release's cases of native nft rules; none before there were any."""
        tag = self.releases[minor]
        if goldens := self._goldens(tag, NATIVE):
            yield from _of_native_goldens(self.read(tag, f"{NATIVE}/run_test.go"), goldens)


def _of_script(script: str) -> Iterator[Case]:
    for name, (argv, environ) in SCRIPT_CASES.items():
        for ipv6 in (False, True):
            more = {"ENABLE_INBOUND_IPV6": "true"} if ipv6 else {}
            commands = _record(script, argv, {**environ, **more})
            case = _case(f"{name} (IPv6 {'on' if ipv6 else 'off'})", argv, environ, ipv6, (), commands)
            yield replace(case, refuses_ipv6=True)


def _record(script: str, argv: list[str], environ: Mapping[str, str]) -> list[list[str]]:
    """The commands of iptables that a script gives."""
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record")
        for program in ("iptables", "ip6tables", "ip", "iptables-save", "ip6tables-save"):
            path = Path(folder, program)
            path.write_text(f"#!/bin/bash\nprintf '%q ' {program} \"$@\" >> {record}\necho >> {record}\n")
            path.chmod(0o755)
        subprocess.run(
            ["bash", "-c", script, "istio-iptables.sh", *argv], check=True, capture_output=True,
            env={"PATH": f"{folder}:{os.defpath}", **environ},
        )  # fmt: skip
        return [shlex.split(line) for line in record.read_text().splitlines()]


def _of_go(text: str) -> Iterator[Case]:
    """The cases of a Go test that has the commands in it: those of all rules, or of all rules of IPv6."""
    for name, body in re.findall(r"^func Test(\w+)\(.*?\{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE):
        commands = [shlex.split(line) for line in re.findall(r'"(ip6?tables -t [^"]+)"', body)]
        only_ipv6 = "handleInboundIpv6Rules(" in body
        if not commands or not (only_ipv6 or re.search(r"iptConfigurator\.run\(\)", body)):
            continue
        if only_ipv6 and re.search(r'ParseCIDR\("[^":]+"\)', body):
            continue  # an IPv4 network in a rule of ip6tables, which no kernel takes
        wildcard = '\ncfg.OutboundIPRangesInclude = "*"\n' * ("IsWildcard: true" in body)
        programs = {words[0] for words in commands}
        case = _settings(name, body + wildcard, commands)
        yield replace(case, rules=tuple(one for one in case.rules if one[0] in programs))


def _of_goldens(text: str, goldens: Mapping[str, str]) -> Iterator[Case]:
    for name, body in _CASES_OF_GO.findall(text):
        case = _settings(name, body, list(_commands(goldens.pop(name))))
        if case.dns_servers or "--redirect-dns=true" not in case.argv:
            yield case
    if goldens:
        raise ValueError(f"goldens without a case: {sorted(goldens)}")


def _of_native_goldens(text: str, goldens: Mapping[str, str]) -> Iterator[Case]:
    for name, body in _CASES_OF_GO.findall(text):
        case = _settings(name, body, [])
        if case.dns_servers or "--redirect-dns=true" not in case.argv:
            yield replace(case, rules=(("nft", _with_numbers(goldens[name])),))


def _commands(golden: str) -> Iterator[list[str]]:
    """The commands of a golden file: a command each line, or restore inputs, those of IPv4 first."""
    table, programs = "", list(BOTH)
    for line in golden.splitlines():
        words = shlex.split(line)
        if words[:1] == ["*"]:
            if words[1] <= table:
                programs.pop(0)
            table = words[1]
        elif words and words[0].startswith("-"):
            yield [programs[0], "-t", table, *words]
        elif len(words) > 1:
            yield words


def _settings(name: str, body: str, commands: list[list[str]]) -> Case:
    """A case from the assignments to the Go test's configuration."""
    argv, environ, ipv6, servers = ["-u", "1337", "-g", "1337"], {}, False, ()
    for key, value in re.findall(r"cfg\.(\w+) = (.+)", body):
        text = value.strip('"').replace("constants.", "")
        if key in _OPTIONS:
            argv += [_OPTIONS[key], text]
        elif key in _SWITCHES:
            argv += [f"{_SWITCHES[key]}={text}"]
        elif key in _VARIABLES:
            environ[_VARIABLES[key]] = text
        elif key in _IPV6:
            ipv6 = text == "true"
        elif key.startswith("DNSServers"):
            servers += tuple(re.findall(r'"([^"]+)"', value))
        elif key not in _WITHOUT_EFFECT:
            raise ValueError(f"{name}: {key} is no field that is known here")
    return _case(name, argv, environ, ipv6, servers, commands)


def _case(name: str, argv, environ, ipv6, servers, commands) -> Case:
    rules = tuple((program, _with_numbers(_restore(program, commands))) for program in BOTH)
    return Case(name, tuple(argv), tuple((key, _with_numbers(value)) for key, value in environ.items()), ipv6, servers, rules)


def _with_numbers(text: str) -> str:
    """A text with numbers for the groups that machines do not have."""
    return re.sub("|".join(GROUPS), lambda found: GROUPS[found[0]], text)


def _restore(program: str, commands: list[list[str]]) -> str:
    """A family's commands as the input of iptables-restore."""
    tables: dict[str, list[str]] = {}
    for name, *words in commands:
        table, rule = (words[1], words[2:]) if words[:1] == ["-t"] else ("filter", words)
        if name == program and rule and rule[0] in {"-A", "-I", "-N"}:
            tables.setdefault(table, []).append(" ".join(rule))
    return "".join(f"*{table}\n" + "\n".join(lines) + "\nCOMMIT\n" for table, lines in tables.items())
