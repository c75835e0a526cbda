"""Tools called as a model calls them: by name, through the whole gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.items import ToolOutput


@pytest.fixture
def work(public_folder: Path) -> Path:
    """An empty workspace that an ordinary user can reach."""
    return public_folder


@pytest.fixture
async def call(work: Path) -> AsyncIterator[Callable[..., Awaitable[ToolOutput]]]:
    """Call a tool in the workspace: `await call("read_file", file_path="a.txt")`."""
    async with Toolrest(workspace=work) as rest:

        async def by_name(name: str, **arguments: Any) -> ToolOutput:
            return await rest.call(name, arguments)

        yield by_name
