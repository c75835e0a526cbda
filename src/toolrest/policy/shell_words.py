"""What does a word say once its quotes are gone, and would the shell change it further?"""

from __future__ import annotations

import re

from toolrest.policy.shell import BRACE, GLOB, ODD, TILDE

_PLAIN = re.compile(r"[A-Za-z0-9_./:@%+,-]+(?:[ \t]+[A-Za-z0-9_./:@%+,-][A-Za-z0-9_./:@%+,=-]*)*")
_QUIET = r"(?:[ \t]+(?:[12]?>>?|&>)[ \t]?/dev/null|[ \t]+[12]?>&[12])*"
_QUOTES = r"'[^'\n]*'|\"[^\"$`\\\n]*\""
_FIRST = rf"(?:[A-Za-z0-9_./:@%+,-]|{_QUOTES})+"
_NEXT = rf"(?:[A-Za-z0-9_./:@%+,-]|{_QUOTES})(?:[A-Za-z0-9_./:@%+,=-]|{_QUOTES})*"
_SIMPLE = re.compile(rf"({_FIRST}(?:[ \t]+{_NEXT})*){_QUIET}")
_WORDS = re.compile(rf"(?:[A-Za-z0-9_./:@%+,=-]|{_QUOTES})+")
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


def quick_argv(text: str) -> tuple[str, ...] | None:
    """The words of a command that holds nothing for a shell to do but remove quotes.

    Its only redirections, if any, go to `/dev/null` or to another descriptor; they are left
    out. None when the text is anything else.
    """
    if _PLAIN.fullmatch(text):
        return tuple(text.split())
    match = _SIMPLE.fullmatch(text)
    if match is None:
        return None
    return tuple(
        [
            word if word.isidentifier() else _UNQUOTE.sub(r"\1\2", word)
            for word in _WORDS.findall(match[1])
        ]
    )


def bare(text: str) -> tuple[str, str, int]:
    """An unquoted piece: its value, its skeleton (see `mark_of`) and what is odd about it."""
    odd = 0 if _BARE.fullmatch(text) else ODD
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
        mark |= ODD
    return mark
