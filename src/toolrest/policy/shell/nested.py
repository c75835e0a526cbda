"""Nested commands: what wrappers, shells and `find -exec` run.

`sudo rm x`, `timeout 5 make`, `xargs wc`, `find -exec`, `bash -c '…'`, `eval …`, `env -S …`.
What a wrapper runs is judged as if it stood alone. A wrapper whose words are not understood
runs something unknown.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from typing import NamedTuple

from toolrest.policy.shell.run_later import run_later
from toolrest.policy.shell.script import UNREADABLE, Simple
from toolrest.policy.shell.special_commands import WRAPPERS, XARGS, Wrapper, found_by, hidden_script
from toolrest.policy.shell.words import KEYWORDS, assigns, is_calm, wordset

SHELLS = wordset("bash sh zsh dash ksh ash mksh")
OTHER_SHELLS = wordset("fish csh tcsh nu pwsh powershell cmd xonsh elvish")


class Inner(NamedTuple):
    """Something that a command runs: words, or the text of a script, or something unknown.

    `shell` reads the script; empty means the one that reads the command, too.
    """

    argv: tuple[str, ...] = ()
    marks: tuple[int, ...] = ()
    script: str | None = None
    opaque: str = ""
    remote: bool = False
    shell: str = ""


class Unwrapped(NamedTuple):
    """What a wrapper runs, and whether somewhere else. A transparent one adds nothing."""

    inners: tuple[Inner, ...]
    transparent: bool = False
    moved: bool = False


_RUNNERS: dict[str, frozenset[str]] = {
    "uv": wordset("run"),
    "poetry": wordset("run"),
    "pipenv": wordset("run"),
    "pdm": wordset("run"),
    "rye": wordset("run"),
    "hatch": wordset("run"),
    "bundle": wordset("exec"),
}
"""`uv run CMD`: ordinary programs, whose inner command is judged as well where it is plain."""


def unwrap(simple: Simple) -> Unwrapped | None:
    """What this command runs besides itself, or None when it is no wrapper."""
    name = simple.argv[0].rpartition("/")[2].removesuffix(".exe")
    special = _SPECIAL.get(name)
    if special is not None:
        return special(simple)
    wrapper = WRAPPERS.get(name)
    if wrapper is not None:
        return _generic(simple, name, wrapper)
    if name in _RUNNERS:
        return _runner(simple, _RUNNERS[name])
    later = tuple(
        Inner(script=one) if isinstance(one, str) else _found_by(simple, one, len(simple.argv), "")
        for one in run_later(name, simple)
    )
    if later:
        return Unwrapped(later)
    hidden = hidden_script(simple)
    return _opaque(hidden) if hidden else None


def _opaque(why: str) -> Unwrapped:
    return Unwrapped((Inner(opaque=why),))


def _rest(simple: Simple, start: int, *extra: tuple[str, int]) -> Inner:
    argv = simple.argv[start:] + tuple(text for text, _ in extra)
    marks = (simple.marks[start:] if simple.marks else (0,) * (len(simple.argv) - start)) + tuple(
        mark for _, mark in extra
    )
    return Inner(argv, marks if any(marks) else ())


def _generic(simple: Simple, name: str, wrapper: Wrapper) -> Unwrapped | None:
    start, script, assigned = _start(simple, wrapper)
    if start < 0:
        return _opaque(f"an option of {name} is not understood")
    rest = _rest(simple, start)
    if wrapper.keyword and (
        any(map(assigns, rest.argv[:1])) or not KEYWORDS.isdisjoint(rest.argv[:2])
    ):
        return _opaque(f"what {name} runs is not understood")
    if script is not None and wrapper.script == "S":
        # Its escapes are not a shell's, and the words that follow belong to the command in it.
        if rest.marks or not _SPLIT.fullmatch(script):
            return _opaque(f"the words of {name} are not understood")
        script = f"{script} {shlex.join(rest.argv)}"
    if script is not None:
        inners: tuple[Inner, ...] = (Inner(script=script),)
    elif rest.argv:
        inners = (rest,)
    else:
        return None
    moved = name == "chroot" or any(word.startswith(_MOVES) for word in simple.argv[1:start])
    return Unwrapped(inners, wrapper.transparent and not (assigned or moved), moved)


_SPLIT = re.compile(r"(?:[A-Za-z0-9_./=:,@%+ -]|'[^'\\]*'|\"[^\"\\$`]*\")*")
_MOVES = ("-C", "-D", "-R", "--chdir", "--chroot")


def _start(simple: Simple, wrapper: Wrapper) -> tuple[int, str | None, bool]:
    """Where the inner command begins (-1: not understood), a script option's text, assignments."""
    argv = simple.argv
    index, left, script, assigned, options = 1, wrapper.operands, None, False, True
    while index < len(argv):
        word = argv[index]
        option = options and word[:1] == "-" and word != "-"
        if simple.mark(index) and (option or left):
            return -1, None, False
        if option and word == "--":
            options = False
            index += 1
        elif option:
            step, text = _option(simple, index, wrapper)
            if not step:
                return -1, None, False
            script = script if text is None else text
            assigned = assigned or text is not None or word.startswith(("-u", "--unset"))
            index += step
        elif wrapper.assigns and "=" in word:
            name, _, value = word.partition("=")
            assigned = assigned or bool(simple.mark(index)) or not is_calm(name, value)
            index += 1
        elif (wrapper.keyword and word == "!") or (wrapper.script and word == "-"):
            index += 1
        elif left:
            left -= 1
            index += 1
        else:
            break
    return index, script, assigned


