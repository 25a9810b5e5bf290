"""docs/compatibility.md, from compatibility.json beside this file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from istio_cases import FIRST_WITH_GO, FIRST_WITH_GOLDENS

ROOT = Path(__file__).parents[2]
PAGE, DATA = ROOT / "docs" / "compatibility.md", Path(__file__).with_name("compatibility.json")
EQUAL, PROVED, DIFFER = "equal", "proved equal", "differ"
NFT, NATIVE = "iptables-nft", "nftables"
TUNNEL, SSH, ONE_PORT, IPV6 = ("-e", "0"), ("-d", "22"), ("-z", "15001"), ("--ipv6", "on")
CLASSIC = ("--layout", "classic")
# What pods of a release notice without the options that give its rules.
NOTICED = {
    CLASSIC: "inbound connections arrive at port 15006, on which the proxy of that release does not listen; without IPv6, inbound"
    " IPv6 is not refused",
    TUNNEL: "what the proxy sends to port 15008 of its own pod goes there directly, not to the inbound port; inbound connections to"
    " port 15008 are not redirected",
    SSH: "inbound connections to port 22 go to the proxy",
    ONE_PORT: "where inbound ports are listed or none is captured, inbound connections go to port 15006 instead of 15001",
    IPV6: "where IPv6 is off, it is not captured; the release's native rules capture it all the same",
}
Release = dict[str, Any]


@dataclass(frozen=True)
class Cause:
    """Why packets are treated differently: `explains` (release, case, who, before, after)."""

    packets: str
    theirs: str
    ours: str
    explains: Callable[..., bool]


FIRST_DNS = 9  # whose Go tests name the servers
FIRST_6 = ("IPv6", "TCP inbound through")  # so listings of IPv6 alone begin
# The first that explains a difference counts; one that none explains stops the program that writes the page.
CAUSES = (
    Cause("IPv6 where it is off", "refused: all protocols, from the pod itself too", "with `--ipv6 reject`, TCP that would be captured is refused",
          lambda minor, case, who, *_: minor < FIRST_WITH_GO and "IPv6 off" in case["case"] and who.startswith("IPv6")),
    Cause("what the application sends to its own pod, except to 127.0.0.1", "goes to the inbound port", "arrives directly",
          lambda minor, case, who, before, _: minor < FIRST_WITH_GO and "tproxy" not in case["case"] and "within the pod" in who and before.startswith("captured")),
    Cause("IPv6 where it is on", "left alone (1.0), or inbound left alone", "captured",
          lambda minor, case, who, before, _: minor < FIRST_WITH_GOLDENS and who.startswith(FIRST_6) and not before.startswith("captured")),
    Cause("TPROXY: marks, and what is sent to the own pod", "looks only at the mark", "looks at addresses and users too",
          lambda minor, case, who, *_: "tproxy" in case["case"].lower() and "UDP" not in who and minor < FIRST_WITH_GOLDENS),
    Cause("DNS, by a variable of the test program that is not an option", "goes to port 15013 or 15053", "left alone",
          lambda minor, *_: FIRST_WITH_GO < minor < FIRST_DNS),
    Cause("DNS: queries from 127.0.0.6, which no application has; conntrack zones", "captured; zones by user and port", "left alone; zones by name server too",
          lambda minor, case, who, *_: minor >= FIRST_DNS and case["backend"] == NFT and ("UDP" in who or "port 53" in who)),
    Cause("port 15008, and 22 in 1.12", "left alone inbound; captured from the proxy to its own pod", "both left alone, or with `-e 0` both captured",
          lambda _, case, *__: case["case"] == "inbound-ports-wildcard" and case["backend"] == NFT),
    Cause("native rules: IPv6 where it is off", "captured, except what the proxy sends to its own pod", "left alone; with `--ipv6 on` captured",
          lambda _, case, who, *__: case["backend"] == NATIVE and who.startswith("IPv6")),
    Cause("native rules with `--drop-invalid`: non-TCP traffic in the state INVALID", "passes", "dropped, as by `istio-iptables`",
          lambda _, case, who, *__: case["backend"] == NATIVE and "INVALID" in who),
)  # fmt: skip

INTRODUCTION = """\
# Compatibility with Istio's releases

