"""`netinit node run`: which questions it takes, and its answers in order."""

from __future__ import annotations

import io
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import netinit
from netinit.base.errors import NamespaceError
from netinit.cli.node import inside
from netinit.cli.node.inside import MAX_BYTES
from netinit.kernel.run import Finished

PATHS = {"uid-web": "/run/netns/cni-1", "uid-static": "/run/netns/cni-2"}
COMMANDS = "explain, audit, verify, draw, doctor, watch, trace, apply"


def question(*words, uids=("uid-web",), **more):
    return {"uids": uids, "title": "shop/web", "environ": {}, "words": words, **more}


@pytest.fixture
def ask(run, monkeypatch):
    """`ask(*questions, flags=[…])`: how the command ended. Answers: `ask.answers`, what was searched for: `ask.searched`."""

    def find(uids, *, attachments, records, folder):
        ask_all.searched.append((sorted(uids), str(attachments._folder), str(records), str(folder)))
        return {uid: PATHS[uid] for uid in uids if uid in PATHS}

    def find_groups(uids, folder):
        ask_all.searched.append((sorted(uids), folder))
        return {"uid-web": 7} if "uid-web" in uids else {}

    def ask_all(*questions, flags=()):
        ask_all.searched = []
        given = "".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in questions)
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        done = run(["netinit", "node", "run", *flags])
        ask_all.answers = [json.loads(line) for line in done.out.splitlines()]
        return done

    monkeypatch.setattr(inside, "find_namespaces", find)
    monkeypatch.setattr(inside, "find_cgroups", find_groups)
    return ask_all


@pytest.fixture
def inner(monkeypatch):
    """Replaces what runs in children, which are not forked: `inner.calls` are the command lines, `inner.run` answers them."""
    from netinit.cli import start

    real = start.run

    def run_one(argv, environ):
        if "--netns" not in argv:
            return real(argv, environ)
        inner.calls.append((argv, environ))
        return inner.run(argv)

    inner = SimpleNamespace(calls=[], run=lambda argv: 0, groups=[], loaded=[])
    monkeypatch.setenv("PATH", "/bin")
    monkeypatch.setattr(start, "run", run_one)
    monkeypatch.setattr(inside.preload, "load_all", inner.loaded.append)
    monkeypatch.setattr(inside, "_in_children", lambda questions, ask: map(ask, questions))
    monkeypatch.setattr(inside.bpf, "of_folder", lambda folder, group: (folder, group))
    monkeypatch.setattr(inside.bpf, "remember", inner.groups.append)
    return inner


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (question("remove"), f"'remove' is not run for a pod; commands: {COMMANDS}"),
        (question("watch"), f"'watch' is not run for a pod; commands: {COMMANDS}"),
        (question("--netns", "x", "apply"), f"'--netns' is not run for a pod; commands: {COMMANDS}"),
        (question(), f"'' is not run for a pod; commands: {COMMANDS}"),
        ("[]", f"'' is not run for a pod; commands: {COMMANDS}"),
        (question("verify", "--watch"), "--watch: goes on until Ctrl-C; run netinit verify --watch on the node itself"),
        (question("verify", environ={"LD_PRELOAD": "x"}), "'LD_PRELOAD' is not a variable of an option"),
        (question("apply", "-b", "80"), "apply: is run for a pod only with --reconcile"),
        (question("apply", "--reconcile", "--run-validation"),
         "--run-validation: is not allowed for a pod of the node; remove it"),
        (question("apply", "--reconcile", "--pid", "1"), "--pid: is not allowed for a pod of the node; remove it"),
        (question("apply", "--reconcile", "--skip-rule-apply"),
         "--skip-rule-apply: is not allowed for a pod of the node; remove it"),
        ("{",
         "the standard input: a question is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
    ],
)  # fmt: skip
def test_a_question_that_is_not_allowed_is_refused_before_any_is_answered(ask, asked, message):
    done = ask(question("verify"), asked)
    assert (done.code, done.out, done.err) == (2, "", f"netinit: {message}\n")
    assert ask.searched == []


def test_a_question_may_nest_no_deeper_than_json_can_be_read(ask):
    done = ask("[" * 100_000)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("netinit: the standard input: a question is not JSON: it is nested too deeply")


def test_each_question_is_answered_with_the_namespace_of_its_pod_and_in_order(ask, inner):
    def answer(argv):
        print(f"{argv[1]} of {argv[-1]}")
        print(f"warning: {argv[-1]}", file=sys.stderr)
        return 3 if argv[1] == "verify" else 0

    inner.run = answer
    asked = [
        question("verify", "-b", "80", environ={"PROXY_UID": "7"}),
        question("draw", uids=["uid-gone", "uid-static"], title=""),
    ]
    flags = ["--netnsFolder", "/n", "--recordsFolder", "/r", "--cgroupFolder", "/c", "--socket", "/s/agent.sock"]
    done = ask(*asked, flags=flags)
    assert (done.code, done.err) == (0, "")
    assert ask.answers == [
        {"code": 3, "answer": "verify of shop/web\n", "notes": "warning: shop/web\n"},
        {"code": 0, "answer": "draw of /run/netns/cni-2\n", "notes": "warning: /run/netns/cni-2\n"},
    ]
    assert inner.calls == [
        (["netinit", "verify", "-b", "80", "--netns", "/run/netns/cni-1"], {"PATH": "/bin", "PROXY_UID": "7"}),
        (["netinit", "draw", "--netns", "/run/netns/cni-2"], {"PATH": "/bin"}),
    ]
    uids = ["uid-gone", "uid-static", "uid-web"]
    assert ask.searched == [(uids, "/s/attachments", "/r", "/n"), (uids, "/c")]
    assert inner.groups == [("/c", 7)]
    assert inner.loaded == [str(Path(netinit.__file__).parent)], "modules that the children need are imported before the forks"


