"""The proof that a line was typed: every change of it was a key of the person."""

from __future__ import annotations

_MOST = 100


class TypedText:
    """Follows a text through its changes: one character more, or a part less, is typing.

    Whatever else comes in is not: a paste, a completion, an editor's text, an earlier message. A
    line that was typed here before is, when it comes back whole.
    """

    def __init__(self) -> None:
        self._text = ""
        self._is_typed = True
        self._known: dict[str, None] = {}

    def follow(self, text: str) -> None:
        """Take note of the text after a change."""
        before, self._text = self._text, text
        if self._is_typed and before.startswith("!") and not _is_step(before, text):
            self._known[before] = None
            if len(self._known) > _MOST:
                del self._known[next(iter(self._known))]
        was_typed = self._is_typed and _is_typing(before, text)
        self._is_typed = not text or text in self._known or was_typed

    def is_typed(self, text: str) -> bool:
        """Whether the person has typed this text, key by key, in this terminal."""
        return self._is_typed and self._text.strip() == text.strip()


def _is_step(before: str, after: str) -> bool:
    return abs(len(before) - len(after)) <= 1 and bool(after)


def _is_typing(before: str, after: str) -> bool:
    """Whether a part of the text has given way to at most one character."""
    start = _same(before, after)
    rest_before, rest_after = before[start:], after[start:]
    return len(rest_after) - _same(rest_before[::-1], rest_after[::-1]) <= 1


def _same(one: str, other: str) -> int:
    """How many characters both begin with."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
