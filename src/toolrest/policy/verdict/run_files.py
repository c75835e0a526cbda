"""Run files: the programs and scripts of a command line that a tool can have written.

The words of the line stay the same when such a file is exchanged, so an approval of them holds
for these files as they were when it was asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from toolrest.own_code import lies_in
from toolrest.policy.dangerous.flow import runs_scripts
from toolrest.policy.launch import content_stamp, find_executable
from toolrest.policy.shell.nested import SHELLS

if TYPE_CHECKING:
    from toolrest.policy.launch import Launch, RunFiles
    from toolrest.policy.verdict.verdict import Judgement, Segment


def run_files(judgement: Judgement, launch: Launch) -> RunFiles:
    """The files as they are now. What a script itself starts or imports is not among them."""
    paths = (path for segment in judgement.segments for path in _named(segment, launch))
    return tuple(
        (path, content_stamp(path))
        for path in dict.fromkeys(paths)
        if lies_in(path, launch.suspects)
    )


def runs_writable_script(judgement: Judgement, launch: Launch) -> bool:
    """Whether a part is an interpreter with a script that a tool can write, or could put there."""
    return any(
        lies_in(path, launch.suspects) and (not option or os.path.exists(path))
        for segment in judgement.segments
        for path, option in _scripts(segment, launch)
    )


def _named(segment: Segment, launch: Launch) -> Iterator[str]:
    if not segment.argv or segment.mark(0):
        return
    name, folders = segment.argv[0], segment.cwds or (launch.cwd,)
    if "/" in name:
        yield from _in_each(folders, name)
    elif (program := find_executable(name, launch.path or "", launch.cwd, ())) is not None:
        yield program.path
    for path, _ in _scripts(segment, launch):
        yield path


def _scripts(segment: Segment, launch: Launch) -> Iterator[tuple[str, bool]]:
    """The files that an interpreter may run; True for what is probably text, no name."""
    if not segment.argv or segment.mark(0) or not runs_scripts(segment.program):
        return
    for word, option in _script_words(segment):
        follows = _SHELL_TEXT_FOLLOWS if segment.program in SHELLS else _TEXT_FOLLOWS
        is_text = bool(follows.fullmatch(option))
        for path in _in_each(segment.cwds or (launch.cwd,), word):
            yield path, is_text
    for path in segment.reads:  # `sh < script`
        yield path, False


_TEXT_FOLLOWS = re.compile(r"-[A-Za-z]*[cemp]|--eval|--print|--command")
"""Options of interpreters after which a program's text comes, or the name of a module."""
_SHELL_TEXT_FOLLOWS = re.compile(r"-[A-Za-z]*c[A-Za-z]*")


def _script_words(segment: Segment) -> Iterator[tuple[str, str]]:
    """The words that may name the script: any that may be an option's value, and the next one.

    Each with the option before it.
    """
    option = ""
    for place, word in enumerate(segment.argv[1:], 1):
        if word.startswith("-") and len(word) > 1:
            option = word
            continue
        if not segment.mark(place):
            yield word, option
        if not option:
            return
        option = ""


def _in_each(folders: Sequence[str], word: str) -> Iterable[str]:
    return (os.path.normpath(os.path.join(folder, word)) for folder in folders)