def test_a_long_answer_is_cut(ask, inner):
    def answer(argv):
        print("x" * (MAX_BYTES + 1), end="")
        print("y" * MAX_BYTES, end="", file=sys.stderr)
        return 0

    inner.run = answer
    ask(question("verify"))
    assert ask.answers == [{"code": 0, "answer": "x" * MAX_BYTES + "…", "notes": "y" * MAX_BYTES}]
    assert MAX_BYTES == 1 << 20


def test_a_repair_is_a_program_of_its_own_with_the_variables_of_the_question(ask, inner, monkeypatch):
    started = []

    def run_netinit(words, *, environ):
        started.append((words, environ))
        return Finished(program="netinit", status=1, output="z" * (MAX_BYTES + 1), errors="e" * (MAX_BYTES + 1))

    monkeypatch.setattr(inside, "run_netinit", run_netinit)
    ask(question("apply", "--reconcile", environ={"PROXY_UID": "7"}))
    assert ask.answers == [{"code": 1, "answer": "z" * MAX_BYTES + "…", "notes": "e" * MAX_BYTES + "…"}]
    ask(question("apply", environ={"RECONCILE": "true"}))
    assert started.pop()[1] == {"RECONCILE": "true"}
    assert started == [(("apply", "--reconcile", "--netns", "/run/netns/cni-1"), {"PROXY_UID": "7"})]
    assert inner.calls == []


def test_children_that_fail_are_errors_in_their_place():
    def answer(words):
        if words == "gone":
            raise NamespaceError("the pod is gone")
        if words == "ends":
            raise SystemExit(1)
        return {"code": 0, "answer": words, "notes": ""}

    words = ["gone", "one", "ends", *map(str, range(9))]
    found = list(inside._in_children(words, answer))
    assert [one.get("answer") for one in found] == [None, "one", None, *map(str, range(9))]
    assert found[0] == {"code": 1, "error": "the pod is gone"}
    assert found[2] == {"code": 1, "error": "SystemExit: 1"}


def test_an_answer_that_does_not_come_in_time_is_an_error_in_its_place(monkeypatch):
    monkeypatch.setattr(inside, "SECONDS", 0.1)
    (found,) = inside._in_children(["slow"], lambda words: time.sleep(30))
    assert found == {"code": 1, "error": "the answer: it did not finish within 0 s and was stopped; is a process of it stopped?"}


def test_a_pod_without_a_record_is_an_error_that_names_its_uids():
    assert inside._choose(PATHS, ("uid-gone", "uid-static", "uid-web")) == "/run/netns/cni-2"
    with pytest.raises(NamespaceError) as error:
        inside._choose(PATHS, ("uid-a", "uid-b"))
    assert str(error.value) == "the runtime has no record of a network namespace of the pod with the uid 'uid-a' or 'uid-b'"


class TestFollowing:
    """With COMMAND it becomes that command."""

    @pytest.fixture
    def became(self, monkeypatch):
        became = []
        monkeypatch.setattr(inside, "become_netinit", lambda words, *, environ: became.append((words, environ)))
        return became

    def test_a_command_that_goes_on_says_so_and_gets_the_pods_namespace_and_variables(self, ask, became):
        flags = ["--uid", "uid-gone", "--uid", "uid-web", "--env", "PROXY_UID=7=8", "--env", "alone"]
        done = ask(flags=[*flags, "--", "watch", "--interval", "2"])
        assert (done.code, done.out, done.err) == (0, '{"following": "watch"}\n', "")
        assert became == [(("watch", "--interval", "2", "--netns", "/run/netns/cni-1", "--until-input"), {"PROXY_UID": "7=8"})]

    @pytest.mark.parametrize(
        ("flags", "code", "message"),
        [
            (["--uid", "uid-web", "verify"], 2, "'verify' ends by itself: ask on the standard input; to follow: watch, trace"),
            (["--uid", "uid-web", "--", "watch", "--watch"], 2,
             "--watch: goes on until Ctrl-C; run netinit watch --watch on the node itself"),
            (["--uid", "uid-web", "--env", "HOME=/", "trace"], 2, "'HOME' is not a variable of an option"),
            (["--uid", "uid-a", "trace"], 1, "the runtime has no record of a network namespace of the pod with the uid 'uid-a'"),
        ],
    )  # fmt: skip
    def test_nothing_else_is_followed(self, ask, became, flags, code, message):
        done = ask(flags=flags)
        assert (done.code, done.out, done.err, became) == (code, "", f"netinit: {message}\n", [])
