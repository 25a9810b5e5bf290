"""What netinit makes of each Istio release since 1.0: its rules, its injection template, its flags; writes docs/compatibility.md.

NETINIT_ISTIO names a git directory or clone of Istio with its tags. Run by `make compatibility` as root: rules are compared as the
kernel lists them, and where they are not equal, `netinit diff` says what that means for packets.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), *(str(ROOT / "tests" / name) for name in ("conformance", "unit/cli"))]

from test_istio_flags import OF_VARIABLES, RELEASES, value_of  # noqa: E402

from helm import HELM  # noqa: E402
from istio_cases import FIRST_WITH_GO, FIRST_WITH_GOLDENS, Case, Istio  # noqa: E402
from netinit.base.errors import NetinitError  # noqa: E402
from netinit.base.net import FAMILIES  # noqa: E402
from netinit.cli import start  # noqa: E402
from netinit.inject import inject_pod, load_config  # noqa: E402
from netinit.lab import Pod, list_rules  # noqa: E402
from netinit.options import Options  # noqa: E402
from programming import apply_in, load  # noqa: E402

PAGE = ROOT / "docs" / "compatibility.md"
VARIANT = "iptables-nft"
EQUAL, PROVED = "equal", "proved equal"
EMPTY = "*filter\n:INPUT ACCEPT\n:FORWARD ACCEPT\n:OUTPUT ACCEPT\nCOMMIT\n"
TUNNEL, SSH, ONE_PORT, NO_IPV6 = ("-e", "0"), ("-d", "22"), ("-z", "15001"), ("--ipv6", "reject")
CLASSIC = ("--layout", "classic")
LAST_CLASSIC = 2
# The options that give an older release's rules, with what its pods notice without them. Tried in this order, together.
ATTEMPTS = ((), TUNNEL, (*TUNNEL, *SSH), (*TUNNEL, *ONE_PORT), (*TUNNEL, *SSH, *ONE_PORT))
NOTICED = {
    CLASSIC: "inbound connections arrive at port 15006, on which the proxy of that release does not listen; without IPv6, inbound"
    " IPv6 is not refused. A pod of that release needs this option (`NETINIT_LAYOUT=classic`)",
    TUNNEL: "what the proxy sends to port 15008 of its own pod goes there directly, not to the inbound port; inbound connections to"
    " port 15008 are not redirected",
    SSH: "inbound connections to port 22 go to the proxy",
    ONE_PORT: "where inbound ports are listed or none is captured, inbound connections go to port 15006 instead of 15001",
}
KINDS_SHOWN = 3
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


@dataclass(frozen=True)
class Compared:
    """How a case ended: with which options the rules are equal or proved equal, else the kinds of packets that differ."""

    case: str
    options: tuple[str, ...]
    result: str
    kinds: tuple[str, ...] = ()


def _list(pod: Pod) -> dict[str, str]:
    return {family.program: list_rules(pod, VARIANT.replace("iptables", family.program) + "-save") for family in FAMILIES}


@functools.cache
def list_theirs(rules: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The rules of a case as the kernel lists them, of the families that the case has."""
    with Pod() as pod:
        for family in FAMILIES:
            if text := dict(rules).get(family.program):
                load(pod, VARIANT, family, text)
        listed = _list(pod)
    return {program: listed[program] for program, _ in rules}


@functools.cache
def list_ours(argv: tuple[str, ...], environ: tuple[tuple[str, str], ...], dns_servers: tuple[str, ...]) -> dict[str, str]:
    """The rules of netinit for options, as the kernel lists them."""
    options = Options.from_argv(argv, dict(environ)).replace(dns_servers=dns_servers, istio_exact=True, backend=VARIANT)
    with Pod() as pod:
        apply_in(pod, options)
        return _list(pod)


