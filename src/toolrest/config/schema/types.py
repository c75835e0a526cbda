"""Types of settings' values: their limits, and how they may be written."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias

from toolrest.config.schema.families import ShellForm

ApprovalPolicy: TypeAlias = Literal[
    "untrusted", "on-failure", "on-request", "never", "auto", "strict", "dangerous"
]
SandboxMode: TypeAlias = Literal["read-only", "workspace-write", "danger-full-access"]
OnAsk: TypeAlias = Literal["deny", "allow", "fail", "defer"]
TrustLevel: TypeAlias = Literal["trusted", "untrusted"]
FileTool: TypeAlias = Literal["read_file", "list_dir", "grep_files"]
"""Values of Codex's setting `experimental_tools`; it names no other tools."""
AnswerSpelling: TypeAlias = Literal["allow", "ask", "deny"]
ToolApproval: TypeAlias = Literal["auto", "prompt", "approve"]

APPROVAL_PRESETS = {"none": "never", "required": "strict", "sandbox": "on-failure"}
SHELL_SPELLINGS = {"default": "shell", "local": "local_shell"}


class Range:
    """A number's limits, both inclusive; more than `above` where that is given."""

    __slots__ = ("_above", "_least", "_most")

    def __init__(
        self, least: float | None = None, most: float | None = None, *, above: float | None = None
    ) -> None:
        self._least = least
        self._most = most
        self._above = above

    def unmet(self, value: float) -> str | None:
        """The expectation that this number does not meet; None when it is valid."""
        if value - value != 0:  # infinite, or not a number
            return "a finite number"
        if self._most is not None and value > self._most:
            return f"less than or equal to {self._most}"
        if self._least is not None and value < self._least:
            return f"greater than or equal to {self._least}"
        if self._above is not None and value <= self._above:
            return f"greater than {self._above}"
        return None


NOT_EMPTY = "at least 1 character"
"""The expectation that an empty text does not meet, as `Length(1)` words it."""


class Length:
    """Length limits of a text or a list. A text must be one that can be written to a file."""

    __slots__ = ("_least", "_most")

    def __init__(self, least: int = 0, most: int | None = None) -> None:
        self._least = least
        self._most = most

    def unmet(self, value: str | tuple[Any, ...]) -> str | None:
        """The expectation that this value does not meet; None when it is valid."""
        unit = "character" if isinstance(value, str) else "item"
        if len(value) < self._least:
            return f"at least {self._least} {unit}{'s' * (self._least != 1)}"
        if self._most is not None and len(value) > self._most:
            return f"at most {self._most} {unit}{'s' * (self._most != 1)}"
        if isinstance(value, str) and not _whole(value):
            return "a text of whole characters"
        return None


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_UNITS = {"": 1, "B": 1}
_UNITS |= {f"{letter}B": 1000**power for power, letter in enumerate("KMGT", 1)}
_UNITS |= {f"{letter}IB": 1024**power for power, letter in enumerate("KMGT", 1)}


def parse_size(value: Any) -> Any:
    """Bytes from a number or a text like `100MB` (1000s) or `64KiB` (1024s)."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)\s*([A-Za-z]{0,3})", value.strip(), re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError('expected bytes or a size like "100MB" or "64KiB"')
    return int(float(match[1]) * unit) if "." in match[1] else int(match[1]) * unit


def spelled(spellings: dict[str, str]) -> Callable[[Any], Any]:
    """A converter from any of several spellings to the one that is used."""

    def canonical(value: Any) -> Any:
        return spellings.get(value, value) if isinstance(value, str) else value

    return canonical


def _pattern(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if not value or "\0" in value:
        raise ValueError("expected a name, path or glob that is not empty")
    if value.startswith("!"):
        raise ValueError("a pattern that starts with ! would take back another one; remove it")
    return value


def _regex(value: Any) -> Any:
    try:
        re.compile(value)
    except TypeError:
        return value
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"not a regular expression ({error})") from None
    return value


_LONGEST_NAME = 256
_MATCHER_STEPS = 1_000_000


def _matcher(value: Any) -> Any:
    """A regular expression or a glob; anything else would match nothing, so it is refused."""
    is_glob = (
        isinstance(value, str) and set("*?[") & set(value) and not set("|()+^$\\{") & set(value)
    )
    if is_glob or not isinstance(_regex(value), str):
        return value
    from toolrest.config.regex_cost import danger  # few have hooks

    if problem := danger(value, longest=_LONGEST_NAME, budget=_MATCHER_STEPS, whole=True):
        raise ValueError(f"a regular expression that {problem}")
    return value


_NOTATIONS = ("idna", "punycode", "raw-unicode-escape", "unicode-escape", "utf-7")
"""Python's text encodings that are no character sets: plain letters in them may mean others."""


def _encoding(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        b"a".decode(value)
        codecs.getincrementaldecoder(value)
        name = codecs.lookup(value).name
        if name.replace("_", "-") in _NOTATIONS:
            raise ValueError("it writes characters in words of its own")
        return name
    except (LookupError, ValueError, TypeError):
        raise ValueError('expected the name of a text encoding, such as "cp1252"') from None


def _file_name(value: Any) -> Any:
    if isinstance(value, str) and (value in ("", ".", "..") or "/" in value or "\0" in value):
        raise ValueError("expected the name of a file, without a folder")
    return value


# A function in an `Annotated` type converts the written value before it is checked.
Text: TypeAlias = Annotated[str, Length(1, 4096)]
LongText: TypeAlias = Annotated[str, Length(1, 1_000_000)]
Texts: TypeAlias = tuple[Text, ...]
Pattern: TypeAlias = Annotated[str, _pattern]
Patterns: TypeAlias = tuple[Pattern, ...]
Regexes: TypeAlias = tuple[Annotated[Text, _regex], ...]
Matcher: TypeAlias = Annotated[Text, _matcher]
FileNames: TypeAlias = tuple[Annotated[Text, _file_name], ...]
Encoding: TypeAlias = Annotated[str, _encoding]
Arguments: TypeAlias = tuple[Annotated[str, Length(0, 32_768)], ...]
Count: TypeAlias = Annotated[int, Range(1, 2**53)]
Chars: TypeAlias = Annotated[int, Range(1, 400_000)]
"""How much of an output a model is shown."""
Size: TypeAlias = Annotated[int, parse_size, Range(1, 2**60)]
Seconds: TypeAlias = Annotated[float, Range(above=0, most=30 * 86400)]
Price: TypeAlias = Annotated[float, Range(0, 1_000_000)]
"""Dollars for a million tokens."""
Approval: TypeAlias = Annotated[ApprovalPolicy, spelled(APPROVAL_PRESETS)]
ShellName: TypeAlias = Annotated[ShellForm, spelled(SHELL_SPELLINGS)]
Shell: TypeAlias = Annotated[Literal["family", ShellForm], spelled(SHELL_SPELLINGS)]
