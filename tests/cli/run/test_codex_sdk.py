"""`toolrest exec` as `@openai/codex-sdk` runs it: `codexPathOverride: "toolrest"`."""

from __future__ import annotations

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tests.forked import TOOLREST

from toolrest.testing import Call

# Each option of the types of its version 0.163: what it passes, and what must not be an error.
OPTIONS = {
    "model": ("--model", "gpt-5.5"),
    "threadSource": ("--thread-source", "ci"),
    "sandboxMode": ("--sandbox", "workspace-write"),
    "workingDirectory": ("--cd", "."),
    "additionalDirectories": ("--add-dir", "."),
    "skipGitRepoCheck": ("--skip-git-repo-check",),
    "cyberAccessProgram": ("--cyber-access-program", "standard"),
    **{
        f"modelReasoningEffort {effort}": ("--config", f'model_reasoning_effort="{effort}"')
        for effort in ("minimal", "low", "medium", "high", "xhigh", "max", "ultra", "persistent")
    },
    "networkAccessEnabled": ("--config", "sandbox_workspace_write.network_access=false"),
    **{
        f"webSearchMode {mode}": ("--config", f'web_search="{mode}"')
        for mode in ("disabled", "cached", "live")
    },
    **{
        f"approvalPolicy {policy}": ("--config", f'approval_policy="{policy}"')
        for policy in ("never", "on-request", "on-failure", "untrusted")
    },
}


@pytest.mark.slow
def test_every_option_at_once(desk: Any, serve: Any) -> None:
    serve(["done"])
    chosen = {name.partition(" ")[0]: words for name, words in OPTIONS.items()}
    (desk.workspace / "schema.json").write_text('{"type": "string"}')
    words = [word for words in chosen.values() for word in words]
    ran = desk.run("exec", "--experimental-json", *words, said="go")
    assert ran.code == 0, ran.err
    assert ran.lines[-1]["type"] == "result"
    assert "--thread-source has no effect here" in ran.err
    assert "--cyber-access-program has no effect here" in ran.err


@pytest.mark.parametrize("name", OPTIONS)
def test_no_option_is_refused(name: str, desk: Any) -> None:
    """Read in process: an option that is wrong is found before anything starts."""
    from click.testing import CliRunner

    from toolrest.cli.run.exec import command

    result = CliRunner().invoke(command, ["--experimental-json", *OPTIONS[name], "a", "b"])
    assert "one PROMPT in quotes" in result.output


@pytest.mark.slow
def test_an_address_a_key_and_a_thread_that_goes_on(desk: Any, serve: Any) -> None:
    server = serve(["first", "second"])
    (desk.home / "config.toml").unlink()
    address = ("--config", f'openai_base_url="{server.url}"', "--model", "gpt-5.5")
    env = {"CODEX_API_KEY": "sk-of-the-sdk-0123456789"}
    first = desk.run("exec", "--experimental-json", *address, said="one", env=env)
    assert first.code == 0, first.err
    thread = first.lines[0]["thread_id"]
    again = desk.run("exec", "--experimental-json", *address, "resume", thread, said="two", env=env)
    assert again.code == 0, again.err
    assert again.lines[0]["thread_id"] == thread
    assert [request.headers["authorization"] for request in server.requests] == [
        "Bearer sk-of-the-sdk-0123456789"
    ] * 2


def test_a_key_of_codex_that_we_lack_is_an_error(desk: Any) -> None:
    ran = desk.run("exec", "--experimental-json", "--config", "notice.hide=true", said="go")
    assert ran.code == 2
    assert "notice" in ran.err


PROGRAM = """
import { Codex } from "./package/dist/index.js";
const codex = new Codex({ codexPathOverride: process.argv[2], baseUrl: process.argv[3],
  apiKey: "sk-of-the-sdk-0123456789" });
const thread = codex.startThread({ model: "gpt-5.5", sandboxMode: "workspace-write",
  workingDirectory: process.argv[4], skipGitRepoCheck: true, approvalPolicy: "never" });
const turn = await thread.run("write a file");
const next = await thread.run([{ type: "text", text: "and now?" }]);
console.log(JSON.stringify({ id: thread.id, first: turn.finalResponse, second: next.finalResponse,
  items: turn.items.map((item) => item.type), tokens: turn.usage.input_tokens }));
"""


@pytest.mark.long
@pytest.mark.needs("sandbox")
def test_the_real_sdk(desk: Any, serve: Any, node: str, tmp_path: Path) -> None:
    npm = Path(node).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    packed = subprocess.run(
        [node, npm, "pack", "@openai/codex-sdk", "--silent"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if packed.returncode:
        pytest.skip(f"npm pack @openai/codex-sdk: {packed.stderr.strip()[-200:]}")
    with tarfile.open(next(tmp_path.glob("*.tgz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "go.mjs").write_text(PROGRAM)
    server = serve(
        [[Call("exec_command", {"cmd": "echo hi > made.txt"})], "it is there", "nothing"]
    )
    (desk.home / "config.toml").unlink()
    done = subprocess.run(
        [node, tmp_path / "go.mjs", TOOLREST, server.url, desk.workspace],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["first"], said["second"]) == ("it is there", "nothing")
    assert "command_execution" in said["items"]
    assert (desk.workspace / "made.txt").read_text() == "hi\n"
