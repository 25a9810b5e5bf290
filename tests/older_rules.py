"""Rules as releases of Istio made them, loaded into a pod as istio-init does: what the commands without options say of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from laboratory import Pod
from netinit.base.net import FAMILIES
from programming import load, run_tool

FOREIGN, NO_OPTION, NOT_IN_FORCE = "foreign", "that no option makes", "the rules here do not capture"
FIRST_WITH_ADDRESS, FIRST_WITH_IPV6_TPROXY, NATIVE = 3, 12, "nftables"
ROUTED = "rule add fwmark 1337 lookup 133\nroute add local default dev lo table 133\n"


@dataclass(frozen=True)
class ReadBack:
    """What verify, audit, explain, diff and doctor say. `releases`: as which verify reads the rules, empty for today's."""

    status: int
    releases: str
    printed: str
    foreign: tuple[str, ...]
    diff: int
    differences: int  # that verify names
    doctor: str

    @property
    def wrong(self) -> str:
        """What is said wrongly of a healthy pod; empty if nothing is."""
        if self.status:
            return self.printed
        if self.foreign:
            return "; ".join(self.foreign)
        if bool(self.diff) != bool(self.differences):
            return f"verify names {self.differences} differences, and diff ends with {self.diff}"
        return self.doctor


def program(pod: Pod, variant: str, minor: int, argv: Sequence[str], rules: Mapping[str, str], *, ipv6: bool) -> None:
    """Give the pod the rules of a release, and what its init container adds beside them."""
    captures_in = "-b" in argv and argv[argv.index("-b") + 1]
    if "TPROXY" in argv and captures_in:
        families = ("-4", "-6") if ipv6 and minor >= FIRST_WITH_IPV6_TPROXY else ("-4",)
        for family in families:
            pod.run(["ip", family, "-batch", "-"], stdin=ROUTED, check=True)
    if ipv6 and minor >= FIRST_WITH_ADDRESS:
        pod.run(["ip", "-6", "addr", "add", "::6/128", "dev", "lo"], check=True)
    if variant == NATIVE:
        pod.run(["nft", "-f", "-"], stdin=rules["nft"], check=True)
        return
    for family in FAMILIES:
        if text := rules.get(family.program):
            load(pod, variant, family, text)


def read_back(pod: Pod) -> ReadBack:
    """Ask each command, without options."""
    verified, audited = run_tool(pod, "verify", "--json"), run_tool(pod, "audit", "--live", "--json")
    explained = run_tool(pod, "explain", "--live", "--to", "192.0.2.200:80")
    diff = run_tool(pod, "diff", "--live")
    doctor = run_tool(pod, "doctor", "--json", without=["sys_admin"])  # so that it only looks: what the kernel can do is the same for all rules
    assert not audited.returncode, audited.stderr
    found = json.loads(verified.stdout)
    traffic = [row for one in json.loads(audited.stdout)["pods"] for row in one["traffic"]]
    foreign = [reason for row in traffic if row["by"] == FOREIGN for reason in row["because"]]
    foreign += [line for line in explained.stdout.splitlines() if NO_OPTION in line]
    istio = found["istio"] or {}
    doubts = [one["message"] for one in json.loads(doctor.stdout)["findings"] if one["message"].startswith(NOT_IN_FORCE)]
    printed = verified.stderr + json.dumps(found["differences"])
    return ReadBack(
        verified.returncode, istio.get("releases", ""), printed, tuple(foreign), diff.returncode, len(istio.get("differences", ())),
        "; ".join(doubts),
    )  # fmt: skip
