"""What comes back from a child: its answer, its errors, and nothing that runs when it is read."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from core import plan
from netinit.base.errors import AS_BEFORE, ApplyError, ChildLostError, NetinitError, OptionError, ended_by
from netinit.base.net import IPV4, IPV6
from netinit.kernel import answers, children, run
from netinit.kernel.several_children import ask_all
from netinit.options import Options
from sweeps import together


def ask(action, *, raw=False, **more):
    """What a child answers; `raw`: with the text that `action` returns in the place of what netinit would send."""
    encode = answers.encode
    try:
        if raw:
            answers.encode = str.encode
        return children.ask(action, **{"seconds": 20, "what": "the job", **more})
    finally:
        answers.encode = encode


def fail(error):
    raise error


def test_records_come_back_equal_and_families_as_the_very_same():
    wanted = plan(Options(inbound_ports="80", ipv6="on"))
    found = ask(lambda: (wanted, {IPV4: 1, IPV6: [2.5, None, b"x"]}))
    assert found == (wanted, {IPV4: 1, IPV6: [2.5, None, b"x"]})
    assert all(one is other for one, other in zip(found[0].families, (IPV4, IPV6), strict=True))
    assert ask(lambda: None) is None


@pytest.mark.parametrize("error", [ApplyError("no"), OptionError("a", "b"), PermissionError(13, "Permission denied", "/x")])
def test_errors_come_back_as_they_were_raised(error):
    with pytest.raises(type(error)) as caught:
        ask(lambda: fail(error))
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "problems", None) == getattr(error, "problems", None)


def test_a_fault_comes_back_as_one_line_with_its_kind():
    with pytest.raises(children.ChildError, match=r"^ZeroDivisionError: division by zero$"):
        ask(lambda: 1 / 0)


def test_a_child_that_is_late_or_killed_is_an_error_that_says_what_was_not_done():
    with pytest.raises(NetinitError, match=r"^the job: it did not finish within 0 s and was stopped"):
        ask(lambda: time.sleep(60), seconds=0.1)
    with pytest.raises(NetinitError, match=r"^the job: the process that did it was killed by signal 9$"):
        ask(lambda: os.kill(os.getpid(), 9))


def test_a_child_has_no_descriptor_but_those_that_are_meant_for_it():
    reader, writer = os.pipe()
    try:
        found = ask(lambda: sorted(int(path.name) for path in Path("/proc/self/fd").iterdir()), kept=(writer,))
    finally:
        os.close(reader)
        os.close(writer)
    assert writer in found
    assert reader not in found
    assert len([number for number in found if number > 2]) <= 4, "the answer, the leash, what was kept, and the listing itself"


@pytest.mark.parametrize("value", [os.system, Options.from_argv, OSError, children.ask, OSError(1), object()], ids=["system", "from_argv", "OSError", "ask", "error", "object"])
def test_an_answer_that_is_no_data_is_not_sent(value):
    with pytest.raises(children.ChildError, match="a child cannot answer with"):
        ask(lambda: value)


@together(
    "answer",
    [
        '{"os:system": ["echo taken over"]}', '{"netinit.kernel.run:start": {"program": "/bin/sh"}}', '{"netinit.kernel.children:Child": {"pid": 1}}',
        '{"netinit.base.errors:NetinitError": ["x"]}', '{"netinit.kernel.children:posix": {}}', '{"netinit.nothing:Here": {}}', '{"builtins:tuple": []}',
        '{"netinit.rules.model:Chain": {"name": "x", "more": 1}}', '{"family": 5}', "{}", '{"a": 1, "b": 2}', "[" * 100_000, "", "\u00ff", '{"set": [{"list": []}]}',
    ],
)  # fmt: skip
def test_an_answer_of_a_child_that_was_taken_over_is_read_as_data_or_not_at_all(answer):
    with pytest.raises(NetinitError, match=r"^a child's answer cannot be read"):
        ask(lambda: answer, raw=True)


def test_an_error_with_a_name_of_something_else_is_an_error_and_nothing_more():
    with pytest.raises(NetinitError, match="os"):
        children._open(b"!" + answers.encode(("os", ("os",))))
    with pytest.raises(NetinitError):
        children._open(b"!" + answers.encode(("ended_by", (15, "x"))))
    with pytest.raises(NetinitError, match="x"):
        children._open(b"!" + answers.encode(("ClusterError", ("x", 1, 2))))


@together("answer", ["1", "[]", '["ApplyError"]', '["ApplyError", ["a"], 3, 4]', '["OSError", "a"]', '{"list": []}', "x"])
@pytest.mark.parametrize("kind", ["=", "!"])
def test_an_error_of_a_child_that_was_taken_over_is_one_of_ours_whatever_it_looks_like(answer, kind):
    """Each of these is no error as a child sends it; as a value all but the last are."""
    def give():
        return children._open(kind.encode() + answer.encode())

    if kind == "=" and answer != "x":
        give()
        return
    with pytest.raises(NetinitError, match=r"^a child's answer cannot be read"):
        give()


def test_a_child_that_limits_itself_has_what_the_kernel_then_says_and_never_more_than_it_was_allowed():
    def limit():
        children.limit(1 << 40, 1 << 20)
        children.limit(1 << 39, 1 << 30)
        return [list(resource.getrlimit(kind)) for kind in (resource.RLIMIT_AS, resource.RLIMIT_FSIZE)]

    assert children.ask(limit, seconds=10, what="limits") == [[1 << 39] * 2, [1 << 20] * 2]


def test_waiting_works_without_pidfd_open_as_well(monkeypatch):
    monkeypatch.setattr(run.posix, "pidfd_open", lambda _: fail(OSError(38, "Function not implemented")))
    assert ask(lambda: 7) == 7
    with pytest.raises(NetinitError, match="did not finish within 0 s"):
        ask(lambda: time.sleep(60), seconds=0.1)
    done = run.finish(run.start("/bin/echo", ["hello"]))
    assert (done.program, done.status, done.output, done.errors) == ("echo", 0, "hello\n", "")


def test_a_child_can_answer_and_go_on_and_each_failure_is_its_own():
    def serve(answer):
        answer.give("ready")
        time.sleep(60)

    with children.start(serve, seconds=20, what="a server") as server:
        assert server.receive() == "ready"
        assert Path(f"/proc/{server.pid}").exists()
        pid = server.pid
    assert not Path(f"/proc/{pid}").exists()
    found = ask_all({2: lambda _: "well", 3: lambda _: 1 / 0}, seconds=20, what="jobs")
    assert found[2] == "well"
    assert isinstance(found[3], children.ChildError)
    assert "test_children.py" in found[3].trace


def test_a_child_is_awaited_that_dies_after_its_pipe_has_ended_and_its_deadline_is_over():
    """As one that was killed does on a busy machine: the kernel closes its files before it has ended."""
    begun, begin = os.pipe()
    go, tell = os.pipe()

    def die(answer):
        os.close(answer.descriptor)
        os.write(begin, b"x")
        os.read(go, 1)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGKILL)

    with children.start(die, seconds=0, what="a server", kept=(begin, go)) as server:
        os.read(begun, 1)
        os.write(tell, b"x")
        with pytest.raises(ChildLostError) as raised:
            server.receive()
    assert (raised.value.how, raised.value.signal) == ("was killed by signal 9", 9)
    for descriptor in (begun, begin, go, tell):
        os.close(descriptor)


def test_a_child_that_goes_on_without_its_pipe_is_awaited_for_a_bounded_time(monkeypatch):
    monkeypatch.setattr(children, "_EXITING", 10**7)

    def hide(answer):
        os.close(answer.descriptor)
        time.sleep(60)

    with children.start(hide, seconds=1000, what="a server") as server, pytest.raises(ChildLostError, match=r"^a server: its process gave no answer$") as raised:
        server.receive()
    assert (raised.value.how, raised.value.signal) == ("", 0)


def test_a_child_that_became_somebody_else_dies_with_its_parent():
    reader, writer = os.pipe()
    middle = os.fork()
    if not middle:

        def become_nobody(answer):
            if not os.geteuid():
                os.setresuid(65534, 65534, 65534)
            os.write(writer, f"{os.getpid()}\n".encode())
            answer.give(None)
            time.sleep(60)

        children.start(become_nobody, seconds=20, what="a child", kept=None).receive()
        os.kill(os.getpid(), 9)
    os.waitpid(middle, 0)
    os.close(writer)
    with os.fdopen(reader) as told:
        pid = told.readline().strip()
        assert told.read() == "", "the pipe ends when the child does"
    assert pid.isdigit()


def test_an_answer_that_claims_to_be_endless_is_refused():
    def lie(answer):
        os.write(answer.descriptor, (1 << 60).to_bytes(8, "little"))
        time.sleep(60)

    with children.start(lie, seconds=20, what="the job") as child, pytest.raises(NetinitError, match="answered more than 256 MB"):
        child.receive()


# A signal to this process is its child's to answer


REQUESTS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextlib.contextmanager
def hearing():
    """What hears signals here, over the usual handlers, which are there again at the end."""
    signals = run.Signals()
    usual = (signal.SIG_DFL, signal.SIG_DFL, signal.default_int_handler)  # whatever these tests were started by ignores or hears
    before = [signal.signal(number, handler) for number, handler in zip(REQUESTS, usual, strict=True)]
    try:
        yield signals
    finally:
        signals.stop()
        assert [signal.signal(number, handler) for number, handler in zip(REQUESTS, before, strict=True)] == list(usual)


def ask_with_signals(action):
    with hearing() as signals:
        return children.ask_with_signals(action, signals, seconds=20, what="the job", kept=()), signals


def await_request(own):
    for _ in range(2000):
        if own.pending:
            return own.take()
        time.sleep(0.005)
    raise AssertionError("no signal came")


def test_a_child_that_nobody_disturbs_does_its_work():
    answer, signals = ask_with_signals(lambda own: (os.getpid() != PARENT, own.pending))
    assert (answer, signals.pending) == ((True, 0), 0)


PARENT = os.getpid()


@pytest.mark.parametrize("number", REQUESTS)
def test_a_signal_to_this_process_goes_to_the_child_which_answers_it(number):
    def work(own):
        os.kill(PARENT, number)
        raise ended_by(await_request(own), AS_BEFORE)

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else ApplyError) as raised:
        ask_with_signals(work)
    assert str(raised.value) == f"ended by {number.name}; everything is as it was before"


def test_what_a_child_says_of_what_it_has_left_is_told():
    def work(own):
        os.kill(PARENT, signal.SIGINT)
        await_request(own)
        raise ApplyError("ended by SIGINT; a rule is left")

    with pytest.raises(ApplyError, match=r"^ended by SIGINT; a rule is left$"):
        ask_with_signals(work)


def test_a_child_that_has_done_its_work_leaves_a_late_signal_to_the_caller():
    def work(own):
        os.kill(PARENT, signal.SIGTERM)
        return await_request(own)

    answer, signals = ask_with_signals(work)
    assert (answer, signals.pending) == (signal.SIGTERM, signal.SIGTERM)


@pytest.mark.parametrize("number", REQUESTS)
def test_a_child_that_a_signal_ends_before_it_listens_has_changed_nothing(number):
    def work(_):
        for one in REQUESTS:
            signal.signal(one, signal.default_int_handler if one == signal.SIGINT else signal.SIG_DFL)
        os.kill(PARENT, number)
        time.sleep(20)

    with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else ApplyError) as raised:
        ask_with_signals(work)
    assert str(raised.value) == f"ended by {number.name}; everything is as it was before"


def test_a_child_that_something_else_ends_is_lost_whatever_signal_came():
    def work(own):
        os.kill(PARENT, signal.SIGTERM)
        await_request(own)
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildLostError, match="was killed by signal 9"):
        ask_with_signals(work)


def test_a_signal_between_listening_and_the_childs_start_is_passed_on():
    with hearing() as signals:
        signals.listen()
        os.kill(PARENT, signal.SIGTERM)
        with pytest.raises(ApplyError, match="ended by SIGTERM"):
            children.ask_with_signals(lambda _: time.sleep(20), signals, seconds=20, what="the job", kept=())


_CHILD = "from netinit.kernel import children; print('it', children.start(lambda answer: 'lives', seconds=20, what='a child').receive())"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's groups and capabilities can be chosen")
@pytest.mark.parametrize(("more", "groups"), [({}, ()), ({"keeps_groups": True}, (7,)), ({"kept": None}, (7,))])
def test_a_child_has_no_supplementary_groups_unless_it_keeps_them(more, groups):
    def work():
        os.setgroups([7])
        with children.start(lambda _: tuple(os.getgroups()), seconds=20, what="the child", **more) as child:
            return child.receive()

    assert ask(work) == groups


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's groups and capabilities can be chosen")
@pytest.mark.parametrize(("groups", "said"), [("0", "it lives"), ("0,7", "NamespaceError: supplementary groups cannot be dropped")])
def test_in_a_container_without_setgid_the_own_group_may_be_among_the_others_and_no_further_one(groups, said):
    confined = ["setpriv", "--regid=0", f"--groups={groups}", "--bounding-set=-setgid", "--inh-caps=-setgid"]
    done = subprocess.run([*confined, sys.executable, "-c", _CHILD], capture_output=True, text=True, check=False)
    assert said in done.stdout + done.stderr
