"""The project's own promises: what importing costs, what is public, which way imports go."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import toolrest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "toolrest"

PUBLIC = [
    "Agent",
    "AgentError",
    "AgentMessage",
    "AgentMessageDelta",
    "AgentReasoning",
    "AgentReasoningDelta",
    "AnswerOption",
    "ApprovalDeferred",
    "ApprovalForm",
    "ApprovalRequest",
    "ApprovalRequested",
    "Choice",
    "Config",
    "ConfigError",
    "Context",
    "Conversation",
    "Effects",
    "Event",
    "Fatal",
    "Grammar",
    "Image",
    "Model",
    "ModelError",
    "PendingApproval",
    "PendingError",
    "PlanUpdate",
    "RespondToModel",
    "Review",
    "Risk",
    "Sandbox",
    "SandboxResult",
    "TaskComplete",
    "Text",
    "TokenCount",
    "Tool",
    "ToolCall",
    "ToolCallBegin",
    "ToolCallDecision",
    "ToolCallDelta",
    "ToolCallEnd",
    "ToolCallProgress",
    "ToolDefinitionError",
    "ToolOutput",
    "ToolQuestion",
    "Toolrest",
    "ToolrestError",
    "Turn",
    "TurnEvents",
    "TurnResult",
    "Usage",
    "UserQuestions",
    "__version__",
    "approval_form",
    "load_config",
    "open_session",
    "tool",
]


def run_python(code: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], capture_output=True, text=True, check=True
    )


def test_public_names_are_frozen_and_all_there() -> None:
    assert toolrest.__all__ == PUBLIC
    for name in PUBLIC:
        assert getattr(toolrest, name) is not None
    assert dir(toolrest) == PUBLIC
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = toolrest.nope


def test_import_loads_nothing_and_prints_nothing() -> None:
    code = (
        "import sys; before = set(sys.modules); import toolrest; "
        "print(sorted(set(sys.modules) - before))"
    )
    new = run_python(code).stdout
    assert set(ast.literal_eval(new)) <= {"toolrest", "toolrest.lazy_names", "__future__"}


def test_version_loads_no_command_line_library() -> None:
    code = (
        "import sys; sys.argv = ['toolrest', '--version']\n"
        "from toolrest.cli.entry import main; main()\n"
        "assert 'click' not in sys.modules and 'pydantic' not in sys.modules"
    )
    assert run_python(code).stdout == f"toolrest {toolrest.__version__}\n"


def test_a_session_loads_only_what_it_needs(tmp_path: Path) -> None:
    code = f"""
import asyncio, sys
from toolrest import Toolrest, tool

@tool(mutating=False)
async def noop() -> str:
    "Nothing."
    return "ok"

async def main():
    async with Toolrest({str(tmp_path)!r}, tools=[noop]) as rest:
        assert (await rest.call("noop")).text == "ok"

asyncio.run(main())
loaded = set(sys.modules)
for name in ("mcp", "textual", "httpx2", "click", "rich", "tomlkit", "lark", "jsonschema_rs",
             "docstring_parser", "PIL", "tree_sitter", "opentelemetry"):
    assert name not in loaded, name
