"""The text of a document is changed only where its tree was: comments, order, quotes and blank lines stay."""

import contextlib
import json
import random

import pytest

from netinit.base.tree import clone, same
from netinit.golang import goyaml
from netinit.golang.errors import YamlError
from netinit.golang.goyaml import edits

TEXT = """\
# about the pod
kind: Pod   # a kind
metadata: {name: web}  # flow
spec:
  # containers follow

  containers:
    # the application
    - name: 'app'
      image: nginx   # pinned
      command: ["sh", "-c"]
    # the last
    - name: log
  # the end
"""


def changed(change, text=TEXT):
    tree = goyaml.load(text)
    after = clone(tree)
    change(after)
    written = goyaml.rewrite(text, tree, after)
    assert same(goyaml.load(written), after), written
    return written


def lines_of(text):
    return text.splitlines()


def test_a_new_key_and_a_new_item_are_lines_of_their_own_and_no_other_line_changes():
    def change(tree):
        tree["spec"]["containers"].insert(1, {"name": "istio-proxy", "args": ["proxy", "sidecar"]})
        tree["spec"]["volumes"] = [{"name": "data"}]

    written = lines_of(changed(change))
    added = ["    - name: istio-proxy", "      args:", "      - proxy", "      - sidecar", "  volumes:", "  - name: data"]
    assert [line for line in written if line not in lines_of(TEXT)] == added
    assert [line for line in written if line not in added] == lines_of(TEXT)


def test_a_first_item_stands_above_the_comment_of_the_next_one():
    written = lines_of(changed(lambda tree: tree["spec"]["containers"].insert(0, {"name": "first"})))
    at = written.index("    - name: first")
    assert written[at - 1 : at + 3] == ["  containers:", "    - name: first", "    # the application", "    - name: 'app'"]


def test_a_comment_behind_a_value_that_becomes_a_block_stays_with_its_key():
    written = lines_of(changed(lambda tree: tree["metadata"].update(labels={"a": "b"})))
    assert written[2:6] == ["metadata:  # flow", "  name: web", "  labels:", "    a: b"]


def test_a_scalar_is_changed_between_its_key_and_its_comment():
    assert "      image: nginx:2   # pinned" in lines_of(changed(lambda tree: tree["spec"]["containers"][0].update(image="nginx:2")))


def test_a_removed_key_takes_only_its_own_lines_along():
    written = lines_of(changed(lambda tree: tree["spec"]["containers"][0].pop("image")))
    assert written == [line for line in lines_of(TEXT) if "image" not in line]


@pytest.mark.parametrize("text", [TEXT.rstrip("\n"), TEXT.replace("\n", "\r\n")], ids=["no line feed at the end", "CRLF"])
def test_ends_of_lines_stay_as_they_are(text):
    written = changed(lambda tree: tree["spec"].update(volumes=[{"name": "data"}]), text)
    assert written.replace(text.rstrip("\r\n"), "").count("\r\n") == written.replace(text.rstrip("\r\n"), "").count("\n") * ("\r" in text)


@pytest.mark.parametrize("text", [
    "# head\na: &x {b: 1}\nc: *x\n", "# head\na: &x\n  b: 1\nc: *x\n", "# head\nx: &x {b: 1}\na:\n  <<: *x\n",
])  # fmt: skip
def test_where_an_anchor_is_in_the_changed_part_the_document_is_written_anew_behind_its_head(text):
    assert changed(lambda tree: tree["a"].update(new=1), text).startswith("# head\n")


KEYS = ["a", "b", "name", "app: x", "k8s.io/x", "1", "true", "é", "~"]
def test_what_is_added_is_not_read_again_to_try_where_it_stands(monkeypatch):
    read = []
    builder = edits.TreeBuilder
    monkeypatch.setattr(edits, "TreeBuilder", lambda text: read.append(text) or builder(text))
    added = {"name": "istio-proxy", "env": [{"name": f"VARIABLE_{number}", "value": "x"} for number in range(100)]}
    written = changed(lambda tree: tree["spec"]["containers"].append(added))
    assert "VARIABLE_99" in written
    assert [len(text) < len(TEXT) + 100 for text in read] == [True]


@pytest.mark.parametrize("value", ["two\nlines\n", "two\nlines\n\n", {"args": ["two\nlines\n\n"]}, [{"b": ["two\nlines\n"]}]])
@pytest.mark.parametrize("following", ["\n\nz: 1\n", "          # deeper\nz: 1\n", "\n\n", "# at the left\n\n"])
def test_lines_behind_an_added_block_of_text_do_not_become_a_part_of_it(value, following):
    changed(lambda tree: tree["a"].update(new=value), f"a:\n  b: 1\n{following}")


VALUES = ["x", "", " lead", "two\nlines", "two\nlines\n\n", "a: b", "# no", None, True, 1, 2.5, "yes", "- x", [], {}]


