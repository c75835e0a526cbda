"""What tools of a task do not learn: tokens, what other tasks did, secrets that checks print."""

from __future__ import annotations

import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests import machine
from tests.batch.conftest import Bench, worker
from tests.batch.test_tasks import repository

from toolrest.batch.tasks import workspace as workspace_module
from toolrest.batch.tasks.task import BatchTask
from toolrest.batch.tasks.workspace import Workspaces
from toolrest.testing import Call

LOGIN = "bob:geheim-token"
TOKEN = "ghp_" + "0123456789abcdefABCDEF0123456789abcd"  # gitleaks:allow


class _Guarded(SimpleHTTPRequestHandler):
    """Files for who knows the password."""

    def do_GET(self) -> None:
        wanted = "Basic " + base64.b64encode(LOGIN.encode()).decode()
        if self.headers["Authorization"] == wanted:
            super().do_GET()
            return
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """The address of a repository on a server that wants a password, with the password."""
    repository(tmp_path / "app")
    bare = tmp_path / "served" / "app.git"
    subprocess.run(["git", "clone", "-q", "--bare", tmp_path / "app", bare], check=True)
    subprocess.run(["git", "update-server-info"], cwd=bare, check=True)
    handler = partial(_Guarded, directory=str(bare.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://{LOGIN}@127.0.0.1:{server.server_port}/app.git"
        finally:
            server.shutdown()


def holds(folder: Path, word: str) -> list[str]:
    """The files below a folder with a word in them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [str(path) for path in files if word.encode() in path.read_bytes()]


@pytest.mark.slow
async def test_the_password_of_a_repository_is_given_to_git_alone(
    guarded: str, tmp_path: Path
) -> None:
    """The mirror can be read by all tools, `git remote -v` in a worktree shows its settings."""
    scratch = tmp_path / "scratch"
    workspaces = Workspaces(str(scratch))
    made = await workspaces.make(BatchTask("a", "p", None, repo=guarded), "a", None)
    assert (Path(made.path) / "a.txt").read_text() == "a later commit\n"
    assert holds(scratch, "geheim") == []
    (config,) = scratch.glob("mirrors/*/config")
    plain = guarded.replace(f"{LOGIN}@", "")
    assert plain in config.read_text()
    config.write_text(config.read_text().replace(plain, guarded))  # as earlier versions did
    workspace_module._fetched.clear()
    await workspaces.make(BatchTask("b", "p", None, repo=guarded), "b", None)
    assert holds(scratch, "geheim") == []


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_no_task_reads_what_another_one_stored(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """Answers of others would spoil an evaluation; sessions and audits are private at home, too."""
    outputs: list[str] = []

    def reply(body: Any) -> Any:
        texts = json.dumps(body["input"])
        if "task-1" not in texts:
            return "the answer is quokka"
        outputs[:] = [item["output"] for item in body["input"] if "output" in item]
        answer = here.store / "tasks" / "task-0" / "answer.md"
        calls = [
            Call("read_file", {"file_path": str(answer)}),
            Call("exec_command", {"cmd": f"cat {answer} || find {here.store}/tasks/task-0"}),
        ]
        return [calls[len(outputs)]] if len(outputs) < len(calls) else "done"

    here = bench(reply)
    folder = tmp_path / "place"
    folder.mkdir()
    here.tasks(2, cd=str(folder), check=f"cat {here.store}/tasks/task-0/*")
    assert here.run("-j", "1").code == 0
    assert (here.store / "tasks" / "task-0" / "answer.md").read_text() == "the answer is quokka"
    assert len(outputs) == 2
    check = (here.store / "tasks" / "task-1" / "check.txt").read_text()
    for text in (*outputs, check):
        assert "quokka" not in text
        assert "session_meta" not in text
        # Landlock cannot hide the names in a folder that is readable.
        assert machine.lacking()["namespaces"] or "journal" not in text


@pytest.mark.slow
@pytest.mark.needs("sandbox")
def test_what_a_check_prints_is_kept_without_secrets(bench: Callable[..., Bench]) -> None:
    """As what a session's own commands print."""
    here = bench(worker(1))
    config = here.desk.home / "config.toml"
    config.write_text(config.read_text() + '[redact]\npatterns = ["customer-[0-9]+"]\n')
    here.tasks(1, check=f"echo {TOKEN} of customer-12; printf 'caf\\351\\n'; echo 0.5")
    assert here.run().code == 0
    check = (here.store / "tasks" / "task-0" / "check.txt").read_bytes()
    assert check == b"[redacted:token] of [redacted:pattern-1]\ncaf\xe9\n0.5\n"
    assert here.results()["task-0"]["check"]["score"] == 0.5
    assert holds(here.store / "tasks" / "task-0", TOKEN) == []
