"""Strategic merge: the keys of lists, their order and the directives."""

from __future__ import annotations

import pytest

from netinit.base.errors import InjectionError
from netinit.base.tree import shown
from netinit.inject.adding.merge import MERGE_KEYS, merge, only_names
from sweeps import together


@together(("field", "key"), sorted(MERGE_KEYS.items()))
def test_lists_of_these_fields_are_joined_by_their_key(field, key):
    merged = merge({field: [{key: 1, "a": 1}, {key: 2}]}, {field: [{key: 1, "b": 2}]})
    assert merged == {field: [{key: 1, "a": 1, "b": 2}, {key: 2}]}


@pytest.mark.parametrize("field", ["tolerations", "args", "command", "envFrom", "nameservers", "sources", "items"])
def test_other_lists_are_replaced(field):
    assert merge({field: [{"name": 1}]}, {field: [{"name": 2}]}) == {field: [{"name": 2}]}


ORDERS = [
    # original, patch, result
    ("ab", "", "ab"),
    ("", "ab", "ab"),
    ("a", "b", "ba"),
    ("abc", "b", "abc"),
    ("abc", "cb", "acb"),
    ("abc", "xb", "xabc"),
    ("abc", "bx", "abxc"),
    ("abc", "ca", "bca"),
    ("ab", "xy", "xyab"),
]


@pytest.mark.parametrize(("original", "patch", "result"), ORDERS)
def test_patch_items_come_first_unless_the_original_had_it_otherwise(original, patch, result):
    merged = merge(
        {"env": [{"name": name} for name in original]}, {"env": [{"name": name, "value": "new"} for name in patch]}
    )
    assert "".join(item["name"] for item in merged["env"]) == result


def test_null_deletes_and_an_empty_volume_is_a_bare_name():
    assert merge({"a": 1, "b": 2}, {"a": None}) == {"b": 2}
    assert merge({}, {"volumes": [{"name": "v", "emptyDir": None}]}) == {"volumes": [{"name": "v"}]}


def test_mappings_are_merged_deeply_and_nothing_given_is_changed():
    original, patch = {"m": {"a": {"b": 1}}}, {"m": {"a": {"c": [1, {"d": None}]}}}
    assert merge(original, patch) == {"m": {"a": {"b": 1, "c": [1, {}]}}}
    assert original == {"m": {"a": {"b": 1}}}
    assert patch == {"m": {"a": {"c": [1, {"d": None}]}}}


def test_patch_replace_takes_the_place_of_the_mapping():
    assert merge({"m": {"a": 1}}, {"m": {"$patch": "replace", "b": 2}}) == {"m": {"b": 2}}


def test_patch_delete_empties_the_mapping():
    assert merge({"m": {"a": 1}}, {"m": {"$patch": "delete"}}) == {"m": {}}


def test_patch_replace_in_a_list_drops_the_original_items():
    assert merge({"env": [{"name": "a"}]}, {"env": [{"$patch": "replace"}, {"name": "b"}]}) == {"env": [{"name": "b"}]}


def test_patch_delete_in_a_list_drops_the_item_of_that_key():
    assert merge({"env": [{"name": "a"}, {"name": "b"}]}, {"env": [{"name": "a", "$patch": "delete"}]}) == {
        "env": [{"name": "b"}]
    }


def test_retain_keys_drops_the_others():
    volume = {"name": "v", "emptyDir": {}}
    patch = {"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}
    assert merge({"volumes": [volume]}, {"volumes": [patch]}) == {
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}]
    }


def test_set_element_order_orders_and_keeps_the_rest_behind():
    original = {"env": [{"name": "a"}, {"name": "b"}, {"name": "c"}]}
    order = [{"name": "c"}, {"name": "a"}]
    assert merge(original, {"$setElementOrder/env": order}) == {"env": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}


def test_delete_from_primitive_list_and_finalizers():
    assert merge({"finalizers": ["a", "b"]}, {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]}) == {
        "finalizers": ["b", "c"]
    }


def test_two_patch_items_of_one_key_are_joined_in_a_list_that_the_original_has():
    patch = {"env": [{"name": "a", "value": "1"}, {"name": "b"}, {"name": "a", "valueFrom": {"x": 1}}]}
    joined = [{"name": "a", "value": "1", "valueFrom": {"x": 1}}, {"name": "b"}]
    assert merge({"env": [{"name": "c"}]}, patch) == {"env": [*joined, {"name": "c"}]}
    assert merge({"env": [{"name": "a", "old": 1}]}, patch) == {"env": [{**joined[0], "old": 1}, joined[1]]}


def test_what_the_original_lacks_is_copied_and_nothing_in_it_is_joined():
    twice = [{"name": "a", "value": "1"}, {"name": "a", "valueFrom": {"x": 1}}]
    assert merge({}, {"env": twice}) == {"env": twice}
    assert merge({"env": None}, {"env": twice}) == {"env": twice}
    new = {"name": "new", "env": twice, "volumeMounts": [{"mountPath": "/m", "name": "v"}, {"mountPath": "/m"}]}
    assert merge({"containers": [{"name": "old"}]}, {"containers": [new]})["containers"][0] == new


