"""The commands of README and manual run at a terminal as they stand there, one after the other.

The pages for newcomers, whose blocks also show what is printed, are in test_walks.py.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import blocks
from tests.screen import Screen

from toolrest.testing import Call, ScriptedServer
from toolrest.wire.model_data import newest_general

SERVES = "http://127.0.0.1:"
CHAT = "Toolrest 0."
TURN = "tokens in"  # the last line of `exec`
# What a client writes first to a server that it has started.
HELLO = {
    "toolrest mcp serve -C": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
    "toolrest acp": {"protocolVersion": 1, "clientCapabilities": {}},
}
NOT_RUN = {
    "pip install 'toolrest[all]'": "it is installed",
    "export OPENAI_API_KEY=…": "the scripted server's is set",
    "make demo": "tests/cli/test_commands.py runs the demo",
    "make test": "it runs this",
    "ssh -L 8137:127.0.0.1:8137 you@your-machine": "it needs another machine",
}
# What is on the screen: of a list, the last one is awaited and then the program is ended.
SHOWN: dict[str, dict[str, str | list[str]]] = {
    "README.md": {
        "toolrest": [CHAT],
        'toolrest exec "why does the test fail?"': TURN,
    },
    "docs/commands.md": {
        "toolrest": [CHAT],
        'toolrest exec --json -s workspace-write "fix it" | jq .': '"status": "completed"',
        "toolrest batch tasks.jsonl": "2 of 2",
        "toolrest sessions list": "fix it",
        "toolrest undo": "remove fixed.txt",
        "toolrest models --providers": "anthropic",
        """toolrest call read_file '{"file_path": "README.md", "limit": 3}'""": "L1: # Title",
        """toolrest call exec_command '{"cmd": "git status -sb"}'""": "No commits yet",
        "toolrest sandbox -- touch ~/x": "cannot touch",
        'toolrest policy check "rm -rf build && make"': "make",
        "toolrest grants list": "no grants",
        "toolrest doctor": "bubblewrap",
        "toolrest tools": "exec_command",
        "toolrest tools --wire anthropic --json": '"input_schema"',
        "toolrest config show --all": "approval_policy",
        "toolrest trust": "is trusted",
        "toolrest audit verify": "lines are intact",
        "toolrest mcp add time -- uvx mcp-server-time": "time is in",
        "toolrest mcp list": "ready",
        "toolrest mcp serve -C ~/project": ['"result"'],
        "toolrest acp": ['"result"'],
    },
    "docs/batch.md": {
        "toolrest batch tasks.jsonl --store ~/runs/1 -j 8": "2/2",
        "toolrest batch status ~/runs/1": "2 of 2",
        "toolrest batch results ~/runs/1 --format html -o ~/runs/1/index.html": "",
    },
    "docs/chat.md": {
        "toolrest": [CHAT],
        'toolrest "why is it slow?"': [CHAT, "Hello."],
        "toolrest --continue": ["Say hello."],
        "toolrest resume": ["Say hello."],
        "toolrest replay ID --speed 4": "Hello.",
        "toolrest --plain": [newest_general("openai", "gpt-") or ""],
    },
    "docs/exec.md": {
        'toolrest exec "why does the test fail?"': TURN,
        'toolrest exec -s workspace-write --json "fix it" | jq .': '"status": "completed"',
        'git diff | toolrest exec -o review.md "review this"': TURN,
        'toolrest exec --last "and now the docs"': TURN,
        "toolrest sessions list [--here] [--json]": '"title": "Say hello."',
        "toolrest sessions show ID": "Hello.",
        "toolrest sessions export ID [--format FORMAT]": "Hello.",
        'toolrest sessions resume ID "go on"': TURN,
        "toolrest sessions fork ID": "",
        "toolrest gc [--days 30] [--max-size 2GB] [-n]": "",
    },
    "docs/mcp.md": {
        "toolrest mcp add git -- uvx mcp-server-git": "git is in",
        "toolrest mcp add docs --url https://example.com/mcp --bearer-token-env-var DOCS_TOKEN": (
            "docs is in"
        ),
        "toolrest mcp list": "ready",
        "toolrest mcp test git": "git_status",
    },
    "docs/serving.md": {
        "toolrest mcp serve -C ~/project -s workspace-write": ['"result"'],
        "toolrest mcp serve -C ~/project --http 127.0.0.1:8000": [SERVES],
        "toolrest mcp serve --http 0.0.0.0:8000 --allow-host box.lan": [SERVES],
    },
    "docs/web-ui.md": {"toolrest web": [SERVES], "toolrest web --port 8137": [SERVES]},
}
# Other codes than 0: the sandbox denies; one of the two servers cannot be reached.
CODES = {"toolrest sandbox -- touch ~/x": 1, "docs/mcp.md: toolrest mcp list": 1}
# What is done instead: nothing from the network, only loopback, no fixed ports, more patience.
SLOW = "{0} && toolrest config set mcp_servers.{1}.startup_timeout_sec 60"
INSTEAD = {
    "uvx mcp-server-time": SLOW.format("mcp-server-time", "time"),
    "uvx mcp-server-git": SLOW.format("mcp-server-git", "git"),
    "https://example.com": "http://127.0.0.1:9",
    "0.0.0.0:8000": "127.0.0.1:0",
    ":8000": ":0",
    "8137": "0",
    "| jq .": "| python -m json.tool --json-lines",
    "FORMAT": "markdown",
}


def commands(page: str) -> list[str]:
    """The commands of a page, without the remarks behind them."""
    lines = [line for text in blocks(page, "console") for line in text.splitlines()]
    return [re.sub(r"\s+# .*", "", line[2:]) for line in lines if line.startswith("$ ")]


def reply(body: dict[str, Any]) -> Any:
    """The model of the pages: it makes a file where something is to be fixed."""
    said = str(body)
    fixes = "fix it" in said and "function_call_output" not in said
    return Call("exec_command", {"cmd": "echo > fixed.txt"}) if fixes else "Hello."


def typed(command: str, session: str) -> str:
    """A command as this test types it."""
    for shown, instead in INSTEAD.items():
        command = command.replace(shown, instead)
    return re.sub(r"\bID\b", session, re.sub(r"\[(-[^]]*)\]", r"\1", command))


def prepare(folder: Path, env: dict[str, str]) -> str:
    """A trusted repository with two tasks, and the id of an earlier session there."""
    (folder / "README.md").write_text("# Title\n")
    tasks = [{"id": name, "prompt": "Say hello."} for name in ("one", "two")]
    (folder / "tasks.jsonl").write_text("".join(f"{json.dumps(task)}\n" for task in tasks))
    lines = (
        "git init -q",
        "toolrest trust",
        "toolrest exec 'Say hello.'",
        "toolrest sessions list --json",
    )
    done = subprocess.run(
        ["bash", "-ec", "\n".join(lines)],
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout.splitlines()[-1])["id"])


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.needs("namespaces")
@pytest.mark.parametrize("page", SHOWN)
def test_the_commands_of_a_page(page: str, place: Path) -> None:
    home, folder = place / "home", place / "mine"
    (home / "project").mkdir(parents=True)
    folder.mkdir()
    shown = SHOWN[page]
    assert set(shown) == set(commands(page)) - set(NOT_RUN)
    with ScriptedServer([reply] * 30) as server:
        env = {
            **os.environ,
            "HOME": str(home),
            "TOOLREST_HOME": str(home / ".toolrest"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-none-0123456789",
        }
        session = prepare(folder, env)
        for command in (command for command in commands(page) if command not in NOT_RUN):
            wanted = shown[command]
            argv = ["bash", "-c", typed(command, session)]
            with Screen(argv, size=(40, 160), cwd=folder, env=env) as screen:
                if isinstance(wanted, list):
                    for start, parameters in HELLO.items():
                        if command.startswith(start):
                            call = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
                            screen.types(json.dumps({**call, "params": parameters}) + "\n")
                    screen.sees(*wanted)
                    assert screen.process.poll() is None, screen.text
                    continue
                code = screen.ends()
                assert wanted in screen.text, f"$ {command}\n{screen.text}"
                allowed = CODES.get(command, CODES.get(f"{page}: {command}", 0))
                assert code == allowed, f"$ {command}\n{screen.text}"


def test_what_is_not_run_is_still_on_the_pages() -> None:
    assert set(NOT_RUN) <= {command for page in SHOWN for command in commands(page)}