"""
    run_python(code)


def imports_in(node: ast.AST) -> list[ast.Import | ast.ImportFrom]:
    return [part for part in ast.walk(node) if isinstance(part, ast.Import | ast.ImportFrom)]


@pytest.mark.slow
def test_functions_import_only_what_is_slow_rare_or_optional() -> None:
    count, twice = 0, []
    for path in (ROOT / "src").rglob("*.py"):
        tree = ast.parse(path.read_text())
        above = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        loaded = {node.module for node in above if isinstance(node, ast.ImportFrom)}
        functions = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]
        inside = {id(node): node for function in functions for node in imports_in(function)}
        count += len(inside)
        twice += [
            f"{path.name}:{node.lineno}"
            for node in inside.values()
            if isinstance(node, ast.ImportFrom) and node.module in loaded
        ]
    assert count <= 250, "import at the top, or say why not in the room's docstring"
    assert twice == [], "the module has loaded it anyway"


def run_in(folder: Path, *command: str | Path) -> str:
    """What a command prints, run away from this tree and its settings."""
    leave = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_REQUIRE_VIRTUALENV")
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in os.environ.items() if name not in leave},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_built_wheel_can_be_installed_elsewhere(tmp_path: Path) -> None:
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", tmp_path, ROOT)
    run_in(tmp_path, *build)
    (wheel,) = tmp_path.glob("toolrest-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "toolrest/py.typed" in names
    assert not [name for name in names if name.startswith("tests")]

    run_in(tmp_path, sys.executable, "-m", "venv", "venv")
    python = tmp_path / "venv" / "bin" / "python"
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    # Without a network the dependencies are borrowed from here; a .pth inside of what a .pth
    # names is not followed, so the editable install of this tree stays out of it.
    borrowed = Path(run_in(tmp_path, python, "-c", where).strip()) / "borrowed.pth"
    borrowed.write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    pip = (python, "-m", "pip", "--disable-pip-version-check")
    run_in(tmp_path, *pip, "install", "--no-index", "--no-deps", "--ignore-installed", wheel)

    found = run_in(tmp_path, python, "-c", "import toolrest; print(toolrest.__file__)").strip()
    assert Path(found).is_relative_to(tmp_path / "venv")
    checked = subprocess.run([*map(str, pip), "check"], capture_output=True, text=True, check=False)
    assert "toolrest" not in checked.stdout.lower(), checked.stdout
    script = tmp_path / "venv" / "bin" / "toolrest"
    assert run_in(tmp_path, script, "--version") == f"toolrest {toolrest.__version__}\n"
    assert "read_file" in run_in(tmp_path, script, "tools")
    (tmp_path / "a.txt").write_text("hello\n")
    assert run_in(tmp_path, script, "call", "read_file", '{"file_path": "a.txt"}') == "L1: hello\n"
    assert (tmp_path / "venv" / "bin" / "apply_patch").exists()


def test_every_link_between_documents_leads_to_a_file_and_a_heading() -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.md")]
    found = [
        (page, path, heading)
        for page in pages
        for path, heading in re.findall(r"\]\(([^)#:\s]*)#?([^)\s:]*)\)", without_blocks(page))
    ]
    assert len(found) > 100
    dead = []
    for page, path, heading in found:
        target = page.parent / path if path else page
        if not target.exists() or (heading and heading not in headings(target)):
            dead.append((page.name, path, heading))
    assert dead == []


def without_blocks(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    lines = re.findall(r"^#+ (.*)$", without_blocks(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", line.lower()) for line in lines)
    return {line.replace(" ", "-") for line in plain}


def test_what_runs_elsewhere_calls_the_developers_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    workflow = (ROOT / ".github/workflows/test.yml").read_text()
    assert set(re.findall(r"target: \[?([a-z-]+)", workflow)) == {"check", "test-container"}
    assert "entry: make lint\n" in (ROOT / ".pre-commit-config.yaml").read_text()
    named = re.findall(r"`make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text())
    ci = re.findall(r"^make ([a-z-]+)", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert ci == ["test", "check", "test-container"]
    assert {"lint", *ci, *named} <= targets


def test_contributing_maps_every_room() -> None:
    rooms = re.findall(
        r"\b([a-z_]+)/(?=[, ])", (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
    )
    assert sorted(rooms) == sorted(path.parent.name for path in SOURCE.glob("*/__init__.py"))


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "docs/design.md"])
def test_documents_name_files_that_exist(document: str) -> None:
    ending = r"(?:/|\.py|\.md|\.json|\.toml)"
    text = (ROOT / document).read_text()
    named = set(re.findall(rf"`(?:[\w./=]+ )*([\w/]+{ending})[ `]", text))
    assert len(named) > 20
    assert [n for n in named if not (ROOT / n).exists() and not (SOURCE / n).exists()] == []


def test_the_core_install_stays_small() -> None:
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    seen: set[str] = set()
    todo = ["toolrest"]
    while todo:
        for line in requires(todo.pop()) or []:
            wanted = Requirement(line)
            if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
                continue
            needed = wanted.name.lower().replace("_", "-")
            if needed not in seen:
                seen.add(needed)
                todo.append(needed)
    assert len(seen) + 1 <= 28, sorted(seen)


def test_events_and_items_are_plain_json() -> None:
    from toolrest.events import FileChange, ToolCallEnd

    event = ToolCallEnd(
        call_id="c", tool="t", success=True, failure=None, duration=0.1, bytes=1, output="x",
        files=[FileChange("/a", None, "00")],
    )  # fmt: skip
    assert json.loads(json.dumps(event.to_json()))["files"] == [
        {"path": "/a", "before": None, "after": "00"}
    ]
