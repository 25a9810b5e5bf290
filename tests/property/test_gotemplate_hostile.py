"""A short run of the fuzzer; `python tests/fuzz/fuzz_gotemplate.py` makes the long one."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from randomness import some

FUZZER = Path(__file__).parents[1] / "fuzz" / "fuzz_gotemplate.py"


def load():
    spec = importlib.util.spec_from_file_location("fuzz_gotemplate", FUZZER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hostile_templates_end_in_text_or_in_a_template_error():
    failures = load().run(some(300), seed=11)
    assert not failures, "\n\n".join(failures[:5])