class Writer:
    """Random trees, random changes of them, and their text in random style: indentation, flow, comments, blank lines, CRLF."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def chance(self, of):
        return self.random.random() < of

    def tree(self, depth=0):
        if depth > 4 or self.chance(0.3 if depth else 0):
            return clone(self.random.choice(VALUES))
        size = range(self.random.randint(1, 4))
        if self.chance(0.6):
            return {self.random.choice(KEYS): self.tree(depth + 1) for _ in size}
        named = self.chance(0.6)
        return [{"name": self.random.choice("abcdef"), "v": self.tree(depth + 1)} if named else self.tree(depth + 1) for _ in size]

    def change(self, tree, depth=0):
        if depth and self.chance(0.1):
            return self.tree(depth)
        if isinstance(tree, dict):
            kept = {key: self.change(value, depth + 1) for key, value in tree.items() if not self.chance(0.15)}
            items = [*kept.items()]
            if self.chance(0.3) or not items:
                items.insert(self.random.randint(0, len(items)), (f"new{depth}", self.tree(depth + 1)))
            return dict(items)
        if isinstance(tree, list):
            kept = [self.change(item, depth + 1) if self.chance(0.4) else item for item in tree if not self.chance(0.15)]
            if self.chance(0.3) or not kept:
                kept.insert(self.random.randint(0, len(kept)), self.tree(depth + 1))
            return kept
        return tree

    def grow(self, tree):
        """The tree with more keys and items, as injection gives it; items without a name stay as they are."""
        if isinstance(tree, dict):
            items = [(key, self.grow(value)) for key, value in tree.items()]
            if self.chance(0.5):
                items.insert(self.random.randint(0, len(items)), ("new", self.tree(3)))
            return dict(items)
        if isinstance(tree, list):
            items = [self.grow(item) if isinstance(item, dict) and isinstance(item.get("name"), str) else item for item in tree]
            if self.chance(0.5):
                items.insert(self.random.randint(0, len(items)), {"name": "new", "v": self.tree(3)})
            return items
        return tree

    def text(self, tree):
        text = self.lines(0) + self.node(tree, 0) + self.lines(0)
        text = text.rstrip("\n") if self.chance(0.2) and not text.endswith("\n\n") else text
        return text.replace("\n", "\r\n") if self.chance(0.2) else text

    def lines(self, column):
        return "".join(self.random.choice([""] * 8 + ["\n", " " * column + "# a line\n", "# at the left\n"]))

    def comment(self):
        return self.random.choice([""] * 6 + ["  # behind"])

    def scalar(self, value, column):
        if isinstance(value, str) and self.chance(0.2) and value.isprintable():
            return "'" + value.replace("'", "''") + "'"
        return goyaml.dump([value])[2:-1].replace("\n  ", "\n" + " " * (column + 2))

    def node(self, value, column):
        if not isinstance(value, dict | list) or not value or self.chance(0.1):
            shown = goyaml.dump([value])[2:-1] if value in ([], {}) else self.flow(value, column)
            return shown + ("" if "\n" in shown else self.comment()) + "\n"
        parts = []
        for one in value.items() if isinstance(value, dict) else value:
            parts.append(self.lines(column) + " " * column if parts else "")
            parts.append(self.scalar(one[0], column) + ":" + self.below(one[1], column) if isinstance(value, dict) else "- " + self.node(one, column + 2))
        return "".join(parts)

    def flow(self, value, column):
        return json.dumps(value) if isinstance(value, dict | list) else self.scalar(value, column)

    def below(self, value, column):
        if isinstance(value, dict | list) and value and self.chance(0.9):
            inner = column + (self.random.choice([2, 4]) if isinstance(value, dict) else self.random.choice([0, 2]))
            return self.comment() + "\n" + self.lines(inner) + " " * inner + self.node(value, inner)
        return self.comment() + "\n" if value is None and self.chance(0.5) else " " + self.node(value, column)


def readable(seeds):
    """Writers with a tree, and a text that is read as this tree."""
    for seed in seeds:
        writer = Writer(seed)
        tree = writer.tree()
        text = writer.text(tree)
        with contextlib.suppress(YamlError):
            if same(goyaml.load(text), tree):
                yield writer, tree, text


def test_random_changes_of_random_texts_give_the_changed_tree():
    found = [*readable(range(400))]
    assert len(found) > 150
    for writer, before, text in found:
        after = writer.change(before)
        written = goyaml.rewrite(text, before, after)
        assert same(goyaml.load(written), after), f"{text}\n--- became\n{written}"
        assert goyaml.rewrite(text, before, clone(before)) == text, "nothing was changed"


def test_what_is_only_added_to_random_texts_takes_no_comment_away():
    for writer, before, text in readable(range(1000, 1400)):
        written = goyaml.rewrite(text, before, writer.grow(before))
        gone = set(text.replace("\r", "").split("\n")) - set(written.replace("\r", "").split("\n"))
        assert not [line for line in gone if line.lstrip().startswith("#")], f"{text}\n--- became\n{written}"


@pytest.mark.parametrize("blank", ["\u00a0", "\u3000", "\u2003", "\u2028", "\u0085", "\x0b", "\x0c", "\x1c", " ", "\t", "  ", ""])
def test_a_line_of_blanks_in_a_new_text_of_several_lines_stays_a_part_of_it(blank):
    for text in (f"one\n{blank}\ntwo\n", f"{blank}\none\n", f"one\n{blank}", f"one\n{blank}two\n", f"one{blank}\ntwo\n"):
        changed(lambda tree, text=text: tree["spec"]["containers"].append({"name": "p", "args": [text], "image": "i"}))
        changed(lambda tree, text=text: tree["spec"].update(volumes=[{"name": "v", "data": text}, {"name": "w"}]))
        changed(lambda tree, text=text: tree["metadata"].update(note=text))
