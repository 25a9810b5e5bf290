"""Laws of injection on trees, texts and pods of all kinds."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import yaml
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.inject import apply_patch, init_container, json_patch
from netinit.inject.adding.merge import MERGE_KEYS, merge
from netinit.inject.deciding.init_container import options_of
from netinit.inject.deciding.manifests import split
from netinit.inject.deciding.webhooks import Selector
from netinit.options import Options
from randomness import some
from recorded_yaml import SCALARS as SHAPES
from recorded_yaml import TAGS

TEXT = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12) | st.sampled_from(
    [
        "y",
        "no",
        "0o7",
        "1_0",
        "1e3",
        "12:30",
        "2001-01-01",
        "~",
        "a: b",
        "- a",
        "x #y",
        "it's",
        '"',
        "a\nb\n",
        "a\n b",
        "\n",
        " a",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False, allow_infinity=False) | TEXT
TREES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4), max_leaves=12
)
MAPPINGS = st.dictionaries(TEXT, TREES, max_size=4)
QUICK = settings(max_examples=some(40))


def text_of(tree):
    return json.dumps(tree, sort_keys=True)


@QUICK
@given(st.sampled_from(TAGS), TEXT | st.sampled_from(SHAPES), st.booleans())
def test_any_scalar_with_any_tag_is_read_or_refused_with_its_place(tag, text, as_key):
    written = f"{tag} {json.dumps(text)}"
    try:
        goyaml.load(f"? {written}\n: x" if as_key else f"a: {written}")
    except YamlError as error:
        assert str(error).startswith("line ")


@QUICK
@given(TREES)
def test_what_is_written_is_read_back(tree):
    assert text_of(goyaml.load(goyaml.dump(tree))) == text_of(tree)


@QUICK
@given(TREES)
def test_pyyaml_reads_what_is_written_in_the_same_way(tree):
    theirs = yaml.load(goyaml.dump({"k": tree}), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    assert text_of(theirs) == text_of({"k": tree})


@QUICK
@given(MAPPINGS, MAPPINGS)
def test_a_patch_applied_gives_the_second_tree(before, after):
    assert text_of(apply_patch(before, json_patch(before, after))) == text_of(after)


@QUICK
@given(MAPPINGS)
def test_the_patch_of_equal_trees_is_empty(tree):
    assert json_patch(tree, tree) == []


NAMES = st.sampled_from("abcde")
ITEMS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "value": TREES}), max_size=5, unique_by=lambda item: item["name"]
)
PARTIAL = st.fixed_dictionaries({}, optional={"env": ITEMS, "volumes": ITEMS, "x": TREES})


@QUICK
@given(PARTIAL, PARTIAL)
def test_merging_twice_is_merging_once(original, patch):
    before = text_of([original, patch])
    assume('"$' not in before)  # a directive, which what is merged has no more; a wrong one is checked where there is what to merge
    once = merge(original, patch)
    assert text_of(merge(once, patch)) == text_of(once)
    assert text_of([original, patch]) == before, "nothing given is changed"


@QUICK
@given(PARTIAL, PARTIAL)
def test_a_merged_list_has_each_name_once_and_none_is_lost(original, patch):
    merged = merge(original, patch)
    for field in ("env", "volumes"):
        given_names = {item["name"] for side in (original, patch) for item in side.get(field, [])}
        found = [item["name"] for item in merged.get(field, [])]
        assert sorted(found) == sorted(given_names)
        assert MERGE_KEYS[field] == "name"


@QUICK
@given(
    st.lists(
        st.sampled_from(
            ["---", "--- # c", "---\t", "a: 1", "- x", "", "# c", "...", "--- |", "  ---", "----", "%YAML 1.1"]
        ),
        max_size=10,
    ),
    st.booleans(),
)
def test_splitting_a_stream_loses_no_letter(lines, ended):
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    documents = split(text)
    assert "".join(document.separator + document.text for document in documents) == text


LABELS = st.dictionaries(NAMES, st.sampled_from(["", "1", "2"]), max_size=4)


@QUICK
@given(LABELS, NAMES, st.lists(st.sampled_from(["", "1", "2"]), min_size=1, unique=True))
def test_not_in_is_the_opposite_of_in_and_exists_of_does_not_exist(labels, key, values):
    def matches(operator, *values):
        return Selector.parse(
            {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
        ).matches(labels)

    assert matches("In", *values) != matches("NotIn", *values)
    assert matches("Exists") != matches("DoesNotExist")


PORTS = st.lists(st.integers(1, 65535), max_size=4, unique=True).map(lambda ports: ",".join(map(str, ports)))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "outbound_port": st.integers(1, 65535).map(str),
        "inbound_ports": PORTS | st.just("*"),
        "exclude_inbound_ports": PORTS,
        "outbound_ports": PORTS,
        "outbound_cidrs": st.sampled_from(["*", "", "10.0.0.0/8", "10.0.0.0/8,fd00::/8"]),
        "inbound_mode": st.sampled_from(["REDIRECT", "TPROXY", "NONE"]),
        "proxy_uids": st.sampled_from(["1337", "0", "1337,2000"]),
        "redirect_dns": st.sampled_from(["true", "false"]),
        "owner_groups": st.sampled_from(["*", "1000", "1000,2000"]),
    },
)


@QUICK
@given(OPTIONS)
def test_an_init_container_gives_back_its_options(texts):
    options = Options(**texts)
    assert options_of(init_container(options, image="i")) == options


def test_thousands_of_hostile_inputs_find_nothing():
    path = Path(__file__).parents[1] / "fuzz" / "fuzz_inject.py"
    spec = importlib.util.spec_from_file_location("fuzz_inject", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    counted = module.fuzz(cases=some(300), seed=7)
    targets = {target.__name__ for target in module.TARGETS}
    for outcome in ("passed", "refused"):
        reached = {name for name, what in counted if what == outcome}
        assert reached >= targets - {"fuzz_dump"}, f"{outcome}: only {reached}"
