"""Judge a whole command line: a script, or an argument list."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache

from toolrest.policy.verdict.judge import Judge
from toolrest.policy.verdict.verdict import Judgement


@lru_cache(maxsize=4)
def _home(_variable: str | None) -> str:
    return os.path.expanduser("~")


def judge(
    command: str | Sequence[str],
    *,
    cwd: str,
    writable_roots: Sequence[str] | None = None,
    home: str | None = None,
    known_shell: bool = True,
    shell: str | None = None,
) -> Judgement:
    """Judge a script (one string) or an argument list.

    `writable_roots` default to the working folder and `/tmp`. Never raises, and looks nothing
    up: the same words always get the same verdict. `known_shell` is False where the program of an
    argument list is a file that a tool could have written, whatever it is called. `shell` is the
    kind of the shell that reads the script: what others read otherwise than bash is not understood.
    """
    roots = (cwd, "/tmp") if writable_roots is None else tuple(writable_roots)  # noqa: S108
    judging = Judge(cwd, roots, _home(os.environ.get("HOME")) if home is None else home)
    if isinstance(command, str):
        judging.script(command, judging.place, 0, shell or "")
        argv: tuple[str, ...] = (command,)
    else:
        argv = tuple(command)
        judging.words(argv, known_shell=known_shell)
    segments = tuple(judging.segments)
    is_script = isinstance(command, str)
    return Judgement(argv, segments, judging.plain, roots, is_script, judging.scripts)
