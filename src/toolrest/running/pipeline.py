"""The exit codes of a line's last pipeline, which its own code hides: the shell reports them.

A trap that is set before the line writes them to a descriptor, so the line runs as it was shown.
"""

from __future__ import annotations

import contextlib
import os
from shlex import quote
from typing import TYPE_CHECKING

from msgspec.structs import replace

if TYPE_CHECKING:
    from toolrest.policy.launch import Launch
    from toolrest.process.command import Command

_FD = 43
"""Not one that shells choose for themselves."""
_REPORT = f'{{ echo "${{PIPESTATUS[@]}}" >&{_FD}; }} 2>/dev/null'
# Where programs are not the host's, a shell that cannot read that may have bash's place.
_GUARDED = f"case $BASH_VERSION in ?*) eval {quote(_REPORT)};; esac"
_TRAPS = {
    "bash": f"trap {quote(_GUARDED)} EXIT; ",
    "zsh": f"trap '{{ echo \"$pipestatus\" >&{_FD}; }} 2>/dev/null' EXIT; ",
}
_LONGEST = 4096
_BROKEN_PIPE = 141
"""The code of a program whose reader had read enough."""
ANSWERS = ("grep", "egrep", "fgrep", "rg", "diff", "cmp", "test", "[", "[[", "expr", "pgrep")
"""Programs whose exit code 1 is an answer, no failure."""


class PipelineCodes:
    """The codes that one shell reports at its end; `fds` is for its command."""

    def __init__(self) -> None:
        self._open = list(os.pipe())
        os.set_blocking(self._open[0], False)

    def __del__(self) -> None:
        self._close()

    @property
    def fds(self) -> tuple[tuple[int, int], ...]:
        """The descriptor that the trap writes to."""
        return ((_FD, self._open[1]),)

    def take(self) -> tuple[int, ...]:
        """The codes, once the shell has ended; empty where it did not report any."""
        said = b""
        with contextlib.suppress(OSError, IndexError):
            said = os.read(self._open[0], _LONGEST)
        self._close()
        words = said.decode("ascii", "replace").split()
        return tuple(map(int, words)) if all(map(_is_code, words)) else ()

    def _close(self) -> None:
        while self._open:
            os.close(self._open.pop())


class Ending:
    """How one command has ended, as far as its codes tell; `proves` that a program failed."""

    def __init__(self, launch: Launch | None = None) -> None:
        self._no_proof = range(0) if launch is None else launch.no_proof
        self._programs = () if launch is None else launch.pipeline
        self._codes = PipelineCodes() if self._programs else None
        self.proves = False
        self.hidden = ""

    def report_to(self, command: Command) -> Command:
        """The command with the descriptor for its codes, where its shell reports them."""
        return command if self._codes is None else replace(command, fds=self._codes.fds)

    def read(self, code: int) -> None:
        """Read what the shell has reported; `code` is its own."""
        codes = () if self._codes is None else self._codes.take()
        failure = failed(codes, self._programs)
        self.proves = failure if codes else code != 0 and code not in self._no_proof
        if failure and code == 0:
            self.hidden = f"exit codes of the pipeline: {' | '.join(map(str, codes))}"


def reporting(start: tuple[str, ...], shell: str | None) -> tuple[str, ...]:
    """The start of a shell's line with the trap before it; the same where the shell has none."""
    return (*start[:-1], f"{_TRAPS[shell]}{start[-1]}") if shell in _TRAPS else start


def failed(codes: tuple[int, ...], programs: tuple[str, ...]) -> bool:
    """Whether a part of a pipeline failed; `programs` are those of its parts, as far as known."""
    known = len(codes) == len(programs)
    return any(
        code not in (0, _BROKEN_PIPE)
        and not (code == 1 and (programs[place] in ANSWERS if known else _has_answer(programs)))
        for place, code in enumerate(codes)
    )


def _has_answer(programs: tuple[str, ...]) -> bool:
    return any(name in ANSWERS for name in programs)


def _is_code(word: str) -> bool:
    return word.isdigit() and len(word) <= 3
