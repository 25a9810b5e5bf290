"""How configurations come in, in one process."""

from __future__ import annotations

import asyncio
import gc
import json

import pytest

from netinit.base.errors import ClusterError, ConfigError
from netinit.inject import Settings
from netinit.kube.access import Access
from netinit.webhook.cluster import WatchedCluster
from netinit.webhook.configuration import Texts
from netinit.webhook.loaders import ConfigLoader, read_files
from netinit.webhook.serving_state import ServingState
from netinit.webhook.settings import ServeSettings
from webhook_server import CONFIG

VALUES = '{"release": "first"}'


def tracked():
    gc.collect()
    return len(gc.get_objects())


def test_a_setting_from_the_cluster_applies_to_the_configuration_in_use_and_is_logged():
    state, logged = ServingState(), []
    loader = ConfigLoader(Settings(), state, lambda *line: logged.append(line))
    asyncio.run(loader.offer(Texts(values=VALUES)))
    loader.change_settings("2 nodes: no native sidecars", native_sidecars=False)
    assert state.served.settings == Settings(native_sidecars=False)
    assert logged[-1] == ("info", "2 nodes: no native sidecars")


def test_values_may_be_absent_from_a_folder_but_not_unreadable(tmp_path):
    settings = ServeSettings(inject_config=str(tmp_path), mesh_config="", tls_cert_file="c", tls_key_file="k")
    (tmp_path / "config").write_text("policy: enabled")
    assert read_files(settings).values is None
    (tmp_path / "values").symlink_to("values")
    with pytest.raises(ConfigError, match=r"^--injectConfig: .*/values cannot be read: "):
        read_files(settings)


@pytest.mark.parametrize("bad", [False, True], ids=["good ones", "bad ones"])
def test_one_configuration_after_the_other_leaves_nothing_behind(bad):
    gc.collect()
    gc.freeze()  # what other tests have left is looked through once, not for each configuration
    status = ServingState()
    loader = ConfigLoader(Settings(), status, lambda *_: None)

    def offer(number):
        values = f"{{global: {{meshID: mesh-{number}, proxy: {{resources: {'[1]' if bad else '{}'}}}}}}}"
        texts = Texts(values=values, mesh=f"trustDomain: td{number}.example\n")
        assert asyncio.run(loader.offer(texts)) == status.configuration_problem
        assert bool(status.configuration_problem) is bad, status.configuration_problem
        assert asyncio.run(loader.offer(texts)) == "", "the same texts are checked once"

    for number in range(3):
        offer(number)
    before = tracked()
    for number in range(3, 13):
        offer(number)
    assert tracked() - before < 100


class Api:
    """An API with a ConfigMap of the configuration and one of the last good one; a watch waits, or fails as `error` says."""

    access = Access(server="https://api", namespace="mesh")

    def __init__(self, data, error=""):
        self.error, self.events, self.maps = error, [], {"injector": data, "last": {}}

    async def list(self, resource, namespace, *, fields, keep):
        name = fields.partition("=")[2]
        data = self.maps.get(name)
        found = {"metadata": {"name": name, "namespace": namespace, "resourceVersion": "7"}, "data": data}
        return [keep(found)] if data is not None else [], "7"

    async def watch(self, resource, namespace, **more):
        if self.error:
            raise ClusterError(self.error)
        await asyncio.Event().wait()
        yield

    async def get(self, resource, name, namespace):
        assert namespace == self.access.namespace
        return {"data": self.maps[name]}

    async def patch(self, resource, name, patch, namespace):
        assert namespace == self.access.namespace
        self.maps[name] = patch["data"]

    async def create(self, resource, tree, namespace):
        self.events.append(tree)


def follow(api, until):
    """What the server holds after it has followed the API's ConfigMaps until this is so."""
    state = ServingState()
    settings = ServeSettings(config_map="injector", last_good_map="last", tls_cert_file="c", tls_key_file="k")

    async def run():
        cluster = WatchedCluster(api, settings, state, config=ConfigLoader(Settings(), state, lambda *_: None), certificates=None)
        task, *others = map(asyncio.create_task, cluster.tasks(asyncio.Queue()))
        async with asyncio.timeout(60):
            while not until(state):
                assert not task.done(), task
                await asyncio.sleep(0.01)
        for one in (task, *others):
            one.cancel()
        await asyncio.gather(task, *others, return_exceptions=True)

    asyncio.run(run())
    return state


def test_a_config_map_is_served_and_kept_as_the_last_good_one_and_an_error_of_its_watch_stays():
    api = Api({"config": json.dumps(CONFIG), "values": VALUES}, error="the API is away")
    state = follow(api, lambda state: state.served and state.cluster_problems and api.maps["last"])
    assert state.cluster_problems == {"ConfigMap mesh/injector": "the API is away"}
    assert api.maps["last"]["origin"] == state.served.texts.origin == "ConfigMap mesh/injector"
    assert (api.maps["last"]["values"], api.maps["last"]["mesh"], api.events) == (VALUES, None, [])


def test_a_config_map_without_its_key_is_an_event_and_the_last_good_one_is_used():
    api = Api({"other": ""})
    api.maps["last"] = {"config": json.dumps(CONFIG), "values": VALUES, "origin": "yesterday"}
    state = follow(api, lambda state: api.events)
    assert state.configuration_problem == "ConfigMap mesh/injector: it has no key config"
    assert state.served.is_restored
    assert "uses ConfigMap mesh/last, the last good one of yesterday" in api.events[0]["message"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "injector", "namespace": "mesh"}
    assert reference.items() <= api.events[0]["involvedObject"].items()


def test_a_config_map_that_is_not_there_is_a_problem():
    state = follow(Api(None), lambda state: state.cluster_problems)
    assert (state.cluster_problems, state.served) == ({"ConfigMap mesh/injector": "it does not exist"}, None)
