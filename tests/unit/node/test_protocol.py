"""CNI's requests, results and errors: what libcni's own tests ask of a plugin, verb by verb and version by version."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netinit.base.errors import CniError
from netinit.node import protocol
from netinit.node.protocol import VERSIONS, CniCode, encode_answer, encode_error, parse_head, parse_request, result

GIVEN = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/p", "CNI_IFNAME": "eth0"}
PREVIOUS = {
    "cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": "/run/netns/p"}],
    "ips": [{"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0}, {"address": "fd00::3/64"}], "dns": {}, "x-more": [1],
}  # fmt: skip


def variables(**changes):
    found = {**GIVEN, **changes}
    return b"".join(f"{name}={value}".encode() + b"\0" for name, value in found.items() if value is not None)


def ask(configuration=None, **changes):
    tree = {"cniVersion": "1.0.0", "name": "net", "type": "netinit-cni", **(configuration or {})}
    return parse_request(variables(**changes), json.dumps({key: value for key, value in tree.items() if value is not None}).encode())


def code_of(*arguments, **more):
    with pytest.raises(CniError) as caught:
        ask(*arguments, **more)
    return caught.value.code


def body(answer):
    head, _, rest = answer.partition(b"\n")
    code, size = map(int, head.removeprefix(protocol.GREETING).split())
    assert len(rest) == size
    return code, json.loads(rest) if rest else None


@pytest.mark.parametrize("missing", ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"])
def test_add_names_the_variable_that_the_runtime_left_out(missing):
    with pytest.raises(CniError, match=missing) as caught:
        ask(**{missing: None})
    assert caught.value.code == CniCode.ENVIRONMENT


def test_del_does_without_a_namespace_and_check_does_not():
    assert ask(CNI_COMMAND="DEL", CNI_NETNS=None).netns == ""
    assert code_of(CNI_COMMAND="CHECK", CNI_NETNS=None) == CniCode.ENVIRONMENT


@pytest.mark.parametrize("bad", ["-c", "c/1", "../../etc", "c 1", "", "c\n1", "ü"])
def test_a_container_id_with_other_characters_is_refused(bad):
    assert code_of(CNI_CONTAINERID=bad) == CniCode.ENVIRONMENT


@pytest.mark.parametrize("bad", ["", "sixteen_letters_", "eth/0", "eth:0", "e 0", ".", "..", "e\t0"])
def test_a_name_that_no_interface_can_have_is_refused(bad):
    assert code_of(CNI_IFNAME=bad) == CniCode.ENVIRONMENT


@pytest.mark.parametrize("bad", ["", "a b", "/net", None, 7])
def test_a_network_without_a_proper_name_is_no_configuration(bad):
    assert code_of({"name": bad}) == CniCode.CONFIGURATION


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "1.2.0", "", "x", None, 1])
def test_other_versions_are_incompatible(version):
    assert code_of({"cniVersion": version}) == CniCode.VERSION


@pytest.mark.parametrize(("verb", "first"), [("CHECK", 1), ("GC", 3)])
def test_a_verb_is_known_from_its_version_on(verb, first):
    for place, version in enumerate(VERSIONS):
        if place < first:
            assert code_of({"cniVersion": version}, CNI_COMMAND=verb) == CniCode.VERSION
        else:
            assert ask({"cniVersion": version}, CNI_COMMAND=verb).verb == verb


def test_an_unknown_verb_is_an_error_of_the_environment():
    assert code_of(CNI_COMMAND="PLAY") == CniCode.ENVIRONMENT


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b'{"a":1}x', b"[" * 5000])
def test_what_is_no_object_of_json_cannot_be_decoded(data):
    with pytest.raises(CniError) as caught:
        parse_request(variables(), data)
    assert caught.value.code == CniCode.DECODING


@pytest.mark.parametrize("name", [None, "", "a b", "-x", "a/b", 7])
def test_a_configuration_without_a_usable_name_is_refused(name):
    assert code_of({"name": name}) == CniCode.CONFIGURATION


@pytest.mark.parametrize("previous", [[], "x", 1])
def test_a_result_before_that_is_no_object_cannot_be_decoded(previous):
    assert code_of({"prevResult": previous}) == CniCode.DECODING


def test_the_arguments_are_pairs():
    request = ask(CNI_ARGS="IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u=c;")
    assert (request.pod, request.uid) == (("shop", "web"), "u=c")
    assert code_of(CNI_ARGS="nonsense") == CniCode.ENVIRONMENT


@pytest.mark.parametrize("version", VERSIONS)
def test_a_result_is_that_of_the_plugin_before_in_the_lists_version(version):
    made = result(ask({"cniVersion": version, "prevResult": PREVIOUS}))
    assert made["cniVersion"] == version
    families = [item.get("version") for item in made["ips"]]
    assert families == (["4", "6"] if version < "1" else [None, None])
    assert {key: made[key] for key in ("interfaces", "dns", "x-more")} == {key: PREVIOUS[key] for key in ("interfaces", "dns", "x-more")}
    assert result(ask({"cniVersion": version})) == {"cniVersion": version}


def test_a_result_of_an_older_version_loses_what_newer_ones_do_not_have():
    old = {**PREVIOUS, "cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.1.2.3/24"}]}
    assert result(ask({"prevResult": old}))["ips"] == [{"address": "10.1.2.3/24"}]


def test_the_addresses_are_those_of_the_result_before_in_order():
    assert ask({"prevResult": PREVIOUS}).addresses == ("10.1.2.3", "fd00::3")
    assert ask().addresses == ()


def test_an_error_has_its_code_one_line_and_details():
    code, tree = body(encode_error(CniError("first\nsecond\x1b\nthird", CniCode.DRIFT), "0.4.0"))
    assert (code, tree) == (1, {"cniVersion": "0.4.0", "code": 102, "msg": "netinit: first", "details": "second\\x1b\nthird"})
    assert body(encode_answer(None)) == (0, None)
    assert body(encode_answer({"a": 1})) == (0, {"a": 1})


@given(st.binary(max_size=80))
def test_no_first_line_is_taken_that_is_not_of_the_plugin(line):
    try:
        lengths = parse_head(line)
    except CniError:
        return
    assert line.startswith(protocol.GREETING)
    assert lengths[0] <= 64 << 10
    assert lengths[1] <= 1 << 20


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_whatever_comes_is_a_request_or_an_error_of_cni(first, second):
    for given_variables in (first, variables()):
        try:
            parse_request(given_variables, second)
        except CniError as error:
            assert error.code in {1, 4, 6, 7}
