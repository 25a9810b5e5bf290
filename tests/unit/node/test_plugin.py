"""The plugin's program, without an agent and against agents that misbehave; its reader beside Python's."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import random
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from node_agent import SANITIZERS, build_plugin, copy_plugin, write_settings
from plugin_reader import differences, read_all
from sweeps import fixtures_in_turn

VERSIONS = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
POD = "IgnoreUnknown=1;K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=netinit-node-ab3de"
PREVIOUS = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24"}], "x": 'a"\\b'}


BUILT = ("plain",) if "NETINIT_PLUGIN" in os.environ else ("plain", "sanitized")
pytest_generate_tests = fixtures_in_turn(plugin=BUILT)


@pytest.fixture
def plugin(request, tmp_path):
    """The plugin with settings for an agent that is away."""
    found = copy_plugin(tmp_path / "bin", build_plugin(*(() if request.param == "plain" else SANITIZERS)))
    set_plugin(found)
    return found


def set_plugin(plugin, socket="/nowhere/s", **more):
    write_settings(plugin, **{"socket": socket, "namespace": "mesh", "daemon_set": "netinit-node", **more})


def ask(plugin, verb="ADD", given=None, *, raw=None, **environ):
    found = {"CNI_COMMAND": verb, "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/nowhere", **environ}
    tree = {"cniVersion": "1.0.0", "name": "net", "type": "netinit-cni"}
    text = raw if raw is not None else json.dumps({**tree, **(given or {})}).encode()
    done = subprocess.run(
        [plugin], input=text, env={key: value for key, value in found.items() if value is not None}, capture_output=True, check=False, timeout=60
    )
    assert done.stderr == b""
    return done.returncode, json.loads(done.stdout) if done.stdout else None


@contextlib.contextmanager
def agent(folder, *answers, heard=None):
    """An agent that answers each connection with the next bytes, and hangs where they are None."""
    path = str(folder / "s")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    over = threading.Event()

    def serve():
        for answer in answers:
            with contextlib.suppress(OSError):
                peer, _ = listening.accept()
                with peer:
                    head, descriptors, _, _ = socket.recv_fds(peer, 64, 4)
                    head, _, data = head.partition(b"\n")
                    _, _, variables, given, milliseconds = head.split()
                    while len(data) < int(variables) + int(given) and (part := peer.recv(1 << 16)):
                        data += part
                    if heard is not None:
                        heard.append((data[: int(variables)], data[int(variables) :], int(milliseconds), [os.fstat(one) for one in descriptors]))
                    for one in descriptors:
                        os.close(one)
                    if answer is None:
                        over.wait(60)
                    else:
                        peer.sendall(answer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        over.set()
        listening.close()


def framed(code, tree):
    body = json.dumps(tree).encode() if tree is not None else b""
    return f"netinit-cni 1 {code} {len(body)}\n".encode() + body


def test_it_is_one_static_file_of_some_dozen_kilobytes():
    if not shutil.which("musl-gcc") and "NETINIT_PLUGIN" not in os.environ:
        pytest.skip("musl-gcc is not installed: apt-get install musl-tools")
    plugin = build_plugin()
    padding = 65_536 if platform.machine() == "aarch64" else 0  # between its parts, for kernels with large pages
    assert plugin.stat().st_size < 50_000 + padding
    data = plugin.read_bytes()
    assert data[:4] == b"\x7fELF"
    assert b"/lib/ld" not in data


@pytest.mark.parametrize("verb", ["ADD", "CHECK", "GC"])
def test_without_an_agent_pods_wait(plugin, verb):
    status, tree = ask(plugin, verb)
    assert (status, tree["code"], tree["cniVersion"]) == (1, 11, "1.0.0")
    assert "agent does not answer" in tree["msg"]


def test_without_an_agent_the_node_stays_ready(plugin):
    assert ask(plugin, "STATUS") == (0, None)


def test_without_an_agent_pods_can_end(plugin):
    assert ask(plugin, "DEL") == (0, None)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_agents_own_pod_is_let_through_with_the_result_before_unchanged(plugin, version):
    given = {"cniVersion": version, "prevResult": {**PREVIOUS, "cniVersion": version}}
    assert ask(plugin, "ADD", given, CNI_ARGS=POD) == (0, given["prevResult"])
    assert ask(plugin, "ADD", {"cniVersion": version}, CNI_ARGS=POD) == (0, {"cniVersion": version})
    assert ask(plugin, "CHECK", given, CNI_ARGS=POD) == (0, None)


@pytest.mark.parametrize(
    "arguments",
    [
        "", "K8S_POD_NAMESPACE=mesh", "K8S_POD_NAME=netinit-node-ab3de", "K8S_POD_NAMESPACE=other;K8S_POD_NAME=netinit-node-ab3de",
        "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=netinit-node", "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=netinit-node-ab3d",
        "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=netinit-node-ab3deX", "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=netinit-node-AB3DE",
        "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=web;X=K8S_POD_NAME=netinit-node-ab3de", "K8S_POD_NAMESPACE=mesh;XK8S_POD_NAME=netinit-node-ab3de",
        "K8S_POD_NAMESPACE=mesh;K8S_POD_NAME=netinit-node-ab3de;K8S_POD_NAME=web", ";;;=;K8S_POD_NAME", "K8S_POD_NAMESPACE=meshmesh;K8S_POD_NAME=netinit-node-ab3de",
    ],
)  # fmt: skip
def test_no_other_pod_is_let_through(plugin, arguments):
    assert ask(plugin, "ADD", CNI_ARGS=arguments)[1]["code"] == 11


@pytest.mark.parametrize("settings", [{"namespace": ""}, {"daemon_set": ""}, {"namespace": "mes"}, {"daemon_set": "netinit"}])
def test_an_agent_that_is_not_named_whole_lets_nobody_through(plugin, settings):
    set_plugin(plugin, **settings)
    assert ask(plugin, "ADD", CNI_ARGS=POD)[1]["code"] == 11


def test_pods_of_excluded_namespaces_start_without_an_agent_and_no_others(plugin):
    set_plugin(plugin, excluded=["kube-system", "monitoring"])
    for namespace in ("kube-system", "monitoring"):
        pod = f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=web"
        assert ask(plugin, "ADD", {"prevResult": PREVIOUS}, CNI_ARGS=pod) == (0, PREVIOUS)
        assert ask(plugin, "CHECK", CNI_ARGS=pod) == (0, None)
    for namespace in ("kube", "kube-system-2", "", "shop"):
        assert ask(plugin, "ADD", CNI_ARGS=f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=web")[1]["code"] == 11


def ask_from(plugin, namespace, verb="ADD", **more):
    status, tree = ask(plugin, verb, {"prevResult": PREVIOUS}, CNI_ARGS=f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME=web", **more)
    return tree["code"] if status else tree


@pytest.fixture
def outside(plugin, tmp_path):
    """The agent's list of namespaces outside of the mesh; the plugin's settings name it."""
    path = tmp_path / "outside-namespaces"
    path.write_text("batch\nshop-2\n")
    set_plugin(plugin, outside=path)
    return path


@pytest.mark.usefixtures("outside")
def test_without_an_agent_only_pods_of_namespaces_known_to_be_outside_of_the_mesh_start(plugin):
    for namespace in ("batch", "shop-2"):
        assert ask_from(plugin, namespace) == PREVIOUS
        assert ask_from(plugin, namespace, "CHECK") is None
        assert ask_from(plugin, namespace, "GC") == 11
    for namespace in ("shop", "batch-2", "bat", "", "batch\nshop-2", "shop-2\n"):
        assert ask_from(plugin, namespace) == 11
    assert ask(plugin, "ADD")[1]["code"] == 11
    set_plugin(plugin)  # --outsideNamespaces=wait
    assert ask_from(plugin, "batch") == 11


def test_an_agent_that_answers_decides_about_namespaces_outside_of_the_mesh_too(plugin, outside, tmp_path):
    error = {"cniVersion": "1.0.0", "code": 101, "msg": "a bad annotation"}
    with agent(tmp_path, framed(1, error), framed(0, PREVIOUS)[:-1], None) as path:
        set_plugin(plugin, path, outside=outside, seconds=1)
        assert ask_from(plugin, "batch") == 101
        assert ask_from(plugin, "batch") == PREVIOUS, "half an answer is none"
        assert ask_from(plugin, "batch") == PREVIOUS, "nor is an agent that hangs"


@pytest.mark.parametrize(
    "text",
    ["", "batch", "shop\nbatch", "\nbatch\n", "batch\n\n", "batch\nA\n", "batch\n a\n", "batch\0\n", "batch\n\0", "batch\r\n", "batch\n" + "a" * 64 + "\n",
     "batch\n" * 200_000, "batch\n" + "a" * (1 << 20) + "\n"],
    ids=range(13),
)  # fmt: skip
def test_a_list_that_is_not_whole_or_too_long_lets_nobody_through(plugin, outside, text):
    outside.write_text(text)
    assert ask_from(plugin, "batch") == 11
    assert ask_from(plugin, "batch", "DEL") is None


def test_a_list_that_others_may_have_written_or_that_is_no_file_lets_nobody_through(plugin, outside, tmp_path):
    for mode in (0o620, 0o602, 0o666):
        outside.chmod(mode)
        assert ask_from(plugin, "batch") == 11
    outside.chmod(0o644)
    assert ask_from(plugin, "batch") == PREVIOUS
    if os.geteuid() == 0:
        os.chown(outside, 1337, 0)
        assert ask_from(plugin, "batch") == 11
        os.chown(outside, 0, 0)
    outside.rename(tmp_path / "elsewhere")
    assert ask_from(plugin, "batch") == 11
    outside.symlink_to(tmp_path / "elsewhere")
    assert ask_from(plugin, "batch") == 11
    for make in (os.mkdir, os.mkfifo):
        place = tmp_path / make.__name__
        make(place)
        set_plugin(plugin, outside=place)
        assert ask_from(plugin, "batch") == 11
    set_plugin(plugin, outside="/" + "x" * 5000)
    assert ask_from(plugin, "batch") == 11


def test_without_settings_the_socket_of_the_image_is_asked(plugin):
    Path(f"{plugin}.settings").unlink()
    assert ask(plugin, "ADD", CNI_ARGS=POD)[1]["code"] == 11


def test_settings_of_a_newer_release_are_passed_over(plugin):
    with Path(f"{plugin}.settings").open("a") as file:
        file.write("colour=green\n")
    assert ask(plugin, "ADD", CNI_ARGS=POD) == (0, {"cniVersion": "1.0.0"})


@pytest.mark.parametrize(
    "text", ["socket", "socket=/a\nseconds=0\n", "seconds=1x\n", "seconds=\n", "seconds=9999999999\n", "socket=/a", "\n", "x=y\n" * 400_000]
)
def test_settings_that_cannot_be_read_are_named_and_pods_can_end(plugin, text):
    Path(f"{plugin}.settings").write_text(text)
    status, tree = ask(plugin, "ADD", CNI_ARGS=POD)
    assert (status, tree["code"]) == (1, 7)
    assert "netinit-cni.settings" in tree["msg"]
    assert ask(plugin, "DEL") == (0, None)


def test_stdin_that_is_never_closed_is_given_up():
    plugin = build_plugin()
    reading, writing = os.pipe()
    begun = time.monotonic()
    done = subprocess.run([plugin], stdin=reading, env={"CNI_COMMAND": "ADD"}, capture_output=True, check=False, timeout=60)
    os.close(reading)
    os.close(writing)
    assert json.loads(done.stdout)["code"] == 5
    assert time.monotonic() - begun > 9


@pytest.mark.parametrize(
    ("raw", "code"),
    [(b"", 6), (b"{", 6), (b"[]", 6), (b'{"cniVersion":"1.0.0"}}', 6), (b"{" + b'"a":' * 200 + b"1", 6), (b" " * (1 << 20) + b"{}", 7),
     (b'{"cniVersion":"2.0.0"}', 1), (b"{}", 1), (b'{"cniVersion":1}', 1), (b'{"cniVersion":"1.0.0","cniVersion":"1.1.0"}', 6)],
)  # fmt: skip
def test_what_is_no_configuration_is_told_by_cnis_codes_and_pods_can_end(plugin, raw, code):
    assert ask(plugin, raw=raw)[1]["code"] == code
    assert ask(plugin, "DEL", raw=raw) == (0, None)


@pytest.mark.parametrize(("raw", "problem"), [
    (b"{}", "the configuration has no cniVersion"), (b'{"cniVersion":"1.2.0"}', f"cniVersion must be one of {', '.join(VERSIONS)}"),
])  # fmt: skip
def test_a_version_that_is_missing_or_unknown_is_said(plugin, raw, problem):
    assert ask(plugin, raw=raw)[1] == {"cniVersion": "1.1.0", "code": 1, "msg": f"netinit: {problem}"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("previous", [{"ip4": {"ip": "10.0.0.2/24"}}, {"ips": [{"version": "4", "address": "10.0.0.2/24"}]}, None])
def test_a_pod_that_starts_without_the_agent_has_the_result_before_in_every_version(plugin, version, previous):
    given = {"cniVersion": version, **({"prevResult": {"cniVersion": version, **previous}} if previous else {})}
    assert ask(plugin, "ADD", given, CNI_ARGS=POD) == (0, {"cniVersion": version, **(previous or {})})


def test_the_verb_must_be_one(plugin):
    assert ask(plugin, "PLAY")[1]["code"] == 4
    assert ask(plugin, CNI_COMMAND=None)[1]["code"] == 4
    assert ask(plugin, CNI_ARGS="x" * 70_000)[1]["code"] == 4


@pytest.mark.parametrize("version", [*VERSIONS, "1.2.0"])
def test_version_is_answered_without_an_agent(plugin, version):
    status, tree = ask(plugin, "VERSION", {"cniVersion": version})
    assert (status, tree["supportedVersions"]) == (0, VERSIONS)
    assert tree["cniVersion"] == (version if version in VERSIONS else "1.1.0")


def test_the_agent_gets_variables_input_deadline_and_the_open_namespace(plugin, tmp_path):
    heard = []
    given = {"prevResult": PREVIOUS, "more": "ü" * 100_000}
    with agent(tmp_path, framed(0, PREVIOUS), heard=heard) as path:
        set_plugin(plugin, path, seconds=7)
        assert ask(plugin, "ADD", given, CNI_ARGS="A=b", CNI_NETNS="/proc/self/ns/net") == (0, PREVIOUS)
    variables, text, milliseconds, statuses = heard[0]
    assert dict(item.split(b"=", 1) for item in variables.split(b"\0")[:-1])[b"CNI_ARGS"] == b"A=b"
    assert json.loads(text)["more"] == given["more"]
    assert 6000 < milliseconds <= 7000
    own = Path("/proc/self/ns/net").stat()
    assert [(one.st_dev, one.st_ino) for one in statuses] == [(own.st_dev, own.st_ino)]


def test_the_agents_error_and_exit_code_are_passed_on(plugin, tmp_path):
    error = {"cniVersion": "1.0.0", "code": 101, "msg": "a bad annotation"}
    with agent(tmp_path, framed(1, error)) as path:
        set_plugin(plugin, path)
        assert ask(plugin, "ADD") == (1, error)


WHOLE = framed(0, PREVIOUS)


@pytest.mark.parametrize(
    "answer",
    [b"", b"\n", b"netinit-cni", WHOLE[:20], WHOLE[:-1], WHOLE + b"x", b"netinit-cni 2" + WHOLE[13:], b"netinit-cni 1 0 \n", b"netinit-cni 1 -1 0\n",
     b"netinit-cni 1 0 99999999999999999999\n", b"netinit-cni 1 200 0\n", b"netinit-cni 1 0 3000000\n" + b"x" * 3_000_000, b"\0" * 5000],
)  # fmt: skip
def test_an_answer_that_is_not_whole_is_none(plugin, tmp_path, answer):
    with agent(tmp_path, answer) as path:
        set_plugin(plugin, path)
        assert ask(plugin, "ADD")[1]["code"] == 11


def test_an_agent_that_hangs_is_given_up_after_the_time_of_the_settings(plugin, tmp_path):
    with agent(tmp_path, None) as path:
        set_plugin(plugin, path, seconds=1)
        begun = time.monotonic()
        assert ask(plugin, "ADD")[1]["code"] == 11
        assert 0.9 < time.monotonic() - begun < 25, "not after the 30 s of a plugin without settings"


def test_a_socket_with_a_path_that_no_socket_can_have_is_as_good_as_none(plugin):
    set_plugin(plugin, "/x" * 100)
    assert ask(plugin, "ADD")[1]["code"] == 11


def test_a_fifo_in_the_place_of_the_namespace_holds_up_nobody(plugin, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with agent(tmp_path, framed(0, PREVIOUS)) as path:
        set_plugin(plugin, path)
        assert ask(plugin, "ADD", CNI_NETNS=str(tmp_path / "fifo")) == (0, PREVIOUS)


@pytest.mark.parametrize("verb", ["ADD", "CHECK", "DEL"])
def test_the_agent_learns_why_a_namespace_could_not_be_opened_unless_its_path_leads_nowhere(plugin, tmp_path, verb):
    heard = []
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    paths = {
        "/nowhere": None, f"{tmp_path}/file/below": None, None: None, "": None, f"{tmp_path}/loop": errno.ELOOP, f"{tmp_path}/s": errno.ENXIO,
        "/" + "x" * 300: errno.ENAMETOOLONG, "relative": errno.ENOENT,
    }  # fmt: skip
    with agent(tmp_path, *[framed(0, PREVIOUS)] * len(paths), heard=heard) as path:
        set_plugin(plugin, path)
        for netns in paths:
            assert ask(plugin, verb, CNI_NETNS=netns)[0] == 0
    sent = [dict(item.split(b"=", 1) for item in variables.split(b"\0")[:-1]) for variables, *_ in heard]
    assert [one.get(b"NETINIT_NETNS_ERRNO") for one in sent] == [number and str(number).encode() for number in paths.values()]
    assert [statuses for *_, statuses in heard] == [[]] * len(paths)


# ---- the reader

WORDS = [b'"', b"\\", b"\\u", b"\\ud83d", b"\\u0000", b'\\"', b"{", b"}", b"[", b"]", b":", b",", b"true", b"null", b"-", b"0", b"1e9", b"1.5", b".", b" ",
         b"\n", b'"cniVersion"', b'"prevResult"', b'"a"', b"x" * 260]  # fmt: skip


def cases(count, seed):
    """Configurations, changed ones, and words strung together."""
    source = random.Random(seed)
    good = [
        json.dumps({"cniVersion": "1.0.0", "socket": "/a\n\u00e9\U0001f600", "b": "d" * source.randrange(300), "prevResult": PREVIOUS}).encode(),
        b'{"args":{"prevResult":{"a":"}"}},"prevResult":[1,-0.5e-3,"x"], "cniVersion" : null}', b'{"prevResult":1,"prevResult":{}}',
        b" { } ", b'{"prevResult":{},"a":[[],{},[{}]]}', b'{"x":"\\ud800\\"\\\\","cniVersion":{"prevResult":"\\""}}', b'["prevResult"]',
    ]  # fmt: skip
    for number in range(count):
        if number % 3 == 0:
            yield b"".join(source.choices(WORDS, k=source.randrange(1, 14)))
            continue
        case = bytearray(source.choice(good))
        for _ in range(source.randrange(3)):
            place = source.randrange(len(case))
            case[place : place + source.randrange(4)] = source.choice(WORDS) if source.random() < 0.5 else bytes([source.randrange(1, 128)])
        yield bytes(case)


def test_the_reader_finds_the_members_that_pythons_finds():
    found = differences([*cases(6000, 1), b"", b"\0", b"{}" + b"\0", b"\xff", b'{"a":"\xff"}'])
    assert found == []


def test_brackets_without_an_end_are_refused():
    assert read_all([b'{"a":' + b"[" * 500_000, b"{" * 500_000 + b"}" * 499_999, b'{"a":"']) == [None, None, None]