netinit programs the rules of the newest Istio release. For an older one, add all [options below](#options-for-older-releases) for its release.
What Istio and other meshes have changed since then: [What other meshes have changed](upstream.md).

- **rules**: the release's own cases: golden files or Go tests of its `istio-iptables`, up to 1.4 its shell script. Istio's rules and those of netinit
  with `--istio-exact` are loaded into the kernel. `equal`: the same listing, in order. `proved`: [`netinit diff`](commands/diff.md) proves that no
  packet is treated differently. `differ`: see [the packets](#packets-that-are-treated-differently). iptables-nft and iptables-legacy have equal results.
- **options**: what [gives the older rules](#options-for-older-releases).
- **native**: golden files of Istio's native nft rules, with `--backend nftables`.
- **read back**: the same rules loaded with iptables-nft, iptables-legacy and, where there are such, native nft. Without options, `verify` finds them
  right and proves which packets today's rules treat differently, `diff --live` agrees, and `audit`, `explain` and `doctor` call no rule foreign.
  The others: where nothing but a list of ports is captured, nothing shows that rules for a VM's interfaces are Istio's (`ipv6-virt-interfaces`, 1.12
  and later, in iptables): such a rule may be anybody's, and lets the packets of an interface pass.

[compatibility.json](../tests/conformance/compatibility.json) has every case.

{templates}

{flags}

Programs: {versions}. Kernels, and other versions of these programs: [Kernels](kernels.md).

## Releases

"""
OPTIONS_TEXT = """
## Options for older releases

With these options, packets are treated as in the older release. Without them:

"""
KINDS_TEXT = """
## Packets that are treated differently

These differences remain with the best options. Go tests of 1.5 to 1.11 have few cases, most of IPv6 only. Cases that capture DNS without a name
server are left out: every pod has one.

"""


def write_page(data: dict[str, Any]) -> str:
    """The page."""
    releases = data["releases"]
    head = INTRODUCTION.format(
        versions=", ".join(data["programs"]), templates=_sum_up_templates(releases), flags=_sum_up_flags(releases)
    )
    return head + "\n".join((*write_rows(releases), OPTIONS_TEXT[:-1], *_options(releases), KINDS_TEXT[:-1], *_kinds(releases))) + "\n"


def _read_back(release: Release) -> str:
    told = [wrong for cases in release["read_back"].values() for wrong in cases.values()]
    return f"{told.count('')} of {len(told)}"


def _of(release: Release, *backends: str) -> list[dict[str, Any]]:
    return [one for one in release["compared"] if one["backend"] in backends]


def _sum_up_templates(releases: list[Release]) -> str:
    refused = [f"{one['tag']}: {one['template']}" for one in releases if one["template"] != "injects"]
    text = (
        "**Injection templates**: `netinit inject` with the chart's ConfigMap and default values injects a plain pod, and netinit takes the init\n"
        f"container's arguments: {len(releases) - len(refused)} of {len(releases)} releases."
    )
    return "\n".join((text, *(f"- {one}" for one in refused)))


def _sum_up_flags(releases: list[Release]) -> str:
    counted = [tuple(map(int, re.findall(r"\d+", one["flags"])[:2])) for one in releases]
    lacking = [f"- {one['tag']}: {one['flags']}" for one, (taken, there) in zip(releases, counted, strict=True) if taken != there]
    text = (
        "**Flags and variables** of the release's `istio-iptables`, under that name:\n"
        f"{sum(taken for taken, _ in counted)} of {sum(there for _, there in counted)} are taken ({min(counted)[1]} to"
        f" {max(there for _, there in counted)} a release)."
    )
    return "\n".join((text, *lacking))


def write_rows(releases: list[Release]) -> list[str]:
    """The table of releases; one row for those with equal results."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for one in releases:
        source = "script" if one["minor"] < FIRST_WITH_GO else "Go tests" if one["minor"] < FIRST_WITH_GOLDENS else "golden files"
        cells = (source, _count(_of(one, NFT)), _list_options(_of(one, NFT)), _native(_of(one, NATIVE)), _read_back(one))
        rows.setdefault(cells, []).append(one["tag"])
    return [
        "| release | rules from | rules | options | native | read back |",
        "| --- | --- | --- | --- | --- | --- |",
        *(f"| {', '.join(tags)} | {' | '.join(cells)} |" for cells, tags in rows.items()),
    ]


def _count(compared: list[dict[str, Any]]) -> str:
    counted = Counter(each["result"] for each in compared)
    return ", ".join(f"{counted[result]} {result.split()[0]}" for result in (EQUAL, PROVED, DIFFER) if counted[result])


def _native(compared: list[dict[str, Any]]) -> str:
    if not compared:
        return ""
    options = _list_options(compared)
    return _count(compared) + (f" ({options})" if options else "")


def _list_options(compared: list[dict[str, Any]]) -> str:
    """The options that cases need whose rules then are as in the release."""
    found = dict.fromkeys(" ".join(each["options"]) for each in compared if each["options"] and each["result"] != DIFFER)
    return ", ".join(f"`{one}`" for one in found)


def _options(releases: list[Release]) -> list[str]:
    items = []
    for option, noticed in NOTICED.items():
        having = [one["minor"] for one in releases if any(" ".join(option) in " ".join(each["options"]) for each in one["compared"])]
        if having:
            items.append(f"- `{' '.join(option)}` ({spans(having)}): {noticed}")
    return items


def _kinds(releases: list[Release]) -> list[str]:
    """An item for each cause of differences: in which releases, and in how many of their cases."""
    found: dict[Cause, list[tuple[int, str]]] = {}
    for one in releases:
        for each in _of(one, NFT, NATIVE):
            for difference in each["differences"]:
                cause = next(cause for cause in CAUSES if cause.explains(one["minor"], each, *difference))
                found.setdefault(cause, []).append((one["minor"], f"{each['backend']} {each['case']}"))
    items = []
    for cause, places in sorted(found.items(), key=lambda item: CAUSES.index(item[0])):
        where = f"{spans(minor for minor, _ in places)}, {len(set(places))} cases"
        items.append(f"- {cause.packets} ({where}): {cause.theirs}; netinit: {cause.ours}")
    return items


def spans(minors: Iterable[int]) -> str:
    """Minor releases as ranges: 1.3 to 1.7, 1.9."""
    return ", ".join(f"1.{first}" if first == last else f"1.{first} to 1.{last}" for first, last in _ranges(sorted(set(minors))))


def _ranges(minors: list[int]) -> Iterator[tuple[int, int]]:
    first = last = minors[0]
    for minor in minors[1:]:
        if minor != last + 1:
            yield first, last
            first = minor
        last = minor
    yield first, last
