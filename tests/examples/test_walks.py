"""The pages for newcomers work as they stand there: files, commands and what they print."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.blocks import BLOCK, ROOT, fragment
from tests.real.tiny_model import write_model

from toolrest.testing import Call, ScriptedServer

PAGES = ("tutorial.md", "get-started.md", "how-to.md")
NOT_RUN = {
    "python3 -m venv": "the tests have their own",
    "pip install": "it is installed",
    "export OPENAI_API_KEY=": "the scripted server's is set",
    "podman": "it needs an image of a registry",
    "docker": "it needs an image of a registry",
    "OLLAMA_CONTEXT_LENGTH=": "the scripted server answers",
    "python llama.py": "test_llama_of_a_wheel runs it",
    "codex": "tests/real/test_clients.py runs it",
    "npx": "tests/real/test_clients.py runs it",
}
PENDING = '"$(toolrest approvals list | cut -c1-12)"'
MARK = "=== command {} ==="


def script(page: str) -> tuple[str, list[tuple[str, list[str]]]]:
    """A page as one shell script, and its commands with the lines that each must print."""
    lines: list[str] = []
    commands: list[tuple[str, list[str]]] = []
    for language, text in BLOCK.findall((ROOT / "docs" / page).read_text()):
        named = re.match(r"# (\S+)\n", text)
        if named and language != "console":
            path = named[1].replace("~", "$HOME")
            body = text if language == "python" else text[named.end() :]
            lines.append(f'mkdir -p "$(dirname "{path}")" && cat > "{path}" <<\'END\'\n{body}END')
        elif language == "console":
            for line in text.splitlines():
                if not line.startswith("$ "):
                    commands[-1][1].append(line)
                    continue
                command = line[2:].replace("approve 3f2a", f"approve {PENDING}")
                commands.append((line[2:], []))
                lines.append(f"echo {shlex.quote(MARK.format(len(commands) - 1))}")
                if not command.startswith(tuple(NOT_RUN)):
                    lines.append(f"{{ {command}\n}} 2>&1")
    return "\n".join(lines), commands


def reply(body: dict[str, Any]) -> Any:
    """The model of the pages: it looks, then answers."""
    said = str(body)
    answered = "call_output" in said or "'role': 'tool'" in said
    if "Refund 20" in said:
        call = Call("refund", {"order": "A7", "amount": 20})
        return "The 20 are paid back." if answered else call
    if "worth" in said:
        return (
            "The three tins are worth 13.50." if answered else Call("price", {"tea": "Earl Grey"})
        )
    if "Earl Grey is left" in said:
        look = Call("read_file", {"file_path": "stock.txt"})
        return "There are 3 tins left." if answered else look
    return "Hello."


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.needs("namespaces")  # what the sandbox denies is shown as bubblewrap denies it
@pytest.mark.parametrize(
    "page",
    ["tutorial.md", *(pytest.param(page, marks=pytest.mark.long) for page in PAGES[1:])],
)
def test_a_page_for_newcomers(page: str, place: Path) -> None:
    text, commands = script(page)
    assert len(commands) > 8
    home, folder = place / "home", place / "projects" / "mine"
    home.mkdir()
    folder.mkdir(parents=True)
    with ScriptedServer([reply] * 30) as server:
        env = {
            **{key: value for key, value in os.environ.items() if key != "TOOLREST_HOME"},
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "sk-none-0123456789",
            "OLLAMA_HOST": server.url.removesuffix("/v1"),
        }
        begin = "toolrest trust >/dev/null\n" if page == "how-to.md" else ""
        done = subprocess.run(
            ["bash", "-c", begin + text],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=390,
        )
    assert not done.stderr, done.stderr
    parts = re.split(r"=== command \d+ ===\n", done.stdout)[1:]
    assert len(parts) == len(commands)
    for (command, wanted), printed in zip(commands, parts, strict=True):
        if not command.startswith(tuple(NOT_RUN)):
            pattern = ".*".join(re.escape(line).replace("…", ".*") for line in wanted)
            assert re.search(pattern, printed, re.DOTALL), f"$ {command}\n{printed}"


@pytest.mark.long
def test_llama_of_a_wheel(tmp_path: Path) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("llama.cpp is not here: pip install xllamacpp (x86-64 Linux)")
    program = fragment("docs/how-to.md", "# llama.py\n")
    write_model(tmp_path / "MODEL.gguf", window=32768)
    (tmp_path / "llama.py").write_text(program.replace("8080", "0"))
    command = [sys.executable, "llama.py", "MODEL.gguf"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdout is not None
        url = next(line.strip() for line in server.stdout if line.startswith("http"))
        options = (
            "-c",
            "model_provider=llamacpp",
            "-c",
            f"model_providers.llamacpp.base_url={url}/v1",
        )
        listed = subprocess.run(
            [Path(sys.executable).parent / "toolrest", "models", *options],
            capture_output=True,
            text=True,
        )
        server.communicate()  # closes its input
    assert "32,768 tokens" in listed.stdout, listed.stderr


def test_what_is_not_run_is_still_on_the_pages() -> None:
    pages = "".join((ROOT / "docs" / page).read_text() for page in PAGES)
    assert [start for start in NOT_RUN if f"$ {start}" not in pages] == []
