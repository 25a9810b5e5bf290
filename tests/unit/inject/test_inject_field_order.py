"""JSON in the order of Kubernetes' types."""

from __future__ import annotations

import math

import pytest

from netinit.base.errors import InjectionError
from netinit.inject.adding.kubernetes_types import encode_json, ordered


def test_a_container_is_in_the_order_of_its_struct():
    container = {
        "zeta": 1,
        "securityContext": {"zz": 1, "runAsUser": 0, "privileged": None, "capabilities": {}},
        "env": [{"value": "1", "name": "A"}],
        "image": "i",
        "name": "n",
        "args": [],
        "tty": False,
    }
    assert encode_json(ordered("v1.Container", container)) == (
        '{"name":"n","image":"i","env":[{"name":"A","value":"1"}],"resources":{},'
        '"securityContext":{"capabilities":{},"runAsUser":0,"zz":1},"zeta":1}'
    )


def test_a_handler_has_no_empty_fields():
    action = {"httpGet": {"scheme": "", "port": 80, "path": "/", "httpHeaders": []}}
    assert encode_json(ordered("v1.ProbeHandler", action)) == '{"httpGet":{"path":"/","port":80}}'


def test_numbers_and_html_are_as_go_writes_them():
    assert encode_json({"a": 1.0, "b": 1e-7, "c": "<&>"}) == '{"a":1,"b":1e-7,"c":"\\u003c\\u0026\\u003e"}'


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_json_cannot_hold_is_a_clear_error(number):
    with pytest.raises(InjectionError, match=r"a value that JSON cannot: json: unsupported value: (NaN|\+Inf)"):
        encode_json({"a": [number]})
