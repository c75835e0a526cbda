"""Input that knows a paste also where the terminal does not mark it.

A person types one key at a time, and while the chat is busy a few may come together; a longer text
with a newline in its middle, all in one piece, is a paste. A busy machine brings it in several
pieces: what follows a paste, with no key of the person between, is more of it.
"""

from __future__ import annotations

import os
import select
from collections.abc import Mapping
from itertools import groupby
from time import monotonic

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.key_binding.key_processor import _Flush
from prompt_toolkit.keys import Keys

_SOON = 0.15
"""Seconds in which a newline after a paste is its last character, and not the person's Enter."""
_LEAST = 32
"""Keys that are more than a person types while the chat is busy for a moment."""
_MOST = 1 << 20
_TAB = KeyPress(Keys.ControlI, "\t")
_MARKING = ("xterm", "tmux", "rxvt-unicode", "alacritty", "foot", "kitty", "ghostty", "wezterm")
_NEWLINES = (Keys.ControlM, Keys.ControlJ)


class MorePaste(str):
    """More of the paste before it, which came in several pieces."""

    __slots__ = ()


class PasteInput(Vt100Input):
    """The keyboard: what arrives together is read together."""

    together = 0
    """How many keys came in the last piece."""
    _pasted: float | None = None
    """When the last piece of an unmarked paste came; None once the person pressed a key."""

    def read_keys(self) -> list[KeyPress]:
        """The keys that have arrived; a piece of an unmarked paste is one key."""
        keys = super().read_keys()
        while keys and len(keys) < _MOST and not self.closed and self._has_more():
            more = super().read_keys()
            if not more:
                break
            keys += more
        self.together = len(keys)
        found: list[KeyPress] = []
        for is_text, run in groupby(keys, _is_text):
            found += self._together(list(run), is_text=is_text)
        return found

    def flush_keys(self) -> list[KeyPress]:
        """Keys that could have been the beginning of another: an Esc that nothing follows is one.

        What comes after it, however soon, is a key of its own, and not Alt with that key.
        """
        keys = super().flush_keys()
        return [*keys, _Flush] if keys else keys

    def _together(self, keys: list[KeyPress], *, is_text: bool) -> list[KeyPress]:
        """Keys that are all text, or none; text as a paste if it is one, or more of one."""
        if not is_text:
            self._pasted = None
            return keys
        now = monotonic()
        after = None if self._pasted is None else now - self._pasted
        if is_paste(keys, after=after):
            self._pasted = now
            text = "".join(key.data for key in keys)
            return [KeyPress(Keys.BracketedPaste, text if after is None else MorePaste(text))]
        if len(keys) == 1 and after is not None and after >= _SOON:
            self._pasted = None
        return keys if marks_pastes(os.environ) else _one_paste(keys)

    def _has_more(self) -> bool:
        return bool(select.select([self.fileno()], [], [], 0)[0])


def is_paste(keys: list[KeyPress], *, after: float | None = None) -> bool:
    """Whether text that came together is a paste: long, and with a newline in its middle.

    `after` so many seconds since a paste it is more of that when it is several keys with a newline
    anywhere, however late they come; and a newline, or several keys, that come at once.
    """
    breaks = [at for at, key in enumerate(keys) if key.key in _NEWLINES]
    if after is not None:
        several = len(keys) > 1
        if several and breaks:
            return True
        if after < _SOON and (breaks or (several and keys[-1] != _TAB)):  # Tab is a command
            return True
    return len(keys) >= _LEAST and any(0 < at < len(keys) - 1 for at in breaks)


def marks_pastes(env: Mapping[str, str]) -> bool:
    """Whether the terminal is known to mark what is pasted; consoles and `screen` do not."""
    return "TMUX" in env or env.get("TERM", "").startswith(_MARKING)


def _one_paste(keys: list[KeyPress]) -> list[KeyPress]:
    """Several keys of a terminal that marks nothing: a paste, and an Enter or Tab behind it."""
    last = len(keys)
    while last and len(keys[last - 1].key) != 1:
        last -= 1
    text = "".join(key.data for key in keys[:last])
    return keys if last < 2 else [KeyPress(Keys.BracketedPaste, text), *keys[last:]]


def _is_text(key: KeyPress) -> bool:
    if key.key in _NEWLINES or key.key == Keys.ControlI:
        return True
    return len(key.key) == 1 and key.key == key.data
