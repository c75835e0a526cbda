"""Words of a shell: their value without quotes, and whether the shell would change it further."""

from __future__ import annotations

import re

from toolrest.policy.shell.script import BRACE, GLOB, TILDE, UNREADABLE

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,-]+(?:[ \t]+[A-Za-z0-9_./:@%+,-][A-Za-z0-9_./:@%+,=-]*)*")
_QUIET = r"(?:[ \t]+(?:[12]?>>?|&>)[ \t]?/dev/null|[ \t]+[12]?>&[12])*"
_QUOTES = r"'[^'\n]*'|\"[^\"$`\\\n]*\""
_FIRST = rf"(?:[A-Za-z0-9_./:@%+,-]++|{_QUOTES})++"
_NEXT = rf"(?:[A-Za-z0-9_./:@%+,-]|{_QUOTES})(?:[A-Za-z0-9_./:@%+,=-]++|{_QUOTES})*+"
SIMPLE_COMMAND = rf"({_FIRST}(?:[ \t]+{_NEXT})*){_QUIET}"
"""A pattern for commands in which a shell has nothing to do but remove quotes.

Their only redirections, if any, go to `/dev/null` or to another descriptor. Group 1 is the
command without them.
"""
_SIMPLE = re.compile(SIMPLE_COMMAND)
_WORDS = re.compile(rf"(?:[A-Za-z0-9_./:@%+,=-]++|{_QUOTES})++")
_BARE = re.compile(r"(?:[^\s\\'\"$`|&;()<>\x00-\x20\x7f]|\\[^\n])+")
_UNQUOTE = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_QUOTED_ESCAPE = re.compile(r"\\([$`\"\\\n])")
_GLOB = re.compile(r"[*?]|\[.*\]")
_BRACES = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}|\{[^{}]*\{|\}[^{}]*\}")
_TILDE = re.compile(r"~|.*[=:]~")


def wordset(text: str) -> frozenset[str]:
    """The words of a text, for tables that should read like lists."""
    return frozenset(text.split())


KEYWORDS = wordset(
    "{ } ! if then else elif fi do done case esac while until for select function in [[ ]]"
)
"""Words that are no commands to a shell where a command should begin."""

_ASSIGNS = re.compile(r"\w+(?:\[|\+?=)")


def assigns(word: str) -> bool:
    """True for what is no program's name but the beginning of `NAME=value` or `NAME[1]=value`."""
    return ("=" in word or "[" in word) and _ASSIGNS.match(word) is not None


_CALM_NAME = re.compile(
    r"LANG|LANGUAGE|LC_[A-Z]+|TZ|NO_COLOR|COLUMNS|LINES|CLICOLOR|FORCE_COLOR|CI|PY_COLORS"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|PYTHONHASHSEED|RUST_BACKTRACE|CARGO_TERM_COLOR"
)
# No path: a locale or catalogue of the workspace's own would be loaded into the program.
_CALM_VALUE = re.compile(r"(?![/:])(?!.*(?:\.\.|:/))[A-Za-z0-9_.@:+/-]*")


def is_calm(name: str, value: str) -> bool:
    """True for a variable that changes how a program speaks, not what it does."""
    return bool(_CALM_NAME.fullmatch(name) and _CALM_VALUE.fullmatch(value))


def split_program(word: str) -> tuple[str, str]:
    """Folder and name of a program; the folder is empty only for a bare name."""
    folder, slash, name = word.rpartition("/")
    return folder or slash, name


def quick_argv(text: str) -> tuple[str, ...] | None:
    """The words of a command that is as simple as `SIMPLE_COMMAND`, else None."""
    if _PLAIN.fullmatch(text):
        return tuple(text.split())
    match = _SIMPLE.fullmatch(text)
    return None if match is None else split_simple(match[1])


def split_simple(command: str) -> tuple[str, ...]:
    """The words of group 1 of `SIMPLE_COMMAND`."""
    if "'" not in command and '"' not in command:
        return tuple(command.split())
    return tuple(
        [
            _UNQUOTE.sub(r"\1\2", word) if "'" in word or '"' in word else word
            for word in _WORDS.findall(command)
        ]
    )


def bare(text: str) -> tuple[str, str, int]:
    """An unquoted piece: its value, its skeleton (see `mark_of`) and what is odd about it."""
    odd = 0 if _BARE.fullmatch(text) else UNREADABLE
    if "\\" not in text:
        return text, text, odd
    return _ESCAPE.sub(r"\1", text), _ESCAPE.sub("x", text), odd


def double_quoted(inner: str) -> str:
    """The value between double quotes, as far as it does not depend on expansion."""
    if "\\" not in inner:
        return inner
    return _QUOTED_ESCAPE.sub(lambda m: "" if m[1] == "\n" else m[1], inner)


def mark_of(skeleton: str) -> int:
    """The mark of a whole word from its unquoted characters; quoted ones stand as `x`."""
    mark = 0
    if _GLOB.search(skeleton):
        mark = GLOB
    if "~" in skeleton and _TILDE.match(skeleton):
        mark |= TILDE
    if "{" in skeleton and _BRACES.search(skeleton):
        mark |= BRACE
    # zsh replaces =name by a path and, with an option, ^name by other files.
    if skeleton[:1] in ("=", "^"):
        mark |= UNREADABLE
    return mark
