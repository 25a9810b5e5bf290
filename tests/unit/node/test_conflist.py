"""The runtime's list and the plugin's settings as texts: what is wrong with a list, and how both are written."""

from __future__ import annotations

import json

import pytest

from netinit.base.errors import ConfigError
from netinit.node.conflist import network_of, settings_of, with_entry, without_entry
from netinit.node.protocol import VERSIONS
from netinit.node.settings import SECOND, WAIT, InstallSettings

VERSION = "netinit's plugin has 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"


@pytest.mark.parametrize(("text", "single", "problem"), [
    ("[]", False, "it is not a JSON object"), ('{"cniVersion": "1.2.0"}', False, f'it has cniVersion "1.2.0"; {VERSION}'),
    ("{}", False, f"it has no cniVersion; {VERSION}"), ('{"cniVersion": ""}', False, f"it has no cniVersion; {VERSION}"),
    ('{"cniVersion": null}', False, f"it has no cniVersion; {VERSION}"),
    ('{"cniVersion": 1}', False, f"it has a cniVersion that is no string; {VERSION}"),
    ('{"cniVersion": "1.0.0", "cniVersions": ["1.1.0", "1.2.0"]}', False, f'it has cniVersion "1.2.0"; {VERSION}'),
    ('{"cniVersion": "2.0.0", "cniVersions": ["1.1.0"]}', False, f'it has cniVersion "2.0.0"; {VERSION}'),
    ("{}", True, f"it has no cniVersion; {VERSION}"), ('{"cniVersion": "1.0.0"}', False, "it has no name"),
    ('{"cniVersion": "1.0.0", "name": 1}', False, "it has no name"),
    ('{"cniVersion": "1.0.0", "name": "n"}', True, "it names no plugin (type)"),
    ('{"cniVersion": "1.0.0", "name": "n"}', False, "it has no list of plugins; netinit takes none of the folder of that name beside it for a network"),
    ('{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "a"}]}', True, "it names no plugin (type); runtimes read lists of plugins only from files named *.conflist: rename it"),
    ('{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "a", "mtu": NaN}]}', False, "it is not JSON: NaN is no JSON"),
    ('{"cniVersion": "1.0.0", "name": "n", "plugins": [{}]}', False, "it has no list of plugins"),
    ('{"cniVersion": "1.0.0", "name": "n", "plugins": [{"type": "netinit-cni"}]}', False, "it has no plugin that makes a network"),
    ("{", False, "it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
])  # fmt: skip
def test_a_configuration_that_no_runtime_takes_is_an_error_that_says_why(text, single, problem):
    with pytest.raises(ConfigError) as caught:
        with_entry(text, single=single)
    assert str(caught.value) == problem


def test_the_plugin_s_settings_are_a_line_each():
    asked = InstallSettings(namespace="mesh", daemon_set="d", socket="/run/x/s", timeout=7 * SECOND, exclude_namespaces=("a", "b"))
    lines = ["socket=/run/x/s", "seconds=7", "namespace=mesh", "daemon-set=d", "exclude-namespace=a", "exclude-namespace=b"]
    assert settings_of(asked.replace(outside_namespaces=WAIT)).splitlines() == lines
    assert settings_of(asked).splitlines() == [*lines[:4], "outside-namespaces=/run/x/outside-namespaces", *lines[4:]]
    assert [settings_of(asked.replace(timeout=time)).splitlines()[1] for time in (1, SECOND, 2 * SECOND - 1, 2 * SECOND)] == [
        "seconds=1", "seconds=1", "seconds=1", "seconds=2",
    ]  # fmt: skip
    for text in ("a\nb", "a\0b"):
        with pytest.raises(ConfigError, match=r"^the plugin's setting namespace=.* must be one line$"):
            settings_of(asked.replace(namespace=text))


def test_a_list_that_is_written_anew_is_indented_as_people_do():
    single = json.dumps({"cniVersion": "0.4.0", "name": "b", "type": "bridge", "x": "ü"})
    lines = ["{", '  "cniVersion": "0.4.0",', '  "name": "b",', '  "plugins": [', "    {", '      "type": "bridge",', '      "x": "ü"', "    },"]
    assert with_entry(single, single=True).splitlines() == [*lines, "    {", '      "type": "netinit-cni"', "    }", "  ]", "}"]
    assert network_of().splitlines() == ["{", '  "cniVersion": "1.0.0",', '  "name": "netinit-cni",', '  "type": "netinit-cni"', "}"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_list_of_each_version_of_the_specification_is_taken_and_restored_to_the_byte(version):
    text = json.dumps({"cniVersion": version, "name": "azure", "plugins": [{"type": "azure-vnet", "mode": "transparent"}, {"type": "portmap"}]})
    assert [one["type"] for one in json.loads(with_entry(text, single=False))["plugins"]] == ["azure-vnet", "portmap", "netinit-cni"]
    assert without_entry(with_entry(text, single=False)) == text


def test_a_list_may_offer_several_versions():
    text = json.dumps({"cniVersions": ["0.3.0", "1.1.0"], "name": "n", "plugins": [{"type": "bridge"}]})
    assert json.loads(with_entry(text, single=False))["plugins"][-1] == {"type": "netinit-cni"}
