"""Cost of regular expressions: refuse those that could run for ever. Python's matcher tries every
way and cannot be interrupted, so its steps are bounded before a pattern is accepted.

Where the next character alone decides whether a repeat goes on, or which alternative is taken,
steps add up. Everywhere else what follows is tried again for each way, and they multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, TypeAlias

Letters: TypeAlias = frozenset[str]

# A character of each sort that patterns distinguish; the long s, the Kelvin sign and the
# dotless i are s, k and i when case does not matter. Unknown ones count as all of these.
_FOREIGN: Final = frozenset("éſ\u212aıİ٣\u00a0€")
_SAMPLE: Final = "".join(map(chr, range(128))) + "".join(_FOREIGN)
_NONE: Letters = frozenset()
_END: Letters = frozenset({"the end"})
_TOKEN: Final = re.compile(
    r"\\(?:x..|u.{4}|U.{8}|N\{[^}]*\}|0[0-7]{0,2}|[1-9]\d?|.)"
    r"|\[\^?\]?(?:\\.|[^\]\\])*\]"
    r"|\(\?(?:\#[^)]*\)|[a-zA-Z-]*\)|[a-zA-Z-]*:|P<\w+>|P=|<?[=!]|[>(])"
    r"|[*+?][?+]?|\{(?:\d+,?\d*|,\d*)\}[?+]?|.",
    re.DOTALL,
)
_ANCHORS: Final = ("^", "$", r"\b", r"\B", r"\A", r"\Z")
# A repeat this short is written out; in a longer one, each round must have one way only.
_SHORT_REPEAT: Final = 8
_ENDLESS: Final = 10**12
_PROBE: Final = 10**9
_MOST_LOOKS: Final = 20_000


class _Item:
    """A character (class), a group, or something that takes no characters; and how often."""

    def __init__(self, text: str, branches: list[list[_Item]] | None = None) -> None:
        self.branches = branches
        self.low = self.high = 1
        self.looks = text in _ANCHORS or (text[0] == "(" and text[-1] in "=!")
        if branches is None:
            self.first = _NONE if self.looks else _letters(text)
            self.empty = self.looks
        else:
            self.first = _NONE.union(*(_first(branch, _NONE) for branch in branches))
            self.empty = self.looks or any(map(_is_empty, branches))

    def before(self, after: Letters) -> Letters:
        """The characters that it, and what follows, can begin with."""
        if self.looks:  # takes no character, but can fail
            return self.first | after | _END
        return self.first | after if self.empty or self.low == 0 else self.first


def may_match_nothing(pattern: str) -> bool:
    """Whether a pattern, which must compile, has matches without any characters."""
    return any(map(_is_empty, _parse(_tokens(pattern))))


def danger(pattern: str, *, longest: int, budget: int, whole: bool = False) -> str:
    """The reason why a pattern may be too slow for texts of `longest` characters, or "".

    The pattern must compile. `budget` is how many steps one starting place may cost, about;
    with `whole` the pattern must match to the end of the text.
    """
    tokens = list(_tokens(pattern))
    if any(re.match(r"\\[1-9]|\(\?P=|\(\?\(", token) for token in tokens):
        return "refers back to a group, which can take for ever; write it without"
    if any(re.match(r"\(\?[a-wyz]*x", token) for token in tokens):
        return "is in verbose form, which cannot be checked; write it without (?x)"
    tree = _parse(iter(tokens))
    after = _END if whole else _NONE
    if _Steps(longest).of(tree, after, 1) <= budget:
        return ""
    found = list(_walk(tree, False))
    if any(inside and item.low != item.high for item, inside in found):
        return "repeats a repeat, which can take for ever; use one repeat"
    if any(
        (inside or item.high > _SHORT_REPEAT) and len(item.branches or ()) > 1
        for item, inside in found
    ):
        return "repeats alternatives, which can take for ever; move the repeat inside them"
    return (
        "has too many ways to match; give its repeats upper bounds, "
        "or let each end at a character that it cannot contain"
    )


def _tokens(pattern: str) -> Iterator[str]:
    return (found[0] for found in _TOKEN.finditer(pattern))


def _parse(tokens: Iterator[str]) -> list[list[_Item]]:
    """The alternatives up to the next closing parenthesis."""
    branches: list[list[_Item]] = [[]]
    for token in tokens:
        if token[0] == ")":
            break
        if token[0] == "|":
            branches.append([])
        elif token[0] in "*+?" or (token[0] == "{" and len(token) > 1):
            item = branches[-1][-1]
            low, comma, high = token.rstrip("?+").strip("{}").partition(",")
            if token[0] != "{":
                low, comma, high = str(int(token[0] == "+")), ",", "1" if token[0] == "?" else ""
            item.low = int(low or 0)
            item.high = int(high or _ENDLESS) if comma else item.low
        elif token[0] != "(":
            branches[-1].append(_Item(token))
        elif token[-1] != ")":  # not flags, nor a comment
            branches[-1].append(_Item(token, _parse(tokens)))
    return branches


def _walk(tree: list[list[_Item]], inside: bool) -> Iterator[tuple[_Item, bool]]:
    """Every item, and whether it is inside of a repeat of more than a few."""
    for item in (item for branch in tree for item in branch):
        yield item, inside
        yield from _walk(item.branches or [], inside or item.high > _SHORT_REPEAT)


def _first(branch: list[_Item], after: Letters) -> Letters:
    for item in reversed(branch):
        after = item.before(after)
    return after


def _is_empty(branch: list[_Item]) -> bool:
    return all(item.empty or item.low == 0 for item in branch)


@lru_cache(maxsize=256)
def _letters(text: str) -> Letters:
    """The characters of the sample that a character or class can be, under any flags."""
    flags = (re.DOTALL, re.DOTALL | re.IGNORECASE, re.DOTALL | re.ASCII)
    found = {c for each in flags for c in re.findall(text, _SAMPLE, each)}
    is_plain = text.isascii() and not re.search(r"\\[xuUN0-9]", text)
    return frozenset(found) if is_plain else _FOREIGN.union(found)


class _Steps:
    """Counts the steps of a pattern over texts of a certain length."""

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.looked = 0

    def of(self, branches: list[list[_Item]] | None, after: Letters, rest: int) -> int:
        """The steps of alternatives, followed by what begins with `after` and takes `rest`."""
        if branches is None:
            return rest
        self.looked += 1
        if self.looked > _MOST_LOOKS:
            return _ENDLESS
        steps = []
        for branch in branches:
            steps.append(self._sequence(branch, after, rest))
        starts = [_first(branch, after if _is_empty(branch) else _NONE) for branch in branches]
        is_clear = len(_NONE.union(*starts)) == sum(map(len, starts))
        return min(max(steps) if is_clear else sum(steps), _ENDLESS)

    def _sequence(self, branch: list[_Item], after: Letters, rest: int) -> int:
        for item in reversed(branch):
            if item.empty and item.high > _SHORT_REPEAT:
                return _ENDLESS  # not even the length of the text limits its rounds
            if item.looks:
                rest += item.high * self.of(item.branches or [[]], _END, 1)
            elif item.low == item.high == 1:
                rest = self.of(item.branches, after, rest)
            else:
                rest = self._repeat(item, after, rest)
            rest = min(rest, _ENDLESS)
            after = item.before(after)
        return rest

    def _repeat(self, item: _Item, after: Letters, rest: int) -> int:
        most = min(item.high, self.longest)
        is_fixed = item.low == item.high
        unclear = not is_fixed and (item.empty or bool(item.first & after))
        again = item.first | after
        if most <= _SHORT_REPEAT:
            stop = rest if unclear else not is_fixed
            for _ in range(most):
                rest = min(self.of(item.branches, again, rest) + stop, _ENDLESS)
            return rest
        once = self.of(item.branches, again, _PROBE)
        if self.of(item.branches, again, 2 * _PROBE) - once != _PROBE:
            return _ENDLESS  # several ways each time, and many times
        rest += once - _PROBE
        if is_fixed or not after:  # no choice, or nothing that could fail
            return rest
        if unclear:
            return rest * (most - min(item.low, most) + 1)
        # Repeats with one way each share the text between them, so the longest counts.
        return max(rest, most) + 1
