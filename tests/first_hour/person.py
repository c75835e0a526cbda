"""A new user: a fresh home, a shell at a terminal of 80x24, and nothing that anybody prepared."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias

from tests.chat.svg import svg
from tests.machine import NOBODY, REPOSITORY
from tests.screen import Screen

State: TypeAlias = Literal["full", "landlock", "none"]
"""What confines commands: bubblewrap; Landlock alone, as in a plain container; nothing."""

SCREENS = os.environ.get("TOOLREST_TEST_SCREENS", "")
"""The variable that names a folder for what the person saw at each step, as text and as SVG."""
ENTER, CTRL_D = "\r", "\x04"
_SIZE = (24, 80)
# A prompt ends with the last command's exit code, as shells tell it to terminals.
_BASHRC = r"PS1='\W \$ \[\e]133;D;$?\a\]'"
_PROMPT = re.compile(rb"\x1b\]133;D;(\d+)\x07")
_INVISIBLE = re.compile(r"\x1b(?:\][^\x07]*\x07|\[[0-9;?]*[A-Za-z]|[=>78])|\r")


class Person:
    """What this user types, and what there is to see; `transcript` is everything printed so far."""

    def __init__(self, state: State, name: str, home: Path, variables: Mapping[str, str]) -> None:
        (home / ".bashrc").write_text(_BASHRC)
        everything = {
            "HOME": str(home),
            "USER": "tea",
            "SHELL": "/bin/bash",
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "PATH": f"{home}/.local/bin:/usr/local/bin:/usr/bin:/bin",
            **variables,
        }
        shell = ["env", "-i", *(f"{key}={value}" for key, value in everything.items()), "bash"]
        self.screen = Screen([*_rights(state), *shell], size=_SIZE, cwd=home)
        self._pictures = Path(SCREENS, name)
        self._taken = 0
        self._prompts, self._line = 1, 0

    def __enter__(self) -> Self:
        self.screen.until(self._is_asked, "a shell's prompt")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if error is not None:
            self.looks("failed")
        self.screen.__exit__(kind, error, at)

    def _is_asked(self) -> bool:
        return len(_PROMPT.findall(self.screen.raw)) >= self._prompts

    @property
    def transcript(self) -> str:
        return _INVISIBLE.sub("", self.screen.raw.decode(errors="replace"))

    def starts(self, line: str) -> None:
        """Type a line into the shell."""
        self._line = len(self.screen.raw)
        self.screen.types(line + ENTER)

    def ends(self) -> tuple[int, str]:
        """Wait until the shell asks again: the command's exit code, and what it printed."""
        self._prompts += 1
        self.screen.until(self._is_asked, "a shell's prompt")
        code = int(_PROMPT.findall(self.screen.raw)[-1])
        printed = self.screen.raw[self._line :].decode(errors="replace")
        lines = _INVISIBLE.sub("", printed).splitlines()
        return code, "\n".join(lines[1:-1])  # without the line itself, and the next prompt

    def runs(self, line: str, step: str = "") -> tuple[int, str]:
        """Run a command in the shell; its exit code, and what it printed."""
        self.starts(line)
        found = self.ends()
        if step:
            self.looks(step)
        return found

    def does(self, line: str, step: str = "") -> str:
        """Run a command that has to succeed; what it printed."""
        code, printed = self.runs(line, step)
        assert code == 0, f"{line}: {code}\n{printed}"
        return printed

    def looks(self, step: str) -> str:
        """What is on the screen; kept where pictures are wanted."""
        self.screen.read()
        if SCREENS:
            self._taken += 1
            self._pictures.mkdir(parents=True, exist_ok=True)
            file = self._pictures / f"{self._taken:02}-{step}"
            file.with_suffix(".txt").write_text(self.screen.now + "\n")
            drawn = svg(self.screen.coloured, _SIZE[1], self.screen.cursor, step)
            file.with_suffix(".svg").write_text(drawn)
        return self.screen.now


def _rights(state: State) -> list[str]:
    """The words before a command that give it what such a machine gives an ordinary user."""
    if state == "full":
        return as_ordinary()
    container = [sys.executable, str(REPOSITORY / "tests" / "plain_container.py")]
    container += ["--no-landlock"] if state == "none" else []
    container += ["--uid", str(NOBODY)] if os.geteuid() == 0 else []
    return [*container, "--"]


def as_ordinary() -> list[str]:
    """The words before a command with which root runs it as an ordinary user."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]


def own(path: Path) -> None:
    """Give a folder and all below it to the ordinary user."""
    if os.geteuid() != 0:
        return
    os.chown(path, NOBODY, NOBODY)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.lchown(os.path.join(folder, name), NOBODY, NOBODY)
