"""The rules themselves: one folder a behaviour, with the options and what they come to in each family and dialect.

`options.txt` says in a comment what is to be seen, then names environment variables and flags, one a line. Beside it
stand `iptables.txt` and `ip6tables.txt` (input for iptables-restore; policy routes and addresses as comments at the
end), `nft.txt` (input for nft -f), where the options give cause `warnings.txt`, and where a list is longer than
--ipset-threshold `ipset.txt`.

    pytest tests/golden/test_rules.py --update-golden

writes them anew; what changed is then for a person to read.
"""

from __future__ import annotations

import pytest

from core import IPV4, IPV6, Options, find_preparation, plan, render_restore, render_script, use_sets
from goldens import BEHAVIOURS, FOLDER, options_of
from ipset_input import render_steps
from netinit.rules.render import describe_plan


def write_files(options):
    """What stands beside the options, by file name."""
    made = plan(options)
    files = {"nft.txt": render_script(made, comments=options.rule_comments)}
    if options.ipset_threshold != Options().ipset_threshold:
        made, sets = use_sets(made, "netinit-nft", options.ipset_threshold)
        files["ipset.txt"] = render_steps(find_preparation(sets, {}))
    for family, name in ((IPV4, "iptables.txt"), (IPV6, "ip6tables.txt")):
        files[name] = render_restore(made, [family] if family in made.families else [], comments=options.rule_comments)
    if made.warnings:
        files["warnings.txt"] = "".join(f"{warning}\n" for warning in made.warnings)
    return files


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_rules_are_those_on_file(behaviour, golden):
    folder = FOLDER / behaviour
    files = write_files(options_of(behaviour))
    golden({folder / name: text for name, text in files.items()})
    assert {path.name for path in folder.iterdir()} == {"options.txt", *files}, "a file here belongs to nothing"


def test_every_behaviour_says_what_is_to_be_seen():
    silent = [name for name in BEHAVIOURS if not (FOLDER / name / "options.txt").read_text().startswith("# ")]
    assert silent == []


def test_the_purposes_of_rules_are_those_on_file(golden):
    described = [describe_plan(plan(options_of(behaviour))) for behaviour in BEHAVIOURS]
    found = {(rule["origin"] or "", rule["comment"]) for one in described for rule in one["rules"]}
    golden({FOLDER.parent / "purposes.txt": "".join([f"{origin}: {purpose}\n" for origin, purpose in sorted(found)])})
