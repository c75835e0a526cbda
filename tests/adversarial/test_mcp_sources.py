"""A server whose code a tool may write is pinned by that code. Each failed before."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.adversarial.conftest import Range
from tests.mcp.conftest import FAKE

from toolrest import Toolrest
from toolrest.gate.approval.request import ApprovalRequest
from toolrest.mcp.sources import source_hashes
from toolrest.process.command import Command


class Server:
    """A server in the workspace, started in one session after the other."""

    def __init__(self, range_: Range, *argv: str, **row: Any) -> None:
        self.range = range_
        self.row = {"command": argv[0], "args": list(argv[1:]), "startup_timeout_sec": 60.0, **row}
        self.asked: list[ApprovalRequest] = []

    async def starts(self) -> bool:
        """Whether it runs in the next session; no question is approved."""
        settings = {f"mcp_servers.it.{key}": value for key, value in self.row.items()}

        def ask(request: ApprovalRequest) -> bool:
            self.asked.append(request)
            return False

        async with Toolrest(
            self.range.workspace,
            tools=["all"],
            settings=settings,
            on_ask=ask,
            home=os.environ["TOOLREST_HOME"],
        ) as rest:
            await rest.wait_for_mcp()
            return any(tool.mcp for tool in rest.tools)


@pytest.fixture(autouse=True)
def anywhere(any_sandbox: None) -> None:
    """These servers do no harm."""


def module(range_: Range) -> Path:
    """The server as a package, `srv`, that imports a module of its own."""
    package = range_.workspace / "srv"
    package.mkdir()
    shutil.copy(FAKE, package / "server.py")
    (package / "__init__.py").touch()
    (package / "helper.py").write_text("VALUE = 1\n")
    (package / "__main__.py").write_text(
        "import runpy, sys\nimport srv.helper\nsys.argv[1:] = ['plain']\n"
        "runpy.run_module('srv.server', run_name='__main__')\n"
    )
    return package


@pytest.mark.slow
@pytest.mark.parametrize("change", ["helper.py", "new.py", "deeper/more.py"])
async def test_a_module_is_pinned_by_its_folders_sources_failed_before(
    range_: Range, change: str
) -> None:
    package = module(range_)
    server = Server(range_, sys.executable, "-S", "-m", "srv")
    assert await server.starts()
    assert await server.starts(), "running it changes nothing"
    range_.file("notes.txt", "data may change")
    assert await server.starts()
    assert not server.asked
    (package / change).parent.mkdir(exist_ok=True)
    (package / change).write_text("VALUE = 2\n")
    assert not await server.starts()
    (request,) = server.asked
    assert f"{range_.workspace}/ (" in request.diff


async def test_a_planted_compiled_file_is_not_run_failed_before(range_: Range) -> None:
    """The source stays as it was; Python would believe the file in `__pycache__`."""
    import importlib.util
    import py_compile

    package = module(range_)
    server = Server(range_, sys.executable, "-S", "-m", "srv")
    assert await server.starts()
    evil = range_.file("evil.txt", "raise SystemExit('planted')\n")
    target = importlib.util.cache_from_source(str(package / "helper.py"))
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(evil), cfile=target, invalidation_mode=mode)
    assert await server.starts()


async def test_a_path_of_modules_in_its_variables_is_pinned_failed_before(range_: Range) -> None:
    (range_.workspace / "lib").mkdir()
    module(range_).rename(range_.workspace / "lib" / "srv")
    server = Server(
        range_, sys.executable, "-S", "-m", "srv", cwd="/",
        env={"PYTHONPATH": str(range_.workspace / "lib")},
    )  # fmt: skip
    assert await server.starts()
    (range_.workspace / "lib" / "srv" / "helper.py").write_text("VALUE = 2\n")
    assert not await server.starts()


def hashes(range_: Range, *argv: str, **env: str) -> dict[str, str]:
    command = Command(argv, str(range_.workspace), env)
    found = source_hashes(command, [str(range_.workspace)])
    return {
        key.split("/ (")[0].removeprefix(str(range_.workspace)): one for key, one in found.items()
    }


CASES = [
    (("node", "."), "lib/a.js", True),
    (("node", "index.js"), "lib/a.js", True),
    (("node", "index.js"), "node_modules/x/index.js", True),
    (("node", "index.js"), "data.json", False),
    (("node", "/opt/server/index.js"), "lib/a.js", True),
    (("npx", "-y", "some-server"), "node_modules/.bin/some-server.js", True),
    (("npx", "-y", "some-server", "."), "lib/a.js", False),
    (("npx", "-y", "some-server"), ".npmrc", True),
    (("uvx", "mcp-server-git"), "src/a.py", False),
    (("uvx", "mcp-server-git"), "uv.toml", True),
    (("uv", "run", "srv"), "src/a.py", True),
    (("uv", "--directory", "/usr", "run", "srv"), "src/a.py", False),
    (("uv", "--directory=src", "run", "srv"), "src/a.py", True),
    (("env", "A=1", "python3", "-m", "srv"), "srv/a.py", True),
    (("python3", "-m", "srv"), "srv/a.py", True),
    (("python3.12", "-Im", "srv", "index.js"), "srv/a.py", True),
    (("python3", "srv.py"), "other/a.py", True),
    (("python3", "srv.py"), ".venv/lib/a.py", False),
    ((".venv/bin/python", "srv.py"), ".venv/lib/a.py", True),
    (("python3", "/usr/bin/true"), "srv/a.py", False),
    (("/usr/bin/mcp-server-git", "--repository", "."), "srv/a.py", False),
    (("./run",), "helper.py", True),
    (("bash", "-c", "cd srv && ./run"), "srv/run.sh", True),
]


@pytest.mark.parametrize(("argv", "changed", "noticed"), CASES)
def test_what_counts_as_a_servers_code_failed_before(
    range_: Range, argv: tuple[str, ...], changed: str, noticed: bool
) -> None:
    for name in ("index.js", "srv.py", ".venv/bin/python", "package.json"):
        range_.file(name, "{}")
    before = hashes(range_, *argv)
    range_.file(changed, "changed")
    assert (hashes(range_, *argv) != before) is noticed


def test_a_large_folder_is_judged_by_times_failed_before(
    range_: Range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolrest.mcp.sources.MOST_FILES", 1)
    range_.file("a.py", "1")
    late = range_.file("b.py", "1")
    before = hashes(range_, "python3", "-m", "srv")
    late.write_text("2")
    assert hashes(range_, "python3", "-m", "srv") != before
