"""Builtins of the shell that run what looks like plain text: `alias`, `hash -p`, `test -v`."""

from __future__ import annotations

import re

from toolrest.policy.shell.script import GLOB, Simple
from toolrest.policy.shell.words import wordset

# The subscript of an array is computed, and a substitution inside it is run, even a quoted one.
_SUBSCRIPT = re.compile(r"\[.*(?:\$[({]|`)", re.DOTALL)
_EXPANDS = re.compile(r"\$[({]|`")
_ARRAY = re.compile(r"=\(.*(?:\$[({]|`)", re.DOTALL)
_DECLARES = wordset("declare typeset local export readonly")
_COMPUTES = wordset(
    "test [ let declare typeset local export readonly unset printf read mapfile readarray getopts"
    " wait"
)
_RUN_OPTIONS = {
    "hash": "p",
    "mapfile": "C",
    "readarray": "C",
    "compgen": "CFW",
    "complete": "CF",
}
_ECHO_OPTION = re.compile(r"-[neE]+")
_PROMPTS = wordset("PS0 PS1 PS2 PS4 BASH_ENV ENV")


def hidden_script(simple: Simple) -> str:
    """Why what this builtin will run is not to be seen, or nothing."""
    argv, name = simple.argv, simple.argv[0]
    if name == "alias":
        return "an alias gives commands other names" if any("=" in w for w in argv[1:]) else ""
    letters = _RUN_OPTIONS.get(name)
    if letters and any(w[:1] == "-" and not set(letters).isdisjoint(w) for w in argv[1:]):
        return f"{name} runs other commands under a name or for a text"
    if name in ("printf", "test", "[") and "-v" not in argv:
        return ""
    if name in _COMPUTES and any(hidden_value(*_split(word)) for word in argv[1:]):
        return f"{name} computes a subscript, which may run commands"
    return "the words of an array are read from a text" if _reads_array(simple) else ""


def _reads_array(simple: Simple) -> bool:
    """True for `declare -a 'x=($(ls))'`: an array as it should be is marked as a glob is."""
    return simple.argv[0] in _DECLARES and any(
        simple.mark(index) != GLOB and _ARRAY.search(word) for index, word in enumerate(simple.argv)
    )


def hidden_value(name: str, value: str) -> bool:
    """True when setting this variable to this text may later run what the text says."""
    if name == "PROMPT_COMMAND" or (name in _PROMPTS and _EXPANDS.search(value)):
        return True
    return _SUBSCRIPT.search(value) is not None


def _split(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    return (name, value) if equals and name.isidentifier() else ("", word)


def printed(argv: tuple[str, ...]) -> str | None:
    """What `echo` or `printf` prints, if that can be told from its literal words."""
    if argv[:1] == ("printf",):
        return _formatted(argv[1:])
    if argv[:1] != ("echo",):
        return None
    start = 1
    while start < len(argv) and _ECHO_OPTION.fullmatch(argv[start]):
        start += 1
    text = " ".join(argv[start:])
    # Some shells' echo takes a backslash for the beginning of an escape, some do not.
    return None if "\\" in text else text


def _formatted(words: tuple[str, ...]) -> str | None:
    words = words[1:] if words[:1] == ("--",) else words
    if not words:
        return None
    text, *rest = words
    text = text.replace("\\n", "\n")
    if "%" not in text.replace("%s", "") and rest:
        if text.count("%s") != 1:
            return None
        made = "".join(text.replace("%s", word) for word in rest)
        return None if "\\" in text else made
    return None if "%" in text or "\\" in text else text
