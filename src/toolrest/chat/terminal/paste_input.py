"""Input that knows a paste also where the terminal does not mark it.

A person types one key at a time, and while the chat is busy a few may come together; a longer text
with a newline in its middle, all in one piece, is a paste, and so is what follows it at once.
"""

from __future__ import annotations

import select
from time import monotonic

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

_GOES_ON = 0.15
"""Seconds in which more of an unmarked paste may follow."""
_LEAST = 32
"""Keys that are more than a person types while the chat is busy for a moment."""
_MOST = 1 << 20
_TAB = KeyPress(Keys.ControlI, "\t")
_NEWLINES = (Keys.ControlM, Keys.ControlJ)


class PasteInput(Vt100Input):
    """The keyboard: what arrives together is read together."""

    _pasted = float("-inf")

    def read_keys(self) -> list[KeyPress]:
        """The keys that have arrived; an unmarked paste is one key."""
        keys = super().read_keys()
        while keys and len(keys) < _MOST and not self.closed and self._has_more():
            more = super().read_keys()
            if not more:
                break
            keys += more
        now = monotonic()
        if not is_paste(keys, goes_on=now - self._pasted < _GOES_ON):
            if keys:
                self._pasted = float("-inf")  # a key of the person ends it
            return keys
        self._pasted = now
        text = "".join("\n" if key.key in _NEWLINES else key.data for key in keys)
        return [KeyPress(Keys.BracketedPaste, text)]

    def _has_more(self) -> bool:
        return bool(select.select([self.fileno()], [], [], 0)[0])


def is_paste(keys: list[KeyPress], *, goes_on: bool = False) -> bool:
    """Whether keys that came together are a paste: all of them text, a newline in the middle.

    Where a paste `goes_on`, any text is more of it.
    """
    if not all(_is_text(key) for key in keys) or keys[-1:] == [_TAB]:  # Tab alone is a command
        return False
    breaks = [at for at, key in enumerate(keys) if key.key in _NEWLINES]
    inside = len(keys) >= _LEAST and any(0 < at < len(keys) - 1 for at in breaks)
    return inside or (goes_on and bool(keys))


def _is_text(key: KeyPress) -> bool:
    if key.key in _NEWLINES or key.key == Keys.ControlI:
        return True
    return len(key.key) == 1 and key.key == key.data
