"""kill -9 at any moment: the next run ends right. `make prove` kills more often."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import subprocess
import time

import pytest

from laboratory import Pod
from netinit.options import Options
from programming import (
    FOLDERS,
    REDIRECT,
    TOOL,
    TPROXY,
    VARIANTS,
    apply_in,
    check_same,
    end,
    forget_priority,
    needs,
    remove_in,
    run_tool,
    start_tool,
    state,
)
from sweeps import choose

KILLS = choose(12, 200)
KILLS_OF_PYTHON = choose(4, 20)


@pytest.mark.timeout(400)
def test_after_a_kill_at_any_moment_the_next_run_ends_right(require_netns):
    """Every moment of the first run, from before the interpreter is up to after the last commit."""
    cases = [(variant, arguments, *measure(variant, arguments)) for variant in VARIANTS for arguments in (REDIRECT, TPROXY)]
    chance = random.Random(7)
    interrupted = {"nothing yet": 0, "half": 0, "all": 0}
    for number in itertools.count():
        if number >= KILLS and all(interrupted.values()):
            break
        variant, arguments, clean, wanted, duration = cases[number % len(cases)]
        with Pod() as pod:
            process = start_tool(pod, *arguments, "--backend", variant)
            time.sleep(chance.uniform(0.1, 0.9) * duration)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            end(process)
            left = state(pod)
            interrupted["nothing yet" if left == clean else "all" if left == wanted else "half"] += 1

            apply_in(pod, Options.from_argv([*arguments, "--backend", variant]))
            check_same(state(pod), wanted, f"kill {number} of {variant} {arguments}")


def measure(variant, arguments):
    """The state of a pod before and after a run that nobody disturbs, and how long that takes in seconds."""
    needs(variant)
    with Pod() as pod:
        clean = state(pod)
        began = time.monotonic()
        end(start_tool(pod, *arguments, "--backend", variant))
        return clean, state(pod), time.monotonic() - began


def test_when_python_alone_is_killed_its_programs_finish_before_the_next_run_looks(pod):
    needs("iptables-nft")
    options = Options.from_argv(TPROXY)
    chance = random.Random(8)
    apply_in(pod, options)
    wanted = state(pod)
    remove_in(pod)
    began = time.monotonic()
    end(start_tool(pod, *TPROXY))
    duration = time.monotonic() - began
    for number in range(KILLS_OF_PYTHON):
        remove_in(pod)
        process = start_tool(pod, *TPROXY)
        time.sleep(chance.uniform(0.4, 1.0) * duration)
        process.kill()
        apply_in(pod, options)  # at once: the children may still be at work
        end(process)
        check_same(state(pod), wanted, f"kill {number}")


def test_a_killed_change_is_finished_by_the_next_one(pod):
    needs("iptables-nft")
    old = Options.from_argv([*REDIRECT, "-o", "9000", "--reconcile"])
    new = Options.from_argv([*TPROXY, "--reconcile"])
    apply_in(pod, new)
    wanted = forget_priority(state(pod))
    chance = random.Random(9)
    for number in range(KILLS_OF_PYTHON):
        apply_in(pod, old)
        process = start_tool(pod, *TPROXY, "--reconcile")
        time.sleep(chance.uniform(0.03, 0.12))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        end(process)
        apply_in(pod, new)
        check_same(forget_priority(state(pod)), wanted, f"kill {number}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_change_killed_between_two_tables_leaves_nothing_behind(pod, variant):
    """The killed run spared eth9 in the table mangle already and in nat not yet; the next one knows nothing of eth9."""
    needs(variant)
    options = Options.from_argv([*TPROXY, "--backend", variant])
    clean = state(pod)
    apply_in(pod, options)
    wanted = state(pod)
    for family in ("iptables", "ip6tables"):
        for chain, option in (("PREROUTING", "-i"), ("OUTPUT", "-o")):
            command = [variant.replace("iptables", family), "-w", "-t", "mangle", "-I", chain, "1", option, "eth9", "-j", "RETURN"]
            pod.run(command, check=True)

    apply_in(pod, options.replace(reconcile=True))
    check_same(state(pod), wanted, "the rules of the killed change")
    remove_in(pod, options)
    check_same(state(pod), clean, "removed")


SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
REQUESTS = choose(9, 48)  # each of the signals to each of the runs, at least


@pytest.mark.timeout(400)
def test_a_signal_to_a_run_from_outside_is_the_childs_to_answer_and_leaves_all_or_nothing(require_netns):
    """Every moment of a first run, a hand-over and a removal by --netns: nothing half, and exit code and words say which."""
    needs("iptables-nft")
    needs("iptables-legacy")
    first = ("apply", *TPROXY, "--backend", "iptables-nft")
    cases = [  # what was there, and what is run
        ((), first),
        (("apply", *TPROXY, "--backend", "iptables-legacy"), (*first, "--reconcile")),
        (first, ("remove",)),
    ]
    durations = [measure_outside(before, words) for before, words in cases]
    chance = random.Random(11)
    seen = {"too early": 0, "went back": 0, "done": 0}
    for number in itertools.count():
        if number >= REQUESTS and seen["went back"] >= choose(2, 5) and seen["done"]:
            break
        (before, words), (duration, wanted) = cases[number % len(cases)], durations[number % len(cases)]
        asked = SIGNALS[number // len(cases) % len(SIGNALS)]
        with Pod() as pod:
            if before:
                assert run_tool(pod, *before).returncode == 0
            was = state(pod)
            process = start_outside(pod, words)
            time.sleep(chance.uniform(0.3, 1.0) * duration)
            process.send_signal(asked)
            said = end(process)
            now = state(pod)
            story = f"{asked.name} {number} to {' '.join(words)}: exit code {process.returncode}\n{said}"
            if f"ended by {asked.name}; everything is as it was before" in said:
                seen["went back"] += 1
                assert process.returncode == (130 if asked == signal.SIGINT else 1), story
                check_same(now, was, story)
            elif process.returncode == 0:
                seen["done"] += 1
                check_same(forget_priority(now), forget_priority(wanted), story)
            else:  # before there was anything to go back from, or when the run had told of its end
                seen["too early"] += 1
                assert process.returncode in (-asked, 130), story
                check_same(forget_priority(now), forget_priority(wanted if "programmed by" in said or "removed" in said else was), story)


def start_outside(pod, words):
    return subprocess.Popen([*TOOL, *words, "--netns", pod.path], env={"PATH": FOLDERS}, stderr=subprocess.PIPE, text=True)


def measure_outside(before, words):
    """How long a run that nobody disturbs takes, in seconds, and what it leaves."""
    with Pod() as pod:
        if before:
            assert run_tool(pod, *before).returncode == 0
        began = time.monotonic()
        said = end(start_outside(pod, words))
        assert "\terror\t" not in said, said
        return time.monotonic() - began, state(pod)
