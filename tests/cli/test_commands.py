"""The command as a person types it: real processes, real exit codes."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.forked import TOOLREST, toolrest

from toolrest.cli.app import COMMANDS, app

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path, toolrest_home: Path) -> Run:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "hello.txt").write_text("one\ntwo\n")

    def call(*arguments: str, stdin: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        return toolrest(*arguments, cwd=workspace, said=stdin, env=env)

    return call


def test_call_prints_what_the_model_reads(run: Run) -> None:
    done = run("call", "read_file", '{"file_path": "hello.txt"}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "L1: one\nL2: two\n", "")


def test_call_prints_the_item_with_json_and_reads_stdin(run: Run) -> None:
    done = run("call", "--json", "read_file", "-", stdin='{"file_path": "hello.txt", "limit": 1}')
    assert done.returncode == 0
    assert json.loads(done.stdout) == {
        "type": "function_call_output",
        "call_id": "call-1",
        "output": "L1: one",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("call", "read_file", '{"file_path": "nope"}'), 1, "No such file or directory"),
        (("call", "read_file", "{"), 1, "failed to parse function arguments: not valid JSON"),
        (("call", "raed_file"), 1, "unsupported call: raed_file (did you mean read_file?)"),
        (("call",), 2, "Missing argument 'NAME'"),
        (("cal",), 2, "there is no command 'cal'. Did you mean call?"),
        (("call", "-s", "everything", "read_file"), 2, "is not one of"),
        (("call", "-C", "/nonexistent", "read_file"), 2, "/nonexistent is not a folder"),
        (("call", "-c", "modle=x", "read_file"), 2, "did you mean model?"),
        (("call", "-c", "nonsense", "read_file"), 2, "write it as KEY=VALUE"),
        (("call", "--profile", "nope", "read_file"), 2, "there is no profile 'nope'"),
        (("tools", "--wire", "morse"), 2, "is not one of"),
    ],
)
def test_mistakes_are_said_in_one_place_with_the_right_exit_code(
    run: Run, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = run(*arguments)
    assert done.returncode == code
    assert words in (done.stdout if code == 1 else done.stderr)
    assert "Traceback" not in done.stderr


def test_no_command_prints_help(run: Run) -> None:
    done = run()
    assert done.returncode == 0
    first = "A coding agent for your terminal, and the Python library to build your own."
    assert first in done.stdout
    readme = Path(__file__).parents[2] / "README.md"
    assert first in readme.read_text()
    shown = re.findall(r"^  (\S+)  +[A-Z]", done.stdout.partition("Work:")[2], re.M)
    assert len(shown) <= 14
    assert {"chat", "exec", "undo", "setup", "doctor", "trust", "demo"} <= set(shown) <= {*COMMANDS}
    assert done.stdout == run("--help").stdout == run("help").stdout


def test_help_has_all_commands_and_each_one(run: Run) -> None:
    listed = run("help", "all").stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []
    assert run("help", "exec").stdout == run("exec", "--help").stdout
    assert "there is no command 'exce'. Did you mean exec?" in run("help", "exce").stderr


def test_four_words_for_approvals_are_shown_and_the_others_are_read(run: Run) -> None:
    shown = "untrusted, never, on-failure or on-request (the default)."
    assert shown in " ".join(run("call", "--help").stdout.split())
    refused = run("call", "-a", "often", "read_file").stderr
    assert "not one of 'untrusted', 'on-request', 'on-failure', 'never'." in refused
    read = run("call", "-a", "auto", "read_file", '{"file_path": "hello.txt"}')
    assert (read.returncode, read.stdout) == (0, "L1: one\nL2: two\n")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("fix the test",), "the chat needs a terminal"),
        (("-m", "gpt-5.5", "-C", ".", "fix the test"), "the chat needs a terminal"),
        (("--continue",), "the chat needs a terminal"),
        (("--resume",), "the chat needs a terminal"),
        (("--", "fix"), "the chat needs a terminal"),
        (("-m", "gpt-5.5", "--", "exec"), "the chat needs a terminal"),
        (("fix", "the", "test"), "there is no command 'fix'. To send a message: toolrest -- fix"),
        (("-m", "gpt-5.5", "exce"), "there is no command 'exce'. Did you mean exec?"),
        (("-m", "gpt-5.5", "exec", "fix it"), "its options go after it (toolrest exec …)"),
    ],
)
def test_a_message_or_the_chats_options_start_it(
    run: Run, words: tuple[str, ...], problem: str
) -> None:
    done = run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert problem in done.stderr


def test_every_command_has_help() -> None:
    for name in COMMANDS:
        done = CliRunner().invoke(app, (name, "--help"), prog_name="toolrest")
        assert done.exit_code == 0, name
        assert done.stdout.startswith(f"Usage: toolrest {name}"), name
    for name in ("show", "get", "set", "path", "import-codex", "import-memo"):
        assert CliRunner().invoke(app, ("config", name, "--help")).exit_code == 0, name


@pytest.mark.slow
def test_tools_prints_the_table_and_the_specs(run: Run, tmp_path: Path) -> None:
    table = run("tools").stdout
    assert table.splitlines()[0].split() == ["tool", "risk", "mutating", "parallel", "description"]
    for wire, key in (("responses", "name"), ("chat", "function"), ("anthropic", "input_schema")):
        words = ("tools", "--wire", wire, "--json")
        first = run(*words).stdout
        # Forks have the order of sets in common.
        assert first == subprocess.check_output([TOOLREST, *words], cwd=tmp_path, text=True)
        assert all(key in spec for spec in json.loads(first))


def test_tools_can_be_narrowed(run: Run) -> None:
    rows = json.loads(run("tools", "--json", "--tools", "read_f*, list_dir").stdout)
    assert [row["name"] for row in rows] == ["list_dir", "read_file"]
    assert run("call", "--tools", "list_dir", "read_file", "{}").stdout.startswith(
        "unsupported call: read_file"
    )


def test_every_tool_is_listed_offered_or_not_and_why(run: Run, toolrest_home: Path) -> None:
    folder = toolrest_home / "tools"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "mine.py").write_text(
        "from toolrest import tool\n@tool(mutating=False)\ndef mine(x: str) -> str:\n"
        "    'A tool.'\n    return x\n"
    )
    off = ("-c", 'tools.disabled=["apply_patch", "mine"]')
    shown = {line.split()[0]: line for line in run("tools", "--all", *off).stdout.splitlines()}
    assert shown["read_file"].split() == ["read_file", "offered"]
    assert shown["spawn_agent"].split() == ["spawn_agent", "offered"]
    assert 'callable  needs tools.shell_type = "shell"' in shown["shell"]
    assert shown["write_file"].endswith('off       tools.disabled has "apply_patch"')
    assert shown["mine"].endswith('off       tools.disabled has "mine"')
    assert "web_search" in shown
    rows = json.loads(run("tools", "--all", "--json").stdout)
    assert {"name": "read_file", "offered": True, "callable": True, "why": ""} in rows


def test_config_show_says_where_a_value_came_from(run: Run, toolrest_home: Path) -> None:
    assert run("config", "set", "approval_policy", "never").returncode == 0
    shown = run("config", "show", TOOLREST_TOOL_RESULT_MAX_CHARS="500").stdout
    assert f'approval_policy = "never"  # {toolrest_home / "config.toml"}' in shown
    assert "TOOLREST_TOOL_RESULT_MAX_CHARS" in shown
    assert run("config", "get", "approval_policy").stdout == '"never"\n'
    assert run("config", "path").stdout == f"{toolrest_home / 'config.toml'}\n"
    bad = run("config", "set", "approval_policy", "sometimes")
    assert bad.returncode == 2
    assert "approval_policy" in bad.stderr


@pytest.mark.slow
def test_trust_and_revoke(run: Run) -> None:
    assert run("trust", "--show").stdout == "unknown\n"
    assert 'sandbox_mode = "read-only"' in run("config", "show", "--all").stdout
    assert run("trust").returncode == 0
    assert run("trust", "--show").stdout == "trusted\n"
    assert 'sandbox_mode = "workspace-write"' in run("config", "show", "--all").stdout
    assert run("trust", "--revoke").returncode == 0
    assert run("trust", "--show").stdout != "trusted\n"


def test_audit_show_and_verify_and_an_edit_is_found(run: Run, toolrest_home: Path) -> None:
    assert run("audit", "verify").returncode == 2
    run("call", "read_file", '{"file_path": "hello.txt"}')
    assert run("audit", "verify").returncode == 0
    assert "read_file" in run("audit", "show").stdout
    (log,) = (toolrest_home / "audit").glob("*.jsonl")
    log.write_text(log.read_text().replace("hello.txt", "other.txt"))
    done = run("audit", "verify")
    assert done.returncode == 1
    assert "Line 2 was edited" in done.stdout
    log.unlink()
    done = run("audit", "verify")
    assert done.returncode == 1
    assert f"{log}: The log is gone: its head file {log}.head remembers" in done.stdout


def test_own_tools_from_the_home_folder(run: Run, toolrest_home: Path) -> None:
    folder = toolrest_home / "tools"
    folder.mkdir()
    (folder / "mine.py").write_text(
        "from toolrest import tool\n\n@tool(mutating=False)\ndef shout(text: str) -> str:\n"
        '    "Shout."\n    return text.upper()\n'
    )
    (folder / "broken.py").write_text("import nonsense_module\n")
    for path in (folder, *folder.iterdir()):
        path.chmod(0o700)
    done = run("call", "shout", '{"text": "hi"}')
    assert done.stdout == "HI\n"
    assert "broken.py is left out: ModuleNotFoundError" in done.stderr
    (folder / "mine.py").chmod(0o666)
    done = run("call", "shout", '{"text": "hi"}')
    assert done.returncode == 1
    assert "others can write" in done.stderr


@pytest.mark.slow
def test_an_ask_without_a_terminal_is_a_denial_that_names_the_setting(
    run: Run, toolrest_home: Path
) -> None:
    folder = toolrest_home / "tools"
    folder.mkdir(mode=0o700)
    (folder / "mine.py").write_text(
        "from toolrest import tool\n\n@tool\ndef act() -> str:\n    'Act.'\n    return 'acted'\n"
    )
    (folder / "mine.py").chmod(0o600)
    denied = run("call", "act")
    assert denied.returncode == 1
    assert "approval_policy" in denied.stdout
    assert run("call", "-a", "never", "act").stdout == "acted\n"
    assert run("call", "-c", "on_ask=allow", "act").stdout == "acted\n"


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 1), ("", 1)])
def test_at_a_terminal_the_person_is_asked(
    run: Run, toolrest_home: Path, tmp_path: Path, answer: str, code: int
) -> None:
    folder = toolrest_home / "tools"
    folder.mkdir(mode=0o700)
    (folder / "mine.py").write_text(
        "from toolrest import tool\n\n@tool\ndef act(what: str) -> str:\n    'Act.'\n"
        "    return 'acted'\n"
    )
    (folder / "mine.py").chmod(0o600)
    master, slave = pty.openpty()
    arguments = json.dumps({"what": "x\u202ey\x1b[2J"})
    process = subprocess.Popen(
        [TOOLREST, "call", "act", arguments],
        cwd=tmp_path, stdin=slave, stdout=subprocess.PIPE, stderr=slave,
    )  # fmt: skip
    os.close(slave)
    shown = ""
    while "Answer:" not in shown:
        shown += os.read(master, 100_000).decode()
    os.write(master, f"{answer}\n".encode())
    out, _ = process.communicate(timeout=60)
    os.close(master)
    assert process.returncode == code
    assert ("acted" in out.decode()) == (code == 0)
    assert "Run act?" in shown
    assert "\x1b[2J" not in shown
    assert "\u202e" not in shown


@pytest.mark.slow
def test_the_demo_repairs_a_project_and_leaks_nothing(run: Run) -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    order = [
        "FAILED (failures=2)", "M cart.py", "+            total += price * count",
        "\n  OK\n", "Both tests pass now",
    ]  # fmt: skip
    places = [done.stdout.find(text) for text in order]
    assert places == sorted(places)
    assert -1 not in places
    assert "Denied: nobody here can approve." in done.stdout
    assert "▸ see the tests fail" in done.stdout
    assert "sk-demo-4f9a1c7be2d84e55" not in done.stdout
    events = [json.loads(line) for line in run("demo", "--json").stdout.splitlines()]
    assert {"tool_call_begin", "tool_call_end", "agent_message", "turn_diff"} <= {
        event["type"] for event in events
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run: Run, shell: str) -> None:
    assert "toolrest" in run("completion", shell).stdout


def test_completing_a_commands_name_loads_no_command() -> None:
    code = """
