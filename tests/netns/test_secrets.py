"""What an application has in its environment never comes out of a run that shares it."""

from __future__ import annotations

import pytest

from programming import FOLDERS, REDIRECT, SIDECAR, needs, run_tool

SECRET = "s3cr3t-of-the-application"
ENVIRONMENT = {"DB_PASSWORD": SECRET, "PROXY_CONFIG": f'{{"tracing": "{SECRET}"}}', "LD_LIBRARY_PATH": f"/{SECRET}", "XTABLES_LIBDIR": f"/{SECRET}", "PYTHONPATH": f"/{SECRET}"}
FAILURES = {
    "a wrong option": ["-p", "0"],
    "an unknown flag": ["--no-such-flag"],
    "no backend": ["--backend", "iptables-legacy"],
    "the lock file": ["--backend", "libiptc"],
    "a pod that is gone": ["--pid", "4194304"],
    "the validation": ["--skip-rule-apply", "--run-validation", "--probe-timeout", "200ms"],
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("more", [[], ["--log_as_json"], ["--debug"]], ids=["lines", "json", "debug"])
def test_neither_the_log_nor_the_termination_message_holds_a_secret(pod, tmp_path, failure, more):
    log = tmp_path / "termination-log"
    log.touch()
    odd = {"XTABLES_LOCKFILE": str(tmp_path)} if "lock" in failure or "backend" in failure else {}
    devices = tmp_path / "dev"  # a /dev of its own: the machine's is one for all mount namespaces
    devices.mkdir()
    script = (
        f"mount -t tmpfs none {devices} && touch {devices}/null {devices}/termination-log && mount --bind /dev/null {devices}/null"
        f' && mount --bind {log} {devices}/termination-log && mount --rbind {devices} /dev && exec "$@"'
    )
    prefix = ["unshare", "-m", "sh", "-c", script, "sh"]
    failed = run_tool(pod, "apply", *SIDECAR, *FAILURES[failure], *more, env={**ENVIRONMENT, **odd, "PATH": FOLDERS}, prefix=prefix)
    assert failed.returncode in (1, 2, 126), failed.stderr
    assert log.read_text(), "no termination message was written"
    for text in (failed.stdout, failed.stderr, log.read_text()):
        assert SECRET not in text, text


@pytest.mark.parametrize("backend", ["iptables-nft", "iptables-legacy", "nftables", "libiptc"])
def test_programs_and_libraries_get_nothing_of_the_environment_but_the_search_path_and_the_lock(pod, tmp_path, backend):
    needs(backend)
    trap = tmp_path / "libxt_tcp.so"
    trap.write_bytes(b"not a library: whoever loads this ends with an error")
    environment = {name: str(tmp_path) for name in ("XTABLES_LIBDIR", "IPTABLES_LIB_DIR", "IP6TABLES_LIB_DIR", "IPTABLES_LIBDIR")}
    done = run_tool(pod, "apply", *REDIRECT, "--backend", backend, env=environment)
    assert done.returncode == 0, done.stderr
    assert run_tool(pod, "verify", *REDIRECT, env=environment).returncode == 0
