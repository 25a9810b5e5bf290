"""Sprig's semantic versions, and constraints such as `~1.2` or `>=1.2, <2 || 3.x` (github.com/Masterminds/semver)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, Final

from netinit.golang.template.limits import text_cost
from netinit.golang.template.values import Function, FunctionError, Struct, Uint64

_MAX_NUMBER: Final = (1 << 64) - 1
_EXTRA: Final = r"(?:-(?P<pre>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+(?P<meta>[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?"
_VERSION: Final = rf"v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?{_EXTRA}"
_PART: Final = r"[0-9|xX*]+"
_UNNAMED: Final = _EXTRA.replace("?P<pre>", "?:").replace("?P<meta>", "?:")
_PATTERN: Final = rf"v?{_PART}(?:\.{_PART})?(?:\.{_PART})?{_UNNAMED}"
_RANGE: Final = rf"(?a)\s*({_PATTERN})\s+-\s+({_PATTERN})\s*"
_SPLIT: Final = (
    rf"(?a)(?P<operator>!=|>=|=>|<=|=<|~>|[=<>~^]|)\s*(?P<text>v?(?P<major>{_PART})(?:\.(?P<minor>{_PART}))?"
    rf"(?:\.(?P<patch>{_PART}))?{_EXTRA})"
)
_SEPARATOR: Final = r"(?a)\s*,\s*|\s+"
_ANY_NUMBER: Final = ("x", "X", "*", None)
_MAX_LENGTH: Final = 256
"""Characters of a version or a constraint; real ones have a tenth of that."""


class Version(Struct):
    """A version: three numbers, pre-release identifiers, and metadata, which comparisons ignore."""

    def __init__(
        self, numbers: tuple[int, int, int], pre: str, metadata: str, original: str, *, is_pointer: bool = True
    ) -> None:
        self.numbers, self.pre, self.metadata, self.original = numbers, pre, metadata, original
        major, minor, patch = map(Uint64, numbers)
        of_pointers = {"Original": lambda: original} if is_pointer else {}
        super().__init__("*" * is_pointer + "semver.Version", {}, {
            **of_pointers,
            "Compare": self.compare, "Equal": lambda other: self.compare(other) == 0,
            "GreaterThan": lambda other: self.compare(other) > 0, "LessThan": lambda other: self.compare(other) < 0,
            "GreaterThanEqual": lambda other: self.compare(other) >= 0,
            "LessThanEqual": lambda other: self.compare(other) <= 0,
            "IncMajor": lambda: self._next((major + 1, 0, 0)), "IncMinor": lambda: self._next((major, minor + 1, 0)),
            "IncPatch": lambda: self._next((major, minor, patch if pre else patch + 1)),
            "Major": lambda: major, "Metadata": lambda: metadata, "Minor": lambda: minor,
            "Patch": lambda: patch, "Prerelease": lambda: pre, "String": self.text,
        })  # fmt: skip

    def text(self) -> str:
        """Format the version."""
        numbers = ".".join(map(str, self.numbers))
        return numbers + f"-{self.pre}" * bool(self.pre) + f"+{self.metadata}" * bool(self.metadata)

    def compare(self, other: Any) -> int:
        """Return -1, 0 or 1: this version is lower than, equal to or higher than the other."""
        if not isinstance(other, Version):
            raise FunctionError("a version is compared with a version: make one with semver")
        mine, theirs = self.order(), other.order()
        return (mine > theirs) - (mine < theirs)

    def order(self) -> tuple[Any, ...]:
        """Return the sort key."""
        identifiers = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre.split("."))
        return self.numbers, not self.pre, identifiers if self.pre else ()

    def _next(self, numbers: tuple[int, int, int]) -> Version:
        return Version(numbers, "", "", "", is_pointer=False)


def parse_version(text: str) -> Version:
    """Parse a version; minor and patch number may be missing. Raises FunctionError."""
    found = re.fullmatch(_VERSION, text) if len(text) <= _MAX_LENGTH else None
    if found is None or text.endswith("\n"):
        raise FunctionError("Invalid Semantic Version")
    numbers = tuple(int(part or 0) for part in found.groups()[:3])
    for part, number in zip(found.groups(), numbers, strict=False):
        if number > _MAX_NUMBER:
            raise FunctionError(
                f'Error parsing version segment: strconv.ParseUint: parsing "{part}": value out of range'
            )
    pre = found["pre"] or ""
    if re.search(r"(?:^|\.)0[0-9]+(?:\.|$)", pre):
        raise FunctionError("Version segment starts with 0")
    return Version((numbers[0], numbers[1], numbers[2]), pre, found["meta"] or "", text)


class _Constraint:
    """An operator and a version, of which `known` numbers were written and the others stand for any."""

    def __init__(self, text: str) -> None:
        found = re.fullmatch(_SPLIT, text.strip())
        if found is None:
            raise FunctionError(f"improper constraint: {text}")
        parts = [found[name] for name in ("major", "minor", "patch")]
        self.known = next((place for place, part in enumerate(parts) if part in _ANY_NUMBER), 3)
        numbers = [*parts[: self.known], "0", "0", "0"][:3]
        try:
            extra = f"-{found['pre']}" if found["pre"] else ""
            self.version = parse_version(".".join(numbers) + extra)
        except FunctionError:
            raise FunctionError("constraint Parser Error") from None
        self.test = _TESTS[_SYNONYMS.get(found["operator"], found["operator"])]

    def admits(self, version: Version) -> bool:
        """Whether the version satisfies the constraint; a pre-release only satisfies constraints that name one."""
        return not (version.pre and not self.version.pre) and self.test(self, version)

    def starts(self, version: Version, count: int) -> bool:
        """Whether the version is not lower, and its first `count` numbers are the constraint's."""
        return version.compare(self.version) >= 0 and version.numbers[:count] == self.version.numbers[:count]

    def compare(self, version: Version) -> int:
        """Compare the version with the constraint's, without the numbers that the constraint omits; -1, 0 or 1."""
        if self.known in (0, 3):
            return version.compare(self.version)
        mine, theirs = version.numbers[: self.known], self.version.numbers[: self.known]
        return (mine > theirs) - (mine < theirs)

    def differs(self, version: Version) -> bool:
        is_two = self.known == 2 and bool(version.pre or self.version.pre)  # noqa: PLR2004 - major and minor
        return self.compare(version) != 0 or (is_two and version.pre != self.version.pre)

    def at_most(self, version: Version) -> bool:
        return self.compare(version) <= 0 or (self.known == 0 and version.numbers[:2] <= (0, 0))

    def tilde(self, version: Version) -> bool:
        """Whether only the patch number, or a number that the constraint omits, is larger."""
        is_any = self.version.numbers == (0, 0, 0) and self.known in (0, 3)
        return self.starts(version, 0 if is_any else min(max(self.known, 1), 2))

    def caret(self, version: Version) -> bool:
        """Whether the version is not lower, and its numbers up to the constraint's first non-zero one are the same."""
        major, minor, _ = self.version.numbers
        count = 1 if major > 0 or self.known == 1 else 2 if minor > 0 or self.known == 2 else 3  # noqa: PLR2004 - major and minor
        return self.starts(version, count)


