"""Nothing of ours is imported from where a tool may write. Each failed on the tree before."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from tests.adversarial.conftest import Range

from toolrest.testing import ScriptedServer
from toolrest.web_ui.hosted import HostedSessions

SHADOWS = ("click.py", "toolrest.py", "json.py", "difflib.py", "tomlkit.py", "pydantic.py")


@pytest.mark.slow
def test_a_batch_imports_nothing_from_the_workspace_failed_before(range_: Range) -> None:
    for name in SHADOWS:
        range_.code(name)
    range_.file("tasks.jsonl", '{"id": "a", "prompt": "one"}\n')
    ran = range_.toolrest("batch", "tasks.jsonl")
    range_.unharmed()
    assert ran.code == 0, ran.err
    row = json.loads((range_.workspace / "tasks.jsonl.results.jsonl").read_text())
    assert row["text"] == "done"


@pytest.mark.parametrize("where", [".", "sub", "../workspace", "../other"])
def test_the_command_line_ignores_a_python_path_in_the_workspace_failed_before(
    range_: Range, where: str
) -> None:
    for name in ("click.py", "collections.py", "json.py", "typing.py"):
        for folder in ("", "sub/", "../other/"):
            range_.code(f"{folder}{name}")
    listing = ("list_dir", '{"dir_path": "."}')
    ran = range_.toolrest("call", "-C", "../other", *listing, env={"PYTHONPATH": where})
    assert ran.code == 0, ran.err
    range_.unharmed()


def test_the_command_line_ignores_a_python_path_in_another_root_failed_before(
    range_: Range,
) -> None:
    other = range_.workspace.parent / "other"
    range_.code("../other/tree_sitter_bash.py")
    ran = range_.toolrest(
        "call", "-s", "workspace-write",
        "-c", f'sandbox_workspace_write.writable_roots=["{other}"]',
        "exec_command", '{"cmd": "for i in 1 2; do echo $i; done", "login": false}',
        env={"PYTHONPATH": str(other)},
    )  # fmt: skip
    range_.unharmed()
    assert ran.code == 0 or "sandbox" in ran.out + ran.err


HOST = """
import asyncio, sys
from toolrest import Toolrest
before = list(sys.path)
LINE = "for i in 1 2; do echo $i > x$i; done"

async def main():
    async with Toolrest(".", settings={"tool_security": {"audit_log_enabled": False}}) as rest:
        print((await rest.call("exec_command", {"cmd": LINE, "login": False})).text)
        print((await rest.call("update_plan", {"plan": "wrong"})).text)
    assert sys.path == before

asyncio.run(main())
import helper
"""


def test_the_library_loads_no_planted_module_failed_before(range_: Range) -> None:
    """The host's folder is first on its path, and the host may import from it: only we do not."""
    for name in ("tree_sitter_bash.py", "tree_sitter.py", "difflib.py", "jsonschema_rs.py"):
        range_.code(name)
    range_.file("helper.py", "print('the host has its own module')")
    ran = range_.python(HOST)
    range_.unharmed()
    assert ran.returncode == 0, ran.stderr
    assert "the host has its own module" in ran.stdout


def test_a_module_that_is_only_in_the_workspace_is_refused_in_words_failed_before(
    range_: Range,
) -> None:
    range_.code("lonely.py")
    ran = range_.python(
        "from toolrest import Toolrest\n"
        "rest = Toolrest('.')\n"
        "code = compile('import lonely', 'x', 'exec')\n"
        "try:\n    exec(code, {'__name__': 'toolrest.tools.imagined'})\n"
        "except ModuleNotFoundError as error:\n    print(error)\n"
    )
    range_.unharmed()
    assert "lonely is not loaded" in ran.stdout, ran.stderr
    assert str(range_.workspace) in ran.stdout


ENTRY = "[toolrest.tools]\nevil = evil_tool:tool\n"