def compare(minor: int, case: Case) -> Compared:
    """The case with the fewest options more that make the rules equal, else with those that leave the fewest differences."""
    best: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    for more in (CLASSIC,) if minor <= LAST_CLASSIC else ATTEMPTS:
        if more[2:4] == SSH and ("-b", "*") not in zip(case.argv, case.argv[1:], strict=False):
            continue
        theirs, ours = list_theirs(case.rules), list_ours(_with(case, more), case.environ, case.dns_servers)
        result, kinds = find_meaning(tuple((program, theirs[program], ours[program]) for program in theirs))
        if not kinds:
            return Compared(case.name, more, result)
        if best is None or len(kinds) < len(best[1]):
            best = more, kinds
    assert best is not None
    return Compared(case.name, best[0], "differ", best[1])


def _with(case: Case, more: tuple[str, ...]) -> tuple[str, ...]:
    """The case's arguments with more; excluded ports are added, and without IPv6 the script refused it."""
    given = case.argv[case.argv.index("-d") + 1] if "-d" in case.argv else ""
    words = [",".join(filter(None, (given, "22"))) if word == "22" else word for word in more]
    return (*case.argv, *words, "--ipv6", "on" if case.ipv6 else "reject" if case.refuses_ipv6 and more != CLASSIC else "off")


