"""docs/internals/walk.md lists the functions that a command passes: recorded on a real call."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import toolrest
from toolrest import Toolrest

PAGE = Path(__file__).parents[3] / "docs" / "internals" / "walk.md"
SOURCE = f"{Path(toolrest.__file__).parent}/"
Function = tuple[str, str]


def listed() -> list[Function]:
    """The page's rows: each function with its file."""
    walk = PAGE.read_text().split("## The walk of one command")[1]
    rows = re.findall(r"^\| `([\w.]+)` \| `([\w/.]+)` \|", walk, re.MULTILINE)
    return [(file, name) for name, file in rows]


class Recorder:
    """The functions of ours that were entered, in any thread, in the order of their first time."""

    def __init__(self) -> None:
        self.entered: dict[Function, None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(SOURCE):
            self.entered.setdefault((code.co_filename[len(SOURCE) :], code.co_qualname))


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    """What is entered from now on."""
    before, recorder = sys.getprofile(), Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    yield recorder
    threading.setprofile(None)
    sys.setprofile(before)


@pytest.mark.needs("namespaces")
async def test_a_command_passes_these_functions_in_this_order(
    tmp_path: Path, recorder: Recorder
) -> None:
    async with Toolrest(tmp_path, tools=["exec_command"], on_ask="deny") as rest:
        await rest.call("exec_command", {"cmd": "true", "login": False})  # the box is made
        recorder.entered.clear()
        output = await rest.call("exec_command", {"cmd": "touch here", "login": False})
    assert "exited with code 0" in output.text
    on_page = listed()
    assert 20 <= len(on_page) <= 30
    assert [function for function in recorder.entered if function in on_page] == on_page
