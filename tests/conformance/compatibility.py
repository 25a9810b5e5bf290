"""What netinit makes of each Istio release since 1.0: its rules, its injection template, its flags; writes docs/compatibility.md.

NETINIT_ISTIO names a git directory or clone of Istio with its tags. Run by `make compatibility` as root: rules are compared as the
kernel lists them, and where they are not equal, `netinit diff` says what that means for packets. What was found is written to
compatibility.json beside this file, and the page from that.

    python tests/conformance/compatibility.py [1.31 ...]
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), *(str(ROOT / "tests" / name) for name in ("conformance", "unit/cli"))]

from test_istio_flags import OF_VARIABLES, RELEASES, value_of  # noqa: E402

import older_rules  # noqa: E402
from compatibility_page import (  # noqa: E402
    CLASSIC,
    DATA,
    DIFFER,
    EQUAL,
    IPV6,
    ONE_PORT,
    PAGE,
    PROVED,
    SSH,
    TUNNEL,
    write_page,
)
from helm import HELM  # noqa: E402
from istio_cases import FIRST_WITH_GO, Case, Istio  # noqa: E402
from lab_state import list_rules  # noqa: E402
from laboratory import Pod  # noqa: E402
from netinit.base.errors import NetinitError  # noqa: E402
from netinit.base.net import FAMILIES  # noqa: E402
from netinit.cli import start  # noqa: E402
from netinit.inject import inject_pod, load_config  # noqa: E402
from netinit.options import Options  # noqa: E402
from netinit.rules.infer_options import release_plans as older  # noqa: E402
from programming import VARIANTS, apply_in, load, run_tool  # noqa: E402

EMPTY = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"
LAST_CLASSIC = 2
NATIVE = "nftables"
# The options that give an older release's rules, tried in this order, together.
ATTEMPTS = ((), TUNNEL, (*TUNNEL, *SSH), (*TUNNEL, *ONE_PORT), (*TUNNEL, *SSH, *ONE_PORT))
POD = {
    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}]},
}  # fmt: skip
CHARTS = (
    "manifests/charts/istio-control/istio-discovery", "manifests/istio-control/istio-discovery", "install/kubernetes/helm/istio",
)  # fmt: skip
CONFIG_MAPS = ("istiod-injector-configmap.yaml", "sidecar-injector-configmap.yaml")
MORE_VALUES = ("manifests/global.yaml", "manifests/charts/global.yaml")
STATEMENTS = ("istioctl/pkg/install/k8sversion/version.go", "istioctl/pkg/install/pre-check.go", "install/kubernetes/helm/istio/README.md")
RECORDED = ROOT / "tests" / "conformance" / "istio_rules.json"
TRACED = ("logging",)  # with rules that log, which were a developer's
RECORDED_CASES = (
    "ip-range", "dns-uid-gid", "tproxy", "ipv6-uid-gid", "inbound-ports-wildcard", "inbound-ports-wildcard-tproxy", "drop-invalid",
    "kube-virt-interfaces", "outbound-owner-groups", "RulesWithIpRange", "RulesWithTproxy", "HandleInboundIpv4RulesWithUidGid",
    "RulesWithLoopbackIpInOutboundIpRanges", "all ports (IPv6 off)", "all ports (IPv6 on)", "listed ports (IPv6 off)", "networks (IPv6 on)", "tproxy (IPv6 off)",
)  # fmt: skip
RECORDED_NATIVE = ("tproxy", "inbound-ports-tproxy", "drop-invalid", "ipv6-uid-gid", "kube-virt-interfaces", "dns-uid-gid")
_LINK_LOCAL = re.compile(r", fe80::[0-9a-f:]+(?:-[0-9a-f:]+)?")  # of a pod's device: another one each time
ROUTED = """rule add fwmark 1337 lookup 133
route add local default dev lo table 133
"""  # what Istio adds to its rules in TPROXY mode


@dataclass(frozen=True)
class Compared:
    """How a case ended: with which options the rules are equal or proved equal, else the packets that differ."""

    case: str
    backend: str
    options: tuple[str, ...]
    result: str
    differences: tuple[tuple[str, str, str], ...] = ()  # which packets, what happens to them with Istio's rules, and with netinit's


def _list(pod: Pod, variant: str) -> dict[str, str]:
    return {family.program: list_rules(pod, variant.replace("iptables", family.program) + "-save") for family in FAMILIES}


@functools.cache
def list_theirs(rules: tuple[tuple[str, str], ...], variant: str) -> dict[str, str]:
    """The rules of a case as the kernel lists them, of the families that the case has."""
    with Pod() as pod:
        for family in FAMILIES:
            if text := dict(rules).get(family.program):
                load(pod, variant, family, text)
        listed = _list(pod, variant)
    return {program: listed[program] for program, _ in rules}


@functools.cache
def list_ours(argv: tuple[str, ...], environ: tuple[tuple[str, str], ...], dns_servers: tuple[str, ...], variant: str) -> dict[str, str]:
    """The rules of netinit for options, as the kernel lists them."""
    options = Options.from_argv(argv, dict(environ)).replace(dns_servers=dns_servers, istio_exact=True, backend=variant)
    with Pod() as pod:
        apply_in(pod, options)
        return _list(pod, variant)


def compare(minor: int, case: Case, variant: str) -> Compared:
    """The case with the fewest options more that make the rules equal, else with those that leave the fewest differences."""
    best: Compared | None = None
    for more in (CLASSIC,) if minor <= LAST_CLASSIC else ATTEMPTS:
        if more[2:4] == SSH and ("-b", "*") not in zip(case.argv, case.argv[1:], strict=False):
            continue
        theirs, ours = list_theirs(case.rules, variant), list_ours(_with(case, more), case.environ, case.dns_servers, variant)
        result, differences = find_meaning(tuple((program, theirs[program], ours[program]) for program in theirs))
        if best is None or len(differences) < len(best.differences):
            best = Compared(case.name, variant, more, result, differences)
        if not differences:
            break
    assert best is not None
    return best


def _with(case: Case, more: tuple[str, ...]) -> tuple[str, ...]:
    """The case's arguments with more; excluded ports are added, and without IPv6 the script refused it."""
    given = case.argv[case.argv.index("-d") + 1] if "-d" in case.argv else ""
    words = [",".join(filter(None, (given, "22"))) if word == "22" else word for word in more]
    return (*case.argv, *words, "--ipv6", "on" if case.ipv6 else "reject" if case.refuses_ipv6 and more != CLASSIC else "off")


