"""What every test may ask for: pods in which rules meet real connections, and the conformance data."""

from __future__ import annotations

import ctypes
import difflib
import functools
import gc
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings
from hypothesis.internal.conjecture import providers

import lab_servers
from laboratory import Pod
from netinit.lab import find_obstacle
from randomness import some
from readable import find_closed, find_reading_obstacle, find_unshare_obstacle, make_prefix, wanted

ROOT = Path(__file__).parent.parent
XTABLES_LOCK = Path("/run/xtables.lock")
CLONE_NEWNS, MS_BIND, MS_REC, MS_PRIVATE = 0x20000, 0x1000, 0x4000, 0x40000  # linux/sched.h, linux/mount.h
# No example fails for being slow: how long it takes depends on what else the machine does. The same examples each time, so
# that a change is judged by what it changed; `--hypothesis-profile new-examples`, which `make prove` gives, draws others.
PROFILES = {"netinit": True, "new-examples": False}
for name, same in PROFILES.items():
    settings.register_profile(name, deadline=None, derandomize=same, database=None, max_examples=some(40), suppress_health_check=[HealthCheck.too_slow])
# Of a mutant it is asked whether an example fails, not which is the smallest.
settings.register_profile("mutants", settings.get_profile("netinit"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("netinit")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("netinit")
    group.addoption(
        "--require-netns", action="store_true", help="fail, not skip, where no network namespace can be made"
    )
    group.addoption("--update-golden", action="store_true", help="rewrite the golden files with what the code says now")


def have_own_lock() -> None:
    """This process gets a file of its own at the path of the machine's lock of iptables, and so does all that it starts.

    Else a test waits for what others hold, for longer than `apply` does on a busy machine. Nothing where mounts are refused.
    """
    libc = ctypes.CDLL(None)
    if os.geteuid() or not XTABLES_LOCK.parent.is_dir() or libc.unshare(CLONE_NEWNS):
        return
    if not XTABLES_LOCK.exists():
        XTABLES_LOCK.touch(mode=0o600)
    with tempfile.NamedTemporaryFile(prefix="xtables-lock-") as own:  # the mount keeps the file
        if not libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None):
            libc.mount(own.name.encode(), bytes(XTABLES_LOCK), None, MS_BIND, None)


def pytest_configure(config: pytest.Config) -> None:
    """What all tests of a session share: examples that are the same each time, programs that are found, signals that are heard."""
    if config.getoption("--hypothesis-profile") != "new-examples":
        # Else numbers and texts of all modules that a worker has imported by then are drawn from, too.
        providers._get_local_constants = lambda: providers._local_constants  # type: ignore[attr-defined]
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type] # jsonschema imports it, which parses 38 grammars, for addresses that nobody checks
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])  # as after `su`
    if os.environ.get("PYTEST_XDIST_WORKER"):
        have_own_lock()
    # A session behind `&` of a script or behind nohup ignores these, and so would what tests start and interrupt.
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Thousands of tests stay from here to the end: nobody looks through them for garbage again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # what is garbage by now stays, too, and is little: to look for it takes a sixth of a worker's start
        gc.set_threshold(20_000, 20, 20)  # else a test that parses the whole package spends a third of its time on garbage
        gc.enable()


@functools.cache
def obstacle() -> str | None:
    return find_obstacle()