def _option(simple: Simple, index: int, wrapper: Wrapper) -> tuple[int, str | None]:
    """How many words the option takes (0: not understood), and a script's text."""
    argv, word = simple.argv, simple.argv[index]
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if name == "--split-string" and wrapper.script == "S":
            return _script_of(simple, index, value)
        if name in wrapper.long_takes:
            return (1 if equals else 2), None
        known = wrapper.long_may_take if equals else wrapper.longs | wrapper.long_may_take
        return (1, None) if name in known or word == "--version" else (0, None)
    if wrapper.numbers and word[1:].lstrip("-+").isdecimal():
        return 1, None
    for place, letter in enumerate(word[1:], 2):
        if letter == wrapper.script:
            return _script_of(simple, index, word[place:])
        if letter in wrapper.takes:
            return (1 if place < len(word) else 2), None
        if letter in wrapper.may_take:
            return 1, None
        if letter not in wrapper.flags:
            return 0, None
    return (1, None) if index < len(argv) else (0, None)


def _script_of(simple: Simple, index: int, attached: str) -> tuple[int, str | None]:
    if attached:
        return 1, attached
    if index + 1 < len(simple.argv) and not simple.mark(index + 1):
        return 2, simple.argv[index + 1]
    return 0, None


_SHELL_FLAGS = frozenset("abefhiklmnprstuvxBCEHPTD")
_SHELL_TAKES = wordset("-o -O +o +O --rcfile --init-file")
_SHELL_LONGS = wordset("--login --norc --noprofile --posix --restricted --verbose")


def _shell(simple: Simple) -> Unwrapped | None:
    """`bash -c SCRIPT`; a shell without `-c` reads a file or its input instead."""
    argv, index = simple.argv, 1
    if argv[1:] in (("--version",), ("--help",)):
        return None
    while index < len(argv):
        word = argv[index]
        if simple.mark(index):
            return _opaque("the words of a nested shell are not literal")
        if word in _SHELL_TAKES:
            if index + 1 < len(argv) and simple.mark(index + 1):
                return _opaque("the words of a nested shell are not literal")
            index += 2
            continue
        if word[:1] not in ("-", "+") or word in ("-", "--"):
            return None
        if "c" in word[1:] and not word.startswith("--"):
            return _dash_c(simple, index)
        if word not in _SHELL_LONGS and not _SHELL_FLAGS.issuperset(word[1:].removesuffix("o")):
            return _opaque("an option of a nested shell is not understood")
        index += 2 if word.endswith("o") and not word.startswith("--") else 1
    return None


def _dash_c(simple: Simple, index: int) -> Unwrapped:
    word = simple.argv[index]
    plain = index == 1 and word in ("-c", "-lc") and len(simple.argv) == 3
    if not (_SHELL_FLAGS | {"c", "o"}).issuperset(word[1:]):
        return _opaque("an option of a nested shell is not understood")
    index += 1 + word.count("o")
    while index < len(simple.argv) and simple.argv[index][:1] in ("-", "+"):
        index += 2 if simple.argv[index] in _SHELL_TAKES else 1
    if index >= len(simple.argv):
        return _opaque("a nested shell has no script")
    if simple.mark(index):
        return _opaque("the script of a nested shell is not literal")
    shell = simple.argv[0].rpartition("/")[2]
    return Unwrapped((Inner(script=simple.argv[index], shell=shell),), plain)


def _other_shell(simple: Simple) -> Unwrapped | None:
    return _opaque("this shell's language is not understood") if len(simple.argv) > 1 else None


def _eval(simple: Simple) -> Unwrapped | None:
    words = simple.argv[1:]
    if not words:
        return None
    script = Inner(script=" ".join(words))
    if simple.marks:
        return Unwrapped((script, Inner(opaque="the words of eval are not literal")))
    return Unwrapped((script,))


def _trap(simple: Simple) -> Unwrapped | None:
    words = [index for index in range(1, len(simple.argv)) if simple.argv[index] != "--"]
    if len(words) < 2 or simple.argv[words[0]] in ("-", "-l", "-p"):
        return None
    if simple.mark(words[0]):
        return _opaque("the action of trap is not literal")
    return Unwrapped((Inner(script=simple.argv[words[0]]),))


