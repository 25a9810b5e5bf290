"""Whether the webhook is ready, and why not: one line that begins /readyz, is logged and sent as an event."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace

from netinit.base.errors import ConfigError
from netinit.inject import Settings
from netinit.serving.event_log import EventLog
from netinit.webhook.cluster import WatchedCluster
from netinit.webhook.configuration import Texts
from netinit.webhook.controller import Controller
from netinit.webhook.loaders import ConfigLoader
from netinit.webhook.serving_state import Metrics, ServingState
from netinit.webhook.settings import ServeSettings


def test_the_reason_names_each_check_that_fails_and_the_problems_behind_it():
    state = ServingState()
    state.cluster_problems["ConfigMap mesh/istio"] = "the API cannot be reached:\nConnection refused\x1b[2J"
    is_ready, text = state.report(verbose=False)
    assert not is_ready
    first = text.splitlines()[0]
    assert first == "not ready: configuration: none yet; certificate: none yet; ConfigMap mesh/istio: the API cannot be reached:\\nConnection refused\\x1b[2J"
    assert text.splitlines()[-1] == "not ready"


def test_a_problem_of_a_ready_replica_is_no_reason():
    state = ServingState(certificate_expires=time.time() + 1000, configuration_problem="the newest one is invalid")
    state.served = SimpleNamespace(generation=1, version="v", texts=Texts(), refused_canaries=0, is_restored=False, config=SimpleNamespace(broken={}))
    assert state.find_reason() == ("", "")
    metrics = Metrics(state, lambda: 0)
    state.served = None
    assert state.find_reason() == ("configuration: none yet", "configuration: the newest one is invalid")
    assert "netinit_webhook_ready 0.0" in metrics.text().decode()


def test_the_newest_reason_is_kept_for_an_event_however_many_there_are():
    async def run():
        controller = Controller(ServeSettings(tls_cert_file="c", tls_key_file="k"), ServingState(), None, EventLog("info"))
        for number in range(100):
            await controller._announce(f"reason {number}")
        assert controller._unready.qsize() == 1
        assert controller._find_reason().checks == "configuration: none yet; certificate: none yet"
        controller._state.draining = True
        assert controller._find_reason() is None, "a replica that ends is no problem to report"
        return controller._unready.get_nowait()

    assert asyncio.run(run()) == "reason 99"


def test_a_resource_of_a_tenant_that_is_left_out_is_said_and_does_not_mean_that_the_cluster_cannot_be_used():
    state = ServingState()
    settings = ServeSettings(tls_cert_file="c", tls_key_file="k", namespace="mesh", watch_proxy_configs=True)
    cluster = WatchedCluster(None, settings, state, config=ConfigLoader(Settings(), state, lambda *_: None), certificates=None)
    cluster._publish_proxy_configs({("shop", "bad"): ConfigError("ProxyConfig shop/bad: concurrency is no number")})
    assert "[!]ProxyConfig resources that are left out: ProxyConfig shop/bad: concurrency is no number" in state.report(verbose=True)[1].splitlines()
    assert "shop/bad" not in str(state.find_reason())
    assert "netinit_webhook_cluster_error 0.0" in Metrics(state, lambda: 0).text().decode()
    state.cluster_problems.note("nodes", "403 Forbidden")
    assert "netinit_webhook_cluster_error 1.0" in Metrics(state, lambda: 0).text().decode()
