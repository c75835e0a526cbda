"""A user's own redaction patterns: which are accepted, and how one runs over endless text.

A pattern sees one line at a time, and of a line longer than `WINDOW` one window after the
other; so a match is never longer than a line, and a match of up to half a window is found
wherever it stands. That keeps memory bounded and makes the result the same for every chunking.

Python's matcher cannot be interrupted, so patterns that could explode are refused
(`regex_danger`). What is left takes at most about a second for one window, built to be slow.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from toolrest.errors import ConfigError

WINDOW = 4096
_HALF = WINDOW // 2
_MAX_PATTERN = 1000
_MAX_STEPS = 2 * WINDOW


class PatternStage:
    """Redact the matches of one pattern in text that arrives in pieces."""

    def __init__(self, pattern: re.Pattern[str], label: str) -> None:
        self._pattern = pattern
        self._label = label
        self._held = ""

    def feed(self, text: str) -> str:
        """Take a piece; return what is certain. An unfinished line is held back."""
        held = self._held + text
        done: list[str] = []
        at = 0
        while True:
            newline = held.find("\n", at)
            end = len(held) if newline < 0 else newline
            if end - at > WINDOW:
                at = self._window(held, at, done)
            elif newline >= 0:
                done.append(self._pattern.sub(self._label, held[at:end]))
                done.append("\n")
                at = newline + 1
            else:
                break
        self._held = held[at:]
        return "".join(done)

    def flush(self) -> str:
        """Return the rest: the text is over."""
        held, self._held = self._held, ""
        return self._pattern.sub(self._label, held)

    def _window(self, held: str, at: int, done: list[str]) -> int:
        window = held[at : at + WINDOW]
        found = self._pattern.search(window)
        if found is None or found.start() >= _HALF:
            done.append(window[:_HALF])
            return at + _HALF
        done += (window[: found.start()], self._label)
        return at + found.end()


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a redaction pattern, or raise a ConfigError that names it and the reason."""
    try:
        compiled = re.compile(pattern)
        problem = _problem(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        problem = f"is not a regular expression: {error}"
    if problem:
        raise ConfigError(f"redact.patterns: {pattern[:200]!r} {problem}")
    return compiled


def _problem(pattern: str) -> str:
    if len(pattern) > _MAX_PATTERN:
        return f"is longer than {_MAX_PATTERN} characters"
    parser: Any = import_module("re._parser")
    if parser.parse(pattern).getwidth()[0] == 0:
        return "matches the empty text; make it match at least one character"
    from toolrest.gate.output.regex_cost import danger

    return danger(pattern, longest=WINDOW, budget=_MAX_STEPS)
