"""What a release breaks is said, and never by accident."""

from __future__ import annotations

import api


def test_no_name_flag_or_field_that_users_have_is_gone():
    broken = api.find_broken(api.FILE.read_text("utf-8").splitlines(), api.list_promises())
    assert not broken, (
        "these break users: keep them, or say so in changelog.d (changed, removed) and record it with python tests/api.py --renew:\n"
        + "\n".join(broken)
    )


def test_what_is_recorded_has_every_part_of_the_surface():
    recorded = set(api.FILE.read_text("utf-8").splitlines())
    assert {
        "name netinit.apply(options)", "flag @ --envoy-port", "flag @ -p", "value lint --format sarif", "variable ISTIO_SERVICE_CIDR",
        *[f"name netinit.{name}()" for name in ("explain", "audit", "diff", "lint", "verify")],
        "annotation netinit.io/reject-quic", "command explain", "flag kubectl fix --dry-run", "name netinit.Options(inbound_ports=)",
    } <= recorded  # fmt: skip
    assert any(one.startswith("json audit.schema.json pods") for one in recorded)


def test_a_name_a_flag_and_a_field_that_go_are_named():
    before = api.list_promises()
    after = [one for one in before if one not in {"flag @ -p", "variable ISTIO_SERVICE_CIDR"}]
    assert api.find_broken(before, after) == ["flag @ -p", "variable ISTIO_SERVICE_CIDR"]
    assert api.find_broken(after, before) == []


def test_a_field_whose_type_changes_is_a_break():
    was = [*api._of_schema({"properties": {"a": {"type": "string"}}, "required": ["a"]}, "x")]
    now = [*api._of_schema({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, "x")]
    assert was == ["json x a: string always"]
    assert api.find_broken(was, now) == was
