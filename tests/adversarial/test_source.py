"""Only the modules whose job it is start programs, write files by name, or say what is imported.

Who needs one of these elsewhere goes through what is there for it: `running/` and `process/`
for programs, the path policy or `private_files.py` for files, `own_code.py` for imports. If that
really does not fit, the module comes into the list below, with a reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolrest

ROOT = Path(toolrest.__file__).parent

_PROBE = "runs a backend's launcher once, with -I -S, in a folder of ours"
_OWN_FOLDER = "a new name in a folder of ours, which is hidden from tools"
_OWN = "what a person types behind `!`, in their own shell; its parent is ours, with -I -S"
_JOURNAL = "the journal's own method of that name"
ALLOWED = {
    ("agent/conversation/conversation.py", "write_text"): _JOURNAL,
    ("agent/history/journal.py", "write_text"): _JOURNAL,
    ("agent/setup/tools.py", "distributions"): "entry points, of folders that no root covers",
    ("batch/child.py", "create_subprocess_exec"): "one exec a task, with -P, in our home",
    ("batch/child.py", "subprocess"): "the pipes of its tasks",
    (
        "batch/tasks/workspace.py",
        "create_subprocess_exec",
    ): "git on our mirrors",
    ("batch/tasks/workspace.py", "subprocess"): "the pipes of git",
    ("batch/child.py", "sys.executable"): "one exec a task, with -P, in our home",
    (
        "chat/composer/clipboard.py",
        "create_subprocess_exec",
    ): "the desktop's clipboard, upon a key, outside every root",
    (
        "chat/composer/editor.py",
        "create_subprocess_exec",
    ): "the person's own editor, upon a key, with no word and no variable that leads into a root",
    ("chat/terminal/own_command.py", "subprocess"): _OWN,
    ("chat/terminal/own_command.py", "sys.executable"): _OWN,
    ("chat/terminal/own_job.py", "execv"): "becomes the shell with the line that a person typed",
    ("cli/run/demo_task.py", "open for writing"): "a new temporary folder of its own",
    ("cli/security/canaries.py", "open for writing"): "a new temporary folder of its own",
    ("gate/hooks/notify.py", "subprocess"): "the user's own program, outside every root",
    ("own_code.py", "sys.path"): "what the command line imports from",
    ("agent/setup/tools.py", "sys.path"): "read, to look for entry points",
    ("policy/paths/imports.py", "sys.path"): "read, to leave out what tools may write",
    ("policy/paths/imports.py", "sys.meta_path"): "the guard of our own imports",
    ("private_files.py", "subprocess"): "/bin/rm, for a folder too deep for Python",
    ("cli/app.py", "write_text"): "the help text of click, no file",
    ("process/helper/serve.py", "posix_spawn"): "our own module, isolated, after the host died",
    ("process/helper/serve.py", "sys.executable"): "our own module, isolated",
    ("process/helper/launch.py", "execve"): "the helper's child becomes the command",
    ("process/helper/launch.py", "posix_spawn"): "the helper starts the command",
    ("process/owner.py", "posix_spawn"): "the helper that owns all commands, with -I -S",
    ("process/owner.py", "sys.executable"): "the helper that owns all commands, with -I -S",
    ("running/runner.py", "sys.executable"): "in a variable, for `apply_patch`, with -I -S",
    ("sandbox/backends/container/engine.py", "sys.executable"): "the forwarder, with -I -S",
    ("sandbox/backends/container/box.py", "subprocess"): "the container engine, outside roots",
    ("sandbox/backends/container/client.py", "subprocess"): "the container engine, outside roots",
    ("sandbox/backends/probe.py", "subprocess"): _PROBE,
    ("sandbox/backends/probe.py", "sys.executable"): _PROBE,
    ("sandbox/doctor.py", "sys.path"): "read, to warn of folders in a root",
    ("sandbox/guard/placeholder_folders.py", "open for writing"): _OWN_FOLDER,
    ("sandbox/network/forwarder.py", "execvp"): "inside the sandbox, it becomes the command",
    ("sandbox/network/proxy.py", "sys.executable"): "the forwarder inside the sandbox, -I -S",
    ("sandbox/vm/engine.py", "sys.executable"): "the client, and the agent in the machine; -I -S",
    ("sandbox/vm/kernel.py", "subprocess"): "zstd, for a kernel of the user's",
    ("sandbox/vm/prepare.py", "subprocess"): "apt and dpkg, in a temporary folder, when asked to",
    ("sandbox/vm/programs/agent.py", "open for writing"): "inside the machine, control groups",
    ("sandbox/vm/programs/child.py", "execve"): "inside the machine, it becomes the command",
    ("sandbox/vm/programs/child.py", "open for writing"): "inside the machine, control groups",
    ("sandbox/programs.py", "subprocess"): "tries what env can, with no variables but PATH",
    ("sandbox/programs.py", "sys.executable"): "what must be read-only to tools; -I -S",
}

_STARTS = {"create_subprocess_exec", "create_subprocess_shell", "system", "popen"}
_STARTS |= {"posix_spawn", "posix_spawnp", "startfile", "entry_points", "distributions"}
_STARTS |= {f"exec{form}" for form in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")}
_STARTS |= {f"spawn{form}" for form in ("v", "ve", "vp", "vpe", "l", "le", "lp", "lpe")}
_OF_SYS = {"executable", "path", "meta_path", "path_hooks"}


def uses(tree: ast.AST) -> Iterator[str]:
    """What a module does that is not everyone's to do."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ("subprocess" for name in names if name.name == "subprocess")
            case ast.ImportFrom(module="subprocess"):
                yield "subprocess"
            case ast.ImportFrom(names=names):
                yield from (name.name for name in names if name.name in _STARTS)
            case ast.Attribute(value=ast.Name("sys"), attr=name) if name in _OF_SYS:
                yield f"sys.{name}"
            case ast.Attribute(value=ast.Name("asyncio"), attr="subprocess"):
                yield "subprocess"
            case ast.Call(func=ast.Attribute(attr=name)) if name in _STARTS:
                yield name
            case ast.Call(func=ast.Attribute(attr="write_text" | "write_bytes" as name)):
                yield name
            case ast.Call(func=ast.Name("open") | ast.Attribute(attr="fdopen")) if _writes(node):
                yield "open for writing"


