"""Rules as the versions of iptables-nft write them: which matches are expressions of nf_tables, and in which order."""

from __future__ import annotations

import pytest

from netinit.base.net import FAMILIES, IPV4, IPV6
from netinit.base.netlink_attributes import attributes_of, name, number
from netinit.rules.expressions.compat import FORM, FORMS, encode_plan, encode_rule
from netinit.rules.expressions.known_attributes import split_expressions
from netinit.rules.foreign_targets import Observe, Several, UnknownTarget
from netinit.rules.iptables.parse import parse_rule
from netinit.rules.iptables.write import unfold_rule, write_plan
from netinit.rules.matches.context import UnknownMatch
from netinit.rules.model import Chain, Plan, Table

OLD, MIDDLE, NEW = FORMS[1, 8, 7], FORMS[1, 8, 9], FORMS[1, 8, 10]


def data(value):
    return attributes_of(value)[1]


def shorten(kind, found):
    """An expression in a few words."""
    if kind in ("meta", "ct"):
        return f"{kind} {number(found[2])}"
    if kind == "payload":
        return f"payload {number(found[2])} {number(found[3])} {number(found[4])}"
    if kind == "cmp":
        return f"{('==', '!=')[number(found[2])]} {data(found[3]).hex()}"
    if kind == "bitwise":
        return f"& {data(found[4]).hex()}"
    if kind in ("match", "target"):
        return f"{kind} {name(found[1])}"
    return kind


def write(text, form, family=IPV4, comment=""):
    (one,) = unfold_rule(parse_rule(text, family), family)
    return [shorten(*each) for each in split_expressions(encode_rule(one.matches, one.rule.target, family, comment, form))]


IN, OUT, TCP = ("meta 6", "== 6574683000"), ("meta 7", "== 657468"), ("meta 16", "== 06")
FROM, TO = ("payload 1 12 1", "!= 0a"), ("payload 1 16 4", "== 0a010001")
FLAGS, SPORT, DPORT = ("payload 2 13 1", "& 12", "== 02"), ("payload 2 0 2", "== 0001"), ("payload 2 2 2", "== 0002")
END = ("counter", "immediate")
MARK = ("meta 3", "& 03000000", "== 01000000")


@pytest.mark.parametrize(
    ("text", "old", "middle", "new"),
    [
        ("! -s 10.0.0.0/8 -d 10.1.0.1 -i eth0 -o eth+ -p tcp -j ACCEPT", (*IN, *OUT, *TCP, *FROM, *TO, *END), (*IN, *OUT, *TCP, *FROM, *TO, *END), (*FROM, *TO, *IN, *OUT, "payload 1 9 1", "== 06", *END)),
        ("! -i eth0 ! -o eth+ -j ACCEPT", *[("meta 6", "!= 6574683000", "meta 7", "!= 657468", *END)] * 3), ("! -p tcp -j ACCEPT", ("meta 16", "!= 06", *END), ("meta 16", "!= 06", *END), ("payload 1 9 1", "!= 06", *END)),
        ("-p tcp -m tcp --tcp-flags SYN,ACK SYN --dport 2 --sport 1 -j ACCEPT", (*TCP, "match tcp", *END), (*TCP, *FLAGS, *SPORT, *DPORT, *END), ("payload 1 9 1", "== 06", *FLAGS, *SPORT, *DPORT, *END)),
        ("-p tcp -m tcp --dport 2 -m mark --mark 1/3 -j ACCEPT", (*TCP, "match tcp", "match mark", *END), (*TCP, *DPORT, *MARK, *END), ("payload 1 9 1", "== 06", *DPORT, *MARK, *END)),
        ("-p udp -m udp ! --sport 1 -j ACCEPT", ("meta 16", "== 11", "match udp", *END), ("meta 16", "== 11", "payload 2 0 2", "!= 0001", *END), ("payload 1 9 1", "== 11", "payload 2 0 2", "!= 0001", *END)),
        ("! -p tcp -m mark --mark 1/3 -j ACCEPT", ("meta 16", "!= 06", "match mark", *END), ("meta 16", "!= 06", *MARK, *END), ("payload 1 9 1", "!= 06", *MARK, *END)),
        ("-p tcp -m tcp --dport 1:2 -j ACCEPT", (*TCP, "match tcp", *END), (*TCP, "payload 2 2 2", "range", *END), ("payload 1 9 1", "== 06", "payload 2 2 2", "range", *END)), ("-i \udcff -j ACCEPT", *[("meta 6", "== ff00", *END)] * 3), ("-i eth -j ACCEPT", *[("meta 6", "== 65746800", *END)] * 3),
        ("-p tcp -m multiport --dports 1:2,5 -j ACCEPT", (*TCP, "match multiport", *END), (*TCP, "match multiport", *END), ("payload 1 9 1", "== 06", "match multiport", *END)),
        ("-m limit --limit 5/sec --limit-burst 7 -j ACCEPT", *[("limit", *END)] * 3), ("-m owner --uid-owner 7 -j RETURN", *[("match owner", *END)] * 3), ("-m connmark --mark 1/3 -j RETURN", *[("match connmark", *END)] * 3), ("-m socket -j DROP", *[("match socket", *END)] * 3),
        ("-j NFLOG --nflog-prefix x --nflog-group 3", ("counter", "target NFLOG"), ("counter", "log"), ("counter", "log")), ("-j LOG --log-prefix x", *[("counter", "target LOG")] * 3), ("-j REDIRECT --to-ports 1", *[("counter", "target REDIRECT")] * 3), ("-j MARK --set-mark 1", *[("counter", "target MARK")] * 3), ("-g X", *[END] * 3), ("-j X", *[END] * 3), ("", *[("counter",)] * 3),
    ],
    ids=str,
)  # fmt: skip
def test_each_version_writes_its_own_expressions_in_its_order(text, old, middle, new):
    assert [write(text, form) for form in (OLD, MIDDLE, NEW)] == [list(old), list(middle), list(new)]
    assert write(text, FORM) == list(old)