def _command(simple: Simple) -> Unwrapped | None:
    index = 1
    while index < len(simple.argv) and simple.argv[index] in ("-p", "--"):
        index += 1
    if index == len(simple.argv) or simple.argv[index] in ("-v", "-V"):
        return None
    return Unwrapped((_rest(simple, index),), transparent=True)


def _joined(simple: Simple, flags: str, takes: str, *, remote: bool = False) -> Unwrapped | None:
    """Words that are joined by spaces and handed to a shell."""
    start, _, _ = _start(simple, Wrapper(flags, takes, operands=1 if remote else 0))
    if start < 0:
        return _opaque(f"an option of {simple.argv[0]} is not understood")
    words = simple.argv[start:]
    if not words:
        return None
    return Unwrapped((Inner(script=" ".join(words), remote=remote),))


def _watch(simple: Simple) -> Unwrapped | None:
    return _joined(simple, "bcdegptxwC", "nq")


def _ssh(simple: Simple) -> Unwrapped | None:
    return _joined(simple, "46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOopPQRSWw", remote=True)


def _xargs(simple: Simple) -> Unwrapped | None:
    start, _, _ = _start(simple, XARGS)
    if start < 0:
        return _opaque("an option of xargs is not understood")
    if start >= len(simple.argv):
        return None
    inner = _rest(simple, start, ("{}", UNREADABLE))
    stands_in = {"{}", *_replaced(simple.argv[1:start])}
    if any(token in inner.argv[0] for token in stands_in):
        return _opaque("xargs is given the program's name")
    return Unwrapped((inner,))


def _replaced(options: tuple[str, ...]) -> Iterator[str]:
    """What xargs replaces: the value of `-I` or `-J`, apart or attached."""
    for place, word in enumerate(options):
        if word in ("-I", "-J"):
            yield from options[place + 1 : place + 2]
        elif word.startswith(("-I", "-J", "-i")) and len(word) > 2:
            yield word[2:]
        elif word.startswith("--replace="):
            yield word.partition("=")[2]


def _parallel(simple: Simple) -> Unwrapped | None:
    words = simple.argv[1:]
    end = next((i for i, word in enumerate(words) if word.startswith(":::")), len(words))
    start = next((i for i, word in enumerate(words) if word[:1] != "-"), end)
    if any(word[:1] == "-" for word in words[:start]) or start >= end:
        return _opaque("what parallel runs is not understood")
    inner = _rest(simple, start + 1, ("{}", UNREADABLE))
    keep = end - start
    marks = (*(inner.marks or (0,) * len(inner.argv))[:keep], UNREADABLE)
    return Unwrapped((Inner((*inner.argv[:keep], "{}"), marks),))


_FIND_ACTS = re.compile(r"-(?:exec|ok|delete)")
_FIND_RUNS = wordset("-exec -execdir -ok -okdir")


def _find(simple: Simple) -> Unwrapped | None:
    argv, index = simple.argv, 1
    inners: list[Inner] = []
    found = found_by(simple)
    while index < len(argv):
        if simple.mark(index) and _FIND_ACTS.search(argv[index]):
            return _opaque("an option of find is not literal")
        if argv[index] in _FIND_RUNS:
            end = index + 1
            while end < len(argv) and argv[end] != ";" and argv[end - 1 : end + 1] != ("{}", "+"):
                end += 1
            if end > index + 1:
                inners.append(_found_by(simple, index + 1, end, found))
            index = end
        index += 1
    return Unwrapped(tuple(inners)) if inners else None


def _found_by(simple: Simple, start: int, end: int, found: str) -> Inner:
    argv, marks = [], []
    for index in range(start, end):
        word, mark = simple.argv[index], simple.mark(index)
        if "{}" in word:
            known = word == "{}" and found
            word, mark = (found, 0) if known else (word, UNREADABLE)
        argv.append(word)
        marks.append(mark)
    return Inner(tuple(argv), tuple(marks) if any(marks) else ())


def _runner(simple: Simple, verbs: frozenset[str]) -> Unwrapped | None:
    argv = simple.argv
    if len(argv) < 3 or argv[1] not in verbs:
        return None
    start = 3 if argv[2] == "--" else 2
    # Options of the runner may take values; then what it runs is left to the sandbox.
    if start >= len(argv) or argv[start].startswith("-"):
        return None
    return Unwrapped((_rest(simple, start),))


_SPECIAL: dict[str, Callable[[Simple], Unwrapped | None]] = {
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(OTHER_SHELLS, _other_shell),
    "eval": _eval,
    "trap": _trap,
    "command": _command,
    "watch": _watch,
    "ssh": _ssh,
    "xargs": _xargs,
    "parallel": _parallel,
    "find": _find,
}
