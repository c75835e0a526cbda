"""Which regular expressions could run for ever. Python's matcher tries every way and cannot be
interrupted, so its steps are bounded before a pattern is accepted.

Where the next character alone tells whether a repeat goes on, or which alternative is meant,
steps add up. Everywhere else what follows is tried again for each way, and they multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any, Final, TypeAlias

from toolrest.records import dataclass, field

Letters: TypeAlias = frozenset[str]
"""Characters: ASCII ones by themselves, the others as one of four sorts."""

_SORTS: Final = frozenset({"digit…", "space…", "word…", "other…"})
_ASCII: Final = frozenset(map(chr, range(128)))
_ALL: Final = _ASCII | _SORTS
_NONE: Letters = frozenset()
_END: Letters = frozenset({"end…"})
_DIGIT: Final = frozenset("0123456789") | {"digit…"}
_SPACE: Final = frozenset(c for c in _ASCII if c.isspace()) | {"space…"}
_WORD: Final = frozenset(c for c in _ASCII if c.isalnum() or c == "_") | {"digit…", "word…"}
_CATEGORIES: Final = {"DIGIT": _DIGIT, "SPACE": _SPACE, "WORD": _WORD}
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
# A repeat this short is written out; in a longer one, each round must have one way only.
_SHORT_REPEAT: Final = 8
_ENDLESS: Final = 10**12
_PROBE: Final = 10**9
_MOST_LOOKS: Final = 20_000


def danger(pattern: str, *, longest: int, budget: int, whole: bool = False) -> str:
    """Why a pattern may be too slow for texts of `longest` characters; "" when it is not.

    The pattern must compile. `budget` is how many steps one starting place may cost, about;
    `whole` says that the pattern must match to the end of the text.
    """
    parser: Any = import_module("re._parser")
    tree = parser.parse(pattern)
    found = list(_walk(tree, False))
    if any(str(operation).startswith("GROUPREF") for operation, _, _ in found):
        return "refers back to a group, which can take for ever; write it without"
    steps = _Steps(longest, _ignores_case(tree))
    if steps.of(tree, _END if whole else _NONE, 1) <= budget:
        return ""
    repeated = [(str(operation), argument) for operation, argument, is_in in found if is_in]
    if any(name in _REPEATS and argument[0] != argument[1] for name, argument in repeated):
        return "repeats a repeat, which can take for ever; use one repeat"
    if any(name == "BRANCH" for name, _ in repeated):
        return "repeats alternatives, which can take for ever; move the repeat inside them"
    return (
        "has too many ways to match; give its repeats upper bounds, "
        "or let each end at a character that it cannot contain"
    )


def _walk(tree: Any, repeated: bool) -> Iterator[tuple[Any, Any, bool]]:
    """Yield (operation, argument, inside a repeat of more than a few) over a parsed pattern."""
    for operation, argument in tree:
        yield operation, argument, repeated
        inner = repeated or (str(operation) in _REPEATS and argument[1] > _SHORT_REPEAT)
        for subtree in _subtrees(argument):
            yield from _walk(subtree, inner)


def _subtrees(argument: Any) -> Iterator[Any]:
    if type(argument).__name__ == "SubPattern":
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from _subtrees(item)


def _ignores_case(tree: Any) -> bool:
    groups = (a for operation, a, _ in _walk(tree, False) if str(operation) == "SUBPATTERN")
    return bool(tree.state.flags & re.IGNORECASE) or any(a[1] & re.IGNORECASE for a in groups)


@dataclass(slots=True)
class _Steps:
    """Counts the steps of a pattern over texts of a certain length."""

    longest: int
    ignore_case: bool
    looked: int = 0
    _edges: dict[int, tuple[Letters, bool]] = field(default_factory=dict)

    def of(self, tree: Any, after: Letters, rest: int) -> int:
        """The steps of a sequence, followed by what begins with `after` and takes `rest`."""
        self.looked += 1
        if self.looked > _MOST_LOOKS:
            return _ENDLESS
        for operation, argument in reversed(list(tree)):
            rest = min(self._item(str(operation), argument, after, rest), _ENDLESS)
            after = self._before(str(operation), argument, after)
        return rest

    def _item(self, name: str, argument: Any, after: Letters, rest: int) -> int:
        if name in _REPEATS:
            return self._repeat(argument, after, rest)
        if name == "BRANCH":
            return self._branch(argument[1], after, rest)
        if name in ("ASSERT", "ASSERT_NOT"):
            return rest + self.of(argument[1], _END, 1)
        group = _group(name, argument)
        return rest if group is None else self.of(group, after, rest)

    def _repeat(self, argument: Any, after: Letters, rest: int) -> int:
        low, high, body = argument
        most = min(int(high), self.longest)
        first, empty = self._edge(body)
        unclear = low != high and (empty or bool(first & after))
        if most <= _SHORT_REPEAT:
            stop = rest if unclear else low != high
            for _ in range(most):
                rest = min(self.of(body, first | after, rest) + stop, _ENDLESS)
            return rest
        once = self.of(body, first | after, _PROBE)
        if self.of(body, first | after, 2 * _PROBE) - once != _PROBE:
            return _ENDLESS  # several ways each time, and many times
        rest += once - _PROBE
        if low == high or not after:  # no choice, or nothing that could fail
            return rest
        if unclear:
            return rest * (most - min(int(low), most) + 1)
        # Repeats with one way each share the text between them, so the longest counts.
        return max(rest, most) + 1

    def _branch(self, branches: Sequence[Any], after: Letters, rest: int) -> int:
        starts = []
        for branch in branches:
            first, empty = self._edge(branch)
            starts.append(first | after if empty else first)
        steps = [self.of(branch, after, rest) for branch in branches]
        is_clear = len(_NONE.union(*starts)) == sum(map(len, starts))
        return max(steps) if is_clear else sum(steps)

    def _edge(self, tree: Any) -> tuple[Letters, bool]:
        """The characters a sequence can begin with, and whether it can be empty."""
        known = self._edges.get(id(tree))
        if known is None:
            first = _NONE
            for operation, argument in reversed(list(tree)):
                first = self._before(str(operation), argument, first)
            known = self._edges[id(tree)] = (first, tree.getwidth()[0] == 0)
        return known

    def _before(self, name: str, argument: Any, after: Letters) -> Letters:
        """The characters that an item and what follows it can begin with."""
        if name == "AT":
            return after | _END  # takes no character, but can fail
        if name in ("ASSERT", "ASSERT_NOT"):
            return self._edge(argument[1])[0] | after | _END
        if name in _REPEATS:
            first, empty = self._edge(argument[2])
            return first | after if empty or argument[0] == 0 else first
        if name == "BRANCH":
            edges = [self._edge(branch) for branch in argument[1]]
            first = _NONE.union(*(edge[0] for edge in edges))
            return first | after if any(edge[1] for edge in edges) else first
        group = _group(name, argument)
        if group is None:
            return self._letters(name, argument)
        first, empty = self._edge(group)
        return first | after if empty else first

    def _letters(self, name: str, argument: Any) -> Letters:
        if name == "IN":
            return self._class(argument)
        if name == "LITERAL":
            return self._cased(_sort_of(argument))
        if name == "CATEGORY":
            return _category(str(argument))
        if name == "NOT_LITERAL":
            return _ALL - (_sort_of(argument) & _ASCII)
        return _ALL  # ANY, and whatever a later Python brings

    def _class(self, items: Sequence[tuple[Any, Any]]) -> Letters:
        whole, part = _NONE, _NONE
        negated = False
        for operation, argument in items:
            name = str(operation)
            if name == "NEGATE":
                negated = True
            elif name == "CATEGORY":
                whole |= _category(str(argument))
            elif name == "RANGE":
                part |= self._range(*argument)
            else:
                part |= self._cased(_sort_of(argument))
        # A sort of which only some are meant is still possible on both sides of a negation.
        return _ALL - (whole | (part & _ASCII)) if negated else whole | part

    def _range(self, low: int, high: int) -> Letters:
        ascii_ = frozenset(map(chr, range(low, min(high, 127) + 1)))
        found = _NONE.union(*(self._cased(frozenset({c})) for c in ascii_))
        return found | _SORTS if high > 127 else found

    def _cased(self, letters: Letters) -> Letters:
        if not self.ignore_case:
            return letters
        cased = letters | {c.swapcase() for c in letters if len(c) == 1}
        # The long s and the Kelvin sign are s and k when case does not matter.
        return cased | ({"word…"} if cased & frozenset("iks") else _NONE)


def _group(name: str, argument: Any) -> Any:
    if name == "SUBPATTERN":
        return argument[-1]
    return argument if name == "ATOMIC_GROUP" else None


def _sort_of(code: int) -> Letters:
    character = chr(code)
    if code < 128:
        return frozenset({character})
    if character.isspace():
        return frozenset({"space…"})
    # Which of these a character is differs between the matcher and str methods at the edges.
    return frozenset({"digit…", "word…", "other…"})


def _category(name: str) -> Letters:
    letters = _CATEGORIES.get(name.removeprefix("CATEGORY_").removeprefix("NOT_"), _ALL)
    return _ALL - letters if "NOT_" in name else letters
