"""Commands that programs are given among their options: `git rebase -x`, `tar --to-command`.

Only to see a danger that stands there; what is not literal, or not found, is left to the sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias

from toolrest.policy.shell.script import Simple
from toolrest.policy.shell.words import wordset

Later: TypeAlias = str | int
"""A script, or the place of the word with which a command begins."""

_GIT_TAKES = wordset("-C --git-dir --work-tree --namespace --exec-path --super-prefix --config-env")
_GIT_SETTING = re.compile(
    r"(?:(alias\..+)|core\.(?:pager|editor|sshcommand|fsmonitor|askpass|gitproxy)|pager\..+"
    r"|sequence\.editor|credential\..*helper|diff\.(?:external|.+\.(?:command|textconv))"
    r"|(?:difftool|mergetool)\..+\.cmd|filter\..+\.(?:clean|smudge|process)|merge\..+\.driver"
    r"|interactive\.difffilter|gpg\.(?:.+\.)?program)=(.*)",
    re.IGNORECASE | re.DOTALL,
)


def _git(simple: Simple) -> Iterator[Later]:
    argv, at = simple.argv, 1
    while at < len(argv) and argv[at].startswith("-"):
        if argv[at] == "-c" and at + 1 < len(argv) and not simple.mark(at + 1):
            yield from _setting(argv[at + 1])
        at += 2 if argv[at] == "-c" or argv[at] in _GIT_TAKES else 1
    if argv[at : at + 2] == ("bisect", "run"):
        yield at + 2
    elif argv[at : at + 2] == ("submodule", "foreach"):
        yield _in_each(simple, at + 2)
    elif argv[at : at + 1] == ("grep",):
        yield from (word[2:] for word in argv[at:] if word[:2] == "-O")
    else:
        letter, longs = _GIT_OPTIONS.get(argv[at] if at < len(argv) else "", ("", ()))
        yield from _options(simple, letter, longs)


def _in_each(simple: Simple, start: int) -> Later:
    """Of `git submodule foreach`: one word is a script, several are a command."""
    argv = simple.argv
    while start < len(argv) and argv[start] in ("-q", "--quiet", "--recursive"):
        start += 1
    is_script = start == len(argv) - 1 and not simple.mark(start)
    return argv[start] if is_script else start


_GIT_OPTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "rebase": ("x", ("--exec",)),
    "difftool": ("x", ("--extcmd",)),
}


def _setting(text: str) -> Iterator[str]:
    found = _GIT_SETTING.fullmatch(text)
    if found is not None:
        command = found[2].removeprefix("!")
        if not found[1] or command != found[2]:  # an alias without `!` is git's own
            yield command


def _options(simple: Simple, letter: str, longs: tuple[str, ...]) -> Iterator[str]:
    """Literal values of options, apart or attached."""
    argv = simple.argv
    for place, word in enumerate(argv[1:], 1):
        name, equals, value = word.partition("=")
        if name in longs and equals and not simple.mark(place):
            yield value
        elif word not in longs and not (letter and word == f"-{letter}"):
            continue
        elif place + 1 < len(argv) and not simple.mark(place + 1):
            yield argv[place + 1]


def _tar(simple: Simple) -> Iterator[Later]:
    yield from _options(
        simple, "I", ("--to-command", "--use-compress-program", "--info-script", "--rsh-command")
    )
    for value in _options(simple, "", ("--checkpoint-action",)):
        if value.startswith("exec="):
            yield value.removeprefix("exec=")


def _ssh(simple: Simple) -> Iterator[Later]:
    for place, word in enumerate(simple.argv[1:], 1):
        setting = word.removeprefix("-o")
        name, equals, value = setting.partition("=")
        if equals and not simple.mark(place) and name.lower() in ("proxycommand", "localcommand"):
            yield value


def _rest_after(*options: str) -> Callable[[Simple], Iterator[Later]]:
    def found(simple: Simple) -> Iterator[Later]:
        for place, word in enumerate(simple.argv[1:], 1):
            if word in options and not simple.mark(place) and place + 1 < len(simple.argv):
                yield place + 1
                return

    return found


def _values(letter: str, *longs: str) -> Callable[[Simple], Iterator[Later]]:
    return lambda simple: _options(simple, letter, longs)


_LATER: dict[str, Callable[[Simple], Iterator[Later]]] = {
    "git": _git,
    **dict.fromkeys(wordset("tar bsdtar gtar"), _tar),
    **dict.fromkeys(wordset("scp sftp"), _ssh),
    **dict.fromkeys(wordset("fd fdfind"), _rest_after("-x", "-X", "--exec", "--exec-batch")),
    "rsync": _values("e", "--rsh"),
    "man": _values("P", "--pager"),
    "screen": _rest_after("-dm", "-Dm", "-dmS"),
}


VARIABLES = wordset(
    "PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER EDITOR VISUAL GIT_EDITOR GIT_SEQUENCE_EDITOR"
    " GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_PROXY_COMMAND GIT_ASKPASS SSH_ASKPASS RSYNC_RSH BROWSER"
)
"""Variables whose text other programs run as a command."""


def run_later(name: str, simple: Simple) -> list[Later]:
    """The command lines that this program runs later, as far as its words show them."""
    find = _LATER.get(name)
    found = () if find is None else find(simple)
    return [later for later in found if later != "" and later != len(simple.argv)]
