"""A file of options: what a key and its value mean, what is refused, and the file that makes options again."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config_schema import make_schema
from netinit.base.errors import OptionError
from netinit.golang import goyaml
from netinit.options import FLAGS, LAYOUTS, Options, kinds
from netinit.options.file import WITHOUT, known_flags, read_tree, render_file
from strategies import made_ambient_options, made_options
from sweeps import together


def read(tree, texts=None, environ=None):
    return Options.from_texts(texts or {}, environ or {}, (), read_tree(tree, "x.yaml"))


@together(
    ("tree", "field", "value"),
    [
        ({"istio-inbound-ports": "*"}, "inbound_ports", "*"),
        ({"istio-inbound-ports": 80}, "inbound_ports", (80,)),
        ({"istio-inbound-ports": [80, "443"]}, "inbound_ports", (80, 443)),
        ({"istio-inbound-ports": []}, "inbound_ports", ()),
        ({"envoy-port": 9000}, "outbound_port", 9000),
        ({"redirect-dns": True}, "redirect_dns", True),
        ({"redirect-dns": "false"}, "redirect_dns", False),
        ({"ipv6": True}, "ipv6", "on"),
        ({"ipv6": False}, "ipv6", "off"),
        ({"ipv6": "auto"}, "ipv6", "auto"),
        ({"lock-timeout": "3s"}, "lock_timeout", 3 * 10**9),
        ({"ISTIO_OUTBOUND_OWNER_GROUPS": [1, 2]}, "owner_groups", (1, 2)),
        ({"$schema": "config.schema.json"}, "inbound_ports", ()),
        (None, "inbound_ports", ()),
    ],
)
def test_a_key_is_a_flag_and_its_value_what_the_flag_takes(tree, field, value):
    assert getattr(read(tree), field) == value


def test_exceptions_of_users_are_a_list_too():
    one = read({"exclude-outbound-for-uids": ["tcp:22:1", "udp:53:2"]})
    assert one == read({"exclude-outbound-for-uids": "tcp:22:1;udp:53:2"})


@together(
    ("tree", "problem"),
    [
        ({"istio-inbound-portz": 80}, "x.yaml: istio-inbound-portz: there is no such option; did you mean istio-inbound-ports?"),
        ({"qqq": 1}, "x.yaml: qqq: there is no such option; the keys are the long names of flags"),
        ({1: 1}, "x.yaml: 1: there is no such option; the keys are the long names of flags"),
        ({"layout": ["current"]}, f"x.yaml: layout: is a list: write {'|'.join(LAYOUTS)}"),
        ({"redirect-dns": [True]}, "x.yaml: redirect-dns: is a list that holds 'true': write true or false"),
        ({"istio-inbound-ports": {"a": 1}}, "x.yaml: istio-inbound-ports: is a mapping: write PORTS|*, or a list"),
        ({"istio-inbound-ports": [True]}, "x.yaml: istio-inbound-ports: is a list that holds 'true': write PORTS|*, or a list"),
        ({"istio-inbound-ports": None}, "x.yaml: istio-inbound-ports: has no value: write PORTS|*, or a list"),
        ({"envoy-port": True}, "x.yaml: envoy-port: 'true' is not what it takes: write PORT"),
        ({"envoy-port": 1.5}, "x.yaml: envoy-port: '1.5' is not what it takes: write PORT"),
        ({"netns": "blue"}, "x.yaml: netns: belongs to the command line, and not into a file: give --network-namespace there"),
        ({"network-namespace": "blue"}, "x.yaml: network-namespace: belongs to the command line"),
        ({"config": "other"}, "x.yaml: config: belongs to the command line, and not into a file: give --config there"),
        ({"n": "true"}, "x.yaml: n: belongs to the command line, and not into a file: give --dry-run there"),
        ({"b": 80}, "x.yaml: b: the keys are the long names of flags: write istio-inbound-ports"),
        ([1], "--config: x.yaml holds no options"),
        ("text", "--config: x.yaml holds no options"),
    ],
)
def test_what_is_no_option_or_no_value_is_refused_with_what_helps(tree, problem):
    with pytest.raises(OptionError) as caught:
        read_tree(tree, "x.yaml")
    assert [one for one in caught.value.problems if one.startswith(problem)]


def test_a_value_is_checked_by_the_flag_s_own_reader_and_all_bad_ones_are_told():
    with pytest.raises(OptionError) as caught:
        read({"envoy-port": 0, "istio-service-cidr": "10.0.0.0"})
    assert caught.value.problems == (
        "x.yaml: envoy-port: '0' is not a port: use a decimal number from 1 to 65535",
        "x.yaml: istio-service-cidr: '10.0.0.0' has no prefix length; write it as a CIDR, for example 10.0.0.0/8",
    )


def test_a_flag_goes_before_a_variable_and_that_before_the_file():
    tree = {"envoy-port": 1, "inbound-capture-port": 1, "inbound-tunnel-port": 1}
    made = read(tree, {"inbound_port": ("2", "-z"), "tunnel_port": ("2", "-e")}, {"INBOUND_TUNNEL_PORT": "3", "INBOUND_CAPTURE_PORT": "3"})
    assert (made.outbound_port, made.inbound_port, made.tunnel_port) == (1, 2, 2)
    assert read(tree, {}, {"INBOUND_TUNNEL_PORT": "3"}).tunnel_port == 3
    assert read(tree, {}, {"INBOUND_TUNNEL_PORT": ""}).tunnel_port == 1


@settings(max_examples=60)
@given(st.one_of(made_options(), made_ambient_options()))
def test_the_file_of_options_makes_them_again_and_fits_the_schema(options):
    tree = goyaml.load(render_file(options))
    assert read(tree) == options
    properties = make_schema()["properties"]
    for key, value in tree.items():
        assert fits(value, properties[key]), (key, value)


@together("flag", [flag for flag in FLAGS if flag.kind is kinds.DURATION], ids=lambda flag: flag.field)
@pytest.mark.parametrize("text", ["1ns", "500ms", "90s", "2m"])
def test_a_duration_stands_in_the_file_as_a_flag_takes_it(flag, text):
    options = Options(**{flag.field: text})
    assert read(goyaml.load(render_file(options))) == options


def fits(value, schema):
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    types = {"string": str, "integer": int, "boolean": bool, "array": list}
    named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    right = any(type(value) is types[name] for name in named)
    return right and all(fits(item, schema["items"]) for item in (value if isinstance(value, list) else ()))


def test_the_schema_that_is_shipped_knows_every_option_that_a_file_may_hold():
    shipped = json.loads((files("netinit") / "data" / "config.schema.json").read_text())
    assert shipped == make_schema(), "python tests/reference.py renews it"
    fields = {flag.field for flag in known_flags().values()}
    assert fields == {flag.field for flag in FLAGS} - WITHOUT
