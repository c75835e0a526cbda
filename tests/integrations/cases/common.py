"""What every case uses: a workspace, a place outside, an ordinary and a dangerous command."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any


class Place:
    """A workspace that commands may write, and a folder beside it that they may not."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="case-", dir=os.environ["CASES"]))
        self.workspace = self.root / "workspace"
        self.outside = self.root / "outside"
        self.home = self.root / "home"
        for folder in (self.workspace, self.outside, self.home):
            folder.mkdir()

    def ordinary(self) -> str:
        """A command that writes inside, and tries to write outside."""
        program = f"open({str(self.outside / 'escaped')!r}, 'w')"
        escape = shlex.join([sys.executable, "-c", program])
        return f"echo made > inside; {escape} 2>/dev/null; echo finished"

    def edit(self) -> dict[str, Any]:
        """The arguments of an edit of a file of the workspace, as `apply_patch` takes them."""
        (self.workspace / "tea.py").write_text("price = 1\n")
        change = "*** Update File: tea.py\n@@\n-price = 1\n+price = 2\n"
        return {"input": f"*** Begin Patch\n{change}*** End Patch\n"}

    def was_edited(self) -> bool:
        """Whether that edit was made."""
        return (self.workspace / "tea.py").read_text() == "price = 2\n"

    def was_confined(self) -> None:
        """Assert that the ordinary command ran, and in the sandbox."""
        assert (self.workspace / "inside").read_text() == "made\n"
        assert not (self.outside / "escaped").exists()

    def dangerous(self, name: str = "touched") -> dict[str, Any]:
        """The arguments of a command that leaves the sandbox."""
        return {
            "cmd": f"touch {shlex.quote(str(self.outside / name))}",
            "sandbox_permissions": "require_escalated",
            "justification": "May I?",
        }

    def touched(self, name: str = "touched") -> bool:
        """Whether the dangerous command ran."""
        return (self.outside / name).exists()


def run(*cases: Callable[[], Awaitable[None]]) -> None:
    """Run the cases one after the other and print their names."""
    for case in cases:
        asyncio.run(_named(case))


async def _named(case: Callable[[], Awaitable[None]]) -> None:
    await case()
    print("ok", getattr(case, "__name__", ""))