def _writes(call: ast.Call) -> bool:
    given = [*call.args[1:2], *(word.value for word in call.keywords if word.arg == "mode")]
    modes = [mode.value for mode in given if isinstance(mode, ast.Constant)]
    if len(modes) != len(given):
        return True  # not a literal: who knows
    by_descriptor = isinstance(call.func, ast.Attribute)
    return not by_descriptor and any(set(str(mode)) & set("wax+") for mode in modes)


@pytest.mark.slow
def test_only_those_whose_job_it_is_failed_before() -> None:
    found = {
        (str(path.relative_to(ROOT)), use)
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] != "testing"
        for use in uses(ast.parse(path.read_text()))
    }
    assert found - ALLOWED.keys() == set(), "not allowed there; see this file's docstring"
    assert ALLOWED.keys() - found == set(), "allowed, and not needed any more"


def test_the_rule_sees_what_it_is_there_for() -> None:
    for code in (
        "open('x', 'w')", "open('x', mode='a')", "open(x, mode)", "Path('x').write_text('')",
        "import subprocess", "from subprocess import run", "os.system('x')", "os.execvp('x', [])",
        "asyncio.create_subprocess_exec('x')", "argv = [sys.executable]", "sys.path.insert(0, x)",
        "from importlib.metadata import entry_points", "asyncio.subprocess.PIPE",
    ):  # fmt: skip
        assert list(uses(ast.parse(code))), code
    for code in ("open('x')", "open('x', 'rb')", "os.open('x', flags)", "sys.argv", "a.open('x')"):
        assert not list(uses(ast.parse(code))), code


def test_every_promise_names_tests_that_are_there() -> None:
    """The manual's table of promises: each file, and each test that it names in one."""
    folder = Path(__file__).parent
    text = (folder.parents[1] / "docs" / "security.md").read_text()
    named = re.findall(r"`(test_\w+\.py)(?:::(test_\w+))?`", text)
    assert len(named) >= 10
    for file, test in named:
        assert f"def {test}" in (folder / file).read_text(), (file, test)
