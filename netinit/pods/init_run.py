"""The init container's run: program or remove by the options, retry, report, and validate.

What changes the namespace is `apply`'s; the node's agent calls that alone.
"""

from __future__ import annotations

import time

from netinit.base.errors import AS_BEFORE, SIGNALS, ApplyError, BusyError, LockedError, NetinitError, ended_by
from netinit.base.logs import discard_stderr
from netinit.kernel import detect
from netinit.kernel.run import Signals
from netinit.options import BACKENDS, Interception, Options, RunOptions
from netinit.options.kinds import ALL, ALONE, IN_PAIRS, NEVER
from netinit.pods.apply import NFT_DIALECT, Outcome, apply, remove

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from netinit.base.logs import Log
    from netinit.options.kinds import Flag

    Result = TypeVar("Result")


def main(options: Options, log: Log) -> int:
    """Program or remove, then validate, as the options say. Return 0; raises NetinitError."""
    signals = Signals()
    if options.pid or options.netns:
        return _reach_out(options, log, signals)
    _program(options, log, signals, locked=False)
    _answer_late_signal(options, log, signals)
    if options.run_validation and not options.cleanup_only:
        from netinit.pods.probe.validate import validate

        validate(options, log)
    return 0


def _answer_late_signal(options: Options, log: Log, signals: Signals) -> None:
    """Handle a signal that arrived after the commit: only the following steps are skipped."""
    signals.stop()
    number = signals.take()
    if number and options.run_validation and not options.cleanup_only:
        raise ended_by(number, "the rules are programmed, and were not validated")
    if number:
        log.info(f"{SIGNALS[number]} came when everything was done")


def _reach_out(options: Options, log: Log, signals: Signals) -> int:
    from netinit.backends.named_pod import NamedPod

    changes = options.cleanup_only or not options.skip_rule_apply
    with NamedPod(options, refuses=changes and not options.host_network) as pod:
        with pod.lock(options.lock_timeout, log.warn):
            pod.modify_inside(lambda own: _program(pod.options, log, own, locked=True), signals)
        _answer_late_signal(options, log, signals)
        if options.run_validation and not options.cleanup_only:
            from netinit.pods.probe.validate import validate

            ids = (detect.CAP_SETUID, detect.CAP_SETGID)  # the validation connects as the proxy and as the application
            pod.run_inside(lambda: validate(pod.options, log), joins=True, keep=ids)
    return 0


def _program(options: Options, log: Log, signals: Signals, *, locked: bool) -> None:
    """Program or remove, and report it; a report that cannot be written is no error.

    `signals` are deferred from the first step on, also after a success.
    """
    try:
        if options.cleanup_only:
            outcome = retry(lambda resolved: remove(resolved, locked=locked, signals=signals), options, log, signals)
        elif options.skip_rule_apply:
            return
        else:
            wanted = log.wants("info")
            outcome = retry(lambda own: apply(own, final=wanted, locked=locked, signals=signals), options, log, signals)
    except NetinitError:
        number = signals.take()
        if number:  # the signal killed a program that only read; errors of a change handle their signal themselves
            raise ended_by(number, AS_BEFORE) from None
        raise
    try:
        _log_outcome(outcome, log, removed=options.cleanup_only)
    except OSError:  # a full disk
        discard_stderr()
    if outcome.unended:
        raise ApplyError(f"the rules are programmed, but {outcome.unended}")


def retry(act: Callable[[Options], Result], options: Options, log: Log, signals: Signals) -> Result:
    """Call `act`, and up to --retries times again while another process holds a lock or the kernel is busy (EAGAIN, EBUSY).

    It is called again after --retry-delay, within --lock-timeout in total. Each attempt is rolled back before the next, which
    waits for locks for the remaining time. A run that was asked to end is not retried.
    """
    deadline = time.monotonic_ns() + options.lock_timeout
    left = options.retries
    while True:
        try:
            return act(options if left == options.retries else options.replace(lock_timeout=deadline - time.monotonic_ns()))
        except (LockedError, BusyError) as error:
            if not left or signals.pending or time.monotonic_ns() + options.retry_delay >= deadline:
                raise
            left -= 1
            log.warn(f"{error}; retrying in {options.retry_delay / 10**9:g} s ({options.retries - left} of {options.retries})")
            time.sleep(options.retry_delay / 10**9)


def _log_outcome(outcome: Outcome, log: Log, *, removed: bool) -> None:
    if removed:
        log.info("removed all rules" if outcome.changed else "there were no rules to remove")
        return
    for warning in (*outcome.warnings, *_lint(outcome)):
        log.warn(warning)
    log.info(f"programmed by {outcome.backend}" if outcome.changed else f"rules are as planned ({outcome.backend}): nothing to do")
    for note in outcome.notes:
        log.info(note)
    for name, rules in outcome.rules.items():
        what = "nftables state" if name == NFT_DIALECT else f"iptables state ({name})"
        log.info(f"Final {what}{', as committed' if outcome.committed else ''}:", rules)


def _lint(outcome: Outcome) -> tuple[str, ...]:
    """Return warnings about contradicting options."""
    options = outcome.options
    if options is None or not may_contradict(options):
        return ()
    from netinit.questions.lint import lint

    found = [f"{finding.option}: {finding.message}" for finding in lint(options, outcome.plan, proved=False)]
    return tuple([text for text in found if text not in outcome.warnings])


def may_contradict(options: RunOptions) -> bool:
    """Whether lint may object to options. Its import takes as long as the rest of a start, so that usual pods do without.

    Usual are defaults, and what pods without annotations capture. Beside them lint may object to an option without the one
    that it needs, to two with one port of the proxy, to a value that is doubtful in any option, and to what `_when` says.
    """
    weight, own_ports, chosen = NEVER, [], []
    for flag in RunOptions.flags:
        value, kind = getattr(options, flag.field), flag.kind
        if kind.is_own_port and value:
            own_ports.append(value)
        if value == (ALL if flag.without_annotation == ALL else flag.default):
            continue
        if kind.is_own_port:
            chosen.append(value)
        if (flag.needs and not getattr(options, flag.needs)) or (kind.is_doubtful and kind.is_doubtful(value)):
            return True
        weight += _when(flag) if value != () else min(_when(flag), IN_PAIRS)  # nothing captured one way: what of the other?
    return weight >= ALONE or any(own_ports.count(port) > 1 for port in chosen) or _lacks_sets(options)


def _lacks_sets(options: RunOptions) -> bool:
    """Whether options ask for address sets of a backend that makes none."""
    backend = BACKENDS.get(options.wanted_backend)
    return bool(backend and not backend.with_sets) and options.ipset_threshold != RunOptions.flag("ipset_threshold").default


def _when(flag: Flag) -> int:
    """When lint may object to an option: what only lets traffic pass contradicts nothing but another option."""
    if flag.contradicts is not None:
        return flag.contradicts
    if flag.field not in Interception.by_field:
        return NEVER
    return IN_PAIRS if flag.bypass and flag.without_annotation != ALL else ALONE