def test_entry_points_of_the_workspace_are_ignored_failed_before(range_: Range) -> None:
    range_.code("evil_tool.py", "\ndef tool(): 'x'\n")
    range_.file("evil-1.dist-info/entry_points.txt", ENTRY)
    range_.file("evil-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    code = (
        "from toolrest import Toolrest, load_config\n"
        "rest = Toolrest('.', config=load_config())\n"
        "print(rest.warnings, [t.name for t in rest.tools])\n"
    )
    ran = range_.python(code)
    range_.unharmed()
    assert ran.returncode == 0, ran.stderr
    assert "evil" not in ran.stdout


def test_an_installed_entry_point_whose_code_is_in_the_workspace_is_left_out_failed_before(
    range_: Range,
) -> None:
    """The package's list is outside, and its module in the workspace."""
    range_.code("evil_tool.py", "\ndef tool(): 'x'\n")
    installed = range_.home / "packages" / "evil-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "entry_points.txt").write_text(ENTRY)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1\n")
    code = (
        f"import sys; sys.path.append({str(installed.parent)!r})\n"
        "from toolrest import Toolrest, load_config\n"
        "print(Toolrest('.', config=load_config()).warnings)\n"
    )
    ran = range_.python(code)
    range_.unharmed()
    assert "evil_tool is not loaded" in ran.stdout, ran.stdout + ran.stderr


def test_a_tool_file_of_the_home_that_leads_into_the_workspace_is_left_out_failed_before(
    range_: Range,
) -> None:
    (range_.home / "tools").mkdir()
    (range_.home / "tools" / "mine.py").symlink_to(range_.code("mine.py"))
    ran = range_.toolrest("tools")
    range_.unharmed()
    assert "mine.py is left out" in ran.err


def test_a_tool_file_of_a_home_inside_the_workspace_is_loaded(range_: Range) -> None:
    """Tools never write to our home, wherever it is."""
    home = range_.workspace / "home"
    (home / "tools").mkdir(parents=True)
    (home / "tools" / "mine.py").write_text(
        "from toolrest import tool\n@tool(mutating=False)\ndef mine() -> str:\n    'Mine.'\n"
    )
    ran = range_.toolrest("tools", env={"TOOLREST_HOME": str(home)})
    assert "mine" in ran.out, ran.err


def test_a_cache_of_byte_code_in_the_workspace_is_not_used_failed_before(range_: Range) -> None:
    """PYTHONPYCACHEPREFIX in the workspace: what lies there passes for our compiled modules."""
    prefix = range_.workspace / "cache"
    import importlib.util
    import py_compile

    import toolrest.cli.app as app

    planted = range_.code("app.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "pycache_prefix", str(prefix))
        target = importlib.util.cache_from_source(str(app.__file__))
    os.makedirs(os.path.dirname(target))
    py_compile.compile(
        str(planted), cfile=target, invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
    )
    ran = range_.toolrest("tools", env={"PYTHONPYCACHEPREFIX": str(prefix)})
    range_.unharmed()
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("planted", ["workspace", "other", "root"])
async def test_a_session_of_the_page_loads_nothing_from_where_tools_write_failed_before(
    range_: Range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planted: str
) -> None:
    """PYTHONPATH in a folder of sessions, or in a root that another folder's settings add."""
    folders = {name: tmp_path / name for name in ("workspace", "other", "root")}
    range_.code(f"../{planted}/toolrest/__init__.py")
    folders["other"].mkdir(exist_ok=True)
    monkeypatch.setenv("PYTHONPATH", str(folders[planted]))
    hosted = HostedSessions(str(range_.home))
    with ScriptedServer(["done"]) as server:
        range_.desk.provider(server)
        with open(range_.home / "config.toml", "a") as file:
            file.write(f"[sandbox_workspace_write]\nwritable_roots = ['{folders['root']}']\n")
        assert await hosted.start(str(range_.workspace), "go", [str(folders["other"])]) in hosted
        await hosted.aclose()
    range_.unharmed()