_TESTS: Final[dict[str, Callable[[_Constraint, Version], bool]]] = {
    "": lambda wanted, version: wanted.tilde(version) if wanted.known < 3 else wanted.compare(version) == 0,  # noqa: PLR2004
    "!=": _Constraint.differs,
    ">": lambda wanted, version: wanted.compare(version) > 0,
    "<": lambda wanted, version: version.compare(wanted.version) < 0,
    ">=": lambda wanted, version: version.compare(wanted.version) >= 0,
    "<=": _Constraint.at_most,
    "~": _Constraint.tilde,
    "^": _Constraint.caret,
}
_SYNONYMS: Final = {"=": "", "=>": ">=", "=<": "<=", "~>": "~"}


@functools.lru_cache(maxsize=64)
def _constraints(text: str) -> list[list[_Constraint]]:
    """Parse alternatives of constraints that must all be satisfied. Raises FunctionError."""
    if len(text) > _MAX_LENGTH:
        raise FunctionError(f"a constraint has at most {_MAX_LENGTH} characters, not {len(text)}")
    ranges = re.sub(_RANGE, r">= \1, <= \2 ", text)
    found = []
    for alternative in ranges.split("||"):
        parts = re.split(_SEPARATOR, re.sub(r"([=!<>~^])\s+(?=[v0-9xX*])", r"\1", alternative.strip()))
        try:
            found.append([_Constraint(part) for part in parts])
        except FunctionError as error:
            if str(error).startswith("improper"):
                raise FunctionError(f"improper constraint: {alternative}") from None
            raise
    return found


def satisfies(constraint: str, version: str) -> bool:
    """Whether the version satisfies the constraint. Raises FunctionError if either is invalid."""
    alternatives = _constraints(constraint)
    parsed = parse_version(version)
    return any(all(part.admits(parsed) for part in alternative) for alternative in alternatives)


FUNCTIONS: Final[dict[str, Callable[..., Any] | Function]] = {
    "semver": Function.of(parse_version, cost=text_cost),
    "semverCompare": Function.of(satisfies, cost=text_cost),
}
