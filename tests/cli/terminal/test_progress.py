"""A command that takes longer than a second says so on stderr, at a terminal only."""

from __future__ import annotations

import os
import pty
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from tests.cli.conftest import desk, serve  # noqa: F401 - fixtures
from tests.forked import TOOLREST
from tests.screen import Screen

from toolrest.testing import Pause, Say


class _Slow(BaseHTTPRequestHandler):
    """A server that lists its models once it may."""

    may_answer = threading.Event()

    def do_GET(self) -> None:
        self.may_answer.wait(60)
        body = b'{"data": [{"id": "some-model"}]}'
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def slow() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Slow)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def _at_a_terminal(argv: list[str], cwd: Any) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = pty.openpty()
    process = subprocess.Popen(
        argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave
    )
    os.close(slave)
    return process, master


@pytest.mark.slow
def test_exec_shows_what_it_waits_for_and_leaves_no_trace(desk: Any, serve: Any) -> None:  # noqa: F811
    serve([[Pause(1.8), Say("the answer")]])
    with Screen([TOOLREST, "exec", "hello"], cwd=desk.workspace) as screen:
        screen.shows("… 1 s: the model works")
        assert screen.ends() == 0
        assert "the model works" not in screen.text
        assert [row for row in screen.rows if row][-1] == "the answer"


@pytest.mark.long
def test_a_slow_provider_is_named_and_the_output_stays_clean(desk: Any, slow: str) -> None:  # noqa: F811
    row = f'model_providers.slow={{name="Slow", base_url="{slow}", wire_api="responses"}}'
    argv = [TOOLREST, "models", "slow", "-c", row]
    process, master = _at_a_terminal(argv, desk.workspace)
    with process:
        shown = os.read(master, 10_000).decode()
        _Slow.may_answer.set()
        out, _ = process.communicate(timeout=60)
    os.close(master)
    assert shown.startswith("toolrest: asking Slow for its models ("), shown
    assert (out, process.returncode) == (b"  some-model\n", 0)


@pytest.mark.long
def test_a_slow_call_is_named_and_in_a_pipe_it_is_not(desk: Any) -> None:  # noqa: F811
    line = '{"cmd": "sleep 1.5; echo slept", "login": false}'
    argv = [TOOLREST, "call", "-s", "danger-full-access", "exec_command", line]
    process, master = _at_a_terminal(argv, desk.workspace)
    with process:
        shown = os.read(master, 10_000).decode()
        out, _ = process.communicate(timeout=60)
    os.close(master)
    assert shown.startswith("toolrest: running exec_command ("), shown
    assert out.rstrip().endswith(b"slept"), out
    quiet = subprocess.run(argv, cwd=desk.workspace, capture_output=True, text=True)
    assert "running" not in quiet.stderr
