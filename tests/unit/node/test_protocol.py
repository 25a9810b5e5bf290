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


def message_of(*arguments, **more):
    with pytest.raises(CniError) as caught:
        ask(*arguments, **more)
    return caught.value.code, str(caught.value)


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


@pytest.mark.parametrize("version", ["0.0.9", "0.3.2", "1.2.0", "2.0.0", "", "x", None, 1])
def test_other_versions_are_incompatible(version):
    assert code_of({"cniVersion": version}) == CniCode.VERSION


@pytest.mark.parametrize(("verb", "first"), [("CHECK", "0.4.0"), ("GC", "1.1.0")])
def test_a_verb_is_known_from_its_version_on(verb, first):
    for version in VERSIONS:
        if VERSIONS.index(version) < VERSIONS.index(first):
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


OLD = {"ip4": {"ip": "10.1.2.3/24", "gateway": "10.1.2.1", "routes": [{"dst": "0.0.0.0/0"}]}, "ip6": {"ip": "fd00::3/64"}, "dns": {}, "x-more": [1]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("previous", [PREVIOUS, {**OLD, "cniVersion": "0.2.0"}, {**OLD, "cniVersion": "0.1.0"}, OLD, {"ips": ["x", {"address": []}]}])
def test_a_result_is_that_of_the_plugin_before_as_it_came(version, previous):
    assert result(ask({"cniVersion": version, "prevResult": previous})) == previous


@pytest.mark.parametrize("version", VERSIONS)
def test_a_result_without_one_before_is_an_empty_one_of_the_list_s_version(version):
    assert result(ask({"cniVersion": version})) == {"cniVersion": version}


def test_the_addresses_are_those_of_the_result_before_in_order():
    for previous in (PREVIOUS, OLD, {**PREVIOUS, **OLD}):
        assert ask({"prevResult": previous}).addresses == ("10.1.2.3", "fd00::3")
    assert ask({"prevResult": {"ip6": {"ip": "fd00::3/64"}}}).addresses == ("fd00::3",)
    assert ask().addresses == ()


def test_an_error_has_its_code_one_line_and_details():
    code, tree = body(encode_error(CniError("first\nsecond\x1b\nthird", CniCode.DRIFT), "0.4.0"))
    assert (code, tree) == (1, {"cniVersion": "0.4.0", "code": 102, "msg": "netinit: first", "details": "second\\x1b\nthird"})
    assert body(encode_answer(None)) == (0, None)
    assert body(encode_answer({"a": 1})) == (0, {"a": 1})


KNOWN = "netinit's plugin has 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
NOT_NAMED = "the configuration has no name, or one with other characters than letters, digits, _.-"
NO_INTERFACE = "CNI_IFNAME is not an interface name: 1 to 15 characters, no blanks, slashes and colons"


@pytest.mark.parametrize(("configuration", "changes", "expected"), [
    ({"cniVersion": "9"}, {}, (1, f'the configuration has cniVersion "9"; {KNOWN}')),
    ({"cniVersion": 1}, {}, (1, f"the configuration has a cniVersion that is no string; {KNOWN}")),
    ({"cniVersion": None}, {}, (1, f"the configuration has no cniVersion; {KNOWN}")),
    ({"cniVersion": "0.3.1"}, {"CNI_COMMAND": "CHECK"}, (1, "CHECK came with CNI 0.4.0; the configuration is of 0.3.1")),
    ({}, {"CNI_COMMAND": "GC"}, (1, "GC came with CNI 1.1.0; the configuration is of 1.0.0")),
    ({}, {"CNI_COMMAND": "add"}, (4, 'CNI_COMMAND is "add"; it must be one of ADD, DEL, CHECK, GC')),
    ({}, {"CNI_COMMAND": None}, (4, 'CNI_COMMAND is ""; it must be one of ADD, DEL, CHECK, GC')),
    ({}, {"CNI_ARGS": "a=b;c"}, (4, 'CNI_ARGS is "a=b;c"; it must be KEY=VALUE;KEY=VALUE')),
    ({}, {"CNI_NETNS": None, "CNI_IFNAME": None}, (4, "ADD needs CNI_IFNAME, CNI_NETNS, which the runtime did not set")),
    ({}, {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": None}, (4, "DEL needs CNI_CONTAINERID, which the runtime did not set")),
    ({}, {"CNI_CONTAINERID": "a/b"}, (4, "CNI_CONTAINERID has other characters than letters, digits, _.-")),
    ({}, {"CNI_IFNAME": "a b"}, (4, NO_INTERFACE)), ({}, {"CNI_IFNAME": ".."}, (4, NO_INTERFACE)),
    ({}, {"NETINIT_NETNS_ERRNO": "-1"}, (4, 'NETINIT_NETNS_ERRNO is "-1"; it must be a number of Linux')),
    ({}, {"NETINIT_NETNS_ERRNO": "4096"}, (4, 'NETINIT_NETNS_ERRNO is "4096"; it must be a number of Linux')),
    *[({}, {"NETINIT_NETNS_ERRNO": number}, (4, f'NETINIT_NETNS_ERRNO is "{number}"; it must be a number of Linux')) for number in ("00013", "²", "x", "")],
    ({"name": None}, {}, (7, NOT_NAMED)), ({"name": "a b"}, {}, (7, NOT_NAMED)),
    ({"prevResult": []}, {}, (6, "prevResult is not an object")),
])  # fmt: skip
def test_what_is_wrong_with_a_request_has_cni_s_code_and_a_sentence(configuration, changes, expected):
    assert message_of(configuration, **changes) == expected


@pytest.mark.parametrize("number", ["0", "9", "13", "4095", "0013"])
def test_an_error_of_the_plugin_is_a_number_of_linux(number):
    assert ask(NETINIT_NETNS_ERRNO=number).unopened == int(number)


@pytest.mark.parametrize(("first", "second", "expected"), [
    (variables(), b"{", (6, "the configuration on stdin is not JSON")),
    (variables(), b"[]", (6, "the configuration on stdin is not an object")),
    (b"CNI_COMMAND=ADD", b"{}", (6, "the request's variables are cut off")),
    (b"CNI_COMMAND=\xff\0", b"{}", (4, "a variable of CNI is not UTF-8")),
])  # fmt: skip
def test_what_is_no_request_at_all_has_a_code_and_a_sentence_too(first, second, expected):
    with pytest.raises(CniError) as caught:
        parse_request(first, second)
    assert (caught.value.code, str(caught.value)) == expected


def test_a_request_is_what_the_runtime_gave():
    arguments = "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u"
    tree = {"cniVersion": "1.1.0", "name": "net.A_1-b"}
    request = parse_request(variables(CNI_ARGS=arguments, OTHER=None) + b"stray\0", json.dumps(tree).encode())
    assert request == protocol.Request(
        verb="ADD", version="1.1.0", container="c1", netns="/run/netns/p", interface="eth0", pod=("shop", "web"), uid="u", configuration=tree,
    )  # fmt: skip
    bare = parse_request(b"CNI_COMMAND=GC\0", json.dumps(tree).encode())
    assert bare == protocol.Request(verb="GC", version="1.1.0", configuration=tree)


def test_our_own_codes_are_from_100_on_as_cni_asks():
    codes = {name: value for name, value in vars(CniCode).items() if name.isupper()}
    assert codes == {
        "VERSION": 1, "FIELD": 2, "UNKNOWN": 3, "ENVIRONMENT": 4, "IO": 5, "DECODING": 6, "CONFIGURATION": 7, "LATER": 11,
        "NOT_PROGRAMMED": 100, "BAD_POD": 101, "DRIFT": 102,
    }  # fmt: skip


NOT_OURS, TOO_LONG = (6, "this is not a request of netinit's plugin"), (7, "the request is too long")


@pytest.mark.parametrize(("line", "expected"), [
    (b"netinit-cni 1 65536 1048576 600000", (65536, 1048576, 600000)), (b"netinit-cni 1 1 2 600001", (1, 2, 600000)), (b"netinit-cni 1 0 0 0", (0, 0, 0)),
    (b"netinit-cni 1 65537 2 3", TOO_LONG), (b"netinit-cni 1 1 1048577 3", TOO_LONG), (b"netinit-cni 1 999999999 2 3", TOO_LONG),
    (b"netinit-cni 1 1000000000 2 3", NOT_OURS), (b"netinit-cni 1 1 2", NOT_OURS), (b"netinit-cni 1 1 2 3 4", NOT_OURS), (b"netinit-cni 1 -1 2 3", NOT_OURS),
    (b"netinit-cni 2 1 2 3", NOT_OURS), (b"GET / HTTP/1.1", NOT_OURS), (b"", NOT_OURS),
])  # fmt: skip
def test_the_first_line_has_bounded_lengths_and_a_bounded_time(line, expected):
    if len(expected) == 3:
        assert parse_head(line) == expected
        return
    with pytest.raises(CniError) as caught:
        parse_head(line)
    assert (caught.value.code, str(caught.value)) == expected


def test_a_long_error_is_shortened():
    tree = body(encode_error(CniError("x" * 3000 + "\n" + "y" * 3000, 7)))[1]
    assert tree["cniVersion"] == "1.1.0"
    assert len(tree["msg"].removeprefix("netinit: ")) == len(tree["details"]) == 2001  # with the dots at its end


def test_what_is_no_address_in_a_result_is_passed_on():
    previous = {"cniVersion": "1.0.0", "ips": ["x", {"gateway": "10.0.0.1"}, {"address": []}, {"address": ""}], "ip4": "x", "ip6": {"ip": [1]}}
    request = ask({"cniVersion": "0.4.0", "prevResult": previous})
    assert request.addresses == ()
    assert result(request) == previous


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