def test_what_is_copied_has_no_directives_and_no_nulls():
    new = {"name": "new", "a": None, "env": [{"name": "x", "$patch": "delete"}, {"name": "y"}]}
    new["ports"] = [{"$patch": "replace"}, {"containerPort": 1}]
    copied = {"name": "new", "env": [{"name": "y"}], "ports": [{"containerPort": 1}]}
    assert merge({"containers": [{"name": "old"}]}, {"containers": [new]})["containers"][0] == copied
    assert merge({}, {"containers": [new]}) == {"containers": [copied]}


def test_a_second_port_of_one_number_is_kept():
    tcp, udp = {"containerPort": 53, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}
    merged = merge({"ports": [tcp, udp]}, {"ports": [{"containerPort": 53, "name": "dns"}]})
    assert merged == {"ports": [{**tcp, "name": "dns"}, udp]}


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"containers": [{"image": "x"}]}, "containers: an item has no name"),
        ({"containers": [{"name": ["x"]}]}, "containers: an item has no name"),
        ({"containers": ["x"]}, "containers: every item must be a mapping with name, not 'x'"),
        ({"$patch": "merge"}, "neither replace nor delete"),
        ({"m": {"$patch": "merge"}}, r"\$patch: 'merge' is neither replace nor delete"),
        ({"env": [{"name": "a", "$patch": "merge"}]}, r"env: \$patch: 'merge' is neither replace nor delete"),
    ],
)
def test_a_bad_patch_is_a_clear_error(patch, message):
    with pytest.raises(InjectionError, match=message):
        merge({}, patch)


def test_an_error_shows_the_begin_of_a_long_item():
    with pytest.raises(InjectionError) as raised:
        merge({}, {"containers": [1000 * "x"]})
    assert str(raised.value) == f"containers: every item must be a mapping with name, not {shown(1000 * 'x')}"
    assert len(str(raised.value)) < 300


def test_several_items_with_a_second_of_their_key_are_all_kept():
    original = [{"containerPort": 1, "protocol": "TCP"}, {"containerPort": 2}, {"containerPort": 1, "protocol": "UDP"}, {"containerPort": 3}]
    merged = merge({"ports": original}, {"ports": [{"containerPort": 1, "name": "a"}]})
    assert merged == {"ports": [{**original[0], "name": "a"}, original[2], original[1], original[3]]}


def test_an_order_may_name_bare_keys():
    original = {"ports": [{"containerPort": 1}, {"containerPort": 2}, {"containerPort": 3}]}
    patch = {"$setElementOrder/ports": [3, {"containerPort": 1}], "ports": [{"containerPort": 1, "name": "a"}]}
    assert merge(original, patch) == {"ports": [{"containerPort": 3}, {"containerPort": 1, "name": "a"}, {"containerPort": 2}]}


def test_null_deletes_beside_directives_too():
    assert merge({"a": 1, "b": 2, "c": 3}, {"$retainKeys": ["a", "b"], "a": None, "d": None}) == {"b": 2}


def test_an_order_of_what_is_no_list_or_not_there_changes_nothing():
    assert merge({"a": 1, "env": "x"}, {"$setElementOrder/env": ["b"], "$setElementOrder/ports": [1]}) == {"a": 1, "env": "x"}
    assert merge({"env": [{"name": "a"}]}, {"env": None, "$setElementOrder/env": ["a"]}) == {}


def test_items_to_be_deleted_do_not_come_into_a_list_that_is_replaced():
    patch = {"tolerations": [{"key": "a", "$patch": "delete"}, {"key": "b", "$patch": "other"}, "bare"]}
    assert merge({}, patch) == {"tolerations": [{"key": "b"}, "bare"]}


def test_of_a_patch_only_names_and_directives_of_lists_joined_by_name_are_kept():
    patch = {
        "metadata": {"labels": {"a": "b"}}, "$retainKeys": ["spec"],
        "spec": {
            "containers": [{"name": "a", "image": "i", "$patch": "delete", "$setElementOrder/env": ["x"], "env": [{"name": "x"}]}, "bare"],
            "volumes": None, "$setElementOrder/containers": ["a"], "nodeName": "n", "hostAliases": [{"ip": "1.2.3.4"}], "tolerations": [{"name": "t"}],
        },
    }  # fmt: skip
    assert only_names(patch) == {
        "$retainKeys": ["spec"],
        "spec": {
            "containers": [{"name": "a", "$patch": "delete", "$setElementOrder/env": ["x"]}, "bare"],
            "volumes": None, "$setElementOrder/containers": ["a"],
        },
    }  # fmt: skip
    assert only_names({"spec": "no mapping"}) == {"spec": "no mapping"}
    assert only_names({"kind": "Pod"}) == {}