import sys
from click.shell_completion import BashComplete
from toolrest.cli.app import app
found = BashComplete(app, {}, "toolrest", "_TOOLREST_COMPLETE").get_completions([], "a")
print([(item.value, bool(item.help)) for item in found])
assert not [name for name in sys.modules if name.startswith("toolrest.cli.s")]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = ("acp", "apply-patch", "approvals", "audit")
    assert done.stdout == f"{[(name, True) for name in names]}\n"


def test_a_reader_that_goes_away_is_no_traceback(run: Run, tmp_path: Path) -> None:
    done = subprocess.run(
        f"{shlex.quote(str(TOOLREST))} tools --wire chat --json | true",
        shell=True, capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_editors_agent_needs_an_editor(tmp_path: Path) -> None:
    with open(os.devnull, "rb") as nothing, open(tmp_path / "out", "wb") as file:
        for streams in ({"stdin": nothing, "stdout": subprocess.PIPE}, {"stdout": file}):
            with subprocess.Popen(
                [sys.executable, "-m", "toolrest", "acp"],
                **{"stdin": subprocess.PIPE, **streams},  # type: ignore[call-overload]
                stderr=subprocess.PIPE,
                cwd=tmp_path,
            ) as program:
                _, error = program.communicate(timeout=60)
            assert program.returncode == 2
            assert b"an editor starts this" in error


def test_call_takes_raw_text_for_a_patch(run: Run, tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: hello.txt\n@@\n-one\n+1\n two\n*** End Patch"
    done = run("call", "-s", "workspace-write", "apply_patch", patch)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "work" / "hello.txt").read_text() == "1\ntwo\n"
    done = run("call", "-s", "workspace-write", "apply_patch", "-", stdin=patch)
    assert done.returncode == 1, "it was applied already"


def test_call_says_which_image_was_shown(run: Run, tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (64, 48)).save(tmp_path / "work" / "x.png")
    done = run("call", "view_image", '{"path": "x.png"}')
    assert (done.returncode, done.stdout) == (0, "(an image is shown: PNG, 64 x 48)\n")


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_call_exits_1_when_the_command_failed(run: Run) -> None:
    assert run("call", "exec_command", '{"cmd": "exit 3"}').returncode == 1
    assert run("call", "exec_command", '{"cmd": "true"}').returncode == 0
