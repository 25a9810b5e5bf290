"""The server's flags: their defaults, what depends on the cluster, and the whole message for what contradicts."""

from __future__ import annotations

import os
import time

import pytest

from netinit.base.errors import NetinitError, OptionError
from netinit.cli.webhook.serve import probe
from netinit.inject.adding.settings import Kubelets
from netinit.webhook.settings import SECOND, ServeSettings

FILES = ["--tlsCertFile", "/c", "--tlsKeyFile", "/k"]
SECRET = ["--certificateSecret", "s"]


def read(*words):
    return ServeSettings.from_argv(list(words), {})


def test_the_defaults_are_those_of_istios_injector():
    found = read(*FILES)
    assert (found.port, found.monitoring_port, found.address, found.revision) == (15017, 15014, "", "default")
    assert (found.certificate_lifetime, found.shutdown_delay, found.health_interval) == (90 * 24 * 3600 * SECOND, 5 * SECOND, 0)
    assert (found.max_reviews, found.max_connections, found.log_level, found.log_as_json) == (128, 0, "info", False)
    assert (found.service, found.native_sidecars, found.dual_stack, found.ipv6) == ("netinit-webhook", True, False, "auto")
    assert (found.watch_namespaces, found.watch_proxy_configs, found.uses_cluster, found.watches_nodes) == (False,) * 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*SECRET, "--injectConfig", "a", "--injectConfigMapName", "b"],
         "--injectConfigMapName: contradicts --injectConfig; give one of the two"),
        ([*SECRET, "--meshConfig", "a", "--meshConfigMapName", "b"],
         "--meshConfigMapName: contradicts --meshConfig; give one of the two"),
        ([*SECRET, *FILES], "--certificateSecret: contradicts --tlsCertFile; give one of the two"),
        ([*SECRET, "--lastGoodConfigMapName", "l"],
         "--lastGoodConfigMapName: needs --injectConfigMapName or --meshConfigMapName; files are read again"),
        ([*SECRET, "--dual-stack", "true", "--ipv6", "on"], "--dual-stack: counts only with --ipv6 auto; give one of the two"),
        ([*SECRET, "--tlsKeyFile", "k"], "--tlsCertFile: needs --tlsKeyFile; give both"),
        (["--tlsCertFile", "c"], "--tlsCertFile: needs --tlsKeyFile; give both"),
        ([], "--tlsCertFile: no certificate is given; name files, or a Secret with --certificateSecret"),
        ([*SECRET, "--monitoringPort", "15017"], "--monitoringPort: 15017 is --port already; give another"),
        ([*SECRET, "--healthCheckFile", "h"], "--healthCheckFile: needs --healthCheckInterval, such as 2s"),
    ],
)  # fmt: skip
def test_what_contradicts_is_refused_with_what_to_do(words, message):
    with pytest.raises(OptionError) as error:
        read(*words)
    assert str(error.value) == message


@pytest.mark.parametrize(
    "words",
    [
        [*SECRET, "--injectConfigMapName", "b", "--meshConfig", "m"],
        [*SECRET, "--lastGoodConfigMapName", "l", "--injectConfigMapName", "i"],
        [*SECRET, "--lastGoodConfigMapName", "l", "--meshConfigMapName", "m"], [*SECRET, "--dual-stack", "true"],
        [*SECRET, "--healthCheckFile", "h", "--healthCheckInterval", "2s"],
    ],
)  # fmt: skip
def test_what_belongs_together_is_accepted(words):
    assert read(*words).certificate_secret == "s"


@pytest.mark.parametrize(
    "words",
    [
        ["--injectConfigMapName", "x"], ["--meshConfigMapName", "x"], ["--valuesConfigMapName", "x"], ["--webhookConfigName", "x"],
        ["--watchNamespaces", "true"], ["--watchProxyConfigs", "true"], ["--native-sidecars", "auto"],
    ],
)  # fmt: skip
def test_each_setting_that_needs_the_cluster_says_so(words):
    assert read(*FILES, *words).uses_cluster is True
    assert read(*SECRET).uses_cluster is True


def test_the_injectors_settings_follow_from_the_flags():
    found = read(*FILES, "--revision", "r", "--compliance-policy", "fips-140-3", "--native-sidecars", "false").injection
    assert (found.revision, found.compliance_policy, found.native_sidecars) == ("r", "fips-140-3", False)
    assert dict(found.proxy_metadata) == {}
    assert read(*FILES).injection.native_sidecars is True
    assert read(*FILES, "--native-sidecars", "auto").injection.native_sidecars == Kubelets()
    assert dict(read(*FILES, "--dual-stack", "true").injection.proxy_metadata) == {"ISTIO_DUAL_STACK": "true"}
    assert dict(read(*FILES, "--ipv6", "reject").injection.proxy_metadata) == {"NETINIT_IPV6": "reject"}


class TestProbe:
    """`netinit webhook probe`: the age of the health file."""

    @pytest.mark.parametrize(("age", "interval"), [(0.0, 4 * SECOND), (3.9, 4 * SECOND), (1.0, SECOND)])
    def test_a_file_that_is_not_older_than_the_interval_is_healthy(self, tmp_path, monkeypatch, age, interval):
        file = tmp_path / "health"
        file.write_text("ok")
        os.utime(file, (1000.0, 1000.0))
        monkeypatch.setattr(time, "time", lambda: 1000.0 + age)
        assert probe.callback(str(file), interval) == 0

    def test_an_older_file_and_a_missing_one_are_errors(self, tmp_path, monkeypatch):
        file = tmp_path / "health"
        with pytest.raises(NetinitError) as error:
            probe.callback(str(file), 4 * SECOND)
        assert str(error.value) == f'--probe-path: "{file}" cannot be read: No such file or directory'
        file.write_text("ok")
        os.utime(file, (1000.0, 1000.0))
        monkeypatch.setattr(time, "time", lambda: 1004.25)
        with pytest.raises(NetinitError) as error:
            probe.callback(str(file), 4 * SECOND)
        assert str(error.value) == f'the server is not healthy: it wrote "{file}" 4.25 s ago, 4.01 s are allowed'