@functools.cache
def find_meaning(families: tuple[tuple[str, str, str], ...]) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """How (program, their listing, our listing) compare, and the packets that are treated differently."""
    if all(theirs == ours for _, theirs, ours in families):
        return EQUAL, ()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "istio"), Path(folder, "netinit")]
        for side, path in enumerate(files):
            path.write_text("".join(f"# Generated by {program}-save\n{_counted(texts[side])}" for program, *texts in families))
        command = [sys.executable, "-m", "netinit", "diff", *map(str, files), "--json"]
        return _read_proof(subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False))


def _read_proof(done: subprocess.CompletedProcess[str]) -> tuple[str, tuple[tuple[str, str, str], ...]]:
    """The answer of `netinit diff --json`."""
    if done.returncode not in {0, 3}:
        raise RuntimeError(done.stderr)
    (pair,) = json.loads(done.stdout)["compared"]
    found = {(_LINK_LOCAL.sub("", one["who"][0]), one["before"], one["after"]) for one in pair["differences"]}
    return (DIFFER if found else PROVED), tuple(sorted(found))  # they come in the order of addresses, that of a device among them


def _counted(listing: str) -> str:
    """A listing with counters, as `netinit diff` reads it; one of no rule has an empty table."""
    return re.sub(r"^(:\S+ \S+)$", r"\1 [0:0]", listing or EMPTY, flags=re.MULTILINE)


def compare_native(case: Case) -> Compared:
    """The live nft rules of a case against what netinit plans: with IPv6 as the case has it, else on."""
    ((_, rules),) = case.rules
    best: Compared | None = None
    with Pod() as pod:
        if "TPROXY" in case.argv:
            for family in ("-4", "-6"):
                pod.run(["ip", family, "-batch", "-"], stdin=ROUTED, check=True)
        pod.run(["nft", "-f", "-"], stdin=rules, check=True)
        for more in ((), *(() if case.ipv6 else (IPV6,))):
            words = [*_with(case, ()), *more, "--backend", NATIVE, "--istio-exact"]
            words += ["--dns-servers", ",".join(case.dns_servers)] * bool(case.dns_servers)
            plan = shlex.join([*(f"{name}={value}" for name, value in case.environ), "apply", *words])
            result, differences = _read_proof(run_tool(pod, "diff", "live", plan, "--json"))
            if best is None or len(differences) < len(best.differences):
                best = Compared(case.name, NATIVE, more, result, differences)
            if not differences:
                break
    assert best is not None
    return best


