"""A node on which another installer rewrites the runtime's list: no pod escapes, or each is named and repaired at once."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from laboratory import NetworkNamespace
from netinit.node.conflist import TYPE, first_of
from netinit.node.decision import decide, read_pod
from netinit.options import Options
from node_agent import Api, Node, make_validated_pod, record
from programming import apply_in, differences_in
from sweeps import choose

pytestmark = pytest.mark.netns
LIST = {"cniVersion": "1.0.0", "name": "net", "plugins": [{"type": "bridge", "bridge": "cni0"}, {"type": "portmap"}]}
ADDRESS = "10.77.0.2"  # of each pod: they do not see each other
ONLY_AT_ONCE = ("--sweep=false", "--watch=false")  # what is found is found because the pod appeared


class TimedApi(Api):
    """An API that notes when each event was written, by reason and pod."""

    def __init__(self):
        super().__init__()
        self.told = {}

    def answer(self, method, path, body, query):
        if method == "POST" and path.endswith("/events"):
            self.told.setdefault((body["reason"], body["involvedObject"]["name"]), time.monotonic())
        return super().answer(method, path, body, query)


class Runtime:
    """Starts pods as containerd does: each by the first list of the folder as that is at this moment."""

    def __init__(self, node, api):
        self.node, self.api = node, api
        self.pods, self.unasked, self.appeared = {}, set(), {}
        self.before = lambda pod: None  # what an earlier plugin of the list does
        (node.folder / "netns").mkdir()

    def read_list(self):
        """The plugins of the first list; one that is just being written is read again, as kubelets ask again."""
        while True:
            with contextlib.suppress(OSError, ValueError):
                names = [path.name for path in (self.node.folder / "net.d").iterdir()]
                return [one["type"] for one in json.loads((self.node.folder / "net.d" / first_of(names)).read_text())["plugins"]]
            time.sleep(0.005)

    def start(self, name):
        pod = self.pods[name] = NetworkNamespace(name)
        pod.__enter__()
        uid, path = f"uid-shop-{name}", self.node.folder / "netns" / f"cni-{name}"
        path.touch()
        subprocess.run(["mount", "--bind", pod.path, path], check=True)
        tree = make_validated_pod(name, ADDRESS)
        self.api.put({**tree, "status": {"phase": "Pending"}})
        self.before(pod)
        if TYPE in self.read_list():
            previous = {"prevResult": {"ips": [{"address": f"{ADDRESS}/24"}]}}
            status, answer = self.node.ask("ADD", netns=path, pod=name, uid=uid, configuration=previous)
            assert status == 0, answer
        else:
            self.unasked.add(name)
        record(self.node.folder, path, uid=uid, pod=name, container=f"c-{name}")
        self.appeared[name] = time.monotonic()
        self.api.put(tree)

    def start_all(self, names, clients=3):
        """Start the pods, at most 10 a second, which is more than a kubelet does."""
        def start(name):
            begun = time.monotonic()
            self.start(name)
            time.sleep(max(0.0, clients / 10 - (time.monotonic() - begun)))

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(start, names))

    def bare(self):
        """The names of the pods without all of their rules."""
        wanted = decide(read_pod(make_validated_pod("x", ADDRESS)), Options(reconcile=True), (ADDRESS,)).options
        return {name for name, pod in self.pods.items() if differences_in(pod, wanted)}

    def close(self):
        for name, pod in self.pods.items():
            subprocess.run(["umount", "--lazy", self.node.folder / "netns" / f"cni-{name}"], check=False)
            pod.__exit__(None, None, None)


@contextlib.contextmanager
def rewriting(folder, seconds):
    """Another installer, which writes its list again and again: in place, and by rename."""
    over, count = threading.Event(), [0]

    def rewrite():
        while not over.wait(seconds):
            count[0] += 1
            path = folder / ("10-net.conflist" if count[0] % 2 else ".10-net.new")
            path.write_text(json.dumps(LIST, indent=1))
            path.rename(folder / "10-net.conflist")

    thread = threading.Thread(target=rewrite)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


@pytest.fixture
def api():
    with TimedApi() as made:
        yield made


@pytest.fixture
def net_d(tmp_path):
    for name in ("bin", "net.d"):
        (tmp_path / name).mkdir()
    (tmp_path / "net.d" / "10-net.conflist").write_text(json.dumps(LIST))
    return tmp_path / "net.d"


@contextlib.contextmanager
def starting(api, tmp_path, *words):
    with Node(tmp_path, api, *words, install=True) as node:
        runtime = Runtime(node, api)
        try:
            yield node, runtime
        finally:
            runtime.close()


@pytest.mark.parametrize("seconds", choose([0.05], [4.0, 0.5, 0.05]))
def test_with_a_list_of_its_own_no_pod_escapes_whoever_rewrites_the_clusters(api, tmp_path, net_d, seconds, require_netns):
    names = [f"p{number}" for number in range(choose(16, 200))]
    with starting(api, tmp_path, "--ownList", *ONLY_AT_ONCE) as (node, runtime), rewriting(net_d, seconds) as count:
        runtime.start_all(names)
        print(f"{len(names)} pods, {count[0]} times rewritten every {seconds} s: {len(runtime.unasked)} uncaptured")
        assert (runtime.unasked, runtime.bare()) == (set(), set())
        assert count[0]
    assert node.stop() == 0


@pytest.mark.parametrize("seconds", choose([0.05], [4.0, 0.5, 0.05]))
def test_without_it_each_pod_that_escapes_is_named_when_it_appears_and_repaired(api, tmp_path, net_d, seconds, require_netns):
    names = [f"p{number}" for number in range(choose(16, 200))]
    with starting(api, tmp_path, "--repair=program", *ONLY_AT_ONCE) as (node, runtime):
        with rewriting(net_d, seconds) as count:
            runtime.start_all(names)
        node.until(lambda: TYPE in runtime.read_list(), "the entry is back")
        runtime.read_list = lambda: ["bridge"]  # as it was a moment before: at least one escapes
        runtime.start("certain")
        for reason in ("InterceptionMissing", "InterceptionRepaired"):
            node.until(lambda reason=reason: {name for kind, name in api.told if kind == reason} >= runtime.unasked, reason)
        late = sorted(api.told["InterceptionMissing", name] - runtime.appeared[name] for name in runtime.unasked)
        mended = sorted(api.told["InterceptionRepaired", name] - runtime.appeared[name] for name in runtime.unasked)
        print(f"{len(names)} pods, {count[0]} times rewritten every {seconds} s: {len(late) - 1} uncaptured by chance and one on purpose")
        print(f"all named within {late[-1]:.2f} s of their appearance, all repaired within {mended[-1]:.2f} s")
        assert {name for kind, name in api.told if kind == "InterceptionMissing"} == runtime.unasked
        assert runtime.bare() == set()
        assert f"netinit_node_uncaptured_total {len(late)}.0" in node.get("/metrics")[1]


def test_a_pod_that_escapes_is_deleted_where_that_is_asked_for(api, tmp_path, net_d, require_netns):
    with starting(api, tmp_path, "--repair=delete", *ONLY_AT_ONCE) as (node, runtime):
        runtime.read_list = lambda: ["bridge"]
        runtime.start("web")
        node.until(lambda: any(method == "DELETE" for method, *_ in api.asked), "it is deleted")
        assert [path.rpartition("/")[2] for method, path, _ in api.asked if method == "DELETE"] == ["web"]


def test_the_entry_is_back_by_notifications_long_before_the_next_look(api, tmp_path, net_d, require_netns):
    """Twenty looks would take 200 s."""
    with starting(api, tmp_path, *ONLY_AT_ONCE) as (node, runtime):
        begun = time.monotonic()
        for number in range(20):
            path = net_d / ("10-net.conflist" if number % 2 else ".new")
            path.write_text(json.dumps({**LIST, "name": f"net{number}"}))
            path.rename(net_d / "10-net.conflist")
            node.until(lambda: TYPE in runtime.read_list(), "the entry is back", 100 - (time.monotonic() - begun))
        (tmp_path / "bin" / "netinit-cni").unlink()
        node.until((tmp_path / "bin" / "netinit-cni").exists, "the executable is back")
        (tmp_path / "bin" / "netinit-cni.settings").unlink()
        node.until((tmp_path / "bin" / "netinit-cni.settings").exists, "the settings are back")
        net_d.rename(tmp_path / "aside")
        net_d.mkdir()
        (net_d / "10-net.conflist").write_text(json.dumps(LIST))
        node.until(lambda: TYPE in runtime.read_list(), "the entry is in the new folder")


def test_a_list_that_sorts_before_the_agents_own_is_an_event_on_the_node_and_a_metric(api, tmp_path, net_d, require_netns):
    (net_d / "10-net.conflist").write_text(json.dumps({**LIST, "plugins": [*LIST["plugins"], {"type": "istio-cni"}]}))
    with starting(api, tmp_path, "--ownList", *ONLY_AT_ONCE) as (node, _):
        node.until(lambda: ("OtherMeshPlugin", "node-1") in api.told, "the other mesh's plugin is told")
        assert "netinit_node_list_preceded 0.0" in node.get("/metrics")[1]
        (net_d / "00-early.conflist").write_text(json.dumps(LIST))
        node.until(lambda: ("OwnListPreceded", "node-1") in api.told, "the event")
        assert "netinit_node_list_preceded 1.0" in node.get("/metrics")[1]
        code, text = node.get("/readyz?verbose")
        assert (code, "[!]OwnListPreceded: " in text) == (200, True)
        assert json.loads((net_d / "00-early.conflist").read_text())["plugins"][-1]["type"] == TYPE, "so no pod escapes meanwhile"


def test_a_pod_that_istios_plugin_has_just_programmed_gets_netinits_rules_and_nothing_twice(api, tmp_path, net_d, require_netns):
    """As while one changes over: the other's entry comes before netinit's in the list."""
    with starting(api, tmp_path, *ONLY_AT_ONCE) as (_, runtime):
        runtime.before = program_as_istio
        runtime.start("web")
        (pod,) = runtime.pods.values()
        assert runtime.bare() == set()
        assert pod.run(["iptables-save", "-t", "nat"]).stdout.count("-j ISTIO_INBOUND") == 1


def program_as_istio(pod):
    words = ["--istio-exact", "-p", "15001", "-z", "15006", "-u", "1337", "-m", "REDIRECT", "-i", "*", "-b", "*", "-d", "15090,15021,15020"]
    assert apply_in(pod, Options.from_argv(words)).changed
