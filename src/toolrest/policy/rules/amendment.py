"""Prefix rules offered as "and don't ask again", and those too broad to offer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence

from toolrest.policy.commands.git import git_command
from toolrest.policy.shell.nested import Inner, unwrap
from toolrest.policy.shell.script import Simple
from toolrest.policy.shell.special_commands import WRAPPERS
from toolrest.policy.shell.words import wordset

_OPEN = wordset(
    "bash sh zsh dash ksh mksh fish ash csh tcsh nu xonsh elvish cmd powershell pwsh py pypy python"
    " pythonw pyw ipython node nodejs perl ruby irb lua luajit julia php bun deno rscript osascript"
    " tclsh expect awk gawk mawk nawk rm source . npx bunx uvx"
)
"""Programs that run, or delete, whatever the words after their options name."""
_ALWAYS = wordset("find parallel")
"""Programs that any later word may make run another one."""
_WRAPPERS = frozenset(WRAPPERS) | wordset("command xargs watch ssh eval trap")
_RUNNERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(wordset("uv poetry pipenv pdm rye hatch pipx"), wordset("run")),
    **dict.fromkeys(wordset("npm pnpm yarn bun"), wordset("run exec dlx x")),
    "deno": wordset("run eval"),
    "bundle": wordset("exec"),
    "cmd": wordset("/c /k"),
}
"""Programs with verbs behind which another program, or a script, is named."""
_KNOWN = _OPEN | _ALWAYS | _WRAPPERS | _RUNNERS.keys() | {"git"}
_GIT_RUNS = {("bisect", "run"), ("submodule", "foreach")}
_TAKES = wordset("-W -X -I -r -o -O -Q --require --import --loader --rcfile --init-file -File")
_VERSION = re.compile(r"(?:\.exe)?\Z|[-.]?\d[\d.]*(?:\.exe)?\Z")


def saved_message(prefix: Sequence[str]) -> str:
    """The message to the model once a prefix has been saved."""
    return f"Approved command prefix saved:\n{_line(prefix)}"


def _line(prefix: Sequence[str]) -> str:
    return f"- [{', '.join(json.dumps(token, ensure_ascii=False) for token in prefix)}]"


def is_banned(prefix: Sequence[str]) -> bool:
    """True when allowing the prefix would allow nearly any command.

    By the program that it is: with a folder or a version in its name, behind a link, with options
    before its first word, or behind others that run it.
    """
    words = tuple(prefix)
    if not words:
        return True
    name = words[0].lower()
    if name.isalpha():
        return name in _KNOWN and _is_open(name, words)
    return any(_is_open(name, words) for name in _names(words[0]))


def _names(program: str) -> set[str]:
    """The names of the program's file, by itself and behind links, without a version."""
    paths = {program, os.path.realpath(program)} if program.startswith("/") else {program}
    bases = {path.replace("\\", "/").rpartition("/")[2].lower() or path for path in paths}
    return {_VERSION.sub("", base, count=1) or base for base in bases}


def _is_open(name: str, words: tuple[str, ...]) -> bool:
    rest = words[1:]
    if name in _ALWAYS:
        return True
    if name == "git":
        at = git_command(words)
        return at == len(words) or words[at : at + 2] in _GIT_RUNS
    if name in _WRAPPERS:
        unwrapped = unwrap(Simple((name, *rest)))
        return unwrapped is None or any(map(_is_open_inside, unwrapped.inners))
    if rest and rest[0] in _RUNNERS.get(name, ()):
        inner = rest[1:]
        return not inner or inner[0][:1] == "-" or is_banned(inner)
    return name in _OPEN and _names_nothing(rest)


def _is_open_inside(inner: Inner) -> bool:
    if inner.opaque:
        return True
    words = inner.argv if inner.script is None else tuple(inner.script.split())
    # What xargs adds is not a word of the prefix.
    return is_banned(words[:-1] if inner.marks and inner.marks[-1] else words)


def _names_nothing(words: tuple[str, ...]) -> bool:
    """True when all words are options and their values: the script is still to come."""
    at = 0
    while at < len(words) and words[at][:1] in ("-", "+"):
        at += 2 if words[at] in _TAKES else 1
    return at >= len(words)