@functools.cache
def read_case(first: int, case: Case, variant: str) -> str:
    """What the commands say wrongly of a pod with the case's rules, without options. `first`: of the releases with such a pod."""
    with Pod() as pod:
        older_rules.program(pod, variant, first, case.argv, dict(case.rules), ipv6=case.ipv6)
        return older_rules.read_back(pod).wrong


def read_all(istio: Istio, minor: int) -> dict[str, dict[str, str]]:
    """What is said wrongly of the release's rules, by backend and case; empty if nothing is. Go tests of IPv6 alone are no pod's rules."""
    whole = [case for case in istio.cases(minor) if case.name not in TRACED and dict(case.rules).get(FAMILIES[0].program)]
    cases = dict.fromkeys(VARIANTS, whole) | {NATIVE: [case for case in istio.native_cases(minor) if case.name not in TRACED]}
    first = max(one for one in (0, older_rules.FIRST_WITH_ADDRESS, older_rules.FIRST_WITH_IPV6_TPROXY) if one <= minor)
    return {backend: {case.name: read_case(first, case, backend) for case in its} for backend, its in cases.items() if its}


@functools.cache
def list_native(rules: str) -> str:
    """Native rules as the kernel lists them."""
    with Pod() as pod:
        pod.run(["nft", "-f", "-"], stdin=rules, check=True)
        return str(pod.run(["nft", "--stateless", "list", "ruleset"], check=True).stdout)


