"""The types of readers, for the tables at the end of this folder's files; a reader returns None for what it does not understand."""

from __future__ import annotations

from collections.abc import Callable

from netinit.base.net import Family
from netinit.rules.decoding.registers import Known, Registers, RegisterTest
from netinit.rules.matches import Match
from netinit.rules.targets import Target

# Matches
OptionReader = Callable[[list[str], bool, str], Match | None]  # values, whether negated, the rule's protocol
StructReader = Callable[[bytes, str, Family | None], list[Match] | None]  # the struct; the rule's protocol and family
ComparisonReader = Callable[[RegisterTest, Known], list[Match] | None]
# Targets
Found = dict[int, bytes]  # attributes of an expression
TextReader = Callable[[dict[str, str], str, Family], Target | None]  # options; all words as written
TargetStructReader = Callable[[bytes, Family], Target | None]
ExpressionReader = Callable[
    [Found, Registers, Family | None], Target | None
]  # of which family the packets are; None: both
