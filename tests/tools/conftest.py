"""Tools called as a model calls them: by name, through the whole gate."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from toolrest import Toolrest
from toolrest.items import ToolOutput

NOBODY = 65534


@pytest.fixture
def work() -> Iterator[Path]:
    """An empty workspace that an ordinary user can reach."""
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="toolrest-tools-")))
    base.chmod(0o755)
    yield base
    for name, folders, _ in os.walk(base):
        for below in folders:
            if not os.path.islink(os.path.join(name, below)):
                os.chmod(os.path.join(name, below), 0o755)
    shutil.rmtree(base)


@pytest.fixture
async def call(work: Path) -> AsyncIterator[Callable[..., Awaitable[ToolOutput]]]:
    """Call a tool in the workspace: `await call("read_file", file_path="a.txt")`."""
    async with Toolrest(workspace=work) as rest:

        async def by_name(name: str, **arguments: Any) -> ToolOutput:
            return await rest.call(name, arguments)

        yield by_name


@pytest.fixture
def as_user() -> Callable[[Callable[[], Any]], Any]:
    """Run a function as an ordinary user and return what it returns."""
    return _as_user


def _as_user(function: Callable[[], Any]) -> Any:
    if os.getuid() != 0:
        return function()
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside idle worker threads
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writing, pickle.dumps(function()))
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    assert os.waitpid(child, 0)[1] == 0, "the child failed"
    return pickle.loads(data)
