"""Odd numbers, bytes, texts that are not UTF-8, tags and merges: recorded answers of Go 1.27, sprig 3.3 with cast 1.10, and sigs.k8s.io/yaml 1.6."""

import json
from pathlib import Path

from netinit.golang import goyaml
from netinit.golang.errors import TemplateError, YamlError
from netinit.golang.goyaml.values import to_yaml
from netinit.golang.sprig import FUNCTIONS
from netinit.golang.template import Template
from netinit.golang.template.values import to_bytes

CORNERS = json.loads((Path(__file__).parent / "corners.json").read_text())
WITH_YAML = {**FUNCTIONS, "bytesOf": to_bytes, "toYaml": lambda value: to_yaml(value).removesuffix("\n")}


def rendered(template):
    try:
        return to_bytes(Template("t", template, functions=WITH_YAML).render(None))
    except TemplateError:
        return b"error"


def test_numbers_bytes_and_invalid_texts_give_what_they_give_in_go():
    wrong = [(template, text, found) for template, text in CORNERS["templates"] if (found := rendered(template)) != to_bytes(text)]
    assert wrong == []
    assert len(CORNERS["templates"]) > 700


def read(text):
    try:
        return ["value", goyaml.load(text)]
    except YamlError:
        return ["error"]


def test_tags_merges_and_keys_are_read_as_sigs_k8s_io_yaml_reads_them():
    assert [(text, answer, found) for text, answer in CORNERS["yaml"] if (found := read(text)) != answer] == []
    assert len(CORNERS["yaml"]) > 400