def record_rules(istio: Istio) -> None:
    """Write the rules of a few cases, as the kernel lists them: one entry for all releases that share them."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], dict[str, object]] = {}
    for minor in istio.releases:
        chosen = [case for case in istio.cases(minor) if case.name in RECORDED_CASES and (minor < older.AFTER or case.name == RECORDED_CASES[0])]
        cases = [(case, list_theirs(case.rules, VARIANTS[0])) for case in chosen]
        cases += [(case, {"nft": list_native(dict(case.rules)["nft"])}) for case in istio.native_cases(minor) if case.name in RECORDED_NATIVE]
        for case, listed in cases:
            entry = {
                "case": case.name, "releases": [], "argv": list(case.argv), "environ": dict(case.environ), "ipv6": case.ipv6,
                "dns_servers": list(case.dns_servers), "rules": {program: text for program, text in listed.items() if text},
            }  # fmt: skip
            found.setdefault((case.name, tuple(listed.items())), entry)["releases"].append(minor)
    RECORDED.write_text(json.dumps([*found.values()], indent=0) + "\n")


def render_template(istio: Istio, tag: str) -> str:
    """Whether the release's template, as its chart renders it, injects a plain pod whose arguments netinit takes."""
    files = istio.files(tag)
    chart = next(chart for chart in CHARTS if f"{chart}/Chart.yaml" in files)
    name = next(name for name in CONFIG_MAPS if f"{chart}/templates/{name}" in files)
    with tempfile.TemporaryDirectory() as folder:
        archive = ["git", "-C", istio.folder, "archive", tag, chart, *(path for path in MORE_VALUES if path in files)]
        subprocess.run(["tar", "x", "-C", folder], input=subprocess.run(archive, check=True, capture_output=True).stdout, check=True)
        words = [word for path in MORE_VALUES if path in files for word in ("-f", f"{folder}/{path}")]
        words += ["--set", "gateways.enabled=false"] if chart.startswith("install") else []
        command = [str(HELM), "template", "istio", f"{folder}/{chart}", "-n", "istio-system", *words, "-s", f"templates/{name}"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    try:
        pod = inject_pod(POD, load_config(text))
        container = next(one for one in pod["spec"]["initContainers"] if one["name"] == "istio-init")
        words = [str(word) for word in (*container.get("command", ()), *container.get("args", ())) if word != "istio-iptables"]
        Options.from_argv(words, {})
    except NetinitError as error:
        return f"refused: {error}".replace("|", r"\|")
    return "injects"


def check_flags(istio: Istio, minor: int) -> str:
    """How many of the release's flags and variables are taken under the name istio-iptables, and which are not."""
    tag = istio.releases[minor]
    if minor < FIRST_WITH_GO - 1:
        (letters,) = re.findall(r'getopts "?:(\S+?)h?:?"? opt', istio.read_script(tag))
        cases = [([f"-{letter}", {"m": "REDIRECT", "i": "*", "x": ""}.get(letter, "1338")], {}) for letter in re.findall(r"[^:ht]", letters)]
    else:
        _, flags, variables = [one for one in RELEASES if _number(one[0]) <= _number(tag)][-1]
        cases = [([f"--{name}={value_of(name)}", *["--dry-run"] * (name == "cni-mode")], {}) for name in flags]
        cases += [([], {name: OF_VARIABLES.get(name, "true")}) for name in variables]
    wrong = [(words or list(environ))[0] for words, environ in cases if not _is_taken(words, environ)]
    return f"{len(cases) - len(wrong)} of {len(cases)}" + (f"; not {', '.join(wrong)}" if wrong else "")


def _is_taken(words: list[str], environ: dict[str, str]) -> bool:
    silent = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with mock.patch("netinit.cli.init_container.do", return_value=0), silent[0], silent[1]:
        return start.run(["istio-iptables", *words], environ) == 0


def _number(tag: str) -> tuple[int, ...]:
    return tuple(map(int, tag.partition("-")[0].split(".")))


def find_kubernetes(istio: Istio, tag: str) -> str:
    """The oldest Kubernetes that the release's own sources ask for."""
    for path in STATEMENTS:
        if path in istio.files(tag) and (found := re.search(r'[mM]inK8SVersion\s+=\s*"?(?:1\.)?(\d+)|Kubernetes 1\.(\d+) or newer', istio.read(tag, path))):
            return f"1.{found[1] or found[2]}"
    return "not stated"


def _compare_all(istio: Istio, minor: int) -> Iterator[Compared]:
    """Every case. Legacy tables must end as nft ones do: equal or proved, with the same options and the same differences."""
    for case in istio.cases(minor):
        found, legacy = (compare(minor, case, variant) for variant in VARIANTS)
        if (found.options, found.differences) != (legacy.options, legacy.differences):
            raise RuntimeError(f"1.{minor}, {case.name}: {found} but with legacy tables {legacy}")
        yield found
    yield from [compare_native(case) for case in istio.native_cases(minor)]


def read_release(istio: Istio, minor: int) -> dict[str, object]:
    """Everything about a release, as the data have it."""
    tag = istio.releases[minor]
    compared = [asdict(one) for one in _compare_all(istio, minor)]
    found = {
        "minor": minor, "tag": tag, "compared": compared, "template": render_template(istio, tag), "flags": check_flags(istio, minor),
        "kubernetes": find_kubernetes(istio, tag), "read_back": read_all(istio, minor),
    }  # fmt: skip
    return json.loads(json.dumps(found))


def main(names: list[str]) -> None:
    """Write the data and the page; `names`: of the minor releases that are read anew, as 1.31. The others keep what was found before."""
    istio = Istio(os.environ["NETINIT_ISTIO"])
    minors = {f"1.{minor}": minor for minor in istio.releases}
    if unknown := [name for name in names if name not in minors]:
        sys.exit(f"{unknown[0]!r} is no release; these are: {', '.join(minors)}")
    found = {one["minor"]: one for one in json.loads(DATA.read_text("utf-8"))["releases"]}
    programs = [_version(program) for program in ("iptables-nft", "nft")]
    for name in names or minors:
        one = found[minors[name]] = read_release(istio, minors[name])
        print(one["tag"], *Counter((each["backend"], each["result"]) for each in one["compared"]).items(), flush=True)
        data = {"programs": programs, "releases": [found[minor] for minor in sorted(found)]}  # written at once: who stops keeps what was found
        DATA.write_text(json.dumps(data, separators=(",", ":")).replace('{"case"', '\n{"case"').replace('{"minor"', '\n{"minor"') + "\n")
        PAGE.write_text(write_page(data))
    record_rules(istio)


def _version(program: str) -> str:
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip().replace(" v", " ", 1)


if __name__ == "__main__":
    main(sys.argv[1:])