def insist_on_namespaces(config: pytest.Config) -> None:
    reason = obstacle()
    if reason is None:
        return
    if config.getoption("--require-netns"):
        pytest.fail(f"--require-netns: {reason}", pytrace=False)
    pytest.skip(f"no network namespaces: {reason}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who gives tests to workers, where there are several."""
    return import_module("sharing").Scheduler(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first, where several workers run them."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        items.sort(key=lambda item: import_module("sharing").rank(item.nodeid))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """A worker tells of setting up and tearing down only what somebody is shown: failures and skips, else all where one asks for it."""
    if not os.environ.get("PYTEST_XDIST_WORKER") or item.config.getoption("durations") or item.config.getoption("xmlpath"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("netns"):
        insist_on_namespaces(item.config)
    for marker, kind in (("mounts", "mount"), ("users", "user")):
        if item.get_closest_marker(marker) and (reason := find_unshare_obstacle(kind)):
            pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says why tests were skipped: a line for each reason, however many they are and wherever they stand."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped)
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"{number} skipped: {reason}")


@pytest.fixture
def require_netns(request: pytest.FixtureRequest) -> None:
    """The test is skipped, or fails with --require-netns, where no network namespace can be made."""
    insist_on_namespaces(request.config)


@pytest.fixture
def readable(require_netns: None) -> tuple[str, ...]:
    """What to put before a command that runs as an ordinary user, so that it can read the checkout and this Python."""
    if reason := find_reading_obstacle():
        pytest.skip(reason)
    return make_prefix(wanted())


@pytest.fixture(scope="session", autouse=True)
def servers_of_this_process() -> Iterator[Callable[..., Any]]:
    """How the laboratory starts a server by itself: while tests run, a small process forks it, see `lab_servers`."""
    own = import_module("server_processes")._begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("server_processes._begin", lab_servers.Child)
        yield own


@pytest.fixture(scope="session", autouse=True)
def proofs_of_this_process() -> Iterator[None]:
    """Lint proves once for all tests of this process which of the same options have no effect: half of a second for some options."""
    proofs = import_module("netinit.questions.lint.effect_proof")
    find, known = proofs.find_without_effect, dict[Any, tuple[Any, ...]]()

    def find_once(*asked: Any) -> tuple[Any, ...]:
        if asked not in known:
            known[asked] = tuple(find(*asked))
        return known[asked]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proofs, "find_without_effect", find_once)
        yield


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that other users can read; those of `tmp_path` are closed to them again whenever another pytest starts on this machine."""
    with tempfile.TemporaryDirectory(prefix="netinit-open-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if closed := find_closed(folder):
            pytest.skip(f"other users cannot enter {closed}, where temporary folders are")
        yield folder


@pytest.fixture
def pod(require_netns: None) -> Iterator[Pod]:
    """A fresh pod with IPv4 and IPv6 and nobody in it; `start_servers(pod)` brings the usual players."""
    with Pod() as made:
        yield made


@pytest.fixture
def pod_v4only(require_netns: None) -> Iterator[Pod]:
    """A fresh pod with IPv4 addresses alone; the kernel's IPv6 is on, with ::1 and a link-local address."""
    with Pod(ipv6=False) as made:
        yield made


@pytest.fixture
def pod_v6only(require_netns: None) -> Iterator[Pod]:
    """A fresh pod with IPv6 addresses alone beside 127.0.0.1."""
    with Pod(ipv4=False) as made:
        yield made


@pytest.fixture(scope="module")
def templates_parsed_once() -> Iterator[None]:
    """The templates of an injector's configuration are parsed once for all tests of a module, however often it is loaded."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("netinit.inject.adding.config._template", functools.cache(import_module("netinit.inject.adding.config")._template))
        yield


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of Istio's own cases."""
    named = os.environ.get("NETINIT_CONFORMANCE")
    folder = Path(named) if named else ROOT.parent / "shared" / "conformance"
    if not (folder / "rules").is_dir():
        source = "NETINIT_CONFORMANCE" if named else "the default; NETINIT_CONFORMANCE names another"
        pytest.skip(f"no conformance data in {folder} ({source})")
    return folder


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Golden files are to be rewritten instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture
def golden(update_golden: bool) -> Callable[[Mapping[Path, str]], None]:
    """Compares texts with the files that keep them, or rewrites the files where --update-golden is given."""

    def compare(texts: Mapping[Path, str]) -> None:
        told = []
        for path, text in texts.items():
            if update_golden:
                path.write_text(text)
            kept = path.read_text() if path.exists() else None
            if text == kept:
                continue
            name = os.path.relpath(path, ROOT)
            lines = difflib.unified_diff(
                (kept or "").splitlines(), text.splitlines(), f"{name} as kept", "as it is now", lineterm=""
            )
            told += list(lines) or [f"{name} differs in the ends of its lines" if kept else f"{name} is missing"]
        if told:
            remedy = "read the difference; where it is meant, `pytest --update-golden` with this test's name rewrites the files"
            pytest.fail("\n".join([*told, remedy]), pytrace=False)

    return compare
