"""Spellings of secret values, and the user's own redaction patterns.

A pattern sees one line at a time, and of a line longer than `WINDOW` one window after the
other; so a match is never longer than a line, and a match of up to half a window is found
wherever it stands. That keeps memory bounded and makes the result the same for every chunking.

Python's matcher cannot be interrupted, so patterns that could explode are refused (`regex_cost.py`
in `config`). What is left takes at most about a second for one window, built to be slow.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping

from toolrest.errors import ConfigError

MIN_LENGTH = 8
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=_-]{16,}")
_ADDRESS = re.compile(r"(?:unix|file):(?://|path=)?(/[^,;]*).*")
_NOT_IN_LABEL = re.compile(r"[^A-Za-z0-9_.-]")
# Characters at the start of base64 text that also hold bits of what stood before the value.
_SHARED = (0, 2, 3)


def spellings(secrets: Mapping[str, str]) -> dict[str, str]:
    """Map every spelling of every value to its label; a value's own text wins over a derived one.

    Short values and paths are left alone: they are common words of ordinary output.
    """
    labels: dict[str, str] = {}
    kept = [(name, value.strip()) for name, value in sorted(secrets.items())]
    kept = [(name, value) for name, value in kept if can_hide(value)]
    for name, value in kept:
        labels.setdefault(value, label(name))
    for name, value in kept:
        for form in _derived(value):
            labels.setdefault(form, label(name))
    return labels


def label(name: str) -> str:
    """The text that replaces a value."""
    return f"[redacted:{_NOT_IN_LABEL.sub('_', name)[:64]}]"


def can_hide(value: str) -> bool:
    """Whether a value can be looked for: short ones and paths are too common."""
    return len(value) >= MIN_LENGTH and not _is_path(value)


def _is_path(value: str) -> bool:
    """Whether a value is an existing path: passwords begin with `~` or `./` too.

    One base64 key in 64 starts with a slash, so of an absolute path the first folder must exist.
    """
    address = _ADDRESS.fullmatch(value)
    path = address[1] if address else value
    if path[0] == "/":
        return os.path.lexists("/" + path.lstrip("/").split("/", 1)[0][:255])
    if path.startswith("~/"):
        return os.path.lexists(os.path.expanduser(path))
    return path.startswith(("./", "../")) and os.path.lexists(path)


def _derived(value: str) -> Iterator[str]:
    from urllib.parse import quote, quote_plus

    for text in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        # Encoders also escape slashes, and characters that mean something in HTML.
        yield text
        yield text.replace("/", "\\/")
        for special in ("<>&", "<>&'+=`"):
            for case in ("x", "X"):
                escaped = "".join(
                    f"\\u{ord(one):04{case}}" if one in special else one for one in text
                )
                yield escaped
                yield escaped.replace("/", "\\/")
    data = value.encode("utf-8", "surrogatepass")
    for escaped in (quote(data, safe=""), quote(data), quote_plus(data), quote(data, safe="!'()*")):
        yield escaped
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), escaped)
    for text in _base64(data):
        yield text
        yield text.replace("+", "-").replace("/", "_")
    if "\n" in value:
        yield value.replace("\n", "\r\n")
        # Also each line of a key, which may be numbered or quoted line by line.
        yield from (line for line in value.split() if _KEY_LINE.fullmatch(line))


def _base64(data: bytes) -> Iterator[str]:
    whole = b64encode(data).decode()
    yield whole
    yield whole.rstrip("=")
    for before, shared in enumerate(_SHARED):
        text = b64encode(bytes(before) + data).decode()
        yield text[shared : (before + len(data)) * 8 // 6]


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
    from toolrest.config.regex_cost import danger, may_match_nothing

    if problem := danger(pattern, longest=WINDOW, budget=_MAX_STEPS):
        return problem
    if may_match_nothing(pattern):
        return "matches the empty text; make it match at least one character"
    return ""
