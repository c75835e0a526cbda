"""What a model saves for later is shown to the person who watches."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolrest import Toolrest
from toolrest.timeline.plain import PlainPrinter


async def test_a_saved_note_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with Toolrest(tmp_path) as rest:
        rest.subscribe(PlainPrinter())
        await rest.call("save_memory", {"text": "tests run with make check"})
    shown = capsys.readouterr().err
    assert "remembered for project: tests run with make check" in shown
    assert "/memory/projects/" in shown
