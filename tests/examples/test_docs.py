"""The programs that README and manual show run as they stand there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import FRAGMENT, blocks
from tests.examples.test_examples import run

from toolrest.testing import ScriptedServer

PAGES = ("README.md", "docs/library.md", "docs/testing.md", "docs/exec.md", "docs/tools.md")


def programs(page: str) -> list[str]:
    """Every block but fragments, which await without a function around it."""
    return [block for block in blocks(page) if not FRAGMENT.search(block)]


def reply(body: dict[str, Any]) -> str:
    asked = "people" in json.dumps(body)
    return json.dumps({"result": [{"name": "Oslo", "people": 7}]}) if asked else "Yes."


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page(tmp_path: Path, page: str) -> None:
    found = programs(page)
    assert found
    (tmp_path / "README.md").write_text("# Title\n")
    for block in found:
        program = tmp_path / "shown.py"
        program.write_text(block)
        with ScriptedServer([reply] * 4) as server:
            done = run(program, server, tmp_path)
        assert done.returncode == 0, f"{block}\n{done.stderr}"