def test_of_ipv6_the_protocol_is_read_beside_the_header_since_other_headers_may_precede_it():
    assert write("-d fd00::1 -p tcp -j ACCEPT", NEW, IPV6) == ["payload 1 24 16", f"== fd{'00' * 14}01", *TCP, *END]


@pytest.mark.parametrize("family", FAMILIES, ids=str)
def test_a_plan_is_written_rule_by_rule_for_its_family_with_its_comments_and_in_the_form_of_a_version(family):
    address = {IPV4: "10.0.0.1/32", IPV6: "fd00::1/128"}[family]
    first, second = (parse_rule(text, family).replace(families=(family,), comment="why") for text in (f"-d {address} -p tcp -m tcp --dport 2 -j ACCEPT", "-o lo -j RETURN"))
    made = Plan(layout="current", families=FAMILIES, tables=(Table(name="nat", chains=(Chain(name="OUTPUT", rules=(first, second)), Chain(name="ISTIO_X", rules=()))),))
    for comments in (False, True):
        written = write_plan(made, family, comments=comments)
        for form in (FORM, MIDDLE, NEW):
            each = [[encode_rule(one.matches, rule.target, family, "why" if comments else "", form) for one in unfold_rule(rule, family)] for rule in (first, second)]
            found = encode_plan(written, family, form)
            assert found == {("nat", "OUTPUT"): tuple([one for ones in each for one in ones])}
            assert (encode_plan(written, family) == found) is (form is FORM)


def test_a_comment_is_a_match_behind_all_others():
    assert write("-p tcp -m tcp --dport 2 -j ACCEPT", NEW, comment="why") == ["payload 1 9 1", "== 06", *DPORT, "match comment", *END]
    assert write("-m mark --mark 1 -j MARK --set-mark 2", OLD, comment="why") == ["match mark", "match comment", "counter", "target MARK"]


def test_what_iptables_has_no_match_or_target_for_is_refused():
    for matches, target in (((UnknownMatch(text="odd"),), parse_rule("-j ACCEPT", IPV4).target), ((), UnknownTarget(text="odd"))):
        with pytest.raises(ValueError, match="odd: not understood"):
            encode_rule(matches, target, IPV4)
    with pytest.raises(ValueError, match="Several: iptables has no extension for it"):
        encode_rule((), Several(targets=(Observe(text="LOG"),)), IPV4)


@pytest.mark.parametrize(("family", "size"), [(IPV4, 24), (IPV6, 40)], ids=str)
def test_a_target_has_the_struct_of_its_family(family, size):
    target = parse_rule("-j REDIRECT --to-ports 80", family).target
    ((_, _), (kind, found)) = split_expressions(encode_rule((), target, family))
    assert (kind, name(found[1]), number(found[2]), found[3]) == ("target", *target.struct(family))
    assert len(found[3]) == size