@functools.cache
def find_meaning(families: tuple[tuple[str, str, str], ...]) -> tuple[str, tuple[str, ...]]:
    """How (program, their listing, our listing) compare, and the kinds of packets that are treated differently."""
    if all(theirs == ours for _, theirs, ours in families):
        return EQUAL, ()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "istio"), Path(folder, "netinit")]
        for side, path in enumerate(files):
            path.write_text("".join(f"# Generated by {program}-save\n{_counted(texts[side])}" for program, *texts in families))
        command = [sys.executable, "-m", "netinit", "diff", *map(str, files), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode not in {0, 3}:
        raise RuntimeError(done.stderr)
    (pair,) = json.loads(done.stdout)["compared"]
    kinds = (f"{'; '.join(one['who'])}: {one['before']} → {one['after']}" for one in pair["differences"])
    return PROVED, tuple(dict.fromkeys(kinds))


def _counted(listing: str) -> str:
    """A listing with counters, as `netinit diff` reads it; one of no rule has an empty table."""
    return re.sub(r"^(:\S+ \S+)$", r"\1 [0:0]", listing or EMPTY, flags=re.MULTILINE)


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
    return tuple(map(int, tag.split(".")))


def find_kubernetes(istio: Istio, tag: str) -> str:
    """The oldest Kubernetes that the release's own sources ask for."""
    for path in STATEMENTS:
        if path in istio.files(tag) and (found := re.search(r'[mM]inK8SVersion\s+=\s*"?(?:1\.)?(\d+)|Kubernetes 1\.(\d+) or newer', istio.read(tag, path))):
            return f"1.{found[1] or found[2]}"
    return "not stated"


def spans(minors: Iterable[int]) -> str:
    """Minor releases as ranges: 1.3 to 1.7, 1.9."""
    found: list[list[int]] = []
    for minor in sorted(set(minors)):
        if found and minor == found[-1][1] + 1:
            found[-1][1] = minor
        else:
            found.append([minor, minor])
    return ", ".join(f"1.{first}" if first == last else f"1.{first} to 1.{last}" for first, last in found)


@dataclass(frozen=True)
class Release:
    """A row of the page."""

    minor: int
    tag: str
    compared: tuple[Compared, ...]
    template: str
    flags: str
    kubernetes: str


def read_release(istio: Istio, minor: int) -> Release:
    """Everything about a release."""
    tag = istio.releases[minor]
    compared = tuple(compare(minor, case) for case in istio.cases(minor))
    return Release(minor, tag, compared, render_template(istio, tag), check_flags(istio, minor), find_kubernetes(istio, tag))


def write_page(releases: list[Release]) -> str:
    """The page."""
    used = ", ".join(_version(program) for program in (VARIANT, "nft"))
    return "\n".join((INTRODUCTION.format(versions=used), *write_rows(releases), OPTIONS_TEXT, *_options(releases), KINDS_TEXT, *_kinds(releases)))


def _version(program: str) -> str:
    return subprocess.run([program, "--version"], check=True, capture_output=True, text=True).stdout.strip().replace(" v", " ", 1)


def write_rows(releases: list[Release]) -> list[str]:
    """The table of releases."""
    rows = ["| release | rules from | cases | rules | injection template | flags | Kubernetes |", "| --- | --- | --- | --- | --- | --- | --- |"]
    for one in releases:
        source = "script" if one.minor < FIRST_WITH_GO else "Go tests" if one.minor < FIRST_WITH_GOLDENS else "golden files"
        counted = Counter((each.result, each.options if each.result != "differ" else ()) for each in one.compared)
        rules = ", ".join(
            f"{number} {result}" + (f" with `{' '.join(options)}`" if options else "") for (result, options), number in counted.items()
        )
        rows.append(f"| {one.tag} | {source} | {len(one.compared)} | {rules} | {one.template} | {one.flags} | {one.kubernetes} |")
    return rows


def _options(releases: list[Release]) -> list[str]:
    rows = ["| option | releases | without it |", "| --- | --- | --- |"]
    for option, noticed in NOTICED.items():
        having = [one.minor for one in releases if any(set(option) <= set(each.options) for each in one.compared)]
        rows.append(f"| `{' '.join(option)}` | {spans(having)} | {noticed} |")
    return rows


def _kinds(releases: list[Release]) -> list[str]:
    found: dict[tuple[str, ...], list[tuple[int, str]]] = {}
    for one in releases:
        for each in one.compared:
            if each.kinds:
                found.setdefault(each.kinds, []).append((one.minor, each.case))
    rows = ["| releases | cases | packets: with Istio's rules → with netinit's |", "| --- | --- | --- |"]
    for kinds, where in sorted(found.items(), key=lambda item: item[1]):
        more = [f"and {len(kinds) - KINDS_SHOWN} more"] * (len(kinds) > KINDS_SHOWN)
        text = "<br>".join((*kinds[:KINDS_SHOWN], *more)).replace("|", r"\|")
        rows.append(f"| {spans(minor for minor, _ in where)} | {', '.join(dict.fromkeys(case for _, case in where))} | {text} |")
    return rows


INTRODUCTION = """\
# Compatibility with Istio's releases

`make compatibility` (root; `NETINIT_ISTIO` names a git directory of Istio with its tags) writes this page. For the last patch of each
minor release it takes the release's own sources:

- **rules**: the cases that the release itself has (the golden files or Go tests of its `istio-iptables`; up to 1.4 its shell script, run
  with the options that its template gives). Istio's rules and those of netinit with `--istio-exact` are loaded into the kernel. `equal`:
  the same listing, in order. `proved equal`: [`netinit diff`](commands/diff.md) proves that no packet is treated differently. `with`: so with
  these options, see [below](#options-for-older-releases). `differ`: see [the packets](#packets-that-are-treated-differently).
- **injection template**: `netinit inject` with the ConfigMap of the release's chart and its default values, for a pod with one
  container; netinit takes the arguments of the init container that it gives.
- **flags**: those flags and variables of the release's `istio-iptables` that netinit takes under that name.
- **Kubernetes**: the oldest that the release's sources ask for.

Programs: {versions}. Kernels, and other versions of these programs: [Kernels](kernels.md).

## Releases
"""
OPTIONS_TEXT = """
## Options for older releases

netinit programs the rules of the newest release. With these options, packets are treated as in the older one:
"""
KINDS_TEXT = """
## Packets that are treated differently

What is left with the options that leave the fewest differences. Go tests of 1.5 to 1.11 list few cases, most of
IPv6 alone; those of 1.6 to 1.8 capture DNS by a variable of the test program, which is no option. Golden files that capture DNS without
a name server are left out: no pod has none.
"""


def main() -> None:
    """Write the page."""
    istio = Istio(os.environ["NETINIT_ISTIO"])
    releases = []
    for minor in istio.releases:
        releases.append(read_release(istio, minor))
        print(releases[-1].tag, *Counter(each.result for each in releases[-1].compared).items(), flush=True)
    PAGE.write_text(write_page(releases) + "\n")


if __name__ == "__main__":
    main()
