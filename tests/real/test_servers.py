"""MCP servers that others wrote, in a session's sandbox, called as a model would call them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests import machine

from toolrest import ApprovalRequest, Toolrest

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200), pytest.mark.needs("namespaces")]
Npm = Callable[..., Path]
Apart = Callable[..., str]
OFFICIAL = "@modelcontextprotocol/server-"


OLD_SDK = ("mcp<2",)
"""For servers that were written for it and do not say so."""


class Case(NamedTuple):
    """A server: how it is started, what it is asked, and a word of each answer.

    `place`: where a copy of an npm package is put; a folder that may be asked about, or /tmp.
    """

    calls: tuple[tuple[str, dict[str, Any], str], ...]
    what: str
    program: str = "dist/index.js"
    args: tuple[str, ...] = ()
    place: str = ""
    asks: tuple[str, ...] = ()
    python: bool = False
    needs: tuple[str, ...] = ()


SERVERS: dict[str, Case] = {
    "@eslint/mcp": Case(
        (("lint-files", {"filePaths": ["WS/a.js"]}, "no-undef"),),
        "a file is linted with the project's settings",
        program="src/mcp-cli.js",
    ),
    f"{OFFICIAL}everything": Case(
        (("echo", {"message": "hi"}, "hi"), ("get-sum", {"a": 2, "b": 3}, "5")),
        "texts, images, resources, templates, progress and cancelling (`tests/mcp/test_real.py`)",
    ),
    f"{OFFICIAL}filesystem": Case(
        (
            ("read_text_file", {"path": "WS/a.js"}, "undefinedFn"),
            ("write_file", {"path": "WS/made.txt", "content": "x"}, "made.txt"),
            ("read_text_file", {"path": "/etc/passwd"}, "denied"),
        ),
        "reads and writes in the workspace, and nowhere else",
        args=("WS",),
    ),
    f"{OFFICIAL}memory": Case(
        (
            (
                "create_entities",
                {"entities": [{"name": "n", "entityType": "t", "observations": ["o"]}]},
                "read-only",
            ),
            (
                "create_entities",
                {"entities": [{"name": "n", "entityType": "t", "observations": ["o"]}]},
                "observations",
            ),
            ("read_graph", {}, "observations"),
        ),
        "keeps its graph beside its program",
        place="ground",
        asks=("+ write: PLACE/node_modules/@modelcontextprotocol/server-memory/dist",),
    ),
    f"{OFFICIAL}sequential-thinking": Case(
        (
            (
                "sequentialthinking",
                {
                    "thought": "a",
                    "nextThoughtNeeded": False,
                    "thoughtNumber": 1,
                    "totalThoughts": 1,
                },
                "thoughtHistoryLength",
            ),
        ),
        "works where it is installed in /tmp",
        place="tmp",
        asks=("+ read: PLACE",),
    ),
    "@playwright/mcp": Case(
        (
            ("browser_navigate", {"url": "data:text/html,<h1>hi</h1>"}, "repeat the call"),
            ("browser_navigate", {"url": "data:text/html,<h1>hi</h1>"}, "install"),
        ),
        "keeps its profile in `~/.cache`, then looks for a browser",
        program="cli.js",
        args=("--headless", "--browser", "chromium"),
        asks=("+ write: HOME/.cache/ms-playwright-mcp",),
    ),
    "@upstash/context7-mcp": Case((), "its tools are listed; calls go to its makers' service"),
    "mcp-server-calculator": Case(
        (("calculate", {"expression": "6 * 7"}, "42"),), "calculates", python=True
    ),
    "mcp-server-fetch": Case(
        (("fetch", {"url": "http://127.0.0.1:9/"}, ""),),
        "its tool and prompt; what it cannot fetch is an error of the call",
        python=True,
    ),
    "mcp-server-git": Case(
        (("git_status", {"repo_path": "WS"}, "a.js"),), "status of the workspace", python=True
    ),
    "mcp-server-sqlite": Case(
        (
            ("create_table", {"query": "CREATE TABLE t (a INTEGER)"}, "created"),
            ("write_query", {"query": "INSERT INTO t VALUES (41)"}, "1"),
            ("read_query", {"query": "SELECT a + 1 AS b FROM t"}, "42"),
        ),
        "a database in the workspace",
        args=("--db-path", "WS/data.db"),
        python=True,
        needs=OLD_SDK,
    ),
    "mcp-server-time": Case(
        (("get_current_time", {"timezone": "Europe/Berlin"}, "Europe/Berlin"),),
        "time zones",
        python=True,
    ),
    "mcp-text-editor": Case(
        (
            (
                "get_text_file_contents",
                {"files": [{"file_path": "WS/a.js", "ranges": [{"start": 1}]}]},
                "undefinedFn",
            ),
        ),
        "reads files of the workspace",
        python=True,
        needs=OLD_SDK,
    ),
    "repomix": Case(
        (("pack_codebase", {"directory": "WS"}, "outputId"),),
        "packs the workspace into its own /tmp",
        program="bin/repomix.cjs",
        args=("--mcp",),
    ),
}


@contextmanager
def installed(case: Case, package: str, npm: Npm) -> Iterator[Path]:
    """The folder whose `node_modules` has the package: ours, or a copy elsewhere."""
    folder = npm(package)
    if not case.place:
        yield folder
        return
    parent = "/tmp" if case.place == "tmp" else machine.solid_ground()
    copy = Path(tempfile.mkdtemp(prefix="toolrest-test-", dir=parent))
    try:
        shutil.copytree(folder, copy, dirs_exist_ok=True, symlinks=True)
        yield copy
    finally:
        shutil.rmtree(copy)


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server(
    name: str,
    tmp_path: Path,
    npm: Npm,
    node: str,
    apart: Apart,
    user_home: str,
    record_property: Callable[[str, object], None],
) -> None:
    """It starts, its calls are answered, and exactly the folders that it needs are asked about."""
    case, workspace, asked = SERVERS[name], tmp_path / "workspace", list[str]()
    workspace.mkdir()
    (workspace / "a.js").write_text("undefinedFn()\n")
    (workspace / "eslint.config.mjs").write_text("export default [{rules:{'no-undef':2}}];\n")
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    (Path(user_home) / ".cache").mkdir(exist_ok=True)

    def ask(request: ApprovalRequest) -> bool:
        if request.tool == "mcp_server_folder":
            asked.append(request.diff)
        return True

    with (
        python_server(case, name, apart)
        if case.python
        else node_server(case, name, npm, node) as made
    ):
        argv, version, place = made
        words = [word.replace("WS", str(workspace)) for word in (*argv, *case.args)]
        row = {"command": words[0], "args": words[1:], "startup_timeout_sec": 100.0}
        settings = {f"mcp_servers.it.{key}": value for key, value in row.items()}
        async with Toolrest(workspace, settings=settings, on_ask=ask, tools=["mcp"]) as rest:
            await rest.wait_for_mcp()
            assert rest.mcp is not None
            (status,) = rest.mcp.status()
            assert status.state == "ready", status.reason
            for tool, arguments, answer in case.calls:
                given = json.loads(json.dumps(arguments).replace("WS", str(workspace)))
                output = await rest.call(f"it/{tool}", given)
                assert answer.lower() in output.text.lower(), output.text
        real = {"PLACE": str(place.resolve()), "HOME": user_home}
        for key, value in real.items():
            asked = [line.replace(value, key) for line in asked]
    assert tuple(asked) == case.asks
    record_property("version", version)
    folders = f"; asked: {', '.join(f'`{line[2:]}`' for line in asked)}" if asked else ""
    with_ = f" (with `{' '.join(case.needs)}`)" if case.needs else ""
    record_property("what", f"{len(status.tools)}: {case.what}{with_}{folders}")


Made = tuple[tuple[str, ...], str, Path]


@contextmanager
def node_server(case: Case, name: str, npm: Npm, node: str) -> Iterator[Made]:
    with installed(case, name, npm) as folder:
        package = folder / "node_modules" / name
        version = json.loads((package / "package.json").read_text())["version"]
        yield (node, str(package / case.program)), version, folder


@contextmanager
def python_server(case: Case, name: str, apart: Apart) -> Iterator[Made]:
    own = Path(sysconfig.get_path("scripts")) / name
    program = own if own.exists() else Path(apart(name, *case.needs)).with_name(name)
    python = program.with_name("python")
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    yield (str(program),), found.stdout.strip(), program.parent
