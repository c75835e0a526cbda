"""Large pastes, folded to a mark in the composer."""

from __future__ import annotations

_FOLD_LINES, _FOLD_CHARS = 8, 1000


class Pastes:
    """Large pastes, folded to a mark in the text; whole again when it is sent."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._last = ("", "")
        """The last paste as it came, and what stands for it in the text."""

    def fold(self, text: str) -> str:
        """The paste itself, or a mark for it when it is large."""
        shown = self._fold(whole_lines(text))
        self._last = text, shown
        return shown

    def begun(self, before: str) -> tuple[str, str]:
        """The paste that ends the text before the cursor, as it came, and what stands for it.

        It comes again, with more behind it. Both are empty where something else was written since.
        """
        text, shown = self._last
        if not before.endswith(shown):
            return "", ""
        self._texts.pop(shown, None)
        return text, shown

    def _fold(self, text: str) -> str:
        lines = text.count("\n") + 1
        if lines <= _FOLD_LINES and len(text) <= _FOLD_CHARS:
            return text
        size = f"{lines} lines" if lines > 1 else f"{len(text):,} characters"
        mark = f"[paste {len(self._texts) + 1}: {size}]"
        self._texts[mark] = text
        return mark

    def fold_picture(self, path: str, size: int) -> str:
        """A mark for a picture, which is sent as its path."""
        quote = '"' if "'" in path else "'"
        mark = f"[picture {len(self._texts) + 1}: {-(-size // 1000):,} kB]"
        self._texts[mark] = f"{quote}{path}{quote}"
        return mark

    def unfold(self, text: str) -> str:
        """The text with its pastes in place of their marks."""
        for mark, paste in self._texts.items():
            text = text.replace(mark, paste)
        return text

    def shown(self, text: str) -> str | None:
        """The pastes whose marks are in the text, to view; None without any."""
        found = [paste for mark, paste in self._texts.items() if mark in text]
        return "\n\n".join(found) if found else None

    def clear(self) -> None:
        """Forget them: the text was sent."""
        self._texts.clear()
        self._last = ("", "")


def whole_lines(text: str) -> str:
    """A paste with newlines of one kind, whatever the terminal makes of them."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
