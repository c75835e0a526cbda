"""A user's own redaction patterns: which are accepted, and how one runs over endless text.

A pattern sees one line at a time, and of a line longer than `WINDOW` one window after the
other; so a match is never longer than a line, and a match of up to half a window is found
wherever it stands. That keeps memory bounded and makes the result the same for every chunking.

Python's matcher cannot be interrupted, so shapes known to explode are refused: a long repeat
over something of varying length or over alternatives, more than four long repeats, and
references to groups. What is left may still be slow, but only within one window.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from toolrest.errors import ConfigError

WINDOW = 4096
_HALF = WINDOW // 2
_MAX_PATTERN = 1000
_MAX_LONG_REPEATS = 4
_LONG_REPEAT = 64
_SHORT_REPEAT = 8


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
    problem = ""
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
    tree = parser.parse(pattern)
    if tree.getwidth()[0] == 0:
        return "matches the empty text; make it match at least one character"
    long_repeats = 0
    for operation, argument, inside_repeat in _walk(tree, False):
        name = str(operation)
        if name.startswith("GROUPREF"):
            return "refers back to a group, which can take for ever; write it without"
        if inside_repeat and name == "BRANCH":
            return "repeats alternatives, which can take for ever; move the repeat inside them"
        if "REPEAT" not in name:
            continue
        low, high, _ = argument
        if inside_repeat and low != high:
            return "repeats a repeat, which can take for ever; use one repeat"
        long_repeats += low != high and high > _LONG_REPEAT
    if long_repeats > _MAX_LONG_REPEATS:
        return f"has more than {_MAX_LONG_REPEATS} long repeats; give them upper bounds"
    return ""


def _walk(tree: Any, inside_repeat: bool) -> Any:
    """Yield (operation, argument, inside a repeat of more than a few) over a parsed pattern."""
    for operation, argument in tree:
        yield operation, argument, inside_repeat
        inner = inside_repeat
        if "REPEAT" in str(operation):
            inner = inside_repeat or argument[1] > _SHORT_REPEAT
        for subtree in _subtrees(argument):
            yield from _walk(subtree, inner)


def _subtrees(argument: Any) -> Any:
    if type(argument).__name__ == "SubPattern":
        yield argument
    elif isinstance(argument, tuple | list):
        for item in argument:
            yield from _subtrees(item)
