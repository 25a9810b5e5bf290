"""Damaged netlink messages and blobs against the decoders of a snapshot.

    python tests/fuzz/fuzz_snapshot.py --cases 100000 --seed 1

Recorded rules are changed at random. Allowed is a rule, an unknown one, or for a whole legacy table a ValueError; anything else
that is raised, and a slow case, is a find, printed with the seed and the number that make it again. What was read is written and
read again: that it is not the same is a find too.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from netinit.live.snapshot_rules import load_snapshot
from netinit.rules.expressions.encoded_sets import in_snapshot
from netinit.rules.expressions.rule_reader import References, decode_rule
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.xtables.building import split_table
from netinit.rules.xtables.decoded_tables import decode_table
from recorded import NAMES, RECORDINGS, read, read_products
from rule_encodings import encode_rule, join_table

SLOW = 2.0  # seconds, on a busy machine


def damage(data: bytes, rng: random.Random) -> bytes:
    """The bytes with some changed, cut out or put in."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(changed) or 1)
        kind = rng.randrange(4)
        if kind == 0 and changed:
            changed[at] = rng.choice((0, 1, 2, 0x7F, 0xFF, rng.randrange(256)))
        elif kind == 1:
            del changed[at : at + rng.randint(1, 12)]
        elif kind == 2:
            changed[at:at] = changed[at : at + rng.randint(1, 64)]
        else:
            changed[at:at] = rng.randbytes(rng.randint(1, 12))
    return bytes(changed)


def read_and_write(held: object, around: References) -> None:
    """A rule is the same once it was written and read again; ValueError stands for what nft has no expression for."""
    for rule in decode_rule(held, around).rules:
        sets: list[object] = []
        try:
            written = encode_rule(rule, held.family, sets)
        except ValueError:
            continue
        held_sets = {**around.sets, **{(held.family, held.table, one.name): in_snapshot(one, held.family, held.table) for one in sets}}
        again = decode_rule(held.replace(expressions=written), References(sets=held_sets, devices=around.devices)).rules
        assert len(again) == 1, f"{rule} became {len(again)} rules"
        assert texts(again[0]) == texts(rule), f"{texts(rule)} became {texts(again[0])}"


def texts(rule: object) -> tuple[frozenset[str], str, object]:
    """What a rule says, its matches in any order, networks and ports that touch each other as one."""
    said = [one.describe() if isinstance(one, UnknownMatch) else one.nft() for one in rule.matches]
    parts = [part for text in said for part in text.replace(" ct status", "\nct status").split("\n")]  # both, or one match each
    return frozenset(parts), rule.target.describe(), rule.families


def run_case(number: int, seed: int, snapshots: list[object]) -> None:
    """One damaged rule, set or table."""
    rng = random.Random(f"{seed} {number}")
    snapshot = rng.choice(snapshots)
    if snapshot.rules and rng.random() < 0.6:
        rule = rng.choice(snapshot.rules)
        read_and_write(rule.replace(expressions=damage(rule.expressions, rng)), References.of(snapshot))
    elif snapshot.legacy:
        table = rng.choice(snapshot.legacy)
        try:
            damaged = table.replace(entries=damage(table.entries, rng))
            chains = split_table(damaged)
            assert split_table(join_table(damaged, chains)) == chains
            decode_table(damaged)
        except ValueError:
            return
    elif snapshot.sets:
        held = rng.choice(snapshot.sets)
        elements = tuple(one.replace(key=damage(one.key, rng), verdict=damage(one.verdict, rng)) for one in held.elements)
        load_snapshot(snapshot.replace(sets=(*[one for one in snapshot.sets if one is not held], held.replace(elements=elements))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, default=None, help="the number of one case")
    asked = parser.parse_args()
    snapshots = [read(name) for name in NAMES] + [one for name in RECORDINGS for one in read_products(name).values()]
    finds = 0
    for number in [asked.only] if asked.only is not None else range(asked.cases):
        began = time.process_time()
        try:
            run_case(number, asked.seed, snapshots)
        except Exception:  # noqa: BLE001 - that is what is looked for
            traceback.print_exc()
            finds += 1
            print(f"--seed {asked.seed} --only {number}")
        if time.process_time() - began > SLOW:
            finds += 1
            print(f"slow: --seed {asked.seed} --only {number}")
    print(f"{asked.cases} cases, {finds} finds")
    return bool(finds)


if __name__ == "__main__":
    sys.exit(main())
